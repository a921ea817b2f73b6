//! The relay on the loopback interface: its guarantees on the real kernel.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_transport::relay::Outgoing;
use dns64_transport::relay::udp::UdpRelay;
use dns64_transport::{Arrival, ClientSide, Counters, Origin, Relay, UpstreamSide};

/// Timeout for datagrams on the loopback interface.
const LIMIT_NS: Nanos = 2 * SECOND;

/// Ports per pool.
const PORTS: usize = 64;

/// Waiting time for datagrams that must not arrive.
const SILENCE_NS: Nanos = SECOND / 20;

fn relay(listen: &[&str]) -> UdpRelay {
    let listen: Vec<SocketAddr> = listen.iter().map(|a| a.parse().unwrap()).collect();
    UdpRelay::open(&listen, false).unwrap()
}

fn copy(payload: &[u8]) -> impl FnOnce(&mut [u8]) -> usize {
    |frame| {
        frame[..payload.len()].copy_from_slice(payload);
        payload.len()
    }
}

fn reply(relay: &mut UdpRelay, origin: &Origin, payload: &[u8]) {
    relay.clients().reply(origin, copy(payload));
}

fn ask(relay: &mut UdpRelay, server: usize, port: usize, payload: &[u8]) {
    relay.upstreams().ask(server, port, copy(payload));
}

fn set_servers(relay: &mut UdpRelay, servers: &[SocketAddr]) {
    set_servers_from(relay, servers, &[]);
}

/// Sets servers that are queried from these source addresses.
fn set_servers_from(relay: &mut UdpRelay, servers: &[SocketAddr], sources: &[&str]) {
    let outgoing = Outgoing {
        sources: sources.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..Outgoing::default()
    };
    let servers: Vec<_> = servers.iter().map(|&at| (at, outgoing.clone())).collect();
    relay.upstreams().set_servers(&servers, PORTS, &[]);
}

fn flush(relay: &mut UdpRelay) {
    relay.clients().flush();
    relay.upstreams().flush();
}

fn local_addr(relay: &mut UdpRelay, i: usize) -> SocketAddr {
    relay.clients().local_addr(i).unwrap()
}

fn peer(bind: &str) -> UdpSocket {
    let socket = UdpSocket::bind(bind).unwrap();
    let limit = Duration::from_nanos(LIMIT_NS);
    socket.set_read_timeout(Some(limit)).unwrap();
    socket
}

#[derive(Default)]
struct Got {
    queries: Vec<(Origin, Vec<u8>)>,
    replies: Vec<(usize, usize, Vec<u8>)>,
    /// Upstream and port of queries that were not delivered.
    unreachable: Vec<(usize, usize)>,
}

impl Got {
    fn total(&self) -> usize {
        self.queries.len() + self.replies.len() + self.unreachable.len()
    }
}

/// Takes the datagrams that the last wait found.
fn take(relay: &mut UdpRelay, got: &mut Got) {
    let before = (got.replies.len(), got.queries.len());
    let replies = relay.upstreams().receive(|arrival| match arrival {
        Arrival::Reply {
            server,
            port,
            payload,
        } => got.replies.push((server, port, payload.to_vec())),
        Arrival::Unreachable { server, port } => got.unreachable.push((server, port)),
    });
    let queries = relay.clients().receive(64, |origin, payload, _| {
        got.queries.push((*origin, payload.to_vec()));
        0
    });
    let after = (got.replies.len(), got.queries.len());
    let told = (replies.unwrap(), queries.unwrap());
    assert_eq!((before.0 + told.0, before.1 + told.1), after);
}

/// Receives until `wanted` datagrams have arrived or `limit` has passed.
fn receive(relay: &mut UdpRelay, wanted: usize, limit: Nanos) -> Got {
    let end = MonotonicClock.now() + limit;
    let mut got = Got::default();
    while got.total() < wanted && MonotonicClock.now() < end {
        relay
            .wait(end.saturating_sub(MonotonicClock.now()))
            .unwrap();
        take(relay, &mut got);
    }
    got
}

fn read(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 8192];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..len].to_vec(), from)
}

#[test]
fn out_of_order_answers_go_to_their_clients() {
    let mut relay = relay(&["127.0.0.1:0", "[::1]:0"]);
    let clients: Vec<UdpSocket> = (0..10)
        .map(|i| {
            let client = peer(["127.0.0.1:0", "[::1]:0"][i % 2]);
            client
                .send_to(&[u8::try_from(i).unwrap()], local_addr(&mut relay, i % 2))
                .unwrap();
            client
        })
        .collect();
    let got = receive(&mut relay, 10, LIMIT_NS);
    assert_eq!(got.queries.len(), 10);
    for (origin, payload) in got.queries.iter().rev() {
        let client = &clients[usize::from(payload[0])];
        assert_eq!(origin.peer(), client.local_addr().unwrap());
        reply(&mut relay, origin, &[payload[0], 100]);
    }
    flush(&mut relay);
    for (i, client) in clients.iter().enumerate() {
        let expected = vec![u8::try_from(i).unwrap(), 100];
        assert_eq!(read(client), (expected, local_addr(&mut relay, i % 2)));
    }
    assert_eq!(relay.clients().counters().unwrap(), Counters::default());
}

#[test]
fn origin_fits_68_octets() {
    assert!(size_of::<Origin>() <= 68);
}

#[test]
fn wildcard_socket_answers_from_the_queried_address() {
    // Both families on one port.
    let mut relay = relay(&["0.0.0.0:0", "[::]:0"]);
    for (listener, asked) in [(0, "127.0.0.2"), (1, "::1")] {
        let asked: IpAddr = asked.parse().unwrap();
        let to = SocketAddr::new(asked, local_addr(&mut relay, listener).port());
        let client = peer(if asked.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        });
        client.send_to(b"q", to).unwrap();
        let got = receive(&mut relay, 1, LIMIT_NS);
        reply(&mut relay, &got.queries[0].0, b"r");
        flush(&mut relay);
        assert_eq!(read(&client), (b"r".to_vec(), to));
    }
}

#[test]
fn relays_share_an_address_and_both_families_share_a_port() {
    let mut first = relay(&["127.0.0.1:0", "0.0.0.0:0"]);
    let shared = local_addr(&mut first, 0);
    let any_v4 = local_addr(&mut first, 1);
    let any_v6 = SocketAddr::new("::".parse().unwrap(), any_v4.port());
    let second = UdpRelay::open(&[shared, any_v4, any_v6], false).unwrap();
    let mut relays = [first, second];
    let clients: Vec<UdpSocket> = (0..64).map(|_| peer("127.0.0.1:0")).collect();
    for client in &clients {
        client.send_to(b"q", shared).unwrap();
    }
    let taken = std::thread::scope(|scope| {
        let take = |relay: &mut UdpRelay| receive(relay, 64, SILENCE_NS).queries.len();
        let tasks: Vec<_> = relays
            .iter_mut()
            .map(|relay| scope.spawn(move || take(relay)))
            .collect();
        tasks
            .into_iter()
            .map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(taken.iter().sum::<usize>(), 64);
    assert!(
        taken.iter().all(|&n| n > 0),
        "64 clients, all to one relay: {taken:?}"
    );
}

#[test]
fn replies_report_the_queried_server_and_port() {
    let servers = [peer("127.0.0.1:0"), peer("[::1]:0")];
    let mut relay = relay(&[]);
    let addresses = servers.each_ref().map(|s| s.local_addr().unwrap());
    set_servers(&mut relay, &addresses);
    let asked = [(0, 0), (1, 5), (0, PORTS - 1), (1, 0)];
    for (server, port) in asked {
        ask(&mut relay, server, port, &[u8::try_from(port).unwrap()]);
    }
    flush(&mut relay);
    for server in [0, 1, 0, 1] {
        let (payload, from) = read(&servers[server]);
        assert!(from.port() >= 1024);
        servers[server].send_to(&payload, from).unwrap();
    }
    let mut got = receive(&mut relay, 4, LIMIT_NS).replies;
    got.sort();
    let mut expected: Vec<_> = asked
        .map(|(server, port)| (server, port, vec![u8::try_from(port).unwrap()]))
        .to_vec();
    expected.sort();
    assert_eq!(got, expected);
}

/// Sends a query from every port of server 0 and returns the source of each query.
fn ports(relay: &mut UdpRelay, server: &UdpSocket) -> Vec<SocketAddr> {
    (0..PORTS)
        .map(|port| {
            ask(relay, 0, port, b"?");
            flush(relay);
            read(server).1
        })
        .collect()
}

#[test]
fn ports_are_distinct_and_random_and_only_the_closed_port_changes() {
    let server = peer("127.0.0.1:0");
    let mut relay = relay(&[]);
    let address = server.local_addr().unwrap();
    set_servers(&mut relay, &[address]);
    let before = ports(&mut relay, &server);
    assert_eq!(before.iter().collect::<HashSet<_>>().len(), PORTS);
    // In a sequence with a fixed stride, the steps between neighbours would be few and equal.
    let steps: HashSet<u16> = before
        .windows(2)
        .map(|w| w[1].port().wrapping_sub(w[0].port()))
        .collect();
    assert!(steps.len() > PORTS / 2, "{before:?}");
    relay.upstreams().close(0, 9).unwrap();
    server.send_to(b"late", before[9]).unwrap();
    let after = ports(&mut relay, &server);
    for (port, (old, new)) in before.iter().zip(&after).enumerate() {
        assert_eq!(old != new, port == 9, "port {port}");
    }
    assert_eq!(receive(&mut relay, 1, SILENCE_NS).total(), 0);
}

#[test]
fn avoided_ports_are_not_opened() {
    let server = peer("127.0.0.1:0");
    let mut relay = relay(&[]);
    let avoided = [1024..=20_000, 30_000..=59_999];
    let servers = [(server.local_addr().unwrap(), Outgoing::default())];
    relay.upstreams().set_servers(&servers, PORTS, &avoided);
    let opened = ports(&mut relay, &server);
    let is_avoided = |port| avoided.iter().any(|range| range.contains(&port));
    assert!(!opened.iter().any(|at| is_avoided(at.port())), "{opened:?}");
    // Without a port that may be opened, questions are lost.
    relay
        .upstreams()
        .set_servers(&servers, PORTS, &[1024..=65_535]);
    ask(&mut relay, 0, 3, b"?");
    flush(&mut relay);
    assert_eq!(relay.upstreams().counters().unwrap().send_drops, 1);
}

#[test]
fn new_list_of_servers_closes_all_ports() {
    let servers = [peer("127.0.0.1:0"), peer("127.0.0.1:0")];
    let mut relay = relay(&[]);
    let [gone, stays] = servers.each_ref().map(|s| s.local_addr().unwrap());
    set_servers(&mut relay, &[gone, stays]);
    for server in [0, 1] {
        ask(&mut relay, server, 3, b"?");
    }
    flush(&mut relay);
    set_servers(&mut relay, &[stays]);
    for server in &servers {
        let (_, from) = read(server);
        server.send_to(b"late", from).unwrap();
    }
    assert_eq!(receive(&mut relay, 1, SILENCE_NS).total(), 0);
    ask(&mut relay, 0, 3, b"?");
    flush(&mut relay);
    let (_, from) = read(&servers[1]);
    servers[1].send_to(b"!", from).unwrap();
    let got = receive(&mut relay, 1, LIMIT_NS);
    assert_eq!(got.replies, [(0, 3, b"!".to_vec())]);
}

#[test]
fn datagram_from_another_address_is_never_passed_on() {
    let server = peer("127.0.0.1:0");
    let address = server.local_addr().unwrap();
    let mut relay = relay(&[]);
    set_servers(&mut relay, &[address]);
    ask(&mut relay, 0, 0, b"?");
    flush(&mut relay);
    let (_, from) = read(&server);
    // From another port of the server's address, and from another address.
    for stranger in ["127.0.0.1:0", "127.0.0.3:0"] {
        peer(stranger).send_to(b"boo", from).unwrap();
    }
    assert_eq!(receive(&mut relay, 1, SILENCE_NS).total(), 0);
    server.send_to(b"!", from).unwrap();
    let got = receive(&mut relay, 1, LIMIT_NS);
    assert_eq!(got.replies, [(0, 0, b"!".to_vec())]);
}

#[test]
fn queries_use_the_source_addresses_of_the_servers_family_in_turn() {
    // No interface has the third address: its ports have another one.
    let sources = ["::1", "127.0.0.5", "192.0.2.77", "127.0.0.6"];
    let mut relay = relay(&[]);
    let server = peer("127.0.0.1:0");
    set_servers_from(&mut relay, &[server.local_addr().unwrap()], &sources);
    let asked = [0, 1, 2, 3].map(|port| {
        ask(&mut relay, 0, port, b"?");
        flush(&mut relay);
        read(&server).1.ip().to_string()
    });
    let expected = ["127.0.0.5", "127.0.0.6", "127.0.0.6", "127.0.0.5"];
    assert_eq!(asked, expected);
}

#[test]
fn waker_ends_one_wait_even_if_used_before_it() {
    let mut relay = relay(&["127.0.0.1:0"]);
    let waker = relay.waker();
    let start = MonotonicClock.now();
    let task = std::thread::spawn(move || {
        MonotonicClock.sleep(SILENCE_NS);
        waker.wake();
    });
    relay.wait(10 * SECOND).unwrap();
    task.join().unwrap();
    assert!(MonotonicClock.now() - start < 9 * SECOND);
    // Used before the wait, twice, while the relay works.
    relay.waker().wake();
    relay.waker().wake();
    let mut got = Got::default();
    take(&mut relay, &mut got);
    assert_eq!(got.total(), 0);
    let start = MonotonicClock.now();
    relay.wait(10 * SECOND).unwrap();
    assert!(MonotonicClock.now() - start < 9 * SECOND);
    let start = MonotonicClock.now();
    relay.wait(SILENCE_NS).unwrap();
    assert!(
        MonotonicClock.now() - start >= SILENCE_NS,
        "woken for nothing"
    );
}

#[test]
fn queries_wait_and_the_relay_sleeps_while_not_accepting() {
    let mut relay = relay(&["127.0.0.1:0"]);
    let server = peer("127.0.0.1:0");
    set_servers(&mut relay, &[server.local_addr().unwrap()]);
    relay.clients().accept(false);
    let client = peer("127.0.0.1:0");
    client.send_to(b"q", local_addr(&mut relay, 0)).unwrap();
    let start = MonotonicClock.now();
    relay.wait(SILENCE_NS).unwrap();
    assert!(MonotonicClock.now() - start >= SILENCE_NS, "did not sleep");
    let mut got = Got::default();
    take(&mut relay, &mut got);
    assert_eq!(got.total(), 0);
    // Replies are still received meanwhile.
    ask(&mut relay, 0, 0, b"?");
    flush(&mut relay);
    server.send_to(b"!", read(&server).1).unwrap();
    assert_eq!(receive(&mut relay, 1, LIMIT_NS).replies.len(), 1);
    relay.clients().accept(true);
    assert_eq!(receive(&mut relay, 1, LIMIT_NS).queries.len(), 1);
}

#[test]
fn receive_respects_max_and_sockets_take_turns() {
    let mut relay = relay(&["127.0.0.1:0", "127.0.0.1:0"]);
    for i in 0..2 {
        for _ in 0..40 {
            // One client per query, so that the kernel coalesces none of them.
            peer("127.0.0.1:0")
                .send_to(&[i], local_addr(&mut relay, i.into()))
                .unwrap();
        }
    }
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut from = Vec::new();
        relay.wait(0).unwrap();
        let got = relay.clients().receive(20, |_, payload, _| {
            from.push(payload[0]);
            0
        });
        assert_eq!(got.unwrap(), 20);
        calls.push(from);
    }
    assert_ne!(calls[0][0], calls[1][0], "the sockets do not take turns");
    for from in &calls {
        assert_eq!(from.iter().collect::<HashSet<_>>().len(), 2, "{from:?}");
    }
}

#[test]
fn icmp_error_reports_the_queried_server_and_port() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let address = peer(address).local_addr().unwrap();
        let mut relay = relay(&[]);
        set_servers(&mut relay, &[address]);
        for _ in 0..5 {
            ask(&mut relay, 0, 0, b"?");
            flush(&mut relay);
        }
        let got = receive(&mut relay, 1, LIMIT_NS);
        assert!(!got.unreachable.is_empty());
        assert!(got.unreachable.iter().all(|place| *place == (0, 0)));
        assert!(relay.upstreams().counters().unwrap().unreachable > 0);
    }
}

#[test]
fn server_without_a_route_loses_only_its_own_queries() {
    let server = peer("127.0.0.1:0");
    let address = server.local_addr().unwrap();
    // A packet with a loopback source address can only reach this host.
    let mut relay = relay(&[]);
    let servers = ["192.0.2.99:53".parse().unwrap(), address];
    set_servers_from(&mut relay, &servers, &["127.0.0.1"]);
    for port in 0..3 {
        ask(&mut relay, 0, port, b"lost");
        ask(&mut relay, 1, port, b"?");
    }
    relay.upstreams().close(0, 0).unwrap();
    flush(&mut relay);
    for _ in 0..3 {
        assert_eq!(read(&server).0, b"?");
    }
    assert_eq!(relay.upstreams().counters().unwrap().send_drops, 3);
    // The relay does not sleep before it has reported them.
    let got = receive(&mut relay, 3, LIMIT_NS);
    assert_eq!(got.unreachable, [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn queries_and_answers_of_mixed_lengths_arrive_intact() {
    let payload = |i: usize| vec![u8::try_from(i).unwrap(); [50, 50, 50, 700, 4096, 33][i / 2 % 6]];
    let server = peer("[::1]:0");
    let mut relay = relay(&["[::1]:0"]);
    set_servers(&mut relay, &[server.local_addr().unwrap()]);
    let client = peer("[::1]:0");
    let listen = local_addr(&mut relay, 0);
    client.send_to(b"q", listen).unwrap();
    let origin = receive(&mut relay, 1, LIMIT_NS).queries[0].0;
    let all: Vec<usize> = (0..200).collect();
    // No more at once than the buffers of plain sockets can hold.
    for some in all.chunks(40) {
        for &i in some {
            ask(&mut relay, 0, 1, &payload(i));
            reply(&mut relay, &origin, &payload(i));
        }
        flush(&mut relay);
        let expected: Vec<_> = some.iter().map(|&i| payload(i)).collect();
        for socket in [&server, &client] {
            let mut got: Vec<_> = some.iter().map(|_| read(socket).0).collect();
            got.sort();
            assert!(got == expected, "{:?}", got.iter().map(Vec::len));
        }
    }
}

#[test]
fn immediate_answers_go_to_their_clients() {
    let mut relay = relay(&["[::]:0"]);
    let port = local_addr(&mut relay, 0).port();
    let listen = SocketAddr::new("::1".parse().unwrap(), port);
    let clients: Vec<UdpSocket> = (0..5).map(|_| peer("[::1]:0")).collect();
    // Four turns of the clients, so that answers of equal length to one of them are not adjacent.
    for i in 0..20 {
        clients[i % 5]
            .send_to(&[u8::try_from(i).unwrap()], listen)
            .unwrap();
    }
    relay.wait(LIMIT_NS).unwrap();
    let answered = relay.clients().receive(64, |_, payload, frame| {
        frame[..40].fill(payload[0]);
        // One query of each client has no answer.
        if payload[0] < 15 { 40 } else { 0 }
    });
    assert_eq!(answered.unwrap(), 20);
    relay.clients().flush();
    for (i, client) in clients.iter().enumerate() {
        for turn in 0..3 {
            let expected = vec![u8::try_from(5 * turn + i).unwrap(); 40];
            assert_eq!(read(client), (expected, listen));
        }
    }
    assert_eq!(relay.clients().counters().unwrap(), Counters::default());
}

#[test]
fn unsendable_frames_are_counted() {
    let mut relay = relay(&["127.0.0.1:0"]);
    let server = peer("127.0.0.1:0");
    set_servers(&mut relay, &[server.local_addr().unwrap()]);
    let client = peer("127.0.0.1:0");
    let origin = Origin::new(client.local_addr().unwrap());
    let unreachable = Origin::new("[::1]:53".parse().unwrap());
    reply(&mut relay, &unreachable, b"a socket of IPv4 cannot");
    relay.clients().reply(&origin, |_| 4097);
    reply(&mut relay, &origin, b"");
    relay.upstreams().ask(0, 0, |_| 4097);
    ask(&mut relay, 0, PORTS, b"no such port");
    ask(&mut relay, 1, 0, b"no such server");
    reply(&mut relay, &origin, b"r");
    flush(&mut relay);
    assert_eq!(read(&client).0, b"r");
    assert_eq!(relay.clients().counters().unwrap().send_drops, 3);
    assert_eq!(relay.upstreams().counters().unwrap().send_drops, 3);
}

#[test]
fn relay_listens_at_an_address_that_no_interface_has_if_it_may() {
    let listen = ["192.0.2.77:0", "[2001:db8::77]:0"].map(|at| at.parse().unwrap());
    assert!(UdpRelay::open(&listen, false).is_err());
    assert!(UdpRelay::open(&listen, true).is_ok());
}
