use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn evidence(place: Place, low: u64, high: Option<u64>) -> Evidence {
    Evidence {
        place,
        kind: LossKind::Lost,
        source: Source {
            host: Role::Measurer.into(),
            link: Some("client".to_owned()),
            counter: "tbf drops".to_owned(),
            count: low.max(1),
        },
        low,
        high,
    }
}

fn missing(missing: u64, found: Vec<Evidence>) -> LossFacts {
    LossFacts {
        evidence: LossEvidence {
            is_watched: true,
            found,
            ..LossEvidence::default()
        },
        missing,
        each: 1000,
        ..LossFacts::default()
    }
}

/// Returns the text for these losses, and whether the Tester's side explains them.
fn told(facts: LossFacts) -> (String, bool) {
    let placing = place(facts);
    let words = placing.losses.words().unwrap_or_default();
    (words, placing.cause.is_some())
}

#[test]
fn unexplained_losses_are_attributed_to_dut() {
    let mut facts = LossFacts {
        late: 2,
        not_valid: 1,
        ..missing(15, Vec::new())
    };
    facts.evidence.dut_drops = 12;
    let (words, explained) = told(facts);
    assert_eq!(
        words,
        "12 at the DUT's sockets, 3 never answered by the DUT, 2 answered late, \
         1 answered, but not validly"
    );
    assert!(!explained);
}

#[test]
fn path_to_dut_is_possible_place_without_counters_of_its_host() {
    let mut facts = missing(7, Vec::new());
    facts.evidence.is_watched = false;
    let (words, explained) = told(facts);
    assert_eq!(
        words,
        "7 lost on the way to the DUT or never answered by the DUT or lost on the way back from the DUT"
    );
    // Missing counters do not prove a loss.
    assert!(!explained);
}

/// Missing, late, losses of the Tester's side, drops of the DUT's sockets; text, and whether it is explained.
type Case = (
    u64,
    u64,
    &'static [(Place, u64, Option<u64>)],
    u64,
    &'static str,
    bool,
);

const CASES: [Case; 9] = [
    // All of them, exactly.
    (
        9,
        0,
        &[(Place::ToDut, 9, Some(9))],
        0,
        "9 lost on the way to the DUT",
        true,
    ),
    // Some exactly: the rest is a loss of the DUT.
    (
        9,
        0,
        &[(Place::ToDut, 4, Some(4))],
        2,
        "4 lost on the way to the DUT, 2 at the DUT's sockets, 3 never answered by the DUT",
        false,
    ),
    // A packet can have contained up to 128 responses.
    (
        9,
        0,
        &[(Place::FromDut, 1, Some(128))],
        0,
        "1 lost on the way back from the DUT, \
         8 never answered by the DUT or lost on the way back from the DUT",
        true,
    ),
    (
        200,
        0,
        &[(Place::FromDut, 1, Some(128))],
        0,
        "72 never answered by the DUT, 1 lost on the way back from the DUT, \
         127 never answered by the DUT or lost on the way back from the DUT",
        false,
    ),
    // More lost packets than missing queries: some were duplicates.
    (
        2,
        0,
        &[(Place::Measurer, 5, Some(640))],
        0,
        "2 lost at the Measurer",
        true,
    ),
    // A loss between DUT and authority can affect any number of queries, including late answers and drops of the DUT.
    (
        9,
        3,
        &[(Place::FromAuthority, 0, None)],
        5,
        "3 answered late, 9 lost on the way from the authority or never answered by the DUT",
        true,
    ),
    // A loss on the client's link makes no answer late.
    (
        9,
        3,
        &[(Place::ToDut, 9, Some(9))],
        0,
        "9 lost on the way to the DUT, 3 answered late",
        false,
    ),
    // Two places in one trial.
    (
        9,
        0,
        &[(Place::Measurer, 4, Some(4)), (Place::ToDut, 5, Some(5))],
        0,
        "5 lost on the way to the DUT, 4 lost at the Measurer",
        true,
    ),
    // Losses without a missing answer: of retries, or of irrelevant packets.
    (0, 0, &[(Place::FromAuthority, 0, None)], 0, "", false),
];

#[test]
fn losses_explained_by_tester_are_not_attributed_to_dut() {
    for (queries, late, lost, dut_drops, words, explained) in CASES {
        let lost = lost.iter();
        let lost = lost.map(|&(place, low, high)| evidence(place, low, high));
        let mut facts = LossFacts {
            late,
            ..missing(queries, lost.collect())
        };
        facts.evidence.dut_drops = dut_drops;
        let case = format!("{facts:?}");
        assert_eq!(told(facts), (words.to_owned(), explained), "{case}");
    }
}

#[test]
fn authority_counts_bound_places_before_and_behind_it() {
    let asked = UpstreamReach {
        reached: 6,
        answered: 6,
    };
    let facts = LossFacts {
        asked: Some(asked),
        ..missing(9, vec![evidence(Place::ToDut, 0, Some(640))])
    };
    // Three never reached the authority, and possibly not the DUT.
    let (words, explained) = told(facts);
    assert_eq!(
        words,
        "6 never answered by the DUT, 3 lost on the way to the DUT or never answered by the DUT"
    );
    assert!(!explained);
}

#[test]
fn unanswered_upstream_queries_are_losses_of_authority() {
    let asked = UpstreamReach {
        reached: 9,
        answered: 2,
    };
    let facts = LossFacts {
        asked: Some(asked),
        ..missing(9, Vec::new())
    };
    let placing = place(facts);
    let cause = placing.cause.unwrap();
    assert_eq!((cause.place, cause.source.count), (Place::Authority, 7));
}

#[test]
fn loss_behind_dut_explains_only_queries_that_it_can_block() {
    let one = || vec![evidence(Place::ToAuthority, 1, None)];
    let lost = |queries, late| {
        let late = LossFacts {
            late,
            ..missing(queries, one())
        };
        place(late).cause.is_some()
    };
    assert!(lost(1000, 0));
    assert!(!lost(1001, 0));
    assert!(lost(0, 1000));
    assert!(!lost(0, 1001));
}

#[test]
fn hanging_queries_at_early_end_need_explanation() {
    let hanging = |hanging, high| {
        let mut facts = missing(5, vec![evidence(Place::FromDut, 1, high)]);
        facts.evidence.hanging = hanging;
        place(facts).cause.is_some()
    };
    assert!(hanging(123, Some(128)));
    assert!(!hanging(124, Some(128)));
    assert!(hanging(995, None));
    assert!(!hanging(996, None));
}

#[test]
fn drop_takes_precedence_over_delay() {
    let held = Evidence {
        kind: LossKind::Held,
        source: Source {
            count: 1_000_000,
            ..evidence(Place::ToDut, 0, None).source
        },
        ..evidence(Place::ToDut, 0, None)
    };
    let dropped = evidence(Place::ToDut, 3, Some(3));
    let placing = place(missing(3, vec![held.clone(), dropped.clone()]));
    assert_eq!(placing.cause, Some(dropped));
    let placing = place(missing(3, vec![held.clone()]));
    assert_eq!(placing.cause, Some(held));
}

fn any_evidence() -> impl Strategy<Value = Evidence> {
    let places = prop::sample::select(vec![
        Place::ToDut,
        Place::DutHost,
        Place::ToAuthority,
        Place::Authority,
        Place::FromAuthority,
        Place::FromDut,
        Place::Measurer,
    ]);
    (places, 0..50_u64, option::of(0..500_u64))
        .prop_map(|(place, low, more)| evidence(place, low, more.map(|more| low + more)))
}

fn any_asked() -> impl Strategy<Value = UpstreamReach> {
    (0..100_u64, 0..100_u64).prop_map(|(reached, unanswered)| UpstreamReach {
        reached,
        answered: reached.saturating_sub(unanswered),
    })
}

prop_compose! {
    fn any_facts()(
        counts in (0..100_u64, 0..200_u64, 0..100_u64, 0..100_u64),
        dut_drops in 0..200_u64,
        (hanging, each) in (0..100_u64, 0..1000_u64),
        is_watched: bool,
        found in vec(any_evidence(), 0..6),
        asked in option::of(any_asked()),
    ) -> LossFacts {
        let (not_sent, missing, late, not_valid) = counts;
        let evidence = LossEvidence {
            not_sent, refused_by: None, hanging, dut_drops, is_watched, found,
        };
        LossFacts { evidence, missing, each, late, not_valid, asked }
    }
}

proptest! {
    #[test]
    fn each_loss_has_one_place_or_is_undecided(facts in any_facts()) {
        let losses = place(facts.clone()).losses;
        let all = facts.evidence.not_sent + facts.missing + facts.late + facts.not_valid;
        prop_assert_eq!(losses.queries, all);
        let placed: u64 = losses.places.iter().map(|placed| placed.low).sum();
        prop_assert_eq!(placed + losses.undecided, all);
        for placed in &losses.places {
            prop_assert!(placed.low <= placed.high && placed.high <= all, "{:?}", placed);
            prop_assert!(placed.high > 0);
        }
        prop_assert_eq!(losses.between.is_empty(), losses.undecided == 0);
    }

    /// Additional losses on the Tester's side never turn an invalid trial into a failed one.
    #[test]
    fn more_evidence_never_blames_dut(facts in any_facts(), more in any_evidence()) {
        let without = place(facts.clone()).cause;
        let mut facts = facts;
        let explains = more.low > 0 || more.high != Some(0);
        facts.evidence.found.push(more);
        let with = place(facts).cause;
        prop_assert!(without.is_none() || with.is_some() || !explains);
    }
}
