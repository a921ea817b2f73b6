//! What can go wrong around a trial, made to go wrong: undone when the guard is dropped.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dns64_transport::clock::{MonotonicClock, Nanos};
use dns64bench::lab::process;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};

use crate::machine::Underway;

/// Ends what spoils a trial.
pub(crate) type Guard = Box<dyn std::any::Any>;

const MS: Nanos = 1_000_000;

/// Nothing to be undone: it ends with the lab, or with the process.
fn none() -> Guard {
    Box::new(())
}

/// Stops processes for so long, again and again with a pause of as long.
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

/// A process that is ended with the guard.
struct Loop(Child);

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

/// A link end that sends at most so many bits in a second, with a queue of so many octets.
pub(crate) fn limit(host: &str, link: &str, rate: &str, queue: &str) -> Guard {
    let words = format!(
        "-n dns64bench-{host} qdisc add dev {link} root tbf rate {rate} burst 2000 limit {queue}"
    );
    let status = Command::new("tc")
        .args(words.split(' '))
        .stderr(Stdio::null())
        .status();
    // The trial can be over by now.
    let _ = status.unwrap();
    none()
}

/// A link end that loses every thousandth of the UDP datagrams that leave, or that arrive.
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

/// A cgroup of the test's own, which is removed with the guard.
struct Group(PathBuf);

impl Group {
    /// With this controller. Version 1 has a hierarchy for each; in version 2 the one for all may have to hand the
    /// controller down.
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

impl Drop for Group {
    fn drop(&mut self) {
        // It can be removed when the process in it is gone for good.
        process::wait_until(5_000_000_000, || fs::remove_dir(&self.0).is_ok());
    }
}

/// Half of a core for the Tester, in periods of so many microseconds.
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

/// Memory for hardly more than the Tester touches newly.
pub(crate) fn little_memory(underway: &Underway) -> Guard {
    let (group, is_old) = Group::with("memory");
    let file = if is_old {
        "memory.limit_in_bytes"
    } else {
        "memory.high"
    };
    group.set(file, "4194304");
    group.set("cgroup.procs", &underway.pid().to_string());
    Box::new(group)
}

/// The least receive buffer that the kernel gives, for every UDP socket of the Tester.
pub(crate) fn tiny_buffers(underway: &Underway) -> Guard {
    let pid = i32::try_from(underway.pid()).unwrap();
    let process = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    let mut shrunk = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let fd = entry.file_name().to_string_lossy().parse().unwrap();
        // The trial can have closed it by now.
        if let (true, Ok(socket)) = (
            is_socket,
            pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()),
        ) && rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1).is_ok()
        {
            shrunk += 1;
        }
    }
    assert!(shrunk > 0);
    none()
}
