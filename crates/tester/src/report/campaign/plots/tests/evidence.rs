//! Figures of the evidence.

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
fn shared_counters_are_marked_as_evidence_only() {
    let mut analysis = sample();
    analysis.evidence[0].losses.as_mut().unwrap().shared = true;
    let figures = figures(&analysis);
    let marked = |figure: &&Figure| figure.title.ends_with("evidence, not proof");
    assert_eq!(figures["losses"].iter().filter(marked).count(), 1);
}
