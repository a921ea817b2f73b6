//! [`Relay`] over AF_XDP sockets.
//!
//! An ordinary [`UdpRelay`] is open beside the rings: it binds the ports, resolves neighbours, receives ICMP messages,
//! and carries what the rings cannot: fragments, datagrams larger than the MTU, and datagrams that arrive by another
//! interface or at a queue of another worker. The path to an upstream is queried from the kernel, never learnt from
//! frames, which anyone on the link could forge. One query every ten seconds goes through the kernel, so that the
//! kernel maintains its neighbour entry.

mod clients;
mod upstreams;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};

use super::Copying;
use super::frame::Flow;
use super::interface::{Attachment, may_answer};
use super::link::flush;
use super::netlink::{Address, Interface, Netlink, no_clients};
use super::program::{Mode, XdpError};
use super::queue::{self, Part, Queue};
use super::steering::{Role, Steering, Wanted};
use crate::clock::{Clock, MonotonicClock, Nanos, SECOND};
use crate::relay::pool::{of_port_token, port_token};
use crate::relay::udp::{UdpRelay, Waker};
use crate::socket::OpenError;
use crate::sys::FRAME_BYTES;
use crate::{Counters, LinkError, Relay};

/// AF_XDP sockets of one worker, and kernel sockets beside them.
pub struct XdpRelay {
    /// Dropped first: later datagrams go to the ordinary sockets.
    _listening: Vec<Wanted>,
    asking: Vec<Server>,
    udp: UdpRelay,
    part: Part,
    steerings: Vec<Arc<Steering>>,
    queues: Vec<Queue>,
    /// Opened before the process may deny itself new sockets.
    netlink: Netlink,
    /// One entry per queue.
    uses: Vec<Uses>,
    listen: Vec<SocketAddr>,
    /// See [`no_clients`].
    no_clients: Vec<IpAddr>,
    numbers: Numbers,
    /// Queries received while reading for replies, with their queues; and replies received while reading for queries.
    queries: Held<(usize, Flow)>,
    replies: Held<(usize, usize)>,
    accepting: bool,
    /// When the kernel sockets are polled next.
    poll_at: Nanos,
    /// Buffer for a datagram whose path is not known yet.
    scratch: Box<[u8]>,
    counted: Counters,
}

/// State of an upstream.
struct Server {
    address: SocketAddr,
    /// Whether the kernel carries all queries: it alone knows the routes of interfaces, and a local port would belong to
    /// several source addresses.
    by_kernel: bool,
    /// `None`: through the kernel.
    way: Option<Way>,
    /// Time of the next path query to the kernel; `None` until the first DNS query.
    look_at: Option<Nanos>,
    /// For each port of its pool: the local address, while its replies are steered.
    ports: Vec<Option<(SocketAddr, Vec<Wanted>)>>,
}

/// The path to an upstream from a local address, according to the kernel.
#[derive(Clone, Copy)]
struct Way {
    from: IpAddr,
    queue: usize,
    macs: [[u8; 6]; 2],
}

/// The kinds of datagrams expected at a queue.
#[derive(Clone, Copy)]
struct Uses {
    clients: bool,
    /// At a queue with clients, this becomes true with the first reply.
    upstreams: bool,
}

/// How long a path, or the absence of one, is cached.
const TRUST_NS: Nanos = 10 * SECOND;

/// Delay of the first path query to the kernel after a DNS query through the kernel, which lets the kernel resolve the
/// neighbour.
const FIRST_LOOK_NS: Nanos = SECOND / 10;

/// Interval at which the kernel sockets are polled while frames keep arriving: longer than a turn of 64 frames at a million
/// frames per second, and far shorter than the timeout of a client.
const POLL_NS: Nanos = 100_000;

/// Frames received from a queue in one batch.
const BATCH: usize = 64;

/// Maximum number of held datagrams for one side while the other is read; more are dropped and counted.
const HELD_MAX: usize = 4096;

impl XdpRelay {
    /// Like [`UdpRelay::open`], with AF_XDP sockets at every queue of these interfaces that belongs to `part`: worker
    /// `index` of `of`. A worker without a queue has only kernel sockets.
    ///
    /// Addresses that an interface gets later are served through the kernel.
    ///
    /// # Errors
    ///
    /// Those of [`UdpRelay::open`]; an interface does not exist, is not Ethernet, or carries the default route without
    /// `force`; the kernel or the process's privileges are insufficient; another program uses the queues.
    pub fn open(
        listen: &[SocketAddr],
        free_bind: bool,
        interfaces: &[Attachment],
        part: Part,
    ) -> Result<Self, OpenError> {
        let udp = UdpRelay::open(listen, free_bind)?;
        let own = (0..listen.len()).map(|i| udp.clients.local_addr(i));
        let listen: Vec<SocketAddr> = own.flatten().collect();
        let mut netlink = Netlink::open().map_err(facts("interfaces and addresses"))?;
        let all = netlink.addresses();
        let all = all.map_err(facts("the addresses of this host"))?;
        let (mut steerings, mut queues, mut listening) = (Vec::new(), Vec::new(), Vec::new());
        let mut uses = Vec::new();
        for Attachment {
            interface,
            mode,
            force,
        } in interfaces
        {
            let interface = usable(interface, &mut netlink)?;
            may_answer(&interface.name)?;
            let before = listening.len();
            let steering = Steering::of(&interface, *mode, *force)?;
            for address in &listen {
                let ends = ends(*address, interface.index, &all);
                let wanted = steering.want(Role::Listens, &ends, &[address.port()], part)?;
                listening.push(wanted);
            }
            let clients = listening[before..].iter().any(Wanted::has_ends);
            queues.extend(queue::of_part(&Arc::new(interface), &steering, part)?);
            let use_of_it = Uses {
                clients,
                upstreams: !clients,
            };
            uses.resize(queues.len(), use_of_it);
            steerings.push(steering);
        }
        Ok(Self {
            _listening: listening,
            asking: Vec::new(),
            udp,
            part,
            steerings,
            queues,
            netlink,
            uses,
            listen,
            no_clients: no_clients(&all),
            numbers: Numbers::new(),
            queries: Held::new(),
            replies: Held::new(),
            accepting: true,
            poll_at: 0,
            scratch: vec![0; FRAME_BYTES].into(),
            counted: Counters::default(),
        })
    }

    /// A handle that ends this relay's wait.
    pub fn waker(&self) -> Waker {
        self.udp.waker()
    }

    /// The smallest receive buffer of its kernel sockets, in octets.
    pub fn receive_buffer(&self) -> usize {
        self.udp.clients.receive_buffer()
    }

    /// Interface, mode, number of queues that this worker reads, and how frames come there.
    pub fn attached(&self) -> Vec<(String, Mode, usize, Option<Copying>)> {
        let of = |steering: &Arc<Steering>| {
            let name = steering.interface().to_owned();
            let own = || self.queues.iter().filter(|q| q.interface.name == name);
            let (queues, copying) = (own().count(), queue::copying(own()));
            (name, steering.mode(), queues, copying)
        };
        self.steerings.iter().map(of).collect()
    }

    /// Sends the frames in the rings.
    fn flush_rings(&mut self) {
        for queue in &mut self.queues {
            // Frames that the kernel refuses permanently are lost, like a datagram that a socket refuses.
            self.counted.send_drops += flush(queue).unwrap_or(0);
        }
    }
}

/// The recipient of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The listening socket of this index.
    Client(usize),
    /// A port of the pool of an upstream.
    Upstream(usize, usize),
    Nobody,
}

/// Upstream and port of its pool, by local port number.
struct Numbers {
    /// For IPv4 and IPv6: a [`port_token`] plus one, 0 for none.
    of: [Box<[u32]>; 2],
}

impl Numbers {
    fn new() -> Self {
        let none = || vec![0; 1 << 16].into_boxed_slice();
        Self {
            of: [none(), none()],
        }
    }

    fn get(&self, local: SocketAddr) -> Option<(usize, usize)> {
        let token = self.of[usize::from(local.is_ipv6())][usize::from(local.port())];
        Some(of_port_token(token.checked_sub(1)?))
    }

    fn set(&mut self, local: SocketAddr, to: Option<(usize, usize)>) {
        let token = to.and_then(|(server, port)| port_token(server, port)?.checked_add(1));
        self.of[usize::from(local.is_ipv6())][usize::from(local.port())] = token.unwrap_or(0);
    }
}

/// Datagrams that wait for the other side, each with its context.
struct Held<T> {
    of: Vec<(T, Range<usize>)>,
    octets: Vec<u8>,
}

impl<T> Held<T> {
    fn new() -> Self {
        Self {
            of: Vec::new(),
            octets: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.of.len()
    }

    /// Returns false if the capacity is reached.
    fn push(&mut self, known: T, payload: &[u8]) -> bool {
        let has_room = self.len() < HELD_MAX;
        if has_room {
            let first = self.octets.len();
            self.octets.extend_from_slice(payload);
            self.of.push((known, first..self.octets.len()));
        }
        has_room
    }

    fn iter(&self) -> impl Iterator<Item = (&T, &[u8])> {
        let all = self.of.iter();
        all.map(|(known, at)| (known, &self.octets[at.clone()]))
    }

    fn clear(&mut self) {
        self.of.clear();
        self.octets.clear();
    }
}

fn side(listen: &[SocketAddr], numbers: &Numbers, flow: &Flow) -> Side {
    let to = flow.destination();
    let is_exact = |own: &SocketAddr| own.ip() == to.ip() && own.port() == to.port();
    let is_any = |own: &SocketAddr| {
        own.ip().is_unspecified() && own.is_ipv4() == to.is_ipv4() && own.port() == to.port()
    };
    let listener = listen.iter().position(is_exact);
    let listener = listener.or_else(|| listen.iter().position(is_any));
    if let Some(listener) = listener {
        return Side::Client(listener);
    }
    match numbers.get(to) {
        Some((server, port)) => Side::Upstream(server, port),
        None => Side::Nobody,
    }
}

/// The interface of this name, if AF_XDP can be used there.
fn usable(name: &str, netlink: &mut Netlink) -> Result<Interface, XdpError> {
    let index = super::interface::index(name)?;
    let interface = netlink.interface(index);
    let interface = interface.map_err(facts("the interface"))?;
    match interface.is_usable {
        true => Ok(interface),
        false => Err(XdpError::Unusable {
            interface: interface.name,
            reason: "it is not an Ethernet interface that is up",
        }),
    }
}

fn facts(what: &'static str) -> impl Fn(std::io::Error) -> XdpError {
    move |reason| XdpError::Facts {
        what: what.into(),
        reason,
    }
}

/// The addresses of an interface that a socket at `listen` serves.
fn ends(listen: SocketAddr, interface: u32, all: &[Address]) -> Vec<SocketAddr> {
    let own = all.iter().filter(|address| address.interface == interface);
    let served = own.filter(|address| match listen.ip().is_unspecified() {
        true => address.ip.is_ipv4() == listen.is_ipv4(),
        false => address.ip == listen.ip(),
    });
    served
        .map(|address| SocketAddr::new(address.ip, listen.port()))
        .collect()
}

impl Relay for XdpRelay {
    type Clients = Self;
    type Upstreams = Self;

    fn clients(&mut self) -> &mut Self {
        self
    }

    fn upstreams(&mut self) -> &mut Self {
        self
    }

    /// While frames wait in a ring, the kernel sockets are polled at intervals only.
    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        let is_held = self.replies.len() > 0 || (self.queries.len() > 0 && self.accepting);
        if is_held || self.has_frames() {
            let now = MonotonicClock.now();
            if now < self.poll_at {
                self.udp.forget_ready();
                return Ok(());
            }
            self.poll_at = now + POLL_NS;
        } else if timeout > 0 && !self.udp.upstreams.has_returned() {
            self.sleep(timeout)?;
        }
        self.udp.wait(0)
    }
}

impl XdpRelay {
    /// The queues that the next turn reads.
    fn read_next(&self) -> impl Iterator<Item = &Queue> {
        let reads = |uses: &Uses| uses.upstreams || (uses.clients && self.accepting);
        let all = self.queues.iter().zip(&self.uses);
        all.filter(move |(_, uses)| reads(uses))
            .map(|(queue, _)| queue)
    }

    fn has_frames(&self) -> bool {
        self.read_next().any(|queue| queue.arrivals.has_waiting())
    }

    /// Sleeps until a frame arrives, a kernel socket is ready or the relay is woken.
    ///
    /// The rings are not in the epoll set: it would take the lock of the set for each frame that arrives, also while
    /// this thread is awake.
    fn sleep(&self, timeout: Nanos) -> Result<(), LinkError> {
        let rings = self
            .read_next()
            .map(|queue| PollFd::from_borrowed_fd(queue.arrivals.fd(), PollFlags::IN));
        let sockets = PollFd::new(&*self.udp.epoll, PollFlags::IN);
        let mut all: Vec<PollFd<'_>> = rings.chain([sockets]).collect();
        let timeout = rustix::time::Timespec::try_from(std::time::Duration::from_nanos(timeout));
        match rustix::event::poll(&mut all, Some(&timeout.unwrap_or_default())) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(LinkError {
                call: "ppoll",
                reason: e.into(),
            }),
        }
    }
}
