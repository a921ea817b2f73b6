//! Hosts of the tests' own, and controllers that use them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::campaign::journal;
use dns64bench::campaign::record::Line;
use dns64bench::lab::process;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::busy::BUSY_MAX;
use crate::machine::{PROGRAM, comm, turn};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rehearsal/hosts");

/// Namespaces and files of these hosts have this in their names. Always the same: whoever comes after a crash takes
/// down what it left.
const NAME: &str = "net-test";

pub(super) const HOSTS: [&str; 5] = ["gen1", "gen2", "dut", "auth", "auth2"];

/// Everything of a host is gone after this time: the outer process of an agent kills the inner one after 30 s.
const GONE_LIMIT: Nanos = 45 * SECOND;

/// Hosts that are up; nobody else has them. They are taken down when this is dropped.
pub(super) struct Ground {
    dir: TempDir,
    /// Of each host, as they were.
    addresses: Vec<String>,
    /// Of others.
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

    /// Puts the program where a shell on the host finds it.
    pub(super) fn install(&self, host: &str) {
        let to = "cat >/usr/local/bin/dns64bench && chmod 755 /usr/local/bin/dns64bench";
        let mut command = script(&["exec", host, "sh", "-c", to]);
        command.stdin(File::open(PROGRAM).unwrap());
        assert!(command.status().unwrap().success(), "{host}");
    }

    /// Runs a line of shell on a host; what it prints.
    pub(super) fn shell(&self, host: &str, line: &str) -> String {
        hosts(&["exec", host, "sh", "-c", line])
    }

    /// What ssh knows of the hosts from now on.
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

    /// The program on the controller.
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

    /// Runs it to its end.
    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.controller(arguments).output().unwrap()
    }

    /// The directory of the campaign of a plan that runs to its end.
    pub(super) fn campaign(&self, name: &str, plan: &str) -> PathBuf {
        let path = self.plan(name, plan);
        let output = self.run(&["run", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        self.path(name)
    }

    /// Begins a campaign, or goes on with it.
    pub(super) fn begin(&self, arguments: &[&str]) -> Underway {
        let mut command = self.controller(arguments);
        // What it says is little and fits into the pipes.
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Underway(Some(child.spawn().unwrap()))
    }

    /// The hosts as they are now are those that are to be left.
    pub(super) fn is_as_it_was(&mut self) {
        self.addresses = self.addresses_now();
    }

    /// Sorted, and without the link-local addresses of the management network, which take a second to be there.
    fn addresses_now(&self) -> Vec<String> {
        let line = "(ip -o address show scope global; ip route; ip -6 route; ip neigh show nud permanent) | sort";
        HOSTS.map(|host| self.shell(host, line)).into()
    }

    /// What is left of agents and what they start; nothing, a while after the last has lost its controller.
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
            // The sshd that listens.
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

/// Runs `deploy/rehearsal/hosts`; what it prints.
fn hosts(arguments: &[&str]) -> String {
    let output = script(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn namespace(host: &str) -> String {
    format!("{NAME}-{host}")
}

/// What a program said on standard error.
pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Processes of a host.
pub(super) fn pids(host: &str) -> Vec<u32> {
    let listed = Command::new("ip")
        .args(["netns", "pids", &namespace(host)])
        .output();
    let text = String::from_utf8(listed.unwrap().stdout).unwrap();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// Those of this name whose arguments contain a word or do not.
pub(super) fn named(host: &str, name: &str, word: &str, has_it: bool) -> Vec<u32> {
    let arguments = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let contains = |octets: Vec<u8>| String::from_utf8_lossy(&octets).contains(word);
    let mut pids = pids(host);
    pids.retain(|pid| comm(*pid) == name && contains(arguments(pid)) == has_it);
    pids
}

/// Datagrams over IPv6 that have come to a host.
pub(super) fn received(host: &str) -> u64 {
    pids(host)
        .first()
        .map_or(0, |&pid| crate::machine::received(pid))
}

/// Cgroups of servers whose starter has ended.
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

/// A controller at work, which is killed with the test at the latest.
pub(super) struct Underway(Option<Child>);

impl Underway {
    pub(super) fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Waits until something is so; `false` if it has ended before.
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

    /// What came of it.
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

/// The journal of a campaign that nobody writes.
pub(super) fn read(directory: &Path) -> Vec<Line> {
    journal::read(directory).unwrap().lines
}

/// The records of one kind, whole lines only: it may be written meanwhile.
pub(super) fn records(directory: &Path, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("journal.jsonl")).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter_map(|line| line["record"].get(kind).cloned())
        .collect()
}
