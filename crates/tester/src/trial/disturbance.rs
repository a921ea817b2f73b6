//! From what the machine did during a trial to whether others had the cores of a role: pure functions on plain
//! data.
//!
//! It is for trials that failed: a DUT that passed with less than its core can do more, so a pass under theft is
//! a lower bound and stays a pass. And it explains no more losses than queries were due while the core was taken
//! and until a server with a tenth of reserve has worked off what had come meanwhile: ten times as long again, in which
//! all answers may be late. What is lost beyond is lost without it. The DUT and the authority are judged by the share of the trial in
//! which they were kept from their cores. The Measurer is judged by what it did, the lateness of each
//! query (`timing`), which is exact; its counters only tell why it was late.

use dns64_transport::clock::Nanos;

use super::cause::Cause;
use super::result::TesterFault;
use crate::lab::topology::Role;
use crate::lab::usage::{RoleUsage, TICK_NS, Usage};
use crate::load::catch_up::{Limits, RESERVE};
use crate::load::pace::Schedule;

/// The fault of a trial that failed by these losses while others had the core of its DUT or its authority
/// for longer than is allowed.
pub(super) fn fault(
    usage: &Usage,
    limits: &Limits,
    schedule: &Schedule,
    lost: u64,
) -> Option<TesterFault> {
    let explains = |fault: &TesterFault| match fault {
        TesterFault::Disturbed { taken_ns, .. } => {
            let felt_ns = taken_ns.saturating_mul(1 + RESERVE);
            lost <= schedule.due_within(felt_ns)
        }
        _ => false,
    };
    theft(usage, limits).filter(explains)
}

/// The fault of a role that was kept from its core for longer than is allowed, whatever became of the trial.
fn theft(usage: &Usage, limits: &Limits) -> Option<TesterFault> {
    [Role::Dut, Role::Authority].into_iter().find_map(|role| {
        let row = usage.of(role)?;
        let (taken_ns, limit_ns) = (taken(row).0, limit_ns(usage, row, limits));
        (taken_ns > limit_ns).then(|| TesterFault::Disturbed {
            role,
            taken_ns,
            limit_ns,
            cause: cause(usage, row),
        })
    })
}

/// The same as a remark on a trial that passed.
pub(super) fn remark(usage: &Usage, limits: &Limits) -> Option<String> {
    match theft(usage, limits)? {
        TesterFault::Disturbed { role, cause, .. } => Some(format!(
            "passed although {}: it may pass at a higher rate",
            cause.what(role)
        )),
        _ => None,
    }
}

/// A fault of the sender with what held it up, if the machine tells.
pub(super) fn explained(fault: TesterFault, usage: Option<&Usage>) -> TesterFault {
    fault.caused(|stall_ns| cause_of_stall(usage?, stall_ns))
}

/// Why a sender was held up for so long, by the counters of the Measurer: what they tell has to cover
/// at least half of the stall. `None` without counters.
fn cause_of_stall(usage: &Usage, stall_ns: Nanos) -> Option<Cause> {
    let row = usage.of(Role::Measurer)?;
    let (told_ns, of) = taken(row);
    // A neighbour is known by the delay, even where the kernel does not tell what it used.
    let delayed_ns = row.run_delay_ns.max(told_ns);
    if delayed_ns < stall_ns / 2 {
        return Some(Cause::Stopped);
    }
    match of {
        Taken::Others => Some(neighbour(usage, row)),
        _ if told_ns < stall_ns / 2 => Some(neighbour(usage, row)),
        _ => Some(cause(usage, row)),
    }
}

/// The largest part of what was taken from a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Quota,
    Host,
    Others,
}

/// For how long a role was kept from its cores, and by what for the most part.
///
/// Threads of one role wait for each other as well, and others may run on a core while the role has nothing to do:
/// neither harms. So of both, run delay and CPU time of others, the lesser counts. Who waits because of a quota has
/// run delay too.
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
    (host_ns + others_ns.max(quota_ns), by)
}

/// The trial on all cores of a role.
fn span_ns(usage: &Usage, row: &RoleUsage) -> Nanos {
    let cores = row.cores.as_deref().and_then(|cores| cores.parse().ok());
    let cores = cores.map_or(1, |set: crate::lab::cpuset::CpuSet| set.cpus().len().max(1));
    usage.span_ns * cores as u64
}

/// The share that is allowed, but not less than the kernel can tell: two steps of its counters.
fn limit_ns(usage: &Usage, row: &RoleUsage, limits: &Limits) -> Nanos {
    let allowed = limits.max_stolen_pct / 100.0 * span_ns(usage, row) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a positive span"
    )]
    let allowed_ns = allowed as Nanos;
    allowed_ns.max(2 * TICK_NS)
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
        foreign_ns: row.foreign_ns.unwrap_or(row.run_delay_ns),
        of_ns: span_ns(usage, row),
        cores: row.cores.clone(),
        process: row.neighbour.clone().map(|n| (n.name, n.pid)),
    }
}

#[cfg(test)]
mod tests {
    use dns64_transport::clock::SECOND;

    use super::*;
    use crate::lab::usage::Neighbour;

    const MS: Nanos = 1_000_000;

    /// A role that had core 1 for itself.
    fn row(role: Role) -> RoleUsage {
        RoleUsage {
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

    /// A trial of 10 s in which this happened to the DUT.
    fn judged(change: impl FnOnce(&mut RoleUsage)) -> Option<Cause> {
        let mut dut = row(Role::Dut);
        change(&mut dut);
        let usage = Usage {
            span_ns: 10 * SECOND,
            pressure_ns: None,
            roles: vec![row(Role::Measurer), row(Role::Authority), dut],
        };
        match theft(&usage, &Limits::default())? {
            TesterFault::Disturbed {
                role: Role::Dut,
                cause,
                ..
            } => Some(cause),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn others_on_the_core_count_as_far_as_the_dut_had_to_wait() {
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
        assert_eq!(used(5 * SECOND, 100 * MS), None, "it did not want the core");
        assert_eq!(
            used(100 * MS, 5 * SECOND),
            None,
            "its threads waited for each other"
        );
    }

    #[test]
    fn the_host_and_a_quota_take_time_as_well() {
        let stolen = judged(|dut| dut.steal_ns = Some(110 * MS));
        assert!(matches!(stolen, Some(Cause::Stolen { .. })), "{stolen:?}");
        // A quota shows as run delay too, and is not counted twice.
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
    fn what_the_kernel_does_not_tell_accuses_nobody() {
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
        assert_eq!(
            theft(&short, &Limits::default()),
            None,
            "two steps of the counter"
        );
        short.roles[0].steal_ns = Some(3 * TICK_NS);
        assert!(theft(&short, &Limits::default()).is_some());
    }

    #[test]
    fn the_share_is_one_of_all_cores_of_the_role() {
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
    fn theft_from_the_authority_counts_and_from_the_measurer_does_not() {
        let of = |role| {
            let mut row = row(role);
            row.steal_ns = Some(SECOND);
            let usage = Usage {
                span_ns: 10 * SECOND,
                pressure_ns: None,
                roles: vec![row],
            };
            let limits = Limits::default();
            assert_eq!(
                remark(&usage, &limits).is_some(),
                theft(&usage, &limits).is_some()
            );
            theft(&usage, &limits)
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

    #[test]
    fn a_stall_is_put_down_to_what_covers_half_of_it() {
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
        assert_eq!(why(|m| m.run_delay_ns = 24 * MS), Cause::Stopped);
        let delayed = why(|m| (m.run_delay_ns, m.foreign_ns) = (25 * MS, None));
        assert!(matches!(
            delayed,
            Cause::Neighbour {
                foreign_ns: 25_000_000,
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
}
