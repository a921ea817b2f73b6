//! The zones of the authority and the queries for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::name::NameBuf;

use crate::ask::Question;

/// TTL in seconds in all cases that do not test TTLs. All TTLs except 0 are longer than the test,
/// so that no cache on the path loses a record while the servers are queried in turn.
pub(crate) const TTL: u32 = 300;

/// A zone.
pub(crate) struct Zone {
    pub(crate) origin: &'static str,
    /// Lines of a master file (RFC 1035 section 5.1), all names absolute.
    pub(crate) text: String,
}

/// A query, and its kind in the list of expected differences.
pub(crate) struct Case {
    pub(crate) kind: &'static str,
    pub(crate) question: Question,
}

/// All zones and queries.
pub(crate) struct World {
    pub(crate) zones: Vec<Zone>,
    pub(crate) cases: Vec<Case>,
    /// Number of addresses assigned so far, which determines their last octets.
    addresses: u32,
}

/// Origin, TTL of the SOA record and its MINIMUM, in seconds. The TTL of a negative response is the
/// smaller of the two (RFC 2308 section 5).
const ZONES: [(&str, u32, u32); 13] = [
    (".", 3600, 3600),
    ("lab.example.", 3600, 3600),
    ("other.example.", 3600, 3600),
    ("long.example.", 3600, 3600),
    ("short.example.", 3600, 150),
    ("soattl.example.", 150, 3600),
    ("zero.example.", 3600, 0),
    ("signed.example.", 3600, 3600),
    ("bogus.example.", 3600, 3600),
    ("ipv4only.arpa.", 3600, 3600),
    ("20.in-addr.arpa.", 3600, 3600),
    ("168.192.in-addr.arpa.", 3600, 3600),
    ("8.b.d.0.1.0.0.2.ip6.arpa.", 3600, 3600),
];

impl World {
    pub(crate) fn new() -> Self {
        let zones = ZONES.map(|(origin, soa_ttl, minimum)| Zone {
            origin,
            text: format!(
                "{origin} {soa_ttl} IN SOA ns.lab.example. root.lab.example. 1 3600 900 86400 {minimum}\n\
                 {origin} {TTL} IN NS ns.lab.example.\n"
            ),
        });
        let mut world = Self {
            zones: zones.into(),
            cases: Vec::new(),
            addresses: 0,
        };
        world.add("ns.lab.example.", "A 20.255.0.1");
        crate::cases::all(&mut world);
        crate::rows::records(&mut world);
        world
    }

    /// Adds a record with the usual TTL to the zone that holds its owner.
    pub(crate) fn add(&mut self, owner: &str, data: &str) {
        self.add_ttl(owner, TTL, data);
    }

    pub(crate) fn add_ttl(&mut self, owner: &str, ttl: u32, data: &str) {
        let holds = |zone: &&mut Zone| {
            let suffix = format!(".{}", zone.origin);
            zone.origin == "." || owner == zone.origin || owner.ends_with(&suffix)
        };
        let zones = self.zones.iter_mut().filter(holds);
        let zone = zones.max_by_key(|zone| zone.origin.len()).unwrap();
        writeln!(zone.text, "{owner} {ttl} IN {data}").unwrap();
    }

    /// A global IPv4 address that no other record has.
    pub(crate) fn ipv4(&mut self) -> String {
        self.addresses += 1;
        let [_, _, high, low] = self.addresses.to_be_bytes();
        format!("20.1.{high}.{low}")
    }

    pub(crate) fn add_a(&mut self, owner: &str) {
        let address = self.ipv4();
        self.add(owner, &format!("A {address}"));
    }

    /// An AAAA record without special properties.
    pub(crate) fn add_aaaa(&mut self, owner: &str) {
        self.addresses += 1;
        self.add(owner, &format!("AAAA 2001:db8:6::{:x}", self.addresses));
    }

    pub(crate) fn ask(&mut self, kind: &'static str, name: &str, rtype: Rtype) {
        self.ask_with(kind, name, rtype, |question| question);
    }

    /// Adds a query with other properties than those of a stub resolver.
    pub(crate) fn ask_with(
        &mut self,
        kind: &'static str,
        name: &str,
        rtype: Rtype,
        change: impl Fn(Question) -> Question,
    ) {
        let question = Question {
            name: name.parse().unwrap(),
            rtype,
            class: Class::IN,
            rd: true,
            cd: false,
            ad: false,
            edns: Some((1232, false)),
        };
        let question = change(question);
        self.cases.push(Case { kind, question });
    }

    /// Adds queries for AAAA and for types that must be forwarded unchanged.
    pub(crate) fn ask_addresses(&mut self, kind: &'static str, name: &str) {
        self.ask(kind, name, Rtype::AAAA);
        self.ask("A question", name, Rtype::A);
    }

    /// Number of queries of each kind.
    pub(crate) fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        for case in &self.cases {
            *kinds.entry(case.kind).or_default() += 1;
        }
        kinds
    }

    /// Number of queried names.
    pub(crate) fn names(&self) -> usize {
        let name = |case: &Case| case.question.name.as_wire().to_ascii_lowercase();
        self.cases.iter().map(name).collect::<BTreeSet<_>>().len()
    }
}

/// The reverse name of an IPv6 address (RFC 3596 section 2.5).
pub(crate) fn ip6_arpa(address: &str) -> String {
    let address: std::net::Ipv6Addr = address.parse().unwrap();
    let mut name = String::new();
    for octet in address.octets().into_iter().rev() {
        write!(name, "{:x}.{:x}.", octet & 15, octet >> 4).unwrap();
    }
    name + "ip6.arpa."
}

/// A name of exactly 255 octets below a zone (RFC 1035 section 3.1).
pub(crate) fn longest_name(zone: &str, letter: char) -> String {
    let mut name = zone.to_owned();
    loop {
        let used = name.parse::<NameBuf>().unwrap().as_wire().len();
        let label = (255 - used).saturating_sub(1).min(63);
        if label == 0 {
            return name;
        }
        // One remaining octet has no room for a label.
        let label = if 255 - used - label - 1 == 1 {
            label - 1
        } else {
            label
        };
        name = format!("{}.{name}", letter.to_string().repeat(label));
    }
}
