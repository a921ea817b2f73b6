//! The records of a response that are kept.

use super::*;

/// The kept records of a response, given as lines, as lines without TTL.
fn scrubbed(asked: &str, rtype: Rtype, rcode: Rcode, lines: &[&str]) -> Vec<String> {
    use crate::answer::texts;
    let stored = texts::stored(asked, rtype, rcode, lines);
    let kept = texts::records(stored.message().bytes());
    kept.iter()
        .map(|line| line.replacen(" 9 ", " ", 1))
        .collect()
}

#[test]
fn records_outside_the_chain_are_removed_from_answer_section() {
    let lines = [
        "an victim.example 9 A 192.0.2.66",
        "an b.test 9 A 192.0.2.1",
        "an b.test 9 RRSIG A",
        "an a.example.com 9 CNAME a.example.net",
        "an a.example.com 9 CNAME victim.example",
        "an a.example.com 9 RRSIG CNAME",
        "an a.example.com 9 RRSIG A",
        "an a.example.com 9 A 192.0.2.66",
        "an example.com 9 DNAME example.net",
        "an example.com 9 RRSIG DNAME",
        "an com 9 DNAME evil",
        "an a.example.net 9 CNAME b.test",
        "an b.test 9 TXT text",
        "an victim.example 9 RRSIG A",
    ];
    assert_eq!(
        scrubbed("a.example.com", Rtype::A, Rcode::NOERROR, &lines),
        [
            "an a.example.com CNAME a.example.net",
            "an a.example.com RRSIG CNAME",
            "an example.com DNAME example.net",
            "an example.com RRSIG DNAME",
            "an a.example.net CNAME b.test",
            "an b.test A 192.0.2.1",
            "an b.test RRSIG A",
        ]
    );
    let any = [
        "an b.test 9 A 192.0.2.1",
        "an b.test 9 RRSIG A",
        "an c.test 9 A 192.0.2.1",
    ];
    let kept = scrubbed("b.test", Rtype::ANY, Rcode::NOERROR, &any);
    assert_eq!(kept, ["an b.test A 192.0.2.1", "an b.test RRSIG A"]);
    let kept = scrubbed("b.test", Rtype::RRSIG, Rcode::NOERROR, &any);
    assert_eq!(kept, ["an b.test RRSIG A"]);
}

#[test]
fn dname_to_too_long_name_is_kept() {
    // RFC 6672 section 2.2.
    let lines = [
        "an example.com 9 DNAME example.net",
        "an example.com 9 RRSIG DNAME",
    ];
    let kept = |rcode| scrubbed("a.example.com", Rtype::A, rcode, &lines).len();
    assert_eq!((kept(Rcode::YXDOMAIN), kept(Rcode::NOERROR)), (2, 0));
}

#[test]
fn authority_section_keeps_zones_of_the_chain_only() {
    let lines = [
        "an www.example.com 9 CNAME a.test",
        "an www.example.com 9 RRSIG CNAME",
        "ns example 9 SOA 9",
        "ns test 9 SOA 9",
        "ns victim.test 9 NS ns.evil.test",
        "ns a.test 9 A 192.0.2.66",
        "ns b.test 9 NSEC c.test",
        "ns b.test 9 RRSIG NSEC",
        "ns w.example.com 9 NSEC x.example.com",
        "ns victim.example 9 NSEC x.example",
        "ns victim.example 9 RRSIG NSEC",
    ];
    // The first SOA record is from another zone: it does not apply, and neither does any other.
    assert_eq!(
        scrubbed("www.example.com", Rtype::A, Rcode::NXDOMAIN, &lines)[2..],
        [
            "ns b.test NSEC c.test",
            "ns b.test RRSIG NSEC",
            "ns w.example.com NSEC x.example.com",
        ]
    );
    let without = [&lines[..2], &lines[3..]].concat();
    assert_eq!(
        scrubbed("www.example.com", Rtype::A, Rcode::NXDOMAIN, &without)[2],
        "ns test SOA 9"
    );
    let servers = ["ns example.com 9 NS ns.test", "ns org 9 NS ns.test"];
    assert_eq!(
        scrubbed("www.example.com", Rtype::A, Rcode::NOERROR, &servers),
        ["ns example.com NS ns.test"]
    );
}

#[test]
fn additional_section_keeps_named_hosts_only() {
    let lines = [
        "an example.com 9 MX mail.test",
        "ns example.com 9 NS ns.test",
        "ar mail.test 9 A 192.0.2.25",
        "ar mail.test 9 RRSIG A",
        "ar mail.test 9 TXT text",
        "ar ns.test 9 AAAA 2001:db8::53",
        "ar victim.example 9 A 192.0.2.66",
        "ar example.com 9 A 192.0.2.66",
    ];
    let kept = scrubbed("example.com", Rtype::MX, Rcode::NOERROR, &lines);
    assert_eq!(
        kept[2..],
        [
            "ar mail.test A 192.0.2.25",
            "ar mail.test RRSIG A",
            "ar ns.test AAAA 2001:db8::53",
        ]
    );
    let service = [
        "an example.com 9 HTTPS 0 svc.test",
        "ar svc.test 9 HTTPS 1 host.test",
        "ar host.test 9 CNAME pool.test",
        "ar pool.test 9 A 192.0.2.1",
        "ar svc.test 9 CNAME victim.example",
        "ar other.test 9 A 192.0.2.66",
    ];
    let kept = scrubbed("example.com", Rtype::HTTPS, Rcode::NOERROR, &service);
    assert_eq!(kept.len(), 5);
}

#[test]
fn chain_may_end_without_records() {
    let open = accept(&response(NOERROR, [1, 0, 0], &[A_TO_B])).unwrap();
    assert_eq!(open.open_end().unwrap().to_string(), "b.test.");
    for (counts, records) in [
        ([1, 1, 0], [A_TO_B, SOA]),
        ([2, 0, 0], [B_TO_C, C_AAAA]),
        ([2, 0, 0], [AAAA, C_AAAA]),
    ] {
        assert!(
            accept(&response(NOERROR, counts, &records))
                .unwrap()
                .open_end()
                .is_none()
        );
    }
}

proptest::proptest! {
    /// The order of the answer section does not change the kept records.
    #[test]
    fn order_of_answer_section_does_not_change_kept_records(
        order in proptest::strategy::Just((0..5).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let lines = [
            "an a.example.com 9 CNAME b.test",
            "an b.test 9 CNAME c.test",
            "an c.test 9 A 192.0.2.1",
            "an c.test 9 A 192.0.2.2",
            "an victim.example 9 A 192.0.2.66",
        ];
        let shuffled: Vec<&str> = order.iter().map(|i| lines[*i]).collect();
        let mut kept = scrubbed("a.example.com", Rtype::A, Rcode::NOERROR, &shuffled);
        // The aliases are in the order of the chain.
        kept[2..].sort();
        let expected: Vec<_> = lines[..4].iter().map(|line| line.replacen(" 9 ", " ", 1)).collect();
        proptest::prop_assert_eq!(kept, expected);
    }
}

#[test]
fn all_records_of_an_rrset_have_its_lowest_ttl() {
    use crate::answer::texts::{records, stored};
    let lines = [
        "an a.test 20 CNAME b.test",
        "an b.test 300 A 192.0.2.1",
        "an b.test 9 A 192.0.2.2",
        "an b.test 60 RRSIG A",
        "ns test 80 NS ns1.test",
        "ns test 70 NS ns2.test",
        "ar ns1.test 50 A 192.0.2.53",
        "ar ns1.test 40 AAAA 2001:db8::53",
    ];
    let chain = stored("a.test", Rtype::A, Rcode::NOERROR, &lines);
    let plain = stored("b.test", Rtype::A, Rcode::NOERROR, &lines[1..3]);
    let ttls = |stored: &Stored| {
        let ttls = stored.message().records().map(|record| record.unwrap().ttl);
        ttls.collect::<Vec<_>>()
    };
    assert_eq!(ttls(&chain), [20, 9, 9, 9, 70, 70, 50, 40]);
    assert_eq!((ttls(&plain), plain.ttl_s()), (vec![9, 9], 9));
    assert_eq!(records(plain.message().bytes()).len(), 2);
}

#[test]
fn dname_record_is_found_among_many() {
    let other = b"\0\0\x27\0\x01\0\0\0\x1e\0\x05\x03com\0";
    let test_to_org = b"\xc0\x0e\0\x27\0\x01\0\0\0\x1e\0\x05\x03org\0";
    let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\0\0\x07\x01a\x03org\0";
    let mut records = vec![&other[..]; 250];
    records.extend([&test_to_org[..], alias]);
    let count = u8::try_from(records.len()).unwrap();
    let stored = accept(&response(NOERROR, [count, 0, 0], &records)).unwrap();
    assert_eq!(kept(&stored), ["test. DNAME", "a.test. CNAME"]);
}
