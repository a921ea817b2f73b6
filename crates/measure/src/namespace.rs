//! The names of a trial and their expected answers.
//!
//! `{000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test` encodes the IPv4 address with these numbers (Lencse et
//! al. 2017, section 6.2.1). The number of a name alone determines its answer, so a repeated query gets the same answer
//! and every share is exact.

mod pattern;
mod prefixes;
mod share;

use std::fmt;
use std::iter::successors;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use dns64_wire::codes::Rtype;
use dns64_wire::name::{NAME_LEN_MAX, NameBuf};
use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{As, DeserializeFromStr, DisplayFromStr, SerializeDisplay};

pub use pattern::Pattern;
pub use prefixes::Prefixes;
pub use share::{Share, dealt, rest};

use crate::quantity::ValueError;

/// Length of the first label: four groups of three digits and three hyphens.
pub const LABEL_BYTES: usize = 15;

/// The suffix of dns64perf, dns64perf++ and FakeDNS.
pub const DEFAULT_SUFFIX: &str = "dns64perf.test.";

/// Largest length of a suffix in wire format: the first label and its length octet must fit.
pub const SUFFIX_LEN_MAX: usize = NAME_LEN_MAX - 1 - LABEL_BYTES;

/// Parses a suffix: the part of a name after its first label.
///
/// # Errors
///
/// An invalid domain name, or one longer than [`SUFFIX_LEN_MAX`].
pub fn parse_suffix(text: &str) -> Result<NameBuf, ValueError> {
    let suffix = text.parse::<NameBuf>();
    let suffix = suffix.map_err(|error| ValueError(error.to_string()))?;
    match suffix.as_wire().len() {
        len if len > SUFFIX_LEN_MAX => Err(ValueError(format!(
            "suffix of {len} octets leaves no room for the first label of a name; its limit is \
             {SUFFIX_LEN_MAX} octets, shorten it"
        ))),
        _ => Ok(suffix),
    }
}

/// A range of IPv4 addresses, and thus of names: the part of the namespace that a trial may use. Its address is the
/// first one of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, SerializeDisplay, DeserializeFromStr)]
#[schemars(with = "String")]
pub struct Cidr(Ipv4Net);

impl Cidr {
    /// The first address.
    pub fn first(&self) -> Ipv4Addr {
        self.0.addr()
    }

    /// The last address.
    pub fn last(&self) -> Ipv4Addr {
        self.0.broadcast()
    }

    /// Number of names in the range: 1 to 2^32.
    pub fn names(&self) -> u64 {
        1 << (32 - self.0.prefix_len())
    }

    /// Returns address `index` of the range. An index of [`Cidr::names`] or more gives an address after the range;
    /// callers must stay below.
    pub fn address(&self, index: u64) -> Ipv4Addr {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "IPv4 arithmetic is modulo 2^32"
        )]
        let offset = index as u32;
        Ipv4Addr::from(u32::from(self.first()).wrapping_add(offset))
    }

    /// Returns the index of `address` in the range.
    pub fn index(&self, address: Ipv4Addr) -> Option<u64> {
        let offset = || u64::from(u32::from(address) - u32::from(self.first()));
        self.0.contains(&address).then(offset)
    }

    /// Returns whether all names of another range are names of this one.
    pub fn contains(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Returns the smallest range with the same first name that contains at least `names` names; `None` if this one is
    /// too small.
    #[must_use]
    pub fn narrowed_to(&self, names: u64) -> Option<Self> {
        let lengths = (self.0.prefix_len()..=32).rev();
        let ranges = lengths.filter_map(|length| Ipv4Net::new(self.0.addr(), length).ok());
        ranges.map(Self).find(|range| range.names() >= names)
    }

    /// Returns the smallest enclosing range with at least `names` names, if 2^32 suffice.
    #[must_use]
    pub fn widened_to(&self, names: u64) -> Option<Self> {
        successors(Some(self.0), Ipv4Net::supernet)
            .map(Self)
            .find(|range| range.names() >= names)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Default range of names: that of Lencse et al. 2017, section 6.2.1.
pub const DEFAULT_NAMESPACE: Cidr = Cidr(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8));

/// The range around an address.
impl From<Ipv4Net> for Cidr {
    fn from(net: Ipv4Net) -> Self {
        Self(net.trunc())
    }
}

impl FromStr for Cidr {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let why = match text.parse::<Ipv4Net>() {
            Ok(range) if range == range.trunc() => return Ok(Self(range)),
            Ok(range) => format!(
                "{range} has bits set beyond its length; the range around it is {}",
                range.trunc()
            ),
            Err(_) => format!(
                "'{text}' is not an IPv4 range; write ADDRESS/LENGTH with a length of 0 to 32, as \
                 in 10.0.0.0/8"
            ),
        };
        Err(ValueError(why))
    }
}

/// The zone of the names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Zone {
    /// The part of each name after its first label.
    #[serde(with = "As::<DisplayFromStr>")]
    pub suffix: NameBuf,
    /// Share of the names that have an AAAA record.
    pub aaaa_share: Share,
    /// Number of their addresses, and their CNAME records.
    pub records: NameRecords,
}

/// Number of addresses of the names, and their CNAME records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRecords {
    /// Share of the names that are aliases.
    pub cname_share: Share,
    /// Number of CNAME records from an alias to its addresses, up to [`CNAME_LENGTH_MAX`].
    pub cname_length: u8,
    /// Number of A records, and of AAAA records of names that have any; 1 to [`ADDRESSES_MAX`].
    pub addresses: u8,
}

/// Largest number of CNAME records of an alias.
pub const CNAME_LENGTH_MAX: u8 = 3;

/// Largest number of addresses of a name.
pub const ADDRESSES_MAX: u8 = 4;

impl Default for NameRecords {
    /// Returns those of RFC 8219: one address, and no aliases.
    fn default() -> Self {
        Self {
            cname_share: Share::NONE,
            cname_length: 1,
            addresses: 1,
        }
    }
}

impl NameRecords {
    /// Returns whether each name has one address and none is an alias.
    pub fn are_plain(&self) -> bool {
        self.cname_share == Share::NONE && self.addresses == 1
    }

    /// Returns the flags of an authority that serves them.
    pub fn flags(&self) -> String {
        let Self {
            cname_share,
            cname_length,
            addresses,
        } = self;
        format!(
            "`dns64bench authority --addresses {addresses} --cname-share {cname_share} --cname-length {cname_length}`"
        )
    }

    /// Explains why trials with such names are not those of RFC 8219 section 9.2, if they are not.
    pub fn flaw(&self) -> Option<String> {
        (!self.are_plain()).then(|| {
            format!("the names have {self}, and those of RFC 8219 section 9.2 one address")
        })
    }
}

impl fmt::Display for NameRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = match self.addresses {
            1 => "one address".to_owned(),
            addresses => format!("{addresses} addresses"),
        };
        match (self.cname_share, self.cname_length) {
            (Share::NONE, _) => f.write_str(&addresses),
            (share, 1) => write!(f, "{addresses}, {share} of them after a CNAME record"),
            (share, length) => {
                write!(
                    f,
                    "{addresses}, {share} of them after {length} CNAME records"
                )
            }
        }
    }
}

impl Default for Zone {
    /// [`DEFAULT_SUFFIX`], and no name with an AAAA record.
    fn default() -> Self {
        Self {
            suffix: DEFAULT_SUFFIX.parse().expect("a constant, and a name"),
            aaaa_share: Share::NONE,
            records: NameRecords::default(),
        }
    }
}

/// A question of a trial: name and type; the class is IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedName {
    /// The address encoded in the name.
    pub address: Ipv4Addr,
    /// The type.
    pub rtype: Rtype,
}

impl AskedName {
    /// Returns the AAAA query for the name of `address`.
    pub fn aaaa(address: Ipv4Addr) -> Self {
        let rtype = Rtype::AAAA;
        Self { address, rtype }
    }
}

impl Zone {
    /// Returns whether the name of this address has an AAAA record.
    pub fn has_aaaa(&self, address: Ipv4Addr) -> bool {
        self.aaaa_share.picks(u64::from(u32::from(address)))
    }

    /// Returns the position of the name of this address among those that have the same records.
    pub fn rank(&self, address: Ipv4Addr) -> u64 {
        self.alias(address).1
    }

    /// Returns the number of CNAME records from the name of this address to its addresses; 0 if it is not an alias.
    pub fn aliases(&self, address: Ipv4Addr) -> u8 {
        match self.alias(address).0 {
            true => self.records.cname_length,
            false => 0,
        }
    }

    /// Returns whether the name of this address is an alias, and its position among those that have the same records.
    fn alias(&self, address: Ipv4Addr) -> (bool, u64) {
        let number = u64::from(u32::from(address));
        let (_, position) = self.aaaa_share.split(number);
        self.records.cname_share.split(position)
    }

    /// Returns the addresses of the name of this address, which is the first; the others differ from it in the first octet.
    #[inline]
    pub fn addresses(&self, address: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let first = u32::from(address);
        let numbers = 0..u32::from(self.records.addresses);
        numbers.map(move |n| Ipv4Addr::from(first.wrapping_add(n << 24)))
    }

    /// Returns the name of this address.
    pub fn name(&self, address: Ipv4Addr) -> String {
        let label = label(address);
        let suffix = self.suffix.to_string();
        let suffix = suffix.trim_start_matches('.');
        format!("{}.{suffix}", String::from_utf8_lossy(&label))
    }
}

/// Returns the address of a name's AAAA record, if it has one: `2001:db8::` and the IPv4 address (Lencse, Pivoda and
/// Shima 2021, section 2.2).
pub fn own_aaaa(address: Ipv4Addr) -> Ipv6Addr {
    const BASE: u128 = 0x2001_0db8 << 96;
    Ipv6Addr::from(BASE | u128::from(u32::from(address)))
}

/// Returns the first label of the name of `address`.
pub fn label(address: Ipv4Addr) -> [u8; LABEL_BYTES] {
    let mut label = [b'-'; LABEL_BYTES];
    for (i, octet) in address.octets().into_iter().enumerate() {
        label[4 * i..4 * i + 3].copy_from_slice(&DIGITS[usize::from(octet)]);
    }
    label
}

/// Makes the first label of a name, or of one of its targets, that of target `number`; 0 is the name itself. In a target, a letter
/// takes the place of the first hyphen, so that no name is too long: `010a000-007-255`, `010b000-007-255`.
pub fn set_target(label: &mut [u8; LABEL_BYTES], number: u8) {
    label[TARGET_AT] = match number {
        0 => b'-',
        number => b'a' - 1 + number,
    };
}

/// Parses the address in the first label of a name or of a target, and the number of the target; `None` if the label has another form.
pub fn parse_target(label: &[u8; LABEL_BYTES]) -> Option<(Ipv4Addr, u8)> {
    let number = match label[TARGET_AT].to_ascii_lowercase() {
        letter @ b'a'..=b'z' => letter - b'a' + 1,
        _ => 0,
    };
    let mut own = *label;
    if number > 0 {
        set_target(&mut own, 0);
    }
    Some((parse_label(&own)?, number))
}

/// Place of the letter of a target in its label.
const TARGET_AT: usize = 3;

/// Parses the address in a first label; `None` if the label has another form.
pub fn parse_label(label: &[u8; LABEL_BYTES]) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    for (i, octet) in octets.iter_mut().enumerate() {
        let mut number = 0;
        for &digit in &label[4 * i..4 * i + 3] {
            if !digit.is_ascii_digit() {
                return None;
            }
            number = number * 10 + u16::from(digit - b'0');
        }
        if i < 3 && label[4 * i + 3] != b'-' {
            return None;
        }
        *octet = u8::try_from(number).ok()?;
    }
    Some(Ipv4Addr::from(octets))
}

/// Parses the address in a first label of the older form, without leading zeros: `10-0-7-255` (Lencse 2015, section
/// IV.D); `None` if the label has another form.
pub fn parse_short_label(label: &[u8]) -> Option<Ipv4Addr> {
    let mut numbers = label.split(|&octet| octet == b'-');
    let mut octets = [0; 4];
    for octet in &mut octets {
        let digits = numbers.next()?;
        let plain = digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit);
        if !plain || digits.len() > 1 && digits[0] == b'0' {
            return None;
        }
        *octet = std::str::from_utf8(digits).ok()?.parse().ok()?;
    }
    numbers.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// "000" to "255".
const DIGITS: [[u8; 3]; 256] = {
    let mut digits = [[b'0'; 3]; 256];
    let mut n = 0;
    while n < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "n is below 256")]
        let octet = n as u8;
        digits[n] = [
            b'0' + octet / 100,
            b'0' + octet / 10 % 10,
            b'0' + octet % 10,
        ];
        n += 1;
    }
    digits
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn label_is_four_numbers_of_three_digits() {
        assert_eq!(&label(Ipv4Addr::new(10, 0, 7, 255)), b"010-000-007-255");
        assert_eq!(
            parse_label(b"010-000-007-255"),
            Some(Ipv4Addr::new(10, 0, 7, 255))
        );
        for bad in [
            b"010-000-007-256",
            b"010-000-007.255",
            b"010-000-0a7-255",
            b"999-000-007-255",
        ] {
            assert_eq!(parse_label(bad), None);
        }
    }

    #[test]
    fn label_of_a_target_has_a_letter() {
        let (mut label, address) = (*b"010-000-007-255", Ipv4Addr::new(10, 0, 7, 255));
        for (number, expected) in [(2, b"010b000-007-255"), (1, b"010a000-007-255")] {
            set_target(&mut label, number);
            assert_eq!(&label, expected);
            assert_eq!(parse_target(&label), Some((address, number)));
        }
        assert_eq!(parse_target(b"010A000-007-255"), Some((address, 1)));
        assert_eq!(parse_label(&label), None);
        set_target(&mut label, 0);
        assert_eq!(parse_target(&label), Some((address, 0)));
        assert_eq!(parse_target(b"010a000-007-256"), None);
        assert_eq!(parse_target(b"010.000-007-255"), None);
    }

    #[test]
    fn older_form_of_a_label_has_no_leading_zeros() {
        let address = Ipv4Addr::new(10, 0, 7, 255);
        assert_eq!(parse_short_label(b"10-0-7-255"), Some(address));
        for bad in [
            "10-0-7",
            "10-0-7-256",
            "10-0-07-255",
            "10-0-7-",
            "10-0-7-255-",
            "10-0-7-2a",
            "",
            "---",
            "10-0--7",
            "+1-0-0-0",
            "010-000-007-255",
            "10-0-7-0255",
        ] {
            assert_eq!(parse_short_label(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn suffix_leaves_room_for_the_first_label() {
        // Three labels of 63 octets with their length octets, then the last label and the root.
        let suffix = |last| format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(last));
        let longest = parse_suffix(&suffix(45)).unwrap();
        assert_eq!(longest.as_wire().len(), SUFFIX_LEN_MAX);
        let error = parse_suffix(&suffix(46)).unwrap_err();
        assert!(error.0.starts_with("suffix of 240 octets leaves no room"));
        let error = parse_suffix("a..b").unwrap_err();
        let expected = dns64_wire::name::NameError::EmptyLabel;
        assert_eq!(error.0, expected.to_string());
    }

    #[test]
    fn own_aaaa_contains_the_address() {
        let expected: Ipv6Addr = "2001:db8::c000:221".parse().unwrap();
        assert_eq!(own_aaaa(Ipv4Addr::new(192, 0, 2, 33)), expected);
    }

    #[test]
    fn range_with_host_bits_is_refused_with_a_suggestion() {
        let error = "10.1.0.0/8".parse::<Cidr>().unwrap_err().to_string();
        assert_eq!(
            error,
            "10.1.0.0/8 has bits set beyond its length; the range around it is 10.0.0.0/8"
        );
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0/8",
            "x/8",
            "10.0.0.0/-1",
            "10.0.0.0/",
        ] {
            assert!(
                bad.parse::<Cidr>()
                    .unwrap_err()
                    .to_string()
                    .contains("10.0.0.0/8"),
                "{bad}"
            );
        }
    }

    #[test]
    fn range_is_widened_to_the_needed_size() {
        let cidr: Cidr = "198.18.4.0/24".parse().unwrap();
        assert_eq!(cidr.widened_to(200).unwrap().to_string(), "198.18.4.0/24");
        assert_eq!(cidr.widened_to(257).unwrap().to_string(), "198.18.4.0/23");
        assert_eq!(cidr.widened_to(1 << 32).unwrap().to_string(), "0.0.0.0/0");
        assert_eq!(cidr.widened_to((1 << 32) + 1), None);
    }

    #[test]
    fn range_is_narrowed_to_the_needed_size_and_keeps_its_first_name() {
        let cidr: Cidr = "10.0.0.0/8".parse().unwrap();
        assert_eq!(cidr.narrowed_to(1).unwrap().to_string(), "10.0.0.0/32");
        assert_eq!(
            cidr.narrowed_to(600_064).unwrap().to_string(),
            "10.0.0.0/12"
        );
        assert_eq!(cidr.narrowed_to(1 << 24), Some(cidr));
        assert_eq!(cidr.narrowed_to((1 << 24) + 1), None);
    }

    proptest! {
        #[test]
        fn index_address_and_label_are_equivalent(len in 0_u8..=32, base: u32, index: u64) {
            let cidr = Cidr(Ipv4Net::new(Ipv4Addr::from(base), len).unwrap().trunc());
            let index = index % cidr.names();
            let address = cidr.address(index);
            prop_assert_eq!(cidr.index(address), Some(index));
            prop_assert_eq!(parse_label(&label(address)), Some(address));
            prop_assert_eq!(cidr.to_string().parse(), Ok(cidr));
        }
    }
}
