//! Floods a server with the most costly datagrams from a client outside its access list, at a given
//! rate.

use std::net::{SocketAddr, UdpSocket};

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;

use super::packets::{MESSAGE_MAX, query, query_edns};

/// Largest datagram in octets that Ethernet carries unfragmented over IPv6: 1,500 less 40 and 8.
const UNFRAGMENTED: usize = 1452;

/// Number of labels of the longest name with labels of one octet (RFC 1035 section 3.1: 255
/// octets).
const LABELS_MAX: usize = 126;

/// Octets of a record after its owner, without data (RFC 1035 section 4.1.3).
const FIXED_LEN: usize = 10;

/// Interval of the bursts.
const BURST_NS: Nanos = SECOND / 1000;

fn example() -> NameBuf {
    "n1.example".parse().unwrap()
}

/// A query of at most `len` octets with as many answer records as fit. The owner of each is a chain
/// of pointers, with as many pointers as a name has labels.
fn chains(len: usize) -> Vec<u8> {
    let mut message = query(0x6666, &example(), Rtype::AAAA);
    // The data of the first record is the chain, backwards: each pointer refers to the one before
    // it.
    message.push(0);
    message.extend([0; FIXED_LEN]);
    let data = message.len();
    let pointer = |at: usize| (0xc000 | u16::try_from(at).unwrap()).to_be_bytes();
    message.push(0);
    let mut last = data;
    for _ in 0..LABELS_MAX {
        let at = message.len();
        message.extend([1, b'a']);
        message.extend(pointer(last));
        last = at;
    }
    let data_len = u16::try_from(message.len() - data).unwrap();
    message[data - 2..data].copy_from_slice(&data_len.to_be_bytes());
    let mut records = 1_u16;
    while message.len() + 2 + FIXED_LEN <= len {
        message.extend(pointer(last));
        message.extend([0; FIXED_LEN]);
        records += 1;
    }
    message[6..8].copy_from_slice(&records.to_be_bytes());
    message
}

/// A query that is filled with empty options.
fn options(len: usize) -> Vec<u8> {
    let room = len - query_edns(0, &example(), 1232, &[]).len();
    query_edns(0x6666, &example(), 1232, &vec![0xfd; room / 4 * 4])
}

fn worst() -> Vec<Vec<u8>> {
    let longest: NameBuf = "a.".repeat(LABELS_MAX).parse().unwrap();
    vec![
        chains(UNFRAGMENTED),
        options(UNFRAGMENTED),
        query(0x6666, &longest, Rtype::AAAA),
    ]
}

#[test]
fn costly_datagrams_have_the_intended_contents() {
    let longest = chains(MESSAGE_MAX - 100);
    assert!(longest.len() > MESSAGE_MAX - 200);
    assert!(chains(UNFRAGMENTED).len() <= UNFRAGMENTED);
    assert!(options(UNFRAGMENTED).len() <= UNFRAGMENTED);
}

#[test]
#[ignore = "needs a server and a load that bench/servers starts"]
fn denied_client_floods_with_costly_datagrams() {
    let value = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let server: SocketAddr = value("FLOOD_SERVER").parse().unwrap();
    let stranger = UdpSocket::bind((value("FLOOD_FROM"), 0)).unwrap();
    let rate: u64 = value("FLOOD_RATE").parse().unwrap();
    let length_ns = value("FLOOD_SECONDS").parse::<Nanos>().unwrap() * SECOND;
    let worst = worst();
    let begun = MonotonicClock.now();
    let mut sent = 0;
    while MonotonicClock.now() < begun + length_ns {
        let due = (MonotonicClock.now() - begun) * rate / SECOND;
        while sent < due {
            let message = &worst[usize::try_from(sent).unwrap() % worst.len()];
            // The responses are not read; if a buffer is full, the flood has one datagram less.
            let _ = stranger.send_to(message, server);
            sent += 1;
        }
        MonotonicClock.sleep(BURST_NS);
    }
    println!("flood: {} datagrams/s", sent * SECOND / length_ns);
}
