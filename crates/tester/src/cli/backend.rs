//! The flags of the datagram backend.

use clap::Args;
use dns64_transport::Backend;

/// What carries datagrams.
#[derive(Args, Clone, Copy, Debug)]
pub struct BackendArgs {
    /// Datagram backend: kernel sockets, AF_XDP sockets, or AF_XDP where available
    ///
    /// AF_XDP bypasses the network stack of the kernel. It needs root, or CAP_BPF, CAP_PERFMON,
    /// CAP_NET_ADMIN and CAP_NET_RAW, and an Ethernet interface without a default route. With AF_XDP,
    /// queries and answers are always single datagrams: --segmentation has no effect.
    #[arg(long, value_name = "socket|xdp|auto", default_value = "socket")]
    pub backend: Backend,

    /// Allow XDP programs on an interface with a default route
    #[arg(long, requires = "backend")]
    pub force: bool,
}

impl BackendArgs {
    /// Combines both flags.
    pub fn resolve(self) -> Backend {
        match self.force {
            true => self.backend.forced(),
            false => self.backend,
        }
    }
}
