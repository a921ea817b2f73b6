use std::net::SocketAddr;

use dns64_transport::Link as _;
use dns64_transport::clock::{Clock as _, ManualClock};
use dns64_transport::memory::{Impairment, MemoryLink, Network};
use proptest::prelude::*;

use super::*;
use crate::authority::answer::Authority;
use crate::authority::serve;
use crate::authority::zone::ZoneConfig;
use crate::load::names::NameSource;
use crate::namespace::{Pattern, Share, Zone};

/// This many names from 192.0.2.16 on, in the zone "z".
fn names(queries: u64) -> Names {
    let zone = Zone {
        suffix: "z".parse().unwrap(),
        aaaa_share: Share::NONE,
        ..Zone::default()
    };
    let cidr = "192.0.2.0/24".parse().unwrap();
    let mut source = NameSource::new(cidr, zone, Share::NONE, Pattern::OneName).unwrap();
    source.take(16, None).unwrap();
    source.take(queries, None).unwrap()
}

/// An authority and a client in a simulated network.
struct Bench {
    clock: ManualClock,
    authority: Authority,
    server: MemoryLink,
    client: MemoryLink,
    recorder: Recorder,
    ledger: Arc<NameLedger>,
}

impl Bench {
    /// Creates a ledger for two names that starts at 1 ms.
    fn new() -> Self {
        let clock = ManualClock::default();
        clock.advance(1_000_000);
        let network = Network::new(&clock, 0);
        let listen: SocketAddr = "[2001:2::53]:53".parse().unwrap();
        let local = "[2001:2::1]:0".parse::<SocketAddr>().unwrap().ip();
        let ledger = Arc::new(NameLedger::new(&names(2), clock.now(), None));
        Self {
            server: network.server(listen, Impairment::default()),
            client: network.client(local, 1, listen, Impairment::default()),
            authority: Authority::new(ZoneConfig {
                zone: names(2).zone,
                self_test: false,
                ttl_s: 1,
                negative_ttl_s: 1,
            }),
            recorder: Recorder::new(Arc::clone(&ledger)),
            ledger,
            clock,
        }
    }

    /// Sends a query for this name and type.
    fn ask(&mut self, label: &[u8; 15], rtype: u8) {
        let query = [
            b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x0f",
            &label[..],
            b"\x01z\0\0",
            &[rtype],
            b"\0\x01",
        ]
        .concat();
        let fill = |_: usize, frame: &mut [u8]| {
            frame[..query.len()].copy_from_slice(&query);
            query.len()
        };
        assert_eq!(self.client.send(0, 1, fill).unwrap(), 1);
    }

    /// Advances the clock and gives the authority a turn.
    fn turn(&mut self, after_ns: Nanos) {
        self.clock.advance(after_ns);
        let (authority, server) = (&mut self.authority, &mut self.server);
        serve::turn(authority, server, 100, Some(&mut self.recorder)).unwrap();
    }
}

const AAAA: u8 = 28;
const A: u8 = 1;

#[test]
fn arrival_and_departure_are_recorded_by_name_and_type() {
    let mut bench = Bench::new();
    bench.ask(b"192-000-002-017", AAAA);
    bench.turn(64_000);
    bench.clock.advance(128_000);
    bench.ask(b"192-000-002-017", A);
    bench.turn(6_400);
    let start = 1_000_000;
    let question = |arrived_ns: Nanos, answer_ns| Question {
        asked: 1,
        answered: true,
        arrived_at: Some(start + arrived_ns),
        answer_ns: Some(answer_ns),
    };
    let expected = Questions {
        aaaa: question(0, 64_000),
        a: question(192_000, 6_400),
    };
    assert_eq!(bench.ledger.questions(1), expected);
    assert_eq!(expected.a.answered_at(), Some(start + 198_400));
    assert_eq!(bench.ledger.questions(0), Questions::default());
    assert_eq!(bench.ledger.other(), (0, 0));
}

#[test]
fn second_query_is_counted_and_the_first_is_timed() {
    let mut bench = Bench::new();
    bench.ask(b"192-000-002-016", AAAA);
    bench.turn(640);
    bench.ask(b"192-000-002-016", AAAA);
    bench.ask(b"192-000-002-016", AAAA);
    bench.turn(12_800);
    let aaaa = bench.ledger.questions(0).aaaa;
    assert_eq!((aaaa.asked, aaaa.answer_ns), (3, Some(640)));
}

#[test]
fn names_outside_the_trial_are_counted_together() {
    let mut bench = Bench::new();
    for label in [
        b"192-000-002-015",
        b"192-000-002-018",
        b"192-000-002-255",
        b"010-000-000-001",
    ] {
        bench.ask(label, AAAA);
    }
    bench.ask(b"192-000-002-000", A);
    // Neither a name that encodes an address nor a type that a DUT requests.
    bench.ask(b"no-such-name-at", AAAA);
    bench.ask(b"192-000-002-016", 16);
    bench.turn(64);
    assert_eq!(bench.ledger.other(), (4, 1));
    let none = [0, 1].map(|n| bench.ledger.questions(n));
    assert_eq!(none, [Questions::default(); 2]);
}

#[test]
fn departures_are_matched_to_their_replies() {
    let ledger = Arc::new(NameLedger::new(&names(3), 0, None));
    let mut recorder = Recorder::new(Arc::clone(&ledger));
    let rtype = Rtype::A;
    for last in [16, 17, 99, 18] {
        let address = Ipv4Addr::new(192, 0, 2, last);
        let mark = recorder.arrived(Some(AskedName { address, rtype }), 640);
        recorder.leaves(mark);
    }
    let departure = |replies, at| Departure { replies, at };
    // The third reply is for no name of the trial; the fourth was not sent.
    recorder.departed(&[departure(1, 1_280), departure(2, 6_400)]);
    let answers = [0, 1, 2].map(|n| ledger.questions(n).a.answer_ns);
    assert_eq!(answers, [Some(640), Some(5_760), None]);
    assert!(!ledger.questions(2).a.answered);
    recorder.departed(&[departure(1, 12_800)]);
    assert!(!ledger.questions(2).a.answered, "it is forgotten");
}

#[test]
fn replies_beyond_the_capacity_of_a_turn_are_answered_and_not_timed() {
    let ledger = Arc::new(NameLedger::new(&names(1), 0, None));
    let mut recorder = Recorder::new(Arc::clone(&ledger));
    let room = recorder.leaving.capacity();
    let asked = AskedName {
        address: "192.0.2.16".parse().unwrap(),
        rtype: Rtype::AAAA,
    };
    (0..room).for_each(|_| recorder.leaves(AnswerSlot::NOWHERE));
    let mark = recorder.arrived(Some(asked), 0);
    recorder.leaves(mark);
    assert_eq!(recorder.leaving.capacity(), room);
    let aaaa = ledger.questions(0).aaaa;
    assert_eq!((aaaa.answered, aaaa.answer_ns), (true, None));
}

#[test]
fn memory_of_an_earlier_trial_is_reused_and_cleared() {
    let first = Arc::new(NameLedger::new(&names(100), 0, None));
    let recorder = Recorder::new(Arc::clone(&first));
    let asked = AskedName {
        address: "192.0.2.20".parse().unwrap(),
        rtype: Rtype::A,
    };
    recorder.arrived(Some(asked), 5);
    assert_eq!(first.questions(4).a.asked, 1);
    let memory = first.slots.as_ptr();
    drop(recorder);
    let second = NameLedger::new(&names(50), 7, Some(first));
    assert_eq!(second.slots.as_ptr(), memory);
    assert!((0..100).all(|n| second.questions(n) == Questions::default()));
}

/// The ledger of a trial with one name whose queries for AAAA arrived and were answered at these times.
fn noted(start: Nanos, questions: &[(Nanos, Option<Nanos>)]) -> NameLedger {
    let ledger = NameLedger::new(&names(1), start, None);
    let asked = AskedName {
        address: "192.0.2.16".parse().unwrap(),
        rtype: Rtype::AAAA,
    };
    for &(arrived, answered) in questions {
        let mark = ledger.arrived(asked, arrived);
        if answered.is_some() {
            ledger.answered(mark, answered);
        }
    }
    ledger
}

#[test]
fn joined_ledgers_equal_one_that_received_all_queries() {
    // A single ledger, on the clock of both.
    let all = |questions: &[_]| noted(640, questions).questions(0).aaaa;
    let joined = |first: &[_], second: &[_]| {
        let (one, other) = (noted(640, first), noted(6_400, second));
        one.join(&other);
        one.questions(0).aaaa
    };
    let (early, late) = ((12_800, Some(19_200)), (25_600, Some(32_000)));
    assert_eq!(joined(&[early], &[]), all(&[early]));
    assert_eq!(joined(&[], &[early]), all(&[early]));
    assert_eq!(joined(&[early], &[late]), all(&[early, late]));
    assert_eq!(joined(&[late], &[early]), all(&[early, late]));
    let unanswered = (12_800, None);
    assert_eq!(joined(&[unanswered], &[late]), all(&[unanswered, late]));
    assert_eq!(joined(&[unanswered], &[]), all(&[unanswered]));
    assert_eq!(joined(&[], &[]), Question::default());
}

#[test]
fn first_answer_of_either_authority_counts() {
    // The first query waited, and the authority of the second one was faster.
    let (one, other) = (
        noted(0, &[(6_400, Some(128_000))]),
        noted(0, &[(12_800, Some(19_200))]),
    );
    one.join(&other);
    let aaaa = one.questions(0).aaaa;
    assert_eq!((aaaa.asked, aaaa.arrived_at), (2, Some(6_400)));
    assert_eq!(aaaa.answered_at(), Some(19_200));
}

#[test]
fn queries_for_other_names_are_summed() {
    let [one, other] = [(0, [3, 4]), (64, [5, 6])].map(|(start, others)| {
        let mut ledger = NameLedger::new(&names(1), start, None);
        ledger.other = others.map(AtomicU64::new);
        let text = serde_json::to_string(&ledger).unwrap();
        let read: NameLedger = serde_json::from_str(&text).unwrap();
        assert_eq!(read.start(), start);
        read
    });
    one.join(&other);
    assert_eq!(one.other(), (8, 10));
}

/// An event of the queries for a name.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrived,
    Answered,
    AnsweredUntimed,
}

fn events() -> impl Strategy<Value = Vec<(Event, Nanos)>> {
    let event = prop_oneof![
        3 => Just(Event::Arrived),
        2 => Just(Event::Answered),
        1 => Just(Event::AnsweredUntimed),
    ];
    // Steps of a few units, of seconds and of minutes: up to the limits of a stamp and beyond.
    let step_ns = prop_oneof![0..1_000_u64, 0..2_000_000_000_u64, 0..400_000_000_000_u64];
    prop::collection::vec((event, step_ns), 0..100)
}

proptest! {
    #[test]
    fn stamp_holds_first_query_first_answer_and_count(events in events()) {
        let (mut stamp, mut now) = (EMPTY, 0);
        let mut expected = Question::default();
        let mut asked = 0_u8;
        for (event, step_ns) in events {
            now += step_ns;
            let unit = now / UNIT_NS;
            match event {
                Event::Arrived => {
                    stamp = stamp.arrived(now);
                    if asked == 0 && unit < ARRIVAL_LATE {
                        expected.arrived_at = Some(unit * UNIT_NS);
                    }
                    asked = asked.saturating_add(1);
                }
                _ if expected.answered || asked == 0 => {
                    stamp = stamp.answered(Some(now));
                }
                Event::Answered => {
                    stamp = stamp.answered(Some(now));
                    expected.answered = true;
                    let since = expected.arrived_at.map(|at| unit * UNIT_NS - at);
                    expected.answer_ns = since.map(|ns| ns.min(ANSWER_MAX_NS));
                }
                Event::AnsweredUntimed => {
                    stamp = stamp.answered(None);
                    expected.answered = true;
                }
            }
            expected.asked = asked.min(QUESTIONS_MAX);
            prop_assert_eq!(stamp.question(0), expected);
        }
    }

    #[test]
    fn joining_stamps_is_symmetric_and_keeps_the_first_times(
        own in (0..=ARRIVAL_LATE, 0..=SPAN_UNTIMED, 0..=u64::from(QUESTIONS_MAX)),
        its in (0..=ARRIVAL_LATE, 0..=SPAN_UNTIMED, 0..=u64::from(QUESTIONS_MAX)),
        later_ns in 0..=2_000_000_000_000_u64,
    ) {
        let of = |(arrival, span, asked)| match asked {
            0 => EMPTY,
            _ => Stamp::of(arrival, span, asked),
        };
        let (one, other) = (of(own), of(its).later(later_ns));
        let joined = one.with(other);
        prop_assert_eq!(joined, other.with(one));
        let asked = (own.2 + its.2).min(u64::from(QUESTIONS_MAX));
        prop_assert_eq!(joined.parts().2, asked);
        let (a, b) = (one.question(0), other.question(0));
        let both = joined.question(0);
        prop_assert_eq!(both.answered, a.answered || b.answered);
        if let (Some(first), Some(second)) = (a.arrived_at, b.arrived_at) {
            prop_assert_eq!(both.arrived_at, Some(first.min(second)));
        }
    }

    #[test]
    fn parts_of_a_stamp_are_read_back(
        arrival in 0..=ARRIVAL_LATE,
        span in 0..=SPAN_UNTIMED,
        questions in 0..=u64::from(QUESTIONS_MAX),
    ) {
        prop_assert_eq!(Stamp::of(arrival, span, questions).parts(), (arrival, span, questions));
    }
}
