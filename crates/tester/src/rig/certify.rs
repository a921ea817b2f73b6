//! The self-test on a rig (RFC 8219 section 9.2.1): the DUT is left out, and the authority, which
//! then has an AAAA for every name, answers the Measurer itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Nanos, SECOND};

use super::trials::exit;
use super::{Measure, PROBE_NS, Place, Rig, RigError};
use crate::lab::dut::Dut;
use crate::lab::host::Host;
use crate::load::pace::{Pacing, Schedule};
use crate::namespace::own_aaaa;
use crate::procedure::search::{Resolution, SearchSpec};
use crate::procedure::selftest::{self, SelfTestResult};
use crate::procedure::{Event, Trials};
use crate::trial::names::NameSource;
use crate::trial::probe::ProbeError;
use crate::trial::result::TrialResult;
use crate::trial::summary::Surroundings;
use crate::trial::{Tester, TrialSpec};

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

/// First self-test rate of a search for the highest: any machine of today keeps it.
const START_QPS: u64 = 22_000;

/// While the highest rate is being looked for, trials are no longer than this; what was found is
/// then confirmed at full length.
const SEARCH_TRIAL_NS: Nanos = 5 * SECOND;

/// How often a certificate that a full trial does not confirm is lowered by a tenth.
const LOWERINGS: u32 = 5;

/// The Tester looped back on itself: trials without a DUT, at self-test rates and with a quarter of
/// the timeout. By it authorities are measured as well (paper 004).
pub struct Loopback {
    tester: Tester,
    /// The authority, if it is a program of its own.
    authority: Option<Dut>,
    server: SocketAddr,
    names: NameSource,
    measure: Measure,
    duration_ns: Nanos,
    interrupted: Arc<AtomicBool>,
    /// The authority is what is measured, not the Tester.
    is_subject: bool,
}

impl Loopback {
    /// The authority, if it is a program of its own.
    pub fn authority(&self) -> Option<&Dut> {
        self.authority.as_ref()
    }
}

impl Rig {
    /// Runs the self-test. `None` where there is nobody to ask: a server that somebody else runs,
    /// and no authority in self-test mode beside it.
    pub fn self_test(
        &self,
        question: Question,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, RigError> {
        let Some(mut looped) = self.looped_back()? else {
            return Ok(None);
        };
        looped.is_subject = false;
        let result = match question {
            Question::At(rate_qps) => {
                selftest::certify_at(rate_qps, selftest::INVALID_REPEATS, &mut looped, observer)?
            }
            Question::Highest {
                resolution,
                max_qps,
            } => highest(&mut looped, resolution, max_qps, observer)?,
        };
        Ok(Some(result))
    }

    /// A self-test against nobody, or against an authority without an AAAA for every name, would
    /// fail as if the Tester were to blame.
    fn refuse_without_own_aaaa(
        &self,
        local: Option<IpAddr>,
        server: SocketAddr,
    ) -> Result<(), RigError> {
        let name = self.spec.measure.cidr.first();
        let no_self_test = |reason| RigError::NoSelfTest { server, reason };
        match self.running_prober(local, server).aaaa(name, PROBE_NS) {
            Ok(addresses) if addresses == [own_aaaa(name)] => Ok(()),
            Ok(addresses) => Err(no_self_test(format!("it answers {addresses:?} for {name}"))),
            Err(ProbeError::Useless { what, name, .. }) => {
                Err(no_self_test(format!("it answers {what} for {name}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The Tester and an authority in self-test mode, which is what it measures; `None` where there
    /// is nobody to ask.
    pub fn looped_back(&self) -> Result<Option<Loopback>, RigError> {
        let (tester, authority, server) = match &self.spec.place {
            Place::Running {
                self_test_server: None,
                ..
            } => return Ok(None),
            Place::Running {
                self_test_server: Some(server),
                local,
                ..
            } => {
                self.refuse_without_own_aaaa(*local, *server)?;
                let measurer = self.measurer(Host::Here, *local);
                (
                    Tester::open(measurer, None, &self.interrupted)?,
                    None,
                    *server,
                )
            }
            Place::Lab(lab) => {
                let server = SocketAddr::from(lab.setup.self_test());
                let (tester, authority) = self.start_authority(lab, server, true)?;
                (tester, authority, server)
            }
        };
        let measure = self.spec.measure.clone();
        let names = measure.names()?;
        let duration_ns = measure.duration_ns;
        let interrupted = Arc::clone(&self.interrupted);
        Ok(Some(Loopback {
            tester,
            authority,
            server,
            names,
            measure,
            duration_ns,
            interrupted,
            is_subject: true,
        }))
    }
}

/// Looks for the highest rate by short trials and confirms it by a whole one.
fn highest(
    looped: &mut Loopback,
    resolution: Resolution,
    max_qps: Option<u64>,
    observer: &mut dyn FnMut(&Event<'_>),
) -> Result<SelfTestResult, RigError> {
    let whole_ns = looped.measure.duration_ns;
    looped.duration_ns = whole_ns.min(SEARCH_TRIAL_NS);
    let spec = SearchSpec {
        resolution,
        max_qps: max_qps.map(selftest::self_test_rate),
        lowest_qps: Schedule::lowest_rate_qps(looped.duration_ns),
        invalid_repeats: selftest::INVALID_REPEATS,
        ..SearchSpec::from_start(START_QPS)
    };
    let mut result = selftest::certify(spec, looped, observer)?;
    looped.duration_ns = whole_ns;
    let mut lowerings = 0;
    while whole_ns > SEARCH_TRIAL_NS
        && lowerings < LOWERINGS
        && let Some(rate_qps) = result.certified_rate_qps
    {
        let repeats = selftest::INVALID_REPEATS;
        let confirmed = selftest::certify_at(rate_qps, repeats, looped, observer)?;
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

impl Trials for Loopback {
    type Error = RigError;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        let queries = Schedule::new(rate_qps, self.duration_ns).queries();
        // An authority has no cache: names may come again.
        let names = match self.names.take(queries, None) {
            Ok(names) => names,
            Err(_) => {
                self.names.start_over();
                self.names.take(queries, None)?
            }
        };
        let spec = TrialSpec {
            pacing: Pacing::Absolute,
            duration_ns: self.duration_ns,
            timeout_ns: selftest::self_test_timeout(self.measure.timeout_ns),
            stop_early: true,
            ..self.measure.trial(self.server, rate_qps, names)
        };
        let (authority, is_subject) = (&mut self.authority, self.is_subject);
        let result = self.tester.trial_amid(&spec, || Surroundings {
            resources: authority
                .as_ref()
                .filter(|_| is_subject)
                .map(Dut::resources),
            authority_exit: authority.as_mut().and_then(exit),
            ..Surroundings::default()
        })?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RigError::Interrupted);
        }
        Ok(result)
    }
}
