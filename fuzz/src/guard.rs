//! Checks that hold for any octets from a client. The fuzz target `guard` and the test that replays
//! its corpus use them.
//!
//! An input is an octet that selects the client, the transport and the settings, and then the
//! message.

use std::net::{IpAddr, Ipv4Addr};

use dns64_wire::message::{HEADER_LEN, Message};
use dns64_wire::name::{NAME_LEN_MAX, POINTERS_MAX};
use dns64d::answer::asker::{Asker, Transport};
use dns64d::answer::cookie::Cookies;
use dns64d::answer::guard::{Admission, Context, PLAIN_UDP_LEN_MAX, Refusal, admit};
use dns64d::settings::cookies::CookieSecrets;
use dns64d::settings::nets::NetSet;
use dns64d::settings::{AnyPolicy, DenyAction, Identity, ShortText};

/// Octets that are read of a message from a client outside the access list.
const STRANGER_LEN: usize = 512;

/// Largest number of records in a query that is served: OPT and a signature.
const RECORDS_MAX: usize = 2;

/// Number of labels and pointers of the longest name, with its root label.
const NAME_STEPS_MAX: usize = NAME_LEN_MAX / 2 + POINTERS_MAX + 1;

/// Passes the message to the guard and panics if a property is violated.
pub(crate) fn check(bytes: &[u8]) {
    let Some((choices, message)) = bytes.split_first() else {
        return;
    };
    let allow = NetSet::new(vec!["192.0.2.0/24".parse().expect("a network")]);
    let cookies = Cookies::new(CookieSecrets::own([7; 16]));
    let identity = Identity {
        id: ShortText::new("dns1").expect("short"),
        version: ShortText::NONE,
    };
    let is_stranger = choices & 1 != 0;
    let context = Context {
        allow: &allow,
        deny: [DenyAction::Refuse, DenyAction::Drop][usize::from(choices >> 1 & 1)],
        udp_size: [512, 1232, 4096][usize::from(choices >> 2 & 3) % 3],
        any: [AnyPolicy::Minimal, AnyPolicy::Forward, AnyPolicy::Refuse]
            [usize::from(choices >> 4 & 3) % 3],
        identity: &identity,
        idle_ns: 10_000_000_000,
        cookies: &cookies,
        client: IpAddr::V4(if is_stranger {
            Ipv4Addr::new(198, 51, 100, 1)
        } else {
            Ipv4Addr::new(192, 0, 2, 1)
        }),
        transport: [
            Transport::Udp,
            Transport::Tcp,
            Transport::Udp,
            Transport::Tls,
        ][usize::from(choices >> 6)],
        now_s: 1_000_000,
    };
    let (admission, answer) = judge(message, &context);
    match &admission {
        Admission::Asker(asker) => {
            assert!(!is_stranger, "a client outside the access list is served");
            check_asker(asker, message, &context);
        }
        Admission::Answer { refused, .. } => {
            check_answer(&answer, message);
            let access = *refused == Some(Refusal::Access);
            assert!(!is_stranger || access, "{refused:?}");
        }
        Admission::Drop(_) => assert!(answer.is_empty()),
    }
    if is_stranger && message.len() > STRANGER_LEN {
        let (seen, rest) = message.split_at(STRANGER_LEN);
        let other: Vec<u8> = rest.iter().map(|octet| !octet).collect();
        assert_eq!(judge(&[seen, &other].concat(), &context).1, answer);
        assert_eq!(judge(seen, &context).1, answer, "more octets are read");
    }
}

/// The outcome for a message, and the response if there is one.
fn judge(message: &[u8], context: &Context<'_>) -> (Admission, Vec<u8>) {
    let mut frame = [0xee; PLAIN_UDP_LEN_MAX as usize];
    let admission = admit(message, context, &mut frame);
    let len = match admission {
        Admission::Answer { len, .. } => len,
        _ => 0,
    };
    assert!(frame[len..].iter().all(|octet| *octet == 0xee));
    (admission, frame[..len].to_vec())
}

/// Checks that a query that is served has one question and at most two records, whatever its
/// length, so that reading it has a constant cost.
fn check_asker(asker: &Asker, bytes: &[u8], context: &Context<'_>) {
    let message = Message::parse(bytes).expect("it was read");
    let question = message.question().expect("it has a question");
    assert!(question.name.eq_ignore_case(&asker.name.as_name()));
    assert_eq!((question.rtype, asker.id), (asker.rtype, message.id()));
    let mut records = message.records();
    assert!(records.by_ref().count() <= RECORDS_MAX);
    let steps = records.steps();
    assert!(steps <= RECORDS_MAX * NAME_STEPS_MAX, "{steps} steps");
    match context.transport {
        Transport::Udp => assert!((512..=context.udp_size.into()).contains(&asker.limit)),
        Transport::Tcp | Transport::Tls => assert_eq!(asker.limit, 65_535),
    }
}

/// Checks that a response belongs to this message, parses, and is shorter than any client's limit.
fn check_answer(answer: &[u8], query: &[u8]) {
    let message = Message::parse(answer).expect("an answer parses");
    assert!(message.qr() && answer[..2] == query[..2]);
    assert!(query[2] & 0x80 == 0, "an answer to an answer");
    assert!(message.records().all(|record| record.is_ok()));
    match message.question() {
        Some(question) => assert_eq!(answer[question.range()], query[question.range()]),
        None => assert!(answer.len() >= HEADER_LEN),
    }
}
