//! Hostile TLS connections of clients.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::Arc;

use dns64_wire::codes::Rtype;
use rustls::ClientConfig;
use tempfile::TempDir;

use super::packets::{addresses, name, query, synthesised};
use super::support::{Server, free_port};
use super::tls;
use super::upstream::Upstream;
use super::victim::{
    assert_resolves, connect, figure, framed, largest_while_unread, read_message, resident,
    unless_busy, wait_until,
};

/// A server with TLS, which also answers in clear text.
struct Victim {
    server: Server,
    listen: SocketAddr,
    client: Arc<ClientConfig>,
    _certificate: TempDir,
}

impl Victim {
    fn start(upstream: &Upstream, tcp: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let client = tls::issue(folder.path());
        let settings = || {
            let listen = free_port();
            let text = format!(
                "workers = 1\n[tcp]\n{tcp}\n[upstream]\nservers = [\"{}\"]\n{}",
                upstream.address,
                tls::table(folder.path(), listen)
            );
            (text, listen)
        };
        let (server, listen) = Server::start_with(settings, &[], Stdio::null);
        Self {
            server,
            listen,
            client,
            _certificate: folder,
        }
    }

    fn assert_answers(&self, number: u32) {
        let mut tls = tls::connect(&self.client, self.listen);
        tls.write_all(&framed(&query(1, &name(number), Rtype::AAAA)))
            .unwrap();
        assert_eq!(addresses(&read_message(&mut tls)), [synthesised(number)]);
    }
}

/// Unbound CVE-2026-50046: a full table of handshakes that hang or fail.
#[test]
fn hanging_and_failing_handshakes_leave_room_for_others() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let victim = Victim::start(&upstream, "connections = 40\nidle = \"2s\"");
        victim.assert_answers(1);
        // The first octets of a ClientHello, and none.
        let mut hanging: Vec<_> = (0..60).map(|_| connect(victim.listen)).collect();
        for stream in hanging.iter_mut().step_by(2) {
            // The server may have closed the connection already, to make room.
            let _ = stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]);
        }
        victim.assert_answers(2);
        for _ in 0..200 {
            let mut stream = TcpStream::connect(victim.listen).unwrap();
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
        }
        // Clients that refuse the certificate.
        let stranger = tls::issue(tempfile::tempdir().unwrap().path());
        for _ in 0..20 {
            let mut stream = tls::connect(&stranger, victim.listen);
            assert!(stream.read(&mut [0]).is_err());
        }
        victim.assert_answers(3);
        assert_resolves(victim.server.dns, 4);
        wait_until("all connections are closed", || {
            figure(&victim.server, "tcp_open") == 0
        });
        assert!(figure(&victim.server, "tcp_closed.tls") >= 60);
        victim.server.ends();
    });
}

#[test]
fn datagrams_are_answered_during_a_flood_of_handshakes() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let victim = Victim::start(&upstream, "connections-per-client = 10");
        let pid = victim.server.child.id();
        victim.assert_answers(1);
        let before = resident(pid);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let mut tls = tls::connect(&victim.client, victim.listen);
                        // The connection may be closed for another.
                        let _ = tls.write_all(&[0]);
                        let _ = tls.flush();
                    }
                });
            }
            for number in 2..50 {
                assert_resolves(victim.server.dns, number);
            }
        });
        victim.assert_answers(50);
        let after = resident(pid);
        assert!(
            after <= before + (32 << 20),
            "resident: {before} then {after} octets"
        );
        victim.server.ends();
    });
}

#[test]
fn unread_encrypted_responses_are_bounded() {
    unless_busy(|| {
        let upstream = Upstream::large(3900);
        let victim = Victim::start(&upstream, "connections-per-client = 256");
        let pid = victim.server.child.id();
        let question = framed(&query(1, &name(1), Rtype::A));
        let ask = || {
            let mut tls = tls::connect(&victim.client, victim.listen);
            tls.write_all(&question).unwrap();
            assert!(read_message(&mut tls).len() > 60_000);
            tls
        };
        let mut slow: Vec<_> = (0..100).map(|_| ask()).collect();
        let before = resident(pid);
        let largest = largest_while_unread(pid, &mut slow, &question.repeat(100));
        // The limit of all unread responses, records of one response on each connection, and the reserve of the
        // allocator.
        let most = before + (128 << 20);
        assert!(largest <= most, "resident: {before} then {largest} octets");
        drop(slow);
        ask();
        victim.server.ends();
    });
}
