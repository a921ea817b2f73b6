//! The relay on the loopback interface: what it promises, against the real kernel.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_transport::relay::udp::UdpRelay;
use dns64_transport::{Arrival, Origin, PORTS_PER_SERVER, Relay};

/// Nothing on the loopback interface takes longer than this, unless it never comes.
const LIMIT_NS: Nanos = 2 * SECOND;

/// What never comes is waited for this long.
const SILENCE_NS: Nanos = SECOND / 20;

fn relay(listen: &[&str]) -> UdpRelay {
    let listen: Vec<SocketAddr> = listen.iter().map(|a| a.parse().unwrap()).collect();
    UdpRelay::open(&listen, &[]).unwrap()
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
}

impl Got {
    fn total(&self) -> usize {
        self.queries.len() + self.replies.len()
    }
}

/// Receives until `wanted` datagrams are there or `limit` has passed.
fn receive(relay: &mut UdpRelay, wanted: usize, limit: Nanos) -> Got {
    let end = MonotonicClock.now() + limit;
    let mut got = Got::default();
    while got.total() < wanted && MonotonicClock.now() < end {
        relay
            .wait(end.saturating_sub(MonotonicClock.now()))
            .unwrap();
        let before = got.total();
        let told = relay.receive(64, |arrival| match arrival {
            Arrival::Query { origin, payload } => got.queries.push((*origin, payload.to_vec())),
            Arrival::Reply {
                server,
                port,
                payload,
            } => got.replies.push((server, port, payload.to_vec())),
        });
        assert_eq!(told.unwrap(), got.total() - before);
    }
    got
}

fn read(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 8192];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..len].to_vec(), from)
}

#[test]
fn answers_go_back_out_of_order_to_whoever_asked() {
    let mut relay = relay(&["127.0.0.1:0", "[::1]:0"]);
    let clients: Vec<UdpSocket> = (0..10)
        .map(|i| {
            let client = peer(["127.0.0.1:0", "[::1]:0"][i % 2]);
            client
                .send_to(
                    &[u8::try_from(i).unwrap()],
                    relay.local_addr(i % 2).unwrap(),
                )
                .unwrap();
            client
        })
        .collect();
    let got = receive(&mut relay, 10, LIMIT_NS);
    assert_eq!(got.queries.len(), 10);
    for (origin, payload) in got.queries.iter().rev() {
        let client = &clients[usize::from(payload[0])];
        assert_eq!(origin.peer(), client.local_addr().unwrap());
        relay.reply(origin, &[payload[0], 100]).unwrap();
    }
    relay.flush().unwrap();
    for (i, client) in clients.iter().enumerate() {
        let expected = vec![u8::try_from(i).unwrap(), 100];
        assert_eq!(read(client), (expected, relay.local_addr(i % 2).unwrap()));
    }
    assert_eq!(
        relay.counters().unwrap(),
        dns64_transport::Counters::default()
    );
}

#[test]
fn an_origin_is_small() {
    assert!(size_of::<Origin>() <= 64);
}

#[test]
fn a_wildcard_socket_answers_from_the_address_that_was_asked() {
    // Both families at one port.
    let mut relay = relay(&["0.0.0.0:0", "[::]:0"]);
    for (listener, asked) in [(0, "127.0.0.2"), (1, "::1")] {
        let asked: IpAddr = asked.parse().unwrap();
        let to = SocketAddr::new(asked, relay.local_addr(listener).unwrap().port());
        let client = peer(if asked.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        });
        client.send_to(b"q", to).unwrap();
        let got = receive(&mut relay, 1, LIMIT_NS);
        relay.reply(&got.queries[0].0, b"r").unwrap();
        relay.flush().unwrap();
        assert_eq!(read(&client), (b"r".to_vec(), to));
    }
}

#[test]
fn several_relays_share_an_address_and_both_families_a_port() {
    let first = relay(&["127.0.0.1:0", "0.0.0.0:0"]);
    let shared = first.local_addr(0).unwrap();
    let any_v4 = first.local_addr(1).unwrap();
    let any_v6 = SocketAddr::new("::".parse().unwrap(), any_v4.port());
    let second = UdpRelay::open(&[shared, any_v4, any_v6], &[]).unwrap();
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
fn replies_tell_the_server_and_the_port_that_were_asked() {
    let servers = [peer("127.0.0.1:0"), peer("[::1]:0")];
    let mut relay = relay(&[]);
    let addresses = servers.each_ref().map(|s| s.local_addr().unwrap());
    relay.set_servers(&addresses).unwrap();
    let asked = [(0, 0), (1, 5), (0, PORTS_PER_SERVER - 1), (1, 0)];
    for (server, port) in asked {
        relay
            .ask(server, port, &[u8::try_from(port).unwrap()])
            .unwrap();
    }
    relay.flush().unwrap();
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

/// Asks at every port of server 0 and returns from where each question came.
fn ports(relay: &mut UdpRelay, server: &UdpSocket) -> Vec<SocketAddr> {
    (0..PORTS_PER_SERVER)
        .map(|port| {
            relay.ask(0, port, b"?").unwrap();
            relay.flush().unwrap();
            read(server).1
        })
        .collect()
}

#[test]
fn ports_are_distinct_and_spread_and_only_the_renewed_one_changes() {
    let server = peer("127.0.0.1:0");
    let mut relay = relay(&[]);
    let address = server.local_addr().unwrap();
    relay.set_servers(&[address]).unwrap();
    let before = ports(&mut relay, &server);
    assert_eq!(
        before.iter().collect::<HashSet<_>>().len(),
        PORTS_PER_SERVER
    );
    // Steps between neighbours of a sequence, or of a fixed stride, would be few and alike.
    let steps: HashSet<u16> = before
        .windows(2)
        .map(|w| w[1].port().wrapping_sub(w[0].port()))
        .collect();
    assert!(steps.len() > PORTS_PER_SERVER / 2, "{before:?}");
    relay.renew(0, 9).unwrap();
    server.send_to(b"late", before[9]).unwrap();
    // The same server beside another keeps its ports, whatever its number was.
    relay
        .set_servers(&[address, "127.0.0.1:9".parse().unwrap()])
        .unwrap();
    let after = ports(&mut relay, &server);
    for (port, (old, new)) in before.iter().zip(&after).enumerate() {
        assert_eq!(old != new, port == 9, "port {port}");
    }
    assert_eq!(receive(&mut relay, 1, SILENCE_NS).total(), 0);
}

#[test]
fn a_server_that_stays_is_heard_under_its_new_number() {
    let servers = [peer("127.0.0.1:0"), peer("127.0.0.1:0")];
    let mut relay = relay(&[]);
    let [gone, stays] = servers.each_ref().map(|s| s.local_addr().unwrap());
    relay.set_servers(&[gone, stays]).unwrap();
    for server in [0, 1] {
        relay.ask(server, 3, b"?").unwrap();
    }
    relay.flush().unwrap();
    relay.set_servers(&[stays]).unwrap();
    for server in &servers {
        let (_, from) = read(server);
        server.send_to(b"!", from).unwrap();
    }
    let got = receive(&mut relay, 2, SILENCE_NS);
    assert_eq!(got.replies, [(0, 3, b"!".to_vec())]);
}

#[test]
fn a_datagram_from_elsewhere_never_arrives() {
    let server = peer("127.0.0.1:0");
    let address = server.local_addr().unwrap();
    let mut relay = relay(&[]);
    relay.set_servers(&[address]).unwrap();
    relay.ask(0, 0, b"?").unwrap();
    relay.flush().unwrap();
    let (_, from) = read(&server);
    // Another port of the server's address, and another address.
    for stranger in ["127.0.0.1:0", "127.0.0.3:0"] {
        peer(stranger).send_to(b"boo", from).unwrap();
    }
    assert_eq!(receive(&mut relay, 1, SILENCE_NS).total(), 0);
    server.send_to(b"!", from).unwrap();
    let got = receive(&mut relay, 1, LIMIT_NS);
    assert_eq!(got.replies, [(0, 0, b"!".to_vec())]);
}

#[test]
fn questions_leave_from_the_source_address_of_the_servers_family() {
    let sources = ["::1".parse().unwrap(), "127.0.0.5".parse().unwrap()];
    let mut relay = UdpRelay::open(&[], &sources).unwrap();
    let server = peer("127.0.0.1:0");
    relay.set_servers(&[server.local_addr().unwrap()]).unwrap();
    relay.ask(0, 0, b"?").unwrap();
    relay.flush().unwrap();
    assert_eq!(read(&server).1.ip(), sources[1]);
}

#[test]
fn the_waker_ends_a_sleep_once_whenever_it_was_used() {
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
    // Used before the sleep, twice, with the relay at work in between.
    relay.waker().wake();
    relay.waker().wake();
    assert_eq!(relay.receive(16, |_| ()).unwrap(), 0);
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
fn queries_that_are_not_accepted_wait_and_let_the_relay_sleep() {
    let mut relay = relay(&["127.0.0.1:0"]);
    let server = peer("127.0.0.1:0");
    relay.set_servers(&[server.local_addr().unwrap()]).unwrap();
    relay.accept_queries(false);
    let client = peer("127.0.0.1:0");
    client.send_to(b"q", relay.local_addr(0).unwrap()).unwrap();
    let start = MonotonicClock.now();
    relay.wait(SILENCE_NS).unwrap();
    assert!(MonotonicClock.now() - start >= SILENCE_NS, "did not sleep");
    assert_eq!(relay.receive(16, |_| panic!("handed over")).unwrap(), 0);
    // Replies are taken meanwhile.
    relay.ask(0, 0, b"?").unwrap();
    relay.flush().unwrap();
    server.send_to(b"!", read(&server).1).unwrap();
    assert_eq!(receive(&mut relay, 1, LIMIT_NS).replies.len(), 1);
    relay.accept_queries(true);
    assert_eq!(receive(&mut relay, 1, LIMIT_NS).queries.len(), 1);
}

#[test]
fn about_max_queries_are_handed_over_and_every_socket_has_its_turn() {
    let mut relay = relay(&["127.0.0.1:0", "127.0.0.1:0"]);
    for i in 0..2 {
        for _ in 0..40 {
            // A client of its own each: the kernel gathers none of them.
            peer("127.0.0.1:0")
                .send_to(&[i], relay.local_addr(i.into()).unwrap())
                .unwrap();
        }
    }
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut from = Vec::new();
        let got = relay.receive(20, |arrival| {
            if let Arrival::Query { payload, .. } = arrival {
                from.push(payload[0]);
            }
        });
        assert_eq!(got.unwrap(), 20);
        calls.push(from);
    }
    assert_ne!(calls[0][0], calls[1][0], "the other socket is first now");
    for from in &calls {
        assert_eq!(from.iter().collect::<HashSet<_>>().len(), 2, "{from:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_only_counted() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let address = peer(address).local_addr().unwrap();
        let mut relay = relay(&[]);
        relay.set_servers(&[address]).unwrap();
        for _ in 0..5 {
            relay.ask(0, 0, b"?").unwrap();
            relay.flush().unwrap();
        }
        assert_eq!(receive(&mut relay, 1, SILENCE_NS).total(), 0);
        assert!(relay.counters().unwrap().unreachable > 0);
    }
}

#[test]
fn a_server_to_which_no_way_leads_costs_its_questions_only() {
    let server = peer("127.0.0.1:0");
    let address = server.local_addr().unwrap();
    // No packet for anybody else leaves from a loopback address.
    let mut relay = UdpRelay::open(&[], &["127.0.0.1".parse().unwrap()]).unwrap();
    relay
        .set_servers(&["192.0.2.99:53".parse().unwrap(), address])
        .unwrap();
    for port in 0..3 {
        relay.ask(0, port, b"lost").unwrap();
        relay.ask(1, port, b"?").unwrap();
    }
    relay.renew(0, 0).unwrap();
    relay.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(read(&server).0, b"?");
    }
    assert_eq!(relay.counters().unwrap().send_drops, 3);
}

#[test]
fn questions_and_answers_of_mixed_lengths_arrive_intact_and_in_order() {
    let payload = |i: usize| vec![u8::try_from(i).unwrap(); [50, 50, 50, 700, 4096, 33][i / 2 % 6]];
    let server = peer("[::1]:0");
    let mut relay = relay(&["[::1]:0"]);
    relay.set_servers(&[server.local_addr().unwrap()]).unwrap();
    let client = peer("[::1]:0");
    client.send_to(b"q", relay.local_addr(0).unwrap()).unwrap();
    let origin = receive(&mut relay, 1, LIMIT_NS).queries[0].0;
    let all: Vec<usize> = (0..200).collect();
    // No more at once than the buffers of plain sockets hold.
    for some in all.chunks(40) {
        for &i in some {
            relay.ask(0, 1, &payload(i)).unwrap();
            relay.reply(&origin, &payload(i)).unwrap();
        }
        relay.flush().unwrap();
        for &i in some {
            assert!(read(&server).0 == payload(i), "question {i}");
            assert!(read(&client).0 == payload(i), "answer {i}");
        }
    }
}

#[test]
fn what_cannot_be_sent_is_counted() {
    let mut relay = relay(&["127.0.0.1:0"]);
    let server = peer("127.0.0.1:0");
    relay.set_servers(&[server.local_addr().unwrap()]).unwrap();
    let client = peer("127.0.0.1:0");
    let origin = Origin::new(client.local_addr().unwrap());
    let unreachable = Origin::new("[::1]:53".parse().unwrap());
    relay
        .reply(&unreachable, b"a socket of IPv4 cannot")
        .unwrap();
    relay.reply(&origin, &[0; 4097]).unwrap();
    relay.reply(&origin, b"").unwrap();
    relay.ask(0, 0, &[0; 4097]).unwrap();
    relay.ask(0, PORTS_PER_SERVER, b"no such port").unwrap();
    relay.ask(1, 0, b"no such server").unwrap();
    relay.reply(&origin, b"r").unwrap();
    relay.flush().unwrap();
    assert_eq!(read(&client).0, b"r");
    assert_eq!(relay.counters().unwrap().send_drops, 6);
}
