//! Configured limits: of the cache, of clients, of their rate and of their connections.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use dns64_transport::clock::SECOND;
use dns64_wire::codes::{Rcode, Rtype};
use rustix::net::{AddressFamily, SocketType};

use super::super::packets::{name, query};
use super::super::upstream::Upstream;
use super::super::victim::{ask, figure, framed, resident, serve, start, try_read_message};
use super::load::{load, steady};
use super::{ALL, CLIENT, OTHER_CLIENT, Row, ask_all, right, with};

pub(super) fn cache() -> Row {
    let upstream = Upstream::honest();
    let server = start(&upstream, "", "");
    let first = ask_all(&server, Rtype::AAAA, &steady(4000, 0, 5 * SECOND));
    let (half, half_rss) = (figure(&server, "cache_bytes"), resident(server.child.id()));
    let second = load(
        server.dns,
        CLIENT,
        (100_000, ALL),
        Rtype::AAAA,
        &steady(4000, 0, 5 * SECOND),
    );
    let (bytes, rss) = (figure(&server, "cache_bytes"), resident(server.child.id()));
    let total = right(&first) + right(&second);
    let text = format!(
        "size 2 MiB, {total} of 40,000 names right: cache_bytes {half} then {bytes}, resident {} then {} KiB",
        half_rss / 1024,
        rss / 1024
    );
    let holds = half.max(bytes) <= 2 << 20 && rss < half_rss + (1 << 20);
    Row(
        "the cache is full",
        "what is used least makes room",
        text,
        holds,
    )
}

pub(super) fn access() -> Row {
    let upstream = Upstream::honest();
    let refusing = serve(&[&upstream], "allow = [\"127.0.0.0/24\"]", "");
    let dropping = serve(
        &[&upstream],
        "allow = [\"127.0.0.0/24\"]\ndeny-action = \"drop\"",
        "",
    );
    let times = steady(1000, 0, SECOND);
    let refused = ask_all(&refusing, Rtype::AAAA, &times);
    let dropped = ask_all(&dropping, Rtype::AAAA, &times);
    let refused = with(&refused, Rcode::REFUSED).count();
    let answers = dropped.iter().filter(|told| told.took_ns.is_some()).count();
    let counted = figure(&dropping, "dropped.access");
    let text = format!(
        "{refused} of 1000 REFUSED; drop: {answers} of 1000 answered, dropped.access {counted}"
    );
    Row(
        "not in allow",
        "REFUSED or nothing",
        text,
        refused == 1000 && answers == 0 && counted == 1000,
    )
}

pub(super) fn rate_limit() -> Row {
    let upstream = Upstream::honest();
    let limits = "[rate-limit]\nresponses-per-second = 50\nburst = 50\nslip = 2";
    let server = serve(&[&upstream], limits, "");
    let dns = server.dns;
    let other = thread::spawn(move || {
        load(
            dns,
            OTHER_CLIENT,
            (1, 1),
            Rtype::AAAA,
            &steady(20, 0, 5 * SECOND),
        )
    });
    let told = load(
        dns,
        CLIENT,
        (1, 1),
        Rtype::AAAA,
        &steady(500, 0, 5 * SECOND),
    );
    let other = other.join().unwrap();
    let truncated = told.iter().filter(|told| told.is_truncated).count();
    let nothing = told.iter().filter(|told| told.took_ns.is_none()).count();
    let dropped = figure(&server, "dropped.rate-limit");
    let text = format!(
        "500/s for 5 s at 50/s: {} whole, {truncated} truncated, {nothing} without (dropped.rate-limit {dropped}); another network {} of {}",
        right(&told),
        right(&other),
        other.len()
    );
    let holds = (295..=320).contains(&right(&told))
        && truncated.abs_diff(nothing) < 10
        && right(&other) == other.len();
    Row(
        "responses-per-second",
        "dropped, every slip-th truncated",
        text,
        holds,
    )
}

/// Opens a connection from an address of loopback.
fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&fd, &SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    rustix::net::connect(&fd, &to).unwrap();
    let stream = TcpStream::from(fd);
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    stream
}

/// Whether a query over a connection is answered.
fn is_served(stream: &mut TcpStream) -> bool {
    let sent = stream.write_all(&framed(&query(7, &name(1), Rtype::AAAA)));
    sent.is_ok() && try_read_message(stream).is_ok_and(|answer| answer[..2] == [0, 7])
}

/// Number of connections that are served.
fn served(streams: &mut [TcpStream]) -> usize {
    streams.iter_mut().map(|s| usize::from(is_served(s))).sum()
}

pub(super) fn connections() -> Vec<Row> {
    let upstream = Upstream::honest();
    let limits = "[tcp]\nconnections = 20\nconnections-per-client = 10";
    let server = serve(&[&upstream], limits, "");
    ask(server.dns, &query(1, &name(1), Rtype::AAAA));
    let open = |count, from| -> Vec<_> {
        let streams = (0..count).map(|_| connect_from(from, server.dns));
        streams.collect()
    };
    let mut mine = open(15, CLIENT);
    let (first, last) = (served(&mut mine[..5]), served(&mut mine[5..]));
    let own =
        format!("15 opened, limit 10: {first} of the first 5 and {last} of the others served");
    // Two more networks: the second of them finds the table full.
    let mut others = open(8, OTHER_CLIENT);
    let mut third = open(4, "127.3.0.1");
    let left = (served(&mut third), served(&mut others), served(&mut mine));
    let full = format!(
        "20 places, 10 and 8 in use, 4 more of a third network: of these {} served, of the others {} and {}",
        left.0, left.2, left.1
    );
    vec![
        Row(
            "`connections-per-client`",
            "the own idlest is closed",
            own,
            (first, last) == (0, 10),
        ),
        Row(
            "`connections`",
            "the largest network loses its idlest",
            full,
            left == (4, 8, 8),
        ),
    ]
}
