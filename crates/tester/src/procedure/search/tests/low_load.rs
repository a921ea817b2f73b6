use super::*;

fn spec() -> SearchSpec {
    SearchSpec::from_start(10_000).from_low_load()
}

#[test]
fn loss_at_low_load_leads_to_lower_rates() {
    // A DUT that loses a query now and then passes no trial of some hundred queries; a slow one is measured.
    let result = found(spec(), |_| Outcome::Failed { shortfall: 1 });
    assert_eq!(asked(&result)[..4], [500, 500, 250, 125]);
    assert_eq!(result.end, SearchEnd::NothingPasses);
    assert_eq!(result.failed_qps, Some(1));
    let result = found(spec(), |rate| threshold(300, rate));
    assert_eq!((result.rate_qps, result.end), (Some(300), SearchEnd::Found));
    // What the Tester disturbed says nothing about the DUT.
    let result = found(spec(), |_| Outcome::Invalid(stall()));
    assert_eq!(asked(&result), [500; 4]);
    assert_eq!(result.end, SearchEnd::TesterFault { fault: stall() });
}

#[test]
fn one_loss_at_low_load_may_be_chance() {
    let mut first = true;
    let result = found(spec(), |rate| match std::mem::take(&mut first) {
        true => Outcome::Failed { shortfall: 1 },
        false => threshold(15_000, rate),
    });
    assert_eq!(asked(&result)[..4], [500, 500, 10_000, 20_000]);
    assert_eq!(result.end, SearchEnd::Found);
}

#[test]
fn slow_dut_is_found_between_low_load_and_the_first_rate() {
    let result = found(spec(), |rate| threshold(700, rate));
    assert_eq!(asked(&result)[..3], [500, 10_000, 5_250]);
    assert_eq!((result.rate_qps, result.end), (Some(700), SearchEnd::Found));
}

#[test]
fn low_load_is_within_the_bounds_of_the_search() {
    let low = |spec: SearchSpec| spec.from_low_load().low_load_qps;
    let from = SearchSpec::from_start;
    assert_eq!(low(from(10_000)), Some(500));
    assert_eq!(low(from(1)), None, "there is no lower rate");
    let lowest_qps = 800;
    assert_eq!(
        low(SearchSpec {
            lowest_qps,
            ..from(10_000)
        }),
        Some(800)
    );
    assert_eq!(low(fixed_range(10_000, Resolution::default())), None);
    let goals = vec!["ndr".parse().unwrap()];
    assert_eq!(
        low(SearchSpec {
            goals,
            ..from(10_000)
        }),
        None
    );
    // A Tester that is not certified for low load is not fit.
    let ceiling = |ceiling_qps| SearchSpec {
        ceiling_qps,
        ..from(10_000)
    };
    for certified_qps in [None, Some(500), Some(50_000)] {
        assert_eq!(ceiling(certified_qps).unfit(), None);
    }
    let why = ceiling(Some(499)).unfit().unwrap();
    assert!(
        why.starts_with(
            "the self-test of the Tester failed at low load: it certifies only 499 queries/s"
        ),
        "{why}"
    );
}
