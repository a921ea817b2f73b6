//! Evidence of losses, figures that no verdict depends on, and figures out of range.

use serde_json::Value;

use super::honest::located;
use super::*;
use crate::campaign::history::{Forgotten, History};
use crate::load::catch_up::Limits;
use crate::machine::Role;
use crate::namespace::Cidr;
use crate::report::campaign::analyse::analyse;
use crate::trial::place::{Evidence, LossKind, Place, Source};
use crate::trial::service::{By, Service};

#[test]
fn service_rate_above_offered_rate_is_found() {
    let service = |by, slope_ns_per_s, tenths_qps: u32, stores_queries| Service {
        slope_ns_per_s,
        service_rate_qps: f64::from(tenths_qps) / 10.0,
        by,
        stores_queries,
        sustainable_qps: u64::from(tenths_qps / 10),
    };
    let of = |service: Service| of_trial(1, 5, |trial| trial.service = Some(service));
    let too_much = "the DUT served 50000 queries/s, and 8,000 queries/s were offered to it";
    assert_eq!(of(service(By::Delay, 6e8, 500_000, true)), too_much);
    // At this rate of growth it serves 5,000.
    let said = of(service(By::Delay, 6e8, 50_010, true));
    assert!(said.starts_with("the DUT served 5001 "), "{said}");
    let said = of(service(By::Drain, 0.0, 50_000, true));
    assert!(said.starts_with("the DUT served 5000 "), "{said}");
    let said = of(Service {
        sustainable_qps: 6_000,
        ..service(By::Delay, 6e8, 49_995, true)
    });
    assert!(said.starts_with("the DUT served 4999.5 "), "{said}");
    for good in [
        service(By::Delay, 6e8, 50_000, true),
        service(By::Drain, 0.0, 40_005, false),
    ] {
        let (plan, mut lines) = honest();
        trial(&mut lines, 1, 5).1.service = Some(good);
        assert!(audit(&plan, &lines).is_ok());
    }
}

#[test]
fn contradictory_distributions_and_path_counts_are_found() {
    let said = of_trial(1, 1, |trial| trial.rtt_percentiles[0].1 += 1);
    assert_eq!(said, "its round-trip times have two values at 50 per cent");
    let said = of_trial(1, 1, |trial| trial.rtt_percentiles[1].1 += 1);
    assert_eq!(said, "its round-trip times have two values at 100 per cent");
    let way = |change: fn(&mut crate::trial::path::Path)| {
        of_trial(1, 5, |trial| change(trial.path.as_mut().unwrap()))
    };
    // The criterion B-10 uses these figures.
    assert_eq!(
        way(|path| (path.answered.aaaa_then_a, path.answered.parallel) = (20_000, 20_000)),
        "40,000 answered names by their questions, and 50,000 of 80,000 were answered"
    );
    let said = way(|path| path.answered.again = 80_001);
    assert!(said.contains("of 80,000 were answered"), "{said}");
    let said = way(|path| path.dut_only_percentiles_ns[1].1 += 1);
    assert_eq!(
        said,
        "the times of DUT and authority do not fit its round-trip times"
    );
    let said = way(|path| path.authority.p99_ns = Some(5));
    assert_eq!(
        said,
        "the times of DUT and authority do not fit its round-trip times"
    );
}

#[test]
fn names_outside_the_plan_are_found() {
    let dealt = |change: fn(&mut crate::load::names::NameRange)| {
        of_trial(1, 2, |trial| change(trial.names.as_mut().unwrap()))
    };
    assert_eq!(
        dealt(|names| names.fresh = 1),
        "it has 1 names from 500 on of 10.0.0.0/8, and by the plan 10000 of 10.0.0.0/8"
    );
    let range: Cidr = "11.0.0.0/8".parse().unwrap();
    let said = of_trial(1, 2, |trial| {
        trial.names.as_mut().unwrap().namespace = range
    });
    assert!(said.contains(" of 11.0.0.0/8, and by the plan "), "{said}");
    let said = dealt(|names| names.first = 1 << 24);
    assert!(said.contains("names from 16777216 on"), "{said}");
}

#[test]
fn failure_explained_by_losses_outside_the_dut_is_found() {
    let lost = |high| Evidence {
        place: Place::FromDut,
        kind: LossKind::Lost,
        source: Source {
            host: Role::Measurer.into(),
            link: Some("client".to_owned()),
            counter: "tbf drops".to_owned(),
            count: 10_000,
        },
        low: 10_000,
        high: Some(high),
    };
    assert_eq!(
        of_trial(1, 5, |trial| located(trial, vec![lost(30_000)])),
        "it is called failed by 30,000, and by its figures it is invalid (the Measurer's link client lost 10000 packets \
         (tbf drops))"
    );
    // The DUT lost more than the link can explain.
    let (plan, mut lines) = honest();
    located(trial(&mut lines, 1, 5).1, vec![lost(29_999)]);
    assert!(audit(&plan, &lines).is_ok());
    assert_eq!(
        of_trial(1, 5, |trial| trial.losses.queries = 9),
        "its losses are 9 queries at 30000 places, and 30,000 have no valid answer"
    );
    assert_eq!(
        of_trial(1, 5, |trial| {
            trial.losses.evidence.found.push(lost(29_999));
        }),
        "the places of its losses do not follow from their evidence"
    );
    assert_eq!(
        of_trial(1, 5, |trial| trial.timing.clock_step_ns = 20_000),
        "it is called failed by 30,000, and by its figures it is invalid (the real-time clock was stepped by 20000 ns \
         during the trial)"
    );
    let limits = |trial: &mut TrialResult| {
        trial.timing.limits = Limits {
            max_burst_queries: 1,
            ..Limits::default()
        };
    };
    assert_eq!(
        of_trial(1, 5, limits),
        "its limits are not those of the plan"
    );
}

/// Calls back with each number of a value changed to `to`, one at a time.
fn each_number(value: &Value, to: &Value, tried: &mut dyn FnMut(&Value)) -> usize {
    let mut paths = Vec::new();
    paths_of(value, String::new(), &mut paths);
    for path in &paths {
        let mut changed = value.clone();
        *changed.pointer_mut(path).unwrap() = to.clone();
        tried(&changed);
    }
    paths.len()
}

fn paths_of(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        // The first trial of a self-test represents the others.
        Value::Number(_) if at.contains("/trials/") && !at.contains("/trials/0/") => {}
        Value::Number(_) => found.push(at),
        Value::Array(all) => {
            let all = all.iter().enumerate();
            all.for_each(|(index, value)| paths_of(value, format!("{at}/{index}"), found));
        }
        Value::Object(keys) => {
            let keys = keys.iter();
            keys.for_each(|(key, value)| paths_of(value, format!("{at}/{key}"), found));
        }
        _ => {}
    }
}

/// A failed trial with every figure that a trial can have.
fn rich(lines: &mut [Line]) -> (usize, TrialResult) {
    let (number, trial) = trial(lines, 1, 5);
    let source = Source {
        host: Role::Dut.into(),
        link: Some("upstream".to_owned()),
        counter: "tbf drops".to_owned(),
        count: 5,
    };
    let evidence = Evidence {
        place: Place::ToDut,
        kind: LossKind::Lost,
        source,
        low: 0,
        high: Some(5),
    };
    located(trial, vec![evidence]);
    trial.service = Some(Service {
        slope_ns_per_s: 6e8,
        service_rate_qps: 5_000.0,
        by: By::Delay,
        stores_queries: false,
        sustainable_qps: 5_000,
    });
    trial.machine = serde_json::from_value(serde_json::json!({
        "span_ns": 11_000_000_000_u64,
        "pressure_ns": 10,
        "roles": [{
            "role": "dut", "threads": 1, "cores": "1", "cpu_ns": 7, "run_delay_ns": 8,
            "involuntary_switches": 9, "steal_ns": 1, "foreign_ns": 2,
            "neighbour": { "name": "x", "pid": 7, "cpu_ns": 2 }, "throttled_ns": 3,
            "pressure_ns": 4, "frequency_khz": 5,
        }],
    }))
    .unwrap();
    (usize::try_from(number - 1).unwrap(), trial.clone())
}

#[test]
fn no_number_causes_a_panic() {
    let (plan, mut lines) = honest();
    let (at, result) = rich(&mut lines);
    assert_eq!(result.service.map(|it| it.sustainable_qps), Some(5_000));
    lines.truncate(at + 2);
    each_number_of(&plan, &lines, at);
}

/// No value of any number of this line, or of a self-test, causes a panic.
pub(super) fn each_number_of(plan: &Plan, lines: &[Line], at: usize) {
    assert!(audit(plan, lines).is_ok(), "{:?}", audit(plan, lines));
    let (mut numbers, mut refused) = (0, 0);
    let mut tried = |forged: &[Line]| {
        match audit(plan, forged) {
            Ok(_) => drop(analyse(plan, forged, "")),
            Err(_) => refused += 1,
        }
        // A report is also generated from an unverified journal.
        History::<Forgotten>::of(plan, forged);
    };
    let self_test = place(lines, |record| matches!(record, Record::SelfTest(_)));
    for at in [at, self_test] {
        let line = serde_json::to_value(&lines[at]).unwrap();
        let mut forged = lines[..lines.len().min(at + 2)].to_vec();
        for to in [0, 1, 1 << 63, u64::MAX] {
            numbers += each_number(&line, &Value::from(to), &mut |changed| {
                if let Ok(changed) = serde_json::from_value(changed.clone()) {
                    forged[at] = changed;
                    tried(&forged);
                }
            });
        }
    }
    assert!(
        numbers > 400 && refused > numbers / 2,
        "{refused} of {numbers}"
    );
}
