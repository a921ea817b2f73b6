//! Offsets of the hosts' clocks from the controller's, before and after a trial.

use std::collections::BTreeMap;

use dns64_transport::clock::Nanos;

use super::host::{Host, unanswered};
use crate::agent::clock::{Drift, Offset};
use crate::lab::{Blame, LabError};
use crate::trial::result::HostClock;

/// Number of exchanges in a row. The best one counts, because a busy host delays some.
const EXCHANGES: usize = 16;

/// Offset of the clock of each host from the controller's.
pub(crate) struct Clocks(BTreeMap<String, HostTime>);

struct HostTime {
    host: Host,
    before: Offset,
    after: Option<Offset>,
}

impl Clocks {
    /// Measures the offset of each host with a clock of its own, one after the other.
    ///
    /// # Errors
    ///
    /// A host does not answer.
    pub(crate) fn of<'a>(hosts: impl Iterator<Item = &'a Host>) -> Result<Self, LabError> {
        let far = hosts.filter(|host| host.link().is_some());
        let looked = far.map(|host| {
            let time = HostTime {
                host: host.clone(),
                before: look(host)?,
                after: None,
            };
            Ok((host.name().to_owned(), time))
        });
        looked.collect::<Result<_, LabError>>().map(Self)
    }

    /// Returns whether all hosts have the clock of the controller.
    pub(crate) fn are_one(&self) -> bool {
        self.0.is_empty()
    }

    /// Measures the offsets again, after the trial.
    ///
    /// # Errors
    ///
    /// A host does not answer.
    pub(crate) fn look_again(&mut self) -> Result<(), LabError> {
        for time in self.0.values_mut() {
            time.after = Some(look(&time.host)?);
        }
        Ok(())
    }

    /// Converts a future time to the clock of a host.
    pub(crate) fn to_host(&self, host: &str, at: Nanos) -> Nanos {
        self.0.get(host).map_or(at, |time| time.before.to_host(at))
    }

    /// Converts a time during the trial from a host's clock to the controller's.
    pub(crate) fn to_controller(&self, host: &str, at: Nanos) -> Nanos {
        let Some(time) = self.0.get(host) else {
            return at;
        };
        let about = time.before.to_controller(at);
        let drift = time
            .after
            .and_then(|after| Drift::between(time.before, after));
        drift.map_or(about, |drift| drift.at(about).to_controller(at))
    }

    /// Returns the clocks for the result of a trial that began at `start`, with the late starts of hosts.
    pub(crate) fn of_trial(&self, start: Nanos, late: &[(String, Nanos)]) -> Vec<HostClock> {
        let clocks = self.0.iter().map(|(name, time)| {
            let drift = time
                .after
                .and_then(|after| Drift::between(time.before, after));
            let at_start = drift.map(|drift| drift.at(start));
            // The start of the host was based on the first offset.
            let first_ns = time.before.offset_ns;
            let bound_ns = at_start.map(|at| at.bound_ns + at.offset_ns.abs_diff(first_ns));
            HostClock {
                host: name.clone(),
                offset_ns: first_ns,
                // A change beyond any clock discipline means that the clock was set, or that the host was rebooted.
                bound_ns: bound_ns.unwrap_or(Nanos::MAX),
                drift_ppm: drift.map_or(0.0, Drift::ppm),
                exchanges: (time.before.exchanges + time.after.map_or(0, |it| it.exchanges)) as u64,
                late_ns: late
                    .iter()
                    .find(|(late, _)| late == name)
                    .map_or(0, |(_, ns)| *ns),
            }
        });
        clocks.collect()
    }
}

fn look(host: &Host) -> Result<Offset, LabError> {
    let mut exchanges = Vec::with_capacity(EXCHANGES);
    for _ in 0..EXCHANGES {
        let exchange = host.link().map(|mut link| link.clock_exchange());
        exchanges.extend(exchange.transpose().map_err(unanswered)?);
    }
    let strange = || format!("the clock of host {} goes backward", host.name());
    Offset::of(&exchanges).ok_or_else(|| Blame::Machine.error(strange()))
}
