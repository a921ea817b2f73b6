//! Both pacing methods with a timer that is slightly late each time: figures 2 and 4 of Lencse and Pivoda 2018.

use dns64_transport::clock::{Clock as _, ManualClock, Nanos, SECOND};
use dns64_transport::memory::{Impairment, Network};
use dns64bench::load::generator::Finished;
use dns64bench::load::pace::{Pacing, Schedule};
use dns64bench::trial::TrialSpec;
use dns64bench::trial::fault::TesterFault;
use dns64bench::trial::result::{Outcome, TrialResult};
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::{ShardReport, Surroundings};

use crate::rough::Rough;
use crate::trial::{PLAIN, Shards, Trial};

/// Excess of the paper's timer over its waiting time, per message (section III).
const EXCESS_NS: Nanos = 90;

/// Sends by `schedule` with a timer that is late by [`EXCESS_NS`], without responses.
fn paced(schedule: Schedule, pacing: Pacing) -> Finished {
    let (_, report) = held_up(schedule, pacing, (EXCESS_NS, None));
    report.finished
}

/// Sends with a timer that is late by this time, and is stalled once at some time for a span.
fn held_up(
    schedule: Schedule,
    pacing: Pacing,
    (excess_ns, mut stall): (Nanos, Option<(Nanos, Nanos)>),
) -> (TrialSpec, ShardReport) {
    let trial = Trial {
        rate_qps: 250_000,
        timeout_ns: 10 * SECOND,
        ..PLAIN
    };
    let spec = TrialSpec {
        schedule,
        pacing,
        ..trial.spec()
    };
    let clock = ManualClock::default();
    let network = Network::new(&clock, 1);
    let local = "2001:2::1".parse().unwrap();
    let link = network.client(local, 1, spec.server, Impairment::default());
    let links = vec![Rough::over(link, &clock)];
    let mut shards = Shards::begin(&spec, links, &clock, 0);
    while let Some(idle_until) = shards.turn(None) {
        let idle_ns = idle_until.saturating_sub(clock.now());
        clock.advance(idle_ns.min(1_000_000) + excess_ns);
        if let Some((_, span_ns)) = stall.take_if(|(at_ns, _)| clock.now() >= *at_ns) {
            clock.advance(span_ns);
        }
    }
    (spec, shards.reports.remove(0))
}

/// Returns the result of such a trial.
fn judged(pacing: Pacing, how: (Nanos, Option<(Nanos, Nanos)>)) -> TrialResult {
    let schedule = Schedule::new(250_000, SECOND).with_burst(1);
    let (spec, report) = held_up(schedule, pacing, how);
    result(&spec, &[report], None, Surroundings::default())
}

/// Returns the number of queries sent in each span of `width_ns`.
fn bins(finished: &Finished, width_ns: Nanos) -> Vec<usize> {
    let mut bins = Vec::new();
    for (local, entry) in finished.ledger.entries().iter().enumerate() {
        let global = finished.schedule.global(local as u64);
        let sent_ns = finished.schedule.due_ns(global) + Nanos::from(entry.lateness_ns);
        let bin = usize::try_from(sent_ns / width_ns).unwrap();
        bins.resize(bins.len().max(bin + 1), 0);
        bins[bin] += 1;
    }
    bins
}

const BIN_NS: Nanos = 10_000_000;

#[test]
fn self_correcting_timer_starts_low_and_rises_at_end() {
    let schedule = Schedule::new(250_000, SECOND).with_burst(1);
    let finished = paced(schedule, Pacing::SelfCorrecting);
    let bins = bins(&finished, BIN_NS);
    // Table I: 24,450 queries in each 100 ms at first; a trial of 1 s corrects sooner than one of 60 s.
    assert_eq!(bins[0], 2446);
    // 2500 are due in each bin; those missing in the first two thirds are sent at the end.
    let later = [25, 50, 75, 90, 98].map(|k| bins[k]);
    assert_eq!(later, [2460, 2483, 2521, 2575, 2688], "{bins:?}");
    assert_eq!(bins.len(), 100);
    assert_eq!(bins.iter().sum::<usize>(), 250_000, "{bins:?}");
}

#[test]
fn absolute_schedule_is_flat_with_same_timer() {
    let schedule = Schedule::new(250_000, SECOND).with_burst(1);
    let finished = paced(schedule, Pacing::Absolute);
    assert_eq!(bins(&finished, BIN_NS), [2500; 100]);
}

/// Ten times the excess of the paper's timer: far above the limits of an absolute schedule.
const SLOW_NS: Nanos = 900;

#[test]
fn sender_is_judged_by_its_self_correcting_timer() {
    let result = judged(Pacing::SelfCorrecting, (SLOW_NS, None));
    let told = result.timing.self_correcting.unwrap();
    // The deviation from the schedule is a third of N times the excess, and a third of the rate in a bin.
    assert!(result.timing.lateness_ns_max > 50_000_000, "{told:?}");
    assert!(result.timing.bin_100ms_deviation_pct_max > 10.0, "{told:?}");
    assert!(told.held_up_ns_max <= SLOW_NS, "{told:?}");
    assert!(told.overrun_ns < 1_000_000, "{told:?}");
    // Missing responses are the server's fault.
    let shortfall = 250_000;
    assert_eq!(result.outcome, Outcome::Failed { shortfall });
}

#[test]
fn stall_is_fault_with_self_correcting_timer() {
    let stall = Some((500_000_000, 20_000_000));
    let result = judged(Pacing::SelfCorrecting, (EXCESS_NS, stall));
    let told = result.timing.self_correcting.unwrap();
    let Outcome::Invalid(TesterFault::LateSchedule {
        lateness_ns,
        limit_ns: 10_000_000,
        ..
    }) = result.outcome
    else {
        panic!("{:?}", result.outcome);
    };
    assert_eq!(lateness_ns, told.held_up_ns_max);
    assert!((19_900_000..20_100_000).contains(&lateness_ns), "{told:?}");
    assert_eq!(result.timing.catch_up.stalls, 0, "no query is caught up");
}

#[test]
fn too_slow_sender_makes_trial_invalid_with_any_pacing() {
    // At 250,000 queries/s the interval is 4 us, and this timer takes at least 4.2 us.
    let result = judged(Pacing::SelfCorrecting, (4_200, None));
    let told = result.timing.self_correcting.unwrap();
    assert!(told.held_up_ns_max < 10_000_000, "{told:?}");
    assert!(told.overrun_ns > 20_000_000, "{told:?}");
    let Outcome::Invalid(TesterFault::LateSchedule { limit_ns, .. }) = result.outcome else {
        panic!("{:?}", result.outcome);
    };
    assert_eq!(limit_ns, 10_000_000, "1 % of the trial");
}
