//! Counters and histograms of a thread: only that thread writes them, and other threads may read
//! them at any time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use dns64_transport::clock::Nanos;

use crate::settings::UPSTREAMS_MAX;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the worker that owns the counter may call this.
    pub fn add(&self, n: u64) {
        // A load and a store instead of an atomic addition: there is only one writer.
        self.0
            .store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn tick(&self) {
        self.add(1);
    }

    /// Sets the value, for gauges and values that are counted elsewhere.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets of a [`Histogram`], inclusive, in nanoseconds: 1, 2 and 5 of each
/// decade, from the duration of a worker's turn to twice the 5 s timeout of stub resolvers
/// (resolv.conf(5)).
pub const BOUNDS_NS: [Nanos; 16] = {
    let mut bounds = [0; 16];
    let (mut at, mut decade) = (0, 100_000);
    while at < bounds.len() {
        bounds[at] = decade * [1, 2, 5][at % 3];
        at += 1;
        if at % 3 == 0 {
            decade *= 10;
        }
    }
    bounds
};

/// A histogram of durations with one writer: a count for each of [`BOUNDS_NS`], one for longer
/// durations, and the sum.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_NS.len() + 1],
    sum_ns: Counter,
}

impl Histogram {
    /// Adds a duration. Only the worker that owns the histogram may call this.
    pub fn observe(&self, time_ns: Nanos) {
        self.buckets[BOUNDS_NS.partition_point(|&bound| bound < time_ns)].tick();
        self.sum_ns.add(time_ns);
    }

    /// Clears the histogram. Only the worker that owns the histogram may call this.
    fn clear(&self) {
        self.buckets.iter().for_each(|bucket| bucket.set(0));
        self.sum_ns.set(0);
    }

    /// The current counts. Durations that are added concurrently may be included partly.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            buckets: std::array::from_fn(|at| self.buckets[at].get()),
            sum_ns: self.sum_ns.get(),
        }
    }
}

/// The counts of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of durations in each bucket, not cumulative; the last bucket has no bound.
    pub buckets: [u64; BOUNDS_NS.len() + 1],
    /// Sum in nanoseconds.
    pub sum_ns: u64,
}

impl Snapshot {
    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        let buckets = self.buckets.iter_mut().zip(other.buckets);
        buckets.for_each(|(sum, count)| *sum += count);
        self.sum_ns += other.sum_ns;
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Estimates a quantile, given per mille, in nanoseconds. Durations are assumed to be spread
    /// evenly within a bucket, and equal to the last bound beyond it. 0 if there are no durations.
    pub fn quantile_ns(&self, per_mille: u64) -> Nanos {
        let mut rank = (self.count() * per_mille).div_ceil(1000);
        let mut lower = 0;
        for (&upper, &count) in BOUNDS_NS.iter().zip(&self.buckets) {
            if count > 0 && rank <= count {
                let share = u128::from(upper - lower) * u128::from(rank) / u128::from(count);
                return lower + u64::try_from(share).unwrap_or(upper - lower);
            }
            rank -= count;
            lower = upper;
        }
        if rank == 0 { 0 } else { lower }
    }
}

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only increases.
    Counter,
    /// Increases and decreases.
    Gauge,
}

/// One figure with its name: `dns64d_NAME{LABEL="VALUE"}`.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Metric name, without prefix and without `_total`.
    pub name: &'static str,
    /// Label and its value, empty if there is none.
    pub label: (&'static str, &'static str),
    /// Description.
    pub help: &'static str,
    /// Kind.
    pub shape: Shape,
    /// Its value.
    pub value: u64,
}

/// Defines a struct of counters with a method `figures`, and with other fields.
macro_rules! counts {
    ($(#[$doc:meta])* $name:ident: $($shape:ident $metric:literal $help:literal {
        $($field:ident $(= $label:literal : $value:literal)?,)*
    })* $(+ $(#[$plain_doc:meta])* $vis:vis $plain:ident: $type:ty,)*) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[expect(missing_docs, reason = "the descriptions are in the table, for `figures`")]
        pub struct $name {
            $($(pub $field: $crate::counts::Counter,)*)*
            $($(#[$plain_doc])* $vis $plain: $type,)*
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
    Counter "queries" "Queries received, by transport" {
        queries_udp = "transport": "udp",
        queries_tcp = "transport": "tcp",
        queries_tls = "transport": "tls",
    }
    Counter "query_types" "Queries accepted, by type" {
        type_a = "type": "A",
        type_aaaa = "type": "AAAA",
        type_ptr = "type": "PTR",
        type_https = "type": "HTTPS",
        type_other = "type": "other",
    }
    Counter "dropped" "Messages dropped without a response, by reason" {
        dropped_short = "reason": "short",
        dropped_response = "reason": "response",
        dropped_access = "reason": "access",
        dropped_rate_limit = "reason": "rate-limit",
        dropped_late = "reason": "late",
        dropped_unread = "reason": "unread",
        dropped_driver = "reason": "driver",
        dropped_proxy = "reason": "proxy",
    }
    Counter "dnstap_lost" "Responses that dnstap did not get, because its queue was full" { dnstap_lost, }
    Counter "refused" "Queries answered with an error at once, by reason" {
        refused_format = "reason": "format",
        refused_opcode = "reason": "opcode",
        refused_version = "reason": "edns-version",
        refused_access = "reason": "access",
        refused_type = "reason": "type",
        refused_full = "reason": "full",
    }
    Counter "datagrams_lost" "Datagrams lost or rejected at the sockets, by reason" {
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
    Counter "servfail" "Responses with SERVFAIL, by reason" {
        servfail_full = "reason": "full",
        servfail_deadline = "reason": "deadline",
        servfail_no_answer = "reason": "no-answer",
        servfail_rcode = "reason": "rcode",
        servfail_translator = "reason": "translator",
    }
    Counter "responses_truncated" "Responses sent with TC set" { responses_truncated, }
    Counter "synthesised" "Answers with synthesised records, by kind" {
        synthesised_aaaa = "kind": "aaaa",
        synthesised_ptr = "kind": "ptr",
    }
    Counter "filtered" "Answers without addresses that clients must not get, by kind" {
        filtered_a = "kind": "a",
        filtered_private = "kind": "private",
    }
    Counter "ipv4only" "Questions for ipv4only.arpa and names of its addresses, answered here" { ipv4only, }
    Counter "local_zones" "Questions for names of [local] and in special-use zones, answered here" { local_zones, }
    Counter "not_synthesised" "AAAA queries with neither native nor synthesised records, by reason" {
        not_synthesised_dnssec = "reason": "dnssec",
        not_synthesised_domain = "reason": "domain",
        not_synthesised_translator = "reason": "translator",
        not_synthesised_no_a = "reason": "no-a",
    }
    Counter "cache_lookups" "Cache lookups, by outcome" {
        cache_hits = "outcome": "hit",
        cache_misses = "outcome": "miss",
        cache_stale = "outcome": "stale",
    }
    Counter "rendered" "Responses sent from the cache of complete responses" { rendered, }
    Counter "driver_answers" "Responses sent by the XDP program in the driver" { driver_answers, }
    Counter "prefetches" "Cache entries refreshed before they expired" { prefetches, }
    Counter "coalesced" "Questions that waited for the same question already in flight" { coalesced, }
    Counter "upstream_queries" "Questions sent to upstreams, by transport" {
        upstream_udp = "transport": "udp",
        upstream_tcp = "transport": "tcp",
        upstream_tls = "transport": "tls",
    }
    Counter "upstream_answers" "Answers accepted from upstreams" { upstream_answers, }
    Counter "upstream_failures" "Questions that an upstream failed, by reason" {
        upstream_timeout = "reason": "timeout",
        upstream_rcode = "reason": "rcode",
        upstream_truncated = "reason": "truncated",
        upstream_connection = "reason": "connection",
        upstream_unreachable = "reason": "unreachable",
        upstream_guessed = "reason": "guessed-ids",
    }
    Counter "upstream_rejected" "Messages from upstreams rejected as answers, by reason" {
        rejected_unknown = "reason": "unknown",
        rejected_question = "reason": "question",
        rejected_case = "reason": "case",
        rejected_cookie = "reason": "cookie",
        rejected_late = "reason": "late",
        rejected_malformed = "reason": "malformed",
    }
    Counter "lookups_failed" "Questions that all upstreams failed" { lookups_failed, }
    Counter "worker_turns" "Turns of the event loops of the workers" { worker_turns, }
    Counter "worker_panics" "Panics of workers; the queries that a worker held are lost" { worker_panics, }
    Gauge "driver_entries" "Responses that the driver can send" { driver_entries, }
    Gauge "queries_waiting" "Client queries that wait for upstreams" { queries_waiting, }
    Gauge "lookups_in_flight" "Questions in flight to upstreams" { lookups_in_flight, }
    + /// Times from a query that waited for upstreams to its answer.
    pub waited: Histogram,
    + /// Queries that were answered in their turn, for which no clock is read.
    pub at_once: Counter,
    + /// By number of the upstream.
    upstream_rtts: [Histogram; UPSTREAMS_MAX],
    + /// By number of the upstream and of the fault.
    upstream_faults: [[Counter; Fault::ALL.len()]; UPSTREAMS_MAX],
}

impl Counts {
    /// Round-trip times of an upstream, by its index in the settings, below [`UPSTREAMS_MAX`].
    pub fn upstream_rtt(&self, server: usize) -> &Histogram {
        &self.upstream_rtts[server]
    }

    /// Number of queries that an upstream has failed for a reason.
    pub fn upstream_fault(&self, server: usize, fault: Fault) -> &Counter {
        &self.upstream_faults[server][fault as usize]
    }

    /// Clears the round-trip times and failures of all upstreams: after a reload, other upstreams have
    /// their indices.
    pub fn forget_upstreams(&self) {
        self.upstream_rtts.iter().for_each(Histogram::clear);
        let faults = self.upstream_faults.iter().flatten();
        faults.for_each(|fault| fault.set(0));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn bounds_are_one_two_and_five_of_each_decade() {
        assert_eq!(BOUNDS_NS[..4], [MS / 10, MS / 5, MS / 2, MS]);
        assert_eq!(BOUNDS_NS[13..], [2000 * MS, 5000 * MS, 10_000 * MS]);
    }

    #[test]
    fn duration_counts_in_the_first_bucket_that_it_does_not_exceed() {
        let histogram = Histogram::default();
        for time_ns in [0, MS / 10, MS / 10 + 1, 10_000 * MS, 10_001 * MS] {
            histogram.observe(time_ns);
        }
        let snapshot = histogram.snapshot();
        let filled = |&(_, count): &(usize, u64)| count > 0;
        let buckets: Vec<_> = (0..).zip(snapshot.buckets).filter(filled).collect();
        assert_eq!(buckets, [(0, 2), (1, 1), (15, 1), (16, 1)]);
        assert_eq!(
            (snapshot.count(), snapshot.sum_ns),
            (5, 20_001 * MS + MS / 5 + 1)
        );
    }

    #[test]
    fn quantiles_are_interpolated_within_a_bucket() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().quantile_ns(990), 0);
        (0..10).for_each(|_| histogram.observe(15 * MS));
        let mut sum = histogram.snapshot();
        assert_eq!(
            [100, 500, 1000].map(|q| sum.quantile_ns(q) / MS),
            [11, 15, 20]
        );
        histogram.observe(60_000 * MS);
        sum.add(&histogram.snapshot());
        assert_eq!(sum.count(), 21);
        assert_eq!([500, 1000].map(|q| sum.quantile_ns(q) / MS), [15, 10_000]);
    }

    proptest! {
        #[test]
        fn quantile_is_in_the_bucket_of_its_rank(
            mut times in prop::collection::vec(0_u64..20_000 * MS, 1..50),
            per_mille in 1_u64..=1000,
        ) {
            let histogram = Histogram::default();
            times.iter().for_each(|&time_ns| histogram.observe(time_ns));
            times.sort_unstable();
            let rank = (times.len() * usize::try_from(per_mille).unwrap()).div_ceil(1000);
            let bucket = |time_ns| BOUNDS_NS.partition_point(|&bound| bound < time_ns);
            let quantile_ns = histogram.snapshot().quantile_ns(per_mille);
            let expected = bucket(times[rank - 1]).min(BOUNDS_NS.len() - 1);
            prop_assert_eq!(bucket(quantile_ns), expected);
        }
    }
}

/// Reason of a SERVFAIL response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servfail {
    /// No space for the query or its upstream query.
    Full,
    /// The upstreams did not answer before the query's deadline.
    Deadline,
    /// No upstream answered the query, now or within the last 5 s, for which a failure is cached.
    NoAnswer,
    /// All upstreams answered with an error or with a loop or too long a chain of aliases, now or
    /// within the last 5 s, for which a failure is cached.
    Rcode,
    /// The translators of all prefixes for the addresses of the name do not answer.
    Translator,
}

impl fmt::Display for Servfail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many queries",
            Self::Deadline => "time limit exceeded",
            Self::NoAnswer => "no response from any upstream",
            Self::Rcode => "error response from upstream",
            Self::Translator => "no translator answers",
        })
    }
}

/// Why an upstream has failed a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No response in time, or an ICMP error.
    NoAnswer,
    /// No response over TCP or TLS.
    Connection,
    /// No TLS session: it has none, or is not authenticated.
    Tls,
    /// REFUSED.
    Refused,
    /// SERVFAIL.
    Servfail,
    /// FORMERR.
    Formerr,
    /// Another error code.
    Rcode,
    /// A referral: it is no resolver for the name.
    Lame,
    /// A loop of aliases, or too many of them.
    Loop,
}

impl Fault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::NoAnswer,
        Self::Connection,
        Self::Tls,
        Self::Refused,
        Self::Servfail,
        Self::Formerr,
        Self::Rcode,
        Self::Lame,
        Self::Loop,
    ];

    /// Its name in metrics and on the control socket.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAnswer => "no-answer",
            Self::Connection => "connection",
            Self::Tls => "tls",
            Self::Refused => "refused",
            Self::Servfail => "servfail",
            Self::Formerr => "formerr",
            Self::Rcode => "rcode",
            Self::Lame => "lame",
            Self::Loop => "loop",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "no response, or ICMP errors",
            Self::Connection => "no response over TCP or TLS for most names",
            Self::Tls => "no TLS session for most names",
            Self::Refused => "REFUSED to most names",
            Self::Servfail => "SERVFAIL to most names",
            Self::Formerr => "FORMERR to most names",
            Self::Rcode => "error codes to most names",
            Self::Lame => "referrals for most names",
            Self::Loop => "loops of aliases for most names",
        })
    }
}

impl Counts {
    /// Counts a SERVFAIL response by its reason.
    pub fn count_servfail(&self, why: Servfail) {
        let counter = match why {
            Servfail::Full => &self.servfail_full,
            Servfail::Deadline => &self.servfail_deadline,
            Servfail::NoAnswer => &self.servfail_no_answer,
            Servfail::Rcode => &self.servfail_rcode,
            Servfail::Translator => &self.servfail_translator,
        };
        counter.tick();
    }
}
