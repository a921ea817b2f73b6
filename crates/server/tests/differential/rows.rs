//! Commands of dig that show how dns64d meets RFC 6147: at least one row for each of its clauses.

use std::net::Ipv4Addr;

use crate::lab::{DNS64D, SCRIPTED, SPECIAL};
use crate::world::{World, ip6_arpa};

/// A dig command and its expected output.
pub(crate) struct Row {
    /// The tested behaviour, with the clause.
    pub(crate) about: &'static str,
    /// Arguments of dig, besides those of all rows.
    pub(crate) dig: &'static str,
    pub(crate) server: Ipv4Addr,
    pub(crate) status: &'static str,
    /// Flags of the header.
    pub(crate) flags: &'static str,
    /// All records of the answer section, in any order. `*` matches any word.
    pub(crate) answer: &'static [&'static str],
    /// Types of all records of the other two sections, in order: first those of the authority
    /// section, then those of the additional section.
    pub(crate) others: &'static [&'static str],
}

/// Settings of the server at [`SPECIAL`].
pub(crate) const SPECIAL_SETTINGS: &str = r#"
order = "both"
[dns64]
prefix = "2001:db8:64::/96"
map = [{ ipv4 = "20.8.0.0/16", prefix = "2001:db8:8::/48" }, { ipv4 = "10.0.0.0/8", prefix = "none" }]
exclude-aaaa = ["::ffff:0:0/96", "2001:db8:bad::/48"]
ptr = "local"
ptr-name = "nat64.example"
"#;

/// Settings of the server at [`SCRIPTED`]: short timeouts.
pub(crate) const SCRIPTED_SETTINGS: &str = "timeout = \"300ms\"\nattempts = 2\n";

/// The records that the rows query, all below `row.example.` except the reverse ones.
pub(crate) fn records(world: &mut World) {
    for (owner, data) in [
        ("a", "A 20.5.0.1"),
        ("aaaa", "AAAA 2001:db8:6::53"),
        ("both", "A 20.5.0.2"),
        ("both", "AAAA 2001:db8:6::54"),
        ("text", "TXT \"nothing else\""),
        ("bad", "A 20.5.0.3"),
        ("bad", "AAAA 2001:db8:bad::1"),
        ("mapped", "A 20.5.0.4"),
        ("mapped", "AAAA ::ffff:20.5.0.5"),
        ("compatible", "AAAA ::20.5.0.6"),
        ("mixed", "AAAA ::ffff:20.5.0.5"),
        ("mixed", "AAAA 2001:db8:6::55"),
        ("only-mapped", "AAAA ::ffff:20.5.0.5"),
        ("chain", "CNAME middle.row.example."),
        ("middle", "CNAME a.row.example."),
        ("tree", "DNAME leaves.row.example."),
        ("x.leaves", "A 20.5.0.7"),
        ("range", "A 20.8.1.2"),
        ("private", "A 10.1.2.3"),
    ] {
        world.add(&format!("{owner}.row.example."), data);
    }
    for i in 0..60 {
        world.add("big.row.example.", &format!("A 20.5.1.{i}"));
    }
    world.add("9.0.5.20.in-addr.arpa.", "PTR a.row.example.");
    world.add(&ip6_arpa("2001:db8:6::53"), "PTR aaaa.row.example.");
    world.add("a.signed.example.", "A 20.5.0.8");
    world.add("a.bogus.example.", "A 20.5.0.8");
}

const NOERROR: &str = "NOERROR";
const USUAL: &str = "qr rd ra";

/// A row for a well-behaved upstream.
const fn row(about: &'static str, dig: &'static str, answer: &'static [&'static str]) -> Row {
    Row {
        about,
        dig,
        server: DNS64D,
        status: NOERROR,
        flags: USUAL,
        answer,
        others: &[],
    }
}

/// A row for an upstream that follows the script.
const fn script(about: &'static str, dig: &'static str, answer: &'static [&'static str]) -> Row {
    Row {
        server: SCRIPTED,
        ..row(about, dig, answer)
    }
}

/// A row for the server with different settings.
const fn special(about: &'static str, dig: &'static str, answer: &'static [&'static str]) -> Row {
    Row {
        server: SPECIAL,
        ..row(about, dig, answer)
    }
}

impl Row {
    const fn status(self, status: &'static str) -> Self {
        Self { status, ..self }
    }

    const fn flags(self, flags: &'static str) -> Self {
        Self { flags, ..self }
    }

    const fn others(self, others: &'static [&'static str]) -> Self {
        Self { others, ..self }
    }
}

pub(crate) const ROWS: &[Row] = &[
    row(
        "D-1: another class is as if there were no DNS64 (5.1); the upstream refuses it",
        "a.row.example CH AAAA",
        &[],
    )
    .status("SERVFAIL"),
    row(
        "D-1: a question about the server is not for the upstream",
        "version.bind CH TXT",
        &[],
    )
    .status("REFUSED"),
    row(
        "D-2: no record is made where there is one (5.1.1)",
        "both.row.example AAAA",
        &["both.row.example. * IN AAAA 2001:db8:6::54"],
    ),
    row(
        "D-3: no name, no record (5.1.2)",
        "missing.row.example AAAA",
        &[],
    )
    .status("NXDOMAIN")
    .others(&["SOA"]),
    script(
        "D-3: any other response code is as an empty answer (5.1.2)",
        "servfail.script.example AAAA",
        &["servfail.script.example. 30 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-3: REFUSED too",
        "refused.script.example AAAA",
        &["refused.script.example. 30 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-3: NOTIMP too",
        "notimp.script.example AAAA",
        &["notimp.script.example. 30 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-3: FORMERR too",
        "formerr.script.example AAAA",
        &["formerr.script.example. 30 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-3: YXDOMAIN too",
        "yxdomain.script.example AAAA",
        &["yxdomain.script.example. 30 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-4: no answer for AAAA is as SERVFAIL (5.1.3)",
        "no-reply.script.example AAAA",
        &["no-reply.script.example. 30 IN AAAA 64:ff9b::1409:1"],
    ),
    script("D-4: no answer at all", "silent.script.example AAAA", &[]).status("SERVFAIL"),
    special(
        "D-5: ranges to exclude can be set (5.1.4)",
        "bad.row.example AAAA",
        &["bad.row.example. * IN AAAA 2001:db8:64::1405:3"],
    ),
    row(
        "D-6: ::ffff:0:0/96 is excluded (5.1.4)",
        "mapped.row.example AAAA",
        &["mapped.row.example. * IN AAAA 64:ff9b::1405:4"],
    ),
    row(
        "D-6: ::/96 is not",
        "compatible.row.example AAAA",
        &["compatible.row.example. * IN AAAA ::20.5.0.6"],
    ),
    row(
        "D-7: of several the others are left (5.1.4)",
        "mixed.row.example AAAA",
        &["mixed.row.example. * IN AAAA 2001:db8:6::55"],
    ),
    row(
        "D-7: and nothing of one",
        "only-mapped.row.example AAAA",
        &[],
    )
    .others(&["SOA"]),
    row(
        "D-8, D-10: the chain is kept, its end is the owner (5.1.5, 5.1.7)",
        "chain.row.example AAAA",
        &[
            "chain.row.example. * IN CNAME middle.row.example.",
            "middle.row.example. * IN CNAME a.row.example.",
            "a.row.example. * IN AAAA 64:ff9b::1405:1",
        ],
    ),
    row(
        "D-8: with DNAME",
        "x.tree.row.example AAAA",
        &[
            "tree.row.example. * IN DNAME leaves.row.example.",
            "x.tree.row.example. * IN CNAME x.leaves.row.example.",
            "x.leaves.row.example. * IN AAAA 64:ff9b::1405:7",
        ],
    ),
    row("D-9: no A either (5.1.6)", "text.row.example AAAA", &[]).others(&["SOA"]),
    script(
        "D-9: an error for A is the answer (5.1.6)",
        "no-a.script.example AAAA",
        &[],
    )
    .status("SERVFAIL"),
    script("D-9: NXDOMAIN too", "a-missing.script.example AAAA", &[])
        .status("NXDOMAIN")
        .others(&["SOA"]),
    script(
        "D-11: TTL of A, if that of the SOA is no smaller (5.1.7)",
        "plain.script.example AAAA",
        &["plain.script.example. 3600 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-11: at most that of the SOA",
        "soa-ttl.script.example AAAA",
        &["soa-ttl.script.example. 100 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-11: at most MINIMUM (RFC 2308 section 5)",
        "soa-minimum.script.example AAAA",
        &["soa-minimum.script.example. 100 IN AAAA 64:ff9b::1409:1"],
    ),
    script(
        "D-11: at most 600 s without SOA",
        "no-soa.script.example AAAA",
        &["no-soa.script.example. 600 IN AAAA 64:ff9b::1409:1"],
    ),
    special(
        "D-12: a range has its own prefix; /48 leaves bits 64 to 71 zero (5.1.7, RFC 6052 section 2.2)",
        "range.row.example AAAA",
        &["range.row.example. * IN AAAA 2001:db8:8:1408:1:200::"],
    ),
    special("D-12: or none", "private.row.example AAAA", &[]).others(&["SOA"]),
    special(
        "D-13: A and AAAA asked for at the same time: the same answer (5.1.8)",
        "both.row.example AAAA",
        &["both.row.example. * IN AAAA 2001:db8:6::54"],
    ),
    row(
        "D-14: the Well-Known Prefix, if none is set (5.2)",
        "a.row.example AAAA",
        &["a.row.example. * IN AAAA 64:ff9b::1405:1"],
    ),
    row(
        "D-14: not for private addresses (RFC 6052 section 3.1)",
        "private.row.example AAAA",
        &[],
    )
    .others(&["SOA"]),
    special(
        "D-14: the one that is set",
        "a.row.example AAAA",
        &["a.row.example. * IN AAAA 2001:db8:64::1405:1"],
    ),
    row(
        "D-15: the name of a made address by CNAME (5.3.1)",
        "-x 64:ff9b::20.5.0.9",
        &[
            "9.0.0.0.5.0.4.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa. * IN CNAME 9.0.5.20.in-addr.arpa.",
            "9.0.5.20.in-addr.arpa. * IN PTR a.row.example.",
        ],
    ),
    special(
        "D-15: or the same name for all, under each prefix in use",
        "-x 2001:db8:8:1408:1:200::",
        &["* 600 IN PTR nat64.example."],
    )
    .flags("qr aa rd ra"),
    special(
        "D-15: and under the Well-Known Prefix",
        "-x 64:ff9b::20.5.0.9",
        &["* 600 IN PTR nat64.example."],
    )
    .flags("qr aa rd ra"),
    row(
        "D-16: the name of any other address as without DNS64 (5.3.1)",
        "-x 2001:db8:6::53",
        &["* * IN PTR aaaa.row.example."],
    ),
    script(
        "D-17: the additional section is as it came (5.3.2)",
        "mail.script.example MX",
        &["mail.script.example. 3600 IN MX 10 host.script.example."],
    )
    .others(&["A"]),
    script(
        "D-17: for the targets of SVCB and HTTPS too",
        "web.script.example HTTPS",
        &["web.script.example. 3600 IN HTTPS 1 host.script.example. ipv4hint=20.9.0.1"],
    )
    .others(&["A"]),
    row(
        "D-18: other types are as they came (5.3.3)",
        "a.row.example A",
        &["a.row.example. * IN A 20.5.0.1"],
    ),
    row(
        "D-18: TXT",
        "text.row.example TXT",
        &["text.row.example. * IN TXT \"nothing else\""],
    ),
    script(
        "D-19: the other sections are those of the answer for A (5.4)",
        "referred.script.example AAAA",
        &["referred.script.example. 3600 IN AAAA 64:ff9b::1409:1"],
    )
    .others(&["NS", "A"]),
    row(
        "D-19: what does not fit is truncated (5.4)",
        "big.row.example AAAA +noedns +ignore",
        &[],
    )
    .flags("qr tc rd ra"),
    row(
        "D-20: what is made is not authentic (5.5 (1))",
        "a.signed.example AAAA +adflag",
        &["a.signed.example. * IN AAAA 64:ff9b::1405:8"],
    ),
    row(
        "D-21: made from what the upstream has validated, without AD (5.5 (2))",
        "a.signed.example AAAA +dnssec",
        &["a.signed.example. * IN AAAA 64:ff9b::1405:8"],
    )
    .flags("qr rd ra"),
    row(
        "D-21: bogus is SERVFAIL",
        "a.bogus.example AAAA +dnssec",
        &[],
    )
    .status("SERVFAIL"),
    row(
        "D-22: CD and DO: nothing is made (5.5 (3))",
        "a.bogus.example AAAA +cd +dnssec",
        &[],
    )
    .flags("qr rd ra cd")
    .others(&["SOA", "RRSIG", "NSEC", "RRSIG"]),
    row(
        "D-23: CD alone: made (3 (1))",
        "a.row.example AAAA +cd",
        &["a.row.example. * IN AAAA 64:ff9b::1405:1"],
    )
    .flags("qr rd ra cd"),
    row(
        "D-23: ANY gets one record (RFC 8482)",
        "both.row.example ANY +notcp",
        &["both.row.example. 3600 IN HINFO \"RFC8482\" \"\""],
    ),
];
