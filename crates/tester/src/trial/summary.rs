//! From the ledgers of a trial to its result: pure functions on plain data.

use dns64_transport::Counters;
use dns64_transport::clock::Nanos;
use hdrhistogram::Histogram;

use super::TrialSpec;
use super::achieved::{self, Achieved};
use super::result::{Answers, Outcome, PERCENTILES, Rtt, TesterFault, Timing, TrialResult};
use super::service;
use crate::authority::counts::AuthorityCounts;
use crate::lab::process::Resources;
use crate::load::generator::Finished;
use crate::load::ledger::{Entry, Fate};
use crate::load::pace::{QUANTUM_NS, Schedule};
use crate::namespace::Share;

/// Longest stall of the sender in a valid trial: one bin of 10 ms, the finest that paper 001,
/// section V, looks at. Shared machines stall their guests for some milliseconds several times a
/// second; what then leaves at once, a server's socket buffer takes.
pub const STALL_MAX_NS: Nanos = 10_000_000;

/// The offset of the real-time clock is read to well below a microsecond; more is a step.
const CLOCK_STEP_MAX_NS: u64 = 10_000;

const BIN_10MS: Nanos = 10_000_000;
const BIN_100MS: Nanos = 100_000_000;

/// Histograms keep three significant digits,
const DIGITS: u8 = 3;

/// and times up to this; longer ones count as this long. No timeout is near it.
const LONGEST_NS: Nanos = 100 * dns64_transport::clock::SECOND;

/// What came of a shard and of the link that it was turned over.
#[derive(Debug)]
pub struct ShardReport {
    /// The shard.
    pub finished: Finished,
    /// What its link counted.
    pub counters: Counters,
    /// How far the real-time clock moved against the monotonic one during the trial.
    pub clock_step_ns: i64,
    /// Kind of link.
    pub backend: &'static str,
    /// Why the link failed, if it did.
    pub error: Option<String>,
}

/// What an authority did, since it began or during one trial.
#[derive(Clone, Debug, Default)]
pub struct AuthorityReport {
    /// Queries and answers.
    pub counts: AuthorityCounts,
    /// Queries that its sockets lost.
    pub receive_drops: u64,
    /// Replies that the network did not take.
    pub send_drops: u64,
    /// Why it stopped serving, if it did.
    pub error: Option<String>,
}

impl AuthorityReport {
    /// Adds what another worker reports.
    pub(super) fn add(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.receive_drops += other.receive_drops;
        self.send_drops += other.send_drops;
        self.error = self.error.take().or(other.error);
    }

    /// What has come since an earlier report of the same workers.
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            counts: self.counts.since(before.counts),
            receive_drops: self.receive_drops.saturating_sub(before.receive_drops),
            send_drops: self.send_drops.saturating_sub(before.send_drops),
            error: self.error,
        }
    }

    fn drops(&self) -> u64 {
        self.receive_drops + self.send_drops
    }
}

/// What happened to the servers around a trial, looked at when it is over. Nothing is known of those
/// that are not ours.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Whether the Tester is certified for a DUT at the rate; `None` if no DUT is asked.
    pub certified: Option<bool>,
    /// Datagrams that the DUT's sockets lost at full buffers.
    pub dut_drops: u64,
    /// How the DUT ended, and its last words, if it did.
    pub dut_exit: Option<String>,
    /// What the DUT uses.
    pub resources: Option<Resources>,
    /// How the program ended that is the authority, if it did.
    pub authority_exit: Option<String>,
    /// What the reader should know of the preparations.
    pub notes: Vec<String>,
}

/// Sums the shards up, pronounces the verdict, and finishes the result.
pub fn result(
    spec: &TrialSpec,
    shards: &[ShardReport],
    authority: Option<&AuthorityReport>,
    around: Surroundings,
) -> TrialResult {
    let mut sums = Sums::new(spec);
    for shard in shards {
        sums.add(shard);
    }
    let sum = |of: fn(&ShardReport) -> u64| shards.iter().map(of).sum::<u64>();
    sums.answers.duplicate = sum(|s| s.finished.tally.duplicate);
    sums.answers.stray = sum(|s| s.finished.tally.stray) + sum(|s| s.counters.foreign);
    let timing = sums.timing(spec.schedule);
    let finished: Vec<&Finished> = shards.iter().map(|s| &s.finished).collect();
    let stopped = shards.iter().any(|s| s.finished.tally.ended_early);
    let ended_early = stopped || sums.undecided > 0;
    let shortfall = sums.sent - sums.answers.valid - sums.undecided;
    let authority_died = around.authority_exit.clone();
    let fault = authority_died
        .map(|status| TesterFault::AuthorityDied { status })
        .or_else(|| fault(shards, authority, &timing));
    let outcome = match fault {
        Some(fault) => Outcome::Invalid(fault),
        None if shortfall == 0 && !ended_early => Outcome::Passed,
        None => Outcome::Failed { shortfall },
    };
    let all_answered = sums.answers.missing == 0 && sums.undecided == 0;
    let achieved = |a: &AuthorityReport| Achieved::by_counts(sums.sent, &a.counts, all_answered);
    // Without a DUT nobody asks the authority but the Measurer.
    let behind_dut = authority.filter(|_| around.certified.is_some());
    let is_cold = spec.names.repeats.share() == Share::NONE;
    let warm = behind_dut.filter(|_| is_cold);
    let warm = warm.and_then(|a| achieved::warm(sums.answers.valid + sums.answers.late, &a.counts));
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
        rtt_percentiles: sums.rtt_percentiles(),
        timing,
        tester_drops: sum(|s| s.counters.receive_drops)
            + authority.map_or(0, AuthorityReport::drops),
        authority: authority.map(|a| a.counts),
        names: Some(spec.names.dealt()),
        achieved: behind_dut.and_then(achieved),
        service: service::service(spec.rate_qps, ended_early, &finished),
        resources: around.resources,
        notes: notes(spec, shards, warm, &around),
        dut_exit: around.dut_exit,
        backend: shards.first().map_or("none", |s| s.backend).to_owned(),
    }
}

/// The first fault that makes the trial say nothing about the DUT.
fn fault(
    shards: &[ShardReport],
    authority: Option<&AuthorityReport>,
    timing: &Timing,
) -> Option<TesterFault> {
    let sum = |of: fn(&ShardReport) -> u64| shards.iter().map(of).sum::<u64>();
    let error = shards.iter().find_map(|shard| shard.error.clone());
    let error = error.or_else(|| authority?.error.clone());
    let steps = shards.iter().map(|shard| shard.clock_step_ns);
    let step_ns = steps.max_by_key(|step| step.unsigned_abs()).unwrap_or(0);
    let queries = sum(|s| s.finished.tally.not_sent);
    let lost = sum(|s| s.counters.receive_drops);
    let datagrams = authority.map_or(0, AuthorityReport::drops);
    let misbehaviour = authority.and_then(|a| a.counts.misbehaviour);
    let replies = misbehaviour.map_or(0, |counts| counts.overflowed);
    let (lateness_ns, limit_ns) = (timing.lateness_ns_max, STALL_MAX_NS);
    let late = TesterFault::LateSchedule {
        lateness_ns,
        limit_ns,
    };
    let stepped = step_ns.unsigned_abs() > CLOCK_STEP_MAX_NS;
    let faults = [
        error.map(|error| TesterFault::Link { error }),
        stepped.then_some(TesterFault::ClockStep { step_ns }),
        (queries > 0).then_some(TesterFault::NotSent { queries }),
        (lost > 0).then_some(TesterFault::ReceiveDrops { datagrams: lost }),
        (datagrams > 0).then_some(TesterFault::AuthorityDrops { datagrams }),
        (replies > 0).then_some(TesterFault::AuthorityOverflow { replies }),
        (lateness_ns > limit_ns).then_some(late),
    ];
    faults.into_iter().flatten().next()
}

/// Plain remarks for the reader.
fn notes(
    spec: &TrialSpec,
    shards: &[ShardReport],
    warm: Option<String>,
    around: &Surroundings,
) -> Vec<String> {
    let mut notes = Vec::from_iter(warm);
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
    if around.dut_drops > 0 {
        notes.push(format!(
            "the DUT's sockets lost {} datagrams at full buffers",
            around.dut_drops
        ));
    }
    if let Some(exit) = &around.dut_exit {
        notes.push(format!("the DUT ended during the trial ({exit})"));
    }
    notes
}

/// Everything that is added up query by query.
struct Sums {
    timeout_ns: Nanos,
    answers: Answers,
    sent: u64,
    undecided: u64,
    rtt: Histogram<u64>,
    lateness: Histogram<u64>,
    bins_10ms: Bins,
    bins_100ms: Bins,
}

impl Sums {
    fn new(spec: &TrialSpec) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("constants within its bounds")
        };
        let schedule = spec.schedule;
        let last_due_ns = schedule.due_ns(schedule.queries().saturating_sub(1));
        Self {
            timeout_ns: spec.timeout_ns,
            answers: Answers::default(),
            sent: 0,
            undecided: 0,
            rtt: histogram(),
            lateness: histogram(),
            bins_10ms: Bins::new(BIN_10MS, last_due_ns),
            bins_100ms: Bins::new(BIN_100MS, last_due_ns),
        }
    }

    fn add(&mut self, shard: &ShardReport) {
        let Finished {
            schedule,
            ledger,
            offered,
            emptied_until_ns,
            ..
        } = &shard.finished;
        for (local, entry) in ledger.entries()[..*offered].iter().enumerate() {
            let due_ns = schedule.due_ns(schedule.global(local as u64));
            self.bins_10ms.at(due_ns).due += 1;
            self.bins_100ms.at(due_ns).due += 1;
            if entry.fate == Fate::Unsent {
                continue;
            }
            let sent_ns = due_ns + Nanos::from(entry.lateness_ns);
            self.sent += 1;
            self.bins_10ms.at(sent_ns).sent += 1;
            self.bins_100ms.at(sent_ns).sent += 1;
            self.lateness
                .saturating_record(u64::from(entry.lateness_ns));
            self.answer(entry, sent_ns + self.timeout_ns < *emptied_until_ns);
        }
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
            self.rtt.saturating_record(entry.rtt_ns);
        }
    }

    fn rtt(&self) -> Rtt {
        let at = |quantile| (!self.rtt.is_empty()).then(|| self.rtt.value_at_quantile(quantile));
        Rtt {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: (!self.rtt.is_empty()).then(|| self.rtt.max()),
        }
    }

    /// A percentile needs one answer beyond it; the smallest and the largest are there with one.
    fn rtt_percentiles(&self) -> Vec<(f64, Nanos)> {
        let answers = self.rtt.len() as f64;
        let told = |percent: f64| {
            answers > 0.0 && (percent >= 100.0 || (100.0 - percent) * answers >= 100.0)
        };
        PERCENTILES
            .into_iter()
            .filter(|&percent| told(percent))
            .map(|percent| (percent, self.rtt.value_at_percentile(percent)))
            .collect()
    }

    fn timing(&self, schedule: Schedule) -> Timing {
        let burst = schedule.burst();
        Timing {
            lateness_ns_p50: self.lateness.value_at_quantile(0.5),
            lateness_ns_p99: self.lateness.value_at_quantile(0.99),
            lateness_ns_p999: self.lateness.value_at_quantile(0.999),
            lateness_ns_max: self.lateness.max(),
            bin_10ms_deviation_pct_max: self.bins_10ms.deviation_pct_max(),
            bin_100ms_deviation_pct_max: self.bins_100ms.deviation_pct_max(),
            quantum_ns: QUANTUM_NS,
            burst,
        }
    }
}

/// Queries due and queries sent, counted in bins of equal width (paper 001, sections III and V).
struct Bins {
    width_ns: Nanos,
    counts: Vec<Bin>,
}

#[derive(Clone, Copy, Default)]
struct Bin {
    due: u64,
    sent: u64,
}

impl Bins {
    /// Bins up to the last due time; what is sent after it counts in the last bin.
    fn new(width_ns: Nanos, last_due_ns: Nanos) -> Self {
        let bins = usize::try_from(last_due_ns / width_ns).unwrap_or(usize::MAX - 1) + 1;
        Self {
            width_ns,
            counts: vec![Bin::default(); bins],
        }
    }

    fn at(&mut self, moment_ns: Nanos) -> &mut Bin {
        let last = self.counts.len() - 1;
        let bin = usize::try_from(moment_ns / self.width_ns)
            .unwrap_or(last)
            .min(last);
        &mut self.counts[bin]
    }

    /// Largest deviation of a bin's count from what was due in it, in per cent of that.
    fn deviation_pct_max(&self) -> f64 {
        let deviation = |bin: &Bin| {
            let (off, due) = (bin.due.abs_diff(bin.sent) as f64, bin.due as f64);
            100.0 * off / due
        };
        self.counts
            .iter()
            .filter(|bin| bin.due > 0)
            .map(deviation)
            .fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::counts::FaultCounts;
    use crate::load::names::Names;
    use crate::load::repeat::Repeats;
    use crate::load::ring::Ring;
    use crate::namespace::{DEFAULT_SUFFIX, Share, Zone, parse_suffix};

    /// The result of a trial in which nothing was due.
    fn idle(around: Surroundings) -> TrialResult {
        let cidr: crate::namespace::Cidr = "10.0.0.0/8".parse().unwrap();
        let names = Names {
            ring: Ring::whole(cidr),
            first: 0,
            fresh: 0,
            cached: cidr.first(),
            repeats: Repeats::none(),
            zone: Zone {
                suffix: parse_suffix(DEFAULT_SUFFIX).unwrap(),
                aaaa_share: Share::NONE,
            },
            pref64: None,
        };
        let server = "[2001:2::53]:53".parse().unwrap();
        let spec = TrialSpec::preliminary(server, 1, 0, names, 1);
        let shards: [ShardReport; 0] = [];
        result(&spec, &shards, None, around)
    }

    #[test]
    fn what_surrounds_a_trial_is_in_its_result() {
        let resources = Some(Resources {
            memory_bytes: 1,
            descriptors: 2,
            threads: 3,
        });
        let told = idle(Surroundings {
            certified: Some(true),
            dut_drops: 7,
            dut_exit: Some("signal 11".to_owned()),
            resources,
            authority_exit: None,
            notes: vec!["restarted".to_owned()],
        });
        assert_eq!((told.certified, told.resources), (Some(true), resources));
        assert_eq!(told.outcome, Outcome::Passed);
        assert_eq!(told.dut_exit.as_deref(), Some("signal 11"));
        assert_eq!(
            told.notes,
            [
                "restarted",
                "the DUT's sockets lost 7 datagrams at full buffers",
                "the DUT ended during the trial (signal 11)",
            ]
        );
    }

    #[test]
    fn an_authority_that_ends_makes_the_trial_invalid() {
        let told = idle(Surroundings {
            authority_exit: Some("signal 9".to_owned()),
            ..Surroundings::default()
        });
        let status = "signal 9".to_owned();
        assert_eq!(
            told.outcome,
            Outcome::Invalid(TesterFault::AuthorityDied { status })
        );
    }

    #[test]
    fn an_authority_without_room_for_its_delayed_replies_makes_the_trial_invalid() {
        let mut report = AuthorityReport::default();
        let counts = |overflowed| FaultCounts {
            delayed: 10,
            lost: 10,
            overflowed,
            ..FaultCounts::default()
        };
        for (overflowed, expected) in [
            (0, None),
            (3, Some(TesterFault::AuthorityOverflow { replies: 3 })),
        ] {
            report.counts.misbehaviour = Some(counts(overflowed));
            let found = fault(&[], Some(&report), &Timing::default());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_stall_shows_as_the_deviation_of_its_bin() {
        let mut bins = Bins::new(BIN_10MS, 3 * BIN_10MS - 1);
        for i in 0..300 {
            let due = i * 100_000;
            bins.at(due).due += 1;
            // The last 25 queries of the second bin leave in the third.
            let is_late = (175..200).contains(&i);
            bins.at(if is_late { 2 * BIN_10MS } else { due }).sent += 1;
        }
        assert!((bins.deviation_pct_max() - 25.0).abs() < 1e-9);
    }

    #[test]
    fn what_leaves_after_the_last_due_time_counts_in_the_last_bin() {
        let mut bins = Bins::new(BIN_10MS, 0);
        bins.at(0).due += 1;
        bins.at(7 * BIN_10MS).sent += 1;
        assert!(bins.deviation_pct_max().abs() < f64::EPSILON);
    }
}
