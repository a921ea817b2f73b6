//! RFC 8880 section 7.

use super::super::texts::*;
use super::*;
use crate::settings::dns64::DomainAction;

fn answered(asked: &str, rtype: Rtype, dns64: &Dns64) -> Option<Vec<String>> {
    let mut frame = [0; 1232];
    let len = answer(&asker(asked, rtype), Some(dns64), &mut frame)?;
    Some(lines(&frame[..len]))
}

#[test]
fn the_name_has_its_two_addresses() {
    let answer = answered("IPv4only.arpa", Rtype::A, &dns64()).expect("ours");
    assert_eq!(
        answer,
        [
            "NOERROR aa; IPv4only.arpa. A",
            "an IPv4only.arpa 86400 A 192.0.0.170",
            "an IPv4only.arpa 86400 A 192.0.0.171",
        ]
    );
}

#[test]
fn aaaa_records_have_both_addresses_under_every_prefix_once() {
    let strict = Dns64 {
        well_known_private: false,
        ranges: vec![
            ("192.0.0.0/24".parse().expect("a network"), None),
            (
                "10.0.0.0/8".parse().expect("a network"),
                Some(Pref64::WELL_KNOWN),
            ),
        ],
        ..with_rule("example", DomainAction::Exclude, Some("2001:db8::/32"))
    };
    let answer = answered("ipv4only.arpa", Rtype::AAAA, &strict).expect("ours");
    assert_eq!(
        answer,
        [
            "NOERROR aa; ipv4only.arpa. AAAA",
            "an ipv4only.arpa 3600 AAAA 64:ff9b::c000:aa",
            "an ipv4only.arpa 3600 AAAA 64:ff9b::c000:ab",
            "an ipv4only.arpa 3600 AAAA 2001:db8:c000:aa::",
            "an ipv4only.arpa 3600 AAAA 2001:db8:c000:ab::",
        ]
    );
}

#[test]
fn other_types_have_no_data_and_ds_is_forwarded() {
    let soa = "ns ipv4only.arpa 60 SOA 60";
    for rtype in [Rtype::TXT, Rtype::SOA, Rtype::NS, Rtype::ANY, Rtype::PTR] {
        let answer = answered("ipv4only.arpa", rtype, &dns64()).expect("ours");
        assert_eq!(answer[1..], [soa], "{rtype}");
        assert!(answer[0].starts_with("NOERROR aa;"));
    }
    assert_eq!(answered("ipv4only.arpa", Rtype::DS, &dns64()), None);
    let none = Dns64 {
        prefixes: Vec::new(),
        ..dns64()
    };
    let answer = answered("ipv4only.arpa", Rtype::AAAA, &none).expect("ours");
    assert_eq!(answer, ["NOERROR aa; ipv4only.arpa. AAAA", soa]);
}

#[test]
fn names_below_it_do_not_exist() {
    for rtype in [Rtype::A, Rtype::AAAA, Rtype::DS, Rtype::TXT] {
        let answer = answered("a.B.ipv4ONLY.arpa", rtype, &dns64()).expect("ours");
        assert_eq!(
            answer[0],
            format!("NXDOMAIN aa; a.B.ipv4ONLY.arpa. {rtype}")
        );
        assert_eq!(answer[1..], ["ns ipv4ONLY.arpa 60 SOA 60"]);
    }
}

#[test]
fn synthesised_addresses_get_ptr_and_ipv4_addresses_are_forwarded() {
    let made = "b.a.0.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa";
    let answer = answered(made, Rtype::PTR, &dns64()).expect("ours");
    assert_eq!(answer[0], format!("NOERROR aa; {made}. PTR"));
    assert_eq!(answer[1..], [format!("an {made} 3600 PTR ipv4only.arpa")]);
    assert_eq!(answered(made, Rtype::TXT, &dns64()), None);
    for asked in ["170.0.0.192.in-addr.arpa", "171.0.0.192.IN-ADDR.arpa"] {
        assert_eq!(answered(asked, Rtype::PTR, &dns64()), None);
    }
}

#[test]
fn other_queries_are_not_answered() {
    let other = made_of_another();
    for asked in [
        "xipv4only.arpa",
        "arpa",
        ".",
        "ipv4only.arpa.example",
        &other,
    ] {
        for rtype in [Rtype::A, Rtype::AAAA, Rtype::PTR] {
            assert_eq!(answered(asked, rtype, &dns64()), None, "{asked} {rtype}");
        }
    }
    // A label that ends with the octets of the zone.
    assert_eq!(answered(r"a\008ipv4only.arpa", Rtype::A, &dns64()), None);
    let off = Dns64 {
        ipv4only: false,
        ..dns64()
    };
    assert_eq!(answered("ipv4only.arpa", Rtype::A, &off), None);
    let mut frame = [0; 512];
    assert_eq!(
        answer(&asker("ipv4only.arpa", Rtype::A), None, &mut frame),
        None
    );
    let mut chaos = asker("ipv4only.arpa", Rtype::A);
    chaos.class = Class::CH;
    assert_eq!(answer(&chaos, Some(&dns64()), &mut frame), None);
}

/// The reverse name of 64:ff9b::192.0.0.172.
fn made_of_another() -> String {
    "c.a.0.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa".to_owned()
}

#[test]
fn client_finds_prefix_in_response() {
    // RFC 7050 section 3.
    let mut frame = [0; 512];
    let asker = asker("ipv4only.arpa", Rtype::AAAA);
    let len = answer(&asker, Some(&dns64()), &mut frame).expect("ours");
    let message = dns64_wire::message::Message::parse(&frame[..len]).expect("sound");
    let mut learnt = Vec::new();
    for (record, ipv4) in message.records().take(2).zip(ADDRESSES) {
        let ipv6 = record.expect("sound").aaaa().expect("an address");
        learnt.extend(Pref64::learn(ipv6, ipv4));
    }
    assert_eq!(learnt, [Pref64::WELL_KNOWN, Pref64::WELL_KNOWN]);
}
