//! A law over real links: with an XDP program at its interface, the server answers exactly the frames that it answers
//! with sockets alone, with the same octets, from and to the same addresses.

use std::collections::BTreeMap;
use std::io::{Write as _, stderr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType};

use super::frames::{self, CLIENT_MAC, IP, UDP4, UDP6, Unusual};
use super::*;

/// Has the program `send`, which sends a frame as it is.
const LIVE_OBJECT: &[u8] = include_bytes!("../../../transport/bpf/live.bpf.o");

/// The first ID of the queries that end a part of a run; no mutant of a query has one of these.
const LAST: u16 = 0xf010;

/// A response: addresses and ports, and the message with TTL 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    addresses: Vec<u8>,
    message: Vec<u8>,
}

/// Responses by ID, each with the MAC address that it went to.
type Answers = BTreeMap<u16, Vec<(Answer, [u8; 6])>>;

/// The client's end of a link.
struct End {
    object: Object,
    arrivals: OwnedFd,
    answers: Answers,
    /// The next ID of such a query.
    last: u16,
}

impl End {
    fn new() -> Self {
        let every = NonZeroU32::new(u32::from(3_u16.to_be())).map(Protocol::from_raw);
        Self {
            object: Object::load(LIVE_OBJECT).unwrap(),
            arrivals: rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, every).unwrap(),
            answers: Answers::new(),
            last: LAST,
        }
    }

    fn send(&mut self, frame: &[u8]) {
        self.object.run_live("send", frame, "c0", 1).unwrap();
        self.receive();
    }

    /// Takes the responses that have arrived.
    fn receive(&mut self) {
        let mut frame = [0; 2048];
        while let Ok((len, _)) =
            rustix::net::recv(&self.arrivals, &mut frame[..], RecvFlags::DONTWAIT)
        {
            let (udp, addresses) = match frame[12..14] {
                [8, 0] => (UDP4, IP + 12),
                [0x86, 0xdd] => (UDP6, IP + 8),
                _ => continue,
            };
            if len < udp + 20 || frame[udp..udp + 2] != [0, 53] {
                continue;
            }
            let end = udp + usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]));
            let mut message = frame[udp + 8..end].to_vec();
            let record = QUERY.len();
            if let Some(ttl) = message.get_mut(record + 6..record + 10) {
                ttl.fill(0);
            }
            let answer = Answer {
                addresses: frame[addresses..udp + 4].to_vec(),
                message,
            };
            let id = u16::from_be_bytes([frame[udp + 8], frame[udp + 9]]);
            let mac = *frame.first_chunk().unwrap();
            self.answers.entry(id).or_default().push((answer, mac));
        }
    }

    /// Sends a query by each way to the server, over IPv4 and IPv6, to it alone and to all, and waits for their
    /// responses: those to earlier frames have arrived then.
    fn catch_up(&mut self) {
        let ids = self.last..self.last + 4;
        self.last = ids.end;
        for id in ids.clone() {
            let mut frame = frames::query(id & 1 == 1, id);
            if id & 2 == 2 {
                frames::to_all(&mut frame);
            }
            self.send(&frame);
        }
        until("responses to the last queries", || {
            self.receive();
            ids.clone().all(|id| self.answers.contains_key(&id))
        });
    }

    /// The responses to all other frames.
    fn answers(mut self) -> Answers {
        self.answers.retain(|id, _| !(LAST..self.last).contains(id));
        self.answers
    }
}

/// Adds an interface above the server's, with an address, if the kernel has this type; otherwise it says so, also if the
/// test passes.
#[expect(
    clippy::explicit_write,
    reason = "the output of macros is not shown if a test passes"
)]
fn add_upper(server: &str, what: &str, name: &str, address: &str) {
    let command = format!("-n {server} link add link s0 name {name} {what}");
    let added = Command::new("ip")
        .args(command.split(' '))
        .output()
        .unwrap();
    if added.status.success() {
        run(&format!("ip -n {server} address add {address} dev {name}"));
        run(&format!("ip -n {server} link set {name} up"));
    } else {
        let reason = String::from_utf8_lossy(&added.stderr);
        writeln!(stderr(), "without an interface of {what}: {reason}").unwrap();
    }
}

impl Lab {
    /// Routes to every client, so that the kernel can respond to each, and other interfaces with addresses.
    fn extend(&self) {
        let (server, client) = (&self.server, &self.client);
        for command in [
            format!("-n {server} address add fd64::1/64 dev s0 nodad"),
            format!("-n {client} address add fd64::2/64 dev c0 nodad"),
            format!("-n {server} address add 10.65.0.1/32 dev lo"),
        ] {
            run(&format!("ip {command}"));
        }
        let macvlan = "address 02:00:00:00:00:07 type macvlan";
        add_upper(server, macvlan, "m0", "10.66.0.1/24");
        add_upper(server, "type vlan id 100", "v0", "10.67.0.1/24");
        for (via, nets) in [
            ("10.64.0.2", ["0.0.0.0/1", "128.0.0.0/1"]),
            ("fd64::2", ["::/1", "8000::/1"]),
        ] {
            let neighbour = "lladdr 02:00:00:00:00:02 nud permanent dev s0";
            run(&format!(
                "ip -n {server} neighbour replace {via} {neighbour}"
            ));
            for net in nets {
                run(&format!("ip -n {server} route add {net} via {via}"));
            }
        }
        for interface in ["all", "s0"] {
            let key = format!("net.ipv4.conf.{interface}.rp_filter=0");
            run(&format!("ip netns exec {server} sysctl -qw {key}"));
        }
        // Frames of the kernel's test run arrive only at an end with NAPI.
        run(&format!("ip netns exec {server} ethtool -K s0 gro on"));
        run(&format!("ip netns exec {client} ethtool -K c0 gro on"));
    }
}

/// A key of the configuration that attaches a program to the interface.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Attached {
    key: &'static str,
    mode: Mode,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.key, self.mode)
    }
}

/// The responses of a server with a program at its interface, or without any.
fn answers(attached: Option<Attached>, frames: &[Unusual]) -> Answers {
    let name = attached.map_or("sockets".to_owned(), |attached| attached.to_string());
    let mut lab = Lab::new(&name);
    lab.extend();
    serve(&lab.server, UPSTREAM, Arc::default());
    enter(&lab.client);
    let mut peer = Object::load(STEER_OBJECT).unwrap();
    let _pass = peer.attach("pass", "c0", Mode::Native).unwrap();
    let attached_line = attached.map(|Attached { key, mode }| {
        format!("{key} = [{{ interface = \"s0\", mode = \"{mode}\" }}]\n")
    });
    let own = format!(
        "listen = [\"0.0.0.0:53\", \"[::]:53\"]\nallow = [\"0.0.0.0/0\", \"::/0\"]\n{}",
        attached_line.unwrap_or_default()
    );
    lab.write_settings(&own, UPSTREAM, "");
    lab.start();
    let client = Client {
        socket: UdpSocket::bind("10.64.0.2:0").unwrap(),
        sent: Cell::new(0),
    };
    let is_cache = attached.is_some_and(|attached| attached.key == "driver-cache");
    if is_cache {
        client.warm(&lab);
    } else {
        client.ask(QUERY);
    }
    let mut end = End::new();
    end.catch_up();
    let [before, _] = lab.by_the_kernel();
    for unusual in frames {
        end.send(&unusual.frame);
    }
    end.catch_up();
    end.catch_up();
    // The usual frames did not get to the sockets.
    let [after, _] = lab.by_the_kernel();
    let by_the_kernel = usize::try_from(after - before).unwrap();
    let answers = end.answers();
    let answered = answers.len();
    assert!(
        attached.is_none() || by_the_kernel < answered / 2,
        "{name}: {by_the_kernel} of {answered}"
    );
    answers
}

/// In a thread of its own, because it joins a namespace.
fn answers_of(attached: Option<Attached>, frames: &[Unusual]) -> Answers {
    thread::scope(|scope| scope.spawn(|| answers(attached, frames)).join().unwrap())
}

/// The responses with this ID. A frame to a group is answered at each interface that it reaches, and the kernel passes it
/// to a macvlan later, or not at all under load.
fn with_id(answers: &Answers, id: u16, frame: &[u8]) -> Vec<Answer> {
    let found = answers.get(&id).into_iter().flatten();
    let mut found: Vec<_> = found.map(|(answer, _)| answer.clone()).collect();
    found.sort();
    if frame[0] & 1 == 1 {
        found.dedup();
    }
    found
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn xdp_answers_the_frames_that_sockets_answer() {
    let frames = frames::all();
    let by_sockets = answers_of(None, &frames);
    let answered = by_sockets.len();
    assert!((100..frames.len() - 100).contains(&answered), "{answered}");
    for key in ["driver-cache", "af-xdp"] {
        for mode in [Mode::Native, Mode::Generic] {
            let attached = Attached { key, mode };
            let by_xdp = answers_of(Some(attached), &frames);
            for (id, Unusual { what, frame }) in (0..).zip(&frames) {
                let [ours, theirs] = [&by_xdp, &by_sockets].map(|all| with_id(all, id, frame));
                assert_eq!(ours, theirs, "{attached}: {what}");
            }
            assert_eq!(by_xdp.len(), answered, "{attached}: other IDs");
            for (_, mac) in by_xdp.values().flatten() {
                // The kernel responds to the neighbour that it knows, a program to that of the query.
                let is_client =
                    *mac == CLIENT_MAC || frames.iter().any(|it| it.frame[6..12] == *mac);
                assert!(is_client, "{attached}: {mac:02x?}");
            }
        }
    }
}
