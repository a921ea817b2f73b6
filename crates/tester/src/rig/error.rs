//! Errors that prevent a measurement.

use std::net::SocketAddr;

use super::probe::ProbeError;
use super::sample;
use crate::authority::behaviour::RulesError;
use crate::lab::LabError;
use crate::load::names::NamespaceTooSmall;
use crate::quantity::ValueError;
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
    Sample(#[from] sample::SampleError),
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
    Pattern(#[from] ValueError),
    /// Interrupted by the user.
    #[error("interrupted")]
    Interrupted,
}
