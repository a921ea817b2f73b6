//! Places a rate in a division of the rules for published numbers (`docs/rules.md`).

use crate::conform::report::Conformance;
use crate::report::campaign::analysis::{
    Analysis, Division, Met, PointResult, RunResult, VariantInfo,
};
use crate::rig::spec::SelfTestPath;
use crate::warning::Severity;

/// A rule, and whether a point meets it.
type Rule = (&'static str, fn(&Analysis, &PointResult) -> bool);

/// Rules for all numbers.
const OF_ALL: [Rule; 3] = [
    ("complete", |analysis, _| analysis.complete),
    ("measurement", |analysis, point| {
        analysis.not_a_measurement.is_empty()
            && variant(analysis, point).not_a_measurement.is_empty()
    }),
    ("identity", |analysis, point| {
        let info = variant(analysis, point);
        info.version.is_some() && info.hashes.iter().any(|(of, _)| of == "program")
    }),
];

/// Rules for numbers of the closed division.
const OF_CLOSED: [Rule; 12] = [
    // An authority needs none.
    ("certified", |_, point| point.certified != Some(false)),
    ("links", |analysis, _| {
        let mut paths = analysis.certificates.iter().map(|it| it.conditions.covers);
        paths.all(|path| matches!(path, SelfTestPath::BothLinks | SelfTestPath::DirectLink))
    }),
    ("duration", |_, point| point.duration_s >= 60.0),
    ("timeout", |_, point| point.timeout_s <= 1.0),
    ("runs", |_, point| {
        point.summary.as_ref().is_some_and(|it| it.runs >= 20)
    }),
    ("criterion", |_, point| {
        point.runs.iter().all(is_within_one_pct)
    }),
    ("worst-case", |analysis, point| {
        let mut own = analysis.points_of(point.variant);
        own.any(|it| it.is_worst_case() && it.summary.is_some())
    }),
    ("stable", |_, point| !point.is_unstable()),
    ("bounded", |_, point| !point.lower_bound),
    ("no-warning", |analysis, _| {
        let mut warnings = analysis.warnings.iter();
        !warnings.any(|it| it.severity == Severity::Critical)
    }),
    ("names", |analysis, _| {
        let mut clauses = analysis.statement.iter();
        clauses.all(|it| !["B-10", "B-12"].contains(&it.id) || it.met == Met::Met)
    }),
    // Without a test in the journal, its result stands elsewhere in the disclosure.
    ("conformance", |analysis, point| {
        let found = variant(analysis, point).conformance.as_ref();
        found.is_none_or(Conformance::is_met)
    }),
];

/// The division of the rate of `point`, and the rules that it fails. Warnings and clauses must be known, and reasons against all variants alone.
pub(super) fn of(analysis: &Analysis, point: &PointResult) -> (Division, Vec<&'static str>) {
    let failed = |rules: &[Rule]| -> Vec<&'static str> {
        let failed = rules.iter().filter(|(_, is_met)| !is_met(analysis, point));
        failed.map(|(id, _)| *id).collect()
    };
    let (of_all, of_closed) = (failed(&OF_ALL), failed(&OF_CLOSED));
    let division = match (of_all.is_empty(), of_closed.is_empty()) {
        (true, true) => Division::Closed,
        (true, false) => Division::Open,
        (false, _) => Division::Estimate,
    };
    (division, [of_all, of_closed].concat())
}

fn variant<'a>(analysis: &'a Analysis, point: &PointResult) -> &'a VariantInfo {
    &analysis.variants[point.variant]
}

/// Whether a pass and a fail of a search are at most 1 % apart.
fn is_within_one_pct(run: &RunResult) -> bool {
    let Some((passed, failed)) = run.rate_qps.zip(run.failed_qps) else {
        return true;
    };
    failed.saturating_sub(passed) <= (passed / 100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::analyse::analyse;
    use crate::report::campaign::tests::sample::{SEAL, small};

    /// A campaign whose first point meets all rules.
    fn closed() -> Analysis {
        let (plan, lines) = small();
        let mut analysis = analyse(&plan, &lines, SEAL);
        analysis.complete = true;
        analysis.not_a_measurement.clear();
        analysis.warnings.clear();
        for certificate in &mut analysis.certificates {
            certificate.conditions.covers = SelfTestPath::BothLinks;
        }
        for info in &mut analysis.variants {
            info.version = Some("1".into());
            info.hashes = vec![("program".into(), "0".repeat(64))];
            info.not_a_measurement.clear();
        }
        for clause in &mut analysis.statement {
            clause.met = Met::Met;
        }
        let point = &mut analysis.points[0];
        (point.duration_s, point.timeout_s) = (60.0, 1.0);
        (point.certified, point.lower_bound) = (Some(true), false);
        point.summary.as_mut().unwrap().runs = 20;
        point.agreement.as_mut().unwrap().unstable = false;
        for run in &mut point.runs {
            (run.rate_qps, run.failed_qps) = (Some(1000), Some(1010));
        }
        analysis
    }

    type Break = (&'static str, Division, fn(&mut Analysis));

    #[rustfmt::skip]
    const BREAKS: [Break; 15] = [
        ("complete", Division::Estimate, |it| it.complete = false),
        ("measurement", Division::Estimate, |it| it.variants[0].not_a_measurement.push("x".into())),
        ("measurement", Division::Estimate, |it| it.not_a_measurement.push("x".into())),
        ("identity", Division::Estimate, |it| it.variants[0].version = None),
        ("certified", Division::Open, |it| it.points[0].certified = Some(false)),
        ("links", Division::Open, |it| it.certificates[0].conditions.covers = SelfTestPath::TesterAlone),
        ("duration", Division::Open, |it| it.points[0].duration_s = 59.0),
        ("timeout", Division::Open, |it| it.points[0].timeout_s = 2.0),
        ("runs", Division::Open, |it| it.points[0].summary.as_mut().unwrap().runs = 19),
        ("criterion", Division::Open, |it| it.points[0].runs[0].failed_qps = Some(1011)),
        ("stable", Division::Open, |it| it.points[0].agreement.as_mut().unwrap().unstable = true),
        ("bounded", Division::Open, |it| it.points[0].lower_bound = true),
        ("no-warning", Division::Open, |it| it.warnings.push(Severity::Critical.warning("x"))),
        ("conformance", Division::Open, |it| it.variants[0].conformance = Some(Conformance::default())),
        ("names", Division::Open, |it| it.statement.iter_mut().for_each(|clause| clause.met = Met::NotKnown)),
    ];

    #[test]
    fn broken_rule_is_the_only_one_that_fails() {
        let whole = closed();
        assert_eq!(of(&whole, &whole.points[0]), (Division::Closed, vec![]));
        for (rule, division, break_it) in BREAKS {
            let mut broken = whole.clone();
            break_it(&mut broken);
            assert_eq!(of(&broken, &broken.points[0]), (division, vec![rule]));
        }
    }
}
