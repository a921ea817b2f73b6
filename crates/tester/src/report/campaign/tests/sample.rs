//! Synthetic campaigns: a plan, and the journal that its driver would have written for DUTs with known limits. All
//! values are computed, so that expected texts can be kept.

mod authority;
mod hosts;

use std::collections::BTreeMap;

use authority::{machine, starts};
use dns64_transport::clock::SECOND;

use crate::authority::behaviour::Behaviour;
use crate::authority::counts::AuthorityCounts;
use crate::campaign::plan::tasks::{Point, Task};
use crate::campaign::plan::{Plan, Variant};
use crate::campaign::record::{
    CertificateConditions, Environment, InterfaceFacts, Line, ProgramFacts, Record, SelfTest,
    Start, TaskEnd, VariantFacts,
};
use crate::hash::sha256_hex;
use crate::load::catch_up::Limits;
use crate::machine::Role;
use crate::machine::process::Resources;
use crate::machine::usage::Usage;
use crate::namespace::Share;
use crate::procedure::search::{Search, SearchEnd, SearchSpec};
use crate::procedure::selftest::self_test_rate;
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::analysis::Analysis;
use crate::trial::fault::TesterFault;
use crate::trial::path::{AnsweredNames, AuthorityTimes, LostNames, Path, QuestionCounts};
use crate::trial::place::{LossFacts, Losses, place};
use crate::trial::result::{Answers, Outcome, PERCENTILES, Rtt, TimeSeries, Timing, TrialResult};

/// The seal of every sample.
pub(crate) const SEAL: &str = "5ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea1";

/// Rate for which the Tester of the samples is certified.
const CERTIFIED_QPS: u64 = 59_000;

/// 2025-11-21 10:00:00 UTC.
const BEGAN_UNIX_MS: u64 = 1_763_719_200_000;

/// Three variants (two of one DUT, with one core and with two), seven cells, a queue check, three runs, overload and
/// soak; with an invalid trial, an abandoned run and a crash.
pub(crate) const SMALL: &str = r#"
name = "Sample <of> 100 % & more"
description = "Two servers, one of them with one core and with two."

[tester]
lab = "netns"
cpus = "0"

[trial]
duration = "1s"
timeout = "1s"

[search]
runs = 3
resolution = "1%"
start-rate = 4000
settle = "500ms"

[cells]
aaaa-share = ["0%", "50%", "100%"]
cached-share = ["0%", "50%", "100%"]

[[dut]]
name = "dns64d"
profile = "dns64d"
cores = ["1", "1-2"]
set = { threads = 1 }

[[dut]]
name = "un_bound & <co>"
profile = "unbound"
cores = "1"

[queue-check]
durations = ["1s", "2s"]
timeouts = ["1s", "500ms"]

[overload]
factors = [0.5, 1, 2, 5]

[soak]
share = "80%"
length = "12s"
"#;

/// All requirements of RFC 8219 for three DUTs: 31 cells, 20 runs, trials of 60 s.
const FULL: &str = r#"
name = "All of RFC 8219"
[search]
start-rate = 4000
[cells]
grid = "rfc8219"
[[dut]]
profile = "dns64d"
[[dut]]
profile = "unbound"
[[dut]]
profile = "bind"
"#;

/// A small campaign with all features.
pub(crate) fn small() -> (Plan, Vec<Line>) {
    campaign(SMALL)
}

/// A campaign of the size that RFC 8219 requires.
pub(crate) fn full() -> (Plan, Vec<Line>) {
    campaign(FULL)
}

/// The analysis of a campaign by another plan.
pub(crate) fn analysed(text: &str) -> Analysis {
    let (plan, lines) = campaign(text);
    analyse(&plan, &lines, SEAL)
}

pub(crate) fn campaign(text: &str) -> (Plan, Vec<Line>) {
    let plan = Plan::parse("sample.toml", text).unwrap();
    let mut lines = journal(&plan, text);
    hosts::tell(&plan, &mut lines);
    (plan, lines)
}

/// Limit of the DUT of a point, by the papers' model of its work, slightly different in each run. The third variant
/// stores queries, so its limit grows with the timeout.
///
/// No DUT has more than [`OUTSTANDING`] outstanding queries, which take two delays of the authority each.
fn limit_qps(plan: &Plan, point: &Point, run: u32) -> u64 {
    let ppm = |share: Share| share.below(1_000_000);
    let base_qps = [9_000, 17_100, 6_000][point.variant.min(2)];
    let full = 1_000_000;
    let work = full - ppm(point.cell.aaaa_share) * 2 / 5;
    let work = work - work * ppm(point.cell.cached_share) * 4 / 5 / full;
    let mut rate = base_qps * full / work;
    if point.variant == 2 {
        rate += rate * point.timeout_ns / point.duration_ns;
    }
    let rate = rate + rate * (u64::from(run) * 7 % 5) / 500;
    match delay_ns(plan, point) {
        0 => rate,
        delay_ns => rate.min(OUTSTANDING * SECOND / (2 * delay_ns + 200_000)),
    }
}

/// Maximum number of outstanding queries of a DUT in the samples.
const OUTSTANDING: u64 = 100;

fn delay_ns(plan: &Plan, point: &Point) -> u64 {
    let behaviour = plan.variants[point.variant].behaviour();
    behaviour.and_then(Behaviour::only_delay_ns).unwrap_or(0)
}

struct Journal {
    lines: Vec<Line>,
    now_ms: u64,
}

impl Journal {
    fn write(&mut self, record: Record) {
        self.lines.push(Line {
            number: self.lines.len() as u64,
            at_unix_ms: self.now_ms,
            record,
        });
        self.now_ms += 10;
    }

    fn trial(&mut self, task: Task, number: u64, result: TrialResult) -> u64 {
        let sent_for = result.queries_sent * SECOND / result.rate_qps;
        let took_ns = sent_for + result.timeout_ns + SECOND / 2;
        self.now_ms += took_ns / 1_000_000;
        self.write(Record::Trial {
            task,
            number,
            took_ns,
            result: TrialResult {
                resources: Some(Resources {
                    memory_bytes: 50_000_000 + 4096 * number,
                    descriptors: 24,
                    threads: 3,
                }),
                ..result
            },
        });
        took_ns
    }

    fn session(&mut self, torn_bytes: u64, kernel: &str) {
        let details = [
            ("frequency governor", "performance"),
            ("interface measurer0", "veth, MTU 1500, GSO on"),
            ("SMT", "off"),
        ];
        let text = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
        let interface = |(host, name): (&str, &str)| InterfaceFacts {
            host: Some(host.to_owned()),
            name: name.to_owned(),
            driver: Some("veth".to_owned()),
            mtu: 1500,
            speed_mbps: None,
        };
        self.write(Record::Session {
            environment: Box::new(Environment {
                host: "bench".to_owned(),
                boot_id: format!("boot of {kernel}"),
                kernel: kernel.to_owned(),
                os: "Debian GNU/Linux 12".to_owned(),
                cpu: "Example CPU".to_owned(),
                cpus: 4,
                memory_bytes: 8_000_000_000,
                details: details.into_iter().map(text).collect(),
                interfaces: [("measurer", "measurer0"), ("dut", "client")]
                    .map(interface)
                    .to_vec(),
            }),
            torn_bytes,
            tester: String::new(),
            tester_sha256: None,
        });
    }

    fn self_test(&mut self, plan: &Plan, point: &Point) {
        let mut result = trial(point, self_test_rate(CERTIFIED_QPS), 0, true);
        result.timeout_ns = point.timeout_ns / 4;
        self.now_ms += 1300;
        self.write(Record::SelfTest(SelfTest {
            conditions: Box::new(CertificateConditions {
                boot_id: "boot of Linux 6.1.0".to_owned(),
                kernel: "Linux 6.1.0".to_owned(),
                lab: "netns, three-device".to_owned(),
                authority: plan.hosts.authority.to_string(),
                threads: 1,
                sockets: None,
                cpus: vec![(Role::Measurer.into(), "0".to_owned())],
                names: "10.0.0.0/8 dns64perf.test.".to_owned(),
                cell: point.cell.to_string(),
                duration_ns: point.duration_ns,
                timeout_ns: point.timeout_ns,
                ..CertificateConditions::default()
            }),
            end: Outcome::Passed,
            passed_rate_qps: Some(self_test_rate(CERTIFIED_QPS)),
            certified_rate_qps: Some(CERTIFIED_QPS),
            trials: vec![result],
        }));
    }
}

/// Some of these round-trip times, and their mean.
fn rtt(percentiles: &[(f64, u64)], mean: u64) -> Rtt {
    let [p50, p99, p999, max] = [3, 8, 10, 15].map(|at: usize| Some(percentiles[at].1));
    Rtt {
        p50,
        p99,
        p999,
        max,
        mean: Some(mean),
    }
}

/// A trial at `rate_qps` of a DUT with the limit `limit_qps`; a self-test has no DUT.
fn trial(point: &Point, rate_qps: u64, limit_qps: u64, self_test: bool) -> TrialResult {
    let [due, can] = [rate_qps, limit_qps].map(|qps| qps * point.duration_ns / SECOND);
    let shortfall = due.saturating_sub(if self_test { due } else { can });
    let valid = due - shortfall;
    let cached = point.cell.cached_share.below(due);
    let fresh = due - cached;
    let own = point.cell.aaaa_share.below(fresh);
    let p50 = 90_000 + 1_000_000_000 / rate_qps + if shortfall > 0 { 40_000_000 } else { 0 };
    let tail = |pct| p50 * 100 / (1000 - scaled(pct)).max(1);
    let at = |pct: f64| (pct, p50 / 2 + if pct < 50.0 { 0 } else { tail(pct) });
    let rtt_percentiles: Vec<_> = PERCENTILES.into_iter().map(at).collect();
    TrialResult {
        outcome: match shortfall {
            0 => Outcome::Passed,
            shortfall => Outcome::Failed { shortfall },
        },
        rate_qps,
        duration_ns: point.duration_ns,
        timeout_ns: point.timeout_ns,
        queries_due: due,
        queries_sent: due,
        undecided: 0,
        ended_early: false,
        answers: Answers {
            valid,
            missing: shortfall,
            ..Answers::default()
        },
        types: Vec::new(),
        rtt: rtt(&rtt_percentiles, p50),
        server_is_here: false,
        interrupted: false,
        source_ports: 16,
        policy: None,
        first_wrong: None,
        latency_percentiles: Vec::new(),
        rtt_percentiles,
        series: (shortfall > 0).then(|| series(due, shortfall)),
        timing: timing(rate_qps),
        machine: Usage::default(),
        tester_drops: 0,
        losses: losses(shortfall),
        authority_exit: None,
        error: None,
        authority: Some(counts(fresh, own)),
        authorities: Vec::new(),
        authority_sampled: None,
        names: None,
        certified: (!self_test).then_some(true),
        achieved: None,
        service: None,
        resources: None,
        path: Some(path(point, fresh, own, valid)),
        dut_exit: None,
        segmentation: !self_test,
        clocks: Vec::new(),
        connections: None,
        backend: "udp".to_owned(),
        notes: Vec::new(),
    }
}

/// Half of the losses are in each half.
fn series(sent: u64, lost: u64) -> TimeSeries {
    TimeSeries {
        slice_ns: SECOND / 2,
        sent: vec![sent - sent / 2, sent / 2],
        lost: vec![lost / 2, lost - lost / 2],
        latency_ns_p50: vec![None; 2],
        latency_ns_p99: vec![None; 2],
    }
}

/// All of them in the DUT.
fn losses(shortfall: u64) -> Losses {
    let mut facts = LossFacts {
        missing: shortfall,
        ..LossFacts::default()
    };
    facts.evidence.is_watched = true;
    place(facts).losses
}

/// Path of the queries of a DUT that follows RFC 6147.
fn path(point: &Point, fresh: u64, own: u64, valid: u64) -> Path {
    let answered = fresh.min(valid);
    let at = |pct: f64| (pct, 60_000 + 1_000 * scaled(pct));
    Path {
        fresh_names: fresh,
        questions: QuestionCounts {
            aaaa: fresh,
            a: fresh - own,
            ..QuestionCounts::default()
        },
        answered: AnsweredNames {
            names: answered,
            aaaa_then_a: answered - own.min(answered),
            aaaa_only: own.min(answered),
            ..AnsweredNames::default()
        },
        lost: LostNames {
            names: fresh - answered,
            unasked: fresh - answered,
            ..LostNames::default()
        },
        dut_only_percentiles_ns: PERCENTILES.into_iter().map(at).collect(),
        authority: AuthorityTimes {
            p50_ns: Some(5_000),
            p99_ns: Some(9_000),
            max_ns: Some(70_000),
            limit_ns: point.timeout_ns / 4,
            ..AuthorityTimes::default()
        },
        ..Path::default()
    }
}

fn timing(rate_qps: u64) -> Timing {
    Timing {
        lateness_ns_p50: 300,
        lateness_ns_p99: 2_000 + rate_qps % 1000,
        lateness_ns_p999: 9_000,
        lateness_ns_max: 40_000 + rate_qps,
        bin_1ms_deviation_pct_max: Some(12.5),
        bin_10ms_deviation_pct_max: 1.25,
        bin_100ms_deviation_pct_max: 0.125,
        quantum_ns: 10_000,
        burst: 1,
        limits: Limits::default(),
        ..Timing::default()
    }
}

fn counts(fresh: u64, own: u64) -> AuthorityCounts {
    AuthorityCounts {
        aaaa: fresh,
        a: fresh - own,
        answered: fresh,
        nodata: fresh - own,
        ..AuthorityCounts::default()
    }
}

/// A percentage in tenths of a per cent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 1000"
)]
fn scaled(pct: f64) -> u64 {
    (pct * 10.0) as u64
}

/// Journal of a campaign by this plan.
fn journal(plan: &Plan, text: &str) -> Vec<Line> {
    let mut journal = Journal {
        lines: Vec::new(),
        now_ms: BEGAN_UNIX_MS,
    };
    journal.write(Record::Campaign {
        format: crate::campaign::record::FORMAT,
        tester: "dns64bench 0.1.0".to_owned(),
        plan: text.to_owned(),
        plan_origin: "sample.toml".to_owned(),
        plan_sha256: sha256_hex(text.as_bytes()),
        lab: None,
        command: ["dns64bench", "run", "my plans/sample.toml"]
            .map(str::to_owned)
            .to_vec(),
    });
    journal.session(0, "Linux 6.1.0");
    let points = &plan.points;
    journal.self_test(plan, &points[0]);
    for (variant, it) in plan.variants.iter().enumerate() {
        for start in starts(plan, variant) {
            journal.write(started_variant(variant, it, start));
        }
    }
    for run in 1..=plan.search.runs {
        if run == 2 {
            // The machine was rebooted in between, and the last line was incomplete.
            journal.now_ms += 60_000;
            journal.session(17, "Linux 6.1.1");
            journal.self_test(plan, &points[0]);
        }
        for (index, point) in points.iter().enumerate() {
            search(&mut journal, plan, index, point, run);
        }
    }
    for (index, point) in points.iter().enumerate() {
        if point.cell == plan.cells[0]
            && (point.duration_ns, point.timeout_ns)
                == (plan.load.duration_ns, plan.load.timeout_ns)
        {
            beyond(&mut journal, plan, index, point);
        }
    }
    journal.write(Record::Complete);
    journal.lines
}

fn started_variant(variant: usize, it: &Variant, start: Option<Start>) -> Record {
    Record::Variant {
        variant,
        start,
        conformance: None,
        facts: VariantFacts {
            program: ProgramFacts {
                version: Some(format!("{} 1.2.3", it.dut)),
                files_sha256: BTreeMap::from([("server.conf".to_owned(), "ab".repeat(32))]),
                program_sha256: Some("cd".repeat(32)),
                ..ProgramFacts::default()
            },
            server: "[2001:2::2]:53".to_owned(),
            pref64: "64:ff9b::/96".to_owned(),
            cpus: vec![
                (Role::Measurer.into(), "0".to_owned()),
                (Role::Dut.into(), it.cpus().to_string()),
            ],
            not_a_measurement: Vec::new(),
            notes: vec!["trials of 1 s are shorter than 60 s".to_owned()],
            ..VariantFacts::default()
        },
    }
}

fn search(journal: &mut Journal, plan: &Plan, index: usize, point: &Point, run: u32) {
    let task = Task::Search { point: index, run };
    let spec = SearchSpec {
        resolution: plan.search.resolution,
        ceiling_qps: Some(CERTIFIED_QPS),
        ..SearchSpec::from_start(4_000)
    };
    journal.write(Record::Started {
        task,
        search: Some(spec.clone()),
        base_rate_qps: None,
    });
    let mut search = Search::new(spec);
    let limit = limit_qps(plan, point, run);
    let mut took_ns = 0;
    let mut number = 0;
    while let Some(rate_qps) = search.next_rate() {
        number += 1;
        let mut result = trial(point, rate_qps, limit, false);
        result.machine = machine(plan, point, result.queries_sent).unwrap_or_default();
        for (_, rtt_ns) in &mut result.rtt_percentiles {
            *rtt_ns += 2 * delay_ns(plan, point);
        }
        if (index, run, number) == (0, 1, 2) {
            result.outcome = Outcome::Invalid(TesterFault::LateSchedule {
                cause: None,
                lateness_ns: 3_000_000,
                limit_ns: 2_500_000,
            });
        }
        if (index, run, number) == (1, 2, 1) {
            result.dut_exit = Some("signal: 11 (SIGSEGV)".to_owned());
        }
        if (index, number) == (3, 1) {
            let lost = format!("the DUT's sockets lost {} queries", 10 + run);
            result.notes.push(lost);
        }
        search.observe(&result.outcome);
        took_ns += journal.trial(task, number, result);
        if (index, run, number) == (2, 3, 2) {
            journal.write(Record::Abandoned {
                task,
                reason: "the DUT died three times".to_owned(),
            });
            return;
        }
    }
    let bracket = search.bracket();
    let end = search.finished().unwrap().clone();
    let rate_qps = bracket
        .passed_qps
        .filter(|_| !matches!(end, SearchEnd::NothingPasses));
    journal.write(Record::Finished(TaskEnd {
        end: Some(end),
        rate_qps,
        failed_qps: bracket.failed_qps,
        took_ns,
        ..TaskEnd::of(task)
    }));
}

/// Overload curve and soak of a point.
fn beyond(journal: &mut Journal, plan: &Plan, index: usize, point: &Point) {
    let base = limit_qps(plan, point, 1);
    let factors = plan.overload_milli.iter().copied();
    let overload: Vec<u64> = factors
        .map(|milli| base * u64::from(milli) / 1000)
        .collect();
    let soak = plan.soak.map_or(Vec::new(), |soak| {
        let segments = soak.length_ns.div_ceil(plan.load.duration_ns).min(60);
        (0..segments).map(|_| soak.share.below(base)).collect()
    });
    for (task, rates) in [
        (Task::Overload { point: index }, overload),
        (Task::Soak { point: index }, soak),
    ] {
        if rates.is_empty() {
            continue;
        }
        journal.write(Record::Started {
            task,
            search: None,
            base_rate_qps: Some(base),
        });
        let mut took_ns = 0;
        for (number, rate_qps) in (1..).zip(rates) {
            took_ns += journal.trial(task, number, trial(point, rate_qps, base, false));
        }
        journal.write(Record::Finished(TaskEnd {
            took_ns,
            ..TaskEnd::of(task)
        }));
    }
}

#[test]
fn sample_has_its_documented_features() {
    let (plan, lines) = small();
    let count = |wanted: fn(&Record) -> bool| lines.iter().filter(|l| wanted(&l.record)).count();
    assert_eq!(count(|r| matches!(r, Record::Session { .. })), 2);
    assert_eq!(count(|r| matches!(r, Record::Abandoned { .. })), 1);
    let searches = plan.points.len() * 3;
    assert_eq!(
        count(|r| matches!(r, Record::Finished { .. })),
        searches - 1 + 2 * 3
    );
    assert!(matches!(lines.last().unwrap().record, Record::Complete));
}
