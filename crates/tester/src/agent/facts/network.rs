//! Default routes and listening sockets of a host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

use crate::machine::Machine;
use crate::machine::interface;
use crate::machine::network::Network;

/// Interfaces of the default routes of a host, each once.
pub(super) fn default_routes() -> Vec<String> {
    let show = |family| {
        let words = ["-j", family, "route", "show", "default"];
        interface::output(&Network::Own, "ip", &words).unwrap_or_default()
    };
    let mut interfaces = ["-4", "-6"]
        .map(|family| from_routes(&show(family)))
        .concat();
    interfaces.sort();
    interfaces.dedup();
    interfaces
}

fn from_routes(text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Hop {
        dev: Option<String>,
        #[serde(default)]
        nexthops: Vec<Self>,
    }
    let routes: Vec<Hop> = serde_json::from_str(text).unwrap_or_default();
    let hops = routes.into_iter().flat_map(|route| {
        let more = route.nexthops.into_iter().map(|hop| hop.dev);
        std::iter::once(route.dev).chain(more)
    });
    hops.flatten().collect()
}

/// Lists the sockets that listen on a port in the network namespace of this thread: protocol and address, each once.
pub(super) fn listeners(here: &Machine, port: u16) -> Vec<String> {
    let mut found = Vec::new();
    for (protocol, file, state) in [
        ("udp", "udp", UDP_UNCONNECTED),
        ("udp", "udp6", UDP_UNCONNECTED),
        ("tcp", "tcp", TCP_LISTEN),
        ("tcp", "tcp6", TCP_LISTEN),
    ] {
        let text = here.read(&format!("/proc/thread-self/net/{file}"));
        let lines = text.unwrap_or_default();
        let addresses = lines.lines().filter_map(|line| listener(line, state, port));
        found.extend(addresses.map(|address| format!("{protocol} {address}")));
    }
    found.sort();
    found.dedup();
    found
}

/// Parses a line of `/proc/net/udp` or a similar file; returns the local address if the socket has this state and port
/// (proc_net_udp(5)).
fn listener(line: &str, state: &str, port: u16) -> Option<IpAddr> {
    let mut fields = line.split_whitespace().skip(1);
    let (address, own_port) = fields.next()?.split_once(':')?;
    let own_state = fields.nth(1)?;
    (own_state == state && u16::from_str_radix(own_port, 16).ok()? == port).then_some(())?;
    // 32-bit words in host byte order.
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
    match address.len() {
        8 => Some(Ipv4Addr::from(word(0)?.to_ne_bytes()).into()),
        32 => {
            let mut octets = [0; 16];
            for (number, four) in octets.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(8 * number)?.to_ne_bytes());
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// State of an unconnected UDP socket: `TCP_CLOSE` of include/net/tcp_states.h.
const UDP_UNCONNECTED: &str = "07";

/// State of a listening TCP socket: `TCP_LISTEN` of the same file.
const TCP_LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_over_several_hops_are_found() {
        let text = r#"[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},
            {"dst":"default","flags":[],"nexthops":[{"dev":"eth1","weight":1},{"dev":"eth2"}]}]"#;
        assert_eq!(from_routes(text), ["eth0", "eth1", "eth2"]);
        assert!(from_routes("").is_empty());
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn listening_sockets_are_distinguished_from_others() {
        let line = "  1: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 0 101 0 23";
        let found = |state, port| listener(line, state, port).map(|it| it.to_string());
        assert_eq!(found(UDP_UNCONNECTED, 53).as_deref(), Some("127.0.0.53"));
        assert_eq!(found(UDP_UNCONNECTED, 54), None);
        assert_eq!(found(TCP_LISTEN, 53), None);
        let line = "  2: 02000120010000000000000002000000:0035 00:00 0A 0:0 00:0 0 0 0 1";
        let found = listener(line, TCP_LISTEN, 53).map(|it| it.to_string());
        assert_eq!(found.as_deref(), Some("2001:2:0:1::2"));
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when";
        assert_eq!(listener(head, TCP_LISTEN, 53), None);
    }
}
