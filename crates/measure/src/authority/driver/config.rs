//! Entry of the BPF map `config`, in the layout of `struct config` in `bpf/authority.bpf.c`.

use std::net::{IpAddr, Ipv4Addr};

use super::{ADDRESSES_MAX, DriverError, Station};
use crate::authority::fast::{Fast, SUFFIX_AT};
use crate::authority::zone::ZoneConfig;
use crate::load::query::OPT;
use crate::namespace::{LABEL_BYTES, SUFFIX_LEN_MAX, Share, own_aaaa};

/// Builds the entry for a zone that is served at a station.
///
/// # Errors
///
/// Too many addresses, a suffix that is too long, or names with other records than one A and one AAAA.
pub(super) fn octets(zone: &ZoneConfig, station: &Station) -> Result<Vec<u8>, DriverError> {
    let suffix = zone.zone.suffix.as_wire();
    if suffix.len() > SUFFIX_LEN_MAX {
        return Err(DriverError::Suffix {
            len: suffix.len(),
            limit: SUFFIX_LEN_MAX,
        });
    }
    if !zone.zone.records.are_plain() {
        return Err(DriverError::Records);
    }
    let template = QueryPattern::new(suffix);
    let records = records(&Fast::new(zone));
    let len = template.octets.len();
    let mut entry = MapEntry::default();
    entry.addresses_v6(&station.addresses)?;
    for part in [PatternOctet::care, PatternOctet::fold, PatternOctet::expect] {
        entry.words(&template.words(part), WORDS);
    }
    records
        .iter()
        .for_each(|record| entry.padded(record, RECORD_OCTETS));
    records
        .iter()
        .for_each(|record| entry.put(&sum(record).to_ne_bytes()));
    entry.put(&OPT[..WORD]);
    entry.padded(&station.mac, WORD);
    entry.addresses_v4(&station.addresses)?;
    let share = match zone.self_test {
        true => Share::ALL,
        false => zone.zone.aaaa_share,
    };
    let last_bits = 8 * (len % WORD);
    let tail_shift = if last_bits == 0 { 0 } else { 64 - last_bits };
    let numbers = [len, len - 4, len - WORD, len / WORD, tail_shift];
    let millionths = usize::try_from(share.below(MILLION)).unwrap_or(usize::MAX);
    for number in numbers.into_iter().chain([millionths]) {
        entry.put(&u32::try_from(number).unwrap_or(u32::MAX).to_ne_bytes());
    }
    entry.put(&station.port.to_be_bytes());
    entry.padded(&[station.is_veth.into()], WORD - 2);
    Ok(entry.octets)
}

/// An entry under construction.
#[derive(Default)]
struct MapEntry {
    octets: Vec<u8>,
}

impl MapEntry {
    fn put(&mut self, part: &[u8]) {
        self.octets.extend_from_slice(part);
    }

    fn padded(&mut self, part: &[u8], octets: usize) {
        let end = self.octets.len() + octets;
        self.put(part);
        self.octets.resize(end, 0);
    }

    fn words(&mut self, words: &[[u8; WORD]], places: usize) {
        self.padded(words.as_flattened(), places * WORD);
    }

    fn addresses_v4(&mut self, addresses: &[IpAddr]) -> Result<(), DriverError> {
        let own = |address: &IpAddr| match address {
            IpAddr::V4(address) => Some(address.octets()),
            IpAddr::V6(_) => None,
        };
        self.addresses("IPv4", &Vec::from_iter(addresses.iter().filter_map(own)))
    }

    fn addresses_v6(&mut self, addresses: &[IpAddr]) -> Result<(), DriverError> {
        let own = |address: &IpAddr| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.octets()),
        };
        self.addresses("IPv6", &Vec::from_iter(addresses.iter().filter_map(own)))
    }

    /// Writes the addresses. An unused place holds the unspecified address, to which no frame is sent.
    fn addresses<const N: usize>(
        &mut self,
        family: &'static str,
        addresses: &[[u8; N]],
    ) -> Result<(), DriverError> {
        let count = addresses.len();
        if count > ADDRESSES_MAX {
            return Err(DriverError::Addresses { family, count });
        }
        self.padded(addresses.as_flattened(), ADDRESSES_MAX * N);
        Ok(())
    }
}

/// Expected value of one octet of a query.
#[derive(Clone, Copy)]
enum PatternOctet {
    /// Any value.
    Any,
    /// A value under a mask.
    Bits(u8, u8),
    /// A letter, in lower or upper case.
    Letter(u8),
}

impl PatternOctet {
    const fn is(octet: u8) -> Self {
        Self::Bits(0xff, octet)
    }

    fn care(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Bits(mask, _) => mask,
            Self::Letter(_) => 0xff,
        }
    }

    fn fold(self) -> u8 {
        match self {
            Self::Any | Self::Bits(..) => 0,
            Self::Letter(_) => CASE,
        }
    }

    fn expect(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Bits(_, octet) => octet,
            Self::Letter(letter) => letter | CASE,
        }
    }
}

/// Expected query up to the end of its question. The program itself checks the variable parts: the digits of the name,
/// the type, and whether a record follows.
struct QueryPattern {
    octets: Vec<PatternOctet>,
}

impl QueryPattern {
    fn new(suffix: &[u8]) -> Self {
        let mut octets = vec![PatternOctet::Any; SUFFIX_AT];
        // QR and OPCODE; one question, and no records except perhaps one additional record.
        octets[2] = PatternOctet::Bits(0xf8, 0);
        for (octet, count) in octets[4..11].iter_mut().zip([0, 1, 0, 0, 0, 0, 0]) {
            *octet = PatternOctet::is(count);
        }
        let (length, label) = (LABEL_AT - 1, LABEL_AT);
        octets[length] = PatternOctet::is(u8::try_from(LABEL_BYTES).unwrap_or_default());
        for hyphen in [3, 7, 11] {
            octets[label + hyphen] = PatternOctet::is(b'-');
        }
        // Length octets are below 64 and therefore not letters.
        octets.extend(
            suffix
                .iter()
                .map(|&octet| match octet.is_ascii_alphabetic() {
                    true => PatternOctet::Letter(octet),
                    false => PatternOctet::is(octet),
                }),
        );
        // The type: the first octet is 0 for all known types; class IN.
        octets.extend([
            PatternOctet::is(0),
            PatternOctet::Any,
            PatternOctet::is(0),
            PatternOctet::is(1),
        ]);
        Self { octets }
    }

    /// Words of one part. The last word ends with the last octets, if their number is not a multiple of the word size.
    fn words(&self, part: fn(PatternOctet) -> u8) -> Vec<[u8; WORD]> {
        let octets: Vec<u8> = self.octets.iter().map(|octet| part(*octet)).collect();
        let (words, rest) = octets.as_chunks();
        let tail = octets.last_chunk().filter(|_| !rest.is_empty());
        words.iter().chain(tail).copied().collect()
    }
}

/// The records by kind: A, AAAA, SOA; without the address of the name.
fn records(fast: &Fast) -> [Vec<u8>; 3] {
    let aaaa = own_aaaa(Ipv4Addr::UNSPECIFIED).octets();
    [
        [&fast.a[..], &Ipv4Addr::UNSPECIFIED.octets()].concat(),
        [&fast.aaaa[..], &aaaa].concat(),
        fast.soa.to_vec(),
    ]
}

/// Checksum of the record: sum of its 16-bit words in host order (RFC 1071). Records have an even number of octets.
fn sum(record: &[u8]) -> u64 {
    let (words, _) = record.as_chunks();
    words
        .iter()
        .map(|word| u64::from(u16::from_ne_bytes(*word)))
        .sum()
}

/// Octets of a word.
const WORD: usize = 8;

/// `WORDS` of the BPF program: the longest question has 271 octets.
const WORDS: usize = 34;

/// Largest record in octets.
const RECORD_OCTETS: usize = 56;

const LABEL_AT: usize = SUFFIX_AT - LABEL_BYTES;

/// The bit in which upper and lower case differ.
const CASE: u8 = 0x20;

/// Shares are exact over a million numbers.
const MILLION: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Zone;

    fn zone(suffix: &str) -> ZoneConfig {
        ZoneConfig {
            zone: Zone {
                suffix: suffix.parse().unwrap(),
                aaaa_share: "25%".parse().unwrap(),
                ..Zone::default()
            },
            self_test: false,
            ttl_s: 1,
            negative_ttl_s: 2,
        }
    }

    fn station(addresses: &[&str]) -> Station {
        Station {
            mac: [2, 0, 0, 0, 0, 1],
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            port: 53,
            is_veth: false,
        }
    }

    /// Compares as the BPF program does.
    fn fits(template: &QueryPattern, query: &[u8]) -> bool {
        let parts = [PatternOctet::care, PatternOctet::fold, PatternOctet::expect]
            .map(|part| template.words(part));
        let [care, fold, expect] = parts.map(|part| part.as_flattened().to_vec());
        let (words, rest) = query.as_chunks::<WORD>();
        let tail = query.last_chunk().filter(|_| !rest.is_empty());
        let octets: Vec<u8> = words.iter().chain(tail).flatten().copied().collect();
        octets.len() == care.len()
            && (0..care.len()).all(|i| octets[i] & care[i] | fold[i] == expect[i])
    }

    #[test]
    fn question_matches_for_any_length_and_case() {
        for suffix in [".", "z.", "ab.", "dns64perf.test.", "an-Odd[one].example."] {
            let zone = zone(suffix);
            let suffix = zone.zone.suffix.as_wire();
            let template = QueryPattern::new(suffix);
            let head = b"\x12\x34\x01\x10\0\x01\0\0\0\0\0\x01\x0f010-000-002-033";
            let query = [&head[..], suffix, &[0, 28, 0, 1]].concat();
            assert!(fits(&template, &query));
            assert!(fits(&template, &query.to_ascii_uppercase()));
            for (at, bit) in [(2, 0x80), (5, 1), (7, 1), (12, 1), (16, 1), (28, 1)] {
                let mut other = query.clone();
                other[at] ^= bit;
                assert!(!fits(&template, &other), "{at}");
            }
            let last = query.len() - 1;
            for at in [last, last - 1, last - 3] {
                let mut other = query.clone();
                other[at] ^= 2;
                assert!(!fits(&template, &other), "{at}");
            }
        }
    }

    #[test]
    fn characters_that_differ_only_in_the_case_bit_are_not_the_same_letter() {
        // '[' and '{' differ in the same bit as 'A' and 'a'.
        let template = QueryPattern::new(b"\x01[\0");
        let query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x0f010-000-002-033\x01[\0\0\x01\0\x01";
        assert!(fits(&template, query));
        assert!(!fits(
            &template,
            &query.map(|o| if o == b'[' { b'{' } else { o })
        ));
    }

    #[test]
    fn entry_has_the_size_of_the_map_for_any_content() {
        let here = station(&["192.0.2.1", "2001:db8::1", "fe80::1"]);
        for suffix in [".", "dns64perf.test."] {
            assert_eq!(octets(&zone(suffix), &here).unwrap().len(), 1136);
        }
        let many = ["192.0.2.1"; ADDRESSES_MAX + 1];
        let error = octets(&zone("."), &station(&many)).unwrap_err();
        assert!(
            error.to_string().contains("interface has 5 IPv4 addresses"),
            "{error}"
        );
    }
}
