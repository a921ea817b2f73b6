//! The off-path budget: how many forged packets it takes on average until one is accepted, computed from the ports, IDs,
//! case and cookies of the engine's questions in simulated time. `docs/security.md` has the figures, which the test
//! checks.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::Arc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::{FRAME_BYTES, Origin};
use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, Message};
use dns64_wire::name::NameBuf;
use dns64d::cache::Cache;
use dns64d::config;
use dns64d::engine::actions::{Action, Actions, Client};
use dns64d::engine::{Engine, Seeds};

/// Ports of a pool, and numbers that a port can have: 1024 to 65535.
const POOL: f64 = 4096.0;
const PORT_NUMBERS: f64 = 64_512.0;

/// Numbers of an ID.
const IDS: f64 = 65_536.0;

/// Letters of the names, whose case is random with `randomise-case`.
const LETTERS: u32 = 13;

/// Time from a question to its answer.
const RTT_NS: Nanos = 20_000_000;

/// One question of the engine to its upstream.
struct Question {
    port: usize,
    id: u16,
    message: Vec<u8>,
}

/// An engine with its clock, and its ports that are open.
struct World {
    engine: Engine,
    now: Nanos,
    open: HashSet<usize>,
    /// Answers, by the time at which they arrive.
    answers: VecDeque<(Nanos, usize, Vec<u8>)>,
    asked: Vec<Question>,
    open_max: usize,
}

impl World {
    fn new(keys: &str) -> Self {
        let settings = format!(
            "allow = [\"0.0.0.0/0\"]\nworkers = 1\n[upstream]\nservers = [\"192.0.2.53\"]\n{keys}"
        );
        let settings = config::parse(&settings, "test").unwrap();
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let seeds = Seeds {
            random: [5; 32],
            cookies: [6; 16],
        };
        Self {
            engine: Engine::new(&settings, cache, Arc::default(), &seeds),
            now: 1000 * SECOND,
            open: HashSet::new(),
            answers: VecDeque::new(),
            asked: Vec::new(),
            open_max: 0,
        }
    }

    /// One turn of a worker: answers that have arrived, then queries for new names.
    fn turn(&mut self, queries: usize) {
        let (mut actions, mut frame) = (Actions::default(), [0; FRAME_BYTES]);
        self.engine.on_timer(self.now, &mut actions);
        let waits = |answer: &&(Nanos, usize, Vec<u8>)| answer.0 > self.now;
        let arrived = self.answers.iter().take_while(|answer| !waits(answer));
        for (_, port, answer) in self.answers.drain(..arrived.count()) {
            self.engine
                .on_reply(0, port, &answer, self.now, &mut actions);
        }
        for number in self.asked.len()..self.asked.len() + queries {
            let client = Client::Udp(Origin::new(SocketAddr::from(([10, 0, 0, 1], 4000))));
            self.engine
                .on_query(client, &query(number), &mut frame, self.now, &mut actions);
        }
        for action in actions.list() {
            match action {
                Action::Ask { port, message, .. } => self.note(*port, actions.message(message)),
                Action::ClosePort { port, .. } => {
                    self.open.remove(port);
                }
                _ => {}
            }
        }
        self.open_max = self.open_max.max(self.open.len());
    }

    /// Time of the next answer or deadline.
    fn next_event(&self) -> Option<Nanos> {
        let answer = self.answers.front().map(|(at, ..)| *at);
        answer.into_iter().chain(self.engine.next_deadline()).min()
    }

    fn note(&mut self, port: usize, question: &[u8]) {
        self.open.insert(port);
        let message = question.to_vec();
        // NXDOMAIN, with the OPT record and the cookie of the question.
        let mut answer = message.clone();
        (answer[2], answer[3]) = (0x81, 0x83);
        self.answers.push_back((self.now + RTT_NS, port, answer));
        self.asked.push(Question {
            port,
            id: Message::parse(question).unwrap().id(),
            message,
        });
    }
}

/// A query for a name of its own, of [`LETTERS`] letters.
fn query(number: usize) -> Vec<u8> {
    let name: NameBuf = format!("www.{number}.example.net").parse().unwrap();
    let mut bytes = [0; 512];
    let mut builder = Builder::new(&mut bytes, 512).unwrap();
    builder.header(1, Flags::default().with_rd(true));
    builder.question(&name, Rtype::A, Class::IN).unwrap();
    let len = builder.finish();
    bytes[..len].to_vec()
}

/// Questions at a rate per 1,000 seconds, each of which is answered.
fn simulate(keys: &str, per_kilosecond: u64, questions: usize) -> World {
    let mut world = World::new(keys);
    // A worker turns for each query, and some hundred times a second when it has more to do.
    let queries = per_kilosecond.div_ceil(500_000);
    let interval = 1000 * SECOND * queries / per_kilosecond;
    while world.asked.len() < questions {
        world.turn(usize::try_from(queries).unwrap());
        let next = world.now + interval;
        while let Some(at) = world.next_event().filter(|at| *at < next) {
            world.now = at.max(world.now);
            world.turn(0);
        }
        world.now = next;
    }
    world
}

fn count(items: usize) -> f64 {
    f64::from(u32::try_from(items).unwrap())
}

/// The number of equally frequent values among which as many pairs are equal: what a guess is worth.
fn choices<T: Eq + Hash>(values: impl Iterator<Item = T>) -> f64 {
    let mut times: HashMap<T, f64> = HashMap::new();
    values.for_each(|value| *times.entry(value).or_default() += 1.0);
    let all: f64 = times.values().sum();
    let equal: f64 = times.values().map(|n| n * (n - 1.0)).sum();
    all * (all - 1.0) / equal
}

/// Whether a measured number of choices is the expected one. `bits` is four times the error of the samples.
fn agrees(measured: f64, expected: f64, bits: f64) -> bool {
    (measured.log2() - expected.log2()).abs() < bits
}

/// Checks that ports and IDs are drawn evenly, whatever was drawn before.
fn check_draws(asked: &[Question]) {
    let ports = choices(asked.iter().map(|question| question.port));
    // One in flight is not drawn again, so that there are slightly more.
    assert!(agrees(ports, POOL, 0.05), "{ports} ports");
    let ids = choices(asked.iter().map(|question| question.id));
    assert!(agrees(ids, IDS, 0.1), "{ids} IDs");
    // Neither a port nor an ID is known from the one before: high and low parts of successive ports are independent.
    for part in [|port: usize| port / 64, |port| port % 64] {
        let pairs = asked.windows(2);
        let parts = choices(pairs.map(|pair| (part(pair[0].port), part(pair[1].port))));
        assert!(agrees(parts, POOL, 0.05), "{parts} successions");
    }
    let steps = choices(asked.windows(2).map(|w| w[1].id.wrapping_sub(w[0].id)));
    assert!(agrees(steps, IDS, 0.1), "{steps} steps of IDs");
    // Nor is the time of the next use of a port: in a cycle, all would be the same.
    let mut last = HashMap::new();
    let uses = (0..).zip(asked);
    let gaps = uses.filter_map(|(at, question)| Some(at - last.insert(question.port, at)?));
    let gaps = choices(gaps);
    assert!(gaps > POOL, "{gaps} times of use");
}

/// Bits that the case of a name adds: letters that are in each case about as often.
fn case_bits(asked: &[Question]) -> u32 {
    let letters = asked.iter().map(|question| {
        let name = Message::parse(&question.message).unwrap();
        let text = name.question().unwrap().name.to_buf().to_string();
        let letters = text.chars().filter(char::is_ascii_alphabetic);
        letters.map(|c| c.is_ascii_uppercase()).collect::<Vec<_>>()
    });
    let letters: Vec<_> = letters.collect();
    let share = |at: usize| count(letters.iter().filter(|l| l[at]).count()) / count(letters.len());
    let random = (0..letters[0].len()).filter(|at| (0.45..0.55).contains(&share(*at)));
    u32::try_from(random.count()).unwrap()
}

/// Bits of the cookie of a question that an attacker cannot know: it is a keyed hash.
fn cookie_bits(question: &Question) -> usize {
    let message = Message::parse(&question.message).unwrap();
    let opt = message.opt().unwrap().unwrap();
    8 * opt
        .options()
        .map(|option| option.value.len())
        .sum::<usize>()
}

/// Number of wrong IDs from the right address to the right port after which a question goes over TCP.
fn guesses() -> usize {
    let mut world = World::new("");
    world.turn(1);
    let question = &world.asked[0];
    for guess in 1.. {
        let mut forged = question.message.clone();
        forged[2] = 0x81;
        forged[..2].copy_from_slice(&question.id.wrapping_add(guess).to_be_bytes());
        let mut actions = Actions::default();
        let now = world.now + 1;
        world
            .engine
            .on_reply(0, question.port, &forged, now, &mut actions);
        let over_tcp = |action: &Action| matches!(action, Action::AskConnection { .. });
        if actions.list().iter().any(over_tcp) {
            return guess.into();
        }
    }
    unreachable!("there are only as many IDs")
}

#[test]
fn off_path_budget_on_the_page_is_that_of_the_engine() {
    let bits = |packets: f64| format!("2^{:.0}", packets.log2());
    let mut lines = Vec::new();
    // Each port that is open has the chance of its place in the pool.
    lines.extend([bits(PORT_NUMBERS * IDS), bits(POOL * IDS)]);
    for (rate, per_kilosecond, questions) in [
        ("0.2 questions/s", 200, 15_000),
        ("2", 2_000, 15_000),
        ("20,000", 20_000_000, 30_000),
    ] {
        let world = simulate("", per_kilosecond, questions);
        check_draws(&world.asked);
        lines.push(format!("{} with {rate}", world.open_max));
    }
    let with_case = simulate("randomise-case = true\n", 2_000, 2_000);
    assert_eq!(case_bits(&with_case.asked), LETTERS);
    assert_eq!(cookie_bits(&with_case.asked[0]), 64);
    let guesses = count(guesses());
    lines.push(format!("2^{LETTERS}"));
    lines.push(format!("2^{:.1}", (IDS / guesses).log2()));
    let page = include_str!("../../../docs/security.md").replace('\n', " ");
    for line in &lines {
        assert!(
            page.contains(line),
            "docs/security.md lacks one of {lines:#?}"
        );
    }
}
