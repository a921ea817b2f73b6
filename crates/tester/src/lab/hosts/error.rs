//! Why hosts cannot be a laboratory.

use std::fmt;

/// What is wrong with the hosts of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostsError {
    /// The host that it is about; `None` if it is about all of them.
    pub host: Option<String>,
    /// The thing and its value.
    pub what: String,
    /// What is allowed, or how to fix it.
    pub remedy: String,
}

impl HostsError {
    /// About one host.
    pub(super) fn of(host: &str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        let host = Some(host.to_owned());
        Self {
            host,
            ..Self::of_all(what, remedy)
        }
    }

    /// About all of them.
    pub(super) fn of_all(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            host: None,
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for HostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "host {host}: ")?;
        }
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for HostsError {}
