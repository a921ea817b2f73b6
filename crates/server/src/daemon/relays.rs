//! The sockets of the workers: kernel sockets, optionally with AF_XDP sockets.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use dns64_transport::Relay as _;
use dns64_transport::relay::listen;
use dns64_transport::relay::udp::{RECEIVE_BUFFER_BYTES, UdpRelay, Waker};
use dns64_transport::socket::OpenError;
use dns64_transport::xdp::Part;
use dns64_transport::xdp::relay::XdpRelay;
use rustix::net::SocketType;

use crate::control::InterfaceStatus;
use crate::engine::Engine;
use crate::health::InForce;
use crate::inherited::Inherited;
use crate::mailbox::{GatewayHandle, ToWorker, WorkerHandle};
use crate::settings::Settings;
use crate::worker;
use crate::worker::supervise::WorkerError;

/// The sockets of one worker.
pub(super) enum AnyRelay {
    Kernel(Box<UdpRelay>),
    Xdp(Box<XdpRelay>),
}

/// Opens the sockets of all workers, or takes `inherited` ones.
///
/// # Errors
///
/// The first socket that is not available.
pub(super) fn open(
    settings: &Settings,
    inherited: &mut Inherited,
) -> Result<Vec<AnyRelay>, OpenError> {
    if settings.af_xdp.is_empty() {
        let relays = listening(settings, inherited)?.into_iter();
        return relays
            .map(|sockets| Ok(AnyRelay::Kernel(Box::new(UdpRelay::over(sockets)?))))
            .collect();
    }
    let of = u32::try_from(settings.workers).unwrap_or(u32::MAX);
    (0..of)
        .map(|index| {
            let part = Part { index, of };
            let (listen, free_bind) = (&settings.listen, settings.free_bind);
            let relay = XdpRelay::open(listen, free_bind, &settings.af_xdp, part)?;
            Ok(AnyRelay::Xdp(Box::new(relay)))
        })
        .collect()
}

/// The listening sockets of each worker: at least one at each address. The kernel distributes clients to all sockets of
/// an address, and queries wait in each. So a worker takes several inherited ones if there are fewer workers than before.
fn listening(
    settings: &Settings,
    inherited: &mut Inherited,
) -> Result<Vec<Vec<OwnedFd>>, OpenError> {
    let mut workers: Vec<_> = (0..settings.workers).map(|_| Vec::new()).collect();
    for &address in &settings.listen {
        let mut sockets = inherited.take(SocketType::DGRAM, address);
        while sockets.len() < workers.len() {
            sockets.push(listen(address, settings.free_bind)?);
        }
        for (index, socket) in sockets.into_iter().enumerate() {
            workers[index % settings.workers].push(socket);
        }
    }
    Ok(workers)
}

impl AnyRelay {
    /// The listening sockets that another process can take: none with AF_XDP.
    pub(super) fn sockets(&mut self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Kernel(relay) => relay.clients().sockets().collect(),
            Self::Xdp(_) => Vec::new(),
        }
    }

    /// A handle that wakes the worker.
    pub(super) fn waker(&self) -> Waker {
        match self {
            Self::Kernel(relay) => relay.waker(),
            Self::Xdp(relay) => relay.waker(),
        }
    }

    /// The smallest receive buffer that the kernel granted to a listening socket, in octets.
    fn receive_buffer(&mut self) -> usize {
        match self {
            Self::Kernel(relay) => relay.clients().receive_buffer(),
            Self::Xdp(relay) => relay.receive_buffer(),
        }
    }

    /// Starts the thread of a worker over these sockets.
    ///
    /// # Errors
    ///
    /// The system refuses to start the thread.
    pub(super) fn spawn(
        self,
        index: usize,
        in_force: InForce,
        mailbox: Receiver<ToWorker>,
        workers: Arc<[WorkerHandle]>,
        gateway: GatewayHandle,
        renew: impl Fn(&Settings) -> Engine + Send + 'static,
    ) -> io::Result<JoinHandle<Result<(), WorkerError>>> {
        match self {
            Self::Kernel(relay) => {
                worker::spawn(index, in_force, *relay, mailbox, workers, gateway, renew)
            }
            Self::Xdp(relay) => {
                worker::spawn(index, in_force, *relay, mailbox, workers, gateway, renew)
            }
        }
    }
}

/// The interfaces with AF_XDP sockets, and the number of queues that are read.
pub(super) fn attached(relays: &[AnyRelay]) -> Vec<InterfaceStatus> {
    let mut all: Vec<InterfaceStatus> = Vec::new();
    for relay in relays {
        let AnyRelay::Xdp(relay) = relay else {
            continue;
        };
        for (name, mode, queues, copying) in relay.attached() {
            let copying = copying.map(|copying| copying.to_string());
            match all.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.queues = known.queues.map(|others| others + queues);
                    // "copy" comes first: zero-copy is only what each queue has.
                    known.copying = known.copying.take().into_iter().chain(copying).min();
                }
                None => all.push(InterfaceStatus {
                    name,
                    mode: mode.to_string(),
                    queues: Some(queues),
                    copying,
                }),
            }
        }
    }
    all
}

/// Logs conditions that increase the losses of the sockets or reduce the performance of the
/// workers.
pub(super) fn warn(relays: &mut [AnyRelay]) {
    for interface in attached(relays) {
        let InterfaceStatus { name, mode, .. } = interface;
        let queues = interface.queues.unwrap_or_default();
        let copying = interface.copying.as_deref().unwrap_or("no socket");
        tracing::info!("af-xdp: {name}, mode {mode}, {copying}, {queues} queues");
        if queues < relays.len() {
            tracing::warn!(
                "af-xdp: {name} has {queues} receive queues, and {} of {} workers have none: see `ethtool -l \
                 {name}`, or set workers",
                relays.len() - queues,
                relays.len()
            );
        }
    }
    let granted = relays.iter_mut().map(AnyRelay::receive_buffer);
    let granted = granted.min().unwrap_or(RECEIVE_BUFFER_BYTES);
    if granted < RECEIVE_BUFFER_BYTES {
        tracing::warn!(
            "the receive buffers of UDP sockets have {granted} octets instead of \
             {RECEIVE_BUFFER_BYTES}, so that bursts of queries can be lost: set \
             net.core.rmem_max={RECEIVE_BUFFER_BYTES} with sysctl, or give the server CAP_NET_ADMIN"
        );
    }
}
