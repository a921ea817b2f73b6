//! The expected differences and their reasons.

use std::fmt::Write as _;

use crate::compare::Aspect::{self, Aa, Ad, Ra, Rcode, Records, Soa, SoaTtl, Ttl};
use crate::world::World;

/// The expected responses of all three servers to some kinds of queries.
pub(crate) struct Expected {
    pub(crate) kinds: &'static [&'static str],
    pub(crate) dns64d: &'static str,
    pub(crate) unbound: Peer,
    pub(crate) bind: Peer,
    /// The server that is right, and the clause that says so.
    pub(crate) why: &'static str,
}

/// How a server differs from dns64d for every query of these kinds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Same,
    Differs(&'static [Aspect], &'static str),
    /// Differs in these or not at all, as its upstream had the records cached.
    MayDiffer(&'static [Aspect], &'static str),
}

use Peer::{Differs, MayDiffer, Same};

impl Peer {
    pub(crate) fn allows(self, found: &[Aspect]) -> bool {
        match self {
            Same => found.is_empty(),
            Differs(aspects, _) => found == aspects,
            MayDiffer(aspects, _) => found.is_empty() || found == aspects,
        }
    }
}

/// The entry for a kind; `None` if all three servers must respond the same.
pub(crate) fn of(kind: &str) -> Option<&'static Expected> {
    EXPECTED.iter().find(|entry| entry.kinds.contains(&kind))
}

pub(crate) const EXPECTED: &[Expected] = &[
    Expected {
        kinds: &[
            "TTL of A above MINIMUM of the SOA",
            "TTL of A above that of the SOA",
            "MINIMUM of the SOA is 0",
            "chain to A with TTL above MINIMUM",
        ],
        dns64d: "TTL at most that of the negative answer",
        unbound: Differs(&[Ttl], "TTL of the A record"),
        bind: Same,
        why: "5.1.7: the smaller of the TTLs of A and SOA",
    },
    Expected {
        kinds: &["no SOA in the negative answer"],
        dns64d: "TTL at most 600 s",
        unbound: Differs(&[Ttl], "TTL of the A record"),
        bind: Same,
        why: "5.1.7 (SHOULD)",
    },
    Expected {
        kinds: &["SERVFAIL for AAAA"],
        dns64d: "synthesised from A, TTL at most 30 s",
        unbound: Differs(&[Ttl], "synthesised from A with its TTL"),
        bind: Differs(&[Rcode, Records], "SERVFAIL"),
        why: "5.1.2: an error counts as an empty answer; the name may have AAAA records, hence 30 s",
    },
    Expected {
        kinds: &["SERVFAIL for A"],
        dns64d: "SERVFAIL",
        unbound: Differs(&[Rcode, Soa], "empty, with SOA"),
        bind: Same,
        why: "5.1.6: the error is the answer",
    },
    Expected {
        kinds: &["DNAME to A", "DNAME to neither", "DNAME to no name"],
        dns64d: "CNAME with the TTL of the DNAME record",
        unbound: MayDiffer(&[Ttl], "the TTL from the upstream, which may be 0"),
        bind: Same,
        why: "RFC 6672 section 3.1 (SHOULD)",
    },
    Expected {
        kinds: &["mapped AAAA and A", "chain to mapped AAAA and A"],
        dns64d: "synthesised from A",
        unbound: Differs(&[Records], "the mapped AAAA"),
        bind: Same,
        why: "5.1.4: ::ffff:0:0/96 is excluded by default (SHOULD)",
    },
    Expected {
        kinds: &["mapped AAAA alone"],
        dns64d: "empty, with the SOA of the answer for A",
        unbound: Differs(&[Records, Soa], "the mapped AAAA"),
        bind: Same,
        why: "5.1.4 (MUST NOT)",
    },
    Expected {
        kinds: &["mapped AAAA beside another"],
        dns64d: "the other AAAA",
        unbound: Differs(&[Records], "both"),
        bind: Same,
        why: "5.1.4 (MUST NOT)",
    },
    Expected {
        kinds: &["A that is not global"],
        dns64d: "empty, with SOA",
        unbound: Differs(&[Records, Soa], "synthesised from A"),
        bind: Differs(&[Records, Soa], "synthesised from A"),
        why: "RFC 6052 section 3.1: 64:ff9b::/96 MUST NOT stand for them (`private-addresses`)",
    },
    Expected {
        kinds: &["global A and another"],
        dns64d: "synthesised from the global A",
        unbound: Differs(&[Records], "synthesised from both"),
        bind: Differs(&[Records], "synthesised from both"),
        why: "as above",
    },
    Expected {
        kinds: &["PTR under the prefix", "PTR under the prefix, not global"],
        dns64d: "CNAME with the TTL of the PTR, and the PTR",
        unbound: Differs(&[Records], "PTR under the name asked for, no CNAME"),
        bind: Differs(&[Aa, Ttl], "CNAME of 600 s, authoritative, and the PTR"),
        why: "5.3.1 describes the CNAME; AA is for the first owner name (RFC 1035 section 4.1.1), and only BIND has a \
              zone for the prefix",
    },
    Expected {
        kinds: &["PTR under the prefix, by an alias"],
        dns64d: "PTR under the name asked for",
        unbound: Differs(
            &[Records],
            "the same, and a CNAME to a target without records",
        ),
        bind: Differs(&[Aa, Records], "CNAME to a CNAME to the PTR"),
        why: "5.3.1: the target SHOULD NOT be a CNAME itself",
    },
    Expected {
        kinds: &["PTR under the prefix, of no name"],
        dns64d: "NXDOMAIN with the SOA of in-addr.arpa's zone",
        unbound: Same,
        bind: Differs(&[Aa, Records], "the same, after a CNAME"),
        why: "5.3.1: no CNAME to a name without PTR (SHOULD)",
    },
    Expected {
        kinds: &["other type under the prefix"],
        dns64d: "the upstream's response",
        unbound: Same,
        bind: Differs(
            &[Rcode, Aa, Records],
            "CNAME into in-addr.arpa, authoritative",
        ),
        why: "5.3.1 covers PTR only; BIND's zone has a CNAME at every address",
    },
    Expected {
        kinds: &["PTR above the prefix's addresses"],
        dns64d: "the upstream's response",
        unbound: Same,
        bind: Differs(
            &[Rcode, Aa, SoaTtl],
            "empty, authoritative, with its own SOA",
        ),
        why: "5.3.1: as without DNS64",
    },
    Expected {
        kinds: &["ipv4only.arpa AAAA", "ipv4only.arpa A"],
        dns64d: "authoritative, AAAA for 3,600 s and A for 86,400 s",
        unbound: Differs(&[Aa, Ttl], "from the upstream"),
        bind: Differs(&[Aa, Ttl], "from the upstream"),
        why: "RFC 8880 section 7.1: a DNS64 MUST NOT query upstreams for it",
    },
    Expected {
        kinds: &["ipv4only.arpa, other type", "below ipv4only.arpa"],
        dns64d: "authoritative, SOA of 60 s",
        unbound: Differs(&[Aa, SoaTtl], "from the upstream"),
        bind: Differs(&[Aa, SoaTtl], "from the upstream"),
        why: "as above",
    },
    Expected {
        kinds: &["PTR of ipv4only.arpa's address"],
        dns64d: "ipv4only.arpa, authoritative, 3,600 s",
        unbound: Differs(&[Rcode, Aa, Records, Soa], "NXDOMAIN from the upstream"),
        bind: Same,
        why: "RFC 8880 section 7.2",
    },
    Expected {
        kinds: &["CD", "signed A only, CD"],
        dns64d: "synthesised from A",
        unbound: Differs(&[Records, Soa], "empty, with SOA"),
        bind: Same,
        why: "3 (1), 5.5 (3): CD=1 forbids synthesis only together with DO=1",
    },
    Expected {
        kinds: &["CD and DO"],
        dns64d: "empty, with SOA",
        unbound: Same,
        bind: Differs(&[Records, Soa], "synthesised from A"),
        why: "5.5 (3) (MUST NOT)",
    },
    Expected {
        kinds: &["signed A only, DO"],
        dns64d: "synthesised from A",
        unbound: Same,
        bind: Differs(&[Records, Soa], "empty, with SOA and its signatures"),
        why: "5.5 (2): allowed from validated data, as AD shows (`synthesise-signed`)",
    },
    Expected {
        kinds: &[
            "signed A only, CD and DO",
            "signed AAAA, AD",
            "signed AAAA, DO",
            "signed AAAA, CD and DO",
        ],
        dns64d: "the upstream's AD",
        unbound: Differs(&[Ad], "no AD"),
        bind: Differs(&[Ad], "no AD"),
        why: "dns64d trusts its upstream (RFC 4035 section 4.9.3), the others their own validation",
    },
    Expected {
        kinds: &["bogus A only", "bogus A only, AD"],
        dns64d: "SERVFAIL",
        unbound: Same,
        bind: Differs(&[Rcode, Records], "synthesised from A"),
        why: "5.5; BIND retries with CD=1",
    },
    Expected {
        kinds: &["bogus A only, DO"],
        dns64d: "SERVFAIL",
        unbound: Same,
        bind: Differs(&[Rcode, Soa], "empty, with SOA"),
        why: "as above",
    },
    Expected {
        kinds: &["bogus A only, CD"],
        dns64d: "synthesised from A",
        unbound: Differs(&[Records, Soa], "empty, with SOA"),
        bind: Same,
        why: "as for other names with CD",
    },
    Expected {
        kinds: &["RD=0"],
        dns64d: "REFUSED",
        unbound: Same,
        bind: Differs(&[Rcode], "empty, NOERROR"),
        why: "RFC 1034 section 4.3.1: no recursion without RD",
    },
    Expected {
        kinds: &["ANY"],
        dns64d: "one HINFO",
        unbound: Differs(&[Records], "all records"),
        bind: Differs(&[Records], "all records"),
        why: "RFC 8482 section 4.2 allows both (`any`)",
    },
    Expected {
        kinds: &["class CH"],
        dns64d: "SERVFAIL, since the upstream refuses it",
        unbound: Differs(&[Rcode], "REFUSED"),
        bind: Differs(&[Rcode, Ra], "REFUSED, without RA"),
        why: "5.1: other classes are forwarded; an upstream's REFUSED is for dns64d, not for the client",
    },
    Expected {
        kinds: &["class CH, version.bind"],
        dns64d: "REFUSED",
        unbound: Differs(&[Rcode, Records], "its own version"),
        bind: Differs(
            &[Rcode, Aa, Ra, Records],
            "its own version, authoritative, without RA",
        ),
        why: "RFC 4892: about the queried server; dns64d does not reveal its version",
    },
];

/// The page about the differences.
pub(crate) fn page(world: &World) -> String {
    let kinds = world.kinds();
    let alike = kinds.keys().filter(|kind| of(kind).is_none());
    let mut page = format!(
        "# dns64d beside Unbound and BIND\n\n\
         *Where do responses of dns64d differ from those of Unbound 1.17 and BIND 9.18, and who is right?* The test \
         `every_difference_is_expected`\n(crates/server/tests/differential) sends {} queries about {} names to all \
         three, with the prefix 64:ff9b::/96 and one validating resolver behind them;\nnone of the three validates. It \
         compares response code, AA, AD, RA, TC, the answer section, its TTLs to within 5 s, and the SOA record. For {} \
         kinds\nof queries all three respond alike; these are the others. Numbers alone are sections of RFC 6147.\n\n\
         | question | dns64d | Unbound | BIND | who is right |\n|---|---|---|---|---|\n",
        world.cases.len(),
        world.names(),
        alike.count(),
    );
    for entry in EXPECTED {
        let kinds = entry.kinds.join("; ");
        let [unbound, bind] = [entry.unbound, entry.bind].map(cell);
        let (dns64d, why) = (entry.dns64d, entry.why);
        writeln!(page, "| {kinds} | {dns64d} | {unbound} | {bind} | {why} |").unwrap();
    }
    page
}

fn cell(peer: Peer) -> &'static str {
    match peer {
        Same => "same",
        Differs(_, text) | MayDiffer(_, text) => text,
    }
}
