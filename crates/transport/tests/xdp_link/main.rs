//! AF_XDP links and relays between two network namespaces that are connected by a veth pair.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

mod relay;
mod way;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_transport::socket::OpenError;
use dns64_transport::xdp::netlink::{self, Netlink};
use dns64_transport::xdp::program::{Mode, XdpError};
use dns64_transport::xdp::{Options, Part, XdpLink};
use dns64_transport::{Carrier, Link};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const DATAGRAMS: u32 = 20_000;
const V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const V6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

/// Two namespaces with an interface `wire` each; deleted on drop.
struct Pair([String; 2]);

impl Pair {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let pair = Self([0, 1].map(|end| format!("xdp-{name}-{id}-{end}")));
        let [left, right] = &pair.0;
        for end in &pair.0 {
            ip(&format!("netns add {end}"));
            ip(&format!("-n {end} link set lo up"));
        }
        ip(&format!(
            "-n {left} link add wire type veth peer name wire netns {right}"
        ));
        for (i, end) in pair.0.iter().enumerate() {
            ip(&format!("-n {end} link set wire addrgenmode none up"));
            ip(&format!("-n {end} address add {}/24 dev wire", V4[i]));
            ip(&format!("-n {end} address add {}/64 dev wire nodad", V6[i]));
            pair.enter(i, || netlink::show_tags(index("wire")).unwrap());
        }
        pair
    }

    /// Runs `work` in a namespace.
    fn enter<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.0[end])).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Links of a client and of a server that listens at an address and port of the second end.
    fn links(&self, server: SocketAddr, mode: Mode) -> (XdpLink, XdpLink) {
        let options = Options {
            mode,
            ..Options::default()
        };
        let listening = self.enter(1, || XdpLink::server(server, false, &options));
        let asking = self.enter(0, || XdpLink::client(server, &[], 4, &options));
        (told(asking), told(listening))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in &self.0 {
            ip(&format!("netns delete {end}"));
        }
    }
}

/// The index of an interface in the namespace of the calling thread.
fn index(name: &str) -> u32 {
    let links = Netlink::open().unwrap().interfaces().unwrap();
    links.iter().find(|link| link.name == name).unwrap().index
}

fn told<T>(opened: Result<T, OpenError>) -> T {
    opened.unwrap_or_else(|error| panic!("{error}"))
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Number of datagrams that UDP received in the namespace of the calling thread.
fn taken_by_the_kernel() -> u64 {
    udp_figure("InDatagrams")
}

/// A counter of UDP in the namespace of the calling thread, the sum of both families (`/proc/net/snmp`, `snmp6`).
fn udp_figure(name: &str) -> u64 {
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    let v6 = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
    let mut v6 = v6
        .lines()
        .filter_map(|line| line.strip_prefix("Udp6")?.strip_prefix(name));
    let v4 = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut v4 = v4.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let [names, figures] = [v4.next().unwrap(), v4.next().unwrap()];
    let mut v4 = names.split(' ').zip(figures.split(' '));
    let (_, v4) = v4.find(|(known, _)| *known == name).unwrap();
    number(v6.next().unwrap()) + number(v4)
}

/// Writes number `i` as a datagram, with one of many lengths.
fn write(i: u32, frame: &mut [u8]) -> usize {
    let len = 4 + (i as usize * 37) % 1400;
    frame[..4].copy_from_slice(&i.to_be_bytes());
    for (at, octet) in frame[4..len].iter_mut().enumerate() {
        *octet = (at as u32 ^ i) as u8;
    }
    len
}

fn number(payload: &[u8]) -> u32 {
    let i = u32::from_be_bytes(payload[..4].try_into().unwrap());
    let mut expected = [0; 2000];
    let len = write(i, &mut expected);
    assert_eq!(payload, &expected[..len], "datagram {i} is intact");
    i
}

/// Sends all datagrams, a few at a time, and checks that each returns once, to the port that sent it, and that both links
/// name their carrier.
fn exchange(client: &mut XdpLink, server: &mut XdpLink, carrier: Carrier) {
    let (over, mut answered) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let answer = |datagram: dns64_transport::Datagram<'_>, frame: &mut [u8]| {
                    frame[..datagram.payload.len()].copy_from_slice(datagram.payload);
                    datagram.payload.len()
                };
                let taken = server.answer(64, answer).unwrap();
                let left: usize = server.departures().iter().map(|d| d.replies).sum();
                assert_eq!(left, taken, "departures count each reply");
                answered += taken;
                if taken == 0 {
                    server.wait(1_000_000).unwrap();
                }
            }
        });
        let (mut sent, mut back) = (0, BTreeSet::new());
        let start = MonotonicClock.now();
        while back.len() < DATAGRAMS as usize {
            let now = MonotonicClock.now();
            assert!(
                now - start < 30 * SECOND,
                "{} of {sent} came back",
                back.len()
            );
            if sent < DATAGRAMS && sent - (back.len() as u32) < 256 {
                let port = (sent / 8 % 4) as usize;
                let taken = client.send(port, 8, |k, frame| write(sent + k as u32, frame));
                assert_eq!(taken.unwrap(), 8);
                sent += 8;
            }
            let receive = client.receive(128, |datagram| {
                let i = number(datagram.payload);
                assert_eq!(datagram.port, (i / 8 % 4) as usize);
                assert!(datagram.at >= now - SECOND && datagram.at <= MonotonicClock.now());
                assert!(back.insert(i), "datagram {i} came back twice");
            });
            receive.unwrap();
        }
        over.store(true, Ordering::Relaxed);
        serving.join().unwrap();
    });
    assert_eq!(answered, DATAGRAMS as usize);
    for link in [client, server] {
        let counters = link.counters().unwrap();
        assert_eq!((counters.receive_drops, counters.send_drops), (0, 0));
        assert_eq!(link.carrier(), carrier);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn every_datagram_arrives_once_and_intact_bypassing_the_kernel() {
    let pair = Pair::new("all");
    // A veth interface has no zero-copy.
    for (mode, carrier) in [
        (Mode::Native, Carrier::XdpCopy),
        (Mode::Generic, Carrier::XdpGeneric),
    ] {
        for server in [V4[1], V6[1]] {
            let server = SocketAddr::new(server.parse().unwrap(), 53);
            let (mut client, mut serving) = pair.links(server, mode);
            let taken = || [0, 1].map(|end| pair.enter(end, taken_by_the_kernel));
            let before = taken();
            exchange(&mut client, &mut serving, carrier);
            for (before, after) in before.into_iter().zip(taken()) {
                assert!(
                    after - before < 100,
                    "{} datagrams went by the kernel to {server} in mode {mode}",
                    after - before
                );
            }
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn replies_to_a_routed_source_prefix_arrive_at_the_rings() {
    const FLOWS: usize = 1000;
    let pair = Pair::new("many");
    let [asking, serving] = &pair.0;
    let v6 = Ipv6Addr::from_bits(0x2001_0db8_00ff << 80);
    let v4 = Ipv4Addr::new(198, 51, 100, 0);
    for (prefix, via) in [(format!("{v6}/112"), V6[0]), (format!("{v4}/24"), V4[0])] {
        ip(&format!("-n {asking} route add local {prefix} dev lo"));
        ip(&format!("-n {serving} route add {prefix} via {via}"));
    }
    let v6 = (1..=FLOWS as u128).map(|i| Ipv6Addr::from_bits(v6.to_bits() + i).into());
    let v4 = (1..255).map(|i| Ipv4Addr::from_bits(v4.to_bits() + i).into());
    let both: [(_, Vec<IpAddr>); 2] = [(V6[1], v6.collect()), (V4[1], v4.collect())];
    for (server, local) in both {
        let server = SocketAddr::new(server.parse().unwrap(), 53);
        let options = Options::default();
        let mut listening = told(pair.enter(1, || XdpLink::server(server, false, &options)));
        let client = pair.enter(0, || XdpLink::client(server, &local, FLOWS, &options));
        let mut client = told(client);
        let before = pair.enter(0, taken_by_the_kernel);
        let (mut peers, mut back) = (BTreeSet::new(), BTreeSet::new());
        for port in 0..FLOWS {
            let fill = |_: usize, frame: &mut [u8]| write(port as u32, frame);
            assert_eq!(client.send(port, 1, fill).unwrap(), 1);
            until(|| {
                let answer = |datagram: dns64_transport::Datagram<'_>, frame: &mut [u8]| {
                    peers.insert(datagram.peer.ip());
                    frame[..datagram.payload.len()].copy_from_slice(datagram.payload);
                    datagram.payload.len()
                };
                listening.answer(64, answer).unwrap();
                let receive = client.receive(64, |datagram| {
                    assert_eq!(number(datagram.payload) as usize, datagram.port);
                    back.insert(datagram.port);
                });
                receive.unwrap();
                back.contains(&port)
            });
        }
        assert_eq!(peers, local.into_iter().collect());
        let by_kernel = pair.enter(0, taken_by_the_kernel) - before;
        assert!(by_kernel < 100, "{by_kernel} replies went by the kernel");
        assert_eq!(client.counters().unwrap().foreign, 0);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn wildcard_link_answers_both_families_from_the_queried_address() {
    let pair = Pair::new("any");
    let any = "[::]:5353".parse().unwrap();
    let mut server = told(pair.enter(1, || XdpLink::server(any, false, &Options::default())));
    let mut origins = Vec::new();
    for address in [V4[1], V6[1]] {
        let asked = SocketAddr::new(address.parse().unwrap(), 5353);
        let mut client =
            told(pair.enter(0, || XdpLink::client(asked, &[], 1, &Options::default())));
        for is_later in [false, true] {
            let fill = |_: usize, frame: &mut [u8]| {
                frame[..2].copy_from_slice(b"hi");
                2
            };
            assert_eq!(client.send(0, 1, fill).unwrap(), 1);
            until(|| {
                let answer = |datagram: dns64_transport::Datagram<'_>, frame: &mut [u8]| {
                    assert_eq!(datagram.payload, b"hi");
                    origins.push(datagram.origin());
                    frame[..2].copy_from_slice(b"ho");
                    if is_later { 0 } else { 2 }
                };
                server.answer(8, answer).unwrap() == 1
            });
            if is_later {
                let mut waiting = origins.last().copied();
                let reply = |frame: &mut [u8]| {
                    frame[..2].copy_from_slice(b"ho");
                    Some((waiting.take()?, 2))
                };
                assert_eq!(server.reply(reply).unwrap(), 1);
            }
            assert_eq!(server.departures().len(), 1);
            until(|| client.receive(8, |d| assert_eq!(d.payload, b"ho")).unwrap() == 1);
        }
    }
    let peers: Vec<IpAddr> = origins.iter().map(|o| o.peer().ip()).collect();
    let expected = ["::ffff:192.0.2.1", "::ffff:192.0.2.1", V6[0], V6[0]];
    assert_eq!(peers, expected.map(|ip| ip.parse::<IpAddr>().unwrap()));
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn a_client_is_open_when_its_link_is_up() {
    let pair = Pair::new("down");
    let server = SocketAddr::new(V4[1].parse().unwrap(), 53);
    let [left, right] = &pair.0;
    // Known for good, as if the link had been up until the program was attached.
    ip(&format!(
        "-n {left} neighbour replace {} lladdr 02:00:00:00:00:02 nud permanent dev wire",
        V4[1]
    ));
    ip(&format!("-n {right} link set wire down"));
    let has_carrier = || ip(&format!("-n {left} link show wire")).contains("LOWER_UP");
    assert!(!has_carrier());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            MonotonicClock.sleep(SECOND / 2);
            ip(&format!("-n {right} link set wire up"));
        });
        let client = pair.enter(0, || XdpLink::client(server, &[], 1, &Options::default()));
        told(client);
        assert!(has_carrier());
    });
}

/// Repeats `done` until it returns true, for at most five seconds.
fn until(mut done: impl FnMut() -> bool) {
    let end = MonotonicClock.now() + 5 * SECOND;
    while !done() {
        assert!(MonotonicClock.now() < end, "nothing came in five seconds");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn datagrams_unsuitable_for_rings_go_through_the_kernel() {
    let pair = Pair::new("slow");
    let asked = SocketAddr::new(V6[1].parse().unwrap(), 53);
    let (mut client, mut server) = pair.links(asked, Mode::Native);
    // Datagrams to other ports are left to the kernel.
    let other = |end: usize| {
        pair.enter(end, || {
            let socket = UdpSocket::bind((V6[end], 5300)).unwrap();
            let patience = Some(Duration::from_secs(5));
            socket.set_read_timeout(patience).unwrap();
            socket
        })
    };
    let (near, far) = (other(0), other(1));
    let mut octets = [0; 16];
    near.send_to(b"over there", (V6[1], 5300)).unwrap();
    assert_eq!(far.recv(&mut octets).unwrap(), 10);
    far.send_to(b"and back", (V6[0], 5300)).unwrap();
    assert_eq!(near.recv(&mut octets).unwrap(), 8);
    // The same applies to the answer to a client that is not a link.
    near.send_to(b"hi", asked).unwrap();
    // Replies above the MTU are fragmented; so is a query above it.
    for (query, reply) in [(2, 3000), (3000, 2)] {
        let fill = |_: usize, frame: &mut [u8]| {
            frame[..query].fill(7);
            query
        };
        assert_eq!(client.send(0, 1, fill).unwrap(), 1);
        let mut asked = 0;
        until(|| {
            let answer = |datagram: dns64_transport::Datagram<'_>, frame: &mut [u8]| {
                asked += usize::from(datagram.payload == vec![7; query]);
                frame[..reply].fill(9);
                reply
            };
            server.answer(8, answer).unwrap();
            asked == 1
        });
        until(|| {
            client
                .receive(8, |d| assert_eq!(d.payload, vec![9; reply]))
                .unwrap()
                == 1
        });
    }
    let mut octets = [0; 4000];
    assert_eq!(near.recv(&mut octets).unwrap(), 3000);
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn interface_with_the_default_route_is_refused_unless_forced() {
    let pair = Pair::new("route");
    ip(&format!("-n {} route add default via {}", pair.0[0], V4[1]));
    let asked = SocketAddr::new(V6[1].parse().unwrap(), 53);
    let open = |force| {
        let options = Options {
            force,
            ..Options::default()
        };
        pair.enter(0, || XdpLink::client(asked, &[], 1, &options))
    };
    let refused = open(false).err();
    let is_refused = matches!(&refused, Some(OpenError::Xdp(XdpError::DefaultRoute { interface })) if interface == "wire");
    assert!(is_refused, "{refused:?}");
    assert_eq!(told(open(true)).queues(), 1);
}

/// Makes the child process hold a link until it is killed.
const HOLD: &str = "XDP_LINK_TEST_HOLDS_A_LINK_AT";

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn killed_process_leaves_no_program_and_frees_its_queue() {
    if let Ok(listen) = std::env::var(HOLD) {
        let listen = listen.parse().unwrap();
        let _link = told(XdpLink::server(listen, false, &Options::default()));
        println!("\nheld");
        MonotonicClock.sleep(60 * SECOND);
        return;
    }
    let pair = Pair::new("kill");
    let listen = SocketAddr::new(V6[1].parse().unwrap(), 53);
    let is_attached = || ip(&format!("-n {} -d link show wire", pair.0[1])).contains("prog/xdp");
    assert!(!is_attached());
    let mut child = Command::new("ip")
        .args(["netns", "exec", &pair.0[1]])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("killed_process_leaves_no_program_and_frees_its_queue")
        .env(HOLD, listen.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap() == "held"),
        "the child holds a link"
    );
    assert!(is_attached());
    child.kill().unwrap();
    child.wait().unwrap();
    until(|| !is_attached());
    let options = Options::default();
    let again = pair.enter(1, || XdpLink::server(listen, false, &options));
    assert_eq!(told(again).queues(), 1);
}
