//! What one upstream can and cannot do, as it has shown: EDNS, the case of names, DNS cookies.

use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};

use dns64_transport::clock::{Nanos, SECOND};
use siphasher::sip::SipHasher24;

/// How long it is remembered what an upstream cannot do, as in Unbound (`infra-host-ttl`).
const MEMORY_NS: Nanos = 900 * SECOND;

/// Answers in another case, confirmed over connections, after which an upstream is held not to copy
/// the case of names. One can be a forgery whose content was guessed.
const OTHER_CASES_MAX: u8 = 3;

/// Octets of a client cookie, and of server cookies (RFC 7873 section 4).
const CLIENT_LEN: usize = 8;
const SERVER_LENS: std::ops::RangeInclusive<usize> = 8..=32;

/// Octets of the longest cookie option.
pub(super) const COOKIE_MAX: usize = CLIENT_LEN + 32;

/// How a question is put to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// With an OPT record.
    pub(super) edns: bool,
    /// With a cookie.
    pub(super) cookie: bool,
    /// In random case, which the answer has to have too.
    pub(super) exact_case: bool,
    /// It was refused with BADCOOKIE once, and has the cookie that came with that.
    pub(super) again: bool,
}

/// What one upstream has shown.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    client_cookie: [u8; CLIENT_LEN],
    cookies: Cookies,
    /// It is asked without EDNS until then.
    plain_until: Nanos,
    /// It is asked in lower case until then.
    caseless_until: Nanos,
    /// Answers in another case since the last in the right one.
    other_cases: u8,
}

/// What is known of an upstream's cookies.
#[derive(Clone, Debug)]
enum Cookies {
    /// Nothing yet.
    Unknown,
    /// It sends them; this was the last.
    Server(Box<[u8]>),
    /// It does not send them, and is not sent any until then.
    None { until: Nanos },
}

/// What the cookie of an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CookieSeen {
    /// Nothing against the answer.
    Fine,
    /// The answer is forged: its client cookie is another's (RFC 7873 section 5.3).
    Forged,
    /// The upstream has always sent a cookie, and here is none.
    Missing,
}

impl Habits {
    /// An upstream of which nothing is known. The secret must be random.
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

    /// How it is asked now.
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

    /// Judges the cookie option of an answer to a question with a cookie, and learns from it.
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

    /// It has answered over a connection, where nobody can pretend to be it, without a cookie.
    pub(super) fn no_cookies(&mut self, now: Nanos) {
        self.cookies = Cookies::None {
            until: now + MEMORY_NS,
        };
    }

    /// It has answered without EDNS what it could not answer with it (RFC 6891 section 6.2.2).
    pub(super) fn no_edns(&mut self, now: Nanos) {
        if self.plain_until <= now {
            self.plain_until = now + MEMORY_NS;
        }
    }

    /// An answer had the case of its question.
    pub(super) fn same_case(&mut self) {
        self.other_cases = 0;
    }

    /// An answer that had not was the same over a connection.
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
    fn a_server_cookie_is_sent_back_and_then_expected() {
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
    fn an_upstream_without_cookies_is_not_sent_any_for_a_while() {
        let mut habits = habits();
        assert_eq!(habits.heard_cookie(None, SECOND), CookieSeen::Fine);
        assert!(!habits.form(false, SECOND).cookie);
        assert!(habits.form(false, SECOND + MEMORY_NS).cookie);
    }

    #[test]
    fn each_upstream_has_a_client_cookie_of_its_own() {
        let cookie = |address: &str| cookie(&Habits::new([1; 16], address.parse().unwrap()));
        assert_ne!(cookie("192.0.2.1:53"), cookie("192.0.2.2:53"));
        assert_eq!(cookie("192.0.2.1:53"), cookie("192.0.2.1:53"));
    }

    #[test]
    fn three_other_cases_in_a_row_lead_to_lower_case_for_a_while() {
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
        // An answer meanwhile does not prolong it.
        habits.no_edns(MEMORY_NS);
        assert!(!habits.form(true, MEMORY_NS).edns);
        assert!(habits.form(true, SECOND + MEMORY_NS).edns);
    }
}
