//! The authority over TCP (RFC 7766) and TLS (RFC 7858): for resolvers after a truncated response, people with `dig +tcp`,
//! and self-tests over both.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dns64_transport::clock::{Clock, MonotonicClock};
use dns64_transport::cpu;

use super::REPLY_LEN_MAX;
use super::answer::Authority;
use super::behaviour::Rules;
use super::counts::AuthorityCounts;
use super::faulty::ContentFaults;
use super::ledger::Recorder;
use super::zone::ZoneConfig;
use crate::connections::{ConnectionService, Next, tls};
use crate::load::transport::Protocol;

/// Largest number of concurrent connections. A self-test has as many as the trial of a DUT.
const CONNECTIONS_MAX: usize = 4096;

/// An authority that listens for TCP connections. Dropping it closes them all.
#[derive(Debug)]
pub struct TcpService {
    service: ConnectionService,
    shared: Arc<Mutex<Shared>>,
    tid: u32,
}

/// State shared by all connections.
#[derive(Debug)]
struct Shared {
    authority: Authority,
    /// Only the faults of content apply: over a connection nothing is lost, delayed or reordered.
    faults: Option<ContentFaults>,
    /// Recorder of the current trial.
    recorder: Option<Recorder>,
}

impl TcpService {
    /// Listens at `listen` in the network namespace of the calling thread and serves connections, on this core or on any: with
    /// TLS those that begin with a handshake. With `rules`, their content faults apply.
    pub fn open(
        listen: SocketAddr,
        config: ZoneConfig,
        rules: Option<Arc<Rules>>,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let shared = Arc::new(Mutex::new(Shared {
            authority: Authority::new(config),
            faults: rules.map(ContentFaults::new),
            recorder: None,
        }));
        let of_all = Arc::clone(&shared);
        let (told, tid) = channel();
        let begin = move || {
            let pinned = core.map_or(Ok(()), cpu::pin);
            let _ = told.send(pinned.map(|()| cpu::thread_id()));
            move |input: &mut Vec<u8>, output: &mut Vec<u8>| {
                answer(&mut locked(&of_all), input, output)
            }
        };
        let service = ConnectionService::start(
            listener,
            "tcp",
            CONNECTIONS_MAX,
            Some(tls::self_signed()?),
            begin,
        )?;
        Ok(Self {
            service,
            shared,
            tid: tid.recv().map_err(io::Error::other)??,
        })
    }

    /// The kernel's ID of its thread.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// The listening address; gives the chosen port if the configured one is 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.service.address()
    }

    /// Returns the counters.
    pub fn counts(&self) -> AuthorityCounts {
        let shared = locked(&self.shared);
        AuthorityCounts {
            misbehaviour: shared.faults.as_ref().map(ContentFaults::counts),
            ..shared.authority.counts()
        }
    }

    /// Starts or stops recording in the ledger of a trial: when a query was read completely, and when its reply was
    /// written.
    pub fn record(&self, recorder: Option<Recorder>) {
        locked(&self.shared).recorder = recorder;
    }
}

/// The counters are valid even after a panic of another thread: each is changed by one addition.
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the next query of a connection once it is complete. A query without a reply closes the connection.
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
    let told = authority.answer(query, &mut reply, Protocol::Tcp);
    let mut reply_len = told.len;
    if let Some(faults) = faults.as_mut().filter(|_| reply_len > 0) {
        let suffix = authority.suffix();
        let spoiled = faults.spoil(&suffix, query, &mut reply, reply_len, Protocol::Tcp);
        reply_len = spoiled.0;
    }
    input.drain(..2 + len);
    let recorder = recorder.as_ref();
    let noted = recorder.map(|recorder| (recorder, recorder.arrived(told.asked, arrived_at)));
    match u16::try_from(reply_len) {
        Ok(prefix @ 1..) => {
            // Written in one piece: some clients treat a lone length as an error (RFC 7766 section 8).
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
    use std::io::{Read, Write};
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
                ..Zone::default()
            },
            self_test: false,
            ttl_s: 60,
            negative_ttl_s: 60,
        };
        let rules = (behaviour != "none").then(|| Arc::new(rules));
        TcpService::open("127.0.0.1:0".parse().unwrap(), config, rules, None).unwrap()
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
    fn several_queries_of_one_connection_are_answered_for_any_segmentation() {
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
    fn only_content_faults_apply_over_tcp() {
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
    fn query_without_a_reply_closes_only_its_connection() {
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
