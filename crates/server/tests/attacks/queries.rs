//! Hostile queries over UDP.

use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::time::Duration;

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Section};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::packets::{
    Record, address, addresses, asked, honest, mutant, name, number, query, query_edns, rcode,
    response, synthesised, truncated,
};
use super::support::PATIENCE;
use super::upstream::Upstream;
use super::victim::{
    ask, ask_name, assert_resolves, connect, descriptors, figure, framed, resident, socket, start,
    unless_busy, wait_until,
};

/// Number of mutants in a round.
const MUTANTS: u32 = 20_000;

/// Number of mutants that are sent before the responses are read; a receive buffer holds them.
const BATCH: u32 = 50;

/// Limit for the growth of the resident memory in the second of two equal rounds, for pages that
/// the allocator keeps. A leak of 100 octets per query would be 2 MB.
const GROWTH_MAX: u64 = 1 << 20;

/// Sends mutants of valid queries. The responses that arrive must be messages.
fn send_mutants(to: std::net::SocketAddr, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let socket = socket(to, Duration::from_millis(1));
    let cookie = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    for number in 0..MUTANTS {
        let name = name(number % 64);
        let id = number.to_le_bytes();
        let id = u16::from_le_bytes([id[0], id[1]]);
        let sound = match number % 3 {
            0 => query(id, &name, Rtype::AAAA),
            1 => query(id, &name, Rtype::PTR),
            _ => query_edns(id, &name, 4096, &cookie),
        };
        // A mutant that is too long for a datagram is not sent.
        let _ = socket.send(&mutant(&sound, &mut random));
        if number % BATCH == 0 {
            look_at_answers(&socket);
        }
    }
    look_at_answers(&socket);
}

fn look_at_answers(socket: &UdpSocket) {
    let mut answer = [0; 4096];
    while let Ok(len) = socket.recv(&mut answer) {
        let message = Message::parse(&answer[..len]).unwrap();
        assert!(message.qr());
        assert!(message.records().all(|record| record.is_ok()));
    }
}

#[test]
fn forged_header_of_an_unlisted_proxy_is_not_read() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let more = "proxy-protocol = [\"127.0.0.2\"]\nallow = [\"192.0.2.7\"]";
        let server = start(&upstream, more, "");
        let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\xc0\0\x02\x07\x7f\0\0\x01\x10\0\0\x35";
        let query = query(0x0d0a, &name(1), Rtype::AAAA);
        let forged = [&header[..], &query].concat();
        // The ID is the first octets of the header.
        assert_ne!(rcode(&ask(server.dns, &forged)), Rcode::NOERROR);
        let mut stream = connect(server.dns);
        // The server may have closed the connection already.
        let _ = stream.write_all(&[&header[..], &framed(&query)].concat());
        let ended = stream.read(&mut [0]);
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        assert_eq!(figure(&server, "tcp_refused.access"), 1);
        let proxy = UdpSocket::bind("127.0.0.2:0").unwrap();
        proxy.set_read_timeout(Some(PATIENCE)).unwrap();
        proxy.send_to(&forged, server.dns).unwrap();
        let mut answer = [0; 512];
        let len = proxy.recv(&mut answer).unwrap();
        assert_eq!(addresses(&answer[..len]), [synthesised(1)]);
        server.ends();
    });
}

#[test]
fn forty_thousand_mutants_leak_nothing() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        // Limits the number of concurrent queries, and with it the memory of the allocator,
        // independently of the machine.
        let server = start(&upstream, "queries-max = 500", "");
        let pid = server.child.id();
        send_mutants(server.dns, 1);
        let settled = || {
            wait_until("the server is idle", || {
                figure(&server, "queries_waiting") == 0
            })
        };
        settled();
        let before = (resident(pid), descriptors(pid));
        send_mutants(server.dns, 1);
        settled();
        let after = resident(pid);
        assert!(
            after <= before.0 + GROWTH_MAX,
            "resident: {} then {after} octets",
            before.0,
        );
        // A port that is being replaced, or the control connection for the figures, may hold a
        // descriptor for a moment.
        wait_until("all descriptors are closed", || {
            descriptors(pid) <= before.1
        });
        assert_resolves(server.dns, 70_000);
        server.ends();
    });
}

#[test]
fn responses_get_no_response() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let server = start(&upstream, "", "");
        let socket = socket(server.dns, PATIENCE);
        let question = query(7, &name(1), Rtype::AAAA);
        let answer = ask(server.dns, &question);
        let mut bare = question.clone();
        bare[2] |= 0x80;
        for message in [&answer, &bare, &honest(&question), &vec![0xff; 12]] {
            for _ in 0..25 {
                socket.send(message).unwrap();
            }
        }
        socket.send(&[0; 11]).unwrap();
        socket.send(&[]).unwrap();
        // The first response belongs to the first valid query.
        let good = query(0x7777, &name(2), Rtype::AAAA);
        socket.send(&good).unwrap();
        let mut first = [0; 512];
        socket.recv(&mut first).unwrap();
        assert_eq!(first[..2], good[..2]);
        assert_eq!(figure(&server, "dropped.response"), 100);
        server.ends();
    });
}

#[test]
fn small_query_gets_a_bounded_response() {
    unless_busy(|| {
        // 400 addresses: at least 6,400 octets.
        let large = |query: &[u8]| {
            let name = name(1);
            let record = |i| Record::a(Section::Answer, &name, address(i));
            let records: Vec<_> = (0..400).map(record).collect();
            response(query, Rcode::NOERROR, &records)
        };
        let upstream = Upstream::start(
            |socket, question| {
                let _ = socket.send_to(&truncated(&question.message), question.from);
            },
            move |question| match asked(question).1 {
                Rtype::A => large(question),
                _ => honest(question),
            },
        );
        let server = start(&upstream, "", "");
        for rtype in [Rtype::A, Rtype::AAAA, Rtype::ANY] {
            let question = query(1, &name(1), rtype);
            let answer = ask(server.dns, &question);
            assert!(answer.len() <= 512, "{} octets for {rtype}", answer.len());
            assert!(rtype == Rtype::ANY || answer[2] & 2 != 0, "TC");
        }
        let answer = ask(server.dns, &query_edns(2, &name(1), 65_535, &[]));
        assert!(answer.len() <= 1232, "{} octets", answer.len());
        server.ends();
    });
}

#[test]
fn equal_queries_share_one_upstream_query() {
    unless_busy(|| {
        let mut held = Vec::new();
        let mut all_have_asked = false;
        let upstream = Upstream::start(
            move |socket, question| {
                held.push(question.clone());
                // The query for this name shows that all have been sent.
                all_have_asked |= number(&asked(&question.message).0) == Some(99);
                if all_have_asked {
                    for question in held.drain(..) {
                        let _ = socket.send_to(&honest(&question.message), question.from);
                    }
                }
            },
            honest,
        );
        let server = start(&upstream, "", "timeout = \"4500ms\"");
        let clients: Vec<_> = (0..30).map(|_| socket(server.dns, PATIENCE)).collect();
        for (id, client) in (0..).zip(&clients) {
            let question = query(id, &name(5), Rtype::AAAA);
            client.send(&question).unwrap();
        }
        wait_until("all queries wait", || {
            figure(&server, "queries_waiting") == 30
        });
        ask_name(server.dns, &name(99), Rtype::A);
        for client in &clients {
            let mut answer = [0; 512];
            let len = client.recv(&mut answer).unwrap();
            let (answer, made) = (&answer[..len], synthesised(5));
            // On a busy machine the query may arrive after the server's deadline.
            let failed = rcode(answer) == Rcode::SERVFAIL;
            assert!(failed || addresses(answer) == [made]);
        }
        // There may also be one or two retries before it.
        assert!((1..=3).contains(&upstream.times_asked("n5.example", Rtype::AAAA)));
        assert!(upstream.times_asked("n5.example", Rtype::A) <= 3);
        server.ends();
    });
}

#[test]
fn upstream_queries_have_random_ports_and_ids() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let server = start(&upstream, "", "");
        for number in 0..500 {
            ask_name(server.dns, &name(number), Rtype::A);
        }
        let asked = upstream.asked();
        assert!(asked.len() >= 500);
        let distinct = |mut values: Vec<u16>| {
            values.sort_unstable();
            values.dedup();
            values
        };
        let ports = distinct(asked.iter().map(|q| q.from.port()).collect());
        let id = |message: &[u8]| u16::from_be_bytes([message[0], message[1]]);
        let ids = distinct(asked.iter().map(|q| id(&q.message)).collect());
        // 500 draws from 64 ports miss 0.02 of them on average; from 65,536 IDs 2 are drawn twice.
        assert!(ports.len() >= 56, "{} ports", ports.len());
        assert!(ids.len() >= 480, "{} IDs", ids.len());
        let sixteenths = distinct(ids.iter().map(|id| id >> 12).collect());
        assert_eq!(sixteenths.len(), 16);
        // Neither ports nor IDs are in a predictable order.
        let steps = asked
            .windows(2)
            .map(|pair| id(&pair[1].message).wrapping_sub(id(&pair[0].message)));
        assert!(distinct(steps.collect()).len() >= 400);
        server.ends();
    });
}
