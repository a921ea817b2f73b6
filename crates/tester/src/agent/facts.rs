//! What a host says of itself, for `doctor` and for the environment of results. Read at the moment of asking;
//! nothing is changed.

mod network;

use std::path::Path;

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use serde::{Deserialize, Serialize};

pub use network::InterfaceFacts;

use super::program;
use crate::lab::LabError;
use crate::lab::cpuset::CpuSet;
use crate::lab::host::{Host, NETNS_DIR};
use crate::lab::machine::Machine;
use crate::lab::topology::NAME_PREFIX;
use crate::lab::usage::Look;

/// Everything that `doctor` asks of a host. What cannot be read is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its own name.
    pub hostname: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Another one with each start of the machine.
    pub boot_id: String,
    /// This program and its version.
    pub tester: String,
    /// SHA-256 of this program.
    pub tester_sha256: Option<String>,
    /// CPUs that are online.
    pub cpus: CpuSet,
    /// All of its network interfaces, up or not.
    pub interfaces: Vec<InterfaceFacts>,
    /// Interfaces of default routes, of IPv4 and IPv6.
    pub default_routes: Vec<String>,
    /// Whether it forwards IPv6 between all interfaces.
    pub forwards_ipv6: Option<bool>,
    /// Governors of the frequencies of its CPUs, each once; empty where they cannot be seen.
    pub governors: Vec<String>,
    /// What its kernel reads the time from.
    pub clock_source: Option<String>,
    /// Programs that run and steer its clock, such as "chronyd".
    pub time_sync: Vec<String>,
    /// Its clocks of PTP (IEEE 1588) and the programs for them, in words.
    pub ptp: Option<String>,
    /// Tasks that ran or waited, in the mean of 1, 5 and 15 minutes.
    pub load_average: Option<String>,
    /// CPU time of all other processes in [`LOOK_NS`].
    pub others_cpu_ns: Nanos,
    /// The one with most of it.
    pub busiest: Option<String>,
    /// Memory that may still be taken.
    pub memory_available_bytes: Option<u64>,
    /// Free on the disk below `/var`.
    pub disk_free_bytes: Option<u64>,
    /// Sockets that listen at port 53, such as "udp 127.0.0.53".
    pub port_53: Vec<String>,
    /// Whether what the agent starts may listen at port 53; `None` if that cannot be seen.
    #[serde(default)]
    pub may_serve: Option<bool>,
    /// Network namespaces of a local lab on it: in use, or left behind by a crash.
    pub lab_namespaces: Vec<String>,
}

impl HostFacts {
    /// Those of this machine in the network that this process is in. Takes [`LOOK_NS`].
    pub fn here() -> Self {
        Self::seen(&Host::Here)
    }

    /// Those of a network of this machine. Takes [`LOOK_NS`].
    ///
    /// # Errors
    ///
    /// There is no such network namespace, or this process may not join it.
    pub fn of(host: &Host) -> Result<Self, LabError> {
        host.enter(|| ())?;
        Ok(Self::seen(host))
    }

    fn seen(host: &Host) -> Self {
        let here = Machine::here();
        let before = Look::at(&here, &[]);
        let packets = network::packets(host);
        MonotonicClock.sleep(LOOK_NS);
        let others = Look::at(&here, &[]).others_since(&before);
        let mut facts = of_machine(&here);
        facts.others_cpu_ns = others.cpu_ns;
        facts.busiest = others.busiest.map(|process| process.name);
        facts.interfaces = network::interfaces(host, &packets);
        facts.default_routes = network::default_routes(host);
        // What a thread finds below these is of the network that it is in.
        let of_network = |here: &Machine| {
            let forwarding = here.sysctl("net.ipv6.conf.all.forwarding");
            let listeners = network::listeners(here, DNS_PORT);
            let first = here.sysctl("net.ipv4.ip_unprivileged_port_start");
            let first = first.and_then(|port| port.parse::<u16>().ok());
            (forwarding.map(|value| value == "1"), listeners, first)
        };
        if let Ok((forwards, listeners, first)) = host.enter(|| of_network(&here)) {
            facts.forwards_ipv6 = forwards;
            facts.port_53 = listeners;
            let is_root = rustix::process::geteuid().is_root();
            facts.may_serve = first.map(|first| is_root || first <= DNS_PORT);
        }
        facts
    }
}

/// What does not depend on the network that is looked at.
fn of_machine(here: &Machine) -> HostFacts {
    let text = |path: &str| here.read(path).unwrap_or_default();
    let programs = programs(here);
    let mut governors: Vec<_> = here.frequency_policies();
    governors.sort_by(|a, b| a.governor.cmp(&b.governor));
    let mut governors: Vec<_> = governors.into_iter().map(|it| it.governor).collect();
    governors.dedup();
    let mut namespaces = here.names(NETNS_DIR);
    namespaces.retain(|name| name.starts_with(NAME_PREFIX));
    namespaces.sort();
    HostFacts {
        hostname: text("/proc/sys/kernel/hostname"),
        kernel: text("/proc/sys/kernel/osrelease"),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        tester: crate::PROGRAM.to_owned(),
        tester_sha256: program::sha256(),
        cpus: text("/sys/devices/system/cpu/online")
            .parse()
            .unwrap_or_default(),
        governors,
        clock_source: here.clock_source(),
        time_sync: named(&programs, &TIME_SYNC),
        ptp: ptp(here, &programs),
        load_average: here.load_average(),
        memory_available_bytes: here.memory_room(),
        disk_free_bytes: disk_free_bytes(&here.path("/var")),
        lab_namespaces: namespaces,
        ..HostFacts::default()
    }
}

/// Names of all programs that run, each once, cut to 15 characters by the kernel.
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

fn named(programs: &[String], wanted: &[&str]) -> Vec<String> {
    let is_wanted = |name: &&String| wanted.contains(&name.as_str());
    programs.iter().filter(is_wanted).cloned().collect()
}

/// "ptp0 of ens1f0; ptp4l runs".
fn ptp(here: &Machine, programs: &[String]) -> Option<String> {
    let mut clocks = here.names("/sys/class/ptp");
    clocks.sort();
    let interfaces = here.names("/sys/class/net");
    let told: Vec<_> = clocks
        .iter()
        .map(|clock| {
            let has = |interface: &&String| {
                let path = format!("/sys/class/net/{interface}/device/ptp/{clock}");
                here.path(&path).exists()
            };
            let of = interfaces.iter().find(has).cloned();
            let of = of.or_else(|| here.read(&format!("/sys/class/ptp/{clock}/clock_name")));
            of.map_or_else(|| clock.clone(), |of| format!("{clock} of {of}"))
        })
        .collect();
    let runs = named(programs, &PTP);
    let runs = match runs.as_slice() {
        [] => "neither ptp4l nor phc2sys runs".to_owned(),
        [one] => format!("{one} runs"),
        both => format!("{} run", both.join(" and ")),
    };
    (!told.is_empty()).then(|| format!("{}; {runs}", told.join(", ")))
}

fn disk_free_bytes(path: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(path).ok()?;
    system.f_bavail.checked_mul(system.f_frsize)
}

/// For how long traffic and processes are watched: 100 times the step in which Linux counts CPU time.
pub const LOOK_NS: Nanos = SECOND;

/// RFC 1035 section 4.2.
const DNS_PORT: u16 = 53;

/// Programs that steer a clock by the network, as the kernel cuts their names.
const TIME_SYNC: [&str; 6] = [
    "chronyd",
    "ntpd",
    "openntpd",
    "ntpd-rs",
    "ntp-daemon",
    "systemd-timesyn",
];

/// Programs of linuxptp: one steers the clock of the interface, the other that of the system by it.
const PTP: [&str; 2] = ["ptp4l", "phc2sys"];

#[cfg(test)]
mod tests;
