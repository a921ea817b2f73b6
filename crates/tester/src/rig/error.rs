//! Errors that prevent a measurement.

use std::net::SocketAddr;

use super::sample::SampleError;
use crate::authority::behaviour::RulesError;
use crate::lab::{Blame, LabError};
use crate::load::names::NamespaceTooSmall;
use crate::naming::Message;
use crate::post::probe::ProbeError;
use crate::trial::TrialError;

/// Error while setting up or running a rig.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The lab: a profile, a server, a host.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A profile of the wrong kind.
    #[error("profile {name} is not a profile of {wanted}")]
    WrongRole {
        /// Name of the profile.
        name: String,
        /// Required kind.
        wanted: &'static str,
    },
    /// A probe.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// An authority does not serve the records of the Tester's own.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The configured server for the self-test is not an authority in self-test mode.
    #[error(
        "{server} is not an authority in self-test mode: {reason}; start one there with `dns64bench \
         authority --self-test` and the same --suffix"
    )]
    NoSelfTest {
        /// The queried server.
        server: SocketAddr,
        /// Its response instead of the AAAA of a name.
        reason: String,
    },
    /// The configured delays of the authority.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The Tester.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The names.
    #[error(transparent)]
    Names(#[from] NamespaceTooSmall),
    /// The pattern of repeated names.
    #[error(transparent)]
    Pattern(#[from] Message),
    /// Interrupted by the user.
    #[error("interrupted")]
    Interrupted,
}

impl RigError {
    /// Returns the part that has to be corrected; `None` if the user interrupted the rig.
    pub fn blame(&self) -> Option<Blame> {
        Some(match self {
            Self::Interrupted => return None,
            Self::Lab(error) => error.blame,
            Self::Probe(error) | Self::Sample(SampleError::Probe(error)) => error.blame(),
            Self::Trial(error) => error.blame(),
            Self::Sample(SampleError::Different { .. }) | Self::NoSelfTest { .. } => Blame::Server,
            // The file of delays on this machine.
            Self::Rules(_) => Blame::Machine,
            Self::WrongRole { .. } | Self::Names(_) | Self::Pattern(_) => Blame::Request,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use dns64_transport::socket::OpenError;

    use super::*;
    use crate::trial::in_driver::InDriverError;

    /// An error of each kind, with the part that has to be corrected.
    fn all() -> Vec<(RigError, Option<Blame>)> {
        let server = SocketAddr::from(([192, 0, 2, 1], 53));
        let full = || io::Error::from_raw_os_error(24);
        let system = || OpenError::System {
            call: "socket",
            reason: full(),
        };
        let of_probe = |error: ProbeError| [error.into()];
        let trials = [
            TrialError::Open(system()),
            TrialError::Tcp {
                listen: server,
                reason: full(),
            },
            TrialError::Thread {
                core: None,
                reason: full(),
            },
            TrialError::Files {
                ports: 1,
                needed: 2,
                allowed: 1,
            },
            TrialError::Memory {
                queries: 1,
                needed_mib: 2,
                free_mib: 1,
            },
            TrialError::WorkerLost,
            TrialError::Host(Blame::Machine.error("no namespace")),
        ];
        let machine = trials.into_iter().map(RigError::from);
        let machine = machine.chain(of_probe(ProbeError::NotSent("no socket".to_owned())));
        let requested = [
            TrialError::NoQueries {
                rate_qps: 1,
                duration_ms: 1,
            },
            TrialError::Ports {
                ports: 1,
                rate_qps: 2,
                needed: 3,
            },
            TrialError::InDriver(InDriverError::Behaviour),
        ];
        let requested = requested.into_iter().map(RigError::from);
        let servers = [ProbeError::Refused { server }.into()];
        let marked = |blame| move |error| (error, Some(blame));
        machine
            .map(marked(Blame::Machine))
            .chain(requested.map(marked(Blame::Request)))
            .chain(servers.map(marked(Blame::Server)))
            .chain([(RigError::Interrupted, None)])
            .collect()
    }

    #[test]
    fn machine_is_blamed_for_what_it_lacks_and_never_the_server() {
        for (error, blame) in all() {
            assert_eq!(error.blame(), blame, "{error:?}");
        }
    }
}
