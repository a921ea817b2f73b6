use proptest::prelude::*;

use super::*;
use crate::authority::ledger::QUESTIONS_MAX;

/// An upstream query with these times of arrival and response.
fn question(arrived_at: Nanos, answered_at: Nanos) -> Question {
    Question {
        asked: 1,
        answered: true,
        arrived_at: Some(arrived_at),
        answer_ns: Some(answered_at - arrived_at),
    }
}

/// A query from 1,000 to 9,000.
fn timeline(aaaa: Question, a: Question) -> Timeline {
    Timeline {
        sent_at: 1_000,
        received_at: Some(9_000),
        questions: Some(Questions { aaaa, a }),
    }
}

const NONE: Question = Question {
    asked: 0,
    answered: false,
    arrived_at: None,
    answer_ns: None,
};

#[test]
fn time_is_divided_between_authority_and_dut() {
    let order = |t: Timeline| (t.order(), t.authority_ns(), t.dut_only_ns());
    let aaaa = question(2_000, 3_000);
    let cases = [
        // In sequence: the sum.
        (question(4_000, 6_000), UpstreamOrder::AaaaThenA, 3_000),
        (question(3_000, 4_000), UpstreamOrder::AaaaThenA, 2_000),
        // In parallel: the union.
        (question(2_500, 4_000), UpstreamOrder::Parallel, 2_000),
        (question(2_200, 2_800), UpstreamOrder::Parallel, 1_000),
        (question(1_500, 1_800), UpstreamOrder::AThenAaaa, 1_300),
        // The DUT did not wait for the response.
        (question(8_000, 20_000), UpstreamOrder::AaaaThenA, 2_000),
        (question(9_500, 20_000), UpstreamOrder::AaaaThenA, 1_000),
        (NONE, UpstreamOrder::AaaaOnly, 1_000),
    ];
    for (a, expected, authority_ns) in cases {
        let found = order(timeline(aaaa, a));
        let wanted = (
            Some(expected),
            Some(authority_ns),
            Some(8_000 - authority_ns),
        );
        assert_eq!(found, wanted, "{a:?}");
    }
    assert_eq!(
        order(timeline(NONE, aaaa)),
        (Some(UpstreamOrder::AOnly), Some(1_000), Some(7_000))
    );
    assert_eq!(order(timeline(NONE, NONE)), (None, Some(0), Some(8_000)));
}

#[test]
fn unknown_times_are_none() {
    let aaaa = question(2_000, 3_000);
    let unanswered = Question {
        answered: false,
        answer_ns: None,
        ..question(4_000, 4_000)
    };
    let untimed = Question {
        answered: true,
        ..unanswered
    };
    for a in [unanswered, untimed] {
        assert_eq!(timeline(aaaa, a).dut_only_ns(), None);
        assert_eq!(timeline(aaaa, a).order(), Some(UpstreamOrder::AaaaThenA));
    }
    // Beyond the range of the ledger: exact if the query was answered before.
    let long = question(4_000, 4_000 + ANSWER_MAX_NS);
    assert_eq!(timeline(aaaa, long).authority_ns(), Some(6_000));
    let mut later = timeline(aaaa, long);
    later.received_at = Some(4_000 + ANSWER_MAX_NS + 1);
    assert_eq!(later.authority_ns(), None);
    // Without a response there is no round-trip time, and a repeated name has only the round-trip time.
    later.received_at = None;
    assert_eq!((later.rtt_ns(), later.dut_only_ns()), (None, None));
    let mut repeated = timeline(aaaa, NONE);
    repeated.questions = None;
    assert_eq!(
        (repeated.rtt_ns(), repeated.dut_only_ns()),
        (Some(8_000), None)
    );
}

fn any_question() -> impl Strategy<Value = Question> {
    let times = (0..20_000_u64, 0..20_000_u64, 1..=QUESTIONS_MAX);
    prop_oneof![
        1 => Just(NONE),
        4 => times.prop_map(|(at, took, asked)| Question { asked, ..question(at, at + took) }),
    ]
}

proptest! {
    #[test]
    fn authority_time_is_union_of_its_open_queries(
        aaaa in any_question(),
        a in any_question(),
    ) {
        let timeline = timeline(aaaa, a);
        let has = |question: Question, at: Nanos| {
            question.asked > 0
                && (question.arrived_at.unwrap()..question.answered_at().unwrap()).contains(&at)
        };
        let moments = (1_000..9_000).filter(|&at| has(aaaa, at) || has(a, at));
        prop_assert_eq!(timeline.authority_ns(), Some(moments.count() as u64));
    }
}
