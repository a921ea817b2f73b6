//! Sends queries to upstreams, retries them and gives up. `replies` handles the responses.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::Rcode;
use rand::Rng as _;

use super::Engine;
use super::actions::Actions;
use super::ask;
use super::exchanges::{Opening, Way};
use super::habits::Form;
use super::lookups::Waiter;
use super::resolve::Part;
use crate::answer::stored::Stored;
use crate::cache::Learnt;
use crate::counts::Fault;

/// Time for which upstreams are queried for one question, even if its clients are answered: a late
/// response is in the cache for their retries, which resolv.conf(5) sends after 5 s.
const LOOKUP_NS: Nanos = 10 * SECOND;

/// Minimum timeout over TCP. TCP needs one more round trip than UDP, and its first packet is
/// retried after a second (RFC 6298 section 2).
const CONNECTION_NS: Nanos = SECOND;

/// Lookups for each query in the table: one of AAAA and one of A. So lookups with waiting clients
/// always have room, and those without are evicted.
const LOOKUPS_PER_QUERY: usize = 2;

/// Open exchanges for each lookup. Above this limit, exchanges are closed when their lookup ends.
const EXCHANGES_PER_LOOKUP: usize = 2;

/// Number of queries that an upstream gets at once after a silence; each response then permits
/// another one. More would not fit into the receive buffer of its socket, which by default holds
/// 277 short datagrams on Linux (212,992 octets of 768), and each lost query has no attempts left.
const AGAIN_AT_ONCE: usize = 64;

/// Extended error of RFC 8914 section 4.23: no upstream has answered.
pub(super) const NO_REACHABLE_AUTHORITY: u16 = 22;

impl Engine {
    /// Lets a query wait for one of its parts, and starts a lookup if there is none. Returns the
    /// start time of the lookup.
    pub(super) fn want(
        &mut self,
        query: u32,
        part: Part,
        now: Nanos,
        actions: &mut Actions,
    ) -> Nanos {
        let Some(held) = self.queries.get(query as usize) else {
            // An earlier part has failed at once, and the query is answered.
            return now;
        };
        if let Some(wait) = &held.waiting[part as usize] {
            if self.lookups.question(wait.lookup) == held.question(part) {
                return now;
            }
            // The response is in the cache by now, and its chain leads to another name.
            self.leave(query, part, now);
        }
        let question = self.queries[query as usize].question(part);
        match self.lookups.find(&question) {
            Some(lookup) => {
                self.counts.coalesced.tick();
                self.join(query, part, lookup);
                let found = self.lookups.get(lookup);
                let begun = found.begun;
                if found.resting {
                    // The client retries after a long silence of the upstreams.
                    self.ask_once_more(lookup, now, actions);
                }
                begun
            }
            None => {
                let full = self.lookups.len() >= self.lookups_max();
                let oldest = self.lookups.oldest_abandoned().filter(|_| full);
                let lookup = self.lookups.add(&question, now);
                self.join(query, part, lookup);
                if let Some(oldest) = oldest {
                    self.drop_lookup(oldest, actions);
                }
                if self.claim(lookup, now) {
                    self.begin_lookup(lookup, now, actions);
                } else {
                    self.counts.coalesced.tick();
                }
                now
            }
        }
    }

    fn lookups_max(&self) -> usize {
        LOOKUPS_PER_QUERY * self.maker.settings.queries_max
    }

    /// Refreshes responses that expire soon; no client waits for them.
    pub(super) fn prefetch(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some(question) = self.maker.ending.pop() {
            let question = question.as_key();
            let has_room = self.lookups.len() < self.lookups_max();
            let is_asked = self.lookups.find(&question).is_some();
            if has_room && !is_asked && self.claim_ahead(&question, now) {
                self.counts.prefetches.tick();
                let lookup = self.lookups.add(&question, now);
                self.lookups.set_abandoned(lookup, Some(now));
                self.begin_lookup(lookup, now, actions);
            }
        }
    }

    pub(super) fn begin_lookup(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        if self.maker.settings.randomises_case() {
            let lookup = self.lookups.get(slot);
            ask::randomise_case(&mut lookup.question.name, &mut self.random);
        }
        self.ask_next(slot, now, actions);
    }

    /// An upstream has responded after a long silence: pending lookups that may go to it are to be retried.
    pub(super) fn begin_again(&mut self, server: usize) {
        let sets: Vec<_> = self.upstreams.sets_of(server).collect();
        let waited_for = self.lookups.waited_for();
        let its_own =
            waited_for.filter(|(slot, _)| sets.contains(&self.lookups.question(*slot).set));
        self.again = its_own.collect();
        self.again_room = AGAIN_AT_ONCE.min(self.again.len());
    }

    /// Retries as many lookups as permitted.
    pub(super) fn ask_again(&mut self, now: Nanos, actions: &mut Actions) {
        while self.again_room > 0 {
            let Some((slot, begun)) = self.again.pop_front() else {
                self.again_room = 0;
                return;
            };
            if self.lookups.is_waited_for(slot, begun) {
                self.again_room -= usize::from(self.lookups.get(slot).resting);
                self.ask_once_more(slot, now, actions);
            }
        }
    }

    /// Permits one more attempt for a lookup, at once if it has none left.
    fn ask_once_more(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        let lookup = self.lookups.get(slot);
        for asked in lookup.asked.iter_mut().filter(|n| **n != u8::MAX) {
            *asked = asked.saturating_sub(1);
        }
        if lookup.resting {
            self.ask_next(slot, now, actions);
        }
    }

    /// Sends a query to the next upstream, or waits for late responses, or gives up.
    pub(super) fn ask_next(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        let chosen = self.choose(slot);
        let lookup = self.lookups.get(slot);
        let failed = lookup.failed.is_some();
        let in_time = now < lookup.begun + LOOKUP_NS;
        // If one upstream has failed the query, others that are down are not waited for.
        let worth = |server: &usize| !(failed && self.upstreams.is_down(*server));
        let Some(server) = chosen.filter(|_| in_time).filter(worth) else {
            let newest = self.lookups.get(slot).exchanges;
            let may_come = self.exchanges.of(newest).any(|(_, e)| worth(&e.server));
            return if may_come {
                self.lookups.get(slot).resting = true;
            } else {
                self.give_up(slot, now, actions);
            };
        };
        self.ask(slot, server, now, actions);
        let lookup = self.lookups.get(slot);
        let (set, asked) = (lookup.question.set, &lookup.asked);
        if let Some(probed) = self.upstreams.probe(set, asked, now, &mut self.random) {
            self.ask(slot, probed, now, actions);
        }
    }

    /// Selects the next upstream for a lookup; `None` if none has attempts left.
    pub(super) fn choose(&mut self, slot: u32) -> Option<usize> {
        let lookup = self.lookups.get(slot);
        let (set, asked) = (lookup.question.set, &lookup.asked);
        self.upstreams.choose(set, asked, &mut self.random)
    }

    /// Sends a query in the form that the upstream supports.
    fn ask(&mut self, slot: u32, server: usize, now: Nanos, actions: &mut Actions) {
        let repeats = self.lookups.get(slot).asked[server];
        let do_bit = self.lookups.question(slot).do_bit;
        let form = self.upstreams.form(server, repeats, do_bit, now);
        self.ask_as(slot, server, form, now, actions);
    }

    /// Sends a query in this form.
    pub(super) fn ask_as(
        &mut self,
        slot: u32,
        server: usize,
        form: Form,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let uses_tls = self.upstreams.habits(server).uses_tls(now);
        if uses_tls || self.lookups.get(slot).connections_only {
            return self.ask_connection(slot, server, form, now, actions);
        }
        let port = self.ports.take(server, &mut self.random, now, actions);
        let id = self.unused_id(server, port);
        let len = self.write(slot, server, form, id, false);
        let lookup = self.lookups.get(slot);
        let repeats = lookup.asked[server];
        lookup.asked[server] = repeats.saturating_add(1);
        self.open(slot, server, Way::Port(port), id, form, repeats, now);
        self.counts.upstream_udp.tick();
        actions.ask(server, port, &self.question[..len]);
    }

    /// A random ID that is not in use at a port. Far fewer queries are in flight than there are
    /// IDs.
    fn unused_id(&mut self, server: usize, port: usize) -> u16 {
        loop {
            let [high, low, ..] = self.random.next_u32().to_be_bytes();
            let id = u16::from_be_bytes([high, low]);
            if self.exchanges.at(server, port, id).is_none() {
                return id;
            }
        }
    }

    /// Sends a query over TLS or TCP, if the upstream may be queried so. It gets no further query for this lookup.
    pub(super) fn ask_connection(
        &mut self,
        slot: u32,
        server: usize,
        form: Form,
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.exhaust(slot, server);
        let habits = self.upstreams.habits(server);
        let tls = habits.uses_tls(now);
        if !(tls || habits.tcp()) {
            self.lookups
                .get(slot)
                .failed
                .get_or_insert((Rcode::SERVFAIL, None));
            return self.ask_next(slot, now, actions);
        }
        let [high, low, ..] = self.random.next_u32().to_be_bytes();
        let id = u16::from_be_bytes([high, low]);
        let len = self.write(slot, server, form, id, tls);
        let (way, asked) = match tls {
            true => (Way::Tls, &self.counts.upstream_tls),
            false => (Way::Connection, &self.counts.upstream_tcp),
        };
        asked.tick();
        let exchange = self.open(slot, server, way, id, form, 1, now);
        let number = self.exchanges.number(exchange);
        actions.ask_connection(server, number, tls, &self.question[..len]);
    }

    /// Writes the query of a lookup into the engine's `question`, padded if it is encrypted; returns its length.
    fn write(&mut self, slot: u32, server: usize, form: Form, id: u16, tls: bool) -> usize {
        let frame = &mut self.question;
        let in_lower_case = self.maker.settings.randomises_case() && !form.exact_case;
        let (question, habits) = (self.lookups.question(slot), self.upstreams.habits(server));
        if in_lower_case {
            let name = ask::lower_case(question.name);
            return ask::write(&question, &name, form, habits, id, tls, frame);
        }
        ask::write(&question, question.name, form, habits, id, tls, frame)
    }

    #[expect(clippy::too_many_arguments, reason = "all that an exchange is")]
    fn open(
        &mut self,
        slot: u32,
        server: usize,
        way: Way,
        id: u16,
        form: Form,
        repeats: u8,
        now: Nanos,
    ) -> u32 {
        let lookup = self.lookups.get(slot);
        lookup.resting = false;
        let until = lookup.begun + LOOKUP_NS;
        let exchange = self.exchanges.open(Opening {
            lookup: slot,
            before: lookup.exchanges,
            server,
            way,
            id,
            form,
            repeats,
            now,
            until,
        });
        lookup.exchanges = Some(exchange);
        let due = now + self.wait_of(exchange);
        self.exchanges.timers.set(exchange, due.min(until));
        exchange
    }

    /// Time until another exchange is opened.
    fn wait_of(&self, exchange: u32) -> Nanos {
        let exchange = self.exchanges.get(exchange);
        let wait = self.upstreams.timeout_ns(exchange.server, exchange.repeats);
        match exchange.way {
            Way::Port(_) => wait,
            Way::Connection | Way::Tls => wait.max(CONNECTION_NS),
        }
    }

    /// Closes an exchange and removes it from its lookup.
    pub(super) fn close(&mut self, exchange: u32) {
        let lookup = self.exchanges.get(exchange).lookup;
        let newest = lookup.map(|slot| &mut self.lookups.get(slot).exchanges);
        let closed = self.exchanges.close(exchange, newest);
        if let Way::Port(port) = closed.way {
            self.ports.release(closed.server, port);
        }
    }

    /// Handles the exchanges whose timeout has passed.
    pub(super) fn on_timeouts(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some(slot) = self.exchanges.timers.take(now) {
            let due = self.exchanges.get(slot).sent_at + self.wait_of(slot);
            let exchange = self.exchanges.get_mut(slot);
            let (lookup, server, until) = (exchange.lookup, exchange.server, exchange.until);
            let (is_usual, refused) = (exchange.way != Way::Connection, exchange.refused);
            if now < until && now < due {
                // Late responses have increased the timeout of the upstream meanwhile.
                self.exchanges.timers.set(slot, due.min(until));
                continue;
            }
            if !std::mem::replace(&mut exchange.late, true) && !refused {
                self.counts.upstream_timeout.tick();
                let (fault, sent_at) = (Fault::NoAnswer, exchange.sent_at);
                self.counts.upstream_fault(server, fault).tick();
                if is_usual {
                    self.upstreams.late(server);
                    let turn = self.upstreams.timed_out(server, fault, sent_at, now);
                    actions.turn(server, turn);
                }
            }
            if now >= until || refused || self.exchanges.get(slot).unreachable {
                self.close(slot);
            } else {
                self.exchanges.timers.set(slot, until);
            }
            if let Some(lookup) = lookup {
                self.go_on(lookup, now, actions);
            }
        }
    }

    /// Queries the next upstream unless a response is still awaited.
    pub(super) fn go_on(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        let newest = self.lookups.get(slot).exchanges;
        if self.exchanges.of(newest).all(|(_, exchange)| exchange.late) {
            self.ask_next(slot, now, actions);
        }
    }

    /// An ICMP error says that an upstream is unreachable, for queries from one port.
    pub fn on_unreachable(
        &mut self,
        server: usize,
        port: usize,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let hit = self.exchanges.at_port(server, port);
        if hit.is_empty() {
            return;
        }
        self.counts.upstream_unreachable.tick();
        self.counts.upstream_fault(server, Fault::NoAnswer).tick();
        let turn = self.upstreams.unreachable(server, now);
        actions.turn(server, turn);
        for number in hit {
            let Some(slot) = self.exchanges.numbered(number) else {
                // It was closed together with an earlier one.
                continue;
            };
            let Some(lookup) = self.exchanges.get(slot).lookup else {
                self.close(slot);
                continue;
            };
            // If no other upstream can be queried at once, the timeout is awaited: this one may
            // come up again. Once it is down, it is not waited for any longer.
            let next = self.choose(lookup);
            let is_up = |next: usize| !self.upstreams.is_down(next);
            if next.is_some_and(|next| !self.upstreams.is_suspect(next)) {
                self.close(slot);
                self.ask_next(lookup, now, actions);
            } else if !is_up(server) && !next.is_some_and(is_up) {
                self.close(slot);
                let newest = self.lookups.get(lookup).exchanges;
                if self
                    .exchanges
                    .of(newest)
                    .all(|(_, other)| other.unreachable)
                {
                    self.give_up(lookup, now, actions);
                }
            } else {
                self.exchanges.get_mut(slot).unreachable = true;
            }
        }
    }

    /// Excludes an upstream from further attempts for a lookup.
    pub(super) fn exhaust(&mut self, slot: u32, server: usize) {
        self.lookups.get(slot).asked[server] = u8::MAX;
    }

    /// Ends a lookup because all upstreams have failed.
    fn give_up(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        self.counts.lookups_failed.tick();
        let lookup = self.lookups.get(slot);
        let (rcode, extended_error) = match lookup.failed {
            // The upstreams do not support the query, which the client should know.
            Some((rcode @ (Rcode::FORMERR | Rcode::NOTIMP), why)) => (rcode, why),
            Some((_, why)) => (Rcode::SERVFAIL, why),
            None => (Rcode::SERVFAIL, Some(NO_REACHABLE_AUTHORITY)),
        };
        let question = self.lookups.question(slot);
        let stored = Stored::failure(&question.asked(), rcode, extended_error);
        self.finish(slot, stored, now, actions);
    }

    /// Ends a lookup of this worker; its response is cached.
    pub(super) fn finish(&mut self, slot: u32, stored: Stored, now: Nanos, actions: &mut Actions) {
        let settings = &self.maker.settings.cache;
        let question = self.lookups.question(slot);
        let learnt = self.maker.cache.keep(settings, &question, stored, now);
        self.conclude(slot, &learnt, now, actions);
    }

    /// Ends a lookup: waiting queries continue, and other workers are notified after the response
    /// is cached.
    pub(super) fn conclude(
        &mut self,
        slot: u32,
        learnt: &Learnt,
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.release(slot, Some(learnt), actions);
        self.orphan(slot, !learnt.stored.is_failure());
        let waiters = self.lookups.remove(slot);
        if learnt.is_stale() {
            self.counts.cache_stale.tick();
        }
        self.tell(waiters, learnt, now);
        self.wake(now, actions);
    }

    /// Ends a lookup without waiting queries.
    fn drop_lookup(&mut self, slot: u32, actions: &mut Actions) {
        debug_assert_eq!(self.lookups.get(slot).waiters, Waiter::NOBODY);
        self.release(slot, None, actions);
        self.orphan(slot, false);
        self.lookups.remove(slot);
    }

    /// Detaches the exchanges of a lookup that ends, with an answer or not. They stay open, if there is room, because late
    /// responses show the state of the upstreams. Those of connections are closed.
    fn orphan(&mut self, slot: u32, answered: bool) {
        let room = EXCHANGES_PER_LOOKUP * self.lookups_max();
        let has_room = self.exchanges.len() <= room;
        let mut next = self.lookups.get(slot).exchanges;
        while let Some(exchange) = next {
            let found = self.exchanges.get_mut(exchange);
            next = found.before;
            if has_room && matches!(found.way, Way::Port(_)) {
                found.lookup = None;
                found.outdone = answered;
            } else {
                self.close(exchange);
            }
        }
    }

    /// Queries the new upstreams for all lookups of this worker with waiting clients. A lookup of a name that other
    /// upstreams are queried for now fails: its clients retry.
    pub(super) fn ask_anew(&mut self, now: Nanos, actions: &mut Actions) {
        self.exchanges.clear();
        for slot in self.lookups.all() {
            let lookup = self.lookups.get(slot);
            lookup.exchanges = None;
            lookup.asked = super::upstreams::Asked::default();
            lookup.failed_by = 0;
        }
        for slot in self.lookups.all() {
            // A lookup that fails at once can end others.
            let Some(is_waited_for) = self.lookups.has_waiters(slot) else {
                continue;
            };
            let question = &self.lookups.get(slot).question;
            if !is_waited_for {
                self.drop_lookup(slot, actions);
            } else if !self.maker.routes(&question.name, question.set) {
                self.give_up(slot, now, actions);
            } else if !self.lookups.is_elsewhere(slot) {
                self.ask_next(slot, now, actions);
            }
        }
    }
}
