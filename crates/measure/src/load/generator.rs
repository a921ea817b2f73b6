//! Engine of the Measurer: sends due queries, receives responses and detects when every query is decided. It has no
//! socket and no clock; a worker calls it with a link.

use std::net::IpAddr;
use std::ops::ControlFlow;

use dns64_transport::clock::{Clock, Nanos};
use dns64_transport::{Datagram, Link, LinkError};
use serde::{Deserialize, Serialize};

use super::catch_up::{Backlog, CatchUpTimer, Limits};
use super::ledger::{Entry, Fate, Ledger, OfferedQuery, queries};
use super::names::Names;
use super::pace::{Burst, Pacing, Schedule, SelfCorrecting};
use super::query::QueryTemplate;
use super::verdict::{Verdict, first_other, is_refused, judge};
use crate::namespace::AskedName;

/// Task of a generator: one shard of a trial.
#[derive(Clone, Debug)]
pub struct Shard {
    /// Its part of the schedule.
    pub schedule: Schedule,
    /// Pacing method.
    pub pacing: Pacing,
    /// Names and their expected answers.
    pub names: Names,
    /// Timeout: a response counts for this long after its query was sent.
    pub timeout_ns: Nanos,
    /// Whether to stop sending once the trial has certainly failed: at a loss that no catch-up burst of this shard
    /// explains.
    pub stop_early: bool,
    /// Limits of the bursts after a stall.
    pub limits: Limits,
}

/// The engine of one shard.
pub struct Generator {
    shard: Shard,
    template: QueryTemplate,
    ledger: Ledger,
    start: Nanos,
    ports: u64,
    /// Number of bursts sent.
    bursts: u64,
    /// Number of queries passed to the link, accepted or not.
    offered: usize,
    /// The next burst; `None` once all are sent.
    next: Option<Burst>,
    /// Timer that moves the next burst; `None` with the absolute schedule.
    timer: Option<SelfCorrecting>,
    /// Moves the next burst after a stall, with the absolute schedule.
    spread: CatchUpTimer,
    /// Queue that the stalls so far may have caused.
    backlog: Backlog,
    /// Index of the first query that is not known to be decided.
    decided: usize,
    /// Everything that arrived before this time has been received.
    emptied_until: Nanos,
    /// A time, and the link's sweep count at that time. After two more sweeps, everything that had arrived at that time
    /// has been received.
    checkpoint: (Nanos, u64),
    failed: bool,
    /// Number of queries past their deadline without a response.
    missing: u64,
    /// Time at which every query was decided.
    over_since: Option<Nanos>,
    tally: Tally,
}

/// Result of a shard.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finished {
    /// The shard's schedule.
    pub schedule: Schedule,
    /// Start of the schedule on the link's clock.
    pub start: Nanos,
    /// The shard's queries.
    pub ledger: Ledger,
    /// Number of queries passed to the link.
    pub offered: usize,
    /// Everything that arrived within this time after the start has been received.
    pub emptied_until_ns: Nanos,
    /// Other counters.
    pub tally: Tally,
}

impl Finished {
    /// Returns its queries in the order of the schedule, those that the link did not accept too.
    pub fn queries(&self) -> impl DoubleEndedIterator<Item = OfferedQuery> {
        queries(&self.schedule, &self.ledger.entries()[..self.offered])
    }

    /// Returns the queries that were sent, in order.
    pub fn sent(&self) -> impl DoubleEndedIterator<Item = OfferedQuery> {
        self.queries().filter(OfferedQuery::was_sent)
    }

    /// Returns whether the timeout of a query that was sent at this time after the start has passed.
    pub fn is_expired(&self, sent_ns: Nanos, timeout_ns: Nanos) -> bool {
        sent_ns + timeout_ns < self.emptied_until_ns
    }

    /// Returns whether a query is known to have no valid answer in time.
    pub fn is_lost(&self, query: &OfferedQuery, timeout_ns: Nanos) -> bool {
        match query.entry.fate {
            Fate::Valid | Fate::Unsent => false,
            Fate::Pending => self.is_expired(query.sent_ns(), timeout_ns),
            _ => true,
        }
    }
}

/// Counters of a generator beyond its ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Second and further responses to a query.
    pub duplicate: u64,
    /// Responses that belong to no query.
    pub stray: u64,
    /// Queries that were due but not accepted by the network.
    pub not_sent: u64,
    /// Whether sending ended before the schedule did.
    pub ended_early: bool,
    /// Answers with RCODE REFUSED.
    pub refused: u64,
    /// Addresses in valid and late answers beside a correct one.
    pub other_addresses: u64,
    /// The first wrong answer: its query in the trial, and its first address.
    pub first_wrong: Option<(u64, IpAddr)>,
    /// Correct HTTPS records with a synthesised `ipv6hint`, in valid and late answers.
    pub synthesised_hints: u64,
    /// Longest time to send one burst: the largest overestimate of a round-trip time.
    pub longest_send_ns: Nanos,
}

/// Number of query IDs of a source port: they have 16 bits.
pub const PORT_IDS: u64 = 1 << 16;

/// Largest number of bursts in one turn of a late sender: it catches up quickly and still empties its receive buffers.
const CATCH_UP_BURSTS: usize = 8;

/// Largest cost of one received response, so that a turn of receiving ends before the next due time: 1.19 M/s measured
/// for `recvmmsg` on a core, and some time for judging.
const RECEIVE_COST_NS: Nanos = 1_000;

/// Largest number of responses received in one turn when nothing is due; twice the largest burst.
const RECEIVE_MAX: u64 = 128;

/// With more pending queries than this, a turn receives at least as many responses as it sends queries. Otherwise the
/// receive buffer fills, and the Tester loses responses of the server. With fewer pending queries, a late query is
/// worse. The value is half of the smallest ring of receive descriptors of an AF_XDP socket here.
const WAITING_MAX: usize = 4096;

/// Approximate time of a turn of receiving without responses.
const RECEIVE_TURN_NS: Nanos = 3_000;

/// How long a generator with all responses waits for duplicates.
const LINGER_NS: Nanos = 10_000_000;

/// A generator without all responses waits as long as the timeout for late ones, but at most this long: *missing* means
/// not received until then. Late responses fail a trial as missing ones do; for the last queries this distinction is
/// not worth more than half a second.
const LISTEN_MAX_NS: Nanos = 500_000_000;

impl Generator {
    /// Creates a generator for a link of `ports` ports. Reuses the memory of `ledger` and touches all its pages, which
    /// takes time: create it before [`Generator::begin`].
    pub fn new(shard: Shard, ports: usize, mut ledger: Ledger) -> Self {
        let queries = usize::try_from(shard.schedule.shard_queries()).unwrap_or(usize::MAX);
        ledger.reset(queries);
        Self {
            template: QueryTemplate::new(&shard.names.zone.suffix, shard.names.form.edns),
            next: shard.schedule.burst_of_shard(0),
            timer: (shard.pacing == Pacing::SelfCorrecting)
                .then(|| SelfCorrecting::new(&shard.schedule)),
            spread: CatchUpTimer::new(&shard.schedule, &shard.limits),
            backlog: Backlog::new(shard.limits.burst_ns(&shard.schedule)),
            shard,
            ledger,
            start: Nanos::MAX,
            ports: ports as u64,
            bursts: 0,
            offered: 0,
            decided: 0,
            emptied_until: 0,
            checkpoint: (0, 0),
            failed: false,
            missing: 0,
            over_since: None,
            tally: Tally::default(),
        }
    }

    /// Sets the start of the schedule.
    pub fn begin(&mut self, start: Nanos) {
        self.start = start;
    }

    /// Number of ports that a link needs so that no port has more queries within the timeout than `each`, and no ID twice
    /// ([`Transport::queries_of_port`](super::transport::Transport::queries_of_port)): so many queries of one port must
    /// take longer than the timeout, with a margin of a quarter.
    pub fn ports_needed(rate_qps: u64, timeout_ns: Nanos, each: u64) -> u64 {
        let outstanding = u128::from(rate_qps) * u128::from(timeout_ns) * 5 / 4 / 1_000_000_000;
        u64::try_from(outstanding.div_ceil(each.max(1).into()))
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Does one turn: sends due queries, receives and decides. Shortly before the next due time it does nothing, so
    /// that the next query is not late. Returns `Break` when every query is decided.
    pub fn turn<L: Link, C: Clock>(
        &mut self,
        link: &mut L,
        clock: &C,
    ) -> Result<ControlFlow<()>, LinkError> {
        let mut now = clock.now();
        let mut sent = 0;
        for _ in 0..CATCH_UP_BURSTS {
            match self.next {
                Some(burst) if self.start + burst.leaves_ns <= now => {
                    self.send(burst, now, link)?;
                    sent += burst.queries as u64;
                    let begun = now;
                    now = clock.now();
                    self.tally.longest_send_ns = self.tally.longest_send_ns.max(now - begun);
                }
                _ => break,
            }
        }
        let slack_ns = self.slack_ns(now);
        if sent > 0 || slack_ns >= RECEIVE_TURN_NS {
            self.receive(slack_ns, sent, link)?;
            now = clock.now();
        }
        Ok(self.decide(now, link.sweeps()))
    }

    /// Stops sending; pending queries are still decided.
    pub fn stop(&mut self) {
        if self.next.take().is_some() {
            self.tally.ended_early = true;
        }
    }

    /// Time after `now` in which nothing is due.
    pub fn slack_ns(&self, now: Nanos) -> Nanos {
        self.next.map_or(Nanos::MAX, |b| {
            (self.start + b.leaves_ns).saturating_sub(now)
        })
    }

    /// Time until which a generator has nothing to do after a turn, unless a datagram arrives. Not in the future while
    /// it waits for the link to be emptied.
    pub fn idle_until(&self) -> Nanos {
        let due = self.next.map(|burst| self.start + burst.leaves_ns);
        let open = self.first_open();
        let lost = open.map(|entry| self.deadline(self.decided, entry) + 1);
        let over = self.over_since.map(|since| since + self.listen_ns());
        let first = [due, lost, over].into_iter().flatten().min();
        first.unwrap_or(Nanos::MAX)
    }

    /// Returns the result.
    pub fn finish(self) -> Finished {
        Finished {
            schedule: self.shard.schedule,
            start: self.start,
            emptied_until_ns: self.emptied_until.saturating_sub(self.start),
            ledger: self.ledger,
            offered: self.offered,
            tally: self.tally,
        }
    }

    /// Sends a burst. `now`, just before the system call, is its time of sending for the lateness and the round-trip
    /// times. A response can arrive before the call returns: a time after the call would make every round-trip time too
    /// short by about the length of the call, and late responses would count. With `now`, a round-trip time is too long
    /// by the query's time in the call, which [`Tally::longest_send_ns`] bounds. A stall within the call appears as
    /// lateness of the next burst.
    fn send<L: Link>(&mut self, burst: Burst, now: Nanos, link: &mut L) -> Result<(), LinkError> {
        let port = self.bursts % self.ports;
        let lateness = now - (self.start + burst.due_ns);
        let first_id = self.bursts / self.ports * self.shard.schedule.burst();
        let (template, names) = (&self.template, &self.shard.names);
        let taken = link.send(small(port), burst.queries, |k, frame| {
            let k = k as u64;
            template.write(low16(first_id + k), names.question(burst.first + k), frame)
        })?;
        let sent_ns = now - self.start;
        // The self-correcting timer has no catch-up bursts: it is late by design and spreads the delay.
        let in_burst = self.timer.is_none() && self.backlog.sent(sent_ns, lateness);
        for i in self.offered..self.offered + taken {
            self.ledger.sent(i, lateness, in_burst);
        }
        self.tally.not_sent += (burst.queries - taken) as u64;
        self.offered += burst.queries;
        self.bursts += 1;
        self.next = self.shard.schedule.burst_of_shard(self.bursts);
        if let Some(next) = &mut self.next {
            next.leaves_ns = match &self.timer {
                Some(timer) => timer.next_ns(self.bursts - 1, sent_ns).max(next.due_ns),
                None => {
                    let last = (burst.due_ns, burst.leaves_ns, sent_ns);
                    self.spread.leaves_ns(last, next.due_ns)
                }
            };
        }
        Ok(())
    }

    /// Receives responses in a turn that has sent `sent` queries.
    fn receive<L: Link>(
        &mut self,
        slack_ns: Nanos,
        sent: u64,
        link: &mut L,
    ) -> Result<(), LinkError> {
        let mut least = 2 * self.shard.schedule.burst();
        if self.offered - self.decided > WAITING_MAX {
            least = least.max(sent);
        }
        let max = (slack_ns / RECEIVE_COST_NS).min(RECEIVE_MAX).max(least);
        link.receive(small(max), |datagram| self.take(datagram))?;
        Ok(())
    }

    /// Records one response.
    fn take(&mut self, datagram: Datagram<'_>) {
        let reply = datagram.payload;
        let asked = reply
            .first_chunk()
            .and_then(|id| self.query_of(datagram.port as u64, u16::from_be_bytes(*id)));
        let Some((i, entry)) = asked.and_then(|i| Some((i, self.ledger.get(i)?))) else {
            self.tally.stray += 1;
            return;
        };
        let global = self.shard.schedule.global(i as u64);
        let asked = self.shard.names.question(global);
        let rtt = datagram.at.saturating_sub(self.sent_at(global, entry));
        let in_time = rtt <= self.shard.timeout_ns;
        let question = self.template.question(asked);
        let names = &self.shard.names;
        let place = |found| names.place(found, asked);
        let verdict = judge(reply, question, place, names.wanted(asked), in_time);
        match (entry.fate, verdict) {
            (Fate::Unsent, _) | (_, None) => self.tally.stray += 1,
            (Fate::Pending, Some(verdict)) => {
                self.ledger.answered(i, rtt, verdict.fate);
                self.missing -= u64::from(i < self.decided);
                if verdict != Fate::Valid.into() {
                    self.failed |= verdict.fate != Fate::Valid && !entry.in_burst;
                    self.note(global, asked, reply, verdict);
                }
            }
            _ => self.tally.duplicate += 1,
        }
    }

    /// Records what is unusual about a response.
    #[cold]
    fn note(&mut self, query: u64, asked: AskedName, reply: &[u8], verdict: Verdict) {
        let (names, tally) = (&self.shard.names, &mut self.tally);
        match verdict.fate {
            Fate::Error => tally.refused += u64::from(is_refused(reply)),
            Fate::Wrong if tally.first_wrong.is_none() => {
                let other = first_other(reply, |found| names.place(found, asked).is_some());
                tally.first_wrong = other.map(|received| (query, received));
            }
            Fate::Wrong => {}
            _ => {
                tally.other_addresses += u64::from(verdict.others);
                tally.synthesised_hints += u64::from(verdict.hinted);
            }
        }
    }

    /// Returns the latest query that left from `port` with this ID. Bursts use the ports in rotation and IDs increase
    /// at each port, so this is computed without a table.
    fn query_of(&self, port: u64, id: u16) -> Option<usize> {
        let burst = self.shard.schedule.burst();
        let bursts_here = (self.bursts + self.ports - 1 - port) / self.ports;
        let last = (bursts_here * burst).checked_sub(1)?;
        let back = u64::from(low16(last).wrapping_sub(id));
        let nth = last.checked_sub(back)?;
        let local = (nth / burst * self.ports + port) * burst + nth % burst;
        usize::try_from(local).ok()
    }

    /// Skips decided queries: answered, not sent, or past their deadline on a link that has been emptied since. Until
    /// then the kernel may still hold a response that arrived in time.
    fn decide(&mut self, now: Nanos, sweeps: u64) -> ControlFlow<()> {
        if sweeps >= self.checkpoint.1 + SWEEPS {
            self.emptied_until = self.checkpoint.0;
            self.checkpoint = (now, sweeps);
        }
        while let Some(entry) = self.first_open() {
            // Once the link has been emptied after the deadline, no response can have arrived in time.
            if entry.fate == Fate::Pending {
                if self.deadline(self.decided, entry) >= self.emptied_until {
                    break;
                }
                self.failed |= !entry.in_burst;
                self.missing += 1;
            }
            self.decided += 1;
        }
        if self.failed && self.shard.stop_early {
            self.stop();
            return ControlFlow::Break(());
        }
        if self.next.is_some() || self.decided < self.offered {
            return ControlFlow::Continue(());
        }
        let over_since = *self.over_since.get_or_insert(now);
        if now >= over_since + self.listen_ns() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// How long to wait after every query is decided.
    fn listen_ns(&self) -> Nanos {
        match self.missing {
            0 => LINGER_NS,
            _ => self.shard.timeout_ns.clamp(LINGER_NS, LISTEN_MAX_NS),
        }
    }

    /// Returns the first query that is not known to be decided.
    fn first_open(&self) -> Option<Entry> {
        let open = (self.decided < self.offered).then_some(self.decided);
        self.ledger.get(open?)
    }

    /// Returns the time at which the timeout of query `i` expires.
    fn deadline(&self, i: usize, entry: Entry) -> Nanos {
        let global = self.shard.schedule.global(i as u64);
        self.sent_at(global, entry) + self.shard.timeout_ns
    }

    /// Returns the time at which query `global` of the trial left.
    fn sent_at(&self, global: u64, entry: Entry) -> Nanos {
        self.start + self.shard.schedule.due_ns(global) + Nanos::from(entry.lateness_ns)
    }
}

/// The current sweep at a checkpoint may already have passed a port; the next one covers all ports.
const SWEEPS: u64 = 2;

#[expect(
    clippy::cast_possible_truncation,
    reason = "identifiers are 16 bits and wrap around"
)]
fn low16(n: u64) -> u16 {
    n as u16
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "ports and batches are far below 2^32"
)]
fn small(n: u64) -> usize {
    n as usize
}
