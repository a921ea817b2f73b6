//! Computes the result of a trial from its ledgers: pure functions on plain data.

use std::net::IpAddr;

use dns64_transport::clock::SECOND;
use dns64_transport::socket::Segmentation;
use dns64_wire::codes::Rtype;

use super::achieved::{self, Achieved};
use super::distribution::Times;
use super::evidence::{self, Own};
use super::join::Join;
use super::judge::judge;
use super::path::Path;
use super::place::{LossEvidence, LossFacts, LossKind, LossSpan, Losses, place};
use super::policy::{self, Policy};
use super::result::{
    Answers, AuthorityShare, Outcome, TimeSeries, Timing, TrialResult, TypeResult, WrongAnswer,
};
use super::surroundings::{AuthorityReport, ShardReport, Surroundings};
use super::timing::{Hanging, TimingSums};
use super::{TrialSpec, connections, disturbance, service};
use crate::load::generator::Finished;
use crate::load::ledger::{Entry, Fate};
use crate::load::pace::Schedule;
use crate::load::query::Types;
use crate::machine::Role;
use crate::machine::counters::{Counter, Layer};
use crate::machine::watch::{HostOf, Observed};
use crate::namespace::{AskedName, Share};
use crate::quantity::Span;

/// Combines the shards, judges the trial, and returns the result.
pub fn result(
    spec: &TrialSpec,
    shards: &[ShardReport],
    authority: Option<&AuthorityReport>,
    around: Surroundings,
) -> TrialResult {
    let inputs = Inputs {
        spec,
        shards,
        authority,
        around: &around,
    };
    let mut result = inputs.figures();
    let placing = place(LossFacts::of(&result));
    result.losses.locate(placing.losses);
    result.outcome = judge(&result);
    result.notes = inputs.notes(&result);
    result
}

/// What a result is computed from.
struct Inputs<'a> {
    spec: &'a TrialSpec,
    shards: &'a [ShardReport],
    authority: Option<&'a AuthorityReport>,
    around: &'a Surroundings,
}

impl Inputs<'_> {
    /// Returns the figures of a trial, without those that follow from them: its outcome, the places of its losses, and
    /// the notes.
    fn figures(&self) -> TrialResult {
        let Self {
            spec,
            shards,
            authority,
            around,
        } = *self;
        let mut sums = Sums::new(spec, authority);
        shards.iter().for_each(|shard| sums.add(shard));
        let path = sums.path();
        let ended_early = sums.ended_early();
        // Without a DUT only the Measurer queries the authority.
        let behind_dut = authority.filter(|_| around.certified.is_some());
        let own = self.own(&sums);
        let error = shards.iter().find_map(|shard| shard.error.clone());
        TrialResult {
            outcome: Outcome::Passed,
            certified: around.certified,
            rate_qps: spec.schedule.rate_qps(),
            duration_ns: spec.schedule.duration_ns(),
            timeout_ns: spec.timeout_ns,
            queries_due: spec.schedule.queries(),
            queries_sent: sums.sent,
            undecided: sums.undecided,
            ended_early,
            answers: sums.answers,
            types: sums.types(),
            policy: sums.policy(around),
            first_wrong: first_wrong(spec, shards),
            rtt: sums.rtt.rtt(),
            rtt_percentiles: sums.rtt.percentiles(),
            latency_percentiles: sums.latency.percentiles_of(sums.sent - sums.undecided),
            series: (sums.shortfall() > 0).then(|| TimeSeries::of(spec, &sums.shards)),
            timing: Timing {
                clock_source: around.clock_source.clone(),
                ..sums
                    .certificate
                    .timing(spec, &sums.shards, sums.shortfall())
            },
            tester_drops: own.receive_drops + around.drops_of(authority).0,
            losses: self.losses(sums.hanging(), &own),
            interrupted: around.interrupted,
            authority_exit: around.authority_exit.clone(),
            error: error.or_else(|| authority?.error.clone()),
            authority: authority.map(|a| a.counts),
            authorities: shares(authority, &around.observed),
            authority_sampled: around.sampled(spec),
            names: Some(spec.names.range()),
            achieved: behind_dut.and_then(|authority| sums.achieved(authority)),
            service: service::service(spec.schedule.rate_qps(), ended_early, &sums.shards),
            resources: around.resources,
            notes: Vec::new(),
            machine: around.machine.clone(),
            source_ports: shards.iter().map(|shard| shard.ports).sum(),
            server_is_here: around.certified.is_some() && around.observed.is_one_machine(),
            path,
            dut_exit: around.dut_exit.clone(),
            segmentation: spec.segmentation == Segmentation::On,
            clocks: around.hosts.clone(),
            backend: carrier(shards),
            connections: connections::of(shards),
        }
    }

    /// Returns the counters of the Tester's own datagrams.
    fn own(&self, sums: &Sums<'_>) -> Own {
        let sum = |of: fn(&ShardReport) -> u64| self.shards.iter().map(of).sum::<u64>();
        let mut carriers = self.shards.iter().map(|shard| shard.carrier);
        Own {
            sent: sums.sent,
            answered: sums.answers.answered(),
            not_sent: sum(|s| s.finished.tally.not_sent),
            undecided: sums.undecided,
            receive_drops: sum(|s| s.counters.receive_drops),
            authority_drops: self.around.drops_of(self.authority).0 + self.around.authority_drops,
            is_stream: self.spec.transport.is_stream(),
            is_past_the_kernel: carriers.any(|carrier| carrier.bypasses_the_kernel()),
            authority_in_driver: self.authority.is_some_and(|authority| authority.in_driver),
        }
    }

    /// Returns what shows the losses of a trial, without their places.
    fn losses(&self, hanging: Hanging, own: &Own) -> Losses {
        let observed = &self.around.observed;
        Losses {
            hosts: observed.hosts.iter().map(|host| host.of.clone()).collect(),
            shared: observed.hosts.iter().any(|host| host.shared),
            counters: evidence::counters(observed),
            span: hanging.span,
            evidence: LossEvidence {
                not_sent: own.not_sent,
                refused_by: evidence::refusing(observed).filter(|_| own.not_sent > 0),
                hanging: hanging.queries,
                dut_drops: self.around.dut_drops + self.around.drops_of(self.authority).1,
                is_watched: evidence::is_watched(observed, own),
                found: evidence::gather(observed, own),
            },
            ..Losses::default()
        }
    }

    /// Returns the notes for readers.
    fn notes(&self, result: &TrialResult) -> Vec<String> {
        let around = self.around;
        let mut notes = self.names_at_authority(result);
        notes.extend(result.authority_sampled.and_then(|times| times.note()));
        notes.extend(self.strangers());
        notes.extend(result.connections.iter().flat_map(connections::notes));
        notes.extend(result.policy.iter().map(ToString::to_string));
        notes.extend(around.certified.and_then(|_| silence(result)));
        notes.extend(result.first_wrong.iter().map(ToString::to_string));
        let wrong = result.answers.wrong;
        let lack = format!("{wrong} answers lacked addresses, or CNAME records before them");
        notes.extend((wrong > 0 && result.first_wrong.is_none()).then_some(lack));
        if result.answers.other_addresses > 0 {
            notes.push(format!(
                "valid answers had {} other addresses beside the expected ones",
                result.answers.other_addresses
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
        let of_dut = |passed| disturbance::remark(&around.machine, &self.spec.limits, passed);
        match result.outcome {
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
        if result.outcome == Outcome::Passed {
            notes.extend(without_effect(result));
        }
        notes
    }

    /// Returns the notes on the names from the authority behind a DUT: exact if it recorded each name, otherwise from
    /// its counters.
    fn names_at_authority(&self, result: &TrialResult) -> Vec<String> {
        let authority = self.authority.filter(|_| result.certified.is_some());
        let Some(authority) = authority else {
            return Vec::new();
        };
        let is_cold = self.spec.names.repeats.share() == Share::NONE;
        let (_, answered) = result.aaaa();
        match &result.path {
            Some(path) => path.notes(),
            None if is_cold => Vec::from_iter(achieved::warm(answered, &authority.counts)),
            None => Vec::new(),
        }
    }

    /// Returns the notes on datagrams that came from elsewhere than the server.
    fn strangers(&self) -> Vec<String> {
        let (server, counters) = (self.spec.server, self.shards.iter().map(|s| &s.counters));
        let mut notes = Vec::new();
        let unreachable: u64 = counters.clone().map(|it| it.unreachable).sum();
        if unreachable > 0 && !self.spec.transport.is_stream() {
            notes.push(format!(
                "{unreachable} ICMP errors came back: no server listens at {server}, or it has stopped"
            ));
        }
        if let Some(from) = counters.clone().find_map(|it| it.foreign_from) {
            let foreign: u64 = counters.map(|it| it.foreign).sum();
            notes.push(format!(
                "{foreign} datagrams came from {from}, not from the server at {server}; counted as stray"
            ));
        }
        notes
    }
}

/// Says from when on the DUT of a failed trial answered nothing, for the last second or longer. Whether it had stopped, or
/// meant it, its answers do not show: a limit whose window is longer than a second (BIND, `window`) counts what it drops.
/// If the trial is invalid, its fault can be the reason.
fn silence(result: &TrialResult) -> Option<String> {
    let LossSpan { from_ns, until_ns } = result.losses.span?;
    let before = Schedule::new(result.rate_qps, result.duration_ns).due_within(from_ns);
    let answered = result.answers.answered();
    let has_failed = matches!(result.outcome, Outcome::Failed { .. });
    let is_silent = answered > 0 && answered <= before && until_ns - from_ns >= SECOND;
    (has_failed && is_silent).then(|| {
        format!(
            "no query was answered from {} on: the DUT stopped, or it has a rate limit",
            Span(from_ns)
        )
    })
}

/// Returns the wrong answer to the earliest query among those that the shards received first.
fn first_wrong(spec: &TrialSpec, shards: &[ShardReport]) -> Option<WrongAnswer> {
    let wrong = shards.iter().map(|shard| shard.finished.tally.first_wrong);
    let (query, received) = wrong.flatten().min()?;
    let AskedName { address, rtype } = spec.names.question(query);
    Some(WrongAnswer {
        query,
        name: spec.names.zone.name(address),
        received,
        expected: match rtype {
            Rtype::AAAA => spec.names.expected(address).map(IpAddr::from).collect(),
            _ => spec
                .names
                .zone
                .addresses(address)
                .map(IpAddr::from)
                .collect(),
        },
    })
}

/// Returns the name of the slowest carrier: one queue that copies is enough.
fn carrier(shards: &[ShardReport]) -> String {
    let slowest = shards.iter().map(|shard| shard.carrier).min();
    slowest.map_or_else(|| "none".to_owned(), |carrier| carrier.to_string())
}

/// Returns the share of each of several authorities: from its own counters, or from those of its host.
fn shares(authority: Option<&AuthorityReport>, observed: &Observed) -> Vec<AuthorityShare> {
    if let Some(authority) = authority {
        return authority.shares.clone();
    }
    let hosts = observed.hosts.iter();
    let shares = hosts.filter_map(|host| {
        let HostOf::Role(Role::Authority, Some(name)) = &host.of else {
            return None;
        };
        let read = [Layer::Udp, Layer::Udp6].map(|layer| Counter::of_host(layer, "InDatagrams"));
        Some(AuthorityShare {
            host: name.clone(),
            questions: read.iter().map(|counter| host.least.get(counter)).sum(),
            drops: 0,
        })
    });
    shares.collect()
}

/// Returns the losses of a trial that passed, which cost no answer: of retries, or of unrelated packets.
fn without_effect(result: &TrialResult) -> impl Iterator<Item = String> {
    let found = result.losses.evidence.found.iter();
    let lost = found.filter(|evidence| evidence.kind != LossKind::Held);
    lost.map(|evidence| format!("{}; every query was answered all the same", evidence.source))
}

/// Accumulates all data query by query.
struct Sums<'a> {
    spec: &'a TrialSpec,
    shards: Vec<&'a Finished>,
    join: Option<Join<'a>>,
    answers: Answers,
    /// By type, if the queries have several.
    types: [TypeResult; 3],
    sent: u64,
    undecided: u64,
    rtt: Times,
    latency: Times,
    certificate: TimingSums,
}

impl<'a> Sums<'a> {
    fn new(spec: &'a TrialSpec, authority: Option<&'a AuthorityReport>) -> Self {
        let ledger = authority.and_then(|a| Some((a.ledger.as_deref()?, a.allowed_ns)));
        Self {
            spec,
            shards: Vec::new(),
            join: ledger.map(|(ledger, allowed_ns)| Join::new(spec, ledger, allowed_ns)),
            answers: Answers::default(),
            types: Types::ALL.map(|rtype| TypeResult {
                rtype: rtype.to_string(),
                ..TypeResult::default()
            }),
            sent: 0,
            undecided: 0,
            rtt: Times::new(),
            latency: Times::new(),
            certificate: TimingSums::new(spec),
        }
    }

    fn add(&mut self, shard: &'a ShardReport) {
        self.shards.push(&shard.finished);
        self.certificate.add_step(shard.clock_step_ns);
        let tally = &shard.finished.tally;
        self.answers.duplicate += tally.duplicate;
        self.answers.stray += tally.stray + shard.counters.foreign;
        self.answers.other_addresses += tally.other_addresses;
        self.types[Types::HTTPS].synthesised_hints += tally.synthesised_hints;
        let finished = &shard.finished;
        for query in finished.queries() {
            self.certificate.add(&query);
            if !query.was_sent() {
                continue;
            }
            let (number, sent_ns, entry) = (query.number, query.sent_ns(), &query.entry);
            self.sent += 1;
            let expired = finished.is_expired(sent_ns, self.spec.timeout_ns);
            self.answer(entry, expired);
            self.answer_of_type(number, entry.fate, expired);
            if let Some(join) = &mut self.join {
                join.query(number, finished.start + sent_ns, entry, expired);
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
        Hanging::of(self.spec, some, self.rtt.max())
    }

    /// Returns the path of the queries, when all shards have been added.
    fn path(&mut self) -> Option<Path> {
        let join = self.join.take()?;
        Some(join.finish())
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
        if let Some(latency_ns) = entry.latency_ns() {
            self.rtt.record(entry.rtt_ns);
            self.latency.record(latency_ns);
        }
    }

    /// Counts a query by its type.
    fn answer_of_type(&mut self, query: u64, fate: Fate, expired: bool) {
        let rtype = self.spec.names.question(query).rtype;
        let place = Types::ALL.iter().position(|it| *it == rtype);
        let Some(counts) = place.and_then(|place| self.types.get_mut(place)) else {
            return;
        };
        counts.sent += 1;
        match fate {
            Fate::Valid => counts.valid += 1,
            Fate::Pending => counts.lost += u64::from(expired),
            _ => counts.wrong += 1,
        }
    }

    /// Returns the counts by type, if the queries have several types.
    fn types(&self) -> Vec<TypeResult> {
        let types = self.spec.names.form.types;
        let of = Types::ALL.into_iter().zip(&self.types);
        let of = of.filter(|(rtype, _)| types != Types::default() && types.has(*rtype));
        of.map(|(_, counts)| counts.clone()).collect()
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

    /// Returns the policy of a DUT that left queries without a valid answer.
    fn policy(&self, around: &Surroundings) -> Option<Policy> {
        let has_dut = around.certified.is_some() && self.shortfall() > 0;
        let refused = self.shards.iter().map(|it| it.tally.refused).sum();
        let counts = (refused, self.answers.truncated, self.answers.missing);
        let found = || policy::find(counts, &self.shards, around.started_at_ns);
        has_dut.then(found).flatten()
    }

    fn achieved(&self, authority: &AuthorityReport) -> Option<Achieved> {
        let all_answered = self.answers.missing == 0 && self.undecided == 0;
        let [aaaa, ..] = &self.types;
        Achieved::by_counts((self.sent, aaaa.sent), &authority.counts, all_answered)
    }
}

#[cfg(test)]
mod tests;
