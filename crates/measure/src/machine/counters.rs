//! Kernel counters of packets and packet losses on a host: of sockets, IP, interfaces and queues. They are read from
//! `/proc`, `/sys`, `tc` and `ethtool`; nothing is changed.
//!
//! Units, measured on Linux 6.18 with segmented datagrams (`UDP_SEGMENT`) over a veth link:
//!
//! - `Udp6OutDatagrams`, `Ip6OutRequests`, `Ip6OutTransmits`, `Ip6InReceives`, `Ip6InDelivers` and the packets of an
//!   interface count a segmented datagram once, as it is sent.
//! - `Ip6InNoECTPkts`, `InECT0Pkts`, `InECT1Pkts` and `InCEPkts` count each of its segments. They are the only counters
//!   of received datagrams, and exist for each interface.
//! - `Udp6InDatagrams` counts the reads of a program: segments, or with `UDP_GRO` groups of them.
//! - A drop (`RcvbufErrors`, `SndbufErrors`, `OutDiscards`, drops of queues and interfaces) counts a packet, which can
//!   hold up to [`SEGMENTS_MAX`] datagrams.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::{As, Same};

use super::Machine;
use super::interface::{INTERFACES_MAX, output};
use super::network::Network;

/// Most datagrams in one packet of a virtual link: `UDP_MAX_SEGMENTS` since Linux 6.9; before, it was 64.
pub const SEGMENTS_MAX: u64 = 128;

/// Name of a counter of one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Counter {
    /// Its interface; `None` for a counter of the whole host.
    pub link: Option<String>,
    /// The layer that counts.
    pub layer: Layer,
    /// The kernel's name for it.
    pub name: String,
}

/// Layer of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// UDP over IPv4 (`/proc/net/snmp`).
    Udp,
    /// UDP over IPv6 (`/proc/net/snmp6`).
    Udp6,
    /// IPv4 (`/proc/net/snmp`).
    Ip,
    /// IPv6, of the host or of one interface (`/proc/net/snmp6`, `/proc/net/dev_snmp6`).
    Ip6,
    /// ICMPv6; same files.
    Icmp6,
    /// The interface (`/proc/net/dev`, `/sys/class/net/*/statistics`).
    Device,
    /// A queueing discipline of the interface, by its kind (`tc -s qdisc`).
    Queue(String),
    /// A receive queue of the interface, by its number (`ethtool -S`).
    Receive(u16),
    /// Receiving processors, of the whole machine (`/proc/net/softnet_stat`).
    Softnet,
}

impl Counter {
    /// A counter of the whole host.
    pub fn of_host(layer: Layer, name: &str) -> Self {
        Self {
            link: None,
            layer,
            name: name.to_owned(),
        }
    }

    /// A counter of an interface.
    pub fn of_link(link: &str, layer: Layer, name: &str) -> Self {
        Self {
            link: Some(link.to_owned()),
            ..Self::of_host(layer, name)
        }
    }

    /// Returns whether it counts losses or their causes. Sums of other counters (`InErrors`) are excluded, and so are
    /// counters that IPv6 keeps for the interface and for the host.
    pub fn is_of_losses(&self) -> bool {
        let names: &[&str] = match self.layer {
            Layer::Udp | Layer::Udp6 => &[
                "RcvbufErrors",
                "SndbufErrors",
                "NoPorts",
                "InCsumErrors",
                "MemErrors",
            ],
            Layer::Ip => &["InDiscards", "OutDiscards", "OutNoRoutes"],
            Layer::Ip6 if self.link.is_none() => &["InDiscards", "OutDiscards", "OutNoRoutes"],
            Layer::Ip6 | Layer::Icmp6 | Layer::Receive(_) => &[],
            Layer::Device => &DEVICE_LOSSES,
            Layer::Queue(_) => &["drops", "overlimits"],
            Layer::Softnet => &["dropped", "time_squeeze"],
        };
        names.contains(&self.name.as_str())
    }

    /// Returns whether it is read only if queues are requested.
    fn is_of_queue(&self) -> bool {
        matches!(self.layer, Layer::Queue(_) | Layer::Receive(_))
    }
}

impl fmt::Display for Counter {
    /// Formats it without the interface: "udp6 `SndbufErrors`", "tbf drops".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = match &self.layer {
            Layer::Udp => "udp",
            Layer::Udp6 => "udp6",
            Layer::Ip => "ip",
            Layer::Ip6 => "ip6",
            Layer::Icmp6 => "icmp6",
            Layer::Device => "interface",
            Layer::Queue(kind) => kind,
            Layer::Receive(queue) => return write!(f, "receive queue {queue} {}", self.name),
            Layer::Softnet => "softnet",
        };
        write!(f, "{layer} {}", self.name)
    }
}

/// All counters of a host at one moment, or their increase between two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterReading {
    #[serde(with = "As::<Vec<(Same, Same)>>")]
    counters: BTreeMap<Counter, u64>,
    /// Whether the queues were read.
    has_queues: bool,
}

impl CounterReading {
    /// Reads the counters of `host`; `None` if it does not exist or has no `/proc`. This takes well below a
    /// millisecond; with `queues` it starts `tc` and `ethtool` and takes a few.
    pub fn of(host: &Network, queues: bool) -> Option<Self> {
        let here = *host == Network::Own;
        host.enter(|| Self::here(queues, here)).ok().flatten()
    }

    /// Reads the counters of this thread's network namespace.
    fn here(queues: bool, sysfs: bool) -> Option<Self> {
        let machine = Machine::here();
        let file = |name: &str| machine.read(&format!("/proc/thread-self/net/{name}"));
        let mut reading = Self::default();
        reading.snmp(&file("snmp")?);
        reading.netstat(&file("netstat").unwrap_or_default());
        reading.snmp6(None, &file("snmp6").unwrap_or_default());
        let links = reading.devices(&file("dev")?);
        for link in &links {
            let of_link = file(&format!("dev_snmp6/{link}"));
            reading.snmp6(Some(link), &of_link.unwrap_or_default());
            // `/sys` shows the network namespace in which it was mounted.
            let missed = format!("/sys/class/net/{link}/statistics/rx_missed_errors");
            let missed = sysfs.then(|| machine.read(&missed)).flatten();
            if let Some(missed) = missed.and_then(|text| text.parse().ok()) {
                reading.note(Counter::of_link(link, Layer::Device, "rx_missed"), missed);
            }
        }
        reading.softnet(&file("softnet_stat").unwrap_or_default());
        // This thread may be in another network, which the programs inherit.
        let said = |program, words: &[&str]| output(&Network::Own, program, words);
        let tc = || said("tc", &["-s", "-j", "qdisc", "show"]);
        if let Some(text) = queues.then(tc).flatten() {
            reading.queues(&text);
            let links = links.iter().filter(|link| *link != "lo");
            for link in links.take(INTERFACES_MAX) {
                let text = said("ethtool", &["-S", link]);
                reading.receive_queues(link, &text.unwrap_or_default());
            }
        }
        Some(reading)
    }

    /// Keeps only the counters of the whole host and of these interfaces, which are renamed. Counters of interfaces
    /// that get the same name are added.
    #[must_use]
    pub fn of_links(self, names: &BTreeMap<String, String>) -> Self {
        let mut counters = BTreeMap::new();
        for (mut counter, count) in self.counters {
            if let Some(link) = counter.link {
                let Some(name) = names.get(&link) else {
                    continue;
                };
                counter.link = Some(name.clone());
            }
            *counters.entry(counter).or_default() += count;
        }
        Self { counters, ..self }
    }

    /// Adds the counters of another host.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        for (counter, count) in other.counters {
            *self.counters.entry(counter).or_default() += count;
        }
        self.has_queues &= other.has_queues;
        self
    }

    /// Returns a counter; 0 if the kernel does not have it.
    pub fn get(&self, counter: &Counter) -> u64 {
        self.counters.get(counter).copied().unwrap_or(0)
    }

    /// Returns the counters of losses.
    pub fn losses(&self) -> impl Iterator<Item = (&Counter, u64)> {
        let counted = self.counters.iter().map(|(counter, n)| (counter, *n));
        counted.filter(|(counter, n)| *n > 0 && counter.is_of_losses())
    }

    /// Returns the counter of this name for each queueing discipline of an interface. Nested ones each count the same
    /// drop, so they must not be added.
    pub fn of_queues(&self, link: &str, name: &str) -> Vec<(Counter, u64)> {
        let of_link = self.counters.iter().filter(|(counter, _)| {
            counter.link.as_deref() == Some(link) && counter.is_of_queue() && counter.name == name
        });
        of_link.map(|(c, n)| (c.clone(), *n)).collect()
    }

    /// Returns the number of packets received in each receive queue of an interface, if it counts them.
    pub fn received_by_queue(&self, link: &str) -> Vec<u64> {
        let of_link = self.counters.iter().filter(|(counter, _)| {
            counter.link.as_deref() == Some(link) && matches!(counter.layer, Layer::Receive(_))
        });
        of_link.map(|(_, packets)| *packets).collect()
    }

    /// Returns the increase since an earlier reading. A counter that decreased was reset and gives 0. A queue that did
    /// not exist before counts from 0, unless queues were not read then.
    pub fn since(&self, before: &Self) -> Self {
        let is_known = |counter: &Counter| before.has_queues || !counter.is_of_queue();
        let known = self
            .counters
            .iter()
            .filter(|(counter, _)| is_known(counter));
        let gone = |(counter, now): (&Counter, &u64)| {
            (counter.clone(), now.saturating_sub(before.get(counter)))
        };
        Self {
            counters: known.map(gone).collect(),
            has_queues: self.has_queues && before.has_queues,
        }
    }

    /// Adds the queue counters of another reading of the same host.
    pub fn with_queues_of(mut self, other: &Self) -> Self {
        let queues = other.counters.iter();
        let queues = queues.filter(|(counter, _)| counter.is_of_queue());
        self.has_queues = other.has_queues;
        self.counters.extend(queues.map(|(c, n)| (c.clone(), *n)));
        self
    }

    fn note(&mut self, counter: Counter, value: u64) {
        *self.counters.entry(counter).or_default() += value;
    }

    fn snmp(&mut self, text: &str) {
        self.pairs(text, &[("Ip: ", Layer::Ip), ("Udp: ", Layer::Udp)]);
    }

    /// Parses `/proc/net/netstat`, which has the counters that are not in `/proc/net/snmp`, such as those of multicast.
    fn netstat(&mut self, text: &str) {
        self.pairs(text, &[("IpExt: ", Layer::Ip)]);
    }

    /// Parses `/proc/net/snmp` or `/proc/net/netstat`: for each protocol a line of names and a line of values.
    fn pairs(&mut self, text: &str, layers: &[(&str, Layer)]) {
        for (prefix, layer) in layers {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(*prefix));
            let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
                continue;
            };
            let pairs = names.split_whitespace().zip(values.split_whitespace());
            for (name, value) in pairs {
                if let Ok(value) = value.parse() {
                    self.note(Counter::of_host(layer.clone(), name), value);
                }
            }
        }
    }

    /// Parses `/proc/net/snmp6` or a file in `/proc/net/dev_snmp6`: a name and a value on each line.
    fn snmp6(&mut self, link: Option<&str>, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            let layers = [
                ("Ip6", Layer::Ip6),
                ("Udp6", Layer::Udp6),
                ("Icmp6", Layer::Icmp6),
            ];
            let known = layers.into_iter().find_map(|(prefix, layer)| {
                let name = name.strip_prefix(prefix)?;
                // ICMPv6 has a counter for each type.
                (layer != Layer::Icmp6 || name == "InMsgs").then_some((layer, name))
            });
            if let (Some((layer, name)), Ok(value)) = (known, value.parse()) {
                let counter = Counter::of_host(layer, name);
                let link = link.map(str::to_owned);
                self.note(Counter { link, ..counter }, value);
            }
        }
    }

    /// Parses `/proc/net/dev`: two header lines, then one line for each interface. Returns the interfaces.
    fn devices(&mut self, text: &str) -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let mut links = Vec::new();
        for (link, values) in lines {
            let link = link.trim();
            for (name, value) in DEVICE_COLUMNS.iter().zip(values.split_whitespace()) {
                if let Ok(value) = value.parse() {
                    self.note(Counter::of_link(link, Layer::Device, name), value);
                }
            }
            links.push(link.to_owned());
        }
        links
    }

    /// Parses `/proc/net/softnet_stat`: a line for each processor in hexadecimal: processed, dropped, time squeezed,
    /// ...
    fn softnet(&mut self, text: &str) {
        for line in text.lines() {
            let words = line.split_whitespace().skip(1);
            for (name, value) in ["dropped", "time_squeeze"].into_iter().zip(words) {
                if let Ok(value) = u64::from_str_radix(value, 16) {
                    self.note(Counter::of_host(Layer::Softnet, name), value);
                }
            }
        }
    }

    /// Parses the counters of received packets in `ethtool -S LINK`, whose names depend on the driver.
    fn receive_queues(&mut self, link: &str, text: &str) {
        for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
            if let (Some(queue), Ok(packets)) = (receive_queue(name.trim()), value.trim().parse()) {
                self.note(
                    Counter::of_link(link, Layer::Receive(queue), "packets"),
                    packets,
                );
            }
        }
    }

    /// Parses `tc -s -j qdisc show`.
    fn queues(&mut self, text: &str) {
        let Ok(queues) = serde_json::from_str::<Vec<TcQueue>>(text) else {
            return;
        };
        self.has_queues = true;
        for TcQueue {
            kind,
            dev,
            drops,
            overlimits,
        } in queues
        {
            for (name, value) in [("drops", drops), ("overlimits", overlimits)] {
                let layer = Layer::Queue(kind.clone());
                self.note(Counter::of_link(&dev, layer, name), value);
            }
        }
    }
}

impl FromIterator<(Counter, u64)> for CounterReading {
    fn from_iter<I: IntoIterator<Item = (Counter, u64)>>(counters: I) -> Self {
        Self {
            counters: counters.into_iter().collect(),
            has_queues: true,
        }
    }
}

/// The columns of `/proc/net/dev`, with the names of `/sys/class/net/*/statistics`. `rx_drop` contains `rx_missed`.
const DEVICE_COLUMNS: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errs",
    "rx_drop",
    "rx_fifo",
    "rx_frame",
    "rx_compressed",
    "rx_multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errs",
    "tx_drop",
    "tx_fifo",
    "tx_colls",
    "tx_carrier",
    "tx_compressed",
];

/// The columns that count losses.
const DEVICE_LOSSES: [&str; 9] = [
    "rx_errs",
    "rx_drop",
    "rx_fifo",
    "rx_frame",
    "rx_missed",
    "tx_errs",
    "tx_drop",
    "tx_fifo",
    "tx_carrier",
];

/// A queueing discipline in the output of `tc`.
#[derive(Deserialize)]
struct TcQueue {
    kind: String,
    dev: String,
    #[serde(default)]
    drops: u64,
    #[serde(default)]
    overlimits: u64,
}

/// Number of the receive queue in the name of a packet counter: `rx_queue_0_packets` (ixgbe, igb, ice, virtio_net),
/// `rx-0.packets` (i40e), `rx0_packets` (mlx5), `rx_queue_0_xdp_packets` (a veth link, which counts only packets that
/// reach an XDP program).
fn receive_queue(name: &str) -> Option<u16> {
    let rest = name.strip_prefix("rx")?;
    let rest = ["_queue_", "-"]
        .into_iter()
        .find_map(|prefix| rest.strip_prefix(prefix))
        .unwrap_or(rest);
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (number, kind) = rest.split_at(end);
    ["_packets", ".packets", "_xdp_packets"]
        .contains(&kind)
        .then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests;
