//! Holds queries of clients until upstreams have responded, or until their deadline.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::Rcode;

use super::actions::Client;
use super::exchange::NO_REACHABLE_AUTHORITY;
use super::lookups::Waiter;
use super::queries::{Moment, Query, Wait};
use super::resolve::{Part, Step};
use super::{Actions, DEADLINE_NS, Engine, stay_silent};
use crate::answer::reply;
use crate::cache::Learnt;
use crate::counts::Servfail;
use crate::settings::LookupOrder;
use crate::settings::nets::ClientNetwork;

/// A later response is not sent: its client has given up. The default of resolv.conf(5).
const LATE_NS: Nanos = 5 * SECOND;

/// A stale response is sent after this time (RFC 8767 section 5).
const STALE_NS: Nanos = 1_800_000_000;

/// A is queried after this time without an AAAA response, in any order: both responses of an
/// upstream that takes 3 s for each arrive before the deadline of the query.
const AHEAD_NS: Nanos = SECOND;

/// After this time without a response, AAAA counts as unanswered (RFC 6147 section 5.1.3), if there
/// are A records for synthesis: half the timeout of a client.
const SILENCE_NS: Nanos = 2_400_000_000;

/// A query that has waited for less is not evicted for another one of its own network, as in
/// Unbound (`jostle-timeout`).
const YOUNG_NS: Nanos = 200_000_000;

/// Octets of responses after which queries with a new response wait for the next iteration:
/// thousands of clients can wait for one response of 64 KiB.
const ANSWERS_PER_TURN: usize = 1 << 20;

impl Engine {
    /// Holds a query until upstreams have responded.
    pub(super) fn hold(&mut self, query: Query, part: Part, now: Nanos, actions: &mut Actions) {
        let network = self.network_of(query.client);
        if self.queries.len() >= self.maker.settings.queries_max
            && !self.make_way(network, now, actions)
        {
            self.counts.refused_full.tick();
            let len = reply::error(&query.asker, Rcode::SERVFAIL, None, &mut self.maker.frame);
            self.explain(query.client, Servfail::Full, len, actions);
            return self.send(query.client, len, 0, actions);
        }
        let may_synthesise = part == Part::First && self.maker.may_synthesise(&query);
        let accepts_silence = may_synthesise && self.maker.accepts_silence(&query);
        // The settings limit the number to far less than 2^31.
        let slot = u32::try_from(self.queries.insert(query)).unwrap_or(u32::MAX);
        self.shares.enter(slot, network);
        let since = self.want(slot, part, now, actions);
        let Some(query) = self.queries.get_mut(slot as usize) else {
            return;
        };
        query.set_moment(Moment::End, now + DEADLINE_NS);
        if self.maker.settings.cache.stale_s > 0 {
            query.set_moment(Moment::Stale, now + STALE_NS);
        }
        let order = self.maker.settings.order;
        if accepts_silence {
            query.set_moment(Moment::Silence, since + SILENCE_NS);
        }
        if may_synthesise {
            match order {
                LookupOrder::Both => {}
                LookupOrder::Delayed(delay_ns) => query.set_moment(Moment::Ahead, since + delay_ns),
                LookupOrder::AaaaThenA => query.set_moment(Moment::Ahead, since + AHEAD_NS),
            }
        }
        self.query_timers.set(slot, query.next_moment());
        if may_synthesise && order == LookupOrder::Both {
            self.want_ahead(slot, now, actions);
        }
    }

    fn network_of(&self, client: Client) -> ClientNetwork {
        let prefixes = self.maker.settings.client_prefixes;
        prefixes.network(client.address().ip())
    }

    /// Frees a slot for a query of this network, if possible; returns whether it did.
    fn make_way(&mut self, network: ClientNetwork, now: Nanos, actions: &mut Actions) -> bool {
        let Some(candidate) = self.shares.candidate(network) else {
            return false;
        };
        let query = &self.queries[candidate.query as usize];
        if !candidate.beyond_share && now < query.arrived + YOUNG_NS {
            return false;
        }
        self.counts.refused_full.tick();
        let len = reply::error(&query.asker, Rcode::SERVFAIL, None, &mut self.maker.frame);
        self.answer(candidate.query, Servfail::Full, len, now, actions);
        true
    }

    /// Lets a query wait for A records before it is known whether it needs them, unless they are
    /// in the cache.
    fn want_ahead(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        if let Some(query) = self.queries.get(slot as usize)
            && !self.maker.knows(query, Part::Second, now)
        {
            self.want(slot, Part::Second, now, actions);
        }
    }

    /// Continues a query that has a new response, or has waited for long.
    pub(super) fn progress(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        let Some(query) = self.queries.get_mut(slot as usize) else {
            return;
        };
        match self.maker.advance(query, &self.lookups, now) {
            Step::Answer(len, made) => {
                let why = Servfail::of(query);
                self.counts.count_made(made);
                self.answer(slot, why, len, now, actions);
            }
            Step::Need(part) => {
                // A records that were queried ahead end with an alias.
                let is_behind = query.follows(Part::Second)
                    && part == Part::First
                    && !self.maker.recall(query, Part::Second, &self.lookups, now);
                self.want(slot, part, now, actions);
                if is_behind {
                    self.want(slot, Part::Second, now, actions);
                }
            }
        }
        self.prefetch(now, actions);
    }

    /// Handles the timers of queries.
    pub(super) fn on_moments(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some(slot) = self.query_timers.take(now) {
            let query = &mut self.queries[slot as usize];
            let moment = query.take_moment(now);
            self.query_timers.set(slot, query.next_moment());
            match moment {
                Some(Moment::Ahead) => self.want_ahead(slot, now, actions),
                Some(Moment::Stale) => {
                    query.accepts_stale = true;
                    self.progress(slot, now, actions);
                }
                Some(Moment::Silence) => {
                    query.accepts_silence = true;
                    self.progress(slot, now, actions);
                }
                Some(Moment::End) => self.end(slot, now, actions),
                None => {}
            }
        }
    }

    /// Ends a query at its deadline, with a response from what is known.
    fn end(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        let query = &mut self.queries[slot as usize];
        let (len, why) = match self.maker.advance(query, &self.lookups, now) {
            Step::Answer(len, made) => {
                let why = Servfail::of(query);
                self.counts.count_made(made);
                (len, why)
            }
            Step::Need(_) => {
                let asker = &self.queries[slot as usize].asker;
                let error = Some(NO_REACHABLE_AUTHORITY);
                let len = reply::error(asker, Rcode::SERVFAIL, error, &mut self.maker.frame);
                (len, Servfail::Deadline)
            }
        };
        self.answer(slot, why, len, now, actions);
    }

    /// Sends the response to a waiting query, unless it is too late, and frees its slot; `why` is
    /// the reason if it failed.
    fn answer(&mut self, slot: u32, why: Servfail, len: usize, now: Nanos, actions: &mut Actions) {
        for part in [Part::First, Part::Second] {
            self.leave(slot, part, now);
        }
        self.query_timers.clear(slot);
        self.shares.leave(slot);
        let query = self.queries.remove(slot as usize);
        self.counts.waited.observe(now - query.arrived);
        if now - query.arrived > LATE_NS {
            self.counts.dropped_late.tick();
            stay_silent(query.client, actions);
        } else {
            self.explain(query.client, why, len, actions);
            self.send(query.client, len, now - query.arrived, actions);
        }
    }

    /// Lets a query wait for a lookup.
    pub(super) fn join(&mut self, query: u32, part: Part, lookup: u32) {
        let found = self.lookups.get(lookup);
        let waiter = Waiter::new(query, part);
        let after = std::mem::replace(&mut found.waiters, waiter);
        self.lookups.set_abandoned(lookup, None);
        self.queries[query as usize].waiting[part as usize] = Some(Wait {
            lookup,
            before: Waiter::NOBODY,
            after,
        });
        self.relink(after, |wait| wait.before = waiter);
    }

    /// Ends the wait of a query for one of its parts.
    pub(super) fn leave(&mut self, query: u32, part: Part, now: Nanos) {
        let held = &mut self.queries[query as usize];
        let Some(wait) = held.waiting[part as usize].take() else {
            return;
        };
        self.relink(wait.after, |after| after.before = wait.before);
        if wait.before == Waiter::NOBODY {
            let lookup = self.lookups.get(wait.lookup);
            lookup.waiters = wait.after;
            if wait.after == Waiter::NOBODY {
                self.lookups.set_abandoned(wait.lookup, Some(now));
            }
        } else {
            self.relink(wait.before, |before| before.after = wait.after);
        }
    }

    /// Changes the list position of a waiter, if it is one.
    fn relink(&mut self, waiter: Waiter, change: impl FnOnce(&mut Wait)) {
        if waiter == Waiter::NOBODY {
            return;
        }
        let (query, part) = waiter.parts();
        if let Some(wait) = &mut self.queries[query as usize].waiting[part as usize] {
            change(wait);
        }
    }

    /// The waiters in a list.
    pub(super) fn waiters(&self, first: Waiter) -> impl Iterator<Item = Waiter> {
        let is_one = |waiter: &Waiter| *waiter != Waiter::NOBODY;
        std::iter::successors(Some(first).filter(is_one), move |waiter| {
            let (query, part) = waiter.parts();
            let wait = self.queries.get(query as usize)?.waiting[part as usize]?;
            Some(wait.after).filter(is_one)
        })
    }

    /// Passes the response of a lookup to all waiting queries; they continue in this iteration or
    /// in the next.
    pub(super) fn tell(&mut self, mut next: Waiter, learnt: &Learnt, now: Nanos) {
        while next != Waiter::NOBODY {
            let (query, part) = next.parts();
            let held = &mut self.queries[query as usize];
            let policy = self.maker.policy(held.view);
            held.learn(part, learnt.clone(), policy, now);
            let wait = held.waiting[part as usize].take();
            next = wait.map_or(Waiter::NOBODY, |wait| wait.after);
            self.woken.push_back(query);
        }
    }

    /// Continues queries that have a new response, within the limit of this iteration. If one has
    /// ended and another has its slot, that one is continued, which has no effect.
    pub(super) fn wake(&mut self, now: Nanos, actions: &mut Actions) {
        while actions.octets() < ANSWERS_PER_TURN
            && let Some(query) = self.woken.pop_front()
        {
            self.progress(query, now, actions);
        }
    }
}
