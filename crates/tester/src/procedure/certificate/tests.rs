use std::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::trial::fault::TesterFault;

/// Returns a self-test that certified this rate, or none.
fn found(certified_rate_qps: Option<u64>) -> SelfTestResult {
    SelfTestResult {
        end: match certified_rate_qps {
            Some(_) => Outcome::Passed,
            None => Outcome::Failed { shortfall: 1 },
        },
        wanted_rate_qps: None,
        passed_rate_qps: certified_rate_qps.map(|rate| rate * 11 / 5),
        certified_rate_qps,
        trials: Vec::new(),
    }
}

/// Returns a disturbed self-test.
fn disturbed() -> SelfTestResult {
    SelfTestResult {
        end: Outcome::Invalid(TesterFault::ClockStep { step_ns: 1 }),
        ..found(None)
    }
}

/// Runs scripted self-tests in this order, and returns where each started.
fn repeated(wanted: usize, script: Vec<SelfTestResult>) -> (SelfTests, Vec<Option<u64>>) {
    let mut script = script.into_iter();
    let mut began = Vec::new();
    let Ok::<_, Infallible>(tests) = repeat(wanted, |near_qps| {
        began.push(near_qps);
        Ok(script.next().unwrap())
    });
    (tests, began)
}

#[test]
fn lowest_of_few_self_tests_is_certified_with_their_range() {
    let found = [82_000, 75_000, 80_000].map(|rate| found(Some(rate)));
    let (tests, began) = repeated(3, found.to_vec());
    assert_eq!(began, [None, Some(82_000), Some(82_000)]);
    let certificate = tests.certificate().unwrap();
    assert_eq!(
        certificate.to_string(),
        "75,000 queries/s: lowest of 3 self-tests, 75,000 to 82,000"
    );
    assert_eq!(tests.passed_rate_qps(), Some(165_000));
    assert_eq!(tests.end(), &Outcome::Passed);
}

#[test]
fn certificate_shows_number_of_self_tests() {
    let told = |rates: &[u64]| Certificate::of(rates).unwrap().to_string();
    assert_eq!(told(&[1000]), "1,000 queries/s: one self-test");
    assert_eq!(told(&[1000; 3]), "1,000 queries/s: each of 3 self-tests");
    let many: Vec<u64> = (1..=200).collect();
    assert_eq!(
        told(&many),
        "2 queries/s: 1st percentile of 200 self-tests, 1 to 200"
    );
    assert_eq!(Certificate::of(&[]), None);
}

#[test]
fn disturbed_self_test_is_repeated_and_not_counted() {
    let script = vec![found(Some(10)), disturbed(), found(Some(9))];
    let (tests, _) = repeated(2, script);
    assert_eq!(tests.all.len(), 3);
    assert_eq!(
        tests.certificate().map(|c| (c.rate_qps, c.self_tests)),
        Some((9, 2))
    );
    let (tests, _) = repeated(
        2,
        vec![found(Some(10)), disturbed(), disturbed(), disturbed()],
    );
    assert_eq!(tests.certificate(), None);
    assert!(matches!(tests.end(), Outcome::Invalid(_)));
}

#[test]
fn interrupted_self_test_is_the_last_and_certifies_nothing() {
    let interrupted = SelfTestResult {
        end: Outcome::Invalid(TesterFault::Interrupted),
        ..found(None)
    };
    let (tests, began) = repeated(3, vec![found(Some(10)), interrupted]);
    assert_eq!(began.len(), 2);
    assert_eq!(tests.certificate(), None);
    assert!(tests.end().is_interrupted());
}

#[test]
fn self_test_far_below_the_others_is_repeated_before_it_counts() {
    let run = |rates: &[u64]| {
        let script = rates.iter().map(|rate| found(Some(*rate))).collect();
        let (tests, began) = repeated(3, script);
        assert_eq!(began.len(), rates.len());
        let certificate = tests.certificate().unwrap();
        (certificate.rate_qps, certificate.self_tests)
    };
    assert_eq!(
        run(&[33_750, 33_750, 24_300, 33_750]),
        (33_750, 3),
        "chance"
    );
    assert_eq!(run(&[33_750, 24_300, 24_300]), (24_300, 3), "confirmed");
    assert_eq!(
        run(&[33_750, 24_300, 33_750, 24_300]),
        (24_300, 3),
        "chance once"
    );
    assert_eq!(run(&[33_750, 27_000, 33_750]), (27_000, 3), "not far below");
    // The first has nothing to compare with, and a failure discards the earlier ones.
    assert_eq!(run(&[24_300, 24_300, 24_300]), (24_300, 3));
    let rates = [Meaning::Rate(10), Meaning::Nothing, Meaning::Rate(5)];
    assert_eq!(counted(rates), [5]);
}

#[test]
fn self_test_without_pass_ends_certificate() {
    let (tests, began) = repeated(3, vec![found(Some(10)), found(None)]);
    assert_eq!((tests.certificate(), began.len()), (None, 2));
    let meanings = [
        Meaning::Rate(10),
        Meaning::Nothing,
        Meaning::Disturbed,
        Meaning::Rate(7),
    ];
    assert_eq!(counted(meanings), [7]);
}

proptest! {
    #[test]
    fn more_self_tests_never_raise_certificate(rates in prop::collection::vec(1u64..1_000_000, 1..100)) {
        let certified = |rates: &[u64]| Certificate::of(rates).unwrap();
        for n in 1..rates.len() {
            prop_assert!(certified(&rates[..=n]).rate_qps <= certified(&rates[..n]).rate_qps);
        }
        prop_assert_eq!(certified(&rates).rate_qps, *rates.iter().min().unwrap());
    }

    #[test]
    fn all_self_tests_but_one_count(rates in prop::collection::vec(1u64..1_000, 1..30)) {
        let mut left = counted(rates.iter().copied().map(Meaning::Rate));
        prop_assert!(left.len() + 1 >= rates.len());
        left.sort_unstable();
        let mut all = rates.clone();
        all.sort_unstable();
        all.retain(|rate| left.binary_search(rate).is_err());
        let highest = rates.iter().max().unwrap();
        prop_assert!(all.iter().all(|rate| rate * 100 < highest * 80), "{:?}", all);
    }
}
