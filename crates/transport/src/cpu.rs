//! Which cores a thread runs on.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

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

/// The kernel's number of the calling thread, as in `/proc/self/task`.
pub fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// Gives the calling thread precedence over ordinary ones, where the system allows it (root).
/// Returns whether it did.
///
/// An ordinary niceness, not `SCHED_FIFO`: real-time throttling stops a spinning thread for
/// 50 ms of every second (`sched_rt_runtime_us`). It ranks the threads of one session only, where
/// sessions are scheduled as groups; see [`SessionPrecedence`].
pub fn take_precedence() -> bool {
    rustix::process::nice(PRECEDENCE).is_ok()
}

/// Precedence of the session of this process over other sessions, until the last of these is dropped.
///
/// With `sched_autogroup_enabled` each session is a group to the scheduler, and all groups
/// have the same share of a core, whatever the niceness of what runs in them (sched(7), "The autogroup
/// feature"). The niceness of the group itself is in `/proc/self/autogroup`. It holds for
/// everything in the session, and is set back afterwards. Where processes are in a cgroup with a CPU
/// controller of its own, it has no effect.
#[derive(Debug)]
pub struct SessionPrecedence(());

/// How many there are, and the niceness from before the first.
static SESSION: Mutex<(usize, Option<i32>)> = Mutex::new((0, None));

/// The group of the session of this process.
const AUTOGROUP: &str = "/proc/self/autogroup";

impl SessionPrecedence {
    /// Takes precedence where there are groups of sessions and the system allows it (root); does nothing
    /// elsewhere.
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
            // Nobody could do anything about it.
            let _ = std::fs::write(AUTOGROUP, before.to_string());
        }
    }
}

/// Gives a group precedence and returns its niceness from before; `None` if nothing was changed. What another
/// process of the session has taken is that one's to set back.
fn raise(group: &Path) -> Option<i32> {
    let before = autogroup_nice(&std::fs::read_to_string(group).ok()?)?;
    let taken = before > OF_SESSION && std::fs::write(group, OF_SESSION.to_string()).is_ok();
    taken.then_some(before)
}

/// The niceness in "/autogroup-9 nice 0".
fn autogroup_nice(text: &str) -> Option<i32> {
    let (_, nice) = text.trim().rsplit_once(" nice ")?;
    nice.parse().ok()
}

/// Makes the calling thread run only when no other wants to: for what serves watchers of a trial.
/// Threads that it starts are likewise. Returns whether the system allowed it.
pub fn give_way() -> bool {
    rustix::process::nice(NICEST).is_ok()
}

/// The largest niceness is 19, and more is cut to it (nice(2)); a step of this size reaches it from
/// everywhere.
const NICEST: i32 = 39;

/// Niceness of the group of a session: the most that there is. The weight of a group is shared out to cores by
/// the weights of its threads there. Beside a spinning sender (29,154 at -15, 1,024 at 0, by the table of
/// the kernel's `kernel/sched/core.c`) a server in the same session has a thirtieth of it on its core: 35 in an
/// ordinary group, against 1,024 of any other session, and 2,900 in this one.
const OF_SESSION: i32 = -20;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_niceness_of_a_session_is_read() {
        assert_eq!(autogroup_nice("/autogroup-9 nice -5\n"), Some(-5));
        assert_eq!(autogroup_nice("/autogroup-12 nice 0\n"), Some(0));
        assert_eq!(autogroup_nice(""), None);
    }

    #[test]
    fn precedence_that_another_process_took_is_left_to_it() {
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
