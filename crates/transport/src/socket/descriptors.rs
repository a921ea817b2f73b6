//! The limit on open files, which includes sockets.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{OpenError, option};

/// Raises this process's limit on open files (`RLIMIT_NOFILE`, usually 1024) by `more` sockets, as far as
/// permitted. Returns how many of them the limit allows: it is reduced by [`DESCRIPTORS_BESIDE`], or by half if it
/// is low. Call it before threads start: the kernel's table of files gets its size now, since later each doubling would stop
/// the thread that opens a socket for an RCU grace period, which is some 10 ms.
pub fn allow_descriptors(more: usize) -> Result<usize, OpenError> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = (more as u64 + DESCRIPTORS_BESIDE).min(limit.maximum.unwrap_or(u64::MAX));
    let granted = limit.current.unwrap_or(u64::MAX).max(wanted);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        option(
            "setrlimit RLIMIT_NOFILE",
            setrlimit(Resource::Nofile, raised),
        )?;
    }
    // The highest descriptor. Without it the table grows later.
    if let (Ok(file), Ok(highest)) = (eventfd(0, EventfdFlags::CLOEXEC), i32::try_from(wanted - 1))
    {
        let _ = fcntl_dupfd_cloexec(file, highest);
    }
    let granted = granted - DESCRIPTORS_BESIDE.min(granted / 2);
    Ok(usize::try_from(granted).unwrap_or(usize::MAX).min(more))
}

/// Files that a process has open in addition to those sockets: connections, other links.
pub const DESCRIPTORS_BESIDE: u64 = 4096;
