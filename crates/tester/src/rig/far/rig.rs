//! A rig on hosts that were reached.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::any::{AnyServer, AnyTester, Instruments};
use super::tester::FarTester;
use crate::lab::host::Host;
use crate::lab::hosts::Hosts;
use crate::rig::probe::{Prober, Way};
use crate::rig::remote::crew::Crew;
use crate::rig::remote::host::{FarServer, PROMPT_NS, Remote};
use crate::rig::remote::order::{AuthorityOrder, MeasurerOrder, Request, TesterOrder, ZoneOrder};
use crate::rig::remote::site::Reached;
use crate::rig::running::Running;
use crate::rig::spec::LabSpec;
use crate::rig::{Rig, RigError};
use dns64_transport::socket::Segmentation;

impl Rig {
    /// Reaches the hosts of this measurement.
    pub(in crate::rig) fn reach(
        &self,
        lab: &LabSpec,
        hosts: &Hosts,
        crew: &Crew,
    ) -> Result<Reached, RigError> {
        let family = self.upstream(lab);
        Ok(Reached::to(hosts, lab.dut_host(), family, crew)?)
    }

    /// Starts authority, Testers and DUT on their hosts.
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
            let listen = ((at.listen, at.port), at.upstream);
            let mut spec = self.dut_spec(lab, Host::Here, listen, &asker)?;
            let cpus = lab.dut.as_ref().map(|dut| dut.cpus.clone());
            spec.settings.cpus = cpus
                .filter(|cpus| !cpus.is_unrestricted())
                .unwrap_or_else(|| at.cpus.clone());
            let host = reached.host(&at.host);
            Some(FarServer::start(host, spec, || asker.probe_and_burst()))
        });
        let dut = dut.transpose()?.map(|dut| AnyServer::Far(Box::new(dut)));
        Ok(self.running(lab, asker, dut, authority))
    }

    /// The threads of the Tester on all hosts, and the authority; for a self-test or beside a DUT.
    pub(in crate::rig) fn open_testers(
        &self,
        lab: &LabSpec,
        reached: &Reached,
        self_test: bool,
    ) -> Result<(Instruments, Option<AnyServer>), RigError> {
        let site = reached.site();
        let listen = match self_test {
            true => site.authority.self_test_listen,
            false => site.authority.listen,
        };
        let host = reached.host(&site.authority.host);
        let mut program = None;
        if let Some(profile) = &self.profiles.authority {
            let any = (Ipv6Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, listen.port());
            let settings =
                self.authority_settings(lab, (any, listen), &site.authority.cpus, self_test);
            let spec = self.program_spec(profile, Host::Here, settings, self_test);
            let prober = self.far_prober(&host, listen);
            program = Some(self.start_program(&prober, self_test, |probe| {
                let server = FarServer::start(host.clone(), spec, probe)?;
                Ok(AnyServer::Far(Box::new(server)))
            })?);
        }
        let is_built_in = self.profiles.authority.is_none();
        for host in reached.all() {
            let order = self.tester_order(lab, reached, &host, (listen, self_test));
            host.ask(&Request::Open(Box::new(order)), PROMPT_NS)?;
        }
        let senders = reached.senders(self_test);
        let first = senders[0].host.clone();
        let tester = FarTester {
            hosts: reached.all(),
            senders,
            authority: is_built_in.then_some(host),
            last: None,
        };
        let client = Instruments {
            tester: AnyTester::Far(Box::new(tester)),
            prober: self.far_prober(&first, reached.server(self_test)),
            watched: reached.watched(self_test),
        };
        Ok((client, program))
    }

    /// What one host has of the Tester.
    fn tester_order(
        &self,
        lab: &LabSpec,
        reached: &Reached,
        host: &Remote,
        (listen, self_test): (SocketAddr, bool),
    ) -> TesterOrder {
        let site = reached.site();
        let load = &self.spec.load;
        let measurer = site.measurers.iter().find(|it| it.host == host.name());
        let measurer = measurer.map(|it| MeasurerOrder {
            local: Some(
                match self_test {
                    true => it.self_test_local,
                    false => it.local,
                }
                .into(),
            ),
            threads: it.threads,
            cpus: it.cpus.to_string(),
        });
        let is_authority = site.authority.host == host.name() && self.profiles.authority.is_none();
        let authority = is_authority.then(|| AuthorityOrder {
            listen,
            cpus: site.authority.cpus.to_string(),
            segmentation: match self_test {
                true => Segmentation::Off,
                false => load.segmentation,
            },
            zone: ZoneOrder::new(load.cidr, &load.zone_config(self_test)),
            behaviour: (!self_test && !lab.behaviour.is_none()).then(|| lab.behaviour.to_string()),
        });
        TesterOrder {
            measurer,
            authority,
        }
    }

    fn far_prober(&self, host: &Remote, server: SocketAddr) -> Prober {
        Prober {
            way: Way::Far(host.clone()),
            local: None,
            server,
            zone: self.spec.load.zone.clone(),
        }
    }
}
