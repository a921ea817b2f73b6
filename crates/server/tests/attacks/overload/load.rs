//! A load with fixed send times, and upstreams with a latency and a capacity.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Message;

use super::super::packets::{
    MESSAGE_MAX, address, addresses, asked, honest, name, number, query, synthesised,
};
use super::super::upstream::Upstream;

/// Time after the last query, longer than a client waits.
const LAST_WAIT: Nanos = 7 * SECOND;

/// First number of the dead names, for which there are no responses.
pub(crate) const DEAD: u32 = 8_000_000;

/// Behaviour of an upstream, which may change while it runs.
#[derive(Clone, Default)]
pub(crate) struct Temper(Arc<Nature>);

#[derive(Default)]
struct Nature {
    latency_ns: AtomicU64,
    /// Silent from the first to the second time.
    silent_from: AtomicU64,
    silent_to: AtomicU64,
    /// Answers per second, or 0.
    rate: AtomicU64,
    /// Capacity of the queue of waiting queries; further ones are lost.
    queue: AtomicU64,
}

impl Temper {
    pub(crate) fn taking(latency_ns: Nanos) -> Self {
        let temper = Self::default();
        temper.0.latency_ns.store(latency_ns, Ordering::Relaxed);
        temper
    }

    pub(crate) fn silence(self, from: Nanos, to: Nanos) -> Self {
        self.0.silent_from.store(from, Ordering::Relaxed);
        self.0.silent_to.store(to, Ordering::Relaxed);
        self
    }

    pub(crate) fn at_most(self, rate: u64, queue: u64) -> Self {
        self.0.rate.store(rate, Ordering::Relaxed);
        self.0.queue.store(queue, Ordering::Relaxed);
        self
    }

    pub(crate) fn start(&self) -> Upstream {
        let nature = Arc::clone(&self.0);
        let mut free_at = 0;
        let mut outbox: Option<Sender<(Nanos, Vec<u8>, SocketAddr)>> = None;
        Upstream::start(
            move |socket, question| {
                let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
                let now = MonotonicClock.now();
                let is_dead = number(&asked(&question.message).0).is_some_and(|n| n >= DEAD);
                let silent = get(&nature.silent_from)..get(&nature.silent_to);
                if is_dead || silent.contains(&now) {
                    return;
                }
                free_at = now.max(free_at);
                let rate = get(&nature.rate);
                if rate > 0 {
                    if (free_at - now) * rate / SECOND > get(&nature.queue) {
                        return;
                    }
                    free_at += SECOND / rate;
                }
                let outbox = outbox.get_or_insert_with(|| {
                    let (outbox, waiting) = channel();
                    let socket = socket.try_clone().unwrap();
                    thread::spawn(move || deliver(&socket, &waiting));
                    outbox
                });
                let due = free_at + get(&nature.latency_ns);
                let _ = outbox.send((due, honest(&question.message), question.from));
            },
            honest,
        )
    }
}

fn deliver(socket: &UdpSocket, waiting: &Receiver<(Nanos, Vec<u8>, SocketAddr)>) {
    while let Ok((due, message, to)) = waiting.recv() {
        let now = MonotonicClock.now();
        if due > now {
            MonotonicClock.sleep(due - now);
        }
        let _ = socket.send_to(&message, to);
    }
}

/// The outcome of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) asked_at: Nanos,
    /// `None` if there was no response.
    pub(crate) took_ns: Option<Nanos>,
    pub(crate) rcode: Option<Rcode>,
    /// The response has the address of the name.
    pub(crate) is_right: bool,
    pub(crate) is_truncated: bool,
}

/// Sends queries at these times, relative to now, from an address. The names begin with `first` and
/// repeat after `names`.
pub(crate) fn load(
    server: SocketAddr,
    from: &str,
    (first, names): (u32, u32),
    rtype: Rtype,
    times: &[Nanos],
) -> Vec<Told> {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let begun = MonotonicClock.now();
    let ends = begun + times.last().copied().unwrap_or(0) + LAST_WAIT;
    let ears = socket.try_clone().unwrap();
    let count = times.len();
    let listener = thread::spawn(move || listen(&ears, count, rtype, ends));
    let mut sent = Vec::with_capacity(count);
    for (i, due) in times.iter().enumerate() {
        let now = MonotonicClock.now();
        if begun + due > now {
            MonotonicClock.sleep(begun + due - now);
        }
        let number = first + u32::try_from(i).unwrap() % names;
        let id = u16::try_from(i % 65_536).unwrap();
        let message = query(id, &name(number), rtype);
        sent.push(MonotonicClock.now());
        socket.send_to(&message, server).unwrap();
    }
    let heard = listener.join().unwrap();
    let pairs = sent.into_iter().zip(heard);
    let told = pairs.map(|(sent, told)| Told {
        asked_at: sent - begun,
        took_ns: told.took_ns.map(|at| at.saturating_sub(sent)),
        ..told
    });
    told.collect()
}

/// Receives responses until all have arrived or it is too late. `took_ns` is then the arrival time.
fn listen(socket: &UdpSocket, count: usize, rtype: Rtype, ends: Nanos) -> Vec<Told> {
    let nothing = Told {
        asked_at: 0,
        took_ns: None,
        rcode: None,
        is_right: false,
        is_truncated: false,
    };
    let mut told = vec![nothing; count];
    let mut left = count;
    let mut frame = vec![0; MESSAGE_MAX];
    while left > 0 && MonotonicClock.now() < ends {
        let Ok(len) = socket.recv(&mut frame) else {
            continue;
        };
        let message = Message::parse(&frame[..len]).unwrap();
        let Some(told) = told.get_mut(usize::from(message.id())) else {
            continue;
        };
        assert!(told.took_ns.is_none(), "a second response");
        told.took_ns = Some(MonotonicClock.now());
        told.rcode = Some(message.rcode());
        told.is_right = is_right(&frame[..len], rtype);
        told.is_truncated = message.tc();
        left -= 1;
    }
    told
}

fn is_right(answer: &[u8], rtype: Rtype) -> bool {
    let Some(number) = number(&asked(answer).0) else {
        return false;
    };
    if rtype == Rtype::AAAA {
        return addresses(answer) == [synthesised(number)];
    }
    let message = Message::parse(answer).unwrap();
    let mut records = message.records().map(Result::unwrap);
    records.any(|record| record.a() == Some(address(number)))
}

/// Send times at a constant rate per second within a period.
pub(crate) fn steady(rate: u64, from: Nanos, to: Nanos) -> Vec<Nanos> {
    let count = (to - from) * rate / SECOND;
    (0..count).map(|i| from + i * SECOND / rate).collect()
}

/// The response time of this percentage of queries, in milliseconds.
pub(crate) fn percentile_ms<'a>(told: impl Iterator<Item = &'a Told>, percent: usize) -> u64 {
    let mut times: Vec<_> = told.map(|t| t.took_ns.unwrap_or(LAST_WAIT)).collect();
    times.sort_unstable();
    match times.len() {
        0 => 0,
        len => times[(len * percent).div_ceil(100).max(1) - 1] / (SECOND / 1000),
    }
}
