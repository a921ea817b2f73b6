//! A link of a simulated network whose calls take time, and which fails at some time.

use std::io::{Error, ErrorKind};

use dns64_transport::clock::{Clock, ManualClock, Nanos};
use dns64_transport::memory::MemoryLink;
use dns64_transport::{Carrier, Counters, Datagram, Departure, Link, LinkError, Origin};

pub(crate) struct Rough {
    link: MemoryLink,
    clock: ManualClock,
    /// Time from which every call fails.
    pub(crate) fails_at: Nanos,
    /// Cost of a receive call.
    pub(crate) call_ns: Nanos,
    /// Additional cost of each datagram that is sent, received or answered.
    pub(crate) datagram_ns: Nanos,
}

impl Rough {
    /// Creates a link without costs that does not fail.
    pub(crate) fn over(link: MemoryLink, clock: &ManualClock) -> Self {
        Self {
            link,
            clock: clock.clone(),
            fails_at: Nanos::MAX,
            call_ns: 0,
            datagram_ns: 0,
        }
    }

    fn check(&self, call: &'static str) -> Result<(), LinkError> {
        if self.clock.now() < self.fails_at {
            return Ok(());
        }
        let reason = Error::from(ErrorKind::NetworkDown);
        Err(LinkError { call, reason })
    }

    fn costs(&self, datagrams: usize) {
        self.clock
            .advance(self.call_ns + datagrams as u64 * self.datagram_ns);
    }
}

impl Link for Rough {
    fn ports(&self) -> usize {
        self.link.ports()
    }

    fn send(
        &mut self,
        port: usize,
        n: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        self.check("send")?;
        let sent = self.link.send(port, n, fill)?;
        self.costs(sent);
        Ok(sent)
    }

    fn receive(&mut self, max: usize, each: impl FnMut(Datagram<'_>)) -> Result<usize, LinkError> {
        self.check("receive")?;
        let received = self.link.receive(max, each)?;
        self.costs(received);
        Ok(received)
    }

    fn sweeps(&self) -> u64 {
        self.link.sweeps()
    }

    fn answer(
        &mut self,
        max: usize,
        answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        self.check("answer")?;
        let answered = self.link.answer(max, answer)?;
        self.costs(answered);
        Ok(answered)
    }

    fn reply(
        &mut self,
        next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        self.check("reply")?;
        let replies = self.link.reply(next)?;
        self.clock.advance(replies as u64 * self.datagram_ns);
        Ok(replies)
    }

    fn now(&self) -> Nanos {
        self.link.now()
    }

    fn departures(&self) -> &[Departure] {
        self.link.departures()
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
