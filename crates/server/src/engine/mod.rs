//! The server without sockets and clocks: its input are queries, responses of upstreams and timers,
//! its output are [`Actions`]. One engine belongs to one thread.
//!
//! - [`actions`]: the output;
//! - `resolve`: the procedure of RFC 6147, a pure function; `maker`: runs it on the cache;
//! - `waiting`: holds queries until they can be answered or reach their deadline; `queries`: the
//!   table of them; `fairness`: selects the query to evict when it is full;
//! - `exchange`: queries upstreams; `replies`: handles their responses; `lookups`: the questions,
//!   each shared by all queries that wait for it; `exchanges`: queries to upstreams without a
//!   response; `ask`: the format of queries, and whether responses match them;
//! - `upstreams`: selects the upstream; `ports`: selects the local port; `rtt`: the timeout of an
//!   upstream; `habits`: its capabilities;
//! - `sharing`: shares queries in flight with other workers;
//! - `servfail`: the reasons of SERVFAIL;
//! - `heap`: deadlines; [`rate_limit`]: the rate of responses to one network.
//!
//! When a table is full: of the waiting queries, the oldest of the network with the most is
//! answered SERVFAIL and counted, or the new one if no network has more than its share; cached
//! responses are still sent. Lookups without waiting queries end. The cache evicts the least used
//! entries.

pub mod actions;
mod ask;
mod exchange;
mod exchanges;
mod fairness;
mod habits;
mod heap;
mod lookups;
mod maker;
mod ports;
mod queries;
pub mod rate_limit;
mod replies;
mod resolve;
mod rtt;
mod servfail;
mod sharing;
mod upstreams;
mod waiting;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN};
use dns64_wire::name::NameBuf;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use actions::{Actions, Client};
use exchanges::Exchanges;
use fairness::Shares;
use heap::Heap;
use lookups::Lookups;
use maker::{Maker, SentAgain};
use ports::Ports;
use queries::Query;
use rate_limit::{RateLimiter, RateVerdict};
use resolve::{Made, Step};
use sharing::Sharing;
use upstreams::Upstreams;

use crate::answer::asker::{Asker, Transport};
use crate::answer::cookie::Cookies;
use crate::answer::guard::{self, Admission, Context, Refusal, Silence};
use crate::answer::reply;
use crate::answer::synthesis::Reason;
use crate::cache::{self, Cache, Found, Key, seconds};
use crate::counts::{Counter, Counts, Servfail};
use crate::health::UpstreamState;
use crate::settings::Settings;
use crate::settings::cookies::CookieSecrets;

/// A DNS64 server for one thread.
pub struct Engine {
    maker: Maker,
    counts: Arc<Counts>,
    cookies: Cookies,
    /// Secret of the cookies without one in the settings.
    own_cookies: [u8; 16],
    random: StdRng,
    limiter: Arc<RateLimiter>,
    queries: slab::Slab<Query>,
    /// The queries by their next timer.
    query_timers: Heap,
    shares: Shares,
    lookups: Lookups,
    exchanges: Exchanges,
    upstreams: Upstreams,
    ports: Ports,
    /// The last query to an upstream.
    question: [u8; ask::QUESTION_MAX],
    /// Queries that have a new response and wait for the next iteration.
    woken: VecDeque<u32>,
    /// Pending lookups of an upstream that has responded after a silence, with their start times.
    again: VecDeque<(u32, Nanos)>,
    /// How many of them may be retried in the next iteration.
    again_room: usize,
    /// `None` if no other engine uses its cache.
    sharing: Option<Sharing>,
}

/// The random data of an engine, from the operating system or from a test.
#[derive(Clone, Debug)]
pub struct Seeds {
    /// For IDs, ports and random selection.
    pub random: [u8; 32],
    /// Secret of the DNS cookies without one in the settings; the same for all engines of a server.
    pub cookies: [u8; 16],
}

/// A query that is pending for this time is answered SERVFAIL: a little before its client's
/// timeout. It also limits how many responses can be delayed and sent at once (DNSBomb,
/// CVE-2024-33655).
pub const DEADLINE_NS: Nanos = 4_500_000_000;

impl Engine {
    /// Creates an engine that shares a cache with the others of its server. It does not share
    /// queries in flight, unless [`Engine::share`] is called.
    pub fn new(settings: &Settings, cache: Arc<Cache>, counts: Arc<Counts>, seeds: &Seeds) -> Self {
        let mut random = StdRng::from_seed(seeds.random);
        let [a, b, c, d, ..] = seeds.random;
        let exchanges = Exchanges::numbered_from(u32::from_ne_bytes([a, b, c, d]));
        let limiter = Arc::new(RateLimiter::new(random.next_u64()));
        let upstreams = upstreams(settings, &cache, &mut random);
        Self {
            maker: Maker::new(settings, cache, Arc::clone(&counts)),
            cookies: cookies(settings, seeds.cookies),
            own_cookies: seeds.cookies,
            limiter,
            queries: slab::Slab::new(),
            query_timers: Heap::default(),
            shares: Shares::default(),
            woken: VecDeque::new(),
            again: VecDeque::new(),
            again_room: 0,
            sharing: None,
            lookups: Lookups::new(),
            exchanges,
            upstreams,
            ports: Ports::new(settings.upstreams.len(), settings.ports_per_upstream()),
            question: [0; ask::QUESTION_MAX],
            counts,
            random,
        }
    }

    /// The current settings.
    pub fn settings(&self) -> &Settings {
        &self.maker.settings
    }

    /// The counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Handles a client's message. An immediate UDP response is written into `frame`, which must
    /// have room for the largest ([`Settings::udp_size`]), and its length returned; 0: no response,
    /// or one in `actions`, now or later. For TCP the frame is not used and may be empty.
    pub fn on_query(
        &mut self,
        client: Client,
        message: &[u8],
        frame: &mut [u8],
        now: Nanos,
        actions: &mut Actions,
    ) -> usize {
        let (transport, received) = match client {
            Client::Udp(_) | Client::Proxied { .. } => (Transport::Udp, &self.counts.queries_udp),
            Client::Tcp { tls: false, .. } => (Transport::Tcp, &self.counts.queries_tcp),
            Client::Tcp { tls: true, .. } => (Transport::Tls, &self.counts.queries_tls),
        };
        received.tick();
        let address = client.address().ip();
        let context = Context {
            allow: &self.maker.settings.allow,
            deny: self.maker.settings.deny,
            udp_size: self.maker.settings.udp_size,
            any: self.maker.settings.any,
            identity: &self.maker.settings.identity,
            idle_ns: self.maker.settings.tcp.idle_ns,
            cookies: &self.cookies,
            client: address,
            transport,
            now_s: seconds(now),
        };
        // An asker is large: it is copied only if its query has to wait.
        match &guard::admit(message, &context, &mut self.maker.frame) {
            Admission::Drop(reason) => {
                self.count_dropped(*reason);
                stay_silent(client, actions);
                0
            }
            Admission::Answer { len, refused } => {
                if let Some(reason) = refused {
                    self.count_refused(*reason);
                }
                match self.limit(transport, address, false, now) {
                    RateVerdict::Send => self.respond(client, *len, frame, actions),
                    RateVerdict::Truncate | RateVerdict::Drop => {
                        self.counts.dropped_rate_limit.tick();
                        0
                    }
                }
            }
            Admission::Asker(asker) => {
                self.count_type(asker.rtype);
                let known = asker.edns.is_some_and(|edns| edns.cookie_valid);
                match self.limit(transport, address, known, now) {
                    RateVerdict::Send => self.resolve(client, asker, frame, now, actions),
                    RateVerdict::Truncate => {
                        let len = reply::truncated(asker, &mut self.maker.frame);
                        self.respond(client, len, frame, actions)
                    }
                    RateVerdict::Drop => {
                        self.counts.dropped_rate_limit.tick();
                        0
                    }
                }
            }
        }
    }

    fn limit(&self, transport: Transport, client: IpAddr, known: bool, now: Nanos) -> RateVerdict {
        let settings = &self.maker.settings;
        match &settings.rate_limit {
            Some(limit)
                if transport == Transport::Udp && !known && !limit.exempt.contains(client) =>
            {
                let network = settings.client_prefixes.network(client);
                self.limiter.check(limit, network, now)
            }
            _ => RateVerdict::Send,
        }
    }

    /// Answers a query, from the cache or after querying upstreams.
    fn resolve(
        &mut self,
        client: Client,
        asker: &Asker,
        frame: &mut [u8],
        now: Nanos,
        actions: &mut Actions,
    ) -> usize {
        let view = self.maker.settings.view_of(client.address().ip());
        let name_hash = cache::name_hash(&asker.name);
        let key = queries::key_of(asker, name_hash);
        let sent = self.send_again(client, asker, key, view, frame, now, actions);
        if let SentAgain::Yes(len) = sent {
            return len;
        }
        match self.maker.begin(asker, view) {
            Ok(len) => {
                self.counts.at_once.tick();
                self.respond(client, len, frame, actions)
            }
            Err(plan) => {
                // A rendered response that is only too long for this client is not cached again.
                let generation = self.maker.generation();
                let generation = generation.filter(|_| matches!(sent, SentAgain::No));
                let mut query = Query::new(
                    client,
                    asker.clone(),
                    name_hash,
                    view,
                    plan,
                    now,
                    generation,
                );
                query.route(self.maker.policy(view));
                match self.maker.advance(&mut query, &self.lookups, now) {
                    Step::Answer(len, made) => {
                        self.counts.at_once.tick();
                        self.counts.count_made(made);
                        if self.failed(len) {
                            self.explain(client, Servfail::of(&query), len, actions);
                        }
                        let len = self.respond(client, len, frame, actions);
                        self.prefetch(now, actions);
                        len
                    }
                    Step::Need(part) => {
                        self.hold(query, part, now, actions);
                        0
                    }
                }
            }
        }
    }

    /// Answers a query with a cached rendered response, if there is one. Its length is that in the
    /// outgoing `frame`.
    #[expect(
        clippy::too_many_arguments,
        reason = "a query and where its answer goes"
    )]
    fn send_again(
        &mut self,
        client: Client,
        asker: &Asker,
        key: Key<'_>,
        view: usize,
        frame: &mut [u8],
        now: Nanos,
        actions: &mut Actions,
    ) -> SentAgain {
        if let Client::Udp(_) | Client::Proxied { .. } = client {
            let sent = self.maker.answer_rendered(asker, key, view, now, frame);
            if let SentAgain::Yes(len) = sent {
                self.counts.at_once.tick();
                self.counts.count_response(&frame[..len]);
            }
            return sent;
        }
        let mut own = std::mem::take(&mut self.maker.frame);
        let sent = self.maker.answer_rendered(asker, key, view, now, &mut own);
        self.maker.frame = own;
        if let SentAgain::Yes(len) = sent {
            self.counts.at_once.tick();
            return SentAgain::Yes(self.respond(client, len, frame, actions));
        }
        sent
    }

    /// Sends the message in the maker's frame to a client at once: over UDP in the outgoing
    /// `frame`. Returns its length there.
    fn respond(
        &self,
        client: Client,
        len: usize,
        frame: &mut [u8],
        actions: &mut Actions,
    ) -> usize {
        let message = &self.maker.frame[..len];
        self.counts.count_response(message);
        match client {
            Client::Udp(_) | Client::Proxied { .. } => {
                frame[..len].copy_from_slice(message);
                len
            }
            Client::Tcp { .. } => {
                actions.reply(client, message, 0);
                0
            }
        }
    }

    /// Sends the message in the frame to a client that has waited for it.
    fn send(&mut self, client: Client, len: usize, took_ns: Nanos, actions: &mut Actions) {
        let message = &self.maker.frame[..len];
        self.counts.count_response(message);
        actions.reply(client, message, took_ns);
    }

    /// Starts a new iteration and handles the deadlines that have passed.
    pub fn on_timer(&mut self, now: Nanos, actions: &mut Actions) {
        self.ports.turn(now, actions);
        self.wake(now, actions);
        self.ask_again(now, actions);
        self.on_moments(now, actions);
        self.on_timeouts(now, actions);
        self.on_claims_over(now, actions);
        self.counts.queries_waiting.set(self.queries.len() as u64);
        let in_flight = self.lookups.asked_here() as u64;
        self.counts.lookups_in_flight.set(in_flight);
    }

    /// Time of the next call of [`Engine::on_timer`]; 0: at once.
    pub fn next_deadline(&self) -> Option<Nanos> {
        if !self.woken.is_empty() || self.again_room > 0 {
            return Some(0);
        }
        let timers = [&self.query_timers, &self.exchanges.timers];
        let next = timers.into_iter().filter_map(Heap::first);
        let next = next.map(|(deadline, _)| deadline);
        next.chain(self.lookups.next_elsewhere())
            .chain(self.ports.next_deadline())
            .min()
    }

    /// Whether no client waits for an answer.
    pub fn is_idle(&self) -> bool {
        self.queries.is_empty()
    }

    /// Changes the settings. Cache and queries remain; queries in flight are sent again if upstreams
    /// are queried otherwise now ([`Settings::queries_like`]), and all ports are closed by then.
    pub fn reload(&mut self, settings: &Settings, now: Nanos, actions: &mut Actions) {
        let old = self.maker.reload(settings);
        self.cookies = cookies(settings, self.own_cookies);
        for (_, query) in &mut self.queries {
            query.view = settings.view_of(query.client.address().ip());
            query.route(self.maker.policy(query.view));
            // Its plan depends on the old settings.
            query.generation = None;
        }
        if !old.queries_like(settings) {
            self.upstreams = upstreams(settings, &self.maker.cache, &mut self.random);
            self.ports = Ports::new(settings.upstreams.len(), settings.ports_per_upstream());
            self.counts.forget_upstreams();
            self.ask_anew(now, actions);
        }
    }

    /// The state of an upstream, by its number in the settings.
    pub fn upstream(&self, server: usize, now: Nanos) -> Option<UpstreamState> {
        self.upstreams.state(server, now)
    }

    /// Upstreams that the operator has closed, as bits by their number in the settings.
    pub fn close_upstreams(&mut self, closed: u32) {
        self.upstreams.close(closed);
    }

    /// What the cache has for a question of a client.
    pub fn cached(&self, name: &NameBuf, rtype: Rtype, client: IpAddr, now: Nanos) -> String {
        let view = self.maker.settings.view_of(client);
        let key = Key::new(name, cache::name_hash(name), rtype, Class::IN, false, false);
        let key = key.to_set(self.maker.policy(view).set_of(name));
        match self.maker.find(&key, now) {
            Found::Fresh(learnt) | Found::Stale(learnt, _) => learnt.describe(seconds(now)),
            Found::Missing => "absent".to_owned(),
        }
    }

    /// A line for each question that clients wait for, the oldest first, up to `most`.
    pub fn in_flight(&self, most: usize, now: Nanos) -> Vec<String> {
        let mut waited_for: Vec<_> = self.lookups.waited_for().collect();
        waited_for.sort_unstable_by_key(|(_, begun)| *begun);
        waited_for.truncate(most);
        let line = |(slot, begun): (u32, Nanos)| {
            let lookup = self.lookups.peek(slot);
            let question = &lookup.question;
            let clients = self.waiters(lookup.waiters).count();
            let asked: u32 = lookup.asked.iter().map(|times| u32::from(*times)).sum();
            let server = match (lookup.exchanges, self.lookups.is_elsewhere(slot)) {
                (_, true) => "another-worker".to_owned(),
                (Some(exchange), _) => {
                    let server = self.exchanges.get(exchange).server;
                    self.maker.settings.upstreams[server].address.to_string()
                }
                (None, _) => "none".to_owned(),
            };
            let (name, rtype, age_ms) = (&question.name, question.rtype, (now - begun) / 1_000_000);
            format!(
                "name={name} type={rtype} upstream={server} age_ms={age_ms} sent={asked} clients={clients}"
            )
        };
        waited_for.into_iter().map(line).collect()
    }

    fn count_dropped(&self, reason: Silence) {
        match reason {
            Silence::Short => self.counts.dropped_short.tick(),
            Silence::Response => self.counts.dropped_response.tick(),
            Silence::Access => self.counts.dropped_access.tick(),
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

/// A client gets no response. A TCP connection must be told, or it would wait for one.
fn stay_silent(client: Client, actions: &mut Actions) {
    if let Client::Tcp { .. } = client {
        actions.reply(client, &[], 0);
    }
}

/// The cookies of these settings, or those of an own secret.
fn cookies(settings: &Settings, own: [u8; 16]) -> Cookies {
    let shared = settings.cookies.clone();
    Cookies::new(shared.unwrap_or_else(|| CookieSecrets::own(own)))
}

/// Upstreams in their initial state.
fn upstreams(settings: &Settings, cache: &Cache, random: &mut StdRng) -> Upstreams {
    let mut secret = [0; 16];
    random.fill_bytes(&mut secret);
    let sets = settings.sets.iter().enumerate();
    let numbered = sets.map(|(index, set)| (cache.set_number(settings, index), set));
    Upstreams::new(&settings.upstreams, numbered, secret)
}

impl Counts {
    /// Counts a response by the way it was built.
    fn count_made(&self, made: Made) {
        if let Some(counter) = self.made(made) {
            counter.tick();
        }
    }

    /// Sets the counters of a sender that only sends cached rendered responses, such as the driver,
    /// by the notes of the responses.
    pub(crate) fn set_sent_again(&self, by_note: &[u64; 256]) {
        let mut hits = 0;
        let mut by_made = [0; Made::ALL.len()];
        for (note, times) in (0..=u8::MAX).zip(by_note) {
            let (made, responses) = Made::from_note(note);
            hits += times * u64::from(responses);
            by_made[made.place()] += times;
        }
        self.rendered.set(by_note.iter().sum());
        self.cache_hits.set(hits);
        for (made, times) in Made::ALL.into_iter().zip(by_made) {
            if let Some(counter) = self.made(made) {
                counter.set(times);
            }
        }
    }

    /// The counter of responses that were built in this way.
    fn made(&self, made: Made) -> Option<&Counter> {
        Some(match made {
            Made::Forwarded => return None,
            Made::Aaaa => &self.synthesised_aaaa,
            Made::Ptr => &self.synthesised_ptr,
            Made::NotFor(Reason::Dnssec) => &self.not_synthesised_dnssec,
            Made::NotFor(Reason::Domain) => &self.not_synthesised_domain,
            Made::NotFor(Reason::Translator) => &self.not_synthesised_translator,
            Made::NoA => &self.not_synthesised_no_a,
        })
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
