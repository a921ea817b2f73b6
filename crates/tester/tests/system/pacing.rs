//! Both pacings on a timer that is a little late each time: the figures 2 and 4 of paper 001.

use dns64_transport::clock::{Clock as _, ManualClock, Nanos, SECOND};
use dns64_transport::memory::{Impairment, Network};
use dns64bench::load::generator::Finished;
use dns64bench::load::pace::{Pacing, Schedule};
use dns64bench::trial::TrialSpec;

use crate::rough::Rough;
use crate::trial::{PLAIN, Shards, Trial};

/// What the timer of the paper cost beyond its waiting time with each message (section III).
const EXCESS_NS: Nanos = 90;

/// Sends by `schedule` with a timer that is late by [`EXCESS_NS`]; nobody answers.
fn paced(schedule: Schedule, pacing: Pacing) -> Finished {
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
        clock.advance(idle_ns.min(1_000_000) + EXCESS_NS);
    }
    shards.reports.remove(0).finished
}

/// Queries sent in each span of `width_ns`.
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
fn the_self_correcting_timer_starts_low_and_rises_steeply_at_the_end() {
    let schedule = Schedule::new(250_000, SECOND).with_burst(1);
    let finished = paced(schedule, Pacing::SelfCorrecting);
    let bins = bins(&finished, BIN_NS);
    // Table I: 24,450 queries in each 100 ms at first; a trial of 1 s corrects sooner than one of 60 s.
    assert_eq!(bins[0], 2446);
    // Due are 2500 in each; what the first two thirds lack, the end has to send as well.
    let later = [25, 50, 75, 90, 98].map(|k| bins[k]);
    assert_eq!(later, [2460, 2483, 2521, 2575, 2688], "{bins:?}");
    assert_eq!(bins.len(), 100);
    assert_eq!(bins.iter().sum::<usize>(), 250_000, "{bins:?}");
}

#[test]
fn the_absolute_schedule_is_flat_on_the_same_timer() {
    let schedule = Schedule::new(250_000, SECOND).with_burst(1);
    let finished = paced(schedule, Pacing::Absolute);
    assert_eq!(bins(&finished, BIN_NS), [2500; 100]);
}
