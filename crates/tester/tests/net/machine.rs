//! The program on a machine whose only lab is of these tests.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::lab::topology::leftovers;
use dns64bench::machine::{Machine, process};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;

use crate::busy::{BUSY_MAX, until};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64bench");

const MINUTE: Nanos = 60 * SECOND;

/// Each of these tests holds the lock of this file.
const TURN: &str = "/run/dns64bench/test.lock";

/// Waits for the turn of this test, because there is only one lab; the turn ends with the guard.
pub(crate) fn turn() -> File {
    fs::create_dir_all("/run/dns64bench").unwrap();
    let file = File::create(TURN).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}

/// Namespaces that a lab has left.
pub(crate) fn left_behind() -> Vec<String> {
    leftovers(&Machine::here())
}

/// Builds a command of the program with these arguments.
pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments.split_whitespace());
    command
}

/// Runs a command of the program to its end.
pub(crate) fn output(mut command: Command) -> Output {
    command.output().unwrap()
}

/// Result of a run of the program.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) json: Value,
}

impl Run {
    /// Runs a measurement to its end.
    pub(crate) fn of(arguments: &str) -> Self {
        Self::new(&output(command(&format!("{arguments} --json -"))))
    }

    pub(crate) fn new(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let json = serde_json::from_str(&text).unwrap_or_else(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            panic!("{error} in {text:?}; the program said {said}")
        });
        let code = output.status.code();
        Self { code, json }
    }

    pub(crate) fn text(&self, pointer: &str) -> &str {
        let value = self.json.pointer(pointer);
        value.and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn number(&self, pointer: &str) -> u64 {
        let value = self.json.pointer(pointer);
        value
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no {pointer} in {:#}", self.json))
    }

    /// Returns the trials of a measurement, of which there is at least one.
    pub(crate) fn trials(&self) -> &[Value] {
        match self.json["trials"].as_array() {
            Some(trials) if !trials.is_empty() => trials,
            _ => panic!("no trials: {:#}", self.json),
        }
    }

    /// Returns whether the notes of the trial contain this text.
    pub(crate) fn notes(&self, what: &str) -> bool {
        self.json["notes"].to_string().contains(what)
    }
}

/// A running measurement, which is ended with the test at the latest.
pub(crate) struct Underway {
    child: Child,
    /// Processes of its DUT.
    pub(crate) servers: Vec<u32>,
}

impl Underway {
    /// Starts the measurement and waits until a trial of the DUT `server` is in progress.
    pub(crate) fn start(server: &str, arguments: &str) -> Self {
        until("was a trial in progress", || Self::begin(server, arguments))
    }

    /// Like `start`. `None` if the measurement ends before the test sees a trial: the machine was too busy for one of them.
    #[expect(clippy::print_stderr, reason = "for the log of a failed check")]
    fn begin(server: &str, arguments: &str) -> Option<Self> {
        let mut command = command(&format!("{arguments} --json -"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut underway = Self {
            child: command.spawn().unwrap(),
            servers: Vec::new(),
        };
        let mut ended = false;
        let asked = process::wait_until(BUSY_MAX, || {
            ended = underway.child.try_wait().unwrap().is_some();
            underway.servers = underway.processes(server);
            // No probe sends as many.
            ended || underway.servers.iter().any(|&pid| received(pid) > 300)
        });
        assert!(
            asked,
            "the machine is too busy for this test: no trial for minutes"
        );
        if !ended {
            return Some(underway);
        }
        let Output {
            status,
            stdout,
            stderr,
        } = underway.output();
        let [stdout, stderr] = [&stdout, &stderr].map(|it| String::from_utf8_lossy(it));
        eprintln!("no trial of {arguments}: {status}, {stderr}{stdout}");
        let is_result = matches!(status.code(), Some(0 | 1 | 3));
        assert!(is_result, "neither passed, failed nor invalid: {status}");
        None
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processes of the measurement whose names begin with `name`.
    pub(crate) fn processes(&self, name: &str) -> Vec<u32> {
        let mut pids = process::tree(self.pid());
        pids.retain(|&pid| comm(pid).starts_with(name));
        pids
    }

    /// Kills it with SIGKILL, so that it cannot clean up.
    pub(crate) fn crash(&mut self) {
        process::kill(&mut self.child);
    }

    pub(crate) fn output(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        std::io::Read::read_to_end(self.child.stdout.as_mut().unwrap(), &mut stdout).unwrap();
        std::io::Read::read_to_end(self.child.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        Output {
            status: self.child.wait().unwrap(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            process::signal(self.child.id(), Signal::TERM);
            if process::wait(&mut self.child, MINUTE).is_none() {
                process::kill(&mut self.child);
            }
        }
    }
}

/// Name of a running process; empty if there is none.
pub(crate) fn comm(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// Number of IPv6 datagrams received in the network of this process.
pub(crate) fn received(pid: u32) -> u64 {
    let counters = fs::read_to_string(format!("/proc/{pid}/net/snmp6")).unwrap_or_default();
    counters
        .lines()
        .find_map(|line| line.strip_prefix("Udp6InDatagrams"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Returns those of the processes that still run.
pub(crate) fn alive(pids: &[u32]) -> Vec<u32> {
    let exists = |pid: &&u32| Path::new(&format!("/proc/{pid}/exe")).exists();
    pids.iter().filter(exists).copied().collect()
}

/// Directories of servers that the process `pid` started.
pub(crate) fn workdirs(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/dns64bench") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.contains(&format!(".{pid}.")))
        .collect()
}
