//! The observed capabilities of one upstream: EDNS, the case of names, DNS cookies.

use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};

use dns64_transport::clock::{Nanos, SECOND};
use siphasher::sip::SipHasher24;

/// Time for which a missing capability is remembered, as in Unbound (`infra-host-ttl`).
const MEMORY_NS: Nanos = 900 * SECOND;

/// Responses in another case, confirmed over TCP, after which an upstream counts as one that does
/// not copy the case of names. One of them can be a forgery whose contents were guessed.
const OTHER_CASES_MAX: u8 = 3;

/// Octets of a client cookie, and of server cookies (RFC 7873 section 4).
const CLIENT_LEN: usize = 8;
const SERVER_LENS: std::ops::RangeInclusive<usize> = 8..=32;

/// Octets of the longest cookie option.
pub(super) const COOKIE_MAX: usize = CLIENT_LEN + 32;

/// The form of a query to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// With an OPT record.
    pub(super) edns: bool,
    /// With a cookie.
    pub(super) cookie: bool,
    /// In random case, which the response must have too.
    pub(super) exact_case: bool,
    /// It follows BADCOOKIE, with the cookie of that response.
    pub(super) again: bool,
}

/// The observed capabilities of one upstream.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    client_cookie: [u8; CLIENT_LEN],
    cookies: Cookies,
    /// Queries have no EDNS until then.
    plain_until: Nanos,
    /// Queries are in lower case until then.
    caseless_until: Nanos,
    /// Number of responses in another case since the last in the right one.
    other_cases: u8,
}

/// The known state of an upstream's cookies.
#[derive(Clone, Debug)]
enum Cookies {
    /// Nothing yet.
    Unknown,
    /// It sends cookies; this was the last one.
    Server(Box<[u8]>),
    /// It does not send cookies. Queries have none until then.
    None { until: Nanos },
}

/// The result of the cookie check of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CookieSeen {
    /// Valid.
    Fine,
    /// The response is forged: it has another client cookie (RFC 7873 section 5.3).
    Forged,
    /// The upstream has always sent a cookie, and this response has none.
    Missing,
}

impl Habits {
    /// The initial state of an upstream. The secret must be random.
    pub(super) fn new(secret: [u8; 16], upstream: SocketAddr) -> Self {
        // RFC 7873 section 4.1: a pseudorandom function of the server's address and a secret; of the client's
        // address too, which is not known here.
        let mut hasher = SipHasher24::new_with_key(&secret);
        match upstream.ip() {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        hasher.write_u16(upstream.port());
        Self {
            client_cookie: hasher.finish().to_be_bytes(),
            cookies: Cookies::Unknown,
            plain_until: 0,
            caseless_until: 0,
            other_cases: 0,
        }
    }

    /// The form of the next query.
    pub(super) fn form(&self, randomise_case: bool, now: Nanos) -> Form {
        let edns = self.plain_until <= now;
        let cookie = !matches!(self.cookies, Cookies::None { until } if until > now);
        Form {
            edns,
            cookie: edns && cookie,
            exact_case: randomise_case && self.caseless_until <= now,
            again: false,
        }
    }

    /// Writes the value of its cookie option; returns the length.
    pub(super) fn cookie(&self, to: &mut [u8; COOKIE_MAX]) -> usize {
        to[..CLIENT_LEN].copy_from_slice(&self.client_cookie);
        let server = match &self.cookies {
            Cookies::Server(cookie) => &cookie[..],
            Cookies::Unknown | Cookies::None { .. } => &[],
        };
        let len = CLIENT_LEN + server.len();
        to[CLIENT_LEN..len].copy_from_slice(server);
        len
    }

    /// Checks the cookie option of the response to a query with a cookie, and remembers the cookie.
    pub(super) fn heard_cookie(&mut self, option: Option<&[u8]>, now: Nanos) -> CookieSeen {
        match (option, &self.cookies) {
            (Some(option), _) => {
                let Some(server) = option.strip_prefix(&self.client_cookie) else {
                    return CookieSeen::Forged;
                };
                if SERVER_LENS.contains(&server.len()) {
                    let known = matches!(&self.cookies, Cookies::Server(old) if **old == *server);
                    if !known {
                        self.cookies = Cookies::Server(server.into());
                    }
                }
                CookieSeen::Fine
            }
            (None, Cookies::Server(_)) => CookieSeen::Missing,
            (None, _) => {
                self.no_cookies(now);
                CookieSeen::Fine
            }
        }
    }

    /// It has responded over TCP, where it cannot be spoofed, without a cookie.
    pub(super) fn no_cookies(&mut self, now: Nanos) {
        self.cookies = Cookies::None {
            until: now + MEMORY_NS,
        };
    }

    /// It has responded without EDNS to a query that it failed with EDNS (RFC 6891 section 6.2.2).
    pub(super) fn no_edns(&mut self, now: Nanos) {
        if self.plain_until <= now {
            self.plain_until = now + MEMORY_NS;
        }
    }

    /// A response had the case of the query.
    pub(super) fn same_case(&mut self) {
        self.other_cases = 0;
    }

    /// A response in another case was confirmed over TCP.
    pub(super) fn other_case(&mut self, now: Nanos) {
        self.other_cases += 1;
        if self.other_cases >= OTHER_CASES_MAX {
            self.other_cases = 0;
            self.caseless_until = now + MEMORY_NS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn habits() -> Habits {
        Habits::new([1; 16], "192.0.2.53:53".parse().unwrap())
    }

    fn cookie(habits: &Habits) -> Vec<u8> {
        let mut octets = [0; COOKIE_MAX];
        let len = habits.cookie(&mut octets);
        octets[..len].to_vec()
    }

    #[test]
    fn server_cookie_is_sent_back_and_then_required() {
        let mut habits = habits();
        let client = cookie(&habits);
        assert_eq!(client.len(), CLIENT_LEN);
        let learnt = [&client[..], b"a server cookie"].concat();
        assert_eq!(habits.heard_cookie(Some(&learnt), 0), CookieSeen::Fine);
        assert_eq!(cookie(&habits), learnt);
        assert_eq!(habits.heard_cookie(None, 0), CookieSeen::Missing);
        let forged = b"another client's cookie";
        assert_eq!(habits.heard_cookie(Some(forged), 0), CookieSeen::Forged);
        assert_eq!(cookie(&habits), learnt);
        assert!(habits.form(false, 0).cookie);
        habits.no_cookies(0);
        assert!(!habits.form(false, 0).cookie);
        assert!(habits.form(false, MEMORY_NS).cookie);
    }

    #[test]
    fn upstream_without_cookies_gets_none_for_a_while() {
        let mut habits = habits();
        assert_eq!(habits.heard_cookie(None, SECOND), CookieSeen::Fine);
        assert!(!habits.form(false, SECOND).cookie);
        assert!(habits.form(false, SECOND + MEMORY_NS).cookie);
    }

    #[test]
    fn every_upstream_has_its_own_client_cookie() {
        let cookie = |address: &str| cookie(&Habits::new([1; 16], address.parse().unwrap()));
        assert_ne!(cookie("192.0.2.1:53"), cookie("192.0.2.2:53"));
        assert_eq!(cookie("192.0.2.1:53"), cookie("192.0.2.1:53"));
    }

    #[test]
    fn three_consecutive_other_cases_lead_to_lower_case_for_a_while() {
        let mut habits = habits();
        for _ in 0..2 {
            habits.other_case(SECOND);
        }
        habits.same_case();
        for _ in 0..2 {
            habits.other_case(SECOND);
        }
        assert!(habits.form(true, SECOND).exact_case);
        habits.other_case(SECOND);
        assert!(!habits.form(true, SECOND).exact_case);
        assert!(habits.form(true, SECOND + MEMORY_NS).exact_case);
    }

    #[test]
    fn edns_is_tried_again_after_a_while() {
        let mut habits = habits();
        habits.no_edns(SECOND);
        // A response meanwhile does not extend the time.
        habits.no_edns(MEMORY_NS);
        assert!(!habits.form(true, MEMORY_NS).edns);
        assert!(habits.form(true, SECOND + MEMORY_NS).edns);
    }
}
