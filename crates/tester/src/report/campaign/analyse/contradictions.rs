//! Contradictory or misleading figures within one report.

use super::grouped;
use crate::report::Thousands;
use crate::report::campaign::analysis::{Analysis, Certificate, OverloadCurve, PointResult, Step};
use crate::report::campaign::{numbers, words};
use crate::trial::result::Outcome;
use crate::warning::{Section, Severity, Warning};

/// A trial above the measured rate contradicts that rate if its goodput exceeds it by this factor. The error of a
/// search on an idle machine is a tenth of this (a resolution of 0.1 %, and the dispersion of runs).
const GOODPUT_FACTOR: f64 = 1.1;

/// If two certificates of one Tester differ by this factor, one self-test was disturbed: self-tests find the limit to
/// within 10 %.
const CERTIFIED_FACTOR: u64 = 2;

/// A trial that failed below a passing rate by this factor exceeds the dispersion that the papers accept (10 %: Lencse
/// 2019, section 4.3).
const INVERSION_FACTOR: f64 = 1.1;

/// The dispersion of the runs explains a smaller number of failed trials below a pass.
const INVERSIONS_MIN: usize = 3;

/// All contradictions.
pub(super) fn all(analysis: &Analysis) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for variant in 0..analysis.variants.len() {
        let kinds = [above_certificate, inversions, stored];
        warnings.extend(
            kinds
                .into_iter()
                .filter_map(|kind| of_variant(analysis, variant, kind)),
        );
    }
    warnings.extend(overloads(analysis));
    warnings.extend(certificates(&analysis.certificates));
    warnings
}

/// What is found of the points of a variant: the first of them in full, and how many more.
fn of_variant(
    analysis: &Analysis,
    variant: usize,
    kind: fn(&PointResult) -> Option<Warning>,
) -> Option<Warning> {
    let points = analysis.points_of(variant);
    let mut found =
        points.filter_map(|point| Some(kind(point)?.about(words::point(analysis, point))));
    let mut first = found.next()?;
    match found.count() {
        0 => {}
        more => first.text += &format!(" (likewise {})", numbers::count(more, "more point")),
    }
    Some(first)
}

/// A rate that exceeds the certified rate of the Tester.
fn above_certificate(point: &PointResult) -> Option<Warning> {
    let certified = point.certified_rate_qps?;
    let above: Vec<u64> = point.rates_qps().filter(|rate| *rate > certified).collect();
    let highest = above.iter().max()?;
    let text = format!(
        "{} found up to {} queries/s, and the Tester is certified for {}",
        numbers::count(above.len(), "run"),
        Thousands(*highest),
        Thousands(certified)
    );
    let remedy = "repeat the searches with a certificate beyond that";
    let warning = Severity::Critical.warning(text).remedy(remedy);
    Some(warning.section(Section::SelfTest))
}

/// Trials that failed far below a rate that the same DUT has passed.
fn inversions(point: &PointResult) -> Option<Warning> {
    let passed = point.steps().filter(|step| step.outcome == Outcome::Passed);
    let highest = passed.map(|step| step.rate_qps).max()?;
    let failed = |step: &&Step| matches!(step.outcome, Outcome::Failed { .. });
    let all = point.steps().filter(failed).count();
    let far_below = |step: &&Step| step.rate_qps as f64 * INVERSION_FACTOR < highest as f64;
    let inverted = point.steps().filter(failed).filter(far_below);
    let inverted: Vec<u64> = inverted.map(|step| step.rate_qps).collect();
    let lowest = *inverted.iter().min()?;
    (inverted.len() >= INVERSIONS_MIN).then(|| {
        let text = format!(
            "{} of {} failed far below {} queries/s, at which the DUT has passed, the lowest at {}: what \
             failed them is not the rate alone",
            inverted.len(),
            numbers::count(all, "failed trial"),
            Thousands(highest),
            Thousands(lowest)
        );
        let remedy = "look at what these trials lost, and repeat the searches on a quiet machine";
        Severity::Warning.warning(text).remedy(remedy)
    })
}

/// A rate that the DUT reached only by storing queries for the length of a trial.
fn stored(point: &PointResult) -> Option<Warning> {
    let (stored, median) = (point.stored?, point.median()?);
    let text = format!(
        "the answers' delay grew by {:.0} ms/s in the trials that passed: the DUT stores queries; it serves \
         {} queries/s, and the median, {}, is the rate of a trial of {} s",
        stored.slope_ns_per_s / 1e6,
        numbers::decimal(stored.sustainable_qps, 0),
        numbers::decimal(median, 0),
        numbers::short(point.duration_s)
    );
    let remedy = "quote the sustained rate, or measure with longer trials";
    Some(Severity::Warning.warning(text).remedy(remedy))
}

/// Trials above the measured rate with a goodput far above it.
fn overloads(analysis: &Analysis) -> Vec<Warning> {
    let warning = |curve: &OverloadCurve| {
        let found = analysis.points_of(curve.variant).next()?;
        let median = found.median()?;
        // The goodput counts whatever the verdict of the trial.
        let best = curve
            .rows
            .iter()
            .max_by(|a, b| a.goodput_qps.total_cmp(&b.goodput_qps))?;
        (best.goodput_qps > median * GOODPUT_FACTOR).then(|| {
            let text = format!(
                "the searches found {} queries/s, but a trial at {} had {} valid answers per second",
                numbers::decimal(median, 0),
                Thousands(best.rate_qps),
                numbers::decimal(best.goodput_qps, 0)
            );
            let remedy = "look at what the trials lost that failed in between: a few losses, or a \
                          disturbance of the Tester or of the DUT's cores, are not its capacity";
            let about = words::point(analysis, found);
            let warning = Severity::Warning.warning(text).remedy(remedy);
            warning.about(about).section(Section::Overload)
        })
    };
    analysis.overloads.iter().filter_map(warning).collect()
}

/// Certificates of the same Tester that differ by a large factor.
fn certificates(certificates: &[Certificate]) -> Vec<Warning> {
    let known = certificates.iter().filter_map(|certificate| {
        let c = &certificate.conditions;
        let tester = (
            &c.lab,
            &c.authority,
            c.threads,
            c.sockets,
            &c.local,
            &c.cpus,
        );
        Some((tester, certificate.certified_rate_qps?))
    });
    let known = grouped(known);
    let warning = |(_, rates): &(_, Vec<u64>)| {
        let (least, most) = (*rates.iter().min()?, *rates.iter().max()?);
        (most >= least.saturating_mul(CERTIFIED_FACTOR)).then(|| {
            let text = format!(
                "the same Tester was certified for {} and for {} queries/s in {}",
                Thousands(least),
                Thousands(most),
                numbers::count(rates.len(), "self-test")
            );
            let remedy = "take the lowest for all runs, or repeat them on a quiet machine";
            let warning = Severity::Warning.warning(text).remedy(remedy);
            warning.section(Section::SelfTest)
        })
    };
    known.iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests;
