//! What the counters of hosts and links say of a trial.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::Role;
use super::counters::CounterReading;

/// A link that carries queries in one direction and their responses in the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The host that sends queries, by its index among the watched hosts.
    pub near: usize,
    /// The host that answers; `None` if it is not accessible.
    pub far: Option<usize>,
    /// Interface, with the same name at both ends; `None` if unknown.
    pub link: Option<String>,
    /// Whether the host that answers is another network of this machine, such as a container's.
    pub is_elsewhere: bool,
}

/// A host in results, by its roles.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    JsonSchema,
    SerializeDisplay,
    DeserializeFromStr,
)]
#[schemars(with = "String")]
pub enum HostOf {
    /// The host of one role; its name in the plan, if several hosts have the role.
    Role(Role, Option<String>),
    /// The host of Measurer and authority.
    Tester,
    /// The host of all roles.
    #[default]
    Machine,
}

impl From<Role> for HostOf {
    fn from(role: Role) -> Self {
        Self::Role(role, None)
    }
}

impl fmt::Display for HostOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(role, None) => role.fmt(f),
            Self::Role(role, Some(name)) => write!(f, "{role} on {name}"),
            Self::Tester => f.pad("Tester"),
            Self::Machine => f.pad("machine"),
        }
    }
}

impl FromStr for HostOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of_role = |role: Role| {
            let rest = text.strip_prefix(&role.to_string())?;
            // Counters of losses had the name without "on".
            let name = rest.strip_prefix(" on ").or(rest.strip_prefix(' '));
            let is_role = rest.is_empty() || name.is_some();
            is_role.then(|| Self::Role(role, name.map(str::to_owned)))
        };
        let known = [Self::Tester, Self::Machine].into_iter();
        let found = known.clone().find(|host| host.to_string() == text);
        let found = found.or_else(|| Role::ALL.into_iter().find_map(of_role));
        found.ok_or_else(|| format!("{text:?} is not the host of a role"))
    }
}

/// Increase of the counters of one host during a trial.
#[derive(Clone, Debug, Default)]
pub struct CounterChange {
    /// The host.
    pub of: HostOf,
    /// Whether others use the host's network too, so that its counters may include their packets.
    pub shared: bool,
    /// Whether its counters could not be read.
    pub is_unread: bool,
    /// Lower bound of the increase of each counter.
    pub least: CounterReading,
    /// Upper bound of the increase of each counter.
    pub most: CounterReading,
}

/// Increase of the counters of all hosts during a trial.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The hosts.
    pub hosts: Vec<CounterChange>,
    /// Between Measurer and server.
    pub client: Option<Leg>,
    /// Between DUT and each authority.
    pub upstreams: Vec<Leg>,
}

impl Observed {
    /// Returns whether the server runs on the Measurer's host.
    pub fn is_one_host(&self) -> bool {
        let mut legs = self.client.iter();
        legs.any(|leg| leg.far == Some(leg.near))
    }

    /// Returns whether the server shares the processors of the Measurer's host.
    pub fn is_one_machine(&self) -> bool {
        self.is_one_host() || self.client.as_ref().is_some_and(|leg| leg.is_elsewhere)
    }
}

/// The loopback interface.
pub const LOOPBACK: &str = "lo";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_roles_are_read_as_written_and_as_they_were_written() {
        let auth = HostOf::Role(Role::Authority, Some("auth 2".to_owned()));
        for (host, text) in [
            (Role::Dut.into(), "DUT"),
            (auth.clone(), "authority on auth 2"),
            (HostOf::Tester, "Tester"),
            (HostOf::Machine, "machine"),
        ] {
            assert_eq!(host.to_string(), text);
            assert_eq!(text.parse::<HostOf>(), Ok(host));
        }
        assert_eq!("authority auth 2".parse::<HostOf>(), Ok(auth));
        assert!("DUTs".parse::<HostOf>().is_err());
    }
}
