use std::io::{PipeReader, PipeWriter, pipe};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::*;
use crate::agent::handshake::About;

/// Echoes requests; the request "wait" waits for an interrupt.
struct Echo {
    interrupted: Arc<AtomicBool>,
    /// Notified when a waiting request has started.
    waits: Sender<()>,
}

impl Work for Echo {
    type Request = String;
    type Reply = String;

    fn handle(&mut self, request: String) -> String {
        if request == "wait" {
            self.waits.send(()).unwrap();
            while !self.interrupted.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        request
    }
}

type Call = super::Call<String>;
type Answer = super::Answer<String>;

/// An agent on a thread, and the other ends of its pipes.
struct Agent {
    input: Option<PipeWriter>,
    output: PipeReader,
    interrupted: Arc<AtomicBool>,
    waits: Receiver<()>,
    thread: JoinHandle<Result<(), LabError>>,
}

fn welcome() -> Welcome {
    Welcome {
        version: VERSION,
        tester: "test".into(),
        sha256: None,
        host: About::default(),
    }
}

impl Agent {
    fn start(answer: Result<Welcome, AgentRefusal>) -> Self {
        let (agent_input, input) = pipe().unwrap();
        let (output, agent_output) = pipe().unwrap();
        let interrupted = Arc::new(AtomicBool::new(false));
        let (begun, waits) = channel();
        let flag = Arc::clone(&interrupted);
        let thread = std::thread::spawn(move || {
            let mut echo = Echo {
                interrupted: Arc::clone(&flag),
                waits: begun,
            };
            serve(agent_input, agent_output, flag, |_| answer, &mut echo)
        });
        Self {
            input: Some(input),
            output,
            interrupted,
            waits,
            thread,
        }
    }

    /// Starts an agent and does the handshake.
    fn greeted() -> Self {
        let mut agent = Self::start(Ok(welcome()));
        agent.call(&Call::Hello(Hello::new("c")));
        assert_eq!(agent.answer(), Answer::Welcome(welcome()));
        agent
    }

    fn call(&mut self, call: &impl Serialize) {
        frame::write(self.input.as_mut().unwrap(), call).unwrap();
    }

    fn request(&mut self, id: u64, request: &str) {
        let request = request.to_owned();
        self.call(&Call::Request { id, request });
    }

    fn answer(&mut self) -> Answer {
        frame::decode(&frame::read(&mut self.output).unwrap().unwrap()).unwrap()
    }

    /// Closes the connection and waits for the agent's end.
    fn end(mut self) -> Result<(), LabError> {
        self.input = None;
        self.thread.join().unwrap()
    }

    /// Waits for the agent to end by itself; returns its error.
    fn fault(self) -> String {
        let ended = self.thread.join().unwrap();
        ended.unwrap_err().to_string()
    }
}

#[test]
fn requests_are_answered_in_order_with_their_ids() {
    let mut agent = Agent::greeted();
    let requests = [(5, "one"), (6, "two")];
    for (id, request) in requests {
        agent.request(id, request);
    }
    for (id, request) in requests {
        let reply = request.to_owned();
        assert_eq!(agent.answer(), Answer::Done { id, reply });
    }
    assert!(agent.end().is_ok());
}

#[test]
fn clock_is_read_on_arrival_and_before_the_answer() {
    let mut agent = Agent::greeted();
    let before = MonotonicClock.now();
    agent.call(&Call::Clock { id: 9 });
    let Answer::Clock {
        id,
        received_ns,
        sent_ns,
    } = agent.answer()
    else {
        panic!("not a clock");
    };
    let after = MonotonicClock.now();
    assert_eq!(id, 9);
    assert!(before <= received_ns && received_ns <= sent_ns && sent_ns <= after);
}

#[test]
fn end_of_input_interrupts_a_running_request() {
    let mut agent = Agent::greeted();
    agent.request(1, "wait");
    agent.waits.recv().unwrap();
    let interrupted = Arc::clone(&agent.interrupted);
    assert!(!interrupted.load(Ordering::Relaxed));
    // Its answer is written into a pipe that is still open.
    assert!(agent.end().is_ok());
    assert!(interrupted.load(Ordering::Relaxed));
}

#[test]
fn interrupt_ends_the_agent_while_the_controller_is_connected() {
    let agent = Agent::greeted();
    agent.interrupted.store(true, Ordering::Relaxed);
    assert!(agent.thread.join().unwrap().is_ok());
}

#[test]
fn other_protocol_version_is_refused_before_admission() {
    let mut agent = Agent::start(Ok(welcome()));
    let hello = Hello {
        version: VERSION + 1,
        ..Hello::new("c")
    };
    agent.call(&Call::Hello(hello));
    let Answer::Refused(AgentRefusal::Version { version, .. }) = agent.answer() else {
        panic!("not refused");
    };
    assert_eq!(version, VERSION);
    let said = agent.fault();
    assert!(said.contains("another protocol version"), "{said}");
}

#[test]
fn host_in_use_is_refused_with_the_name_of_its_user() {
    let refusal = AgentRefusal::InUse { by: "alice".into() };
    let mut agent = Agent::start(Err(refusal.clone()));
    agent.call(&Call::Hello(Hello::new("c")));
    assert_eq!(agent.answer(), Answer::Refused(refusal));
    assert_eq!(agent.fault(), "the host is in use by alice");
}

#[test]
fn message_that_is_not_a_call_ends_the_agent() {
    let mut early = Agent::start(Ok(welcome()));
    early.call(&Call::Clock { id: 1 });
    assert!(early.fault().contains("the first call is not a hello"));

    let mut again = Agent::greeted();
    again.call(&Call::Hello(Hello::new("c")));
    assert!(again.fault().contains("a second hello"));

    let mut text = Agent::greeted();
    text.call(&"dance");
    assert!(text.fault().contains("not a call: unknown variant `dance`"));

    let mut garbage = Agent::greeted();
    garbage
        .input
        .as_mut()
        .unwrap()
        .write_all(b"GET / HTTP/1.1\r\n")
        .unwrap();
    assert!(garbage.fault().contains("invalid frame length"));

    let mut cut = Agent::greeted();
    cut.input
        .as_mut()
        .unwrap()
        .write_all(&[0, 0, 0, 0, 0, 0, 0, 5, 9])
        .unwrap();
    let said = cut.end().unwrap_err().to_string();
    assert!(said.contains("after 9 of the 13 octets"), "{said}");
}

#[test]
fn too_many_waiting_calls_end_the_agent() {
    let mut agent = Agent::greeted();
    agent.request(1, "wait");
    agent.waits.recv().unwrap();
    for id in 2..=WAITING_MAX as u64 + 2 {
        agent.call(&Call::Clock { id });
    }
    assert!(matches!(agent.answer(), Answer::Done { id: 1, .. }));
    assert!(agent.interrupted.load(Ordering::Relaxed));
}
