//! The authority over TCP (RFC 7766), for the few who ask that way: resolvers after a truncated
//! answer, and people with `dig +tcp`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dns64_transport::clock::{Clock, MonotonicClock};

use super::REPLY_LEN_MAX;
use super::answer::{Authority, Transport};
use super::behaviour::Rules;
use super::counts::AuthorityCounts;
use super::faulty::Faults;
use super::ledger::Recorder;
use super::zone::ZoneConfig;
use crate::connections::{Next, Service};

/// Connections that are served at the same time.
pub const CONNECTIONS_MAX: usize = 64;

/// An authority that listens for TCP connections. Dropping it closes them all.
#[derive(Debug)]
pub struct TcpService {
    service: Service,
    shared: Arc<Mutex<Shared>>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    authority: Authority,
    /// Those of content alone: over a connection nothing is lost, late or in another order.
    faults: Option<Faults>,
    /// Of the trial under way.
    recorder: Option<Recorder>,
}

impl TcpService {
    /// Listens at `listen` in the network that the calling thread is in, and serves from now on.
    /// With `rules` the errors among their faults apply.
    pub fn open(
        listen: SocketAddr,
        config: ZoneConfig,
        rules: Option<Arc<Rules>>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let shared = Arc::new(Mutex::new(Shared {
            authority: Authority::new(config),
            faults: rules.map(Faults::new),
            recorder: None,
        }));
        let of_all = Arc::clone(&shared);
        let begin = move || {
            move |input: &mut Vec<u8>, output: &mut Vec<u8>| {
                answer(&mut locked(&of_all), input, output)
            }
        };
        Ok(Self {
            service: Service::start(listener, "tcp", CONNECTIONS_MAX, begin)?,
            shared,
        })
    }

    /// Where it listens; tells the port if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.service.address()
    }

    /// What it has counted so far.
    pub fn counts(&self) -> AuthorityCounts {
        let shared = locked(&self.shared);
        AuthorityCounts {
            misbehaviour: shared.faults.as_ref().map(Faults::counts),
            ..shared.authority.counts()
        }
    }

    /// Notes questions in the ledger of a trial from now on, or no longer: when they have been read whole,
    /// and when their replies have been written.
    pub fn record(&self, recorder: Option<Recorder>) {
        locked(&self.shared).recorder = recorder;
    }
}

/// The counters are sound after a panic elsewhere: each is one addition.
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the next query of a connection, if it is there, whole. One that gets no reply ends it.
fn answer(shared: &mut Shared, input: &mut Vec<u8>, output: &mut Vec<u8>) -> Next {
    let Shared {
        authority,
        faults,
        recorder,
    } = shared;
    let Some((len, rest)) = input.split_first_chunk() else {
        return Next::Wait;
    };
    let len = usize::from(u16::from_be_bytes(*len));
    let Some(query) = rest.get(..len) else {
        return Next::Wait;
    };
    let mut reply = [0; REPLY_LEN_MAX];
    let arrived_at = MonotonicClock.now();
    let told = authority.answer(query, &mut reply, Transport::Tcp);
    let mut reply_len = told.len;
    if let Some(faults) = faults.as_mut().filter(|_| reply_len > 0) {
        let suffix = authority.suffix();
        let spoiled = faults.spoil(&suffix, query, &mut reply, reply_len, Transport::Tcp);
        reply_len = spoiled.0;
    }
    input.drain(..2 + len);
    let recorder = recorder.as_ref();
    let noted = recorder.map(|recorder| (recorder, recorder.arrived(told.asked, arrived_at)));
    match u16::try_from(reply_len) {
        Ok(prefix @ 1..) => {
            // In one piece: some clients take a length alone for an error (RFC 7766 section 8).
            output.extend(prefix.to_be_bytes());
            output.extend(&reply[..reply_len]);
            if let Some((recorder, mark)) = noted {
                recorder.answered(mark, MonotonicClock.now());
            }
            Next::Again
        }
        _ => Next::Close,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::authority::counts::FaultCounts;
    use crate::namespace::{Share, Zone};

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\
        \x0f192-000-002-001\x09dns64perf\x04test\0\0\x01\0\x01";

    fn service() -> TcpService {
        faulty("none")
    }

    fn faulty(behaviour: &str) -> TcpService {
        let rules = Rules::new(behaviour.parse().unwrap()).unwrap();
        let config = ZoneConfig {
            zone: Zone {
                suffix: "dns64perf.test".parse().unwrap(),
                aaaa_share: Share::NONE,
            },
            self_test: false,
            ttl_s: 60,
            negative_ttl_s: 60,
        };
        let rules = (behaviour != "none").then(|| Arc::new(rules));
        TcpService::open("127.0.0.1:0".parse().unwrap(), config, rules).unwrap()
    }

    fn connect(service: &TcpService) -> TcpStream {
        let stream = TcpStream::connect(service.local_addr()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
    }

    fn framed(query: &[u8]) -> Vec<u8> {
        let len = u16::try_from(query.len()).unwrap();
        [&len.to_be_bytes(), query].concat()
    }

    fn read_reply(stream: &mut TcpStream) -> Vec<u8> {
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut reply).unwrap();
        reply
    }

    #[test]
    fn several_queries_of_one_connection_are_answered_however_they_are_cut() {
        let service = service();
        let mut stream = connect(&service);
        let two = [framed(QUERY), framed(QUERY)].concat();
        stream.write_all(&two[..1]).unwrap();
        stream.write_all(&two[1..70]).unwrap();
        stream.write_all(&two[70..]).unwrap();
        let expected = b"\x12\x34\x85\0\0\x01\0\x01\0\0\0\0\
            \x0f192-000-002-001\x09dns64perf\x04test\0\0\x01\0\x01\
            \xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
        assert_eq!(read_reply(&mut stream), expected);
        assert_eq!(read_reply(&mut stream), expected);
        let expected = AuthorityCounts {
            a: 2,
            answered: 2,
            tcp: 2,
            ..AuthorityCounts::default()
        };
        assert_eq!(service.counts(), expected);
    }

    #[test]
    fn errors_are_the_same_over_tcp_and_nothing_else_is_wrong_there() {
        let servfail = b"\x12\x34\x81\x02\0\x01\0\0\0\0\0\0\
            \x0f192-000-002-001\x09dns64perf\x04test\0\0\x01\0\x01";
        for (behaviour, spoiled) in [
            ("servfail=100%", true),
            ("delay=10s,loss=100%", false),
            ("truncate=100%", false),
            ("duplicate=100%", false),
        ] {
            let service = faulty(behaviour);
            let mut stream = connect(&service);
            stream.write_all(&framed(QUERY)).unwrap();
            let reply = read_reply(&mut stream);
            assert_eq!(reply == servfail, spoiled, "{behaviour}: {reply:?}");
            assert_eq!(reply.len(), QUERY.len() + if spoiled { 0 } else { 16 });
            let counted = FaultCounts {
                servfail: u64::from(spoiled),
                ..FaultCounts::default()
            };
            assert_eq!(service.counts().misbehaviour, Some(counted));
        }
    }

    #[test]
    fn what_gets_no_reply_ends_its_connection_and_no_other() {
        let service = service();
        let mut bystander = connect(&service);
        let mut stream = connect(&service);
        stream.write_all(b"\0\0").unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        bystander.write_all(&framed(QUERY)).unwrap();
        assert_eq!(read_reply(&mut bystander).len(), QUERY.len() + 16);
        assert_eq!(service.counts().ignored, 1);
    }

    #[test]
    fn a_connection_beyond_the_bound_is_served_when_another_ends() {
        let service = service();
        let ask = || {
            let mut stream = connect(&service);
            stream.write_all(&framed(QUERY)).unwrap();
            stream
        };
        let mut served: Vec<_> = (0..CONNECTIONS_MAX).map(|_| ask()).collect();
        for stream in &mut served {
            read_reply(stream);
        }
        let mut beyond = ask();
        beyond.set_nonblocking(true).unwrap();
        let error = beyond.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        beyond.set_nonblocking(false).unwrap();
        drop(served.pop());
        read_reply(&mut beyond);
        assert_eq!(service.counts().tcp, CONNECTIONS_MAX as u64 + 1);
    }

    #[test]
    fn dropping_the_service_closes_connections_and_frees_the_port() {
        let service = service();
        let addr = service.local_addr();
        let mut stream = connect(&service);
        stream.write_all(&framed(QUERY)).unwrap();
        read_reply(&mut stream);
        drop(service);
        assert!(!matches!(stream.read(&mut [0; 1]), Ok(1..)));
        assert!(TcpStream::connect(addr).is_err());
    }
}
