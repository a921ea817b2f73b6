//! Computes the result of a trial from its ledgers: pure functions on plain data.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;

use super::TrialSpec;
use super::achieved::{self, Achieved};
use super::distribution::Times;
use super::disturbance;
use super::evidence::{self, Own};
use super::fault::TesterFault;
use super::join::Join;
use super::path::{AuthorityTimes, Path};
use super::place::{self, Facts, Kind, Losses, Place, Placing};
use super::result::{
    Answers, AuthorityShare, CatchUp, HostClock, Outcome, Rtt, Timing, TrialResult,
};
use super::service;
use super::surroundings::{AuthorityReport, ShardReport, Surroundings};
use super::timing::{Bursts, Certificate, Hanging, is_expired};
use crate::load::catch_up::Limits;
use crate::load::generator::Finished;
use crate::load::ledger::{Entry, Fate};
use crate::machine::counters::{Counter, Layer, SEGMENTS_MAX};
use crate::machine::watch::{AUTHORITY_ON, Observed};
use crate::namespace::Share;

/// Minimum change of the real-time clock's offset that counts as a step. The offset is read to well below a
/// microsecond.
pub(super) const CLOCK_STEP_MAX_NS: u64 = 10_000;

/// Lateness in a ledger, and thus the sending times, are limited to 4.29 s.
const SELF_CORRECTING_BEHIND_MAX_NS: Nanos = 4 * SECOND;

/// 1 %: see [`late_schedule`].
const SELF_CORRECTING_OVERRUN_PART: Nanos = 100;

/// Combines the shards, determines the verdict, and returns the result.
pub fn result(
    spec: &TrialSpec,
    shards: &[ShardReport],
    authority: Option<&AuthorityReport>,
    mut around: Surroundings,
) -> TrialResult {
    let mut sums = Sums::new(spec, authority);
    shards.iter().for_each(|shard| sums.add(shard));
    let path = sums.path();
    let sampled = around.sampled(spec);
    let ended_early = sums.ended_early();
    let shortfall = sums.shortfall();
    let bursts = Bursts::of(spec, &sums.shards, &sums.certificate, shortfall);
    let hanging = sums.hanging();
    let mut timing = sums.certificate.timing(spec, &sums.shards, &bursts);
    timing.clock_source = around.clock_source.take();
    // Without a DUT only the Measurer queries the authority.
    let behind_dut = authority.filter(|_| around.certified.is_some());
    let noted = behind_dut.and(path.as_ref()).map(|path| path.authority);
    let own = own(&sums, shards, authority, &around);
    let placing = placing(&sums, hanging, &own, &around, path.as_ref(), authority);
    let fault = fault(shards, authority, &around, &timing)
        .or_else(|| network_fault(&own, &placing, &around.observed))
        .or_else(|| overflow(authority?))
        .or_else(|| late_schedule(&timing, &spec.limits, ended_early, spec.duration_ns))
        .or_else(|| sums.certificate.rate_fault(spec))
        .or_else(|| bursts.fault(spec))
        .or_else(|| slow_authority(&noted.or(sampled).filter(|_| shortfall > 0)?))
        .or_else(|| theft(spec, shortfall, hanging, &bursts.told, &around))
        .map(|fault| disturbance::explained(fault, around.machine.as_ref(), &timing));
    let outcome = verdict(fault, shortfall, ended_early);
    let mut remarks = remarks(spec, &sums.answers, behind_dut, path.as_ref());
    remarks.extend(sampled.and_then(|told| told.note()));
    let mut notes = notes(spec, shards, remarks, &around, &outcome);
    notes.extend(without_effect(&outcome, &own, &around.observed));
    TrialResult {
        outcome,
        certified: around.certified,
        rate_qps: spec.rate_qps,
        duration_ns: spec.duration_ns,
        timeout_ns: spec.timeout_ns,
        queries_due: spec.schedule.queries(),
        queries_sent: sums.sent,
        undecided: sums.undecided,
        ended_early,
        answers: sums.answers,
        rtt: sums.rtt(),
        rtt_percentiles: sums.rtt.percentiles(),
        timing,
        tester_drops: own.receive_drops + around.drops_of(authority).0,
        losses: Some(placing.losses),
        authority: authority.map(|a| a.counts),
        authorities: shares(authority, &around.observed),
        authority_sampled: sampled,
        names: Some(spec.names.dealt()),
        achieved: behind_dut.and_then(|authority| sums.achieved(authority)),
        service: service::service(spec.rate_qps, ended_early, &sums.shards),
        resources: around.resources,
        notes,
        machine: around.machine,
        path,
        dut_exit: around.dut_exit,
        segmentation: Some(spec.segmentation == Segmentation::On),
        clocks: around.hosts,
        backend: slowest(shards).to_owned(),
    }
}

/// The backend of the slowest link, whose name is the first of the alphabet: one queue that copies is enough.
fn slowest(shards: &[ShardReport]) -> &str {
    let backends = shards.iter().map(|shard| shard.backend.as_str());
    backends.min().unwrap_or("none")
}

/// Returns the share of each of several authorities: from its own counters, or from those of its host.
fn shares(authority: Option<&AuthorityReport>, observed: &Observed) -> Vec<AuthorityShare> {
    if let Some(authority) = authority {
        return authority.shares.clone();
    }
    let hosts = observed.hosts.iter();
    let shares = hosts.filter_map(|host| {
        let name = host.role.strip_prefix(AUTHORITY_ON)?.to_owned();
        let read = [Layer::Udp, Layer::Udp6].map(|layer| Counter::of_host(layer, "InDatagrams"));
        Some(AuthorityShare {
            host: name,
            questions: read.iter().map(|counter| host.least.get(counter)).sum(),
            drops: 0,
        })
    });
    shares.collect()
}

/// Returns the verdict on a trial with this fault of the Tester, if there was one, and this number of queries that were
/// sent and decided without a valid answer in time. Also used to check recorded verdicts.
pub fn verdict(fault: Option<TesterFault>, shortfall: u64, ended_early: bool) -> Outcome {
    match fault {
        Some(fault) => Outcome::Invalid(fault),
        None if shortfall == 0 && !ended_early => Outcome::Passed,
        None => Outcome::Failed { shortfall },
    }
}

/// Returns the first fault that makes all figures unreliable: the authority has exited, a system call failed, the clock
/// was set, or a host was not in time.
fn fault(
    shards: &[ShardReport],
    authority: Option<&AuthorityReport>,
    around: &Surroundings,
    timing: &Timing,
) -> Option<TesterFault> {
    if let Some(status) = around.authority_exit.clone() {
        return Some(TesterFault::AuthorityDied { status });
    }
    let error = shards.iter().find_map(|shard| shard.error.clone());
    let error = error.or_else(|| authority?.error.clone());
    let step_ns = timing.clock_step_ns.unwrap_or(0);
    let stepped = step_ns.unsigned_abs() > CLOCK_STEP_MAX_NS;
    let error = error.map(|error| TesterFault::Link { error });
    error
        .or_else(|| stepped.then_some(TesterFault::ClockStep { step_ns }))
        .or_else(|| around.hosts.iter().find_map(host_fault))
}

/// Returns the fault of a host that was not in time, or whose clock is too uncertain.
pub(super) fn host_fault(host: &HostClock) -> Option<TesterFault> {
    let name = || host.host.clone();
    if host.late_ns > 0 {
        let (host, late_ns) = (name(), host.late_ns);
        return Some(TesterFault::HostLate { host, late_ns });
    }
    (host.bound_ns > CLOCK_BOUND_MAX_NS).then(|| TesterFault::HostClock {
        host: name(),
        bound_ns: host.bound_ns,
        limit_ns: CLOCK_BOUND_MAX_NS,
    })
}

/// Width of the shortest bins in which a schedule is judged, 1 ms (Lencse and Pivoda 2018, section III): hosts with a
/// larger uncertainty do not keep a common schedule.
pub const CLOCK_BOUND_MAX_NS: Nanos = 1_000_000;

/// How the name of a backend begins whose datagrams no counter of the host knows.
const PAST_THE_KERNEL: &str = "xdp";

/// Returns the counters of the Tester's own datagrams.
fn own(
    sums: &Sums<'_>,
    shards: &[ShardReport],
    authority: Option<&AuthorityReport>,
    around: &Surroundings,
) -> Own {
    let sum = |of: fn(&ShardReport) -> u64| shards.iter().map(of).sum::<u64>();
    Own {
        sent: sums.sent,
        answered: sums.answers.answered(),
        not_sent: sum(|s| s.finished.tally.not_sent),
        undecided: sums.undecided,
        receive_drops: sum(|s| s.counters.receive_drops),
        authority_drops: around.drops_of(authority).0 + around.authority_drops,
        is_past_the_kernel: shards
            .iter()
            .any(|s| s.backend.starts_with(PAST_THE_KERNEL)),
        authority_in_driver: authority.is_some_and(|authority| authority.in_driver),
    }
}

/// Returns the losses of a trial that passed, which cost no answer: of retries, or of unrelated packets.
fn without_effect(outcome: &Outcome, own: &Own, observed: &Observed) -> Vec<String> {
    if *outcome != Outcome::Passed {
        return Vec::new();
    }
    let evidence = evidence::gather(observed, own).into_iter();
    let lost = evidence.filter(|evidence| evidence.kind != Kind::Held);
    lost.map(|evidence| format!("{}; every query was answered all the same", evidence.source))
        .collect()
}

/// Time for which one lost packet can block a DUT. Of the servers with a profile, PowerDNS Recursor waits longest
/// before it retries, 1.5 s (its documentation of `network-timeout`); then the backlog must be processed.
const CLOGGED_NS: Nanos = 2 * SECOND;

/// Locates the losses of queries without a valid answer.
fn placing(
    sums: &Sums<'_>,
    hanging: Hanging,
    own: &Own,
    around: &Surroundings,
    path: Option<&Path>,
    authority: Option<&AuthorityReport>,
) -> Placing {
    let (observed, answers) = (&around.observed, &sums.answers);
    let schedule = &sums.spec.schedule;
    let mut placing = place::place(Facts {
        not_sent: own.not_sent,
        missing: answers.missing,
        hanging: hanging.queries,
        each: schedule.due_within(CLOGGED_NS).max(SEGMENTS_MAX),
        late: answers.late,
        not_valid: answers.answered() - answers.valid - answers.late,
        dut_drops: around.dut_drops + around.drops_of(authority).1,
        is_watched: evidence::is_watched(observed, own),
        evidence: evidence::gather(observed, own),
        // Upstream queries for repeated names are unknown, and responses omitted on purpose are not losses.
        asked: path
            .filter(|path| path.lost.names == answers.missing)
            .filter(|_| authority.is_none_or(|a| a.counts.misbehaviour.is_none()))
            .map(|path| place::Asked {
                reached: path.lost.unserved + path.lost.served,
                answered: path.lost.served,
            }),
    });
    placing.losses = Losses {
        hosts: observed.hosts.iter().map(|h| h.role.clone()).collect(),
        shared: observed.hosts.iter().any(|host| host.shared),
        counters: evidence::counters(observed),
        span: hanging.span,
        ..placing.losses
    };
    placing
}

/// Returns the loss on the Tester's side that explains the queries without a valid answer. A trial with only valid
/// answers has none, regardless of other losses.
fn network_fault(own: &Own, placing: &Placing, observed: &Observed) -> Option<TesterFault> {
    let queries = own.not_sent;
    if queries > 0 {
        let refused = evidence::refusing(observed).map(TesterFault::NetworkLoss);
        return refused.or(Some(TesterFault::NotSent { queries }));
    }
    let cause = placing.cause.clone()?;
    let datagrams = cause.source.count;
    Some(match (cause.kind, cause.place) {
        (Kind::Sockets, Place::Measurer) => TesterFault::ReceiveDrops { datagrams },
        (Kind::Sockets, _) => TesterFault::AuthorityDrops { datagrams },
        (Kind::Lost, _) => TesterFault::NetworkLoss(cause.source),
        (Kind::Held, _) => TesterFault::NetworkDelay(cause.source),
    })
}

/// Returns the fault of an authority with injected faults that could not store all delayed replies.
fn overflow(authority: &AuthorityReport) -> Option<TesterFault> {
    let replies = authority.counts.misbehaviour?.overflowed;
    (replies > 0).then_some(TesterFault::AuthorityOverflow { replies })
}

/// Returns the fault of a sender that was delayed for too long. With the self-correcting timer the delay is relative to
/// the timer. In addition, the sender may be behind the schedule up to the range of a ledger, and may exceed the length
/// of a trial that ran to its end by 1 % (Lencse and Bakai 2017, figure 3).
pub(super) fn late_schedule(
    timing: &Timing,
    limits: &Limits,
    ended_early: bool,
    duration_ns: Nanos,
) -> Option<TesterFault> {
    let late = |(lateness_ns, limit_ns): &(Nanos, Nanos)| lateness_ns > limit_ns;
    let behind_ns = timing.lateness_ns_max;
    let judged = match timing.self_correcting {
        None => [(behind_ns, limits.max_stall_ns)].into_iter().find(late),
        Some(kept) => {
            let overrun_ns = if ended_early { 0 } else { kept.overrun_ns };
            let figures = [
                (kept.held_up_ns_max, limits.max_stall_ns),
                (behind_ns, SELF_CORRECTING_BEHIND_MAX_NS),
                (overrun_ns, duration_ns / SELF_CORRECTING_OVERRUN_PART),
            ];
            figures.into_iter().find(late)
        }
    };
    judged.map(|(lateness_ns, limit_ns)| TesterFault::LateSchedule {
        lateness_ns,
        limit_ns,
        cause: None,
    })
}

/// Returns the fault of others on a core of the DUT or the authority, if it explains why the trial failed.
fn theft(
    spec: &TrialSpec,
    shortfall: u64,
    hanging: Hanging,
    told: &CatchUp,
    around: &Surroundings,
) -> Option<TesterFault> {
    let usage = around.machine.as_ref().filter(|_| shortfall > 0)?;
    let in_bursts = told.explained().min(shortfall);
    let queries = shortfall - in_bursts + hanging.queries;
    disturbance::fault(usage, &spec.limits, &spec.schedule, (queries, hanging.span))
}

/// Returns the fault of an authority that responded too late to a DUT that left queries without a valid answer. A pass
/// with such an authority is a harder test and stands.
pub(super) fn slow_authority(told: &AuthorityTimes) -> Option<TesterFault> {
    (told.slow > 0).then_some(TesterFault::AuthoritySlow {
        answers: told.slow,
        slowest_ns: told.max_ns?,
        limit_ns: told.limit_ns,
    })
}

/// Returns the notes on the names from the authority behind a DUT: exact if it recorded each name, otherwise from its
/// counters.
fn remarks(
    spec: &TrialSpec,
    answers: &Answers,
    authority: Option<&AuthorityReport>,
    path: Option<&Path>,
) -> Vec<String> {
    let is_cold = spec.names.repeats.share() == Share::NONE;
    match (authority, path) {
        (Some(_), Some(path)) => path.notes(),
        (Some(authority), None) if is_cold => {
            let answered = answers.valid + answers.late;
            Vec::from_iter(achieved::warm(answered, &authority.counts))
        }
        _ => Vec::new(),
    }
}

/// Returns the notes for readers.
fn notes(
    spec: &TrialSpec,
    shards: &[ShardReport],
    remarks: Vec<String>,
    around: &Surroundings,
    outcome: &Outcome,
) -> Vec<String> {
    let mut notes = remarks;
    let unreachable: u64 = shards.iter().map(|s| s.counters.unreachable).sum();
    if unreachable > 0 {
        notes.push(format!(
            "{unreachable} ICMP errors came back: no server listens at {}, or it has stopped",
            spec.server
        ));
    }
    if let Some(from) = shards.iter().find_map(|s| s.counters.foreign_from) {
        let foreign: u64 = shards.iter().map(|s| s.counters.foreign).sum();
        notes.push(format!(
            "{foreign} datagrams came from {from}, not from the server at {}; counted as stray",
            spec.server
        ));
    }
    notes.extend_from_slice(&around.notes);
    notes.extend(around.one_queue());
    if around.dut_drops > 0 {
        notes.push(format!(
            "the DUT's sockets lost {} datagrams at full buffers",
            around.dut_drops
        ));
    }
    let of_dut = |passed| disturbance::remark(around.machine.as_ref()?, &spec.limits, passed);
    match outcome {
        Outcome::Passed => notes.extend(of_dut(true)),
        Outcome::Failed { .. } => {
            notes.extend(of_dut(false));
            notes.extend(around.unseen());
        }
        Outcome::Invalid(_) => {}
    }
    if let Some(exit) = &around.dut_exit {
        notes.push(format!("the DUT ended during the trial ({exit})"));
    }
    notes
}

/// Accumulates all data query by query.
struct Sums<'a> {
    spec: &'a TrialSpec,
    shards: Vec<&'a Finished>,
    join: Option<Join<'a>>,
    answers: Answers,
    sent: u64,
    undecided: u64,
    rtt: Times,
    certificate: Certificate,
}

impl<'a> Sums<'a> {
    fn new(spec: &'a TrialSpec, authority: Option<&'a AuthorityReport>) -> Self {
        let ledger = authority.and_then(|a| Some((a.ledger.as_deref()?, a.allowed_ns)));
        Self {
            spec,
            shards: Vec::new(),
            join: ledger.map(|(ledger, allowed_ns)| Join::new(spec, ledger, allowed_ns)),
            answers: Answers::default(),
            sent: 0,
            undecided: 0,
            rtt: Times::new(),
            certificate: Certificate::new(spec),
        }
    }

    fn add(&mut self, shard: &'a ShardReport) {
        self.shards.push(&shard.finished);
        self.certificate.add_step(shard.clock_step_ns);
        let tally = &shard.finished.tally;
        self.answers.duplicate += tally.duplicate;
        self.answers.stray += tally.stray + shard.counters.foreign;
        let Finished {
            schedule,
            start,
            ledger,
            offered,
            emptied_until_ns,
            ..
        } = &shard.finished;
        for (local, entry) in ledger.entries()[..*offered].iter().enumerate() {
            let global = schedule.global(local as u64);
            let due_ns = schedule.due_ns(global);
            self.certificate.add(due_ns, entry);
            if entry.fate == Fate::Unsent {
                continue;
            }
            let sent_ns = due_ns + Nanos::from(entry.lateness_ns);
            self.sent += 1;
            let expired = is_expired(self.spec, sent_ns, *emptied_until_ns);
            self.answer(entry, expired);
            if let Some(join) = &mut self.join {
                join.query(global, start + sent_ns, entry, expired);
            }
        }
    }

    /// Returns the open and lost queries, if there were any.
    fn hanging(&self) -> Hanging {
        let some = if self.shortfall() > 0 {
            &self.shards[..]
        } else {
            &[]
        };
        Hanging::of(self.spec, some, self.rtt().max)
    }

    /// Returns the path of the queries, when all shards have been added.
    fn path(&mut self) -> Option<Path> {
        let join = self.join.take()?;
        let sent = self.shards.iter().flat_map(|finished| {
            let entries = finished.ledger.entries()[..finished.offered].iter();
            let sent = entries.enumerate().filter(|(_, e)| e.fate != Fate::Unsent);
            sent.map(|(local, entry)| {
                let global = finished.schedule.global(local as u64);
                let due_at = finished.start + finished.schedule.due_ns(global);
                (global, due_at + Nanos::from(entry.lateness_ns), entry)
            })
        });
        let typical = join.typical(sent);
        Some(join.finish(typical))
    }

    fn answer(&mut self, entry: &Entry, expired: bool) {
        let answers = &mut self.answers;
        let class = match entry.fate {
            Fate::Pending if expired => &mut answers.missing,
            Fate::Pending | Fate::Unsent => &mut self.undecided,
            Fate::Valid => &mut answers.valid,
            Fate::Late => &mut answers.late,
            Fate::Wrong => &mut answers.wrong,
            Fate::Empty => &mut answers.empty,
            Fate::Error => &mut answers.error,
            Fate::Truncated => &mut answers.truncated,
        };
        *class += 1;
        if !matches!(entry.fate, Fate::Pending | Fate::Unsent) {
            self.rtt.record(entry.rtt_ns);
        }
    }

    /// Returns whether a shard stopped before the schedule, or queries were open at the end.
    fn ended_early(&self) -> bool {
        let stopped = |shard: &&Finished| shard.tally.ended_early;
        self.undecided > 0 || self.shards.iter().any(stopped)
    }

    /// Returns the number of queries that were sent and did not get a valid answer in time.
    fn shortfall(&self) -> u64 {
        self.sent - self.answers.valid - self.undecided
    }

    fn achieved(&self, authority: &AuthorityReport) -> Option<Achieved> {
        let all_answered = self.answers.missing == 0 && self.undecided == 0;
        Achieved::by_counts(self.sent, &authority.counts, all_answered)
    }

    fn rtt(&self) -> Rtt {
        Rtt {
            p50: self.rtt.median(),
            p99: self.rtt.quantile(0.99),
            p999: self.rtt.quantile(0.999),
            max: self.rtt.max(),
            mean: self.rtt.mean(),
        }
    }
}

#[cfg(test)]
mod tests;
