//! Sample results for the rendered texts.

use crate::authority::counts::AuthorityCounts;
use crate::load::names::NameRange;
use crate::machine::Role;
use crate::machine::process::Resources;
use crate::machine::usage::{RoleUsage, Usage};
use crate::machine::watch::HostOf;
use crate::namespace::DEFAULT_NAMESPACE;
use crate::procedure::certificate::Certificate;
use crate::report::Conditions;
use crate::trial::achieved::Achieved;
use crate::trial::cause::Cause;
use crate::trial::fault::{RateError, TesterFault};
use crate::trial::path::Path;
use crate::trial::place::{LossSpan, Losses, Place, Placed, Source};
use crate::trial::result::{Answers, Outcome, Rtt, TimeSeries, Timing, TrialResult};
use crate::trial::service::{By, Service};

pub(super) fn conditions() -> Conditions {
    Conditions {
        tester: "dns64bench 0.1.0".into(),
        server: "[2001:2::2]:53".into(),
        dut: Some("unbound 1.17.1".into()),
        authority: Some("built-in".into()),
        lab: Some("netns".into()),
        setup: Some("three-device".into()),
        upstream_family: Some("IPv4".into()),
        pref64: Some("64:ff9b::/96".into()),
        namespace: "10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test".into(),
        aaaa_share: "0".into(),
        cached_share: "0".into(),
        cached_pattern: None,
        edns: None,
        name_records: None,
        types: None,
        threads: 1,
        transport: None,
        sockets: Some(16),
        local: Some("2001:2:0:1::/126".into()),
        source_addresses: Some(3),
        cpus: vec![
            (Role::Measurer.into(), "0".into()),
            (Role::Dut.into(), "1".into()),
        ],
        segmentation: true,
        backend: "socket".into(),
        authority_backend: Some("socket".into()),
        burst_max: 64,
        certified_rate_qps: Some(25_000),
        certificate: Certificate::of(&[26_500, 25_000, 26_500]),
        self_test_covers: Some("the Measurer, both links and the authority".into()),
        not_a_measurement: Vec::new(),
        deviation: Some(
            "other than RFC 8219 section 9.2 asks: trials of 5 s instead of 60 s".into(),
        ),
        notes: vec!["a remark".into()],
    }
}

const NAMES: NameRange = NameRange {
    namespace: DEFAULT_NAMESPACE,
    begin: 1_000,
    first: 1_000,
    fresh: 100_000,
};

const SERVICE: Service = Service {
    slope_ns_per_s: 812e6,
    service_rate_qps: 11_037.5,
    by: By::Delay,
    stores_queries: true,
    sustainable_qps: 11_037,
};
/// All losses are the DUT's.
pub(super) fn losses() -> Losses {
    let places = [
        (Place::DutSockets, 12),
        (Place::Dut, 1188),
        (Place::Late, 34),
    ];
    let places = places.map(|(place, queries)| Placed {
        place,
        low: queries,
        high: queries,
        source: None,
    });
    Losses {
        queries: 1234,
        places: places.to_vec(),
        span: Some(LossSpan {
            from_ns: 1_250_000_000,
            until_ns: 59_999_950_000,
        }),
        hosts: Role::ALL.map(HostOf::from).to_vec(),
        ..Losses::default()
    }
}

fn timing() -> Timing {
    Timing {
        lateness_ns_p50: 12,
        lateness_ns_p99: 800,
        lateness_ns_p999: 19_000,
        lateness_ns_max: 310_000,
        bin_10ms_deviation_pct_max: 0.5,
        bin_100ms_deviation_pct_max: 0.05,
        quantum_ns: 10_000,
        burst: 1,
        ..Timing::default()
    }
}

const RTT: Rtt = Rtt {
    p50: Some(123_456),
    p99: Some(9_876_543),
    p999: Some(99_000_000),
    max: Some(1_002_000_000),
    mean: Some(321_098),
};

pub(in crate::report) fn failed() -> TrialResult {
    TrialResult {
        outcome: Outcome::Failed { shortfall: 1234 },
        certified: Some(true),
        rate_qps: 20_000,
        duration_ns: 5_000_000_000,
        timeout_ns: 1_000_000_000,
        queries_due: 100_000,
        queries_sent: 100_000,
        undecided: 0,
        ended_early: false,
        answers: Answers {
            valid: 98_766,
            late: 34,
            missing: 1200,
            duplicate: 2,
            ..Answers::default()
        },
        types: Vec::new(),
        server_is_here: false,
        interrupted: false,
        source_ports: 16,
        policy: None,
        first_wrong: None,
        rtt_percentiles: Vec::new(),
        latency_percentiles: Vec::new(),
        series: Some(series()),
        rtt: RTT,
        timing: timing(),
        machine: usage(),
        tester_drops: 0,
        losses: losses(),
        authority_exit: None,
        error: None,
        authorities: Vec::new(),
        authority_sampled: Some(path().authority),
        authority: Some(counts()),
        names: Some(NAMES),
        achieved: Some(Achieved {
            aaaa_share: Some(0.0),
            cached_share: None,
            amplification: 1.989,
        }),
        service: Some(SERVICE),
        resources: Some(Resources {
            memory_bytes: 41 << 20,
            descriptors: 24,
            threads: 3,
        }),
        path: Some(path()),
        dut_exit: None,
        segmentation: true,
        clocks: Vec::new(),
        connections: None,
        backend: "udp".into(),
        notes: vec!["the DUT's sockets lost 1,150 datagrams".into()],
    }
}

fn counts() -> AuthorityCounts {
    AuthorityCounts {
        aaaa: 99_500,
        a: 99_400,
        answered: 99_400,
        nodata: 99_500,
        ..AuthorityCounts::default()
    }
}

/// A machine on which the DUT had to wait.
pub(super) fn usage() -> Usage {
    Usage {
        span_ns: 6_020_000_000,
        pressure_ns: None,
        roles: vec![RoleUsage {
            host: None,
            role: Role::Dut,
            threads: 3,
            cores: Some("1".into()),
            cpu_ns: 4_900_000_000,
            run_delay_ns: 33_000_000,
            involuntary_switches: 41,
            steal_ns: Some(0),
            foreign_ns: Some(20_000_000),
            neighbour: None,
            throttled_ns: None,
            pressure_ns: None,
            frequency_khz: None,
        }],
    }
}

/// The path of the names of that trial, from the ledgers.
pub(super) fn path() -> Path {
    let mut path = Path {
        fresh_names: 100_000,
        dut_only_percentiles_ns: vec![(50.0, 110_000), (99.0, 9_800_000)],
        ..Path::default()
    };
    (path.questions.aaaa, path.questions.a) = (99_500, 99_400);
    path.answered.names = 98_766;
    (path.answered.aaaa_then_a, path.answered.unasked) = (98_760, 6);
    path.authority.p50_ns = Some(6_656);
    path
}

/// A fault of every kind.
pub(in crate::report) fn faults() -> Vec<TesterFault> {
    let mut faults = vec![
        TesterFault::LateSchedule {
            cause: None,
            lateness_ns: 2,
            limit_ns: 1,
        },
        TesterFault::NetworkLoss(Source {
            host: Role::Measurer.into(),
            link: Some("client".into()),
            counter: "tbf drops".into(),
            count: 8_953,
        }),
        TesterFault::ClockStep { step_ns: -5 },
        TesterFault::RateError(RateError {
            sent: 1,
            due: 2,
            allowed: 0,
        }),
        TesterFault::CatchUpBurst {
            stall_ns: 8_000_000,
            burst_queries: 97,
            limit_queries: 32,
            rate_qps: 12_187,
            lost: 3,
            cause: Some(Cause::Stopped),
        },
        TesterFault::Disturbed {
            role: Role::Dut,
            taken_ns: 2,
            limit_ns: 1,
            cause: Cause::Throttled {
                throttled_ns: 2,
                of_ns: 9,
            },
        },
        TesterFault::Interrupted,
        TesterFault::AuthoritySlow {
            answers: 3,
            slowest_ns: 2,
            limit_ns: 1,
        },
    ];
    faults.extend(faults_of_others());
    faults
}

/// Those of the kernel, the network, the authority and hosts.
fn faults_of_others() -> Vec<TesterFault> {
    vec![
        TesterFault::NetworkDelay(Source {
            host: Role::Dut.into(),
            link: None,
            counter: "overlimits".into(),
            count: 1,
        }),
        TesterFault::NotSent { queries: 1 },
        TesterFault::ReceiveDrops { datagrams: 1 },
        TesterFault::AuthorityDrops { datagrams: 1 },
        TesterFault::AuthorityOverflow { replies: 1 },
        TesterFault::TooFewNames { left: 1, needed: 2 },
        TesterFault::AuthorityDied {
            status: "signal 9".into(),
        },
        TesterFault::HostLate {
            host: "gen1".into(),
            late_ns: 1,
        },
        TesterFault::HostClock {
            host: "gen1".into(),
            bound_ns: 2,
            limit_ns: 1,
        },
        TesterFault::Link {
            error: "EIO".into(),
        },
    ]
}

/// All losses in three tenths of a second, as after a pause of the server.
fn series() -> TimeSeries {
    let mut lost = vec![0; 50];
    lost[10..13].copy_from_slice(&[500, 700, 34]);
    TimeSeries {
        slice_ns: 100_000_000,
        sent: vec![2_000; 50],
        lost,
        latency_ns_p50: vec![Some(112_000); 50],
        latency_ns_p99: vec![Some(812_000); 50],
    }
}
