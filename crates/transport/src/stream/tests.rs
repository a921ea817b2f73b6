//! Against a scripted server on the loopback interface: every query is answered, or counted by what happened to it.

use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, spawn};

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// Reads one query; `None` at the end of the stream.
fn query(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut query).ok()?;
    Some([&len[..], &query].concat())
}

/// Serves the first `of` connections of a listener by `script`, one after the other.
fn server(
    of: usize,
    mut script: impl FnMut(usize, TcpStream) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = spawn(move || {
        for k in 0..of {
            script(k, listener.accept().unwrap().0);
        }
    });
    (address, thread)
}

fn options(queries_per_connection: Option<u32>) -> Options {
    Options {
        tls: false,
        queries_per_connection,
        patience_ns: 10 * SECOND,
        most: 8,
    }
}

fn link(server: SocketAddr, queries_per_connection: Option<u32>) -> StreamLink {
    StreamLink::client(server, &[], 1, options(queries_per_connection)).unwrap()
}

/// Sends queries with the octets `first` and so on from port 0; returns how many were taken.
fn ask(link: &mut StreamLink, first: u8, n: u8) -> usize {
    let fill = |i: usize, frame: &mut [u8]| {
        frame[..3].copy_from_slice(&[first + u8::try_from(i).unwrap(), 7, 7]);
        3
    };
    link.send(0, n.into(), fill).unwrap()
}

/// Receives until `enough` is true; returns the first octets of the responses.
fn until(link: &mut StreamLink, mut enough: impl FnMut(&[u8], &Connections) -> bool) -> Vec<u8> {
    let give_up = MonotonicClock.now() + 120 * SECOND;
    let mut got = Vec::new();
    while !enough(&got, &link.counted) {
        assert!(
            MonotonicClock.now() < give_up,
            "{got:?}, {:?}",
            link.counted
        );
        link.wait(SECOND / 10).unwrap();
        link.receive(64, |datagram| got.push(datagram.payload[0]))
            .unwrap();
    }
    got
}

#[test]
fn responses_in_another_order_and_in_pieces_are_received() {
    let (address, thread) = server(1, |_, mut stream| {
        let queries: Vec<_> = (0..3).map_while(|_| query(&mut stream)).collect();
        let reversed: Vec<u8> = queries.into_iter().rev().flatten().collect();
        stream.set_nodelay(true).unwrap();
        for octet in reversed {
            stream.write_all(&[octet]).unwrap();
        }
        assert_eq!(query(&mut stream), None);
    });
    let mut link = link(address, None);
    assert_eq!(ask(&mut link, 1, 3), 3);
    assert_eq!(until(&mut link, |got, _| got.len() == 3), [3, 2, 1]);
    let connections = link.connections();
    assert_eq!(connections.established, 1);
    assert_eq!(connections.at_opening, 1);
    assert_eq!(connections.set_up_ns.len(), 1);
    assert_eq!(connections.lost, [0; 5]);
    drop(link);
    thread.join().unwrap();
}

#[test]
fn connection_is_replaced_after_its_queries_and_closed_after_its_last_response() {
    let (address, thread) = server(4, |k, mut stream| {
        if k < 3 {
            let two = [query(&mut stream).unwrap(), query(&mut stream).unwrap()];
            stream.write_all(&two.concat()).unwrap();
        }
        // Closed by the client, and not before the responses.
        assert_eq!(query(&mut stream), None);
    });
    let mut link = link(address, Some(2));
    // A server that accepts one connection after the other: the second one waits for the end of the first.
    assert_eq!(ask(&mut link, 1, 4), 4);
    let got = until(&mut link, |got, _| got.len() == 4);
    assert_eq!(got, [1, 2, 3, 4]);
    assert_eq!(ask(&mut link, 5, 2), 2);
    assert_eq!(until(&mut link, |got, _| got.len() == 2), [5, 6]);
    let connections = link.connections();
    assert_eq!((connections.ended, connections.ended_idle), ([0; 5], 0));
    assert_eq!(connections.lost, [0; 5]);
    drop(link);
    thread.join().unwrap();
}

#[test]
fn idle_connection_that_the_server_closes_is_replaced_and_costs_no_query() {
    let (address, thread) = server(2, |_, mut stream| {
        let asked = query(&mut stream).unwrap();
        stream.write_all(&asked).unwrap();
    });
    let mut link = link(address, None);
    assert_eq!(ask(&mut link, 1, 1), 1);
    let got = until(&mut link, |_, counted| counted.ended_idle == 1);
    assert_eq!(got, [1]);
    assert_eq!(ask(&mut link, 2, 1), 1);
    assert_eq!(until(&mut link, |got, _| got.len() == 1), [2]);
    assert_eq!(link.connections().lost, [0; 5]);
    drop(link);
    thread.join().unwrap();
}

#[test]
fn queries_on_a_connection_that_the_server_closes_are_lost_by_that() {
    let (address, thread) = server(1, |_, mut stream| {
        let asked = [query(&mut stream).unwrap(), query(&mut stream).unwrap()];
        let last = query(&mut stream);
        stream.write_all(&asked[0]).unwrap();
        assert!(last.is_some());
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(query(&mut stream), None);
    });
    let mut link = link(address, None);
    assert_eq!(ask(&mut link, 1, 3), 3);
    let got = until(&mut link, |_, counted| counted.lost != [0; 5]);
    assert_eq!(got, [1]);
    let connections = link.connections();
    assert_eq!(connections.ended, [0, 0, 1, 0, 0]);
    assert_eq!(connections.lost, [0, 0, 2, 0, 0]);
    drop(link);
    thread.join().unwrap();
}

#[test]
fn queries_on_a_connection_that_the_server_resets_are_lost_by_that() {
    let (address, thread) = server(1, |_, mut stream| {
        // A socket that is closed with unread octets resets its connection.
        stream.read_exact(&mut [0]).unwrap();
    });
    let mut link = link(address, None);
    assert_eq!(ask(&mut link, 1, 3), 3);
    until(&mut link, |_, counted| counted.lost != [0; 5]);
    assert_eq!(link.connections().lost, [0, 3, 0, 0, 0]);
    thread.join().unwrap();
}

#[test]
fn queries_without_a_listener_are_lost_by_refusals() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let mut link = link(address, None);
    assert_eq!(ask(&mut link, 1, 3), 3);
    until(&mut link, |_, counted| counted.lost[0] == 3);
    let connections = link.connections();
    assert_eq!(connections.established, 0);
    assert!(connections.ended[0] > 0);
    assert_eq!(connections.lost, [3, 0, 0, 0, 0]);
    assert!(link.counters().unwrap().unreachable > 0);
}

#[test]
fn queries_to_a_server_that_does_not_read_are_lost_by_its_window() {
    let (end, ended) = channel::<()>();
    let (address, thread) = server(1, move |_, _stream| {
        // Nothing is read until the end of the test.
        let _ = ended.recv();
    });
    let mut link = link(address, None);
    let big = |_: usize, frame: &mut [u8]| {
        frame.fill(1);
        frame.len()
    };
    let mut sent = 0;
    while link.counted.not_read == 0 {
        assert_eq!(link.send(0, 1, big).unwrap(), 1, "after {sent}");
        sent += 1;
        link.receive(64, |_| ()).unwrap();
    }
    assert_eq!(link.connections().not_read, 1);
    drop(end);
    thread.join().unwrap();
}

#[test]
fn used_up_connection_without_responses_is_closed_after_the_patience() {
    let (address, thread) = server(2, |k, mut stream| {
        assert!(query(&mut stream).is_some());
        if k == 0 {
            assert_eq!(query(&mut stream), None);
        }
    });
    let options = Options {
        patience_ns: SECOND / 100,
        ..options(Some(1))
    };
    let mut link = StreamLink::client(address, &[], 1, options).unwrap();
    assert_eq!(ask(&mut link, 1, 1), 1);
    while !link.retired.is_empty() {
        link.receive(64, |_| ()).unwrap();
    }
    assert_eq!(link.connections().lost, [0; 5]);
    // Until the server has read it: whether it closes before the patience ends depends on the machine.
    assert_eq!(ask(&mut link, 2, 1), 1);
    until(&mut link, |_, _| thread.is_finished());
    thread.join().unwrap();
}

/// A session of a server with a certificate that nobody has signed.
fn session(stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
    let certificate = CertificateDer::from(&include_bytes!("testdata/server.crt.der")[..]);
    let key = PrivatePkcs8KeyDer::from(&include_bytes!("testdata/server.key.der")[..]);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    let connection = ServerConnection::new(Arc::new(config)).unwrap();
    StreamOwned::new(connection, stream)
}

fn tls_link(server: SocketAddr, queries_per_connection: Option<u32>) -> StreamLink {
    let options = Options {
        tls: true,
        ..options(queries_per_connection)
    };
    StreamLink::client(server, &[], 1, options).unwrap()
}

#[test]
fn queries_over_tls_are_answered_and_connections_replaced() {
    let (address, thread) = server(3, |k, stream| {
        let mut stream = session(stream);
        if k < 2 {
            let two = [query(&mut stream).unwrap(), query(&mut stream).unwrap()];
            stream.write_all(&two.concat()).unwrap();
        }
        // Ended by the client in order, or the handshake was never made.
        assert_eq!(query(&mut stream), None);
    });
    let mut link = tls_link(address, Some(2));
    assert_eq!(link.connections().at_opening, 1);
    assert_eq!(ask(&mut link, 1, 4), 4);
    assert_eq!(until(&mut link, |got, _| got.len() == 4), [1, 2, 3, 4]);
    let connections = link.connections();
    assert_eq!((connections.ended, connections.ended_idle), ([0; 5], 0));
    assert_eq!(connections.lost, [0; 5]);
    assert_eq!(link.carrier(), Carrier::Tls);
    drop(link);
    thread.join().unwrap();
}

#[test]
fn session_that_the_server_closes_is_an_ended_connection() {
    let (address, thread) = server(1, |_, stream| {
        let mut stream = session(stream);
        let asked = query(&mut stream).unwrap();
        stream.write_all(&asked).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    let mut link = tls_link(address, None);
    assert_eq!(ask(&mut link, 1, 1), 1);
    let got = until(&mut link, |_, counted| counted.ended_idle == 1);
    assert_eq!(got, [1]);
    assert_eq!(link.connections().lost, [0; 5]);
    thread.join().unwrap();
}

#[test]
fn server_without_tls_ends_the_handshake() {
    let (address, thread) = server(1, |_, mut stream| {
        stream.write_all(b"this is no handshake").unwrap();
    });
    let connections = tls_link(address, None).connections();
    assert_eq!(connections.established, 0);
    assert_eq!(connections.ended[Ending::Tls as usize], 1);
    thread.join().unwrap();
}
