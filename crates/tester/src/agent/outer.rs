//! Outer process of an agent. It waits for the inner process, which does the work, and cleans up after it.
//!
//! If the inner process is killed, the outer one ends what it had started and removes its files, cgroups and routes. If
//! the outer one is killed, the kernel sends the inner one SIGTERM, and it ends in an orderly way. If both are
//! killed, the kernel kills the servers (`setpriv --pdeathsig`) and the next agent removes their files and routes.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, getppid, set_child_subreaper,
    set_parent_process_death_signal, wait, waitid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::lock::HostLock;
use crate::lab::{Blame, LabError, routes, server};
use crate::machine::process;

/// Runs the inner process to its end, with the standard input and output of this process, then ends and removes
/// everything that it left. SIGTERM, SIGINT and SIGHUP are forwarded as SIGTERM. The inner process is killed if it has
/// not ended 30 s after such a signal or after the controller closed its end of standard input.
///
/// Ends every descendant of this process: call it only in a process that has no others.
///
/// # Errors
///
/// The inner process cannot be started or waited for.
pub fn supervise(mut inner: Command) -> Result<ExitStatus, LabError> {
    let failed = || Blame::Machine.because::<io::Error>("cannot supervise the agent");
    set_child_subreaper(Some(getpid())).map_err(|e| failed()(e.into()))?;
    server::sweep_abandoned();
    // Registered before the start, so that no signal is lost.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed())?;
    // A group of its own: a signal to the outer process's group leaves the inner one time to clean up.
    let mut child = inner.process_group(0).spawn().map_err(failed())?;
    let running = Arc::new(InnerProcess::new(&child));
    let on_signal = Arc::clone(&running);
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let running = Arc::clone(&on_signal);
            running.signal(Signal::TERM);
            std::thread::spawn(move || running.kill_later());
        }
    });
    let on_hang_up = Arc::clone(&running);
    std::thread::spawn(move || {
        if hung_up() {
            on_hang_up.kill_later();
        }
    });
    running.wait();
    let status = child.wait().map_err(failed())?;
    end_descendants();
    server::sweep_abandoned();
    if !status.success() {
        sweep_routes();
    }
    Ok(status)
}

/// Makes the calling process, the inner one, end with the outer one, whose process ID is given. Call it from the main
/// thread before anything is started.
///
/// # Errors
///
/// The outer one has ended already.
pub fn follow(outer: u32) -> Result<(), LabError> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(Blame::Machine.because("cannot follow the process that started this one"))?;
    let parent = getppid().map(Pid::as_raw_nonzero);
    match parent.is_some_and(|pid| u32::try_from(pid.get()) == Ok(outer)) {
        true => Ok(()),
        false => Err(Blame::Machine.error("the process that started this one has ended")),
    }
}

/// The inner process while its process ID is valid.
struct InnerProcess {
    pid: Option<Pid>,
    /// Whether it may have been waited for.
    gone: Mutex<bool>,
}

impl InnerProcess {
    fn new(child: &Child) -> Self {
        Self {
            pid: Some(Pid::from_child(child)),
            gone: Mutex::new(false),
        }
    }

    fn signal(&self, signal: Signal) {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(pid), false) = (self.pid, *gone) {
            process::signal(pid.as_raw_nonzero().get().unsigned_abs(), signal);
        }
    }

    fn kill_later(&self) {
        MonotonicClock.sleep(END_LIMIT);
        self.signal(Signal::KILL);
    }

    /// Waits for its end; it remains a zombie, so that its process ID is not reused.
    fn wait(&self) {
        let Some(pid) = self.pid else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(error) = waitid(WaitId::Pid(pid), options) {
            if error.kind() != ErrorKind::Interrupted {
                break;
            }
        }
        *self.gone.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// Returns when the other end of standard input is closed; `false` if that cannot be detected.
fn hung_up() -> bool {
    let input = io::stdin();
    let mut ends = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::RDHUP)];
    loop {
        match poll(&mut ends, None) {
            Ok(_) => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Kills and reaps all descendants of this process: orphans become its children.
fn end_descendants() {
    process::wait_until(DESCENDANTS_LIMIT, || {
        let tree = process::tree(std::process::id());
        for &pid in tree.iter().skip(1) {
            process::signal(pid, Signal::KILL);
        }
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        tree.len() == 1
    });
}

/// Removes the routes of an inner process that was killed, unless another agent is there already, which has removed them.
fn sweep_routes() {
    if let Ok(_lock) = HostLock::take("an agent that cleans up") {
        routes::sweep();
    }
}

/// The inner process may have to stop servers, which takes up to 5 s for each (`lab::server`).
const END_LIMIT: Nanos = 30 * SECOND;
/// A process that received SIGKILL ends within this time.
const DESCENDANTS_LIMIT: Nanos = 5 * SECOND;
