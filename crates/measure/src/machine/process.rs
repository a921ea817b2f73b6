//! Programs and processes of this machine: search, execution, signals, resource use.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Blame, LabError};
use super::{Machine, number};
use crate::quantity::Span;

/// Polling interval while waiting for a condition.
const POLL_NS: Nanos = SECOND / 100;

/// Searches for a program: beside this one, so that the dns64d of the same build is found without installation; then in
/// `PATH`; then in the directories for administrators, which the `PATH` of an ordinary user lacks on Debian. A name
/// with a slash is used as a path.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return is_executable(Path::new(name)).then(|| PathBuf::from(name));
    }
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| is_executable(candidate))
}

/// Programs that create labs, and their Debian packages.
pub const TOOLS: [(&str, &str); 4] = [
    ("ip", "iproute2"),
    ("taskset", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];

/// Searches for one of [`TOOLS`]; `purpose` completes "it ...".
///
/// # Errors
///
/// It is not installed; the error names its package.
pub fn tool(name: &str, purpose: &str) -> Result<PathBuf, LabError> {
    find_program(name).ok_or_else(|| {
        let mut tools = TOOLS.iter();
        let package = tools.find_map(|(tool, package)| (*tool == name).then_some(*package));
        Blame::Machine.error(format!(
            "`{name}` is not installed, and it {purpose}; install the Debian package {}",
            package.unwrap_or(name)
        ))
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Result of a program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs `command` without input until it ends, at most `limit`, and returns its output.
///
/// # Errors
///
/// It cannot be started, or was killed after the time limit.
pub fn run(command: &mut Command, limit: Nanos) -> Result<Ended, LabError> {
    ended(command.stdin(Stdio::null()), &[], limit)
}

/// The same with these octets as its input; at most 64 KiB, the capacity of a pipe (pipe(7)).
///
/// # Errors
///
/// Those of [`run`].
pub fn run_with_input(
    command: &mut Command,
    input: &[u8],
    limit: Nanos,
) -> Result<Ended, LabError> {
    ended(command.stdin(Stdio::piped()), input, limit)
}

/// The same with a file as its input.
///
/// # Errors
///
/// Those of [`run`].
pub fn run_with_file(command: &mut Command, input: File, limit: Nanos) -> Result<Ended, LabError> {
    ended(command.stdin(input), &[], limit)
}

fn ended(command: &mut Command, input: &[u8], limit: Nanos) -> Result<Ended, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Blame::Machine.because(format!("cannot start {program:?}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A write error is ignored: the exit status shows whether the program needed its input.
        let _ = stdin.write_all(input);
    }
    let deadline = MonotonicClock.now() + limit;
    let [stdout, stderr] = outputs(&mut child, deadline);
    match wait(&mut child, deadline.saturating_sub(MonotonicClock.now())) {
        Some(status) => Ok(Ended {
            status,
            stdout,
            stderr,
        }),
        None => {
            kill(&mut child);
            let limit = Span(limit);
            Err(Blame::Machine.error(format!("{program:?} did not end within {limit}")))
        }
    }
}

/// Reads standard output and standard error to their ends or until `deadline`, both at once, so that neither pipe can block
/// the program. Without threads: where memory is limited, the system may refuse to start one.
fn outputs(child: &mut Child, deadline: Nanos) -> [String; 2] {
    let stdout = child.stdout.take().map(OwnedFd::from);
    let stderr = child.stderr.take().map(OwnedFd::from);
    let mut outputs = [stdout, stderr].map(|pipe| Piped {
        pipe: pipe.map(File::from),
        octets: Vec::new(),
    });
    loop {
        let pipes = outputs.iter().filter_map(|it| it.pipe.as_ref());
        let mut open: Vec<_> = pipes.map(|it| PollFd::new(it, PollFlags::IN)).collect();
        let left_ns = deadline.saturating_sub(MonotonicClock.now());
        if open.is_empty() || left_ns == 0 {
            break;
        }
        let left = Timespec::try_from(Duration::from_nanos(left_ns)).ok();
        if poll(&mut open, left.as_ref()).is_err() {
            // A signal: the loop polls again.
            continue;
        }
        let ready: Vec<_> = open.iter().map(|it| !it.revents().is_empty()).collect();
        let open = outputs.iter_mut().filter(|it| it.pipe.is_some());
        for (output, _) in open.zip(ready).filter(|(_, ready)| *ready) {
            output.read();
        }
    }
    outputs.map(|it| String::from_utf8_lossy(&it.octets).into_owned())
}

/// Output of a program through a pipe.
struct Piped {
    /// `None` once it has ended or is too long.
    pipe: Option<File>,
    octets: Vec<u8>,
}

impl Piped {
    /// Reads once from a pipe that is ready; keeps the output before an error.
    fn read(&mut self) {
        let mut octets = [0; 4096];
        let read = self.pipe.as_mut().map(|pipe| pipe.read(&mut octets));
        let len = read.and_then(Result::ok).unwrap_or_default();
        self.octets.extend_from_slice(&octets[..len]);
        if len == 0 || self.octets.len() >= OUTPUT_MAX {
            self.pipe = None;
        }
    }
}

/// Longer output of a program is truncated: no command of the lab prints as much.
const OUTPUT_MAX: usize = 1 << 20;

/// Waits until `child` ends, at most `limit`.
pub fn wait(child: &mut Child, limit: Nanos) -> Option<ExitStatus> {
    let deadline = MonotonicClock.now() + limit;
    // A pidfd becomes readable when the process has ended. A lab starts dozens of programs that run for milliseconds.
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
    loop {
        let status = child.try_wait().ok().flatten();
        let left_ns = deadline.saturating_sub(MonotonicClock.now());
        if status.is_some() || left_ns == 0 {
            return status;
        }
        match &ended {
            Some(ended) => {
                let left = Timespec::try_from(Duration::from_nanos(left_ns)).ok();
                // After a signal the loop checks again.
                let _ = poll(&mut [PollFd::new(ended, PollFlags::IN)], left.as_ref());
            }
            None => MonotonicClock.sleep(POLL_NS),
        }
    }
}

/// Kills `child` and reaps it, so that no zombie remains.
pub fn kill(child: &mut Child) {
    // Both fail only if the child has already been reaped.
    let _ = child.kill();
    let _ = child.wait();
}

/// Kills `child` and the process group that it leads, and reaps it.
pub fn kill_group(child: &mut Child) {
    // The group may not exist yet or any more; the child is killed in any case.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    kill(child);
}

/// Polls `done` until it returns true; gives up after `limit`.
pub fn wait_until(limit: Nanos, mut done: impl FnMut() -> bool) -> bool {
    let deadline = MonotonicClock.now() + limit;
    loop {
        if done() {
            return true;
        }
        if MonotonicClock.now() >= deadline {
            return false;
        }
        MonotonicClock.sleep(POLL_NS);
    }
}

/// Sends a signal; ignores a process that has already ended.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process has ended, perhaps without being reaped.
pub fn has_ended(pid: u32) -> bool {
    let status = read(pid, "status");
    status.is_none_or(|it| it.contains("\nState:\tZ"))
}

/// Returns `root` and all its descendants, `root` first.
pub fn tree(root: u32) -> Vec<u32> {
    tree_on(&Machine::here(), root)
}

/// The same for the machine with these files.
pub(super) fn tree_on(machine: &Machine, root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for name in machine.names("/proc") {
        let pid = name.parse();
        let status = machine.read(&format!("/proc/{name}/status"));
        let parent = status.and_then(|status| number(&status, "PPid"));
        if let (Ok(pid), Some(Ok(parent))) = (pid, parent.map(u32::try_from)) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut seen = HashSet::from([root]);
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        for &child in children.get(pid).map_or(&[][..], Vec::as_slice) {
            if seen.insert(child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

/// Reads a file of a process; `None` once it has ended.
fn read(pid: impl Display, file: &str) -> Option<String> {
    Machine::here().read(&format!("/proc/{pid}/{file}"))
}

/// Resource use of a process and all its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Resources {
    /// Resident memory. A page that several of the processes share counts once (`Pss` of `/proc/PID/smaps_rollup`,
    /// proc(5)); if that file is not readable, once for each of them (`VmRSS`).
    pub memory_bytes: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

impl Resources {
    /// Adds those of a process on another host.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes + other.memory_bytes,
            descriptors: self.descriptors + other.descriptors,
            threads: self.threads + other.threads,
        }
    }
}

/// Memory of a process and all its descendants (`/proc/PID/smaps_rollup`, proc(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Memory {
    /// Resident set size in octets. A shared page counts once for each process.
    pub rss_bytes: u64,
    /// Proportional set size in octets: a shared page counts once.
    pub pss_bytes: u64,
}

/// Returns the memory of `root` and its descendants; `None` if it is not readable for one of them, or if `root` has
/// ended.
pub fn memory(root: u32) -> Option<Memory> {
    let mut all = Memory::default();
    for pid in tree(root) {
        // A process that has just ended has no memory any more.
        let status = read(pid, "status").unwrap_or_default();
        if number(&status, "VmRSS").is_none() {
            continue;
        }
        let rollup = read(pid, "smaps_rollup")?;
        all.rss_bytes += number(&rollup, "Rss")? * 1024;
        all.pss_bytes += number(&rollup, "Pss")? * 1024;
    }
    (all.rss_bytes > 0).then_some(all)
}

/// Returns the resource use of `root` and its descendants. A process that has ended counts as 0.
pub fn resources(root: u32) -> Resources {
    let mut all = Resources::default();
    for pid in tree(root) {
        let status = read(pid, "status").unwrap_or_default();
        let memory_kib = read(pid, "smaps_rollup")
            .and_then(|text| number(&text, "Pss"))
            .or_else(|| number(&status, "VmRSS"));
        all.memory_bytes += memory_kib.unwrap_or(0) * 1024;
        all.threads += number(&status, "Threads").unwrap_or(0);
        all.descriptors += Machine::here().names(&format!("/proc/{pid}/fd")).len() as u64;
    }
    all
}

/// Number of datagrams lost at full receive buffers of UDP sockets bound to `port`, in the network namespace of process
/// `pid` (the drops column of `/proc/PID/net/udp` and `udp6`). The count of a socket disappears when it is closed.
pub fn udp_drops(pid: u32, port: u16) -> u64 {
    ["net/udp", "net/udp6"]
        .iter()
        .filter_map(|table| read(pid, table))
        .map(|table| drops_in_table(&table, port))
        .sum()
}

fn drops_in_table(table: &str, port: u16) -> u64 {
    let port = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.nth(1)?.ends_with(&port).then(|| words.last())?
        })
        .filter_map(|drops| drops.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_by_name_and_by_path() {
        let shell = find_program("sh").unwrap();
        assert_eq!(find_program(shell.to_str().unwrap()), Some(shell));
        assert_eq!(find_program("no-such-program-anywhere"), None);
        assert_eq!(find_program("/etc/passwd"), None);
    }

    #[test]
    fn program_beside_this_one_is_found_without_a_path() {
        let this = std::env::current_exe().unwrap();
        let name = this.file_name().unwrap().to_str().unwrap();
        assert_eq!(find_program(name), Some(this.clone()));
    }

    #[test]
    fn output_and_status_are_returned() {
        let mut command = Command::new("sh");
        let end = run(
            command.args(["-c", "echo out; echo err >&2; exit 3"]),
            SECOND * 10,
        )
        .unwrap();
        assert_eq!(
            (end.stdout.as_str(), end.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert_eq!(end.status.code(), Some(3));
    }

    #[test]
    fn program_gets_its_input_and_its_end() {
        let end = run_with_input(&mut Command::new("cat"), b"octets", SECOND * 10).unwrap();
        assert_eq!(
            (end.stdout.as_str(), end.status.code()),
            ("octets", Some(0))
        );
        let end = run_with_input(&mut Command::new("true"), b"octets", SECOND * 10).unwrap();
        assert_eq!(end.status.code(), Some(0));
    }

    /// More than a pipe holds (64 KiB, pipe(7)) in one or both, and more than is kept.
    #[test]
    fn output_of_any_length_blocks_no_program() {
        let write = |octets: u32, to: &str| format!("head -c {octets} /dev/zero {to}");
        for (first, second) in [(200_000, 300_000), (0, 200_000), (200_000, 0)] {
            let script = format!("{}; {}; exit 3", write(first, ">&2"), write(second, ""));
            let end = run(Command::new("sh").args(["-c", &script]), SECOND * 60).unwrap();
            assert_eq!(end.status.code(), Some(3));
            assert_eq!(
                (end.stderr.len(), end.stdout.len()),
                (first as usize, second as usize)
            );
        }
        let end = run(
            Command::new("sh").args(["-c", &write(1 << 22, "")]),
            SECOND * 60,
        )
        .unwrap();
        assert!((OUTPUT_MAX..OUTPUT_MAX + 4096).contains(&end.stdout.len()));
    }

    #[test]
    fn program_that_hangs_is_killed_and_named() {
        let error = run(Command::new("sleep").arg("100"), SECOND / 20).unwrap_err();
        assert_eq!(error.to_string(), "\"sleep\" did not end within 50 ms");
    }

    #[test]
    fn tree_contains_children_of_children() {
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'sleep 100; :' & wait"])
            .spawn()
            .unwrap();
        let grown = wait_until(SECOND * 10, || tree(child.id()).len() == 3);
        let pids = tree(child.id());
        let used = resources(child.id());
        let memory = memory(child.id()).unwrap();
        for pid in pids {
            signal(pid, Signal::KILL);
        }
        kill(&mut child);
        assert!(grown);
        // Each process has one thread, and at least standard input, output and error.
        assert_eq!(used.threads, 3);
        assert!(used.descriptors >= 9 && used.memory_bytes > 0, "{used:?}");
        assert_eq!(resources(child.id()), Resources::default());
        // Both shells and sleep map the same library.
        assert!(memory.pss_bytes > 0 && memory.pss_bytes < memory.rss_bytes);
        assert_eq!(super::memory(child.id()), None);
    }

    #[test]
    fn drops_are_counted_by_port() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 7
 2: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 2 2 0000000000000000 5
 3: 00000000:1435 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 3 2 0000000000000000 9
";
        assert_eq!(drops_in_table(table, 53), 12);
        assert_eq!(drops_in_table(table, 5173), 9);
        assert_eq!(drops_in_table(table, 54), 0);
    }
}
