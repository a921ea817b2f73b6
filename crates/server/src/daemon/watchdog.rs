//! Tells the service manager that all workers turn, as long as they do (sd_watchdog_enabled(3)).

use std::sync::Arc;

use dns64_transport::clock::Nanos;

use crate::counts::Counts;

/// A service manager that wants to hear from the server.
#[derive(Debug)]
pub(super) struct Watchdog {
    interval_ns: Nanos,
    due: Nanos,
    /// Turns of each worker when it was told last.
    told: Vec<u64>,
}

/// Looks within the time that the service manager waits. Half of it is what sd_watchdog_enabled(3)
/// recommends; with a third, one look at a busy moment does no harm. A worker turns once a second at least.
const LOOKS: Nanos = 3;

impl Watchdog {
    /// For a service manager that waits for `limit_ns`.
    pub(super) fn new(limit_ns: Nanos, now: Nanos) -> Self {
        Self {
            interval_ns: (limit_ns / LOOKS).max(1),
            due: now,
            told: Vec::new(),
        }
    }

    /// How long until the next look.
    pub(super) fn left(&self, now: Nanos) -> Nanos {
        self.due.saturating_sub(now)
    }

    /// Whether the service manager is to be told now: it is time, and each worker has turned since it was
    /// told last.
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
    fn one_worker_that_hangs_is_enough_to_say_nothing() {
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
