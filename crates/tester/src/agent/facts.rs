//! Facts about a host, for `doctor` and for the environment section of results. They are read on request; nothing is
//! changed.

mod network;

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use serde::{Deserialize, Serialize};

use super::handshake::Welcome;
use crate::lab::{DNS_PORT, topology, zone};
use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::machine::interface::{self, Interface};
use crate::machine::network::Network;
use crate::machine::usage::UsageSnapshot;

/// Facts that `doctor` reads from a host. Values that cannot be read are `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The host and its program.
    pub identity: Welcome,
    /// CPUs that are online.
    pub cpus: CpuSet,
    /// All of its network interfaces, up or not, with their packets in [`LOOK_NS`].
    pub interfaces: Vec<Interface>,
    /// Interfaces of default routes, of IPv4 and IPv6.
    pub default_routes: Vec<String>,
    /// Whether the host forwards IPv6 between all interfaces.
    pub forwards_ipv6: Option<bool>,
    /// CPU frequency governors, each once; empty if they are not readable.
    pub governors: Vec<String>,
    /// Clock source of the kernel.
    pub clock_source: Option<String>,
    /// Running programs that steer the system clock, such as "chronyd".
    pub time_sync: Vec<String>,
    /// Load average over 1, 5 and 15 minutes.
    pub load_average: Option<String>,
    /// CPU time of all other processes in [`LOOK_NS`].
    pub others_cpu_ns: Nanos,
    /// The process that used most of it.
    pub busiest: Option<String>,
    /// Available memory.
    pub memory_available_bytes: Option<u64>,
    /// Free space on the disk of `/var`.
    pub disk_free_bytes: Option<u64>,
    /// Sockets that listen on port 53, such as "udp 127.0.0.53".
    pub port_53: Vec<String>,
    /// Whether a program that the agent starts may listen on port 53; `None` if unknown.
    pub may_serve: Option<bool>,
    /// Network namespaces of a local lab on the host: in use, or left over from a crash.
    pub lab_namespaces: Vec<String>,
}

impl HostFacts {
    /// Reads the facts of this machine, in the network namespace of this process. Takes [`LOOK_NS`].
    pub fn here() -> Self {
        let here = Machine::here();
        let before = UsageSnapshot::at(&here, &[]);
        let packets = interface::packets(&Network::Own);
        MonotonicClock.sleep(LOOK_NS);
        let others = UsageSnapshot::at(&here, &[]).others_since(&before);
        let mut facts = of_machine(&here);
        facts.others_cpu_ns = others.cpu_ns;
        facts.busiest = others.busiest.map(|process| process.name);
        facts.interfaces = interface::all(&Network::Own);
        for interface in &mut facts.interfaces {
            let before = packets.get(&interface.name).copied().unwrap_or(0);
            interface.packets = interface.packets.saturating_sub(before);
        }
        facts.default_routes = network::default_routes();
        let forwarding = here.sysctl("net.ipv6.conf.all.forwarding");
        facts.forwards_ipv6 = forwarding.map(|value| value == "1");
        facts.port_53 = network::listeners(&here, DNS_PORT);
        let first = here.sysctl("net.ipv4.ip_unprivileged_port_start");
        let first = first.and_then(|port| port.parse::<u16>().ok());
        let is_root = rustix::process::geteuid().is_root();
        facts.may_serve = first.map(|first| is_root || first <= DNS_PORT);
        facts
    }
}

/// Reads the facts that do not depend on the network namespace.
fn of_machine(here: &Machine) -> HostFacts {
    let text = |path: &str| here.read(path).unwrap_or_default();
    let mut programs = programs(here);
    programs.retain(|program| TIME_SYNC.contains(&program.as_str()));
    HostFacts {
        identity: Welcome::here(),
        cpus: text("/sys/devices/system/cpu/online")
            .parse()
            .unwrap_or_default(),
        governors: here.governors(),
        clock_source: here.clock_source(),
        time_sync: programs,
        load_average: here.load_average(),
        memory_available_bytes: here.memory_room(),
        disk_free_bytes: zone::free(&here.path("/var")),
        lab_namespaces: topology::leftovers(here),
        ..HostFacts::default()
    }
}

/// Names of all running programs, each once; the kernel truncates them to 15 characters.
fn programs(here: &Machine) -> Vec<String> {
    let names = here.names("/proc").into_iter();
    let pids = names.filter(|name| name.bytes().all(|it| it.is_ascii_digit()));
    let mut names: Vec<_> = pids
        .filter_map(|pid| here.read(&format!("/proc/{pid}/comm")))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Time for which traffic and processes are watched: 100 times the resolution of CPU times in Linux.
pub const LOOK_NS: Nanos = SECOND;

/// Programs that synchronise a clock over the network; names as truncated by the kernel.
const TIME_SYNC: [&str; 6] = [
    "chronyd",
    "ntpd",
    "openntpd",
    "ntpd-rs",
    "ntp-daemon",
    "systemd-timesyn",
];

#[cfg(test)]
mod tests;
