//! The addresses and the interface from which a server is queried.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::{fmt, io};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::socket::{freely, unspecified};
use crate::sys;

/// How queries leave for a server, over UDP and TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Source addresses; those of the server's family are used in turn. Without any, the routing table selects one.
    pub sources: Vec<IpAddr>,
    /// Network interface, or VRF, that all packets use (`SO_BINDTODEVICE`, socket(7)). Needs no privileges since Linux
    /// 5.7.
    pub interface: Option<String>,
    /// Whether addresses are used that no interface has (`IP_FREEBIND`, ip(7)).
    pub free_bind: bool,
}

impl Outgoing {
    /// The source addresses for a server, the one of this number first.
    pub(super) fn sources(&self, server: SocketAddr, number: usize) -> Vec<IpAddr> {
        let same_family = |ip: &&IpAddr| ip.is_ipv4() == server.is_ipv4();
        let mut own: Vec<_> = self.sources.iter().filter(same_family).copied().collect();
        match own.len() {
            0 => own.push(unspecified(server)),
            of => own.rotate_left(number % of),
        }
        own
    }

    /// Prepares a socket of the server's family, before it is bound.
    pub(super) fn prepare(&self, socket: &OwnedFd, server: SocketAddr) -> io::Result<()> {
        if let Some(interface) = &self.interface {
            let name = interface.as_bytes();
            sys::set_octets(
                socket.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                name,
            )?;
        }
        match self.free_bind {
            true => freely(socket, server),
            false => Ok(()),
        }
    }

    /// A TCP socket for a connection to this server, from the source address of this number, or another one if no
    /// interface has it.
    ///
    /// # Errors
    ///
    /// The interface or all addresses are missing.
    pub fn stream(&self, server: SocketAddr, number: usize) -> io::Result<OwnedFd> {
        let socket = open(server, SocketType::STREAM)?;
        self.prepare(&socket, server)?;
        let mut bound = Ok(());
        for source in self.sources(server, number) {
            if source.is_unspecified() {
                break;
            }
            bound = bind(&socket, &SocketAddr::new(source, 0));
            if bound.is_ok() {
                break;
            }
        }
        bound?;
        Ok(socket)
    }

    /// What this host lacks now, so that queries wait for it.
    pub fn missing(&self) -> Vec<Missing> {
        let any = SocketAddr::from(([0; 4], 0));
        let prepared = open(any, SocketType::DGRAM).and_then(|socket| self.prepare(&socket, any));
        if let (Some(interface), Err(_)) = (&self.interface, prepared) {
            return vec![Missing::Interface(interface.clone())];
        }
        let sources = self.sources.iter().copied();
        let missing = sources.filter(|source| !self.is_available(SocketAddr::new(*source, 0)));
        missing.map(Missing::Source).collect()
    }

    fn is_available(&self, source: SocketAddr) -> bool {
        let probe = open(source, SocketType::DGRAM).and_then(|socket| {
            self.prepare(&socket, source)?;
            Ok(bind(&socket, &source)?)
        });
        probe.is_ok()
    }
}

/// Something that a host lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The interface.
    Interface(String),
    /// A source address that no interface has.
    Source(IpAddr),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Source(address) => write!(f, "{address}"),
        }
    }
}

fn open(server: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind, flags, None)?;
    if server.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::{connect, getsockname};

    use super::*;

    fn from(sources: &[&str]) -> Outgoing {
        Outgoing {
            sources: sources.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..Outgoing::default()
        }
    }

    #[test]
    fn sources_of_the_servers_family_take_turns() {
        let outgoing = from(&["127.0.0.5", "::1", "127.0.0.6"]);
        let of = |server: &str, number| outgoing.sources(server.parse().unwrap(), number);
        let ips = |texts: [&str; 2]| texts.map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(of("127.0.0.1:53", 0), ips(["127.0.0.5", "127.0.0.6"]));
        assert_eq!(of("127.0.0.1:53", 3), ips(["127.0.0.6", "127.0.0.5"]));
        assert_eq!(of("[::1]:53", 7), ["::1".parse::<IpAddr>().unwrap()]);
        let none = from(&["127.0.0.5"]).sources("[::1]:53".parse().unwrap(), 1);
        assert!(none[0].is_unspecified() && none[0].is_ipv6());
    }

    #[test]
    fn source_that_no_interface_has_is_missing_unless_bound_freely() {
        let mut outgoing = from(&["127.0.0.5", "192.0.2.77", "2001:db8::77"]);
        let source = |text: &str| Missing::Source(text.parse().unwrap());
        let expected = [source("192.0.2.77"), source("2001:db8::77")];
        assert_eq!(outgoing.missing(), expected);
        outgoing.free_bind = true;
        assert_eq!(outgoing.missing(), []);
        outgoing.interface = Some("lo".to_owned());
        assert_eq!(outgoing.missing(), []);
        outgoing.interface = Some("no-such-if".to_owned());
        let interface = Missing::Interface("no-such-if".to_owned());
        assert_eq!(outgoing.missing(), [interface]);
    }

    #[test]
    fn connection_comes_from_the_next_source_that_is_available() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let outgoing = from(&["127.0.0.5", "192.0.2.77", "127.0.0.7"]);
        let sources = [0, 1, 2].map(|number| {
            let socket = outgoing.stream(server, number).unwrap();
            let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
            // It does not wait for the handshake.
            let _ = connect(&socket, &server);
            address.ip().to_string()
        });
        assert_eq!(sources, ["127.0.0.5", "127.0.0.7", "127.0.0.7"]);
        assert!(from(&["192.0.2.77"]).stream(server, 0).is_err());
        assert!(from(&[]).stream(server, 0).is_ok());
    }
}
