use std::io::{PipeReader, PipeWriter, Write as _, pipe};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};

use super::*;
use crate::agent::handshake::About;
use crate::agent::serve::{Work, serve};

/// A link over these two streams in place of a process, once the agent at their other end has admitted it.
pub(crate) fn over(
    host: &str,
    input: impl Into<OwnedFd>,
    output: impl Into<OwnedFd>,
    options: &Options,
) -> Result<AgentLink, LinkError> {
    let mut link = AgentLink::new(host, &Reach::Local, input, output, options).unwrap();
    link.greet(options)?;
    Ok(link)
}

/// Both ends in one process.
struct Echo;

impl Work for Echo {
    type Request = Value;
    type Reply = Value;

    fn handle(&mut self, request: Value) -> Value {
        request
    }
}

/// An answer to requests of any type.
type Answer = super::Answer<Value>;

fn welcome() -> Welcome {
    Welcome {
        version: VERSION,
        tester: "test".into(),
        sha256: None,
        host: About::default(),
    }
}

fn options() -> Options {
    let mut options = Options::new("test");
    options.open_limit_ns = 60 * SECOND;
    options
}

/// A link to an agent that is served on a thread.
fn linked() -> AgentLink {
    let (agent_input, output) = pipe().unwrap();
    let (input, agent_output) = pipe().unwrap();
    std::thread::spawn(move || {
        let interrupted = Arc::new(AtomicBool::new(false));
        serve(
            agent_input,
            agent_output,
            interrupted,
            |_| Ok(welcome()),
            &mut Echo,
        )
    });
    over("gen1", input, output, &options()).unwrap()
}

/// A link whose other end is controlled by the test, after the handshake.
fn held() -> (AgentLink, PipeReader, PipeWriter) {
    let (agent_input, output) = pipe().unwrap();
    let (input, mut agent_output) = pipe().unwrap();
    say(&mut agent_output, &Answer::Welcome(welcome()));
    let link = over("gen1", input, output, &options()).unwrap();
    (link, agent_input, agent_output)
}

fn say(to: &mut PipeWriter, answer: &Answer) {
    frame::write(to, answer).unwrap();
}

/// Result of a handshake in which the other end sends these octets and closes the stream.
fn greeted_by(octets: &[u8]) -> Trouble {
    let (_agent_input, output) = pipe().unwrap();
    let (input, mut agent_output) = pipe().unwrap();
    agent_output.write_all(octets).unwrap();
    drop(agent_output);
    over("gen1", input, output, &options()).unwrap_err().trouble
}

const LIMIT: Nanos = 60 * SECOND;

#[test]
fn requests_return_with_their_replies() {
    let mut link = linked();
    assert_eq!(link.welcome(), &welcome());
    // More than a pipe holds.
    let numbers: Vec<u32> = (0..100_000).collect();
    assert_eq!(link.ask::<_, Vec<u32>>(&numbers, LIMIT).unwrap(), numbers);
    assert_eq!(link.ask::<_, String>(&"x", LIMIT).unwrap(), "x");
    assert!(link.alive());
}

#[test]
fn four_timestamps_are_in_order_on_one_clock() {
    let mut link = linked();
    let it = link.clock_exchange().unwrap();
    assert!(
        it.t0_ns <= it.t1_ns && it.t1_ns <= it.t2_ns && it.t2_ns <= it.t3_ns,
        "{it:?}"
    );
}

#[test]
fn silent_agent_closes_the_link_and_later_requests_give_the_reason() {
    let (mut link, _agent_input, _agent_output) = held();
    let error = link.ask::<_, Value>(&"x", SECOND / 50).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Silent { limit_ns, .. } if limit_ns == SECOND / 50));
    assert!(
        error
            .to_string()
            .starts_with("host gen1: no answer within 20 ms"),
        "{error}"
    );
    assert!(!link.alive());
    assert_eq!(link.ask::<_, Value>(&"x", LIMIT).unwrap_err(), error);
    assert_eq!(link.clock_exchange().unwrap_err(), error);
}

#[test]
fn agent_that_does_not_read_closes_the_link() {
    let (mut link, _agent_input, _agent_output) = held();
    // More than a pipe holds (pipe(7): 64 KiB).
    let long = "x".repeat(1 << 19);
    let error = link.ask::<_, Value>(&long, SECOND / 50).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Silent { .. }), "{error}");
}

#[test]
fn end_of_the_agent_is_detected() {
    let (mut link, agent_input, agent_output) = held();
    drop((agent_input, agent_output));
    let error = link.ask::<_, Value>(&"x", LIMIT).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Died { .. }), "{error}");
    let (mut link, _agent_input, mut agent_output) = held();
    agent_output
        .write_all(&[0, 0, 0, 0, 0, 0, 0, 9, 1])
        .unwrap();
    drop(agent_output);
    let error = link.ask::<_, Value>(&"x", LIMIT).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Died { .. }), "{error}");
}

#[test]
fn answer_to_another_call_violates_the_protocol() {
    for wrong in [
        Answer::Done {
            id: 2,
            reply: json!([]),
        },
        Answer::Clock {
            id: 1,
            received_ns: 0,
            sent_ns: 0,
        },
        Answer::Welcome(welcome()),
        // The reply has another type than requested.
        Answer::Done {
            id: 1,
            reply: json!("text"),
        },
    ] {
        let (mut link, _agent_input, mut agent_output) = held();
        say(&mut agent_output, &wrong);
        let error = link.ask::<_, Vec<u8>>(&"x", LIMIT).unwrap_err();
        assert!(
            matches!(error.trouble, Trouble::Protocol(_)),
            "{wrong:?}: {error}"
        );
        assert!(!link.alive());
    }
}

#[test]
fn output_before_the_first_frame_is_shown() {
    let trouble = greeted_by(b"Welcome to gen1!\nHave a nice day\n");
    assert_eq!(
        trouble,
        Trouble::Garbage("Welcome to gen1!?Have a nice day".into())
    );
    // Neither text nor a frame.
    assert!(matches!(greeted_by(&[9; 9]), Trouble::Garbage(_)));
    assert!(matches!(greeted_by(b""), Trouble::Died { .. }));
    assert!(matches!(greeted_by(&[0, 0]), Trouble::Died { .. }));
}

#[test]
fn refusals_and_version_mismatches_are_distinguished() {
    let octets = |answer: &Answer| frame::encode(answer).unwrap();
    let by = "alice@ctl, PID 7".to_owned();
    let in_use = Answer::Refused(AgentRefusal::InUse { by: by.clone() });
    assert_eq!(
        greeted_by(&octets(&in_use)),
        Trouble::Refused(AgentRefusal::InUse { by })
    );
    let (version, tester) = (VERSION + 1, "dns64bench 9".to_owned());
    let other = Trouble::Refused(AgentRefusal::Version {
        version,
        tester: tester.clone(),
    });
    let refused = Answer::Refused(AgentRefusal::Version {
        version,
        tester: tester.clone(),
    });
    assert_eq!(greeted_by(&octets(&refused)), other);
    let newer = Welcome {
        version,
        tester,
        ..welcome()
    };
    assert_eq!(greeted_by(&octets(&Answer::Welcome(newer))), other);
}
