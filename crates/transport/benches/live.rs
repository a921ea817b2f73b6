//! Measures a server in the driver without a load generator in user space: the kernel copies the queries from one
//! frame, and programs at both ends of a veth link do the rest, on all cores that this process may use. Each core
//! sends, answers and counts independently, if the far end of the link has a queue for each.
//!
//! `live INTERFACE OWN-ADDRESS SERVER SERVER-MAC NAMES SECONDS`: AAAA queries with EDNS for the names 010-000-000-000
//! and so on of dns64perf.test, over IPv4, at the maximum rate. Prints the sent queries and received responses per
//! second. Needs root.

use std::io::Write as _;
use std::net::IpAddr;
use std::thread;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_transport::cpu;
use dns64_transport::xdp::program::{Mode, Object, XdpError};

// The module is private to the crate, and its tests are included.
#[path = "../src/xdp/frame.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "the bench uses a part of the module"
)]
mod frame;

/// ID 0, RD, one question, one additional record; the name, AAAA, IN; OPT for 1232 octets (RFC 6891).
const QUERY: &[u8] =
    b"\0\0\x01\0\0\x01\0\0\0\0\0\x01\x0f010-000-000-000\x09dns64perf\x04test\0\0\x1c\0\x01\
    \0\0\x29\x04\xd0\0\0\0\0\0\0";

/// As in `live.bpf.c`.
const UDP_AT: usize = 34;
const CHECKSUM_AT: usize = UDP_AT + 6;
const DIGITS_AT: usize = 62;
const FRAME_BYTES: usize = 101;

/// Frames per system call; each takes a few microseconds.
const AT_ONCE: u32 = 1 << 16;

/// First source port; the ports are consecutive, and far from those of other programs.
const PORT: u16 = 40_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [interface, rest @ ..] if rest.len() == 5 => {
            let load =
                Load::new(interface, rest).expect("OWN-ADDRESS SERVER SERVER-MAC NAMES SECONDS");
            let told = load.run().expect("XDP");
            let _unheard = writeln!(std::io::stdout(), "{told}");
        }
        // `cargo bench` without arguments passes no interface.
        [] => {}
        [only] if only == "--bench" => {}
        other => panic!("expected six arguments, got {other:?}"),
    }
}

struct Load<'a> {
    interface: &'a str,
    frame: Vec<u8>,
    names: u64,
    seconds: u64,
}

impl<'a> Load<'a> {
    fn new(interface: &'a str, arguments: &[String]) -> Option<Self> {
        let [own, server] = [0, 1].map(|i| arguments[i].parse::<IpAddr>().ok());
        let [own_mac, server_mac] = [
            std::fs::read_to_string(format!("/sys/class/net/{interface}/address")).ok()?,
            arguments[2].clone(),
        ]
        .map(|text| mac(&text));
        let flow = frame::Flow {
            macs: [server_mac?, own_mac?],
            addresses: frame::addresses(own?, server?)?,
            ports: [PORT, 53],
        };
        let mut frame = vec![0; FRAME_BYTES];
        assert_eq!(frame::build(&flow, QUERY, &mut frame), Some(FRAME_BYTES));
        Some(Self {
            interface,
            frame,
            names: arguments[3]
                .parse()
                .ok()
                .filter(|names| (1..=1 << 16).contains(names))?,
            seconds: arguments[4].parse().ok()?,
        })
    }

    fn run(&self) -> Result<String, XdpError> {
        let mut object = Object::load(include_bytes!("../bpf/live.bpf.o"))?;
        object.map("query")?.set(&[0; 4], &self.template())?;
        let _counts = object.attach("count", self.interface, Mode::Native)?;
        let began = MonotonicClock.now();
        thread::scope(|scope| {
            let object = &object;
            let runs: Vec<_> = cpu::available()
                .into_iter()
                .map(|core| scope.spawn(move || self.fire(core, object, began)))
                .collect();
            let fired = runs.into_iter().map(|run| run.join().expect("a run"));
            fired.collect::<Result<(), XdpError>>()
        })?;
        let span_ns = MonotonicClock.now() - began;
        let mut counts = [0; 3];
        object.map("counts")?.per_cpu(&[0; 4], |of_cpu| {
            let (words, _) = of_cpu.as_chunks::<8>();
            for (sum, word) in counts.iter_mut().zip(words) {
                *sum += u64::from_ne_bytes(*word);
            }
        })?;
        let [sent, answers, others] = counts.map(|count| count * SECOND / span_ns);
        Ok(format!(
            "{answers} answers/s of {sent} queries/s, {others} other replies/s"
        ))
    }

    fn fire(&self, core: usize, object: &Object, began: Nanos) -> Result<(), XdpError> {
        cpu::pin(core).expect("a core that this may run on");
        while MonotonicClock.now() - began < self.seconds * SECOND {
            object.run_live("gun", &self.frame, self.interface, AT_ONCE)?;
        }
        Ok(())
    }

    /// `struct query`.
    fn template(&self) -> Vec<u8> {
        let mut frame = self.frame.clone();
        frame[CHECKSUM_AT..][..2].fill(0);
        frame[DIGITS_AT..][..8].fill(0);
        // The pseudo-header: both addresses, the protocol, the length; then the UDP header and the message.
        let length = u64::from(u16::from_ne_bytes([frame[UDP_AT + 4], frame[UDP_AT + 5]]));
        let protocol = u64::from(u16::from_ne_bytes([0, 17]));
        let words = frame[UDP_AT - 8..].chunks(2);
        let words = words.map(|pair| u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        let sum = words.map(u64::from).sum::<u64>() + length + protocol;
        frame.resize(FRAME_BYTES.next_multiple_of(8), 0);
        frame.extend(sum.to_ne_bytes());
        frame.extend(self.names.to_ne_bytes());
        frame
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let octets: Option<Vec<u8>> = text
        .trim()
        .split(':')
        .map(|octet| u8::from_str_radix(octet, 16).ok())
        .collect();
    octets?.try_into().ok()
}
