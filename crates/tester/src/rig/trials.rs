//! Trials on a rig: fresh names, a server that answers, and what happened to it meanwhile.

use std::sync::atomic::Ordering;

use dns64_transport::clock::{Nanos, SECOND};

use super::warm_up::answered;
use super::{PROBE_NS, Place, Rig, RigError, Running};
use crate::lab::dut::{Dut, Probe};
use crate::lab::process;
use crate::load::generator::Names;
use crate::load::pace::Schedule;
use crate::procedure::Trials;
use crate::trial::names::NamespaceTooSmall;
use crate::trial::result::{Outcome, TrialResult};
use crate::trial::summary::Surroundings;

/// How long a DUT may take to answer a probe before it is started anew.
const ANSWER_NS: Nanos = 5 * SECOND;

/// How long a server may take to work off the queues that a trial has left. Paper 002, section
/// 4.2.4, lets every server rest for 10 s.
const SETTLE_NS: Nanos = 10 * SECOND;

/// An idle server answers within this time: a tenth of the shortest timeout of the papers is 50 ms,
/// and a name that is not cached takes two more round trips.
const PROMPT_NS: Nanos = SECOND / 10;

/// A probe for a name that is not cached makes the server ask for AAAA and for A.
const PROBE_QUERIES: u64 = 2;

/// Rounds without a late answer or a query of its own, some 10 ms each, that show an idle server.
const QUIET_ROUNDS: u32 = 5;

impl Trials for Rig {
    type Error = RigError;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.begin()?,
        };
        let result = self.trial_on(&mut running, rate_qps);
        self.running = Some(running);
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RigError::Interrupted);
        }
        result
    }
}

/// How a program ended, if it did.
pub(super) fn exit(program: &mut Dut) -> Option<String> {
    Some(program.exit_status()?.to_string())
}

impl Rig {
    fn trial_on(&mut self, running: &mut Running, rate_qps: u64) -> Result<TrialResult, RigError> {
        let measure = self.spec.measure.clone();
        let queries = Schedule::new(rate_qps, measure.duration_ns).queries();
        let mut notes = Vec::new();
        self.ready(running, &mut notes)?;
        let names = self.fresh_names(running, queries, &mut notes)?;
        self.warm_up(running, &names, rate_qps, &mut notes)?;
        let drops_before = running.dut.as_ref().map_or(0, |dut| dut.udp_drops());
        let spec = measure.trial(running.server, rate_qps, names.clone());
        let certified = self.certified_rate_qps.is_some_and(|to| rate_qps <= to);
        let kept_until_ns = self.kept_until_ns();
        let (dut, authority) = (&mut running.dut, &mut running.authority);
        let result = running.tester.trial_amid(&spec, || {
            let around = Surroundings {
                certified: Some(certified),
                authority_exit: authority.as_mut().and_then(exit),
                notes,
                ..Surroundings::default()
            };
            match dut {
                None => around,
                Some(dut) => Surroundings {
                    dut_drops: dut.udp_drops().saturating_sub(drops_before),
                    resources: Some(dut.resources()),
                    dut_exit: exit(dut)
                        .map(|status| format!("{status}; its last words: {}", dut.log_tail())),
                    ..around
                },
            }
        })?;
        let all_answered = answered(&result) == result.queries_due;
        self.names
            .trial_is_over(&names, all_answered, kept_until_ns);
        running.unsettled = result.outcome != Outcome::Passed;
        Ok(result)
    }

    /// Names that the DUT has not seen, or has forgotten because it was restarted. Whatever restarts
    /// it comes before: a restart deals the names out anew.
    fn fresh_names(
        &mut self,
        running: &mut Running,
        queries: u64,
        notes: &mut Vec<String>,
    ) -> Result<Names, RigError> {
        let pref64 = Some(running.pref64);
        match self.names.take(queries, pref64) {
            Err(NamespaceTooSmall { .. }) if running.dut.is_some() => {
                self.restart(running)?;
                notes.push("the namespace was used up: the DUT was restarted".into());
                Ok(self.names.take(queries, pref64)?)
            }
            names => Ok(names?),
        }
    }

    fn restart(&mut self, running: &mut Running) -> Result<(), RigError> {
        let Some(dut) = &mut running.dut else {
            return Ok(());
        };
        let prober = self.dut_prober(running.server);
        dut.restart(|| self.probe_and_burst(&prober, running.pref64, &mut running.tester))?;
        self.names.start_over();
        Ok(())
    }

    /// Waits until the server is through with the last trial, so that none begins on the ruins of
    /// another. A DUT that has died or stays silent is started anew; a server that somebody else
    /// runs is measured as it is.
    fn ready(&mut self, running: &mut Running, notes: &mut Vec<String>) -> Result<(), RigError> {
        if matches!(&self.spec.place, Place::Lab(lab) if lab.restart) {
            self.restart(running)?;
        }
        if running.unsettled {
            self.settle(running)?;
        }
        let prober = self.dut_prober(running.server);
        if let Some(dut) = &mut running.dut {
            let mut last = Probe::Abandoned;
            process::wait_until(ANSWER_NS, || {
                last = self.probe(&prober, running.pref64, PROBE_NS);
                !matches!(last, Probe::NotYet(_)) || !dut.is_alive()
            });
            match last {
                Probe::Answered => {}
                Probe::Abandoned => return Err(RigError::Interrupted),
                Probe::NotYet(why) | Probe::FellSilent(why) => {
                    self.restart(running)?;
                    notes.push(format!("the DUT was restarted: it did not answer ({why})"));
                }
            }
        }
        if let Some(starts @ 1..) = running.dut.as_mut().map(Dut::take_silent_starts) {
            notes.push(format!(
                "the DUT was silent after {starts} of its starts and was started anew"
            ));
        }
        Ok(())
    }

    /// Waits until the server answers at once and asks the authority nothing of its own accord,
    /// several times in a row: then what the last trial left in its queues is worked off. Gives up
    /// on a server that does not answer at all.
    pub(super) fn settle(&mut self, running: &mut Running) -> Result<(), RigError> {
        let prober = match &self.spec.place {
            Place::Lab(_) => self.dut_prober(running.server),
            Place::Running { local, .. } => self.running_prober(*local, running.server),
        };
        if prober.answers(self.names.probe(), PROBE_NS).is_err() {
            return Ok(());
        }
        let mut asked = running.tester.authority_counts()?.queries();
        let mut quiet = 0;
        let mut failed = None;
        process::wait_until(SETTLE_NS, || {
            let prompt = prober.answers(self.names.probe(), PROMPT_NS).is_ok();
            match running.tester.authority_counts() {
                Ok(counts) if prompt && counts.queries() <= asked + PROBE_QUERIES => quiet += 1,
                Ok(_) => quiet = 0,
                Err(error) => failed = Some(error),
            }
            asked = running
                .tester
                .authority_counts()
                .map_or(asked, |c| c.queries());
            quiet == QUIET_ROUNDS || failed.is_some() || self.interrupted.load(Ordering::Relaxed)
        });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
