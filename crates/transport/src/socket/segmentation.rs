//! Segmentation of runs of datagrams by the kernel.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;

use super::{OpenError, option};
use crate::sys;

/// Whether runs of datagrams of equal length pass the kernel as one: `UDP_SEGMENT` for sending, `UDP_GRO` for receiving
/// (udp(7)). A run costs the kernel, and each veth link, little more than one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// Enabled. A run is one packet until a network card splits it.
    On,
    /// Disabled: each datagram is sent, carried and received separately.
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

/// Makes the kernel timestamp received datagrams, and coalesce runs if segmentation is enabled. The kernel splits a run
/// that arrives at a socket without coalescing.
pub(super) fn stamp(socket: &OwnedFd, segmentation: Segmentation) -> Result<(), OpenError> {
    let stamps = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    option("SO_TIMESTAMPNS", stamps)?;
    match segmentation {
        Segmentation::On => gather(socket),
        Segmentation::Off => Ok(()),
    }
}

/// Makes the kernel coalesce runs of datagrams of one sender.
pub(crate) fn gather(socket: &OwnedFd) -> Result<(), OpenError> {
    let gathers = sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    option("UDP_GRO", gathers)
}
