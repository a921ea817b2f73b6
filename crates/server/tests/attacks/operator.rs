//! Hostile peers of the metrics page and of the control socket.

use std::io::{Read as _, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use super::support::{PATIENCE, Server, free_port, stdout, value};
use super::upstream::Upstream;
use super::victim::{assert_resolves, descriptors, resident, unless_busy, wait_until};

/// Connections that each of the two serves at a time (docs/dns64d.md), and requests in progress on the control socket.
const SERVED: usize = 64;
const IN_PROGRESS: usize = 8;

/// Connections of hostile peers of each kind.
const HOSTILE: usize = SERVED + 50;

/// Number of client networks that hostile peers of the page come from: more than fill it.
const NETWORKS: u8 = 8;

/// Octets that they may cost: a page of 64 KiB for each connection, and what the allocator keeps.
const COST_MAX: u64 = 8 << 20;

/// Connects from an address, with the smallest receive buffer.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&stream, 1).unwrap();
    bind(&stream, &SocketAddr::new(IpAddr::V4(from), 0)).unwrap();
    connect(&stream, &to).unwrap();
    TcpStream::from(stream)
}

/// A page, or what was sent of it.
fn scrape(page: SocketAddr) -> String {
    let mut stream = TcpStream::connect(page).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Connections that send half a request, connections that do not read the answer, and those that reset it.
fn hostile_peers<S: Write>(half: &[u8], whole: &[u8], connect: impl Fn(usize) -> S) -> Vec<S> {
    let peers = (0..HOSTILE).flat_map(|number| {
        [half, whole].map(|octets| {
            let mut stream = connect(number);
            // The server may have closed the connection already, to make room.
            let _ = stream.write_all(octets);
            stream
        })
    });
    peers.collect()
}

#[test]
fn hostile_readers_of_page_and_control_socket_are_bounded_and_delay_nobody() {
    unless_busy(|| {
        let upstream = Upstream::honest();
        let with_page = || {
            let page = free_port();
            let text = format!(
                "workers = 1\n[metrics]\nlisten = \"{page}\"\n[upstream]\nservers = [\"{}\"]\n",
                upstream.address
            );
            (text, page)
        };
        let (server, page) = Server::start_with(with_page, &[], Stdio::null);
        let pid = server.child.id();
        assert_resolves(server.dns, 1);
        assert!(scrape(page).contains("dns64d_queries_total"));
        let (before, octets) = (descriptors(pid), resident(pid));

        let network = |number: usize| u8::try_from(number).unwrap() % NETWORKS + 1;
        let from = |number| connect_from(Ipv4Addr::new(127, 0, network(number), 1), page);
        let readers = hostile_peers(
            b"GET /metrics HTTP/1.1\r\n",
            b"GET /metrics HTTP/1.1\r\n\r\n",
            from,
        );
        for reader in readers.iter().step_by(3) {
            // A close that sends a reset.
            sockopt::set_socket_linger(reader, Some(std::time::Duration::ZERO)).unwrap();
        }
        let call = |_| UnixStream::connect(server.socket()).unwrap();
        let callers = hostile_peers(b"{\"command\":", b"{\"command\":\"stats\"}\n", call);

        assert!(scrape(page).contains("dns64d_queries_total{transport=\"udp\"}"));
        assert_eq!(value(&stdout(&server.ctl(&["status"])), "workers"), "1");
        assert_resolves(server.dns, 2);
        let most = before + 2 * SERVED + IN_PROGRESS;
        wait_until("connections are bounded", || descriptors(pid) <= most);
        let cost = resident(pid).saturating_sub(octets);
        assert!(cost <= COST_MAX, "{cost} octets");
        drop((readers, callers));
        wait_until("all descriptors are closed", || descriptors(pid) <= before);
        server.ends();
    });
}
