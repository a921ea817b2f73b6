//! The hosts of a measurement, the links between them, and their counters during a trial.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Role;
use super::counters::Reading;
use super::cpuset::CpuSet;
use super::host::Host;
use super::process::{find_program, run};

/// A link that carries queries in one direction and their responses in the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The host that sends queries, by its index among the watched hosts.
    pub near: usize,
    /// The host that answers; `None` if it is not accessible.
    pub far: Option<usize>,
    /// Interface, with the same name at both ends; `None` if unknown.
    pub link: Option<String>,
}

/// A host in results, by its roles.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
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

impl From<HostOf> for String {
    fn from(host: HostOf) -> Self {
        host.to_string()
    }
}

impl TryFrom<String> for HostOf {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
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

/// A host whose counters can be read.
pub trait Counting: fmt::Debug + Send + Sync {
    /// Reads the counters, with or without those of queues; `None` if this fails.
    fn reading(&self, queues: bool) -> Option<Reading>;

    /// Returns whether only this measurement uses its network.
    fn is_private(&self) -> bool;
}

impl Counting for Host {
    fn reading(&self, queues: bool) -> Option<Reading> {
        Reading::of(self, queues)
    }

    fn is_private(&self) -> bool {
        Self::is_private(self)
    }
}

/// Hosts whose counters are read before and after a trial.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    hosts: Vec<(HostOf, Arc<dyn Counting>)>,
    client: Option<Leg>,
    upstreams: Vec<Leg>,
}

impl Watched {
    /// Hosts named by their roles, with the links between them, which have the same name at both ends.
    pub fn hosts(
        hosts: Vec<(HostOf, Arc<dyn Counting>)>,
        client: Option<Leg>,
        upstreams: Vec<Leg>,
    ) -> Self {
        Self {
            hosts,
            client,
            upstreams,
        }
    }

    /// This host alone, for a server that already runs.
    pub fn this_host(server: SocketAddr) -> Self {
        Self {
            hosts: vec![(Role::Measurer.into(), Arc::new(Host::Here))],
            client: Some(Leg {
                near: 0,
                far: server.ip().is_loopback().then_some(0),
                link: interface_toward(server.ip()),
            }),
            upstreams: Vec::new(),
        }
    }

    /// Reads the counters of all hosts twice: see [`Self::since`].
    pub fn read(&self) -> Readings {
        self.read_twice(0)
    }

    fn read_twice(&self, pause_ns: Nanos) -> Readings {
        let read = |queues| {
            let hosts = self.hosts.iter();
            let readings = hosts.map(|(_, host)| host.reading(queues));
            readings.collect::<Vec<_>>()
        };
        let first = read(true);
        if pause_ns > 0 && !self.hosts.is_empty() {
            MonotonicClock.sleep(pause_ns);
        }
        let second = read(false).into_iter().zip(&first);
        let second = second.map(|(second, first)| Some(second?.with_queues_of(first.as_ref()?)));
        Readings {
            second: second.collect(),
            first,
        }
    }

    /// Returns the increase of the counters since `before`. Hosts are read one after the other while packets may be in
    /// transit. So each reading is made twice, which gives a lower and an upper bound of every counter's increase. A
    /// packet that left one host is thus never missed because the next host was read too early.
    pub fn since(&self, before: &Readings) -> Observed {
        let after = self.read_twice(TRAVEL_NS);
        let changes = self.hosts.iter().enumerate().map(|(i, (of, host))| {
            let since = |after: &[Option<Reading>], before: &[Option<Reading>]| {
                Some(after[i].as_ref()?.since(before[i].as_ref()?))
            };
            let least = since(&after.first, &before.second);
            let most = since(&after.second, &before.first);
            Change {
                of: of.clone(),
                shared: !host.is_private(),
                is_unread: least.is_none() || most.is_none(),
                least: least.unwrap_or_default(),
                most: most.unwrap_or_default(),
            }
        });
        Observed {
            hosts: changes.collect(),
            client: self.client.clone(),
            upstreams: self.upstreams.clone(),
        }
    }
}

/// Counters of all hosts, read twice; `None` for a host that could not be read.
#[derive(Debug, Default)]
pub struct Readings {
    first: Vec<Option<Reading>>,
    second: Vec<Option<Reading>>,
}

/// Increase of the counters of one host during a trial.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The host.
    pub of: HostOf,
    /// Whether others use the host's network too, so that its counters may include their packets.
    pub shared: bool,
    /// Whether its counters could not be read.
    pub is_unread: bool,
    /// Lower bound of the increase of each counter.
    pub least: Reading,
    /// Upper bound of the increase of each counter.
    pub most: Reading,
}

/// Increase of the counters of all hosts during a trial.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The hosts.
    pub hosts: Vec<Change>,
    /// Between Measurer and server.
    pub client: Option<Leg>,
    /// Between DUT and each authority.
    pub upstreams: Vec<Leg>,
}

/// The loopback interface.
pub(crate) const LOOPBACK: &str = "lo";

/// Time after which a packet that left a host has certainly reached the next one. Normally it takes microseconds, but
/// on a busy machine the kernel thread that passes packets on has to wait for some time slices of other threads.
const TRAVEL_NS: Nanos = SECOND / 100;

/// Output of `ip -j route get`.
#[derive(Deserialize)]
struct Route {
    dev: String,
}

/// The outgoing interface for packets to `address`; `None` without `ip` or a route.
pub fn interface_toward(address: IpAddr) -> Option<String> {
    let ip = find_program("ip")?;
    let words = ["-j", "route", "get", &address.to_string()];
    let mut command = Host::Here.command(Path::new(&ip), &CpuSet::unrestricted());
    let end = run(command.args(words), LIMIT).ok()?;
    let routes: Vec<Route> = serde_json::from_str(&end.stdout).ok()?;
    routes.into_iter().next().map(|route| route.dev)
}

/// `ip` answers at once; after this time it hangs.
const LIMIT: Nanos = 5 * SECOND;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::super::counters::{Counter, Layer};
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
            assert_eq!(HostOf::try_from(text.to_owned()), Ok(host));
        }
        assert_eq!(HostOf::try_from("authority auth 2".to_owned()), Ok(auth));
        assert!(HostOf::try_from("DUTs".to_owned()).is_err());
    }

    #[test]
    fn missing_host_is_unread() {
        let watched = Watched {
            hosts: vec![(
                Role::Dut.into(),
                Arc::new(Host::Netns("no-such-host".to_owned())),
            )],
            ..Watched::default()
        };
        let observed = watched.since(&watched.read());
        assert!(observed.hosts[0].is_unread);
    }

    #[test]
    fn loopback_server_is_reached_over_the_loopback_interface() {
        let watched = Watched::this_host("[::1]:53".parse().unwrap());
        // Without `ip` the interface is unknown.
        let link = watched.client.unwrap().link;
        assert!(link.is_none() || link.as_deref() == Some("lo"));
    }

    #[test]
    fn counters_of_this_machine_are_read() {
        let hosts = vec![(HostOf::Machine, Arc::new(Host::Here) as Arc<dyn Counting>)];
        let watched = Watched::hosts(hosts, None, Vec::new());
        let before = watched.read();
        let loopback = Counter::of_link(LOOPBACK, Layer::Device, "rx_packets");
        UdpSocket::bind("127.0.0.1:0")
            .and_then(|socket| socket.send_to(b"counted", socket.local_addr()?))
            .unwrap();
        let observed = watched.since(&before);
        let host = &observed.hosts[0];
        assert!(host.shared);
        assert!(host.least.get(&loopback) >= 1, "{host:?}");
        assert!(host.most.get(&loopback) >= host.least.get(&loopback));
    }
}
