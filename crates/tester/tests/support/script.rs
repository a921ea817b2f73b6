//! A DNS64 server with a script of faults, exact to each query, without a link or a clock. Tests run it on a simulated
//! network or on a socket.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::pref64::Pref64;
use dns64bench::load::names::RESERVED;
use dns64bench::namespace::parse_label;
use dns64bench::trial::result::Answers;

/// Behaviour of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Conduct {
    /// Answers each query correctly.
    Good,
    /// Applies this fault to every query.
    Always(Fault),
    /// Answers after this delay.
    Late(Nanos),
    /// Answers this number of queries of trials, then none at all.
    DieAfter(u64),
    /// Serves this number of queries per second from an unlimited queue (Lencse et al. 2017, section 4.4).
    Queue(u64),
    /// Answers this number of queries in each second of its clock, and no others.
    PerSecond(u64),
    /// As [`Conduct::Queue`], from a queue with this number of places; excess queries are lost.
    Bounded(u64, u64),
    /// Answers all queries except every n-th of a trial that arrives.
    LoseEvery(u64),
    /// Answers each query correctly, but from another port of this address: implemented by the link.
    From(IpAddr),
    /// The same for the names of trials only.
    TrialsFrom(IpAddr),
    /// Applies these faults to the queries at their places, and answers the others correctly, those before trials too.
    Faults(&'static [(Fault, At)]),
}

/// A fault of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// An address with another prefix.
    WrongAddress,
    /// The correct address, and another one.
    ExtraAddress,
    /// NOERROR without records.
    Empty,
    /// SERVFAIL.
    ServFail,
    /// REFUSED.
    Refused,
    /// NXDOMAIN.
    NxDomain,
    /// TC.
    Truncated,
    /// A record that is longer than the message.
    Malformed,
    /// Three octets.
    Garbage,
    /// The correct answer with another ID.
    WrongId,
    /// An answer to another question with the correct ID.
    WrongQuestion,
    /// The correct answer twice.
    Twice,
    /// The correct answer after this delay.
    Late(Nanos),
    /// No response.
    Silent,
}

/// Places: the names whose index in 10.0.0.0/8 modulo `every` is `first`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) first: u64,
    pub(crate) every: u64,
}

impl At {
    /// Every name.
    pub(crate) const ALL: Self = Self { first: 0, every: 1 };

    /// Returns the number of selected names below `n`.
    fn below(self, n: u64) -> u64 {
        (n + self.every - 1 - self.first) / self.every
    }
}

/// Returns the expected counts of a trial of `queries` queries for different names, from the first on. The places must
/// be disjoint.
pub(crate) fn truth(faults: &[(Fault, At)], queries: u64) -> Answers {
    let mut answers = Answers::default();
    for &(fault, at) in faults {
        let n = at.below(queries);
        let class = match fault {
            Fault::WrongAddress => &mut answers.wrong,
            Fault::ExtraAddress => {
                answers.valid += n;
                &mut answers.other_addresses
            }
            Fault::Empty => &mut answers.empty,
            Fault::ServFail | Fault::Refused | Fault::NxDomain | Fault::Malformed => {
                &mut answers.error
            }
            Fault::Truncated => &mut answers.truncated,
            Fault::Late(_) => &mut answers.late,
            Fault::Silent => &mut answers.missing,
            Fault::Garbage | Fault::WrongId | Fault::WrongQuestion => {
                answers.stray += n;
                &mut answers.missing
            }
            Fault::Twice => {
                answers.valid += n;
                &mut answers.duplicate
            }
        };
        *class += n;
    }
    let told = [
        answers.wrong,
        answers.empty,
        answers.error,
        answers.truncated,
        answers.late,
        answers.missing,
        answers.valid,
    ];
    answers.valid += queries - told.iter().sum::<u64>();
    answers
}

/// The server: takes queries, and returns replies when they are due.
pub(crate) struct Script {
    conduct: Conduct,
    pref64: Pref64,
    /// Number of queries of trials that have arrived.
    seen: u64,
    busy_until: Nanos,
    /// The current second, and the answers in it.
    second: (Nanos, u64),
    /// Pending replies by due time, then in order of arrival.
    held: BTreeMap<(Nanos, u64), (SocketAddr, Vec<u8>)>,
    kept: u64,
}

impl Script {
    pub(crate) fn new(conduct: Conduct, pref64: Pref64) -> Self {
        Self {
            conduct,
            pref64,
            seen: 0,
            busy_until: 0,
            second: (0, 0),
            held: BTreeMap::new(),
            kept: 0,
        }
    }

    /// Returns when the next reply is due.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.held.keys().next().map(|(at, _)| *at)
    }

    /// Returns the next reply that is due at `now`, with its destination.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<(SocketAddr, Vec<u8>)> {
        let first = self.held.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Takes a query.
    pub(crate) fn take(&mut self, peer: SocketAddr, query: &[u8], now: Nanos) {
        self.seen += u64::from(is_of_trial(query));
        let (at, replies) = self.replies(query, now);
        for reply in replies {
            self.held.insert((at, self.kept), (peer, reply));
            self.kept += 1;
        }
    }

    fn replies(&mut self, query: &[u8], now: Nanos) -> (Nanos, Vec<Vec<u8>>) {
        let good = answer(query, self.pref64);
        match self.conduct {
            Conduct::Good | Conduct::From(_) | Conduct::TrialsFrom(_) => (now, vec![good]),
            Conduct::Always(fault) => self.faulty(fault, query, now),
            Conduct::Late(by) => (now + by, vec![good]),
            Conduct::DieAfter(n) if self.seen > n => (now, vec![]),
            Conduct::DieAfter(_) => (now, vec![good]),
            Conduct::PerSecond(most) => {
                let (second, answers) = self.second;
                let answers = if second == now / SECOND { answers } else { 0 };
                self.second = (now / SECOND, answers + 1);
                (now, Vec::from_iter((answers < most).then_some(good)))
            }
            Conduct::Queue(rate_qps) => self.served(rate_qps, u64::MAX, good, now),
            Conduct::Bounded(rate_qps, places) => self.served(rate_qps, places, good, now),
            Conduct::LoseEvery(n) if is_of_trial(query) && self.seen.is_multiple_of(n) => {
                (now, vec![])
            }
            Conduct::LoseEvery(_) => (now, vec![good]),
            Conduct::Faults(faults) => {
                let n = number(query);
                let met = faults.iter().find(|(_, at)| n % at.every == at.first);
                let met = met.filter(|_| is_of_trial(query));
                match met {
                    Some((fault, _)) => self.faulty(*fault, query, now),
                    None => (now, vec![good]),
                }
            }
        }
    }

    fn served(
        &mut self,
        rate_qps: u64,
        places: u64,
        good: Vec<u8>,
        now: Nanos,
    ) -> (Nanos, Vec<Vec<u8>>) {
        let service_ns = SECOND / rate_qps;
        let waiting = self.busy_until.saturating_sub(now) / service_ns;
        if waiting >= places {
            return (now, vec![]);
        }
        self.busy_until = self.busy_until.max(now) + service_ns;
        (self.busy_until, vec![good])
    }

    fn faulty(&self, fault: Fault, query: &[u8], now: Nanos) -> (Nanos, Vec<Vec<u8>>) {
        let mut good = answer(query, self.pref64);
        let other = answer(query, "2001:db8:64::/96".parse().unwrap());
        let replies = match fault {
            Fault::WrongAddress => vec![other],
            Fault::ExtraAddress => {
                good[7] = 2;
                good.extend_from_slice(&other[query.len()..]);
                vec![good]
            }
            Fault::Empty => vec![flagged(query, [0x81, 0x80])],
            Fault::ServFail => vec![flagged(query, [0x81, 0x82])],
            Fault::Refused => vec![flagged(query, [0x81, 0x85])],
            Fault::NxDomain => vec![flagged(query, [0x81, 0x83])],
            Fault::Truncated => vec![flagged(query, [0x83, 0x80])],
            Fault::Malformed => {
                good.truncate(good.len() - 7);
                vec![good]
            }
            Fault::Garbage => vec![vec![1, 2, 3]],
            Fault::WrongId => {
                good[1] ^= 0x55;
                vec![good]
            }
            Fault::WrongQuestion => {
                // The last digit of the name.
                good[27] = b'0' + (good[27] - b'0' + 1) % 10;
                vec![good]
            }
            Fault::Twice => vec![good.clone(), good],
            Fault::Late(by) => return (now + by, vec![good]),
            Fault::Silent => vec![],
        };
        (now, replies)
    }
}

/// Returns whether a name is not one of those that are queried before trials.
pub(crate) fn is_of_trial(query: &[u8]) -> bool {
    number(query) < (1 << 24) - RESERVED
}

/// Returns the index of a query's name in 10.0.0.0/8.
fn number(query: &[u8]) -> u64 {
    let address = parse_label(query[13..28].try_into().unwrap()).unwrap();
    u64::from(u32::from(address) & 0x00ff_ffff)
}

fn answer(query: &[u8], pref64: Pref64) -> Vec<u8> {
    let address = parse_label(query[13..28].try_into().unwrap()).unwrap();
    let mut reply = flagged(query, [0x81, 0x80]);
    reply[7] = 1;
    reply.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
    reply.extend(pref64.embed(address).octets());
    reply
}

fn flagged(query: &[u8], flags: [u8; 2]) -> Vec<u8> {
    let mut reply = query.to_vec();
    reply[2..4].copy_from_slice(&flags);
    reply
}
