//! The observed capabilities of one upstream: EDNS, the case of names, DNS cookies.
//!
//! That one is missing is assumed after evidence from several names, so that neither the servers of
//! one name nor one forged response can turn it off.

use std::hash::Hasher as _;
use std::net::IpAddr;

use dns64_transport::clock::{Nanos, SECOND};
use siphasher::sip::SipHasher24;

use crate::health::{Capability, Lacks};
use crate::settings::{Features, Upstream};

/// Time for which a capability or its absence is remembered, as in Unbound (`infra-host-ttl`).
const MEMORY_NS: Nanos = 900 * SECOND;

/// Number of names that show that a capability is missing, and time between them: after an outage, retries in a simple
/// form are answered at once, and responses to others follow.
const NAMES: usize = 3;
const BETWEEN_NS: Nanos = SECOND;

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

impl Form {
    fn without_edns(self) -> Self {
        Self {
            edns: false,
            cookie: false,
            ..self
        }
    }
}

/// What a response shows of its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// It has an OPT record.
    pub(super) edns: bool,
    /// It has a cookie.
    pub(super) cookie: bool,
}

/// The observed capabilities of one upstream.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    features: Features,
    client_cookie: [u8; CLIENT_LEN],
    /// The last cookie of the server.
    server_cookie: Option<Box<[u8]>>,
    /// Time of the last response with an OPT record.
    edns_at: Option<Nanos>,
    no_edns: Absence,
    no_cookies: Absence,
    no_case: Absence,
    tls: Option<Tls>,
}

/// How an upstream is queried over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    /// Always.
    Strict,
    /// From this time on; before it, it had none.
    Opportunistic(Nanos),
}

/// The evidence that a capability is missing.
#[derive(Clone, Debug, Default)]
struct Absence {
    /// Hashes of the names that show it, since the last response that showed the contrary.
    names: [u64; NAMES],
    count: usize,
    /// When the next name counts.
    next_at: Nanos,
    /// Until when it is assumed.
    until: Nanos,
}

impl Absence {
    fn holds(&self, now: Nanos) -> bool {
        self.until > now
    }

    /// Another name shows it, given by its hash; returns whether it is assumed from now on.
    fn shown(&mut self, name: impl FnOnce() -> u64, now: Nanos) -> bool {
        if now < self.next_at || self.holds(now) {
            return false;
        }
        let name = name();
        if self.names[..self.count].contains(&name) {
            return false;
        }
        self.next_at = now + BETWEEN_NS;
        self.names[self.count] = name;
        self.count += 1;
        if self.count < NAMES {
            return false;
        }
        self.count = 0;
        self.until = now + MEMORY_NS;
        true
    }

    fn refute(&mut self) {
        (self.count, self.until) = (0, 0);
    }
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
    pub(super) fn new(secret: [u8; 16], upstream: &Upstream) -> Self {
        // RFC 7873 section 4.1: a pseudorandom function of the server's address and a secret; of the client's
        // address too, which is not known here.
        let mut hasher = SipHasher24::new_with_key(&secret);
        match upstream.address.ip() {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        hasher.write_u16(upstream.address.port());
        Self {
            features: upstream.features,
            client_cookie: hasher.finish().to_be_bytes(),
            server_cookie: None,
            edns_at: None,
            no_edns: Absence::default(),
            no_cookies: Absence::default(),
            no_case: Absence::default(),
            tls: upstream.tls.as_ref().map(|tls| {
                let is_strict = tls.authentication.is_strict();
                if is_strict {
                    Tls::Strict
                } else {
                    Tls::Opportunistic(0)
                }
            }),
        }
    }

    /// The form of the next query.
    pub(super) fn form(&self, now: Nanos) -> Form {
        let edns = self.features.edns && !self.no_edns.holds(now);
        Form {
            edns,
            cookie: edns && self.features.cookies && !self.no_cookies.holds(now),
            exact_case: self.features.randomise_case && !self.no_case.holds(now),
            again: false,
        }
    }

    /// The form of a retry, `left` attempts before the last. The last one goes without EDNS, the
    /// one before it without a cookie. An upstream that is known to support them gets such a query only if it is
    /// silent.
    pub(super) fn form_of_retry(
        &self,
        left: u8,
        is_silent: bool,
        do_bit: bool,
        now: Nanos,
    ) -> Form {
        let form = self.form(now);
        // Without EDNS, an upstream that supports it would omit the signatures that a client has requested.
        if left == 0 && (!self.has_edns(now) || is_silent && !do_bit) {
            return form.without_edns();
        }
        let omit_cookie = left <= 1 && (is_silent || self.server_cookie.is_none());
        Form {
            cookie: form.cookie && !omit_cookie,
            ..form
        }
    }

    /// The form of the next query for a name for which a query in this form was a format error: without a cookie, then
    /// without EDNS.
    pub(super) fn simpler(&self, form: Form, now: Nanos) -> Option<Form> {
        if form.cookie && self.server_cookie.is_none() {
            return Some(Form {
                cookie: false,
                ..form
            });
        }
        (form.edns && !self.has_edns(now)).then(|| form.without_edns())
    }

    /// Whether it has recently responded with an OPT record: then it supports EDNS, whatever it does with a particular
    /// query (RFC 6891 section 6.2.2).
    fn has_edns(&self, now: Nanos) -> bool {
        self.edns_at.is_some_and(|at| now < at + MEMORY_NS)
    }

    /// Whether it may be queried over TCP.
    pub(super) fn tcp(&self) -> bool {
        self.features.tcp
    }

    /// Whether it is queried over TLS.
    pub(super) fn uses_tls(&self, now: Nanos) -> bool {
        match self.tls {
            None => false,
            Some(Tls::Strict) => true,
            Some(Tls::Opportunistic(from)) => now >= from,
        }
    }

    /// What it is queried without for a while, although it may have it.
    pub(super) fn lacks(&self, now: Nanos) -> Lacks {
        let absent = [
            (self.no_edns.holds(now), Capability::Edns),
            (self.no_cookies.holds(now), Capability::Cookies),
            (self.no_case.holds(now), Capability::Case),
            (self.tls.is_some() && !self.uses_tls(now), Capability::Tls),
        ];
        let absent = absent.into_iter();
        Lacks::of(absent.filter_map(|(is_absent, one)| is_absent.then_some(one)))
    }

    /// It has no TLS session. Returns whether it is queried in clear text from now on, for a while.
    pub(super) fn lost_tls(&mut self, now: Nanos) -> bool {
        let may_fall_back = matches!(self.tls, Some(Tls::Opportunistic(_)));
        if may_fall_back {
            self.tls = Some(Tls::Opportunistic(now + MEMORY_NS));
        }
        may_fall_back
    }

    /// Writes the value of its cookie option; returns the length.
    pub(super) fn cookie(&self, to: &mut [u8; COOKIE_MAX]) -> usize {
        to[..CLIENT_LEN].copy_from_slice(&self.client_cookie);
        let server = self.server_cookie.as_deref().unwrap_or_default();
        let len = CLIENT_LEN + server.len();
        to[CLIENT_LEN..len].copy_from_slice(server);
        len
    }

    /// Checks the cookie option of the response to a query with a cookie, and remembers the cookie.
    pub(super) fn heard_cookie(&mut self, option: Option<&[u8]>) -> CookieSeen {
        let Some(option) = option else {
            return match self.server_cookie {
                Some(_) => CookieSeen::Missing,
                None => CookieSeen::Fine,
            };
        };
        let Some(server) = option.strip_prefix(&self.client_cookie) else {
            return CookieSeen::Forged;
        };
        if SERVER_LENS.contains(&server.len()) && self.server_cookie.as_deref() != Some(server) {
            self.server_cookie = Some(server.into());
        }
        CookieSeen::Fine
    }

    /// Whether a response to a query in this form can change what is known of the upstream: reading its OPT record takes
    /// a walk over all records.
    pub(super) fn may_learn(&self, form: Form, now: Nanos) -> bool {
        let edns_is_new = self.edns_at.is_some_and(|at| now < at + BETWEEN_NS);
        form.cookie || !edns_is_new || form != self.form(now)
    }

    /// A response other than a format error shows that the upstream has a capability.
    pub(super) fn responded(&mut self, shown: Shown, now: Nanos) {
        if shown.edns {
            self.edns_at = Some(now);
            self.no_edns.refute();
        }
        if shown.cookie {
            self.no_cookies.refute();
        }
    }

    /// The upstream has answered a query in this form for a name. Returns the capability without which it is queried
    /// from now on because it fails queries that use it.
    pub(super) fn answered(
        &mut self,
        form: Form,
        shown: Shown,
        name: impl FnOnce() -> u64,
        now: Nanos,
    ) -> Option<Capability> {
        let usual = self.form(now);
        if usual.edns && !form.edns {
            let missing = !shown.edns && !self.has_edns(now);
            return (missing && self.no_edns.shown(name, now)).then_some(Capability::Edns);
        }
        // A response without an OPT record has no place for a cookie.
        let missing = usual.cookie && !shown.cookie && (shown.edns || !form.cookie);
        if missing && self.no_cookies.shown(name, now) {
            self.server_cookie = None;
            // Many servers ignore cookies.
            return (!form.cookie).then_some(Capability::Cookies);
        }
        None
    }

    /// A response had the case of the query.
    pub(super) fn same_case(&mut self) {
        self.no_case.refute();
    }

    /// A response in another case was confirmed. Returns the capability that the upstream is assumed not to have from
    /// now on.
    pub(super) fn other_case(&mut self, name: u64, now: Nanos) -> Option<Capability> {
        self.no_case.shown(|| name, now).then_some(Capability::Case)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Shown = Shown {
        edns: false,
        cookie: false,
    };
    const EDNS: Shown = Shown {
        edns: true,
        cookie: false,
    };

    fn upstream(address: &str) -> Upstream {
        Upstream {
            address: address.parse().unwrap(),
            timeout_ns: SECOND,
            attempts: 3,
            features: Features {
                edns: true,
                cookies: true,
                randomise_case: true,
                tcp: true,
            },
            tls: None,
            outgoing: Default::default(),
        }
    }

    fn habits() -> Habits {
        Habits::new([1; 16], &upstream("192.0.2.53:53"))
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
        assert_eq!(habits.heard_cookie(None), CookieSeen::Fine);
        let learnt = [&client[..], b"a server cookie"].concat();
        assert_eq!(habits.heard_cookie(Some(&learnt)), CookieSeen::Fine);
        assert_eq!(cookie(&habits), learnt);
        assert_eq!(habits.heard_cookie(None), CookieSeen::Missing);
        let forged = b"another client's cookie";
        assert_eq!(habits.heard_cookie(Some(forged)), CookieSeen::Forged);
        assert_eq!(cookie(&habits), learnt);
    }

    #[test]
    fn upstream_without_cookies_gets_none_after_three_names() {
        let mut habits = habits();
        let usual = habits.form(0);
        for (name, at) in [(1, 1), (1, 2), (2, 3), (9, 3), (1, 4), (2, 5), (3, 6)] {
            assert!(habits.form(at * SECOND).cookie);
            let lacks = habits.answered(usual, EDNS, || name, at * SECOND);
            assert_eq!(lacks, None);
        }
        assert!(!habits.form(6 * SECOND).cookie);
        let later = 6 * SECOND + MEMORY_NS;
        assert!(habits.form(later).cookie);
        // One that fails queries with a cookie.
        let without = Form {
            cookie: false,
            ..usual
        };
        let mut answered = |name| habits.answered(without, EDNS, || name, later + name * SECOND);
        let names = [1, 2, 3].map(&mut answered);
        assert_eq!(names, [None, None, Some(Capability::Cookies)]);
    }

    #[test]
    fn every_upstream_has_its_own_client_cookie() {
        let cookie = |address: &str| cookie(&Habits::new([1; 16], &upstream(address)));
        assert_ne!(cookie("192.0.2.1:53"), cookie("192.0.2.2:53"));
        assert_eq!(cookie("192.0.2.1:53"), cookie("192.0.2.1:53"));
    }

    #[test]
    fn three_names_in_another_case_lead_to_lower_case_for_a_while() {
        let mut habits = habits();
        for (name, at) in [(1, 1), (2, 2), (2, 3)] {
            assert_eq!(habits.other_case(name, at * SECOND), None);
        }
        habits.same_case();
        for name in [3, 4] {
            assert_eq!(habits.other_case(name, name * SECOND), None);
        }
        let now = 5 * SECOND;
        assert!(habits.form(now).exact_case);
        assert_eq!(habits.other_case(5, now), Some(Capability::Case));
        assert!(!habits.form(now).exact_case);
        assert_eq!(habits.lacks(now), Lacks::of([Capability::Case]));
        assert!(habits.form(now + MEMORY_NS).exact_case);
        assert_eq!(habits.lacks(now + MEMORY_NS), Lacks::default());
    }

    #[test]
    fn upstream_without_edns_gets_none_after_three_names() {
        let mut habits = habits();
        let plain = habits.form(0).without_edns();
        let mut answered = |name, at| habits.answered(plain, NOTHING, || name, at * SECOND);
        let names = [(1, 1), (1, 2), (2, 3), (3, 4)].map(|(name, at)| answered(name, at));
        assert_eq!(names, [None, None, None, Some(Capability::Edns)]);
        assert!(!habits.form(MEMORY_NS).edns);
        assert!(habits.form(4 * SECOND + MEMORY_NS).edns);
    }

    #[test]
    fn upstream_that_has_sent_an_opt_record_has_edns() {
        let mut habits = habits();
        let plain = habits.form(0).without_edns();
        habits.responded(EDNS, SECOND);
        for name in 1..=900 {
            assert_eq!(
                habits.answered(plain, NOTHING, || name, name * SECOND),
                None
            );
        }
        let later = SECOND + MEMORY_NS;
        assert_eq!(habits.form(later), habits.form(0));
        let no_cookie = Form {
            cookie: false,
            ..habits.form(0)
        };
        assert_eq!(habits.simpler(habits.form(0), SECOND), Some(no_cookie));
        assert_eq!(habits.simpler(no_cookie, SECOND), None);
        assert_eq!(habits.simpler(no_cookie, later), Some(plain));
        let mut answered = |name| habits.answered(plain, NOTHING, || name, later + name * SECOND);
        let names = [1, 2, 3].map(&mut answered);
        assert_eq!(names, [None, None, Some(Capability::Edns)]);
    }

    #[test]
    fn last_retries_go_without_cookie_and_without_edns() {
        let mut habits = habits();
        let form = |habits: &Habits, left, is_silent, do_bit| {
            let form = habits.form_of_retry(left, is_silent, do_bit, SECOND);
            (form.edns, form.cookie)
        };
        assert_eq!(form(&habits, 2, false, true), (true, true));
        assert_eq!(form(&habits, 1, false, true), (true, false));
        assert_eq!(form(&habits, 0, false, true), (false, false));
        let cookie = [&cookie(&habits)[..], b"a server cookie"].concat();
        habits.heard_cookie(Some(&cookie));
        habits.responded(EDNS, SECOND);
        assert_eq!(form(&habits, 0, false, false), (true, true), "only slow");
        assert_eq!(form(&habits, 1, true, false), (true, false));
        assert_eq!(form(&habits, 0, true, false), (false, false));
        assert_eq!(form(&habits, 0, true, true), (true, false), "signatures");
    }
}
