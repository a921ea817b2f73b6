//! Runs the built program with a time limit.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dns64bench::cli::exit;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::accounts::{assert_accounted, code_of, is_disturbed};

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output, which must consist of one JSON object.
    pub(crate) fn json(&self) -> Value {
        let value: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert!(value.is_object(), "{self:?}");
        value
    }
}

/// Time limit: longer than any run of these tests takes on a busy machine.
const RUN_MAX: Duration = Duration::from_secs(300);

/// Attempts of a measurement that other processes disturb.
const ATTEMPTS: u32 = 3;

/// Serialises the trials: two senders at once would delay each other on a small machine.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the program with the words of `line` as its arguments.
pub(crate) fn start(line: &str) -> Child {
    start_in(".".as_ref(), line)
}

/// The same in a directory.
pub(crate) fn start_in(directory: &Path, line: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_dns64bench"))
        .args(line.split_whitespace())
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the program to its end.
pub(crate) fn run(line: &str) -> Ran {
    finish(start(line), line)
}

/// The same in a directory.
pub(crate) fn run_in(directory: &Path, line: &str) -> Ran {
    finish(start_in(directory, line), line)
}

/// Waits for a started program.
pub(crate) fn finish(child: Child, line: &str) -> Ran {
    let pid = pid(&child);
    let (done, ended) = channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(RUN_MAX) else {
        let _ = kill_process(pid, Signal::KILL);
        panic!("dns64bench {line} did not end within {RUN_MAX:?}");
    };
    let Output {
        status,
        stdout,
        stderr,
    } = output.unwrap();
    Ran {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// Sends SIGINT, as Ctrl-C does.
pub(crate) fn interrupt(child: &Child) {
    kill_process(pid(child), Signal::INT).unwrap();
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap()).unwrap()
}

/// Repeats a measurement that other processes disturbed. If every attempt was disturbed, the last one is returned and
/// says so: tests may then assert only its counts.
pub(crate) fn measured(mut measure: impl FnMut() -> Ran) -> Ran {
    let _turn = turn();
    let mut ran = measure();
    for _ in 1..ATTEMPTS {
        if ran.code != Some(exit::TESTER.into()) {
            break;
        }
        ran = measure();
    }
    ran
}

/// Asserts that the trial is accounted for and has this outcome, unless other processes disturbed it.
pub(crate) fn assert_outcome(ran: &Ran, outcome: &str) -> Value {
    let json = ran.json();
    assert_accounted(&json);
    assert_eq!(ran.code, code_of(&json), "{ran:?}");
    let is_so = json["outcome"] == outcome;
    assert!(is_so || is_disturbed(&json), "not {outcome}: {json:#}");
    json
}

/// `-s ADDR -p PORT`.
pub(crate) fn server(address: SocketAddr) -> String {
    format!("-s {} -p {}", address.ip(), address.port())
}
