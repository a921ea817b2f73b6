//! Selects the implementation of [`Link`](crate::Link) that carries datagrams.

use std::fmt;
use std::str::FromStr;

/// The transport between a program and the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Kernel sockets: [`crate::socket`].
    Socket,
    /// AF_XDP sockets, which bypass the network stack of the kernel: [`crate::xdp`].
    Xdp {
        /// Whether to use an interface with a default route too.
        force: bool,
    },
}

impl Backend {
    /// The same backend, also at an interface with a default route.
    #[must_use]
    pub fn forced(self) -> Self {
        match self {
            Self::Socket => Self::Socket,
            Self::Xdp { .. } => Self::Xdp { force: true },
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Socket => "socket",
            Self::Xdp { force: false } => "xdp",
            Self::Xdp { force: true } => "xdp,force",
        })
    }
}

impl FromStr for Backend {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, force) = match text.split_once(',') {
            None => (text, false),
            Some((name, "force")) => (name, true),
            Some(_) => ("", false),
        };
        match (name, force) {
            ("socket", false) => Ok(Self::Socket),
            ("xdp", force) => Ok(Self::Xdp { force }),
            _ => Err("the backend is auto, socket, xdp or \"xdp,force\""),
        }
    }
}

/// What carries the datagrams of a link, the slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// Memory, in simulations.
    Memory,
    /// TCP connections with TLS.
    Tls,
    /// TCP connections.
    Tcp,
    /// Kernel sockets.
    Socket,
    /// AF_XDP sockets behind a driver without XDP, for which the kernel copies each frame.
    XdpGeneric,
    /// AF_XDP sockets, for which the kernel copies each frame.
    XdpCopy,
    /// AF_XDP sockets whose memory the interface uses.
    XdpZeroCopy,
}

impl Carrier {
    const ALL: [Self; 7] = [
        Self::Memory,
        Self::Tls,
        Self::Tcp,
        Self::Socket,
        Self::XdpGeneric,
        Self::XdpCopy,
        Self::XdpZeroCopy,
    ];

    /// Returns whether messages travel on connections: the network loses none without the connection.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Tls | Self::Tcp)
    }

    /// Returns whether the datagrams bypass the network stack of the kernel, and its counters.
    pub fn bypasses_the_kernel(self) -> bool {
        self >= Self::XdpGeneric
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "memory",
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Socket => "udp",
            Self::XdpGeneric => "xdp (generic)",
            Self::XdpCopy => "xdp (copy)",
            Self::XdpZeroCopy => "xdp (zero-copy)",
        })
    }
}

impl FromStr for Carrier {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|it| it.to_string() == text);
        found.ok_or(
            "the carrier is memory, tls, tcp, udp, xdp (generic), xdp (copy) or xdp (zero-copy)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_reverses_printing() {
        for text in ["socket", "xdp", "xdp,force"] {
            assert_eq!(
                text.parse::<Backend>().map(|b| b.to_string()).as_deref(),
                Ok(text)
            );
        }
        for text in ["", "udp", "socket,force", "xdp,", "xdp,forced"] {
            assert!(text.parse::<Backend>().is_err(), "{text}");
        }
        for carrier in Carrier::ALL {
            assert_eq!(carrier.to_string().parse(), Ok(carrier));
        }
        assert!("xdp".parse::<Carrier>().is_err());
    }
}
