use proptest::prelude::*;

use super::*;
use crate::settings::cookies::CookieSecrets;

/// Parts of a query: header with RD, `a.test AAAA IN`, OPT.
const HEADER: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0";
const HEADER_OPT: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01";
const QUESTION: &[u8] = b"\x01a\x04tEst\0\0\x1c\0\x01";
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
/// OPT with a client cookie.
const OPT_COOKIE: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08clientck";

struct Server {
    allow: NetSet,
    cookies: Cookies,
    identity: Identity,
}

impl Server {
    fn new() -> Self {
        Self {
            allow: NetSet::new(vec!["192.0.2.0/24".parse().unwrap()]),
            cookies: Cookies::new(CookieSecrets::own([7; 16])),
            identity: Identity::default(),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            allow: &self.allow,
            deny: DenyAction::Refuse,
            udp_size: 1232,
            any: AnyPolicy::Minimal,
            identity: &self.identity,
            idle_ns: 10_000_000_000,
            cookies: &self.cookies,
            client: "192.0.2.1".parse().unwrap(),
            transport: Transport::Udp,
            now_s: 1_000_000,
        }
    }
}

/// The response to a refused query, and the reason.
fn answer_of(parts: &[&[u8]], context: &Context<'_>) -> (Vec<u8>, Refusal) {
    let mut frame = [0xff; 512];
    match admit(&parts.concat(), context, &mut frame) {
        Admission::Answer {
            len,
            refused: Some(reason),
        } => (frame[..len].to_vec(), reason),
        other => panic!("{other:?}"),
    }
}

fn refused(parts: &[&[u8]]) -> (Vec<u8>, Refusal) {
    answer_of(parts, &Server::new().context())
}

/// A response: header with these last two octets of flags, the question, and other records.
fn reply(flags: &[u8; 2], additionals: u8, rest: &[u8]) -> Vec<u8> {
    let counts = [0, 1, 0, 0, 0, 0, 0, additionals];
    [b"\x12\x34", &flags[..], &counts, QUESTION, rest].concat()
}

fn admitted(parts: &[&[u8]], context: &Context<'_>) -> Asker {
    match admit(&parts.concat(), context, &mut [0xff; 512]) {
        Admission::Asker(asker) => asker,
        other => panic!("{other:?}"),
    }
}

#[test]
fn valid_query_becomes_an_asker() {
    let server = Server::new();
    let asker = admitted(&[HEADER, QUESTION], &server.context());
    assert_eq!(
        (asker.id, asker.name.to_string()),
        (0x1234, "a.tEst.".to_owned())
    );
    assert_eq!((asker.rtype, asker.class), (Rtype::AAAA, Class::IN));
    assert!(asker.flags.rd() && !asker.cd());
    assert_eq!((asker.edns, asker.limit), (None, 512));
    let asker = admitted(&[HEADER_OPT, QUESTION, OPT], &server.context());
    let edns = AskerEdns {
        udp_size: 1232,
        do_bit: true,
        ..AskerEdns::default()
    };
    assert_eq!((asker.edns, asker.limit), (Some(edns), 1232));
    let tcp = Context {
        transport: Transport::Tcp,
        ..server.context()
    };
    assert_eq!(admitted(&[HEADER, QUESTION], &tcp).limit, 65_535);
    // Octets after the last record are ignored.
    admitted(&[HEADER, QUESTION, b"junk"], &server.context());
}

#[test]
fn udp_limit_is_smaller_size_of_client_and_server() {
    let server = Server::new();
    let limit = |client: u16, own| {
        let mut opt = OPT.to_vec();
        opt[3..5].copy_from_slice(&client.to_be_bytes());
        let context = Context {
            udp_size: own,
            ..server.context()
        };
        admitted(&[HEADER_OPT, QUESTION, &opt], &context).limit
    };
    assert_eq!(limit(0, 1232), 512);
    assert_eq!(limit(700, 1232), 700);
    assert_eq!(limit(4096, 1232), 1232);
    assert_eq!(limit(65_535, 4096), 4096);
}

#[test]
fn short_messages_and_responses_are_dropped_for_every_client() {
    let server = Server::new();
    let stranger = Context {
        client: "198.51.100.1".parse().unwrap(),
        ..server.context()
    };
    let query = [HEADER, QUESTION].concat();
    let response = [b"\x12\x34\x81\0", &query[4..]].concat();
    for context in [&server.context(), &stranger] {
        for len in 0..12 {
            let admission = admit(&query[..len], context, &mut [0; 512]);
            assert!(matches!(admission, Admission::Drop(Silence::Short)));
        }
        let admission = admit(&response, context, &mut [0; 512]);
        assert!(matches!(admission, Admission::Drop(Silence::Response)));
    }
}

#[test]
fn denied_clients_are_refused_before_other_checks() {
    let server = Server::new();
    let stranger = Context {
        client: "198.51.100.1".parse().unwrap(),
        ..server.context()
    };
    let plain = answer_of(&[HEADER, QUESTION], &stranger);
    assert_eq!(plain, (reply(b"\x81\x85", 0, b""), Refusal::Access));
    let opt = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x06\0\x0f\0\x02\0\x12";
    let edns = answer_of(&[HEADER_OPT, QUESTION, OPT], &stranger);
    assert_eq!(edns, (reply(b"\x81\x85", 1, opt), Refusal::Access));
    let garbled = answer_of(&[HEADER, b"\xff\xff"], &stranger);
    let bare = b"\x12\x34\x81\x85\0\0\0\0\0\0\0\0".to_vec();
    assert_eq!(garbled, (bare, Refusal::Access));
    let update = answer_of(&[b"\x12\x34\x28\0\0\x01\0\0\0\0\0\0", QUESTION], &stranger);
    let bare = b"\x12\x34\xa8\x85\0\0\0\0\0\0\0\0".to_vec();
    assert_eq!(update, (bare, Refusal::Access));
}

#[test]
fn other_opcodes_are_not_implemented() {
    let notify = refused(&[b"\x12\x34\x20\0\0\x01\0\0\0\0\0\0", QUESTION]);
    let bare = b"\x12\x34\xa0\x84\0\0\0\0\0\0\0\0".to_vec();
    assert_eq!(notify, (bare, Refusal::Opcode));
}

#[test]
fn query_without_one_valid_question_gets_header_only() {
    let bare = (
        b"\x12\x34\x81\x81\0\0\0\0\0\0\0\0".to_vec(),
        Refusal::Format,
    );
    assert_eq!(refused(&[b"\x12\x34\x01\0\0\0\0\0\0\0\0\0"]), bare);
    let two = b"\x12\x34\x01\0\0\x02\0\0\0\0\0\0";
    assert_eq!(refused(&[two, QUESTION, QUESTION]), bare);
    for cut in 0..QUESTION.len() {
        assert_eq!(refused(&[HEADER, &QUESTION[..cut]]), bare, "{cut}");
    }
    assert_eq!(refused(&[HEADER, b"\xc0\x0c\0\x1c\0\x01"]), bare);
}

#[test]
fn fault_after_question_is_a_format_error() {
    let formerr = (reply(b"\x81\x81", 0, b""), Refusal::Format);
    assert_eq!(refused(&[HEADER_OPT, QUESTION]), formerr);
    assert_eq!(refused(&[HEADER_OPT, QUESTION, b"junk"]), formerr);
    let twice = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x02";
    assert_eq!(refused(&[twice, QUESTION, OPT, OPT]), formerr);
    let address = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01";
    assert_eq!(refused(&[HEADER_OPT, QUESTION, address]), formerr);
    assert_eq!(refused(&[twice, QUESTION, OPT, address]), formerr);
    let options = b"\0\0\x29\x04\xd0\0\0\0\0\0\x05\0\x0a\0\x08x";
    assert_eq!(refused(&[HEADER_OPT, QUESTION, options]), formerr);
}

#[test]
fn invalid_section_counts_are_a_format_error() {
    let bare = b"\x12\x34\x81\x81\0\0\0\0\0\0\0\0".to_vec();
    let formerr = (bare, Refusal::Format);
    let counted = |counts: [u8; 3]| {
        let [answers, authorities, additionals] = counts;
        let header = [
            0x12,
            0x34,
            1,
            0,
            0,
            1,
            0,
            answers,
            0,
            authorities,
            0,
            additionals,
        ];
        refused(&[&header, QUESTION, OPT, OPT, OPT])
    };
    assert_eq!(counted([1, 0, 0]), formerr);
    assert_eq!(counted([0, 1, 0]), formerr);
    assert_eq!(counted([0, 0, 3]), formerr);
    // The counts are checked before the question is read.
    let header = b"\x12\x34\x01\0\0\x01\xff\xff\0\0\0\0";
    assert_eq!(refused(&[header]), formerr);
}

#[test]
fn signature_beside_opt_is_accepted() {
    let server = Server::new();
    let two = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x02";
    let tsig = b"\x01k\0\0\xfa\0\xff\0\0\0\0\0\0";
    let sig0 = b"\0\0\x18\0\xff\0\0\0\0\0\0";
    for signature in [&tsig[..], sig0] {
        let asker = admitted(&[two, QUESTION, OPT, signature], &server.context());
        assert!(asker.do_bit());
        let asker = admitted(&[HEADER_OPT, QUESTION, signature], &server.context());
        assert_eq!(asker.edns, None);
    }
}

/// A query whose additional records have chains of 126 pointers as owners, of at most `len` octets
/// with `tail` at the end.
fn chained(len: usize, tail: &[u8]) -> Vec<u8> {
    let txt = b"\xc0\x0c\0\x10\0\x01\0\0\0\0\0\xfc";
    let mut query = [HEADER, QUESTION, txt].concat();
    let mut target = [0xc0, 12];
    for _ in 0..126 {
        let [high, low] = u16::try_from(query.len()).unwrap().to_be_bytes();
        query.extend_from_slice(&target);
        target = [0xc0 | high, low];
    }
    let mut records = 1 + u16::from(!tail.is_empty());
    while query.len() + 12 + tail.len() <= len {
        query.extend_from_slice(&target);
        query.extend_from_slice(b"\0\x10\0\x01\0\0\0\0\0\0");
        records += 1;
    }
    query.extend_from_slice(tail);
    query[10..12].copy_from_slice(&records.to_be_bytes());
    query
}

#[test]
fn pointer_chains_are_refused_by_header_alone() {
    let bare = b"\x12\x34\x81\x81\0\0\0\0\0\0\0\0".to_vec();
    for len in [1_464, 65_507] {
        let query = chained(len, OPT);
        assert_eq!(refused(&[&query]), (bare.clone(), Refusal::Format));
        // Its header alone gets the same response: the rest was not read.
        assert_eq!(refused(&[&query[..12]]), (bare.clone(), Refusal::Format));
    }
}

#[test]
fn denied_client_is_dropped_by_header_alone() {
    let server = Server::new();
    let stranger = Context {
        client: "198.51.100.1".parse().unwrap(),
        deny: DenyAction::Drop,
        ..server.context()
    };
    let update = b"\x12\x34\x28\0\0\x01\0\0\0\0\0\0";
    for query in [
        &[HEADER, QUESTION].concat()[..],
        update,
        &chained(65_507, OPT),
    ] {
        let admission = admit(query, &stranger, &mut [0; 512]);
        assert!(matches!(admission, Admission::Drop(Silence::Access)));
    }
    let friend = Context {
        client: "192.0.2.1".parse().unwrap(),
        ..stranger
    };
    admitted(&[HEADER, QUESTION], &friend);
}

#[test]
fn query_without_question_gets_requested_cookie() {
    let server = Server::new();
    let context = server.context();
    let header = b"\x12\x34\x01\0\0\0\0\0\0\0\0\x01";
    let mut frame = [0xff; 512];
    let query = [&header[..], OPT_COOKIE].concat();
    let Admission::Answer { len, refused: None } = admit(&query, &context, &mut frame) else {
        panic!("no immediate response");
    };
    let answer = Message::parse(&frame[..len]).unwrap();
    assert_eq!((answer.rcode(), answer.qdcount()), (Rcode::NOERROR, 0));
    let opt = answer.opt().unwrap().unwrap();
    let option = opt.options().next().unwrap();
    assert!(option.value.starts_with(b"clientck") && option.value.len() == 24);
    // The cookie is valid.
    let len = [
        0,
        u8::try_from(option.value.len() + 4).unwrap(),
        0,
        10,
        0,
        24,
    ];
    let known = [HEADER_OPT, QUESTION, &OPT[..9], &len, option.value].concat();
    assert!(admitted(&[&known], &context).edns.unwrap().cookie_valid);
    // A query without a cookie, or with one of an invalid length, requests nothing.
    let bare = b"\x12\x34\x81\x81\0\0\0\0\0\0\0\0".to_vec();
    let short = b"\0\0\x29\x04\xd0\0\0\0\0\0\x07\0\x0a\0\x03cli";
    for opt in [OPT, short] {
        let formerr = (bare.clone(), Refusal::Format);
        assert_eq!(answer_of(&[header, opt], &context), formerr);
    }
    let stranger = Context {
        client: "198.51.100.1".parse().unwrap(),
        ..context
    };
    let refused = b"\x12\x34\x81\x85\0\0\0\0\0\0\0\0".to_vec();
    let answer = answer_of(&[header, OPT_COOKIE], &stranger);
    assert_eq!(answer, (refused, Refusal::Access));
}

#[test]
fn other_edns_versions_get_badvers_with_supported_version() {
    let version_1 = b"\0\0\x29\x04\xd0\0\x01\x80\0\0\0";
    let badvers = b"\0\0\x29\x04\xd0\x01\0\x80\0\0\0";
    assert_eq!(
        refused(&[HEADER_OPT, QUESTION, version_1]),
        (reply(b"\x81\x80", 1, badvers), Refusal::Version)
    );
}

#[test]
fn cookies_are_answered_and_checked() {
    let server = Server::new();
    let context = server.context();
    let asker = admitted(&[HEADER_OPT, QUESTION, OPT_COOKIE], &context);
    let edns = asker.edns.unwrap();
    let cookie = edns.cookie.unwrap();
    assert!(cookie.starts_with(b"clientck") && !edns.cookie_valid);
    let known = [b"\0\0\x29\x04\xd0\0\0\0\0\0\x1c\0\x0a\0\x18", &cookie[..]].concat();
    let edns = admitted(&[HEADER_OPT, QUESTION, &known], &context)
        .edns
        .unwrap();
    assert_eq!((edns.cookie, edns.cookie_valid), (Some(cookie), true));
    // A cookie of an invalid length: the response has an OPT record and no cookie.
    let short = b"\0\0\x29\x04\xd0\0\0\0\0\0\x07\0\x0a\0\x03cli";
    let opt = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
    assert_eq!(
        refused(&[HEADER_OPT, QUESTION, short]),
        (reply(b"\x81\x81", 1, opt), Refusal::Format)
    );
    // Only the first cookie counts.
    let two = b"\0\0\x29\x04\xd0\0\0\0\0\0\x13\0\x0a\0\x08clientck\0\x0a\0\x03cli";
    let edns = admitted(&[HEADER_OPT, QUESTION, two], &context)
        .edns
        .unwrap();
    assert_eq!(edns.cookie, Some(cookie));
}

#[test]
fn query_with_sixteen_thousand_options_is_accepted() {
    let server = Server::new();
    let options = [0xfd, 0xe9, 0, 0].repeat(16_000);
    let len = u16::try_from(options.len()).unwrap().to_be_bytes();
    let parts = [HEADER_OPT, QUESTION, &OPT[..9], &len, &options];
    assert_eq!(
        admitted(&parts, &server.context()).edns.unwrap().cookie,
        None
    );
}

#[test]
fn types_and_classes_without_data_are_refused() {
    let server = Server::new();
    let rcode = |rtype: u16, class: u16, any| {
        let context = Context {
            any,
            ..server.context()
        };
        let question = [b"\0", &rtype.to_be_bytes()[..], &class.to_be_bytes()].concat();
        let mut frame = [0; 512];
        match admit(&[HEADER, &question].concat(), &context, &mut frame) {
            Admission::Asker(_) => Rcode::NOERROR,
            Admission::Answer { len, refused } => {
                assert_eq!(refused, Some(Refusal::Type));
                Message::parse(&frame[..len]).unwrap().rcode()
            }
            other => panic!("{other:?}"),
        }
    };
    for rtype in [251, 252, 253, 254] {
        assert_eq!(
            rcode(rtype, 1, AnyPolicy::Forward),
            Rcode::REFUSED,
            "{rtype}"
        );
    }
    for rtype in [0, 41, 128, 249, 250] {
        assert_eq!(
            rcode(rtype, 1, AnyPolicy::Forward),
            Rcode::FORMERR,
            "{rtype}"
        );
    }
    for rtype in [1, 6, 28, 64, 65, 127, 256, 65_535] {
        assert_eq!(
            rcode(rtype, 1, AnyPolicy::Refuse),
            Rcode::NOERROR,
            "{rtype}"
        );
        assert_eq!(
            rcode(rtype, 3, AnyPolicy::Refuse),
            Rcode::NOERROR,
            "{rtype}"
        );
    }
    for class in [0, 254, 255] {
        assert_eq!(
            rcode(1, class, AnyPolicy::Forward),
            Rcode::REFUSED,
            "{class}"
        );
    }
    assert_eq!(rcode(255, 1, AnyPolicy::Refuse), Rcode::REFUSED);
    assert_eq!(rcode(255, 1, AnyPolicy::Minimal), Rcode::NOERROR);
    assert_eq!(rcode(255, 1, AnyPolicy::Forward), Rcode::NOERROR);
    let axfr = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\0\0\xfc\0\x01";
    let bytes = b"\x12\x34\x81\x85\0\x01\0\0\0\0\0\0\0\0\xfc\0\x01".to_vec();
    assert_eq!(refused(&[axfr]), (bytes, Refusal::Type));
}

#[test]
fn query_without_rd_is_refused() {
    let query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\x01";
    let opt = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x06\0\x0f\0\x02\0\x14";
    assert_eq!(
        refused(&[query, QUESTION, OPT]),
        (reply(b"\x80\x85", 1, opt), Refusal::Access)
    );
}

/// A query of random parts, most of them valid.
fn queries() -> impl Strategy<Value = Vec<u8>> {
    let sound = Just([HEADER_OPT, QUESTION, OPT_COOKIE].concat());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let mutant = (sound, changes).prop_map(|(mut bytes, changes)| {
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes
    });
    prop_oneof![mutant, prop::collection::vec(any::<u8>(), 0..600)]
}

proptest! {
    #[test]
    fn denied_client_is_answered_from_first_512_octets(
        (len, cut) in (512_usize..3_000).prop_flat_map(|len| (Just(len), 0..len)),
        tail in prop_oneof![Just(OPT), Just(OPT_COOKIE), Just(&b""[..])],
        query in queries(),
    ) {
        let server = Server::new();
        let stranger = Context {
            client: "198.51.100.1".parse().unwrap(),
            ..server.context()
        };
        let one_opt = [HEADER_OPT, QUESTION, &OPT[..9], b"\xff\x00", &[0; 0xff00]].concat();
        let chain = chained(len, tail);
        for query in [&chain[..], &chain[..cut.min(chain.len())], &query, &one_opt] {
            let seen = &query[..query.len().min(STRANGER_LEN)];
            let mut frames = [[0; 512]; 2];
            let [whole, first] = &mut frames;
            let kinds = [admit(query, &stranger, whole), admit(seen, &stranger, first)];
            prop_assert!(!matches!(kinds[0], Admission::Asker(_)));
            prop_assert_eq!(whole, first);
        }
    }

    #[test]
    fn every_message_is_dropped_or_answered_within_its_limit(
        query in queries(),
        stranger in any::<bool>(),
        any in prop_oneof![Just(AnyPolicy::Minimal), Just(AnyPolicy::Refuse)],
    ) {
        let server = Server::new();
        let client = if stranger { "198.51.100.1" } else { "192.0.2.1" };
        let context = Context { client: client.parse().unwrap(), any, ..server.context() };
        let mut frame = [0xff; 2048];
        let len = match admit(&query, &context, &mut frame) {
            Admission::Drop(_) => return Ok(()),
            Admission::Answer { len, .. } => len,
            Admission::Asker(asker) => {
                prop_assert!(!stranger);
                prop_assert!((512..=1232).contains(&asker.limit));
                reply::any_minimal(&asker, &mut frame)
            }
        };
        // Not longer than the longest response without records, so useless for amplification.
        prop_assert!((12..=512).contains(&len));
        let answer = Message::parse(&frame[..len]).unwrap();
        prop_assert!(answer.qr() && answer.opt().is_ok());
        prop_assert_eq!(&answer.bytes()[..2], &query[..2]);
    }
}
