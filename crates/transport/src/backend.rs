//! Selects the implementation of [`Link`](crate::Link) that carries datagrams.

use std::fmt;
use std::str::FromStr;

/// The transport between a program and the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Kernel sockets: [`crate::socket`].
    #[default]
    Socket,
    /// AF_XDP sockets, which bypass the network stack of the kernel: [`crate::xdp`].
    Xdp {
        /// Whether to use an interface with a default route too.
        force: bool,
    },
    /// AF_XDP where it is available, kernel sockets elsewhere.
    Auto {
        /// Whether to use AF_XDP at an interface with a default route too.
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
            Self::Auto { .. } => Self::Auto { force: true },
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Socket => "socket",
            Self::Xdp { force: false } => "xdp",
            Self::Xdp { force: true } => "xdp,force",
            Self::Auto { force: false } => "auto",
            Self::Auto { force: true } => "auto,force",
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
            ("auto", force) => Ok(Self::Auto { force }),
            _ => Err("the backend is socket, xdp or auto; the last two may end in \",force\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_reverses_printing() {
        for text in ["socket", "xdp", "xdp,force", "auto", "auto,force"] {
            assert_eq!(
                text.parse::<Backend>().map(|b| b.to_string()).as_deref(),
                Ok(text)
            );
        }
        for text in ["", "udp", "socket,force", "xdp,", "xdp,forced"] {
            assert!(text.parse::<Backend>().is_err(), "{text}");
        }
    }
}
