//! Tests dns64d with AF_XDP sockets for its clients and its upstream.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;

use super::*;

/// At the client's end of the link.
const FAR_UPSTREAM: &str = "10.64.0.2:5300";

/// Number of queries, each for a name of its own, and of those in flight.
const QUERIES: u16 = 400;
const UNDER_WAY: usize = 32;

/// Limit for the datagrams that go through the kernel's UDP stack meanwhile: now and then one must.
const BY_THE_KERNEL: u64 = 40;

/// A query with this ID, for AAAA of a name with this number.
fn query(number: u16) -> Vec<u8> {
    let mut query = number.to_be_bytes().to_vec();
    query.extend(b"\x01\0\0\x01\0\0\0\0\0\0\x06");
    query.extend(format!("n{number:05}").as_bytes());
    query.extend(b"\x07example\0\0\x1c\0\x01");
    query
}

/// The number of a correct response: one record with the address of the name, under the Well-Known
/// Prefix.
fn number_of(answer: &[u8]) -> u16 {
    let id = u16::from_be_bytes([answer[0], answer[1]]);
    let question = query(id);
    assert_eq!(answer[12..question.len()], question[12..], "{answer:?}");
    assert_eq!((answer[3] & 0x0f, answer[7]), (0, 1), "{answer:?}");
    let mut address = b"\0\x64\xff\x9b\0\0\0\0\0\0\0\0\x08\x08".to_vec();
    address.extend(id.to_be_bytes());
    let record = &answer[question.len()..];
    assert_eq!(record[2..4], [0, 0x1c]);
    assert_eq!(record[10..12], [0, 16]);
    assert_eq!(record[12..28], address);
    id
}

/// Sends the queries with these numbers; each is answered once.
fn ask_all(socket: &UdpSocket, numbers: std::ops::Range<u16>) {
    let (mut left, mut waiting) = (numbers, BTreeSet::new());
    let mut octets = [0; 1500];
    loop {
        while waiting.len() < UNDER_WAY
            && let Some(number) = left.next()
        {
            socket.send_to(&query(number), SERVER).unwrap();
            waiting.insert(number);
        }
        if waiting.is_empty() {
            return;
        }
        let (len, from) = socket.recv_from(&mut octets).unwrap();
        assert_eq!(from.to_string(), SERVER);
        let number = number_of(&octets[..len]);
        assert!(waiting.remove(&number), "{number} is answered twice");
    }
}

/// Sends a query over TCP.
fn ask_by_tcp(number: u16) {
    let mut stream = TcpStream::connect(SERVER).unwrap();
    let query = query(number);
    let len = u16::try_from(query.len()).unwrap();
    let message = [&len.to_be_bytes()[..], &query].concat();
    stream.write_all(&message).unwrap();
    let mut len = [0; 2];
    stream.read_exact(&mut len).unwrap();
    let mut answer = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(number_of(&answer), number);
}

impl Lab {
    /// Number of datagrams that the UDP stack in the server's namespace received and sent.
    pub(super) fn by_the_kernel(&self) -> [u64; 2] {
        let text = run(&format!("ip netns exec {} cat /proc/net/snmp", self.server));
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let [names, figures] = [lines.next().unwrap(), lines.next().unwrap()];
        ["InDatagrams", "OutDatagrams"].map(|wanted| {
            let mut all = names.split(' ').zip(figures.split(' '));
            let (_, figure) = all.find(|(name, _)| *name == wanted).unwrap();
            figure.parse().unwrap()
        })
    }

    /// Checks that the server runs as its user, in the sandbox, and reports the mode of the
    /// interface.
    fn is_confined_at(&self, mode: Mode) {
        let status = self.ctl("status");
        // A veth device has no zero-copy.
        let line = format!("af_xdp=s0 {mode} copy queues=1\n");
        assert!(status.contains(&line), "{status}");
        assert!(status.contains("seccomp"), "{status}");
        let process = format!("/proc/{}", self.child.as_ref().unwrap().id());
        let nobody = run("id -u nobody");
        assert_eq!(
            fs::metadata(process).unwrap().uid().to_string(),
            nobody.trim()
        );
    }
}

fn serves(mode: Mode) {
    let mut lab = Lab::new(mode);
    let asked = Arc::new(AtomicUsize::new(0));
    serve(&lab.client, FAR_UPSTREAM, Arc::clone(&asked));
    enter(&lab.client);
    let socket = UdpSocket::bind("10.64.0.2:0").unwrap();
    let patience = Duration::from_secs(PATIENCE_S);
    socket.set_read_timeout(Some(patience)).unwrap();
    lab.write_config_with("af-xdp", mode, FAR_UPSTREAM, "");
    lab.start();
    lab.is_confined_at(mode);
    assert!(lab.is_attached());

    // The first queries go through the kernel, until it is asked for the route to the upstream.
    ask_all(&socket, 0..1);
    MonotonicClock.sleep(SECOND / 2);
    ask_all(&socket, 1..2);
    let before = lab.by_the_kernel();
    ask_all(&socket, 2..QUERIES);
    for (before, after) in before.into_iter().zip(lab.by_the_kernel()) {
        assert!(after - before < BY_THE_KERNEL, "{before} to {after}");
    }
    assert!(asked.load(Ordering::Relaxed) >= 2 * usize::from(QUERIES));
    ask_by_tcp(QUERIES);

    lab.signal(Signal::KILL);
    lab.ends();
    until("the program outlives the process", || !lab.is_attached());
    let short = Duration::from_millis(500);
    socket.set_read_timeout(Some(short)).unwrap();
    socket.send_to(&query(0), SERVER).unwrap();
    let answer = socket.recv_from(&mut [0; 1500]);
    assert!(answer.is_err(), "the server has ended: {answer:?}");
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn sandboxed_server_uses_af_xdp_for_clients_and_upstreams() {
    for mode in [Mode::Native, Mode::Generic] {
        // A separate thread, because it joins a namespace.
        thread::spawn(move || serves(mode)).join().unwrap();
    }
}
