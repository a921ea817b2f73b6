use super::super::disturbance::tests::row;
use super::*;
use crate::authority::counts::{AuthorityCounts, FaultCounts};
use crate::load::catch_up::Limits;
use crate::machine::Role;
use crate::machine::usage::{RoleUsage, Usage};
use crate::trial::fault::RateError;
use crate::trial::path::AuthorityTimes;
use crate::trial::place::{Evidence, LossEvidence, Losses, Source};
use crate::trial::policy::Policy;
use crate::trial::result::{Answers, CatchUp, Rtt, Timing};

/// A trial of a second with this number of queries without an answer, and every figure that decides.
fn trial(missing: u64) -> TrialResult {
    let queries = 1_000;
    let (sent, due, allowed) = (101, 100, 1);
    let evidence = LossEvidence {
        is_watched: true,
        ..LossEvidence::default()
    };
    let timing = Timing {
        limits: Limits::default(),
        catch_up: CatchUp {
            lost_beyond_bursts: 0,
            ..CatchUp::default()
        },
        rate_error: Some(RateError { sent, due, allowed }),
        ..Timing::default()
    };
    trial_with(queries, missing, timing, evidence)
}

fn trial_with(queries: u64, missing: u64, timing: Timing, evidence: LossEvidence) -> TrialResult {
    TrialResult {
        outcome: Outcome::Failed { shortfall: missing },
        rate_qps: queries,
        duration_ns: SECOND,
        timeout_ns: SECOND,
        queries_due: queries,
        queries_sent: queries,
        undecided: 0,
        ended_early: false,
        answers: Answers {
            valid: queries - missing,
            missing,
            ..Answers::default()
        },
        types: Vec::new(),
        rtt: Rtt::default(),
        server_is_here: false,
        interrupted: false,
        source_ports: 16,
        policy: None,
        first_wrong: None,
        rtt_percentiles: Vec::new(),
        latency_percentiles: Vec::new(),
        series: None,
        timing,
        machine: Usage::default(),
        tester_drops: 0,
        losses: Losses {
            evidence,
            ..Losses::default()
        },
        authority_exit: None,
        error: None,
        authority: None,
        authorities: Vec::new(),
        authority_sampled: None,
        names: None,
        certified: Some(true),
        achieved: None,
        service: None,
        path: None,
        resources: None,
        dut_exit: None,
        segmentation: true,
        clocks: Vec::new(),
        connections: None,
        backend: "simulated".to_owned(),
        notes: Vec::new(),
    }
}

fn evidence(trial: &mut TrialResult) -> &mut LossEvidence {
    &mut trial.losses.evidence
}

#[test]
fn losses_on_the_machine_of_the_tester_are_judged_below_a_tenth_of_pressure_only() {
    let judged = |missing, here, pressure_ns| {
        let mut trial = trial(missing);
        trial.timing.rate_error = Some(RateError::default());
        trial.server_is_here = here;
        trial.machine.span_ns = SECOND;
        trial.machine.pressure_ns = pressure_ns;
        judge(&trial)
    };
    let (limit, above) = (Some(SECOND / 10), Some(SECOND / 10 + 1));
    let crowded = judged(1, true, above);
    let cause = match crowded.fault() {
        Some(TesterFault::Disturbed { cause, .. }) => cause,
        other => panic!("{other:?}"),
    };
    assert!(matches!(cause, Cause::Crowded { .. }), "{cause:?}");
    for (missing, here, pressure_ns) in [
        (1, true, limit),
        (1, true, None),
        (1, false, above),
        (0, true, above),
    ] {
        let outcome = judged(missing, here, pressure_ns);
        assert!(outcome.is_valid(), "{outcome:?}");
    }
    let mut limited = trial(1);
    limited.timing.rate_error = Some(RateError::default());
    limited.server_is_here = true;
    (limited.machine.span_ns, limited.machine.pressure_ns) = (SECOND, above);
    limited.policy = Some(Policy::PerSecond { answers: 300 });
    assert_eq!(judge(&limited), Outcome::Failed { shortfall: 1 });
}

fn source() -> Source {
    Source {
        host: Role::Dut.into(),
        link: Some("client".to_owned()),
        counter: "tbf drops".to_owned(),
        count: 3,
    }
}

fn found(place: Place, kind: LossKind) -> Evidence {
    Evidence {
        place,
        kind,
        source: source(),
        low: 0,
        high: Some(3),
    }
}

type Change = fn(&mut TrialResult);

/// What makes a trial with three missing answers invalid, in the order of the rules.
const FAULTS: [(&str, Change); 18] = [
    ("interrupted", |t| t.interrupted = true),
    ("authority_died", |t| {
        t.authority_exit = Some("signal 9".to_owned())
    }),
    ("link", |t| t.error = Some("no such device".to_owned())),
    ("clock_step", |t| t.timing.clock_step_ns = -10_001),
    ("host_late", |t| t.clocks = vec![clock(1, 0)]),
    ("host_clock", |t| t.clocks = vec![clock(0, 1_000_001)]),
    ("not_sent", |t| evidence(t).not_sent = 1),
    ("network_loss", |t| {
        (evidence(t).not_sent, evidence(t).refused_by) = (1, Some(source()));
    }),
    ("receive_drops", |t| {
        evidence(t).found = vec![found(Place::Measurer, LossKind::Sockets)];
    }),
    ("authority_drops", |t| {
        evidence(t).found = vec![found(Place::Authority, LossKind::Sockets)];
    }),
    ("network_loss", |t| {
        evidence(t).found = vec![found(Place::ToDut, LossKind::Lost)];
    }),
    ("network_delay", |t| {
        evidence(t).found = vec![found(Place::FromDut, LossKind::Held)];
    }),
    ("authority_overflow", |t| {
        t.authority = Some(AuthorityCounts {
            misbehaviour: Some(FaultCounts {
                overflowed: 1,
                ..FaultCounts::default()
            }),
            ..AuthorityCounts::default()
        });
    }),
    ("late_schedule", |t| t.timing.lateness_ns_max = 10_000_001),
    ("rate_error", |t| {
        t.timing.rate_error.as_mut().unwrap().allowed = 0
    }),
    ("catch_up_burst", |t| t.timing.catch_up.lost_in_bursts = 3),
    ("authority_slow", |t| {
        t.authority_sampled = Some(AuthorityTimes {
            slow: 1,
            max_ns: Some(1),
            ..AuthorityTimes::default()
        });
    }),
    ("disturbed", |t| {
        t.machine = Usage {
            span_ns: SECOND,
            pressure_ns: None,
            roles: vec![RoleUsage {
                steal_ns: Some(SECOND / 2),
                ..row(Role::Dut)
            }],
        };
    }),
];

fn clock(late_ns: Nanos, bound_ns: Nanos) -> HostClock {
    HostClock {
        host: "auth".to_owned(),
        offset_ns: 0,
        bound_ns,
        drift_ppm: 0.0,
        exchanges: 1,
        late_ns,
    }
}

fn fault(trial: &TrialResult) -> Option<&'static str> {
    judge(trial).fault().map(TesterFault::code)
}

#[test]
fn outcome_follows_from_counts_without_a_fault() {
    assert_eq!(judge(&trial(0)), Outcome::Passed);
    assert_eq!(judge(&trial(3)), Outcome::Failed { shortfall: 3 });
    let mut ended_early = trial(0);
    ended_early.ended_early = true;
    assert_eq!(judge(&ended_early), Outcome::Failed { shortfall: 0 });
}

#[test]
fn each_fault_follows_from_its_figures_whatever_the_outcome_is() {
    for (code, change) in FAULTS {
        let mut trial = trial(3);
        change(&mut trial);
        assert_eq!(fault(&trial), Some(code));
        trial.outcome = judge(&trial);
        assert_eq!(fault(&trial), Some(code), "its own outcome is not read");
    }
}

#[test]
fn first_rule_names_the_fault() {
    for (first, rest) in (1..).zip(FAULTS) {
        let mut trial = trial(3);
        FAULTS[first..]
            .iter()
            .for_each(|(_, change)| change(&mut trial));
        // Both set the same figure.
        let is_same = |other: &(&str, Change)| matches!(other.0, "host_clock" | "network_loss");
        if FAULTS.get(first).is_some_and(is_same) {
            continue;
        }
        rest.1(&mut trial);
        assert_eq!(fault(&trial), Some(rest.0));
    }
}

#[test]
fn pass_stands_despite_losses_without_effect() {
    let harmless = [
        "receive_drops",
        "authority_drops",
        "network_delay",
        "catch_up_burst",
        "authority_slow",
        "disturbed",
    ];
    for (code, change) in FAULTS {
        let mut trial = trial(0);
        change(&mut trial);
        if harmless.contains(&code) {
            assert_eq!(judge(&trial), Outcome::Passed, "{code}");
        }
    }
}
