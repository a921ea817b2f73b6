//! A DNS64 server for simulations, as good or as bad as a test wants it.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use dns64_transport::Link;
use dns64_transport::clock::{Clock, ManualClock, Nanos};
use dns64_transport::memory::MemoryLink;
use dns64_wire::pref64::Pref64;
use dns64bench::namespace::parse_label;

/// What the server does to its queries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Conduct {
    /// Answers each as it should.
    Good,
    /// Answers with an address of another prefix.
    WrongPrefix,
    /// Answers NOERROR without records.
    Empty,
    /// SERVFAIL.
    Fail,
    /// TC.
    Truncate,
    /// Three octets.
    Garbage,
    /// Answers after this time.
    Late(Nanos),
    /// Answers everything twice.
    Twice,
    /// Answers nothing.
    Silent,
    /// Answers this many, then no more.
    DieAfter(u64),
    /// Serves this many queries per second from an endless queue (paper 000, section 4.4).
    Queue(u64),
    /// Serves the first number of queries per second and has room for the second: what comes when that is full
    /// is lost.
    Room(u64, u64),
    /// Answers all but every n-th.
    LoseEvery(u64),
}

pub(crate) struct Dut {
    link: MemoryLink,
    clock: ManualClock,
    conduct: Conduct,
    pref64: Pref64,
    seen: u64,
    busy_until: Nanos,
    /// Answers that wait for their time.
    held: VecDeque<(Nanos, SocketAddr, Vec<u8>)>,
}

impl Dut {
    pub(crate) fn new(link: MemoryLink, clock: &ManualClock, conduct: Conduct) -> Self {
        let (clock, pref64) = (clock.clone(), Pref64::WELL_KNOWN);
        Self {
            link,
            clock,
            conduct,
            pref64,
            seen: 0,
            busy_until: 0,
            held: VecDeque::new(),
        }
    }

    /// When the next held answer leaves.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.held.front().map(|&(at, ..)| at)
    }

    pub(crate) fn turn(&mut self) {
        let mut queries = Vec::new();
        self.link
            .receive(usize::MAX, |d| queries.push((d.peer, d.payload.to_vec())))
            .unwrap();
        for (peer, query) in queries {
            self.seen += 1;
            self.take(peer, &query);
        }
        while let Some((at, peer, reply)) = self.held.pop_front() {
            if at > self.clock.now() {
                self.held.push_front((at, peer, reply));
                break;
            }
            self.link.send_to(peer, &reply);
        }
    }

    fn take(&mut self, peer: SocketAddr, query: &[u8]) {
        let now = self.clock.now();
        let good = self.answer(query, self.pref64);
        let (at, replies) = match self.conduct {
            Conduct::Good => (now, vec![good]),
            Conduct::WrongPrefix => (
                now,
                vec![self.answer(query, "2001:db8:64::/96".parse().unwrap())],
            ),
            Conduct::Empty => (now, vec![flagged(query, [0x81, 0x80])]),
            Conduct::Fail => (now, vec![flagged(query, [0x81, 0x82])]),
            Conduct::Truncate => (now, vec![flagged(query, [0x83, 0x80])]),
            Conduct::Garbage => (now, vec![vec![1, 2, 3]]),
            Conduct::Late(by) => (now + by, vec![good]),
            Conduct::Twice => (now, vec![good.clone(), good]),
            Conduct::Silent => (now, vec![]),
            Conduct::DieAfter(n) if self.seen > n => (now, vec![]),
            Conduct::DieAfter(_) => (now, vec![good]),
            Conduct::Queue(rate_qps) => {
                self.busy_until = self.busy_until.max(now) + 1_000_000_000 / rate_qps;
                (self.busy_until, vec![good])
            }
            Conduct::Room(rate_qps, places) => {
                let service_ns = 1_000_000_000 / rate_qps;
                let begins = self.busy_until.max(now);
                if (begins - now).div_ceil(service_ns) > places {
                    (now, vec![])
                } else {
                    self.busy_until = begins + service_ns;
                    (self.busy_until, vec![good])
                }
            }
            Conduct::LoseEvery(n) if self.seen.is_multiple_of(n) => (now, vec![]),
            Conduct::LoseEvery(_) => (now, vec![good]),
        };
        self.held
            .extend(replies.into_iter().map(|reply| (at, peer, reply)));
    }

    fn answer(&self, query: &[u8], pref64: Pref64) -> Vec<u8> {
        let address: Ipv4Addr = parse_label(query[13..28].try_into().unwrap()).unwrap();
        let mut reply = flagged(query, [0x81, 0x80]);
        reply[7] = 1;
        reply.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
        reply.extend(pref64.embed(address).octets());
        reply
    }
}

fn flagged(query: &[u8], flags: [u8; 2]) -> Vec<u8> {
    let mut reply = query.to_vec();
    reply[2..4].copy_from_slice(&flags);
    reply
}
