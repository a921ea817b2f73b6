//! RFC 6147 section 5.3.1.

use super::super::texts::*;
use super::*;
use crate::answer::stored::Stored;
use crate::settings::dns64::{Dns64, DomainAction};
use proptest::prelude::*;

/// 64:ff9b::192.0.2.33, in mixed case.
const MADE: &str = "1.2.2.0.0.0.0.C.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.F.f.4.6.0.0.ip6.ARPA";

/// The reverse name of 192.0.2.33.
const IPV4: &str = "33.2.0.192.in-addr.arpa";

fn leads_to(asked: &str, dns64: &Dns64) -> Option<String> {
    match target(&asker(asked, Rtype::PTR), dns64)? {
        Reverse::Local(name) => Some(format!("local {name}")),
        Reverse::Alias(name) => Some(name.to_string()),
    }
}

fn ptr(lines: &[&str]) -> Stored {
    stored(IPV4, Rtype::PTR, Rcode::NOERROR, lines)
}

fn aliased(ptr: Aged<'_>) -> Vec<String> {
    let mut frame = [0; 1232];
    let len = alias(&asker(MADE, Rtype::PTR), &name(IPV4), ptr, &mut frame);
    lines(&frame[..len])
}

#[test]
fn d15_names_under_each_prefix_lead_to_reverse_name_of_ipv4_address() {
    let site = Dns64 {
        prefixes: vec!["2001:db8:122:344::/64".parse().expect("a prefix")],
        ..with_rule("example", DomainAction::Include, Some("2001:db8::/32"))
    };
    let ipv4 = Some(format!("{IPV4}."));
    assert_eq!(leads_to(MADE, &dns64()), ipv4);
    // The Well-Known Prefix counts even if it is not configured.
    assert_eq!(leads_to(MADE, &site), ipv4);
    for addr in ["2001:db8:122:344:c0:2:2100::", "2001:db8:c000:221::"] {
        assert_eq!(
            leads_to(&ip6_arpa(addr.parse().expect("IPv6")), &site),
            ipv4
        );
    }
    let local = Dns64 {
        ptr: Ptr::Local(name("nat64.example")),
        ..dns64()
    };
    assert_eq!(
        leads_to(MADE, &local),
        Some("local nat64.example.".to_owned())
    );
}

#[test]
fn d16_other_queries_are_forwarded() {
    let ordinary = |asked: &str| assert_eq!(leads_to(asked, &dns64()), None, "{asked}");
    ordinary("1.2.2.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.1.0.ip6.arpa");
    ordinary(&MADE[2..]);
    ordinary(&format!("0.{MADE}"));
    ordinary(&MADE.replace("ip6", "ip7"));
    ordinary(&MADE.replacen('1', "g", 1));
    ordinary(&MADE.replacen("1.2", "12", 1));
    ordinary(&MADE.replacen("1.2.2", "12.2.", 1).replace("..", "."));
    ordinary(IPV4);
    ordinary("ip6.arpa");
    ordinary(".");
    assert_eq!(target(&asker(MADE, Rtype::TXT), &dns64()), None);
    let mut chaos = asker(MADE, Rtype::PTR);
    chaos.class = Class::CH;
    assert_eq!(target(&chaos, &dns64()), None);
}

#[test]
fn d15_response_with_local_name_is_authoritative() {
    let mut frame = [0; 512];
    let len = local(&asker(MADE, Rtype::PTR), &name("nat64.example"), &mut frame);
    let answer = lines(&frame[..len]);
    assert_eq!(answer[0], format!("NOERROR aa; {MADE}. PTR"));
    assert_eq!(answer[1..], [format!("an {MADE} 600 PTR nat64.example")]);
}

#[test]
fn d15_response_has_cname_and_its_ptr_records() {
    let two = ptr(&[
        "an 33.2.0.192.in-addr.arpa 300 PTR a.example",
        "an 33.2.0.192.in-addr.arpa 200 PTR b.example",
        "ns 192.in-addr.arpa 100 NS ns.example",
    ]);
    assert_eq!(
        aliased(Aged::fresh(&two, 50)),
        [
            format!("NOERROR; {MADE}. PTR"),
            format!("an {MADE} 150 CNAME {IPV4}"),
            format!("an {IPV4} 150 PTR a.example"),
            format!("an {IPV4} 150 PTR b.example"),
        ]
    );
}

#[test]
fn d15_alias_of_ipv4_name_gives_no_cname_chain() {
    // RFC 2317: the reverse name of the IPv4 address is itself an alias.
    let delegated = ptr(&[
        "an 33.2.0.192.in-addr.arpa 300 CNAME 33.32-63.2.0.192.in-addr.arpa",
        "an 33.32-63.2.0.192.in-addr.arpa 400 PTR host.32-63.2.0.192.in-addr.arpa",
    ]);
    assert_eq!(
        aliased(Aged::fresh(&delegated, 0)),
        [
            format!("NOERROR; {MADE}. PTR"),
            format!("an {MADE} 300 PTR host.32-63.2.0.192.in-addr.arpa"),
        ]
    );
}

#[test]
fn d15_missing_ptr_gives_no_cname() {
    let soa = "ns 192.in-addr.arpa 60 SOA 60";
    let none = stored(IPV4, Rtype::PTR, Rcode::NXDOMAIN, &[soa]);
    assert_eq!(
        aliased(Aged::fresh(&none, 20)),
        [
            format!("NXDOMAIN; {MADE}. PTR"),
            "ns 192.in-addr.arpa 40 SOA 60".to_owned(),
        ]
    );
    assert_eq!(
        aliased(Aged::fresh(&ptr(&[soa]), 0)),
        [format!("NOERROR; {MADE}. PTR"), soa.to_owned()]
    );
    let dangling = ptr(&["an 33.2.0.192.in-addr.arpa 300 CNAME nowhere.example"]);
    assert_eq!(
        aliased(Aged::fresh(&dangling, 0)),
        [format!("NOERROR; {MADE}. PTR")]
    );
    let failure = failed(IPV4, Rtype::PTR);
    assert_eq!(
        aliased(Aged::fresh(&failure, 0)),
        [format!("SERVFAIL; {MADE}. PTR")]
    );
}

fn ip6_arpa(ipv6: Ipv6Addr) -> String {
    let nibbles = format!("{:032x}", ipv6.to_bits());
    let labels = nibbles.chars().rev().map(|nibble| format!("{nibble}."));
    labels.collect::<String>() + "ip6.arpa"
}

proptest! {
    #[test]
    fn every_synthesised_address_leads_to_its_ipv4_address(ipv4: u32) {
        let ipv4 = Ipv4Addr::from(ipv4);
        let rule = dns64().domains.rule(&name(".").as_name());
        let made = dns64().embed(ipv4, rule).next().expect("an address");
        prop_assert_eq!(address(&name(&ip6_arpa(made))), Some(made));
        let [a, b, c, d] = ipv4.octets();
        let expected = format!("{d}.{c}.{b}.{a}.in-addr.arpa.");
        prop_assert_eq!(leads_to(&ip6_arpa(made), &dns64()), Some(expected));
    }
}
