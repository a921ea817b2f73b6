//! Upstreams: what each does with a question, now.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::Rcode;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::truth;

pub(crate) const SERVERS: usize = 3;

const MILLISECOND: Nanos = SECOND / 1000;

/// How long the gateway waits for an upstream.
const CONNECTION_NS: Nanos = 4 * SECOND;

/// The behaviour of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Healthy,
    Slow,
    Silent,
    /// Loses a third.
    Lossy,
    /// Nobody listens at its port.
    Refusing,
    Failing,
    /// Answers over connections only.
    Truncating,
    /// The same, and its connections stall.
    Stalled,
    /// Others guess IDs before each answer, which has a record that nobody asked for.
    Hostile,
    /// Most of what it sends is no answer.
    Mad,
}

impl Mode {
    pub(crate) const BAD: [Self; 9] = [
        Self::Slow,
        Self::Silent,
        Self::Lossy,
        Self::Refusing,
        Self::Failing,
        Self::Truncating,
        Self::Stalled,
        Self::Hostile,
        Self::Mad,
    ];
}

/// What arrives for a question.
pub(crate) enum Sent {
    Truth(Vec<u8>),
    Other(Vec<u8>),
    /// An error of the network or of the connection.
    Failure,
}

fn latency(mode: Mode, random: &mut StdRng) -> Nanos {
    match mode {
        Mode::Slow => random.random_range(300..2500) * MILLISECOND,
        _ => random.random_range(4..40) * MILLISECOND,
    }
}

/// What an upstream sends over UDP, each after this time.
pub(crate) fn over_udp(mode: Mode, question: &[u8], random: &mut StdRng) -> Vec<(Nanos, Sent)> {
    let after = latency(mode, random);
    let one = |sent| vec![(after, sent)];
    let (name, _) = truth::asked(question);
    match mode {
        Mode::Refusing => one(Sent::Failure),
        _ if name >= truth::DEAD => Vec::new(),
        Mode::Healthy | Mode::Slow => one(Sent::Truth(truth::answer(question, false))),
        Mode::Lossy if random.random_range(0..3) > 0 => {
            one(Sent::Truth(truth::answer(question, false)))
        }
        Mode::Silent | Mode::Lossy => Vec::new(),
        Mode::Failing => one(Sent::Other(truth::bare(question, Rcode::SERVFAIL, false))),
        Mode::Truncating | Mode::Stalled => {
            one(Sent::Other(truth::bare(question, Rcode::NOERROR, true)))
        }
        Mode::Hostile => {
            let guess = |_| {
                let mut forged = truth::forged(question);
                // Who guesses long enough guesses right; who does not see the question rarely does.
                forged[random.random_range(0..2)] ^= random.random_range(1..=u8::MAX);
                (after / 2, Sent::Other(forged))
            };
            let guesses: Vec<_> = (0..3).map(guess).collect();
            let truth = (after, Sent::Truth(truth::answer(question, true)));
            guesses.into_iter().chain([truth]).collect()
        }
        Mode::Mad => vec![
            (after / 2, Sent::Other(nonsense(question, random))),
            (after, Sent::Truth(truth::answer(question, true))),
        ],
    }
}

fn nonsense(question: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut reply = truth::answer(question, false);
    match random.random_range(0..5) {
        0 => reply.truncate(random.random_range(0..reply.len())),
        1 => reply = truth::bare(question, Rcode::FORMERR, false)[..12].to_vec(),
        2 => reply[14] ^= 1,
        3 => reply[2] &= 0x7f,
        _ => {
            reply = (0..random.random_range(0..600))
                .map(|_| random.random())
                .collect()
        }
    }
    reply
}

/// What it sends over a connection, after this time.
pub(crate) fn over_connection(mode: Mode, question: &[u8], random: &mut StdRng) -> (Nanos, Sent) {
    let after = 2 * latency(mode, random);
    let (name, _) = truth::asked(question);
    match mode {
        Mode::Refusing => (after, Sent::Failure),
        Mode::Silent | Mode::Stalled => (CONNECTION_NS, Sent::Failure),
        _ if name >= truth::DEAD => (CONNECTION_NS, Sent::Failure),
        Mode::Failing => (
            after,
            Sent::Other(truth::bare(question, Rcode::SERVFAIL, false)),
        ),
        _ => (after, Sent::Truth(truth::answer(question, false))),
    }
}
