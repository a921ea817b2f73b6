//! DNS cookies (RFC 7873) in the interoperable format of RFC 9018, without state per client.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use crate::settings::cookies::CookieSecrets;

/// Code of the EDNS option with a cookie (RFC 7873 section 4).
pub(crate) const OPTION_COOKIE: u16 = 10;

/// Length of a client cookie in octets (RFC 7873 section 4).
const CLIENT_LEN: usize = 8;

/// Length of a client cookie and a server cookie of RFC 9018 section 4, in octets.
const COOKIE_LEN: usize = 24;

/// Lengths of an option with a server cookie of any format, in octets: 8 and 8 to 32 (RFC 7873
/// section 4).
const WITH_SERVER_LEN: std::ops::RangeInclusive<usize> = 16..=40;

/// Version 1 and three reserved octets, at the start of a server cookie (RFC 9018 section 4).
const VERSION: u8 = 1;
const VERSION_AND_RESERVED: [u8; 4] = [VERSION, 0, 0, 0];

/// Largest age of a cookie, and how far its time may be in the future, in seconds (RFC 9018 section
/// 4.3).
const AGE_MAX_S: u32 = 3600;
const AHEAD_MAX_S: u32 = 300;

/// Age from which a cookie is replaced by a new one, in seconds (RFC 9018 section 4.3).
const RENEW_AFTER_S: u32 = 1800;

/// Makes and checks server cookies.
#[derive(Clone, Debug)]
pub struct Cookies(CookieSecrets);

/// The outcome of the check of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Client cookie and server cookie of the response.
    pub cookie: [u8; COOKIE_LEN],
    /// Whether the query had a server cookie.
    pub has_server: bool,
    /// Whether the server cookie is valid, which shows that the client's address is not forged.
    pub valid: bool,
}

/// A cookie option has an invalid length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cookie option of {len} octets; a cookie has 8, or 16 to 40")]
pub struct CookieLength {
    /// Length in octets.
    pub len: usize,
}

impl Cookies {
    /// Creates cookies with these secrets, which must be random, and the same for all workers of a server.
    pub fn new(secrets: CookieSecrets) -> Self {
        Self(secrets)
    }

    /// Checks the value of a cookie option from `client` at a time of the server's clock in seconds, and returns the
    /// cookie of the response. An invalid server cookie counts as none.
    ///
    /// Returns an error, to be answered with FORMERR, if the length is invalid (RFC 7873 section
    /// 5.2.2).
    pub fn answer(
        &self,
        option: &[u8],
        client: IpAddr,
        now_s: u32,
    ) -> Result<Checked, CookieLength> {
        let now_s = now_s.wrapping_add(self.0.epoch_s);
        let len = option.len();
        let client_cookie: [u8; CLIENT_LEN] = match option.first_chunk() {
            Some(cookie) if len == CLIENT_LEN || WITH_SERVER_LEN.contains(&len) => *cookie,
            _ => return Err(CookieLength { len }),
        };
        let received = <[u8; COOKIE_LEN]>::try_from(option)
            .ok()
            .filter(|cookie| cookie[CLIENT_LEN] == VERSION);
        if let Some(cookie) = received {
            let (hashed, hash) = cookie.split_at(16);
            // Serial number arithmetic: the time has 32 bits (RFC 9018 section 4.3).
            let made_s = u32::from_be_bytes([cookie[12], cookie[13], cookie[14], cookie[15]]);
            let age_s = now_s.wrapping_sub(made_s);
            let in_time = age_s <= AGE_MAX_S || age_s.wrapping_neg() <= AHEAD_MAX_S;
            let is_of = |secret: &[u8; 16]| keyed(secret, hashed, client) == hash;
            let is_first = in_time && is_of(&self.0.first);
            if is_first || in_time && self.0.second.as_ref().is_some_and(is_of) {
                let fresh = is_first
                    && age_s < RENEW_AFTER_S
                    && hashed[CLIENT_LEN..12] == VERSION_AND_RESERVED;
                let cookie = if fresh {
                    cookie
                } else {
                    self.make(client_cookie, client, now_s)
                };
                return Ok(Checked {
                    cookie,
                    has_server: true,
                    valid: true,
                });
            }
        }
        Ok(Checked {
            cookie: self.make(client_cookie, client, now_s),
            has_server: len > CLIENT_LEN,
            valid: false,
        })
    }

    fn make(
        &self,
        client_cookie: [u8; CLIENT_LEN],
        client: IpAddr,
        now_s: u32,
    ) -> [u8; COOKIE_LEN] {
        let mut cookie = [0; COOKIE_LEN];
        cookie[..8].copy_from_slice(&client_cookie);
        cookie[8..12].copy_from_slice(&VERSION_AND_RESERVED);
        cookie[12..16].copy_from_slice(&now_s.to_be_bytes());
        let hash = keyed(&self.0.first, &cookie[..16], client);
        cookie[16..].copy_from_slice(&hash);
        cookie
    }
}

/// The hash over client cookie, version, reserved octets, time and address (RFC 9018 section
/// 4.4), in the octet order of the SipHash reference implementation.
fn keyed(secret: &[u8; 16], cookie: &[u8], client: IpAddr) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(cookie);
    match client.to_canonical() {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.chars().map(|c| c.to_digit(16).unwrap()).collect();
        let octet = |pair: &[u32]| u8::try_from(16 * pair[0] + pair[1]).unwrap();
        digits.chunks(2).map(octet).collect()
    }

    fn answer(secret: &str, client: &str, option: &str, now_s: u32) -> (Vec<u8>, bool) {
        let secrets = CookieSecrets::own(bytes(secret).try_into().unwrap());
        answer_by(secrets, client, option, now_s)
    }

    fn answer_by(
        secrets: CookieSecrets,
        client: &str,
        option: &str,
        now_s: u32,
    ) -> (Vec<u8>, bool) {
        let cookies = Cookies::new(secrets);
        let client = client.parse().unwrap();
        let checked = cookies.answer(&bytes(option), client, now_s).unwrap();
        (checked.cookie.to_vec(), checked.valid)
    }

    const SECRET: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";
    const CLIENT: &str = "198.51.100.100";
    const FIRST: &str = "2464c4abcf10c957010000005cf79f111f8130c3eee29480";

    #[test]
    fn examples_of_rfc_9018_appendix_a_are_reproduced() {
        let first = answer(SECRET, CLIENT, "2464c4abcf10c957", 1_559_731_985);
        assert_eq!(first, (bytes(FIRST), false));
        let mapped = answer(
            SECRET,
            "::ffff:198.51.100.100",
            "2464c4abcf10c957",
            1_559_731_985,
        );
        assert_eq!(mapped, first);
        let renewed = "2464c4abcf10c957010000005cf7a871d4a564a1442aca77";
        assert_eq!(
            answer(SECRET, CLIENT, FIRST, 1_559_734_385),
            (bytes(renewed), true)
        );
        // The cookie of A.3 is almost two hours old, which section 4.3 forbids. A.3 does not
        // mention it.
        let reserved = "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5";
        let another = bytes("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e");
        let late = answer(SECRET, "203.0.113.203", reserved, 1_559_734_700);
        assert_eq!(late, (another, false));
        assert!(answer(SECRET, "203.0.113.203", reserved, 1_559_727_985).1);
    }

    #[test]
    fn rollover_of_rfc_9018_appendix_a_4_is_reproduced() {
        let [old, new] = [
            "dd3bdf9344b678b185a6f5cb60fca715",
            "445536bcd2513298075a5d379663c962",
        ]
        .map(|secret| <[u8; 16]>::try_from(bytes(secret)).unwrap());
        let by = |first, second| CookieSecrets {
            first,
            second,
            epoch_s: 1_559_741_961,
        };
        let client = "2001:db8:220:1:59de:d0f4:8769:82b8";
        let of_old = "22681ab97d52c298010000005cf7c57926556bd0934c72f8";
        let of_new = "22681ab97d52c298010000005cf7c609a6bb79d16625507a";
        let answer = |secrets, cookie| answer_by(secrets, client, cookie, 0);
        // Before it, while both are accepted, and after it.
        assert_eq!(answer(by(old, Some(new)), of_old), (bytes(of_old), true));
        assert!(answer(by(old, Some(new)), of_new).1);
        assert_eq!(answer(by(new, Some(old)), of_old), (bytes(of_new), true));
        assert_eq!(answer(by(new, Some(old)), of_new), (bytes(of_new), true));
        assert_eq!(answer(by(new, None), of_old), (bytes(of_new), false));
    }

    #[test]
    fn cookie_is_valid_for_one_hour_and_its_client_only() {
        let made_s = 1_559_731_985;
        let valid = |now_s| answer(SECRET, CLIENT, FIRST, now_s).1;
        assert!(valid(made_s) && valid(made_s + 3600) && valid(made_s - 300));
        assert!(!valid(made_s + 3601) && !valid(made_s - 301));
        assert!(!answer(SECRET, "198.51.100.101", FIRST, made_s).1);
        let young = answer(SECRET, CLIENT, FIRST, made_s + 1799);
        assert_eq!(young, (bytes(FIRST), true));
        assert_ne!(answer(SECRET, CLIENT, FIRST, made_s + 1800).0, bytes(FIRST));
        let version_2 = FIRST.replace("01000000", "02000000");
        assert!(!answer(SECRET, CLIENT, &version_2, made_s).1);
    }

    #[test]
    fn invalid_cookie_lengths_are_errors() {
        let cookies = Cookies::new(CookieSecrets::own([7; 16]));
        let client = "192.0.2.1".parse().unwrap();
        for len in 0..50 {
            let good = len == 8 || (16..=40).contains(&len);
            let answer = cookies.answer(&vec![1; len], client, 0);
            assert_eq!(answer.is_ok(), good, "{len}");
            assert!(answer.is_err() || !answer.unwrap().valid);
        }
    }
}
