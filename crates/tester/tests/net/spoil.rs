//! Disturbances of a trial, which end when their guard is dropped.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dns64_transport::clock::{MonotonicClock, Nanos};
use dns64bench::machine::process;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};

use crate::machine::Underway;

/// Ends a disturbance when dropped.
pub(crate) trait Disturbance {
    /// Returns whether it had an effect, as far as the result of the trial does not show it.
    fn has_happened(&self) -> bool {
        true
    }
}

/// A disturbance that ends with the lab, or with the process.
struct Done(bool);

impl Disturbance for Done {
    fn has_happened(&self) -> bool {
        self.0
    }
}

pub(crate) type Guard = Box<dyn Disturbance>;

const MS: Nanos = 1_000_000;

/// No action at the end.
pub(crate) fn none() -> Guard {
    Box::new(Done(true))
}

/// Stops processes repeatedly for this time, with pauses of the same length.
fn stop(pids: &[u32], span_ns: Nanos, times: usize) {
    for _ in 0..times {
        let each = |signal| pids.iter().for_each(|pid| process::signal(*pid, signal));
        each(Signal::STOP);
        MonotonicClock.sleep(span_ns);
        each(Signal::CONT);
        MonotonicClock.sleep(span_ns);
    }
}

pub(crate) fn stop_tester(underway: &Underway, span_ms: u64, times: usize) -> Guard {
    stop(&[underway.pid()], span_ms * MS, times);
    none()
}

pub(crate) fn stop_authority(underway: &Underway, span_ms: u64, times: usize) -> Guard {
    let authority = underway.processes("nsd");
    assert!(!authority.is_empty());
    stop(&authority, span_ms * MS, times);
    none()
}

/// A process that ends with the guard.
struct Loop(Child);

impl Disturbance for Loop {}

impl Drop for Loop {
    fn drop(&mut self) {
        process::kill(&mut self.0);
    }
}

/// A busy loop on a core.
pub(crate) fn busy_loop(core: &str) -> Guard {
    let mut command = Command::new("taskset");
    command.args(["-c", core, "sh", "-c", "while :; do :; done"]);
    Box::new(Loop(command.spawn().unwrap()))
}

/// Limits the rate of a link end, with a queue of this many octets.
pub(crate) fn limit(host: &str, link: &str, rate: &str, queue: &str) -> Guard {
    let words = format!(
        "-n dns64bench-{host} qdisc add dev {link} root tbf rate {rate} burst 2000 limit {queue}"
    );
    let status = Command::new("tc")
        .args(words.split(' '))
        .stderr(Stdio::null())
        .status();
    // The trial may already be over.
    let _ = status.unwrap();
    none()
}

/// Drops every thousandth UDP datagram that leaves a link end, or that arrives there.
pub(crate) fn lose(host: &str, link: &str, way: &str) -> Guard {
    let rules = format!(
        "table netdev spoil {{\nchain c {{\ntype filter hook {way} device \"{link}\" priority 0\n\
         meta l4proto udp numgen inc mod 1000 == 0 drop\n}}\n}}\n"
    );
    let mut nft = Command::new("ip")
        .args([
            "netns",
            "exec",
            &format!("dns64bench-{host}"),
            "nft",
            "-f",
            "-",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    nft.stdin
        .take()
        .unwrap()
        .write_all(rules.as_bytes())
        .unwrap();
    let _ = nft.wait().unwrap();
    none()
}

/// A cgroup of the test, removed with the guard.
struct Group(PathBuf);

impl Group {
    /// Creates a cgroup with this controller. Version 1 has a hierarchy for each controller; in version 2 the root may
    /// have to delegate it first.
    fn with(controller: &str) -> (Self, bool) {
        let root = Path::new("/sys/fs/cgroup");
        let is_old = root.join(controller).is_dir();
        let parent = if is_old {
            root.join(controller)
        } else {
            root.to_path_buf()
        };
        if !is_old {
            fs::write(
                parent.join("cgroup.subtree_control"),
                format!("+{controller}"),
            )
            .unwrap();
        }
        let group = parent.join(format!("dns64bench-test-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        (Self(group), is_old)
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value)
            .unwrap_or_else(|error| panic!("{file} {value}: {error}"));
    }
}

/// The lateness of the sender shows its effect.
impl Disturbance for Group {}

impl Drop for Group {
    fn drop(&mut self) {
        // It can be removed once its process has ended.
        process::wait_until(5_000_000_000, || fs::remove_dir(&self.0).is_ok());
    }
}

/// Limits the Tester to half of a core, in periods of this many microseconds.
pub(crate) fn quota(underway: &Underway, period_us: u64) -> Guard {
    let (group, is_old) = Group::with("cpu");
    let half_us = period_us / 2;
    if is_old {
        group.set("cpu.cfs_period_us", &period_us.to_string());
        group.set("cpu.cfs_quota_us", &half_us.to_string());
    } else {
        group.set("cpu.max", &format!("{half_us} {period_us}"));
    }
    group.set("cgroup.procs", &underway.pid().to_string());
    Box::new(group)
}

/// A cgroup with a limit of the memory.
struct LittleMemory(Group);

impl Disturbance for LittleMemory {
    /// Whether the limit was reached.
    fn has_happened(&self) -> bool {
        let read = |file: &str| fs::read_to_string(self.0.0.join(file)).ok();
        let events = read("memory.events");
        let high = events.and_then(|text| {
            let count = text.lines().find_map(|line| line.strip_prefix("high "));
            count.map(str::to_owned)
        });
        let reached = high.or_else(|| read("memory.failcnt"));
        reached.is_some_and(|count| count.trim() != "0")
    }
}

/// Limits the memory of the Tester to less than it newly touches. Version 1 of cgroups would end it at the limit: it
/// waits there instead until it gets more.
pub(crate) fn little_memory(underway: &Underway) -> Guard {
    let (group, is_old) = Group::with("memory");
    if is_old {
        group.set("memory.oom_control", "1");
        group.set("memory.limit_in_bytes", "524288");
    } else {
        group.set("memory.high", "524288");
    }
    group.set("cgroup.procs", &underway.pid().to_string());
    let little = LittleMemory(group);
    if is_old {
        process::wait_until(5_000 * MS, || little.has_happened());
        little.0.set("memory.limit_in_bytes", "-1");
    }
    Box::new(little)
}

/// Sets the smallest receive buffer that the kernel allows on every UDP socket of the Tester.
pub(crate) fn tiny_buffers(underway: &Underway) -> Guard {
    let pid = i32::try_from(underway.pid()).unwrap();
    let process = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    let mut shrunk = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let fd = entry.file_name().to_string_lossy().parse().unwrap();
        // The trial may already have closed it.
        if let (true, Ok(socket)) = (
            is_socket,
            pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()),
        ) && rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1).is_ok()
        {
            shrunk += 1;
        }
    }
    // The sockets of the trial are closed after it.
    Box::new(Done(shrunk > 0))
}
