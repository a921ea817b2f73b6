//! The procedures of RFC 8219 section 9: they choose the rate of the next trial and collect the results of all trials.
//!
//! ```text
//! Trials (runs one trial) -> search (RFC 8219 section 9.2) -> SearchResult
//!                            goal   (RFC 9971)
//!                            audit, capacity
//!                         -> selftest (section 9.2.1)      -> SelfTestResult, several -> certificate
//! ```
//!
//! Pure decisions on plain data: no sockets, no clock, no output. To follow the progress, pass an observer, which
//! receives [`Event`]s.

pub mod audit;
pub mod capacity;
pub mod certificate;
pub mod goal;
pub mod search;
pub mod selftest;

use dns64_transport::clock::Nanos;

use search::{Bracket, SearchEnd};

use crate::trial::fault::TesterFault;
use crate::trial::result::TrialResult;

/// Runs single trials for a procedure.
pub trait Trials {
    /// Reason why a trial could not run. A disturbed trial is not an error: its outcome is
    /// [`Invalid`](crate::trial::result::Outcome::Invalid).
    type Error;

    /// Runs one trial at `rate_qps` queries per second and returns its result.
    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Self::Error>;

    /// Sets the duration of the next trials. A procedure whose trials have one duration does not use it.
    fn set_duration(&mut self, _duration_ns: Nanos) {}

    /// Returns the fault that ends the procedure with the result of the trials until then, if the error is one: that the user interrupts
    /// it, or that the names are used up.
    fn end(_error: &Self::Error) -> Option<TesterFault> {
        None
    }
}

/// Events of a procedure, in chronological order.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A trial begins.
    TrialStarted {
        /// Offered rate.
        rate_qps: u64,
        /// Number of the trial, from 1, including repeats.
        number: u64,
    },
    /// A trial has ended.
    TrialFinished(&'a TrialResult),
    /// Current bounds of the search.
    Bracket(Bracket),
    /// The trial was invalid: its rate is repeated.
    Repeat {
        /// Reason of the invalid trial.
        fault: &'a TesterFault,
        /// Number of the repeat of this rate, from 1.
        attempt: u32,
        /// Maximum number of repeats of one rate.
        of: u32,
    },
    /// The search is over.
    Finished(&'a SearchEnd),
}

/// Runs one trial, with the events of its start and its end.
fn observed<T: Trials>(
    trials: &mut T,
    rate_qps: u64,
    number: u64,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<TrialResult, T::Error> {
    observer(&Event::TrialStarted { rate_qps, number });
    let result = trials.trial(rate_qps)?;
    observer(&Event::TrialFinished(&result));
    Ok(result)
}

#[cfg(test)]
pub(crate) mod simulated {
    //! DUTs that map a rate to an outcome.

    use std::convert::Infallible;

    use super::Trials;
    use crate::machine::usage::Usage;
    use crate::trial::place::Losses;
    use crate::trial::result::{Answers, Outcome, Rtt, Timing, TrialResult};

    /// A DUT whose trial outcome is a function of the rate.
    pub(crate) struct Simulated<F>(pub(crate) F);

    impl<F: FnMut(u64) -> Outcome> Trials for Simulated<F> {
        type Error = Infallible;

        fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Infallible> {
            Ok(result(rate_qps, (self.0)(rate_qps)))
        }
    }

    /// Returns the outcome at `rate_qps` of a DUT with the limit `limit_qps`.
    pub(crate) fn threshold(limit_qps: u64, rate_qps: u64) -> Outcome {
        match rate_qps.saturating_sub(limit_qps) {
            0 => Outcome::Passed,
            shortfall => Outcome::Failed { shortfall },
        }
    }

    /// Returns a trial of one second with the given outcome.
    pub(crate) fn result(rate_qps: u64, outcome: Outcome) -> TrialResult {
        let missing = match outcome {
            Outcome::Failed { shortfall } => shortfall,
            Outcome::Passed | Outcome::Invalid(_) => 0,
        };
        TrialResult {
            outcome,
            rate_qps,
            duration_ns: 1_000_000_000,
            timeout_ns: 1_000_000_000,
            queries_due: rate_qps,
            queries_sent: rate_qps,
            undecided: 0,
            ended_early: false,
            answers: Answers {
                valid: rate_qps - missing,
                missing,
                ..Answers::default()
            },
            types: Vec::new(),
            rtt: Rtt {
                p50: Some(0),
                p99: Some(0),
                p999: Some(0),
                max: Some(0),
                mean: Some(0),
            },
            server_is_here: false,
            interrupted: false,
            source_ports: 16,
            policy: None,
            first_wrong: None,
            rtt_percentiles: Vec::new(),
            latency_percentiles: Vec::new(),
            series: None,
            timing: Timing::default(),
            machine: Usage::default(),
            tester_drops: 0,
            losses: Losses::default(),
            authority_exit: None,
            error: None,
            authority: None,
            authorities: Vec::new(),
            authority_sampled: None,
            names: None,
            certified: None,
            achieved: None,
            service: None,
            path: None,
            resources: None,
            dut_exit: None,
            segmentation: true,
            clocks: Vec::new(),
            connections: None,
            backend: "simulated".to_owned(),
            notes: Vec::new(),
        }
    }
}
