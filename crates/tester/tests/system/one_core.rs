//! Measurer and authority on one thread: the authority gets its turns, and the schedule is kept.

use dns64_transport::clock::{Clock, ManualClock, Nanos, SECOND};
use dns64_transport::memory::{Impairment, Network};
use dns64bench::authority::answer::Authority;
use dns64bench::authority::zone::ZoneConfig;
use dns64bench::trial::fault::TesterFault;
use dns64bench::trial::result::{Answers, Outcome, TrialResult};
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::Surroundings;
use dns64bench::trial::turns::Serving;

use crate::rough::Rough;
use crate::trial::{MILLISECOND, NONE, PLAIN, Shards, Trial, zone};
use crate::whole::{LOAD, SETUP, Setup, Whole};

#[test]
fn authority_between_turns_of_measurer_serves_dns64d() {
    let mut whole = Whole::new(Setup {
        one_core: true,
        aaaa_share: "0.5",
        ..SETUP
    });
    let measured = whole.trial(LOAD, &[]);
    assert_eq!(measured.outcome, Outcome::Passed);
    let valid = 2000;
    assert_eq!(measured.answers, Answers { valid, ..NONE });
    let asked = measured.authority.unwrap();
    assert_eq!((asked.aaaa, asked.a, asked.other), (2000, 1000, 0));
    assert_eq!(measured.timing.lateness_ns_max, 0);
    // A round trip on the second link: the authority answers at once.
    assert_eq!(measured.rtt.max.unwrap() / 1000, 600);
    whole.rest(SECOND);
    whole.assert_idle();
    assert_eq!(whole.trial(LOAD, &[]).answers.valid, 2000);
}

/// A self-test on one thread whose only costs are those of real calls and datagrams.
struct SelfTest {
    rate_qps: u64,
    /// Cost of a datagram for the Measurer, sent or received.
    measurer_ns: Nanos,
    /// Time at which the authority's link fails.
    fails_at: Nanos,
}

/// Cost of an answer (`ANSWER_COST_NS` is slightly higher).
const ANSWER_NS: Nanos = 2_400;

/// Cost of a call, and of a turn without any.
const CALL_NS: Nanos = 500;
const TURN_NS: Nanos = 50;

const SELF_TEST: SelfTest = SelfTest {
    rate_qps: 100_000,
    measurer_ns: 400,
    fails_at: Nanos::MAX,
};

impl SelfTest {
    /// Runs it; `each` gets the number of answered queries after each turn.
    fn run(&self, mut each: impl FnMut(u64)) -> TrialResult {
        let trial = Trial {
            rate_qps: self.rate_qps,
            duration_ns: 20 * MILLISECOND,
            ..PLAIN
        };
        let mut spec = trial.spec();
        spec.names.pref64 = None;
        let clock = ManualClock::default();
        let network = Network::new(&clock, 1);
        let rough = |link, datagram_ns| {
            let mut link = Rough::over(link, &clock);
            (link.call_ns, link.datagram_ns) = (CALL_NS, datagram_ns);
            link
        };
        let wire = Impairment {
            delay_ns: 5_000,
            ..Impairment::default()
        };
        let mut listening = rough(network.server(spec.server, wire), ANSWER_NS);
        listening.fails_at = self.fails_at;
        let authority = Authority::new(ZoneConfig {
            zone: zone("0"),
            self_test: true,
            ttl_s: 60,
            negative_ttl_s: 60,
        });
        let mut serving = Serving::new(authority, listening);
        let local = "2001:2::1".parse().unwrap();
        let sending = rough(
            network.client(local, 4, spec.server, wire),
            self.measurer_ns,
        );
        let start = clock.now() + MILLISECOND;
        let mut shards = Shards::begin(&spec, vec![sending], &clock, start);
        while shards.turn(Some(&mut serving)).is_some() {
            clock.advance(TURN_NS);
            each(serving.counts().queries());
        }
        let authority = serving.report();
        result(
            &spec,
            &shards.reports,
            Some(&authority),
            Surroundings::default(),
        )
    }
}

#[test]
fn authority_turns_delay_no_query() {
    let result = SELF_TEST.run(|_| ());
    assert_eq!(result.outcome, Outcome::Passed);
    let valid = 2000;
    assert_eq!(result.answers, Answers { valid, ..NONE });
    // Only the call that receives replies may still run at a due time.
    assert!(result.timing.lateness_ns_max <= CALL_NS + TURN_NS);
    // The round trip, the answer and the delay by turns.
    assert!(result.rtt.max.unwrap() < 20_000, "{:?}", result.rtt);
}

#[test]
fn authority_gets_every_fourth_turn_of_generator_without_slack() {
    // Every 20 us two queries take 16 us to send; receiving replies takes the rest.
    let crowded = SelfTest {
        measurer_ns: 8_000,
        ..SELF_TEST
    };
    let mut answered = vec![0];
    let result = crowded.run(|now| answered.push(now));
    assert_eq!(result.outcome, Outcome::Passed);
    let turns = (0..).zip(answered.windows(2));
    let served: Vec<(i32, u64)> = turns
        .filter(|(_, counts)| counts[0] < counts[1])
        .map(|(turn, counts)| (turn, counts[1] - counts[0]))
        .collect();
    assert!(served.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 4));
    // A late generator grants it only the minimum: 8 answers each time.
    let fourths = served
        .windows(2)
        .filter(|pair| (pair[1].0 - pair[0].0, pair[1].1) == (4, 8));
    assert!(fourths.count() > 10);
    // The 8 answers, and the queries that became due in the meantime.
    let limit_ns = 8 * ANSWER_NS + 4 * crowded.measurer_ns;
    assert!(result.timing.lateness_ns_max < limit_ns);
}

#[test]
fn link_failure_of_authority_is_fault_of_tester() {
    let failing = SelfTest {
        fails_at: 10 * MILLISECOND,
        ..SELF_TEST
    };
    let result = failing.run(|_| ());
    let error = "the authority's answer failed: network down".to_owned();
    let fault = TesterFault::Link { error };
    assert_eq!(result.outcome, Outcome::Invalid(fault));
    let Answers { valid, missing, .. } = result.answers;
    assert_eq!(
        result.answers,
        Answers {
            valid,
            missing,
            ..NONE
        }
    );
    assert!((850..=900).contains(&valid), "{valid}");
}
