//! Sends the queries of the cases and waits for their responses.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};

use super::authority::{frame, framed};
use super::query::Query;
use crate::machine::network::Network;

/// Whoever asks the server.
pub(super) trait Client {
    /// Sends a query and waits for its response, at most `wait_ns`. With a control, it is sent after the query, and its
    /// response shows that there is none to the query.
    fn ask(&self, query: &Query, id: u16, wait_ns: Nanos, control: Option<&Query>) -> Back;

    /// Waits between two steps.
    fn sleep(&self, span_ns: Nanos);

    /// The time.
    fn now(&self) -> Nanos;
}

/// What came back of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// A response.
    Response(Vec<u8>),
    /// No response.
    Nothing,
    /// No response, nor one to the control.
    Gone,
}

/// A client at sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    /// Its network.
    pub(super) network: Network,
    /// The server.
    pub(super) server: SocketAddr,
    /// The connection of the last query over TCP.
    connection: Mutex<Option<TcpStream>>,
}

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(5);

impl Sockets {
    /// A client in a network.
    pub(super) fn new(network: Network, server: SocketAddr) -> Self {
        Self {
            network,
            server,
            connection: Mutex::default(),
        }
    }

    fn datagram(
        &self,
        message: &[u8],
        wait_ns: Nanos,
        control: Option<Vec<u8>>,
    ) -> io::Result<Back> {
        let any = match self.server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = self.enter(|| UdpSocket::bind(any))?;
        socket.connect(self.server)?;
        socket.send(message)?;
        let Some(control) = control else {
            return received(&socket, wait_ns).map(Back::Response);
        };
        socket.send(&control)?;
        let Ok(first) = received(&socket, wait_ns) else {
            return Ok(Back::Gone);
        };
        if first.get(..2) != control.get(..2) {
            return Ok(Back::Response(first));
        }
        // Threads of a server may overtake each other.
        let late = received(&socket, OVERTAKEN_NS).map(Back::Response);
        Ok(late.unwrap_or(Back::Nothing))
    }

    fn stream(&self, query: &Query, id: u16, wait_ns: Nanos) -> io::Result<Vec<u8>> {
        let mut kept = self.connection.lock().map_err(|_| io::ErrorKind::Other)?;
        let mut stream = match kept.take().filter(|_| query.reuse) {
            Some(stream) => stream,
            None => self.enter(|| TcpStream::connect_timeout(&self.server, CONNECT))?,
        };
        stream.set_read_timeout(Some(Duration::from_nanos(wait_ns)))?;
        let mut segment = frame(&query.octets(id));
        if query.pipelined {
            segment.extend(frame(&query.octets(!id)));
        }
        stream.write_all(&segment)?;
        let mut message = framed(&mut stream)?;
        if query.pipelined {
            // In any order (RFC 7766 section 7).
            let other = framed(&mut stream)?;
            if message.get(..2) != Some(&id.to_be_bytes()) {
                message = other;
            }
        }
        *kept = Some(stream);
        Ok(message)
    }

    fn enter<T: Send>(&self, open: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let entered = self.network.enter(open);
        entered.map_err(|error| io::Error::other(error.to_string()))?
    }
}

impl Client for Sockets {
    fn ask(&self, query: &Query, id: u16, wait_ns: Nanos, control: Option<&Query>) -> Back {
        let answered = match query.tcp {
            true => self.stream(query, id, wait_ns).map(Back::Response),
            false => {
                let control = control.map(|it| it.octets(!id));
                self.datagram(&query.octets(id), wait_ns, control)
            }
        };
        answered.unwrap_or(Back::Nothing)
    }

    fn sleep(&self, span_ns: Nanos) {
        MonotonicClock.sleep(span_ns);
    }

    fn now(&self) -> Nanos {
        MonotonicClock.now()
    }
}

fn received(socket: &UdpSocket, wait_ns: Nanos) -> io::Result<Vec<u8>> {
    socket.set_read_timeout(Some(Duration::from_nanos(wait_ns)))?;
    let mut buffer = vec![0; 65_536];
    let length = socket.recv(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Time without a response that is waited: more than any of the tested servers takes to give up an authority that is
/// silent.
pub(super) const WAIT_NS: Nanos = 20 * SECOND;

/// Time for a response after that of the control.
const OVERTAKEN_NS: Nanos = SECOND / 10;

#[cfg(test)]
mod tests {
    use domain::base::iana::Rtype;

    use super::*;

    #[test]
    fn response_of_somebody_else_is_none() {
        let bound = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (server, other) = (bound(), bound());
        let client = Sockets::new(Network::Own, server.local_addr().unwrap());
        let name = "example".parse().unwrap();
        let query = Query::plain(&name, Rtype::AAAA);
        for (from, is_response) in [(&other, false), (&server, true)] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut octets = [0; 512];
                    let (length, client) = server.recv_from(&mut octets).unwrap();
                    from.send_to(&octets[..length], client).unwrap();
                });
                // The wait only ends a response that never comes.
                let wait_ns = if is_response { WAIT_NS } else { SECOND / 10 };
                let back = client.ask(&query, 1, wait_ns, None);
                assert_eq!(matches!(back, Back::Response(_)), is_response);
            });
        }
    }
}
