//! The table of losses.

use super::*;
use crate::report::campaign::analysis::Lost;
use crate::report::campaign::table::{Cell, Table};
use crate::report::campaign::tables;
use crate::trial::place::Place;

/// The table for the first variant with these losses at places and elsewhere.
fn table(at: &[(Place, Lost)], undecided: Lost, shared: bool) -> Table {
    let mut analysis = analysed(SMALL);
    analysis.evidence.truncate(1);
    let losses = analysis.evidence[0].losses.as_mut().unwrap();
    losses.undecided = undecided;
    losses.shared = shared;
    for row in &mut losses.places {
        let lost = at.iter().find(|lost| lost.0 == row.place);
        row.lost = lost.map_or(Lost::default(), |lost| lost.1);
    }
    let tables = tables::all(&analysis).into_iter();
    let mut losses = tables.filter(|table| table.key == "losses");
    losses.next().unwrap_or_default()
}

fn lost(valid_trials: u64, invalid_trials: u64) -> Lost {
    Lost {
        valid_trials,
        invalid_trials,
    }
}

#[test]
fn every_place_with_losses_has_a_row_with_their_owner() {
    let at = [(Place::Dut, lost(12_345, 0)), (Place::ToDut, lost(0, 678))];
    let table = table(&at, lost(0, 9), false);
    let cells = |row: &Vec<_>| row[1..].iter().map(|cell: &Cell| cell.text("")).collect();
    let rows: Vec<Vec<String>> = table.rows.iter().map(cells).collect();
    assert_eq!(
        rows,
        [
            ["lost on the way to the DUT", "Tester", "0", "678"],
            ["never answered by the DUT", "DUT", "12,345", "0"],
            ["lost at an unknown place", "unknown", "0", "9"],
        ]
    );
    assert_eq!(table.notes.len(), 0);
}

#[test]
fn variant_without_losses_has_no_row() {
    assert_eq!(table(&[], lost(0, 0), false).rows.len(), 0);
}

#[test]
fn shared_counters_are_marked_as_evidence_only() {
    let notes = table(&[], lost(0, 1), true).notes;
    assert!(notes[0].ends_with("evidence, not proof."), "{notes:?}");
}
