//! Decides from the machine's counters during a trial whether other processes had the cores of a role: pure functions
//! on plain data.
//!
//! Applies only to failed trials. A DUT that passes with less than its core can achieve more, so a pass despite a
//! disturbance is a lower bound and remains a pass. A disturbance explains at most the queries that were due while the
//! core was taken and until the backlog is processed. With a reserve of a tenth that takes ten times as long again,
//! during which all answers may be late. A server with several cores loses them one at a time, so the time is divided
//! by their number. All further losses have another reason.
//!
//! The DUT and the authority are judged by the share of the trial without their cores. The Measurer is judged by the
//! lateness of each query (`timing`), which is exact; its counters only explain the lateness.

use dns64_transport::clock::Nanos;

use super::cause::Cause;
use super::fault::TesterFault;
use super::place::LossSpan;
use super::result::Timing;
use crate::load::catch_up::{Limits, RESERVE};
use crate::load::pace::Schedule;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::machine::usage::{RoleUsage, TICK_NS, Usage};

/// Returns the fault of a failed trial if others had the core of its DUT or its authority for longer than allowed. The
/// arguments are the number of queries without a valid answer, and the span in which they were sent, if it is known. If
/// that span is within the effect of one disturbance, a tenth of the allowed share is sufficient: a DUT that is too
/// slow loses queries all the time.
pub(super) fn fault(
    usage: &Usage,
    limits: &Limits,
    schedule: &Schedule,
    (queries, span): (u64, Option<LossSpan>),
) -> Option<TesterFault> {
    ROLES.into_iter().find_map(|role| {
        let row = usage.of(role)?;
        let felt_ns = felt_ns(row);
        let is_short = span.is_some_and(|span| span.span_ns() <= felt_ns);
        let part = if is_short { SHORT } else { 1 };
        let explains = queries <= schedule.due_within(felt_ns);
        theft(usage, row, limit_ns(usage, row, limits) / part).filter(|_| explains)
    })
}

/// Roles whose cores must be undisturbed. The Measurer is judged by its timing.
const ROLES: [Role; 2] = [Role::Dut, Role::Authority];

/// Divisor of the allowed share for losses that are close together: a choice, not a measurement.
const SHORT: Nanos = 10;

/// Returns the fault of a role that was without its core for longer than `limit_ns`, regardless of the outcome.
fn theft(usage: &Usage, row: &RoleUsage, limit_ns: Nanos) -> Option<TesterFault> {
    let taken_ns = taken(row).0;
    let limit_ns = limit_ns.max(2 * TICK_NS);
    (taken_ns > limit_ns).then(|| TesterFault::Disturbed {
        role: row.role,
        taken_ns,
        limit_ns,
        cause: cause(usage, row),
    })
}

/// Returns the duration of the effect of a disturbance on each core of the role: until a server with a reserve of a
/// tenth has processed the backlog.
fn felt_ns(row: &RoleUsage) -> Nanos {
    (taken(row).0 / cores(row)).saturating_mul(1 + RESERVE)
}

/// Returns the disturbance as a remark on a trial that is not invalid for it.
pub(super) fn remark(usage: &Usage, limits: &Limits, has_passed: bool) -> Option<String> {
    let rows = ROLES.into_iter().filter_map(|role| usage.of(role));
    let (row, cause) = rows.into_iter().find_map(|row| {
        match theft(usage, row, limit_ns(usage, row, limits))? {
            TesterFault::Disturbed { cause, .. } => Some((row, cause)),
            _ => None,
        }
    })?;
    let what = cause.what(row.role);
    Some(match has_passed {
        true => format!("passed although {what}: it may pass at a higher rate"),
        false => format!("{what}, which accounts for only part of the losses"),
    })
}

/// Adds the cause of the delay to a fault of the sender, if the counters or its lateness show it.
pub(super) fn explained(fault: TesterFault, usage: &Usage, timing: &Timing) -> TesterFault {
    fault.caused(|stall_ns| match cause_of_stall(usage, stall_ns)? {
        Cause::Stopped if timing.is_behind() => Some(Cause::Behind),
        cause => Some(cause),
    })
}

/// Returns the cause of a sender's stall from the counters of the Measurer. Waiting for a core delays the sender for
/// the whole stall, so the counters must cover most of it. `None` without counters.
fn cause_of_stall(usage: &Usage, stall_ns: Nanos) -> Option<Cause> {
    let row = usage.of(Role::Measurer)?;
    let most_ns = stall_ns / 4 * 3;
    let (told_ns, of) = taken(row);
    // The run delay shows a neighbour even if the kernel does not report its CPU time.
    if row.run_delay_ns.max(told_ns) < most_ns {
        return Some(Cause::Stopped);
    }
    match of {
        Taken::Others => Some(neighbour(usage, row)),
        _ if told_ns < most_ns => Some(neighbour(usage, row)),
        _ => Some(cause(usage, row)),
    }
}

/// Largest part of the time taken from a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Quota,
    Host,
    Others,
}

/// Returns how long a role was without its cores, and the main reason.
///
/// Threads of one role also wait for each other, and others may use a core while the role is idle: neither has an
/// effect. The smaller of run delay and CPU time of others therefore counts. Throttled processes have run delay too.
fn taken(row: &RoleUsage) -> (Nanos, Taken) {
    let others_ns = row.foreign_ns.unwrap_or(0).min(row.run_delay_ns);
    let quota_ns = row.throttled_ns.unwrap_or(0);
    let host_ns = row.steal_ns.unwrap_or(0);
    let parts = [
        (others_ns, Taken::Others),
        (host_ns, Taken::Host),
        (quota_ns, Taken::Quota),
    ];
    let most = parts.into_iter().max_by_key(|(part_ns, _)| *part_ns);
    let by = most.map_or(Taken::Others, |(_, by)| by);
    (host_ns.saturating_add(others_ns.max(quota_ns)), by)
}

/// Returns the share of the trial, over all its cores, in which a role was without them, in per cent. `max-stolen`
/// limits it for the DUT and the authority.
pub fn taken_pct(usage: &Usage, row: &RoleUsage) -> f64 {
    let span_ns = span_ns(usage, row).max(1);
    100.0 * taken(row).0 as f64 / span_ns as f64
}

/// Returns the length of the trial, times the cores of a role.
fn span_ns(usage: &Usage, row: &RoleUsage) -> Nanos {
    usage.span_ns.saturating_mul(cores(row))
}

/// Returns the number of cores of a role; 1 without an affinity.
fn cores(row: &RoleUsage) -> u64 {
    let set = row.cores.as_deref().and_then(|cores| cores.parse().ok());
    set.map_or(1, |set: CpuSet| set.cpus().len().max(1) as u64)
}

/// Returns the allowed time.
fn limit_ns(usage: &Usage, row: &RoleUsage, limits: &Limits) -> Nanos {
    let allowed = limits.max_stolen_pct / 100.0 * span_ns(usage, row) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a positive span"
    )]
    let allowed_ns = allowed as Nanos;
    allowed_ns
}

fn cause(usage: &Usage, row: &RoleUsage) -> Cause {
    match taken(row).1 {
        Taken::Quota => Cause::Throttled {
            throttled_ns: row.throttled_ns.unwrap_or(0),
            of_ns: usage.span_ns,
        },
        Taken::Host => Cause::Stolen {
            steal_ns: row.steal_ns.unwrap_or(0),
            of_ns: span_ns(usage, row),
            cores: row.cores.clone().unwrap_or_default(),
        },
        Taken::Others => neighbour(usage, row),
    }
}

fn neighbour(usage: &Usage, row: &RoleUsage) -> Cause {
    Cause::Neighbour {
        // Less than one step of the counter is not significant.
        foreign_ns: row
            .foreign_ns
            .filter(|ns| *ns >= TICK_NS)
            .unwrap_or(row.run_delay_ns),
        of_ns: span_ns(usage, row),
        cores: row.cores.clone(),
        process: row.neighbour.clone().map(|n| (n.name, n.pid)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use dns64_transport::clock::SECOND;

    use super::*;
    use crate::machine::usage::Neighbour;

    const MS: Nanos = 1_000_000;

    /// A role with core 1 for itself.
    pub(in crate::trial) fn row(role: Role) -> RoleUsage {
        RoleUsage {
            host: None,
            role,
            threads: 2,
            cores: Some("1".into()),
            cpu_ns: SECOND,
            run_delay_ns: 0,
            involuntary_switches: 0,
            steal_ns: Some(0),
            foreign_ns: Some(0),
            neighbour: None,
            throttled_ns: Some(0),
            pressure_ns: None,
            frequency_khz: None,
        }
    }

    /// The disturbance beyond the share that is allowed for a trial with any losses.
    fn theft_of_any(usage: &Usage) -> Option<TesterFault> {
        let schedule = Schedule::new(1000, 10 * SECOND);
        fault(usage, &Limits::default(), &schedule, (0, None))
    }

    /// A trial of 10 s with this effect on the DUT.
    fn judged(change: impl FnOnce(&mut RoleUsage)) -> Option<Cause> {
        let mut dut = row(Role::Dut);
        change(&mut dut);
        let usage = Usage {
            span_ns: 10 * SECOND,
            pressure_ns: None,
            roles: vec![row(Role::Measurer), row(Role::Authority), dut],
        };
        match theft_of_any(&usage)? {
            TesterFault::Disturbed {
                role: Role::Dut,
                cause,
                ..
            } => Some(cause),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cpu_time_of_others_counts_up_to_run_delay() {
        let used = |foreign, delay| {
            judged(|dut| {
                dut.foreign_ns = Some(foreign);
                dut.run_delay_ns = delay;
                let (name, pid, cpu_ns) = ("stress-ng".into(), 1234, foreign);
                dut.neighbour = Some(Neighbour { name, pid, cpu_ns });
            })
        };
        let cause = Cause::Neighbour {
            foreign_ns: 5 * SECOND,
            of_ns: 10 * SECOND,
            cores: Some("1".into()),
            process: Some(("stress-ng".into(), 1234)),
        };
        assert_eq!(used(5 * SECOND, 101 * MS), Some(cause));
        assert_eq!(used(5 * SECOND, 100 * MS), None, "it did not need the core");
        assert_eq!(
            used(100 * MS, 5 * SECOND),
            None,
            "its threads waited for each other"
        );
    }

    #[test]
    fn steal_and_throttling_count() {
        let stolen = judged(|dut| dut.steal_ns = Some(110 * MS));
        assert!(matches!(stolen, Some(Cause::Stolen { .. })), "{stolen:?}");
        // A quota also causes run delay, which is not counted twice.
        let throttled = judged(|dut| {
            dut.throttled_ns = Some(2 * SECOND);
            dut.run_delay_ns = 2 * SECOND;
            dut.foreign_ns = Some(SECOND);
        });
        assert!(
            matches!(throttled, Some(Cause::Throttled { .. })),
            "{throttled:?}"
        );
        let together = judged(|dut| {
            dut.steal_ns = Some(60 * MS);
            dut.foreign_ns = Some(50 * MS);
            dut.run_delay_ns = SECOND;
        });
        assert!(
            matches!(together, Some(Cause::Stolen { .. })),
            "{together:?}"
        );
    }

    #[test]
    fn missing_or_insignificant_counters_are_no_disturbance() {
        let unknown = judged(|dut| {
            (dut.cores, dut.steal_ns, dut.foreign_ns) = (None, None, None);
            (dut.throttled_ns, dut.run_delay_ns) = (None, 9 * SECOND);
        });
        assert_eq!(unknown, None);
        let mut short = Usage {
            span_ns: SECOND,
            pressure_ns: None,
            roles: vec![row(Role::Dut)],
        };
        short.roles[0].steal_ns = Some(2 * TICK_NS);
        assert_eq!(theft_of_any(&short), None, "two steps of the counter");
        short.roles[0].steal_ns = Some(3 * TICK_NS);
        assert!(theft_of_any(&short).is_some());
    }

    #[test]
    fn share_is_relative_to_all_cores_of_role() {
        let of_four = |steal_ns| {
            judged(|dut| {
                dut.cores = Some("1-4".into());
                dut.steal_ns = Some(steal_ns);
            })
        };
        assert_eq!(of_four(400 * MS), None);
        assert!(of_four(401 * MS).is_some());
    }

    #[test]
    fn disturbance_of_authority_counts_and_of_measurer_does_not() {
        let of = |role| {
            let mut row = row(role);
            row.steal_ns = Some(SECOND);
            let usage = Usage {
                span_ns: 10 * SECOND,
                pressure_ns: None,
                roles: vec![row],
            };
            let fault = theft_of_any(&usage);
            let remark = remark(&usage, &Limits::default(), true);
            assert_eq!(remark.is_some(), fault.is_some());
            fault
        };
        assert!(matches!(
            of(Role::Authority),
            Some(TesterFault::Disturbed {
                role: Role::Authority,
                ..
            })
        ));
        assert_eq!(of(Role::Measurer), None);
    }

    fn within(span_ns: Nanos) -> LossSpan {
        LossSpan::at(0).with(span_ns)
    }

    /// A trial of 60 s at 20,000 queries/s whose DUT and authority were without their cores for these times.
    fn of_a_minute(
        dut_ns: Nanos,
        authority_ns: Nanos,
        lost: (u64, Option<LossSpan>),
    ) -> Option<Role> {
        let robbed = |role, steal_ns| RoleUsage {
            steal_ns: Some(steal_ns),
            ..row(role)
        };
        let usage = Usage {
            span_ns: 60 * SECOND,
            pressure_ns: None,
            roles: vec![
                robbed(Role::Dut, dut_ns),
                robbed(Role::Authority, authority_ns),
            ],
        };
        let schedule = Schedule::new(20_000, 60 * SECOND);
        match fault(&usage, &Limits::default(), &schedule, lost)? {
            TesterFault::Disturbed { role, .. } => Some(role),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn role_whose_disturbance_explains_losses_counts() {
        let lost = |queries| (queries, Some(within(50 * SECOND)));
        let robbed = |queries| of_a_minute(650 * MS, 20 * SECOND, lost(queries));
        assert_eq!(robbed(143_000), Some(Role::Dut));
        assert_eq!(robbed(200_000), Some(Role::Authority));
        assert_eq!(of_a_minute(650 * MS, 0, lost(143_001)), None);
    }

    #[test]
    fn short_disturbance_explains_losses_close_together() {
        let robbed = |taken_ns, span_ns: Option<Nanos>| {
            let queries = 5000;
            of_a_minute(taken_ns, 0, (queries, span_ns.map(within)))
        };
        assert_eq!(robbed(300 * MS, Some(3300 * MS)), Some(Role::Dut));
        assert_eq!(robbed(300 * MS, Some(3301 * MS)), None, "lost all the time");
        assert_eq!(robbed(300 * MS, None), None, "an older result");
        assert_eq!(robbed(60 * MS, Some(MS)), None, "a thousandth");
    }

    #[test]
    fn disturbance_of_four_cores_lasts_no_longer_than_of_one() {
        let usage = Usage {
            span_ns: 60 * SECOND,
            pressure_ns: None,
            roles: vec![RoleUsage {
                cores: Some("0-3".into()),
                steal_ns: Some(4 * SECOND),
                ..row(Role::Dut)
            }],
        };
        let schedule = Schedule::new(1000, 60 * SECOND);
        let told = |queries| fault(&usage, &Limits::default(), &schedule, (queries, None));
        assert!(told(11_000).is_some());
        assert_eq!(told(11_001), None);
    }

    #[test]
    fn stall_is_attributed_to_cause_that_covers_most_of_it() {
        let why = |change: fn(&mut RoleUsage)| {
            let mut measurer = row(Role::Measurer);
            change(&mut measurer);
            let usage = Usage {
                span_ns: 10 * SECOND,
                pressure_ns: None,
                roles: vec![measurer],
            };
            cause_of_stall(&usage, 50 * MS).unwrap()
        };
        assert_eq!(why(|_| ()), Cause::Stopped);
        assert_eq!(why(|m| m.run_delay_ns = 36 * MS), Cause::Stopped);
        let delayed = why(|m| (m.run_delay_ns, m.foreign_ns) = (40 * MS, None));
        assert!(matches!(
            delayed,
            Cause::Neighbour {
                foreign_ns: 40_000_000,
                ..
            }
        ));
        let busy = why(|m| (m.run_delay_ns, m.foreign_ns) = (48 * MS, Some(60 * MS)));
        assert!(matches!(
            busy,
            Cause::Neighbour {
                foreign_ns: 60_000_000,
                ..
            }
        ));
        let stolen = why(|m| m.steal_ns = Some(50 * MS));
        assert!(matches!(stolen, Cause::Stolen { .. }));
        let quota = why(|m| (m.run_delay_ns, m.throttled_ns) = (50 * MS, Some(50 * MS)));
        assert!(matches!(quota, Cause::Throttled { .. }));
        assert_eq!(cause_of_stall(&Usage::default(), 50 * MS), None);
    }
    #[test]
    fn sender_delayed_only_by_its_rate_is_behind() {
        let usage = Usage {
            span_ns: 10 * SECOND,
            pressure_ns: None,
            roles: vec![row(Role::Measurer)],
        };
        let why = |lateness_ns_p50| {
            let timing = Timing {
                lateness_ns_p50,
                ..Timing::default()
            };
            let late = TesterFault::LateSchedule {
                lateness_ns: 326 * MS,
                limit_ns: 10 * MS,
                cause: None,
            };
            match explained(late, &usage, &timing) {
                TesterFault::LateSchedule { cause, .. } => cause,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(why(10 * MS), Some(Cause::Behind));
        assert_eq!(why(10 * MS - 1), Some(Cause::Stopped));
    }
}
