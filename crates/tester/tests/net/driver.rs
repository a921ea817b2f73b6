//! The authority's program in the driver compared with the socket authority: frames are run through the program and not
//! sent. For its answers, the socket authority gives the same octets; all other frames remain unchanged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns64_transport::xdp::program::Action;
use dns64bench::authority::answer::Authority;
use dns64bench::authority::counts::AuthorityCounts;
use dns64bench::authority::driver::{Driver, Station};
use dns64bench::authority::zone::ZoneConfig;
use dns64bench::load::transport::Protocol;
use dns64bench::namespace::{Zone, label};

use crate::frames::{Arrived, Checksum, Way, arrived, finish, frame};

const MAC: [u8; 6] = [2, 0, 0, 0, 2, 0xa0];
const V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 2);

/// Number of mutated frames, for all zones together.
const MUTATED: u64 = 100_000;

/// Pseudorandom numbers, the same in each run (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn octet(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// The program and a socket authority for comparison.
struct Both {
    driver: Driver,
    sockets: Authority,
    station: Station,
    /// Counters that the sockets would have for the program's answers.
    answered: u64,
    zone: ZoneConfig,
}

impl Both {
    fn new(suffix: &str, share: &str, self_test: bool) -> Self {
        let zone = ZoneConfig {
            zone: Zone {
                suffix: suffix.parse().unwrap(),
                aaaa_share: share.parse().unwrap(),
                ..Zone::default()
            },
            self_test,
            ttl_s: 0x0102_0304,
            negative_ttl_s: 61,
        };
        let station = Station {
            mac: MAC,
            addresses: vec![V4.into(), V6.into(), Ipv4Addr::new(198, 18, 0, 3).into()],
            port: 53,
            // Where checksums may be unfinished.
            is_veth: true,
        };
        Self {
            driver: Driver::load(&zone, &station).unwrap(),
            sockets: Authority::new(zone.clone()),
            station,
            answered: 0,
            zone,
        }
    }

    /// Runs a frame through the program and compares its answer with the twin's; returns whether it answered.
    fn compare(&mut self, frame: &[u8]) -> bool {
        let mut out = Vec::new();
        let action = self.driver.run(frame, &mut out).unwrap();
        match action {
            Action::Pass => {
                assert_eq!(out, frame, "a frame that is passed on was changed");
                false
            }
            Action::Tx => {
                self.compare_answer(frame, &out);
                self.answered += 1;
                true
            }
            other => panic!("{other:?} of {frame:02x?}"),
        }
    }

    fn compare_answer(&mut self, frame: &[u8], out: &[u8]) {
        let query = arrived(frame);
        let query = query.unwrap_or_else(|why| panic!("answered, but {why}: {frame:02x?}"));
        let Way { mac, ip, port } = query.way;
        assert_eq!(
            (mac.1, port.1),
            (MAC, 53),
            "not to the authority: {frame:02x?}"
        );
        assert!(
            self.station.addresses.contains(&ip.1),
            "not to the authority: {frame:02x?}"
        );
        let mut expected = [0; 512];
        let len = self
            .sockets
            .answer(query.payload, &mut expected, Protocol::Udp)
            .len;
        assert!(len > 0, "the sockets are silent: {frame:02x?}");
        let reply = arrived(out).unwrap_or_else(|why| panic!("the reply: {why}: {out:02x?}"));
        let Arrived {
            way,
            payload,
            hops,
            is_summed,
        } = reply;
        assert_eq!(payload, &expected[..len], "{frame:02x?}");
        let back = Way {
            mac: (mac.1, mac.0),
            ip: (ip.1, ip.0),
            port: (port.1, port.0),
        };
        assert_eq!((way, hops, is_summed), (back, 64, true), "{out:02x?}");
    }

    /// Asserts that the program's counters equal those of the twin, which received only the answered queries.
    fn compare_counts(&self) {
        let counts = self.driver.counts().unwrap();
        assert_eq!(counts, self.sockets.counts());
        assert_eq!(counts.queries(), self.answered);
    }

    /// A query for a name that encodes an address, below the suffix.
    fn query(&self, address: Ipv4Addr, rtype: u8, tail: &[u8]) -> Vec<u8> {
        let records = u8::from(!tail.is_empty());
        let head = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, records, 15];
        let suffix = self.zone.zone.suffix.as_wire();
        let parts: [&[u8]; 5] = [&head, &label(address), suffix, &[0, rtype, 0, 1], tail];
        parts.concat()
    }
}

/// Zones that differ in every value of the program's configuration.
fn zones() -> Vec<Both> {
    let labels = [
        "a".repeat(63),
        "B".repeat(62),
        "0-9".repeat(21),
        "c".repeat(45),
    ];
    let longest = labels.join(".");
    [
        ("dns64perf.test.", "0", false),
        ("dns64perf.test.", "0", true),
        ("Odd-64.example.", "33.3333%", false),
        (".", "50%", false),
        ("z.", "0.000001", false),
        ("ab.", "99.9999%", false),
        (&longest, "100%", false),
    ]
    .into_iter()
    .map(|(suffix, share, self_test)| Both::new(suffix, share, self_test))
    .collect()
}

fn ways() -> [Way; 4] {
    let asker = [2, 0, 0, 0, 2, 0xd0];
    let way = |ip: (IpAddr, IpAddr), port| Way {
        mac: (asker, MAC),
        ip,
        port: (port, 53),
    };
    let v4 = Ipv4Addr::new(198, 18, 0, 1);
    let v6: Ipv6Addr = "2001:2:0:2::1".parse().unwrap();
    let link_local: Ipv6Addr = "fe80::d0".parse().unwrap();
    [
        way((v4.into(), V4.into()), 40_000),
        way((v6.into(), V6.into()), 40_001),
        way((v4.into(), Ipv4Addr::new(198, 18, 0, 3).into()), 1),
        way((link_local.into(), V6.into()), 65_535),
    ]
}

const PLAIN_OPT: [u8; 11] = [0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0];
const DO_OPT: [u8; 11] = [0, 0, 41, 0xff, 0xff, 7, 0, 0x80, 1, 0, 0];

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn common_query_is_answered_in_the_driver_as_by_the_sockets() {
    let mut random = Random(1);
    for mut both in zones() {
        for _ in 0..500 {
            let address = Ipv4Addr::from_bits(u32::try_from(random.next() >> 32).unwrap());
            for rtype in [1, 28] {
                for tail in [&[][..], &PLAIN_OPT, &DO_OPT] {
                    let mut query = both.query(address, rtype, tail);
                    (query[0], query[1]) = (random.octet(), random.octet());
                    // AA, TC and RD, then RA, Z, AD, CD and RCODE: all are ignored.
                    (query[2], query[3]) = (random.octet() & 7, random.octet());
                    if random.below(2) == 0 {
                        let name = 13..query.len() - 4 - tail.len();
                        for octet in &mut query[name] {
                            if random.below(2) == 0 {
                                octet.make_ascii_uppercase();
                            }
                        }
                    }
                    let sums = [Checksum::Whole, Checksum::Begun];
                    let frame = frame(&random.pick(&ways()), &query, random.pick(&sums));
                    assert!(both.compare(&frame), "{frame:02x?}");
                }
            }
        }
        both.compare_counts();
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn unfinished_checksum_is_left_to_the_kernel_except_on_veth_links() {
    let mut both = Both::new("dns64perf.test.", "0", false);
    let query = both.query(Ipv4Addr::new(10, 0, 0, 1), 28, &PLAIN_OPT);
    for is_veth in [true, false] {
        both.station.is_veth = is_veth;
        both.driver = Driver::load(&both.zone, &both.station).unwrap();
        for way in ways() {
            assert_eq!(both.compare(&frame(&way, &query, Checksum::Begun)), is_veth);
        }
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn query_without_checksum_is_answered_only_over_ipv4() {
    let mut both = Both::new("dns64perf.test.", "0", false);
    let query = both.query(Ipv4Addr::new(10, 0, 0, 1), 28, &PLAIN_OPT);
    let [v4, v6, ..] = ways();
    assert!(both.compare(&frame(&v4, &query, Checksum::None)));
    assert!(!both.compare(&frame(&v6, &query, Checksum::None)));
    for way in [v4, v6] {
        assert!(!both.compare(&frame(&way, &query, Checksum::Wrong)));
    }
}

/// Queries with an uncommon part after the question.
fn uncommon_edns(both: &Both, address: Ipv4Addr) -> Vec<(&'static str, Vec<u8>)> {
    let opt = |change: fn(&mut Vec<u8>)| {
        let mut tail = PLAIN_OPT.to_vec();
        change(&mut tail);
        both.query(address, 28, &tail)
    };
    vec![
        ("EDNS version 1", opt(|tail| tail[6] = 1)),
        (
            "an option",
            opt(|tail| {
                tail[10] = 4;
                tail.extend([0, 10, 0, 0]);
            }),
        ),
        (
            "an OPT record that is cut off",
            opt(|tail| tail.truncate(10)),
        ),
        ("an OPT record with a name", opt(|tail| tail[0] = 1)),
        ("a record of another type", opt(|tail| tail[2] = 42)),
        ("OPT that is not counted", {
            let mut query = both.query(address, 28, &PLAIN_OPT);
            query[11] = 0;
            query
        }),
    ]
}

/// Queries that the program does not answer, with the reason.
fn uncommon(both: &Both) -> Vec<(&'static str, Vec<u8>)> {
    let address = Ipv4Addr::new(10, 0, 7, 255);
    let plain = |rtype| both.query(address, rtype, &[]);
    let changed = |at: usize, octet: u8| {
        let mut query = plain(28);
        query[at] = octet;
        query
    };
    let class_at = plain(28).len() - 1;
    let mut queries = vec![
        ("a reply", changed(2, 0x80)),
        ("NOTIFY", changed(2, 0x20)),
        ("no question", changed(5, 0)),
        ("two questions", changed(5, 2)),
        ("QDCOUNT 257", changed(4, 1)),
        ("an answer", changed(7, 1)),
        ("an authority record", changed(9, 1)),
        ("an additional record that is missing", changed(11, 1)),
        ("ARCOUNT 256", changed(10, 1)),
        ("another length of the label", changed(12, 14)),
        ("a number beyond 255", changed(13, b'9')),
        ("a letter for a digit", changed(14, b'a')),
        ("a digit below zero", changed(15, b'/')),
        ("no hyphen", changed(16, b'.')),
        ("class CH", changed(class_at, 3)),
        ("class 257", changed(class_at - 1, 1)),
        ("type 257", changed(class_at - 3, 1)),
        ("an octet too many", [plain(1), vec![0]].concat()),
        ("only a header", plain(1)[..12].to_vec()),
        ("nothing", Vec::new()),
    ];
    queries.extend(uncommon_edns(both, address));
    for rtype in [2, 5, 6, 12, 15, 16, 46, 64, 65, 252, 255] {
        queries.push(("another type", plain(rtype)));
    }
    for end in 13..plain(1).len() {
        queries.push(("a query that is cut off", plain(1)[..end].to_vec()));
    }
    queries
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn uncommon_query_is_passed_on() {
    for mut both in zones() {
        for (what, query) in uncommon(&both) {
            for way in ways() {
                let frame = frame(&way, &query, Checksum::Whole);
                assert!(!both.compare(&frame), "{what} was answered: {frame:02x?}");
            }
        }
        both.compare_counts();
    }
}

/// Description, whether it applies to IPv6, and the change.
type Unusual = (&'static str, bool, fn(&mut Vec<u8>));

/// Changes to a frame with a common query after which the program does not answer it.
const UNUSUAL: [Unusual; 26] = [
    ("another MAC address", false, |frame| frame[5] ^= 1),
    ("broadcast", false, |frame| frame[..6].fill(0xff)),
    ("from many", false, |frame| frame[6] |= 1),
    ("another protocol above Ethernet", false, |frame| {
        frame[13] = 6
    }),
    ("VLAN", false, |frame| {
        drop(frame.splice(12..12, [0x81, 0, 0, 7]))
    }),
    ("VLAN, IPv6", true, |frame| {
        drop(frame.splice(12..12, [0x81, 0, 0, 7]))
    }),
    ("VLAN in VLAN", false, |frame| {
        drop(frame.splice(12..12, [0x88, 0xa8, 0, 7, 0x81, 0, 0, 8]));
    }),
    ("IP options", false, |frame| {
        frame[14] = 0x46;
        frame.splice(34..34, [1, 1, 1, 0]);
    }),
    ("version 5", false, |frame| frame[14] = 0x55),
    ("more fragments", false, |frame| frame[20] |= 0x20),
    ("a later fragment", false, |frame| frame[21] = 1),
    ("TCP", false, |frame| frame[23] = 6),
    ("from nowhere", false, |frame| frame[26..30].fill(0)),
    ("from the loopback network", false, |frame| frame[26] = 127),
    ("from a multicast group", false, |frame| frame[26] = 224),
    ("from itself", false, |frame| frame.copy_within(30..34, 26)),
    ("from another own address", false, |frame| {
        frame[26..30].copy_from_slice(&[198, 18, 0, 3]);
    }),
    ("to another address", false, |frame| frame[33] = 77),
    ("to another port", false, |frame| frame[37] = 54),
    ("from port 0", false, |frame| frame[34..36].fill(0)),
    ("a multicast sender, IPv6", true, |frame| frame[22] = 0xff),
    ("an IPv4-mapped sender", true, |frame| {
        frame[22..32].fill(0);
        frame[32..34].fill(0xff);
    }),
    ("to another address, IPv6", true, |frame| frame[53] = 77),
    ("an extension header", true, |frame| {
        frame[20] = 60;
        frame.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    }),
    ("a fragment, IPv6", true, |frame| {
        frame[20] = 44;
        frame.splice(54..54, [17, 0, 0, 1, 0, 0, 0, 1]);
    }),
    ("version 4 in IPv6", true, |frame| frame[14] = 0x40),
];

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn unusual_frame_is_passed_on() {
    let mut both = Both::new("dns64perf.test.", "50%", false);
    let query = both.query(Ipv4Addr::new(10, 0, 0, 1), 28, &PLAIN_OPT);
    for (what, is_v6, change) in UNUSUAL {
        let way = ways()[usize::from(is_v6)].clone();
        let mut frame = frame(&way, &query, Checksum::Whole);
        change(&mut frame);
        // Corrects the lengths and checksums behind the change, where they can be found.
        finish(&mut frame);
        assert!(!both.compare(&frame), "{what} was answered: {frame:02x?}");
    }
    for way in &ways()[..2] {
        let whole = frame(way, &query, Checksum::Whole);
        let mut longer = whole.clone();
        longer.push(0);
        assert!(!both.compare(&longer), "octets behind the datagram");
        for len in 14..whole.len() {
            assert!(!both.compare(&whole[..len]), "cut off at {len}");
        }
    }
    assert_eq!(both.driver.counts().unwrap(), AuthorityCounts::default());
}

/// Applies one to three mutations to a frame.
fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(frame.len());
        match random.below(8) {
            0 => frame[at] = random.octet(),
            1 => frame[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => drop(frame.splice(at..at, [random.octet()])),
            3 => drop(frame.remove(at)),
            4 if random.below(4) == 0 => frame.truncate(at.max(14)),
            5 => frame[at] ^= 0x20,
            // In the octets of the query, which matter most.
            6 => {
                let from = frame.len().saturating_sub(70);
                let at = from + random.below(frame.len() - from);
                frame[at] ^= 1 << random.below(8);
            }
            _ => frame[at] ^= 1 << random.below(8),
        }
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn mutated_frames_are_answered_as_by_the_sockets_or_passed_on() {
    let mut random = Random(2);
    let mut zones = zones();
    let (mut answered, count) = (0, zones.len());
    for i in 0..MUTATED {
        let both = &mut zones[usize::try_from(i).unwrap() % count];
        let address = Ipv4Addr::from_bits(u32::try_from(random.next() >> 32).unwrap());
        let tail = random.pick(&[&[][..], &PLAIN_OPT, &DO_OPT]);
        let query = both.query(address, random.pick(&[1, 28]), tail);
        let mut frame = frame(&random.pick(&ways()), &query, Checksum::Whole);
        mutate(&mut frame, &mut random);
        if random.below(4) > 0 {
            // Otherwise a checksum or a length rejects the frame before anything else is read.
            finish(&mut frame);
        }
        if frame.len() >= 14 {
            answered += u64::from(both.compare(&frame));
        }
    }
    // Many mutations have no effect: case, ID, flags, the number.
    assert!(
        (MUTATED / 100..MUTATED).contains(&answered),
        "{answered} answered"
    );
    zones.iter().for_each(Both::compare_counts);
}
