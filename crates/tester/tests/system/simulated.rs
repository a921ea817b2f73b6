//! The Measurer against simulated DUTs, with exact verdicts.

use dns64_transport::Carrier;
use dns64_transport::clock::SECOND;
use dns64_transport::memory::Impairment;
use dns64bench::load::generator::Generator;
use dns64bench::load::ledger::Ledger;
use dns64bench::trial::TrialSpec;
use dns64bench::trial::fault::TesterFault;
use dns64bench::trial::policy::Policy;
use dns64bench::trial::result::{Answers, Outcome, TrialResult};
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::{AuthorityReport, ShardReport, Surroundings};

use crate::script::{Conduct, Fault};
use crate::trial::{MILLISECOND, NONE, PLAIN, Trial};

#[test]
fn good_dut_passes_and_schedule_is_kept() {
    let result = PLAIN.against(Conduct::Good);
    assert_eq!(result.outcome, Outcome::Passed);
    assert_eq!(
        result.answers,
        Answers {
            valid: 2000,
            ..NONE
        }
    );
    assert_eq!((result.queries_due, result.queries_sent), (2000, 2000));
    assert!(
        result.timing.lateness_ns_max <= 2,
        "the step of the simulation is 1 ns"
    );
    assert!(result.timing.bin_10ms_deviation_pct_max.abs() < f64::EPSILON);
    assert!(
        (200_000..=201_000).contains(&result.rtt.p50.unwrap()),
        "{:?}",
        result.rtt
    );
}

#[test]
fn each_fault_of_dut_is_counted_in_its_class() {
    let all = |class: fn(&mut Answers) -> &mut u64| {
        let mut answers = NONE;
        *class(&mut answers) = 2000;
        answers
    };
    let some = |valid, missing| Answers {
        valid,
        missing,
        ..NONE
    };
    let garbage = Answers {
        stray: 2000,
        missing: 2000,
        ..NONE
    };
    let cases = [
        (Conduct::Always(Fault::WrongAddress), all(|a| &mut a.wrong)),
        (Conduct::Always(Fault::Empty), all(|a| &mut a.empty)),
        (Conduct::Always(Fault::ServFail), all(|a| &mut a.error)),
        (Conduct::Always(Fault::Truncated), all(|a| &mut a.truncated)),
        (Conduct::Always(Fault::Garbage), garbage),
        (Conduct::Always(Fault::Silent), all(|a| &mut a.missing)),
        (Conduct::DieAfter(500), some(500, 1500)),
        (Conduct::LoseEvery(1000), some(1998, 2)),
    ];
    for (conduct, expected) in cases {
        let result = PLAIN.against(conduct);
        assert_eq!(result.answers, expected);
        let shortfall = 2000 - expected.valid;
        assert_eq!(result.outcome, Outcome::Failed { shortfall });
    }
}

#[test]
fn policies_of_a_dut_are_recognised_and_its_capacity_is_none() {
    let trial = |conduct, authority_exit: Option<&str>| {
        let around = Surroundings {
            certified: Some(true),
            authority_exit: authority_exit.map(str::to_owned),
            ..Surroundings::default()
        };
        let trial = Trial {
            duration_ns: 3 * SECOND,
            ..PLAIN
        };
        trial.amid(around, conduct, 1)
    };
    let policy = |conduct| trial(conduct, None).policy;
    let limit = Policy::PerSecond { answers: 1000 };
    assert_eq!(policy(Conduct::PerSecond(1000)), Some(limit));
    let refused = Policy::Refused { answers: 6000 };
    assert_eq!(policy(Conduct::Always(Fault::Refused)), Some(refused));
    let truncated = Policy::Truncated {
        answers: 6000,
        silent: 0,
    };
    assert_eq!(policy(Conduct::Always(Fault::Truncated)), Some(truncated));
    let silence =
        "no query was answered from 1.25 s on: the DUT stopped, or it has a rate limit".to_owned();
    for conduct in [
        Conduct::Good,
        Conduct::PerSecond(2000),
        Conduct::Bounded(1000, 64),
        Conduct::Queue(1000),
        Conduct::LoseEvery(7),
        Conduct::DieAfter(2500),
        Conduct::Always(Fault::ServFail),
    ] {
        let TrialResult { policy, notes, .. } = trial(conduct, None);
        assert_eq!(policy, None, "{conduct:?}");
        let is_silent = matches!(conduct, Conduct::DieAfter(_));
        assert_eq!(
            notes.contains(&silence),
            is_silent,
            "{conduct:?}: {notes:?}"
        );
    }
    // What the fault of the Tester explains is not blamed on the DUT.
    let invalid = trial(Conduct::DieAfter(2500), Some("signal: 9"));
    assert!(matches!(invalid.outcome, Outcome::Invalid(_)));
    assert!(!invalid.notes.contains(&silence), "{:?}", invalid.notes);
}

#[test]
fn answer_counts_until_timeout_and_not_after_it() {
    let travel = 200_000;
    let in_time = PLAIN.against(Conduct::Late(PLAIN.timeout_ns - travel));
    assert_eq!(in_time.outcome, Outcome::Passed);
    let late = PLAIN.against(Conduct::Late(PLAIN.timeout_ns - travel + 1));
    assert_eq!(late.answers, Answers { late: 2000, ..NONE });
}

#[test]
fn wait_for_late_answers_ends_after_timeout() {
    // The queries of the last 10 ms are answered after the end of the trial.
    let result = PLAIN.against(Conduct::Late(2 * PLAIN.timeout_ns + 10 * MILLISECOND));
    let Answers { late, missing, .. } = result.answers;
    let expected = Answers {
        late,
        missing,
        ..NONE
    };
    assert_eq!(result.answers, expected);
    assert_eq!(late + missing, 2000);
    assert!((15..=25).contains(&missing), "{missing}");
}

#[test]
fn duplicates_are_counted_and_do_not_fail_trial() {
    let result = PLAIN.against(Conduct::Always(Fault::Twice));
    assert_eq!(result.outcome, Outcome::Passed);
    assert_eq!(
        result.answers,
        Answers {
            valid: 2000,
            duplicate: 2000,
            ..NONE
        }
    );
}

#[test]
fn queueing_dut_passes_by_equation_1_of_paper_000() {
    // A server of 1,600 qps that queues everything answers 1 s of 2,000 qps within a timeout of 250 ms: r = r_T / (1 +
    // t_TO / t_Test).
    assert_eq!(PLAIN.against(Conduct::Queue(1601)).outcome, Outcome::Passed);
    let result = PLAIN.against(Conduct::Queue(1500));
    assert!(matches!(result.outcome, Outcome::Failed { .. }));
    assert_eq!(
        result.answers.valid + result.answers.late + result.answers.missing,
        2000
    );
    assert!(result.answers.late > 0);
}

#[test]
fn failing_trial_ends_when_first_loss_is_certain() {
    let result = Trial {
        stop_early: true,
        ..PLAIN
    }
    .against(Conduct::DieAfter(500));
    assert!(result.ended_early);
    // Query 500 is sent at 250 ms and decided at 500 ms, when some 1,000 were sent.
    assert!(
        (1000..=1004).contains(&result.queries_sent),
        "{}",
        result.queries_sent
    );
    assert_eq!(result.answers.valid, 500);
    assert!(
        matches!(result.outcome, Outcome::Failed { shortfall: 1..=4 }),
        "{:?}",
        result.outcome
    );
    assert_eq!(
        result.answers.missing + result.undecided,
        result.queries_sent - 500
    );
    let wrong = Trial {
        stop_early: true,
        ..PLAIN
    }
    .against(Conduct::Always(Fault::WrongAddress));
    assert!(wrong.queries_sent <= 4, "a wrong answer is decided at once");
}

#[test]
fn passing_trial_never_ends_early() {
    let result = Trial {
        stop_early: true,
        ..PLAIN
    }
    .against(Conduct::Late(240 * MILLISECOND));
    assert_eq!(result.outcome, Outcome::Passed);
    assert_eq!(result.queries_sent, 2000);
}

#[test]
fn loss_reordering_and_duplication_are_counted_exactly() {
    let impairment = Impairment {
        delay_ns: 100_000,
        jitter_ns: 50 * MILLISECOND,
        loss_ppm: 10_000,
        duplicate_ppm: 10_000,
    };
    let trial = Trial {
        impairment,
        ..PLAIN
    };
    for seed in 0..5 {
        let result = trial.run(Conduct::Good, seed);
        let Answers {
            valid,
            missing,
            duplicate,
            ..
        } = result.answers;
        assert_eq!(
            result.answers,
            Answers {
                valid,
                missing,
                duplicate,
                ..NONE
            }
        );
        assert_eq!(valid + missing, 2000);
        assert!(
            (10..90).contains(&missing) && duplicate > 10,
            "{:?}",
            result.answers
        );
    }
}

#[test]
fn repeated_name_is_matched_by_id_and_port() {
    let impairment = Impairment {
        jitter_ns: 20 * MILLISECOND,
        ..PLAIN.impairment
    };
    for cached_share in ["0.2", "1"] {
        let result = Trial {
            cached_share,
            impairment,
            ..PLAIN
        }
        .against(Conduct::Good);
        assert_eq!(
            result.answers,
            Answers {
                valid: 2000,
                ..NONE
            }
        );
    }
}

#[test]
fn repeated_names_have_valid_answers() {
    let impairment = Impairment {
        jitter_ns: 20 * MILLISECOND,
        ..PLAIN.impairment
    };
    for pattern in ["stack:1", "stack:100", "window:50", "zipf:1000,1.2"] {
        for cached_share in ["0.5", "0.9", "1"] {
            let result = Trial {
                cached_share,
                pattern: pattern.parse().unwrap(),
                impairment,
                ..PLAIN
            }
            .against(Conduct::Good);
            assert_eq!(result.answers.valid, 2000, "{pattern} {cached_share}");
        }
    }
}

#[test]
fn wrapped_ids_still_match_at_high_rates() {
    let trial = Trial {
        rate_qps: 400_000,
        timeout_ns: 100 * MILLISECOND,
        ..PLAIN
    };
    let result = trial.against(Conduct::LoseEvery(100_000));
    assert_eq!(
        result.answers,
        Answers {
            valid: 399_996,
            missing: 4,
            ..NONE
        }
    );
}

#[test]
fn fault_of_tester_is_never_failure_of_dut() {
    let spec = PLAIN.spec();
    let outcome = |shard| result(&spec, &[shard], None, Surroundings::default()).outcome;

    let mut shard = report(&spec);
    shard.error = Some("boom".into());
    let fault = TesterFault::Link {
        error: "boom".into(),
    };
    assert_eq!(outcome(shard), Outcome::Invalid(fault));

    let mut shard = report(&spec);
    shard.clock_step_ns = -SECOND.cast_signed();
    let fault = TesterFault::ClockStep {
        step_ns: -SECOND.cast_signed(),
    };
    assert_eq!(outcome(shard), Outcome::Invalid(fault));
}

#[test]
fn drops_of_tester_that_explain_missing_answers_are_not_failure_of_dut() {
    let judged = |conduct, receive_drops, receive_drops_of_authority| {
        let mut reports = PLAIN.reports(conduct, 1);
        reports[0].counters.receive_drops = receive_drops;
        let authority = AuthorityReport {
            receive_drops: receive_drops_of_authority,
            ..AuthorityReport::default()
        };
        let around = Surroundings::default();
        let judged = result(&PLAIN.spec(), &reports, Some(&authority), around);
        (judged.answers.missing, judged.outcome, judged.notes.len())
    };
    // Without missing answers, as with lost duplicates, the drops are only reported.
    assert_eq!(judged(Conduct::Good, 3, 2), (0, Outcome::Passed, 2));
    let (missing, outcome, _) = judged(Conduct::LoseEvery(1_000), 3, 0);
    let fault = TesterFault::ReceiveDrops { datagrams: 3 };
    assert!(missing > 0);
    assert_eq!(outcome, Outcome::Invalid(fault));
    // A packet contains at most 128 responses: the DUT lost many more than one packet.
    let (missing, outcome, _) = judged(Conduct::LoseEvery(10), 1, 0);
    assert!(missing > 128);
    assert_eq!(outcome, Outcome::Failed { shortfall: missing });
    // One upstream query that the authority lost can cost any number of answers.
    let (_, outcome, _) = judged(Conduct::LoseEvery(10), 1, 2);
    let fault = TesterFault::AuthorityDrops { datagrams: 2 };
    assert_eq!(outcome, Outcome::Invalid(fault));
}

/// A shard that sent nothing, for faults that take precedence over all its data.
fn report(spec: &TrialSpec) -> ShardReport {
    ShardReport {
        finished: Generator::new(spec.shard(0, 1), 1, Ledger::default()).finish(),
        ports: 1,
        counters: dns64_transport::Counters::default(),
        connections: dns64_transport::stream::Connections::default(),
        clock_step_ns: 0,
        carrier: Carrier::Memory,
        error: None,
    }
}
