//! The hosts of a measurement, the links between them, and their counters before and after a trial.

use std::collections::BTreeMap;
use std::sync::Arc;

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};

use crate::machine::counters::CounterReading;
use crate::machine::network::Network;
use crate::machine::watch::{CounterChange, HostOf, Leg, Observed};
use crate::post::host::Host;

/// A network of a host, whose counters are read.
#[derive(Debug)]
pub struct Counted {
    /// The host.
    pub host: Host,
    /// Its network.
    pub network: Network,
    /// The names of the links of its interfaces, if only they are observed: no one else uses such a network. `None` for
    /// all interfaces of a network that others use too.
    pub links: Option<BTreeMap<String, String>>,
}

impl Counted {
    fn reading(&self, queues: bool) -> Option<CounterReading> {
        let reading = self.host.reading(&self.network, queues)?;
        Some(match &self.links {
            Some(links) => reading.of_links(links),
            None => reading,
        })
    }
}

/// Hosts whose counters are read before and after a trial.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// By role; the counters of several networks are added up.
    hosts: Vec<(HostOf, Arc<[Counted]>)>,
    client: Option<Leg>,
    upstreams: Vec<Leg>,
}

impl Watched {
    /// Hosts named by their roles, with the links between them, which have the same name at both ends.
    pub fn new(
        hosts: Vec<(HostOf, Vec<Counted>)>,
        client: Option<Leg>,
        upstreams: Vec<Leg>,
    ) -> Self {
        let hosts = hosts.into_iter();
        Self {
            hosts: hosts.map(|(of, all)| (of, all.into())).collect(),
            client,
            upstreams,
        }
    }

    /// Reads the counters of all hosts twice: see [`Self::since`].
    pub fn read(&self) -> Readings {
        self.read_twice(0)
    }

    fn read_twice(&self, pause_ns: Nanos) -> Readings {
        let read = |queues| {
            let hosts = self.hosts.iter();
            let readings = hosts.map(|(_, host)| sum(host, queues));
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
            let since = |after: &[Option<CounterReading>], before: &[Option<CounterReading>]| {
                Some(after[i].as_ref()?.since(before[i].as_ref()?))
            };
            let least = since(&after.first, &before.second);
            let most = since(&after.second, &before.first);
            CounterChange {
                of: of.clone(),
                shared: host.iter().any(|it| it.links.is_none()),
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
    first: Vec<Option<CounterReading>>,
    second: Vec<Option<CounterReading>>,
}

fn sum(host: &[Counted], queues: bool) -> Option<CounterReading> {
    let mut readings = host.iter().map(|it| it.reading(queues));
    let first = readings.next()??;
    readings.try_fold(first, |sum, reading| Some(sum.with(reading?)))
}

/// Time after which a packet that left a host has certainly reached the next one. Normally it takes microseconds, but
/// on a busy machine the kernel thread that passes packets on has to wait for some time slices of other threads.
const TRAVEL_NS: Nanos = SECOND / 100;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::machine::counters::{Counter, Layer};
    use crate::machine::watch::LOOPBACK;

    fn watched(network: Network) -> Watched {
        let counted = Counted {
            host: Host::here(&Arc::default()),
            network,
            links: None,
        };
        Watched::new(vec![(HostOf::Machine, vec![counted])], None, Vec::new())
    }

    #[test]
    fn missing_host_is_unread() {
        let watched = watched(Network::Netns("no-such-host".to_owned()));
        let observed = watched.since(&watched.read());
        assert!(observed.hosts[0].is_unread);
    }

    #[test]
    fn counters_of_this_machine_are_read() {
        let watched = watched(Network::Own);
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
