//! The engine's side toward upstreams: asks, takes answers, tries the next, gives up.

use std::sync::Arc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::Rcode;
use dns64_wire::message::Message;
use rand::Rng as _;

use super::actions::Actions;
use super::ask::{self, Fit};
use super::lookups::{Exchange, Waiter};
use super::queries::{Learnt, Woken};
use super::resolve::Part;
use super::{Engine, UPSTREAMS_MAX};
use crate::answer::reply;
use crate::answer::stored::{Age, Asked, Kind, Malformed, Stored, TtlBounds};
use crate::mailbox::ConnectionFailed;

/// List number of `lookup_timers` for questions over connections.
const CONNECTION: usize = UPSTREAMS_MAX;

/// The gateway says what became of a connection long before this; it is for the case that it
/// cannot.
const CONNECTION_NS: Nanos = 60 * SECOND;

/// Octets of answers after which queries that have learnt something wait for the next turn: one
/// answer of 64 KiB can be what thousands wait for.
const ANSWERS_PER_TURN: usize = 1 << 20;

/// Extended error of RFC 8914 section 4.23: no upstream has answered.
pub(super) const NO_REACHABLE_AUTHORITY: u16 = 22;

impl Engine {
    /// Lets a query wait for one of its parts, asking for it if nobody has yet.
    pub(super) fn want(&mut self, query: u32, part: Part, now: Nanos, actions: &mut Actions) {
        let held = &mut self.queries[query as usize];
        if held.waiting[part as usize].is_some() {
            return;
        }
        let question = held.plan.question(&held.asker, part);
        let key = question.key();
        let found = self.lookups.find(&key);
        let lookup = match found {
            Some(lookup) => {
                self.counts.coalesced.tick();
                lookup
            }
            None => match self.lookups.add(&question, &key) {
                Ok(lookup) => lookup,
                Err(_) => return self.refuse(query, now, actions),
            },
        };
        let first = &mut self.lookups.get(lookup).waiters;
        held.waiting[part as usize] = Some(*first);
        *first = Waiter::new(query, part);
        if found.is_none() {
            self.begin_lookup(lookup, now, actions);
        }
    }

    /// There is no room for what a query needs.
    fn refuse(&mut self, query: u32, now: Nanos, actions: &mut Actions) {
        let held = &self.queries[query as usize];
        if held.answered {
            return;
        }
        self.counts.refused_full.tick();
        let len = reply::error(&held.asker, Rcode::SERVFAIL, None, &mut self.maker.frame);
        self.answer(query, len, now, actions);
    }

    /// Asks anew for answers that end soon; nobody waits for them.
    pub(super) fn prefetch(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some((asker, plan, part)) = self.maker.ending.pop() {
            let question = plan.question(&asker, part);
            let key = question.key();
            if self.lookups.find(&key).is_none()
                && let Ok(lookup) = self.lookups.add(&question, &key)
            {
                self.counts.prefetches.tick();
                self.begin_lookup(lookup, now, actions);
            }
        }
    }

    fn begin_lookup(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        if self.maker.settings.randomise_case {
            let lookup = self.lookups.get(slot);
            lookup.name = ask::randomise_case(&lookup.name, &mut self.random);
        }
        self.ask_next(slot, now, actions);
    }

    /// Sends a question to the upstream whose turn it is, or gives up.
    pub(super) fn ask_next(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        let asked = self.lookups.get(slot).asked;
        let Some(server) = self.upstreams.choose(&asked, now, &mut self.random) else {
            return self.give_up(slot, now, actions);
        };
        let port = self.upstreams.take_port(server);
        let id = self.unused_id(server, port);
        let mut frame = [0; ask::QUESTION_MAX];
        let lookup = self.lookups.get(slot);
        let len = ask::write(lookup, id, &mut frame);
        lookup.asked[server] += 1;
        lookup.sent_at = now;
        self.lookups
            .depart(slot, Exchange::Datagram { server, port, id });
        let deadline = now + self.upstreams.timeout_ns(server);
        self.lookup_timers.set(slot, server, deadline);
        self.counts.upstream_udp.tick();
        actions.ask(server, port, &frame[..len]);
    }

    /// A random ID that is not in use at a port. Far fewer are in flight than there are IDs.
    fn unused_id(&mut self, server: usize, port: usize) -> u16 {
        loop {
            let [high, low, ..] = self.random.next_u32().to_be_bytes();
            let id = u16::from_be_bytes([high, low]);
            if self.lookups.at(server, port, id).is_none() {
                return id;
            }
        }
    }

    /// Asks the same upstream over a connection.
    fn ask_connection(&mut self, slot: u32, server: usize, now: Nanos, actions: &mut Actions) {
        let [high, low, ..] = self.random.next_u32().to_be_bytes();
        let id = u16::from_be_bytes([high, low]);
        let mut frame = [0; ask::QUESTION_MAX];
        let lookup = self.lookups.get(slot);
        let len = ask::write(lookup, id, &mut frame);
        let exchange = u64::from(lookup.generation) << 32 | u64::from(slot);
        self.lookups
            .depart(slot, Exchange::Connection { server, id });
        self.lookup_timers
            .set(slot, CONNECTION, now + CONNECTION_NS);
        self.counts.upstream_tcp.tick();
        actions.ask_connection(server, exchange, &frame[..len]);
    }

    /// A datagram has come from an upstream. What is no answer to what was asked there is
    /// counted, and the true answer still waited for: it cannot be crowded out by lies.
    pub fn on_reply(
        &mut self,
        server: usize,
        port: usize,
        message: &[u8],
        now: Nanos,
        actions: &mut Actions,
    ) {
        let Ok(reply) = Message::parse(message) else {
            return self.counts.rejected_malformed.tick();
        };
        let found = self.lookups.at(server, port, reply.id());
        let Some(slot) = found.filter(|_| reply.qr()) else {
            return self.counts.rejected_unknown.tick();
        };
        let lookup = self.lookups.get(slot);
        let fit = ask::fit(lookup, &reply);
        let rtt_ns = now.saturating_sub(lookup.sent_at);
        match fit {
            Fit::Other => return self.counts.rejected_question.tick(),
            // Perhaps a lie that did not guess the case, perhaps a server that does not keep
            // it: a connection tells.
            Fit::OtherCase if self.maker.settings.randomise_case => {
                self.counts.rejected_case.tick();
                self.land(slot, actions);
                return self.ask_connection(slot, server, now, actions);
            }
            Fit::OtherCase | Fit::Same => {}
        }
        if reply.tc() {
            self.counts.upstream_truncated.tick();
            self.land(slot, actions);
            self.upstreams.answered(server, rtt_ns);
            return self.ask_connection(slot, server, now, actions);
        }
        let Ok(stored) = self.accept(&reply) else {
            return self.counts.rejected_malformed.tick();
        };
        self.land(slot, actions);
        self.upstreams.answered(server, rtt_ns);
        self.counts.upstream_answers.tick();
        self.judge(slot, server, stored, now, actions);
    }

    /// What became of a question that was asked over a connection.
    pub fn on_connection(
        &mut self,
        exchange: u64,
        message: Result<&[u8], ConnectionFailed>,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let [slot, generation] = [exchange & u64::from(u32::MAX), exchange >> 32]
            .map(|half| u32::try_from(half).unwrap_or_default());
        if !self.lookups.same(slot, generation) {
            return;
        }
        let Exchange::Connection { server, id } = self.lookups.get(slot).exchange else {
            return;
        };
        self.land(slot, actions);
        let lookup = self.lookups.get(slot);
        let reply = message.ok().and_then(|m| Message::parse(m).ok());
        let stored = reply
            .filter(|r| r.qr() && !r.tc() && r.id() == id && ask::fit(lookup, r) != Fit::Other)
            .and_then(|reply| self.accept(&reply).ok());
        match stored {
            Some(stored) => {
                self.counts.upstream_answers.tick();
                self.judge(slot, server, stored, now, actions);
            }
            None => {
                self.counts.upstream_connection.tick();
                self.exhaust(slot, server);
                self.ask_next(slot, now, actions);
            }
        }
    }

    pub(super) fn on_timeout(&mut self, slot: u32, list: usize, now: Nanos, actions: &mut Actions) {
        self.counts.upstream_timeout.tick();
        if list != CONNECTION {
            self.upstreams.timed_out(list, now);
        } else if let Exchange::Connection { server, .. } = self.lookups.get(slot).exchange {
            self.exhaust(slot, server);
        }
        self.land(slot, actions);
        self.ask_next(slot, now, actions);
    }

    /// Takes a lookup out of flight.
    fn land(&mut self, slot: u32, actions: &mut Actions) {
        self.lookup_timers.clear(slot);
        if let Exchange::Datagram { server, port, .. } = self.lookups.arrive(slot)
            && self.upstreams.release_port(server, port)
        {
            actions.renew(server, port);
        }
    }

    /// An upstream is not asked again for this question.
    fn exhaust(&mut self, slot: u32, server: usize) {
        self.lookups.get(slot).asked[server] = u8::MAX;
    }

    fn accept(&self, reply: &Message<'_>) -> Result<Stored, Malformed> {
        let cache = &self.maker.settings.cache;
        let bounds = TtlBounds {
            min_s: cache.min_ttl_s,
            max_s: cache.max_ttl_s,
            max_negative_s: cache.max_negative_ttl_s,
        };
        Stored::accept(reply, &bounds)
    }

    /// Takes an answer, or asks another upstream if this one has failed the question.
    fn judge(
        &mut self,
        slot: u32,
        server: usize,
        stored: Stored,
        now: Nanos,
        actions: &mut Actions,
    ) {
        match stored.kind() {
            Kind::Failure(
                rcode @ (Rcode::SERVFAIL | Rcode::REFUSED | Rcode::FORMERR | Rcode::NOTIMP),
            ) => {
                self.counts.upstream_rcode.tick();
                self.lookups.get(slot).failed = Some((rcode, stored.extended_error()));
                self.exhaust(slot, server);
                self.ask_next(slot, now, actions);
            }
            _ => self.finish(slot, Arc::new(stored), now, actions),
        }
    }

    /// All upstreams have failed.
    fn give_up(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        self.counts.lookups_failed.tick();
        let lookup = self.lookups.get(slot);
        let (rcode, extended_error) = match lookup.failed {
            // What the client asked for is beyond them, and so it should hear.
            Some((rcode @ (Rcode::FORMERR | Rcode::NOTIMP), why)) => (rcode, why),
            Some((_, why)) => (Rcode::SERVFAIL, why),
            None => (Rcode::SERVFAIL, Some(NO_REACHABLE_AUTHORITY)),
        };
        let asked = Asked {
            name: &lookup.name,
            rtype: lookup.rtype,
            class: lookup.class,
        };
        let stored = Stored::failure(&asked, rcode, extended_error);
        self.finish(slot, Arc::new(stored), now, actions);
    }

    /// The end of a lookup: what it gave is kept, and all who waited for it go on.
    fn finish(&mut self, slot: u32, stored: Arc<Stored>, now: Nanos, actions: &mut Actions) {
        self.lookup_timers.clear(slot);
        let lookup = self.lookups.remove(slot);
        let settings = &self.maker.settings.cache;
        let kept = self.maker.cache.keep(settings, lookup.key, stored, now);
        let (stored, age) = kept;
        if age == Age::Stale {
            self.counts.cache_stale.tick();
        }
        self.woken.push_back(Woken {
            next: lookup.waiters,
            learnt: Learnt { stored, age },
        });
        self.wake(now, actions);
    }

    /// Goes on with queries that have learnt something, as far as this turn has room for answers.
    pub(super) fn wake(&mut self, now: Nanos, actions: &mut Actions) {
        while actions.octets() < ANSWERS_PER_TURN
            && let Some(woken) = self.woken.front_mut()
        {
            if woken.next == Waiter::NOBODY {
                self.woken.pop_front();
                continue;
            }
            let (query, part) = woken.next.parts();
            let held = &mut self.queries[query as usize];
            held.known[part as usize] = Some(woken.learnt.clone());
            woken.next = held.waiting[part as usize].take().unwrap_or(Waiter::NOBODY);
            self.progress(query, now, false, actions);
        }
    }
}
