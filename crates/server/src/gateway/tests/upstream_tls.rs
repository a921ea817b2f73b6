//! Upstreams with TLS on the loopback interface.

use rustls::{RootCertStore, ServerConnection, StreamOwned};

use super::*;
use crate::settings::{Upstream, UpstreamTls};
use crate::tls::client::{Authentication, Pin, Sessions, pin};
use crate::tls::tests::{Issued, issue};

/// An upstream that echoes the queries on its connections, with TLS.
fn upstream(issued: &Issued) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let certificate = issued.certificate();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let session = ServerConnection::new(Arc::clone(certificate.sessions())).unwrap();
            let mut tls = StreamOwned::new(session, stream.unwrap());
            thread::spawn(move || {
                let mut length = [0; 2];
                while tls.read_exact(&mut length).is_ok() {
                    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                    tls.read_exact(&mut message).unwrap();
                    tls.write_all(&framed(&message).unwrap()).unwrap();
                }
            });
        }
    });
    address
}

/// Settings with one upstream, which the certificate authenticates.
fn with(address: SocketAddr, authentication: Authentication, issued: &Issued) -> Settings {
    let mut roots = RootCertStore::empty();
    roots.add(issued.der.clone()).unwrap();
    let sessions = Sessions::new(&authentication, roots).unwrap();
    let mut settings = settings(TCP);
    settings.upstreams = vec![Upstream {
        address,
        tls: Some(UpstreamTls {
            authentication,
            roots: None,
            sessions: Some(sessions),
        }),
        ..settings.upstreams[0].clone()
    }];
    settings
}

fn rig(address: SocketAddr, authentication: Authentication, issued: &Issued) -> Rig {
    Rig::with(with(address, authentication, issued))
}

fn ask(rig: &Rig, exchange: u64, server: SocketAddr, timeout_ns: Nanos) {
    assert!(rig.gateway.send(ToGateway::Ask {
        worker: 0,
        exchange,
        server,
        tls: true,
        timeout_ns,
        message: message(7, 30),
    }));
}

fn named(name: &str) -> Authentication {
    Authentication::Name(name.to_owned().try_into().unwrap())
}

fn pinned(pin: Pin) -> Authentication {
    Authentication::Pins(vec![[0; 32], pin])
}

#[test]
fn authenticated_upstream_is_queried_over_a_kept_session() {
    let issued = issue();
    for authentication in [named(Issued::NAME), pinned(pin(&issued.der).unwrap())] {
        let server = upstream(&issued);
        let rig = rig(server, authentication, &issued);
        for exchange in 0..100 {
            ask(&rig, exchange, server, 15 * SECOND);
            assert_eq!(rig.answer(), (exchange, Ok(message(7, 30))));
        }
        assert_eq!(rig.counts.upstream_opened.get(), 1);
        assert_eq!(rig.counts.upstream_reused.get(), 99);
    }
}

#[test]
fn session_begins_from_the_source_of_the_upstream() {
    let issued = issue();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let mut settings = with(server, named(Issued::NAME), &issued);
    settings.upstreams[0].outgoing.sources = vec!["127.0.0.5".parse().unwrap()];
    let rig = Rig::with(settings);
    ask(&rig, 1, server, 15 * SECOND);
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "127.0.0.5");
}

#[test]
fn upstream_with_another_certificate_gets_no_query() {
    let (issued, other) = (issue(), issue());
    let all = [
        (named("other.example"), &issued),
        (named(Issued::NAME), &other),
        (pinned(pin(&other.der).unwrap()), &issued),
    ];
    for (authentication, trusted) in all {
        let server = upstream(&issued);
        let rig = rig(server, authentication, trusted);
        for exchange in 0..2 {
            ask(&rig, exchange, server, 15 * SECOND);
            assert_eq!(rig.answer(), (exchange, Err(ConnectionFailed::Tls)));
        }
        assert_eq!(rig.counts.upstream_tls_failed.get(), 2);
        assert_eq!(rig.counts.upstream_opened.get(), 0);
    }
}

#[test]
fn upstream_without_tls_fails_in_time() {
    let issued = issue();
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let clear = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_clear = clear.local_addr().unwrap();
    thread::spawn(move || {
        for stream in clear.incoming() {
            // The end may be a reset.
            let _ = stream.unwrap().write_all(&framed(&message(7, 30)).unwrap());
        }
    });
    for (server, timeout_ns) in [
        (gone, 15 * SECOND),
        (in_clear, 15 * SECOND),
        (silent.local_addr().unwrap(), 15 * SECOND),
        (silent.local_addr().unwrap(), SECOND / 10),
    ] {
        let rig = rig(server, named(Issued::NAME), &issued);
        ask(&rig, 1, server, timeout_ns);
        assert_eq!(rig.answer(), (1, Err(ConnectionFailed::Tls)));
    }
}
