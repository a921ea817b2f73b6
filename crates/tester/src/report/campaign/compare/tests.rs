use expect_test::{expect, expect_file};

use super::*;
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
    b.points[20].aaaa_pct = 7.0;
    let comparison = Comparison::of(&sample(), &b, 5.0);
    assert!(comparison.has_regressions());
    expect_file!["../testdata/compare.txt"].assert_eq(&text(&comparison));
    assert!(!Comparison::of(&sample(), &scaled(0.96), 5.0).has_regressions());
    assert!(!Comparison::of(&sample(), &scaled(1.2), 0.0).has_regressions());
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
            cliffs_delta: None,
            effect: None,
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

#[test]
fn page_has_bars_for_two_campaigns_and_a_history_for_three() {
    let one = analysed(SMALL);
    let same = || Comparison::of(&one, &one, 5.0);
    let two = page(&[one.clone(), one.clone()], &[same()]).unwrap();
    assert!(
        two.contains("None of 28 judged points is shown to be slower than A by more than 5 %."),
        "{two}"
    );
    assert!(two.contains(
        "<p>2 points not judged: no rate, a lower bound, too few runs, or runs that disagree.</p>"
    ));
    assert!(!two.contains("NOT A MEASUREMENT"));
    assert_eq!(two.matches("role=\"img\"").count(), 0);
    let points = one.points.len();
    assert_eq!(two.matches("<td class=\"bar\">").count(), 2 * points);
    let mut doubtful = one.clone();
    doubtful.not_a_measurement = vec!["the <Tester> is not certified".to_owned()];
    let doubted = page(&[one.clone(), doubtful], &[same()]).unwrap();
    let told = "<li>B: the &lt;Tester&gt; is not certified</li>";
    assert!(doubted.contains("NOT A MEASUREMENT") && doubted.contains(told));
    let campaigns = [one.clone(), one.clone(), one.clone()];
    let three = page(&campaigns, &[same(), same()]).unwrap();
    assert_eq!(three.matches("role=\"img\"").count(), points);
    for loader in [
        "http://", "https://", "src=", "@import", "url(", "<link", "<script",
    ] {
        assert!(!three.contains(loader), "{loader}");
    }
    assert!(three.contains("un_bound &amp; &lt;co&gt;"));
    assert!(!three.contains(" against A:"), "{three}");
}

#[test]
fn runs_that_disagree_are_not_judged() {
    let mut b = scaled(0.5);
    b.points[0].agreement.as_mut().unwrap().unstable = true;
    let comparison = Comparison::of(&sample(), &b, 5.0);
    let row = &comparison.rows[0];
    assert_eq!(row.told(), "not judged (the runs of B disagree)");
    assert_eq!(comparison.rows[3].verdict, Verdict::Slower);
}

#[test]
fn a_page_says_where_the_rates_differ_most() {
    let (one, slow, fast) = (sample(), scaled(0.9), scaled(1.2));
    let compared = [&slow, &fast].map(|other| Comparison::of(&one, other, 5.0));
    let page = page(&[one, slow, fast], &compared).unwrap();
    assert!(page.contains(" are faster.</p>"), "{page}");
    let told = |words: &str, ratio: &str| {
        let (_, rest) = page.split_once(words).unwrap();
        assert!(rest.split_once("</p>").unwrap().0.contains(ratio), "{rest}");
    };
    told("<p>Slowest against A: ", " in B: 0.9");
    told("<p>Fastest against A: ", " in C: 1.20");
}
