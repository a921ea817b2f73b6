//! The hosts, links and addresses of a benchmark.
//!
//! ```text
//! three devices (see below)                   two devices (RFC 8219, section 9)
//!
//!   measurer ---client--- dut                   tester ---client---- dut
//!                          |                       \                  |
//!                       upstream                    +-----upstream----+
//!                          |
//!                      authority
//! ```
//!
//! Three devices: Lencse, Pivoda and Shima 2021, figure 13. A self-test leaves out the DNS64 server (RFC 8219 section
//! 9.2.1): for it, Measurer and authority have a link of their own, as in section 4.1 there. Nothing is forwarded: the
//! kernel would forward at the expense of the core that sends, which no trial with a DUT does.
//!
//! Each host is a network namespace, each link a veth pair. The third setup has no hosts of its own: all roles share
//! the loopback interface of this machine.

mod site;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::xdp::netlink::{self, Netlink};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::routes::{IP_LIMIT, Route};
use super::{Blame, DNS_PORT, LabError, server};
use crate::load::sources::Sources;
use crate::machine::network::{NETNS_DIR, Network};
use crate::machine::watch::HostOf;
use crate::machine::{Machine, Role, process};

/// How many hosts the lab has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setup {
    /// Measurer, DUT and authority on a host each
    ///
    /// Paper 004, figure 13.
    #[default]
    ThreeDevice,
    /// Measurer and authority on one host, the DUT on the other
    ///
    /// RFC 8219 section 9.
    TwoDevice,
    /// None of its own: everything on the loopback interface of this machine. Not a measurement,
    /// and chosen by [`super::LabKind::Loopback`] alone.
    #[serde(skip_deserializing)]
    Loopback,
}

impl Setup {
    /// The network of `role`.
    pub fn network(self, role: Role) -> Network {
        match (self, role) {
            (Self::Loopback, _) => Network::Own,
            (_, Role::Dut) => Network::Netns(DUT.into()),
            (Self::TwoDevice, _) => Network::Netns(TESTER.into()),
            (Self::ThreeDevice, Role::Measurer) => Network::Netns(MEASURER.into()),
            (Self::ThreeDevice, Role::Authority) => Network::Netns(AUTHORITY.into()),
        }
    }

    /// The host of `role` in results. A host of several roles has one name.
    pub fn host_of(self, role: Role) -> HostOf {
        match (self, role) {
            (Self::Loopback, _) => HostOf::Machine,
            (Self::TwoDevice, Role::Measurer | Role::Authority) => HostOf::Tester,
            (Self::TwoDevice | Self::ThreeDevice, role) => role.into(),
        }
    }

    /// Returns `on_link` with the DNS port, or `on_loopback` for the setup without links.
    fn pick<A>(self, on_link: A, on_loopback: (A, u16)) -> (A, u16) {
        match self {
            Self::Loopback => on_loopback,
            Self::TwoDevice | Self::ThreeDevice => (on_link, DNS_PORT),
        }
    }

    /// Address and port of the DUT for the Measurer.
    pub fn dut(self) -> (Ipv6Addr, u16) {
        self.pick(CLIENT_LINK_DUT, (Ipv6Addr::LOCALHOST, LOOPBACK_DUT_PORT))
    }

    /// IPv6 address and port of the authority for the DUT.
    pub fn upstream_v6(self) -> (IpAddr, u16) {
        let (address, port) = self.pick(UPSTREAM_LINK_AUTHORITY, LOOPBACK_AUTHORITY);
        (address.into(), port)
    }

    /// The same over IPv4.
    pub fn upstream_v4(self) -> (IpAddr, u16) {
        let on_loopback = (Ipv4Addr::LOCALHOST, LOOPBACK_AUTHORITY.1);
        let (address, port) = self.pick(UPSTREAM_LINK_AUTHORITY_V4, on_loopback);
        (address.into(), port)
    }

    /// Address and port of the authority for the Measurer in a self-test (RFC 8219 section 9.2.1): with three devices at
    /// the link between them, with two those for the DUT over IPv6, at the Tester's loopback interface.
    pub fn self_test(self) -> (Ipv6Addr, u16) {
        let on_link = match self {
            Self::ThreeDevice => SELF_TEST_LINK_AUTHORITY,
            Self::TwoDevice | Self::Loopback => UPSTREAM_LINK_AUTHORITY,
        };
        self.pick(on_link, LOOPBACK_AUTHORITY)
    }

    /// Writes the hosts and their addresses, one line each.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn describe(self, out: &mut impl Write) -> std::io::Result<()> {
        let (dut, v4, v6) = (self.dut(), self.upstream_v4(), self.upstream_v6());
        let (measurer, _) = self.pick(CLIENT_LINK_MEASURER, LOOPBACK_AUTHORITY);
        for (role, host, at) in [
            ("measurer", Role::Measurer, measurer.to_string()),
            ("dut", Role::Dut, format!("{} port {}", dut.0, dut.1)),
            (
                "authority",
                Role::Authority,
                format!("{}, {} port {}", v4.0, v6.0, v4.1),
            ),
        ] {
            writeln!(out, "{role:<10} {}: {at}", self.network(host))?;
        }
        Ok(())
    }

    /// The addresses of its links.
    pub fn addresses(self) -> Vec<IpAddr> {
        match self {
            Self::Loopback => Vec::new(),
            Self::TwoDevice | Self::ThreeDevice => vec![
                CLIENT_LINK_MEASURER.into(),
                CLIENT_LINK_DUT.into(),
                UPSTREAM_LINK_DUT.into(),
                UPSTREAM_LINK_AUTHORITY.into(),
                UPSTREAM_LINK_DUT_V4.into(),
                UPSTREAM_LINK_AUTHORITY_V4.into(),
                SELF_TEST_LINK_MEASURER.into(),
                SELF_TEST_LINK_AUTHORITY.into(),
            ],
        }
    }

    /// The `ip` commands that create the hosts and links, in order.
    fn plan(self) -> Vec<String> {
        let (measurer, authority) = match self {
            Self::Loopback => return Vec::new(),
            Self::TwoDevice => (TESTER, TESTER),
            Self::ThreeDevice => (MEASURER, AUTHORITY),
        };
        let client = [vec![v6(CLIENT_LINK_MEASURER)], vec![v6(CLIENT_LINK_DUT)]];
        let upstream = [
            vec![v6(UPSTREAM_LINK_DUT), v4(UPSTREAM_LINK_DUT_V4)],
            vec![v6(UPSTREAM_LINK_AUTHORITY), v4(UPSTREAM_LINK_AUTHORITY_V4)],
        ];
        let hosts = match self {
            Self::TwoDevice => vec![TESTER, DUT],
            _ => vec![MEASURER, DUT, AUTHORITY],
        };
        let mut plan = Vec::new();
        for host in hosts {
            plan.push(format!("netns add {host}"));
            plan.push(format!("-n {host} link set lo up"));
        }
        plan_link(CLIENT, [measurer, DUT], &client, &mut plan);
        plan_link(UPSTREAM, [DUT, authority], &upstream, &mut plan);
        if self == Self::ThreeDevice {
            let ends = [SELF_TEST_LINK_MEASURER, SELF_TEST_LINK_AUTHORITY];
            let ends = ends.map(|address| vec![v6(address)]);
            plan_link(SELF_TEST, [MEASURER, AUTHORITY], &ends, &mut plan);
        }
        plan
    }
}

/// Default pref64 of the lab's DUTs: a network-specific prefix (RFC 6052 section 2.2) in the benchmarking range,
/// because a server may refuse to embed private IPv4 addresses in the well-known prefix (RFC 6052 section 3.1).
pub const PREF64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2001, 2, 0, 0x6464, 0, 0, 0, 0), 96);

/// Name of the link between DUT and authority, likewise.
pub const UPSTREAM_LINK: &str = "upstream";

/// Name of the link between Measurer and authority, likewise.
pub const SELF_TEST_LINK: &str = "self-test";

/// Name of a link, and the MAC addresses of its ends.
type VethLink = (&'static str, [&'static str; 2]);

/// The commands for one veth pair; both ends have its name.
fn plan_link(
    (name, macs): VethLink,
    [left, right]: [&str; 2],
    addresses: &[Vec<String>; 2],
    plan: &mut Vec<String>,
) {
    let ends = [left, right];
    plan.push(format!(
        "-n {left} link add {name} address {} type veth peer name {name} address {} netns {right}",
        macs[0], macs[1]
    ));
    for (host, addresses) in ends.iter().zip(addresses) {
        // Without link-local addresses only the benchmark sends on the link; `nodad` makes the addresses usable at
        // once.
        plan.push(format!("-n {host} link set {name} addrgenmode none up"));
        for address in addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            plan.push(format!("-n {host} address add {address} dev {name}{nodad}"));
        }
    }
}

/// The source addresses of the Measurer, and the ways back to them. The Measurer has to know its neighbours: it cannot ask
/// for them from an address that is local by a route alone.
fn plan_sources(setup: Setup, sources: Sources) -> Vec<String> {
    let name = |role| match setup.network(role) {
        Network::Netns(name) => Some(name),
        Network::Own => None,
    };
    let roles = [Role::Measurer, Role::Dut, Role::Authority].map(name);
    let [Some(measurer), Some(dut), Some(authority)] = roles else {
        return Vec::new();
    };
    let (client, [_, dut_mac]) = CLIENT;
    let mut plan = vec![
        format!("-n {measurer} {}", Route::Local(sources)),
        format!(
            "-n {measurer} neigh add {CLIENT_LINK_DUT} lladdr {dut_mac} dev {client} nud permanent"
        ),
        format!("-n {dut} {}", Route::Via(sources, CLIENT_LINK_MEASURER)),
    ];
    if authority != measurer {
        let (link, [_, mac]) = SELF_TEST;
        plan.extend([
            format!(
                "-n {measurer} neigh add {SELF_TEST_LINK_AUTHORITY} lladdr {mac} dev {link} nud permanent"
            ),
            format!("-n {authority} {}", Route::Via(sources, SELF_TEST_LINK_MEASURER)),
        ]);
    }
    plan
}

/// Keeps VLAN tags in the frames of a host's links, so that XDP programs see them. Without that, they refuse the links.
fn show_tags() {
    let links = Netlink::open().and_then(|mut netlink| netlink.interfaces());
    for link in links.into_iter().flatten().filter(|link| link.is_veth) {
        // Only links with such programs need it.
        let _ = netlink::show_tags(link.index);
    }
}

fn v6(address: Ipv6Addr) -> String {
    format!("{address}/64")
}

fn v4(address: Ipv4Addr) -> String {
    format!("{address}/24")
}

/// A lab that is up. Dropping it removes it.
#[derive(Debug)]
pub struct Lab {
    setup: Setup,
    /// Held while the lab is in use; `None` for [`Setup::Loopback`], which creates nothing.
    lock: Option<File>,
    keep: bool,
}

impl Lab {
    /// Brings `setup` up, with a Measurer that has the addresses `sources` as well. On the loopback interface nothing is made:
    /// they have to be this machine's. Whatever a crashed process left is cleaned up first.
    ///
    /// # Errors
    ///
    /// Another process uses the lab, a lab was [left up](Self::leave_up), this process may not create namespaces, or `ip` failed; everything created until
    /// then is removed.
    pub fn up(setup: Setup, sources: Option<Sources>) -> Result<Self, LabError> {
        let mut lab = Self {
            setup,
            lock: None,
            keep: false,
        };
        if setup == Setup::Loopback {
            return Ok(lab);
        }
        let lock = lock(Path::new(LOCK))?;
        if Path::new(LEFT_UP).exists() {
            return Err(Blame::Machine.error(
                "a lab of `dns64bench lab up` exists; remove it with `dns64bench lab down`, which ends the processes in \
                 it",
            ));
        }
        lab.lock = Some(lock);
        clean()?;
        let sources = sources.map(|sources| plan_sources(setup, sources));
        for command in setup
            .plan()
            .into_iter()
            .chain(sources.into_iter().flatten())
        {
            ip(&command)?;
        }
        for role in [Role::Measurer, Role::Dut, Role::Authority] {
            setup.network(role).enter(show_tags)?;
        }
        Ok(lab)
    }

    /// The setup of the lab.
    pub fn setup(&self) -> Setup {
        self.setup
    }

    /// Keeps the hosts and links when this guard is dropped, until [`down`] removes them.
    ///
    /// # Errors
    ///
    /// Those of the file that says so.
    pub fn leave_up(mut self) -> Result<(), LabError> {
        let failed = || Blame::Machine.because(format!("cannot write {LEFT_UP}"));
        std::fs::write(LEFT_UP, "").map_err(failed())?;
        self.keep = true;
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.lock.is_some() && !self.keep {
            // An error is ignored: the next `up` or `down` meets and reports it.
            let _ = clean();
        }
    }
}

/// Ends all processes in the lab's namespaces, then deletes the namespaces and the files of servers whose Tester has
/// crashed. Succeeds if there are none.
///
/// # Errors
///
/// Another process uses the lab, a process could not be ended, or `ip` failed.
pub fn down() -> Result<(), LabError> {
    let _lock = lock(Path::new(LOCK))?;
    clean()?;
    server::sweep_abandoned();
    Ok(())
}

/// Names of the lab's existing namespaces on a machine.
pub fn leftovers(machine: &Machine) -> Vec<String> {
    let mut names = machine.names(NETNS_DIR);
    names.retain(|name| name.starts_with(NAME_PREFIX));
    names.sort();
    names
}

fn clean() -> Result<(), LabError> {
    let names = leftovers(&Machine::here());
    let mut left = pids(&names)?;
    for (signal, patience) in [(Signal::TERM, TERM_PATIENCE), (Signal::KILL, KILL_PATIENCE)] {
        if left.is_empty() {
            break;
        }
        for &pid in &left {
            process::signal(pid, signal);
        }
        process::wait_until(patience, || pids(&names).is_ok_and(|pids| pids.is_empty()));
        left = pids(&names)?;
    }
    if !left.is_empty() {
        return Err(Blame::Machine.error(format!(
            "processes {left:?} in the lab's namespaces cannot be killed; `ps` shows whether they are in state \
             D (uninterruptible)"
        )));
    }
    for name in names {
        ip(&format!("netns delete {name}"))?;
    }
    match std::fs::remove_file(LEFT_UP) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Blame::Machine
            .because(format!("cannot remove {LEFT_UP}"))(
            error
        )),
        _ => Ok(()),
    }
}

/// Processes in the namespaces except this one, which may have been started in one of them.
fn pids(names: &[String]) -> Result<Vec<u32>, LabError> {
    let mut all: Vec<u32> = Vec::new();
    for name in names {
        let output = ip(&format!("netns pids {name}"))?;
        all.extend(
            output
                .lines()
                .filter_map(|line| line.trim().parse::<u32>().ok()),
        );
    }
    all.retain(|&pid| pid != std::process::id());
    Ok(all)
}

fn ip(arguments: &str) -> Result<String, LabError> {
    let mut command = Command::new("ip");
    let end = process::run(command.args(arguments.split(' ')), IP_LIMIT).map_err(
        Blame::Machine.because("the lab needs the Debian packages iproute2 and util-linux"),
    )?;
    if end.status.success() {
        return Ok(end.stdout);
    }
    let reason = end.stderr.trim();
    let denied = reason.contains("not permitted") || reason.contains("denied");
    Err(Blame::Machine.error(match denied {
        true => {
            format!("no permission for `ip {arguments}`; a lab needs root or a user namespace")
        }
        false => format!("`ip {arguments}` failed: {reason}"),
    }))
}

/// Locks the lock file, or returns an error that names the holder. The kernel releases the lock however its holder
/// ends.
fn lock(path: &Path) -> Result<File, LabError> {
    let refused = |reason: std::io::Error| {
        let what = format!(
            "cannot lock the lab at {}; a lab needs root or a user namespace",
            path.display()
        );
        Blame::Machine.because(what)(reason)
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(refused)?;
    }
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(refused)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        file.read_to_string(&mut holder).map_err(refused)?;
        let holder = holder.trim();
        return Err(Blame::Machine.error(format!(
            "the lab is in use by {holder}; wait until it has finished, or stop it"
        )));
    }
    let words: Vec<String> = std::env::args().collect();
    file.set_len(0).map_err(refused)?;
    file.rewind().map_err(refused)?;
    writeln!(file, "process {} ({})", std::process::id(), words.join(" ")).map_err(refused)?;
    Ok(file)
}

const LOCK: &str = "/run/dns64bench/lab.lock";
/// Exists while a lab without a process is up.
const LEFT_UP: &str = "/run/dns64bench/lab.up";
/// Name prefix of all of the lab's namespaces, which distinguishes them from others.
const NAME_PREFIX: &str = "dns64bench-";
const MEASURER: &str = "dns64bench-measurer";
const TESTER: &str = "dns64bench-tester";
const DUT: &str = "dns64bench-dut";
const AUTHORITY: &str = "dns64bench-authority";

/// Ports distinguish the servers on the shared loopback interface. They are not assigned by IANA and are below the
/// ephemeral ports of Linux (from 32768, ip(7)).
const LOOPBACK_DUT_PORT: u16 = 10_053;
const LOOPBACK_AUTHORITY: (Ipv6Addr, u16) = (Ipv6Addr::LOCALHOST, 10_054);

// 2001:2::/48 (RFC 5180 section 8) and 198.18.0.0/15 (RFC 2544 appendix C.2.2), both reserved
// for benchmarking.
const CLIENT_LINK_MEASURER: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 1);
const CLIENT_LINK_DUT: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 2);
const UPSTREAM_LINK_DUT: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 1);
const UPSTREAM_LINK_AUTHORITY: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 2);
const SELF_TEST_LINK_MEASURER: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 3, 0, 0, 0, 1);
const SELF_TEST_LINK_AUTHORITY: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 3, 0, 0, 0, 2);
const UPSTREAM_LINK_DUT_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const UPSTREAM_LINK_AUTHORITY_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// Locally administered addresses (IEEE 802, section 8.4) do not conflict with those of devices.
const CLIENT: VethLink = ("client", ["02:00:00:00:01:01", "02:00:00:00:01:02"]);
const UPSTREAM: VethLink = (UPSTREAM_LINK, ["02:00:00:00:02:01", "02:00:00:00:02:02"]);
const SELF_TEST: VethLink = (SELF_TEST_LINK, ["02:00:00:00:03:01", "02:00:00:00:03:02"]);

/// Servers may write caches and logs before they end.
const TERM_PATIENCE: Nanos = 3 * SECOND;
const KILL_PATIENCE: Nanos = 5 * SECOND;

#[cfg(test)]
mod tests;
