//! Tracks the names that running servers were queried for, so that a campaign queries no name twice.
//!
//! A server that ran before keeps its cache, whatever happens to rigs and processes: its names continue after the
//! journal's last trial. Names are counted from a place that follows from the first line of the journal, so those of a
//! first trial without a result are known too.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::load::names::{Begin, NameRange, RESERVED};
use crate::namespace::Cidr;

/// Names that the trials of a campaign have used, by server.
#[derive(Clone, Debug, Default)]
pub struct UsedNames {
    /// Index from which the names of every range are counted.
    start: u64,
    servers: BTreeMap<SocketAddr, OfServer>,
}

/// Names that one server was queried for.
#[derive(Clone, Debug, Default)]
struct OfServer {
    /// The ranges, each with its next name.
    ranges: Vec<(Cidr, Begin)>,
    /// Names of trials that ended without a result.
    cut_off: u64,
}

impl UsedNames {
    /// No used names. Those of every range are counted from this index: two programs that query one server rarely use
    /// the same names if it is random.
    pub fn new(start: u64) -> Self {
        Self {
            start,
            servers: BTreeMap::new(),
        }
    }

    /// Records the names of a trial.
    pub fn learn(&mut self, server: SocketAddr, of_trial: &NameRange) {
        // Without a fresh name it does not tell where the next one is.
        if of_trial.fresh == 0 {
            return;
        }
        let (range, begin) = (of_trial.namespace, Begin::after(of_trial));
        let ranges = &mut self.servers.entry(server).or_default().ranges;
        match ranges.iter_mut().find(|(known, _)| *known == range) {
            Some((_, next)) => *next = begin,
            None => ranges.push((range, begin)),
        }
    }

    /// Records that a trial of `names` names of this range ended without a result: how many of them it queried is
    /// unknown. A soak can have used a wider range.
    pub fn cut_off(&mut self, server: SocketAddr, range: Cidr, names: u64) {
        let begin = self.begin(Some(server), range);
        let of_server = self.servers.entry(server).or_default();
        if of_server.ranges.iter().all(|(known, _)| *known != range) {
            of_server.ranges.push((range, begin));
        }
        of_server.cut_off = of_server.cut_off.saturating_add(names);
        for (_, begin) in &mut of_server.ranges {
            begin.used = begin.used.saturating_add(names);
        }
    }

    /// Where the names of a range begin for this server, or for a server with an empty cache.
    ///
    /// If a used range lies within `range`, all of it counts as used. A range within a used one has no names left.
    pub fn begin(&self, server: Option<SocketAddr>, range: Cidr) -> Begin {
        let (at, used) = (self.start, 0);
        let Some(of_server) = server.and_then(|server| self.servers.get(&server)) else {
            return Begin { at, used };
        };
        let known = || of_server.ranges.iter();
        if let Some((_, begin)) = known().find(|(known, _)| *known == range) {
            return *begin;
        }
        if known().any(|(known, _)| known.contains(&range)) {
            let used = range.names();
            return Begin { at: 0, used };
        }
        let within = known().filter(|(known, _)| range.contains(known));
        let widest = within.max_by_key(|(known, _)| known.names());
        widest.map_or(Begin { at, used }, |(widest, _)| Begin {
            at: range.index(widest.first()).unwrap_or(0),
            used: widest.names().saturating_add(of_server.cut_off),
        })
    }

    /// The smallest range around `range` with room for `names` more names for this server, or for a server without any
    /// queried names; the range of all names if none has that room.
    pub fn room(&self, server: Option<SocketAddr>, range: Cidr, names: u64) -> Cidr {
        let has_room = |range: &Cidr| {
            let used = self.begin(server, *range).used;
            let needed = used.saturating_add(names).saturating_add(RESERVED);
            needed <= range.names()
        };
        let wider = |range: &Cidr| range.widened_to(range.names() + 1);
        let mut ranges = std::iter::successors(Some(range), wider);
        let everything = || range.widened_to(1 << 32).unwrap_or(range);
        ranges.find(has_room).unwrap_or_else(everything)
    }
}

/// Number of names that these trials have in common.
pub fn asked_twice<'d>(trials: impl Iterator<Item = &'d NameRange>) -> u64 {
    let mut spans = Vec::new();
    for of_trial in trials {
        let first = u64::from(u32::from(of_trial.namespace.first()));
        let end = of_trial.namespace.names().saturating_sub(RESERVED);
        let before_end = of_trial.fresh.min(end.saturating_sub(of_trial.first));
        let from = first.saturating_add(of_trial.first);
        spans.push((from, from.saturating_add(before_end)));
        spans.push((first, first.saturating_add(of_trial.fresh - before_end)));
    }
    spans.sort_unstable();
    let (mut twice, mut known_to) = (0_u64, 0);
    for (from, to) in spans {
        twice = twice.saturating_add(to.min(known_to).saturating_sub(from));
        known_to = known_to.max(to);
    }
    twice
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "[2001:db8::53]:53";

    fn server() -> SocketAddr {
        SERVER.parse().unwrap()
    }

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn dealt(range: &str, first: u64, fresh: u64) -> NameRange {
        NameRange {
            namespace: cidr(range),
            begin: 1000,
            first,
            fresh,
        }
    }

    /// Where the names of this range begin.
    fn begin(used: &UsedNames, range: &str) -> (u64, u64) {
        let begin = used.begin(Some(server()), cidr(range));
        (begin.at, begin.used)
    }

    #[test]
    fn each_server_continues_after_its_last_trial() {
        let mut used = UsedNames::new(5);
        let range = "10.0.0.0/16";
        assert_eq!(begin(&used, range), (5, 0));
        used.learn(server(), &dealt(range, 1000, 500));
        used.learn(server(), &dealt(range, 1500, 200));
        assert_eq!(begin(&used, range), (1000, 700));
        used.learn(server(), &dealt(range, 1000, 0));
        used.cut_off(server(), cidr(range), 300);
        assert_eq!(begin(&used, range), (1000, 1000));
        let other = used.begin("[::1]:53".parse().ok(), cidr(range));
        assert_eq!((other.at, other.used), (5, 0));
    }

    #[test]
    fn names_of_first_trial_without_a_result_are_not_used_again() {
        let mut used = UsedNames::new(5);
        used.cut_off(server(), cidr("10.0.0.0/16"), 300);
        assert_eq!(begin(&used, "10.0.0.0/16"), (5, 300));
        used.cut_off(server(), cidr("10.0.0.0/16"), 300);
        assert_eq!(begin(&used, "10.0.0.0/16"), (5, 600));
        // In another range too.
        used.cut_off(server(), cidr("11.0.0.0/16"), 70);
        assert_eq!(begin(&used, "11.0.0.0/16"), (5, 70));
    }

    #[test]
    fn wider_range_skips_the_used_one() {
        let mut used = UsedNames::default();
        used.learn(server(), &dealt("10.0.0.0/8", 1000, 500));
        used.cut_off(server(), cidr("10.0.0.0/8"), 70);
        assert_eq!(begin(&used, "8.0.0.0/6"), (2 << 24, (1 << 24) + 70));
        used.learn(server(), &dealt("8.0.0.0/6", 1000, 500));
        assert_eq!(begin(&used, "10.0.0.0/7"), (0, 1 << 25));
        assert_eq!(begin(&used, "10.0.0.0/8"), (1000, 570));
    }

    #[test]
    fn range_is_widened_when_names_run_out() {
        let mut used = UsedNames::default();
        let range = cidr("10.0.0.0/8");
        let room = |used: &UsedNames, names| used.room(Some(server()), range, names).to_string();
        assert_eq!(room(&used, 1_000), "10.0.0.0/8");
        assert_eq!(room(&used, 100_000_000), "8.0.0.0/5");
        assert_eq!(room(&used, 1 << 40), "0.0.0.0/0");
        used.learn(server(), &dealt("10.0.0.0/8", 1000, 10_000_000));
        assert_eq!(room(&used, 6_000_000), "10.0.0.0/8");
        // In addition to those of 10.0.0.0/8, which all count as used.
        assert_eq!(room(&used, 7_000_000), "10.0.0.0/7");
        assert_eq!(used.room(None, range, 7_000_000), range);
    }

    #[test]
    fn names_queried_by_two_trials_are_counted() {
        let trials = [
            dealt("10.0.0.0/24", 180, 20),
            dealt("10.0.0.0/24", 8, 5),
            dealt("10.0.0.0/24", 12, 168),
        ];
        // The first wraps around to 0..8, the second ends at 13.
        assert_eq!(asked_twice(trials.iter()), 1);
        assert_eq!(asked_twice(trials[..2].iter()), 0);
        assert_eq!(asked_twice([trials[0], trials[0]].iter()), 20);
    }
}
