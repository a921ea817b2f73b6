//! Waiting for what a busy machine delays.

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};

/// How long the machine may keep something from happening that takes seconds.
pub(crate) const BUSY_MAX: Nanos = 300 * SECOND;

/// Does `attempt` until something has come of it. What has not happened after minutes on a busy
/// machine is no fault of what is tested.
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let give_up = MonotonicClock.now() + BUSY_MAX;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(
            MonotonicClock.now() < give_up,
            "the machine is too busy for this test: for minutes not once {what}"
        );
    }
}
