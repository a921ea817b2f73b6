//! Relays.

use std::collections::BTreeMap;

use dns64_transport::relay::Outgoing;
use dns64_transport::xdp::relay::XdpRelay;
use dns64_transport::xdp::{Attachment, Copying};
use dns64_transport::{Arrival, ClientSide, Origin, Relay, UpstreamSide};

use super::*;

/// Queries of clients, and the number of them in flight.
const QUERIES: u32 = 4000;
const UNDER_WAY: u32 = 64;

/// A forwarder at the second end: it forwards every query to the upstream and every response to the client. It renews
/// its ports from time to time.
fn forward(mut relay: XdpRelay, upstream: SocketAddr, over: &AtomicBool) -> XdpRelay {
    const PORTS: usize = 8;
    relay
        .upstreams()
        .set_servers(&[(upstream, Outgoing::default())], PORTS, &[]);
    let mut waiting: BTreeMap<u32, (Origin, Vec<u8>)> = BTreeMap::new();
    let mut turns = 0;
    while !over.load(Ordering::Relaxed) {
        turns += 1;
        let mut replies = Vec::new();
        let each = |arrival: Arrival<'_>| match arrival {
            Arrival::Reply { payload, .. } => replies.push(payload.to_vec()),
            Arrival::Unreachable { .. } => panic!("the upstream is reachable"),
        };
        UpstreamSide::receive(relay.upstreams(), each).unwrap();
        for reply in replies {
            let (origin, _) = waiting.remove(&number(&reply)).unwrap();
            ClientSide::reply(relay.clients(), &origin, |frame| {
                frame[..reply.len()].copy_from_slice(&reply);
                reply.len()
            });
        }
        let mut queries = Vec::new();
        let answer = |origin: &Origin, query: &[u8], _: &mut [u8]| {
            queries.push((*origin, query.to_vec()));
            0
        };
        ClientSide::receive(relay.clients(), 64, answer).unwrap();
        for (origin, query) in queries {
            let i = number(&query);
            UpstreamSide::ask(relay.upstreams(), 0, i as usize % PORTS, |frame| {
                frame[..query.len()].copy_from_slice(&query);
                query.len()
            });
            assert!(waiting.insert(i, (origin, query)).is_none());
        }
        ClientSide::flush(relay.clients());
        UpstreamSide::flush(relay.upstreams());
        if waiting.is_empty() {
            UpstreamSide::close(relay.upstreams(), 0, turns % PORTS).unwrap();
        }
        relay.wait(1_000_000).unwrap();
    }
    relay
}

/// Returns received datagrams to their senders, until `over`.
fn echo(socket: &UdpSocket, over: &AtomicBool) {
    let mut octets = [0; 4096];
    socket
        .set_read_timeout(Some(Duration::from_millis(10)))
        .unwrap();
    while !over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut octets) {
            socket.send_to(&octets[..len], from).unwrap();
        }
    }
}

/// Sends all queries, a few at a time; each is answered once, with its own octets.
fn ask_all(socket: &UdpSocket, server: SocketAddr) {
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let (mut sent, mut back) = (0, BTreeSet::new());
    let mut octets = [0; 4096];
    while back.len() < QUERIES as usize {
        while sent < QUERIES && sent - u32::try_from(back.len()).unwrap() < UNDER_WAY {
            let len = write(sent, &mut octets);
            socket.send_to(&octets[..len], server).unwrap();
            sent += 1;
        }
        let (len, from) = socket.recv_from(&mut octets).unwrap();
        assert_eq!(from, server);
        assert!(back.insert(number(&octets[..len])));
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn forwarder_receives_each_query_and_reply_once_bypassing_the_kernel() {
    let pair = Pair::new("relay");
    for mode in [Mode::Native, Mode::Generic] {
        for ends in [V4, V6] {
            let [client, server] = ends.map(|ip| ip.parse::<IpAddr>().unwrap());
            let bind = |port| pair.enter(0, || UdpSocket::bind((client, port)).unwrap());
            let (asking, serving) = (bind(0), bind(53));
            let listen = SocketAddr::new(server, 53);
            let attachments = [Attachment {
                interface: "wire".into(),
                mode,
                force: false,
            }];
            let open = || XdpRelay::open(&[listen], false, &attachments, Part::WHOLE);
            let relay = told(pair.enter(1, open));
            assert_eq!(
                relay.attached(),
                [("wire".into(), mode, 1, Some(Copying::Copy))]
            );
            let over = AtomicBool::new(false);
            let (mut relay, before) = std::thread::scope(|scope| {
                let over = &over;
                // The kernel's sockets of the relay are opened in the thread that runs it.
                let pair = &pair;
                let upstream = SocketAddr::new(client, 53);
                let relay = scope.spawn(move || pair.enter(1, || forward(relay, upstream, over)));
                scope.spawn(|| echo(&serving, over));
                // The first queries go through the kernel, until the path to the upstream is known.
                ask_all(&asking, listen);
                MonotonicClock.sleep(SECOND / 5);
                let before = pair.enter(1, taken_by_the_kernel);
                ask_all(&asking, listen);
                over.store(true, Ordering::Relaxed);
                (relay.join().unwrap(), before)
            });
            let after = pair.enter(1, taken_by_the_kernel);
            assert!(after - before < 200, "{} by the kernel", after - before);
            let clients = ClientSide::counters(relay.clients()).unwrap();
            assert_eq!((clients.receive_drops, clients.send_drops), (0, 0));
            let upstreams = UpstreamSide::counters(relay.upstreams()).unwrap();
            assert_eq!((upstreams.foreign, upstreams.send_drops), (0, 0));
        }
    }
}

/// MAC addresses of the upstream before and after a move; the second one also serves as an attacker's on its link.
const MACS: [&str; 2] = ["02:00:00:00:00:53", "02:00:00:00:00:66"];

/// An upstream at the first end that does not answer, and a relay at the second end that queries it.
struct Asked {
    pair: Pair,
    socket: UdpSocket,
    relay: XdpRelay,
    mac_of_relay: String,
    questions: u32,
}

impl Asked {
    fn new(name: &str) -> Self {
        let pair = Pair::new(name);
        let [left, right] = &pair.0;
        let link = ip(&format!("-n {right} -o link show wire"));
        let mut words = link.split(' ').skip_while(|word| *word != "link/ether");
        let mac_of_relay = words.nth(1).unwrap().to_owned();
        let socket = pair.enter(0, || UdpSocket::bind((V4[0], 53)).unwrap());
        socket
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        ip(&format!("-n {left} link set wire arp off"));
        let upstream = socket.local_addr().unwrap();
        let attachments = [Attachment {
            interface: "wire".into(),
            mode: Mode::Generic,
            force: false,
        }];
        let open = || {
            let mut relay = told(XdpRelay::open(&[], false, &attachments, Part::WHOLE));
            relay
                .upstreams()
                .set_servers(&[(upstream, Outgoing::default())], 1, &[]);
            relay
        };
        let relay = pair.enter(1, open);
        let asked = Self {
            pair,
            socket,
            relay,
            mac_of_relay,
            questions: 0,
        };
        asked.is_at(MACS[0]);
        asked.kernel_knows(MACS[0]);
        asked
    }

    /// Changes the MAC address of the server's host without telling the kernel of the relay.
    fn is_at(&self, mac: &str) {
        let left = &self.pair.0[0];
        ip(&format!("-n {left} link set wire address {mac}"));
        let (to, lladdr) = (V4[1], &self.mac_of_relay);
        ip(&format!(
            "-n {left} neighbour replace {to} lladdr {lladdr} dev wire nud permanent"
        ));
    }

    fn kernel_knows(&self, mac: &str) {
        let (right, to) = (&self.pair.0[1], V4[0]);
        ip(&format!(
            "-n {right} neighbour replace {to} lladdr {mac} dev wire nud permanent"
        ));
    }

    /// Sends one query; returns its source, if it arrived, and whether the kernel carried it.
    fn ask(&mut self) -> (Option<SocketAddr>, bool) {
        let (relay, question) = (&mut self.relay, self.questions.to_be_bytes());
        self.questions += 1;
        let sent = || udp_figure("OutDatagrams");
        let by_the_kernel = self.pair.enter(1, || {
            let before = sent();
            UpstreamSide::ask(relay.upstreams(), 0, 0, |frame| {
                frame[..4].copy_from_slice(&question);
                4
            });
            UpstreamSide::flush(relay.upstreams());
            sent() > before
        });
        let mut octets = [0; 16];
        let arrived = self.socket.recv_from(&mut octets).ok();
        let from = arrived.map(|(len, from)| {
            assert_eq!(octets[..len], question);
            from
        });
        (from, by_the_kernel)
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn forged_reply_does_not_redirect_queries() {
    let mut asked = Asked::new("forged");
    // Until the path is queried from the kernel.
    let (from, by_the_kernel) = asked.ask();
    assert!(by_the_kernel);
    let open_port = from.unwrap();
    asked.is_at(MACS[1]);
    asked.socket.send_to(b"forged", open_port).unwrap();
    asked.is_at(MACS[0]);
    MonotonicClock.sleep(SECOND / 5);
    let mut replies = 0;
    until(|| {
        let count = |_: Arrival<'_>| replies += 1;
        asked.relay.wait(1_000_000).unwrap();
        UpstreamSide::receive(asked.relay.upstreams(), count).unwrap() == 1
    });
    // The query during which the path is looked up goes through the kernel.
    assert_eq!(asked.ask(), (Some(open_port), true));
    for _ in 0..4 {
        assert_eq!(asked.ask(), (Some(open_port), false));
        // The reply now arrives at the ring.
        asked.is_at(MACS[1]);
        asked.socket.send_to(b"forged", open_port).unwrap();
        asked.is_at(MACS[0]);
        until(|| {
            let nothing = |_: Arrival<'_>| ();
            UpstreamSide::receive(asked.relay.upstreams(), nothing).unwrap() == 1
        });
    }
}

/// The path is queried from the kernel every 10 s, and the machine may stall.
const PATIENCE: Nanos = 120 * SECOND;

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn server_with_a_changed_mac_address_is_queried_at_the_new_one() {
    let mut asked = Asked::new("moved");
    assert!(asked.ask().1);
    MonotonicClock.sleep(SECOND / 5);
    asked.ask();
    let (from, by_the_kernel) = asked.ask();
    assert!(from.is_some() && !by_the_kernel);
    asked.is_at(MACS[1]);
    asked.kernel_knows(MACS[1]);
    let moved = MonotonicClock.now();
    // Queries to the old address are lost, until the path is queried again.
    while asked.ask() != (from, false) {
        let waited = MonotonicClock.now() - moved;
        assert!(waited < PATIENCE, "the new address was not found");
    }
    // A failed neighbour entry leaves the queries to the kernel.
    let (right, to) = (&asked.pair.0[1], V4[0]);
    ip(&format!(
        "-n {right} neighbour replace {to} dev wire nud failed"
    ));
    let given_up = MonotonicClock.now();
    let mut by_the_kernel = 0;
    while by_the_kernel < 2 {
        by_the_kernel = if asked.ask().1 { by_the_kernel + 1 } else { 0 };
        let waited = MonotonicClock.now() - given_up;
        assert!(waited < PATIENCE, "the failed neighbour is still used");
    }
}
