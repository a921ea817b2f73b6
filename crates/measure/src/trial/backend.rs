//! The kinds of link and clock of trials, and the only place where the Tester opens links.

use std::net::{IpAddr, SocketAddr};

use dns64_transport::clock::{MonotonicClock, Nanos};
use dns64_transport::socket::{
    OpenError, SOCKETS_A_PORT, Segmentation, UdpLink, allow_descriptors,
};
use dns64_transport::stream::{self, StreamLink};
use dns64_transport::xdp::{Options, Part, XdpLink};
use dns64_transport::{Backend, Carrier, Counters, Datagram, Departure, Link, LinkError, Origin};

use super::{AuthDns, Measurer, TrialSpec};
use crate::load::transport::Protocol;
use crate::machine::{Blame, LabError};
use crate::naming::{Message, SOCKETS};

/// The selected implementation of [`Link`]. Each call dispatches once, for as many datagrams as it moves.
pub enum AnyLink {
    /// Sockets.
    Udp(Box<UdpLink>),
    /// AF_XDP.
    Xdp(Box<XdpLink>),
    /// TCP connections.
    Stream(Box<StreamLink>),
}

/// Clock of its arrival times.
pub(super) type BackendClock = MonotonicClock;

/// Opens links to the server of a trial with `ports` ports each, one for each thread of the Measurer. The threads are some of the
/// `shards` of the trial.
pub(super) fn clients(
    measurer: &Measurer,
    spec: &TrialSpec,
    ports: usize,
    shards: usize,
) -> Result<Vec<AnyLink>, LabError> {
    let (threads, server) = (measurer.threads, spec.server);
    let options = stream_options(spec, ports, shards);
    let open = |k| {
        let flows = k * ports..(k + 1) * ports;
        let local = measurer.local.iter();
        let local: Vec<IpAddr> = local
            .flat_map(|sources| flows.clone().map(|flow| sources.address(flow)))
            .collect();
        if spec.transport.is_stream() {
            return connected(server, &local, ports, options);
        }
        let udp = || UdpLink::client(server, &local, ports, spec.segmentation);
        let xdp = |options: Options| XdpLink::client(server, &local, ports, &options);
        chosen(measurer.backend, (k, threads), udp, xdp)
    };
    match spec.transport.is_stream() {
        true => allow(threads * ports, threads * options.most)?,
        false => allow_ports(threads * ports)?,
    }
    let links: Result<Vec<AnyLink>, OpenError> = measurer
        .network
        .enter(|| (0..threads).map(open).collect())?;
    Ok(links?)
}

/// Raises the limit on open files for so many source ports.
///
/// # Errors
///
/// It cannot be raised so far.
pub fn allow_ports(ports: usize) -> Result<(), LabError> {
    allow(ports, SOCKETS_A_PORT * ports)
}

/// Raises the limit on open files for so many source ports, which need so many files.
fn allow(ports: usize, needed: usize) -> Result<(), LabError> {
    let allowed = allow_descriptors(needed)?;
    match allowed < needed {
        true => Err(Blame::Machine.error(Message::new(|naming| {
            let remedy = naming.value(SOCKETS, allowed / SOCKETS_A_PORT);
            format!(
                "{ports} source ports need {needed} open files and the limit allows {allowed}; raise it (`ulimit -Hn`), \
                 or use {remedy}"
            )
        }))),
        false => Ok(()),
    }
}

/// Use of the connections of one of the `shards` of a trial.
fn stream_options(spec: &TrialSpec, ports: usize, shards: usize) -> stream::Options {
    let queries_per_connection = spec.transport.queries_per_connection;
    let outstanding = spec.schedule.due_within(spec.timeout_ns) / shards as u64;
    // A quarter more, as for the ports.
    let outstanding = usize::try_from(outstanding / 4 * 5).unwrap_or(usize::MAX);
    stream::Options {
        tls: spec.transport.protocol == Protocol::Tls,
        queries_per_connection,
        patience_ns: spec.timeout_ns,
        most: stream::Options::connections(queries_per_connection, ports, outstanding),
    }
}

/// Opens a link of connections.
fn connected(
    server: SocketAddr,
    local: &[IpAddr],
    ports: usize,
    options: stream::Options,
) -> Result<AnyLink, OpenError> {
    let link = StreamLink::client(server, local, ports, options)?;
    Ok(AnyLink::Stream(Box::new(link)))
}

/// Opens a link to `server` with one port, for single queries.
pub fn client(
    backend: Backend,
    protocol: Protocol,
    server: SocketAddr,
    local: Option<IpAddr>,
) -> Result<AnyLink, OpenError> {
    if protocol != Protocol::Udp {
        let options = stream::Options {
            tls: protocol == Protocol::Tls,
            queries_per_connection: None,
            patience_ns: 0,
            most: 2,
        };
        return connected(server, local.as_slice(), 1, options);
    }
    datagrams(backend, (0, 1), server, local)
}

/// Opens listening link number `worker` of the authority.
pub(super) fn server(authority: &AuthDns, worker: usize) -> Result<AnyLink, LabError> {
    let workers = authority.workers.max(1);
    let (listen, shared) = (authority.listen, workers > 1);
    let open = || {
        let udp = || UdpLink::server(listen, shared, authority.segmentation);
        let xdp = |options: Options| XdpLink::server(listen, shared, &options);
        chosen(authority.backend, (worker, workers), udp, xdp)
    };
    Ok(authority.network.enter(open)??)
}

/// Opens the links of both roles, with one port for each thread of the Measurer, and closes them.
///
/// # Errors
///
/// One of them cannot be opened.
pub fn try_links(
    measurer: &Measurer,
    to: SocketAddr,
    authority: Option<&AuthDns>,
) -> Result<(), LabError> {
    let workers = |it: &AuthDns| 0..it.workers.max(1);
    let serving = authority.map(|it| workers(it).map(|k| server(it, k)).collect());
    let _serving: Option<Vec<AnyLink>> = serving.transpose()?;
    let open = |k| {
        let local = measurer.local.map(|sources| sources.address(k));
        datagrams(measurer.backend, (k, measurer.threads), to, local)
    };
    let opened: Result<Vec<AnyLink>, OpenError> = measurer
        .network
        .enter(|| (0..measurer.threads).map(open).collect())?;
    Ok(opened.map(drop)?)
}

/// Opens link number `index` of `of` to `server`, with one port.
fn datagrams(
    backend: Backend,
    part: (usize, usize),
    server: SocketAddr,
    local: Option<IpAddr>,
) -> Result<AnyLink, OpenError> {
    let local = local.as_slice();
    let udp = || UdpLink::client(server, local, 1, Segmentation::Off);
    let xdp = |options: Options| XdpLink::client(server, local, 1, &options);
    chosen(backend, part, udp, xdp)
}

/// Opens a link of the configured kind, number `index` of `of`.
fn chosen(
    backend: Backend,
    (index, of): (usize, usize),
    udp: impl Fn() -> Result<UdpLink, OpenError>,
    xdp: impl Fn(Options) -> Result<XdpLink, OpenError>,
) -> Result<AnyLink, OpenError> {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let part = Part {
        index: small(index),
        of: small(of),
    };
    let udp = || udp().map(|link| AnyLink::Udp(Box::new(link)));
    let xdp = |force| {
        let options = Options {
            force,
            part,
            ..Options::default()
        };
        xdp(options).map(|link| AnyLink::Xdp(Box::new(link)))
    };
    match backend {
        Backend::Socket => udp(),
        Backend::Xdp { force } => xdp(force),
    }
}

/// Dispatches an expression to the kind of link.
macro_rules! each {
    ($link:expr, $any:ident => $does:expr) => {
        match $link {
            AnyLink::Udp($any) => $does,
            AnyLink::Xdp($any) => $does,
            AnyLink::Stream($any) => $does,
        }
    };
}

impl Link for AnyLink {
    fn ports(&self) -> usize {
        each!(self, link => link.ports())
    }

    #[inline]
    fn send(
        &mut self,
        port: usize,
        n: usize,
        fill: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        each!(self, link => link.send(port, n, fill))
    }

    #[inline]
    fn receive(&mut self, max: usize, each: impl FnMut(Datagram<'_>)) -> Result<usize, LinkError> {
        each!(self, link => link.receive(max, each))
    }

    fn sweeps(&self) -> u64 {
        each!(self, link => link.sweeps())
    }

    #[inline]
    fn answer(
        &mut self,
        max: usize,
        answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize,
    ) -> Result<usize, LinkError> {
        each!(self, link => link.answer(max, answer))
    }

    fn reply(
        &mut self,
        next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        each!(self, link => link.reply(next))
    }

    fn now(&self) -> Nanos {
        each!(self, link => link.now())
    }

    fn departures(&self) -> &[Departure] {
        each!(self, link => link.departures())
    }

    fn wait(&mut self, timeout: Nanos) -> Result<(), LinkError> {
        each!(self, link => link.wait(timeout))
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        each!(self, link => link.counters())
    }

    fn connections(&mut self) -> stream::Connections {
        each!(self, link => link.connections())
    }

    fn carrier(&self) -> Carrier {
        each!(self, link => link.carrier())
    }
}
