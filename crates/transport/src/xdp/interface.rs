//! Information from Linux about interfaces and processors.

use std::io;

use super::netlink::{self, Netlink};
use super::program::{Mode, XdpError};

/// An interface for an XDP program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name.
    pub interface: String,
    /// Mode of the program.
    pub mode: Mode,
    /// Whether the interface may carry a default route of this host.
    pub force: bool,
}

/// Possible processors of the system: the number of values in a per-CPU map.
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// Routes of the calling thread's network namespace (proc(5)).
const ROUTES_V4: &str = "/proc/thread-self/net/route";
const ROUTES_V6: &str = "/proc/thread-self/net/ipv6_route";

/// `RTF_REJECT` of `linux/route.h`: the route discards packets.
const REJECT: u32 = 0x0200;

fn read(path: &'static str) -> Result<String, XdpError> {
    std::fs::read_to_string(path).map_err(|reason| XdpError::Facts {
        what: path.into(),
        reason,
    })
}

pub(super) fn possible_cpus() -> Result<usize, XdpError> {
    let text = read(POSSIBLE_CPUS)?;
    count_cpus(&text).ok_or_else(|| XdpError::Facts {
        what: POSSIBLE_CPUS.into(),
        reason: io::ErrorKind::InvalidData.into(),
    })
}

/// Number of processors in a list like `0-3,8`.
fn count_cpus(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.trim().split(',').map(count).sum()
}

/// The kernel's index of an interface in the calling thread's network namespace.
pub(super) fn index(interface: &str) -> Result<u32, XdpError> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    );
    let index = socket.and_then(|s| rustix::net::netdevice::name_to_index(s, interface));
    index.map_err(|e| XdpError::Facts {
        what: format!("interface {interface}").into(),
        reason: e.into(),
    })
}

/// Checks that XDP programs may be attached to an interface of the calling thread's network namespace. Without `force`,
/// an interface with a default route is refused: a mistake there cuts off remote users of this host.
///
/// # Errors
///
/// It may not be used; or the routes cannot be read.
pub fn allow(interface: &str, force: bool) -> Result<(), XdpError> {
    if force {
        return Ok(());
    }
    let v6 = read(ROUTES_V6).unwrap_or_default();
    let v4 = read(ROUTES_V4)?;
    if default_v4(&v4)
        .chain(default_v6(&v6))
        .any(|i| i == interface)
    {
        return Err(XdpError::DefaultRoute {
            interface: interface.to_owned(),
        });
    }
    Ok(())
}

/// Checks that a program can answer queries at an interface of the calling thread's network namespace: it has to see
/// each frame as the kernel does.
///
/// # Errors
///
/// The interface keeps VLAN tags beside its frames, or belongs to another one; or the kernel does not tell.
pub fn may_answer(interface: &str) -> Result<(), XdpError> {
    let unknown = |reason| XdpError::Facts {
        what: format!("the features of {interface}").into(),
        reason,
    };
    let index = index(interface)?;
    let facts = Netlink::open().and_then(|mut netlink| netlink.interface(index));
    let interface = interface.to_owned();
    if facts.map_err(unknown)?.master.is_some() {
        return Err(XdpError::Subordinate { interface });
    }
    match netlink::hides_tags(index).map_err(unknown)? {
        true => Err(XdpError::HiddenTags { interface }),
        false => Ok(()),
    }
}

/// Interfaces with a default route, from `/proc/net/route`: interface, destination, gateway, flags, three other fields,
/// mask.
fn default_v4(table: &str) -> impl Iterator<Item = &str> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        let is_usable = !rejects(fields.get(3)?);
        (is_default && is_usable).then(|| fields[0])
    })
}

/// The same from `/proc/net/ipv6_route`: destination, its length, source, its length, next hop, three other fields,
/// flags, interface.
fn default_v6(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = fields.get(1) == Some(&"00") && fields.get(3) == Some(&"00");
        let is_usable = !rejects(fields.get(8)?);
        (is_default && is_usable).then(|| fields.get(9).copied())?
    })
}

fn rejects(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & REJECT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists_are_counted() {
        let lists = ["0", "0-1\n", "0-3,8", "0,2,4-5"];
        assert_eq!(
            lists.map(count_cpus),
            [Some(1), Some(2), Some(5), Some(4)],
            "possible processors"
        );
        assert_eq!(count_cpus("3-1"), None);
        assert_eq!(count_cpus("many"), None);
    }

    #[test]
    fn a_default_route_names_its_interface() {
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                  eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  lab0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
        assert_eq!(default_v4(v4).collect::<Vec<_>>(), ["eth0"]);
    }

    #[test]
    fn reject_route_is_not_a_default_route() {
        let any = "00000000000000000000000000000000";
        let v6 = format!(
            "{any} 00 {any} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth1\n\
             {any} 00 {any} 00 {any} ffffffff 00000001 00000000 00200200       lo\n\
             20010db8000000000000000000000000 40 {any} 00 {any} 00000100 00000001 00000000 00000001 lab0\n"
        );
        assert_eq!(default_v6(&v6).collect::<Vec<_>>(), ["eth1"]);
    }
}
