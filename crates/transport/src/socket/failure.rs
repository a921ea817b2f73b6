//! Errors of opening sockets, with remedies.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::LinkError;
use crate::address::Shown;
use crate::xdp::program::XdpError;

/// Reason why sockets could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The local address is not available.
    #[error("cannot bind a UDP socket to {}: {reason}{}", Shown(*.address), bind_remedy(.reason))]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// This host does not receive datagrams to the address.
    #[error(
        "source address {address} is not an address of this host; give one that an interface has, or make a prefix \
         local with `ip route add local PREFIX dev lo` and route it to this host on the server"
    )]
    NotLocal {
        /// The requested address.
        address: IpAddr,
    },
    /// There is no route to the server.
    #[error("cannot reach {} from here: {reason}; check the address and the route to it", Shown(*.server))]
    Connect {
        /// The server's address.
        server: SocketAddr,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// The kernel lacks a socket option or refuses another call.
    #[error("{call} failed: {reason}")]
    System {
        /// Name of the call or option.
        call: &'static str,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// AF_XDP sockets cannot be opened.
    #[error(transparent)]
    Xdp(#[from] XdpError),
}

/// An error of a link while it is opened.
impl From<LinkError> for OpenError {
    fn from(LinkError { call, reason }: LinkError) -> Self {
        Self::System { call, reason }
    }
}

/// An error of opening another connection of a link.
impl From<OpenError> for LinkError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::System { call, reason } => Self { call, reason },
            error => Self {
                call: "connect",
                reason: io::Error::other(error),
            },
        }
    }
}

fn bind_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program holds the port: stop it or choose another",
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE: choose a higher one"
        }
        io::ErrorKind::AddrNotAvailable => "; no interface has this address",
        _ => "",
    }
}
