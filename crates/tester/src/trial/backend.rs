//! The kind of network and of clock that trials run over, and the one place where the Tester opens
//! its links.

use std::net::SocketAddr;

use dns64_transport::clock::MonotonicClock;
use dns64_transport::socket::{OpenError, Segmentation, UdpLink};

use super::{AuthDns, Measurer, TrialError};

/// The implementation of [`Link`](dns64_transport::Link) that is chosen.
pub(super) type Backend = UdpLink;

/// The clock that its arrival times are on.
pub(super) type BackendClock = MonotonicClock;

/// Links of `ports` ports each toward `server`, one for each thread of the Measurer.
pub(super) fn clients(
    measurer: &Measurer,
    server: SocketAddr,
    ports: usize,
    segmentation: Segmentation,
) -> Result<Vec<Backend>, TrialError> {
    let open = || {
        (0..measurer.threads)
            .map(|_| Backend::client(server, measurer.local, ports, segmentation))
            .collect()
    };
    let links: Result<Vec<Backend>, OpenError> = measurer.host.enter(open)?;
    Ok(links?)
}

/// One of the links at which the authority listens.
pub(super) fn server(authority: &AuthDns) -> Result<Backend, TrialError> {
    let shared = authority.workers > 1;
    let open = || Backend::server(authority.listen, shared, authority.segmentation);
    Ok(authority.host.enter(open)??)
}
