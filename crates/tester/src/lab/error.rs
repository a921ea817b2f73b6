//! Why something of the lab does not work.

use std::error::Error;

use serde::{Deserialize, Serialize};

/// What could not be done, with the remedy where there is one, and why.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct LabError {
    /// What would have to be different.
    pub blame: Blame,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What would have to be different for a thing to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blame {
    /// What was asked for: there is no such profile, or it has no such setting.
    Request,
    /// A server: its program is missing, it ended, it does not answer.
    Server,
    /// The machine: it lacks a program or a permission, or its lab is in use.
    Machine,
}

impl Blame {
    /// An error that nothing else has caused.
    pub(crate) fn error(self, what: impl Into<String>) -> LabError {
        LabError {
            blame: self,
            what: what.into(),
            source: None,
        }
    }

    /// From a cause, mostly what the kernel said, to an error, for `map_err`.
    pub(crate) fn because<E>(self, what: impl Into<String>) -> impl FnOnce(E) -> LabError
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        move |cause| LabError {
            source: Some(cause.into()),
            ..self.error(what)
        }
    }
}
