use super::*;
use crate::campaign::record::Record;
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::tests::sample::{SEAL, campaign};

/// The six cells of the papers, with these mean reply times in microseconds: without AAAA and cache, with half and all
/// AAAA, and cached, with interpolated values at 25 and 75 %.
fn measured(times_us: [u64; 4]) -> Measured {
    let [none, half, whole, cached] = times_us.map(|us| us * 1000);
    let between = [u64::midpoint(none, half), u64::midpoint(half, whole)];
    let cells = [
        (0.0, 0.0, none),
        (50.0, 0.0, half),
        (100.0, 0.0, whole),
        (0.0, 100.0, cached),
        (25.0, 0.0, between[0]),
        (75.0, 0.0, between[1]),
    ];
    let cell =
        |(aaaa_pct, cached_pct, ns): (f64, f64, u64)| ((aaaa_pct, cached_pct), 1e9 / ns as f64);
    Measured {
        of: ModelOf::ReplyTime,
        cells: cells.map(cell).into(),
        rate_qps: Some(10),
        doubt: None,
    }
}

/// Models of cells with these mean reply times.
fn of_times(times_us: [u64; 4]) -> [Option<ModelResult>; 2] {
    let measured = measured(times_us);
    let over_aaaa = over_one(0, &OVER_ONE[2], &measured);
    [over_aaaa, over_both(0, &measured)]
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
        Some("TS would be -100.000 us, but times cannot be negative")
    );
    let [aaaa, _] = of_times([250, 300, 350, 50]).map(Option::unwrap);
    assert_eq!(
        aaaa.refused.as_deref(),
        Some("time that an AAAA saves: TA + TS would be -100.000 us, but times cannot be negative")
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

#[test]
fn a_fit_that_chance_reaches_is_refused() {
    // The reply time hardly depends on the share of AAAA.
    let mut scattered = measured([5_000, 5_900, 4_900, 50]);
    scattered.cells[4].1 = 1e6 / 4_800.0;
    let found = over_one(0, &OVER_ONE[2], &scattered).unwrap();
    let refused = found.refused.unwrap();
    assert!(
        refused.starts_with("it explains nothing: R² is 0.0"),
        "{refused}"
    );
    assert!(found.r_squared.unwrap() < 0.1);
}

#[test]
fn reply_times_are_those_at_the_lowest_rate_that_all_cells_passed() {
    // Each first trial of the sample is at 4,000 queries per second.
    let of = |first_qps: u64| {
        let (plan, mut lines) = campaign(
            "[search]\nruns = 2\n[cells]\naaaa-share = [\"0%\", \"25%\", \"50%\", \"75%\", \"100%\"]\n\
             [[dut]]\nprofile = \"bind\"\n",
        );
        for line in &mut lines {
            if let Record::Trial { result, .. } = &mut line.record
                && result.rate_qps == 4_000
            {
                result.rate_qps = first_qps;
            }
        }
        let models = analyse(&plan, &lines, SEAL).models.into_iter();
        let times = models.filter(|model| model.of == ModelOf::ReplyTime);
        let told = times.map(|model| (model.rate_qps, model.refused));
        told.collect::<Vec<_>>()
    };
    assert_eq!(of(100), [(Some(100), None)]);
    let [(rate_qps, Some(refused))] = &of(4_000)[..] else {
        panic!("not refused")
    };
    assert_eq!(*rate_qps, Some(4_000));
    assert!(
        refused.starts_with("queries waited, because 4,000 is above 1/10 of the 9,"),
        "{refused}"
    );
}
