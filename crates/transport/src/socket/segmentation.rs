//! Whether runs of datagrams pass the kernel as one.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;

use super::{OpenError, option};
use crate::sys;

/// Whether runs of datagrams of equal length pass the kernel as one: `UDP_SEGMENT` on their way out,
/// `UDP_GRO` on their way in (udp(7)). A run costs the kernel, and each veth link, little more than
/// one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// They do. Until a network card cuts it, a run is one packet.
    On,
    /// Each datagram is sent, carried and received by itself.
    Off,
}

impl fmt::Display for Segmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

impl FromStr for Segmentation {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err("segmentation is on or off"),
        }
    }
}

/// Has the kernel stamp what it receives, and gather runs if they may travel segmented. A run that
/// arrives at a socket that does not gather is cut into its datagrams by the kernel.
pub(super) fn stamp(socket: &OwnedFd, segmentation: Segmentation) -> Result<(), OpenError> {
    let stamps = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    option("SO_TIMESTAMPNS", stamps)?;
    match segmentation {
        Segmentation::On => gather(socket),
        Segmentation::Off => Ok(()),
    }
}

/// Takes in runs of datagrams of one sender as one.
pub(crate) fn gather(socket: &OwnedFd) -> Result<(), OpenError> {
    let gathers = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    option("UDP_GRO", gathers)
}
