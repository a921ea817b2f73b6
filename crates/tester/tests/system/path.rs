//! The path of the queries through DUT and authority: the reported times and counts match the simulation.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use dns64_transport::clock::{Clock, ManualClock, Nanos};
use dns64_transport::memory::{MemoryLink, Network};
use dns64_transport::{Datagram, Link};
use dns64_wire::codes::Rtype;
use dns64_wire::pref64::Pref64;
use dns64bench::authority::answer::Authority;
use dns64bench::authority::behaviour::Rules;
use dns64bench::authority::ledger::{NameLedger, Recorder};
use dns64bench::authority::zone::ZoneConfig;
use dns64bench::namespace::{AskedName, parse_label};
use dns64bench::procedure::audit::{self, Finding};
use dns64bench::trial::TrialSpec;
use dns64bench::trial::fault::TesterFault;
use dns64bench::trial::path::{AnsweredNames, LostNames, Path};
use dns64bench::trial::result::{Outcome, TrialResult};
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::{AuthorityReport, Surroundings};
use dns64bench::trial::turns::Serving;

use crate::lagging::{Held, Lagging};
use crate::rough::Rough;
use crate::trial::{MILLISECOND, PLAIN, Shards, Trial, zone};

const AUTHORITY: &str = "[2001:2:0:1::53]:53";
const UPSTREAM_SIDE: &str = "[2001:2:0:1::2]:5300";

/// Cost of each message of the DUT, and delay of a link.
const WORK_NS: Nanos = 10_000;
const LINK_NS: Nanos = PLAIN.impairment.delay_ns;

/// Order of the DUT's upstream queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// AAAA, and A after the response.
    InTurn,
    /// Both at once.
    AtOnce,
    /// In turn, each query twice.
    Twice,
    /// Only A.
    AOnly,
}

/// A DUT and its authority, with their faults.
#[derive(Clone, Copy, Debug)]
struct Setup {
    trial: Trial,
    asks: Asks,
    /// Response time of the authority.
    lag_ns: Nanos,
    /// Injected faults of the authority.
    behaviour: &'static str,
    /// Every n-th query is answered from the cache; 0 for none.
    cached_every: u64,
    /// Every n-th query is lost before the DUT sends upstream queries; 0 for none.
    deaf_every: u64,
    /// Every n-th query is lost after the upstream queries; 0 for none.
    mute_every: u64,
}

const SETUP: Setup = Setup {
    trial: PLAIN,
    asks: Asks::InTurn,
    lag_ns: 0,
    behaviour: "none",
    cached_every: 0,
    deaf_every: 0,
    mute_every: 0,
};

/// A DNS64 server that forwards.
struct Forwarder {
    setup: Setup,
    clock: ManualClock,
    clients: MemoryLink,
    upstream: MemoryLink,
    seen: u64,
    /// Waiting client of each name, with the missing types.
    waiting: HashMap<Ipv4Addr, Waiting>,
    known: HashSet<Ipv4Addr>,
    /// Outgoing datagrams by time and order: destination, and whether it is the authority.
    leaving: BTreeMap<(Nanos, usize), (SocketAddr, Vec<u8>)>,
    sent: usize,
}

struct Waiting {
    number: u64,
    client: SocketAddr,
    query: Vec<u8>,
    missing: Vec<u8>,
}

const AAAA: u8 = 28;
const A: u8 = 1;

impl Forwarder {
    fn next_due(&self) -> Option<Nanos> {
        Some(self.leaving.keys().next()?.0)
    }

    fn send(&mut self, to: SocketAddr, message: Vec<u8>) {
        self.sent += 1;
        let at = self.clock.now() + WORK_NS;
        self.leaving.insert((at, self.sent), (to, message));
    }

    fn ask(&mut self, query: &[u8], rtype: u8) {
        let mut question = query.to_vec();
        let at = question.len() - 3;
        question[at] = rtype;
        for _ in 0..if self.setup.asks == Asks::Twice { 2 } else { 1 } {
            self.send(AUTHORITY.parse().unwrap(), question.clone());
        }
    }

    fn reply(&mut self, to: SocketAddr, query: &[u8]) {
        let mut reply = query.to_vec();
        (reply[2], reply[3], reply[7]) = (0x81, 0x80, 1);
        reply.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
        reply.extend(Pref64::WELL_KNOWN.embed(address(query)).octets());
        self.send(to, reply);
    }

    fn take(&mut self, client: SocketAddr, query: Vec<u8>) {
        self.seen += 1;
        let is_nth = |n: u64, number: u64| n > 0 && number.is_multiple_of(n);
        if is_nth(self.setup.deaf_every, self.seen) {
            return;
        }
        if is_nth(self.setup.cached_every, self.seen) || self.known.contains(&address(&query)) {
            return self.reply(client, &query);
        }
        let missing = match self.setup.asks {
            Asks::InTurn | Asks::Twice => vec![AAAA],
            Asks::AtOnce => vec![AAAA, A],
            Asks::AOnly => vec![A],
        };
        for rtype in &missing {
            self.ask(&query, *rtype);
        }
        let waiting = Waiting {
            number: self.seen,
            client,
            query,
            missing,
        };
        self.waiting.insert(address(&waiting.query), waiting);
    }

    fn learn(&mut self, answer: &[u8]) {
        let Some(mut waiting) = self.waiting.remove(&address(answer)) else {
            return;
        };
        let rtype = answer[waiting.query.len() - 3];
        let before = waiting.missing.len();
        waiting.missing.retain(|missing| *missing != rtype);
        let is_news = waiting.missing.len() < before;
        let in_turn = matches!(self.setup.asks, Asks::InTurn | Asks::Twice);
        if in_turn && is_news && rtype == AAAA {
            self.ask(&waiting.query.clone(), A);
            waiting.missing.push(A);
        }
        if !waiting.missing.is_empty() {
            self.waiting.insert(address(answer), waiting);
            return;
        }
        self.known.insert(address(answer));
        let mute = self.setup.mute_every;
        if mute == 0 || !waiting.number.is_multiple_of(mute) {
            self.reply(waiting.client, &waiting.query);
        }
    }

    fn turn(&mut self) {
        let mut came = Vec::new();
        let each = |d: Datagram<'_>| came.push((d.peer, d.payload.to_vec()));
        self.clients.receive(usize::MAX, each).unwrap();
        came.drain(..)
            .for_each(|(peer, query)| self.take(peer, query));
        let each = |d: Datagram<'_>| came.push((d.peer, d.payload.to_vec()));
        self.upstream.receive(usize::MAX, each).unwrap();
        came.drain(..).for_each(|(_, answer)| self.learn(&answer));
        let now = self.clock.now();
        while let Some(entry) = self.leaving.first_entry()
            && entry.key().0 <= now
        {
            let (to, message) = entry.remove();
            let is_question = to == AUTHORITY.parse().unwrap();
            let link = if is_question {
                &mut self.upstream
            } else {
                &mut self.clients
            };
            link.send_to(to, &message);
        }
    }
}

fn address(message: &[u8]) -> Ipv4Addr {
    parse_label(message[13..28].try_into().unwrap()).unwrap()
}

#[test]
fn audit_finds_answers_that_were_not_asked_for_and_losses() {
    let found = |setup: Setup| audit::finding(&[setup.run()]);
    assert_eq!(found(SETUP), None);
    for (cached_every, unasked) in [(1, 2000), (4, 500)] {
        let cheats = Setup {
            cached_every,
            ..SETUP
        };
        assert_eq!(found(cheats), Some(Finding::Unasked(unasked)));
    }
    let slow = Setup {
        mute_every: 1000,
        ..SETUP
    };
    assert_eq!(found(slow), Some(Finding::Slower));
    let trials = [slow.run(), SETUP.run()];
    assert_eq!(audit::finding(&trials), None);
    assert!(audit::is_open(&trials[..1]) && !audit::is_open(&trials));
}

/// Returns the counts of this number of names, to be completed by their classes.
fn all(names: u64) -> AnsweredNames {
    AnsweredNames {
        names,
        ..AnsweredNames::default()
    }
}

impl Setup {
    /// Runs a trial; `meanwhile` may write to the authority's ledger before it is read.
    fn run_with(&self, meanwhile: impl FnOnce(&TrialSpec, &Arc<NameLedger>)) -> TrialResult {
        let spec = self.trial.spec();
        let clock = ManualClock::default();
        let network = Network::new(&clock, 1);
        let wire = self.trial.impairment;
        let link = || {
            let local = "2001:2::1".parse().unwrap();
            Rough::over(network.client(local, 2, spec.server, wire), &clock)
        };
        let links: Vec<_> = (0..2).map(|_| link()).collect();
        let mut dut = Forwarder {
            setup: *self,
            clock: clock.clone(),
            clients: network.server(spec.server, wire),
            upstream: network.server(UPSTREAM_SIDE.parse().unwrap(), wire),
            seen: 0,
            waiting: HashMap::new(),
            known: HashSet::new(),
            leaving: BTreeMap::new(),
            sent: 0,
        };
        let authority = Authority::new(ZoneConfig {
            zone: zone("0"),
            self_test: false,
            ttl_s: 60,
            negative_ttl_s: 60,
        });
        let held = Rc::new(RefCell::new(Held::new()));
        let listening = network.server(AUTHORITY.parse().unwrap(), wire);
        let lagging = Lagging::over(listening, &clock, self.lag_ns, &held);
        let ledger = NameLedger::new(&spec.names, clock.now(), None);
        let ledger = Arc::new(ledger);
        let rules = Rules::new(self.behaviour.parse().unwrap()).unwrap();
        let rules = (self.behaviour != "none").then(|| Arc::new(rules));
        let mut serving = Serving::new(authority, lagging).with_faults(rules);
        serving.record(Some(Recorder::new(Arc::clone(&ledger))));
        let mut shards = Shards::begin(&spec, links, &clock, MILLISECOND);
        while let Some(idle_until) = shards.turn(None) {
            dut.turn();
            serving.attend();
            let lags = held.borrow().front().map(|held| held.0 + self.lag_ns);
            let replies = serving.next_due();
            let events = [network.next_arrival(), dut.next_due(), lags, replies];
            let next = events.into_iter().flatten().fold(idle_until, Nanos::min);
            clock.advance_to(next.max(clock.now() + 1));
        }
        meanwhile(&spec, &ledger);
        let report = AuthorityReport {
            ledger: Some(ledger),
            ..serving.report()
        };
        let around = Surroundings {
            certified: Some(true),
            ..Surroundings::default()
        };
        result(&spec, &shards.reports, Some(&report), around)
    }

    fn run(&self) -> TrialResult {
        self.run_with(|_, _| ())
    }

    /// Returns the path of its queries.
    fn path(&self) -> Path {
        self.run().path.unwrap()
    }
}

/// Compares with a tolerance: timestamps of the authority have a resolution of 64 ns, and histograms three significant
/// digits.
#[track_caller]
fn assert_about(found: Option<Nanos>, expected: Nanos) {
    let found = found.unwrap();
    let off = found.abs_diff(expected);
    assert!(
        off <= expected / 1000 + 256,
        "{found} instead of {expected}"
    );
}

#[test]
fn sequential_upstream_queries_are_detected() {
    let path = SETUP.path();
    assert_eq!(path.fresh_names, 2000);
    let expected = AnsweredNames {
        aaaa_then_a: 2000,
        ..all(2000)
    };
    assert_eq!(path.answered, expected);
    assert_eq!((path.questions.aaaa, path.questions.a), (2000, 2000));
    assert_eq!((path.questions.other_aaaa, path.untimed_names), (0, 0));
    assert_eq!(path.questions_per_name(), Some(2.0));
    assert_eq!(path.order(), "AAAA then A");
    // Six link delays and three messages of the DUT, without the authority.
    assert_about(path.dut_only_ns(50.0), 6 * LINK_NS + 3 * WORK_NS);
    assert_eq!(path.authority.p50_ns, Some(0));
}

#[test]
fn delay_of_authority_is_in_round_trip_time_but_not_in_dut_time() {
    let lag_ns = 5 * MILLISECOND;
    let lagging = Setup { lag_ns, ..SETUP };
    let (prompt, late) = (SETUP.run(), lagging.run());
    assert_eq!(late.outcome, Outcome::Passed);
    let moved = late.rtt.p50.unwrap() - prompt.rtt.p50.unwrap();
    assert!(moved.abs_diff(2 * lag_ns) <= lag_ns / 500, "{moved}");
    let path = late.path.unwrap();
    assert_about(path.dut_only_ns(50.0), 6 * LINK_NS + 3 * WORK_NS);
    assert_about(path.dut_only_ns(100.0), 6 * LINK_NS + 3 * WORK_NS);
    assert_about(path.authority.p50_ns, lag_ns);
}

#[test]
fn injected_delay_and_loss_are_recorded() {
    let delayed = Setup {
        behaviour: "delay=5ms",
        ..SETUP
    };
    let path = delayed.path();
    assert_about(path.dut_only_ns(50.0), 6 * LINK_NS + 3 * WORK_NS);
    assert_about(path.authority.p50_ns, 5 * MILLISECOND);
    let lossy = Setup {
        behaviour: "loss=1%",
        ..SETUP
    };
    let result = lossy.run();
    let path = result.path.unwrap();
    assert!(path.lost.names > 0 && path.lost.unserved == path.lost.names);
    assert_eq!(path.authority.unanswered, path.lost.names);
    // It is a condition of the measurement.
    let shortfall = path.lost.names;
    assert_eq!(result.outcome, Outcome::Failed { shortfall });
}

#[test]
fn parallel_queries_count_once_in_authority_time() {
    let at_once = Setup {
        asks: Asks::AtOnce,
        lag_ns: 5 * MILLISECOND,
        ..SETUP
    };
    let result = at_once.run();
    assert_about(result.rtt.p50, 4 * LINK_NS + 2 * WORK_NS + at_once.lag_ns);
    let path = result.path.unwrap();
    let expected = AnsweredNames {
        parallel: 2000,
        ..all(2000)
    };
    assert_eq!(
        (path.answered, path.order()),
        (expected, "AAAA and A in parallel")
    );
    assert_about(path.dut_only_ns(50.0), 4 * LINK_NS + 2 * WORK_NS);
}

#[test]
fn repeated_and_omitted_upstream_queries_are_counted() {
    let twice = Setup {
        asks: Asks::Twice,
        ..SETUP
    };
    let path = twice.path();
    assert_eq!(
        (path.answered.again, path.questions_per_name()),
        (2000, Some(4.0))
    );
    assert_about(path.dut_only_ns(50.0), 6 * LINK_NS + 3 * WORK_NS);
    let a_only = Setup {
        asks: Asks::AOnly,
        ..SETUP
    };
    let path = a_only.path();
    assert_eq!((path.answered.a_only, path.answered.without_a()), (2000, 0));
    assert_eq!(path.questions_per_name(), Some(1.0));
}

#[test]
fn cached_fresh_names_are_noted() {
    let warm = Setup {
        cached_every: 4,
        ..SETUP
    };
    let result = warm.run();
    assert_eq!(result.outcome, Outcome::Passed);
    let path = result.path.unwrap();
    assert_eq!((path.answered.unasked, path.answered.names), (500, 2000));
    assert_eq!(path.answered.without_a(), 500);
    // One round trip, without the authority.
    assert_about(path.dut_only_ns(10.0), 2 * LINK_NS + WORK_NS);
    let told = "500 of 2000 fresh names were answered without a question to the authority";
    assert!(
        result.notes.iter().any(|note| note.starts_with(told)),
        "{:?}",
        result.notes
    );
    assert!(SETUP.run().notes.is_empty());
}

#[test]
fn repeated_names_have_no_path_but_counted_cache_misses() {
    let cached = |cached_share, pattern: &str| Setup {
        trial: Trial {
            cached_share,
            pattern: pattern.parse().unwrap(),
            ..PLAIN
        },
        ..SETUP
    };
    // The names were not queried before the trial.
    let path = cached("0.5", "zipf:100,1").path();
    assert_eq!(path.fresh_names, 1000);
    assert_eq!(path.answered.aaaa_then_a, 1000);
    let misses = path.questions.other_aaaa;
    assert!((50..=150).contains(&misses), "{misses}");
    let path = cached("0.5", "one-name").path();
    assert!((1..10).contains(&path.questions.other_aaaa));
}

#[test]
fn lost_query_is_classified_by_its_progress() {
    let deaf = Setup {
        deaf_every: 100,
        ..SETUP
    };
    let result = deaf.run();
    assert_eq!(result.outcome, Outcome::Failed { shortfall: 20 });
    let lost = |unasked, unserved, served| LostNames {
        names: unasked + unserved + served,
        unasked,
        unserved,
        served,
    };
    assert_eq!(result.path.unwrap().lost, lost(20, 0, 0));
    let mute = Setup {
        mute_every: 100,
        ..SETUP
    };
    let path = mute.path();
    assert_eq!((path.lost, path.answered.names), (lost(0, 0, 20), 1980));
    // The authority received an upstream query for one of them and did not answer it.
    let asked = |spec: &TrialSpec, ledger: &Arc<NameLedger>| {
        let asked = AskedName {
            address: spec.names.asked(99),
            rtype: Rtype::AAAA,
        };
        let at = 60 * MILLISECOND;
        Recorder::new(Arc::clone(ledger)).arrived(Some(asked), at);
    };
    let path = deaf.run_with(asked).path.unwrap();
    assert_eq!((path.lost, path.authority.unanswered), (lost(19, 1, 0), 1));
}

#[test]
fn slow_authority_makes_failed_trial_invalid_and_passed_trial_noted() {
    let limit_ns = PLAIN.timeout_ns / 4;
    let slow = Setup {
        lag_ns: 70 * MILLISECOND,
        ..SETUP
    };
    let result = slow.run();
    assert_eq!(result.outcome, Outcome::Passed);
    let told = result.path.unwrap().authority;
    assert_eq!((told.slow, told.limit_ns), (4000, limit_ns));
    assert!(result.notes[0].starts_with("the authority took more than the allowed 62.5 ms"));
    let too_slow = Setup {
        lag_ns: 130 * MILLISECOND,
        ..SETUP
    };
    match too_slow.run().outcome {
        Outcome::Invalid(TesterFault::AuthoritySlow {
            answers,
            slowest_ns,
            limit_ns: limit,
        }) => {
            assert_eq!((answers, limit), (4000, limit_ns));
            assert_about(Some(slowest_ns), too_slow.lag_ns);
        }
        other => panic!("{other:?}"),
    }
    // A configured delay is a condition of the measurement, not a fault.
    let allowed = Setup {
        behaviour: "delay=130ms",
        ..SETUP
    };
    let result = allowed.run();
    assert_eq!(result.outcome, Outcome::Failed { shortfall: 2000 });
    let told = result.path.unwrap().authority;
    assert_eq!(
        (told.slow, told.limit_ns),
        (0, limit_ns + 130 * MILLISECOND)
    );
    assert_about(told.p50_ns, 130 * MILLISECOND);
    // A DUT that loses queries although its authority is fast.
    let deaf = Setup {
        deaf_every: 100,
        lag_ns: 60 * MILLISECOND,
        ..SETUP
    };
    assert_eq!(deaf.run().outcome, Outcome::Failed { shortfall: 20 });
}
