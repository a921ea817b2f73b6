use super::*;

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

/// `a.test AAAA 2001:db8::1`, 60 s. The name of the question stands at 12, `test` at 14.
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
/// `ns.test A 192.0.2.1`, 7 s.
const GLUE: &[u8] = b"\x02ns\xc0\x0e\0\x01\0\x01\0\0\0\x07\0\x04\xc0\0\x02\x01";

const NOERROR: u16 = 0x8180;
const NXDOMAIN: u16 = 0x8183;

#[test]
fn a_positive_answer_keeps_its_octets_without_id_and_opt() {
    let stored = accept(&response(0x81a0, [1, 0, 2], &[AAAA, GLUE, OPT])).unwrap();
    let mut expected = response(0x81a0, [1, 0, 1], &[AAAA, GLUE]);
    expected[..2].fill(0);
    assert_eq!(stored.message().bytes(), expected);
    assert_eq!(
        (stored.kind(), stored.rcode()),
        (Kind::Positive, Rcode::NOERROR)
    );
    assert_eq!((stored.ttl_s(), stored.soa_ttl_s()), (60, None));
    assert!(stored.ad() && !stored.is_signed());
    assert_eq!(stored.chain_end().to_string(), "a.test.");
    assert_eq!(stored.memory_bytes(), size_of::<Stored>() + expected.len());
}

#[test]
fn what_stands_behind_the_opt_record_is_left_out() {
    let stored = accept(&response(NOERROR, [1, 0, 3], &[AAAA, GLUE, OPT, GLUE])).unwrap();
    assert_eq!(stored.message().arcount(), 1);
    assert_eq!(stored.message().records().filter(Result::is_ok).count(), 2);
    let end = response(NOERROR, [1, 0, 1], &[AAAA, GLUE]).len();
    assert_eq!(stored.message().bytes().len(), end);
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
fn chains_that_cost_too_much_are_malformed() {
    let mut chain = b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\xfc".to_vec();
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
    for record in [ns(target, question), ns(question, target)] {
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
        let reason = ParseError::NameSteps;
        assert_eq!(many.unwrap_err(), Malformed::Parse { reason });
    }
}

#[test]
fn aliases_that_go_round_end() {
    let stored = accept(&response(
        NOERROR,
        [3, 1, 0],
        &[A_TO_B, B_TO_C, C_TO_A, SOA],
    ))
    .unwrap();
    assert_eq!(stored.kind(), Kind::NoData);
    assert_eq!(stored.chain_end().to_string(), "a.test.");
    // Many aliases in reverse: given up, not walked for ever.
    let label = |i: u8| {
        [
            b"\x03n".as_slice(),
            &[b'0' + i / 10, b'0' + i % 10],
            b"\xc0\x0e",
        ]
        .concat()
    };
    let mut records = Vec::new();
    for i in (0..60).rev() {
        let owner = if i == 0 {
            b"\xc0\x0c".to_vec()
        } else {
            label(i)
        };
        records.extend(
            [
                owner,
                b"\0\x05\0\x01\0\0\0\x3c\0\x06".to_vec(),
                label(i + 1),
            ]
            .concat(),
        );
    }
    let stored = accept(&response(NOERROR, [60, 0, 0], &[&records])).unwrap();
    assert_eq!(stored.kind(), Kind::Positive);
    assert_eq!(stored.chain_end().to_string(), "n12.test.");
}

#[test]
fn a_question_for_an_alias_or_anything_is_not_sent_along_it() {
    let mut bytes = response(NOERROR, [2, 0, 0], &[A_TO_B, B_TO_C]);
    for qtype in [5, 255] {
        bytes[21] = qtype;
        let stored = accept(&bytes).unwrap();
        assert_eq!(stored.kind(), Kind::Positive);
        assert_eq!(stored.chain_end().to_string(), "a.test.");
    }
}

#[test]
fn negative_answers_live_as_long_as_their_soa_says() {
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
fn ttls_are_brought_within_bounds() {
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
    assert_eq!(ttl(b"\x80\0\0\0", &BOUNDS), 0);
    assert_eq!(ttl(b"\xff\xff\xff\xff", &bounds), 5);
}

#[test]
fn failures_are_told_by_their_code_extended_ones_too() {
    let refused = accept(&response(0x8185, [0, 0, 0], &[])).unwrap();
    assert_eq!(refused.kind(), Kind::Failure(Rcode::REFUSED));
    assert_eq!((refused.rcode(), refused.ttl_s()), (Rcode::REFUSED, 5));
    // BADVERS has 0 in the header.
    let badvers = b"\0\0\x29\x04\xd0\x01\0\0\0\0\0";
    let stored = accept(&response(NOERROR, [0, 0, 1], &[badvers])).unwrap();
    assert_eq!(stored.kind(), Kind::Failure(Rcode::SERVFAIL));
    let bogus = b"\0\0\x29\x04\xd0\0\0\0\0\0\x0e\0\x0a\0\x02hi\0\x0f\0\x04\0\x06no";
    let stored = accept(&response(0x8182, [0, 0, 1], &[bogus])).unwrap();
    assert_eq!(stored.extended_error(), Some(6));
}

#[test]
fn a_failure_is_header_and_question() {
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
fn signatures_count_in_answer_and_authority() {
    let rrsig = b"\xc0\x0c\0\x2e\0\x01\0\0\0\x3c\0\x01x".as_slice();
    let nsec3 = b"\xc0\x0c\0\x32\0\x01\0\0\0\x3c\0\x01x".as_slice();
    let signed = |counts, records: &[&[u8]]| {
        accept(&response(NOERROR, counts, records))
            .unwrap()
            .is_signed()
    };
    assert!(signed([2, 0, 0], &[AAAA, rrsig]));
    assert!(signed([0, 2, 0], &[SOA, nsec3]));
    assert!(!signed([1, 0, 1], &[AAAA, rrsig]));
}

#[test]
fn unsound_responses_are_not_taken() {
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
    let address = |rtype, len| Malformed::Address { rtype, len };
    assert_eq!(error(&[&record(1, b"abc")]), address(Rtype::A, 3));
    assert_eq!(error(&[&record(28, b"abcd")]), address(Rtype::AAAA, 4));
    let parse = |reason| Malformed::Parse { reason };
    // NS, CNAME, PTR, DNAME, MX, SRV: the name is too long, too short, or not there.
    for (rtype, before) in [(2, 0), (5, 0), (12, 0), (39, 0), (15, 2), (33, 6)] {
        let rdata = |name: &[u8]| record(rtype, &[&[0; 6][..before], name].concat());
        assert_eq!(error(&[&rdata(b"\0\0")]), parse(ParseError::NameTooShort));
        // A label that goes on into the next record.
        let overrun = error(&[&rdata(b"\x05a"), AAAA]);
        assert_eq!(overrun, parse(ParseError::ShortMessage), "{rtype}");
        assert_eq!(
            error(&[&rdata(b""), &[0; 12]]),
            parse(ParseError::ShortMessage)
        );
        assert_eq!(
            error(&[&rdata(b"\xc0\xff")]),
            parse(ParseError::PointerForward)
        );
        let fits = response(NOERROR, [0, 0, 1], &[&rdata(b"\xc0\x0e")]);
        assert!(accept(&fits).is_ok());
    }
    assert_eq!(
        error(&[&record(6, &[0; 21])]),
        parse(ParseError::ShortMessage)
    );
    assert_eq!(
        error(&[&record(6, &[0; 23])]),
        parse(ParseError::NameTooShort)
    );
    let chaos = b"\0\0\x10\0\x03\0\0\0\0\0\0";
    assert_eq!(error(&[chaos]), Malformed::Class { class: Class::CH });
    assert_eq!(error(&[OPT, OPT]), parse(ParseError::OptRepeated));
    let misplaced = response(NOERROR, [1, 0, 0], &[OPT]);
    assert_eq!(
        accept(&misplaced).unwrap_err(),
        parse(ParseError::OptMisplaced)
    );
    // Broken records behind the OPT record are broken all the same.
    assert_eq!(error(&[OPT, &record(1, b"abc")]), address(Rtype::A, 3));
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
fn the_length_of_addresses_is_a_matter_of_the_class() {
    let mut bytes = response(NOERROR, [0, 0, 0], &[]);
    bytes[23] = 3;
    bytes[7] = 1;
    bytes.extend_from_slice(b"\xc0\x0c\0\x01\0\x03\0\0\0\x3c\0\x02\x01\x02");
    assert!(accept(&bytes).is_ok());
}

#[test]
fn ttls_run_down_and_stale_ones_stand() {
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
fn no_name_may_lead_through_a_ttl() {
    // The TTL stands at 30 and the target of the alias at 32, in it: the root today, and a label of
    // a type that there is not once the TTL has run down.
    let alias = |ttl: &[u8; 4]| [b"\xc0\x0c\0\x05\0\x01", &ttl[..], b"\0\x02\xc0\x20"].concat();
    for ttl in [b"\0\0\0\x80", b"\x05\0\0\x80"] {
        let through = accept(&response(0x8180, [1, 0, 0], &[&alias(ttl)]));
        assert!(matches!(through, Err(Malformed::Parse { .. })));
    }
}

#[test]
fn names_may_lead_to_earlier_names_outside_the_question() {
    // An alias below the name asked for, then an address of the name in its data.
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
