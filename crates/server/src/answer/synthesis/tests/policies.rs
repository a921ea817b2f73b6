//! Policies of the operator: DNSSEC, prefixes, domains, marks.

use super::*;

/// A response that was not validated.
fn without_ad(rtype: Rtype, lines: &[&str]) -> Stored {
    let mut bytes = response(H2, rtype, Rcode::NOERROR, lines);
    bytes[3] &= !0x20;
    Stored::accept(&Message::parse(&bytes).expect("sound"), &BOUNDS).expect("acceptable")
}

#[test]
fn d21_d22_d23_policy_decides_about_signed_responses() {
    let lines = [soa!(60, 60), "ns example.com 60 RRSIG SOA"];
    let (validated, unproven) = (aaaa(&lines), without_ad(Rtype::AAAA, &lines));
    let plain = asker(H2, Rtype::AAAA);
    let dnssec = with_do(plain.clone());
    let with = |signed| Dns64 { signed, ..dns64() };
    let no = Verdict::No(Reason::Dnssec);
    for (policy, with_ad, without) in [
        (SignedPolicy::Validated, Verdict::NeedsA, no),
        (SignedPolicy::Always, Verdict::NeedsA, Verdict::NeedsA),
        (SignedPolicy::Never, no, no),
    ] {
        let dns64 = with(policy);
        assert_eq!(judge(&dnssec, &dns64, &validated), with_ad, "{policy:?}");
        assert_eq!(judge(&dnssec, &dns64, &unproven), without, "{policy:?}");
        assert_eq!(judge(&plain, &dns64, &unproven), Verdict::NeedsA);
        assert_eq!(judge(&dnssec, &dns64, &aaaa(&[])), Verdict::NeedsA);
    }
    // RFC 6147 section 3 (1): with DO=0 DNSSEC does not matter, whatever CD is. Section 5.5 (3):
    // with CD=1 and DO=1 the client validates and synthesises, in forced domains too.
    let disabled = |asker: &Asker| Asker {
        flags: asker.flags.with_cd(true),
        ..asker.clone()
    };
    let forced = with_rule(".", DomainAction::Force, None);
    for dns64 in [with(SignedPolicy::Always), forced] {
        assert_eq!(
            judge(&disabled(&plain), &dns64, &validated),
            Verdict::NeedsA
        );
        assert_eq!(
            judge(&disabled(&dnssec), &dns64, &validated),
            Verdict::Native
        );
    }
}

#[test]
fn d21_nothing_is_synthesised_unless_both_responses_are_validated() {
    let address = "an h2.example.com 300 A 192.0.2.1";
    let (unsigned, signed) = ([address], [address, "an h2.example.com 300 RRSIG A"]);
    let (simple, dnssec) = (asker(H2, Rtype::AAAA), with_do(asker(H2, Rtype::AAAA)));
    let negative = aaaa(&[soa!(60, 60), "ns example.com 60 RRSIG SOA"]);
    let proven = |asker: &Asker, aaaa: &Stored, a: &Stored| is_proven(asker, &dns64(), aaaa, a);
    assert!(proven(&dnssec, &negative, &a(&signed)));
    let unproven = without_ad(Rtype::A, &unsigned);
    assert!(!proven(&dnssec, &negative, &unproven));
    assert!(proven(&simple, &negative, &unproven));
    // The AAAA response may be bogus: the zone is signed.
    let failed = failed(H2, Rtype::AAAA);
    assert!(!proven(&dnssec, &failed, &a(&signed)));
    assert!(proven(&simple, &failed, &a(&signed)));
    assert!(proven(&dnssec, &failed, &a(&unsigned)));
    let always = Dns64 {
        signed: SignedPolicy::Always,
        ..dns64()
    };
    assert!(is_proven(&dnssec, &always, &failed, &a(&signed)));
    let forced = with_rule("example.com", DomainAction::Force, None);
    assert!(is_proven(&dnssec, &forced, &failed, &a(&signed)));
}

#[test]
fn every_address_is_synthesised_under_every_prefix_in_order() {
    let dns64 = Dns64 {
        prefixes: ["2001:db8:2::/96", "2001:db8:1::/96"]
            .map(|text| text.parse().expect("a prefix"))
            .to_vec(),
        ..dns64()
    };
    let two = a(&[
        "an h2.example.com 9 A 192.0.2.1",
        "an h2.example.com 9 A 192.0.2.2",
    ]);
    assert_eq!(
        made(&dns64, &aaaa(&[]), &two)[1..],
        [
            "an h2.example.com 9 AAAA 2001:db8:2::c000:201",
            "an h2.example.com 9 AAAA 2001:db8:1::c000:201",
            "an h2.example.com 9 AAAA 2001:db8:2::c000:202",
            "an h2.example.com 9 AAAA 2001:db8:1::c000:202",
        ]
    );
}

#[test]
fn domain_rules_take_precedence() {
    let (empty, native) = (aaaa(&[]), aaaa(&["an h2.example.com 9 AAAA 2001:db8::1"]));
    let excluded = with_rule("example.com", DomainAction::Exclude, None);
    assert_eq!(verdict(&excluded, &empty), Verdict::No(Reason::Domain));
    assert_eq!(
        verdict(&excluded, &failed(H2, Rtype::AAAA)),
        Verdict::No(Reason::Domain)
    );
    assert_eq!(verdict(&excluded, &native), Verdict::Native);
    let forced = with_rule("EXAMPLE.com", DomainAction::Force, Some("2001:db8:f::/96"));
    assert_eq!(verdict(&forced, &native), Verdict::NeedsA);
    let address = a(&["an h2.example.com 9 A 192.0.2.1"]);
    assert_eq!(
        made(&forced, &native, &address)[1..],
        ["an h2.example.com 9 AAAA 2001:db8:f::c000:201"]
    );
    // Without A records, the native AAAA records are nevertheless removed.
    assert_eq!(made(&forced, &native, &a(&[]))[1..], [""; 0]);
}

#[test]
fn duplicate_addresses_are_synthesised_once() {
    let twice = a(&[
        "an h2.example.com 9 A 192.0.2.1",
        "an h2.example.com 9 A 192.0.2.1",
    ]);
    assert_eq!(made(&dns64(), &aaaa(&[]), &twice).len(), 2);
}

#[test]
fn synthesised_response_is_marked_if_configured() {
    // RFC 8914 section 4.5.
    let (empty, address) = (aaaa(&[]), a(&["an h2.example.com 9 A 192.0.2.1"]));
    let marking = Dns64 {
        mark_synthesised: true,
        ..dns64()
    };
    let mark = |dns64: &Dns64, a: &Stored, edns: bool| {
        let mut asker = asker(H2, Rtype::AAAA);
        asker.edns = asker.edns.filter(|_| edns);
        let (bytes, _) = answer_to(&asker, dns64, Aged::fresh(&empty, 0), Aged::fresh(a, 0));
        extended_error(&bytes)
    };
    assert_eq!(mark(&marking, &address, true), Some(4));
    assert_eq!(mark(&marking, &address, false), None);
    assert_eq!(mark(&dns64(), &address, true), None);
    assert_eq!(mark(&marking, &a(&[]), true), None);
}

#[test]
fn response_with_thousands_of_addresses_is_answered() {
    let lines: Vec<String> = (0..2000_u32)
        .map(|i| format!("an {H2} 9 A {}", Ipv4Addr::from(0x0102_0000 + i)))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (empty, many) = (aaaa(&[]), a(&lines));
    let tcp = Asker {
        limit: 65_535,
        ..asker(H2, Rtype::AAAA)
    };
    let (empty, many) = (Aged::fresh(&empty, 0), Aged::fresh(&many, 0));
    let (bytes, made) = answer_to(&tcp, &dns64(), empty, many);
    assert_eq!(made, 2000);
    assert_eq!(records(&bytes).len(), 2000);
}
