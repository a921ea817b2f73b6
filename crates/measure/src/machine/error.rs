//! Errors of a machine, a lab and a trial, each with the part that has to be corrected.

use std::error::Error;
use std::fmt;

use dns64_transport::socket::OpenError;
use serde::{Deserialize, Serialize};

use crate::naming::Message;

/// What failed, with the remedy if there is one, and the cause.
#[derive(Debug)]
pub struct LabError {
    /// The part that has to be corrected.
    pub blame: Blame,
    what: Message,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

/// A socket that cannot be opened is the machine's.
impl From<OpenError> for LabError {
    fn from(error: OpenError) -> Self {
        Blame::Machine.error(error.to_string())
    }
}

impl Error for LabError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = self.source.as_deref()?;
        Some(source)
    }
}

/// The part that has to be corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blame {
    /// The request: no such profile, or no such setting of it.
    Request,
    /// A server: its program is missing, it ended, or it does not answer.
    Server,
    /// The machine: a program, a permission or a resource is missing, its lab is in use, or the Tester itself failed.
    Machine,
    /// A record: the journal or the report was changed, so nothing follows from it.
    Record,
}

impl Blame {
    /// Creates an error without a cause.
    pub fn error(self, what: impl Into<Message>) -> LabError {
        LabError {
            blame: self,
            what: what.into(),
            source: None,
        }
    }

    /// Converts a cause, mostly a kernel error, for `map_err`.
    pub fn because<E>(self, what: impl Into<Message>) -> impl FnOnce(E) -> LabError
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        move |cause| LabError {
            source: Some(cause.into()),
            ..self.error(what)
        }
    }
}
