//! Reports to the service manager that all workers make progress (sd_watchdog_enabled(3)).

use std::sync::Arc;

use dns64_transport::clock::Nanos;

use crate::counts::Counts;

/// A service manager that expects regular reports.
#[derive(Debug)]
pub(super) struct Watchdog {
    interval_ns: Nanos,
    due: Nanos,
    /// Turns of each worker at the last report.
    told: Vec<u64>,
}

/// Checks per timeout of the service manager. sd_watchdog_enabled(3) recommends an interval of half of it; with a
/// third, one delayed check has no effect. A worker makes at least one turn a second.
const LOOKS: Nanos = 3;

impl Watchdog {
    /// Creates the watchdog for a service manager with the timeout `limit_ns`.
    pub(super) fn new(limit_ns: Nanos, now: Nanos) -> Self {
        Self {
            interval_ns: (limit_ns / LOOKS).max(1),
            due: now,
            told: Vec::new(),
        }
    }

    /// Time until the next check.
    pub(super) fn left(&self, now: Nanos) -> Nanos {
        self.due.saturating_sub(now)
    }

    /// Whether to report to the service manager now: a check is due, and each worker has made a turn since the last
    /// report.
    pub(super) fn look(&mut self, workers: &[Arc<Counts>], now: Nanos) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + self.interval_ns;
        let turns: Vec<u64> = workers.iter().map(|w| w.worker_turns.get()).collect();
        let all = self.told.iter().zip(&turns).all(|(told, now)| told != now);
        if all {
            self.told = turns;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hanging_worker_stops_the_reports() {
        let workers: Vec<Arc<Counts>> = vec![Arc::default(), Arc::default()];
        let turn = |i: usize| workers[i].worker_turns.tick();
        let mut watchdog = Watchdog::new(30, 100);
        assert!(
            watchdog.look(&workers, 100),
            "nothing is known against them"
        );
        assert_eq!((watchdog.left(100), watchdog.left(105)), (10, 5));
        turn(0);
        turn(1);
        assert!(!watchdog.look(&workers, 109), "too early");
        assert!(watchdog.look(&workers, 110));
        turn(0);
        assert!(!watchdog.look(&workers, 120), "worker 1 hangs");
        turn(0);
        assert!(!watchdog.look(&workers, 130));
        turn(1);
        assert!(watchdog.look(&workers, 140), "both have turned since 110");
        assert!(!watchdog.look(&workers, 150));
    }
}
