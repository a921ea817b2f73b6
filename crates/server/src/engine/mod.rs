//! The server without sockets and clocks: queries, answers of upstreams and moments go in,
//! [`Actions`] come out. One engine belongs to one thread.
//!
//! - [`actions`]: what comes out;
//! - `resolve`: the procedure of RFC 6147, a pure function; `maker`: turns it over the cache;
//! - `queries`: client queries that wait; `lookups`: questions in flight, each asked once;
//! - `exchange`: asks upstreams and takes their answers; `upstreams`: whom to ask, from which port;
//!   `ask`: questions and whether replies fit;
//! - `timers`: deadlines; [`rate_limit`]: responses to one network.
//!
//! What happens when a table is full: a query for which there is no room among those that wait, or
//! whose question finds no room in flight, is answered SERVFAIL and counted; cached answers go on
//! being served. The cache drops what is used least.

pub mod actions;
mod ask;
mod exchange;
mod lookups;
mod maker;
mod queries;
pub mod rate_limit;
mod resolve;
mod timers;
mod upstreams;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use actions::{Actions, Client};
use lookups::Lookups;
use maker::Maker;
use queries::{Query, Woken};
use rate_limit::{RateLimiter, RateVerdict};
use resolve::{Made, Part, Step};
use timers::Timers;
use upstreams::Upstreams;

use crate::answer::asker::{Asker, Transport};
use crate::answer::cookie::Cookies;
use crate::answer::guard::{self, Admission, Context, Refusal, Silence};
use crate::answer::reply;
use crate::answer::synthesis::Reason;
use crate::cache::{Cache, seconds};
use crate::counts::Counts;
use crate::settings::{LookupOrder, Settings, UPSTREAMS_MAX};

/// A DNS64 server for one thread.
pub struct Engine {
    maker: Maker,
    counts: Arc<Counts>,
    cookies: Cookies,
    random: StdRng,
    limiter: Option<RateLimiter>,
    queries: slab::Slab<Query>,
    query_timers: Timers,
    query_deadlines: Timers,
    lookups: Lookups,
    /// A list for each upstream, and one for connections.
    lookup_timers: Timers,
    upstreams: Upstreams,
    /// Queries that have learnt something and wait for room in a turn.
    woken: VecDeque<Woken>,
}

/// What an engine gets by chance, from the operating system or from a test.
#[derive(Clone, Debug)]
pub struct Seeds {
    /// For IDs, ports and choices.
    pub random: [u8; 32],
    /// Secret of the DNS cookies; the same for all engines of a server.
    pub cookies: [u8; 16],
}

/// An answer that took longer is not sent: its client has given up. The default of resolv.conf(5).
const LATE_NS: Nanos = 5 * SECOND;

/// A query that upstreams have held up this long is answered SERVFAIL: a little before its client
/// gives up. It also bounds how many answers can be held back to leave all at once (DNSBomb,
/// CVE-2024-33655).
pub const DEADLINE_NS: Nanos = 4_500_000_000;

/// A stale answer is sent when upstreams have taken this long (RFC 8767 section 5).
const STALE_NS: Nanos = 1_800_000_000;

/// List numbers of `query_timers`.
const DELAY: usize = 0;
const STALE: usize = 1;

impl Engine {
    /// An engine that shares a cache with the others of its server.
    pub fn new(
        settings: &Settings,
        cache: Arc<Cache>,
        counts: Arc<Counts>,
        seeds: &Seeds,
        now: Nanos,
    ) -> Self {
        let mut random = StdRng::from_seed(seeds.random);
        let limiter = limiter(settings, &mut random);
        Self {
            maker: Maker::new(settings, cache, Arc::clone(&counts)),
            cookies: Cookies::new(seeds.cookies),
            limiter,
            queries: slab::Slab::new(),
            query_timers: Timers::new(2),
            query_deadlines: Timers::new(1),
            woken: VecDeque::new(),
            lookups: Lookups::new(settings.queries_max),
            lookup_timers: Timers::new(UPSTREAMS_MAX + 1),
            upstreams: Upstreams::new(&settings.upstreams, settings.selection, now),
            counts,
            random,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.maker.settings
    }

    /// What it counts.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A client's message has come.
    pub fn on_query(&mut self, client: Client, message: &[u8], now: Nanos, actions: &mut Actions) {
        let transport = match client {
            Client::Udp(_) => Transport::Udp,
            Client::Tcp { .. } => Transport::Tcp,
        };
        match transport {
            Transport::Udp => self.counts.queries_udp.tick(),
            Transport::Tcp => self.counts.queries_tcp.tick(),
        }
        let address = client.address().ip();
        let context = Context {
            allow: &self.maker.settings.allow,
            udp_size: self.maker.settings.udp_size,
            any: self.maker.settings.any,
            cookies: &self.cookies,
            client: address,
            transport,
            now_s: seconds(now),
        };
        match guard::admit(message, &context, &mut self.maker.frame) {
            Admission::Drop(reason) => {
                self.count_dropped(reason);
                stay_silent(client, actions);
            }
            Admission::Answer { len, reason } => {
                self.count_refused(reason);
                match self.limit(transport, address, false, now) {
                    RateVerdict::Send => self.send(client, len, actions),
                    RateVerdict::Truncate | RateVerdict::Drop => {
                        self.counts.dropped_rate_limit.tick();
                    }
                }
            }
            Admission::Asker(asker) => {
                self.count_type(asker.rtype);
                let known = asker.edns.is_some_and(|edns| edns.cookie_valid);
                match self.limit(transport, address, known, now) {
                    RateVerdict::Send => self.resolve(client, asker, now, actions),
                    RateVerdict::Truncate => {
                        let len = reply::truncated(&asker, &mut self.maker.frame);
                        self.send(client, len, actions);
                    }
                    RateVerdict::Drop => self.counts.dropped_rate_limit.tick(),
                }
            }
        }
    }

    fn limit(
        &mut self,
        transport: Transport,
        client: IpAddr,
        known: bool,
        now: Nanos,
    ) -> RateVerdict {
        match &mut self.limiter {
            Some(limiter) if transport == Transport::Udp && !known => limiter.check(client, now),
            _ => RateVerdict::Send,
        }
    }

    /// Answers a query, from what is here or after asking upstreams.
    fn resolve(&mut self, client: Client, asker: Asker, now: Nanos, actions: &mut Actions) {
        let view = self.maker.settings.view_of(client.address().ip());
        let mut frame = std::mem::take(&mut self.maker.frame);
        let sent_again = self.maker.answer_rendered(&asker, view, now, &mut frame);
        self.maker.frame = frame;
        if let Some(len) = sent_again {
            return self.send(client, len, actions);
        }
        match self.maker.begin(client, asker, view, now) {
            Ok(len) => self.send(client, len, actions),
            Err(mut query) => match self.maker.advance(&mut query, now, false) {
                Step::Answer(len, made) => {
                    self.counts.count_made(made);
                    self.send(client, len, actions);
                    self.maker.render(&query, now);
                    self.prefetch(now, actions);
                }
                Step::Need(part) => self.hold(query, part, now, actions),
            },
        }
    }

    /// Keeps a query until upstreams have answered what it needs.
    fn hold(&mut self, query: Query, part: Part, now: Nanos, actions: &mut Actions) {
        if self.queries.len() >= self.maker.settings.queries_max {
            self.counts.refused_full.tick();
            let len = reply::error(&query.asker, Rcode::SERVFAIL, None, &mut self.maker.frame);
            return self.send(query.client, len, actions);
        }
        let may_synthesise = part == Part::First && self.maker.may_synthesise(&query);
        // The settings bound the number far below 2^31.
        let slot = u32::try_from(self.queries.insert(query)).unwrap_or(u32::MAX);
        self.query_deadlines.set(slot, 0, now + DEADLINE_NS);
        self.want(slot, part, now, actions);
        if !self.queries.contains(slot as usize) {
            return;
        }
        match self.maker.settings.order {
            LookupOrder::Delayed(delay_ns) if may_synthesise => {
                self.query_timers.set(slot, DELAY, now + delay_ns);
            }
            LookupOrder::Both if may_synthesise => self.want_ahead(slot, now, actions),
            _ => self.await_stale(slot, now),
        }
    }

    /// Lets a query wait for A records before it is known whether it needs them, unless they are
    /// in the cache.
    fn want_ahead(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        if !self
            .maker
            .knows(&self.queries[slot as usize], Part::Second, now)
        {
            self.want(slot, Part::Second, now, actions);
        }
        self.await_stale(slot, now);
    }

    /// Sets the time after which a stale answer will do.
    fn await_stale(&mut self, slot: u32, now: Nanos) {
        if self.maker.settings.cache.stale_s > 0 && self.queries.contains(slot as usize) {
            self.query_timers.set(slot, STALE, now + STALE_NS);
        }
    }

    /// Goes on with a query that has learnt something.
    fn progress(&mut self, slot: u32, now: Nanos, accept_stale: bool, actions: &mut Actions) {
        let Some(query) = self.queries.get_mut(slot as usize) else {
            return;
        };
        if query.answered {
            self.forget(slot);
            return;
        }
        match self.maker.advance(query, now, accept_stale) {
            Step::Answer(len, made) => {
                self.counts.count_made(made);
                self.answer(slot, len, now, actions);
            }
            Step::Need(part) => self.want(slot, part, now, actions),
        }
        self.prefetch(now, actions);
    }

    /// The time of a query is over: it gets what there is.
    fn end(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        let asker = &self.queries[slot as usize].asker;
        let why = Some(exchange::NO_REACHABLE_AUTHORITY);
        let len = reply::error(asker, Rcode::SERVFAIL, why, &mut self.maker.frame);
        self.answer(slot, len, now, actions);
    }

    /// Sends the answer of a query that was held, unless it comes too late.
    fn answer(&mut self, slot: u32, len: usize, now: Nanos, actions: &mut Actions) {
        let query = &mut self.queries[slot as usize];
        query.answered = true;
        let (client, arrived) = (query.client, query.arrived);
        self.query_timers.clear(slot);
        self.query_deadlines.clear(slot);
        if now - arrived > LATE_NS {
            self.counts.dropped_late.tick();
            stay_silent(client, actions);
        } else {
            self.send(client, len, actions);
        }
        self.forget(slot);
    }

    /// Forgets an answered query once nothing will come for it any more.
    fn forget(&mut self, slot: u32) {
        let query = &self.queries[slot as usize];
        if query.answered && query.is_done() {
            self.queries.remove(slot as usize);
        }
    }

    /// Sends the message in the frame to a client.
    fn send(&mut self, client: Client, len: usize, actions: &mut Actions) {
        let message = &self.maker.frame[..len];
        self.counts.count_response(message);
        actions.reply(client, message);
    }

    /// Time has passed: meets the deadlines that are due, and begins a new turn.
    pub fn on_timer(&mut self, now: Nanos, actions: &mut Actions) {
        self.upstreams.turn(now, &mut self.random, |server, port| {
            actions.renew(server, port);
        });
        self.wake(now, actions);
        while let Some((slot, list)) = self.query_timers.expired(now) {
            if list == DELAY {
                self.want_ahead(slot, now, actions);
            } else {
                self.progress(slot, now, true, actions);
            }
        }
        while let Some((slot, _)) = self.query_deadlines.expired(now) {
            self.end(slot, now, actions);
        }
        while let Some((slot, list)) = self.lookup_timers.expired(now) {
            self.on_timeout(slot, list, now, actions);
        }
        self.counts.queries_waiting.set(self.queries.len() as u64);
        self.counts.lookups_in_flight.set(self.lookups.len() as u64);
    }

    /// When [`Engine::on_timer`] has something to do; 0: at once.
    pub fn next_deadline(&self) -> Option<Nanos> {
        if !self.woken.is_empty() {
            return Some(0);
        }
        let timers = [
            &self.query_timers,
            &self.query_deadlines,
            &self.lookup_timers,
        ];
        timers.into_iter().filter_map(Timers::next).min()
    }

    /// Whether no client waits for an answer.
    pub fn is_idle(&self) -> bool {
        self.queries.is_empty()
    }

    /// Takes on new settings. Cache and queries stay; questions in flight are asked anew if the
    /// upstreams have changed.
    pub fn reload(&mut self, settings: &Settings, now: Nanos, actions: &mut Actions) {
        let old = self.maker.reload(settings);
        self.lookups.set_capacity(settings.queries_max);
        if old.rate_limit != settings.rate_limit {
            self.limiter = limiter(settings, &mut self.random);
        }
        for (_, query) in &mut self.queries {
            query.view = settings.view_of(query.client.address().ip());
        }
        if old.upstreams != settings.upstreams || old.selection != settings.selection {
            let slots = self.lookups.all();
            for slot in &slots {
                self.lookups.arrive(*slot);
                self.lookup_timers.clear(*slot);
                self.lookups.get(*slot).asked = upstreams::Asked::default();
            }
            self.upstreams = Upstreams::new(&settings.upstreams, settings.selection, now);
            for slot in slots {
                self.ask_next(slot, now, actions);
            }
        }
    }

    fn count_dropped(&self, reason: Silence) {
        match reason {
            Silence::Short => self.counts.dropped_short.tick(),
            Silence::Response => self.counts.dropped_response.tick(),
        }
    }

    fn count_refused(&self, reason: Refusal) {
        let counter = match reason {
            Refusal::Format => &self.counts.refused_format,
            Refusal::Opcode => &self.counts.refused_opcode,
            Refusal::Version => &self.counts.refused_version,
            Refusal::Access => &self.counts.refused_access,
            Refusal::Type => &self.counts.refused_type,
        };
        counter.tick();
    }

    fn count_type(&self, rtype: Rtype) {
        let counter = match rtype {
            Rtype::A => &self.counts.type_a,
            Rtype::AAAA => &self.counts.type_aaaa,
            Rtype::PTR => &self.counts.type_ptr,
            Rtype::HTTPS => &self.counts.type_https,
            _ => &self.counts.type_other,
        };
        counter.tick();
    }
}

/// A client gets no answer. Whoever holds its connection has to know, or it would wait for one.
fn stay_silent(client: Client, actions: &mut Actions) {
    if let Client::Tcp { .. } = client {
        actions.reply(client, &[]);
    }
}

fn limiter(settings: &Settings, random: &mut StdRng) -> Option<RateLimiter> {
    use rand::Rng as _;
    let limit = settings.rate_limit?;
    Some(RateLimiter::new(limit, random.next_u64()))
}

impl Counts {
    /// Counts an answer by how it was made.
    fn count_made(&self, made: Made) {
        let counter = match made {
            Made::Forwarded => return,
            Made::Aaaa => &self.synthesised_aaaa,
            Made::Ptr => &self.synthesised_ptr,
            Made::Svcb => &self.synthesised_svcb,
            Made::NotFor(Reason::Dnssec) => &self.not_synthesised_dnssec,
            Made::NotFor(Reason::Domain) => &self.not_synthesised_domain,
            Made::NoA => &self.not_synthesised_no_a,
        };
        counter.tick();
    }

    /// Counts a response by its code and its TC bit.
    fn count_response(&self, message: &[u8]) {
        let Some(header) = message.first_chunk::<HEADER_LEN>() else {
            return;
        };
        let flags = Flags(u16::from_be_bytes([header[2], header[3]]));
        let counter = match flags.rcode() {
            Rcode::NOERROR => &self.responses_noerror,
            Rcode::FORMERR => &self.responses_formerr,
            Rcode::SERVFAIL => &self.responses_servfail,
            Rcode::NXDOMAIN => &self.responses_nxdomain,
            Rcode::NOTIMP => &self.responses_notimp,
            Rcode::REFUSED => &self.responses_refused,
            _ => &self.responses_other,
        };
        counter.tick();
        if flags.tc() {
            self.responses_truncated.tick();
        }
    }
}

#[cfg(test)]
mod tests;
