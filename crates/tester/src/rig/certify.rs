//! The self-test on a rig (RFC 8219 section 9.2.1): without the DUT. The authority, which then has an AAAA for every
//! name, answers the Measurer directly.
//!
//! Its datagrams are sent one by one in both directions, like those between a DUT and its authority, even if the
//! measurement uses segmentation. A segmented run would certify a Tester for several times its capacity.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;

use super::equipment::{Client, PROBE_NS, StartedServer};
use super::running::observed_trial;
use super::spec::Load;
use super::{Rig, RigError};
use crate::lab::Blame;
use crate::lab::server::{Probe, Start};
use crate::load::names::NameSource;
use crate::load::pace::{Pacing, Schedule};
use crate::namespace::own_aaaa;
use crate::post::probe::{ProbeError, Prober};
use crate::procedure::certificate::{self, SelfTests};
use crate::procedure::search::{Resolution, SearchSpec};
use crate::procedure::selftest::{self, SelfTestResult};
use crate::procedure::{Event, Trials};
use crate::trial::fault::TesterFault;
use crate::trial::result::TrialResult;
use crate::trial::surroundings::Surroundings;

/// Aim of a self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Whether the Tester is sufficient for a DUT at this rate.
    At(u64),
    /// The highest rate for which it is sufficient.
    Highest(Highest),
}

/// What a self-test for the highest rate is to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Highest {
    /// Resolution of the rate.
    pub resolution: Resolution,
    /// Highest rate to certify.
    pub max_qps: Option<u64>,
}

impl Highest {
    /// The certificate before a search. Its resolution is coarse because the rates of DUTs are far below it.
    pub const fn coarse(max_qps: Option<u64>) -> Self {
        let millionths = 100_000;
        Self {
            resolution: Resolution::Relative { millionths },
            max_qps,
        }
    }
}

/// First self-test rate of a search for the highest: any current machine achieves it.
const START_QPS: u64 = 22_000;

/// Maximum length of the trials of a search for the highest rate; a trial at full length then confirms the result.
pub(crate) const SEARCH_TRIAL_NS: Nanos = 5 * SECOND;

/// The Tester looped back to itself: trials without a DUT, at self-test rates, with a quarter of the timeout and single
/// datagrams. Also used to measure authorities (Lencse, Pivoda and Shima 2021).
pub struct Loopback<C, S> {
    /// Dropped first, because it queries the authority.
    client: C,
    /// The authority, if it is a separate program.
    authority: Option<S>,
    server: SocketAddr,
    names: NameSource,
    load: Load,
    interrupted: Arc<AtomicBool>,
    /// The authority is the DUT, not the Tester.
    is_subject: bool,
}

impl<C: Client, S: StartedServer> Loopback<C, S> {
    /// Creates a loopback for DUTs whose trials share this `load`. A certificate of the Tester always uses absolute
    /// pacing.
    pub(super) fn new(
        client: C,
        authority: Option<S>,
        server: SocketAddr,
        load: &Load,
        interrupted: Arc<AtomicBool>,
        is_subject: bool,
    ) -> Result<Self, RigError> {
        Ok(Self {
            client,
            authority,
            server,
            names: load.names()?,
            load: Load {
                segmentation: Segmentation::Off,
                timeout_ns: selftest::self_test_timeout(load.timeout_ns),
                stop_early: true,
                pacing: match is_subject {
                    true => load.pacing,
                    false => Pacing::Absolute,
                },
                ..load.clone()
            },
            interrupted,
            is_subject,
        })
    }

    /// Returns the authority, if it is a separate program.
    pub fn authority(&self) -> Option<&S> {
        self.authority.as_ref()
    }

    /// Returns the last start of the authority, once.
    pub fn take_start(&mut self) -> Option<Start> {
        self.authority.as_mut()?.take_start()
    }

    /// Restarts a measured authority that has exited: the previous trial reported the exit.
    fn revive(&mut self) -> Result<(), RigError> {
        let Some(authority) = self.authority.as_mut().filter(|_| self.is_subject) else {
            return Ok(());
        };
        if authority.ended().is_none() {
            return Ok(());
        }
        let (client, interrupted) = (&self.client, &self.interrupted);
        let last = self.load.cidr.last();
        let mut probe = || match client.answers(last, PROBE_NS) {
            _ if interrupted.load(Ordering::Relaxed) => Probe::interrupted(),
            answer => answer.into(),
        };
        Ok(authority.restart(&mut probe)?)
    }

    /// Runs one self-test with this aim. A search for the highest rate starts at `near_qps`, the rate that an earlier
    /// one certified, if there was one.
    pub(super) fn answer(
        &mut self,
        aim: Aim,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<SelfTestResult, RigError> {
        match aim {
            Aim::At(rate_qps) => selftest::certify_at(rate_qps, self, observer),
            Aim::Highest(wanted) => {
                let whole_ns = self.load.duration_ns;
                highest(wanted, near_qps, whole_ns, self, observer)
            }
        }
    }
}

/// Trials with a variable length.
pub trait Lengths: Trials {
    /// Sets the length of the next trials.
    fn set_length(&mut self, duration_ns: Nanos);
}

/// Searches for the highest rate by short trials, unless an earlier self-test certified `near_qps`, and confirms it by a
/// trial of the length `whole_ns`. It
/// depends only on its arguments and the outcomes, so that a recorded self-test can be replayed from its trials.
///
/// # Errors
///
/// Errors of `trials` that prevent a trial from running.
pub fn highest<T: Lengths>(
    wanted: Highest,
    near_qps: Option<u64>,
    whole_ns: Nanos,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let mut done = Vec::new();
    let rate_qps = match near_qps {
        Some(rate_qps) => rate_qps,
        None => {
            let short_ns = whole_ns.min(SEARCH_TRIAL_NS);
            trials.set_length(short_ns);
            let spec = search_spec(wanted, short_ns);
            let proposed = selftest::propose(spec, trials, observer)?;
            let Some(rate_qps) = proposed.certified_rate_qps else {
                trials.set_length(whole_ns);
                return Ok(proposed);
            };
            done = proposed.trials;
            rate_qps
        }
    };
    trials.set_length(whole_ns);
    let mut confirmed = selftest::confirm(rate_qps, trials, observer)?;
    done.append(&mut confirmed.trials);
    Ok(SelfTestResult {
        trials: done,
        ..confirmed
    })
}

/// Returns the search for the highest self-test rate, with trials of this length.
pub(crate) fn search_spec(wanted: Highest, duration_ns: Nanos) -> SearchSpec {
    SearchSpec {
        resolution: wanted.resolution,
        max_qps: wanted.max_qps.map(selftest::self_test_rate),
        lowest_qps: Schedule::lowest_rate_qps(duration_ns),
        ..SearchSpec::from_start(START_QPS)
    }
}

impl<C: Client, S: StartedServer> Lengths for Loopback<C, S> {
    fn set_length(&mut self, duration_ns: Nanos) {
        self.load.duration_ns = duration_ns;
    }
}

impl<C: Client, S: StartedServer> Trials for Loopback<C, S> {
    type Error = RigError;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        self.revive()?;
        let schedule = self.load.schedule(rate_qps);
        let queries = schedule.queries();
        // An authority has no cache: names may repeat.
        let names = match self.names.take(queries, None) {
            Ok(names) => names,
            Err(_) => {
                self.names.start_over();
                self.names.take(queries, None)?
            }
        };
        let spec = self.load.trial(self.server, schedule, names);
        let authority = self.authority.as_ref();
        // A measured authority is itself responsible for its lost queries and its exit.
        let servers = match self.is_subject {
            true => (authority, None),
            false => (None, authority),
        };
        let (authority_is_subject, interrupted) = (self.is_subject, Arc::clone(&self.interrupted));
        let result = observed_trial(&mut self.client, &spec, servers, || Surroundings {
            authority_is_subject,
            interrupted: interrupted.load(Ordering::Relaxed),
            ..Surroundings::default()
        });
        match result {
            Err(_) if self.interrupted.load(Ordering::Relaxed) => Err(RigError::Interrupted),
            result => result,
        }
    }

    fn end(error: &RigError) -> Option<TesterFault> {
        error.end()
    }
}

impl Rig {
    /// Runs one self-test, which starts at the rate that an earlier one certified, if there was one. `None` without a
    /// server to query: the DUT already runs, and no authority in self-test mode is configured.
    pub fn self_test(
        &self,
        aim: Aim,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, RigError> {
        let looped = self.looped_back(false)?;
        looped
            .map(|mut looped| looped.answer(aim, near_qps, observer))
            .transpose()
    }

    /// Runs this number of consecutive self-tests, at least one.
    pub fn self_tests(
        &self,
        self_tests: usize,
        aim: Aim,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTests>, RigError> {
        let looped = self.looped_back(false)?;
        let repeated = looped.map(|mut looped| {
            certificate::repeat(self_tests, |near_qps| {
                looped.answer(aim, near_qps, observer)
            })
        });
        repeated.transpose()
    }
}

/// Refuses a silent authority and one without an AAAA for every name: the self-test would fail as if the Tester were at
/// fault.
pub(super) fn refuse_without_own_aaaa(prober: &Prober, name: Ipv4Addr) -> Result<(), RigError> {
    let server = prober.server;
    let no_self_test = |reason: String| {
        let error = Blame::Server.error(format!(
            "{server} is not an authority in self-test mode: {reason}; start one there with `dns64bench authority \
             --self-test` and the same --suffix"
        ));
        Err(error.into())
    };
    match prober.aaaa(name, PROBE_NS) {
        Ok(addresses) if addresses == [own_aaaa(name)] => Ok(()),
        Ok(addresses) => no_self_test(format!("it answers {addresses:?} for {name}")),
        Err(ProbeError::Useless { what, name, .. }) => {
            no_self_test(format!("it answers {what} for {name}"))
        }
        Err(error) => Err(error.into()),
    }
}
