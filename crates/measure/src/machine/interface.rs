//! The network interfaces of a host: driver, MTU, speed, queues and offloads.
//!
//! `ip` lists them, in this machine's own network and in namespaces; `ethtool` gives the rest. Values of missing
//! programs, and values that a kind of interface does not have, are omitted.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use dns64_transport::address;
use dns64_transport::clock::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use super::cpuset::CpuSet;
use super::network::{self, Network};
use super::process::{find_program, run};
use super::{Machine, field};

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its kind, if it is virtual ("veth", "bridge", "loopback"); otherwise its driver, with version and firmware from
    /// `ethtool -i`, if it is up.
    pub driver: Option<String>,
    /// Largest IP packet in octets.
    pub mtu: u32,
    /// Speed in Mbit/s.
    pub speed_mbps: Option<u32>,
    /// Number of receive and transmit queues.
    pub queues: (u32, u32),
    /// Offloads by the names of `ethtool -k`, and whether each is on; empty if it is down.
    pub offloads: Vec<(String, bool)>,
    /// UDP flow types, by the names of `ethtool -n`, that it does not spread over its receive queues by port: all packets
    /// from one host to another arrive in one queue.
    pub unspread: Vec<String>,
    /// Its MAC address, if any.
    pub mac: Option<[u8; 6]>,
    /// Its IP addresses with the lengths of their prefixes, in the kernel's order, without tentative and duplicate ones.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether it has a carrier: a cable is plugged in and the other end is active.
    pub has_carrier: bool,
    /// Packets sent and received.
    pub packets: u64,
}

impl Interface {
    /// Returns whether it is one end of a veth pair; the other end may be in another namespace.
    pub fn is_veth(&self) -> bool {
        self.driver.as_deref() == Some("veth")
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.driver.as_deref().unwrap_or("unknown driver"))?;
        write!(f, ", MTU {}", self.mtu)?;
        if let Some(speed) = self.speed_mbps {
            write!(f, ", {speed} Mbit/s")?;
        }
        let (receive, send) = self.queues;
        write!(f, ", queues {receive} rx {send} tx")?;
        for (state, wanted) in [("on", true), ("off", false)] {
            let names: Vec<_> = self
                .offloads
                .iter()
                .filter(|(_, on)| *on == wanted)
                .map(|(name, _)| name.as_str())
                .collect();
            if !names.is_empty() {
                write!(f, "; {state}: {}", names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Lists the interfaces of a host, up or not, in the kernel's order. The list is empty without `ip` or for a missing
/// host.
pub fn all(host: &Network) -> Vec<Interface> {
    let mut interfaces = read(host, &[]);
    let up = interfaces.iter_mut().filter(|it| it.is_up);
    up.take(INTERFACES_MAX).for_each(|it| complete(host, it));
    interfaces
}

/// Lists those that are up, at most [`INTERFACES_MAX`].
pub fn list(host: &Network) -> Vec<Interface> {
    let up = all(host).into_iter().filter(|it| it.is_up);
    up.take(INTERFACES_MAX).collect()
}

/// Returns the packets that each interface of a host has sent and received.
pub fn packets(host: &Network) -> BTreeMap<String, u64> {
    let interfaces = read(host, &[]).into_iter();
    interfaces.map(|it| (it.name, it.packets)).collect()
}

/// Returns the interface of this name; `None` if it does not exist, or without `ip`.
pub fn named(host: &Network, name: &str) -> Option<Interface> {
    let mut interface = read(host, &["dev", name]).into_iter().next()?;
    complete(host, &mut interface);
    Some(interface)
}

fn read(host: &Network, which: &[&str]) -> Vec<Interface> {
    let words = [&["-j", "-d", "-s", "address", "show"], which].concat();
    output(host, "ip", &words).map_or_else(Vec::new, |text| from_ip(&text))
}

/// Parses a MAC address in the format of `ip`.
fn mac(text: &str) -> Option<[u8; 6]> {
    let octets = text.split(':').map(|octet| u8::from_str_radix(octet, 16));
    let octets: Vec<u8> = octets.collect::<Result<_, _>>().ok()?;
    octets.try_into().ok()
}

/// A machine with containers has hundreds; labs and Testers have fewer.
pub const INTERFACES_MAX: usize = 16;

/// Adds the values that `ip` does not have.
fn complete(host: &Network, interface: &mut Interface) {
    let name = interface.name.as_str();
    if interface.driver.is_none() {
        let told = output(host, "ethtool", &["-i", name]).and_then(|text| driver(&text));
        // `/sys` shows the network in which it was mounted, so this works only there.
        let here = (*host == Network::Own).then(Machine::here);
        let shown = || {
            let link = format!("/sys/class/net/{name}/device/driver");
            let target = here.as_ref()?.path(&link).read_link().ok()?;
            Some(target.file_name()?.to_string_lossy().into_owned())
        };
        interface.driver = told.or_else(shown);
        // Without a carrier or a speed, the file has -1 or is unreadable.
        let speed = here.and_then(|here| here.read(&format!("/sys/class/net/{name}/speed")));
        interface.speed_mbps = speed.and_then(|text| text.parse().ok());
    }
    if let Some(text) = output(host, "ethtool", &["-k", name]) {
        interface.offloads = offloads(&text);
    }
    interface.unspread = unspread(host, interface);
}

/// Returns its UDP flow types that are not spread by port. Empty with one queue, or if it cannot be configured.
fn unspread(host: &Network, interface: &Interface) -> Vec<String> {
    if interface.queues.0 < 2 {
        return Vec::new();
    }
    let spread_by = |flow: &&str| {
        let arguments = ["-n", interface.name.as_str(), "rx-flow-hash", flow];
        output(host, "ethtool", &arguments)
    };
    let flows = ["udp4", "udp6"].into_iter();
    flows
        .filter(|flow| spread_by(flow).is_some_and(|text| !has_ports(&text)))
        .map(str::to_owned)
        .collect()
}

/// Returns whether the source port is among the fields of `ethtool -n NAME rx-flow-hash FLOW`.
fn has_ports(text: &str) -> bool {
    text.contains("L4 bytes 0 & 1")
}

/// Returns the output of a program on a host; `None` if it is not installed or fails.
pub fn output(host: &Network, program: &str, arguments: &[&str]) -> Option<String> {
    let path = find_program(program)?;
    let mut command = host.command(Path::new(&path), &CpuSet::unrestricted());
    let end = run(command.args(arguments), LIMIT).ok()?;
    end.status.success().then_some(end.stdout)
}

/// `ip`, `tc` and `ethtool` answer at once; after this time they hang.
const LIMIT: Nanos = 5 * SECOND;

/// Output of `ip -j route get`.
#[derive(Deserialize)]
struct IpRoute {
    dev: String,
}

/// Returns the outgoing interface for packets to `address`; `None` without `ip` or a route.
pub fn toward(address: SocketAddr) -> Option<String> {
    let ip = address.ip().to_string();
    let zone = address::interface(address);
    let of_zone = zone.iter().flat_map(|name| ["oif", name.as_str()]);
    let words: Vec<_> = ["-j", "route", "get", &ip]
        .into_iter()
        .chain(of_zone)
        .collect();
    let routes: Vec<IpRoute> = serde_json::from_str(&output(&Network::Own, "ip", &words)?).ok()?;
    routes.into_iter().next().map(|route| route.dev)
}

/// Returns whether packets to `address` stay on this host, because it has that address.
pub fn is_own(address: SocketAddr) -> bool {
    address.ip().is_loopback() || toward(address).is_some_and(|interface| interface == "lo")
}

/// Returns whether `address` is that of another network of this machine, such as a container's: a process in it has that
/// address, and a virtual interface leads there. An address of a container may be that of another host as well.
pub fn is_elsewhere(address: SocketAddr) -> bool {
    let read = |name: String| read(&Network::Own, &["dev", &name]).into_iter().next();
    let kind = toward(address).and_then(read).and_then(|it| it.driver);
    kind.is_some_and(|kind| JOINS_NETWORKS.contains(&kind.as_str()))
        && network::is_of_another(&Machine::here(), address.ip())
}

/// Kinds of interfaces that lead to other networks of the same machine (ip-link(8)).
const JOINS_NETWORKS: [&str; 5] = ["veth", "bridge", "macvlan", "ipvlan", "netkit"];

/// An interface in the output of `ip -j -d -s address show`.
#[derive(Deserialize)]
struct IpLink {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    mtu: u32,
    #[serde(default)]
    link_type: String,
    linkinfo: Option<LinkInfo>,
    #[serde(default)]
    num_rx_queues: u32,
    #[serde(default)]
    num_tx_queues: u32,
    address: Option<String>,
    #[serde(default)]
    addr_info: Vec<IpAddress>,
    #[serde(default)]
    stats64: Stats,
}

#[derive(Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
}

#[derive(Deserialize)]
struct IpAddress {
    local: Option<IpAddr>,
    prefixlen: Option<u8>,
    #[serde(default)]
    tentative: bool,
    #[serde(default)]
    dadfailed: bool,
}

#[derive(Default, Deserialize)]
struct Stats {
    rx: Direction,
    tx: Direction,
}

#[derive(Default, Deserialize)]
struct Direction {
    packets: u64,
}

fn from_ip(text: &str) -> Vec<Interface> {
    let links: Vec<IpLink> = serde_json::from_str(text).unwrap_or_default();
    // `ip` prints an empty object for an interface that has disappeared.
    let links = links.into_iter().filter(|link| !link.ifname.is_empty());
    links.map(interface).collect()
}

fn interface(link: IpLink) -> Interface {
    let has = |wanted: &str| link.flags.iter().any(|flag| flag == wanted);
    let (is_up, has_carrier) = (has("UP"), has("LOWER_UP"));
    let kind = link.linkinfo.and_then(|info| info.info_kind);
    let loopback = (link.link_type == "loopback").then_some(link.link_type);
    let usable = link.addr_info.into_iter();
    let usable = usable.filter(|it| !it.tentative && !it.dadfailed);
    Interface {
        name: link.ifname,
        driver: kind.or(loopback),
        mtu: link.mtu,
        queues: (link.num_rx_queues, link.num_tx_queues),
        mac: link.address.as_deref().and_then(mac),
        addresses: usable.filter_map(|it| it.local.zip(it.prefixlen)).collect(),
        is_up,
        has_carrier,
        packets: link.stats64.rx.packets + link.stats64.tx.packets,
        ..Interface::default()
    }
}

/// Parses driver, version and firmware from `ethtool -i`.
fn driver(text: &str) -> Option<String> {
    let value = |key: &str| field(text, key).filter(|value| !["", "N/A"].contains(value));
    let mut driver = value("driver")?.to_owned();
    if let Some(version) = value("version") {
        driver = format!("{driver} {version}");
    }
    if let Some(firmware) = value("firmware-version") {
        driver = format!("{driver} (firmware {firmware})");
    }
    Some(driver)
}

/// Parses `ethtool -k` for [`OFFLOADS`], in that order.
fn offloads(text: &str) -> Vec<(String, bool)> {
    let is_on = |name: &str| Some(field(text, name)?.split_whitespace().next()? == "on");
    OFFLOADS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), is_on(name)?)))
        .collect()
}

/// Offloads that change the cost of a datagram (ethtool(8), udp(7)).
const OFFLOADS: [&str; 9] = [
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "tx-udp-segmentation",
    "rx-udp-gro-forwarding",
    "rx-gro-list",
    "receive-hashing",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_are_up_are_parsed_from_ip() {
        let text = r#"[
            {"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"link_type":"loopback",
             "num_tx_queues":1,"num_rx_queues":1},
            {"ifname":"eno1","flags":["BROADCAST","MULTICAST","UP"],"mtu":9000,"link_type":"ether",
             "num_tx_queues":64,"num_rx_queues":32,"parentbus":"pci"},
            {"ifname":"eno2","flags":["BROADCAST"],"mtu":1500,"link_type":"ether"},
            {"ifname":"client","flags":["UP"],"mtu":1500,"link_type":"ether",
             "linkinfo":{"info_kind":"veth"},"num_tx_queues":2,"num_rx_queues":2}
        ]"#;
        let interfaces = from_ip(text).into_iter();
        let told: Vec<_> = interfaces
            .filter(|interface| interface.is_up)
            .map(|interface| format!("{}: {interface}", interface.name))
            .collect();
        assert_eq!(
            told,
            [
                "lo: loopback, MTU 65536, queues 1 rx 1 tx",
                "eno1: unknown driver, MTU 9000, queues 32 rx 64 tx",
                "client: veth, MTU 1500, queues 2 rx 2 tx",
            ]
        );
        assert!(from_ip("Object \"link\" is unknown").is_empty());
    }

    #[test]
    fn flow_types_spread_by_port_are_distinguished_from_others() {
        let fields =
            "UDP over IPV6 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n";
        let ports = "L4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n";
        assert!(has_ports(&format!("{fields}{ports}\n")));
        assert!(!has_ports(fields));
        let none = "UDP over IPV6 flows use these fields for computing Hash flow key:\nNone\n\n";
        assert!(!has_ports(none));
    }

    #[test]
    fn addresses_are_parsed_from_ip() {
        let text = r#"[{"ifindex":2,"link_index":2,"ifname":"upstream","flags":["BROADCAST","UP"],"mtu":1500,
            "link_type":"ether","address":"02:00:00:00:02:0b","broadcast":"ff:ff:ff:ff:ff:ff",
            "linkinfo":{"info_kind":"veth"},"addr_info":[
            {"family":"inet","local":"198.18.0.2","prefixlen":24,"scope":"global"},
            {"family":"inet6","local":"2001:2::2","prefixlen":64,"scope":"global"}]},{}]"#;
        let addressed = &from_ip(text)[0];
        assert_eq!(addressed.mac, Some([2, 0, 0, 0, 2, 0x0b]));
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let expected = [(address("198.18.0.2"), 24), (address("2001:2::2"), 64)];
        assert_eq!(addressed.addresses, expected);
        assert!(addressed.is_veth());
        assert_eq!(from_ip("[{}]"), []);
        assert_eq!(mac("02:00:00:00:02"), None);
    }

    #[test]
    fn unusable_addresses_and_traffic_are_parsed_from_ip() {
        let text = r#"[
            {"ifname":"client","flags":["BROADCAST","UP","LOWER_UP"],"mtu":9000,
             "addr_info":[{"family":"inet6","local":"2001:2:0:1::1","prefixlen":64},
                          {"family":"inet6","local":"2001:2:0:1::9","prefixlen":64,"tentative":true},
                          {"family":"inet6","local":"2001:2:0:1::8","prefixlen":64,"dadfailed":true}],
             "stats64":{"rx":{"packets":7},"tx":{"packets":5}}},
            {"ifname":"up","flags":["NO-CARRIER","UP"],"mtu":1500,"addr_info":[]}]"#;
        let [client, up] = &from_ip(text)[..] else {
            panic!("two interfaces are expected");
        };
        assert_eq!(client.addresses, [("2001:2:0:1::1".parse().unwrap(), 64)]);
        assert!(client.is_up && client.has_carrier && up.is_up && !up.has_carrier);
        assert_eq!((client.mtu, client.packets), (9000, 12));
    }

    #[test]
    fn drivers_are_parsed_from_ethtool() {
        let text = "driver: ixgbe\nversion: 6.1.0-18-amd64\nfirmware-version: 0x800006da\n\
                    expansion-rom-version: \nbus-info: 0000:03:00.0\n";
        assert_eq!(
            driver(text).as_deref(),
            Some("ixgbe 6.1.0-18-amd64 (firmware 0x800006da)")
        );
        let text = "driver: virtio_net\nversion: 1.0.0\nfirmware-version: \n";
        assert_eq!(driver(text).as_deref(), Some("virtio_net 1.0.0"));
        assert_eq!(driver("Cannot get driver information\n"), None);
    }

    #[test]
    fn offloads_are_parsed_from_ethtool_and_grouped_by_state() {
        let text = "Features for eno1:\nrx-checksumming: on\ntx-checksumming: on\n\
                    \ttx-checksum-ipv4: off [fixed]\nscatter-gather: on\n\ttx-scatter-gather: on\n\
                    generic-segmentation-offload: on\ngeneric-receive-offload: off\n\
                    receive-hashing: on [fixed]\ntx-udp-segmentation: off [fixed]\n";
        let interface = Interface {
            driver: Some("ixgbe".into()),
            mtu: 1500,
            speed_mbps: Some(10_000),
            queues: (8, 8),
            offloads: offloads(text),
            ..Interface::default()
        };
        assert_eq!(
            interface.to_string(),
            "ixgbe, MTU 1500, 10000 Mbit/s, queues 8 rx 8 tx; on: rx-checksumming, tx-checksumming, \
             scatter-gather, generic-segmentation-offload, receive-hashing; off: \
             generic-receive-offload, tx-udp-segmentation"
        );
    }

    #[test]
    fn missing_host_has_no_interfaces() {
        assert!(list(&Network::Netns("no-such-lab".into())).is_empty());
    }
}
