//! `agent` as a process: admission of controllers, ways to end, and no leftovers.
//!
//! Only one agent runs on a machine at a time, so these tests wait for agents of others.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::agent::frame;
use dns64bench::agent::handshake::{AgentRefusal, Answer, Call, Hello, VERSION};
use dns64bench::agent::link::AgentLink;
use dns64bench::agent::ssh::Options;
use dns64bench::agent::trouble::Trouble;
use dns64bench::lab::hosts::Reach;
use dns64bench::machine::process;
use dns64bench::post::{Reply, Request};
use rustix::process::Signal;

use super::busy::{BUSY_MAX, until};
use super::program::run;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64bench");

/// Environment variable of an agent and of all processes that it starts; the value identifies the agent.
const MARK: &str = "DNS64BENCH_TEST_AGENT";

/// Serialises the tests of this program: they share one agent.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options for a controller with this description and the agent of this build.
pub(crate) fn options(controller: &str) -> Options {
    let mut options = Options::new("tests");
    controller.clone_into(&mut options.controller);
    options.program = Some(PROGRAM.to_owned());
    options.open_limit_ns = BUSY_MAX;
    options
}

/// Retries `open` until no other controller's agent runs on the machine.
pub(crate) fn linked(
    mut open: impl FnMut() -> Result<AgentLink, dns64bench::agent::trouble::LinkError>,
) -> AgentLink {
    until("was there no other agent", || match open() {
        Ok(link) => Some(link),
        Err(error) => {
            assert!(
                matches!(error.trouble, Trouble::Refused(AgentRefusal::InUse { .. })),
                "{error}"
            );
            None
        }
    })
}

/// An agent started directly, without a controller.
struct Agent {
    child: Child,
    input: Option<PipeWriter>,
    output: PipeReader,
    mark: String,
}

impl Agent {
    fn start(mark: &str) -> Self {
        let mark = format!("{mark}-{}", std::process::id());
        let (agent_input, input) = std::io::pipe().unwrap();
        let (output, agent_output) = std::io::pipe().unwrap();
        let child = Command::new(PROGRAM)
            .arg("agent")
            .env(MARK, &mark)
            .stdin(agent_input)
            .stdout(agent_output)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            child,
            input: Some(input),
            output,
            mark,
        }
    }

    /// Starts an agent that has admitted this test.
    fn admitted(mark: &str) -> Self {
        until("was there no other agent", || {
            let mut agent = Self::start(mark);
            match agent.greet(Hello::new(mark)) {
                Answer::Welcome(_) => Some(agent),
                Answer::Refused(AgentRefusal::InUse { .. }) => None,
                other => panic!("{other:?}"),
            }
        })
    }

    fn greet(&mut self, hello: Hello) -> Answer<Reply> {
        self.call(&Call::Hello(hello));
        self.answer()
    }

    fn call(&mut self, call: &Call<Request>) {
        frame::write(self.input.as_mut().unwrap(), call).unwrap();
    }

    fn answer(&mut self) -> Answer<Reply> {
        frame::decode(&frame::read(&mut self.output).unwrap().unwrap()).unwrap()
    }

    /// Process ID of the inner process.
    fn inner(&self) -> u32 {
        let tree = process::tree(self.child.id());
        assert_eq!(tree.len(), 2, "{tree:?}");
        tree[1]
    }

    /// Exit code and standard error, once all its processes have ended.
    fn end(mut self) -> (Option<i32>, String) {
        let status = process::wait(&mut self.child, BUSY_MAX).expect("the agent ends");
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        self.assert_gone();
        (status.code(), said)
    }

    fn assert_gone(&self) {
        process::wait_until(BUSY_MAX, || marked(&self.mark).is_empty());
        assert_eq!(marked(&self.mark), Vec::<PathBuf>::new());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.input = None;
        if process::wait(&mut self.child, BUSY_MAX).is_none() {
            process::kill(&mut self.child);
        }
    }
}

/// Processes with this mark in their environment.
fn marked(mark: &str) -> Vec<PathBuf> {
    let entry = format!("{MARK}={mark}");
    let has_it = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment
            .split(|&octet| octet == 0)
            .any(|it| it == entry.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.map(|process| process.path());
    processes.filter(|process| has_it(process)).collect()
}

#[test]
fn controller_is_admitted_and_receives_facts_about_the_host() {
    let _turn = turn();
    let options = options("alice");
    let mut link = linked(|| AgentLink::open("here", &Reach::Local, false, &options));
    assert!(link.alive());
    assert_eq!(link.welcome().tester, dns64bench::PROGRAM);
    assert_eq!(link.welcome().sha256.as_ref().unwrap().len(), 64);
    let Reply::Facts(facts) = link.ask(&Request::Facts, BUSY_MAX).unwrap() else {
        panic!("no facts");
    };
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(facts.identity.host.boot_id, boot_id.trim());
    // Both clocks are the same one.
    let it = link.clock_exchange().unwrap();
    assert!(
        it.t0_ns <= it.t1_ns && it.t1_ns <= it.t2_ns && it.t2_ns <= it.t3_ns,
        "{it:?}"
    );
    // Another build would have been refused at the handshake.
    let error = link.ask::<_, Reply>(&"dance", BUSY_MAX).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Died { .. }), "{error:?}");
}

#[test]
fn second_agent_is_refused_with_the_name_of_the_first_controller() {
    let _turn = turn();
    let (first, second) = (options("alice@ctl, PID 7, plan x"), options("bob"));
    let link = linked(|| AgentLink::open("here", &Reach::Local, false, &first));
    let error = AgentLink::open("here", &Reach::Local, false, &second).unwrap_err();
    let text = error.to_string();
    let expected = "host here: in use by alice@ctl, PID 7, plan x (agent with PID ";
    assert!(text.starts_with(expected), "{text}");
    drop(link);
    // Free once the first link has ended, unless another controller took the host.
    drop(linked(|| {
        AgentLink::open("here", &Reach::Local, false, &second)
    }));
}

#[test]
fn other_protocol_version_is_refused_before_the_lock_is_taken() {
    let _turn = turn();
    let mut agent = Agent::start("version");
    let hello = Hello {
        version: VERSION + 1,
        ..Hello::new("later")
    };
    let Answer::Refused(AgentRefusal::Version { version, tester }) = agent.greet(hello) else {
        panic!("not refused");
    };
    assert_eq!((version, tester.as_str()), (VERSION, dns64bench::PROGRAM));
    let (code, said) = agent.end();
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("another protocol version"), "{said}");
}

#[test]
fn input_that_is_not_a_frame_ends_it_with_a_message() {
    let _turn = turn();
    let mut agent = Agent::start("garbage");
    agent
        .input
        .as_mut()
        .unwrap()
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .unwrap();
    let (code, said) = agent.end();
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("invalid frame length"), "{said}");
}

#[test]
fn end_of_its_input_ends_it() {
    let _turn = turn();
    let early = run("agent");
    assert_eq!(
        (early.code, early.stdout.as_str(), early.stderr.as_str()),
        (Some(0), "", "")
    );
    let mut agent = Agent::admitted("end-of-input");
    agent.input = None;
    assert_eq!(agent.end(), (Some(0), String::new()));
}

#[test]
fn signal_ends_it() {
    let _turn = turn();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let agent = Agent::admitted("signal");
        process::signal(agent.child.id(), signal);
        assert_eq!(agent.end(), (Some(0), String::new()), "{signal:?}");
    }
}

#[test]
fn killed_inner_process_leaves_nothing_and_frees_the_host() {
    let _turn = turn();
    let agent = Agent::admitted("inner");
    process::signal(agent.inner(), Signal::KILL);
    let (code, said) = agent.end();
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("the agent was killed") && said.contains("signal: 9"),
        "{said}"
    );
    drop(Agent::admitted("after"));
}

#[test]
fn killed_outer_process_leaves_nothing() {
    let _turn = turn();
    let mut agent = Agent::admitted("outer");
    let inner = agent.inner();
    process::kill(&mut agent.child);
    agent.assert_gone();
    assert!(!Path::new(&format!("/proc/{inner}/exe")).exists());
}

#[test]
fn error_of_an_agent_that_dies_names_the_host() {
    let _turn = turn();
    let options = options("alice");
    let mut link = linked(|| AgentLink::open("gen1", &Reach::Local, false, &options));
    let tree = process::tree(std::process::id());
    let is_inner = |pid: &&u32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.contains("--inner")
    };
    process::signal(*tree.iter().find(is_inner).unwrap(), Signal::KILL);
    let error = link.ask::<_, Reply>(&Request::Facts, BUSY_MAX);
    let error = error.unwrap_err();
    assert!(matches!(error.trouble, Trouble::Died { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("host gen1: the agent ended (exit status: 4)"),
        "{text}"
    );
    assert!(text.contains("the agent was killed"), "{text}");
    assert!(!link.alive());
}

/// `script` provides a terminal for its command (script(1) of bsdutils, part of every Debian).
#[test]
fn terminal_as_input_is_refused_with_an_explanation() {
    let line = format!("{PROGRAM} agent");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]);
    let ended = process::run(&mut command, TERMINAL_LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    let told: Vec<_> = ended.stdout.split_whitespace().collect();
    assert!(told.join(" ").contains("is not for terminals"), "{ended:?}");
    assert!(
        ended.stdout.lines().all(|line| line.len() <= 80),
        "{ended:?}"
    );
}

const TERMINAL_LIMIT: Nanos = 300 * SECOND;
