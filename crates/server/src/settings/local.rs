//! Names that the server answers itself, as a tree.

use std::collections::HashMap;

use dns64_wire::codes::Rtype;
use dns64_wire::name::{NAME_LEN_MAX, NameBuf};

/// Largest number of labels of a name: each but the root has at least two octets.
const LABELS_MAX: usize = NAME_LEN_MAX / 2;

/// Names with their records, and zones. All names above one of them are in it, too, except the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Indexed by lower-case name, uncompressed.
    names: HashMap<Box<[u8]>, Node>,
    /// The last three letters of these names, in pairs with the last one: a bit of a word each. They rule out most other
    /// names.
    ends: [[u32; 32]; 2],
}

/// A name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its records by type; a CNAME record is the only one.
    pub records: Vec<LocalRecord>,
    /// Whether the operator gave them.
    pub is_given: bool,
    zone: Option<Zone>,
}

/// What is said of the names below one that have no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// They do not exist, for this TTL in seconds.
    Closed(u32),
    /// Upstreams know.
    Open,
}

/// A record of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRecord {
    /// Type.
    pub rtype: Rtype,
    /// TTL in seconds; the same for all records of a name and type.
    pub ttl_s: u32,
    /// Data, names in it uncompressed.
    pub data: Box<[u8]>,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The name itself, or the wildcard that stands for it (RFC 4592).
    pub node: Option<&'a Node>,
    /// The closed zone that it is in: the offset of the zone's name in it, and the TTL of negative responses in seconds.
    pub zone: Option<(usize, u32)>,
}

impl Local {
    /// Adds a record of the operator; those that a special-use zone has for the name no longer hold. All records of a
    /// name and type get the lowest TTL (RFC 2181 section 5.2). Returns whether it is new.
    pub fn give(&mut self, name: &NameBuf, record: LocalRecord) -> bool {
        let node = self.node(name);
        if !node.is_given {
            *node = Node {
                zone: node.zone,
                is_given: true,
                records: Vec::new(),
            };
        }
        node.add(record)
    }

    /// Adds a record of a special-use zone.
    pub fn add(&mut self, name: &NameBuf, record: LocalRecord) {
        self.node(name).add(record);
    }

    /// Adds a name without records.
    pub fn add_name(&mut self, name: &NameBuf) {
        self.node(name);
    }

    /// Leaves a domain, with all names below it, to upstreams.
    pub fn open(&mut self, domain: &NameBuf) {
        let is_within = |name: &[u8]| {
            let name = NameBuf::from_wire(name);
            name.is_ok_and(|name| name.as_name().is_within(&domain.as_name()))
        };
        self.names.retain(|name, _| !is_within(name));
        if self.find(domain).is_some_and(|found| found.zone.is_some()) {
            self.set_zone(domain, Zone::Open);
        }
    }

    /// Says what the names below this one are, except below a longer one.
    pub fn set_zone(&mut self, name: &NameBuf, zone: Zone) {
        self.node(name).zone = Some(zone);
    }

    /// The records of exactly this name.
    pub fn exact(&self, name: &NameBuf) -> Option<&Node> {
        self.names
            .get(name.as_wire().to_ascii_lowercase().as_slice())
    }

    /// All names with something said of the names below, in any order.
    pub fn zones(&self) -> impl Iterator<Item = &[u8]> {
        let zones = self.names.iter().filter(|(_, node)| node.zone.is_some());
        zones.map(|(name, _)| &**name)
    }

    /// Whether it may have the name; `false` for most other names.
    pub fn may_have(&self, name: &NameBuf) -> bool {
        let ([third, second], last) = end(name.as_wire());
        self.ends[0][second] >> last & 1 == 1 && self.ends[1][third] >> last & 1 == 1
    }

    /// What is known of a name; `None` if not even its top-level domain is in the tree.
    pub fn find(&self, name: &NameBuf) -> Option<Found<'_>> {
        if !self.may_have(name) {
            return None;
        }
        let mut octets = [0; NAME_LEN_MAX];
        let wire = &mut octets[..name.as_wire().len()];
        wire.copy_from_slice(name.as_wire());
        wire.make_ascii_lowercase();
        let (mut starts, mut count, mut at) = ([0; LABELS_MAX], 0, 0);
        while wire[at] != 0 {
            starts[count] = at;
            count += 1;
            at += 1 + usize::from(wire[at]);
        }
        let (mut encloser, mut zone) = (None, None);
        for &at in starts[..count].iter().rev() {
            let Some(node) = self.names.get(&wire[at..]) else {
                break;
            };
            encloser = Some((at, node));
            match node.zone {
                Some(Zone::Closed(ttl_s)) => zone = Some((at, ttl_s)),
                Some(Zone::Open) => zone = None,
                None => {}
            }
        }
        let node = match encloser? {
            (0, node) => Some(node),
            (at, _) => {
                // In place of the end of the label before.
                wire[at - 2..at].copy_from_slice(b"\x01*");
                self.names.get(&wire[at - 2..])
            }
        };
        Some(Found { node, zone })
    }

    fn node(&mut self, name: &NameBuf) -> &mut Node {
        let wire = name.as_wire().to_ascii_lowercase();
        let ([third, second], last) = end(&wire);
        self.ends[0][second] |= 1 << last;
        self.ends[1][third] |= 1 << last;
        let mut above = 1 + usize::from(wire[0]);
        while wire.get(above).is_some_and(|len| *len > 0) {
            self.names.entry(wire[above..].into()).or_default();
            above += 1 + usize::from(wire[above]);
        }
        self.names.entry(wire.into()).or_default()
    }
}

impl Node {
    /// Whether it is an alias, or has other records.
    pub fn is_alias(&self) -> Option<bool> {
        let first = self.records.first()?;
        Some(first.rtype == Rtype::CNAME)
    }

    /// Whether it has an address.
    pub fn has_address(&self) -> bool {
        let is_address = |record: &LocalRecord| matches!(record.rtype, Rtype::A | Rtype::AAAA);
        self.records.iter().any(is_address)
    }

    fn add(&mut self, record: LocalRecord) -> bool {
        let same = |other: &&mut LocalRecord| other.rtype == record.rtype;
        let least = |ttl_s: u32, other: &mut LocalRecord| ttl_s.min(other.ttl_s);
        let ttl_s = self
            .records
            .iter_mut()
            .filter(same)
            .fold(record.ttl_s, least);
        let mut is_new = true;
        for other in self.records.iter_mut().filter(same) {
            other.ttl_s = ttl_s;
            is_new &= other.data != record.data;
        }
        if is_new {
            self.records.push(LocalRecord { ttl_s, ..record });
        }
        is_new
    }
}

/// The words of the two letters before the last one of a name, and the bit of that; without regard to case. If its last
/// label is shorter, its length is one of them.
fn end(wire: &[u8]) -> ([usize; 2], u8) {
    match wire {
        // The octet before the length of a label belongs to another one.
        [.., 1, last, 0] => ([0, 1], last & 31),
        [.., third, second, last, 0] => (
            [third, second].map(|octet| usize::from(octet & 31)),
            last & 31,
        ),
        _ => ([0, 0], 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    fn address(last: u8) -> LocalRecord {
        LocalRecord {
            rtype: Rtype::A,
            ttl_s: 60 + u32::from(last),
            data: [192, 0, 2, last].into(),
        }
    }

    /// The last octet of the address of a name.
    fn found(local: &Local, text: &str) -> Option<u8> {
        let node = local.find(&name(text))?.node?;
        node.records.first().map(|record| record.data[3])
    }

    /// RFC 4592 section 2.2.1.
    #[test]
    fn wildcard_stands_for_names_whose_closest_encloser_is_its_parent() {
        let mut local = Local::default();
        local.give(&name("*.Lab.home"), address(1));
        local.give(&name("a.b.lab.home"), address(2));
        local.give(&name("host.lab.home"), address(3));
        for (asked, expected) in [
            ("x.lab.home", Some(1)),
            ("y.x.LAB.home", Some(1)),
            ("*.lab.home", Some(1)),
            ("host.lab.home", Some(3)),
            ("x.host.lab.home", None),
            ("b.lab.home", None),
            ("x.b.lab.home", None),
            ("a.b.lab.home", Some(2)),
            ("lab.home", None),
            ("xlab.home", None),
            ("xome", None),
            (".", None),
        ] {
            assert_eq!(found(&local, asked), expected, "{asked}");
        }
        assert!(local.find(&name("b.lab.home")).unwrap().node.is_some());
        assert!(local.find(&name("other.home")).unwrap().node.is_none());
        assert!(local.find(&name("example.com")).is_none());
        for top in ["a", "de", "net", "\\001b"] {
            local.give(&name(top), address(9));
            for asked in [
                top.to_owned(),
                format!("x.{top}"),
                format!("x.{top}").to_uppercase(),
            ] {
                assert!(local.may_have(&name(&asked)), "{asked}");
            }
        }
        assert!(!local.may_have(&name("test")));
    }

    #[test]
    fn longest_zone_decides() {
        let mut local = Local::default();
        local.set_zone(&name("home"), Zone::Closed(300));
        local.set_zone(&name("open.home"), Zone::Open);
        let zone = |asked: &str| local.find(&name(asked)).unwrap().zone;
        assert_eq!(zone("a.home"), Some((2, 300)));
        assert_eq!(zone("HOME"), Some((0, 300)));
        assert_eq!(zone("open.home"), None);
        assert_eq!(zone("x.open.home"), None);
    }

    #[test]
    fn records_of_a_name_and_type_have_the_lowest_ttl_and_are_not_repeated() {
        let mut local = Local::default();
        let host = name("host");
        local.add(&host, address(9));
        assert!(local.give(&host, address(2)));
        assert!(local.give(&host, address(1)));
        assert!(!local.give(&host, address(2)));
        let node = local.exact(&name("HOST")).unwrap();
        let seen: Vec<_> = node.records.iter().map(|r| (r.data[3], r.ttl_s)).collect();
        assert_eq!(seen, [(2, 61), (1, 61)]);
    }
}
