//! Names of all kinds, and the queries for them.

use dns64_wire::codes::{Class, Rtype};

use crate::ask::Question;
use crate::world::{TTL, World, ip6_arpa, longest_name};

pub(crate) fn all(world: &mut World) {
    plain(world);
    excluded(world);
    not_global(world);
    chains(world);
    dnames_and_wildcards(world);
    ttls(world);
    other_types(world);
    reverse(world);
    sizes(world);
    spellings(world);
    ways_to_ask(world);
    dnssec(world);
    failures(world);
    special_names(world);
}

fn plain(world: &mut World) {
    for i in 0..40 {
        let name = format!("a{i}.lab.example.");
        world.add_a(&name);
        world.ask_addresses("A only", &name);
    }
    for i in 2..12 {
        let name = format!("several{i}.lab.example.");
        for _ in 0..i {
            world.add_a(&name);
        }
        world.ask_addresses("several A", &name);
    }
    for i in 0..15 {
        let name = format!("aaaa{i}.lab.example.");
        world.add_aaaa(&name);
        world.ask_addresses("AAAA only", &name);
        let name = format!("both{i}.lab.example.");
        world.add_a(&name);
        world.add_aaaa(&name);
        world.ask_addresses("A and AAAA", &name);
    }
    for i in 0..10 {
        let name = format!("text{i}.lab.example.");
        world.add(&name, "TXT \"nothing else\"");
        world.ask_addresses("neither A nor AAAA", &name);
        world.ask("other type", &name, Rtype::TXT);
        let name = format!("mail{i}.lab.example.");
        world.add(&name, &format!("MX 10 a{i}.lab.example."));
        world.ask_addresses("neither A nor AAAA", &name);
    }
    for i in 0..20 {
        world.ask_addresses("no such name", &format!("missing{i}.lab.example."));
    }
    for i in 0..4 {
        let below = format!("leaf.empty{i}.lab.example.");
        world.add_a(&below);
        world.ask_addresses("empty non-terminal", &format!("empty{i}.lab.example."));
    }
}

/// RFC 6147 section 5.1.4.
fn excluded(world: &mut World) {
    for i in 0..3 {
        // The range "::ffff/96", as RFC 6147 writes it.
        let name = format!("compatible{i}.lab.example.");
        world.add(&name, &format!("AAAA ::20.2.0.{i}"));
        world.add_a(&name);
        world.ask_addresses("AAAA in ::/96 and A", &name);
    }
    for i in 0..6 {
        let mapped = format!("AAAA ::ffff:20.2.0.{i}");
        let name = format!("mapped{i}.lab.example.");
        world.add(&name, &mapped);
        world.add_a(&name);
        world.ask_addresses("mapped AAAA and A", &name);
        let name = format!("mapped-alone{i}.lab.example.");
        world.add(&name, &mapped);
        world.ask("mapped AAAA alone", &name, Rtype::AAAA);
        let name = format!("mixed{i}.lab.example.");
        world.add(&name, &mapped);
        world.add_aaaa(&name);
        world.add_a(&name);
        world.ask_addresses("mapped AAAA beside another", &name);
        let name = format!("to-mapped{i}.lab.example.");
        world.add(&name, &format!("CNAME mapped{i}.lab.example."));
        world.ask("chain to mapped AAAA and A", &name, Rtype::AAAA);
    }
}

/// RFC 6052 section 3.1.
fn not_global(world: &mut World) {
    let addresses = [
        "10.1.2.3",
        "172.16.1.2",
        "192.168.1.2",
        "100.64.1.2",
        "127.0.0.1",
        "169.254.1.2",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "198.18.1.2",
        "224.0.0.1",
        "240.0.0.1",
    ];
    for (i, address) in addresses.into_iter().enumerate() {
        let name = format!("private{i}.lab.example.");
        world.add(&name, &format!("A {address}"));
        world.ask_addresses("A that is not global", &name);
        let name = format!("half{i}.lab.example.");
        world.add(&name, &format!("A {address}"));
        world.add_a(&name);
        world.ask_addresses("global A and another", &name);
    }
}

fn chains(world: &mut World) {
    let ends = [
        ("chain to A", "a0.lab.example."),
        ("chain to several A", "several5.lab.example."),
        ("chain to AAAA", "aaaa0.lab.example."),
        ("chain to A and AAAA", "both0.lab.example."),
        ("chain to neither", "text0.lab.example."),
        ("chain to no name", "missing0.lab.example."),
        ("chain to A in another zone", "end-a.other.example."),
        ("chain to AAAA in another zone", "end-aaaa.other.example."),
        (
            "chain to neither in another zone",
            "end-text.other.example.",
        ),
        ("chain to no name in another zone", "missing.other.example."),
    ];
    world.add_a("end-a.other.example.");
    world.add_aaaa("end-aaaa.other.example.");
    world.add("end-text.other.example.", "TXT \"nothing else\"");
    for (i, (kind, end)) in ends.into_iter().enumerate() {
        let mut target = end.to_owned();
        for length in 1..=5 {
            let name = format!("chain{i}-{length}.lab.example.");
            world.add(&name, &format!("CNAME {target}"));
            world.ask_addresses(kind, &name);
            target = name;
        }
    }
    world.add("loop1.lab.example.", "CNAME loop2.lab.example.");
    world.add("loop2.lab.example.", "CNAME loop1.lab.example.");
    world.ask("chain without end", "loop1.lab.example.", Rtype::AAAA);
}

fn dnames_and_wildcards(world: &mut World) {
    world.add("tree.lab.example.", "DNAME target.lab.example.");
    world.add_a("a.target.lab.example.");
    world.add_aaaa("aaaa.target.lab.example.");
    world.add("text.target.lab.example.", "TXT \"nothing else\"");
    for (kind, label) in [
        ("DNAME to A", "a"),
        ("DNAME to AAAA", "aaaa"),
        ("DNAME to neither", "text"),
        ("DNAME to no name", "missing"),
    ] {
        world.ask(kind, &format!("{label}.tree.lab.example."), Rtype::AAAA);
    }
    world.add_a("b.target.lab.example.");
    world.ask("A question", "b.tree.lab.example.", Rtype::A);
    world.ask_addresses("DNAME's owner", "tree.lab.example.");
    let wide = format!("{}.lab.example.", "w".repeat(63));
    world.add("wide.lab.example.", &format!("DNAME {wide}"));
    let long = longest_name("wide.lab.example.", 'x');
    world.ask("DNAME to a name too long", &long, Rtype::AAAA);

    world.add_a("*.wild-a.lab.example.");
    world.add_aaaa("*.wild-aaaa.lab.example.");
    world.add("*.wild-text.lab.example.", "TXT \"nothing else\"");
    world.add("*.wild-alias.lab.example.", "CNAME a1.lab.example.");
    for i in 0..4 {
        for (kind, zone) in [
            ("wildcard with A", "wild-a"),
            ("wildcard with AAAA", "wild-aaaa"),
            ("wildcard with neither", "wild-text"),
            ("wildcard with CNAME", "wild-alias"),
        ] {
            world.ask_addresses(kind, &format!("{i}.{zone}.lab.example."));
        }
    }
}

/// RFC 6147 section 5.1.7: the negative TTL of each zone is in [`crate::world`].
fn ttls(world: &mut World) {
    for (i, ttl) in [150, 200, 299, 1800].into_iter().enumerate() {
        let name = format!("ttl{i}.long.example.");
        let address = world.ipv4();
        world.add_ttl(&name, ttl, &format!("A {address}"));
        world.ask_addresses("TTL of A below that of the SOA", &name);
    }
    let limited = [
        ("TTL of A above MINIMUM of the SOA", "short.example."),
        ("TTL of A above that of the SOA", "soattl.example."),
        ("MINIMUM of the SOA is 0", "zero.example."),
    ];
    for (kind, zone) in limited {
        for ttl in [600, 3600, 86_400] {
            let name = format!("ttl{ttl}.{zone}");
            let address = world.ipv4();
            world.add_ttl(&name, ttl, &format!("A {address}"));
            world.ask_addresses(kind, &name);
        }
    }
    for i in 0..3 {
        let name = format!("ttl-zero{i}.lab.example.");
        let address = world.ipv4();
        world.add_ttl(&name, 0, &format!("A {address}"));
        world.ask_addresses("TTL of A is 0", &name);
        let name = format!("to-short{i}.lab.example.");
        world.add_ttl(&name, 3600, "CNAME ttl3600.short.example.");
        world.ask("chain to A with TTL above MINIMUM", &name, Rtype::AAAA);
    }
    let name = "different.lab.example.";
    let (first, second) = (world.ipv4(), world.ipv4());
    world.add_ttl(name, TTL, &format!("A {first}"));
    world.add_ttl(name, TTL, &format!("A {second}"));
    world.ask_addresses("several A", name);
}

/// RFC 6147 sections 5.3.2 and 5.3.3.
fn other_types(world: &mut World) {
    for i in 0..5 {
        let name = format!("services{i}.lab.example.");
        world.add(&name, &format!("MX 10 a{i}.lab.example."));
        world.add(&name, &format!("MX 20 both{i}.lab.example."));
        world.add(&name, &format!("SRV 0 0 53 a{i}.lab.example."));
        world.add(
            &name,
            &format!("HTTPS 1 a{i}.lab.example. alpn=h2 ipv4hint=20.3.0.{i}"),
        );
        world.add(&name, &format!("SVCB 1 a{i}.lab.example. port=53"));
        world.ask("MX or SRV of a name with A", &name, Rtype::MX);
        world.ask("MX or SRV of a name with A", &name, Rtype::SRV);
        world.ask("HTTPS or SVCB", &name, Rtype::HTTPS);
        world.ask("HTTPS or SVCB", &name, Rtype::SVCB);
    }
    for zone in ["lab.example.", "other.example.", "long.example.", "."] {
        world.ask("NS or SOA", zone, Rtype::NS);
        world.ask("NS or SOA", zone, Rtype::SOA);
        world.ask("neither A nor AAAA", zone, Rtype::AAAA);
    }
    world.add("generic.lab.example.", "TYPE65280 \\# 4 01020304");
    world.ask("other type", "generic.lab.example.", Rtype(65_280));
    world.ask("other type", "a0.lab.example.", Rtype(65_280));
    world.ask("other type", "chain0-3.lab.example.", Rtype::TXT);
    world.ask("other type", "chain0-3.lab.example.", Rtype::CNAME);
    world.ask("other type", "missing1.lab.example.", Rtype::TXT);
    world.ask("ANY", "both0.lab.example.", Rtype::ANY);
    world.ask("ANY", "services0.lab.example.", Rtype::ANY);
}

/// RFC 6147 section 5.3.1.
fn reverse(world: &mut World) {
    for i in 0..8 {
        let target = format!("{i}.0.4.20.in-addr.arpa.");
        world.add(&target, &format!("PTR a{i}.lab.example."));
        world.ask("PTR of an IPv4 address", &target, Rtype::PTR);
        let name = ip6_arpa(&format!("64:ff9b::20.4.0.{i}"));
        world.ask("PTR under the prefix", &name, Rtype::PTR);
        let name = ip6_arpa(&format!("2001:db8:6::{i}"));
        world.add(&name, &format!("PTR aaaa{i}.lab.example."));
        world.ask("PTR of another IPv6 address", &name, Rtype::PTR);
    }
    for i in 8..11 {
        let name = ip6_arpa(&format!("64:ff9b::20.4.0.{i}"));
        world.ask("PTR under the prefix, of no name", &name, Rtype::PTR);
        let name = ip6_arpa(&format!("2001:db8:6::ff{i}"));
        world.ask("PTR of another IPv6 address", &name, Rtype::PTR);
        // RFC 2317.
        let end = format!("{i}.0-15.1.4.20.in-addr.arpa.");
        world.add(
            &format!("{i}.1.4.20.in-addr.arpa."),
            &format!("CNAME {end}"),
        );
        world.add(&end, &format!("PTR a{i}.lab.example."));
        let name = ip6_arpa(&format!("64:ff9b::20.4.1.{i}"));
        world.ask("PTR under the prefix, by an alias", &name, Rtype::PTR);
    }
    world.add("2.1.168.192.in-addr.arpa.", "PTR a1.lab.example.");
    let name = ip6_arpa("64:ff9b::192.168.1.2");
    world.ask("PTR under the prefix, not global", &name, Rtype::PTR);
    let name = ip6_arpa("64:ff9b::20.4.0.1");
    world.ask("other type under the prefix", &name, Rtype::TXT);
    world.ask("other type under the prefix", &name, Rtype::AAAA);
    world.ask("PTR above the prefix's addresses", &name[8..], Rtype::PTR);
}

fn sizes(world: &mut World) {
    // Octets of the AAAA responses: 28 for each record. A responses have 12 octets less per record.
    let big = [(20, "big20"), (34, "big34"), (60, "big60"), (90, "big90")];
    for (count, label) in big {
        let name = format!("{label}.lab.example.");
        for _ in 0..count {
            world.add_a(&name);
        }
        for edns in [
            None,
            Some((512, false)),
            Some((1232, false)),
            Some((4096, false)),
        ] {
            let change = |question| Question { edns, ..question };
            world.ask_with("big answer", &name, Rtype::AAAA, change);
            world.ask_with("big answer", &name, Rtype::A, change);
        }
        let name = format!("text-{label}.lab.example.");
        for i in 0..count {
            world.add(&name, &format!("TXT \"{i:040}\""));
        }
        world.ask("big answer", &name, Rtype::TXT);
        world.ask("neither A nor AAAA", &name, Rtype::AAAA);
    }
}

fn spellings(world: &mut World) {
    for letter in ['k', 'l', 'm'] {
        let name = longest_name("lab.example.", letter);
        world.add_a(&name);
        world.ask_addresses("name of 255 octets", &name);
        let missing = longest_name("lab.example.", letter.to_ascii_uppercase());
        world.ask_addresses("name of 255 octets", &missing);
        let label = format!("{}.lab.example.", letter.to_string().repeat(63));
        world.add_a(&label);
        world.ask_addresses("label of 63 octets", &label);
        let deep = format!("{}lab.example.", format!("{letter}.").repeat(100));
        world.add_a(&deep);
        world.ask_addresses("name of 102 labels", &deep);
    }
    for i in 5..10 {
        world.ask_addresses("mixed case", &format!("A{i}.LaB.eXaMpLe."));
        world.ask_addresses("mixed case", &format!("aAAa{i}.lab.EXAMPLE."));
        world.ask_addresses("mixed case", &format!("MiSSing{i}.Lab.Example."));
        world.ask_addresses("mixed case", &format!("Chain0-{}.LAB.example.", i - 4));
    }
    let odd = [
        "dot\\.dot",
        "space\\032space",
        "back\\\\slash",
        "quote\\\"quote",
        "null\\000null",
        "high\\255high",
        "semi\\;colon",
        "at\\@at",
        "_under_score",
        "xn--bcher-kva",
        "brace\\(\\)",
    ];
    for label in odd {
        let name = format!("{label}.lab.example.");
        world.add_a(&name);
        world.ask_addresses("name with odd octets", &name);
    }
}

/// Names that no other query has brought into a cache.
fn ways_to_ask(world: &mut World) {
    type Change = fn(Question) -> Question;
    let ways: [(&'static str, &'static str, Change); 8] = [
        ("DO", "DO and NXDOMAIN", |q| Question {
            edns: Some((1232, true)),
            ..q
        }),
        ("CD", "CD and NXDOMAIN", |q| Question { cd: true, ..q }),
        ("CD and DO", "CD and NXDOMAIN", |q| Question {
            cd: true,
            edns: Some((1232, true)),
            ..q
        }),
        ("AD", "AD and NXDOMAIN", |q| Question { ad: true, ..q }),
        ("RD=0", "RD=0", |q| Question { rd: false, ..q }),
        ("no EDNS", "no EDNS and NXDOMAIN", |q| Question {
            edns: None,
            ..q
        }),
        ("EDNS of 512 octets", "EDNS and NXDOMAIN", |q| Question {
            edns: Some((512, false)),
            ..q
        }),
        ("EDNS of 4096 octets", "EDNS and NXDOMAIN", |q| Question {
            edns: Some((4096, false)),
            ..q
        }),
    ];
    for (i, (kind, missing_kind, change)) in ways.into_iter().enumerate() {
        for j in 0..3 {
            let name = format!("way{i}-a{j}.lab.example.");
            world.add_a(&name);
            world.ask_with(kind, &name, Rtype::AAAA, change);
            let alias = format!("way{i}-alias{j}.lab.example.");
            world.add(&alias, &format!("CNAME {name}"));
            world.ask_with(kind, &alias, Rtype::AAAA, change);
            let missing = format!("way{i}-missing{j}.lab.example.");
            world.ask_with(missing_kind, &missing, Rtype::AAAA, change);
        }
    }
    let in_class = |class| move |question| Question { class, ..question };
    for rtype in [Rtype::AAAA, Rtype::A, Rtype::TXT] {
        world.ask_with("class CH", "a0.lab.example.", rtype, in_class(Class::CH));
    }
    let version = "version.bind.";
    world.ask_with(
        "class CH, version.bind",
        version,
        Rtype::TXT,
        in_class(Class::CH),
    );
}

/// Signed zones: the upstream validates, none of the three servers does.
fn dnssec(world: &mut World) {
    type Change = fn(Question) -> Question;
    let ways: [(&'static str, Change); 5] = [
        ("", |q| q),
        (", AD", |q| Question { ad: true, ..q }),
        (", DO", |q| Question {
            edns: Some((1232, true)),
            ..q
        }),
        (", CD", |q| Question { cd: true, ..q }),
        (", CD and DO", |q| Question {
            cd: true,
            edns: Some((1232, true)),
            ..q
        }),
    ];
    let kinds = [
        [
            "signed A only",
            "signed A only, AD",
            "signed A only, DO",
            "signed A only, CD",
            "signed A only, CD and DO",
        ],
        [
            "signed AAAA",
            "signed AAAA, AD",
            "signed AAAA, DO",
            "signed AAAA, CD",
            "signed AAAA, CD and DO",
        ],
        [
            "bogus A only",
            "bogus A only, AD",
            "bogus A only, DO",
            "bogus A only, CD",
            "bogus A only, CD and DO",
        ],
    ];
    for (i, (_, change)) in ways.into_iter().enumerate() {
        for j in 0..2 {
            let name = format!("a{i}-{j}.signed.example.");
            world.add_a(&name);
            world.ask_with(kinds[0][i], &name, Rtype::AAAA, change);
            let name = format!("aaaa{i}-{j}.signed.example.");
            world.add_aaaa(&name);
            world.ask_with(kinds[1][i], &name, Rtype::AAAA, change);
            let name = format!("a{i}-{j}.bogus.example.");
            world.add_a(&name);
            world.ask_with(kinds[2][i], &name, Rtype::AAAA, change);
        }
    }
}

/// Names of [`crate::script`].
fn failures(world: &mut World) {
    for i in 0..3 {
        for (kind, label) in [
            ("SERVFAIL for AAAA", "servfail"),
            ("SERVFAIL for A", "no-a"),
            ("SERVFAIL for both", "failing"),
            ("no SOA in the negative answer", "no-soa"),
            ("NXDOMAIN for A only", "a-missing"),
        ] {
            world.ask(kind, &format!("{label}.{i}.script.example."), Rtype::AAAA);
        }
    }
}

/// RFC 7050, RFC 8880.
fn special_names(world: &mut World) {
    world.add("ipv4only.arpa.", "A 192.0.0.170");
    world.add("ipv4only.arpa.", "A 192.0.0.171");
    world.ask("ipv4only.arpa AAAA", "ipv4only.arpa.", Rtype::AAAA);
    world.ask("ipv4only.arpa A", "ipv4only.arpa.", Rtype::A);
    world.ask("ipv4only.arpa, other type", "ipv4only.arpa.", Rtype::TXT);
    world.ask("below ipv4only.arpa", "x.ipv4only.arpa.", Rtype::AAAA);
    let name = ip6_arpa("64:ff9b::192.0.0.170");
    world.ask("PTR of ipv4only.arpa's address", &name, Rtype::PTR);
}
