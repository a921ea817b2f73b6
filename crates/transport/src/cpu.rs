//! The cores and priorities of threads.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread to one core.
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

/// The kernel's ID of the calling thread, as in `/proc/self/task`.
pub fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// Raises the priority of the calling thread above ordinary threads, if the system allows it (root). Returns whether it
/// did.
///
/// Sets the niceness, not `SCHED_FIFO`: real-time throttling stops a spinning thread for 50 ms of every second
/// (`sched_rt_runtime_us`). The niceness ranks only threads of the same session where sessions are scheduled as groups;
/// see [`SessionPrecedence`].
pub fn take_precedence() -> bool {
    rustix::process::nice(PRECEDENCE).is_ok()
}

/// Raises the priority of the session of this process above other sessions, until the last value of this type is
/// dropped.
///
/// With `sched_autogroup_enabled` the scheduler treats each session as a group, and all groups have the same share of a
/// core, whatever the niceness of their processes (sched(7), "The autogroup feature"). The niceness of the group itself
/// is in `/proc/self/autogroup`. It applies to the whole session, and is restored afterwards. It has no effect on
/// processes in a cgroup with its own CPU controller.
#[derive(Debug)]
pub struct SessionPrecedence(());

/// Number of values in use, and the niceness before the first one.
static SESSION: Mutex<(usize, Option<i32>)> = Mutex::new((0, None));

/// The autogroup of the session of this process.
const AUTOGROUP: &str = "/proc/self/autogroup";

impl SessionPrecedence {
    /// Raises the priority if sessions are scheduled as groups and the system allows it (root); does nothing otherwise.
    pub fn take() -> Self {
        let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
        if session.0 == 0 {
            session.1 = raise(Path::new(AUTOGROUP));
        }
        session.0 += 1;
        Self(())
    }
}

impl Drop for SessionPrecedence {
    fn drop(&mut self) {
        let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
        session.0 -= 1;
        if session.0 == 0
            && let Some(before) = session.1.take()
        {
            // A failure has no remedy.
            let _ = std::fs::write(AUTOGROUP, before.to_string());
        }
    }
}

/// Raises the priority of a group and returns its previous niceness; `None` if nothing was changed. If another process
/// of the session has raised it already, that process restores it.
fn raise(group: &Path) -> Option<i32> {
    let before = autogroup_nice(&std::fs::read_to_string(group).ok()?)?;
    let taken = before > OF_SESSION && std::fs::write(group, OF_SESSION.to_string()).is_ok();
    taken.then_some(before)
}

/// Parses the niceness in "/autogroup-9 nice 0".
fn autogroup_nice(text: &str) -> Option<i32> {
    let (_, nice) = text.trim().rsplit_once(" nice ")?;
    nice.parse().ok()
}

/// Lowers the priority of the calling thread below all others: for threads that only serve observers of a trial.
/// Threads that it starts inherit it. Returns whether the system allowed it.
pub fn give_way() -> bool {
    rustix::process::nice(NICEST).is_ok()
}

/// The largest niceness is 19, and larger values are cut to it (nice(2)); an increment of this size reaches it from any
/// value.
const NICEST: i32 = 39;

/// Niceness of the group of a session: the highest priority. The weight of a group is distributed to cores by the
/// weights of its threads there. Beside a spinning sender (29,154 at -15, 1,024 at 0, by the table of the kernel's
/// `kernel/sched/core.c`) a server in the same session has a thirtieth of the weight on its core: 35 in an ordinary
/// group, against 1,024 of any other session, and 2,900 in this one.
const OF_SESSION: i32 = -20;

/// Niceness of a spinning sender. Measured lateness p99: 0.6 us at 1 M/s on a two-core machine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_niceness_is_parsed() {
        assert_eq!(autogroup_nice("/autogroup-9 nice -5\n"), Some(-5));
        assert_eq!(autogroup_nice("/autogroup-12 nice 0\n"), Some(0));
        assert_eq!(autogroup_nice(""), None);
    }

    #[test]
    fn priority_raised_by_another_process_is_not_restored() {
        let group = std::env::temp_dir().join(format!("dns64-autogroup-{}", std::process::id()));
        for (text, before, after) in [
            ("/autogroup-9 nice 0\n", Some(0), "-20"),
            ("/autogroup-9 nice -20\n", None, "/autogroup-9 nice -20\n"),
        ] {
            std::fs::write(&group, text).unwrap();
            assert_eq!(raise(&group), before);
            assert_eq!(std::fs::read_to_string(&group).unwrap(), after);
        }
        std::fs::remove_file(&group).unwrap();
        assert_eq!(raise(&group), None);
    }
}
