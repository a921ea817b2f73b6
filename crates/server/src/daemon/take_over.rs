//! Takes over from a running server, and prepares for the next that takes over from this one.

use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::resume_unwind;
use std::thread;

use dns64_transport::clock::{Clock as _, MonotonicClock};
use dns64_transport::cpu;

use super::DaemonError;
use super::relays::AnyRelay;
use crate::cache::Cache;
use crate::control::{AskError, Predecessor, Socket};
use crate::gateway::Bound;
use crate::inherited::Inherited;
use crate::settings::{CacheSettings, Settings};

/// Gets the sockets of the running server, if there is one.
pub(super) fn predecessor(
    settings: &Settings,
) -> Result<(Option<Predecessor>, Inherited), DaemonError> {
    if !(settings.af_xdp.is_empty() && settings.driver_cache.is_empty()) {
        return Err(DaemonError::TakeOver("with af-xdp or driver-cache"));
    }
    let path = settings.control.as_deref();
    let path = path.ok_or(DaemonError::TakeOver("without a control socket"))?;
    match Predecessor::ask(path) {
        Ok((predecessor, inherited)) => Ok((Some(predecessor), inherited)),
        Err(AskError::NoServer { .. }) => {
            tracing::info!("no server to take over from at {}", path.display());
            Ok(Default::default())
        }
        Err(error) => Err(error.into()),
    }
}

/// Restores the cache of the running server, if there is one, as far as it comes in time.
pub(super) fn warm(cache: &Cache, settings: &CacheSettings, predecessor: Option<&Predecessor>) {
    let Some(predecessor) = predecessor else {
        return;
    };
    let mut restored = 0_usize;
    let read = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            cpu::give_way();
            if let Some(rendered) = cache.rendered() {
                rendered.prepare();
            }
            predecessor.records(|record| {
                restored += usize::from(cache.restore(settings, record, MonotonicClock.now()));
            })
        });
        reader.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    tracing::info!("{restored} responses of the old cache restored");
    if let Err(error) = read {
        tracing::warn!("the old cache is not complete: {error}");
    }
}

/// Logs the addresses that nobody serves once the old server has ended.
pub(super) fn warn_left(inherited: &Inherited) {
    for (address, is_udp) in inherited.addresses().collect::<BTreeSet<_>>() {
        let transport = if is_udp { "UDP" } else { "TCP" };
        tracing::warn!(
            "{address} over {transport} is not taken over: it is not in the configuration"
        );
    }
}

/// Copies of the listening sockets; none if workers have other sockets, too.
pub(super) fn copies(
    relays: &mut [AnyRelay],
    tcp: &Bound,
    metrics: Option<&TcpListener>,
    control: Option<&Socket>,
) -> io::Result<Vec<OwnedFd>> {
    let udp: Vec<_> = relays.iter_mut().flat_map(AnyRelay::sockets).collect();
    if udp.is_empty() {
        return Ok(Vec::new());
    }
    let tcp = tcp.listeners().chain(metrics).map(AsFd::as_fd);
    let control = control.map(|socket| socket.listener().as_fd());
    let all = udp.into_iter().chain(tcp).chain(control);
    all.map(|socket| socket.try_clone_to_owned()).collect()
}
