//! The gateway on the loopback interface; each test acts as the workers itself.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

use dns64_transport::clock::{Nanos, SECOND};

use super::*;
use crate::config;
use crate::framed::framed;
use crate::mailbox::{ConnectionFailed, GatewayHandle, ToWorker};
use crate::settings::TcpSettings;
use crate::settings::nets::NetSet;

/// Timeout that no test step reaches, unless the awaited event never happens.
const PATIENCE: Duration = Duration::from_secs(20);

const TCP: TcpSettings = TcpSettings {
    connections_max: 20,
    per_client_max: 20,
    idle_ns: 15 * SECOND,
    pipeline_max: 16,
};

fn settings(tcp: TcpSettings) -> Settings {
    Settings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        tcp,
        ..config::parse(config::template(), "template").unwrap()
    }
}

struct Rig {
    address: SocketAddr,
    /// All addresses at which it listens.
    all: Vec<SocketAddr>,
    counts: Arc<GatewayCounts>,
    mode: watch::Sender<Mode>,
    gateway: GatewayHandle,
    worker: Receiver<ToWorker>,
    thread: JoinHandle<()>,
}

impl Rig {
    fn new(tcp: TcpSettings) -> Self {
        Self::with(settings(tcp))
    }

    fn with(settings: Settings) -> Self {
        let in_force = InForce::new(settings);
        let bound = Bound::open(&in_force.settings, &mut Inherited::default()).unwrap();
        let all = bound.addresses().unwrap();
        let (handle, worker) = WorkerHandle::new(Arc::new(|| {}));
        let (gateway, mailbox) = GatewayHandle::new();
        let (mode, seen) = watch::channel(Mode {
            in_force,
            draining: false,
        });
        let counts = Arc::new(GatewayCounts::default());
        let theirs = Arc::clone(&counts);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let serving = serve(bound, vec![handle], mailbox, seen, theirs);
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, serving).unwrap();
        });
        Self {
            address: all[0],
            all,
            counts,
            mode,
            gateway,
            worker,
            thread,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The next query for the worker.
    fn query(&self) -> (u64, Vec<u8>) {
        match self.worker.recv_timeout(PATIENCE).unwrap() {
            ToWorker::Query {
                connection,
                message,
                ..
            } => (connection, message),
            other => panic!("{other:?}"),
        }
    }

    /// The outcome of the next query to an upstream.
    fn answer(&self) -> (u64, Result<Vec<u8>, ConnectionFailed>) {
        match self.worker.recv_timeout(PATIENCE).unwrap() {
            ToWorker::Answer { exchange, message } => (exchange, message),
            other => panic!("{other:?}"),
        }
    }

    fn reply(&self, connection: u64, message: Vec<u8>) {
        assert!(self.gateway.reply(connection, &message));
    }

    fn ask(&self, exchange: u64, server: SocketAddr, timeout_ns: Nanos) {
        assert!(self.gateway.send(ToGateway::Ask {
            worker: 0,
            exchange,
            server,
            tls: false,
            timeout_ns,
            message: message(7, 30),
        }));
    }

    /// Sends a query over the connection, acts as the worker, and reads the response.
    fn round(&self, stream: &mut TcpStream, id: u16) {
        write(stream, &message(id, 40));
        let (connection, query) = self.query();
        assert_eq!(query, message(id, 40));
        self.reply(connection, message(id, 50));
        assert_eq!(read(stream), message(id, 50));
    }

    /// Waits until a counter of the gateway's thread has a value.
    fn wait_for(&self, counter: impl Fn(&GatewayCounts) -> &Counter, value: u64) {
        let until = MonotonicClock.now() + 20 * SECOND;
        while counter(&self.counts).get() != value {
            assert!(MonotonicClock.now() < until, "{:?}", self.counts);
            thread::yield_now();
        }
    }
}

fn message(id: u16, len: usize) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.resize(len, 1);
    message
}

fn write(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(&framed(message).unwrap()).unwrap();
}

fn read(stream: &mut impl Read) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).unwrap();
    message
}

/// Whether the peer has closed, cleanly or not.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn responses_are_sent_in_the_order_of_the_workers() {
    let rig = Rig::new(TCP);
    let mut stream = rig.connect();
    let all: Vec<u8> = (0..5)
        .flat_map(|id| framed(&message(id, 40)).unwrap())
        .collect();
    // The messages arrive in arbitrary pieces.
    stream.write_all(&all[..43]).unwrap();
    stream.write_all(&all[43..]).unwrap();
    let queries: Vec<_> = (0..5).map(|_| rig.query()).collect();
    for (connection, query) in queries.iter().rev() {
        rig.reply(*connection, query.clone());
    }
    for id in (0..5).rev() {
        assert_eq!(read(&mut stream), message(id, 40));
    }
}

#[test]
fn a_connection_gets_its_own_answers_only() {
    let rig = Rig::new(TCP);
    let (mut one, mut other) = (rig.connect(), rig.connect());
    write(&mut one, &message(1, 40));
    let first = rig.query();
    write(&mut other, &message(2, 40));
    let second = rig.query();
    assert_ne!(first.0 >> 16, second.0 >> 16);
    rig.reply(second.0, message(2, 60));
    rig.reply(first.0, message(1, 60));
    assert_eq!(read(&mut one), message(1, 60));
    assert_eq!(read(&mut other), message(2, 60));
}

#[test]
fn pipeline_length_is_limited() {
    let rig = Rig::new(TcpSettings {
        pipeline_max: 1,
        ..TCP
    });
    let mut stream = rig.connect();
    for id in 0..3 {
        write(&mut stream, &message(id, 40));
    }
    for id in 0..3 {
        let (connection, query) = rig.query();
        assert_eq!(query, message(id, 40));
        let more = rig.worker.recv_timeout(Duration::from_millis(50));
        assert!(more.is_err(), "two at once: {more:?}");
        rig.reply(connection, query);
    }
    for id in 0..3 {
        assert_eq!(read(&mut stream), message(id, 40));
    }
}

#[test]
fn single_octets_do_not_keep_a_connection_open() {
    let rig = Rig::new(TcpSettings {
        idle_ns: SECOND / 4,
        ..TCP
    });
    let mut stream = rig.connect();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    stream.write_all(&[0xff, 0xff]).unwrap();
    let until = MonotonicClock.now() + 20 * SECOND;
    while !is_closed(&mut stream) {
        assert!(MonotonicClock.now() < until);
        // The connection may be closed by now.
        let _ = stream.write_all(&[1]);
    }
    rig.wait_for(|counts| &counts.closed_idle, 1);
}

#[test]
fn idle_connections_are_evicted_and_busy_ones_are_not() {
    let rig = Rig::new(TCP);
    let mut streams: Vec<_> = (0..80).map(|_| rig.connect()).collect();
    rig.wait_for(|counts| &counts.closed_full, 60);
    assert_eq!(rig.counts.accepted.get(), 80);
    assert!(streams[..60].iter_mut().all(is_closed));
    rig.wait_for(|counts| &counts.open, 20);
    let mut kept = streams.split_off(60);
    for (stream, id) in kept.iter_mut().zip(0..) {
        write(stream, &message(id, 40));
    }
    let queries: Vec<_> = kept.iter().map(|_| rig.query()).collect();
    let mut late = rig.connect();
    assert!(is_closed(&mut late));
    assert_eq!(rig.counts.refused_client.get(), 1);
    for (connection, query) in queries {
        rig.reply(connection, query);
    }
    for (stream, id) in kept.iter_mut().zip(0..) {
        assert_eq!(read(stream), message(id, 40));
    }
}

/// A connection from an address of the loopback network.
fn connect_from(rig: &Rig, address: [u8; 4]) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((address, 0))).unwrap();
    rustix::net::connect(&socket, &rig.address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn connections_with_stuck_queries_leave_places_for_other_networks() {
    let rig = Rig::new(TcpSettings {
        per_client_max: 15,
        ..TCP
    });
    let mut greedy = Vec::new();
    for id in 0..30 {
        let mut stream = connect_from(&rig, [127, 0, 1, 1]);
        // The connection may have been refused already.
        let _ = stream.write_all(&framed(&message(id, 40)).unwrap());
        greedy.push(stream);
        if id < 15 {
            rig.query();
        }
    }
    rig.wait_for(|counts| &counts.refused_client, 15);
    for network in 2..7 {
        let mut stuck = connect_from(&rig, [127, 0, network, 1]);
        write(&mut stuck, &message(9, 40));
        rig.query();
        greedy.push(stuck);
    }
    rig.wait_for(|counts| &counts.open, 20);
    // The table is full of unanswered queries, but each of these is accepted.
    let mut others: Vec<_> = (10..20)
        .map(|network| {
            let mut stream = connect_from(&rig, [127, 0, network, 1]);
            rig.round(&mut stream, network.into());
            stream
        })
        .collect();
    assert_eq!(rig.counts.refused_full.get(), 0);
    for (stream, id) in others.iter_mut().zip(0..) {
        rig.round(stream, id);
    }
}

#[test]
fn client_without_permission_is_disconnected_by_the_current_settings() {
    let rig = Rig::new(TCP);
    let allow = |net: &str| {
        let allow = NetSet::new(vec![net.parse().unwrap()]);
        rig.mode.send_modify(|mode| {
            let mut settings = Settings::clone(&mode.in_force.settings);
            settings.allow = allow;
            mode.in_force.reload(settings);
        });
    };
    let mut before = rig.connect();
    rig.round(&mut before, 1);
    allow("10.0.0.0/8");
    for refused in 1..4 {
        assert!(is_closed(&mut rig.connect()));
        rig.wait_for(|counts| &counts.refused_access, refused);
    }
    assert_eq!(rig.counts.accepted.get(), 1);
    allow("127.0.0.0/8");
    rig.round(&mut rig.connect(), 2);
}

#[test]
fn connection_of_a_proxy_without_a_whole_header_is_closed() {
    let tcp = TcpSettings {
        idle_ns: SECOND / 4,
        ..TCP
    };
    let rig = Rig::with(Settings {
        proxies: NetSet::new(vec!["127.0.0.1/32".parse().unwrap()]),
        ..settings(tcp)
    });
    let (mut half, mut none) = (rig.connect(), rig.connect());
    half.write_all(b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\x0a")
        .unwrap();
    write(&mut none, &message(1, 40));
    assert!(is_closed(&mut half) && is_closed(&mut none));
    rig.wait_for(|counts| &counts.refused_proxy, 2);
    assert_eq!(rig.counts.accepted.get(), 0);
}

#[test]
fn reset_connections_leave_no_state() {
    let rig = Rig::new(TCP);
    for id in 0..50 {
        let mut stream = rig.connect();
        let query = framed(&message(id, 40)).unwrap();
        let whole = id % 2 == 0;
        stream
            .write_all(if whole { &query } else { &query[..9] })
            .unwrap();
        let asked = whole.then(|| rig.query().0);
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        rig.wait_for(|counts| &counts.closed_client, u64::from(id) + 1);
        if let Some(connection) = asked {
            rig.reply(connection, message(id, 40));
        }
    }
    rig.wait_for(|counts| &counts.answers_unsent, 25);
    assert_eq!(rig.counts.open.get(), 0);
    rig.round(&mut rig.connect(), 99);
}

#[test]
fn invalid_length_closes_only_its_own_connection() {
    let rig = Rig::new(TCP);
    let mut bystander = rig.connect();
    for length in [0_u16, 1, 11] {
        let mut stream = rig.connect();
        stream.write_all(&length.to_be_bytes()).unwrap();
        assert!(is_closed(&mut stream), "{length}");
    }
    rig.wait_for(|counts| &counts.closed_format, 3);
    let mut stream = rig.connect();
    stream.write_all(&[0x10, 0, 1, 2, 3]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(is_closed(&mut stream));
    rig.wait_for(|counts| &counts.closed_client, 1);
    assert!(rig.worker.try_recv().is_err(), "this is not a query");
    rig.round(&mut bystander, 5);
}

#[test]
fn longest_messages_pass_in_both_directions() {
    let rig = Rig::new(TCP);
    let mut stream = rig.connect();
    write(&mut stream, &message(1, 65_535));
    let (connection, query) = rig.query();
    assert_eq!(query, message(1, 65_535));
    rig.reply(connection, message(1, 65_535));
    assert_eq!(read(&mut stream), message(1, 65_535));
    rig.round(&mut stream, 2);
}

#[test]
fn half_closed_client_still_gets_its_responses() {
    let rig = Rig::new(TCP);
    let mut stream = rig.connect();
    write(&mut stream, &message(1, 40));
    write(&mut stream, &message(2, 40));
    stream.shutdown(Shutdown::Write).unwrap();
    let (one, two) = (rig.query(), rig.query());
    rig.reply(two.0, two.1);
    // An empty response stands for none.
    rig.reply(one.0, Vec::new());
    assert_eq!(read(&mut stream), message(2, 40));
    assert!(is_closed(&mut stream));
}

#[test]
fn client_that_does_not_read_is_disconnected() {
    let rig = Rig::new(TcpSettings {
        pipeline_max: 1000,
        ..TCP
    });
    let mut stream = rig.connect();
    for id in 0..400 {
        write(&mut stream, &message(id, 40));
    }
    let queries: Vec<_> = (0..400).map(|_| rig.query().0).collect();
    // 26 MB, more than two sockets and the gateway can hold.
    for connection in queries {
        rig.reply(connection, message(0, 65_535));
    }
    rig.wait_for(|counts| &counts.closed_unread, 1);
}

#[test]
fn queries_wait_while_the_mailbox_of_the_worker_is_full() {
    let rig = Rig::new(TcpSettings {
        pipeline_max: 5000,
        ..TCP
    });
    let mut stream = rig.connect();
    for id in 0..1500 {
        write(&mut stream, &message(id, 40));
    }
    let until = MonotonicClock.now() + 20 * SECOND;
    while rig.counts.held.get() == 0 {
        assert!(MonotonicClock.now() < until);
        thread::yield_now();
    }
    for id in 0..1500 {
        assert_eq!(rig.query().1, message(id, 40));
    }
}

#[test]
fn draining_finishes_pending_queries() {
    let rig = Rig::new(TCP);
    let mut busy = rig.connect();
    let mut idle = rig.connect();
    write(&mut busy, &message(1, 40));
    let (connection, query) = rig.query();
    rig.mode.send_modify(|mode| mode.draining = true);
    assert!(is_closed(&mut idle));
    rig.reply(connection, query);
    assert_eq!(read(&mut busy), message(1, 40));
    assert!(is_closed(&mut busy));
    rig.wait_for(|counts| &counts.closed_drain, 2);
    drop(rig.gateway);
    rig.thread.join().unwrap();
    assert!(TcpStream::connect(rig.address).is_err());
}

#[test]
fn a_port_in_use_is_named_with_a_remedy() {
    let rig = Rig::new(TCP);
    let mut settings = settings(TCP);
    settings.listen = vec![rig.address];
    let error = Bound::open(&settings, &mut Inherited::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains(&rig.address.to_string()), "{error}");
    assert!(error.ends_with("choose another address"), "{error}");
}

#[test]
fn gateway_listens_at_an_address_that_no_interface_has_if_it_may() {
    let address = "192.0.2.77:0".parse().unwrap();
    let refused = listen(address, false, &mut Inherited::default()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
    assert!(listen(address, true, &mut Inherited::default()).is_ok());
}

mod tls;
mod upstream_tls;
mod upstreams;
