//! RFC 9460 section 4.2.1.

use dns64_wire::codes::Rcode;

use super::super::stored::Stored;
use super::super::texts::*;
use super::*;
use crate::settings::dns64::SignedPolicy;

const ASKED: &str = "www.example";

fn https(lines: &[&str]) -> Stored {
    stored(ASKED, Rtype::HTTPS, Rcode::NOERROR, lines)
}

fn answered(dns64: &Dns64, answer: &Stored) -> Option<Vec<String>> {
    let mut frame = [0; 1232];
    let asker = asker(ASKED, Rtype::HTTPS);
    let len = with_addresses(&asker, dns64, Aged::fresh(answer, 100), &mut frame)?;
    Some(lines(&frame[..len]))
}

#[test]
fn target_addresses_get_additional_aaaa_records() {
    let answer = https(&[
        "an www.example 1000 HTTPS 1 .",
        "an www.example 1000 HTTPS 2 pool.example",
        "ar www.example 1000 A 192.0.2.1",
        "ar pool.example 1000 CNAME pool.example.net",
        "ar pool.example.net 200 A 192.0.2.2",
        "ar other.example 1000 A 192.0.2.3",
    ]);
    assert_eq!(
        answered(&dns64(), &answer).expect("records to add"),
        [
            "NOERROR; www.example. HTTPS",
            "an www.example 900 HTTPS 1 .",
            "an www.example 900 HTTPS 2 pool.example.",
            "ar www.example 900 A 192.0.2.1",
            "ar pool.example 900 CNAME pool.example.net",
            "ar pool.example.net 100 A 192.0.2.2",
            "ar www.example 600 AAAA 64:ff9b::c000:201",
            "ar pool.example.net 100 AAAA 64:ff9b::c000:202",
        ]
    );
}

#[test]
fn alias_mode_targets_are_followed() {
    let answer = https(&[
        "an www.example 1000 HTTPS 0 svc.example",
        "ar svc.example 1000 HTTPS 1 host.example",
        "ar host.example 1000 A 192.0.2.1",
    ]);
    let answer = answered(&dns64(), &answer).expect("a record to add");
    assert_eq!(answer[4], "ar host.example 600 AAAA 64:ff9b::c000:201");
}

#[test]
fn response_without_target_addresses_stays_unchanged() {
    let address = "ar www.example 1000 A 192.0.2.1";
    let service = "an www.example 1000 HTTPS 1 .";
    let native = "ar www.example 1000 AAAA 2001:db8::1";
    assert_eq!(
        answered(&dns64(), &https(&[service, address, native])),
        None
    );
    assert_eq!(answered(&dns64(), &https(&[service])), None);
    // In AliasMode "." means that there is no service.
    assert_eq!(
        answered(
            &dns64(),
            &https(&["an www.example 1000 HTTPS 0 .", address])
        ),
        None
    );
    let only_answer = https(&[service, address]);
    assert!(answered(&dns64(), &only_answer).is_some());
    let excluded = with_rule("www.example", DomainAction::Exclude, None);
    assert_eq!(answered(&excluded, &only_answer), None);
    let none = Dns64 {
        prefixes: Vec::new(),
        ..dns64()
    };
    assert_eq!(answered(&none, &only_answer), None);
    let off = Dns64 {
        svcb: false,
        ..dns64()
    };
    assert_eq!(answered(&off, &only_answer), None);
}

#[test]
fn rule_of_target_domain_applies() {
    let answer = https(&[
        "an www.example 1000 HTTPS 1 a.test",
        "an www.example 1000 HTTPS 1 b.example",
        "ar a.test 1000 A 192.0.2.1",
        "ar b.example 1000 A 192.0.2.2",
    ]);
    let excluded = with_rule("a.test", DomainAction::Exclude, None);
    let lines = answered(&excluded, &answer).expect("a record to add");
    assert_eq!(lines[5..], ["ar b.example 600 AAAA 64:ff9b::c000:202"]);
}

#[test]
fn cd_signed_data_and_other_types_stay_unchanged() {
    let address = "ar www.example 1000 A 192.0.2.1";
    let signed = https(&[
        "an www.example 1000 HTTPS 1 .",
        "an www.example 1000 RRSIG HTTPS",
        address,
    ]);
    let ask = |asker: &Asker, dns64: &Dns64| {
        let mut frame = [0; 1232];
        with_addresses(asker, dns64, Aged::fresh(&signed, 0), &mut frame).is_some()
    };
    let plain = asker(ASKED, Rtype::HTTPS);
    let disabled = |asker: &Asker| Asker {
        flags: asker.flags.with_cd(true),
        ..asker.clone()
    };
    let dnssec = with_do(plain.clone());
    for asker in [&plain, &disabled(&plain), &dnssec] {
        assert!(ask(asker, &dns64()));
    }
    assert!(!ask(&disabled(&dnssec), &dns64()));
    let never = Dns64 {
        signed: SignedPolicy::Never,
        ..dns64()
    };
    assert!(!ask(&dnssec, &never));
    assert!(!ask(
        &Asker {
            rtype: Rtype::MX,
            ..plain
        },
        &dns64()
    ));
}

#[test]
fn records_without_room_are_omitted_without_truncation() {
    let answer = https(&[
        "an www.example 1000 HTTPS 1 .",
        "ar www.example 1000 A 192.0.2.1",
    ]);
    let mut frame = [0; 1232];
    let mut asker = asker(ASKED, Rtype::HTTPS);
    let len = with_addresses(&asker, &dns64(), Aged::fresh(&answer, 0), &mut frame);
    asker.limit = len.expect("a record to add") - 1;
    let len = with_addresses(&asker, &dns64(), Aged::fresh(&answer, 0), &mut frame);
    let lines = lines(&frame[..len.expect("a record to add")]);
    assert_eq!(lines[0], "NOERROR; www.example. HTTPS");
    assert_eq!(lines.len(), 3);
}

#[test]
fn nothing_is_added_to_a_full_additional_section() {
    let answer = https(&[
        "an www.example 1000 HTTPS 1 svc.test",
        "ar svc.test 1000 A 192.0.2.1",
        "ar svc.test 1000 A 192.0.2.2",
    ]);
    let mut asker = asker(ASKED, Rtype::HTTPS);
    let mut lens = Vec::new();
    for limit in 80..250 {
        asker.limit = limit;
        let mut frame = [0; 1232];
        let len = with_addresses(&asker, &dns64(), Aged::fresh(&answer, 0), &mut frame);
        lens.push(lines(&frame[..len.expect("a record to add")]).len());
    }
    lens.dedup();
    assert_eq!(lens, [2, 4, 5, 6], "no records, with A, with A and AAAA");
}
