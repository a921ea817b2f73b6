//! The state of a run from outside the engine, and the checks on it.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};

use dns64_transport::clock::Nanos;
use dns64_wire::message::{Flags, HEADER_LEN, Message};
use dns64_wire::pref64::Pref64;
use dns64d::cache::Cache;
use dns64d::counts::Counts;
use dns64d::engine::DEADLINE_NS;
use dns64d::engine::actions::Client;
use dns64d::settings::{ServerSet, Settings, UPSTREAMS_MAX, Upstream};

/// Number of the engine's queries that can be answered, the newest ones.
const QUESTIONS_MAX: usize = 64;

/// Smallest size of a cache: that of the failures.
const CACHE_MIN: u64 = 1 << 20;

pub(crate) struct Model {
    clients: u16,
    queries: HashMap<u16, Query>,
    /// Upstream, port and message.
    pub(crate) datagrams: Vec<(usize, usize, Vec<u8>)>,
    /// Exchange and message.
    pub(crate) connections: Vec<(u64, Vec<u8>)>,
    /// Responses of upstreams.
    heard: Vec<Vec<u8>>,
    prefixes: Vec<Pref64>,
    servers: usize,
    /// Number of source ports per upstream.
    ports: usize,
    upstreams: Option<(Vec<Upstream>, Vec<ServerSet>)>,
    down: [bool; UPSTREAMS_MAX],
    queries_max: usize,
    cache_bytes: u64,
}

struct Query {
    client: Client,
    message: Vec<u8>,
    limit: usize,
    answers: usize,
    asked_at: Nanos,
}

impl Model {
    pub(crate) fn new(settings: &Settings) -> Self {
        let mut model = Self {
            clients: 0,
            queries: HashMap::new(),
            datagrams: Vec::new(),
            connections: Vec::new(),
            heard: Vec::new(),
            prefixes: Vec::new(),
            servers: 0,
            ports: 0,
            upstreams: None,
            down: [false; UPSTREAMS_MAX],
            queries_max: 0,
            cache_bytes: CACHE_MIN,
        };
        model.reloaded(settings);
        model
    }

    /// New settings: waiting queries may remain, and queries from other ports are finished.
    pub(crate) fn reloaded(&mut self, settings: &Settings) {
        self.servers = settings.upstreams.len();
        self.ports = settings.ports_per_upstream();
        let upstreams = (settings.upstreams.clone(), settings.sets.clone());
        if self.upstreams.as_ref() != Some(&upstreams) {
            // New upstreams have no state.
            self.down = [false; UPSTREAMS_MAX];
            self.upstreams = Some(upstreams);
        }
        self.datagrams.retain(|(server, ..)| *server < self.servers);
        self.queries_max = self.queries_max.max(settings.queries_max);
        self.cache_bytes = self.cache_bytes.max(settings.cache.bytes);
        for dns64 in settings.views.iter().filter_map(|view| view.dns64.as_ref()) {
            self.prefixes.extend(dns64.prefixes_in_use());
        }
    }

    /// A new address in one of four networks.
    pub(crate) fn next_client(&mut self, kind: u8) -> SocketAddr {
        self.clients += 1;
        let network = [127, 10, 10, 192][usize::from(kind >> 1 & 3)];
        let host = if kind & 8 == 0 { 0 } else { 168 };
        ([network, host, 0, 1], self.clients).into()
    }

    pub(crate) fn asked(
        &mut self,
        client: Client,
        message: &[u8],
        asked_at: Nanos,
        settings: &Settings,
    ) {
        let limit = match client {
            Client::Tcp { .. } => 65_535,
            Client::Udp(_) | Client::Proxied { .. } => {
                let opt = Message::parse(message).map(|message| message.opt());
                match opt {
                    Ok(Ok(Some(opt))) => opt.udp_size.min(settings.udp_size).max(512).into(),
                    _ => 512,
                }
            }
        };
        let query = Query {
            client,
            message: message.to_vec(),
            limit,
            answers: 0,
            asked_at,
        };
        self.queries.insert(client.address().port(), query);
    }

    pub(crate) fn heard(&mut self, message: &[u8]) {
        self.heard.push(message.to_vec());
    }

    /// Checks a response to a client.
    pub(crate) fn answered(&mut self, to: Client, answer: &[u8]) {
        let query = self.queries.get_mut(&to.address().port());
        let query = query.expect("a response to an unknown client");
        assert_eq!(query.client, to);
        query.answers += 1;
        assert_eq!(query.answers, 1, "a query has two answers");
        if answer.is_empty() && matches!(to, Client::Tcp { .. }) {
            // The connection is told that there is no response.
            return;
        }
        assert!(
            answer.len() <= query.limit,
            "{} > {}",
            answer.len(),
            query.limit
        );
        let message = Message::parse(answer).expect("an answer parses");
        assert!(message.qr() && answer[..2] == query.message[..2]);
        assert!(query.message[2] & 0x80 == 0, "an answer to an answer");
        if let Some(question) = message.question() {
            let asked = Message::parse(&query.message).expect("a question was found in it");
            let asked = asked
                .question()
                .expect("a question was found in it")
                .range();
            assert_eq!(
                answer[question.range()],
                query.message[asked],
                "another question"
            );
        } else {
            // Nothing, or the requested cookie (RFC 7873 section 5.4).
            let is_cookie = matches!(message.opt(), Ok(Some(_)));
            assert!(answer.len() == HEADER_LEN || is_cookie && query.message[5] == 0);
        }
        if message.ad() {
            self.check_authentic(&message);
        }
    }

    /// Checks that a response with AD has no synthesised address.
    fn check_authentic(&self, message: &Message<'_>) {
        let addresses = message
            .records()
            .map_while(Result::ok)
            .filter_map(|r| r.aaaa());
        for address in addresses {
            let is_made = self.prefixes.iter().any(|p| p.extract(address).is_some());
            assert!(
                !is_made || self.has_heard(address),
                "a response with AD has a synthesised address"
            );
        }
    }

    fn has_heard(&self, address: Ipv6Addr) -> bool {
        let octets = address.octets();
        let mut heard = self.heard.iter();
        heard.any(|message| message.windows(16).any(|w| w == octets))
    }

    /// Records a query to an upstream over UDP.
    pub(crate) fn sent(&mut self, server: usize, port: usize, message: &[u8]) {
        assert!(server < self.servers && port < self.ports);
        check_question(message);
        self.datagrams.push((server, port, message.to_vec()));
        if self.datagrams.len() > QUESTIONS_MAX {
            self.datagrams.remove(0);
        }
    }

    /// Records a query to an upstream over TCP.
    pub(crate) fn sent_connection(&mut self, server: usize, exchange: u64, message: &[u8]) {
        assert!(server < self.servers);
        check_question(message);
        self.connections.push((exchange, message.to_vec()));
        if self.connections.len() > QUESTIONS_MAX {
            self.connections.remove(0);
        }
    }

    /// Checks that an upstream alternates between down and up.
    pub(crate) fn turned(&mut self, server: usize, is_down: bool) {
        assert!(server < self.servers);
        let was_down = std::mem::replace(&mut self.down[server], is_down);
        assert_ne!(was_down, is_down, "the state of an upstream did not change");
    }

    /// Checks that no slot is in use for longer than the deadline of a query.
    pub(crate) fn check_places(&self, now: Nanos, counts: &Counts) {
        let is_young = |query: &&Query| now < query.asked_at + DEADLINE_NS;
        let young = self.queries.values().filter(is_young).count() as u64;
        assert!(counts.queries_waiting.get() <= young, "a slot is not free");
    }

    pub(crate) fn closed_port(&mut self, server: usize, port: usize) {
        assert!(server < self.servers && port < self.ports);
    }

    /// Checks that the tables are within the limits of the settings.
    pub(crate) fn check_bounds(&self, counts: &Counts, cache: &Cache) {
        let queries_max = self.queries_max as u64;
        assert!(counts.queries_waiting.get() <= queries_max);
        // AAAA and A for each, and one more until another is evicted.
        assert!(counts.lookups_in_flight.get() <= 2 * queries_max);
        assert!(cache.bytes() <= self.cache_bytes);
    }

    /// Checks that every query has a response, except for those that were dropped and counted.
    pub(crate) fn check_all_answered(&self, counts: &Counts) {
        let unanswered = || self.queries.values().filter(|query| query.answers == 0);
        let mut clients = unanswered().map(|query| query.client);
        assert!(
            clients.all(|client| matches!(client, Client::Udp(_))),
            "a connection waits without a timer"
        );
        let dropped = [
            &counts.dropped_short,
            &counts.dropped_response,
            &counts.dropped_rate_limit,
            &counts.dropped_late,
        ];
        let dropped: u64 = dropped.into_iter().map(|counter| counter.get()).sum();
        assert!(
            unanswered().count() as u64 <= dropped,
            "a query without an answer"
        );
    }
}

/// Checks that a query of the engine is valid for any resolver.
fn check_question(message: &[u8]) {
    let message = Message::parse(message).expect("a question parses");
    assert!(message.question().is_some());
    let flags = Flags(message.flags().0);
    assert!(!flags.qr() && flags.rd() && message.ancount() == 0);
    assert!(message.opt().is_ok());
}
