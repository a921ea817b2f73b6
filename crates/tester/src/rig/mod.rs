//! The test setup: lab, servers and Tester, ready for trials.
//!
//! ```text
//! RigSpec --open--> Rig (lab, profiles, cores) --start--> Running (ready, names, trial, settle)
//!                                            \-looped_back--> Loopback (the self-test)
//! ```
//!
//! A [`Rig`] is either a lab that it creates, with a DUT and an authority started from profiles, or a server that is
//! already running. The procedures use it as [`Trials`]. The decisions of `Running` and [`Loopback`] are generic over
//! their [`equipment`], so the tests need no sockets.

pub mod certify;
pub mod conditions;
pub mod equipment;
mod error;
pub mod far;
pub mod placement;
pub mod probe;
mod profiles;
pub mod pulse;
pub mod recommended;
pub mod remote;
mod running;
pub mod sample;
pub mod sources;
pub mod spec;
pub mod target;
mod warm_up;
pub mod zones;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::Backend;
use dns64_transport::socket::Segmentation;
use dns64_wire::pref64::Pref64;

use crate::authority::behaviour::{Delay, Rules};
use crate::lab::LabError;
use crate::lab::profile::{Family, Profile, Settings};
use crate::lab::server::{Probe, Server, ServerSpec};
use crate::lab::topology::{self, Lab};
use crate::load::sources::Sources;
use crate::machine::Machine;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::machine::host::Host;
use crate::machine::watch::Watched;
use crate::namespace::Share;
use crate::procedure::Trials;
use crate::trial::result::TrialResult;
use crate::trial::rows::Rows;
use crate::trial::{AuthDns, Measurer, Tester};
pub use error::RigError;
pub use profiles::Profiles;

use certify::Loopback;
use equipment::PROBE_NS;
use far::any::{AnyServer, Instruments};
use placement::Placement;
use probe::{Prober, Way};
use remote::crew::Crew;
use remote::site::Reached;
use running::{Asker, Running};
use sample::SAMPLE_MAX;
use spec::{AuthorityChoice, LabSpec, Load, RigSpec, Subject};
use zones::Demand;

/// A test setup. Dropping it stops its servers and removes its lab.
pub struct Rig {
    spec: RigSpec,
    profiles: Profiles,
    /// Faults that the authority injects behind the DUT.
    rules: Option<Arc<Rules>>,
    placement: Placement,
    interrupted: Arc<AtomicBool>,
    /// Highest DUT rate for which the Tester has passed its self-test.
    certified_rate_qps: Option<u64>,
    /// From here the drop order matters: the Tester, the servers, then their hosts.
    running: Option<Running<Instruments, AnyServer>>,
    /// Held to keep it up.
    ground: Ground,
}

/// Location of the roles.
enum Ground {
    /// On this machine, which queries a server that already runs.
    None,
    /// On virtual hosts of this machine, which stay up while it is held.
    Lab { _up: Lab },
    /// On connected hosts.
    Hosts(Box<Reached>),
}

impl Rig {
    /// Creates the lab, if there is one, or connects to its hosts by `crew`. Starts nothing in it yet.
    ///
    /// # Errors
    ///
    /// Everything that prevents the measurement here. Errors that follow from the description and the programs alone
    /// are returned before anything is set up.
    pub fn open(
        spec: RigSpec,
        crew: &Crew,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self, RigError> {
        spec.load.names()?;
        sources::possible_here(&spec.subject, &spec.load)?;
        spec.subject.lab().map_or(Ok(()), LabSpec::check_driver)?;
        placement::check(&spec.subject, &spec.load, &Machine::here())?;
        let profiles = Profiles::load(&spec.subject)?;
        let demand = Demand {
            self_test: spec.subject.is_authority(),
            highest_qps: None,
        };
        if spec.subject.hosts().is_none() {
            zones::check(&spec.load, profiles.authority(), demand)?;
        }
        let behaviour = spec.subject.lab().map(|lab| lab.behaviour.clone());
        let behaviour = behaviour.filter(|behaviour| !behaviour.is_none());
        let rules = behaviour.map(Rules::new).transpose()?.map(Arc::new);
        let mut rig = Self {
            placement: Placement::of(&spec),
            spec,
            profiles,
            rules,
            interrupted,
            certified_rate_qps: None,
            running: None,
            ground: Ground::None,
        };
        rig.ground = match rig.spec.subject.lab() {
            None => Ground::None,
            Some(lab) => match &lab.at {
                None => Ground::Lab {
                    _up: Lab::up(lab.setup, rig.spec.load.local)?,
                },
                Some(hosts) => Ground::Hosts(Box::new(rig.reach(lab, hosts, crew)?)),
            },
        };
        Ok(rig)
    }

    /// Returns the description of the rig.
    pub fn spec(&self) -> &RigSpec {
        &self.spec
    }

    /// Starts authority, Tester and DUT, and detects the pref64, unless they run.
    pub fn start(&mut self) -> Result<(), RigError> {
        self.started().map(|_running| ())
    }

    /// Sets the rate up to which the Tester is certified, for the results of the next trials.
    pub fn certify_to(&mut self, certified_rate_qps: Option<u64>) {
        self.certified_rate_qps = certified_rate_qps;
    }

    fn started(&mut self) -> Result<&mut Running<Instruments, AnyServer>, RigError> {
        let running = match self.running.take() {
            Some(running) => running,
            None => {
                let begun = self.begin();
                if self.interrupted.load(Ordering::Relaxed) {
                    return Err(RigError::Interrupted);
                }
                begun?
            }
        };
        let running = self.running.insert(running);
        running.certified_rate_qps = self.certified_rate_qps;
        Ok(running)
    }

    /// Returns the DUT, if the rig started it: its program, files and core affinity.
    pub fn dut(&self) -> Option<&AnyServer> {
        self.running.as_ref()?.dut.as_ref()
    }

    /// Returns the authority behind the DUT, if the rig started it as a separate program.
    pub fn authority(&self) -> Option<&AnyServer> {
        self.running.as_ref()?.authority.as_ref()
    }

    /// Returns the server under test and its pref64, after the start.
    pub fn server(&self) -> Option<(SocketAddr, Pref64)> {
        let asker = &self.running.as_ref()?.asker;
        Some((asker.server, asker.pref64))
    }

    /// Returns the path of the file with the delays of the authority, if there is one.
    pub fn delay_file(&self) -> Option<&Path> {
        match &self.rules.as_ref()?.behaviour().delay {
            Delay::File(path) => Some(path),
            Delay::Fixed(_) | Delay::Jittered { .. } => None,
        }
    }

    /// Returns the path of the authority's program, if it is a separate one.
    pub fn authority_program(&self) -> Option<PathBuf> {
        let is_here = self.reached().is_none();
        let authority = self.profiles.authority.as_ref().filter(|_| is_here);
        authority?.program(None).ok()
    }

    /// Returns the connected hosts, if it runs on other hosts.
    pub fn reached(&self) -> Option<&Reached> {
        match &self.ground {
            Ground::Hosts(reached) => Some(reached),
            Ground::Lab { .. } | Ground::None => None,
        }
    }

    /// Returns the server that a self-test queries.
    pub fn self_test_server(&self) -> Option<SocketAddr> {
        match &self.spec.subject {
            Subject::Server {
                self_test_server, ..
            } => *self_test_server,
            Subject::Lab(lab) => Some(match &self.ground {
                Ground::Hosts(reached) => reached.server(true),
                Ground::Lab { .. } | Ground::None => lab.setup.self_test().into(),
            }),
        }
    }

    /// Returns the queries of the last trial; `None` before the first.
    pub fn rows(&self) -> Option<Rows<'_>> {
        self.running.as_ref()?.asker.client.rows()
    }

    fn begin(&self) -> Result<Running<Instruments, AnyServer>, RigError> {
        match (&self.spec.subject, &self.ground) {
            (Subject::Server { server, .. }, _) => self.join(*server),
            (Subject::Lab(lab), Ground::Hosts(reached)) => self.start_on(lab, reached),
            (Subject::Lab(lab), _) => self.start_lab(lab),
        }
    }

    /// Creates a Tester for a server that already runs.
    fn join(&self, server: SocketAddr) -> Result<Running<Instruments, AnyServer>, RigError> {
        let load = &self.spec.load;
        let tester = Tester::open(self.measurer(Host::Here), None, &self.interrupted)?;
        let prober = self.prober(Host::Here, load.local, server);
        let client = Instruments::here(tester, prober, Watched::this_host(server));
        let mut asker = Asker::new(client, server, load.names()?, &self.interrupted);
        asker.pref64 = match load.pref64 {
            Some(pref64) => pref64,
            // If every name has its own AAAA, none is synthesised.
            None if load.zone.aaaa_share == Share::ALL => Pref64::WELL_KNOWN,
            None => asker.learn_pref64()?,
        };
        Ok(Running::new(asker, load.clone()))
    }

    fn start_lab(&self, lab: &LabSpec) -> Result<Running<Instruments, AnyServer>, RigError> {
        let setup = lab.setup;
        let upstream = SocketAddr::from(match self.upstream(lab) {
            Family::Ipv4 => setup.upstream_v4(),
            Family::Ipv6 => setup.upstream_v6(),
        });
        let (tester, authority) = self.start_authority(lab, upstream, false)?;
        let server = SocketAddr::from(setup.dut());
        let prober = self.prober(setup.host(Role::Measurer), self.spec.load.local, server);
        let client = Instruments::here(tester, prober, setup.watched(false));
        let mut asker = self.lab_asker(client, server)?;
        let listen = setup.dut();
        let dut = self.dut_spec(lab, setup.host(Role::Dut), (listen, vec![upstream]), &asker);
        let dut = dut.map(|spec| Server::start(spec, || asker.probe_and_burst()));
        let dut = dut.transpose()?;
        Ok(self.running(
            lab,
            asker,
            dut.map(|dut| AnyServer::Here(Box::new(dut))),
            authority,
        ))
    }

    /// Creates an asker for the DUT of a lab, which synthesises with the prefix chosen here.
    fn lab_asker(
        &self,
        client: Instruments,
        server: SocketAddr,
    ) -> Result<Asker<Instruments>, RigError> {
        let load = &self.spec.load;
        let mut asker = Asker::new(client, server, load.names()?, &self.interrupted);
        let (lab_prefix, lab_len) = topology::PREF64;
        let chosen = Pref64::new(lab_prefix, lab_len).unwrap_or(Pref64::WELL_KNOWN);
        asker.pref64 = load.pref64.unwrap_or(chosen);
        Ok(asker)
    }

    /// Returns the order for the DUT of a lab, if it has one, with its listening address and its upstreams.
    fn dut_spec(
        &self,
        lab: &LabSpec,
        host: Host,
        ((listen, port), upstreams): ((Ipv6Addr, u16), Vec<SocketAddr>),
        asker: &Asker<Instruments>,
    ) -> Option<ServerSpec> {
        let (choice, profile) = lab.dut.as_ref().zip(self.profiles.dut.as_ref())?;
        let load = &self.spec.load;
        Some(ServerSpec {
            profile: profile.clone(),
            program: choice.program.clone(),
            host,
            settings: Settings {
                listen,
                listen_v4: Ipv4Addr::UNSPECIFIED,
                port,
                upstreams,
                pref64: (asker.pref64.addr(), asker.pref64.prefix_len()),
                suffix: load.suffix(),
                aaaa_share: load.zone.aaaa_share,
                cpus: self.placement.dut.clone(),
                chosen: choice.settings.clone(),
            },
            zone: None,
        })
    }

    fn running(
        &self,
        lab: &LabSpec,
        asker: Asker<Instruments>,
        dut: Option<AnyServer>,
        authority: Option<AnyServer>,
    ) -> Running<Instruments, AnyServer> {
        Running {
            dut,
            authority,
            restart: lab.dut.as_ref().is_some_and(|dut| dut.restart),
            delay_ns: self.rules.as_ref().map_or(0, |rules| rules.delay_ns_max()),
            ..Running::new(asker, self.spec.load.clone())
        }
    }

    /// Returns the IP version between DUT and authority.
    fn upstream(&self, lab: &LabSpec) -> Family {
        let dut = self.profiles.dut.as_ref();
        let needed = dut.and_then(|profile| profile.requires.upstream_family);
        lab.upstream.or(needed).unwrap_or(Family::Ipv4)
    }

    /// Starts the authority at `listen`, built-in or as a separate program, and the Tester.
    fn start_authority(
        &self,
        lab: &LabSpec,
        listen: SocketAddr,
        self_test: bool,
    ) -> Result<(Tester, Option<AnyServer>), RigError> {
        let setup = lab.setup;
        let host = setup.host(Role::Authority);
        let zone = self.spec.load.zone_config(self_test);
        let cpus = &self.placement.authority;
        let (built_in, program) = match &self.profiles.authority {
            None => {
                let built_in = AuthDns {
                    host,
                    listen,
                    workers: cpus.cpus().len().max(1),
                    cores: cpus.cpus().to_vec(),
                    segmentation: match self_test {
                        true => Segmentation::Off,
                        false => self.spec.load.segmentation,
                    },
                    // An interface accepts one program.
                    backend: match lab.authority.driver_mode() {
                        Some(_) => Backend::Socket,
                        None => self.spec.load.backend,
                    },
                    zone,
                    // No injected faults in a self-test.
                    rules: self.rules.clone().filter(|_| !self_test),
                    driver: lab.interception(),
                };
                (Some(built_in), None)
            }
            Some(profile) => {
                let at = (lab.setup.authority_listen(), listen);
                let settings = self.authority_settings(lab, at, cpus, self_test);
                let prober = self.prober(host.clone(), None, listen);
                let spec = self.program_spec(profile, host, settings, self_test);
                let measured = (&self.spec.load, &*self.interrupted);
                let program = start_program(measured, &prober, self_test, |probe| {
                    Ok(AnyServer::Here(Box::new(Server::start(spec, probe)?)))
                })?;
                (None, Some(program))
            }
        };
        let measurer = self.measurer(setup.host(Role::Measurer));
        let tester = Tester::open(measurer, built_in.as_ref(), &self.interrupted)?;
        Ok((tester, program))
    }

    /// Returns the order for an authority that is a separate program.
    fn program_spec(
        &self,
        profile: &Profile,
        host: Host,
        settings: Settings,
        self_test: bool,
    ) -> ServerSpec {
        ServerSpec {
            profile: profile.clone(),
            program: None,
            host,
            settings,
            zone: Some(self.spec.load.zone_file(self_test)),
        }
    }

    /// Settings of an authority with its own addresses, which DUT or Measurer query at `listen`.
    fn authority_settings(
        &self,
        lab: &LabSpec,
        ((v6, v4, _), listen): ((Ipv6Addr, Ipv4Addr, u16), SocketAddr),
        cpus: &CpuSet,
        self_test: bool,
    ) -> Settings {
        // BIND accepts the wildcard address only as the sole address.
        let (v6, v4) = match listen.ip() {
            IpAddr::V6(address) => (address, v4),
            IpAddr::V4(address) => (v6, address),
        };
        Settings {
            listen: v6,
            listen_v4: v4,
            port: listen.port(),
            upstreams: vec![listen],
            pref64: topology::PREF64,
            suffix: self.spec.load.suffix(),
            aaaa_share: match self_test {
                true => Share::ALL,
                false => self.spec.load.zone.aaaa_share,
            },
            cpus: cpus.clone(),
            chosen: match &lab.authority {
                AuthorityChoice::BuiltIn | AuthorityChoice::InDriver(_) => BTreeMap::new(),
                AuthorityChoice::Profile { settings, .. } => settings.clone(),
            },
        }
    }

    /// Returns the Tester and an authority in self-test mode; `None` without a server to query.
    pub fn looped_back(&self) -> Result<Option<Loopback<Instruments, AnyServer>>, RigError> {
        let Some(server) = self.self_test_server() else {
            return Ok(None);
        };
        let (tester, prober, authority, watched) = match (&self.spec.subject, &self.ground) {
            (Subject::Lab(lab), Ground::Hosts(reached)) => {
                let (client, authority) = self.open_testers(lab, reached, true)?;
                return Ok(Some(self.loopback(client, authority, server)?));
            }
            (Subject::Server { .. }, _) => {
                let prober = self.prober(Host::Here, self.spec.load.local, server);
                certify::refuse_without_own_aaaa(&prober, self.spec.load.cidr.first())?;
                let measurer = self.measurer(Host::Here);
                let tester = Tester::open(measurer, None, &self.interrupted)?;
                (tester, prober, None, Watched::this_host(server))
            }
            (Subject::Lab(lab), _) => {
                let (tester, authority) = self.start_authority(lab, server, true)?;
                let host = lab.setup.host(Role::Measurer);
                let prober = self.prober(host, self.spec.load.local, server);
                (tester, prober, authority, lab.setup.watched(true))
            }
        };
        let client = Instruments::here(tester, prober, watched);
        Ok(Some(self.loopback(client, authority, server)?))
    }

    fn loopback(
        &self,
        client: Instruments,
        authority: Option<AnyServer>,
        server: SocketAddr,
    ) -> Result<Loopback<Instruments, AnyServer>, RigError> {
        let interrupted = Arc::clone(&self.interrupted);
        Loopback::new(client, authority, server, &self.spec.load, interrupted)
    }

    fn measurer(&self, host: Host) -> Measurer {
        Measurer {
            host,
            local: self.spec.load.local,
            threads: self.spec.load.threads,
            cores: self.placement.measurer.cpus().to_vec(),
            backend: self.spec.load.backend,
        }
    }

    /// Queries a server that already runs like the trials do; one in a namespace by sockets.
    fn prober(&self, host: Host, local: Option<Sources>, server: SocketAddr) -> Prober {
        Prober {
            way: match host {
                Host::Here => Way::Here(host, self.spec.load.backend),
                _ => host.into(),
            },
            local: local.map(|sources| sources.address(0)),
            server,
            zone: self.spec.load.zone.clone(),
        }
    }
}

/// Starts an authority that is a separate program, and checks a sample of its answers.
fn start_program<T>(
    (load, interrupted): (&Load, &AtomicBool),
    prober: &Prober,
    self_test: bool,
    start: impl FnOnce(&mut dyn FnMut() -> Probe) -> Result<T, LabError>,
) -> Result<T, RigError> {
    let zone = load.zone_file(self_test);
    // The last name exists, with or without an AAAA, and is loaded last.
    let last = zone.cidr.last();
    let mut probe = || match prober.answers(last, PROBE_NS) {
        _ if interrupted.load(Ordering::Relaxed) => Probe::Abandoned,
        Ok(()) => Probe::Answered,
        Err(error) => error.into(),
    };
    let server = start(&mut probe)?;
    sample::check(prober, &zone, SAMPLE_MAX)?;
    Ok(server)
}

impl Trials for Rig {
    type Error = RigError;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        self.started()?.trial(rate_qps)
    }
}

#[cfg(test)]
mod tests;
