//! Queries to an authority during a trial, to measure the response times of an authority without a ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_transport::socket::{Segmentation, UdpLink};
use dns64_transport::{Link as _, cpu};

use super::HostQuery;
use crate::lab::{Blame, LabError};
use crate::load::query::{Edns, QueryTemplate};
use crate::namespace::AskedName;

/// Sends a query every [`PERIOD_NS`] at most, one at a time, until it is stopped.
#[derive(Debug)]
pub struct Pulse {
    /// `None` after the end.
    asking: Option<JoinHandle<Vec<Nanos>>>,
    is_over: Arc<AtomicBool>,
}

impl Pulse {
    /// Starts to send a query, from a core, one of the authority's, or from any.
    ///
    /// # Errors
    ///
    /// The host cannot be entered, a socket cannot be opened, a thread cannot be started.
    pub fn begin(question: HostQuery, core: Option<usize>) -> Result<Self, LabError> {
        let open = || UdpLink::client(question.server, &[], 1, Segmentation::Off);
        let no_socket = "cannot open a socket for queries to the authority during a trial";
        let link = question.network.enter(open)?;
        let link = link.map_err(Blame::Machine.because(no_socket))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let asking = Builder::new().name("pulse".into()).spawn(move || {
            // On another core it would take a little time from the Measurer or the DUT.
            let _ = core.map(cpu::pin);
            ask(&question, link, &over)
        });
        let no_thread = "cannot start the thread for queries to the authority during a trial; raise the limit of \
                         threads (ulimit -u, pids.max)";
        let asking = asking.map_err(Blame::Machine.because(no_thread))?;
        Ok(Self {
            asking: Some(asking),
            is_over,
        })
    }

    /// Stops and returns the response times. An unanswered query counts as its waiting time, including the one that is
    /// still open.
    pub fn end(&mut self) -> Vec<Nanos> {
        self.is_over.store(true, Ordering::Relaxed);
        let asking = self.asking.take();
        asking.map_or_else(Vec::new, |asking| asking.join().unwrap_or_default())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.end();
    }
}

fn ask(question: &HostQuery, mut link: UdpLink, is_over: &AtomicBool) -> Vec<Nanos> {
    let template = QueryTemplate::new(&question.suffix, Edns::None);
    let asked = AskedName::aaaa(question.address);
    let mut waits = Vec::new();
    for id in (0..=u16::MAX).cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let sent = link.send(0, 1, |_, frame| template.write(id, asked, frame));
        // Read after the call: a delay of this thread must not count as a slow authority.
        let asked_at = MonotonicClock.now();
        if !sent.is_ok_and(|sent| sent == 1) {
            MonotonicClock.sleep(PERIOD_NS);
            continue;
        }
        let until = asked_at + question.wait_ns;
        let answered_at = answer(&mut link, id, until, is_over);
        waits.push(answered_at.saturating_sub(asked_at));
        MonotonicClock.sleep((asked_at + PERIOD_NS).saturating_sub(MonotonicClock.now()));
    }
    waits
}

/// Returns the kernel's receive time of the response with this ID, or the current time after the timeout.
fn answer(link: &mut UdpLink, id: u16, until: Nanos, is_over: &AtomicBool) -> Nanos {
    let mut arrived_at = None;
    loop {
        let _ = link.wait(WAIT_STEP_NS);
        let _ = link.receive(BATCH, |datagram| {
            if datagram.payload.starts_with(&id.to_be_bytes()) {
                arrived_at = Some(datagram.at);
            }
        });
        let now = MonotonicClock.now();
        if arrived_at.is_some() || now >= until || is_over.load(Ordering::Relaxed) {
            return arrived_at.unwrap_or(now);
        }
    }
}

/// Interval of the queries: short enough to detect every stop that costs an answer at a timeout of RFC 8219 (1 s), of
/// which a quarter is allowed, and long enough to cause no load.
pub const PERIOD_NS: Nanos = SECOND / 20;

/// Polling interval for the end.
const WAIT_STEP_NS: Nanos = SECOND / 100;

/// Maximum number of responses per read: late responses to earlier queries may arrive as well.
const BATCH: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

    use dns64_transport::Backend;
    use dns64_wire::codes::Rtype;

    use crate::load::transport::Protocol;
    use crate::machine::network::Network;
    use crate::namespace::DEFAULT_SUFFIX;

    fn begin(server: SocketAddr) -> Pulse {
        let question = HostQuery {
            network: Network::Own,
            backend: Backend::Socket,
            protocol: Protocol::Udp,
            local: None,
            server,
            suffix: DEFAULT_SUFFIX.parse().unwrap(),
            address: Ipv4Addr::new(10, 0, 0, 1),
            rtype: Rtype::AAAA.0,
            wait_ns: 10 * SECOND,
        };
        Pulse::begin(question, None).unwrap()
    }

    #[test]
    fn delayed_response_counts_with_its_delay() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut pulse = begin(server.local_addr().unwrap());
        let held_ns = 120_000_000;
        let mut answered = 0;
        while answered < 3 {
            let mut question = [0; 512];
            let (len, from) = server.recv_from(&mut question).unwrap();
            if answered == 1 {
                MonotonicClock.sleep(held_ns);
            }
            server.send_to(&question[..len], from).unwrap();
            answered += 1;
        }
        let waits = pulse.end();
        assert!(waits.len() >= 2, "{waits:?}");
        // A thread that the machine keeps waiting after its call reads the time of the query too late.
        assert!(waits[1] >= held_ns / 2, "{waits:?}");
    }

    #[test]
    fn open_query_at_end_counts() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut pulse = begin(silent.local_addr().unwrap());
        silent.recv_from(&mut [0; 512]).unwrap();
        MonotonicClock.sleep(60_000_000);
        let waits = pulse.end();
        assert_eq!(waits.len(), 1);
        assert!(waits[0] >= 50_000_000, "{waits:?}");
    }
}
