//! Figures of the evidence.

use expect_test::expect;

use super::sample;
use crate::report::campaign::analysis::{Analysis, Lost};
use crate::report::campaign::plots::{Figure, figures};
use crate::trial::place::Place;

/// The first variant with these losses at places and elsewhere.
fn with_losses(at: &[(Place, Lost)], undecided: Lost) -> Analysis {
    let mut analysis = sample();
    let losses = analysis.evidence[0].losses.as_mut().unwrap();
    losses.undecided = undecided;
    for row in &mut losses.places {
        let lost = at.iter().find(|lost| lost.0 == row.place);
        row.lost = lost.map_or(Lost::default(), |lost| lost.1);
    }
    analysis
}

fn lost(valid_trials: u64, invalid_trials: u64) -> Lost {
    Lost {
        valid_trials,
        invalid_trials,
    }
}

#[test]
fn every_place_has_its_losses_and_their_owner() {
    let at = [(Place::Dut, lost(12_345, 0)), (Place::ToDut, lost(0, 678))];
    let figures = figures(&with_losses(&at, lost(0, 9)));
    let places = &figures["losses"][0];
    for shown in [">12,345<", ">+ 678 invalid<", ">+ 9 invalid<"] {
        assert_eq!(places.svg.matches(shown).count(), 1, "{shown}");
    }
    // Places with losses in invalid trials alone have none in valid ones; all others have no number.
    assert_eq!(places.svg.matches(">0<").count(), 2);
}

#[test]
fn a_variant_without_losses_has_no_map() {
    let maps = |analysis: &Analysis| figures(analysis)["losses"].len();
    assert_eq!(maps(&with_losses(&[], lost(0, 1))), 3);
    assert_eq!(maps(&with_losses(&[], lost(0, 0))), 2);
}

#[test]
fn messages_are_in_order_with_the_times_between_them() {
    let mut analysis = sample();
    let drawn = figures(&analysis);
    assert_eq!(drawn["messages"].len(), 3);
    let words = drawn["messages"][0]
        .svg
        .split("<text class=\"middle ink\"")
        .skip(4);
    let words = words.filter_map(|rest| rest.split(['>', '<']).nth(1));
    expect![[r#"
        AAAA query
        AAAA question
        AAAA answer
        A question
        A answer
        AAAA response
    "#]]
    .assert_eq(&(words.collect::<Vec<_>>().join("\n") + "\n"));
    let svg = &drawn["messages"][0].svg;
    for shown in [">20 us<", ">134 us<"] {
        assert!(svg.contains(shown), "{shown}: {svg}");
    }
    let shares = |figure: &Figure| figure.legend.iter().map(|entry| entry.1.clone()).collect();
    let shown: Vec<String> = shares(&drawn["messages"][0]);
    assert_eq!(
        shown,
        ["DUT and links: 189 us (94.5 %)", "authority: 11 us (5.5 %)"]
    );
    // In the drawing both would meet on a phone.
    assert!(!svg.contains("DUT and links"), "{svg}");
    // Both queries at once: the time that the authority had both counts once.
    let path = analysis.points[0].path.as_mut().unwrap();
    let typical = path.typical.as_mut().unwrap();
    typical.a_question_ns = Some(22_000);
    typical.a_answer_ns = Some(30_000);
    let shown: Vec<String> = shares(&figures(&analysis)["messages"][0]);
    assert_eq!(shown[1], "authority: 10 us (5.0 %)");
}

#[test]
fn authority_work_after_the_response_is_excluded() {
    let mut analysis = sample();
    let path = analysis.points[0].path.as_mut().unwrap();
    let typical = path.typical.as_mut().unwrap();
    typical.a_question_ns = Some(190_000);
    typical.a_answer_ns = Some(300_000);
    let figure = &figures(&analysis)["messages"][0];
    assert!(!figure.svg.contains(">A answer<"));
    assert_eq!(figure.legend[1].1, "authority: 15 us (7.5 %)");
}

#[test]
fn shared_counters_are_marked_as_evidence_only() {
    let mut analysis = sample();
    analysis.evidence[0].losses.as_mut().unwrap().shared = true;
    let figures = figures(&analysis);
    let marked = |figure: &&Figure| figure.title.ends_with("evidence, not proof");
    assert_eq!(figures["losses"].iter().filter(marked).count(), 1);
}
