//! Clients with TLS on the loopback interface.

use std::net::TcpStream;

use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use super::*;
use crate::settings::TlsSettings;
use crate::tls::tests::{Issued, issue};

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Settings with a port for TLS.
fn with_tls(issued: &Issued, tcp: TcpSettings) -> Settings {
    Settings {
        tls: Some(TlsSettings {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            certificate_file: "certificate.pem".into(),
            key_file: "key.pem".into(),
            certificate: Some(issued.certificate()),
        }),
        ..settings(tcp)
    }
}

/// A client that trusts this certificate, for this version.
fn client(issued: &Issued, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(issued.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    let client = builder.with_root_certificates(roots).with_no_client_auth();
    Arc::new(client)
}

fn begin(rig: &Rig, client: &Arc<ClientConfig>) -> Tls {
    let name = ServerName::try_from(Issued::NAME).unwrap();
    let session = ClientConnection::new(Arc::clone(client), name).unwrap();
    StreamOwned::new(session, rig.connect())
}

/// Rig with a port for TLS, at which its connections go.
fn rig(issued: &Issued, tcp: TcpSettings) -> Rig {
    let rig = Rig::with(with_tls(issued, tcp));
    Rig {
        address: rig.all[1],
        ..rig
    }
}

#[test]
fn encrypted_queries_are_answered_and_sessions_resumed() {
    let issued = issue();
    for version in [&TLS12, &TLS13] {
        let rig = rig(&issued, TCP);
        let client = client(&issued, version);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut tls = begin(&rig, &client);
            // The longest message has five records.
            for len in [12, 65_535] {
                tls.write_all(&framed(&message(7, len)).unwrap()).unwrap();
                let (connection, query) = rig.query();
                assert_eq!(query, message(7, len));
                rig.reply(connection, message(7, len));
                assert_eq!(read(&mut tls), message(7, len));
            }
            assert_eq!(tls.conn.handshake_kind(), Some(kind), "{version:?}");
            tls.conn.send_close_notify();
            tls.flush().unwrap();
            // The server ends its session as well.
            assert_eq!(tls.read(&mut [0]).unwrap(), 0);
        }
        rig.wait_for(|counts| &counts.closed_client, 2);
        assert_eq!(rig.counts.closed_tls.get(), 0);
    }
}

#[test]
fn pipelined_responses_arrive_in_the_order_of_the_workers() {
    let issued = issue();
    let rig = rig(&issued, TCP);
    let mut tls = begin(&rig, &client(&issued, &TLS13));
    let all: Vec<u8> = (0..16)
        .flat_map(|id| framed(&message(id, 40)).unwrap())
        .collect();
    tls.write_all(&all).unwrap();
    let queries: Vec<_> = (0..16).map(|_| rig.query()).collect();
    for (connection, query) in queries.iter().rev() {
        rig.reply(*connection, query.clone());
    }
    for id in (0..16).rev() {
        assert_eq!(read(&mut tls), message(id, 40));
    }
}

#[test]
fn handshakes_that_fail_or_hang_are_closed_and_counted() {
    let issued = issue();
    let limits = TcpSettings {
        idle_ns: SECOND / 4,
        ..TCP
    };
    let rig = rig(&issued, limits);
    // A query in clear text gets an alert and no answer.
    let mut clear = rig.connect();
    write(&mut clear, &message(1, 40));
    assert_only_alert(&mut clear);
    rig.wait_for(|counts| &counts.closed_tls, 1);
    // One that sends nothing, and one that sends half a ClientHello.
    let mut silent = rig.connect();
    let mut half = rig.connect();
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3])
        .unwrap();
    assert_only_alert(&mut silent);
    rig.wait_for(|counts| &counts.closed_tls, 3);
    // A client that refuses the certificate.
    let mut stranger = begin(&rig, &client(&issue(), &TLS13));
    assert!(stranger.flush().is_err() || stranger.read(&mut [0]).is_err());
    rig.wait_for(|counts| &counts.closed_tls, 4);
    assert!(rig.worker.try_recv().is_err());
}

/// Checks that the server closes a connection, and sends at most an alert before (RFC 8446 section 6).
fn assert_only_alert(stream: &mut TcpStream) {
    let mut alert = Vec::new();
    // The end may be a reset.
    let _ = stream.read_to_end(&mut alert);
    assert!(alert.is_empty() || alert[0] == 21, "{alert:?}");
}

#[test]
fn full_table_of_hanging_handshakes_leaves_places_for_other_networks() {
    let issued = issue();
    let rig = rig(
        &issued,
        TcpSettings {
            per_client_max: 15,
            ..TCP
        },
    );
    let hanging: Vec<_> = (0..60)
        .map(|at| connect_from(&rig, [127, 0, at % 4, 1]))
        .collect();
    let mut tls = begin(&rig, &client(&issued, &TLS13));
    tls.sock = connect_from(&rig, [127, 0, 9, 1]);
    tls.write_all(&framed(&message(7, 40)).unwrap()).unwrap();
    let (connection, _) = rig.query();
    rig.reply(connection, message(7, 40));
    assert_eq!(read(&mut tls), message(7, 40));
    assert!(rig.counts.open.get() <= 20);
    drop(hanging);
}

#[test]
fn new_certificate_is_for_new_connections_and_old_ones_go_on() {
    let (old, new) = (issue(), issue());
    let rig = rig(&old, TCP);
    let round = |tls: &mut Tls| {
        tls.write_all(&framed(&message(7, 40)).unwrap()).unwrap();
        let (connection, query) = rig.query();
        rig.reply(connection, query);
        assert_eq!(read(tls), message(7, 40));
    };
    let mut before = begin(&rig, &client(&old, &TLS13));
    round(&mut before);
    rig.mode.send_modify(|mode| {
        mode.in_force.reload(with_tls(&new, TCP));
    });
    round(&mut begin(&rig, &client(&new, &TLS13)));
    round(&mut before);
}

#[test]
fn drained_session_gets_its_responses_and_its_end() {
    let issued = issue();
    let rig = rig(&issued, TCP);
    let mut tls = begin(&rig, &client(&issued, &TLS13));
    tls.write_all(&framed(&message(7, 40)).unwrap()).unwrap();
    let (connection, _) = rig.query();
    rig.mode.send_modify(|mode| mode.draining = true);
    rig.reply(connection, message(7, 60_000));
    assert_eq!(read(&mut tls), message(7, 60_000));
    assert_eq!(tls.read(&mut [0]).unwrap(), 0);
    rig.wait_for(|counts| &counts.closed_drain, 1);
}
