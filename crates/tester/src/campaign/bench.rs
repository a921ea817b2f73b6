//! The bench of a campaign on real rigs, one at a time, as its points need them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::Backend;
use dns64_transport::clock::Nanos;

use super::environment;
use super::names::UsedNames;
use super::plan::tasks::Point;
use super::plan::{Plan, Restart};
use super::record::{
    CertificateConditions, Environment, HostNote, ProgramFacts, Start, VariantFacts,
};
use super::run::{Assignment, Bench, BenchError};
use crate::agent::handshake::Welcome;
use crate::agent::program;
use crate::conform::lab::LabServer;
use crate::conform::read::built_in;
use crate::conform::report::Conformance;
use crate::hash::{sha256_hex, sha256_of};
use crate::lab::profile::Profile;
use crate::lab::topology::{PREF64, Setup};
use crate::lab::{Blame, LabError, LabKind};
use crate::load::pace::QUANTUM_NS;
use crate::machine::interface::{self, Interface};
use crate::machine::network::Network;
use crate::machine::watch::HostOf;
use crate::machine::{Machine, Role, process};
use crate::namespace::{Prefixes, Zone};
use crate::naming::Naming;
use crate::post::links::Links;
use crate::procedure::selftest::SelfTestResult;
use crate::procedure::{Event, Trials as _};
use crate::rig::certify::{Aim, Highest, Loopback};
use crate::rig::hosts::RigHosts;
use crate::rig::servers::Servers;
use crate::rig::spec::{Load, RigSpec, Subject};
use crate::rig::tester::Instruments;
use crate::rig::{Rig, RigError};
use crate::trial::result::TrialResult;
use crate::trial::rows::Rows;

/// Rigs for the points of a plan.
pub struct RigBench<'a> {
    plan: &'a Plan,
    environment: &'a Environment,
    lab: LabKind,
    /// Hosts of the plan, if it has any.
    links: Links,
    names: UsedNames,
    /// Receives the queries and the number of each trial after its end.
    keep: &'a mut Keep,
    interrupted: Arc<AtomicBool>,
    open: Option<Open>,
}

/// Stores the queries of a trial, given its number in its task.
pub type Keep = dyn FnMut(&Assignment, u64, Rows<'_>) -> Result<(), LabError>;

/// The open rig.
struct Open {
    job: Assignment,
    rig: Rig,
    /// Self-test that measures an authority by itself, once it has begun.
    looped: Option<Loopback<Instruments, Servers>>,
}

impl Open {
    /// The measured program, if the Tester started it.
    fn server(&self) -> Option<&Servers> {
        match &self.looped {
            Some(looped) => looped.authority(),
            None => self.rig.dut(),
        }
    }

    fn is_authority(&self) -> bool {
        self.rig.spec().subject.is_authority()
    }
}

impl<'a> RigBench<'a> {
    /// Creates a bench for labs of this kind, or for hosts that `links` reaches. `keep` receives the queries of each
    /// trial after its end.
    pub fn new(
        plan: &'a Plan,
        environment: &'a Environment,
        (lab, links): (LabKind, Links),
        names: UsedNames,
        keep: &'a mut Keep,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Self {
            plan,
            environment,
            lab,
            links,
            names,
            keep,
            interrupted,
            open: None,
        }
    }

    fn open(&self, job: &Assignment) -> Result<Open, BenchError> {
        let mut spec = spec(self.plan, &job.point, self.lab);
        spec.load.stop_early = job.stop_early;
        place_names(&self.names, &mut spec, job.names);
        Ok(Open {
            job: *job,
            rig: Rig::open(spec, &self.links, Arc::clone(&self.interrupted))?,
            looped: None,
        })
    }

    /// Returns the result of work with the open rig, or an error if a host was lost meanwhile: that can look like a
    /// fault of the server.
    fn judged<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let done = work(self);
        match self.links.lost() {
            Some(_) if matches!(done, Err(BenchError::Interrupted)) => done,
            Some(lost) => {
                self.open = None;
                Err(BenchError::Bench(lost.to_string()))
            }
            None => done,
        }
    }

    /// Tests a server that this plan starts in a lab.
    fn conformance(
        &mut self,
        point: &Point,
        begins: &mut dyn FnMut(),
    ) -> Result<Option<Conformance>, RigError> {
        let spec = spec(self.plan, point, self.lab);
        let (Some(lab), Some(highest)) = (spec.subject.lab(), self.plan.conformance) else {
            return Ok(None);
        };
        let Some(dut) = lab.dut.as_ref().filter(|_| lab.at.is_none()) else {
            return Ok(None);
        };
        begins();
        // Only one lab can exist at a time.
        self.open = None;
        let given = spec.load.pref64.as_ref().and_then(Prefixes::first);
        let server = LabServer {
            profile: Profile::load(&dut.profile)?,
            program: dut.program.clone(),
            chosen: dut.settings.clone(),
            cpus: dut.cpus.clone(),
            setup: lab.setup,
            pref64: given.map_or(PREF64, |it| (it.addr(), it.prefix_len())),
            suffix: spec.load.suffix(),
        };
        let mut cases = built_in().map_err(|why| Blame::Request.error(why))?;
        cases.retain(|case| case.level <= highest);
        let (_, ran) = server.with_suite(&self.interrupted, |suite, dut| {
            suite.run(&cases, 0, &self.interrupted, dut)
        })?;
        Ok(Some(Conformance::of(&ran)))
    }

    fn up(&mut self) -> Result<&mut Open, BenchError> {
        let missing = || BenchError::Bench("a trial before its rig; this is a bug".to_owned());
        self.open.as_mut().ok_or_else(missing)
    }
}

impl Bench for RigBench<'_> {
    fn prepare(&mut self, job: &Assignment) -> Result<Option<CertificateConditions>, BenchError> {
        self.judged(|bench| {
            let same = |open: &Open| {
                let task = job.task;
                Assignment { task, ..open.job } == *job
                    && bench.plan.search.restart != Restart::Search
            };
            if !bench.open.as_ref().is_some_and(same) {
                // Close the open lab first: only one can exist at a time.
                bench.open = None;
                bench.open = Some(bench.open(job)?);
            }
            let environment = bench.environment;
            let open = bench.up()?;
            open.job = *job;
            Ok((!open.is_authority()).then(|| conditions(environment, open)))
        })
    }

    fn conform(
        &mut self,
        point: &Point,
        begins: &mut dyn FnMut(),
    ) -> Result<Option<Conformance>, BenchError> {
        let done = self.conformance(point, begins);
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(BenchError::Interrupted),
            false => Ok(done?),
        }
    }

    fn self_test(
        &mut self,
        max_qps: Option<u64>,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, BenchError> {
        self.judged(|bench| {
            let open = bench.up()?;
            // The threads of a running Tester would share their cores with those of the self-test.
            if open.rig.server().is_some() {
                let job = open.job;
                bench.open = None;
                bench.open = Some(bench.open(&job)?);
            }
            let aim = Aim::Highest(Highest::coarse(max_qps));
            let done = bench.up()?.rig.self_test(aim, near_qps, observer)?;
            match done.as_ref().is_some_and(|it| it.end.is_interrupted()) {
                true => Err(BenchError::Interrupted),
                false => Ok(done),
            }
        })
    }

    fn start(&mut self, certified_rate_qps: Option<u64>) -> Result<VariantFacts, BenchError> {
        self.judged(|bench| {
            let open = bench.up()?;
            open.rig.certify_to(certified_rate_qps);
            if !open.is_authority() {
                open.rig.start()?;
            } else if open.looped.is_none() {
                open.looped = open.rig.looped_back(true)?;
            }
            Ok(facts(open))
        })
    }

    fn take_start(&mut self) -> Option<Start> {
        self.open.as_mut()?.looped.as_mut()?.take_start()
    }

    fn trial(
        &mut self,
        rate_qps: u64,
        duration_ns: Nanos,
        number: u64,
    ) -> Result<TrialResult, BenchError> {
        self.judged(|bench| {
            let open = bench.up()?;
            open.rig.set_duration(duration_ns);
            let spec = open.rig.spec();
            let (server, range) = (spec.subject.server(), spec.load.cidr);
            let queries = spec.load.schedule(rate_qps).queries();
            let result = match &mut open.looped {
                Some(looped) => looped.trial(rate_qps),
                None => open.rig.trial(rate_qps),
            };
            let names = result.as_ref().ok().and_then(|result| result.names);
            match (server, names) {
                (Some(server), Some(names)) => bench.names.learn(server, &names),
                (Some(server), None) => bench.names.cut_off(server, range, queries),
                (None, _) => {}
            }
            // After an error the servers are of no use to the next trial.
            let result = result.inspect_err(|_| bench.open = None)?;
            if result.interrupted {
                bench.open = None;
            }
            let Some(open) = &bench.open else {
                return Err(BenchError::Interrupted);
            };
            if let Some(rows) = open.rig.rows() {
                (bench.keep)(&open.job, number, rows).map_err(RigError::from)?;
            }
            Ok(result)
        })
    }

    fn rest(&mut self, span_ns: Nanos) {
        process::wait_until(span_ns, || self.interrupted.load(Ordering::Relaxed));
    }
}

/// Conditions that a certificate of the Tester on this rig depends on.
fn conditions(environment: &Environment, open: &Open) -> CertificateConditions {
    let described = open.rig.conditions(&[]);
    let tester = |(of, _): &(HostOf, String)| *of != Role::Dut.into();
    let point = open.job.point;
    CertificateConditions {
        boot_id: environment.boot_id.clone(),
        kernel: environment.kernel.clone(),
        lab: [described.lab, described.setup]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", "),
        authority: open
            .rig
            .self_test_server()
            .map_or_else(String::new, |server| {
                format!("{} at {server}", described.authority.unwrap_or_default())
            }),
        threads: described.threads,
        transport: described.transport,
        sockets: described.sockets,
        local: described.local,
        source_addresses: described.source_addresses,
        cpus: described.cpus.into_iter().filter(tester).collect(),
        names: described.namespace,
        cell: point.cell.to_string(),
        duration_ns: point.duration_ns,
        timeout_ns: point.timeout_ns,
        tester: crate::PROGRAM.to_owned(),
        tester_sha256: program::sha256(),
        covers: open.rig.self_test_path().unwrap_or_default(),
        upstream_family: described.upstream_family.unwrap_or_default(),
        authority_sha256: open
            .rig
            .authority_program()
            .and_then(|path| sha256_of(&path).ok()),
        segmentation: Some(false),
        backend: (open.rig.backend() != Backend::Socket).then_some(described.backend),
        quantum_ns: Some(QUANTUM_NS),
        burst_max: Some(described.burst_max),
        host: match open.rig.reached() {
            None => environment::speed(&Machine::here()),
            Some(reached) => reached.identities(),
        },
        links: links(&open.rig),
    }
}

/// Interfaces on the path of the datagrams, each with its driver, MTU and offloads.
fn links(rig: &Rig) -> BTreeMap<String, String> {
    let told = |host: &Network, interface: &Interface| {
        let name = match host {
            Network::Own => interface.name.clone(),
            Network::Netns(namespace) => format!("{} of {namespace}", interface.name),
        };
        (name, interface.to_string())
    };
    let toward = |address: SocketAddr| {
        let interface =
            interface::toward(address).and_then(|name| interface::named(&Network::Own, &name));
        interface.iter().map(|it| told(&Network::Own, it)).collect()
    };
    if let Some(reached) = rig.reached() {
        return reached.links();
    }
    match &rig.spec().subject {
        Subject::Lab(lab) if lab.setup != Setup::Loopback => {
            let hosts = Role::ALL.map(|role| lab.setup.network(role));
            let all = hosts.iter().flat_map(|host| {
                let interfaces = interface::list(host).into_iter();
                interfaces.map(move |interface| told(host, &interface))
            });
            all.collect()
        }
        Subject::Lab(lab) => toward((lab.setup.dut().0, 0).into()),
        Subject::Server { server, .. } => toward(*server),
    }
}

/// Facts about the running servers.
fn facts(open: &Open) -> VariantFacts {
    let described = open.rig.conditions(&[]);
    let mut started = open.server().map(program_facts).unwrap_or_default();
    // A file configures delays of the authority as well.
    let delays = open.rig.delay_file().into_iter();
    let delays =
        delays.filter_map(|path| Some((path.display().to_string(), sha256_of(path).ok()?)));
    started.files_sha256.extend(delays);
    started.version = described.dut.or(started.version);
    VariantFacts {
        program: started,
        server: match open.rig.self_test_server() {
            Some(server) if open.is_authority() => server.to_string(),
            _ => described.server,
        },
        pref64: described.pref64.unwrap_or_default(),
        cpus: described.cpus,
        authority: open.rig.authority().map(program_facts).map(Box::new),
        hosts: open.rig.reached().map_or_else(Vec::new, hosts),
        not_a_measurement: described.not_a_measurement,
        notes: described.notes,
    }
}

fn hosts(reached: &RigHosts) -> Vec<HostNote> {
    let note = |(host, roles, welcome): (String, _, Welcome)| HostNote {
        host,
        roles,
        hostname: welcome.host.hostname,
        kernel: welcome.host.kernel,
        cpus: welcome.host.cpus,
        tester: welcome.tester,
        sha256: welcome.sha256,
    };
    reached.welcomes().into_iter().map(note).collect()
}

fn program_facts(server: &Servers) -> ProgramFacts {
    let run_by = server.program();
    let hash = |(name, text): (String, String)| (name, sha256_hex(text.as_bytes()));
    ProgramFacts {
        version: run_by.version,
        command: run_by.command,
        environment: run_by.environment,
        profile_sha256: Some(sha256_hex(server.profile_text().as_bytes())),
        files_sha256: run_by.files.into_iter().map(hash).collect(),
        program_sha256: run_by.sha256,
    }
}

/// A server that does not start or respond is a fault of its variant; what the machine lacks affects all variants.
impl From<RigError> for BenchError {
    fn from(error: RigError) -> Self {
        let text = Naming::Keys.with_causes(&error);
        match error.blame() {
            None => Self::Interrupted,
            Some(Blame::Machine) => Self::Bench(text),
            Some(Blame::Request | Blame::Server | Blame::Record) => Self::Variant(text),
        }
    }
}

/// Specification of the rig that measures a point.
pub fn spec(plan: &Plan, point: &Point, lab: LabKind) -> RigSpec {
    RigSpec {
        subject: plan.variants[point.variant].subject.clone().on(lab),
        load: Load {
            pacing: plan.variants[point.variant].pacing,
            duration_ns: point.duration_ns,
            timeout_ns: point.timeout_ns,
            cidr: point.cidr,
            zone: Zone {
                aaaa_share: point.cell.aaaa_share,
                ..plan.load.zone.clone()
            },
            cached_share: point.cell.cached_share,
            pattern: point.cell.pattern,
            ..plan.load.clone()
        },
    }
}

/// Places the names of a rig where its server has not been queried, in a range with room for `needed` names if that
/// number is known.
fn place_names(used: &UsedNames, spec: &mut RigSpec, needed: Option<u64>) {
    let (server, load) = (spec.subject.server(), &mut spec.load);
    if let Some(names) = needed {
        // Additional room for names that a rig uses outside counted trials.
        let room = names.saturating_add(names / 8).saturating_add(1 << 10);
        load.cidr = used.room(server, load.cidr, room);
    }
    load.begin = used.begin(server, load.cidr);
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::naming::{Message, NAMESPACE};

    #[test]
    fn error_of_a_rig_names_keys_and_has_its_cause() {
        let what =
            Message::new(|naming| format!("cannot use {}", naming.value(NAMESPACE, "10.0.0.0/8")));
        let error = Blame::Machine.because(what)(io::Error::other("no space"));
        assert_eq!(
            BenchError::from(RigError::from(error)).to_string(),
            "cannot use namespace = \"10.0.0.0/8\": no space"
        );
    }
}
