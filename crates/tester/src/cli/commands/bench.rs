//! The bench of a campaign: rigs, one after the other, as its points need them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::Nanos;

use super::measure::COARSE;
use super::{Failure, setup};
use crate::campaign::journal::sha256_hex;
use crate::campaign::plan::{self, Plan, RawFormat, Restart, Variant};
use crate::campaign::record::{CertificateConditions, Environment, VariantFacts};
use crate::campaign::run::{Assignment, Bench, BenchError, Measured};
use crate::campaign::tasks::{Point, Task};
use crate::cli::args::{LabKind, OutputArgs};
use crate::cli::resolve::{BUILT_IN, DutPlan, LabPlan, Load, Measure, Subject};
use crate::lab::dut::Dut;
use crate::lab::process;
use crate::load::pace::Pacing;
use crate::namespace::Cidr;
use crate::procedure::selftest::SelfTestResult;
use crate::procedure::{Event, Trials as _};
use crate::report::Conditions;
use crate::report::raw::{self, Header};
use crate::rig::certify::{Loopback, Question};
use crate::rig::{Rig, RigError};

/// Rigs for the points of a plan.
pub(super) struct RigBench<'a> {
    plan: &'a Plan,
    environment: &'a Environment,
    /// Where raw data go.
    directory: &'a Path,
    interrupted: Arc<AtomicBool>,
    open: Option<Open>,
}

/// What is up.
struct Open {
    job: Assignment,
    rig: Rig,
    subject: Up,
}

/// What is measured on a rig.
enum Up {
    /// A DNS64 server, started or not yet.
    Dut,
    /// An authority by itself.
    Authority(Option<Box<Loopback>>),
}

impl Open {
    /// The program that is measured, where it is ours to look at.
    fn server(&self) -> Option<&Dut> {
        match &self.subject {
            Up::Dut => self.rig.dut(),
            Up::Authority(looped) => looped.as_ref()?.authority(),
        }
    }
}

impl<'a> RigBench<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        environment: &'a Environment,
        directory: &'a Path,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Self {
            plan,
            environment,
            directory,
            interrupted,
            open: None,
        }
    }

    fn open(&self, job: &Assignment) -> Result<Open, BenchError> {
        let measure = measure(self.plan, &job.point, job.names);
        let spec = setup::spec(&measure, job.stop_early).map_err(of_variant)?;
        let rig = Rig::open(spec, Arc::clone(&self.interrupted)).map_err(bench_error)?;
        let variant = &self.plan.variants[job.point.variant];
        let subject = match variant.subject {
            plan::Subject::Authority { .. } => Up::Authority(None),
            plan::Subject::Profile { .. } | plan::Subject::Server { .. } => Up::Dut,
        };
        Ok(Open {
            job: *job,
            rig,
            subject,
        })
    }

    /// Writes the queries of the last trial beside the journal, if the plan wants them: after the
    /// trial, never during it.
    fn keep_raw(&self, number: u64) -> Result<(), BenchError> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let (Some(format), Some(rows)) = (self.plan.tester.raw, open.rig.rows()) else {
            return Ok(());
        };
        let ending = match format {
            RawFormat::Csv => "csv",
            RawFormat::Parquet => "parquet",
        };
        let task = match open.job.task {
            Task::Search { point, run } => format!("point-{point}-run-{run}"),
            Task::Overload { point } => format!("point-{point}-overload"),
            Task::Soak { point } => format!("point-{point}-soak"),
        };
        let folder = self.directory.join("raw");
        let path = folder.join(format!("{task}-trial-{number}.{ending}"));
        let header = Header::of(&rows);
        std::fs::create_dir_all(&folder)
            .map_err(|reason| format!("cannot make directory {}: {reason}", folder.display()))
            .and_then(|()| {
                raw::write(&path, rows, &header)
                    .map(|_rows| ())
                    .map_err(|error| error.to_string())
            })
            .map_err(BenchError::Bench)
    }

    fn up(&mut self) -> Result<&mut Open, BenchError> {
        let missing = || BenchError::Bench("a trial before its rig; this is a bug".to_owned());
        self.open.as_mut().ok_or_else(missing)
    }
}

impl Bench for RigBench<'_> {
    fn prepare(&mut self, job: &Assignment) -> Result<Option<CertificateConditions>, BenchError> {
        let same = |open: &Open| {
            Assignment {
                task: job.task,
                ..open.job
            } == *job
                && self.plan.search.restart != Restart::Search
        };
        if !self.open.as_ref().is_some_and(same) {
            // The lab that is up goes first: there can be one only.
            self.open = None;
            self.open = Some(self.open(job)?);
        }
        let environment = self.environment;
        let open = self.up()?;
        open.job = *job;
        Ok(match open.subject {
            Up::Dut => Some(conditions(environment, open)),
            Up::Authority(_) => None,
        })
    }

    fn self_test(
        &mut self,
        max_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, BenchError> {
        let question = Question::Highest {
            resolution: COARSE,
            max_qps,
        };
        let open = self.up()?;
        // The threads of a Tester that runs would share their cores with those of the self-test.
        if open.rig.server().is_some() {
            let job = open.job;
            self.open = None;
            self.open = Some(self.open(&job)?);
        }
        let rig = &self.up()?.rig;
        rig.self_test(question, observer).map_err(bench_error)
    }

    fn start(&mut self) -> Result<VariantFacts, BenchError> {
        let open = self.up()?;
        match &mut open.subject {
            Up::Dut => open.rig.start().map_err(bench_error)?,
            Up::Authority(looped @ None) => {
                *looped = open.rig.looped_back().map_err(bench_error)?.map(Box::new);
            }
            Up::Authority(Some(_)) => {}
        }
        Ok(facts(open))
    }

    fn trial(&mut self, rate_qps: u64, number: u64) -> Result<Measured, BenchError> {
        let open = self.up()?;
        let result = match &mut open.subject {
            Up::Dut => open.rig.trial(rate_qps),
            Up::Authority(Some(looped)) => looped.trial(rate_qps),
            Up::Authority(None) => return Err(BenchError::Variant("nobody to ask".to_owned())),
        };
        match result {
            Ok(result) => {
                let resources = open.server().map(Dut::resources);
                self.keep_raw(number)?;
                Ok(Measured { result, resources })
            }
            Err(error) => {
                // Whatever is left of the servers is of no use to the next trial.
                self.open = None;
                Err(bench_error(error))
            }
        }
    }

    fn rest(&mut self, span_ns: Nanos) {
        process::wait_until(span_ns, || self.interrupted.load(Ordering::Relaxed));
    }
}

/// What a certificate of the Tester is tied to on this rig.
fn conditions(environment: &Environment, open: &Open) -> CertificateConditions {
    let described = setup::conditions(&open.rig, &[]);
    let tester = |(role, _): &(String, String)| role != "DUT";
    let Point {
        cell,
        duration_ns,
        timeout_ns,
        ..
    } = open.job.point;
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
        sockets: described.sockets,
        cpus: described.cpus.into_iter().filter(tester).collect(),
        names: described.namespace,
        cell: cell.to_string(),
        duration_ns,
        timeout_ns,
    }
}

/// What can be told of the servers that run.
fn facts(open: &Open) -> VariantFacts {
    let described = setup::conditions(&open.rig, &[]);
    let Conditions {
        dut,
        server,
        pref64,
        cpus,
        not_a_measurement,
        notes,
        ..
    } = described;
    let authority = matches!(open.subject, Up::Authority(_));
    let started = open.server();
    let files = started.and_then(|dut| dut.files().ok()).unwrap_or_default();
    let program = started.and_then(|dut| std::fs::read(dut.program()).ok());
    VariantFacts {
        version: dut.or_else(|| started.and_then(|server| server.version().ok())),
        server: match open.rig.self_test_server() {
            Some(server) if authority => server.to_string(),
            _ => server,
        },
        pref64: pref64.unwrap_or_default(),
        cpus,
        files_sha256: files
            .into_iter()
            .map(|(name, text)| (name, sha256_hex(text.as_bytes())))
            .collect(),
        program_sha256: program.map(|octets| sha256_hex(&octets)),
        not_a_measurement,
        notes,
    }
}

/// A rig that cannot be described is this variant's fault: the others are described otherwise.
fn of_variant(failure: Failure) -> BenchError {
    BenchError::Variant(format!("{:#}", failure.error))
}

/// A server that does not start, or does not answer, is its own fault; a lab that does not come up
/// is everybody's.
fn bench_error(error: RigError) -> BenchError {
    match error {
        RigError::Interrupted => BenchError::Interrupted,
        RigError::Lab(_) | RigError::Host(_) => BenchError::Bench(error.to_string()),
        RigError::Server(_)
        | RigError::Probe(_)
        | RigError::NoSelfTest { .. }
        | RigError::Trial(_)
        | RigError::Names(_)
        | RigError::Pattern(_) => BenchError::Variant(error.to_string()),
    }
}

/// The measurement of a point, as a command line would mean it. With `names` the range is widened
/// until it holds as many, if it can be.
pub(super) fn measure(plan: &Plan, point: &Point, names: Option<u64>) -> Measure {
    let tester = &plan.tester;
    let variant = &plan.variants[point.variant];
    Measure {
        subject: subject(plan, variant),
        load: Load {
            pacing: Pacing::Absolute,
            duration_ns: point.duration_ns,
            timeout_ns: point.timeout_ns,
            threads: tester.threads,
            sockets: tester.sockets,
            cpus: tester.cpus.clone(),
            local: None,
            namespace: names.map_or(tester.namespace, |names| wide(tester.namespace, names)),
            suffix: tester.suffix.clone(),
            aaaa_share: point.cell.aaaa_share,
            cached_share: point.cell.cached_share,
            pattern: point.cell.pattern,
            pref64: tester.pref64,
        },
        uncertified: tester.uncertified,
        output: OutputArgs {
            json: None,
            quiet: true,
        },
        notes: Vec::new(),
    }
}

/// The range around `cidr` with room for `names` and for what is kept for probes.
fn wide(cidr: Cidr, names: u64) -> Cidr {
    let room = names.saturating_add(names / 8).saturating_add(1 << 10);
    let everything = || cidr.widened_to(1 << 32);
    cidr.widened_to(room).or_else(everything).unwrap_or(cidr)
}

fn subject(plan: &Plan, variant: &Variant) -> Subject {
    let tester = &plan.tester;
    let (dut, authority) = match &variant.subject {
        plan::Subject::Server {
            server,
            self_test_server,
        } => {
            return Subject::Server {
                server: *server,
                self_test_server: *self_test_server,
            };
        }
        plan::Subject::Authority { authority } => (None, authority),
        plan::Subject::Profile { profile, binary } => {
            let dut = DutPlan {
                profile: profile.clone(),
                binary: binary.clone(),
                settings: variant.settings.clone(),
                restart: plan.search.restart == Restart::Trial,
                cpus: variant.cpus.clone(),
            };
            (Some(dut), &tester.authority)
        }
    };
    // The cores of a variant are those of what is measured.
    let authority_cpus = match dut {
        Some(_) => tester.authority_cpus.clone(),
        None => variant.cpus.clone(),
    };
    Subject::Lab(LabPlan {
        dut,
        kind: lab_kind(tester.lab),
        setup: tester.setup,
        upstream_family: tester.upstream_family,
        authority: Some(authority.clone()).filter(|name| name != BUILT_IN),
        authority_cpus,
    })
}

fn lab_kind(kind: plan::LabKind) -> LabKind {
    match kind {
        plan::LabKind::Auto => LabKind::Auto,
        plan::LabKind::Netns => LabKind::Netns,
        plan::LabKind::Userns => LabKind::Userns,
        plan::LabKind::Loopback => LabKind::Loopback,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_gets_names_for_all_its_length() {
        let cidr: Cidr = "10.0.0.0/8".parse().unwrap();
        assert_eq!(wide(cidr, 1_000).to_string(), "10.0.0.0/8");
        assert_eq!(wide(cidr, 100_000_000).to_string(), "8.0.0.0/5");
        assert_eq!(wide(cidr, 1 << 40).to_string(), "0.0.0.0/0");
    }
}
