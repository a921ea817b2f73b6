//! The hosts of a measurement, the links between them, and their counters during a trial.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use serde::Deserialize;

use super::counters::Reading;
use super::cpuset::CpuSet;
use super::host::Host;
use super::process::{find_program, run};
use super::topology::{CLIENT_LINK, Role, Setup, UPSTREAM_LINK};

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
    hosts: Vec<(String, Arc<dyn Counting>)>,
    client: Option<Leg>,
    upstreams: Vec<Leg>,
}

impl Watched {
    /// The hosts of a lab: in a measurement with a DUT between Measurer and authority, in a self-test without one. In
    /// the latter the DUT's host at most forwards.
    pub fn lab(setup: Setup, self_test: bool) -> Self {
        let mut hosts: Vec<(String, Arc<dyn Counting>)> = Vec::new();
        let mut at = |role| {
            let name = setup.host_name(role);
            let known = hosts.iter().position(|(known, _)| known == name);
            known.unwrap_or_else(|| {
                hosts.push((name.to_owned(), Arc::new(setup.host(role))));
                hosts.len() - 1
            })
        };
        let leg = |near, far, link: &str| {
            let link = if near == far { LOOPBACK } else { link };
            Some(Leg {
                near,
                far: Some(far),
                link: Some(link.to_owned()),
            })
        };
        let measurer = at(Role::Measurer);
        // With three devices a self-test uses both links: the DUT's host forwards.
        let (client, upstream) = if self_test && setup != Setup::ThreeDevice {
            (leg(measurer, at(Role::Authority), LOOPBACK), None)
        } else {
            let (dut, authority) = (at(Role::Dut), at(Role::Authority));
            let upstream = leg(dut, authority, UPSTREAM_LINK);
            (leg(measurer, dut, CLIENT_LINK), upstream)
        };
        Self {
            hosts,
            client,
            upstreams: upstream.into_iter().collect(),
        }
    }

    /// Hosts named by their roles, with the links between them, which have the same name at both ends.
    pub fn hosts(
        hosts: Vec<(String, Arc<dyn Counting>)>,
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
            hosts: vec![("Measurer".to_owned(), Arc::new(Host::Here))],
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
        let changes = self.hosts.iter().enumerate().map(|(i, (role, host))| {
            let since = |after: &[Option<Reading>], before: &[Option<Reading>]| {
                Some(after[i].as_ref()?.since(before[i].as_ref()?))
            };
            let least = since(&after.first, &before.second);
            let most = since(&after.second, &before.first);
            Change {
                role: role.clone(),
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
    /// Role of the host: "Measurer", "DUT", "authority", or "Tester" for Measurer and authority; for several
    /// authorities [`AUTHORITY_ON`] and the name of the host.
    pub role: String,
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

/// Prefix of the host's name if there are several authorities: "authority auth2".
pub const AUTHORITY_ON: &str = "authority ";

const LOOPBACK: &str = "lo";

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

    fn hosts(watched: &Watched) -> Vec<&str> {
        watched
            .hosts
            .iter()
            .map(|(role, _)| role.as_str())
            .collect()
    }

    fn leg(near: usize, far: usize, link: &str) -> Option<Leg> {
        Some(Leg {
            near,
            far: Some(far),
            link: Some(link.to_owned()),
        })
    }

    #[test]
    fn each_host_is_watched_once() {
        let three = Watched::lab(Setup::ThreeDevice, false);
        assert_eq!(hosts(&three), ["Measurer", "DUT", "authority"]);
        assert_eq!(three.client, leg(0, 1, "client"));
        assert_eq!(three.upstreams.first(), leg(1, 2, "upstream").as_ref());
        let two = Watched::lab(Setup::TwoDevice, false);
        assert_eq!(hosts(&two), ["Tester", "DUT"]);
        assert_eq!(
            (two.client.clone(), two.upstreams.first().cloned()),
            (leg(0, 1, "client"), leg(1, 0, "upstream"))
        );
        let shared = Watched::lab(Setup::Loopback, false);
        assert_eq!(hosts(&shared), ["machine"]);
        assert_eq!(
            (shared.client.clone(), shared.upstreams.first().cloned()),
            (leg(0, 0, "lo"), leg(0, 0, "lo"))
        );
    }

    #[test]
    fn self_test_uses_the_legs_of_the_measurement_or_the_loopback_interface() {
        let three = Watched::lab(Setup::ThreeDevice, true);
        let of_trials = Watched::lab(Setup::ThreeDevice, false);
        assert_eq!(hosts(&three), hosts(&of_trials));
        assert_eq!(
            (three.client, three.upstreams),
            (of_trials.client, of_trials.upstreams)
        );
        let two = Watched::lab(Setup::TwoDevice, true);
        assert_eq!((two.client, two.upstreams), (leg(0, 0, "lo"), Vec::new()));
    }

    #[test]
    fn missing_host_is_unread() {
        let watched = Watched {
            hosts: vec![(
                "DUT".to_owned(),
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
        let watched = Watched::lab(Setup::Loopback, false);
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
