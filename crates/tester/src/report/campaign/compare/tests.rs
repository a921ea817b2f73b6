use expect_test::{expect, expect_file};

use super::*;
use crate::conform::case::Level;
use crate::conform::report::Verdict::{Failed, Passed};
use crate::conform::report::{CaseVerdict, Conformance};
use crate::report::campaign::tests::sample::{SMALL, analysed};

fn sample() -> Analysis {
    analysed(SMALL)
}

/// The same campaign with every rate multiplied by `factor`.
fn scaled(factor: f64) -> Analysis {
    let mut analysis = sample();
    for point in &mut analysis.points {
        for run in &mut point.runs {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a small positive rate"
            )]
            let scale = |rate: u64| (rate as f64 * factor) as u64;
            run.rate_qps = run.rate_qps.map(scale);
        }
        if let Some(summary) = &mut point.summary {
            summary.median *= factor;
        }
    }
    analysis
}

fn text(comparison: &Comparison) -> String {
    let mut out = Vec::new();
    comparison.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_campaign_is_not_slower_than_itself() {
    let comparison = Comparison::of(&sample(), &sample(), 0.0);
    assert!(!comparison.has_regressions());
    assert_eq!(comparison.rows.len(), sample().points.len());
    for row in &comparison.rows {
        // The order of two lower bounds is unknown.
        let expected = match row.lower_bounds.0 {
            true => Verdict::NotJudged,
            false => Verdict::Within,
        };
        assert_eq!(row.verdict, expected, "{}", row.point);
    }
    assert_eq!(comparison.warnings, Vec::<String>::new());
}

#[test]
fn slower_points_and_different_conditions_are_reported() {
    let mut b = scaled(0.9);
    b.tester = "dns64bench 0.2.0".to_owned();
    b.sessions[1].environment.kernel = "Linux 6.12.0".to_owned();
    b.points.remove(1);
    b.points[20].planned.cell.aaaa_share = "7%".parse().unwrap();
    let comparison = Comparison::of(&sample(), &b, 5.0);
    assert!(comparison.has_regressions());
    expect_file!["../testdata/compare.txt"].assert_eq(&text(&comparison));
    assert!(!Comparison::of(&sample(), &scaled(0.96), 5.0).has_regressions());
    assert!(!Comparison::of(&sample(), &scaled(1.2), 0.0).has_regressions());
}

#[test]
fn changed_verdicts_of_conformance_are_reported() {
    let level = Level::Must;
    let with = |verdict| {
        let mut analysis = sample();
        analysis.variants[0].conformance = Some(Conformance {
            cases: [("rfc6147-5.1.4-a".to_owned(), CaseVerdict { level, verdict })].into(),
            ..Conformance::default()
        });
        analysis
    };
    let found = |b| Comparison::of(&with(Passed), &b, 5.0).warnings.len();
    assert_eq!(
        [found(with(Failed)), found(with(Passed)), found(sample())],
        [1, 0, 0]
    );
}

#[test]
fn verdict_depends_on_bounds_interval_and_test() {
    let of = |change_pct, interval_pct, p, runs, lower_bounds| {
        let row = Row {
            point: String::new(),
            medians: (None, None),
            runs,
            lower_bounds,
            change_pct,
            interval_pct,
            p,
            verdict: Verdict::NotJudged,
            why: String::new(),
        };
        let (verdict, why) = judge(&row, 5.0);
        format!("{}: {why}", word(verdict))
    };
    let exact = (false, false);
    let narrow = Some((-12.0, -8.0));
    let wide = Some((-25.0, 3.0));
    let higher = Some((2.0, 12.0));
    let all = [
        of(None, None, None, (0, 20), exact),
        of(Some(-5.0), narrow, Some(0.001), (20, 20), exact),
        of(Some(-10.0), narrow, Some(0.001), (20, 20), exact),
        of(Some(-10.0), narrow, Some(0.2), (20, 20), exact),
        of(Some(-10.0), narrow, Some(0.1), (3, 20), exact),
        of(Some(-10.0), wide, Some(0.1), (4, 4), exact),
        of(Some(-10.0), None, None, (2, 20), exact),
        of(Some(-10.0), narrow, Some(0.001), (20, 20), (false, true)),
        of(Some(6.0), wide, Some(0.1), (20, 20), (false, true)),
        of(Some(6.0), wide, Some(0.1), (20, 20), (true, true)),
        of(Some(-10.0), narrow, Some(0.001), (20, 20), (true, false)),
        of(Some(10.0), higher, Some(0.001), (20, 20), exact),
        of(Some(10.0), higher, Some(0.2), (20, 20), exact),
        of(Some(10.0), higher, Some(0.1), (4, 4), exact),
        of(Some(10.0), wide, Some(0.1), (4, 4), exact),
        of(Some(4.0), higher, Some(0.001), (20, 20), exact),
    ];
    expect![[r#"
        not judged: no rate on one side
        within the limit: 
        slower: 
        no difference shown: may be chance
        slower: by the interval: fewer than 5 runs
        no difference shown: by the interval: fewer than 5 runs
        not judged: only 2 runs
        not judged: B is a lower bound
        within the limit: 
        not judged: A is a lower bound
        slower: 
        faster: 
        within the limit: 
        faster: by the interval: fewer than 5 runs
        within the limit: 
        within the limit: "#]]
    .assert_eq(&all.join("\n"));
}
