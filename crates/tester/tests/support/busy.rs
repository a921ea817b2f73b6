//! Retries on busy machines.

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};

/// Maximum delay by a busy machine of something that takes seconds.
pub(crate) const BUSY_MAX: Nanos = 300 * SECOND;

/// Repeats `attempt` until it succeeds.
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let give_up = MonotonicClock.now() + BUSY_MAX;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(
            MonotonicClock.now() < give_up,
            "for minutes not once {what}: the machine is too busy, or the test awaits what cannot happen"
        );
    }
}
