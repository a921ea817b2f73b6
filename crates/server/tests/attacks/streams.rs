//! Hostile TCP connections of clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dns64_transport::clock::{MonotonicClock, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use rustix::net::sockopt;

use super::packets::{
    MESSAGE_MAX, addresses, honest, name, query, query_edns, rcode, synthesised, truncated,
};
use super::upstream::Upstream;
use super::victim::{
    ask_connection, assert_resolves, connect, descriptors, figure, framed, largest_while_unread,
    read_message, resident, start, unless_busy, wait_until,
};

#[test]
fn query_sent_octet_by_octet_is_answered() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let server = start(&upstream, "[tcp]\nidle = \"20s\"", "");
        let mut stream = connect(server.dns);
        stream.set_nodelay(true).unwrap();
        for octet in framed(&query(3, &name(3), Rtype::AAAA)) {
            stream.write_all(&[octet]).unwrap();
            MonotonicClock.sleep(SECOND / 50);
            // Other clients are served meanwhile.
            assert_resolves(server.dns, 4);
        }
        assert_eq!(addresses(&read_message(&mut stream)), [synthesised(3)]);
        server.ends();
    });
}

#[test]
fn idle_slow_reset_and_malformed_connections_leave_room_for_others() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let server = start(&upstream, "[tcp]\nconnections = 40\nidle = \"2s\"", "");
        let pid = server.child.id();
        assert_resolves(server.dns, 1);
        let before = descriptors(pid);
        // More connections than the server accepts, half of them with half a message.
        let mut idle: Vec<_> = (0..60).map(|_| connect(server.dns)).collect();
        for stream in idle.iter_mut().step_by(2) {
            // The server may have closed the connection already, to make room.
            let _ = stream.write_all(&[0xff, 0xff, 1, 2, 3]);
        }
        let good = ask_connection(server.dns, &query(1, &name(1), Rtype::AAAA));
        assert_eq!(addresses(&good), [synthesised(1)]);
        for _ in 0..50 {
            let mut stream = connect(server.dns);
            let _ = stream.write_all(&framed(&query(2, &name(2), Rtype::AAAA))[..20]);
            // A close that sends a reset.
            sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
        }
        for lie in [&[0, 0][..], &[0, 11], &[0, 1, 9], &[0, 12, 1]] {
            let mut stream = connect(server.dns);
            // The server may have closed the connection already, to make room.
            let _ = stream.write_all(lie);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            assert_closes(&mut stream);
        }
        let good = ask_connection(server.dns, &query(1, &name(5), Rtype::AAAA));
        assert_eq!(addresses(&good), [synthesised(5)]);
        // The server closes idle connections.
        idle.iter_mut().for_each(assert_closes);
        wait_until("all descriptors are closed", || descriptors(pid) <= before);
        server.ends();
    });
}

/// Checks that the server closes a connection, after it has sent its responses.
fn assert_closes(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // The connection may end with a close or a reset.
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn responses_over_tcp_get_no_response_and_leak_nothing() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let server = start(&upstream, "[tcp]\npipeline = 2\nidle = \"5s\"", "");
        let mut stream = connect(server.dns);
        let mut response = query(5, &name(5), Rtype::AAAA);
        response[2] |= 0x80;
        // More messages than the pipeline holds.
        for _ in 0..10 {
            stream.write_all(&framed(&response)).unwrap();
        }
        let question = query(6, &name(6), Rtype::AAAA);
        stream.write_all(&framed(&question)).unwrap();
        let answer = read_message(&mut stream);
        assert_eq!(
            (&answer[..2], addresses(&answer)),
            (&question[..2], vec![synthesised(6)])
        );
        assert_closes(&mut stream);
        assert_eq!(figure(&server, "tcp_closed.idle"), 1);
        server.ends();
    });
}

#[test]
fn longest_messages_are_handled_like_others() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let server = start(&upstream, "", "");
        let pid = server.child.id();
        // 16,000 options without data, which is 64,000 octets; an unknown one and many cookies.
        let unknown: Vec<u8> = [0xff, 0x12, 0, 0].repeat(16_000);
        let cookies: Vec<u8> = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8].repeat(5000);
        let nsid: Vec<u8> = [0, 3, 0, 0].repeat(16_000);
        let mut sizes = Vec::new();
        for round in 0..20 {
            for options in [&unknown, &cookies, &nsid] {
                let answer = ask_connection(server.dns, &query_edns(1, &name(1), 1232, options));
                assert_eq!(addresses(&answer), [synthesised(1)]);
                assert!(answer.len() <= 512);
            }
            // Random octets after a valid question, and random octets alone.
            let mut noise = query(4, &name(1), Rtype::AAAA);
            noise[11] = 200;
            noise.resize(MESSAGE_MAX, 0x80 | round);
            for message in [&noise, &vec![0; MESSAGE_MAX]] {
                let answer = ask_connection(server.dns, message);
                assert_eq!(rcode(&answer), Rcode::FORMERR);
            }
            sizes.push(resident(pid));
        }
        let (early, late) = (sizes[4], sizes[19]);
        // Detects a leak of one message in a hundred.
        assert!(
            late <= early + (1 << 20),
            "resident: {early} then {late} octets"
        );
        server.ends();
    });
}

#[test]
fn pipeline_of_a_thousand_queries_is_answered_and_bounded() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let server = start(&upstream, "[tcp]\npipeline = 10", "");
        let mut stream = connect(server.dns);
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            for number in 0..1000_u16 {
                let question = query(number, &name(number.into()), Rtype::AAAA);
                writer.write_all(&framed(&question)).unwrap();
            }
        });
        let mut seen = vec![false; 1000];
        for _ in 0..1000 {
            let answer = read_message(&mut stream);
            let id = u16::from_be_bytes([answer[0], answer[1]]);
            assert_eq!(addresses(&answer), [synthesised(id.into())]);
            assert!(!std::mem::replace(&mut seen[usize::from(id)], true));
        }
        writing.join().unwrap();
        server.ends();
    });
}

#[test]
fn unread_large_responses_are_bounded() {
    unless_busy(|| {
        let upstream = Upstream::large(6000);
        let server = start(&upstream, "[tcp]\nconnections-per-client = 256", "");
        let pid = server.child.id();
        let question = query(1, &name(1), Rtype::A);
        assert!(ask_connection(server.dns, &question).len() > 60_000);
        let before = resident(pid);
        let many = framed(&question).repeat(100);
        let mut streams: Vec<_> = (0..250).map(|_| connect(server.dns)).collect();
        let largest = largest_while_unread(pid, &mut streams, &many);
        assert!(
            largest <= before + UNREAD_MAX,
            "resident: {before} then {largest} octets"
        );
        drop(streams);
        let good = ask_connection(server.dns, &question);
        assert!(good.len() > 60_000);
        server.ends();
    });
}

#[test]
fn six_hundred_simultaneous_truncated_responses_are_all_retried() {
    unless_busy(|| {
        let asked = Arc::new(AtomicU64::new(0));
        let all = Arc::clone(&asked);
        let upstream = Upstream::start(
            move |socket, question| {
                let _ = socket.send_to(&truncated(&question.message), question.from);
                asked.fetch_add(1, Ordering::Relaxed);
            },
            move |question| {
                // Responses are sent after the last query has arrived.
                wait_until("all queries have arrived", || {
                    all.load(Ordering::Relaxed) >= 600
                });
                honest(question)
            },
        );
        let server = start(&upstream, "[tcp]\npipeline = 600", "");
        let mut stream = connect(server.dns);
        let queries = (0..600).flat_map(|id| framed(&query(id, &name(id.into()), Rtype::A)));
        stream.write_all(&queries.collect::<Vec<_>>()).unwrap();
        for _ in 0..600 {
            assert_eq!(rcode(&read_message(&mut stream)), Rcode::NOERROR);
        }
        assert_eq!(figure(&server, "upstream_exchanges.full"), 0);
        server.ends();
    });
}

/// Memory for 250 connections to clients that do not read: at most 64 MiB of pending responses, the
/// responses that a worker writes in one iteration, and the reserve of the allocator.
const UNREAD_MAX: u64 = 192 << 20;
