//! The engine of the Measurer: sends what is due, takes in what has come, and knows when all is
//! decided. It has no socket and no clock of its own; a worker turns it over a link.

use std::ops::ControlFlow;

use dns64_transport::clock::{Clock, Nanos};
use dns64_transport::{Datagram, Link, LinkError};
use serde::{Deserialize, Serialize};

use super::catch_up::{Backlog, Limits, Spread};
use super::ledger::{Entry, Fate, Ledger};
use super::names::Names;
use super::pace::{Burst, Pacing, Schedule, SelfCorrecting};
use super::query::{QUESTION_BYTES, Template};
use super::verdict::judge;

/// One shard of a trial: what a generator is to do.
#[derive(Clone, Debug)]
pub struct Shard {
    /// Its part of the schedule.
    pub schedule: Schedule,
    /// Pacing method.
    pub pacing: Pacing,
    /// Names and their answers.
    pub names: Names,
    /// An answer counts until this long after its query was sent.
    pub timeout_ns: Nanos,
    /// Stop sending as soon as the trial has failed for certain: at a loss that no catch-up burst of this
    /// shard explains.
    pub stop_early: bool,
    /// Bursts that may follow a stall.
    pub limits: Limits,
}

/// The engine of one shard.
pub struct Generator {
    shard: Shard,
    template: Template,
    ledger: Ledger,
    start: Nanos,
    ports: u64,
    /// Bursts sent.
    bursts: u64,
    /// Queries handed to the link, taken by it or not.
    offered: usize,
    /// The next burst, unless all are sent.
    next: Option<Burst>,
    /// Moves the next burst, where the due times alone do not decide.
    timer: Option<SelfCorrecting>,
    /// Moves it after a stall, where they do.
    spread: Spread,
    /// What the stalls so far may have left in a queue.
    backlog: Backlog,
    /// Every query before this one is decided.
    decided: usize,
    /// Everything that arrived before this moment has been taken in.
    emptied_until: Nanos,
    /// A moment, and the sweeps of the link at it: two more, and the link has been emptied of all
    /// that had arrived by then.
    checkpoint: (Nanos, u64),
    failed: bool,
    /// Queries beyond their deadline without an answer.
    missing: u64,
    /// Since when every query is decided.
    over_since: Option<Nanos>,
    tally: Tally,
}

/// What came of a shard.
#[derive(Debug)]
pub struct Finished {
    /// The shard's schedule.
    pub schedule: Schedule,
    /// When it began, on the link's clock.
    pub start: Nanos,
    /// The shard's queries.
    pub ledger: Ledger,
    /// How many of them were handed to the link.
    pub offered: usize,
    /// What arrived within this time after the start has been taken in.
    pub emptied_until_ns: Nanos,
    /// What was counted beside them.
    pub tally: Tally,
}

/// What a generator counts beyond its ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Second and further replies to a query.
    pub duplicate: u64,
    /// Replies that belong to no query.
    pub stray: u64,
    /// Queries that were due but not taken by the network.
    pub not_sent: u64,
    /// Sending ended before the schedule did.
    pub ended_early: bool,
    /// Longest time that sending one burst took: no round-trip time is told longer than it was by more.
    pub longest_send_ns: Nanos,
}

/// Bursts that may leave in one turn when the sender is behind: it catches up quickly but still
/// empties its receive buffers.
const CATCH_UP_BURSTS: usize = 8;

/// What taking in one reply costs at most, to fit a turn of receiving before the next due time:
/// 1.19 M/s measured for `recvmmsg` on a core, and some judging.
const RECEIVE_COST_NS: Nanos = 1_000;

/// Replies taken in at one turn when nothing is due; twice the largest burst.
const RECEIVE_MAX: u64 = 128;

/// With more queries than this under way, as many replies are taken in at each turn as queries left in it: those left behind turn
/// after turn fill the receive buffer, and the Tester loses what the server has answered. With fewer a late query is worse.
/// Half of the smallest ring of receive descriptors that an AF_XDP socket has here.
const WAITING_MAX: usize = 4096;

/// A round of looking for replies takes about this long when there are none.
const RECEIVE_TURN_NS: Nanos = 3_000;

/// How long a generator that has all its answers listens for duplicates.
const LINGER_NS: Nanos = 10_000_000;

/// One that lacks answers listens as long as the timeout for late ones, at most this long: *missing* is what
/// has not come until then. Late answers fail a trial as missing ones do; telling the two apart for the
/// last queries is worth no more than half a second.
const LISTEN_MAX_NS: Nanos = 500_000_000;

impl Generator {
    /// A generator for a link of `ports` ports. The memory of `ledger` is used again; all its
    /// pages are touched here, which takes its time: make it before [`Generator::begin`].
    pub fn new(shard: Shard, ports: usize, mut ledger: Ledger) -> Self {
        let queries = usize::try_from(shard.schedule.shard_queries()).unwrap_or(usize::MAX);
        ledger.reset(queries);
        Self {
            template: Template::new(&shard.names.zone.suffix),
            next: shard.schedule.burst_of_shard(0),
            timer: (shard.pacing == Pacing::SelfCorrecting)
                .then(|| SelfCorrecting::new(&shard.schedule)),
            spread: Spread::new(&shard.schedule, &shard.limits),
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

    /// Sets the moment at which the schedule begins.
    pub fn begin(&mut self, start: Nanos) {
        self.start = start;
    }

    /// Ports that a link needs so that no ID comes round within the timeout: IDs are 16 bits,
    /// and 65,536 queries of one port must outlast it, with a quarter to spare.
    pub fn ports_needed(rate_qps: u64, timeout_ns: Nanos) -> u64 {
        const IDS: u128 = 65_536;
        let outstanding = u128::from(rate_qps) * u128::from(timeout_ns) * 5 / 4 / 1_000_000_000;
        u64::try_from(outstanding.div_ceil(IDS))
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Does what is due now: sends, takes in, decides. Right before the next due time it does
    /// nothing, so that nothing makes the next query late. Breaks off when everything is decided.
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

    /// Sends no more; what is out stays to be decided.
    pub fn stop(&mut self) {
        if self.next.take().is_some() {
            self.tally.ended_early = true;
        }
    }

    /// How long after `now` nothing will be due.
    pub fn slack_ns(&self, now: Nanos) -> Nanos {
        self.next.map_or(Nanos::MAX, |b| {
            (self.start + b.leaves_ns).saturating_sub(now)
        })
    }

    /// Until when a generator that has just been turned has nothing to do, unless a datagram arrives.
    /// Not in the future while it waits to learn that its link has been emptied.
    pub fn idle_until(&self) -> Nanos {
        let due = self.next.map(|burst| self.start + burst.leaves_ns);
        let open = self.first_open();
        let lost = open.map(|entry| self.deadline(self.decided, entry) + 1);
        let over = self.over_since.map(|since| since + self.listen_ns());
        let first = [due, lost, over].into_iter().flatten().min();
        first.unwrap_or(Nanos::MAX)
    }

    /// What came of it.
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

    /// Sends a burst. `now`, just before the system call, is its moment of sending for the lateness and for
    /// the round-trip times. An answer can arrive before the call returns, so a moment after it would make
    /// every round trip too short by about the length of the call, and let late answers count. This one
    /// makes a round trip too long by what the query spent in the call: [`Tally::longest_send_ns`] bounds
    /// that. A stall within the call shows in the lateness of the next burst.
    fn send<L: Link>(&mut self, burst: Burst, now: Nanos, link: &mut L) -> Result<(), LinkError> {
        let port = self.bursts % self.ports;
        let lateness = now - (self.start + burst.due_ns);
        let first_id = self.bursts / self.ports * self.shard.schedule.burst();
        let (template, names) = (&self.template, &self.shard.names);
        let taken = link.send(small(port), burst.queries, |k, frame| {
            let k = k as u64;
            template.write(low16(first_id + k), names.asked(burst.first + k), frame)
        })?;
        let sent_ns = now - self.start;
        // The self-correcting timer has no catch-up bursts: it is late by design, and spreads that.
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

    /// Takes in replies in a turn that has sent so many queries.
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

    /// Books one reply.
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
        let address = self.shard.names.asked(global);
        let mut question = [0; QUESTION_BYTES];
        let len = self.template.question(address, &mut question);
        let rtt = datagram.at.saturating_sub(self.sent_at(global, entry));
        let in_time = rtt <= self.shard.timeout_ns;
        let expected = self.shard.names.expected(address);
        match (
            entry.fate,
            judge(reply, &question[..len], expected, in_time),
        ) {
            (Fate::Unsent, _) | (_, None) => self.tally.stray += 1,
            (Fate::Pending, Some(fate)) => {
                self.ledger.answered(i, rtt, fate);
                self.failed |= fate != Fate::Valid && !entry.in_burst;
                self.missing -= u64::from(i < self.decided);
            }
            _ => self.tally.duplicate += 1,
        }
    }

    /// The latest query that left from `port` with this ID. Bursts go round the ports and IDs
    /// count up at each port, so this is arithmetic, not a table.
    fn query_of(&self, port: u64, id: u16) -> Option<usize> {
        let burst = self.shard.schedule.burst();
        let bursts_here = (self.bursts + self.ports - 1 - port) / self.ports;
        let last = (bursts_here * burst).checked_sub(1)?;
        let back = u64::from(low16(last).wrapping_sub(id));
        let nth = last.checked_sub(back)?;
        let local = (nth / burst * self.ports + port) * burst + nth % burst;
        usize::try_from(local).ok()
    }

    /// Moves past what is decided: answered, never sent, or beyond its deadline with a link that has
    /// been emptied since, because what the kernel still holds may have come in time.
    fn decide(&mut self, now: Nanos, sweeps: u64) -> ControlFlow<()> {
        if sweeps >= self.checkpoint.1 + SWEEPS {
            self.emptied_until = self.checkpoint.0;
            self.checkpoint = (now, sweeps);
        }
        while let Some(entry) = self.first_open() {
            // Once the link has been emptied beyond the deadline, no answer can have come in time.
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

    /// How long to listen on when every query is decided.
    fn listen_ns(&self) -> Nanos {
        match self.missing {
            0 => LINGER_NS,
            _ => self.shard.timeout_ns.clamp(LINGER_NS, LISTEN_MAX_NS),
        }
    }

    /// The first query that is not known to be decided.
    fn first_open(&self) -> Option<Entry> {
        let open = (self.decided < self.offered).then_some(self.decided);
        self.ledger.get(open?)
    }

    /// The last moment at which an answer to query `i` is in time.
    fn deadline(&self, i: usize, entry: Entry) -> Nanos {
        let global = self.shard.schedule.global(i as u64);
        self.sent_at(global, entry) + self.shard.timeout_ns
    }

    /// When query `global` of the trial left.
    fn sent_at(&self, global: u64, entry: Entry) -> Nanos {
        self.start + self.shard.schedule.due_ns(global) + Nanos::from(entry.lateness_ns)
    }
}

/// The round under way at a checkpoint may have left a port behind before it; the next
/// one goes through them all.
const SWEEPS: u64 = 2;

#[expect(
    clippy::cast_possible_truncation,
    reason = "identifiers are 16 bits and come round"
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
