//! A campaign as the real driver writes it, on simulated servers and a simulated Tester.

use std::path::Path;
use std::sync::OnceLock;

use dns64_transport::clock::{ManualClock, Nanos, SECOND};

use crate::authority::counts::AuthorityCounts;
use crate::campaign::journal::tests::conditions;
use crate::campaign::journal::{self, Beginning, Journal};
use crate::campaign::plan::Plan;
use crate::campaign::plan::tasks::Task;
use crate::campaign::record::{
    CertificateConditions, Environment, Line, ProgramFacts, Record, Start, VariantFacts,
};
use crate::campaign::run::{Assignment, Bench, BenchError, Campaign, Parts};
use crate::lab::hosts::Site;
use crate::load::names::{NameRange, Names, RESERVED};
use crate::load::pace::Schedule;
use crate::machine::Role;
use crate::machine::process::Resources;
use crate::namespace::{Cidr, Share};
use crate::procedure::selftest::SelfTestResult;
use crate::procedure::simulated::result;
use crate::procedure::{Event, Trials};
use crate::rig::certify::{Highest, Lengths, highest};
use crate::rig::spec::Subject;
use crate::trial::achieved::Achieved;
use crate::trial::fault::RateError;
use crate::trial::judge::judge;
use crate::trial::path::{AnsweredNames, AuthorityTimes, LostNames, Path as Ways, QuestionCounts};
use crate::trial::place::{
    Evidence, LossEvidence, LossFacts, LossKind, Losses, Place, Source, place,
};
use crate::trial::result::{
    Answers, AuthorityShare, CatchUp, HostClock, Outcome, Rtt, Timing, TrialResult,
};

/// Two DUTs, two cells, three runs; self-tests with short trials and a long one.
pub(super) const PLAN: &str = r#"
name = "Honest <of> course"
[trial]
duration = "10s"
timeout = "1s"
[search]
runs = 3
start-rate = "1k"
resolution = "1%"
[cells]
aaaa-share = ["0%", "100%"]
[[dut]]
profile = "unbound"
[[dut]]
profile = "bind"
[overload]
factors = [0.5, 2]
[soak]
share = "50%"
length = "30s"
"#;

/// Highest rate that passes a self-test; the DUTs are far below half of it.
const TESTER_QPS: u64 = 200_000;

/// The plan and its complete journal.
pub(crate) fn honest() -> (Plan, Vec<Line>) {
    static LINES: OnceLock<Vec<Line>> = OnceLock::new();
    let lines = LINES.get_or_init(|| written(PLAN, [Servers::new("-d", "aa")]));
    (plan(), lines.clone())
}

pub(crate) fn plan() -> Plan {
    Plan::parse("honest.toml", PLAN).unwrap()
}

/// Lines that consecutive processes write for a campaign by this plan.
pub(super) fn written<const N: usize>(plan: &str, processes: [Servers; N]) -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    begin_with(dir.path(), plan);
    for servers in processes {
        let expected = match servers.interrupted_in {
            Some(_) => Err(BenchError::Interrupted),
            None => Ok(()),
        };
        assert_eq!(resume(dir.path(), servers), expected);
    }
    journal::read(dir.path()).unwrap().lines
}

/// A campaign without any finished task.
pub(super) fn begin(dir: &Path) {
    begin_with(dir, PLAN);
}

fn begin_with(dir: &Path, plan: &str) {
    let beginning = Beginning {
        tester: crate::PROGRAM.to_owned(),
        plan: plan.to_owned(),
        plan_origin: "honest.toml".to_owned(),
        command: vec!["dns64bench".to_owned(), "run".to_owned()],
        lab: None,
    };
    Journal::create(dir, beginning).unwrap();
}

/// Runs a process that finishes the campaign.
pub(super) fn resume(dir: &Path, servers: Servers) -> Result<(), BenchError> {
    let (mut journal, mut lines, torn_bytes) = Journal::resume(dir).unwrap();
    let session = Record::Session {
        environment: Box::new(Environment {
            boot_id: servers.boot.to_owned(),
            kernel: "Linux 6.1".to_owned(),
            ..Environment::default()
        }),
        torn_bytes,
        tester: crate::PROGRAM.to_owned(),
        tester_sha256: Some("cc".to_owned()),
    };
    lines.push(journal.append(session).unwrap());
    let plan = servers.plan.clone();
    let parts = Parts {
        lines,
        journal,
        clock: servers.clock.clone(),
        bench: servers,
    };
    Campaign::new(&plan, parts, String::new(), &mut |_| {}).work()
}

/// All servers of a plan and their Tester.
pub(super) struct Servers {
    pub(super) plan: Plan,
    /// Boot ID of the machine.
    pub(super) boot: &'static str,
    /// Highest rate that passes the self-test with this number, from 1.
    pub(super) tester_qps: fn(u32) -> u64,
    /// Interrupted in this trial of this task.
    pub(super) interrupted_in: Option<(Task, u64)>,
    pub(super) argument: &'static str,
    pub(super) profile: &'static str,
    pub(super) clock: ManualClock,
    pub(super) assignment: Option<Assignment>,
    pub(super) certified_qps: Option<u64>,
    pub(super) self_tests: u32,
    /// Number of the next name.
    pub(super) next: u64,
}

impl Servers {
    /// Started with this argument, by a profile with this hash.
    pub(super) fn new(argument: &'static str, profile: &'static str) -> Self {
        Self {
            plan: plan(),
            boot: "b",
            tester_qps: |_| TESTER_QPS,
            interrupted_in: None,
            argument,
            profile,
            clock: ManualClock::default(),
            assignment: None,
            certified_qps: None,
            self_tests: 0,
            next: 0,
        }
    }

    /// The servers of another plan.
    pub(super) fn of(plan: &str) -> Self {
        Self {
            plan: Plan::parse("honest.toml", plan).unwrap(),
            ..Self::new("-d", "aa")
        }
    }

    /// Whether the authority is the built-in one.
    fn has_authority(&self) -> bool {
        let lab = self.subject().lab();
        lab.is_some_and(|lab| !lab.authority.is_program())
    }

    /// Whether the authority responds in the driver, where processing times are unknown.
    fn is_in_driver(&self) -> bool {
        let lab = self.subject().lab();
        lab.is_some_and(|lab| lab.authority.driver_mode().is_some())
    }

    fn subject(&self) -> &Subject {
        let point = self.assignment.unwrap().point;
        &self.plan.variants[point.variant].subject
    }
}

impl Bench for Servers {
    fn prepare(&mut self, job: &Assignment) -> Result<Option<CertificateConditions>, BenchError> {
        self.assignment = Some(*job);
        let like = conditions(job.point.duration_ns);
        let in_lab = self.subject().lab().is_some();
        let authority = match self.subject() {
            Subject::Server {
                self_test_server, ..
            } => format!("{self_test_server:?}"),
            Subject::Lab(_) => like.authority,
        };
        let conditions = CertificateConditions {
            authority,
            boot_id: self.boot.to_owned(),
            lab: if in_lab { like.lab } else { String::new() },
            cell: job.point.cell.to_string(),
            timeout_ns: job.point.timeout_ns,
            tester: crate::PROGRAM.to_owned(),
            tester_sha256: Some("cc".to_owned()),
            ..like
        };
        Ok((!self.subject().is_authority()).then_some(conditions))
    }

    fn self_test(
        &mut self,
        max_qps: Option<u64>,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, BenchError> {
        let point = self.assignment.unwrap().point;
        if let Subject::Server {
            self_test_server: None,
            ..
        } = self.subject()
        {
            return Ok(None);
        }
        self.self_tests += 1;
        let mut tester = Looped {
            tester_qps: (self.tester_qps)(self.self_tests),
            duration_ns: 0,
            timeout_ns: point.timeout_ns / 4,
            has_authority: self.has_authority(),
            is_in_driver: self.is_in_driver(),
            names: (self.plan.load.cidr, point.cell.cached_share),
            site: self.subject().site(None),
        };
        let (wanted, whole_ns) = (Highest::coarse(max_qps), point.duration_ns);
        let Ok(found) = highest(wanted, near_qps, whole_ns, &mut tester, observer);
        Ok(Some(found))
    }

    fn start(&mut self, certified_qps: Option<u64>) -> Result<VariantFacts, BenchError> {
        self.certified_qps = certified_qps;
        let cpus = [(Role::Measurer, "0"), (Role::Dut, "1")];
        Ok(VariantFacts {
            cpus: cpus
                .map(|(role, list)| (role.into(), list.to_owned()))
                .to_vec(),
            program: ProgramFacts {
                command: vec!["server".to_owned(), self.argument.to_owned()],
                program_sha256: Some("bb".to_owned()),
                profile_sha256: Some(self.profile.to_owned()),
                ..ProgramFacts::default()
            },
            ..VariantFacts::default()
        })
    }

    fn take_start(&mut self) -> Option<Start> {
        let is_program = self.subject().is_authority() && !self.has_authority();
        is_program.then_some(Start {
            took_ns: SECOND,
            memory: None,
            zone_written: Some(false),
        })
    }

    fn trial(
        &mut self,
        rate_qps: u64,
        duration_ns: Nanos,
        number: u64,
    ) -> Result<TrialResult, BenchError> {
        self.clock.advance(12 * SECOND);
        let Assignment { task, point, .. } = self.assignment.unwrap();
        if self.interrupted_in == Some((task, number)) {
            return Err(BenchError::Interrupted);
        }
        let own = if point.cell.aaaa_share == Share::NONE {
            1
        } else {
            2
        };
        let limit_qps = [5_000, 2_000, 3_000, 4_000][point.variant] * own;
        let is_authority = self.subject().is_authority();
        let timeout_ns = match is_authority {
            true => point.timeout_ns / 4,
            false => point.timeout_ns,
        };
        let spans = (duration_ns, timeout_ns);
        let mut told = counted(rate_qps, spans, rate_qps.saturating_sub(limit_qps));
        tell(
            &mut told,
            (self.plan.cidr(point.variant), point.cell.cached_share),
            &mut self.next,
        );
        tell_hosts(&mut told, self.subject().site(None).as_ref());
        if !is_authority {
            told.certified = Some(self.certified_qps.is_some_and(|to| rate_qps <= to));
            if self.subject().lab().is_some() {
                told.resources = Some(Resources::default());
            }
            if self.has_authority() {
                tell_authority(&mut told);
                tell_shares(&mut told, self.subject().site(None).as_ref());
                told.path = told.path.filter(|_| !self.is_in_driver());
            } else if self.subject().lab().is_some() {
                told.authority_sampled = Some(AuthorityTimes::default());
            }
        }
        match (task, number) {
            (Task::Search { point: 0, run: 2 }, 2) => {
                let datagrams = told.answers.missing.max(1);
                told.tester_drops = datagrams;
                located(&mut told, vec![dropped(datagrams)]);
            }
            (Task::Search { point: 1, run: 1 }, 3) => {
                told.error = Some("No buffer space available".to_owned());
            }
            (Task::Search { point: 3, run: 3 }, 2) => told.dut_exit = Some("signal 11".to_owned()),
            _ => {}
        }
        told.outcome = judge(&told);
        Ok(told)
    }

    fn rest(&mut self, span_ns: Nanos) {
        self.clock.advance(span_ns);
    }
}

/// A Tester in a self-test, which is late above its limit.
struct Looped {
    tester_qps: u64,
    duration_ns: Nanos,
    timeout_ns: Nanos,
    /// The authority is the built-in one.
    has_authority: bool,
    /// The authority responds in the driver.
    is_in_driver: bool,
    names: (Cidr, Share),
    site: Option<Site>,
}

impl Trials for Looped {
    type Error = std::convert::Infallible;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Self::Error> {
        let mut told = counted(rate_qps, (self.duration_ns, self.timeout_ns), 0);
        tell(&mut told, self.names, &mut 0);
        tell_hosts(&mut told, self.site.as_ref());
        if self.has_authority {
            let asked = told.queries_sent;
            told.authority = Some(AuthorityCounts {
                aaaa: asked,
                answered: asked,
                ..AuthorityCounts::default()
            });
            let path = Ways {
                fresh_names: fresh(&told),
                ..Ways::default()
            };
            told.path = Some(path).filter(|_| !self.is_in_driver);
            tell_shares(&mut told, self.site.as_ref());
        }
        if rate_qps > self.tester_qps {
            told.timing.lateness_ns_max = 20_000_000;
        }
        told.outcome = judge(&told);
        Ok(told)
    }
}

impl Lengths for Looped {
    fn set_length(&mut self, duration_ns: Nanos) {
        self.duration_ns = duration_ns;
    }
}

/// A trial of this duration and timeout in which `missing_qps` queries per second have no response.
fn counted(
    rate_qps: u64,
    (duration_ns, timeout_ns): (Nanos, Nanos),
    missing_qps: u64,
) -> TrialResult {
    let due = Schedule::new(rate_qps, duration_ns).queries();
    let missing = Schedule::new(missing_qps, duration_ns).queries();
    let outcome = match missing {
        0 => Outcome::Passed,
        shortfall => Outcome::Failed { shortfall },
    };
    let at = [200_000, 400_000, 800_000, 1_600_000];
    let [p50, p99, p999, max] = at.map(|ns| (missing < due).then_some(ns));
    TrialResult {
        outcome,
        duration_ns,
        timeout_ns,
        queries_due: due,
        queries_sent: due,
        answers: Answers {
            valid: due - missing,
            missing,
            ..Answers::default()
        },
        types: Vec::new(),
        rtt: Rtt {
            p50,
            p99,
            p999,
            max,
            mean: None,
        },
        server_is_here: false,
        interrupted: false,
        source_ports: 16,
        policy: None,
        first_wrong: None,
        rtt_percentiles: p50.map_or(Vec::new(), |p50| vec![(50.0, p50), (100.0, at[3])]),
        timing: Timing {
            lateness_ns_p50: 300,
            lateness_ns_p99: 2_000,
            lateness_ns_p999: 9_000,
            lateness_ns_max: 40_000,
            ..Timing::default()
        },
        ..result(rate_qps, Outcome::Passed)
    }
}

/// Sets the figures that every trial has.
fn tell(told: &mut TrialResult, (namespace, cached): (Cidr, Share), next: &mut u64) {
    let fresh = Names::fresh(cached, told.queries_due);
    if *next + fresh > namespace.names() - RESERVED {
        *next = 0;
    }
    told.names = Some(NameRange {
        namespace,
        begin: 0,
        first: *next,
        fresh,
    });
    *next += fresh;
    told.timing = Timing {
        catch_up: CatchUp {
            lost_beyond_bursts: 0,
            ..CatchUp::default()
        },
        rate_error: Some(RateError {
            sent: 100,
            due: 100,
            allowed: 1,
        }),
        ..told.timing.clone()
    };
    located(told, Vec::new());
    told.machine.span_ns = told.duration_ns + told.timeout_ns;
}

/// Sets the losses that follow from this evidence of losses outside the DUT.
pub(super) fn located(told: &mut TrialResult, found: Vec<Evidence>) {
    told.losses.evidence = LossEvidence {
        is_watched: true,
        found,
        ..LossEvidence::default()
    };
    told.losses = Losses {
        evidence: told.losses.evidence.clone(),
        ..place(LossFacts::of(told)).losses
    };
}

/// Datagrams that the Measurer's sockets lost.
pub(super) fn dropped(count: u64) -> Evidence {
    Evidence {
        place: Place::Measurer,
        kind: LossKind::Sockets,
        source: Source {
            host: Role::Measurer.into(),
            link: None,
            counter: "drops of its sockets".to_owned(),
            count,
        },
        low: count,
        high: Some(count),
    }
}

/// Sets the clocks of a trial on several hosts.
fn tell_hosts(told: &mut TrialResult, site: Option<&Site>) {
    let hosts = site.map(Site::hosts).into_iter().flatten();
    told.clocks = hosts
        .map(|host| HostClock {
            host: host.to_owned(),
            // This machine booted years before the controller.
            offset_ns: 1 << 60,
            bound_ns: 40_000,
            drift_ppm: -3.5,
            exchanges: 32,
            late_ns: 0,
        })
        .collect();
}

/// Sets the shares of several authorities: each but the first received one query.
fn tell_shares(told: &mut TrialResult, site: Option<&Site>) {
    let authorities = site.map_or(&[][..], |site| &site.authorities);
    let others = authorities.len().saturating_sub(1) as u64;
    let asked = told.authority.map_or(0, |counts| counts.queries());
    let shares = authorities.iter().enumerate().filter(|_| others > 0);
    told.authorities = shares
        .map(|(k, it)| AuthorityShare {
            host: it.host.clone(),
            questions: if k == 0 { asked - others } else { 1 },
            drops: 0,
        })
        .collect();
}

fn fresh(told: &TrialResult) -> u64 {
    told.names.map_or(0, |names| names.fresh)
}

/// Sets the figures of the built-in authority behind a DUT.
fn tell_authority(told: &mut TrialResult) {
    let asked = told.queries_sent;
    let counts = AuthorityCounts {
        aaaa: asked,
        a: asked,
        answered: asked,
        nodata: asked,
        ..AuthorityCounts::default()
    };
    told.authority = Some(counts);
    told.achieved = Achieved::by_counts((asked, asked), &counts, told.answers.missing == 0);
    let fresh = fresh(told);
    let missing = told.answers.missing.min(fresh);
    let valid = fresh - missing;
    told.path = Some(Ways {
        fresh_names: fresh,
        questions: QuestionCounts {
            aaaa: asked,
            a: asked,
            ..QuestionCounts::default()
        },
        answered: AnsweredNames {
            names: valid,
            aaaa_then_a: valid,
            ..AnsweredNames::default()
        },
        lost: LostNames {
            names: missing,
            served: missing,
            ..LostNames::default()
        },
        dut_only_percentiles_ns: told.rtt_percentiles.clone(),
        ..Ways::default()
    });
}
