//! The self-test on a rig (RFC 8219 section 9.2.1): the DUT is left out, and the authority, which
//! then has an AAAA for every name, answers the Measurer itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Nanos, SECOND};

use super::equipment::{Client, OwnServer, PROBE_NS};
use super::probe::{ProbeError, Prober};
use super::running::watched;
use super::spec::Load;
use super::{Rig, RigError};
use crate::load::names::NameSource;
use crate::load::pace::{Pacing, Schedule};
use crate::namespace::own_aaaa;
use crate::procedure::search::{Resolution, SearchSpec};
use crate::procedure::selftest::{self, SelfTestResult};
use crate::procedure::{Event, Trials};
use crate::trial::result::TrialResult;
use crate::trial::summary::Surroundings;

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

/// How often a certificate that a full trial does not confirm is lowered by a tenth.
pub(crate) const LOWERINGS: u32 = 5;

/// The Tester looped back on itself: trials without a DUT, at self-test rates and with a quarter of
/// the timeout. By it authorities are measured as well (paper 004).
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
                pacing: Pacing::Absolute,
                timeout_ns: selftest::self_test_timeout(load.timeout_ns),
                stop_early: true,
                ..load.clone()
            },
            interrupted,
            is_subject: true,
        })
    }

    /// The authority, if it is a program of its own.
    pub fn authority(&self) -> Option<&S> {
        self.authority.as_ref()
    }

    /// Answers the question.
    pub(super) fn answer(
        &mut self,
        question: Question,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<SelfTestResult, RigError> {
        match question {
            Question::At(rate_qps) => {
                selftest::certify_at(rate_qps, selftest::INVALID_REPEATS, self, observer)
            }
            Question::Highest {
                resolution,
                max_qps,
            } => {
                let whole_ns = self.load.duration_ns;
                highest(resolution, max_qps, whole_ns, self, observer)
            }
        }
    }
}

/// Trials whose length is chosen on the way.
pub trait Lengths: Trials {
    /// The trials from now on are so long.
    fn set_length(&mut self, duration_ns: Nanos);
}

/// Looks for the highest rate by short trials and confirms it by a whole one, of `whole_ns`. What it
/// does follows from its arguments and the outcomes alone, so that a self-test that was written down
/// can be done again from its trials.
///
/// # Errors
///
/// Whatever `trials` gives when it cannot run a trial.
pub fn highest<T: Lengths>(
    resolution: Resolution,
    max_qps: Option<u64>,
    whole_ns: Nanos,
    trials: &mut T,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, T::Error> {
    let short_ns = whole_ns.min(SEARCH_TRIAL_NS);
    trials.set_length(short_ns);
    let spec = search_spec(resolution, max_qps, short_ns);
    let mut result = selftest::certify(spec, trials, observer)?;
    trials.set_length(whole_ns);
    let mut lowerings = 0;
    while whole_ns > SEARCH_TRIAL_NS
        && lowerings < LOWERINGS
        && let Some(rate_qps) = result.certified_rate_qps
    {
        let repeats = selftest::INVALID_REPEATS;
        let confirmed = selftest::certify_at(rate_qps, repeats, trials, observer)?;
        result.trials.extend(confirmed.trials);
        result.end = confirmed.end;
        result.passed_rate_qps = confirmed.passed_rate_qps;
        if confirmed.certified_rate_qps.is_some() {
            break;
        }
        lowerings += 1;
        result.certified_rate_qps = (lowerings < LOWERINGS)
            .then_some(rate_qps / 10 * 9)
            .filter(|&rate| rate > 0);
    }
    Ok(result)
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
        invalid_repeats: selftest::INVALID_REPEATS,
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
        let result = self.client.trial(&spec, || Surroundings {
            // What is measured loses its queries itself.
            dut_drops: if is_subject { lost(authority) } else { 0 },
            authority_drops: if is_subject { 0 } else { lost(authority) },
            observed: watched.since(&before),
            resources: authority
                .as_ref()
                .filter(|_| is_subject)
                .map(OwnServer::resources),
            authority_exit: authority.as_mut().and_then(OwnServer::ended),
            ..Surroundings::default()
        })?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RigError::Interrupted);
        }
        Ok(result)
    }
}

impl Rig {
    /// Runs the self-test. `None` where there is nobody to ask: a server that runs already, and no
    /// authority in self-test mode beside it.
    pub fn self_test(
        &self,
        question: Question,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, RigError> {
        let looped = self.looped_back()?;
        looped
            .map(|mut looped| {
                looped.is_subject = false;
                looped.answer(question, observer)
            })
            .transpose()
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
