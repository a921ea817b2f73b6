//! The differences that there are, and why.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::compare::Aspect::{self, Aa, Ad, Ra, Rcode, Records, Soa, SoaTtl, Ttl};
use crate::world::World;

/// What all three answer to some kinds of questions.
pub(crate) struct Expected {
    pub(crate) kinds: &'static [&'static str],
    pub(crate) dns64d: &'static str,
    pub(crate) unbound: Peer,
    pub(crate) bind: Peer,
    /// Who is right, and by which clause.
    pub(crate) why: &'static str,
}

/// How a server differs from dns64d for every question of these kinds.
#[derive(Clone, Copy)]
pub(crate) enum Peer {
    Same,
    Differs(&'static [Aspect], &'static str),
}

use Peer::{Differs, Same};

impl Peer {
    pub(crate) fn aspects(self) -> &'static [Aspect] {
        match self {
            Same => &[],
            Differs(aspects, _) => aspects,
        }
    }
}

/// The entry for a kind; there is none if all three are to answer alike.
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
        why: "RFC 6147 section 5.1.7: the smaller of the TTLs of A and SOA. Unbound goes on serving a made record \
              when the name has an AAAA record of its own",
    },
    Expected {
        kinds: &["no SOA in the negative answer"],
        dns64d: "TTL at most 600 s",
        unbound: Differs(&[Ttl], "TTL of the A record"),
        bind: Same,
        why: "RFC 6147 section 5.1.7: 600 s without an SOA record (SHOULD)",
    },
    Expected {
        kinds: &["SERVFAIL for AAAA"],
        dns64d: "made from A, TTL at most 30 s",
        unbound: Differs(&[Ttl], "made from A with its TTL"),
        bind: Differs(&[Rcode, Records], "SERVFAIL"),
        why: "RFC 6147 section 5.1.2: any response code but NXDOMAIN counts as an empty answer. The name may have \
              AAAA records, so dns64d stays below the 600 s of section 5.1.7. BIND does not ask for A",
    },
    Expected {
        kinds: &["SERVFAIL for A"],
        dns64d: "SERVFAIL",
        unbound: Differs(&[Rcode, Soa], "empty, with SOA"),
        bind: Same,
        why: "RFC 6147 section 5.1.6: the error is the answer. From Unbound the client learns that there is no \
              address, and may remember it",
    },
    Expected {
        kinds: &["DNAME to A", "DNAME to neither", "DNAME to no name"],
        dns64d: "CNAME with the TTL of the DNAME record",
        unbound: Differs(&[Ttl], "TTL 0, as from the upstream"),
        bind: Same,
        why: "RFC 6672 section 3.1: a cache gives the CNAME record the TTL of the DNAME record (SHOULD)",
    },
    Expected {
        kinds: &["mapped AAAA and A", "chain to mapped AAAA and A"],
        dns64d: "made from A",
        unbound: Differs(&[Records], "the mapped AAAA"),
        bind: Same,
        why: "RFC 6147 section 5.1.4: ::ffff:0:0/96 is excluded by default (SHOULD). Unbound excludes none",
    },
    Expected {
        kinds: &["mapped AAAA alone"],
        dns64d: "empty, with the SOA of the answer for A",
        unbound: Differs(&[Records, Soa], "the mapped AAAA"),
        bind: Same,
        why: "RFC 6147 section 5.1.4: excluded records are not returned (MUST NOT)",
    },
    Expected {
        kinds: &["mapped AAAA beside another"],
        dns64d: "the other AAAA",
        unbound: Differs(&[Records], "both"),
        bind: Same,
        why: "RFC 6147 section 5.1.4: excluded records are not returned (MUST NOT)",
    },
    Expected {
        kinds: &["A that is not global"],
        dns64d: "empty, with SOA",
        unbound: Differs(&[Records, Soa], "made from A"),
        bind: Differs(&[Records, Soa], "made from A"),
        why: "RFC 6052 section 3.1: 64:ff9b::/96 MUST NOT stand for them. With `private-addresses = true`, or with \
              another prefix, dns64d does as the others",
    },
    Expected {
        kinds: &["global A and another"],
        dns64d: "made from the global A",
        unbound: Differs(&[Records], "made from both"),
        bind: Differs(&[Records], "made from both"),
        why: "RFC 6052 section 3.1, as above",
    },
    Expected {
        kinds: &["PTR under the prefix", "PTR under the prefix, not global"],
        dns64d: "CNAME with the TTL of the PTR behind it, and that PTR",
        unbound: Differs(&[Records], "PTR under the name asked for, no CNAME"),
        bind: Differs(&[Aa, Ttl], "CNAME of 600 s, authoritative, and the PTR"),
        why: "RFC 6147 section 5.3.1 describes the CNAME; what Unbound does has the same RDATA and is served like its \
              local answer, without AA. AA is for the first owner name (RFC 1035 section 4.1.1): BIND has a zone for \
              the prefix, dns64d has none",
    },
    Expected {
        kinds: &["PTR under the prefix, by an alias"],
        dns64d: "PTR under the name asked for",
        unbound: Differs(
            &[Records],
            "that, and a CNAME that leads nowhere from there",
        ),
        bind: Differs(&[Aa, Records], "CNAME to a CNAME to the PTR"),
        why: "RFC 6147 section 5.3.1: the target of the CNAME SHOULD NOT be a CNAME itself, as in RFC 2317",
    },
    Expected {
        kinds: &["PTR under the prefix, of no name"],
        dns64d: "NXDOMAIN with the SOA of in-addr.arpa's zone",
        unbound: Same,
        bind: Differs(
            &[Aa, Records],
            "CNAME, NXDOMAIN with the SOA of in-addr.arpa's zone",
        ),
        why: "RFC 6147 section 5.3.1: no CNAME to a name without PTR (SHOULD). The SOA record says for how long \
              there is none",
    },
    Expected {
        kinds: &["other type under the prefix"],
        dns64d: "what the upstream says",
        unbound: Same,
        bind: Differs(
            &[Rcode, Aa, Records],
            "CNAME into in-addr.arpa, authoritative",
        ),
        why: "RFC 6147 section 5.3.1 speaks of PTR only; BIND's zone for the prefix has a CNAME at every address, \
              which answers all types",
    },
    Expected {
        kinds: &["PTR above the prefix's addresses"],
        dns64d: "what the upstream says",
        unbound: Same,
        bind: Differs(
            &[Rcode, Aa, SoaTtl],
            "empty, authoritative, with an SOA of its own",
        ),
        why: "RFC 6147 section 5.3.1: no whole address, so as without DNS64. BIND has a zone for the prefix",
    },
    Expected {
        kinds: &["ipv4only.arpa AAAA", "ipv4only.arpa A"],
        dns64d: "authoritative, 86,400 s",
        unbound: Differs(&[Aa, Ttl], "from the upstream"),
        bind: Differs(&[Aa, Ttl], "from the upstream"),
        why: "RFC 8880 section 7.1: a DNS64 MUST NOT ask upstream for it",
    },
    Expected {
        kinds: &["ipv4only.arpa, other type", "below ipv4only.arpa"],
        dns64d: "authoritative, SOA of 60 s",
        unbound: Differs(&[Aa, SoaTtl], "from the upstream"),
        bind: Differs(&[Aa, SoaTtl], "from the upstream"),
        why: "RFC 8880 section 7.1, as above",
    },
    Expected {
        kinds: &["PTR of ipv4only.arpa's address"],
        dns64d: "ipv4only.arpa, authoritative, 86,400 s",
        unbound: Differs(&[Rcode, Aa, Records, Soa], "NXDOMAIN from the upstream"),
        bind: Differs(&[Ttl], "the same for 3,600 s"),
        why: "RFC 8880 section 7.2: answered like the name itself",
    },
    Expected {
        kinds: &["CD", "signed A only, CD"],
        dns64d: "made from A",
        unbound: Differs(&[Records, Soa], "empty, with SOA"),
        bind: Same,
        why: "RFC 6147 section 3 (1): without DO, DNSSEC is not a concern; section 5.5 (3) forbids synthesis for CD=1 \
              only together with DO=1",
    },
    Expected {
        kinds: &["CD and DO"],
        dns64d: "empty, with SOA",
        unbound: Same,
        bind: Differs(&[Records, Soa], "made from A"),
        why: "RFC 6147 section 5.5 (3): no synthesis (MUST NOT), whether the zone is signed or not",
    },
    Expected {
        kinds: &["signed A only, DO"],
        dns64d: "made from A",
        unbound: Same,
        bind: Differs(&[Records, Soa], "empty, with SOA and its signatures"),
        why: "RFC 6147 section 5.5 (2): what was validated may be synthesised from, and the upstream's AD says that it \
              was. With `synthesise-signed = \"never\"` dns64d does as BIND",
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
        why: "None of the three validates here. dns64d trusts the upstream that the operator named, as RFC 4035 \
              section 4.9.3 lets a resolver do over a path that is secure; the others trust only themselves",
    },
    Expected {
        kinds: &["bogus A only", "bogus A only, AD"],
        dns64d: "SERVFAIL",
        unbound: Same,
        bind: Differs(&[Rcode, Records], "made from A"),
        why: "RFC 6147 section 5.5: SERVFAIL where validation failed. BIND without validation gets the data by CD=1 \
              from the resolver that has refused them",
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
        dns64d: "made from A",
        unbound: Differs(&[Records, Soa], "empty, with SOA"),
        bind: Same,
        why: "as for other names with CD",
    },
    Expected {
        kinds: &["RD=0"],
        dns64d: "REFUSED",
        unbound: Same,
        bind: Differs(&[Rcode], "empty, NOERROR"),
        why: "RFC 1034 section 4.3.1: without RD no recursion; a server that has no data of its own has nothing else \
              to say. A referral without servers, as BIND's, says less than REFUSED",
    },
    Expected {
        kinds: &["ANY"],
        dns64d: "one HINFO",
        unbound: Differs(&[Records], "all records"),
        bind: Differs(&[Records], "all records"),
        why: "RFC 8482 section 4.2 allows both. With `any = \"forward\"` dns64d does as the others",
    },
    Expected {
        kinds: &["class CH"],
        dns64d: "SERVFAIL, since the upstream refuses it",
        unbound: Differs(&[Rcode], "REFUSED"),
        bind: Differs(&[Rcode, Ra], "REFUSED, without RA"),
        why: "RFC 6147 section 5.1: as if there were no DNS64. dns64d passes other classes on; it does not pass on an \
              upstream's REFUSED, which is about dns64d and not about the client",
    },
    Expected {
        kinds: &["class CH, version.bind"],
        dns64d: "REFUSED",
        unbound: Differs(&[Rcode, Records], "its own version"),
        bind: Differs(
            &[Rcode, Aa, Ra, Records],
            "its own version, authoritative, without RA",
        ),
        why: "RFC 4892: the question is about the server that is asked, and the upstream is another one. dns64d does not \
              tell its version",
    },
];

/// The page about the differences.
pub(crate) fn page(world: &World) -> String {
    let mut page = format!(
        "# dns64d beside Unbound and BIND\n\n\
         The test `every_difference_is_expected` (crates/server/tests/differential, run by `.ci/run net`) asks dns64d, \
         Unbound 1.17\nand BIND 9.18 the same {} questions about {} names, in a network namespace, none with a \
         setting of DNS64\nbut the prefix 64:ff9b::/96. All three ask the same resolver, an Unbound that validates, in \
         front of NSD: what they get is\nwhat a resolver gives, chains across zones followed and TTLs counted down in \
         one cache, so a difference between two\nanswers is one between two servers. Neither of the two others \
         validates here, as dns64d never does.\n\n\
         Compared are: response code, AA, AD, RA, TC; the records of the answer section, over TCP where the answer \
         over UDP is\ntruncated, and their TTLs to within 5 s; the SOA record; synthesised records in the additional \
         section. The test fails if\nthere is a difference that this page does not have, and if one on this page is \
         not there for every question of its\nkind. The page is written from the test's list.\n\n\
         Beside it, `dig_rows` asks dns64d one question or more for each clause of RFC 6147 with dig. To read the \
         calls and\nwhat dns64d says:\n\n    \
         cargo test --package dns64d --test differential -- --ignored --nocapture --test-threads 1 dig_rows\n\n\
         | question | dns64d | Unbound | BIND | who is right |\n|---|---|---|---|---|\n",
        world.cases.len(),
        world.names(),
    );
    for entry in EXPECTED {
        let kinds = entry.kinds.join("; ");
        let [unbound, bind] = [entry.unbound, entry.bind].map(cell);
        let (dns64d, why) = (entry.dns64d, entry.why);
        writeln!(page, "| {kinds} | {dns64d} | {unbound} | {bind} | {why} |").unwrap();
    }
    let alike = world.kinds().into_keys().filter(|kind| of(kind).is_none());
    let alike: BTreeSet<_> = alike.collect();
    page += "\nAll three answer alike:\n\n";
    for kind in alike {
        writeln!(page, "- {kind}").unwrap();
    }
    page
}

fn cell(peer: Peer) -> String {
    match peer {
        Same => "as dns64d".to_owned(),
        Differs(aspects, text) => {
            let aspects: Vec<_> = aspects.iter().map(Aspect::to_string).collect();
            format!("{text} (differs: {})", aspects.join(", "))
        }
    }
}
