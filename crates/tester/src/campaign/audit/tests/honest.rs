//! A campaign as the driver really writes it, on servers and a Tester that are arithmetic.

use std::path::Path;
use std::sync::OnceLock;

use dns64_transport::clock::{ManualClock, Nanos, SECOND};

use crate::authority::counts::AuthorityCounts;
use crate::campaign::journal::tests::conditions;
use crate::campaign::journal::{self, Beginning, Journal};
use crate::campaign::plan::Plan;
use crate::campaign::record::{CertificateConditions, Environment, Line, Record, VariantFacts};
use crate::campaign::run::{Assignment, Bench, BenchError, Campaign, Parts};
use crate::campaign::tasks::Task;
use crate::load::pace::Schedule;
use crate::namespace::Share;
use crate::procedure::selftest::SelfTestResult;
use crate::procedure::simulated::result;
use crate::procedure::{Event, Trials};
use crate::rig::certify::{COARSE, Lengths, Sought, highest};
use crate::trial::achieved::Achieved;
use crate::trial::fault::TesterFault;
use crate::trial::result::{Answers, Outcome, Rtt, Timing, TrialResult};

/// Two DUTs, two cells, three runs; self-tests with short trials and a long one.
const PLAN: &str = r#"
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

/// What a self-test passes; DUTs are far below a half of it.
const TESTER_QPS: u64 = 200_000;

/// The plan, and a journal of all of it.
pub(crate) fn honest() -> (Plan, Vec<Line>) {
    static LINES: OnceLock<Vec<Line>> = OnceLock::new();
    let lines = LINES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        begin(dir.path());
        resume(dir.path(), Servers::new("-d", "aa")).unwrap();
        journal::read(dir.path()).unwrap().lines
    });
    (plan(), lines.clone())
}

pub(crate) fn plan() -> Plan {
    Plan::parse("honest.toml", PLAN).unwrap()
}

/// A campaign of which nothing is done.
pub(super) fn begin(dir: &Path) {
    let beginning = Beginning {
        tester: crate::PROGRAM.to_owned(),
        plan: PLAN.to_owned(),
        plan_origin: "honest.toml".to_owned(),
        command: vec!["dns64bench".to_owned(), "run".to_owned()],
        lab: None,
    };
    Journal::create(dir, beginning).unwrap();
}

/// A process does what is left.
pub(super) fn resume(dir: &Path, servers: Servers) -> Result<(), BenchError> {
    let (mut journal, mut lines, torn_bytes) = Journal::resume(dir).unwrap();
    let session = Record::Session {
        environment: Box::new(Environment {
            boot_id: "b".to_owned(),
            kernel: "Linux 6.1".to_owned(),
            ..Environment::default()
        }),
        torn_bytes,
    };
    lines.push(journal.append(session).unwrap());
    let parts = Parts {
        lines,
        journal,
        clock: servers.clock.clone(),
        bench: servers,
    };
    let plan = plan();
    Campaign::new(&plan, parts, String::new(), &mut |_| {}).work()
}

/// Both DUTs and their Tester.
pub(super) struct Servers {
    argument: &'static str,
    profile: &'static str,
    clock: ManualClock,
    assignment: Option<Assignment>,
    certified_qps: Option<u64>,
}

impl Servers {
    /// Started with this argument, by a profile with this hash.
    pub(super) fn new(argument: &'static str, profile: &'static str) -> Self {
        Self {
            argument,
            profile,
            clock: ManualClock::default(),
            assignment: None,
            certified_qps: None,
        }
    }
}

impl Bench for Servers {
    fn prepare(&mut self, job: &Assignment) -> Result<Option<CertificateConditions>, BenchError> {
        self.assignment = Some(*job);
        Ok(Some(CertificateConditions {
            cell: job.point.cell.to_string(),
            timeout_ns: job.point.timeout_ns,
            ..conditions(job.point.duration_ns)
        }))
    }

    fn self_test(
        &mut self,
        max_qps: Option<u64>,
        near_qps: Option<u64>,
        observer: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<SelfTestResult>, BenchError> {
        let point = self.assignment.unwrap().point;
        let mut tester = Looped {
            duration_ns: 0,
            timeout_ns: point.timeout_ns / 4,
        };
        let sought = Sought {
            resolution: COARSE,
            max_qps,
            near_qps,
            whole_ns: point.duration_ns,
        };
        let Ok(found) = highest(sought, &mut tester, observer);
        Ok(Some(found))
    }

    fn start(&mut self, certified_qps: Option<u64>) -> Result<VariantFacts, BenchError> {
        self.certified_qps = certified_qps;
        let cpus = [("measurer", "0"), ("DUT", "1")];
        Ok(VariantFacts {
            cpus: cpus
                .map(|(role, list)| (role.to_owned(), list.to_owned()))
                .to_vec(),
            command: vec!["server".to_owned(), self.argument.to_owned()],
            program_sha256: Some("bb".to_owned()),
            profile_sha256: Some(self.profile.to_owned()),
            ..VariantFacts::default()
        })
    }

    fn trial(&mut self, rate_qps: u64, number: u64) -> Result<TrialResult, BenchError> {
        self.clock.advance(12 * SECOND);
        let Assignment { task, point, .. } = self.assignment.unwrap();
        let own = if point.cell.aaaa_share == Share::NONE {
            1
        } else {
            2
        };
        let limit_qps = [5_000, 2_000][point.variant] * own;
        let spans = (point.duration_ns, point.timeout_ns);
        let mut told = counted(rate_qps, spans, rate_qps.saturating_sub(limit_qps));
        told.certified = Some(self.certified_qps.is_some_and(|to| rate_qps <= to));
        let asked = told.queries_sent;
        let counts = AuthorityCounts {
            aaaa: asked,
            a: asked,
            answered: asked,
            nodata: asked,
            ..AuthorityCounts::default()
        };
        told.authority = Some(counts);
        let all_answered = told.answers.missing == 0;
        told.achieved = Achieved::by_counts(asked, &counts, all_answered);
        match (task, number) {
            (Task::Search { point: 0, run: 2 }, 2) => {
                told.tester_drops = 3;
                told.outcome = Outcome::Invalid(TesterFault::ReceiveDrops { datagrams: 3 });
            }
            (Task::Search { point: 1, run: 1 }, 3) => {
                told.outcome = Outcome::Invalid(TesterFault::ClockStep { step_ns: 20_000 });
            }
            (Task::Search { point: 3, run: 3 }, 2) => told.dut_exit = Some("signal 11".to_owned()),
            _ => {}
        }
        Ok(told)
    }

    fn rest(&mut self, span_ns: Nanos) {
        self.clock.advance(span_ns);
    }
}

/// A Tester on its own, that is held up beyond its limit.
struct Looped {
    duration_ns: Nanos,
    timeout_ns: Nanos,
}

impl Trials for Looped {
    type Error = std::convert::Infallible;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Self::Error> {
        let mut told = counted(rate_qps, (self.duration_ns, self.timeout_ns), 0);
        if rate_qps > TESTER_QPS {
            let lateness_ns = 20_000_000;
            told.timing.lateness_ns_max = lateness_ns;
            told.outcome = Outcome::Invalid(TesterFault::LateSchedule {
                lateness_ns,
                limit_ns: 10_000_000,
                cause: None,
            });
        }
        Ok(told)
    }
}

impl Lengths for Looped {
    fn set_length(&mut self, duration_ns: Nanos) {
        self.duration_ns = duration_ns;
    }
}

/// A trial of this duration and timeout in which so many queries a second stay without an answer.
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
        rtt: Rtt {
            p50,
            p99,
            p999,
            max,
            mean: None,
        },
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
