//! What is learnt from traces that the tests make.

use std::sync::OnceLock;

use dns64_wire::codes::Rtype;
use etherparse::PacketBuilder;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::authority::answer::Authority;
use crate::authority::zone::ZoneConfig;
use crate::campaign::plan::Plan;
use crate::load::names::NameSource;
use crate::load::query::{QUERY_BYTES, QueryForm, QueryTemplate};
use crate::load::transport::Protocol;
use crate::namespace::{Pattern, Zone};

const QUERIES: u64 = 40_000;

fn prefixes() -> Prefixes {
    "64:ff9b::/96".parse().unwrap()
}

/// The packets of a trial by a plan, a query every 50 us: the queries of 50 clients, and the responses of the authority.
fn played(plan: &Plan, queries: u64) -> Vec<(u64, Vec<u8>)> {
    let (load, cell) = (&plan.load, plan.cells[0]);
    let zone = Zone {
        aaaa_share: cell.aaaa_share,
        ..load.zone.clone()
    };
    let source = NameSource::new(load.cidr, zone.clone(), cell.cached_share, cell.pattern);
    let mut source = source.unwrap().in_form(load.form);
    let names = source.take(queries, None).unwrap();
    let template = QueryTemplate::new(&zone.suffix, load.form.edns);
    let mut authority = Authority::new(ZoneConfig {
        zone,
        self_test: false,
        ttl_s: 60,
        negative_ttl_s: 60,
    });
    let mut packets = Vec::new();
    for i in 0..queries {
        let (mut query, mut reply) = ([0; QUERY_BYTES], [0; 1232]);
        let len = template.write(7, names.question(i), &mut query);
        let answered = authority.answer(&query[..len], &mut reply, Protocol::Udp);
        let client = u8::try_from(i % 50).unwrap();
        for (from, to, octets) in [
            ((client, 4000), (99, 53), &query[..len]),
            ((99, 53), (client, 4000), &reply[..answered.len]),
        ] {
            let address = |last| [[0; 15].as_slice(), &[last]].concat().try_into().unwrap();
            let packet = PacketBuilder::ipv6(address(from.0), address(to.0), 64).udp(from.1, to.1);
            let mut bytes = Vec::new();
            packet.write(&mut bytes, octets).unwrap();
            packets.push((i * 50, bytes));
        }
    }
    packets
}

/// A capture of raw IP packets.
fn pcap(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|it| it.to_le_bytes()).collect() };
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101]);
    for (at_us, packet) in packets {
        let length = u32::try_from(packet.len()).unwrap();
        let at = |us: u64| u32::try_from(us).unwrap();
        file.extend(words(&[
            at(at_us / 1_000_000),
            at(at_us % 1_000_000),
            length,
            length,
        ]));
        file.extend(packet);
    }
    file
}

/// The same as pcapng.
fn pcapng(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let mut file = block(
        0x0a0d_0d0a,
        b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    );
    file.extend(block(1, b"\x65\0\0\0\0\0\x04\0"));
    for (at_us, packet) in packets {
        let length = u32::try_from(packet.len()).unwrap();
        let low = u32::try_from(*at_us).unwrap();
        let head = [0, 0, low, length, length].map(u32::to_le_bytes).concat();
        let padding = vec![0; packet.len().next_multiple_of(4) - packet.len()];
        file.extend(block(6, &[head, packet.clone(), padding].concat()));
    }
    file
}

const PLAN: &str = r#"
[trial]
edns = "do"
types = "AAAA=60%,A=30%,HTTPS=10%"
[tester]
addresses = 2
cname-share = 0.3
cname-length = 3
[cells]
aaaa-share = 0.25
cached-share = 0.5
pattern = "zipf:200,1.1"
[[dut]]
profile = "dns64d"
"#;

#[test]
fn plan_that_is_played_and_captured_is_learnt() {
    let plan = Plan::parse("x.toml", PLAN).unwrap();
    let packets = played(&plan, QUERIES);
    let figures = learn(&pcap(&packets)[..], prefixes()).unwrap();
    assert_eq!(learn(&pcapng(&packets)[..], prefixes()).unwrap(), figures);
    assert_eq!(
        (figures.queries, figures.clients, figures.others),
        (QUERIES, 50, 0)
    );
    assert_eq!(
        (figures.edns, figures.span_s),
        ([0, 0, QUERIES, 0], Some(2))
    );
    assert_eq!(figures.peak_qps, Some(20_000));
    let text = super::plan(&figures, "x.pcap");
    let learnt = Plan::parse("y.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(learnt.load.form.edns, plan.load.form.edns);
    let [cell, expected] = [learnt.cells[0], plan.cells[0]];
    assert_eq!(cell.cached_share, expected.cached_share);
    let within = |found: figures::Estimate, expected: f64| {
        assert!(
            (found.value - expected).abs() <= found.margin,
            "{found:?}: {expected}\n{text}"
        );
    };
    let own = figures::Estimate::share(figures.names_with_aaaa, figures.names_answered);
    within(own.unwrap(), 0.25);
    within(figures.repeated.exponent.unwrap(), 1.1);
    let aliases = figures::Estimate::share(figures.aliases, figures.names_resolved);
    within(aliases.unwrap(), 0.3);
    assert!(
        matches!(cell.pattern, Pattern::Zipf { names: 200, .. }),
        "{text}"
    );
}

#[test]
fn shares_of_types_are_learnt_from_unrepeated_names() {
    let text = PLAN.replace("cached-share = 0.5\npattern = \"zipf:200,1.1\"\n", "");
    let plan = Plan::parse("x.toml", &text).unwrap();
    let figures = learn(&pcap(&played(&plan, QUERIES))[..], prefixes()).unwrap();
    let learnt = Plan::parse("y.toml", &super::plan(&figures, "x.pcap")).unwrap();
    assert_eq!(learnt.load.form, plan.load.form);
    assert_eq!(learnt.load.zone.records, plan.load.zone.records);
    assert_eq!(learnt.cells[0], plan.cells[0]);
}

#[test]
fn list_of_queries_has_types_and_repetitions_only() {
    let list =
        "# names\nexample.com A\nEXAMPLE.com. a\n\n; more\nexample.com AAAA\nexample.org TYPE65\n";
    let figures = learn(list.as_bytes(), prefixes()).unwrap();
    let types = [Rtype::A, Rtype::AAAA, Rtype::HTTPS].map(|rtype| figures.of_type(rtype));
    assert_eq!(
        (figures.queries, figures.questions, types),
        (4, 3, [2, 1, 1])
    );
    assert_eq!(
        (figures.repeated.queries, figures.repeated.questions),
        (2, 1)
    );
    let plan = Plan::parse("x.toml", &plan(&figures, "list")).unwrap();
    let types = "AAAA=25%,A=50%,HTTPS=25%".parse().unwrap();
    let form = QueryForm {
        types,
        ..QueryForm::default()
    };
    assert_eq!(plan.load.form, form);
}

/// Four queries: of clients over UDP, TCP and TLS, and one of the resolver.
fn dnstap() -> Vec<u8> {
    let field = |tag: u8, value: &[u8]| {
        [
            &[tag << 3 | 2, u8::try_from(value.len()).unwrap()][..],
            value,
        ]
        .concat()
    };
    let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x1c\0\x01";
    let message = |kind: u8, protocol: u8, last: u8| {
        let address = field(4, &[192, 0, 2, last]);
        let body = [
            &[8, kind, 24, protocol][..],
            &address,
            &[64, 100],
            &field(10, query),
        ]
        .concat();
        let frame = field(14, &body);
        let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
        [&length[..], &frame].concat()
    };
    let start = b"\0\0\0\0\0\0\0\x04\0\0\0\x02";
    let stop = b"\0\0\0\0\0\0\0\x04\0\0\0\x03";
    let frames = [
        message(5, 1, 1),
        message(5, 2, 2),
        message(5, 3, 2),
        message(3, 1, 9),
    ]
    .concat();
    [&start[..], &frames, stop].concat()
}

#[test]
fn dnstap_has_clients_transports_and_times() {
    let figures = learn(&dnstap()[..], prefixes()).unwrap();
    let over = (figures.over_udp, figures.over_tcp, figures.over_tls);
    assert_eq!((figures.queries, figures.clients, over), (3, 2, (1, 1, 1)));
    assert_eq!((figures.span_s, figures.others), (Some(1), 1));
}

#[test]
fn responses_stand_for_their_queries_where_dns64d_writes_no_others() {
    let stream = include_bytes!("../../../server/src/dnstap.fstrm");
    let figures = learn(&stream[..], prefixes()).unwrap();
    let over = (figures.over_udp, figures.over_tcp, figures.over_tls);
    assert_eq!((figures.queries, figures.clients, over), (2, 2, (1, 1, 0)));
    assert_eq!(figures.others, 0);
}

/// Returns the place of the damage: octets before it, or its line.
fn damage(file: &[u8]) -> Option<u64> {
    let error = learn(file, prefixes()).err()?.to_string();
    let place = error.strip_prefix("damaged at ")?.split(':').next()?;
    place.split(' ').nth(1)?.parse().ok()
}

#[test]
fn damaged_file_is_refused_with_its_place() {
    let packet = (0, vec![0; 40]);
    let pcap = pcap(&[packet.clone(), packet.clone()]);
    assert_eq!(damage(&pcap[..pcap.len() - 1]), Some(24 + 16 + 40));
    let pcapng = pcapng(&[packet.clone(), packet]);
    assert_eq!(damage(&pcapng[..pcapng.len() - 3]), Some(28 + 20 + 72));
    assert_eq!(damage(b"\0\0\0\0\0\0\0\x04\0\0"), Some(0));
    assert_eq!(damage(b"example.com A\nexample.com\n"), Some(2));
    assert_eq!(damage(b"example.com A\nexample.com WHAT\n"), Some(2));
    assert_eq!(damage(b"\xff\xfe\0"), Some(1));
    for empty in [&b""[..], b"# nothing\n", &pcap] {
        assert!(
            learn(empty, prefixes())
                .unwrap_err()
                .to_string()
                .starts_with("no DNS query")
        );
    }
}

#[test]
fn reading_ends_where_a_table_is_full() {
    let list = b"a.test A\na.test A\nb.test A\nc.test A\n";
    let read = |entries_max| count(&list[..], Trace::new(prefixes(), entries_max)).unwrap();
    let told = |figures: Figures| (figures.queries, figures.is_partial);
    assert_eq!((told(read(2)), told(read(4))), ((3, true), (4, false)));
}

/// A capture in both forms, a dnstap file and a list.
fn files() -> &'static [Vec<u8>; 4] {
    static FILES: OnceLock<[Vec<u8>; 4]> = OnceLock::new();
    FILES.get_or_init(|| {
        let packets = played(&Plan::parse("x.toml", PLAN).unwrap(), 20);
        let list = b"example.com A\nexample.org TYPE65\n".to_vec();
        [pcap(&packets), pcapng(&packets), dnstap(), list]
    })
}

proptest! {
    #[test]
    fn damaged_file_is_learnt_or_refused_with_a_place_in_it(
        number in 0..4_usize,
        changes in vec((any::<Index>(), any::<u8>()), 0..8),
        end in any::<Index>(),
    ) {
        let mut file = files()[number].clone();
        for (at, octet) in changes {
            let at = at.index(file.len());
            file[at] = octet;
        }
        file.truncate(end.index(file.len() + 1));
        let place = damage(&file).unwrap_or(0);
        prop_assert!(place <= file.len() as u64);
    }
}
