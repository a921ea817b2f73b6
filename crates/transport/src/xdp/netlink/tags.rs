//! Whether an interface keeps VLAN tags beside its frames, by the features that ethtool(8) shows
//! (Documentation/networking/ethtool-netlink.rst of Linux).

use std::io;

use rustix::net::netlink::GENERIC;

use super::{Netlink, attribute, attributes, one, short, text};

/// `GENL_ID_CTRL`; its command `CTRL_CMD_GETFAMILY` and attributes `CTRL_ATTR_FAMILY_ID` and `_NAME`.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `ETHTOOL_MSG_FEATURES_GET` and `_SET`.
const GET_FEATURES: u8 = 11;
const SET_FEATURES: u8 = 12;

/// `ETHTOOL_A_FEATURES_HEADER`, `_WANTED` and `_ACTIVE`, `ETHTOOL_A_HEADER_DEV_INDEX`.
const HEADER: u16 = 1;
const WANTED: u16 = 3;
const ACTIVE: u16 = 4;
const DEVICE: u16 = 1;

/// `ETHTOOL_A_BITSET_BITS`, `ETHTOOL_A_BITSET_BITS_BIT`, `ETHTOOL_A_BITSET_BIT_NAME`.
const BITS: u16 = 3;
const BIT: u16 = 1;
const NAME: u16 = 2;

/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// Octets of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

/// Features with which the driver removes the tags of received frames.
const REMOVES: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];

/// Features with which it adds the tags of sent frames. At the other end of a veth link, frames arrive without them.
const ADDS: [&str; 2] = ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"];

/// Requests about the features of interfaces.
struct Features {
    netlink: Netlink,
    family: u16,
}

impl Features {
    fn open() -> io::Result<Self> {
        let mut netlink = Netlink::of(Some(GENERIC))?;
        let body = message(GET_FAMILY, &[value(FAMILY_NAME, b"ethtool\0")]);
        let family = |body: &[u8]| short(attribute(body, GENERIC_HEADER, FAMILY_ID)?, 0);
        let family = one(netlink.ask(CONTROL, 0, &body, CONTROL, family)?)?;
        Ok(Self { netlink, family })
    }

    fn ask<T>(
        &mut self,
        command: u8,
        attributes: &[Vec<u8>],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let body = message(command, attributes);
        self.netlink.ask(self.family, 0, &body, self.family, read)
    }
}

/// Whether an interface keeps the VLAN tags of received frames beside them: an XDP program takes such a frame for an
/// untagged one. On a veth link the features of the other end decide, which may be in another namespace.
///
/// # Errors
///
/// The kernel refuses.
pub fn hides_tags(interface: u32) -> io::Result<bool> {
    let active = |body: &[u8]| {
        let active = attribute(body, GENERIC_HEADER, ACTIVE)?;
        let bits = attribute(active, 0, BITS).unwrap_or_default();
        let names = attributes(bits).filter_map(|(_, bit)| attribute(bit, 0, NAME));
        Some(names.map(text).any(|name| REMOVES.contains(&name.as_str())))
    };
    one(Features::open()?.ask(GET_FEATURES, &[device(interface)], active)?)
}

/// Makes the kernel leave VLAN tags in the frames of an interface, received and sent.
///
/// # Errors
///
/// The kernel refuses. A feature that the driver does not change is no error.
pub fn show_tags(interface: u32) -> io::Result<()> {
    let bit = |name: &&str| nested(BIT, &[value(NAME, &[name.as_bytes(), b"\0"].concat())]);
    let bits: Vec<Vec<u8>> = REMOVES.iter().chain(&ADDS).map(bit).collect();
    let wanted = nested(WANTED, &[nested(BITS, &bits)]);
    let set = [device(interface), wanted];
    Features::open()?.ask(SET_FEATURES, &set, |_| Some(()))?;
    Ok(())
}

fn device(interface: u32) -> Vec<u8> {
    nested(HEADER, &[value(DEVICE, &interface.to_ne_bytes())])
}

/// `struct genlmsghdr`: command, version 1.
fn message(command: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    [&[command, 1, 0, 0], &attributes.concat()[..]].concat()
}

fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    value(kind | NESTED, &attributes.concat())
}

fn value(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut octets = [&len.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}
