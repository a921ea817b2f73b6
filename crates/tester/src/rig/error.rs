//! Errors that prevent a measurement.

use crate::lab::{Blame, LabError};
use crate::load::names::NamespaceTooSmall;
use crate::post::probe::ProbeError;
use crate::trial::fault::TesterFault;

/// Error while setting up or running a rig.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The lab: a profile, a server, a host.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A probe.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The names.
    #[error(transparent)]
    Names(#[from] NamespaceTooSmall),
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
            Self::Probe(error) => error.blame(),
            Self::Names(_) => Blame::Request,
        })
    }

    /// Returns the fault that ends a procedure with the result of its trials until then, if it is one.
    pub(super) fn end(&self) -> Option<TesterFault> {
        match *self {
            Self::Interrupted => Some(TesterFault::Interrupted),
            Self::Names(NamespaceTooSmall { left, needed, .. }) => {
                Some(TesterFault::TooFewNames { left, needed })
            }
            Self::Lab(_) | Self::Probe(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use dns64_transport::socket::OpenError;

    use super::*;

    /// An error of each kind, with the part that has to be corrected.
    fn all() -> [(RigError, Option<Blame>); 5] {
        let open = OpenError::System {
            call: "socket",
            reason: io::Error::from_raw_os_error(24),
        };
        let probe = ProbeError::NotSent("no socket".to_owned());
        let silent = ProbeError::Silent("no answer".to_owned());
        let pattern = Blame::Request.error("more names than there are");
        [
            (LabError::from(open).into(), Some(Blame::Machine)),
            (probe.into(), Some(Blame::Machine)),
            (silent.into(), Some(Blame::Server)),
            (pattern.into(), Some(Blame::Request)),
            (RigError::Interrupted, None),
        ]
    }

    #[test]
    fn machine_is_blamed_for_what_it_lacks_and_never_the_server() {
        for (error, blame) in all() {
            assert_eq!(error.blame(), blame, "{error:?}");
        }
    }
}
