//! An engine and a program with a common cache.

use std::sync::Arc;

use dns64_transport::Origin;
use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_transport::xdp::program::Action;

use super::frames::{BROADCAST, CLIENT_MAC, Frame, OWN_MAC, OWN4, OWN6, taken};
use super::questions::{QUESTIONS, upstream};
use super::*;
use crate::counts::Counts;
use crate::engine::actions::{Action as Wanted, Actions, Client};
use crate::engine::{Engine, Seeds};

/// A server with an engine and a program that answer the same clients.
pub(super) struct World {
    pub(super) cache: Arc<Cache>,
    object: Object,
    driver: Arc<Driver>,
    keeper: Keeper,
    engine: Engine,
    /// Counters of the engine, their values after publication, and counters of the program.
    counts: Arc<Counts>,
    before: Vec<u64>,
    driver_counts: Arc<Counts>,
    actions: Actions,
    out: Vec<u8>,
}

fn settings(text: &str) -> Settings {
    let allow = if text.contains("allow") {
        ""
    } else {
        "allow = [\"10.0.0.0/8\", \"2001:db8::/32\", \"::/127\", \"ff00::/8\", \"127.0.0.0/8\", \
         \"0.0.0.0/8\", \"224.0.0.0/3\"]\n"
    };
    let view =
        "[[view]]\nclients = [\"10.9.0.0/16\", \"2001:db8:9::/48\"]\ndns64 = { enabled = false }\n";
    let text = format!(
        "{allow}listen = [\"0.0.0.0\", \"[2001:db8::1]\"]\nupstream.servers = [\"192.0.2.53\"]\n\
         dns64.mark-synthesised = true\n{text}{view}"
    );
    config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"))
}

impl World {
    pub(super) fn new(text: &str) -> Self {
        let settings = settings(text);
        let object = Object::load(OBJECT).unwrap_or_else(|error| panic!("{error}"));
        let interface = Interface {
            // The interface index of test frames.
            index: 1,
            name: "lo".to_owned(),
            mac: Some(OWN_MAC),
            master: None,
            is_veth: false,
            mtu: 1500,
            queues: 1,
            is_usable: true,
            has_carrier: true,
        };
        let addresses = [OWN4.into(), OWN6.into()].map(|address| Address {
            interface: 1,
            ip: address,
            broadcast: Some(BROADCAST),
            ends: None,
        });
        let (driver, inbox) =
            Driver::new(&object, None, vec![interface], addresses.into()).unwrap();
        let driver = Arc::new(driver);
        let outlet = Arc::clone(&driver) as Arc<dyn Outlet>;
        let cache = Arc::new(Cache::new(&settings.cache, Some(outlet)));
        let seeds = Seeds {
            random: [1; 32],
            cookies: [2; 16],
        };
        let (counts, driver_counts) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        let engine = Engine::new(&settings, Arc::clone(&cache), Arc::clone(&counts), &seeds);
        driver.configure(&settings, &cache).unwrap();
        let keeper = Keeper::new(
            Arc::clone(&driver),
            inbox,
            Arc::clone(&cache),
            Arc::clone(&driver_counts),
            MonotonicClock.now(),
        );
        Self {
            cache,
            object,
            driver,
            keeper,
            engine,
            counts,
            before: Vec::new(),
            driver_counts,
            actions: Actions::default(),
            out: Vec::new(),
        }
    }

    /// Changes the settings of the program, as a reload does; the engine keeps its own.
    pub(super) fn configure(&mut self, text: &str) {
        self.driver.configure(&settings(text), &self.cache).unwrap();
    }

    /// Marks the interface as virtual: frames come from this machine.
    pub(super) fn make_virtual(&mut self) {
        lock(&self.driver.force).interfaces[0].is_veth = true;
        self.driver.refresh().unwrap();
    }

    /// Sends each question twice, with and without DO and CD, at a time `age_s` in the past.
    pub(super) fn publish(&mut self, age_s: u64) {
        let now = MonotonicClock.now() - age_s * SECOND;
        for question in &QUESTIONS {
            for bits in 0..4 {
                let frame = Frame {
                    udp_size: (bits & 1 == 1).then_some(4096),
                    do_bit: bits & 1 == 1,
                    cd: bits & 2 == 2,
                    ..Frame::of(question)
                };
                for _ in 0..2 {
                    let client = "10.0.0.77:7777".parse().unwrap();
                    let answer = self.ask(client, &frame.message(), now);
                    assert!(answer.is_some(), "{frame:?}");
                }
            }
        }
        self.keeper.take_all();
        self.before = figures(&self.counts);
    }

    pub(super) fn frames(&self) -> Vec<Frame> {
        QUESTIONS.iter().flat_map(Frame::all).collect()
    }

    /// The response of the engine; its queries to upstreams are answered immediately.
    fn ask(&mut self, client: std::net::SocketAddr, query: &[u8], now: Nanos) -> Option<Vec<u8>> {
        let Self {
            engine, actions, ..
        } = self;
        actions.clear();
        let mut frame = [0; dns64_transport::FRAME_BYTES];
        let client = Client::Udp(Origin::new(client));
        let len = engine.on_query(client, query, &mut frame, now, actions);
        if len > 0 {
            return Some(frame[..len].to_vec());
        }
        loop {
            let mut replies = Vec::new();
            for action in actions.list() {
                match action {
                    Wanted::Reply { message, .. } => {
                        return Some(actions.message(message).to_vec());
                    }
                    Wanted::Ask {
                        server,
                        port,
                        message,
                    } => replies.push((*server, *port, upstream(actions.message(message)))),
                    _ => {}
                }
            }
            if replies.is_empty() {
                return None;
            }
            actions.clear();
            for (server, port, reply) in replies {
                engine.on_reply(server, port, &reply, now, actions);
            }
        }
    }

    /// The result of the program for a frame: a response with valid headers, or the unchanged frame.
    pub(super) fn run(&mut self, frame: &[u8]) -> (Action, Vec<u8>) {
        let action = self.object.run(PROGRAM, frame, &mut self.out).unwrap();
        let out = self.out.clone();
        match action {
            Action::Pass => {
                assert_eq!(out, frame, "it was changed");
                (action, Vec::new())
            }
            Action::Tx => {
                assert_eq!((&out[..6], &out[6..12]), (&frame[6..12], &frame[..6]));
                let answer = response(&out, &frame[6..12]);
                (action, answer)
            }
            other => panic!("{other:?} of {frame:x?}"),
        }
    }

    /// Runs the program on a frame, and compares its response, if any, with the engine's in the same second.
    pub(super) fn compare(&mut self, frame: &[u8]) -> Action {
        loop {
            let second = stable_second();
            let (action, answer) = self.run(frame);
            if action != Action::Tx {
                return action;
            }
            let query = taken(frame, OWN_MAC);
            let query = query.unwrap_or_else(|| panic!("the kernel drops {frame:x?}"));
            let expected = self.ask(query.source, &query.payload, MonotonicClock.now());
            if second == stable_second() {
                assert_eq!(expected.as_deref(), Some(&answer[..]), "{frame:x?}");
                return action;
            }
        }
    }

    /// Reads the program's counters, and compares them with those of the engine since publication.
    pub(super) fn counts_agree(&mut self) {
        self.next_second();
        let counted = figures(&self.counts);
        let engine: Vec<u64> = counted
            .iter()
            .zip(&self.before)
            .map(|(now, before)| now - before)
            .collect();
        let names: Vec<_> = self
            .counts
            .figures()
            .iter()
            .map(|f| (f.name, f.label.1))
            .collect();
        for ((name, engine), driver) in names.iter().zip(engine).zip(figures(&self.driver_counts)) {
            if !name.0.starts_with("driver") {
                assert_eq!(driver, engine, "{name:?}");
            }
        }
        assert!(self.driver_counts.driver_answers.get() > 500);
    }

    pub(super) fn next_second(&mut self) {
        self.keeper.next_second(MonotonicClock.now()).unwrap();
    }

    /// Number of responses of the program that are marked as used in the cache; clears the marks.
    pub(super) fn take_marked(&self) -> usize {
        let hashes = self.keeper.hashes();
        let marked = hashes.iter().filter(|hash| self.cache.take_mark(**hash));
        marked.count()
    }
}

/// The current second, when it is the same for both clocks: the coarse one of the program is at most one tick late.
fn stable_second() -> Nanos {
    loop {
        let now = MonotonicClock.now();
        if (now - SECOND / 50) / SECOND == now / SECOND {
            return now / SECOND;
        }
    }
}

/// All counters; gauges are omitted.
fn figures(counts: &Counts) -> Vec<u64> {
    let figures = counts.figures();
    figures.iter().map(|figure| figure.value).collect()
}

/// The message of a frame to a client.
fn response(out: &[u8], mac: &[u8]) -> Vec<u8> {
    let mut back = out.to_vec();
    // The server's addresses are not local to the client, which refuses only addresses that are invalid anywhere.
    back[6..12].copy_from_slice(&CLIENT_MAC);
    let mac: [u8; 6] = mac.try_into().unwrap();
    let found = frames::taken_anywhere(&back, mac);
    found
        .unwrap_or_else(|| panic!("the client refuses {out:x?}"))
        .payload
}
