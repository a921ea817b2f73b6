//! Kernel sockets on the loopback interface: the guarantees of the links on the real kernel.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use dns64_transport::clock::{Clock, MonotonicClock, SECOND};
use dns64_transport::socket::Segmentation::{Off, On};
use dns64_transport::socket::{OpenError, Segmentation, UdpLink};
use dns64_transport::{Datagram, Link};

fn server(listen: &str) -> (UdpLink, SocketAddr) {
    let link = UdpLink::server(listen.parse().unwrap(), false, On).unwrap();
    let at = link.local_addr(0).unwrap();
    (link, at)
}

fn echo(datagram: Datagram<'_>, frame: &mut [u8]) -> usize {
    frame[..datagram.payload.len()].copy_from_slice(datagram.payload);
    datagram.payload.len()
}

/// Repeats `step` until it has counted `wanted` or two seconds have passed.
fn until(wanted: usize, mut step: impl FnMut() -> usize) -> usize {
    let end = MonotonicClock.now() + 2 * SECOND;
    let mut total = 0;
    while total < wanted && MonotonicClock.now() < end {
        total += step();
    }
    total
}

/// Sends `n` datagrams of `len(i)` bytes in one call and returns the replies, in order.
fn round_trip(listen: &str, n: usize, len: impl Fn(usize) -> usize) -> Vec<Vec<u8>> {
    let (mut server, at) = server(listen);
    let mut client = UdpLink::client(at, &[], 2, On).unwrap();
    let before = MonotonicClock.now();
    let sent = client.send(1, n, |i, frame| {
        frame[..len(i)].fill(u8::try_from(i).unwrap());
        len(i)
    });
    assert_eq!(sent.unwrap(), n);
    let mut departures = Vec::new();
    let answer = || {
        let taken = server.answer(usize::MAX, echo).unwrap();
        departures.extend_from_slice(server.departures());
        taken
    };
    assert_eq!(until(n, answer), n);
    assert_eq!(departures.iter().map(|d| d.replies).sum::<usize>(), n);
    let mut got = Vec::new();
    let received = until(n, || {
        client
            .receive(usize::MAX, |d| {
                assert_eq!((d.port, d.peer), (1, at));
                // Kernel timestamps, converted to the monotonic clock, are between sending and now.
                assert!(d.at >= before && d.at <= MonotonicClock.now());
                assert!(d.at >= departures[0].at, "received before it was sent");
                got.push(d.payload.to_vec());
            })
            .unwrap()
    });
    assert_eq!(received, n);
    assert_eq!(
        client.counters().unwrap(),
        dns64_transport::Counters::default()
    );
    got
}

#[test]
fn datagrams_of_equal_length_are_segmented_and_arrive_intact() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let got = round_trip(listen, 100, |_| 50);
        let expected: Vec<Vec<u8>> = (0..100).map(|i| vec![i; 50]).collect();
        assert_eq!(got, expected);
    }
}

#[test]
fn datagrams_of_different_lengths_arrive_intact() {
    let got = round_trip("[::1]:0", 60, |i| 20 + i % 3);
    let expected: Vec<Vec<u8>> = (0..60)
        .map(|i| vec![u8::try_from(i).unwrap(); 20 + i % 3])
        .collect();
    assert_eq!(got, expected);
}

#[test]
fn frames_beyond_one_batch_are_all_sent() {
    let got = round_trip("127.0.0.1:0", 200, |_| 3000);
    assert_eq!(got.len(), 200);
}

/// Maximum number of datagrams that arrive together when 40 of equal length are sent at once.
fn arrive_together(sender: Segmentation, receiver: Segmentation) -> usize {
    let listen = "[::1]:0".parse().unwrap();
    let mut server = UdpLink::server(listen, false, receiver).unwrap();
    let at = server.local_addr(0).unwrap();
    let mut client = UdpLink::client(at, &[], 1, sender).unwrap();
    let sent = client.send(0, 40, |i, frame| {
        frame[..50].fill(u8::try_from(i).unwrap());
        50
    });
    assert_eq!(sent.unwrap(), 40);
    let mut most = 0;
    let mut got = Vec::new();
    until(40, || {
        let together = server
            .receive(1, |datagram| got.push(datagram.payload[0]))
            .unwrap();
        most = most.max(together);
        together
    });
    assert_eq!(got, (0..40).collect::<Vec<u8>>());
    most
}

#[test]
fn without_segmentation_at_either_end_datagrams_arrive_singly() {
    assert_eq!(arrive_together(Off, On), 1);
    assert_eq!(arrive_together(On, Off), 1);
    assert_eq!(arrive_together(Off, Off), 1);
}

#[test]
fn answers_of_a_server_without_segmentation_arrive_singly() {
    let mut server = UdpLink::server("[::1]:0".parse().unwrap(), false, Off).unwrap();
    let at = server.local_addr(0).unwrap();
    let mut client = UdpLink::client(at, &[], 1, On).unwrap();
    let sent = client.send(0, 40, |_, _| 50);
    assert_eq!(sent.unwrap(), 40);
    assert_eq!(until(40, || server.answer(usize::MAX, echo).unwrap()), 40);
    let mut most = 0;
    let received = until(40, || {
        let together = client.receive(1, |_| ()).unwrap();
        most = most.max(together);
        together
    });
    assert_eq!((received, most), (40, 1));
}

#[test]
fn closed_port_is_counted_and_is_not_an_error() {
    let (closed, at) = server("[::1]:0");
    drop(closed);
    let mut client = UdpLink::client(at, &[], 1, On).unwrap();
    for _ in 0..5 {
        let sent = client.send(0, 1, |_, frame| {
            frame[0] = 0;
            1
        });
        assert_eq!(sent.unwrap(), 1);
    }
    assert_eq!(client.receive(16, |_| ()).unwrap(), 0);
    assert!(client.counters().unwrap().unreachable > 0);
}

/// ICMP messages are queued in the same buffer as datagrams: they must not accumulate.
#[test]
fn icmp_errors_leave_space_for_datagrams() {
    let (closed, at) = server("[::1]:0");
    drop(closed);
    let mut client = UdpLink::client(at, &[], 1, On).unwrap();
    let one = |_: usize, frame: &mut [u8]| {
        frame[0] = 0;
        1
    };
    for _ in 0..1000 {
        client.send(0, 1, one).unwrap();
    }
    let mut server = UdpLink::server(at, false, On).unwrap();
    // Each error is reported once, and then nothing blocks datagrams.
    until(usize::MAX, || {
        let pending = client.counters().unwrap().unreachable;
        assert_eq!(client.receive(16, |_| ()).unwrap(), 0);
        match client.counters().unwrap().unreachable == pending {
            true => usize::MAX,
            false => 0,
        }
    });
    assert_eq!(client.send(0, 1, one).unwrap(), 1);
    assert_eq!(until(1, || server.answer(usize::MAX, echo).unwrap()), 1);
    assert_eq!(until(1, || client.receive(16, |_| ()).unwrap()), 1);
    let counters = client.counters().unwrap();
    assert_eq!(counters.receive_drops, 0);
    assert!((1..=1000).contains(&counters.unreachable), "{counters:?}");
}

#[test]
fn datagrams_from_another_address_are_counted_with_their_sender() {
    let (_server, at) = server("127.0.0.1:0");
    let mut client = UdpLink::client(at, &[], 3, On).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        let to = SocketAddr::new(at.ip(), client.local_addr(2).unwrap().port());
        stranger.send_to(b"boo", to).unwrap();
    }
    assert_eq!(client.receive(16, |_| panic!("unwanted")).unwrap(), 0);
    let counters = client.counters().unwrap();
    assert_eq!(counters.foreign, 3);
    assert_eq!(counters.foreign_from, Some(stranger.local_addr().unwrap()));
}

#[test]
fn overflowing_socket_counts_its_losses() {
    let (mut server, at) = server("127.0.0.1:0");
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sent = 100_000;
    for _ in 0..sent {
        client.send_to(&[0; 512], at).unwrap();
    }
    let mut taken = 0;
    loop {
        let got = server.receive(usize::MAX, |_| ()).unwrap();
        taken += got;
        if got == 0 {
            break;
        }
    }
    let drops = server.counters().unwrap().receive_drops;
    assert!(drops > 0, "100,000 datagrams must overflow the buffer");
    assert_eq!(taken as u64 + drops, sent);
}

#[test]
fn wildcard_server_answers_from_the_queried_address() {
    for (listen, ask) in [
        ("0.0.0.0:0", "127.0.0.9"),
        ("[::]:0", "::1"),
        ("[::]:0", "127.0.0.9"),
    ] {
        let (mut server, at) = server(listen);
        let to = SocketAddr::new(ask.parse().unwrap(), at.port());
        let mut client = UdpLink::client(to, &[], 1, On).unwrap();
        client
            .send(0, 1, |_, frame| {
                frame[0] = 7;
                1
            })
            .unwrap();
        assert_eq!(until(1, || server.answer(16, echo).unwrap()), 1);
        assert_eq!(
            until(1, || client.receive(16, |_| ()).unwrap()),
            1,
            "{listen} asked at {ask}"
        );
    }
}

#[test]
fn later_replies_go_to_the_senders_of_their_datagrams() {
    // More than one batch of the link can hold.
    const QUERIES: u8 = 200;
    for (listen, ask) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.9")] {
        let (mut server, at) = server(listen);
        let to = SocketAddr::new(ask.parse().unwrap(), at.port());
        let mut client = UdpLink::client(to, &[], 2, On).unwrap();
        for i in 0..QUERIES {
            let fill = |_: usize, frame: &mut [u8]| {
                frame[0] = i;
                1
            };
            assert_eq!(client.send(usize::from(i % 2), 1, fill).unwrap(), 1);
        }
        let mut origins = Vec::new();
        let all = usize::from(QUERIES);
        let keep = |datagram: Datagram<'_>, _: &mut [u8]| {
            origins.push((datagram.origin(), datagram.payload[0]));
            0
        };
        let mut keep = keep;
        assert_eq!(until(all, || server.answer(64, &mut keep).unwrap()), all);
        let mut waiting = origins.into_iter().rev();
        let sent = server.reply(|frame| {
            let (to, i) = waiting.next()?;
            frame[..2].fill(i);
            Some((to, 2))
        });
        assert_eq!(sent.unwrap(), all);
        let mut got = Vec::new();
        let received = until(all, || {
            let each = |d: Datagram<'_>| got.push((d.port, d.payload.to_vec()));
            client.receive(64, each).unwrap()
        });
        assert_eq!(received, all, "{listen} asked at {ask}");
        got.sort_by_key(|(_, payload)| payload[0]);
        let expected = (0..QUERIES).map(|i| (usize::from(i % 2), vec![i, i]));
        assert_eq!(got, expected.collect::<Vec<_>>());
        assert_eq!(server.counters().unwrap().send_drops, 0);
    }
}

#[test]
fn source_addresses_take_turns_and_no_two_flows_share_a_port() {
    let (mut server, at) = server("127.0.0.1:0");
    let local: Vec<IpAddr> = (1..=5)
        .map(|i| Ipv4Addr::new(127, 64, 0, i).into())
        .collect();
    // Two links at once, like two threads of a Tester.
    let mut links = [0, 1].map(|_| UdpLink::client(at, &local, 12, On).unwrap());
    let own = |link: &UdpLink| (0..12).map(|port| link.local_addr(port).unwrap()).collect();
    let flows: Vec<SocketAddr> = links
        .iter()
        .flat_map(own as fn(&UdpLink) -> Vec<_>)
        .collect();
    let expected = [0, 1].iter().flat_map(|_| local.iter().cycle().take(12));
    assert!(flows.iter().map(SocketAddr::ip).eq(expected.copied()));
    let ports: BTreeSet<u16> = flows.iter().map(SocketAddr::port).collect();
    assert_eq!(ports.len(), flows.len());
    for link in &mut links {
        for port in 0..12 {
            assert_eq!(
                link.send(port, 1, |_, frame| {
                    frame[0] = 1;
                    1
                })
                .unwrap(),
                1
            );
        }
    }
    let mut peers = BTreeSet::new();
    let answered = until(24, || {
        let answer = |datagram: Datagram<'_>, frame: &mut [u8]| {
            peers.insert(datagram.peer);
            echo(datagram, frame)
        };
        server.answer(64, answer).unwrap()
    });
    assert_eq!((answered, peers), (24, flows.into_iter().collect()));
    for link in &mut links {
        let mut back = BTreeSet::new();
        until(12, || {
            link.receive(64, |datagram| assert!(back.insert(datagram.port)))
                .unwrap()
        });
        assert_eq!(back, (0..12).collect());
        assert_eq!(link.counters().unwrap().foreign, 0);
    }
}

#[test]
fn source_address_of_another_host_is_refused_with_the_remedy() {
    let (_server, at) = server("127.0.0.1:0");
    let local = ["127.0.0.1", "192.0.2.77"].map(|ip| ip.parse().unwrap());
    let Err(error) = UdpLink::client(at, &local, 2, On) else {
        panic!("sends from an address of another host")
    };
    let text = error.to_string();
    for words in ["192.0.2.77", "ip route add local PREFIX dev lo"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn errors_name_a_port_in_use_and_a_foreign_address() {
    let (_first, at) = server("127.0.0.1:0");
    let Err(error) = UdpLink::server(at, false, On) else {
        panic!("bound twice")
    };
    assert!(matches!(error, OpenError::Bind { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&at.to_string()) && text.contains("another program"),
        "{text}"
    );
    let Err(error) = UdpLink::server("192.0.2.1:5353".parse().unwrap(), false, On) else {
        panic!("bound a foreign address")
    };
    assert!(
        error.to_string().contains("no interface has this address"),
        "{error}"
    );
}
