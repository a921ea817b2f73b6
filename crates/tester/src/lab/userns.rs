//! The lab without root: runs the same command line again in a user namespace.
//!
//! Inside, the user is root of private namespaces (user_namespaces(7)): network, mounts and processes. So the lab of
//! namespaces works as for root, with two differences. Buffers cannot exceed `net.core.rmem_max`. When the started
//! process ends, for whatever reason, the kernel ends all other processes inside.

use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use rustix::process::Signal;

use super::{Blame, LabError};
use crate::machine::process::{self, find_program};

/// Environment variable that marks the process inside.
const MARKER: &str = "DNS64BENCH_IN_USER_NAMESPACE";

/// Whether this process was started by [`reexec`].
pub fn inside() -> bool {
    std::env::var_os(MARKER).is_some()
}

/// Runs this program with `arguments` in a user namespace until it ends, and returns its exit status. When
/// `interrupted` becomes true, the process inside gets SIGTERM, and SIGKILL if it has not ended after ten seconds.
///
/// # Errors
///
/// This process is inside already, or namespaces cannot be created. If the kernel forbids them, `unshare` prints the
/// reason on standard error and fails; [`check`] tests this beforehand.
pub fn reexec(arguments: &[String], interrupted: &AtomicBool) -> Result<ExitStatus, LabError> {
    if inside() {
        return Err(Blame::Machine.error("this is a user namespace already"));
    }
    let program = std::env::current_exe()
        .map_err(Blame::Machine.because("cannot find out the path of this program"))?;
    let mut child = unshare()
        .arg(SCRIPT)
        .arg("sh")
        .arg(program)
        .args(arguments)
        .env(MARKER, "1")
        .spawn()
        .map_err(Blame::Machine.because(NO_UNSHARE))?;
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(Blame::Machine.because(NO_UNSHARE))?
        {
            return Ok(status);
        }
        if interrupted.load(Ordering::Relaxed) {
            return end(&mut child);
        }
        MonotonicClock.sleep(POLL_NS);
    }
}

/// Ends the processes inside. `unshare` ignores SIGTERM while it waits, and so does the shell, which has process ID 1
/// inside: the signal goes to their descendants.
fn end(child: &mut Child) -> Result<ExitStatus, LabError> {
    for pid in process::tree(child.id()).into_iter().skip(2).take(1) {
        process::signal(pid, Signal::TERM);
    }
    if let Some(status) = process::wait(child, END_PATIENCE) {
        return Ok(status);
    }
    child
        .kill()
        .and_then(|()| child.wait())
        .map_err(Blame::Machine.because(NO_UNSHARE))
}

/// Checks whether this user may create namespaces here: creates some and leaves them at once.
///
/// # Errors
///
/// `unshare` is not installed, or its error message.
pub fn check() -> Result<(), LabError> {
    process::tool("unshare", "makes user namespaces")?;
    let mut command = unshare();
    command.arg(SCRIPT).arg("sh").arg("true");
    let reason = match process::run(&mut command, CHECK_LIMIT) {
        Ok(end) if end.status.success() => return Ok(()),
        Ok(end) => end.stderr.trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Blame::Machine.error(format!(
        "user namespaces are not allowed here ({reason}); allow them with \
         `sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000`, or be root"
    )))
}

/// `unshare`, which is killed when the calling thread ends, with all processes inside. Without `setpriv`, a Tester that
/// gets SIGKILL leaves the processes inside running until they end.
fn unshare() -> Command {
    let mut command = if find_program("setpriv").is_some() {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare"]);
        command
    } else {
        Command::new("unshare")
    };
    command.args(["--user", "--map-root-user", "--net", "--mount", "--pid"]);
    command.args(["--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    command
}

/// `ip netns` can write to an empty `/run`. The shell remains process 1: it reaps orphans, and signals have their usual
/// effect on the program.
const SCRIPT: &str = "mount -t tmpfs tmpfs /run && ip link set lo up && \"$@\"; exit $?";

const NO_UNSHARE: &str = "cannot run unshare; install the Debian package util-linux";
const POLL_NS: Nanos = SECOND / 50;
/// An interrupted Tester stops its servers and removes its lab.
const END_PATIENCE: Nanos = 10 * SECOND;
const CHECK_LIMIT: Nanos = 5 * SECOND;
