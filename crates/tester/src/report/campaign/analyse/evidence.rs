//! Evidence about the Tester from the trials of each variant.

use std::collections::BTreeMap;

use crate::campaign::history::Recorded;
use crate::report::campaign::analysis::{Evidence, Lost, LostAt, PlacesOfLoss, SenderEvidence};
use crate::trial::place::Place;
use crate::trial::result::{Outcome, Timing, TrialResult};

/// Evidence from all trials of each variant: searches with their earlier attempts, overload and soak.
pub(super) fn of_variants(history: &Recorded<'_>) -> Vec<Evidence> {
    let of_variant = |variant| {
        let trials = history.all_trials_of(|point| point.variant == variant);
        let trials: Vec<_> = trials.collect();
        (!trials.is_empty()).then(|| evidence(variant, &trials))
    };
    (0..history.variants.len()).filter_map(of_variant).collect()
}

fn evidence(variant: usize, trials: &[&TrialResult]) -> Evidence {
    let (mut passed, mut failed) = (0, 0);
    let mut faults: BTreeMap<&str, u64> = BTreeMap::new();
    for trial in trials {
        match &trial.outcome {
            Outcome::Passed => passed += 1,
            Outcome::Failed { .. } => failed += 1,
            Outcome::Invalid(fault) => *faults.entry(fault.kind().name).or_default() += 1,
        }
    }
    let mut invalid: Vec<_> = faults.into_iter().collect();
    invalid.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    let valid = trials.iter().filter(|trial| trial.outcome.is_valid());
    let timings: Vec<_> = valid.map(|trial| &trial.timing).collect();
    Evidence {
        variant,
        passed,
        failed,
        invalid,
        sender: sender(&timings),
        losses: losses(trials),
    }
}

fn sender(timings: &[&Timing]) -> Option<SenderEvidence> {
    let span = |of: fn(&Timing) -> u64| timings.iter().map(|timing| of(timing)).max();
    let pct = |of: fn(&Timing) -> f64| timings.iter().map(|timing| of(timing)).reduce(f64::max);
    let limits = timings.iter().map(|timing| timing.limits);
    Some(SenderEvidence {
        trials: timings.len() as u64,
        lateness_ns_p99: span(|t| t.lateness_ns_p99)?,
        lateness_ns_max: span(|t| t.lateness_ns_max)?,
        lateness_limit_ns: limits.clone().map(|limits| limits.max_stall_ns).min()?,
        bin_10ms_deviation_pct_max: pct(|t| t.bin_10ms_deviation_pct_max)?,
        bin_100ms_deviation_pct_max: pct(|t| t.bin_100ms_deviation_pct_max)?,
        rate_error_limit_pct: limits
            .map(|limits| limits.max_rate_error_pct)
            .reduce(f64::min),
    })
}

/// Losses by place.
fn losses(trials: &[&TrialResult]) -> Option<PlacesOfLoss> {
    let telling = trials.iter().map(|trial| (trial, &trial.losses));
    let mut by_place: BTreeMap<Place, Lost> = BTreeMap::new();
    let mut undecided = Lost::default();
    for (trial, losses) in telling.clone() {
        for placed in &losses.places {
            by_place
                .entry(placed.place)
                .or_default()
                .add(trial, placed.low);
        }
        undecided.add(trial, losses.undecided);
    }
    let place = |place| LostAt {
        place,
        lost: by_place.get(&place).copied().unwrap_or_default(),
    };
    let shared = telling.clone().any(|(_, losses)| losses.shared);
    let trials = telling.clone().count() as u64;
    (trials > 0).then(|| PlacesOfLoss {
        trials,
        queries_sent: telling.map(|(trial, _)| trial.queries_sent).sum(),
        places: Place::ALL.map(place).to_vec(),
        undecided,
        shared,
    })
}

impl Lost {
    fn add(&mut self, trial: &TrialResult, queries: u64) {
        match trial.outcome.is_valid() {
            true => self.valid_trials += queries,
            false => self.invalid_trials += queries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::record::{Line, Record};
    use crate::report::campaign::analyse::analyse;
    use crate::report::campaign::tests::sample::{SEAL, small};
    use crate::trial::place::{Losses, Placed};

    fn trials(lines: &mut [Line]) -> impl Iterator<Item = &mut TrialResult> {
        lines.iter_mut().filter_map(|line| match &mut line.record {
            Record::Trial { result, .. } => Some(result),
            _ => None,
        })
    }

    #[test]
    fn losses_in_invalid_trials_are_separate() {
        let (plan, mut lines) = small();
        let invalid = trials(&mut lines).find(|trial| !trial.outcome.is_valid());
        invalid.unwrap().losses = Losses {
            queries: 5,
            places: vec![Placed {
                place: Place::ToDut,
                low: 3,
                high: 5,
                source: None,
            }],
            undecided: 2,
            ..Losses::default()
        };
        let all: u64 = trials(&mut lines).map(|t| t.outcome.shortfall()).sum();
        let evidence = analyse(&plan, &lines, SEAL).evidence;
        let losses = evidence.iter().map(|e| e.losses.as_ref().unwrap());
        let at = |place| {
            let places = losses.clone().flat_map(|losses| &losses.places);
            let found = places.filter(move |at| at.place == place).map(|at| at.lost);
            let found = found.map(|lost| (lost.valid_trials, lost.invalid_trials));
            found.fold((0, 0), |sum, lost| (sum.0 + lost.0, sum.1 + lost.1))
        };
        assert_eq!((at(Place::Dut), at(Place::ToDut)), ((all, 0), (0, 3)));
        let undecided = evidence[0].losses.as_ref().unwrap().undecided;
        assert_eq!((undecided.valid_trials, undecided.invalid_trials), (0, 2));
        assert_eq!(evidence[0].invalid, [("sender held up", 1)]);
    }

    #[test]
    fn sender_evidence_has_valid_trials_only() {
        let (plan, mut lines) = small();
        for trial in trials(&mut lines) {
            trial.timing.lateness_ns_max = match trial.outcome.is_valid() {
                true => 7_000,
                false => 90_000_000,
            };
        }
        let sender = analyse(&plan, &lines, SEAL).evidence[0].sender;
        assert_eq!(sender.unwrap().lateness_ns_max, 7_000);
    }
}
