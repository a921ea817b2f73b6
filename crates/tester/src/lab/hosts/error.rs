//! Errors of the hosts of a plan.

use std::fmt;

use super::link::{LinkAddress, LinkName};

/// An error of the hosts of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostsError {
    /// The host; `None` if it concerns all of them.
    pub host: Option<String>,
    /// The part of the host.
    pub part: HostPart,
    /// The problem and the value.
    pub what: String,
    /// What is allowed, or how to fix it.
    pub remedy: String,
}

/// A part of the description of a host in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPart {
    /// The whole host.
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
    /// Its links of this name, or their absence.
    Link(LinkName),
    /// The end of this number, from 0, of its links of this name.
    End(LinkName, usize),
    /// An address of an end.
    Address(LinkName, LinkAddress),
}

impl HostPart {
    /// The link to which the part belongs.
    pub fn link(self) -> Option<LinkName> {
        match self {
            Self::Link(link) | Self::End(link, _) | Self::Address(link, _) => Some(link),
            _ => None,
        }
    }
}

impl HostsError {
    /// Creates an error about one host.
    pub(super) fn of(
        host: &str,
        part: HostPart,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            host: Some(host.to_owned()),
            part,
            ..Self::of_all(what, remedy)
        }
    }

    /// Creates an error about all hosts.
    pub(super) fn of_all(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            host: None,
            part: HostPart::Whole,
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
