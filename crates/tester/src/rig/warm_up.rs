//! Before a trial: what it repeats must have been asked before.

use std::ops::Range;
use std::sync::atomic::Ordering;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};

use super::{BURST_QPS, PROBE_NS, Place, Rig, RigError, Running};
use crate::load::generator::Names;
use crate::trial::TrialSpec;
use crate::trial::result::TrialResult;

/// A working set is asked within about this time, if the rate of the trial allows.
const WARM_UP_S: u64 = 5;

/// How often a working set is asked before its losses are left to the trial.
const ROUNDS: u32 = 2;

/// The rate at which a working set is asked: what every DUT stands, or more for a large set, so that
/// trials do not wait long for it; but no more than the trial's own rate, because a DUT that does not
/// keep that one must not be overrun before the trial has begun.
fn warm_up_rate_qps(names: u64, trial_rate_qps: u64) -> u64 {
    BURST_QPS.max(names / WARM_UP_S).min(trial_rate_qps)
}

/// Queries whose answers the server now has, whenever they came and however late the queries left.
pub(super) fn answered(result: &TrialResult) -> u64 {
    result.answers.valid + result.answers.late
}

impl Rig {
    /// Asks for the names that the trial will repeat, so that they are in the DUT's cache: the one
    /// name by a probe (paper 000, section 7.1), a working set by a trial of its own, which is not
    /// counted anywhere. Nothing but the trial may come after it.
    pub(super) fn warm_up(
        &mut self,
        running: &mut Running,
        names: &Names,
        rate_qps: u64,
        notes: &mut Vec<String>,
    ) -> Result<(), RigError> {
        if self.names.has_cached() {
            let prober = match &self.spec.place {
                Place::Lab(_) => self.dut_prober(running.server),
                Place::Running { local, .. } => self.running_prober(*local, running.server),
            };
            prober.aaaa(self.names.cached(), PROBE_NS)?;
        }
        let measure = &self.spec.measure;
        let over_ns = MonotonicClock.now() + measure.duration_ns + measure.timeout_ns + SECOND;
        let Some(set) = self.names.to_ask_before(names, over_ns) else {
            return Ok(());
        };
        let rate_qps = warm_up_rate_qps(set.end - set.start, rate_qps);
        let mut missed = 0;
        for round in 0..ROUNDS {
            if round > 0 {
                self.settle(running)?;
            }
            let kept_until_ns = self.kept_until_ns();
            let result = self.ask_once(running, &set, rate_qps)?;
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(RigError::Interrupted);
            }
            missed = result.queries_due - answered(&result);
            if missed == 0 {
                self.names.were_asked(set, kept_until_ns);
                return Ok(());
            }
        }
        self.settle(running)?;
        notes.push(format!(
            "{missed} of the {} names that the trial repeats were not answered when they were asked \
             beforehand, at {rate_qps} queries/s",
            set.end - set.start
        ));
        Ok(())
    }

    fn ask_once(
        &self,
        running: &mut Running,
        set: &Range<u64>,
        rate_qps: u64,
    ) -> Result<TrialResult, RigError> {
        let names = self.names.once_from(set.start, running.pref64);
        let queries = set.end - set.start;
        let spec = TrialSpec::preliminary(running.server, rate_qps, queries, names, PROBE_NS);
        Ok(running.tester.trial(&spec)?)
    }

    /// Until when a server that has just been asked keeps the answers: the shorter of their TTLs,
    /// since an AAAA is synthesised from a negative answer too.
    pub(super) fn kept_until_ns(&self) -> Nanos {
        let measure = &self.spec.measure;
        let ttl_s = measure.ttl_s.min(measure.negative_ttl_s);
        MonotonicClock.now() + u64::from(ttl_s) * SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_set_is_asked_quickly_but_not_faster_than_the_trial() {
        assert_eq!(warm_up_rate_qps(100, 50_000), 2_000);
        assert_eq!(warm_up_rate_qps(100_000, 50_000), 20_000);
        assert_eq!(warm_up_rate_qps(1_000_000, 50_000), 50_000);
        assert_eq!(warm_up_rate_qps(100_000, 300), 300);
    }
}
