//! The backend of a rig's Tester: that which was asked for, or the best that its lab allows.

use std::net::SocketAddr;

use dns64_transport::Backend;

use super::Rig;
use super::spec::Subject;
use crate::lab::topology::Setup;
use crate::load::sources::Sources;
use crate::load::transport::Protocol;
use crate::machine::network::Network;
use crate::post::host::Host;
use crate::post::probe::Prober;
use crate::trial::Measurer;
use crate::trial::backend::try_links;

impl Rig {
    /// Unless a backend was asked for, chooses AF_XDP for a lab on this machine if the links of a self-test can be opened over it; those of the
    /// measurement are of the same kind.
    pub(super) fn choose_backend(&mut self) {
        let (Subject::Lab(lab), Some(hosts)) = (&self.spec.subject, &self.hosts) else {
            return;
        };
        let load = &self.spec.load;
        let is_fixed = load.backend.is_some() || load.transport.is_stream();
        if is_fixed || hosts.is_far() || lab.setup == Setup::Loopback {
            return;
        }
        self.backend = Backend::Xdp { force: false };
        let tried = hosts.all().into_iter().try_for_each(|host| {
            let spec = self.tester_spec(lab, hosts, &host, true)?;
            let authority = spec.authority.as_ref();
            let of = |measurer: Measurer| try_links(&measurer, hosts.server(true), authority);
            spec.measurer.map_or(Ok(()), of)
        });
        if let Err(why) = tried {
            self.backend = Backend::Socket;
            self.no_af_xdp = Some(why.to_string());
        }
    }

    /// Returns the backend of the Measurer and of the built-in authority.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Queries a server that already runs like the trials do; one of a lab or from another host by sockets.
    pub(super) fn prober(
        &self,
        host: &Host,
        network: &Network,
        local: Option<Sources>,
        (server, protocol): (SocketAddr, Protocol),
    ) -> Prober {
        let is_own = host.link().is_none() && *network == Network::Own;
        Prober {
            host: host.clone(),
            network: network.clone(),
            backend: match is_own {
                true => self.backend,
                false => Backend::Socket,
            },
            protocol,
            local: local.map(|sources| sources.address(0)),
            server,
            zone: self.spec.load.zone.clone(),
        }
    }
}
