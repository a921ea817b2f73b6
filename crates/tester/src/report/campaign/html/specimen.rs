//! An analysis with something of everything, for pages to be made of.

use std::collections::BTreeMap;

use crate::campaign::record::{CertificateConditions, Environment};
use crate::report::campaign::analysis::{
    Achieved, Analysis, Certificate, Clause, FORMAT, FittedRow, Grid, GridCell, GridRow, Met,
    ModelResult, OverloadCurve, OverloadRow, Parameter, PointResult, QueueCheckResult,
    QueueCheckRow, RunEnd, RunResult, Scaling, ScalingRow, Session, Slope, SoakResult, SoakRow,
    Step, TimeSpent, TimingResult, VariantInfo,
};
use crate::statistics::summary::{Flag, Summary};
use crate::trial::result::{Outcome, PERCENTILES, TesterFault};

/// A name that would be a script if it were not escaped.
const HOSTILE: &str = "<script>alert(\"dns\")</script> & Co";

const NAMES: [&str; 5] = [
    "dns64d",
    "Unbound 1 thread",
    "Unbound 4 threads",
    "BIND",
    HOSTILE,
];

/// Capacity of each variant without shares.
const BASE: [f64; 5] = [41_300.0, 14_200.0, 37_800.0, 9_100.0, 22_500.0];

/// This many variants, cells of the shares given, and runs.
pub(in super::super) fn analysis(variants: usize, cells: &[(f64, f64)], runs: u32) -> Analysis {
    let points = points(variants, cells, runs);
    Analysis {
        format: FORMAT,
        name: "Five DNS64 servers on one machine".to_owned(),
        description: "Worst case, AAAA shares and cached shares.".to_owned(),
        tester: "dns64bench 0.1.0".to_owned(),
        plan_sha256: "c0ffee".repeat(10) + "abcd",
        journal_seal: "5ea1".repeat(16),
        complete: true,
        verdict: (0..variants).map(verdict).collect(),
        not_a_measurement: vec![
            "the roles share one machine and its cores".to_owned(),
            "trials of 5 s are shorter than 60 s (RFC 8219 section 9.2)".to_owned(),
        ],
        warnings: vec![
            crate::warning::Severity::Critical
                .warning("run 2 was given up: the DUT died in trial 4")
                .about(HOSTILE),
        ],
        conditions: conditions(),
        variants: (0..variants).map(variant).collect(),
        certificates: vec![
            certificate("AAAA 0%, cached 0%"),
            certificate("AAAA 50%, cached 0%"),
        ],
        grids: vec![grid()],
        models: (0..variants).flat_map(models).collect(),
        queue_checks: vec![queue_check()],
        scaling: vec![Scaling {
            dut: "Unbound".to_owned(),
            rows: [
                (1, 1, 14_200.0, 14_200.0, 1.0),
                (2, 2, 27_100.0, 13_550.0, 1.908),
                (4, 3, 37_800.0, 9_450.0, 2.662),
            ]
            .map(|(cores, point, median, per_core, factor)| ScalingRow {
                cores,
                point,
                median,
                per_core,
                factor,
            })
            .to_vec(),
        }],
        overloads: vec![overload(0), overload(variants - 1)],
        soaks: vec![soak()],
        sessions: vec![session("without a word", 0, 37), session("complete", 1, 0)],
        statement: statement(),
        commands: vec!["dns64bench run campaign.toml --out results".to_owned()],
        time: time(),
        points,
    }
}

fn points(variants: usize, cells: &[(f64, f64)], runs: u32) -> Vec<PointResult> {
    let mut points = Vec::new();
    for variant in 0..variants {
        for &(aaaa, cached) in cells {
            points.push(point(
                points.len(),
                variant,
                (aaaa, cached),
                (60.0, 1.0),
                runs,
            ));
        }
    }
    if variants > 1 {
        let mut late = point(points.len(), 1, (0.0, 0.0), (5.0, 1.0), runs);
        late.rtt_ns.clear();
        late.lower_bound = true;
        points.push(late);
    }
    points
}

fn time() -> TimeSpent {
    TimeSpent {
        searches_s: 15_240.0,
        self_tests_s: 612.0,
        others_s: 4_000.0,
        trials: 812,
        fixed_range_s: 61_000.0,
    }
}

fn verdict(variant: usize) -> String {
    format!(
        "{} answered every query up to {:.0} queries/s (median of 3 runs).",
        NAMES[variant], BASE[variant]
    )
}

fn texts(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    pairs.iter().map(own).collect()
}

fn conditions() -> Vec<(String, String)> {
    texts(&[
        ("Lab", "netns, three devices"),
        ("Trials", "60 s, timeout 1 s"),
        ("Runs", "3, interleaved"),
        ("Names", "10.0.0.0/8 below dns64perf.test"),
        ("Measurer", "1 thread on CPU 0"),
    ])
}

fn variant(index: usize) -> VariantInfo {
    VariantInfo {
        name: NAMES[index].to_owned(),
        dut: NAMES[index]
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned(),
        version: (index != 4).then(|| "1.17.1-2+deb12u2".to_owned()),
        settings: texts(if index == 2 { &[("threads", "4")] } else { &[] }),
        cpus: texts(&[("Measurer", "0"), ("DUT", "1-3")]),
        server: Some("[2001:2::2]:53".to_owned()),
        pref64: Some("2001:2:0:ff::/96".to_owned()),
        hashes: texts(&[
            ("program", &"0123456789abcdef".repeat(4)),
            ("named.conf", &"f00d".repeat(16)),
        ]),
        not_a_measurement: Vec::new(),
        notes: if index == 4 {
            vec!["<b>bold</b>".to_owned()]
        } else {
            Vec::new()
        },
    }
}

fn certificate(cell: &str) -> Certificate {
    Certificate {
        conditions: CertificateConditions {
            boot_id: "b".to_owned(),
            kernel: "6.1".to_owned(),
            lab: "netns, three-device".to_owned(),
            authority: "built-in".to_owned(),
            threads: 1,
            sockets: None,
            cpus: Vec::new(),
            names: "10.0.0.0/8".to_owned(),
            cell: cell.to_owned(),
            duration_ns: 5_000_000_000,
            timeout_ns: 1_000_000_000,
        },
        end: "passed".to_owned(),
        passed_rate_qps: Some(264_000),
        certified_rate_qps: Some(120_000),
        trials: 9,
    }
}

/// Capacity by the papers' models.
fn capacity(variant: usize, aaaa: f64, cached: f64) -> f64 {
    BASE[variant] / ((1.0 - 0.42 * aaaa / 100.0) * (1.0 - 0.8 * cached / 100.0))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates of a specimen"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

fn point(
    index: usize,
    variant: usize,
    (aaaa, cached): (f64, f64),
    (duration_s, timeout_s): (f64, f64),
    runs: u32,
) -> PointResult {
    let median = capacity(variant, aaaa, cached);
    let nothing = variant == 4 && cached > 90.0;
    let run = |run| search(run, median * (1.0 + 0.004 * f64::from(run % 5)));
    let base = capacity(variant, 0.0, 0.0);
    PointResult {
        point: index,
        variant,
        aaaa_pct: aaaa,
        cached_pct: cached,
        pattern: String::new(),
        duration_s,
        timeout_s,
        summary: (!nothing).then(|| summary(median, runs, timeout_s / duration_s, variant == 3)),
        lower_bound: variant == 0 && cached > 90.0,
        certified_rate_qps: Some(120_000),
        headroom: Some(120_000.0 / median),
        degradation_pct: (aaaa + cached > 0.0).then(|| (base - median) / base * 100.0),
        runs: if nothing {
            vec![fault()]
        } else {
            (1..=runs).map(run).collect()
        },
        achieved: Some(Achieved {
            aaaa_pct: Some(aaaa),
            cached_pct: cached,
            amplification: 2.0 - (aaaa + cached) / 100.0,
        }),
        rtt_ns: PERCENTILES.iter().map(|&p| (p, rtt(variant, p))).collect(),
        timing: Some(TimingResult {
            lateness_ns_p99: 18_200,
            lateness_ns_max: 412_000,
            bin_10ms_deviation_pct_max: 0.61,
            bin_100ms_deviation_pct_max: 0.06,
            worst_lateness_ns: 2_312_000,
            tester_drops: 0,
        }),
        memory_bytes_max: Some(whole(median * 3000.0) + 20_000_000),
    }
}

fn rtt(variant: usize, percentile: f64) -> u64 {
    let nines = -(1.0 - (percentile / 100.0).min(0.999_999)).log10();
    whole(BASE[4 - variant] * 2.0 * (1.0 + nines.powi(3)))
}

fn summary(median: f64, runs: u32, timeout_share: f64, scattered: bool) -> Summary {
    let spread = if scattered { 0.3 } else { 0.03 };
    Summary {
        runs: usize::try_from(runs).unwrap_or(0),
        average: median * 1.001,
        median,
        p1: median * (1.0 - spread / 2.0),
        p99: median * (1.0 + spread / 2.0),
        standard_deviation: median * spread / 3.0,
        margin_of_error_999: median * spread / 2.0,
        median_absolute_deviation: median * spread / 4.0,
        dispersion_pct: spread * 100.0,
        calculated: median / (1.0 + timeout_share),
        median_interval: Some((median * 0.99, median * 1.01)),
        flags: if scattered {
            let standard_deviation_pct = 10.1;
            vec![
                Flag::Scattered {
                    standard_deviation_pct,
                },
                Flag::FewRuns { runs: 3 },
            ]
        } else {
            vec![Flag::FewRuns { runs: 3 }]
        },
    }
}

/// A galloping search for this capacity, with a disturbed trial.
fn search(run: u32, capacity: f64) -> RunResult {
    let limit = whole(capacity);
    let mut trials = vec![Step {
        rate_qps: 1000,
        outcome: Outcome::Passed,
        shortfall: 0,
        why: String::new(),
    }];
    let (mut passed, mut failed) = (1000, 0);
    while failed == 0 || failed - passed > limit / 100 {
        let rate_qps = if failed == 0 {
            passed * 2
        } else {
            u64::midpoint(passed, failed)
        };
        let outcome = if trials.len() == 3 && run == 2 {
            Outcome::Invalid(TesterFault::ClockStep { step_ns: 1 })
        } else if rate_qps <= limit {
            passed = rate_qps;
            Outcome::Passed
        } else {
            failed = rate_qps;
            Outcome::Failed { shortfall: 1 }
        };
        trials.push(Step {
            rate_qps,
            outcome,
            shortfall: rate_qps.saturating_sub(limit),
            why: String::new(),
        });
    }
    RunResult {
        run,
        ended: RunEnd::Found,
        why: None,
        rate_qps: Some(passed),
        failed_qps: Some(failed),
        took_s: 310.5,
        trials,
    }
}

fn fault() -> RunResult {
    RunResult {
        run: 1,
        ended: RunEnd::Abandoned,
        why: Some(format!("{HOSTILE} died in trial 4")),
        rate_qps: None,
        failed_qps: None,
        took_s: 12.0,
        trials: Vec::new(),
    }
}

fn models(variant: usize) -> Vec<ModelResult> {
    let model = |model, equation: &str, shares: &[(f64, f64)]| ModelResult {
        variant,
        model,
        equation: equation.to_owned(),
        parameters: [("a", 24.2), ("b", 10.17)]
            .map(|(name, value)| Parameter {
                name,
                value,
                unit: "us",
            })
            .to_vec(),
        fitted: shares
            .iter()
            .map(|&(aaaa, cached)| {
                let rate = capacity(variant, aaaa, cached);
                FittedRow {
                    share_pct: aaaa + cached,
                    median: rate,
                    modelled: rate * 1.01,
                }
            })
            .collect(),
        residual_pct_max: 1.0,
        r_squared: 0.9987,
    };
    vec![
        model(
            "AAAA share",
            "1/R = 24.2 us − 10.17 us · p",
            &[(0.0, 0.0), (50.0, 0.0), (100.0, 0.0)],
        ),
        model(
            "cached share",
            "1/R = 24.2 us − 19.4 us · p",
            &[(0.0, 0.0), (0.0, 50.0), (0.0, 100.0)],
        ),
    ]
}

fn queue_check() -> QueueCheckResult {
    QueueCheckResult {
        variant: 1,
        rows: [
            (60.0, 1.0, 14_200.0, 13_967.0),
            (5.0, 1.0, 16_760.0, 13_967.0),
            (5.0, 0.25, 14_660.0, 13_962.0),
        ]
        .map(
            |(duration_s, timeout_s, median, calculated)| QueueCheckRow {
                duration_s,
                timeout_s,
                median,
                calculated,
            },
        )
        .to_vec(),
        median_dispersion_pct: 17.5,
        calculated_dispersion_pct: 0.04,
        stores_requests: true,
        verdict: "it stores requests: the calculated rates agree and the medians do not".to_owned(),
    }
}

fn overload(variant: usize) -> OverloadCurve {
    let base = whole(BASE[variant]);
    let rows = [500, 750, 1000, 1100, 1250, 1500, 2000, 3000, 5000];
    OverloadCurve {
        variant,
        base_rate_qps: base,
        rows: rows
            .into_iter()
            .map(|milli| {
                let rate_qps = base * milli / 1000;
                let beyond = rate_qps.saturating_sub(base);
                OverloadRow {
                    rate_qps,
                    goodput_qps: BASE[variant].min(capacity(variant, 0.0, 0.0))
                        * if milli < 1000 {
                            0.001 * f64::from(u32::try_from(milli).unwrap_or(0))
                        } else {
                            1.0
                        }
                        - f64::from(u32::try_from(beyond / 10).unwrap_or(0)),
                    rtt_ns_p50: Some(80_000 + beyond * 9000),
                    rtt_ns_p99: Some(400_000 + beyond * 12_000),
                    doubtful: milli >= 3000,
                }
            })
            .collect(),
    }
}

fn soak() -> SoakResult {
    SoakResult {
        variant: 0,
        rate_qps: 33_000,
        rows: (1..=60)
            .map(|minute: u32| SoakRow {
                at_s: 60.0 * f64::from(minute),
                shortfall: 0,
                rtt_ns_p99: 410_000 + u64::from(minute % 7) * 13_000,
                rtt_ns_p999: 1_410_000 + u64::from(minute % 11) * 53_000,
                memory_bytes: Some(84_000_000 + u64::from(minute) * 120_000),
                descriptors: Some(74 + u64::from(minute % 3)),
                threads: None,
            })
            .collect(),
        shortfall: 0,
        slopes: vec![
            Slope {
                of: "memory",
                per_hour: 6.866,
                unit: "MiB",
                p: 0.0001,
                verdict: "it grows".to_owned(),
            },
            Slope {
                of: "descriptors",
                per_hour: -0.01,
                unit: "descriptors",
                p: 0.81,
                verdict: "no more than chance".to_owned(),
            },
        ],
    }
}

fn session(ended: &str, boot: u32, torn_bytes: u64) -> Session {
    let mut details = BTreeMap::new();
    for (name, value) in texts(&[
        ("SMT", "off"),
        ("frequency governor", "performance"),
        (
            "interface veth0",
            "driver veth, MTU 1500, gro on, gso on, tso on, tx-udp-segmentation on",
        ),
        ("sysctl net.core.rmem_max", "212992"),
        (
            "mitigations",
            "spectre_v2: Mitigation: Enhanced IBRS; mds: Not affected",
        ),
    ]) {
        details.insert(name, value);
    }
    Session {
        began: "2026-01-07T10:00:00Z".to_owned(),
        ended: ended.to_owned(),
        torn_bytes,
        environment: Environment {
            host: "lab1".to_owned(),
            boot_id: format!("1d9f6f3e-0000-4000-8000-00000000000{boot}"),
            kernel: "Linux 6.1.0-28-amd64".to_owned(),
            os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            cpu: "AMD EPYC 7763 64-Core Processor".to_owned(),
            cpus: 4,
            memory_bytes: 16_642_998_272,
            details,
        },
    }
}

fn statement() -> Vec<Clause> {
    let clause = |id, asks, level, met, why: &str| Clause {
        id,
        asks,
        level,
        met,
        why: why.to_owned(),
    };
    vec![
        clause("B-6", "trials of at least 60 s", "SHOULD", Met::Met, "60 s"),
        clause(
            "B-9",
            "at least 20 repetitions",
            "SHOULD",
            Met::NotMet,
            "3 runs",
        ),
        clause(
            "B-24",
            "latency of other technologies",
            "MAY",
            Met::NotApplicable,
            "no such DUT",
        ),
    ]
}

/// Two shares of each kind; when everything is cached, one cell stands for both.
fn grid() -> Grid {
    let cell = |median| GridCell {
        median,
        p1: median - 100.0,
        p99: median + 100.0,
        lower_bound: median > 20_000.0,
    };
    let row = |cached_pct, cells| GridRow { cached_pct, cells };
    Grid {
        variant: 0,
        aaaa_pct: vec![0.0, 100.0],
        rows: vec![
            row(0.0, vec![Some(cell(12_000.0)), Some(cell(19_000.0))]),
            row(100.0, vec![Some(cell(31_000.0)), None]),
        ],
    }
}
