//! A rig on connected hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::any::{AnyServer, AnyTester, Instruments};
use super::tester::FarTester;
use crate::lab::hosts::{Hosts, Site, SiteAuthority};
use crate::lab::profile::Profile;
use crate::lab::server::ServerSpec;
use crate::load::sources::Sources;
use crate::machine::host::Host;
use crate::rig::probe::{Prober, Way};
use crate::rig::remote::at_once;
use crate::rig::remote::crew::Crew;
use crate::rig::remote::host::{FarServer, PROMPT_NS, Remote};
use crate::rig::remote::order::{AuthorityOrder, MeasurerOrder, Request, TesterOrder, ZoneOrder};
use crate::rig::remote::site::Reached;
use crate::rig::running::Running;
use crate::rig::sources;
use crate::rig::spec::LabSpec;
use crate::rig::{Rig, RigError, start_program};
use dns64_transport::socket::Segmentation;

impl Rig {
    /// Connects to the hosts of this measurement.
    pub(in crate::rig) fn reach(
        &self,
        lab: &LabSpec,
        hosts: &Hosts,
        crew: &Crew,
    ) -> Result<Reached, RigError> {
        let family = self.upstream(lab);
        let local = self.spec.load.local;
        Ok(Reached::to(hosts, lab.dut_host(), family, (crew, local))?)
    }

    /// Starts authorities, Testers and DUT on their hosts.
    pub(in crate::rig) fn start_on(
        &self,
        lab: &LabSpec,
        reached: &Reached,
    ) -> Result<Running<Instruments, AnyServer>, RigError> {
        let site = reached.site();
        let (client, authority) = self.open_testers(lab, reached, false)?;
        let server = reached.server(false);
        let mut asker = self.lab_asker(client, server)?;
        let dut = site.dut.as_ref().and_then(|at| {
            let listen = ((at.listen, at.port), at.upstreams.clone());
            let mut spec = self.dut_spec(lab, Host::Here, listen, &asker)?;
            let cpus = lab.dut.as_ref().map(|dut| dut.cpus.clone());
            spec.settings.cpus = cpus
                .filter(|cpus| !cpus.is_unrestricted())
                .unwrap_or_else(|| at.cpus.clone());
            let host = reached.host(&at.host);
            Some(FarServer::start(host, spec, || asker.probe_and_burst()))
        });
        let dut = dut.transpose()?.map(|dut| AnyServer::Far(vec![dut]));
        Ok(self.running(lab, asker, dut, authority))
    }

    /// Starts the Tester's threads on all hosts, and the authorities, for a self-test or with a DUT.
    pub(in crate::rig) fn open_testers(
        &self,
        lab: &LabSpec,
        reached: &Reached,
        self_test: bool,
    ) -> Result<(Instruments, Option<AnyServer>), RigError> {
        let site = reached.site();
        let mut programs = Vec::new();
        if let Some(profile) = &self.profiles.authority {
            let specs = site.authorities.iter().map(|at| {
                let spec = self.authority_spec(lab, (profile, at), self_test);
                let host = reached.host(&at.host);
                (
                    self.far_prober(&host, listen(at, self_test), None),
                    host,
                    spec,
                )
            });
            let measured = (&self.spec.load, &*self.interrupted);
            // In parallel: each may have a zone to load.
            let started = at_once(specs.collect(), |(prober, host, spec)| {
                start_program(measured, &prober, self_test, |probe| {
                    FarServer::start(host, spec, probe)
                })
            });
            programs = started.into_iter().collect::<Result<_, _>>()?;
        }
        let is_built_in = self.profiles.authority.is_none();
        for host in reached.all() {
            let order = self.tester_order(lab, reached, &host, self_test);
            host.ask(&Request::Open(Box::new(order)), PROMPT_NS)?;
        }
        let senders = reached.senders(self_test);
        let first = &senders[0];
        let part = part_of(self.spec.load.local, site, 0);
        let prober = self.far_prober(&first.host, first.server, part);
        let tester = FarTester {
            hosts: reached.all(),
            senders,
            authorities: match is_built_in {
                true => site
                    .authorities
                    .iter()
                    .map(|it| reached.host(&it.host))
                    .collect(),
                false => Vec::new(),
            },
            last: None,
        };
        let client = Instruments {
            tester: AnyTester::Far(Box::new(tester)),
            prober,
            watched: reached.watched(self_test),
        };
        let program = (!programs.is_empty()).then_some(AnyServer::Far(programs));
        Ok((client, program))
    }

    /// Returns the order for an authority that is a separate program.
    fn authority_spec(
        &self,
        lab: &LabSpec,
        (profile, at): (&Profile, &SiteAuthority),
        self_test: bool,
    ) -> ServerSpec {
        let listen = listen(at, self_test);
        let any = (Ipv6Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, listen.port());
        let settings = self.authority_settings(lab, (any, listen), &at.cpus, self_test);
        self.program_spec(profile, Host::Here, settings, self_test)
    }

    /// Returns the order for the Tester's roles on one host.
    fn tester_order(
        &self,
        lab: &LabSpec,
        reached: &Reached,
        host: &Remote,
        self_test: bool,
    ) -> TesterOrder {
        let site = reached.site();
        let load = &self.spec.load;
        let ports = sources::least_ports(load, Some(site));
        let mut measurers = site.measurers.iter().enumerate();
        let measurer = measurers.find(|(_, it)| it.host == host.name());
        let measurer = measurer.map(|(k, it)| MeasurerOrder {
            local: part_of(load.local, site, k).or_else(|| {
                let address = match self_test {
                    true => it.self_test_local,
                    false => it.local,
                };
                Some(IpAddr::from(address).into())
            }),
            ports: ports[k],
            threads: it.threads,
            cpus: it.cpus.to_string(),
            backend: load.backend,
        });
        let authority = site.authority_on(host.name());
        let authority = authority.filter(|_| self.profiles.authority.is_none());
        let authority = authority.map(|at| AuthorityOrder {
            listen: listen(at, self_test),
            cpus: at.cpus.to_string(),
            segmentation: match self_test {
                true => Segmentation::Off,
                false => load.segmentation,
            },
            backend: load.backend,
            zone: ZoneOrder::new(load.cidr, &load.zone_config(self_test)),
            behaviour: (!self_test && !lab.behaviour.is_none()).then(|| lab.behaviour.to_string()),
        });
        TesterOrder {
            measurer,
            authority,
        }
    }

    fn far_prober(&self, host: &Remote, server: SocketAddr, local: Option<Sources>) -> Prober {
        Prober {
            way: Way::Far(host.clone()),
            local: local.map(|sources| sources.address(0)),
            server,
            zone: self.spec.load.zone.clone(),
        }
    }
}

/// The source addresses of Measurer `k`, if they were given.
fn part_of(local: Option<Sources>, site: &Site, k: usize) -> Option<Sources> {
    local?.part(k, site.measurers.len())
}

/// Returns the listening address of an authority in a self-test, or behind the DUT.
fn listen(at: &SiteAuthority, self_test: bool) -> SocketAddr {
    match self_test {
        true => at.self_test_listen,
        false => at.listen,
    }
}
