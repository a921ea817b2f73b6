//! Which cores a thread runs on.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Ties the calling thread to one core.
///
/// Fails if the core does not exist or is outside the process's cpuset.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    set.set(core);
    sched_setaffinity(None, &set).map_err(io::Error::from)
}

/// Gives the calling thread precedence over ordinary ones, where the system allows it (root).
/// Returns whether it did.
///
/// An ordinary niceness, not `SCHED_FIFO`: real-time throttling stops a spinning thread for
/// 50 ms of every second (`sched_rt_runtime_us`).
pub fn take_precedence() -> bool {
    rustix::process::nice(PRECEDENCE).is_ok()
}

/// Makes the calling thread run only when no other wants to: for what serves watchers of a trial.
/// Threads that it starts are likewise. Returns whether the system allowed it.
pub fn give_way() -> bool {
    rustix::process::nice(NICEST).is_ok()
}

/// The largest niceness is 19, and more is cut to it (nice(2)); a step of this size reaches it from
/// everywhere.
const NICEST: i32 = 39;

/// Niceness of a spinning sender: measured lateness p99 of 0.6 us at 1 M/s on a two-core machine.
const PRECEDENCE: i32 = -15;

/// Cores that this process may use, in ascending order.
pub fn available() -> Vec<usize> {
    rustix::thread::sched_getaffinity(None)
        .map(|set| {
            (0..CpuSet::MAX_CPU)
                .filter(|&core| set.is_set(core))
                .collect()
        })
        .unwrap_or_default()
}
