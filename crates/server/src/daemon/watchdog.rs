//! Reports to the service manager that workers and gateway make progress (sd_watchdog_enabled(3)).

use dns64_transport::clock::Nanos;

/// A service manager that expects regular reports.
#[derive(Debug)]
pub(super) struct Watchdog {
    interval_ns: Nanos,
    due: Nanos,
    /// Turns of each thread at the last report.
    told: Vec<u64>,
}

/// Checks per timeout of the service manager. sd_watchdog_enabled(3) recommends an interval of half of it; with a
/// third, one delayed check has no effect. Each thread makes at least one turn a second.
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

    /// Whether to report to the service manager now: a check is due, and each thread has made a turn since the last
    /// report.
    pub(super) fn look(&mut self, turns: &[u64], now: Nanos) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + self.interval_ns;
        let all = self.told.iter().zip(turns).all(|(told, now)| told != now);
        if all {
            self.told = turns.to_vec();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hanging_thread_stops_the_reports() {
        let mut watchdog = Watchdog::new(30, 100);
        assert!(watchdog.look(&[0, 0], 100), "nothing is known against them");
        assert_eq!((watchdog.left(100), watchdog.left(105)), (10, 5));
        assert!(!watchdog.look(&[1, 1], 109), "too early");
        assert!(watchdog.look(&[1, 1], 110));
        assert!(!watchdog.look(&[2, 1], 120), "the second hangs");
        assert!(!watchdog.look(&[3, 1], 130));
        assert!(watchdog.look(&[3, 2], 140), "both have turned since 110");
        assert!(!watchdog.look(&[3, 2], 150));
    }
}
