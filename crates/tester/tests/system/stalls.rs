//! Stalls of the Tester, with DUTs that can serve the offered rate but lose queries in the catch-up burst.

use std::convert::Infallible;

use dns64_transport::clock::{Nanos, SECOND};
use dns64bench::machine::Role;
use dns64bench::machine::usage::{RoleUsage, Usage};
use dns64bench::procedure::Trials;
use dns64bench::procedure::search::{self, Resolution, Search, SearchEnd, SearchSpec};
use dns64bench::trial::cause::Cause;
use dns64bench::trial::fault::TesterFault;
use dns64bench::trial::result::{CatchUp, Outcome, TrialResult};
use dns64bench::trial::surroundings::Surroundings;

use crate::script::Conduct;
use crate::trial::{MILLISECOND, Mishap, PLAIN, Trial};

/// Half a second at 20,000 queries per second.
const FAST: Trial = Trial {
    rate_qps: 20_000,
    duration_ns: SECOND / 2,
    ..PLAIN
};

/// Capacity of the DUT in these tests, and length of its queue.
const CAPACITY_QPS: u64 = 20_050;
const QUEUE: u64 = 100;
const DUT: Conduct = Conduct::Bounded(CAPACITY_QPS, QUEUE);

/// A trial with a stall of 8 ms after 200 ms.
fn stalled() -> Trial {
    Trial {
        mishap: Some((200 * MILLISECOND, Mishap::Stall(8 * MILLISECOND))),
        ..FAST
    }
}

fn catch_up(result: &TrialResult) -> CatchUp {
    result.timing.catch_up
}

#[test]
fn losses_in_catch_up_burst_are_attributed_to_tester() {
    assert_eq!(FAST.against(DUT).outcome, Outcome::Passed);
    assert_eq!(catch_up(&FAST.against(DUT)).stalls, 0);
    let result = stalled().against(DUT);
    let told = catch_up(&result);
    let lost = 10_000 - result.answers.valid;
    // 160 queries are delayed, and the queue has 100 places.
    assert!((40..=80).contains(&lost), "{lost}");
    let fault = TesterFault::CatchUpBurst {
        stall_ns: told.stall_ns_max,
        burst_queries: told.burst_queries_max,
        limit_queries: 32,
        rate_qps: 20_000,
        lost,
        cause: None,
    };
    assert_eq!(result.outcome, Outcome::Invalid(fault));
    assert!((158..=162).contains(&told.burst_queries_max), "{told:?}");
    assert!(
        told.stall_ns_max.abs_diff(8 * MILLISECOND) < 100_000,
        "{told:?}"
    );
    assert_eq!((told.stalls, told.lost_in_bursts), (2, lost), "both shards");
}

#[test]
fn dut_with_reserve_loses_nothing_in_spread_burst() {
    // Spread out, the burst of the same stall needs a shorter queue than there is: half of the stall at once, and the
    // rest at 25,000 queries per second.
    let result = stalled().against(Conduct::Bounded(25_000, 70));
    assert_eq!(result.outcome, Outcome::Passed);
}

#[test]
fn pass_with_bursts_stands() {
    let result = stalled().against(Conduct::Good);
    assert_eq!(result.outcome, Outcome::Passed);
    let told = catch_up(&result);
    assert_eq!((told.stalls, told.lost_in_bursts), (2, 0));
}

#[test]
fn loss_outside_bursts_is_attributed_to_dut() {
    // Queries 3,900 and 7,800: before and after the stall.
    let result = stalled().against(Conduct::LoseEvery(3_900));
    assert_eq!(result.outcome, Outcome::Failed { shortfall: 2 });
    assert_eq!(catch_up(&result).lost_in_bursts, 0);
}

#[test]
fn more_losses_than_burst_queries_fail() {
    let dead = Trial {
        duration_ns: 40 * MILLISECOND,
        mishap: Some((MILLISECOND, Mishap::Stall(8 * MILLISECOND))),
        ..FAST
    };
    let result = dead.against(Conduct::DieAfter(30));
    let lost = catch_up(&result).lost_in_bursts;
    assert_eq!(lost, 770, "all of them");
    assert_eq!(result.outcome, Outcome::Failed { shortfall: lost });
}

#[test]
fn losses_explained_by_burst_do_not_end_trial_early() {
    let early = Trial {
        stop_early: true,
        ..stalled()
    };
    let excused = early.against(DUT);
    assert!(matches!(
        excused.outcome,
        Outcome::Invalid(TesterFault::CatchUpBurst { .. })
    ));
    assert_eq!(excused.queries_sent, 10_000);
    let overloaded = early.against(Conduct::Bounded(15_000, QUEUE));
    assert!(matches!(overloaded.outcome, Outcome::Failed { .. }));
    assert!(overloaded.ended_early);
    let stalls = Mishap::Stalls(8 * MILLISECOND, 100 * MILLISECOND);
    let again = Trial {
        duration_ns: 2 * SECOND,
        mishap: Some((30 * MILLISECOND, stalls)),
        ..early
    };
    let dead = again.against(Conduct::DieAfter(2_000));
    assert!(matches!(dead.outcome, Outcome::Failed { .. }));
    assert!(dead.ended_early);
}

/// A Tester that is stalled repeatedly in two of three trials.
struct Stalling {
    conduct: Conduct,
    stalls: Mishap,
    trials: u64,
}

impl Trials for Stalling {
    type Error = Infallible;

    fn trial(&mut self, rate_qps: u64) -> Result<TrialResult, Infallible> {
        self.trials += 1;
        let mishap = Some((37 * MILLISECOND, self.stalls));
        let trial = Trial {
            rate_qps,
            duration_ns: 300 * MILLISECOND,
            stop_early: true,
            mishap: mishap.filter(|_| self.trials % 3 != 1),
            ..FAST
        };
        Ok(trial.against(self.conduct))
    }
}

#[test]
fn stalls_do_not_lower_result_of_search() {
    for (queue, stall_ms, every_ms) in [(50, 5, 40), (100, 8, 130)] {
        let stalls = Mishap::Stalls(stall_ms * MILLISECOND, every_ms * MILLISECOND);
        let spec = SearchSpec {
            resolution: Resolution::Relative { millionths: 10_000 },
            ..SearchSpec::from_start(5_000)
        };
        let mut tester = Stalling {
            conduct: Conduct::Bounded(CAPACITY_QPS, queue),
            stalls,
            trials: 0,
        };
        let Ok(found) = search::run(Search::new(spec), &mut tester, &mut |_| ());
        for trial in &found.trials {
            let failed = matches!(trial.outcome, Outcome::Failed { .. });
            let (rate_qps, outcome) = (trial.rate_qps, &trial.outcome);
            assert!(
                !failed || rate_qps > CAPACITY_QPS,
                "{rate_qps}: {outcome:?}"
            );
        }
        let invalid = |trial: &&TrialResult| trial.outcome.fault().is_some();
        assert!(
            found.trials.iter().any(|trial| invalid(&trial)),
            "{stalls:?}"
        );
        assert_eq!(found.end, SearchEnd::Found, "{stalls:?}");
        // In 0.3 s a queue of 100 hides an overload of 330 queries per second.
        let rate_qps = found.rate_qps.unwrap();
        assert!((19_850..=20_600).contains(&rate_qps), "{rate_qps}");
    }
}

/// A machine on which a role has core 1, and others used it for this part of half a second.
fn shared(role: Role, foreign_ms: Nanos) -> Surroundings {
    let row = RoleUsage {
        host: None,
        role,
        threads: 1,
        cores: Some("1".into()),
        cpu_ns: 300 * MILLISECOND,
        run_delay_ns: foreign_ms * MILLISECOND,
        involuntary_switches: 50,
        steal_ns: Some(0),
        foreign_ns: Some(foreign_ms * MILLISECOND),
        neighbour: None,
        throttled_ns: None,
        pressure_ns: None,
        frequency_khz: None,
    };
    let machine = Usage {
        span_ns: SECOND / 2,
        pressure_ns: None,
        roles: vec![row],
    };
    Surroundings {
        machine,
        ..Surroundings::default()
    }
}

#[test]
fn failure_on_shared_core_is_invalid_and_pass_stands() {
    let losing = Conduct::LoseEvery(1000);
    for role in [Role::Dut, Role::Authority] {
        match FAST.amid(shared(role, 200), losing, 1).outcome {
            Outcome::Invalid(TesterFault::Disturbed { role: whose, .. }) => assert_eq!(whose, role),
            other => panic!("{other:?}"),
        }
    }
    let result = FAST.amid(shared(Role::Dut, 200), Conduct::Good, 1);
    assert_eq!(result.outcome, Outcome::Passed);
    let note = "passed although other processes used 40 % of the DUT's core 1: it may pass at a higher rate";
    assert_eq!(result.notes, [note]);
    // The Measurer was on time nevertheless.
    let result = FAST.amid(shared(Role::Measurer, 200), losing, 1);
    assert_eq!(result.outcome, Outcome::Failed { shortfall: 10 });
}

#[test]
fn burst_and_shared_core_explain_losses_together() {
    // The core explains 5,500 queries, and two bursts explain their 160 queries each.
    let lost = |trial: Trial, after| {
        let result = trial.amid(shared(Role::Dut, 25), Conduct::DieAfter(after), 1);
        let is_excused = matches!(
            result.outcome,
            Outcome::Invalid(TesterFault::Disturbed { .. })
        );
        (10_000 - result.answers.valid, is_excused)
    };
    assert_eq!(lost(stalled(), 4_300), (5_700, true));
    assert_eq!(lost(FAST, 4_300), (5_700, false));
    assert_eq!(lost(stalled(), 4_100), (5_900, false));
}

#[test]
fn shared_core_explains_only_losses_during_backlog() {
    // 25 ms, and 250 ms until the backlog is processed: 5,500 queries.
    let amid = |trial: Trial, conduct| trial.amid(shared(Role::Dut, 25), conduct, 1);
    let some = amid(FAST, Conduct::LoseEvery(2));
    assert!(matches!(
        some.outcome,
        Outcome::Invalid(TesterFault::Disturbed { .. })
    ));
    let all = amid(FAST, Conduct::DieAfter(0));
    assert_eq!(all.outcome, Outcome::Failed { shortfall: 10_000 });
    // It ends at the first loss, with 7,000 open queries that are not answered.
    let early = Trial {
        stop_early: true,
        timeout_ns: 350 * MILLISECOND,
        ..FAST
    };
    let dead = amid(early, Conduct::DieAfter(2_000));
    assert!(
        matches!(dead.outcome, Outcome::Failed { .. }),
        "{:?}",
        dead.outcome
    );
    assert!(
        dead.ended_early && dead.undecided > 6_500,
        "{}",
        dead.undecided
    );
}

#[test]
fn any_number_of_answers_late_by_burst_is_attributed_to_tester() {
    // 160 queries are delayed, and those behind more than 100 others are late.
    let hasty = Trial {
        timeout_ns: 5 * MILLISECOND,
        ..stalled()
    };
    let result = hasty.against(Conduct::Bounded(21_500, 1_000));
    assert!(result.answers.late > 200 && result.answers.missing == 0);
    assert!(
        matches!(
            result.outcome,
            Outcome::Invalid(TesterFault::CatchUpBurst { .. })
        ),
        "{:?}",
        result.outcome
    );
}

#[test]
fn cause_of_stall_is_named() {
    let stopped = Trial {
        mishap: Some((200 * MILLISECOND, Mishap::Stall(50 * MILLISECOND))),
        ..FAST
    };
    let cause = |around| match stopped.amid(around, Conduct::Good, 1).outcome {
        Outcome::Invalid(TesterFault::LateSchedule { cause, .. }) => cause,
        other => panic!("{other:?}"),
    };
    let busy = cause(shared(Role::Measurer, 200));
    assert!(matches!(busy, Some(Cause::Neighbour { .. })), "{busy:?}");
    let mut idle = shared(Role::Measurer, 200);
    for row in &mut idle.machine.roles {
        (row.run_delay_ns, row.foreign_ns) = (0, Some(0));
    }
    assert_eq!(cause(idle), Some(Cause::Stopped));
    assert_eq!(cause(Surroundings::default()), None);
}
