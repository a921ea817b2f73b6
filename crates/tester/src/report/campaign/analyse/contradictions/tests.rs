//! Adds each contradiction to the sample, which has none.

use super::*;
use crate::report::campaign::analysis::Stored;
use crate::report::campaign::tests::sample::{SMALL, analysed};

/// Warnings about the sample after a change.
fn warned(change: impl FnOnce(&mut Analysis)) -> Vec<String> {
    let mut analysis = analysed(SMALL);
    change(&mut analysis);
    let warnings = all(&analysis);
    assert!(warnings.iter().all(|w| w.severity != Severity::Note));
    warnings.iter().map(ToString::to_string).collect()
}

fn step(rate_qps: u64, outcome: Outcome) -> Step {
    Step {
        rate_qps,
        certified: Some(true),
        shortfall: outcome.shortfall(),
        outcome,
        why: String::new(),
    }
}

#[test]
fn campaign_without_contradictions_has_no_warning() {
    assert_eq!(warned(|_| {}), Vec::<String>::new());
}

#[test]
fn a_rate_above_the_certificate_is_critical() {
    let mut analysis = analysed(SMALL);
    analysis.points[0].certified_rate_qps = Some(9_010);
    let warnings = all(&analysis);
    assert_eq!(warnings[0].severity, Severity::Critical);
    assert_eq!(
        warnings[0].to_string(),
        "dns64d cores=1, AAAA 0 %, cached 0 %: 1 run found up to 9,062 queries/s, and the Tester is \
         certified for 9,010; repeat the searches with a certificate beyond that"
    );
}

#[test]
fn overload_goodput_above_the_measured_rate_causes_a_warning() {
    let told = warned(|analysis| {
        let summary = analysis.points[0].summary.as_mut().unwrap();
        summary.median = 2_343.0;
        let row = &mut analysis.overloads[0].rows[1];
        (row.rate_qps, row.goodput_qps, row.doubtful) = (7_029, 7_029.0, true);
        analysis.overloads[0].rows.truncate(2);
    });
    assert_eq!(
        told,
        [
            "dns64d cores=1, AAAA 0 %, cached 0 %: the searches found 2,343 queries/s, but a trial at \
             7,029 had 7,029 valid answers per second; look at what the trials lost that failed in \
             between: a few losses, or a disturbance of the Tester or of the DUT's cores, are not its \
             capacity"
        ]
    );
    // A tenth more is within the dispersion of searches and trials.
    let told = warned(|analysis| {
        let median = analysis.points[0].summary.as_ref().unwrap().median;
        analysis.overloads[0].rows[0].goodput_qps = median * 1.09;
    });
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn several_failures_far_below_a_pass_cause_a_warning() {
    let with = |failed: &[u64]| {
        warned(|analysis| {
            let trials = &mut analysis.points[0].runs[1].trials;
            trials.extend(
                failed
                    .iter()
                    .map(|rate| step(*rate, Outcome::Failed { shortfall: 1 })),
            );
        })
    };
    assert_eq!(with(&[4_000, 5_000]), Vec::<String>::new());
    assert_eq!(with(&[8_900, 8_950, 9_000]), Vec::<String>::new());
    let told = with(&[4_000, 5_000, 6_000]);
    let [told] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert!(
        told.contains(
            " failed far below 9,062 queries/s, at which the DUT has passed, the lowest at 4,000:"
        ),
        "{told}"
    );
}

#[test]
fn certificates_that_differ_by_a_factor_cause_a_warning() {
    let with = |rates: [Option<u64>; 2]| {
        warned(|analysis| {
            for (certificate, rate_qps) in analysis.certificates.iter_mut().zip(rates) {
                certificate.certified_rate_qps = rate_qps;
                certificate.conditions.cell = format!("{rate_qps:?}");
            }
        })
    };
    assert_eq!(
        with([Some(240_000), Some(9_375)]),
        [
            "the same Tester was certified for 9,375 and for 240,000 queries/s in 2 self-tests; take the \
             lowest for all runs, or repeat them on a quiet machine"
        ]
    );
    assert_eq!(with([Some(59_000), Some(100_000)]), Vec::<String>::new());
    assert_eq!(with([Some(59_000), None]), Vec::<String>::new());
    let other_tester = warned(|analysis| {
        analysis.certificates[0].certified_rate_qps = Some(240_000);
        analysis.certificates[0].conditions.threads = 2;
    });
    assert_eq!(other_tester, Vec::<String>::new());
}

#[test]
fn rate_of_stored_queries_is_reported_with_the_sustained_rate() {
    let told = warned(|analysis| {
        let point = &mut analysis.points[0];
        point.summary.as_mut().unwrap().median = 18_000.0;
        point.stored = Some(Stored {
            runs: 3,
            slope_ns_per_s: 812.4e6,
            sustainable_qps: 9_932.0,
        });
        analysis.overloads.clear();
    });
    assert_eq!(
        told,
        [
            "dns64d cores=1, AAAA 0 %, cached 0 %: the answers' delay grew by 812 ms/s in the trials that \
             passed: the DUT stores queries; it serves 9,932 queries/s, and the median, 18,000, is the \
             rate of a trial of 1 s; quote the sustained rate, or measure with longer trials"
        ]
    );
}

#[test]
fn points_of_a_variant_with_the_same_contradiction_are_told_once() {
    let told = warned(|analysis| {
        for point in analysis.points.iter_mut().filter(|point| point.variant < 2) {
            point.stored = Some(Stored {
                runs: 3,
                slope_ns_per_s: 812.4e6,
                sustainable_qps: 9_932.0,
            });
        }
        analysis.overloads.clear();
    });
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("is the rate of a trial of 1 s (likewise 9 more points); quote"),
        "{}",
        told[0]
    );
}
