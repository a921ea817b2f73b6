//! The self-test on a rig (RFC 8219 section 9.2.1): the DUT is left out, and the authority, which
//! then has an AAAA for every name, answers the Measurer itself.
//!
//! Its datagrams travel one by one in both directions, as the questions of a DUT do and the answers to
//! them, whatever the measurement's own queries do: a run that the kernel carries as one would certify
//! a Tester for several times what it can do.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;

use super::equipment::{Client, OwnServer, PROBE_NS};
use super::far::any::{AnyServer, Instruments};
use super::probe::{ProbeError, Prober};
use super::running::watched;
use super::spec::Load;
use super::{Rig, RigError};
use crate::lab::server::{Probe, Start};
use crate::load::names::NameSource;
use crate::load::pace::{Pacing, Schedule};
use crate::namespace::own_aaaa;
use crate::procedure::certificate::{self, SelfTests};
use crate::procedure::search::{Resolution, SearchSpec};
use crate::procedure::selftest::{self, SelfTestResult};
use crate::procedure::{Event, Trials};
use crate::trial::result::TrialResult;
use crate::trial::surroundings::Surroundings;

/// What a self-test is to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the Tester is good for a DUT at this rate.
    At(u64),
    /// The highest rate for which it is good, to this resolution, but no more than for `max_qps`.
    Highest {
        /// How close to the limit.
        resolution: Resolution,
        /// Certificates beyond are not needed.
        max_qps: Option<u64>,
    },
}

/// The certificate before a search needs no fine resolution: DUTs are far below it.
pub const COARSE: Resolution = Resolution::Relative {
    millionths: 100_000,
};

/// First self-test rate of a search for the highest: any machine of today keeps it.
const START_QPS: u64 = 22_000;

/// While the highest rate is being looked for, trials are no longer than this; what was found is
/// then confirmed at full length.
pub(crate) const SEARCH_TRIAL_NS: Nanos = 5 * SECOND;

/// The Tester looped back on itself: trials without a DUT, at self-test rates, with a quarter of the
/// timeout and single datagrams. By it authorities are measured as well (paper 004).
pub struct Loopback<C, S> {
    /// Dropped first: it asks the authority.
    client: C,
    /// The authority, if it is a program of its own.
    authority: Option<S>,
    server: SocketAddr,
    names: NameSource,
    load: Load,
    interrupted: Arc<AtomicBool>,
    /// The authority is what is measured, not the Tester.
    is_subject: bool,
}

impl<C: Client, S: OwnServer> Loopback<C, S> {
    /// Trials for DUTs whose trials have this `load` in common.
    pub(super) fn new(
        client: C,
        authority: Option<S>,
        server: SocketAddr,
        load: &Load,
        interrupted: Arc<AtomicBool>,
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
                ..load.clone()
            },
            interrupted,
            is_subject: true,
        })
    }

    /// Trials of the Tester, not of the authority: what certifies it is always paced by the schedule.
    pub(super) fn tests_the_tester(&mut self) {
        self.is_subject = false;
        self.load.pacing = Pacing::Absolute;
    }

    /// The authority, if it is a program of its own.
    pub fn authority(&self) -> Option<&S> {
        self.authority.as_ref()
    }

    /// The last start of the authority, once.
    pub fn take_start(&mut self) -> Option<Start> {
        self.authority.as_mut()?.take_start()
    }

    /// Restarts an authority that is measured and has ended: its end was told by the trial before.
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
            _ if interrupted.load(Ordering::Relaxed) => Probe::Abandoned,
            Ok(()) => Probe::Answered,
            Err(error) => error.into(),
        };
        Ok(authority.restart(&mut probe)?)
    }

    /// Answers the question by one self-test. One that looks for the highest rate begins at that which
    /// an earlier one has certified, `near_qps`, if there was one.
    pub(super) fn answer(
        &mut self,
        question: Question,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<SelfTestResult, RigError> {
        match question {
            Question::At(rate_qps) => selftest::certify_at(rate_qps, self, observer),
            Question::Highest {
                resolution,
                max_qps,
            } => {
                let sought = Sought {
                    resolution,
                    max_qps,
                    near_qps,
                    whole_ns: self.load.duration_ns,
                };
                highest(sought, self, observer)
            }
        }
    }

    /// Answers the question by several self-tests in a row.
    pub(super) fn answer_by(
        &mut self,
        self_tests: usize,
        question: Question,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<SelfTests, RigError> {
        certificate::repeat(self_tests, |near_qps| {
            self.answer(question, near_qps, observer)
        })
    }
}

/// Trials whose length is chosen on the way.
pub trait Lengths: Trials {
    /// The trials from now on are so long.
    fn set_length(&mut self, duration_ns: Nanos);
}

/// What the self-test for the highest rate goes by.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// How close to the limit.
    pub resolution: Resolution,
    /// Certificates beyond are not needed.
    pub max_qps: Option<u64>,
    /// The rate that an earlier self-test has certified, to begin there.
    pub near_qps: Option<u64>,
    /// Length of a whole trial.
    pub whole_ns: Nanos,
}

/// Looks for the highest rate by short trials, unless one is known, and has a whole one confirm it. What
/// it does follows from its arguments and the outcomes alone, so that a self-test that was written down
/// can be done again from its trials.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial.
pub fn highest<T: Lengths>(
    sought: Sought,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let mut done = Vec::new();
    let rate_qps = match sought.near_qps {
        Some(rate_qps) => rate_qps,
        None => {
            let short_ns = sought.whole_ns.min(SEARCH_TRIAL_NS);
            trials.set_length(short_ns);
            let spec = search_spec(sought.resolution, sought.max_qps, short_ns);
            let proposed = selftest::propose(spec, trials, observer)?;
            let Some(rate_qps) = proposed.certified_rate_qps else {
                trials.set_length(sought.whole_ns);
                return Ok(proposed);
            };
            done = proposed.trials;
            rate_qps
        }
    };
    trials.set_length(sought.whole_ns);
    let mut confirmed = selftest::confirm(rate_qps, trials, observer)?;
    done.append(&mut confirmed.trials);
    Ok(SelfTestResult {
        trials: done,
        ..confirmed
    })
}

/// How the highest self-test rate is looked for, with trials of this length.
pub(crate) fn search_spec(
    resolution: Resolution,
    max_qps: Option<u64>,
    duration_ns: Nanos,
) -> SearchSpec {
    SearchSpec {
        resolution,
        max_qps: max_qps.map(selftest::self_test_rate),
        lowest_qps: Schedule::lowest_rate_qps(duration_ns),
        ..SearchSpec::from_start(START_QPS)
    }
}

impl<C: Client, S: OwnServer> Lengths for Loopback<C, S> {
    fn set_length(&mut self, duration_ns: Nanos) {
        self.load.duration_ns = duration_ns;
    }
}

impl<C: Client, S: OwnServer> Trials for Loopback<C, S> {
    type Error = RigError;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        self.revive()?;
        let schedule = self.load.schedule(rate_qps);
        let queries = schedule.queries();
        // An authority has no cache: names may come again.
        let names = match self.names.take(queries, None) {
            Ok(names) => names,
            Err(_) => {
                self.names.start_over();
                self.names.take(queries, None)?
            }
        };
        let spec = self.load.trial(self.server, rate_qps, schedule, names);
        let (authority, is_subject) = (&mut self.authority, self.is_subject);
        self.client.watch(watched(None, authority.as_ref()));
        let drops = |server: &Option<S>| server.as_ref().map_or(0, OwnServer::udp_drops);
        let drops_before = drops(authority);
        let watched = self.client.watched();
        let before = watched.read();
        let lost = |server: &Option<S>| drops(server).saturating_sub(drops_before);
        let result = self.client.trial(&spec, || {
            let (drops, exit) = (
                lost(authority),
                authority.as_mut().and_then(OwnServer::ended),
            );
            let around = Surroundings {
                observed: watched.since(&before),
                authority_is_subject: is_subject,
                ..Surroundings::default()
            };
            match authority.as_ref().filter(|_| is_subject) {
                // What is measured loses its queries itself, and ends by itself.
                Some(subject) => Surroundings {
                    dut_drops: drops,
                    resources: Some(subject.resources()),
                    dut_exit: exit
                        .map(|exit| format!("{exit}; last log lines: {}", subject.log_tail())),
                    ..around
                },
                None => Surroundings {
                    authority_drops: drops,
                    authority_exit: exit,
                    ..around
                },
            }
        })?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RigError::Interrupted);
        }
        Ok(result)
    }
}

impl Rig {
    /// Runs one self-test, which begins at the rate that an earlier one has certified, if there was
    /// one. `None` where there is nobody to ask: a server that runs already, and no authority in
    /// self-test mode beside it.
    pub fn self_test(
        &self,
        question: Question,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, RigError> {
        let looped = self.tester_alone()?;
        looped
            .map(|mut looped| looped.answer(question, near_qps, observer))
            .transpose()
    }

    /// Runs so many self-tests in a row, at least one.
    pub fn self_tests(
        &self,
        self_tests: usize,
        question: Question,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTests>, RigError> {
        let looped = self.tester_alone()?;
        looped
            .map(|mut looped| looped.answer_by(self_tests, question, observer))
            .transpose()
    }

    /// The Tester as what is tested, not the authority.
    fn tester_alone(&self) -> Result<Option<Loopback<Instruments, AnyServer>>, RigError> {
        let mut looped = self.looped_back()?;
        if let Some(looped) = &mut looped {
            looped.tests_the_tester();
        }
        Ok(looped)
    }
}

/// A self-test against nobody, or against an authority without an AAAA for every name, would
/// fail as if the Tester were to blame.
pub(super) fn refuse_without_own_aaaa(prober: &Prober, name: Ipv4Addr) -> Result<(), RigError> {
    let server = prober.server;
    let no_self_test = |reason| RigError::NoSelfTest { server, reason };
    match prober.aaaa(name, PROBE_NS) {
        Ok(addresses) if addresses == [own_aaaa(name)] => Ok(()),
        Ok(addresses) => Err(no_self_test(format!("it answers {addresses:?} for {name}"))),
        Err(ProbeError::Useless { what, name, .. }) => {
            Err(no_self_test(format!("it answers {what} for {name}")))
        }
        Err(error) => Err(error.into()),
    }
}
