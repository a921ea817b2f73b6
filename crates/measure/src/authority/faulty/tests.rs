//! Replies and their times on a simulated network.

use dns64_transport::clock::{Clock as _, ManualClock};
use dns64_transport::memory::{Impairment, MemoryLink, Network};

use super::*;
use crate::authority::zone::ZoneConfig;
use crate::namespace::{Share, Zone, label};

const MILLISECOND: Nanos = 1_000_000;

/// A query for the A of 192-000-002-033.z with EDNS and DO.
const QUERY: &[u8] = b"\x12\x34\x01\x10\0\x01\0\0\0\0\0\x01\x0f192-000-002-033\x01z\0\0\x01\0\x01\
    \0\0\x29\x04\xd0\0\0\x80\0\0\0";

/// An authority with faults, and one client.
struct Scene {
    clock: ManualClock,
    authority: Authority,
    faulty: Faulty,
    server: MemoryLink,
    client: MemoryLink,
}

impl Scene {
    fn new(behaviour: &str, room: usize) -> Self {
        let rules = Rules::new(behaviour.parse().unwrap()).unwrap();
        let zone = Zone {
            suffix: "z".parse().unwrap(),
            aaaa_share: Share::NONE,
            ..Zone::default()
        };
        let clock = ManualClock::default();
        let network = Network::new(&clock, 0);
        let listen = "[2001:2::53]:53".parse().unwrap();
        let local = "2001:2::1".parse().unwrap();
        Self {
            authority: Authority::new(ZoneConfig {
                zone,
                self_test: false,
                ttl_s: 1,
                negative_ttl_s: 1,
            }),
            faulty: Faulty::with_room(Arc::new(rules), room),
            server: network.server(listen, Impairment::default()),
            client: network.client(local, 1, listen, Impairment::default()),
            clock,
        }
    }

    fn ask(&mut self, query: &[u8]) {
        let fill = |_: usize, frame: &mut [u8]| {
            frame[..query.len()].copy_from_slice(query);
            query.len()
        };
        assert_eq!(self.client.send(0, 1, fill).unwrap(), 1);
    }

    /// Sends a query for the A of name `n` of 10.0.0.0/8.
    fn ask_for(&mut self, n: u8) {
        let mut query = QUERY.to_vec();
        query[1] = n;
        query[13..28].copy_from_slice(&label([10, 0, 0, n].into()));
        self.ask(&query);
    }

    /// Gives the authority a turn; returns the replies that the client then has.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let Self {
            authority, faulty, ..
        } = self;
        while faulty.turn(authority, &mut self.server, 8, None).unwrap() > 0 {}
        let mut replies = Vec::new();
        let each = |reply: Datagram<'_>| replies.push(reply.payload.to_vec());
        self.client.receive(usize::MAX, each).unwrap();
        replies
    }

    /// Returns the IDs of the replies for each time at which some are sent.
    fn run(&mut self) -> Vec<(Nanos, Vec<u8>)> {
        let mut log = Vec::new();
        loop {
            let ids: Vec<u8> = self.turn().iter().map(|reply| reply[1]).collect();
            if !ids.is_empty() {
                log.push((self.clock.now(), ids));
            }
            match self.faulty.next_due() {
                Some(due) => self.clock.advance_to(due),
                None => return log,
            }
        }
    }
}

#[test]
fn errors_and_truncation_keep_header_question_and_opt() {
    let question_and_opt = b"\x0f192-000-002-033\x01z\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\x80\0\0\0";
    // QR, RD and CD; SERVFAIL and REFUSED without AA; TC with AA.
    for (behaviour, flags) in [
        ("servfail=100%", b"\x81\x12"),
        ("refused=100%", b"\x81\x15"),
        ("truncate=100%", b"\x87\x10"),
    ] {
        let mut scene = Scene::new(behaviour, 1);
        scene.ask(QUERY);
        let counts = b"\0\x01\0\0\0\0\0\x01";
        let expected = [b"\x12\x34", &flags[..], counts, question_and_opt].concat();
        assert_eq!(scene.turn(), [expected], "{behaviour}");
    }
    // Without EDNS there is no OPT.
    let mut scene = Scene::new("servfail=100%", 1);
    let plain = [&QUERY[..11], b"\0", &QUERY[12..QUERY.len() - 11]].concat();
    scene.ask(&plain);
    let expected = [b"\x12\x34\x81\x12", &plain[4..]].concat();
    assert_eq!(scene.turn(), [expected]);
    // A query without a number is answered: the name of the zone has no A.
    scene.ask(b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x01z\0\0\x01\0\x01");
    let reply = &scene.turn()[0];
    assert_eq!((&reply[2..4], reply[9]), (&b"\x84\0"[..], 1));
    assert_eq!(scene.faulty.counts().servfail, 1);
}

#[test]
fn each_fault_is_counted_and_zone_counters_are_unchanged() {
    let behaviour = "loss=10%,servfail=10%,refused=10%,truncate=10%,reorder=10%:1ms,duplicate=10%";
    let mut scene = Scene::new(behaviour, 100);
    (0..100).for_each(|n| scene.ask_for(n));
    let log = scene.run();
    let replies: usize = log.iter().map(|(_, ids)| ids.len()).sum();
    assert_eq!(replies, 100);
    let moments: Vec<_> = log.iter().map(|(at, ids)| (*at, ids.len())).collect();
    assert_eq!(moments, [(0, 90), (MILLISECOND, 10)]);
    let expected = FaultCounts {
        delayed: 10,
        lost: 10,
        servfail: 10,
        refused: 10,
        truncated: 10,
        reordered: 10,
        duplicated: 10,
        overflowed: 0,
    };
    assert_eq!(scene.faulty.counts(), expected);
    assert_eq!(scene.authority.counts().a, 100);
    assert_eq!(scene.authority.counts().answered, 100);
}

#[test]
fn every_reply_is_sent_its_delay_after_its_query_arrived() {
    let mut scene = Scene::new("delay=5ms", 10);
    scene.ask_for(1);
    assert_eq!(scene.turn(), [[0_u8; 0]; 0]);
    scene.clock.advance(MILLISECOND);
    scene.ask_for(2);
    scene.clock.advance(MILLISECOND);
    // The query is read only now, but arrived in the queue of the socket earlier.
    let log = scene.run();
    assert_eq!(
        log,
        [(5 * MILLISECOND, vec![1]), (6 * MILLISECOND, vec![2])]
    );
    assert_eq!(scene.faulty.counts().delayed, 2);
}

#[test]
fn later_replies_overtake_reordered_ones() {
    let mut scene = Scene::new("delay=1ms,reorder=25%:2ms", 100);
    for n in 0..8 {
        scene.ask_for(n);
        scene.turn();
        scene.clock.advance(MILLISECOND / 2);
    }
    let order: Vec<u8> = scene.run().into_iter().flat_map(|(_, ids)| ids).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_ne!(order, sorted);
    assert_eq!(scene.faulty.counts().reordered, 2);
}

#[test]
fn replies_beyond_capacity_are_counted_and_dropped() {
    let mut scene = Scene::new("delay=1ms", 3);
    (0..5).for_each(|n| scene.ask_for(n));
    assert_eq!(scene.run(), [(MILLISECOND, vec![0, 1, 2])]);
    let counts = scene.faulty.counts();
    assert_eq!((counts.delayed, counts.overflowed), (3, 2));
}

#[test]
fn worker_sleeps_only_until_shortly_before_the_next_due_reply() {
    let mut scene = Scene::new("delay=5ms", 3);
    assert_eq!(scene.faulty.sleep_ns(0, MILLISECOND), MILLISECOND);
    scene.ask_for(1);
    scene.turn();
    let sleep = |now| scene.faulty.sleep_ns(now, MILLISECOND);
    assert_eq!(sleep(0), MILLISECOND);
    assert_eq!(sleep(4 * MILLISECOND), MILLISECOND - WAKE_NS);
    assert_eq!(sleep(5 * MILLISECOND - WAKE_NS), 0);
    assert_eq!(sleep(6 * MILLISECOND), 0);
}
