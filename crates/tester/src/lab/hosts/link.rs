//! Test links by name, and the addresses of their ends.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display};

use super::HostSpec;
use crate::lab::profile::Family;
use crate::quantity::ValueError;

/// Purpose of a test link.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    AsRefStr,
    Display,
    JsonSchema,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum LinkName {
    /// Between Measurer and DUT.
    Client,
    /// Between DUT and authority.
    Upstream,
    /// Between Measurer and authority, only for self-tests (Lencse, Pivoda and Shima 2021, section 4.1).
    SelfTest,
}

/// One end of a test link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkEnd {
    /// The network interface, as listed by `ip link`.
    pub interface: String,
    /// Its addresses; at least one.
    pub addresses: Vec<LinkAddress>,
}

/// An address with its prefix length: `2001:2:0:1::1/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkAddress(IpNet);

impl LinkAddress {
    /// The address.
    pub fn address(self) -> IpAddr {
        self.0.addr()
    }

    /// Its prefix length in bits.
    pub fn prefix_len(self) -> u8 {
        self.0.prefix_len()
    }

    /// Its prefix: the address with all host bits cleared.
    pub fn prefix(self) -> IpNet {
        self.0.trunc()
    }

    /// Returns whether it is of this family.
    pub fn is_of(self, family: Family) -> bool {
        match family {
            Family::Ipv4 => self.0.addr().is_ipv4(),
            Family::Ipv6 => self.0.addr().is_ipv6(),
        }
    }

    /// Returns whether the prefixes of both overlap.
    pub(super) fn overlaps(self, other: Self) -> bool {
        let (own, others) = (self.prefix(), other.prefix());
        own.contains(&others) || others.contains(&own)
    }
}

impl FromStr for LinkAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let net: IpNet = text.parse().map_err(|_| {
            ValueError(format!(
                "{text:?} is not an address with the length of its prefix, such as \
                 \"2001:2:0:1::1/64\" or \"198.18.0.1/24\""
            ))
        })?;
        let most = net.max_prefix_len();
        if !(1..most).contains(&net.prefix_len()) {
            return Err(ValueError(format!(
                "prefix length {} of {text:?} leaves no address for the other end: must be 1-{}",
                net.prefix_len(),
                most - 1
            )));
        }
        Ok(Self(net))
    }
}

impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The interface and the address of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting<'a> {
    pub near: (&'a str, IpAddr),
    pub far: (&'a str, IpAddr),
}

/// Returns the first addresses of a family that two hosts have in a common prefix on links of one name.
pub(super) fn meeting<'a>(
    near: &'a HostSpec,
    far: &'a HostSpec,
    link: LinkName,
    family: Family,
) -> Option<Meeting<'a>> {
    let addresses = |host: &'a HostSpec| {
        let of_end = |end: &'a LinkEnd| end.addresses.iter().map(move |it| (end, *it));
        let all = host.ends(link).iter().flat_map(of_end);
        all.filter(move |(_, address)| address.is_of(family))
    };
    let meet = |(end, own): (&'a LinkEnd, LinkAddress)| {
        let (other, its) = addresses(far).find(|(_, its)| its.prefix() == own.prefix())?;
        Some(Meeting {
            near: (&end.interface, own.address()),
            far: (&other.interface, its.address()),
        })
    };
    addresses(near).find_map(meet)
}
