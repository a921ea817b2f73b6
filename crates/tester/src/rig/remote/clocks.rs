//! The clocks of all hosts against the controller's, before and after a trial.

use std::collections::BTreeMap;

use dns64_transport::clock::Nanos;

use super::host::{Remote, unanswered};
use crate::agent::clock::{Drift, Exchange, Offset};
use crate::lab::{Blame, LabError};
use crate::trial::result::HostClock;

/// Exchanges in a row. The best of them counts, and a busy host delays some.
const EXCHANGES: usize = 16;

/// How the clock of each host stands to the controller's.
pub(in crate::rig) struct Clocks(BTreeMap<String, HostTime>);

struct HostTime {
    host: Remote,
    before: Offset,
    after: Option<Offset>,
}

impl Clocks {
    /// Asks all of them for the time, one after the other.
    ///
    /// # Errors
    ///
    /// A host does not answer.
    pub(in crate::rig) fn of<'a>(
        hosts: impl Iterator<Item = &'a Remote>,
    ) -> Result<Self, LabError> {
        let looked = hosts.map(|host| {
            let time = HostTime {
                host: host.clone(),
                before: look(host)?,
                after: None,
            };
            Ok((host.name().to_owned(), time))
        });
        looked.collect::<Result<_, LabError>>().map(Self)
    }

    /// Asks them again, after the trial.
    ///
    /// # Errors
    ///
    /// A host does not answer.
    pub(in crate::rig) fn look_again(&mut self) -> Result<(), LabError> {
        for time in self.0.values_mut() {
            time.after = Some(look(&time.host)?);
        }
        Ok(())
    }

    /// A moment to come, on the clock of a host.
    pub(in crate::rig) fn to_host(&self, host: &str, at: Nanos) -> Nanos {
        self.0.get(host).map_or(at, |time| time.before.to_host(at))
    }

    /// A moment of the trial on a host's clock, on the controller's.
    pub(in crate::rig) fn to_controller(&self, host: &str, at: Nanos) -> Nanos {
        let Some(time) = self.0.get(host) else {
            return at;
        };
        let about = time.before.to_controller(at);
        let drift = time
            .after
            .and_then(|after| Drift::between(time.before, after));
        drift.map_or(about, |drift| drift.at(about).to_controller(at))
    }

    /// What is told of them in the result of a trial that began at `start`, with how late hosts began.
    pub(in crate::rig) fn told(&self, start: Nanos, late: &[(String, Nanos)]) -> Vec<HostClock> {
        let told = self.0.iter().map(|(name, time)| {
            let drift = time
                .after
                .and_then(|after| Drift::between(time.before, after));
            let at_start = drift.map(|drift| drift.at(start));
            // It began by what was known before.
            let told = time.before.offset_ns;
            let bound_ns = at_start.map(|at| at.bound_ns + at.offset_ns.abs_diff(told));
            HostClock {
                host: name.clone(),
                offset_ns: told,
                // A clock that went further than any is steered was set, or is of another start of the host.
                bound_ns: bound_ns.unwrap_or(Nanos::MAX),
                drift_ppm: drift.map_or(0.0, Drift::ppm),
                exchanges: (time.before.exchanges + time.after.map_or(0, |it| it.exchanges)) as u64,
                late_ns: late
                    .iter()
                    .find(|(late, _)| late == name)
                    .map_or(0, |(_, ns)| *ns),
            }
        });
        told.collect()
    }
}

fn look(host: &Remote) -> Result<Offset, LabError> {
    let mut exchanges = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let stamps = host.link().clock_exchange();
        let [t0_ns, t1_ns, t2_ns, t3_ns] = stamps.map_err(unanswered)?;
        exchanges.push(Exchange {
            t0_ns,
            t1_ns,
            t2_ns,
            t3_ns,
        });
    }
    let strange = || format!("the clock of host {} goes backward", host.name());
    Offset::of(&exchanges).ok_or_else(|| Blame::Machine.error(strange()))
}
