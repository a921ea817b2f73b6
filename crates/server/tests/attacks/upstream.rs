//! A scriptable upstream.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Section;

use super::packets::{Record, address, asked, honest, response, truncated};
use super::support::bind;

/// Interval at which its thread checks whether it must stop.
const POLL: Duration = Duration::from_millis(20);

/// A query that it received over UDP.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) from: SocketAddr,
    pub(crate) message: Vec<u8>,
}

/// An upstream at one address over UDP and TCP; it stops when dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has printed its panic, and the test gets no responses.
            let _ = thread.join();
        }
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

impl Upstream {
    /// Starts an upstream that answers correctly.
    pub(crate) fn honest() -> Self {
        Self::start(
            |socket, question| {
                let _ = socket.send_to(&honest(&question.message), question.from);
            },
            honest,
        )
    }

    /// Starts an upstream whose answers have this number of A records, which takes TCP.
    pub(crate) fn large(records: u32) -> Self {
        Self::start(
            |socket, question| {
                let _ = socket.send_to(&truncated(&question.message), question.from);
            },
            move |question| {
                let name = asked(question).0;
                let record = |i| Record::a(Section::Answer, &name, address(i));
                let records: Vec<_> = (0..records).map(record).collect();
                response(question, Rcode::NOERROR, &records)
            },
        )
    }

    /// Starts an upstream that calls a function for each UDP query, and answers each TCP query with
    /// another.
    pub(crate) fn start(
        datagram: impl FnMut(&UdpSocket, &Asked) + Send + 'static,
        connection: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(bind(), datagram, connection)
    }

    /// Starts an upstream at an address that the server already has in its configuration.
    pub(crate) fn start_at(
        address: SocketAddr,
        datagram: impl FnMut(&UdpSocket, &Asked) + Send + 'static,
        connection: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let sockets = (
            UdpSocket::bind(address).unwrap(),
            TcpListener::bind(address).unwrap(),
        );
        Self::serve(sockets, datagram, connection)
    }

    fn serve(
        (socket, listener): (UdpSocket, TcpListener),
        mut datagram: impl FnMut(&UdpSocket, &Asked) + Send + 'static,
        connection: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let address = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(POLL)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let log: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (ends, asked) = (Arc::clone(&stop), Arc::clone(&log));
        let thread = thread::spawn(move || {
            let mut frame = [0; 2048];
            while !ends.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut frame) else {
                    continue;
                };
                let message = frame[..len].to_vec();
                let question = Asked { from, message };
                asked.lock().unwrap().push(question.clone());
                datagram(&socket, &question);
            }
        });
        let ends = Arc::clone(&stop);
        let connection = Arc::new(connection);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, answer) = (stream.unwrap(), Arc::clone(&connection));
                // It ends when the server closes.
                thread::spawn(move || converse(stream, &*answer));
            }
        });
        Self {
            address,
            asked: log,
            stop,
            thread: Some(thread),
        }
    }

    /// Clears the list of queries: in an hour it would have gigabytes.
    pub(crate) fn forget(&self) {
        self.asked.lock().unwrap().clear();
    }

    /// The queries over UDP.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Number of queries for this name, in lower case, and type.
    pub(crate) fn times_asked(&self, name: &str, rtype: Rtype) -> usize {
        let log = self.asked();
        let same = log.iter().filter(|question| {
            let (asked, asked_type) = asked(&question.message);
            let asked = asked.as_name().to_string().to_ascii_lowercase();
            asked.trim_end_matches('.') == name && asked_type == rtype
        });
        same.count()
    }
}

/// Answers the queries of a connection in sequence.
fn converse(mut stream: TcpStream, answer: &impl Fn(&[u8]) -> Vec<u8>) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question)?;
        let answer = answer(&question);
        let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
        // In one segment: the second of two would wait for a delayed acknowledgement.
        stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat())?;
    }
}
