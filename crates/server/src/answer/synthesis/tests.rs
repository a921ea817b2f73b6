//! RFC 6147 section 5.1, rule by rule. Names of tests begin with the number of the rule in
//! `docs/rfc6147.md`.

use dns64_wire::message::Message;
use dns64_wire::pref64::LENGTHS;

use super::super::texts::*;
use super::*;
use crate::settings::nets::NetSet;

/// The name in all AAAA queries.
pub(super) const H2: &str = "h2.example.com";

/// An SOA record of the domain of [`H2`] with this TTL and minimum.
macro_rules! soa {
    ($ttl:literal, $minimum:literal) => {
        concat!("ns example.com ", $ttl, " SOA ", $minimum)
    };
}

fn aaaa(lines: &[&str]) -> Stored {
    stored(H2, Rtype::AAAA, Rcode::NOERROR, lines)
}

fn a(lines: &[&str]) -> Stored {
    stored(H2, Rtype::A, Rcode::NOERROR, lines)
}

fn verdict(dns64: &Dns64, aaaa: &Stored) -> Verdict {
    judge(&asker(H2, Rtype::AAAA), dns64, aaaa)
}

/// The response from both responses, with its length checked.
pub(super) fn answer_to(
    asker: &Asker,
    dns64: &Dns64,
    aaaa: Aged<'_>,
    a: Aged<'_>,
) -> (Vec<u8>, usize) {
    let mut frame = vec![0; 65_535];
    let synthesised = synthesise(asker, dns64, aaaa, a, &mut frame);
    frame.truncate(synthesised.len);
    (frame, synthesised.made)
}

/// The lines of the response from two fresh responses.
fn made(dns64: &Dns64, aaaa: &Stored, a: &Stored) -> Vec<String> {
    let asker = asker(H2, Rtype::AAAA);
    lines(&answer_to(&asker, dns64, Aged::fresh(aaaa, 0), Aged::fresh(a, 0)).0)
}

#[test]
fn rfc_6147_section_7_1_example_is_reproduced() {
    // Section 7.2 has the same records.
    let (empty, address) = (
        aaaa(&[soa!(3600, 3600)]),
        a(&["an h2.example.com 300 A 192.0.2.1"]),
    );
    assert_eq!(verdict(&dns64(), &empty), Verdict::NeedsA);
    assert_eq!(
        made(&dns64(), &empty, &address),
        [
            "NOERROR; h2.example.com. AAAA",
            "an h2.example.com 300 AAAA 64:ff9b::c000:201",
        ]
    );
}

#[test]
fn rfc_6147_section_7_3_a_site_prefix_represents_private_addresses() {
    let site = Dns64 {
        prefixes: vec!["2001:db8::/96".parse().expect("a prefix")],
        well_known_private: false,
        ..dns64()
    };
    let private = a(&[
        "an h2.example.com 300 A 192.0.2.1",
        "an h2.example.com 300 A 10.0.0.1",
    ]);
    let answer = made(&site, &aaaa(&[]), &private);
    assert_eq!(answer[1], "an h2.example.com 300 AAAA 2001:db8::c000:201");
    assert_eq!(answer[2], "an h2.example.com 300 AAAA 2001:db8::a00:1");
}

#[test]
fn d1_other_classes_and_types_are_forwarded() {
    let empty = aaaa(&[soa!(60, 60)]);
    let mut chaos = asker(H2, Rtype::AAAA);
    chaos.class = Class::CH;
    assert_eq!(judge(&chaos, &dns64(), &empty), Verdict::Native);
    assert_eq!(
        judge(&asker(H2, Rtype::A), &dns64(), &empty),
        Verdict::Native
    );
    assert_eq!(
        judge(&asker(H2, Rtype::ANY), &dns64(), &empty),
        Verdict::Native
    );
}

#[test]
fn d2_native_records_are_forwarded() {
    let native = aaaa(&["an h2.example.com 300 AAAA 2001:db8::1"]);
    assert_eq!(verdict(&dns64(), &native), Verdict::Native);
    let chain = aaaa(&[
        "an h2.example.com 300 CNAME h3.example.com",
        "an h3.example.com 300 AAAA 2001:db8::1",
    ]);
    assert_eq!(verdict(&dns64(), &chain), Verdict::Native);
}

#[test]
fn d3_nxdomain_is_forwarded() {
    // Unbound, blocky, dnscrypt-proxy and smartdns-rs fail: they query A after NXDOMAIN.
    let none = stored(H2, Rtype::AAAA, Rcode::NXDOMAIN, &[soa!(60, 60)]);
    assert_eq!(verdict(&dns64(), &none), Verdict::Native);
    let forced = with_rule("example.com", DomainAction::Force, None);
    assert_eq!(verdict(&forced, &none), Verdict::Native);
}

#[test]
fn d3_d4_other_errors_and_timeouts_lead_to_a_query() {
    // BIND 9, Knot Resolver and routedns fail: they query A only after an empty response.
    for rcode in [
        Rcode::FORMERR,
        Rcode::SERVFAIL,
        Rcode::NOTIMP,
        Rcode::REFUSED,
        Rcode(9),
    ] {
        let error = stored(H2, Rtype::AAAA, rcode, &[]);
        assert_eq!(verdict(&dns64(), &error), Verdict::NeedsA, "{rcode}");
    }
    let silence = failed(H2, Rtype::AAAA);
    assert_eq!(verdict(&dns64(), &silence), Verdict::NeedsA);
    let answer = made(
        &dns64(),
        &silence,
        &a(&["an h2.example.com 900 A 192.0.2.1"]),
    );
    assert_eq!(
        answer,
        [
            "NOERROR; h2.example.com. AAAA",
            // Not the 600 s of a response without SOA: the name may have AAAA records.
            "an h2.example.com 30 AAAA 64:ff9b::c000:201",
        ]
    );
}

#[test]
fn d6_ipv4_mapped_addresses_are_excluded() {
    // Knot Resolver (the range read as ::/96) and dnsproxy (returned as valid) fail.
    let mapped = aaaa(&["an h2.example.com 300 AAAA ::ffff:192.0.2.7"]);
    assert_eq!(verdict(&dns64(), &mapped), Verdict::NeedsA);
    let answer = made(
        &dns64(),
        &mapped,
        &a(&["an h2.example.com 300 A 192.0.2.1"]),
    );
    assert_eq!(
        answer[1..],
        ["an h2.example.com 300 AAAA 64:ff9b::c000:201"]
    );
    let compatible = aaaa(&["an h2.example.com 300 AAAA ::1.2.3.4"]);
    assert_eq!(verdict(&dns64(), &compatible), Verdict::Native);
}

#[test]
fn d5_d7_only_excluded_records_are_removed() {
    // blocky (returned unfiltered) and Technitium (with two ranges nothing is excluded, and kept
    // records are repeated) fail.
    let two_ranges = ["::ffff:0:0/96", "2001:db8:bad::/48"];
    let dns64 = Dns64 {
        exclude_aaaa: NetSet::new(
            two_ranges
                .map(|net| net.parse().expect("a network"))
                .to_vec(),
        ),
        ..dns64()
    };
    let mixed = aaaa(&[
        "an h2.example.com 300 AAAA ::ffff:192.0.2.7",
        "an h2.example.com 300 AAAA 2001:db8::1",
        "an h2.example.com 300 AAAA 2001:db8:bad::1",
        "an h2.example.com 300 RRSIG AAAA",
        "ns example.com 300 NS ns.example.com",
        "ar ns.example.com 300 AAAA 2001:db8:bad::53",
    ]);
    assert_eq!(verdict(&dns64, &mixed), Verdict::Filtered);
    let mut frame = [0; 1232];
    let len = filtered(
        &asker(H2, Rtype::AAAA),
        &dns64,
        Aged::fresh(&mixed, 100),
        &mut frame,
    );
    assert_eq!(
        lines(&frame[..len]),
        [
            "NOERROR; h2.example.com. AAAA",
            "an h2.example.com 200 AAAA 2001:db8::1",
            "ns example.com 200 NS ns.example.com",
            // D-17: the additional section is passed on unchanged.
            "ar ns.example.com 200 AAAA 2001:db8:bad::53",
        ]
    );
}

#[test]
fn d7_excluded_records_are_removed_even_without_synthesis() {
    let mapped = aaaa(&[
        "an h2.example.com 300 CNAME h3.example.com",
        "an h3.example.com 300 AAAA ::ffff:192.0.2.7",
    ]);
    let no_a = a(&["an h2.example.com 300 CNAME h3.example.com", soa!(60, 60)]);
    // RFC 2308 section 5: only the SOA record sets the negative TTL.
    assert_eq!(
        made(&dns64(), &mapped, &no_a),
        [
            "NOERROR; h2.example.com. AAAA",
            "an h2.example.com 300 CNAME h3.example.com",
            "ns example.com 60 SOA 60",
        ]
    );
    let signed = aaaa(&[
        "an h2.example.com 300 AAAA ::ffff:192.0.2.7",
        "an h2.example.com 300 RRSIG AAAA",
    ]);
    let asker = with_do(asker(H2, Rtype::AAAA));
    assert_eq!(judge(&asker, &dns64(), &signed), Verdict::NeedsA);
    let never = Dns64 {
        signed: SignedPolicy::Never,
        ..dns64()
    };
    assert_eq!(judge(&asker, &never, &signed), Verdict::Filtered);
}

#[test]
fn d8_d10_chain_is_kept_and_its_end_owns_the_records() {
    // routedns fails: the AAAA record has the queried name as its owner, beside the CNAME.
    let empty = aaaa(&[
        "an h2.example.com 300 CNAME a.example.net",
        "ns example.net 60 SOA 60",
    ]);
    assert_eq!(verdict(&dns64(), &empty), Verdict::NeedsA);
    let chain = a(&[
        "an example.com 500 DNAME example.net",
        "an h2.example.com 500 CNAME h2.example.net",
        "an h2.example.net 400 CNAME b.example.org",
        "an b.example.org 300 A 192.0.2.1",
        "an b.example.org 50 A 192.0.2.2",
    ]);
    assert_eq!(
        made(&dns64(), &empty, &chain)[1..],
        [
            "an example.com 500 DNAME example.net",
            "an h2.example.com 500 CNAME h2.example.net",
            "an h2.example.net 400 CNAME b.example.org",
            "an b.example.org 50 AAAA 64:ff9b::c000:201",
            "an b.example.org 50 AAAA 64:ff9b::c000:202",
        ]
    );
}

#[test]
fn d8_addresses_outside_the_end_of_the_chain_are_ignored() {
    let stray = aaaa(&["an other.example.com 300 AAAA 2001:db8::1", soa!(60, 60)]);
    assert_eq!(verdict(&dns64(), &stray), Verdict::NeedsA);
    let stray = a(&[
        "an h2.example.com 300 A 192.0.2.1",
        "an h3.example.com 300 A 192.0.2.2",
    ]);
    let answer = made(&dns64(), &aaaa(&[]), &stray);
    assert_eq!(
        answer[1..],
        ["an h2.example.com 300 AAAA 64:ff9b::c000:201"]
    );
}

#[test]
fn d9_without_a_records_the_aaaa_response_is_forwarded() {
    let empty = aaaa(&["an h2.example.com 300 CNAME h3.example.com", soa!(77, 60)]);
    let answer = made(&dns64(), &empty, &a(&[soa!(88, 88)]));
    assert_eq!(
        answer,
        [
            "NOERROR; h2.example.com. AAAA",
            "an h2.example.com 300 CNAME h3.example.com",
            "ns example.com 60 SOA 60",
        ]
    );
}

#[test]
fn d9_error_of_a_query_is_the_response() {
    let empty = aaaa(&[soa!(60, 60)]);
    assert_eq!(
        made(&dns64(), &empty, &stored(H2, Rtype::A, Rcode::REFUSED, &[])),
        ["REFUSED; h2.example.com. AAAA"]
    );
    // mtd64-ng fails: no response when the upstream fails.
    let (silence, no_a) = (failed(H2, Rtype::AAAA), failed(H2, Rtype::A));
    assert_eq!(
        made(&dns64(), &silence, &no_a),
        ["SERVFAIL; h2.example.com. AAAA"]
    );
    let none = stored(H2, Rtype::A, Rcode::NXDOMAIN, &[soa!(50, 40)]);
    assert_eq!(
        made(&dns64(), &empty, &none),
        ["NXDOMAIN; h2.example.com. AAAA", "ns example.com 40 SOA 40"]
    );
}

#[test]
fn d9_empty_a_response_is_forwarded_if_aaaa_failed() {
    let silence = failed(H2, Rtype::AAAA);
    assert_eq!(
        made(&dns64(), &silence, &a(&[soa!(50, 40)])),
        ["NOERROR; h2.example.com. AAAA", "ns example.com 40 SOA 40"]
    );
    let none = Dns64 {
        prefixes: Vec::new(),
        ..dns64()
    };
    let unusable = a(&[
        "an h2.example.com 300 CNAME h3.example.com",
        "an h3.example.com 300 A 192.0.2.1",
    ]);
    assert_eq!(
        made(&none, &silence, &unusable)[1..],
        ["an h2.example.com 300 CNAME h3.example.com"]
    );
}

#[test]
fn d11_remaining_negative_ttl_limits_the_ttl() {
    // Unbound, PowerDNS, routedns and blocky (no limit) and dnscrypt-proxy (SOA of the A response)
    // fail.
    let asker = asker(H2, Rtype::AAAA);
    let ttl = |aaaa: &Stored, aaaa_age_s, a: &Stored, a_age_s| {
        let (aaaa, a) = (Aged::fresh(aaaa, aaaa_age_s), Aged::fresh(a, a_age_s));
        let (bytes, made) = answer_to(&asker, &dns64(), aaaa, a);
        assert_eq!(made, 1);
        let message = Message::parse(&bytes).expect("sound");
        message
            .records()
            .next()
            .expect("a record")
            .expect("sound")
            .ttl
    };
    let hour = a(&[
        "an h2.example.com 3600 A 192.0.2.1",
        "ns example.com 5 SOA 5",
    ]);
    assert_eq!(ttl(&aaaa(&[soa!(100, 3600)]), 0, &hour, 0), 100);
    assert_eq!(ttl(&aaaa(&[soa!(3600, 200)]), 0, &hour, 0), 200);
    assert_eq!(ttl(&aaaa(&[soa!(3600, 200)]), 50, &hour, 0), 150);
    assert_eq!(ttl(&aaaa(&[soa!(3600, 3600)]), 0, &hour, 600), 3000);
    assert_eq!(ttl(&aaaa(&[]), 0, &hour, 0), 600);
    assert_eq!(ttl(&aaaa(&[]), 0, &hour, 3100), 500);
    let mapped = aaaa(&["an h2.example.com 60 AAAA ::ffff:192.0.2.7"]);
    assert_eq!(ttl(&mapped, 0, &hour, 0), 600);
}

#[test]
fn d12_range_determines_the_prefix_or_none() {
    let ranges = [
        ("192.0.2.0/25", Some("2001:db8:1::/96")),
        ("192.0.2.128/25", Some("2001:db8:2::/64")),
        ("198.51.100.0/24", None),
    ];
    let ranges = ranges.map(|(net, prefix)| {
        let prefix = prefix.map(|text| text.parse().expect("a prefix"));
        (net.parse().expect("a network"), prefix)
    });
    let dns64 = Dns64 {
        ranges: ranges.to_vec(),
        ..dns64()
    };
    let addresses = a(&[
        "an h2.example.com 300 A 192.0.2.1",
        "an h2.example.com 300 A 198.51.100.1",
        "an h2.example.com 300 A 192.0.2.129",
        "an h2.example.com 300 A 203.0.113.1",
    ]);
    assert_eq!(
        made(&dns64, &aaaa(&[]), &addresses)[1..],
        [
            "an h2.example.com 300 AAAA 2001:db8:1::c000:201",
            "an h2.example.com 300 AAAA 2001:db8:2:0:c0:2:8100:0",
            "an h2.example.com 300 AAAA 64:ff9b::cb00:7101",
        ]
    );
    // No range applies: the response to the AAAA query is forwarded.
    let unusable = a(&["an h2.example.com 300 A 198.51.100.1"]);
    let answer = made(&dns64, &aaaa(&[soa!(60, 60)]), &unusable);
    assert_eq!(
        answer,
        ["NOERROR; h2.example.com. AAAA", "ns example.com 60 SOA 60"]
    );
}

#[test]
fn d14_all_six_prefix_lengths_of_rfc_6052_section_2_4_work() {
    // dnsproxy (12 octets and the address) and smartdns-rs (no octet "u") fail.
    let vectors = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100:0"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::c000:221"),
    ];
    for (prefix, expected) in vectors {
        let prefixes = vec![prefix.parse().expect("a prefix")];
        let dns64 = Dns64 {
            prefixes,
            ..dns64()
        };
        let answer = made(
            &dns64,
            &aaaa(&[]),
            &a(&["an h2.example.com 9 A 192.0.2.33"]),
        );
        assert_eq!(answer[1], format!("an h2.example.com 9 AAAA {expected}"));
    }
    assert_eq!(vectors.len(), LENGTHS.len());
}

#[test]
fn rfc_6052_section_3_1_well_known_prefix_is_for_global_addresses() {
    let strict = Dns64 {
        well_known_private: false,
        ..dns64()
    };
    let addresses = a(&[
        "an h2.example.com 9 A 10.0.0.1",
        "an h2.example.com 9 A 8.8.8.8",
    ]);
    assert_eq!(
        made(&strict, &aaaa(&[]), &addresses)[1..],
        ["an h2.example.com 9 AAAA 64:ff9b::808:808"]
    );
}

#[test]
fn d17_d19_authority_and_additional_come_from_a_response() {
    let empty = aaaa(&[soa!(3600, 3600)]);
    let full = a(&[
        "an h2.example.com 300 A 192.0.2.1",
        "an h2.example.com 300 RRSIG A",
        "ns example.com 300 NS ns.example.com",
        "ar ns.example.com 300 A 192.0.2.53",
    ]);
    // D-20: the A response is authenticated, the synthesised one is not.
    assert!(full.message().ad());
    assert_eq!(
        made(&dns64(), &empty, &full),
        [
            "NOERROR; h2.example.com. AAAA",
            "an h2.example.com 300 AAAA 64:ff9b::c000:201",
            "ns example.com 300 NS ns.example.com",
            "ar ns.example.com 300 A 192.0.2.53",
        ]
    );
}

#[test]
fn d19_question_keeps_its_case_and_truncation_applies() {
    let asker = Asker {
        limit: 512,
        ..asker("H2.exAMPLE.com", Rtype::AAAA)
    };
    let addresses: Vec<String> = (0..60)
        .map(|i| format!("an {H2} 300 A 192.0.2.{i}"))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let (empty, many) = (aaaa(&[]), a(&addresses));
    let (bytes, made) = answer_to(
        &asker,
        &dns64(),
        Aged::fresh(&empty, 0),
        Aged::fresh(&many, 0),
    );
    assert_eq!(lines(&bytes), ["NOERROR tc; H2.exAMPLE.com. AAAA"]);
    assert_eq!(made, 0);
    // Additional records can be omitted without truncation.
    let mut few = addresses[..14].to_vec();
    few.extend([
        "ns example.com 300 NS ns.example.com",
        "ns example.com 300 NS ns2.example.com",
        "ar ns.example.com 300 A 192.0.2.53",
        "ar ns2.example.com 300 A 192.0.2.53",
    ]);
    let few = a(&few);
    let (bytes, made) = answer_to(
        &asker,
        &dns64(),
        Aged::fresh(&empty, 0),
        Aged::fresh(&few, 0),
    );
    assert_eq!(lines(&bytes)[0], "NOERROR; H2.exAMPLE.com. AAAA");
    assert_eq!(made, 14);
    assert_eq!(records(&bytes).len(), 18);
    let asker = Asker {
        limit: bytes.len() - 1,
        ..asker
    };
    let (bytes, _) = answer_to(
        &asker,
        &dns64(),
        Aged::fresh(&empty, 0),
        Aged::fresh(&few, 0),
    );
    assert_eq!(lines(&bytes)[0], "NOERROR; H2.exAMPLE.com. AAAA");
    assert_eq!(records(&bytes).len(), 16);
}

// After the macro, which it uses.
mod policies;
