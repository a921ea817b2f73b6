//! One literal packet for each rule, and a comparison of the two paths.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::authority::{PLAIN_LEN_MAX, REPLY_LEN_MAX};
use crate::namespace::{ADDRESSES_MAX, CNAME_LENGTH_MAX, NameRecords, Share, Zone};

fn config(share: &str, self_test: bool) -> ZoneConfig {
    ZoneConfig {
        zone: Zone {
            suffix: "dns64perf.test".parse().unwrap(),
            aaaa_share: share.parse().unwrap(),
            ..Zone::default()
        },
        self_test,
        ttl_s: 60,
        negative_ttl_s: 5,
    }
}

fn reply_of(authority: &mut Authority, query: &[u8]) -> Vec<u8> {
    let mut out = [0xee; 512];
    let len = authority.answer(query, &mut out, Protocol::Udp).len;
    assert!(out[len..].iter().all(|octet| *octet == 0xee));
    out[..len].to_vec()
}

fn reply(query: &[u8]) -> Vec<u8> {
    reply_of(&mut Authority::new(config("0", false)), query)
}

/// A query with ID 0x1234 and RD for `name` in wire format.
fn query(name: &[u8], rtype: Rtype) -> Vec<u8> {
    let header = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0";
    [header, name, &rtype.0.to_be_bytes(), b"\0\x01"].concat()
}

fn with_opt(query: &[u8], opt: &[u8]) -> Vec<u8> {
    let mut query = [query, opt].concat();
    query[11] = 1;
    query
}

/// Header bits and counts of a reply, and everything after its question.
fn parts<'r>(query: &[u8], reply: &'r [u8]) -> (u16, [u8; 8], &'r [u8]) {
    assert_eq!(reply[..2], query[..2], "the ID is repeated");
    let question = Message::parse(query).unwrap().question().unwrap().range();
    assert_eq!(
        reply[question.clone()],
        query[question.clone()],
        "the question is repeated"
    );
    let flags = u16::from_be_bytes([reply[2], reply[3]]);
    (
        flags,
        reply[4..12].try_into().unwrap(),
        &reply[question.end..],
    )
}

const HOST: &[u8] = b"\x0f192-000-002-033\x09dns64perf\x04test\0";
const APEX: &[u8] = b"\x09dns64perf\x04test\0";
const OPT: &[u8] = b"\0\0\x29\x10\0\0\0\x80\0\0\0";
const OPT_BACK: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
const SOA_NUMBERS: &[u8] = b"\0\0\0\x01\0\0\xa8\xc0\0\0\x03\x84\0\x12\x75\0\0\0\0\x05";

/// The SOA record. Its owner and the names in it are compression pointers; `owner` and `at` are their offsets.
fn soa(owner: u8, at: u8) -> Vec<u8> {
    let names = [b"\x02ns\xc0", &[at][..], b"\x0ahostmaster\xc0", &[at]].concat();
    [
        b"\xc0",
        &[owner][..],
        b"\0\x06\0\x01\0\0\0\x05\0\x26",
        &names,
        SOA_NUMBERS,
    ]
    .concat()
}

#[test]
fn a_is_the_address_in_the_name() {
    let query = query(HOST, Rtype::A);
    let answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x21";
    let expected = (0x8500, [0, 1, 0, 1, 0, 0, 0, 0], &answer[..]);
    assert_eq!(parts(&query, &reply(&query)), expected);
}

#[test]
fn aaaa_is_nodata_with_a_share_of_0() {
    let query = query(HOST, Rtype::AAAA);
    let expected = (0x8500, [0, 1, 0, 0, 0, 1, 0, 0], &soa(28, 28)[..]);
    assert_eq!(parts(&query, &reply(&query)), expected);
}

#[test]
fn aaaa_exists_in_the_self_test_and_for_the_share() {
    let query = query(HOST, Rtype::AAAA);
    let answer = b"\xc0\x0c\0\x1c\0\x01\0\0\0\x3c\0\x10\
        \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\xc0\0\x02\x21";
    let expected = (0x8500, [0, 1, 0, 1, 0, 0, 0, 0], &answer[..]);
    for config in [config("0", true), config("100%", false)] {
        let reply = reply_of(&mut Authority::new(config), &query);
        assert_eq!(parts(&query, &reply), expected);
    }
}

#[test]
fn share_is_that_of_the_namespace() {
    let mut authority = Authority::new(config("0.3", false));
    for n in 0..=255 {
        let address = Ipv4Addr::new(10, 0, 0, n);
        let mut name = HOST.to_vec();
        name[1..16].copy_from_slice(&crate::namespace::label(address));
        let reply = reply_of(&mut authority, &query(&name, Rtype::AAAA));
        let answers = u64::from(reply[7]);
        assert_eq!(answers == 1, config("0.3", false).zone.has_aaaa(address));
    }
    let counts = authority.counts();
    assert_eq!((counts.aaaa, counts.answered + counts.nodata), (256, 256));
    assert!((76..=77).contains(&counts.answered), "{counts:?}");
}

#[test]
fn case_of_the_question_is_preserved() {
    let query = query(b"\x0f192-000-002-033\x09dNs64PErf\x04TesT\0", Rtype::A);
    let answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x21";
    let expected = (0x8500, [0, 1, 0, 1, 0, 0, 0, 0], &answer[..]);
    assert_eq!(parts(&query, &reply(&query)), expected);
}

#[test]
fn only_rd_and_cd_are_copied() {
    let mut query = query(HOST, Rtype::A);
    let mut authority = Authority::new(config("0", false));
    for (asked, answered) in [(0x0000, 0x8400), (0x0100, 0x8500), (0x07bf, 0x8510)] {
        query[2..4].copy_from_slice(&u16::to_be_bytes(asked));
        assert_eq!(parts(&query, &reply_of(&mut authority, &query)).0, answered);
    }
}

#[test]
fn edns_reply_copies_do_has_our_size_and_no_options() {
    let plain = query(HOST, Rtype::A);
    let cookie = b"\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08abcdefgh";
    for opt in [OPT, cookie] {
        let query = with_opt(&plain, opt);
        let reply = reply(&query);
        let (flags, counts, rest) = parts(&query, &reply);
        assert_eq!((flags, counts), (0x8500, [0, 1, 0, 1, 0, 0, 0, 1]));
        assert_eq!(&rest[16..], OPT_BACK);
    }
}

#[test]
fn edns_version_above_0_is_badvers() {
    let query = with_opt(&query(HOST, Rtype::A), b"\0\0\x29\x10\0\0\x01\0\0\0\0");
    let back = b"\0\0\x29\x04\xd0\x01\0\0\0\0\0";
    let expected = (0x8100, [0, 1, 0, 0, 0, 0, 0, 1], &back[..]);
    assert_eq!(parts(&query, &reply(&query)), expected);
}

#[test]
fn names_that_encode_no_address_are_nxdomain() {
    let names: [(&[u8], u8); 6] = [
        (b"\x03www\x09dns64perf\x04test\0", 16),
        (b"\x0f192-000-002-256\x09dns64perf\x04test\0", 28),
        (b"\x0f192.000.002.033\x09dns64perf\x04test\0", 28),
        (b"\x0e192-000-002-33\x09dns64perf\x04test\0", 27),
        (b"\x01a\x0f192-000-002-033\x09dns64perf\x04test\0", 30),
        (b"\x02ns\x02ns\x09dns64perf\x04test\0", 18),
    ];
    for (name, suffix_at) in names {
        for rtype in [Rtype::A, Rtype::AAAA, Rtype::TXT, Rtype::ANY] {
            let query = query(name, rtype);
            let expected = (
                0x8503,
                [0, 1, 0, 0, 0, 1, 0, 0],
                &soa(suffix_at, suffix_at)[..],
            );
            assert_eq!(parts(&query, &reply(&query)), expected, "{name:?}");
        }
    }
}

#[test]
fn other_types_are_nodata_and_any_returns_one_record_set() {
    for rtype in [Rtype::TXT, Rtype::MX, Rtype::SVCB, Rtype::DS, Rtype(4711)] {
        let query = query(HOST, rtype);
        let expected = (0x8500, [0, 1, 0, 0, 0, 1, 0, 0], &soa(28, 28)[..]);
        assert_eq!(parts(&query, &reply(&query)), expected);
    }
    let query = query(HOST, Rtype::ANY);
    let answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x21";
    let expected = (0x8500, [0, 1, 0, 1, 0, 0, 0, 0], &answer[..]);
    assert_eq!(parts(&query, &reply(&query)), expected);
}

#[test]
fn https_record_has_the_address_as_its_hint() {
    let query = query(HOST, Rtype::HTTPS);
    let answer = b"\xc0\x0c\0\x41\0\x01\0\0\0\x3c\0\x0b\0\x01\0\0\x04\0\x04\xc0\0\x02\x21";
    let expected = (0x8500, [0, 1, 0, 1, 0, 0, 0, 0], &answer[..]);
    assert_eq!(parts(&query, &reply(&query)), expected);
}

/// Returns the answer section of a reply: owner, type and data of each record, without the suffix.
fn answers(reply: &[u8]) -> Vec<String> {
    let message = Message::parse(reply).unwrap();
    let records = message.records().map(Result::unwrap);
    let answers = records.filter(|record| record.section == Section::Answer);
    let told = answers.map(|record| {
        let data = match record.rtype {
            Rtype::CNAME => record.rdata_name().unwrap().to_string(),
            Rtype::A => record.a().unwrap().to_string(),
            _ => record.aaaa().unwrap().to_string(),
        };
        let told = format!("{} {} {data}", record.name, record.rtype);
        told.replace(".dns64perf.test.", "")
    });
    told.collect()
}

#[test]
fn alias_has_a_chain_to_all_addresses_of_its_name() {
    let mut config = config("0.5", false);
    config.zone.records = NameRecords {
        cname_share: "0.5".parse().unwrap(),
        cname_length: 2,
        addresses: 2,
    };
    let mut authority = Authority::new(config);
    let mut of = |label: &str, rtype| {
        let name = [b"\x0f", label.as_bytes(), b"\x09dns64perf\x04test\0"].concat();
        answers(&reply_of(&mut authority, &query(&name, rtype)))
    };
    // Every second name has AAAA records, and of those with and without every second is an alias.
    let (plain, alias, alias_with_aaaa) = ("010-000-000-000", "010-000-000-002", "010-000-000-003");
    assert_eq!(
        of(plain, Rtype::A),
        ["010-000-000-000 A 10.0.0.0", "010-000-000-000 A 11.0.0.0"]
    );
    assert!(of(plain, Rtype::CNAME).is_empty());
    let whole = [
        "010-000-000-002 CNAME 010a000-000-002",
        "010a000-000-002 CNAME 010b000-000-002",
        "010b000-000-002 A 10.0.0.2",
        "010b000-000-002 A 11.0.0.2",
    ];
    assert_eq!(of(alias, Rtype::A), whole);
    assert_eq!(of(alias, Rtype::AAAA), whole[..2]);
    assert_eq!(of(alias, Rtype::CNAME), whole[..1]);
    // A target has the rest of the chain, and exists for an alias only.
    assert_eq!(of("010a000-000-002", Rtype::A), whole[1..]);
    assert_eq!(of("010b000-000-002", Rtype::A), whole[2..]);
    for none in ["010c000-000-002", "010a000-000-000"] {
        assert!(of(none, Rtype::A).is_empty());
    }
    let own = [
        "010-000-000-003 CNAME 010a000-000-003",
        "010a000-000-003 CNAME 010b000-000-003",
        "010b000-000-003 AAAA 2001:db8::a00:3",
        "010b000-000-003 AAAA 2001:db8::b00:3",
    ];
    assert_eq!(of(alias_with_aaaa, Rtype::AAAA), own);
}

#[test]
fn longest_reply_fits_every_client() {
    let mut config = config("1", false);
    let label = "a".repeat(63);
    let suffix = format!("{label}.{label}.{label}.{}", "a".repeat(45));
    config.zone.suffix = suffix.parse().unwrap();
    config.zone.records = NameRecords {
        cname_share: Share::ALL,
        cname_length: CNAME_LENGTH_MAX,
        addresses: ADDRESSES_MAX,
    };
    let own = crate::namespace::label(Ipv4Addr::new(10, 0, 0, 1));
    let name = [&[15][..], &own, config.zone.suffix.as_wire()].concat();
    let query = with_opt(&query(&name, Rtype::AAAA), OPT);
    let mut out = [0; 512];
    let answered = Authority::new(config).answer(&query, &mut out, Protocol::Udp);
    assert_eq!((answered.len, out[2] & 0x02), (REPLY_LEN_MAX, 0));
}

#[test]
fn apex_has_soa_and_ns_and_its_name_server_exists() {
    let ns = b"\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x05\x02ns\xc0\x0c";
    let (answer, no_data) = ([0, 1, 0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1, 0, 0]);
    let cases = [
        (query(APEX, Rtype::SOA), answer, soa(12, 12)),
        (query(APEX, Rtype::ANY), answer, soa(12, 12)),
        (query(APEX, Rtype::NS), answer, ns.to_vec()),
        (query(APEX, Rtype::A), no_data, soa(12, 12)),
        (
            query(b"\x02nS\x09dns64perf\x04test\0", Rtype::AAAA),
            no_data,
            soa(15, 15),
        ),
    ];
    for (query, counts, records) in cases {
        assert_eq!(
            parts(&query, &reply(&query)),
            (0x8500, counts, &records[..])
        );
    }
}

#[test]
fn other_zones_and_classes_and_transfers_are_refused() {
    let mut chaos = query(HOST, Rtype::A);
    *chaos.last_mut().unwrap() = 3;
    let cases = [
        query(b"\x07example\0", Rtype::A),
        query(b"\x04test\0", Rtype::SOA),
        query(b"\0", Rtype::NS),
        query(b"\x0f192-000-002-033\x09dns64perf\x04text\0", Rtype::A),
        query(APEX, Rtype::AXFR),
        chaos,
    ];
    for query in cases {
        let expected = (0x8105, [0, 1, 0, 0, 0, 0, 0, 0], &[][..]);
        assert_eq!(parts(&query, &reply(&query)), expected);
        let query = with_opt(&query, OPT);
        let expected = (0x8105, [0, 1, 0, 0, 0, 0, 0, 1], OPT_BACK);
        assert_eq!(parts(&query, &reply(&query)), expected);
    }
}

#[test]
fn other_opcodes_are_notimp() {
    let mut query = query(HOST, Rtype::A);
    query[2] = 0x21;
    assert_eq!(reply(&query), b"\x12\x34\xa1\x04\0\0\0\0\0\0\0\0");
}

#[test]
fn malformed_message_with_a_header_is_formerr() {
    let bare = b"\x12\x34\x81\x01\0\0\0\0\0\0\0\0";
    let whole = query(HOST, Rtype::A);
    for len in HEADER_LEN..whole.len() {
        assert_eq!(reply(&whole[..len]), bare, "cut at {len}");
    }
    let mut two = whole.clone();
    two[5] = 2;
    assert_eq!(reply(&two), bare);
    let mut none = whole.clone();
    none[5] = 0;
    assert_eq!(reply(&none), bare);
    assert_eq!(reply(&query(b"\xc0\x0c", Rtype::A)), bare);
    let broken = with_opt(&whole, &OPT[..10]);
    let expected = (0x8101, [0, 1, 0, 0, 0, 0, 0, 0], &[][..]);
    assert_eq!(parts(&broken, &reply(&broken)), expected);
}

#[test]
fn replies_and_incomplete_headers_are_ignored() {
    let mut authority = Authority::new(config("0", false));
    let whole = query(HOST, Rtype::A);
    for len in 0..HEADER_LEN {
        assert_eq!(reply_of(&mut authority, &whole[..len]), b"");
    }
    let mut reply = whole.clone();
    reply[2] |= 0x80;
    assert_eq!(reply_of(&mut authority, &reply), b"");
    let expected = AuthorityCounts {
        ignored: 13,
        ..AuthorityCounts::default()
    };
    assert_eq!(authority.counts(), expected);
}

#[test]
fn every_query_is_counted_by_type_and_by_answer() {
    let mut authority = Authority::new(config("0", false));
    let mut status = query(HOST, Rtype::A);
    status[2] = 0x10;
    for query in [
        query(HOST, Rtype::A),
        query(HOST, Rtype::AAAA),
        with_opt(&query(HOST, Rtype::AAAA), OPT),
        query(b"\x01a\x09dns64perf\x04test\0", Rtype::AAAA),
        query(APEX, Rtype::SOA),
        query(b"\x01a\0", Rtype::A),
        status,
    ] {
        reply_of(&mut authority, &query);
    }
    let expected = AuthorityCounts {
        aaaa: 3,
        a: 2,
        other: 2,
        answered: 2,
        nodata: 2,
        nxdomain: 1,
        refused: 2,
        ignored: 0,
        tcp: 0,
        misbehaviour: None,
    };
    assert_eq!(authority.counts(), expected);
    let mut out = [0; 512];
    authority.answer(&query(HOST, Rtype::A), &mut out, Protocol::Tcp);
    assert_eq!((authority.counts().tcp, authority.counts().a), (1, 3));
}

#[test]
fn longest_reply_fits_and_a_short_buffer_truncates() {
    // A separate zone, the root, in which a name of 255 octets does not exist.
    let mut config = config("0", false);
    config.zone.suffix = ".".parse().unwrap();
    let name = [&[63; 192][..], &[61; 62], b"\0"].concat();
    assert_eq!(name.len(), 255);
    let query = with_opt(&query(&name, Rtype::A), OPT);
    let mut authority = Authority::new(config);
    let mut out = [0; PLAIN_LEN_MAX];
    assert_eq!(
        authority.answer(&query, &mut out, Protocol::Udp).len,
        PLAIN_LEN_MAX
    );
    assert_eq!(out[2] & 0x02, 0);
    let reply = &mut out[..PLAIN_LEN_MAX - 1];
    let len = authority.answer(&query, reply, Protocol::Udp).len;
    assert_eq!(len, PLAIN_LEN_MAX - 50);
    assert_eq!(out[2] & 0x02, 0x02);
    let nothing = authority.answer(&query, &mut out[..11], Protocol::Udp);
    assert_eq!(nothing.len, 0);
}

/// Queries close to the common form: most parts are valid.
fn nearly_common() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![4 => Just([1, 0]), 1 => any::<[u8; 2]>()];
    let counts = prop_oneof![8 => Just([0, 1, 0, 0, 0, 0, 0]), 1 => any::<[u8; 7]>()];
    let label = prop_oneof![
        8 => any::<u32>().prop_map(|n| {
            let label = crate::namespace::label(n.into());
            [&[15][..], &label].concat()
        }),
        1 => "[0-9]{3}-[0-9]{3}-[0-9]{3}-[0-9]{3}".prop_map(|l| [&[15][..], l.as_bytes()].concat()),
        1 => "[a-z]{0,20}".prop_map(|l| [&[15][..], l.as_bytes()].concat()),
    ];
    let suffix = prop_oneof![
        4 => Just(APEX.to_vec()),
        2 => "[dD][nN][sS]64[pP]erf".prop_map(|l| [b"\x09", l.as_bytes(), b"\x04TEST\0"].concat()),
        1 => Just(b"\x09dns64perf\x04tesu\0".to_vec()),
        1 => Just(b"\x09dns64perf\x04test".to_vec()),
    ];
    let types = prop_oneof![
        4 => Just([0, 28, 0, 1]),
        4 => Just([0, 1, 0, 1]),
        1 => any::<[u8; 4]>(),
    ];
    let opt = prop_oneof![
        4 => Just(Vec::new()),
        4 => Just(OPT.to_vec()),
        2 => (any::<(u16, u8, u16)>(), prop_oneof![4 => Just(0), 1 => any::<u8>()]).prop_map(
            |((size, rcode, flags), version)| {
                let (size, flags) = (size.to_be_bytes(), flags.to_be_bytes());
                [b"\0\0\x29", &size[..], &[rcode, version], &flags, b"\0\0"].concat()
            },
        ),
        1 => prop::collection::vec(any::<u8>(), 0..13),
    ];
    (any::<[u8; 2]>(), flags, counts, label, suffix, types, opt).prop_map(
        |(id, flags, counts, label, suffix, types, opt)| {
            let opts = [u8::from(!opt.is_empty())];
            [
                &id[..],
                &flags,
                &counts,
                &opts,
                &label,
                &suffix,
                &types,
                &opt,
            ]
            .concat()
        },
    )
}

proptest! {
    #[test]
    fn both_paths_give_the_same_octets_and_counts(
        query in nearly_common(),
        share in 0..=100_u32,
        self_test: bool,
        ttls: (u32, u32),
    ) {
        let mut config = config(&format!("{share}%"), self_test);
        (config.ttl_s, config.negative_ttl_s) = ttls;
        let mut fast = Authority::new(config);
        let mut general = fast.clone();
        let (mut fast_out, mut general_out) = ([0; 512], [0; 512]);
        let told = fast.answer(&query, &mut fast_out, Protocol::Udp);
        prop_assert_eq!(told, general.answer_any(&query, &mut general_out));
        prop_assert_eq!(&fast_out[..told.len], &general_out[..told.len]);
        prop_assert_eq!(fast.counts(), general.counts());
    }

    #[test]
    fn any_octets_get_a_valid_reply_or_none(query in prop::collection::vec(any::<u8>(), 0..80)) {
        let reply = reply(&query);
        if !reply.is_empty() {
            let message = Message::parse(&reply).expect("a valid reply");
            prop_assert!(message.qr() && message.records().all(|record| record.is_ok()));
            prop_assert_eq!(&reply[..2], &query[..2]);
        }
    }
}

#[test]
fn common_query_takes_the_fast_path() {
    let config = config("0", false);
    let fast = Fast::new(&config);
    let mut out = [0; 512];
    for query in [
        query(HOST, Rtype::A),
        query(HOST, Rtype::AAAA),
        with_opt(&query(HOST, Rtype::AAAA), OPT),
        query(b"\x0f192-000-002-033\x09DNS64perf\x04test\0", Rtype::A),
    ] {
        assert!(fast.answer(&config, &query, &mut out).is_some());
    }
}
