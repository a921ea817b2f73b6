//! Why hosts cannot be a laboratory.

use std::fmt;

use super::link::{LinkAddress, LinkName};

/// What is wrong with the hosts of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostsError {
    /// The host that it is about; `None` if it is about all of them.
    pub host: Option<String>,
    /// What of that host.
    pub part: Part,
    /// The host that the first one does not go together with, if it is about two.
    pub other: Option<String>,
    /// The thing and its value.
    pub what: String,
    /// What is allowed, or how to fix it.
    pub remedy: String,
}

/// A part of what a plan says of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// How it is reached.
    Reach,
    /// Its roles.
    Roles,
    /// CPUs of its role.
    Cpus,
    /// CPUs of the authority on a host of both.
    AuthorityCpus,
    /// Threads of the Measurer.
    Threads,
    /// Its links of this name, or that it has none.
    Link(LinkName),
    /// The end of this number, from 0, of its links of this name.
    End(LinkName, usize),
    /// An address of such an end.
    Address(LinkName, LinkAddress),
}

impl Part {
    /// The link that it belongs to.
    pub fn link(self) -> Option<LinkName> {
        match self {
            Self::Link(link) | Self::End(link, _) | Self::Address(link, _) => Some(link),
            _ => None,
        }
    }
}

impl HostsError {
    /// About one host.
    pub(super) fn of(
        host: &str,
        part: Part,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            host: Some(host.to_owned()),
            part,
            ..Self::of_all(what, remedy)
        }
    }

    /// About all of them.
    pub(super) fn of_all(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            host: None,
            part: Part::Whole,
            other: None,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// The same about two hosts.
    pub(super) fn and(self, other: &str) -> Self {
        let other = Some(other.to_owned());
        Self { other, ..self }
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

/// All that is wrong with the hosts of a plan; at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostsErrors(pub Vec<HostsError>);

impl From<HostsError> for HostsErrors {
    fn from(error: HostsError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for HostsErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("\n"))
    }
}

impl std::error::Error for HostsErrors {}
