//! Contents of the zone: the records of each name and type, computed by rule.

use std::net::Ipv4Addr;

use dns64_wire::codes::Rtype;
use dns64_wire::name::Name;
use serde::{Deserialize, Serialize};

use crate::namespace::{LABEL_BYTES, Zone, label, parse_short_label, parse_target, set_target};

/// Configuration of the served zone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZoneConfig {
    /// The names, and which of them have an AAAA record.
    pub zone: Zone,
    /// Whether all names have an AAAA record, for the self-test of the Tester (RFC 8219 section 9.2.1).
    pub self_test: bool,
    /// TTL of A, AAAA and NS records.
    pub ttl_s: u32,
    /// TTL and MINIMUM of the SOA record: how long a negative answer may be cached (RFC 2308 section 5).
    pub negative_ttl_s: u32,
}

/// Position of a name in the zone. There are no names between these, so a name that does not exist has no names below
/// it either (RFC 8020 section 2), and there are no empty non-terminals (RFC 4592 section 2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// The suffix itself.
    Apex,
    /// `ns` below the suffix: it exists, because the NS record names it, but the zone has no address for it.
    NameServer,
    /// Four numbers below the suffix, with or without leading zeros; or, from number 1 on, a target of the CNAME records of this name.
    Host(Ipv4Addr, u8),
    /// Any other name below the suffix.
    Nowhere,
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// A CNAME record alone.
    Alias,
    /// The addresses of this host.
    A(Ipv4Addr),
    /// The AAAA records of this host.
    Aaaa(Ipv4Addr),
    /// With this address as its hint.
    Https(Ipv4Addr),
    Soa,
    Ns,
    /// The name has no record of the type (RFC 2308 section 2.2).
    NoData,
    /// The name does not exist (RFC 2308 section 2.1).
    NxDomain,
}

impl Position {
    /// Returns the position of a name in the zone; `None` outside it.
    pub(super) fn of(name: &Name<'_>, suffix: &Name<'_>) -> Option<Self> {
        if !name.is_within(suffix) {
            return None;
        }
        let below = name.wire_len() - suffix.wire_len();
        Some(match name.labels().next() {
            _ if below == 0 => Self::Apex,
            Some(label) if below == 1 + label.len() => Self::of_label(label),
            _ => Self::Nowhere,
        })
    }

    fn of_label(label: &[u8]) -> Self {
        if label.eq_ignore_ascii_case(NAME_SERVER_LABEL) {
            return Self::NameServer;
        }
        let host = match <&[u8; LABEL_BYTES]>::try_from(label).map(parse_target) {
            Ok(Some(host)) => Some(host),
            _ => parse_short_label(label).map(|address| (address, 0)),
        };
        host.map_or(Self::Nowhere, |(address, target)| {
            Self::Host(address, target)
        })
    }
}

impl ZoneConfig {
    /// Looks up the records of a type at `place`. A query for ANY returns one of the record sets (RFC 8482 section
    /// 4.1).
    pub(super) fn look_up(&self, place: Position, rtype: Rtype) -> Lookup {
        let mut targets = self.targets(place, rtype);
        match (place, rtype) {
            (_, Rtype::CNAME | Rtype::ANY) if targets.next().is_some() => Lookup::Alias,
            (Position::Host(address, target), _) if target > self.zone.aliases(address) => {
                Lookup::NxDomain
            }
            (Position::Host(address, _), Rtype::A | Rtype::ANY) => Lookup::A(address),
            (Position::Host(address, _), Rtype::AAAA) if self.has_aaaa(address) => {
                Lookup::Aaaa(address)
            }
            (Position::Host(address, _), Rtype::HTTPS) => Lookup::Https(address),
            (Position::Apex, Rtype::SOA | Rtype::ANY) => Lookup::Soa,
            (Position::Apex, Rtype::NS) => Lookup::Ns,
            (Position::Nowhere, _) => Lookup::NxDomain,
            _ => Lookup::NoData,
        }
    }

    /// Returns the first labels of the targets of the CNAME records in an answer; of the first record alone if CNAME records are
    /// queried.
    pub(super) fn targets(
        &self,
        place: Position,
        rtype: Rtype,
    ) -> impl Iterator<Item = [u8; LABEL_BYTES]> + use<> {
        let (address, target, last) = match place {
            Position::Host(address, target) => (address, target, self.zone.aliases(address)),
            Position::Apex | Position::NameServer | Position::Nowhere => {
                (Ipv4Addr::UNSPECIFIED, 0, 0)
            }
        };
        let most = match rtype {
            Rtype::CNAME | Rtype::ANY => 1,
            _ => usize::MAX,
        };
        let numbers = target + 1..=last;
        numbers.take(most).map(move |number| {
            let mut label = label(address);
            set_target(&mut label, number);
            label
        })
    }

    /// Returns whether the name of `address` has an AAAA record.
    pub fn has_aaaa(&self, address: Ipv4Addr) -> bool {
        self.self_test || self.zone.has_aaaa(address)
    }
}

/// First label of the zone's name server.
const NAME_SERVER_LABEL: &[u8] = b"ns";

/// Length of [`ns_rdata`].
pub(super) const NS_RDATA_LEN: usize = 5;

/// Data of the NS record: `ns` below the suffix, whose offset in the reply is `suffix_at`.
pub(super) fn ns_rdata(suffix_at: u16) -> [u8; NS_RDATA_LEN] {
    let [high, low] = (POINTER | suffix_at).to_be_bytes();
    [2, b'n', b's', high, low]
}

/// Length of [`target_rdata`].
pub(super) const TARGET_RDATA_LEN: usize = 1 + LABEL_BYTES + 2;

/// Data of a CNAME record: this label below the suffix, whose offset in the reply is `suffix_at`.
pub(super) fn target_rdata(label: [u8; LABEL_BYTES], suffix_at: u16) -> [u8; TARGET_RDATA_LEN] {
    let mut rdata = *b"\x0fLLLLLLLLLLLLLLL..";
    rdata[1..1 + LABEL_BYTES].copy_from_slice(&label);
    rdata[1 + LABEL_BYTES..].copy_from_slice(&(POINTER | suffix_at).to_be_bytes());
    rdata
}

/// Data of an HTTPS record (RFC 9460 section 2.2): priority 1, the owner itself as target, and `ipv4hint`.
pub(super) fn https_rdata(hint: Ipv4Addr) -> [u8; 11] {
    let [a, b, c, d] = hint.octets();
    [0, 1, 0, 0, 4, 0, 4, a, b, c, d]
}

/// Length of [`soa_rdata`].
pub(super) const SOA_RDATA_LEN: usize = NS_RDATA_LEN + 13 + 20;

/// Data of the SOA record (RFC 1035 section 3.3.13): `ns` and `hostmaster` below the suffix, whose offset in the reply
/// is `suffix_at`, and the numbers.
pub(super) fn soa_rdata(suffix_at: u16, negative_ttl_s: u32) -> [u8; SOA_RDATA_LEN] {
    let mut rdata = *b"\x02ns..\x0ahostmaster..SSSSRRRRrrrrEEEEMMMM";
    rdata[..NS_RDATA_LEN].copy_from_slice(&ns_rdata(suffix_at));
    rdata[16..18].copy_from_slice(&(POINTER | suffix_at).to_be_bytes());
    let numbers = [SERIAL, REFRESH_S, RETRY_S, EXPIRE_S, negative_ttl_s];
    for (field, number) in rdata[18..].chunks_exact_mut(4).zip(numbers) {
        field.copy_from_slice(&number.to_be_bytes());
    }
    rdata
}

/// The two high bits of a compression pointer (RFC 1035 section 4.1.4).
const POINTER: u16 = 0xc000;

/// The zone never changes.
const SERIAL: u32 = 1;

/// The zone is not transferred, so these values have no effect. They are within the ranges that RFC 1912 section 2.2
/// recommends, for tools that check.
const REFRESH_S: u32 = 43_200;
const RETRY_S: u32 = 900;
const EXPIRE_S: u32 = 1_209_600;
