//! The server: of a profile in a lab, with the suite beside it, or any other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Nanos, SECOND};

use super::{Subject, Suite};
use crate::lab::LabError;
use crate::lab::profile::{Family, Profile, Settings, with_version};
use crate::lab::server::{Probe, ServerSpec};
use crate::lab::topology::{Lab, Setup};
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::namespace::Share;
use crate::post::host::Host;
use crate::rig::servers::HostedServer;

/// Time limit of a probe while a server starts.
const PROBE_NS: Nanos = SECOND / 2;

/// A server that is judged.
#[derive(Debug)]
pub struct Dut<'s> {
    suite: &'s Suite,
    /// `None` for a server that ran already.
    started: Option<(HostedServer, Arc<AtomicBool>)>,
}

impl<'s> Dut<'s> {
    /// A server that runs already.
    pub fn running(suite: &'s Suite) -> Self {
        let started = None;
        Self { suite, started }
    }

    /// Restarts a server of a lab, waits for any other. Returns whether it answers as in the beginning.
    pub(super) fn recover(&mut self) -> bool {
        match self.started {
            Some(_) => self.restart(),
            None => self.suite.recovered(self).is_ok(),
        }
    }

    /// Restarts a server of a lab. Returns whether it answers as in the beginning.
    pub(super) fn restart(&mut self) -> bool {
        let restarted = |(server, interrupted): &mut (HostedServer, Arc<AtomicBool>)| {
            let probe = || probe(self.suite, interrupted);
            server.restart(probe).is_ok()
        };
        self.started.as_mut().is_some_and(restarted)
    }

    /// How its process has ended, if it has, in a lab.
    pub(super) fn ended(&self) -> Option<String> {
        let (server, _) = self.started.as_ref()?;
        server.state().ok()?.ended
    }

    /// CPU time of its process so far, in a lab.
    pub(super) fn cpu_ns(&self) -> Option<Nanos> {
        let (server, _) = self.started.as_ref()?;
        Some(server.state().ok()?.cpu_ns)
    }
}

fn probe(suite: &Suite, interrupted: &AtomicBool) -> Probe {
    match suite.pref64(PROBE_NS) {
        _ if interrupted.load(Ordering::Relaxed) => Probe::interrupted(),
        Ok(_) => Probe::Answered,
        Err(why) => Probe::NotYet(why.to_string()),
    }
}

/// The server of a profile.
#[derive(Clone, Debug)]
pub struct LabServer {
    /// Its profile.
    pub profile: Profile,
    /// Path of its program, if it is not looked up.
    pub program: Option<PathBuf>,
    /// Values of settings of the profile.
    pub chosen: BTreeMap<String, String>,
    /// Its cores.
    pub cpus: CpuSet,
    /// The lab.
    pub setup: Setup,
    /// Prefix with which it synthesises, and its length.
    pub pref64: (Ipv6Addr, u8),
    /// Zone of the names, without the final dot.
    pub suffix: String,
}

impl LabServer {
    /// Starts it in a lab and calls `work` with the suite and the server. Returns the name of the server,
    /// with its version, as well.
    ///
    /// # Errors
    ///
    /// The lab, the authority or the server cannot be started.
    pub fn with_suite<T>(
        &self,
        interrupted: &Arc<AtomicBool>,
        work: impl FnOnce(&Suite, &mut Dut<'_>) -> T,
    ) -> Result<(String, T), LabError> {
        let setup = self.setup;
        let _lab = Lab::up(setup, None)?;
        let upstream: (IpAddr, u16) = match self.profile.requires.upstream_family {
            Some(Family::Ipv6) => setup.upstream_v6(),
            _ => setup.upstream_v4(),
        };
        let subject = Subject {
            server: setup.dut().into(),
            network: setup.network(Role::Measurer),
            suffix: self.suffix.clone(),
        };
        let authority = setup.network(Role::Authority);
        let suite = Suite::open(subject, &authority, upstream.into())?;
        let host = Host::here(interrupted);
        let probe = || probe(&suite, interrupted);
        let server = HostedServer::start(host, self.spec(upstream), probe)?;
        let name = match server.program().version {
            Some(version) => with_version(&self.profile.name, &version),
            None => self.profile.name.clone(),
        };
        let mut dut = Dut {
            suite: &suite,
            started: Some((server, Arc::clone(interrupted))),
        };
        let done = work(&suite, &mut dut);
        Ok((name, done))
    }

    fn spec(&self, upstream: (IpAddr, u16)) -> ServerSpec {
        let (listen, port) = self.setup.dut();
        ServerSpec {
            profile: self.profile.clone(),
            program: self.program.clone(),
            network: self.setup.network(Role::Dut),
            settings: Settings {
                listen,
                listen_v4: Ipv4Addr::UNSPECIFIED,
                port,
                upstreams: vec![upstream.into()],
                pref64: self.pref64,
                suffix: self.suffix.clone(),
                aaaa_share: Share::NONE,
                cpus: self.cpus.clone(),
                chosen: self.chosen.clone(),
            },
            zone: None,
        }
    }
}
