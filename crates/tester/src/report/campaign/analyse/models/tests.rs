use super::*;
use crate::report::campaign::tests::sample::{SMALL, analysed};

/// Points of the first variant of a sample with the six cells of the papers.
fn points() -> Vec<PointResult> {
    let analysis = analysed(SMALL);
    let mut own: Vec<_> = analysis
        .points
        .into_iter()
        .filter(|p| p.variant == 0)
        .collect();
    own.truncate(6);
    let shares_pct = [
        (0.0, 0.0),
        (50.0, 0.0),
        (100.0, 0.0),
        (0.0, 100.0),
        (25.0, 0.0),
        (75.0, 0.0),
    ];
    for (point, shares_pct) in own.iter_mut().zip(shares_pct) {
        (point.aaaa_pct, point.cached_pct) = shares_pct;
    }
    own
}

/// Models of points with these mean reply times in microseconds, with interpolated values at 25 and 75 %.
fn of_times(times_us: [u64; 4]) -> [Option<ModelResult>; 2] {
    let mut points = points();
    let [none, half, whole, cached] = times_us.map(|us| us * 1000);
    let between = [u64::midpoint(none, half), u64::midpoint(half, whole)];
    let times_ns = [none, half, whole, cached].into_iter().chain(between);
    for (point, ns) in points.iter_mut().zip(times_ns) {
        point.rtt_mean_ns = Some(ns);
    }
    let points: Vec<_> = points.iter().collect();
    let over_aaaa = over_one(0, &OVER_ONE[2], &points);
    [over_aaaa, over_both(0, ModelOf::ReplyTime, &points)]
}

fn told(model: &ModelResult) -> Vec<String> {
    let parameters = model.parameters.iter();
    let parameters = parameters.map(|p| format!("{} = {:.1} {}", p.name, p.value, p.unit));
    std::iter::once(model.equation.clone())
        .chain(parameters)
        .collect()
}

#[test]
fn reply_times_are_fitted_by_equations_4_and_6() {
    // TQ + TC + TR = 50 us, TA = 200 us, TS = 10 us.
    let [aaaa, both] = of_times([460, 355, 250, 50]).map(Option::unwrap);
    assert_eq!(
        told(&aaaa),
        [
            "T(a) = 460.000 us - a * 210.000 us",
            "reply time without AAAA: TQ + TC + 2 TA + TS + TR = 460.0 us",
            "time that an AAAA saves: TA + TS = 210.0 us",
            "reply time with AAAA: TQ + TC + TA + TR = 250.0 us",
        ]
    );
    assert_eq!(
        told(&both),
        [
            "T(a, c) = 50.000 us + (1 - c) * (200.000 us + (1 - a) * 210.000 us)",
            "TQ + TC + TR = 50.0 us",
            "TA = 200.0 us",
            "TS = 10.0 us",
        ]
    );
    assert!((both.fitted[1].modelled - 355.0).abs() < 1e-6);
    assert_eq!((aaaa.refused, both.refused), (None, None));
}

#[test]
fn a_model_with_a_negative_time_is_refused_by_its_name() {
    // An AAAA saves 100 us of the 200 us that an answer takes.
    let [aaaa, both] = of_times([350, 300, 250, 50]).map(Option::unwrap);
    assert_eq!(aaaa.refused, None);
    assert_eq!(
        both.refused.as_deref(),
        Some("TS would be -100.000 us, and no time is negative")
    );
    let [aaaa, _] = of_times([250, 300, 350, 50]).map(Option::unwrap);
    assert_eq!(
        aaaa.refused.as_deref(),
        Some("time that an AAAA saves: TA + TS would be -100.000 us, and no time is negative")
    );
    assert!(
        aaaa.equation.ends_with("+ a * 100.000 us"),
        "{}",
        aaaa.equation
    );
}

#[test]
fn equal_times_are_not_refused() {
    let [aaaa, _] = of_times([300, 300, 300, 300]);
    assert_eq!(aaaa.unwrap().refused, None);
}
