//! Trials of a running rig: unused names, a responsive server, and what happened to it during the trial.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::pref64::Pref64;

use super::RigError;
use super::equipment::{Client, PROBE_NS, StartedServer};
use super::pulses::Pulses;
use super::spec::Load;
use crate::lab::Blame;
use crate::lab::server::Probe;
use crate::load::names::{NameSource, Names, NamespaceTooSmall};
use crate::load::transport::Transport;
use crate::namespace::Prefixes;
use crate::post::ServerState;
use crate::post::probe::ProbeError;
use crate::trial::TrialSpec;
use crate::trial::result::{Outcome, TrialResult};
use crate::trial::surroundings::Surroundings;

/// Time for a DUT to answer a probe before it is restarted.
const ANSWER_NS: Nanos = 5 * SECOND;

/// Time for a server to drain its queues after a trial. Lencse and Bakai 2017, section 4.2.4, let every server rest for
/// 10 s.
const SETTLE_NS: Nanos = 10 * SECOND;

/// Maximum response time of an idle server: a tenth of the shortest timeout of the papers is 50 ms, and an uncached
/// name takes two more round trips.
const PROMPT_NS: Nanos = SECOND / 10;

/// A probe for an uncached name causes upstream queries for AAAA and for A.
const PROBE_QUERIES: u64 = 2;

/// Consecutive rounds, some 10 ms each, without late responses or upstream queries of its own that show an idle server.
const QUIET_ROUNDS: u32 = 5;

/// Rate of the burst before the first trial, and minimum rate of a warm-up: low enough for every DUT, and more queries
/// at once than a probe.
pub(super) const BURST_QPS: u64 = 2_000;

/// The Measurer for one server, with its names.
pub(super) struct Asker<C> {
    pub(super) client: C,
    pub(super) server: SocketAddr,
    transport: Transport,
    pub(super) pref64: Prefixes,
    pub(super) names: NameSource,
    interrupted: Arc<AtomicBool>,
}

impl<C: Client> Asker<C> {
    /// Creates an asker with the well-known prefix as the pref64.
    pub(super) fn new(
        client: C,
        (server, transport): (SocketAddr, Transport),
        names: NameSource,
        interrupted: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            client,
            server,
            transport,
            pref64: Pref64::WELL_KNOWN.into(),
            names,
            interrupted: Arc::clone(interrupted),
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns what the answers for the reserved names have to be.
    pub(super) fn expected(&self) -> Names {
        self.names.burst(self.pref64.clone())
    }

    /// Sends one query and checks its answer.
    pub(super) fn probe(&mut self) -> Probe {
        if self.is_interrupted() {
            return Probe::interrupted();
        }
        let (name, expected) = (self.names.probe(), self.expected());
        match self.client.aaaa(name, PROBE_NS) {
            Ok(found) if found.iter().any(|it| expected.accept(*it, name)) => Probe::Answered,
            Ok(found) => {
                let expected: Vec<_> = expected.expected(name).collect();
                Probe::NotYet(format!("{found:?} instead of {expected:?}"))
            }
            Err(error) => error.into(),
        }
    }

    /// Sends one query, a burst and one more query: some servers answer the first and become silent during the burst,
    /// which must be detected before a trial.
    pub(super) fn probe_and_burst(&mut self) -> Probe {
        match self.probe() {
            Probe::Answered => {}
            other => return other,
        }
        let (names, queries) = (self.expected(), self.names.burst_len());
        match self.once(names, queries, BURST_QPS) {
            Ok(result) if result.queries_sent == 0 => Probe::NotAsked("nothing was sent".into()),
            Ok(result) if result.answers.missing == result.queries_sent => {
                let sent = result.queries_sent;
                Probe::FellSilent(format!("none of {sent} queries at once was answered"))
            }
            Ok(_) => match self.probe() {
                Probe::NotYet(why) => Probe::FellSilent(format!("after a burst: {why}")),
                answered => answered,
            },
            Err(error) if error.blame() == Some(Blame::Machine) => {
                Probe::NotAsked(error.to_string())
            }
            Err(error) => Probe::NotYet(error.to_string()),
        }
    }

    /// Queries the first `queries` of `names`, once each, in a trial that counts nowhere.
    pub(super) fn once(
        &mut self,
        names: Names,
        queries: u64,
        rate_qps: u64,
    ) -> Result<TrialResult, RigError> {
        let spec = TrialSpec::preliminary(
            self.server,
            self.transport,
            rate_qps,
            queries,
            names,
            PROBE_NS,
        );
        self.client.trial(&spec, Surroundings::default)
    }
}

/// A rig that is ready for trials.
pub(super) struct Running<C, S> {
    /// Dropped first, because it queries the others.
    pub(super) asker: Asker<C>,
    pub(super) dut: Option<S>,
    pub(super) authority: Option<S>,
    /// Parameters that the trials share.
    pub(super) load: Load,
    /// Restart the DUT before each trial.
    pub(super) restart: bool,
    /// Highest DUT rate for which the Tester has passed its self-test.
    pub(super) certified_rate_qps: Option<u64>,
    /// The last trial did not pass, so the server may still be busy.
    pub(super) unsettled: bool,
    /// Maximum configured delay of the authority's replies.
    pub(super) delay_ns: Nanos,
}

impl<C: Client, S: StartedServer> Running<C, S> {
    /// Creates a running rig without servers of its own.
    pub(super) fn new(asker: Asker<C>, load: Load) -> Self {
        Self {
            asker,
            dut: None,
            authority: None,
            load,
            restart: false,
            certified_rate_qps: None,
            unsettled: false,
            delay_ns: 0,
        }
    }

    /// Runs one trial, with its preparations.
    pub(super) fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        match self.measured(rate_qps) {
            Err(_) if self.asker.is_interrupted() => Err(RigError::Interrupted),
            result => result,
        }
    }

    fn measured(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        let schedule = self.load.schedule(rate_qps);
        let mut notes = Vec::new();
        self.ready(&mut notes)?;
        let names = self.fresh_names(schedule.queries(), &mut notes)?;
        self.warm_up(&names, rate_qps, &mut notes)?;
        let server = self.asker.server;
        let spec = self.load.trial(server, schedule, names.clone());
        let certified = self.certified_rate_qps.is_some_and(|to| rate_qps <= to);
        let kept_until_ns = self.kept_until_ns();
        let servers = (self.dut.as_ref(), self.authority.as_ref());
        let pulse = pulse(servers.1, &mut self.asker.names, spec.timeout_ns)?;
        let interrupted = Arc::clone(&self.asker.interrupted);
        let result = observed_trial(&mut self.asker.client, &spec, servers, || Surroundings {
            authority_waits_ns: pulse.map(|mut pulse| pulse.end()),
            certified: Some(certified),
            interrupted: interrupted.load(Ordering::Relaxed),
            notes,
            ..Surroundings::default()
        })?;
        let all_answered = answered(&result) == result.queries_due;
        let source = &mut self.asker.names;
        source.trial_is_over(&names, all_answered, kept_until_ns);
        self.unsettled = result.outcome != Outcome::Passed;
        Ok(result)
    }

    /// Returns names that the DUT has not seen, or has lost by a restart. All restarts must come first: a restart makes
    /// all names available again.
    fn fresh_names(&mut self, queries: u64, notes: &mut Vec<String>) -> Result<Names, RigError> {
        let pref64 = Some(self.asker.pref64.clone());
        match self.asker.names.take(queries, pref64.clone()) {
            Err(NamespaceTooSmall { .. }) if self.dut.is_some() => {
                self.restart_dut()?;
                notes.push("the namespace was used up: the DUT was restarted".into());
                Ok(self.asker.names.take(queries, pref64)?)
            }
            names => Ok(names?),
        }
    }

    fn restart_dut(&mut self) -> Result<(), RigError> {
        if let Some(dut) = &mut self.dut {
            dut.restart(&mut || self.asker.probe_and_burst())?;
            self.asker.names.start_over();
        }
        Ok(())
    }

    /// Waits until the server has drained the queues of the last trial, so that they do not affect the next one. A DUT
    /// that has exited or is silent is restarted; a server that the rig did not start is measured as it is.
    fn ready(&mut self, notes: &mut Vec<String>) -> Result<(), RigError> {
        if self.restart {
            self.restart_dut()?;
        }
        if self.unsettled {
            self.settle()?;
        }
        match self.answer_of_dut() {
            Probe::Answered => {}
            // The caller recognises an interrupt by the user.
            Probe::Abandoned(why) => return Err(Blame::Machine.error(why).into()),
            Probe::NotYet(why) | Probe::FellSilent(why) | Probe::NotAsked(why) => {
                self.restart_dut()?;
                notes.push(format!("the DUT was restarted: it did not answer ({why})"));
            }
        }
        if let Some(starts @ 1..) = self.dut.as_mut().map(StartedServer::take_silent_starts) {
            notes.push(format!(
                "the DUT was silent after {starts} of its starts and was restarted"
            ));
        }
        Ok(())
    }

    /// Probes the rig's own DUT until it answers, has exited, or the time is over.
    fn answer_of_dut(&mut self) -> Probe {
        let deadline = self.asker.client.now() + ANSWER_NS;
        loop {
            let Some(dut) = &mut self.dut else {
                return Probe::Answered;
            };
            let ended = dut.ended().is_some();
            let probe = self.asker.probe();
            let over = ended || self.asker.client.now() >= deadline;
            if over || !matches!(probe, Probe::NotYet(_) | Probe::NotAsked(_)) {
                return probe;
            }
            self.asker.client.pause(PROMPT_NS / 10);
        }
    }

    /// Waits until the server responds promptly several times in a row and sends no upstream queries of its own: then
    /// the queues of the last trial are drained. Fails for a server that does not respond at all.
    pub(super) fn settle(&mut self) -> Result<(), RigError> {
        // The server queries AAAA and A in sequence.
        let prompt_ns = PROMPT_NS + PROBE_QUERIES * self.delay_ns;
        let Asker {
            client,
            names,
            interrupted,
            ..
        } = &mut self.asker;
        if client.answers(names.probe(), PROBE_NS).is_err() {
            return Ok(());
        }
        let mut asked = client.authority_counts()?.queries();
        let mut quiet = 0;
        let mut failed = None;
        client.wait_until(SETTLE_NS, |client| {
            let prompt = client.answers(names.probe(), prompt_ns).is_ok();
            match client.authority_counts().map(|counts| counts.queries()) {
                Ok(queries) => {
                    let idle = prompt && queries <= asked + PROBE_QUERIES;
                    quiet = if idle { quiet + 1 } else { 0 };
                    asked = queries;
                }
                Err(error) => failed = Some(error),
            }
            quiet == QUIET_ROUNDS || failed.is_some() || interrupted.load(Ordering::Relaxed)
        });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Runs a trial and adds to `around` what happened to the DUT, the authority and the links meanwhile.
pub(super) fn observed_trial<C: Client, S: StartedServer>(
    client: &mut C,
    spec: &TrialSpec,
    (dut, authority): (Option<&S>, Option<&S>),
    around: impl FnOnce() -> Surroundings,
) -> Result<TrialResult, RigError> {
    let state = |server: Option<&S>| server.map(StartedServer::state).unwrap_or_default();
    let lost = |before: &ServerState, after: &ServerState| {
        after.udp_drops.saturating_sub(before.udp_drops)
    };
    let (dut_before, authority_before) = (state(dut), state(authority));
    let watched = client.watched();
    let before = watched.read();
    client.trial(spec, || {
        let around = around();
        let (dut_after, authority_after) = (state(dut), state(authority));
        Surroundings {
            dut_drops: lost(&dut_before, &dut_after),
            resources: dut.map(|_| dut_after.resources),
            dut_exit: dut_after
                .ended
                .map(|status| format!("{status}; last log lines: {}", dut_after.log_tail)),
            authority_drops: lost(&authority_before, &authority_after),
            authority_exit: authority_after.ended,
            observed: watched.since(&before),
            ..around
        }
    })
}

/// Starts queries to an authority that is a separate program.
fn pulse<S: StartedServer>(
    authority: Option<&S>,
    names: &mut NameSource,
    timeout_ns: Nanos,
) -> Result<Option<Pulses>, ProbeError> {
    let begin = |server: &S| {
        let (name, zone) = (names.probe(), names.zone());
        server.pulse(zone, name, timeout_ns)
    };
    authority.and_then(begin).transpose()
}

/// Queries whose answers the server has now, regardless of how late they were.
pub(super) fn answered(result: &TrialResult) -> u64 {
    result.answers.valid + result.answers.late
}
