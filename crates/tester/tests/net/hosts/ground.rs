//! The hosts of these tests, and controllers that use them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::campaign::journal;
use dns64bench::campaign::record::Line;
use dns64bench::machine::process;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::busy::BUSY_MAX;
use crate::machine::{PROGRAM, comm, turn};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rehearsal/hosts");

/// Part of the names of these hosts' namespaces and files. It is constant, so that the next run removes the leftovers
/// of a crash.
const NAME: &str = "net-test";

pub(super) const HOSTS: [&str; 5] = ["gen1", "gen2", "dut", "auth", "auth2"];

/// All processes of a host have ended after this time: the outer process of an agent kills the inner one after 30 s.
const GONE_LIMIT: Nanos = 45 * SECOND;

/// Running hosts for exclusive use; removed when dropped.
pub(super) struct Ground {
    dir: TempDir,
    /// Addresses of each host at the start.
    addresses: Vec<String>,
    /// Existing cgroups of other users.
    cgroups: Vec<PathBuf>,
    _turn: File,
}

impl Ground {
    pub(super) fn up() -> Self {
        let mut ground = Self {
            _turn: turn(),
            dir: tempfile::tempdir().unwrap(),
            addresses: Vec::new(),
            cgroups: abandoned_cgroups(),
        };
        hosts(&["down"]);
        hosts(&["up", "--addresses"]);
        for host in HOSTS {
            ground.install(host);
        }
        let config = fs::read_to_string(format!("/run/dns64bench-{NAME}/ssh_config")).unwrap();
        ground.know(&config);
        ground.is_as_it_was();
        ground
    }

    /// Installs the program in the PATH of a shell on the host.
    pub(super) fn install(&self, host: &str) {
        let to = "cat >/usr/local/bin/dns64bench && chmod 755 /usr/local/bin/dns64bench";
        let mut command = script(&["exec", host, "sh", "-c", to]);
        command.stdin(File::open(PROGRAM).unwrap());
        assert!(command.status().unwrap().success(), "{host}");
    }

    /// Runs a line of shell on a host; returns its output.
    pub(super) fn shell(&self, host: &str, line: &str) -> String {
        hosts(&["exec", host, "sh", "-c", line])
    }

    /// Sets the ssh configuration of the hosts.
    pub(super) fn know(&self, config: &str) {
        fs::write(self.path("ssh_config"), config).unwrap();
    }

    pub(super) fn known(&self) -> String {
        fs::read_to_string(self.path("ssh_config")).unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a plan into a file.
    pub(super) fn plan(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path
    }

    /// Builds a command of the program on the controller.
    pub(super) fn controller(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &namespace("controller"), PROGRAM])
            .args(arguments)
            .current_dir(self.dir.path())
            .env(
                "DNS64BENCH_SSH",
                format!("ssh -F {}", self.path("ssh_config").display()),
            );
        command
    }

    /// Runs the program on the controller to its end.
    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.controller(arguments).output().unwrap()
    }

    /// Runs a plan to its end; returns the directory of the campaign.
    pub(super) fn campaign(&self, name: &str, plan: &str) -> PathBuf {
        let path = self.plan(name, plan);
        let output = self.run(&["run", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        self.path(name)
    }

    /// Starts or resumes a campaign.
    pub(super) fn begin(&self, arguments: &[&str]) -> Underway {
        let mut command = self.controller(arguments);
        // Its output is short and fits into the pipes.
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Underway(Some(child.spawn().unwrap()))
    }

    /// Records the current state of the hosts as the expected one.
    pub(super) fn is_as_it_was(&mut self) {
        self.addresses = self.addresses_now();
    }

    /// Returns the addresses, sorted, without the link-local addresses of the management network, which take a second
    /// to appear.
    fn addresses_now(&self) -> Vec<String> {
        let line = "(ip -o address show scope global; ip route; ip -6 route; ip -6 route show table local proto 64; \
                    ip neigh show nud permanent) | sort";
        HOSTS.map(|host| self.shell(host, line)).into()
    }

    /// Waits some time after the last agent lost its controller, then asserts that nothing of agents and their servers
    /// is left.
    pub(super) fn assert_nothing_left(&self) {
        let idle =
            || HOSTS.iter().all(|host| pids(host).len() == 1) && pids("controller").is_empty();
        process::wait_until(GONE_LIMIT, idle);
        let named = |host: &str| {
            pids(host)
                .into_iter()
                .map(|pid| (pid, comm(pid)))
                .collect::<Vec<_>>()
        };
        for host in HOSTS {
            // Only the listening sshd.
            assert_eq!(named(host).len(), 1, "{host}: {:?}", named(host));
            let files = self.shell(host, "ls -A /run/dns64bench 2>/dev/null || true");
            assert_eq!(files, "", "{host}");
        }
        assert_eq!(named("controller"), []);
        assert_eq!(self.addresses_now(), self.addresses);
        let mut cgroups = abandoned_cgroups();
        cgroups.retain(|cgroup| !self.cgroups.contains(cgroup));
        assert_eq!(cgroups, Vec::<PathBuf>::new());
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let down = script(&["down"]).output().unwrap();
        if !std::thread::panicking() {
            assert!(down.status.success(), "{}", said(&down));
        }
    }
}

fn script(arguments: &[&str]) -> Command {
    let mut command = Command::new(SCRIPT);
    command.args(arguments).env("DNS64BENCH_REHEARSAL", NAME);
    command
}

/// Runs `deploy/rehearsal/hosts`; returns its output.
fn hosts(arguments: &[&str]) -> String {
    let output = script(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn namespace(host: &str) -> String {
    format!("{NAME}-{host}")
}

/// Standard error of a program.
pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Process IDs of a host.
pub(super) fn pids(host: &str) -> Vec<u32> {
    let listed = Command::new("ip")
        .args(["netns", "pids", &namespace(host)])
        .output();
    let text = String::from_utf8(listed.unwrap().stdout).unwrap();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Processes of this name whose arguments contain a word, or do not.
pub(super) fn named(host: &str, name: &str, word: &str, has_it: bool) -> Vec<u32> {
    let arguments = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let contains = |octets: Vec<u8>| String::from_utf8_lossy(&octets).contains(word);
    let mut pids = pids(host);
    pids.retain(|pid| comm(*pid) == name && contains(arguments(pid)) == has_it);
    pids
}

/// Number of IPv6 datagrams that a host has received.
pub(super) fn received(host: &str) -> u64 {
    pids(host)
        .first()
        .map_or(0, |&pid| crate::machine::received(pid))
}

/// Cgroups of servers whose Tester has ended.
fn abandoned_cgroups() -> Vec<PathBuf> {
    abandoned_below(Path::new("/sys/fs/cgroup"), 3)
}

fn abandoned_below(below: &Path, depth: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let starter = name
            .strip_prefix("dns64bench.")
            .and_then(|rest| rest.split('.').next());
        if starter.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            found.push(entry.path());
        } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(abandoned_below(&entry.path(), depth - 1));
        }
    }
    found
}

/// A running controller, killed at the end of the test at the latest.
pub(super) struct Underway(Option<Child>);

impl Underway {
    pub(super) fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Waits until a condition is true; returns `false` if the controller ends before.
    pub(super) fn reaches(&mut self, what: &str, mut is_so: impl FnMut() -> bool) -> bool {
        let child = self.0.as_mut().unwrap();
        let mut ended = false;
        let reached = process::wait_until(BUSY_MAX, || {
            ended = child.try_wait().unwrap().is_some();
            ended || is_so()
        });
        assert!(
            reached,
            "the machine is too busy for this test: for minutes not once {what}"
        );
        !ended
    }

    /// Waits for its end and returns its output.
    pub(super) fn end(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        let ended = process::wait(&mut child, BUSY_MAX).is_some();
        if !ended {
            process::kill(&mut child);
        }
        let output = child.wait_with_output().unwrap();
        assert!(ended, "did not end: {}", said(&output));
        output
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            process::kill(child);
        }
    }
}

pub(super) fn kill(pids: &[u32]) {
    for &pid in pids {
        process::signal(pid, Signal::KILL);
    }
}

/// Reads the journal of a campaign without a writer.
pub(super) fn read(directory: &Path) -> Vec<Line> {
    journal::read(directory).unwrap().lines
}

/// Reads the complete records of one kind; the journal may be written meanwhile.
pub(super) fn records(directory: &Path, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("journal.jsonl")).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter_map(|line| line["record"].get(kind).cloned())
        .collect()
}
