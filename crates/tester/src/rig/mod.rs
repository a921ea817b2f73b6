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

mod agreement;
mod backend;
pub mod certify;
pub mod conditions;
pub mod equipment;
mod error;
pub mod hosts;
pub mod placement;
pub mod preflight;
mod profiles;
pub mod pulses;
pub mod recommended;
mod running;
pub mod sample;
pub mod servers;
pub mod sources;
pub mod spec;
pub mod target;
pub mod tester;
mod warm_up;
pub mod watched;
pub mod zones;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::Backend;
use dns64_transport::clock::Nanos;
use dns64_transport::socket::Segmentation;
use dns64_wire::pref64::Pref64;

use crate::authority::behaviour::{Behaviour, Delay, Rules};
use crate::lab::hosts::{SiteAuthority, SiteDut};
use crate::lab::profile::{Family, Profile, Settings};
use crate::lab::server::{Probe, ServerSpec};
use crate::lab::topology;
use crate::lab::{Blame, LabError};
use crate::load::sources::Sources;
use crate::load::transport::Protocol;
use crate::machine::Machine;
use crate::machine::network::Network;
use crate::namespace::{Prefixes, Share};
use crate::post::host::{Host, OPEN_NS, at_once};
use crate::post::links::Links;
use crate::post::{Request, TesterSpec};
use crate::procedure::Trials;
use crate::trial::fault::TesterFault;
use crate::trial::result::TrialResult;
use crate::trial::rows::Rows;
use crate::trial::{AuthDns, Measurer, rules};
pub use error::RigError;
pub use profiles::Profiles;

use certify::Loopback;
use equipment::PROBE_NS;
use hosts::RigHosts;
use placement::Placement;
use running::{Asker, Running};
use sample::SAMPLE_MAX;
use servers::{HostedServer, Servers};
use spec::{AuthorityChoice, LabSpec, RigSpec, Subject};
use tester::Instruments;
use zones::Demand;

/// A test setup. Dropping it stops its servers and removes its lab.
pub struct Rig {
    spec: RigSpec,
    profiles: Profiles,
    /// Faults that the authority injects behind the DUT.
    rules: Option<Rules>,
    placement: Placement,
    /// Backend of the Measurer and of the built-in authority.
    backend: Backend,
    /// Why AF_XDP was not chosen in a lab that could have had it.
    no_af_xdp: Option<String>,
    interrupted: Arc<AtomicBool>,
    /// Highest DUT rate for which the Tester has passed its self-test.
    certified_rate_qps: Option<u64>,
    /// From here the drop order matters: the Tester, the servers, then their hosts.
    running: Option<Running<Instruments, Servers>>,
    /// The hosts of a lab; `None` if this machine queries a server that already runs.
    hosts: Option<RigHosts>,
}

impl Rig {
    /// Creates the lab, if there is one, or connects to its hosts by `links`. Starts nothing in it yet.
    ///
    /// # Errors
    ///
    /// Everything that prevents the measurement here. Errors that follow from the description and the programs alone
    /// are returned before anything is set up.
    pub fn open(
        spec: RigSpec,
        links: &Links,
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
            zones::check(&spec.load, profiles.authority.as_ref(), demand)?;
        }
        let rules = spec.subject.lab().map(|lab| rules(&lab.behaviour));
        let mut rig = Self {
            rules: rules.transpose()?.flatten(),
            placement: Placement::of(&spec),
            backend: spec.load.backend.unwrap_or(Backend::Socket),
            no_af_xdp: None,
            spec,
            profiles,
            interrupted,
            certified_rate_qps: None,
            running: None,
            hosts: None,
        };
        rig.hosts = rig
            .spec
            .subject
            .lab()
            .map(|lab| rig.reach(lab, links))
            .transpose()?;
        rig.choose_backend();
        Ok(rig)
    }

    fn reach(&self, lab: &LabSpec, links: &Links) -> Result<RigHosts, RigError> {
        let (family, load) = (self.upstream(lab), &self.spec.load);
        Ok(match &lab.at {
            None => RigHosts::here(lab, family, load, &self.placement, &self.interrupted)?,
            Some(hosts) => RigHosts::to(hosts, lab.dut_host(), family, links, load.local)?,
        })
    }

    /// Returns the description of the rig.
    pub fn spec(&self) -> &RigSpec {
        &self.spec
    }

    /// Starts authority, Tester and DUT, and compares their answers with those expected, unless they run.
    pub fn start(&mut self) -> Result<(), RigError> {
        self.started().map(|_running| ())
    }

    /// Makes the next trials ask for the names of the first ones again.
    pub fn ask_again(&mut self) {
        if let Some(running) = &mut self.running {
            running.asker.names.start_over();
        }
    }

    /// Sets the rate up to which the Tester is certified, for the results of the next trials.
    pub fn certify_to(&mut self, certified_rate_qps: Option<u64>) {
        self.certified_rate_qps = certified_rate_qps;
    }

    fn started(&mut self) -> Result<&mut Running<Instruments, Servers>, RigError> {
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
        running.load.duration_ns = self.spec.load.duration_ns;
        Ok(running)
    }

    /// Returns the DUT, if the rig started it: its program, files and core affinity.
    pub fn dut(&self) -> Option<&Servers> {
        self.running.as_ref()?.dut.as_ref()
    }

    /// Returns the authority behind the DUT, if the rig started it as a separate program.
    pub fn authority(&self) -> Option<&Servers> {
        self.running.as_ref()?.authority.as_ref()
    }

    /// Returns the server under test and the prefixes of its answers, after the start.
    pub fn server(&self) -> Option<(SocketAddr, &Prefixes)> {
        let asker = &self.running.as_ref()?.asker;
        Some((asker.server, &asker.pref64))
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
    pub fn reached(&self) -> Option<&RigHosts> {
        self.hosts.as_ref().filter(|hosts| hosts.is_far())
    }

    /// Returns the server that a self-test queries.
    pub fn self_test_server(&self) -> Option<SocketAddr> {
        match &self.spec.subject {
            Subject::Server {
                self_test_server, ..
            } => *self_test_server,
            Subject::Lab(_) => Some(self.hosts.as_ref()?.server(true)),
        }
    }

    /// Returns the queries of the last trial; `None` before the first.
    pub fn rows(&self) -> Option<Rows<'_>> {
        self.running.as_ref()?.asker.client.rows()
    }

    fn begin(&self) -> Result<Running<Instruments, Servers>, RigError> {
        match (&self.spec.subject, &self.hosts) {
            (Subject::Server { server, .. }, _) => self.join(*server),
            (Subject::Lab(lab), Some(hosts)) => self.start_lab(lab, hosts),
            // It is reached when the rig is opened.
            (Subject::Lab(_), None) => Err(Blame::Machine.error("the lab is not up").into()),
        }
    }

    /// Creates a Tester for a server that already runs.
    fn join(&self, server: SocketAddr) -> Result<Running<Instruments, Servers>, RigError> {
        let load = &self.spec.load;
        let mut asker = self.asker(self.measurer_here(server)?, server)?;
        asker.agree(load.pref64.clone())?;
        asker.agree_on_records()?;
        Ok(Running::new(asker, load.clone()))
    }

    fn asker(
        &self,
        client: Instruments,
        server: SocketAddr,
    ) -> Result<Asker<Instruments>, RigError> {
        let load = &self.spec.load;
        let server = (server, load.transport);
        Ok(Asker::new(client, server, load.names()?, &self.interrupted))
    }

    /// Opens a Measurer on this machine for a server that already runs.
    fn measurer_here(&self, server: SocketAddr) -> Result<Instruments, RigError> {
        let load = &self.spec.load;
        let measurer = Measurer {
            network: Network::Own,
            local: load.local,
            threads: load.threads,
            cores: self.placement.measurer.cpus().to_vec(),
            backend: self.backend,
        };
        let zone = load.zone.clone();
        Ok(Instruments::here(
            measurer,
            (server, load.transport.protocol),
            zone,
            &self.interrupted,
        )?)
    }

    /// Starts authorities, Testers and DUT on their hosts.
    fn start_lab(
        &self,
        lab: &LabSpec,
        hosts: &RigHosts,
    ) -> Result<Running<Instruments, Servers>, RigError> {
        let (client, authority) = self.open_testers(lab, hosts, false)?;
        let mut asker = self.asker(client, hosts.server(false))?;
        // The DUT synthesises with the prefix chosen here.
        let (lab_prefix, lab_len) = topology::PREF64;
        let chosen = Pref64::new(lab_prefix, lab_len).unwrap_or(Pref64::WELL_KNOWN);
        asker.pref64 = self.spec.load.pref64.clone().unwrap_or(chosen.into());
        let synthesises = asker.pref64.first().unwrap_or(chosen);
        let dut = hosts.site().dut.as_ref().and_then(|at| {
            let spec = self.dut_spec(lab, at, hosts.network(&at.host), synthesises)?;
            let host = hosts.host(&at.host).clone();
            Some(HostedServer::start(host, spec, || asker.probe_and_burst()))
        });
        let dut = dut.transpose()?;
        // Faults of the authority are answered as such.
        if dut.is_some() && self.rules.is_none() {
            let expected = asker.pref64.clone();
            asker.agree(Some(expected))?;
        }
        Ok(self.running(
            lab,
            asker,
            Servers::new(dut.into_iter().collect()),
            authority,
        ))
    }

    /// Returns the specification of the DUT of a lab, if it has one.
    fn dut_spec(
        &self,
        lab: &LabSpec,
        at: &SiteDut,
        network: &Network,
        pref64: Pref64,
    ) -> Option<ServerSpec> {
        let (choice, profile) = lab.dut.as_ref().zip(self.profiles.dut.as_ref())?;
        let load = &self.spec.load;
        Some(ServerSpec {
            profile: profile.clone(),
            program: choice.program.clone(),
            network: network.clone(),
            settings: Settings {
                listen: at.listen,
                listen_v4: Ipv4Addr::UNSPECIFIED,
                port: at.port,
                upstreams: at.upstreams.clone(),
                pref64: (pref64.addr(), pref64.prefix_len()),
                suffix: load.suffix(),
                aaaa_share: load.zone.aaaa_share,
                cpus: choice.cpus.clone().or(at.cpus.cpus()),
                chosen: choice.settings.clone(),
            },
            zone: None,
        })
    }

    fn running(
        &self,
        lab: &LabSpec,
        asker: Asker<Instruments>,
        dut: Option<Servers>,
        authority: Option<Servers>,
    ) -> Running<Instruments, Servers> {
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

    /// Starts the Tester's threads on all hosts, and the authorities, for a self-test or with a DUT.
    fn open_testers(
        &self,
        lab: &LabSpec,
        hosts: &RigHosts,
        self_test: bool,
    ) -> Result<(Instruments, Option<Servers>), RigError> {
        let site = hosts.site();
        let programs = self.profiles.authority.as_ref().map(|profile| {
            // In parallel: each may have a zone to load.
            let started = at_once(site.authorities.iter().collect(), |at| {
                self.start_authority(lab, profile, hosts, at, self_test)
            });
            started.into_iter().collect::<Result<Vec<_>, _>>()
        });
        let programs = programs.transpose()?;
        for host in hosts.all() {
            let spec = self.tester_spec(lab, hosts, &host, self_test)?;
            host.ask(Request::Open(Box::new(spec)), OPEN_NS)?;
        }
        let senders = hosts.senders(self_test);
        let probers = senders.iter().zip(&site.measurers).enumerate();
        let probers = probers.map(|(k, (sender, at))| {
            let local = self.sources_of(hosts, k);
            let server = (sender.server, self.spec.load.transport.protocol);
            self.prober(&sender.host, hosts.network(&at.host), local, server)
        });
        let own = site.authorities.iter().filter(|_| programs.is_none());
        let client = Instruments {
            probers: probers.collect(),
            watched: hosts.watched(self_test),
            authorities: own.map(|it| hosts.host(&it.host).clone()).collect(),
            hosts: hosts.all(),
            senders,
            last: None,
        };
        Ok((client, programs.and_then(Servers::new)))
    }

    /// Starts an authority that is a separate program, and checks a sample of its answers.
    fn start_authority(
        &self,
        lab: &LabSpec,
        profile: &Profile,
        hosts: &RigHosts,
        at: &SiteAuthority,
        self_test: bool,
    ) -> Result<HostedServer, RigError> {
        let (host, network) = (hosts.host(&at.host), hosts.network(&at.host));
        let listen = listen(at, self_test);
        let zone = self.spec.load.zone_file(self_test);
        let prober = self.prober(host, network, None, (listen, Protocol::Udp));
        // The last name exists, with or without an AAAA, and is loaded last.
        let last = zone.cidr.last();
        let probe = || match prober.answers(last, PROBE_NS) {
            _ if self.interrupted.load(Ordering::Relaxed) => Probe::interrupted(),
            answer => answer.into(),
        };
        let spec = ServerSpec {
            profile: profile.clone(),
            program: None,
            network: network.clone(),
            settings: self.authority_settings(lab, at, self_test),
            zone: Some(zone.clone()),
        };
        let server = HostedServer::start(host.clone(), spec, probe)?;
        sample::check(&prober, &zone, SAMPLE_MAX)?;
        Ok(server)
    }

    /// Settings of an authority that is a separate program, which DUT or Measurer query at its address.
    fn authority_settings(&self, lab: &LabSpec, at: &SiteAuthority, self_test: bool) -> Settings {
        let listen = listen(at, self_test);
        // Nothing else can reach it on a loopback interface. BIND accepts the wildcard address only as the sole address.
        let (listen_v6, listen_v4) = match (listen.ip(), listen.ip().is_loopback()) {
            (IpAddr::V6(address), true) => (address, Ipv4Addr::LOCALHOST),
            (IpAddr::V6(address), false) => (address, Ipv4Addr::UNSPECIFIED),
            (IpAddr::V4(address), true) => (Ipv6Addr::LOCALHOST, address),
            (IpAddr::V4(address), false) => (Ipv6Addr::UNSPECIFIED, address),
        };
        Settings {
            listen: listen_v6,
            listen_v4,
            port: listen.port(),
            upstreams: vec![listen],
            pref64: topology::PREF64,
            suffix: self.spec.load.suffix(),
            aaaa_share: match self_test {
                true => Share::ALL,
                false => self.spec.load.zone.aaaa_share,
            },
            cpus: at.cpus.clone(),
            chosen: match &lab.authority {
                AuthorityChoice::BuiltIn | AuthorityChoice::InDriver(_) => BTreeMap::new(),
                AuthorityChoice::Profile { settings, .. } => settings.clone(),
            },
        }
    }

    /// Returns the Tester's roles on one host.
    fn tester_spec(
        &self,
        lab: &LabSpec,
        hosts: &RigHosts,
        host: &Host,
        self_test: bool,
    ) -> Result<TesterSpec, LabError> {
        let (site, load) = (hosts.site(), &self.spec.load);
        let is_here = |name: &str| hosts.host(name).name() == host.name();
        let mut measurers = site.measurers.iter().enumerate();
        let measurer = measurers.find(|(_, it)| is_here(&it.host));
        let mut authorities = site.authorities.iter();
        let authority = authorities.find(|it| is_here(&it.host));
        let authority = authority.filter(|_| self.profiles.authority.is_none());
        let available = host
            .link()
            .map(|link| link.welcome().host.available.clone());
        let (measurer_cores, authority_cores) = placement::on_host(
            &available.unwrap_or_default(),
            measurer.map(|(_, it)| it),
            authority,
        )?;
        let ports = measurer.map(|(k, _)| sources::least_ports(load, Some(site))[k]);
        Ok(TesterSpec {
            measurer: measurer.map(|(k, it)| Measurer {
                network: hosts.network(&it.host).clone(),
                // A lab on this machine has routes for all of its addresses.
                local: self.sources_of(hosts, k).or_else(|| {
                    let address = match self_test {
                        true => it.self_test_local,
                        false => it.local,
                    };
                    hosts.is_far().then(|| IpAddr::from(address).into())
                }),
                threads: it.threads,
                cores: measurer_cores,
                backend: self.backend,
            }),
            ports: ports.unwrap_or(0),
            authority: authority.map(|at| AuthDns {
                network: hosts.network(&at.host).clone(),
                listen: listen(at, self_test),
                workers: authority_cores.len().max(1),
                cores: authority_cores,
                segmentation: match self_test {
                    true => Segmentation::Off,
                    false => load.segmentation,
                },
                // An interface accepts one program.
                backend: match lab.authority.driver_mode() {
                    Some(_) => Backend::Socket,
                    None => self.backend,
                },
                zone: load.zone_config(self_test),
                // No injected faults in a self-test.
                behaviour: match self_test {
                    true => Behaviour::default(),
                    false => lab.behaviour.clone(),
                },
                driver: lab.interception(self_test, self.backend),
            }),
        })
    }

    /// The source addresses of Measurer `k`, if they were given.
    fn sources_of(&self, hosts: &RigHosts, k: usize) -> Option<Sources> {
        let measurers = hosts.site().measurers.len();
        self.spec.load.local?.part(k, measurers)
    }

    /// Returns the Tester and an authority in self-test mode, one of which is tested; `None` without a server to query.
    pub fn looped_back(
        &self,
        authority_is_subject: bool,
    ) -> Result<Option<Loopback<Instruments, Servers>>, RigError> {
        let Some(server) = self.self_test_server() else {
            return Ok(None);
        };
        let (client, authority) = match (&self.spec.subject, &self.hosts) {
            (Subject::Lab(lab), Some(hosts)) => self.open_testers(lab, hosts, true)?,
            _ => {
                let client = self.measurer_here(server)?;
                certify::refuse_without_own_aaaa(&client.probers[0], self.spec.load.cidr.first())?;
                (client, None)
            }
        };
        let interrupted = Arc::clone(&self.interrupted);
        let load = &self.spec.load;
        let is_subject = authority_is_subject;
        Loopback::new(client, authority, server, load, interrupted, is_subject).map(Some)
    }
}

/// Returns the listening address of an authority in a self-test, or behind the DUT.
fn listen(at: &SiteAuthority, self_test: bool) -> SocketAddr {
    match self_test {
        true => at.self_test_listen,
        false => at.listen,
    }
}

impl Trials for Rig {
    type Error = RigError;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, RigError> {
        self.started()?.trial(rate_qps)
    }

    fn set_duration(&mut self, duration_ns: Nanos) {
        self.spec.load.duration_ns = duration_ns;
    }

    fn end(error: &RigError) -> Option<TesterFault> {
        error.end()
    }
}

#[cfg(test)]
mod tests;
