//! The throughput of a simulated DUT, as estimated from one trial.

use std::convert::Infallible;

use dns64_transport::clock::SECOND;
use dns64_transport::memory::Impairment;
use dns64bench::procedure::Trials;
use dns64bench::procedure::search::{self, Resolution, Search, SearchEnd, SearchSpec};
use dns64bench::trial::result::{Outcome, TrialResult};
use dns64bench::trial::service::{By, Service};

use crate::script::{Conduct, Fault};
use crate::trial::{MILLISECOND, PLAIN, Trial};

/// Trials of one DUT, which has a new state in each.
struct Against(Trial, Conduct);

impl Trials for Against {
    type Error = Infallible;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Infallible> {
        let trial = Trial { rate_qps, ..self.0 };
        Ok(trial.against(self.1))
    }
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 0.01,
        "{found} instead of {expected}"
    );
}

/// Returns the estimate of a trial at this rate.
fn service(rate_qps: u64, conduct: Conduct) -> Option<Service> {
    Trial { rate_qps, ..PLAIN }.against(conduct).service
}

#[test]
fn search_overestimates_dut_with_unlimited_queue_and_trial_estimates_sustainable_rate() {
    for (served_qps, duration_ns, timeout_ns, stop_early) in [
        (1_600, SECOND, 250 * MILLISECOND, false),
        (3_000, SECOND / 2, SECOND / 2, true),
        (500, 4 * SECOND, SECOND, true),
    ] {
        let trial = Trial {
            duration_ns,
            timeout_ns,
            stop_early,
            ..PLAIN
        };
        let mut dut = Against(trial, Conduct::Queue(served_qps));
        let spec = SearchSpec {
            resolution: Resolution::Relative { millionths: 3_000 },
            ..SearchSpec::from_start(served_qps)
        };
        let Ok(found) = search::run(Search::new(spec), &mut dut, &mut |_| ());
        assert_eq!(found.end, SearchEnd::Found);
        let rate_qps = found.rate_qps.unwrap();
        // Lencse et al. 2017, section 4.4, equation (1).
        let ratio = timeout_ns as f64 / duration_ns as f64;
        assert_near(rate_qps as f64, served_qps as f64 * (1.0 + ratio));
        let is_it = |t: &&TrialResult| t.rate_qps == rate_qps && t.outcome == Outcome::Passed;
        let passed = found.trials.iter().find(is_it).unwrap();
        let service = passed.service.unwrap();
        assert_near(service.service_rate_qps, served_qps as f64);
        // Its error is that of the rate, times 1 + 1 / ratio.
        let slope_off = service.slope_ns_per_s / 1e9 / ratio - 1.0;
        assert!(slope_off.abs() < 0.03, "{service:?}");
        assert!(
            service.stores_queries && service.by == By::Delay,
            "{service:?}"
        );
    }
}

#[test]
fn trial_far_above_sustainable_rate_estimates_it() {
    for rate_qps in [1_700, 2_400, 3_200, 6_400] {
        let service = service(rate_qps, Conduct::Queue(1_600)).unwrap();
        assert_near(service.service_rate_qps, 1_600.0);
        assert_near(service.sustainable_qps as f64, 1_600.0);
        assert!(service.stores_queries, "{service:?}");
    }
}

#[test]
fn slope_is_estimated_until_queue_is_full() {
    // 200 places are full after 0.5 s, 300 after 0.75 s.
    for places in [200, 300] {
        let service = service(2_000, Conduct::Bounded(1_600, places)).unwrap();
        assert_near(service.service_rate_qps, 1_600.0);
        assert!(
            service.by == By::Delay && !service.stores_queries,
            "{service:?}"
        );
    }
    // 300 places are full after 47 ms: the estimate is based on the drain.
    let service = service(8_000, Conduct::Bounded(1_600, 300)).unwrap();
    assert_near(service.service_rate_qps, 1_600.0);
    assert_eq!((service.by, service.stores_queries), (By::Drain, false));
}

#[test]
fn dut_that_serves_all_queries_has_no_estimate() {
    let noisy = Impairment {
        jitter_ns: 20 * MILLISECOND,
        loss_ppm: 10_000,
        ..PLAIN.impairment
    };
    for conduct in [
        Conduct::Good,
        Conduct::Queue(2_100),
        Conduct::Late(100 * MILLISECOND),
        Conduct::Bounded(2_100, 5),
        Conduct::DieAfter(500),
        Conduct::Always(Fault::ServFail),
        Conduct::Always(Fault::Silent),
    ] {
        assert_eq!(service(2_000, conduct), None, "{conduct:?}");
        for seed in 0..5 {
            let trial = Trial {
                impairment: noisy,
                ..PLAIN
            };
            assert_eq!(trial.run(conduct, seed).service, None, "{conduct:?}");
        }
    }
}

#[test]
fn noise_and_losses_do_not_change_service_rate() {
    let trial = Trial {
        impairment: Impairment {
            jitter_ns: 20 * MILLISECOND,
            loss_ppm: 1_000,
            ..PLAIN.impairment
        },
        ..PLAIN
    };
    for seed in 0..5 {
        let service = trial.run(Conduct::Queue(1_600), seed).service.unwrap();
        assert_near(service.service_rate_qps, 1_600.0);
        assert!(service.stores_queries, "{service:?}");
    }
}
