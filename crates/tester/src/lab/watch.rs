//! The hosts of a measurement and the links between them, and what their counters did during a trial.

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

/// A link that queries cross one way and their answers the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The host that asks, by its place among those that are watched.
    pub near: usize,
    /// The host that answers; `None` if it is not ours to look at.
    pub far: Option<usize>,
    /// Interface, with the same name at both ends; `None` if it is not known.
    pub link: Option<String>,
}

/// Whose counters can be read.
pub trait Counting: fmt::Debug + Send + Sync {
    /// The counters now, with those of queues or without; `None` if they cannot be read.
    fn reading(&self, queues: bool) -> Option<Reading>;

    /// Whether its network is one that only this measurement uses.
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
    /// The hosts of a lab: with a DUT between Measurer and authority, or in a self-test without, where
    /// the DUT's host at most forwards.
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
        // With three devices a self-test takes both links: the DUT's host forwards.
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

    /// Hosts that are called by their roles, with the links between them, which both ends call alike.
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

    /// This host alone, toward a server that runs already.
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

    /// The counters of all hosts now, twice: see [`Self::since`].
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

    /// What the counters did since `before`. Hosts are read one after the other while packets may be on
    /// their way: each reading is made twice, so that for every counter the least and the most that it counted
    /// between the two are known, and what left one host is never compared with too early a look at the other.
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

/// The counters of all hosts, twice in a row; `None` of one that could not be read.
#[derive(Debug, Default)]
pub struct Readings {
    first: Vec<Option<Reading>>,
    second: Vec<Option<Reading>>,
}

/// What the counters of one host did during a trial.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Whose host it is: "Measurer", "DUT", "authority", or "Tester" for Measurer and authority; of several authorities
    /// [`AUTHORITY_ON`] and the name of the host.
    pub role: String,
    /// Others use the host's network as well, so that what it counts may be theirs.
    pub shared: bool,
    /// Its counters could not be read, so that nothing is known of it.
    pub is_unread: bool,
    /// How far each counter went at least.
    pub least: Reading,
    /// How far each counter went at most.
    pub most: Reading,
}

/// What the counters of all hosts did during a trial.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The hosts.
    pub hosts: Vec<Change>,
    /// Between Measurer and server.
    pub client: Option<Leg>,
    /// Between DUT and each authority.
    pub upstreams: Vec<Leg>,
}

/// Before the name of the host, where several are authorities: "authority auth2".
pub const AUTHORITY_ON: &str = "authority ";

const LOOPBACK: &str = "lo";

/// What has left a host has reached the next after this time, some turns of other threads: it takes
/// microseconds, but on a busy machine the kernel's own thread that hands packets over waits for its turn.
const TRAVEL_NS: Nanos = SECOND / 100;

/// What `ip -j route get` says.
#[derive(Deserialize)]
struct Route {
    dev: String,
}

/// The interface that packets to `address` leave by; `None` without `ip`, or a route.
pub fn interface_toward(address: IpAddr) -> Option<String> {
    let ip = find_program("ip")?;
    let words = ["-j", "route", "get", &address.to_string()];
    let mut command = Host::Here.command(Path::new(&ip), &CpuSet::unrestricted());
    let end = run(command.args(words), LIMIT).ok()?;
    let routes: Vec<Route> = serde_json::from_str(&end.stdout).ok()?;
    routes.into_iter().next().map(|route| route.dev)
}

/// `ip` answers at once; what takes longer hangs.
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
    fn a_self_test_has_the_legs_of_the_measurement_or_the_loopback_interface() {
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
    fn a_host_that_is_not_there_is_unread() {
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
    fn a_loopback_server_is_reached_over_the_loopback_interface() {
        let watched = Watched::this_host("[::1]:53".parse().unwrap());
        // Without `ip` the interface is not known.
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
