//! RFC 6303, RFC 6761 and the RFCs that add zones to them.

use dns64_wire::message::Message;
use proptest::prelude::*;

use super::super::texts::*;
use super::*;

fn answer(
    asker: &Asker,
    dns64: Option<&Dns64>,
    forwarded: &[NameBuf],
    frame: &mut [u8],
) -> Option<usize> {
    let local = special_use(forwarded);
    let answered = super::answer(asker, &local, dns64, &Domains::<u8>::default(), frame)?;
    Some(answered.len)
}

/// The response code and the zone of a negative response; `None` if the query is forwarded.
fn denied(asked: &str, rtype: Rtype) -> Option<(Rcode, String)> {
    let mut frame = [0; 1232];
    let len = answer(&asker(asked, rtype), Some(&dns64()), &[], &mut frame)?;
    let message = Message::parse(&frame[..len]).expect("sound");
    assert!(message.aa() && message.ra() && !message.ad());
    let record = message.records().next()?.expect("sound");
    assert_eq!(
        (record.section, record.rtype),
        (Section::Authority, Rtype::SOA)
    );
    Some((message.rcode(), record.name.to_string()))
}

/// The lines of a response without the first one.
fn records(asked: &str, rtype: Rtype) -> Vec<String> {
    let mut frame = [0; 1232];
    let len = answer(&asker(asked, rtype), Some(&dns64()), &[], &mut frame).expect("ours");
    let mut lines = lines(&frame[..len]);
    assert!(lines.remove(0).starts_with("NOERROR aa;"));
    lines
}

#[test]
fn names_below_a_zone_are_nxdomain_and_other_types_at_its_apex_nodata() {
    let zones = [
        "invalid",
        "onion",
        "home.arpa",
        "service.arpa",
        "0.in-addr.arpa",
        "10.in-addr.arpa",
        "64.100.in-addr.arpa",
        "99.100.in-addr.arpa",
        "127.100.in-addr.arpa",
        "127.in-addr.arpa",
        "254.169.in-addr.arpa",
        "16.172.in-addr.arpa",
        "31.172.in-addr.arpa",
        "168.192.in-addr.arpa",
        "2.0.192.in-addr.arpa",
        "100.51.198.in-addr.arpa",
        "113.0.203.in-addr.arpa",
        "255.255.255.255.in-addr.arpa",
        "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa",
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa",
        "d.f.ip6.arpa",
        "8.e.f.ip6.arpa",
        "9.e.f.ip6.arpa",
        "a.e.f.ip6.arpa",
        "b.e.f.ip6.arpa",
        "8.b.d.0.1.0.0.2.ip6.arpa",
    ];
    for zone in zones {
        let apex = Some((Rcode::NOERROR, format!("{zone}.")));
        assert_eq!(denied(zone, Rtype::TXT), apex, "{zone}");
        for below in [
            format!("x.{zone}"),
            format!("7.7.7.7.{zone}"),
            format!("_.A.{zone}"),
        ] {
            let nothing = Some((Rcode::NXDOMAIN, format!("{zone}.")));
            assert_eq!(denied(&below, Rtype::PTR), nothing, "{below}");
        }
        assert!(
            denied(&zone.to_ascii_uppercase(), Rtype::TXT).is_some(),
            "{zone}"
        );
    }
}

#[test]
fn names_outside_the_zones_are_forwarded() {
    let others = [
        ".",
        "arpa",
        "in-addr.arpa",
        "ip6.arpa",
        "test",
        "example",
        "alocalhost",
        "xinvalid",
        "onion.example",
        "home.arpa.example",
        "nothome.arpa",
        "9.in-addr.arpa",
        "010.in-addr.arpa",
        "256.in-addr.arpa",
        "266.in-addr.arpa",
        "172.in-addr.arpa",
        "15.172.in-addr.arpa",
        "32.172.in-addr.arpa",
        "63.100.in-addr.arpa",
        "128.100.in-addr.arpa",
        "10.9.in-addr.arpa",
        "0.192.in-addr.arpa",
        "3.0.192.in-addr.arpa",
        "170.0.0.192.in-addr.arpa",
        "255.255.255.in-addr.arpa",
        "254.255.255.255.in-addr.arpa",
        "f.ip6.arpa",
        "c.f.ip6.arpa",
        "c.e.f.ip6.arpa",
        "7.e.f.ip6.arpa",
        "9.b.d.0.1.0.0.2.ip6.arpa",
        "0.0.0.ip6.arpa",
        "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa",
    ];
    for other in others {
        assert_eq!(denied(other, Rtype::PTR), None, "{other}");
    }
    // A label with the octets of the zone at its end is not the zone: its length octet differs.
    let mut frame = [0; 512];
    let label = NameBuf::from_wire(b"\x06\x05onion\0").expect("a name");
    let asker = Asker {
        name: label,
        ..asker("x", Rtype::A)
    };
    assert_eq!(answer(&asker, None, &[], &mut frame), None);
}

#[test]
fn zone_has_soa_and_ns_records_of_rfc_6303() {
    let soa = "an 10.in-addr.arpa 10800 SOA 10800";
    assert_eq!(records("10.in-addr.arpa", Rtype::SOA), [soa]);
    assert_eq!(records("10.in-addr.arpa", Rtype::ANY), [soa]);
    let ns = "an 10.in-addr.arpa 10800 NS 10.in-addr.arpa";
    assert_eq!(records("10.in-addr.arpa", Rtype::NS), [ns]);
    let mut frame = [0; 512];
    let query = asker("1.10.in-addr.arpa", Rtype::PTR);
    let len = answer(&query, None, &[], &mut frame).expect("ours");
    let message = Message::parse(&frame[..len]).expect("sound");
    let record = message.records().next().expect("an SOA").expect("sound");
    let numbers =
        b"\x06nobody\x07invalid\0\0\0\0\x01\0\0\x0e\x10\0\0\x04\xb0\0\x09\x3a\x80\0\0\x2a\x30";
    assert_eq!(record.rdata, [b"\xc0\x0e", &numbers[..]].concat());
}

#[test]
fn every_name_below_localhost_has_loopback_addresses() {
    for asked in ["localhost", "www.localhost", "a.b.LocalHost"] {
        let a = format!("an {asked} 10800 A 127.0.0.1");
        assert_eq!(records(asked, Rtype::A), [a]);
        let aaaa = format!("an {asked} 10800 AAAA ::1");
        assert_eq!(records(asked, Rtype::AAAA), [aaaa]);
        let (rcode, zone) = denied(asked, Rtype::MX).expect("ours");
        assert_eq!(
            (rcode, zone.to_ascii_lowercase()),
            (Rcode::NOERROR, "localhost.".to_owned())
        );
    }
}

#[test]
fn ptr_of_loopback_addresses_is_localhost() {
    let ipv6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa";
    for asked in ["1.0.0.127.in-addr.arpa", ipv6] {
        let ptr = format!("an {asked} 10800 PTR localhost");
        assert_eq!(records(asked, Rtype::PTR), [ptr]);
    }
    // The names above the reverse name of 127.0.0.1 exist too (RFC 8020).
    for asked in ["0.0.127.in-addr.arpa", "0.127.in-addr.arpa"] {
        let (rcode, _) = denied(asked, Rtype::PTR).expect("ours");
        assert_eq!(rcode, Rcode::NOERROR, "{asked}");
    }
    let (rcode, _) = denied("2.0.0.127.in-addr.arpa", Rtype::PTR).expect("ours");
    assert_eq!(rcode, Rcode::NXDOMAIN);
}

#[test]
fn every_name_below_resolver_arpa_is_nodata() {
    for asked in ["resolver.arpa", "_dns.resolver.arpa", "a.b.resolver.arpa"] {
        let (rcode, zone) = denied(asked, Rtype::SVCB).expect("ours");
        assert_eq!((rcode, zone.as_str()), (Rcode::NOERROR, "resolver.arpa."));
    }
}

#[test]
fn ds_of_a_zone_below_arpa_and_other_classes_are_forwarded() {
    assert_eq!(denied("home.arpa", Rtype::DS), None);
    assert_eq!(denied("10.in-addr.arpa", Rtype::DS), None);
    assert!(denied("x.home.arpa", Rtype::DS).is_some());
    assert!(denied("onion", Rtype::DS).is_some());
    let chaos = Asker {
        class: Class::CH,
        ..asker("localhost", Rtype::A)
    };
    assert_eq!(answer(&chaos, None, &[], &mut [0; 512]), None);
}

#[test]
fn zone_gives_way_to_a_domain_with_servers_of_its_own_unless_it_is_longer() {
    let asks = |asked: &str, domain: &str| {
        let domains: Domains<u8> = [(name(domain), 1)].into_iter().collect();
        let query = asker(asked, Rtype::PTR);
        super::answer(&query, &special_use(&[]), None, &domains, &mut [0; 512]).is_none()
    };
    assert!(asks("1.10.in-addr.arpa", "10.in-addr.arpa"));
    assert!(asks("2.1.10.in-addr.arpa", "1.10.IN-ADDR.arpa"));
    assert!(!asks("2.10.in-addr.arpa", "1.10.in-addr.arpa"));
    assert!(!asks("1.10.in-addr.arpa", "in-addr.arpa"));
    assert!(!asks("1.10.in-addr.arpa", "."));
    assert!(asks("lab.home.arpa", "home.arpa"));
}

#[test]
fn names_in_forwarded_domains_are_not_answered() {
    let asks = |asked: &str, forwarded: &str| {
        let query = asker(asked, Rtype::PTR);
        answer(
            &query,
            None,
            &[name("onion"), name(forwarded)],
            &mut [0; 512],
        )
        .is_none()
    };
    assert!(asks("1.10.in-addr.arpa", "10.in-addr.arpa"));
    assert!(asks("1.10.in-addr.arpa", "10.IN-ADDR.arpa"));
    assert!(asks("2.1.10.in-addr.arpa", "1.10.in-addr.arpa"));
    assert!(asks("1.10.in-addr.arpa", "arpa"));
    assert!(asks("localhost", "."));
    assert!(!asks("2.10.in-addr.arpa", "1.10.in-addr.arpa"));
    assert!(!asks("10.in-addr.arpa", "1.10.in-addr.arpa"));
    assert!(!asks("localhost", "arpa"));
    for known in [
        ".",
        "arpa",
        "in-addr.arpa",
        "ip6.arpa",
        "10.in-addr.arpa",
        "a.onion",
    ] {
        assert!(concerns(&name(known)), "{known}");
    }
    assert!(!concerns(&name("example")) && !concerns(&name("11.in-addr.arpa")));
}

#[test]
fn reverse_names_of_synthesised_addresses_are_not_answered_by_their_zone() {
    let local = Dns64 {
        prefixes: vec!["fd00:64::/96".parse().expect("a prefix")],
        ..dns64()
    };
    let global = dns64();
    let forwarded =
        |asked: &str, dns64| answer(&asker(asked, Rtype::PTR), dns64, &[], &mut [0; 512]).is_none();
    let prefix = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.0.0.d.f.ip6.arpa";
    let address = format!("1.0.2.0.0.0.0.c.{prefix}");
    for name in [prefix, &address, "0.0.d.f.ip6.arpa", "d.f.ip6.arpa"] {
        assert!(forwarded(name, Some(&local)), "{name}");
        assert!(!forwarded(name, Some(&global)), "{name}");
        assert!(!forwarded(name, None), "{name}");
    }
    for name in [
        "1.d.f.ip6.arpa",
        "x.d.f.ip6.arpa",
        "1.0.d.f.ip6.arpa",
        "8.e.f.ip6.arpa",
    ] {
        let is_above = name == "x.d.f.ip6.arpa";
        assert_eq!(forwarded(name, Some(&local)), is_above, "{name}");
    }
}

proptest! {
    #[test]
    fn any_name_is_answered_or_forwarded(
        labels in prop::collection::vec(
            prop_oneof![
                "[0-9a-f]",
                "[0-9]{1,4}",
                Just("arpa".to_owned()),
                Just("ip6".to_owned()),
                Just("in-addr".to_owned()),
                Just("localhost".to_owned()),
            ],
            0..60,
        ),
        wire in prop::collection::vec(any::<u8>(), 1..255),
    ) {
        let text = labels.join(".") + ".";
        for name in [text.parse().ok(), NameBuf::from_wire(&wire).ok()].into_iter().flatten() {
            let asker = Asker { name, ..asker("x", Rtype::PTR) };
            let mut frame = [0; 1232];
            if let Some(len) = answer(&asker, Some(&dns64()), &[], &mut frame) {
                let message = Message::parse(&frame[..len]).expect("sound");
                prop_assert!(message.aa() && message.records().all(|record| record.is_ok()));
            }
        }
    }
}
