use proptest::strategy::Strategy as _;

use super::*;

mod joining;
mod scrubbing;

const BOUNDS: TtlBounds = TtlBounds {
    min_s: 0,
    max_s: 86_400,
    max_negative_s: 3600,
};

/// Header of a response with these flags and counts of records, and the question `a.test AAAA`.
fn response(flags: u16, counts: [u8; 3], records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34];
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&[0, 1, 0, counts[0], 0, counts[1], 0, counts[2]]);
    bytes.extend_from_slice(b"\x01a\x04test\0\0\x1c\0\x01");
    bytes.extend_from_slice(&records.concat());
    bytes
}

fn accept(bytes: &[u8]) -> Result<Stored, Malformed> {
    Stored::accept(&Message::parse(bytes).unwrap(), &BOUNDS)
}

/// `a.test AAAA 2001:db8::1`, 60 s. The name of the question is at 12, `test` at 14.
const AAAA: &[u8] =
    b"\xc0\x0c\0\x1c\0\x01\0\0\0\x3c\0\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";
/// `a.test CNAME b.test`, 30 s.
const A_TO_B: &[u8] = b"\x01A\xc0\x0e\0\x05\0\x01\0\0\0\x1e\0\x04\x01b\xc0\x0e";
/// `b.test CNAME c.test`, 20 s.
const B_TO_C: &[u8] = b"\x01b\xc0\x0e\0\x05\0\x01\0\0\0\x14\0\x04\x01C\xc0\x0e";
/// `c.test CNAME a.test`, 20 s.
const C_TO_A: &[u8] = b"\x01c\xc0\x0e\0\x05\0\x01\0\0\0\x14\0\x02\xc0\x0c";
/// `c.test AAAA ::1`, 40 s.
const C_AAAA: &[u8] =
    b"\x01c\xc0\x0e\0\x1c\0\x01\0\0\0\x28\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01";
/// `test SOA . . 1 2 3 4 900`, TTL 1200 s.
const SOA: &[u8] = b"\xc0\x0e\0\x06\0\x01\0\0\x04\xb0\0\x16\0\0\
    \0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\x03\x84";
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
/// `test NS ns.test`, 9 s.
const NS: &[u8] = b"\xc0\x0e\0\x02\0\x01\0\0\0\x09\0\x05\x02ns\xc0\x0e";
/// `ns.test A 192.0.2.1`, 7 s.
const GLUE: &[u8] = b"\x02ns\xc0\x0e\0\x01\0\x01\0\0\0\x07\0\x04\xc0\0\x02\x01";

const NOERROR: u16 = 0x8180;
const NXDOMAIN: u16 = 0x8183;

/// Its records as text: `owner TYPE`.
fn kept(stored: &Stored) -> Vec<String> {
    let message = stored.message();
    let records = message.records().map(Result::unwrap);
    records.map(|r| format!("{} {}", r.name, r.rtype)).collect()
}

#[test]
fn positive_response_is_stored_without_id_and_opt() {
    let stored = accept(&response(0x81a0, [1, 1, 2], &[AAAA, NS, GLUE, OPT])).unwrap();
    // The name of the server is in the data of its NS record.
    let ns_at = u8::try_from(response(0, [0; 3], &[AAAA, NS]).len() - 5).unwrap();
    let glue = [&[0xc0, ns_at], &GLUE[5..]].concat();
    let mut expected = response(0x81a0, [1, 1, 1], &[AAAA, NS, &glue]);
    expected[..2].fill(0);
    assert_eq!(stored.message().bytes(), expected);
    assert_eq!(
        (stored.kind(), stored.rcode()),
        (Kind::Positive, Rcode::NOERROR)
    );
    assert_eq!((stored.ttl_s(), stored.soa_ttl_s()), (60, None));
    assert!(stored.ad() && !stored.is_signed());
    assert_eq!(stored.chain_end().to_string(), "a.test.");
    let ttls: Vec<_> = stored.ttl_offsets().map(|at| expected[at + 3]).collect();
    assert_eq!(ttls, [60, 9, 7]);
    assert_eq!(
        stored.memory_bytes(),
        size_of::<Head>() + expected.len() + 2 * ttls.len()
    );
}

#[test]
fn records_after_opt_are_kept_and_trailing_octets_are_not() {
    let stored = accept(&response(NOERROR, [1, 1, 2], &[AAAA, NS, OPT, GLUE])).unwrap();
    assert_eq!(kept(&stored), ["a.test. AAAA", "test. NS", "ns.test. A"]);
    let junk = accept(&response(NOERROR, [1, 0, 0], &[AAAA, b"junk"])).unwrap();
    assert!(junk.message().bytes().ends_with(AAAA));
}

#[test]
fn aliases_are_followed_in_any_order_and_case() {
    for records in [[A_TO_B, B_TO_C, C_AAAA], [C_AAAA, B_TO_C, A_TO_B]] {
        let stored = accept(&response(NOERROR, [3, 0, 0], &records)).unwrap();
        assert_eq!(stored.kind(), Kind::Positive);
        assert_eq!(stored.chain_end().to_string(), "C.test.");
        assert_eq!(stored.ttl_s(), 20);
    }
    let open = accept(&response(NOERROR, [2, 0, 0], &[A_TO_B, B_TO_C])).unwrap();
    assert_eq!((open.kind(), open.ttl_s()), (Kind::Positive, 20));
    let nodata = accept(&response(NOERROR, [2, 1, 0], &[A_TO_B, B_TO_C, SOA])).unwrap();
    assert_eq!((nodata.kind(), nodata.ttl_s()), (Kind::NoData, 20));
    assert_eq!(nodata.soa_ttl_s(), Some(900));
    assert_eq!(nodata.chain_end().to_string(), "C.test.");
    let unrelated = accept(&response(NOERROR, [1, 1, 0], &[C_AAAA, SOA])).unwrap();
    assert_eq!(unrelated.kind(), Kind::NoData);
}

#[test]
fn response_with_costly_compression_chains_is_malformed() {
    // The data of an unknown type is not restricted.
    let mut chain = b"\xc0\x0c\xff\0\0\x01\0\0\0\x3c\0\xfc".to_vec();
    let mut target = [0xc0, 12];
    for _ in 0..126 {
        let at = response(NOERROR, [0; 3], &[&chain]).len();
        let [high, low] = u16::try_from(at).unwrap().to_be_bytes();
        chain.extend_from_slice(&target);
        target = [0xc0 | high, low];
    }
    let ns = |owner: [u8; 2], data: [u8; 2]| {
        [&owner, &b"\0\x02\0\x01\0\0\0\x3c\0\x02"[..], &data].concat()
    };
    let question = [0xc0, 12];
    let reason = ParseError::NameSteps;
    let rtype = Rtype::NS;
    for (record, error) in [
        (ns(target, question), Malformed::Parse { reason }),
        (ns(question, target), Malformed::Data { rtype }),
    ] {
        let few = accept(&response(
            NOERROR,
            [11, 0, 0],
            &[&chain, &record.repeat(10)],
        ));
        assert!(few.is_ok());
        let many = accept(&response(
            NOERROR,
            [61, 0, 0],
            &[&chain, &record.repeat(60)],
        ));
        assert_eq!(many.unwrap_err(), error);
    }
}

#[test]
fn alias_loop_ends_the_chain() {
    let records = [A_TO_B, B_TO_C, C_TO_A, SOA];
    let stored = accept(&response(NOERROR, [3, 1, 0], &records)).unwrap();
    assert_eq!(stored.kind(), Kind::NoData);
    assert_eq!(stored.chain_end().to_string(), "a.test.");
    assert_eq!(kept(&stored)[2..], ["C.test. CNAME", "test. SOA"]);
}

/// `n00.test CNAME n01.test` and so on up to `n59.test`, the first for `a.test`.
fn aliases() -> Vec<Vec<u8>> {
    let label = |i: u8| [b"\x03n", &[b'0' + i / 10, b'0' + i % 10][..], b"\xc0\x0e"].concat();
    let owner = |i| match i {
        0 => b"\xc0\x0c".to_vec(),
        i => label(i),
    };
    let record = |i| {
        [
            &owner(i),
            &b"\0\x05\0\x01\0\0\0\x3c\0\x06"[..],
            &label(i + 1),
        ]
        .concat()
    };
    (0..60).map(record).collect()
}

#[test]
fn chains_are_followed_to_the_15th_alias_in_any_order() {
    // BIND 9 and Unbound follow 11.
    let mut records = aliases();
    let in_order = accept(&response(NOERROR, [60, 0, 0], &[&records.concat()])).unwrap();
    assert_eq!(in_order.kind(), Kind::Positive);
    assert_eq!(in_order.chain_end().to_string(), "n15.test.");
    assert_eq!(in_order.open_end().unwrap().to_string(), "n15.test.");
    assert_eq!(kept(&in_order).len(), 15);
    records.reverse();
    let reversed = accept(&response(NOERROR, [60, 0, 0], &[&records.concat()])).unwrap();
    assert_eq!(kept(&reversed), kept(&in_order));
}

#[test]
fn query_for_cname_or_any_does_not_follow_aliases() {
    let mut bytes = response(NOERROR, [2, 0, 0], &[A_TO_B, B_TO_C]);
    for qtype in [5, 255] {
        bytes[21] = qtype;
        let stored = accept(&bytes).unwrap();
        assert_eq!(stored.kind(), Kind::Positive);
        assert_eq!(stored.chain_end().to_string(), "a.test.");
    }
}

#[test]
fn soa_determines_ttl_of_negative_response() {
    let nodata = accept(&response(NOERROR, [0, 1, 0], &[SOA])).unwrap();
    assert_eq!((nodata.kind(), nodata.ttl_s()), (Kind::NoData, 900));
    let nxdomain = accept(&response(NXDOMAIN, [1, 1, 0], &[A_TO_B, SOA])).unwrap();
    assert_eq!((nxdomain.kind(), nxdomain.ttl_s()), (Kind::NxDomain, 30));
    assert_eq!(nxdomain.rcode(), Rcode::NXDOMAIN);
    assert_eq!(nxdomain.chain_end().to_string(), "b.test.");
    let without = accept(&response(NXDOMAIN, [0, 0, 0], &[])).unwrap();
    assert_eq!((without.ttl_s(), without.soa_ttl_s()), (0, None));
    let short = TtlBounds {
        min_s: 1000,
        max_negative_s: 600,
        ..BOUNDS
    };
    let bytes = response(NOERROR, [0, 1, 0], &[SOA]);
    let stored = Stored::accept(&Message::parse(&bytes).unwrap(), &short).unwrap();
    assert_eq!((stored.ttl_s(), stored.soa_ttl_s()), (600, Some(600)));
    assert_eq!(stored.message().records().next().unwrap().unwrap().ttl, 600);
}

#[test]
fn ttls_are_limited_to_bounds() {
    let ttl = |sent: &[u8; 4], bounds: &TtlBounds| {
        let mut bytes = response(NOERROR, [1, 0, 0], &[AAAA]);
        let at = bytes.len() - 22;
        bytes[at..at + 4].copy_from_slice(sent);
        let stored = Stored::accept(&Message::parse(&bytes).unwrap(), bounds).unwrap();
        let record = stored.message().records().next().unwrap().unwrap();
        assert_eq!(record.ttl, stored.ttl_s());
        record.ttl
    };
    let bounds = TtlBounds { min_s: 5, ..BOUNDS };
    assert_eq!(ttl(b"\0\0\0\x3c", &bounds), 60);
    assert_eq!(ttl(b"\0\0\0\x01", &bounds), 5);
    assert_eq!(ttl(b"\0\0\0\x01", &BOUNDS), 1);
    assert_eq!(ttl(b"\x7f\xff\xff\xff", &bounds), 86_400);
    // RFC 8767 section 4: a TTL with the top bit set does not count as 0.
    assert_eq!(ttl(b"\x80\0\0\0", &BOUNDS), 86_400);
    assert_eq!(ttl(b"\xff\xff\xff\xff", &bounds), 86_400);
}

#[test]
fn response_code_of_failure_is_kept_and_extended_one_is_servfail() {
    let refused = accept(&response(0x8185, [0, 0, 0], &[])).unwrap();
    assert_eq!(refused.kind(), Kind::Failure(Rcode::REFUSED));
    assert_eq!((refused.rcode(), refused.ttl_s()), (Rcode::REFUSED, 5));
    // BADVERS is 0 in the header.
    let badvers = b"\0\0\x29\x04\xd0\x01\0\0\0\0\0";
    let stored = accept(&response(NOERROR, [0, 0, 1], &[badvers])).unwrap();
    assert_eq!(stored.kind(), Kind::Failure(Rcode::SERVFAIL));
    let bogus = b"\0\0\x29\x04\xd0\0\0\0\0\0\x0e\0\x0a\0\x02hi\0\x0f\0\x04\0\x06no";
    let stored = accept(&response(0x8182, [0, 0, 1], &[bogus])).unwrap();
    assert_eq!(stored.extended_error(), Some(6));
}

#[test]
fn failure_has_header_and_question_only() {
    let name: NameBuf = "a.test".parse().unwrap();
    let asked = Asked {
        name: &name,
        rtype: Rtype::AAAA,
        class: Class::IN,
    };
    let stored = Stored::failure(&asked, Rcode::SERVFAIL, Some(22));
    let mut expected = response(0x8002, [0, 0, 0], &[]);
    expected[..2].fill(0);
    assert_eq!(stored.message().bytes(), expected);
    assert_eq!(stored.kind(), Kind::Failure(Rcode::SERVFAIL));
    assert_eq!((stored.ttl_s(), stored.extended_error()), (5, Some(22)));
    assert_eq!(stored.chain_end().to_string(), "a.test.");
    let longest: NameBuf = "a.".repeat(127).parse().unwrap();
    let asked = Asked {
        name: &longest,
        ..asked
    };
    let stored = Stored::failure(&asked, Rcode::SERVFAIL, None);
    assert!(stored.chain_end().eq_ignore_case(&longest.as_name()));
}

#[test]
fn signatures_in_answer_or_authority_make_response_signed() {
    // RRSIG AAAA of the signer `test`; the same over the CNAME; NSEC3 with a hash of 1 octet.
    let over = |rtype: u8| {
        let data = [&[0, rtype], &[0; 16][..], b"\x04test\0x"].concat();
        [b"\xc0\x0c\0\x2e\0\x01\0\0\0\x3c\0\x19", &data[..]].concat()
    };
    let (rrsig, over_alias) = (&over(28)[..], &over(5)[..]);
    let nsec3 = b"\xc0\x0c\0\x32\0\x01\0\0\0\x3c\0\x07\x01\0\0\0\0\x01h".as_slice();
    let signed = |counts, records: &[&[u8]]| {
        accept(&response(NOERROR, counts, records))
            .unwrap()
            .is_signed()
    };
    assert!(signed([2, 0, 0], &[AAAA, rrsig]));
    assert!(signed([0, 2, 0], &[SOA, nsec3]));
    assert!(!signed([1, 0, 1], &[AAAA, rrsig]));
    // The alias is signed, the end of the chain is not.
    assert!(!signed([2, 1, 0], &[A_TO_B, over_alias, SOA]));
}

#[test]
fn malformed_responses_are_rejected() {
    let error = |records: &[&[u8]]| {
        let count = u8::try_from(records.len()).unwrap();
        accept(&response(NOERROR, [0, 0, count], records)).unwrap_err()
    };
    let record = |rtype: u8, rdata: &[u8]| {
        let mut record = vec![0xc0, 12, 0, rtype, 0, 1, 0, 0, 0, 60, 0];
        record.push(u8::try_from(rdata.len()).unwrap());
        record.extend_from_slice(rdata);
        record
    };
    let data = |rtype| Malformed::Data { rtype };
    let parse = |reason| Malformed::Parse { reason };
    assert_eq!(error(&[&record(1, b"abc")]), data(Rtype::A));
    assert_eq!(error(&[&record(28, b"abcd")]), data(Rtype::AAAA));
    // A label that extends into the next record, and a pointer to nothing.
    assert_eq!(error(&[&record(5, b"\x05a"), AAAA]), data(Rtype::CNAME));
    assert_eq!(error(&[&record(5, b"\xc0\xff")]), data(Rtype::CNAME));
    assert!(accept(&response(NOERROR, [0, 0, 1], &[&record(5, b"\xc0\x0e")])).is_ok());
    // RFC 9460 section 2.2: keys out of order.
    let svcb = b"\0\x01\0\0\x03\0\x02\0\x50\0\x01\0\0";
    assert_eq!(error(&[&record(65, svcb)]), data(Rtype::HTTPS));
    let chaos = b"\0\0\x10\0\x03\0\0\0\0\0\0";
    assert_eq!(error(&[chaos]), Malformed::Class { class: Class::CH });
    assert_eq!(error(&[OPT, OPT]), parse(ParseError::OptRepeated));
    let misplaced = response(NOERROR, [1, 0, 0], &[OPT]);
    assert_eq!(
        accept(&misplaced).unwrap_err(),
        parse(ParseError::OptMisplaced)
    );
    // Malformed records after the OPT record are errors too.
    assert_eq!(error(&[OPT, &record(1, b"abc")]), data(Rtype::A));
    let whole = response(NOERROR, [1, 1, 1], &[AAAA, SOA, GLUE]);
    for len in 24..whole.len() {
        let error = accept(&whole[..len]).unwrap_err();
        assert_eq!(error, parse(ParseError::ShortMessage), "{len}");
    }
    assert_eq!(accept(&[0; 12]).unwrap_err(), Malformed::NoQuestion);
    let long = [response(NOERROR, [0, 0, 0], &[]), vec![0; 65_536]].concat();
    assert_eq!(accept(&long).unwrap_err(), Malformed::TooLong);
}

#[test]
fn address_length_is_checked_in_class_in_only() {
    let mut bytes = response(NOERROR, [0, 0, 0], &[]);
    bytes[23] = 3;
    bytes[7] = 1;
    bytes.extend_from_slice(b"\xc0\x0c\0\x01\0\x03\0\0\0\x3c\0\x02\x01\x02");
    assert!(accept(&bytes).is_ok());
}

#[test]
fn ttls_count_down_and_stale_ttls_are_constant() {
    let stored = accept(&response(NOERROR, [1, 0, 0], &[AAAA])).unwrap();
    let aged = Aged::fresh(&stored, 50);
    assert_eq!(
        (aged.ttl(60), aged.ttl(49), aged.extended_error()),
        (10, 0, None)
    );
    let stale = Aged::stale(&stored);
    assert_eq!((stale.ttl(60), stale.ttl(0)), (30, 30));
    assert_eq!(stale.extended_error(), Some(3));
    let stored = accept(&response(NXDOMAIN, [0, 0, 0], &[])).unwrap();
    assert_eq!(Aged::stale(&stored).extended_error(), Some(19));
}

#[test]
fn compression_pointers_of_upstream_are_rewritten() {
    // The TTL is at 30. The target of the alias is at 32, within the TTL: it is the root at first,
    // and another name or none as the TTL counts down.
    let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x20";
    let stored = accept(&response(NOERROR, [1, 0, 0], &[alias])).unwrap();
    let root = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x01\0";
    assert!(stored.message().bytes().ends_with(root));
    assert!(stored.chain_end().is_root());
}

#[test]
fn pointer_to_earlier_name_outside_question_is_accepted() {
    // An alias below the queried name, then an address of the name in its data.
    let question_end = response(0x8180, [0, 0, 0], &[]).len();
    let data_at = u8::try_from(question_end + 12).unwrap();
    let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01b\xc0\x0c";
    let address = [
        &[0xc0, data_at][..],
        b"\0\x1c\0\x01\0\0\0\x3c\0\x10",
        &[1; 16],
    ]
    .concat();
    let stored = accept(&response(0x8180, [2, 0, 0], &[alias, &address])).unwrap();
    assert_eq!(stored.kind(), Kind::Positive);
    assert_eq!(stored.ttl_s(), 60);
}

/// A response of `a.test AAAA` with this many addresses.
fn many(count: u16) -> Vec<u8> {
    let mut bytes = response(NOERROR, [0; 3], &[]);
    bytes[6..8].copy_from_slice(&count.to_be_bytes());
    for i in 0..count {
        bytes.extend_from_slice(&AAAA[..26]);
        bytes.extend_from_slice(&i.to_be_bytes());
    }
    bytes
}

#[test]
fn oversized_response_is_detected_without_reading_its_records() {
    use crate::answer::texts::{asker, dns64, lines};
    use crate::answer::{reply, synthesis};
    let stored = accept(&many(2200)).unwrap();
    assert_eq!(stored.found(), 2200);
    // The first records are overwritten except for the addresses: reading them as records finds
    // none. The addresses of the others are excluded: reading them would require filtering.
    let head = *stored.head();
    let (at, end) = (usize::from(head.found.at), head.message_len.into());
    let mut octets = stored.octets().to_vec();
    let records = octets[at..end].chunks_exact_mut(28);
    for (i, record) in records.enumerate() {
        record[..12].fill(0xff);
        if i > 1232 / 27 {
            record[12..].copy_from_slice(b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01");
        }
    }
    let stored = Stored::new(head, &octets);
    assert!(stored.message().records().all(|record| record.is_err()));
    let (asker, mut frame) = (asker("a.test", Rtype::AAAA), [0; 1232]);
    let verdict = synthesis::judge(&asker, &dns64(), &stored);
    assert_eq!(verdict, synthesis::Verdict::Native);
    let len = reply::forward(&asker, Aged::fresh(&stored, 1), &mut frame);
    assert_eq!(lines(&frame[..len]), ["NOERROR tc; a.test. AAAA"]);
}

#[test]
fn oversized_a_response_gives_a_truncated_one_whatever_its_addresses() {
    use crate::answer::synthesis::{Synthesised, synthesise};
    use crate::answer::texts::{asker, dns64, lines, stored};
    use crate::settings::dns64::Dns64;
    let dns64 = Dns64 {
        well_known_private: false,
        ..dns64()
    };
    let none = stored(
        "a.test",
        Rtype::AAAA,
        Rcode::NOERROR,
        &["ns test 60 SOA 60"],
    );
    // 16 octets for each private address, and nothing is synthesised from them.
    let private = |count: usize| {
        let line = |i| format!("an a.test 60 A 10.0.{}.{}", i / 256, i % 256);
        let lines: Vec<_> = (0..count).map(line).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        stored("a.test", Rtype::A, Rcode::NOERROR, &lines)
    };
    let mut frame = [0; 1232];
    let mut answer = |count| {
        let (aaaa, a) = (Aged::fresh(&none, 0), private(count));
        let asker = asker("a.test", Rtype::AAAA);
        let Synthesised { len, made } =
            synthesise(&asker, &dns64, aaaa, Aged::fresh(&a, 0), &mut frame);
        (lines(&frame[..len]), made)
    };
    let (empty, made) = answer(75);
    assert_eq!((empty.len(), made), (2, 0));
    assert_eq!(answer(76), (vec!["NOERROR tc; a.test. AAAA".to_owned()], 0));
}

#[test]
fn addresses_are_read_in_place() {
    let stored = accept(&many(3)).unwrap();
    let found: Vec<_> = stored
        .aaaa()
        .map(|(ttl, ip)| format!("{ttl} {ip}"))
        .collect();
    assert_eq!(found, ["60 2001:db8::", "60 2001:db8::1", "60 2001:db8::2"]);
    // At the root, whose name is shorter than a pointer.
    let mut root = b"\0\0\x81\x80\0\x01\0\x02\0\0\0\0\0\0\x01\0\x01".to_vec();
    for last in [1, 2] {
        root.extend_from_slice(b"\0\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02");
        root.push(last);
    }
    let stored = accept(&root).unwrap();
    let found: Vec<_> = stored.a().map(|(ttl, ip)| format!("{ttl} {ip}")).collect();
    assert_eq!(found, ["5 192.0.2.1", "5 192.0.2.2"]);
}

proptest::proptest! {
    /// A response that is stored as received equals the rewritten one.
    #[test]
    fn plain_response_equals_rewritten_response(
        flags in proptest::sample::select(vec![NOERROR, NXDOMAIN, NOERROR | 0x20, 0x8182]),
        min_s in 0..2_u32 << 20,
        ttls in proptest::collection::vec(proptest::num::u32::ANY, 0..4),
        stranger in proptest::option::weighted(0.3, 0..5_usize),
        opt in proptest::sample::select(vec![
            &b""[..],
            OPT,
            b"\0\0\x29\x04\xd0\x01\0\0\0\0\0",
            b"\0\0\x29\x04\xd0\0\0\0\0\0\x06\0\x0f\0\x02\0\x16",
            b"\0\0\x29\x04\xd0\0\0\0\0\0\x06\0\x0f\0",
            GLUE,
        ]),
    ) {
        let strangers = [A_TO_B, C_AAAA, NS, &AAAA[..20], b"\xc0\x0c\0\x1c\0\x03\0\0\0\x3c\0\0"];
        let mut records: Vec<Vec<u8>> = ttls
            .iter()
            .map(|ttl| [&AAAA[..6], &ttl.to_be_bytes(), &AAAA[10..]].concat())
            .collect();
        records.extend(stranger.map(|at| strangers[at].to_vec()));
        let answers = u8::try_from(records.len()).unwrap();
        records.push(opt.to_vec());
        let records: Vec<_> = records.iter().map(Vec::as_slice).collect();
        let bytes = response(flags, [answers, 0, u8::from(!opt.is_empty())], &records);
        let message = Message::parse(&bytes).unwrap();
        let bounds = TtlBounds { min_s, ..BOUNDS };
        if let Some(stored) = Stored::plain(&message, &bounds) {
            let rewritten = Stored::rewritten(&message, &bounds).unwrap();
            proptest::prop_assert_eq!(format!("{stored:?}"), format!("{rewritten:?}"));
        }
        let is_plain = answers > 0 && stranger.is_none() && flags != NXDOMAIN && flags != 0x8182;
        let opt_is_plain = [&b""[..], OPT].contains(&opt) || opt.len() == 17;
        if is_plain && opt_is_plain {
            proptest::prop_assert!(Stored::plain(&message, &BOUNDS).is_some());
        }
    }

    /// A negative response that is stored as received equals the rewritten one.
    #[test]
    fn plain_negative_response_equals_rewritten_response(
        flags in proptest::sample::select(vec![NOERROR, NXDOMAIN, NOERROR | 0x20, 0x8182]),
        ttls in proptest::array::uniform2(proptest::num::u32::ANY),
        max_negative_s in proptest::num::u32::ANY,
        owner in proptest::sample::select(POINTERS.to_vec()),
        names in proptest::array::uniform2((
            proptest::sample::select(vec![&b""[..], b"\x02ns", b"\x02nS", b"\x01a", b"\x02ns\x04test", b"\x3f"]),
            proptest::sample::select(POINTERS.to_vec()),
        )),
        rest in proptest::sample::select(vec![(1, &b""[..]), (1, OPT), (1, GLUE), (2, SOA), (0, b"")]),
        cut in proptest::option::weighted(0.1, 0..60_usize),
    ) {
        let [ttl, minimum] = ttls.map(u32::to_be_bytes);
        let [server, mailbox] = names.map(|(labels, end)| [labels, end].concat());
        let data = [&server[..], &mailbox, &[0; 16], &minimum].concat();
        let data_len = u8::try_from(data.len()).unwrap();
        let soa = [owner, b"\0\x06\0\x01", &ttl, &[0, data_len], &data].concat();
        let soa = &soa[..soa.len() - cut.unwrap_or(0).min(soa.len())];
        let (authorities, more) = rest;
        let additionals = u8::from(!more.is_empty() && more != SOA);
        let bytes = response(flags, [0, authorities, additionals], &[soa, more]);
        let message = Message::parse(&bytes).unwrap();
        let bounds = TtlBounds { max_negative_s, ..BOUNDS };
        let stored = Stored::plain(&message, &bounds);
        if let Some(stored) = &stored {
            let rewritten = Stored::rewritten(&message, &bounds).unwrap();
            proptest::prop_assert_eq!(format!("{stored:?}"), format!("{rewritten:?}"));
        }
        // "a" before the pointer to "test" is the name of the question, which one pointer replaces.
        let ends_with_pointer = |(labels, end): &(&[u8], &[u8])| {
            end[0] == 0xc0
                && [12, 14].contains(&end[1])
                && *labels != b"\x3f"
                && (*labels, end[1]) != (b"\x01a", 14)
        };
        let is_plain = flags != 0x8182 && ends_with_pointer(&(b"", owner));
        let is_plain = is_plain && authorities == 1 && more != GLUE && cut.is_none();
        let [server, mailbox] = names.map(|(labels, end)| last_label(labels, end).to_ascii_lowercase());
        if is_plain && names.iter().all(ends_with_pointer) && server != mailbox {
            proptest::prop_assert!(stored.is_some());
        }
    }
}

/// Ends of names: pointers to the name of the question, to its second label, into a label, to its
/// root, into the header and forward; and the root.
const POINTERS: [&[u8]; 7] = [
    b"\xc0\x0c",
    b"\xc0\x0e",
    b"\xc0\x0d",
    b"\xc0\x13",
    b"\xc0\x02",
    b"\xc0\xff",
    b"\0",
];

/// The last label of these, or of the name that the pointer leads to.
fn last_label(labels: &[u8], end: &[u8]) -> Vec<u8> {
    match (labels, end) {
        (b"", [_, 12]) => b"\x01a".to_vec(),
        (b"", _) => b"".to_vec(),
        (b"\x02ns\x04test", _) => b"\x04test".to_vec(),
        _ => labels.to_vec(),
    }
}
