use dns64_wire::codes::Class;
use dns64_wire::message::Message;
use dns64_wire::name::NameBuf;
use proptest::prelude::*;

use super::super::stored::{Stored, TtlBounds};
use super::*;

const BOUNDS: TtlBounds = TtlBounds {
    min_s: 0,
    max_s: u32::MAX,
    max_negative_s: u32::MAX,
};

const EDNS: AskerEdns = AskerEdns {
    udp_size: 1232,
    do_bit: true,
    cookie: Some(*b"client_cserver_cookie_16"),
    cookie_valid: true,
    nsid: ShortText::NONE,
    keepalive: 0,
    padding: false,
};

/// `A.Test AAAA` with RD and CD.
fn asker(edns: Option<AskerEdns>) -> Asker {
    Asker {
        id: 0x1234,
        name: "A.Test".parse().unwrap(),
        rtype: Rtype::AAAA,
        class: Class::IN,
        flags: Flags::default().with_rd(true).with_cd(true),
        edns,
        limit: 512,
    }
}

fn stored(bytes: &[u8]) -> Stored {
    Stored::accept(&Message::parse(bytes).unwrap(), &BOUNDS).unwrap()
}

/// `a.test AAAA 2001:db8::1`, 60 s, with AD.
const RESPONSE: &[u8] = b"\0\x07\x81\xa0\0\x01\0\x01\0\0\0\0\x01a\x04test\0\0\x1c\0\x01\
    \xc0\x0c\0\x1c\0\x01\0\0\0\x3c\0\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";

#[test]
fn error_response_has_header_question_and_requested_opt() {
    let mut frame = [0xff; 512];
    let len = error(&asker(None), Rcode::SERVFAIL, Some(22), &mut frame);
    let plain = b"\x12\x34\x81\x92\0\x01\0\0\0\0\0\0\x01A\x04Test\0\0\x1c\0\x01";
    assert_eq!(&frame[..len], plain);
    let len = error(&asker(Some(EDNS)), Rcode::SERVFAIL, Some(22), &mut frame);
    let edns = b"\x12\x34\x81\x92\0\x01\0\0\0\0\0\x01\x01A\x04Test\0\0\x1c\0\x01\
        \0\0\x29\x04\xd0\0\0\x80\0\0\x22\
        \0\x0a\0\x18client_cserver_cookie_16\0\x0f\0\x02\0\x16";
    assert_eq!(&frame[..len], edns);
    let bare_edns = AskerEdns {
        do_bit: false,
        cookie: None,
        ..EDNS
    };
    let len = bad_version(&asker(Some(bare_edns)), &mut frame);
    let badvers = b"\x12\x34\x81\x90\0\x01\0\0\0\0\0\x01\x01A\x04Test\0\0\x1c\0\x01\
        \0\0\x29\x04\xd0\x01\0\0\0\0\0";
    assert_eq!(&frame[..len], badvers);
}

#[test]
fn response_without_question_is_a_header() {
    let header = Header::parse(b"\xab\xcd\x29\x30\0\x02\0\0\0\0\0\0").unwrap();
    let mut frame = [0xff; 512];
    let len = bare(&header, Rcode::NOTIMP, None, &mut frame);
    assert_eq!(&frame[..len], b"\xab\xcd\xa9\x94\0\0\0\0\0\0\0\0");
    assert_eq!(bare(&header, Rcode::NOTIMP, None, &mut frame[..11]), 0);
}

#[test]
fn minimal_response_to_any_is_a_hinfo_record() {
    let mut frame = [0xff; 512];
    let any = Asker {
        rtype: Rtype::ANY,
        ..asker(None)
    };
    let len = any_minimal(&any, &mut frame);
    let expected = b"\x12\x34\x81\x90\0\x01\0\x01\0\0\0\0\x01A\x04Test\0\0\xff\0\x01\
        \xc0\x0c\0\x0d\0\x01\0\0\x0e\x10\0\x09\x07RFC8482\0";
    assert_eq!(&frame[..len], expected);
}

#[test]
fn forwarded_response_has_case_of_query_and_aged_ttls() {
    let stored = stored(RESPONSE);
    let mut frame = [0xff; 512];
    let mut expected = RESPONSE.to_vec();
    expected[..4].copy_from_slice(b"\x12\x34\x81\x90");
    expected[12..19].copy_from_slice(b"\x01A\x04Test"[..7].try_into().unwrap());
    let mut forwarded = |aged| {
        let len = forward(&asker(None), aged, &mut frame);
        frame[..len].to_vec()
    };
    assert_eq!(forwarded(Aged::fresh(&stored, 0)), expected);
    expected[33] = 49;
    assert_eq!(forwarded(Aged::fresh(&stored, 11)), expected);
    expected[33] = 0;
    assert_eq!(forwarded(Aged::fresh(&stored, 61)), expected);
    expected[33] = 30;
    assert_eq!(forwarded(Aged::stale(&stored)), expected);
}

#[test]
fn ad_is_set_if_client_requests_and_upstream_sets_it() {
    let mut frame = [0; 512];
    let signed = stored(RESPONSE);
    let mut unsigned = RESPONSE.to_vec();
    unsigned[3] = 0x80;
    let unsigned = stored(&unsigned);
    let with_ad = Asker {
        flags: Flags::default().with_ad(true),
        ..asker(None)
    };
    let cases = [
        (&signed, &asker(None), false),
        (&signed, &with_ad, true),
        (&signed, &asker(Some(EDNS)), true),
        (&unsigned, &with_ad, false),
        (&unsigned, &asker(Some(EDNS)), false),
    ];
    for (stored, asker, ad) in cases {
        let len = forward(asker, Aged::fresh(stored, 0), &mut frame);
        assert_eq!(Message::parse(&frame[..len]).unwrap().ad(), ad);
    }
}

#[test]
fn oversized_response_is_truncated() {
    let stored = stored(RESPONSE);
    let whole = RESPONSE.len();
    let mut frame = [0; 512];
    for (limit, room, tc) in [
        (whole, 512, false),
        (whole - 1, 512, true),
        (512, whole, false),
        (512, whole - 1, true),
    ] {
        let asker = Asker {
            limit,
            ..asker(None)
        };
        let len = forward(&asker, Aged::fresh(&stored, 9), &mut frame[..room]);
        let message = Message::parse(&frame[..len]).unwrap();
        assert_eq!((message.tc(), message.ancount()), (tc, u16::from(!tc)));
        assert!(len <= limit && len <= room);
    }
    // Room for the OPT record is reserved before the records are written.
    let edns = Asker {
        limit: whole + 11,
        ..asker(Some(EDNS))
    };
    let len = forward(&edns, Aged::fresh(&stored, 0), &mut frame);
    let message = Message::parse(&frame[..len]).unwrap();
    assert!(message.tc() && message.opt().unwrap().unwrap().do_bit);
    assert_eq!(error(&edns, Rcode::SERVFAIL, None, &mut frame[..40]), 0);
}

#[test]
fn oversized_additional_section_is_omitted_without_truncation() {
    // RFC 2181 section 9.
    let asked = Asker {
        name: "example".parse().unwrap(),
        rtype: Rtype::MX,
        ..asker(None)
    };
    let mut bytes = vec![0; 4096];
    let mut message = Builder::new(&mut bytes, 4096).unwrap();
    message.header(7, Flags(0x8180));
    message
        .question(&asked.name, asked.rtype, Class::IN)
        .unwrap();
    let host: NameBuf = "mail.example".parse().unwrap();
    let mx = [b"\0\x0a", host.as_wire()].concat();
    let mut add = |section, owner: &NameBuf, rtype, data: &[u8]| {
        let owner = Owner::Name(owner);
        message
            .record(section, owner, rtype, Class::IN, 60, data)
            .unwrap();
    };
    add(Section::Answer, &asked.name, Rtype::MX, &mx);
    for i in 0..30 {
        add(Section::Additional, &host, Rtype::A, &[192, 0, 2, i]);
    }
    let len = message.finish();
    let stored = stored(&bytes[..len]);
    let mut frame = [0; 1232];
    let mut counts = |limit| {
        let asker = Asker {
            limit,
            ..asked.clone()
        };
        let len = forward(&asker, Aged::fresh(&stored, 1), &mut frame);
        let answer = Message::parse(&frame[..len]).unwrap();
        assert!(answer.records().all(|record| record.unwrap().ttl == 59));
        (answer.tc(), answer.ancount(), answer.arcount())
    };
    assert_eq!(counts(1232), (false, 1, 30));
    assert_eq!(counts(512), (false, 1, 0));
}

#[test]
fn every_response_without_records_fits_into_512_octets() {
    let mut frame = [0; 512];
    let edns = AskerEdns {
        nsid: ShortText::new(&"x".repeat(ShortText::LEN_MAX)).unwrap(),
        keepalive: 100,
        ..EDNS
    };
    let longest = Asker {
        name: "a.".repeat(127).parse().unwrap(),
        ..asker(Some(edns))
    };
    let len = error(&longest, Rcode::REFUSED, Some(18), &mut frame);
    assert_eq!(len, 12 + 255 + 4 + 11 + OPTIONS_LEN_MAX);
}

/// A response with these records: section, numbers of owner, type and data, TTL.
fn response(records: &[(Section, u8, u8, u32)]) -> Vec<u8> {
    let mut frame = vec![0; 65_535];
    let name: NameBuf = "a.tEst".parse().unwrap();
    let other: NameBuf = "other.example".parse().unwrap();
    let mut message = Builder::new(&mut frame, 65_535).unwrap();
    message.header(99, Flags(0x8180));
    message.question(&name, Rtype::AAAA, Class::IN).unwrap();
    for &(section, owner, rtype, ttl) in records {
        let owner = match owner % 3 {
            0 => Owner::Question,
            1 => Owner::At(14),
            _ => Owner::Name(&other),
        };
        let (rtype, rdata): (_, &[u8]) = match rtype % 6 {
            0 => (Rtype::A, b"abcd"),
            1 => (Rtype::AAAA, b"0123456789abcdef"),
            2 => (Rtype::CNAME, b"\x01b\xc0\x0e"),
            3 => (Rtype::MX, b"\0\x0a\xc0\x0c"),
            4 => (Rtype::RRSIG, b"\0\x1c\x08\x02aaaabbbbcccc\0\0\0signature"),
            _ => (Rtype::TXT, b"\x02hi"),
        };
        message
            .record(section, owner, rtype, Class::IN, ttl, rdata)
            .unwrap();
    }
    let len = message.finish();
    frame.truncate(len);
    frame
}

/// The contents of a record, with its names decompressed, and its TTL after a time.
fn meaning(
    record: &Record<'_>,
    message: &[u8],
    age_s: u32,
) -> (Section, String, Rtype, String, u32) {
    let name = |at| {
        dns64_wire::name::Name::parse(message, at)
            .unwrap()
            .0
            .to_string()
    };
    let rdata = match record.rtype {
        Rtype::CNAME => name(record.rdata_offset),
        Rtype::MX => name(record.rdata_offset + 2),
        _ => format!("{:?}", record.rdata),
    };
    let owner = record.name.to_string().to_ascii_lowercase();
    let ttl = record.ttl.saturating_sub(age_s);
    (
        record.section,
        owner,
        record.rtype,
        rdata.to_ascii_lowercase(),
        ttl,
    )
}

fn records() -> impl Strategy<Value = Vec<(Section, u8, u8, u32)>> {
    let section = prop_oneof![
        Just(Section::Answer),
        Just(Section::Authority),
        Just(Section::Additional)
    ];
    let record = (section, any::<u8>(), any::<u8>(), 0_u32..1 << 31);
    prop::collection::vec(record, 0..60).prop_map(|mut records| {
        records.sort_by_key(|record| record.0);
        records
    })
}

proptest! {
    #[test]
    fn forwarded_response_has_stored_records(
        records in records(),
        age_s in 0_u32..100_000,
        with_edns in any::<bool>(),
        limit in 512_usize..4096,
    ) {
        let stored = stored(&response(&records));
        let kept = stored.message();
        let asker = Asker { limit, ..asker(with_edns.then_some(EDNS)) };
        let mut frame = [0; 4096];
        let len = forward(&asker, Aged::fresh(&stored, age_s), &mut frame);
        prop_assert!(len <= limit);
        let answer = Message::parse(&frame[..len]).unwrap();
        let question = answer.question().unwrap();
        prop_assert_eq!(question.name.to_string(), "A.Test.");
        prop_assert_eq!(answer.id(), 0x1234);
        prop_assert_eq!(answer.opt().unwrap().is_some(), with_edns);
        let got = answer.records().map(Result::unwrap).filter(|r| r.rtype != Rtype::OPT);
        let got: Vec<_> = got.map(|r| meaning(&r, &frame[..len], 0)).collect();
        let expected = kept.records().map(Result::unwrap);
        let mut expected: Vec<_> = expected.map(|r| meaning(&r, kept.bytes(), age_s)).collect();
        let opt_len = if with_edns { 11 + 4 + 24 } else { 0 };
        if kept.bytes().len() + opt_len > limit {
            // RFC 2181 section 9: the additional section is dropped first, as a whole.
            expected.retain(|record| record.0 != Section::Additional);
        }
        prop_assert_eq!(answer.tc(), got != expected);
        if answer.tc() {
            let others = kept.records().map(Result::unwrap).filter(|r| r.section != Section::Additional);
            let ends = others.map(|r| r.rdata_offset + r.rdata.len());
            let needed = ends.last().unwrap_or(kept.question().unwrap().range().end);
            prop_assert!(got.is_empty() && needed + opt_len > limit);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut mutant = response(&[(Section::Answer, 0, 2, 5), (Section::Authority, 1, 3, 5), (Section::Additional, 2, 0, 5)]);
        let at = cut.index(mutant.len());
        mutant[at] = value;
        for bytes in [bytes, mutant] {
            let Ok(message) = Message::parse(&bytes) else { continue };
            let Ok(stored) = Stored::accept(&message, &BOUNDS) else { continue };
            let question = stored.message().question().unwrap();
            let asker = Asker { name: question.name.to_buf(), ..asker(Some(EDNS)) };
            let mut frame = [0; 512];
            let len = forward(&asker, Aged::stale(&stored), &mut frame);
            prop_assert!(Message::parse(&frame[..len]).unwrap().opt().is_ok());
            prop_assert!(stored.chain_end().wire_len() > 0);
        }
    }
}

#[test]
fn padded_response_has_a_multiple_of_468_octets() {
    let mut frame = [0xff; 2000];
    let edns = AskerEdns {
        padding: true,
        ..EDNS
    };
    for (limit, expected) in [(2000, 468), (468, 468), (400, 400)] {
        let asker = Asker {
            limit,
            ..asker(Some(edns))
        };
        let len = error(&asker, Rcode::SERVFAIL, None, &mut frame);
        assert_eq!(len, expected);
        // The header, the question, and an OPT record of 11 octets with a cookie.
        let bare = 12 + 12 + 11 + 28;
        let rdata_len = u16::try_from(expected - bare + 28).unwrap();
        assert_eq!(frame[bare - 30..][..2], rdata_len.to_be_bytes());
        let [high, low] = u16::try_from(expected - bare - 4).unwrap().to_be_bytes();
        assert_eq!(frame[bare..][..4], [0, 12, high, low]);
        assert!(frame[bare + 4..expected].iter().all(|octet| *octet == 0));
    }
    // No room for another option.
    let asker = Asker {
        limit: 66,
        ..asker(Some(edns))
    };
    assert_eq!(error(&asker, Rcode::SERVFAIL, None, &mut frame), 63);
}
