//! What a thread counts: plain counters that only it writes and others may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only the worker that owns it may.
    pub fn add(&self, n: u64) {
        // A load and a store, not an atomic addition: there is one writer.
        self.0
            .store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn tick(&self) {
        self.add(1);
    }

    /// Sets it, for what goes up and down or is counted elsewhere.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a figure only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// One figure with its name: `dns64d_NAME{LABEL="VALUE"}`.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Metric name, without prefix and without `_total`.
    pub name: &'static str,
    /// Label and its value, empty if there is none.
    pub label: (&'static str, &'static str),
    /// What it tells.
    pub help: &'static str,
    /// Whether it only grows.
    pub shape: Shape,
    /// Its value.
    pub value: u64,
}

/// Makes a struct of counters with a method `figures`.
macro_rules! counts {
    ($(#[$doc:meta])* $name:ident: $($shape:ident $metric:literal $help:literal {
        $($field:ident $(= $label:literal : $value:literal)?,)*
    })*) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[expect(missing_docs, reason = "the texts stand in the table, for `figures`")]
        pub struct $name {
            $($(pub $field: $crate::counts::Counter,)*)*
        }

        impl $name {
            /// All figures, in a fixed order.
            pub fn figures(&self) -> Vec<$crate::counts::Figure> {
                vec![$($($crate::counts::Figure {
                    name: $metric,
                    label: $crate::counts::counts!(@label $($label, $value)?),
                    help: $help,
                    shape: $crate::counts::Shape::$shape,
                    value: self.$field.get(),
                },)*)*]
            }
        }
    };
    (@label $label:literal, $value:literal) => { ($label, $value) };
    (@label) => { ("", "") };
}

pub(crate) use counts;

counts! {
    /// All the counters of one worker. Names and meanings: see [`Counts::figures`].
    Counts:
    Counter "queries" "Queries taken in, by transport" {
        queries_udp = "transport": "udp",
        queries_tcp = "transport": "tcp",
    }
    Counter "query_types" "Queries that passed the guard, by type" {
        type_a = "type": "A",
        type_aaaa = "type": "AAAA",
        type_ptr = "type": "PTR",
        type_https = "type": "HTTPS",
        type_other = "type": "other",
    }
    Counter "dropped" "Messages that got no answer, by reason" {
        dropped_short = "reason": "short",
        dropped_response = "reason": "response",
        dropped_rate_limit = "reason": "rate-limit",
        dropped_late = "reason": "late",
        dropped_unread = "reason": "unread",
    }
    Counter "refused" "Queries refused by the guard, or for lack of room, by reason" {
        refused_format = "reason": "format",
        refused_opcode = "reason": "opcode",
        refused_version = "reason": "edns-version",
        refused_access = "reason": "access",
        refused_type = "reason": "type",
        refused_full = "reason": "full",
    }
    Counter "datagrams_lost" "Datagrams that were lost or not taken at the sockets, by reason" {
        lost_full = "reason": "receive-buffer",
        lost_unsent = "reason": "unsent",
        lost_unreachable = "reason": "unreachable",
        lost_foreign = "reason": "foreign",
    }
    Counter "responses" "Responses to clients, by response code" {
        responses_noerror = "rcode": "NOERROR",
        responses_formerr = "rcode": "FORMERR",
        responses_servfail = "rcode": "SERVFAIL",
        responses_nxdomain = "rcode": "NXDOMAIN",
        responses_notimp = "rcode": "NOTIMP",
        responses_refused = "rcode": "REFUSED",
        responses_other = "rcode": "other",
    }
    Counter "responses_truncated" "Responses sent with TC set" { responses_truncated, }
    Counter "synthesised" "Answers with synthesised records, by kind" {
        synthesised_aaaa = "kind": "aaaa",
        synthesised_ptr = "kind": "ptr",
        synthesised_svcb = "kind": "svcb",
    }
    Counter "ipv4only" "Questions for ipv4only.arpa and names of its addresses, answered here" { ipv4only, }
    Counter "not_synthesised" "AAAA queries without a native answer that got no synthesised one, by reason" {
        not_synthesised_dnssec = "reason": "dnssec",
        not_synthesised_domain = "reason": "domain",
        not_synthesised_no_a = "reason": "no-a",
    }
    Counter "cache_lookups" "Looks into the cache, by outcome" {
        cache_hits = "outcome": "hit",
        cache_misses = "outcome": "miss",
        cache_stale = "outcome": "stale",
    }
    Counter "rendered" "Responses that were sent again as they were kept" { rendered, }
    Counter "prefetches" "Answers asked for anew before their end" { prefetches, }
    Counter "coalesced" "Questions that waited for one already in flight" { coalesced, }
    Counter "upstream_queries" "Questions sent to upstreams, by transport" {
        upstream_udp = "transport": "udp",
        upstream_tcp = "transport": "tcp",
    }
    Counter "upstream_answers" "Answers taken from upstreams" { upstream_answers, }
    Counter "upstream_failures" "Questions that an upstream failed, by reason" {
        upstream_timeout = "reason": "timeout",
        upstream_rcode = "reason": "rcode",
        upstream_truncated = "reason": "truncated",
        upstream_connection = "reason": "connection",
    }
    Counter "upstream_rejected" "Messages from upstreams that were not taken as answers, by reason" {
        rejected_unknown = "reason": "unknown",
        rejected_question = "reason": "question",
        rejected_case = "reason": "case",
        rejected_malformed = "reason": "malformed",
    }
    Counter "lookups_failed" "Questions that all upstreams failed" { lookups_failed, }
    Gauge "queries_waiting" "Client queries that wait for upstreams" { queries_waiting, }
    Gauge "lookups_in_flight" "Questions in flight to upstreams" { lookups_in_flight, }
}
