//! What happens to the server from outside: upstreams that change, reloads, flushes, panics, jumps of the clock.

use dns64_transport::clock::SECOND;
use dns64d::settings::Settings;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::faults::{Fault, Planted};
use super::laws::{Holds, Law, require};
use super::upstreams::{Mode, SERVERS};
use super::world::{Event, WORKERS, World};

/// Queries of one worker that may wait, and questions: two for each query.
const QUERIES_MAX: u64 = 32;
const LOOKUPS_MAX: u64 = 2 * QUERIES_MAX;

const CACHE_BYTES: u64 = 1 << 20;

pub(crate) fn settings(
    planted: &Planted,
    selection: &str,
    order: &str,
    prefetch: bool,
) -> Settings {
    let factor = |large: Fault| if planted.is(large) { 16 } else { 1 };
    let waiting = QUERIES_MAX * factor(Fault::LargeTable);
    let mebibytes = (CACHE_BYTES >> 20) * factor(Fault::LargeCache);
    let text = format!(
        "workers = {WORKERS}\nallow = [\"0.0.0.0/0\"]\nqueries-max = {waiting}\n\
         [cache]\nsize = \"{mebibytes}MiB\"\nprefetch = {prefetch}\n\
         [dns64]\nprefix = \"2001:db8:64::/96\"\n\
         [upstream]\nservers = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]\nselection = \"{selection}\"\norder = \"{order}\"\n"
    );
    dns64d::config::parse(&text, "year").unwrap_or_else(|faults| panic!("{faults}"))
}

fn one_of<T: Copy>(all: &[T], random: &mut StdRng) -> T {
    all[random.random_range(0..all.len())]
}

impl World {
    /// An upstream changes its behaviour: the bad ones come in turn.
    pub(crate) fn change(&mut self, server: usize) {
        let mut mode = Mode::Healthy;
        if self.modes[server] == Mode::Healthy && self.random.random() {
            mode = Mode::BAD[self.bad_modes % Mode::BAD.len()];
            self.bad_modes += 1;
        }
        self.modes[server] = mode;
        self.healthy_since = match self.modes == [Mode::Healthy; SERVERS] {
            true => self.healthy_since.or(Some(self.now)),
            false => None,
        };
        let longest_s = if mode == Mode::Healthy { 800 } else { 200 };
        let delay = self.random.random_range(1..longest_s) * SECOND;
        self.after(delay, Event::Change { server });
    }

    /// The operator, or the machine, does something.
    pub(crate) fn operate(&mut self) -> Holds {
        match self.random.random_range(0..4) {
            0 => self.reload()?,
            1 => {
                self.note("flushes");
                self.cache.flush(None);
            }
            2 => self.restart(),
            _ => self.jump()?,
        }
        let delay = self.random.random_range(1..400) * SECOND;
        self.after(delay, Event::Operate);
        self.is_bounded()
    }

    /// The world needs another while until it is calm.
    fn disturb(&mut self, what: &'static str) {
        self.note(what);
        self.healthy_since = self.healthy_since.map(|_| self.now);
    }

    fn reload(&mut self) -> Holds {
        self.disturb("reloads");
        let selections = ["fastest", "round-robin", "random", "failover"];
        let selection = one_of(&selections, &mut self.random);
        let order = one_of(&["both", "delayed", "aaaa-then-a"], &mut self.random);
        self.settings = settings(&self.planted, selection, order, self.random.random());
        let settings = self.settings.clone();
        (0..WORKERS).try_for_each(|worker| {
            self.call(worker, |engine, now, actions| {
                engine.reload(&settings, now, actions);
            })
        })
    }

    /// A worker panics: its queries are lost.
    fn restart(&mut self) {
        self.disturb("restarts");
        let worker = self.random.random_range(0..WORKERS);
        self.clients.lose(worker);
        // The old one gives its claims back before the new one makes any.
        let engine = self.engine(worker);
        self.engines[worker] = engine;
    }

    /// The machine sleeps for up to two hours.
    fn jump(&mut self) -> Holds {
        self.now += self.random.random_range(1..7200) * SECOND;
        self.disturb("jumps of the clock");
        self.clients.expire(self.now);
        (0..WORKERS).try_for_each(|worker| self.turn(worker))
    }

    pub(crate) fn is_bounded(&self) -> Holds {
        let bytes = self.cache.bytes();
        require(bytes <= CACHE_BYTES, Law::BoundedMemory, || {
            format!("{bytes} octets in the cache")
        })?;
        self.counts.iter().try_for_each(|counts| {
            let (waiting, asked) = (counts.queries_waiting.get(), counts.lookups_in_flight.get());
            let is_bounded = waiting <= QUERIES_MAX && asked <= LOOKUPS_MAX;
            require(is_bounded, Law::BoundedMemory, || {
                format!("{waiting} queries wait for {asked} questions")
            })
        })
    }
}
