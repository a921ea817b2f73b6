//! Why a measurement cannot be made.

use std::net::SocketAddr;

use super::probe::ProbeError;
use super::sample;
use crate::authority::behaviour::RulesError;
use crate::lab::LabError;
use crate::load::names::NamespaceTooSmall;
use crate::quantity::ValueError;
use crate::trial::TrialError;

/// Why a rig cannot be put together or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The lab: a profile, a server, a host.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A profile in the place of another kind.
    #[error("profile {name} is not a profile of {wanted}")]
    WrongRole {
        /// The profile.
        name: String,
        /// What is needed there.
        wanted: &'static str,
    },
    /// A probe.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// An authority does not serve what the Tester's own would.
    #[error(transparent)]
    Sample(#[from] sample::SampleError),
    /// The authority that was named for the self-test is none.
    #[error(
        "{server} is not an authority in self-test mode: {reason}; start one there with `dns64bench \
         authority --self-test` and the same --suffix"
    )]
    NoSelfTest {
        /// Who was asked.
        server: SocketAddr,
        /// What came instead of the AAAA of a name.
        reason: String,
    },
    /// The delays that the authority is to have.
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
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
}
