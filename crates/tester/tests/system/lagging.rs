//! A link of a simulated network that delivers queries to its authority with a delay.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use dns64_transport::clock::{Clock, ManualClock, Nanos};
use dns64_transport::memory::MemoryLink;
use dns64_transport::{Carrier, Counters, Datagram, Departure, Link, LinkError, Origin};

/// The link of an authority with a fixed response time.
pub(crate) struct Lagging {
    link: MemoryLink,
    clock: ManualClock,
    lag_ns: Nanos,
    held: Rc<RefCell<Held>>,
    departures: Vec<Departure>,
}

/// Arrival time, sender and octets of pending queries.
pub(crate) type Held = VecDeque<(Nanos, SocketAddr, Vec<u8>)>;

impl Lagging {
    /// Creates a link whose authority answers this long after each query; `held` are the pending queries.
    pub(crate) fn over(
        link: MemoryLink,
        clock: &ManualClock,
        lag_ns: Nanos,
        held: &Rc<RefCell<Held>>,
    ) -> Self {
        Self {
            link,
            clock: clock.clone(),
            lag_ns,
            held: Rc::clone(held),
            departures: Vec::new(),
        }
    }
}

impl Link for Lagging {
    fn ports(&self) -> usize {
        self.link.ports()
    }

    fn send(
        &mut self,
        port: usize,
        n: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        self.link.send(port, n, fill)
    }

    fn receive(&mut self, max: usize, each: impl FnMut(Datagram<'_>)) -> Result<usize, LinkError> {
        self.link.receive(max, each)
    }

    fn sweeps(&self) -> u64 {
        self.link.sweeps()
    }

    fn answer(
        &mut self,
        max: usize,
        mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        let mut held = self.held.borrow_mut();
        self.link.receive(max, |datagram| {
            held.push_back((datagram.at, datagram.peer, datagram.payload.to_vec()));
        })?;
        let now = self.clock.now();
        self.departures.clear();
        let mut replies = 0;
        while held.front().is_some_and(|held| held.0 + self.lag_ns <= now)
            && let Some((at, peer, query)) = held.pop_front()
        {
            let mut frame = [0; 512];
            let len = answer(Datagram::new(0, peer, &query, at), &mut frame);
            if len > 0 {
                self.link.send_to(peer, &frame[..len]);
                replies += 1;
            }
        }
        self.departures.push(Departure { replies, at: now });
        Ok(replies)
    }

    fn reply(
        &mut self,
        next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        let replies = self.link.reply(next)?;
        self.departures = self.link.departures().to_vec();
        Ok(replies)
    }

    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn departures(&self) -> &[Departure] {
        &self.departures
    }

    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        self.link.wait(timeout)
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.link.counters()
    }

    fn carrier(&self) -> Carrier {
        self.link.carrier()
    }
}
