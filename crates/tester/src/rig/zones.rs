//! Checks whether an authority that is a separate program can serve the names of a measurement: enough names for the
//! longest trial, and not too many for this machine.

use super::RigError;
use super::spec::Load;
use crate::lab::profile::Profile;
use crate::lab::zone;
use crate::load::names::{Names, NamespaceTooSmall, RESERVED};
use crate::machine::Machine;
use crate::namespace::{Cidr, Share};

/// Requirements of the trials on an authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Self-tests query it, in which every name has an AAAA.
    pub self_test: bool,
    /// Highest rate of a trial, if it is known beforehand.
    pub highest_qps: Option<u64>,
}

/// Refuses impossible measurements before anything is written or started. The built-in authority stores no names and
/// has no such limits: pass `None` for it.
///
/// # Errors
///
/// The first of its [`faults`].
pub fn check(load: &Load, authority: Option<&Profile>, demand: Demand) -> Result<(), RigError> {
    let Some(profile) = authority else {
        return Ok(());
    };
    let faults = faults(load, profile, demand, &Machine::here());
    faults.into_iter().next().map_or(Ok(()), Err)
}

/// Returns why an authority that is a separate program cannot serve the names of a measurement: too few names for a
/// trial at the highest rate, too little memory, too little disk space for the zone file.
pub fn faults(load: &Load, profile: &Profile, demand: Demand, machine: &Machine) -> Vec<RigError> {
    let (zone, needed) = (load.zone_file(demand.self_test), needed(load, demand));
    let names = check_names(load, demand).err().map(RigError::from);
    let room = zone::faults(profile, &zone, needed, machine);
    names
        .into_iter()
        .chain(room.into_iter().map(RigError::from))
        .collect()
}

/// Refuses a range with too few names for a trial at the highest rate.
///
/// # Errors
///
/// Names a sufficient range.
pub fn check_names(load: &Load, demand: Demand) -> Result<(), NamespaceTooSmall> {
    let needed = needed(load, demand);
    let cidr = load.cidr;
    if needed > cidr.names() {
        let beside = working_set(load) + RESERVED;
        return Err(NamespaceTooSmall {
            cidr,
            left: cidr.names().saturating_sub(beside),
            used: 0,
            needed: needed - beside,
            wider: cidr.widened_to(needed),
        });
    }
    Ok(())
}

/// Returns the smallest sufficient part of the range of `load`: with the same first name, and enough names for a trial
/// at the highest rate. The whole range if that rate is unknown, or no smaller part suffices.
pub fn smallest(load: &Load, demand: Demand) -> Cidr {
    let range = load.cidr;
    if demand.highest_qps.is_none() {
        return range;
    }
    let fits = |cidr: &Cidr| load.cached_share == Share::NONE || load.pattern.fits(*cidr).is_ok();
    let first = range.narrowed_to(needed(load, demand));
    let wider = |cidr: &Cidr| range.narrowed_to(cidr.names() + 1);
    let mut ranges = std::iter::successors(first, wider);
    ranges.find(fits).unwrap_or(range)
}

/// Returns the number of names for a trial at the highest rate, including the reserved ones.
fn needed(load: &Load, demand: Demand) -> u64 {
    let queries = demand
        .highest_qps
        .map_or(0, |rate_qps| load.schedule(rate_qps).queries());
    Names::fresh(load.cached_share, queries)
        .saturating_add(working_set(load))
        .saturating_add(RESERVED)
}

fn working_set(load: &Load) -> u64 {
    match load.cached_share {
        Share::NONE => 0,
        _ => load.pattern.working_set(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(rate_qps: u64) -> Demand {
        Demand {
            self_test: true,
            highest_qps: Some(rate_qps),
        }
    }

    #[test]
    fn range_with_too_few_names_for_highest_rate_is_refused() {
        let load = Load {
            cidr: "10.0.0.0/16".parse().unwrap(),
            ..Load::default()
        };
        let nsd = Profile::built_in("nsd").unwrap();
        let checked = |rate_qps| check(&load, Some(&nsd), demand(rate_qps));
        // Besides the 64 reserved names, the range suffices for 60 s at 1091 queries/s, but not at 1092.
        assert!(checked(1091).is_ok());
        let error = checked(1092).unwrap_err().to_string();
        assert_eq!(
            error,
            "10.0.0.0/16 has 65472 unused names and the trial needs 65520; use --namespace \
             10.0.0.0/15, or a shorter or slower trial"
        );
        assert!(check(&load, None, demand(1092)).is_ok());
        assert!(check(&load, Some(&nsd), Demand::default()).is_ok());
    }

    #[test]
    fn smallest_range_covers_trial_and_pattern() {
        let load = Load::default();
        let range = |load: &Load, rate_qps| smallest(load, demand(rate_qps)).to_string();
        assert_eq!(range(&load, 1091), "10.0.0.0/16");
        assert_eq!(range(&load, 1092), "10.0.0.0/15");
        assert_eq!(range(&load, 270_000), "10.0.0.0/8");
        assert_eq!(range(&load, 1_000_000), "10.0.0.0/8");
        assert_eq!(smallest(&load, Demand::default()), load.cidr);
        let repeated = Load {
            cached_share: Share::ALL,
            pattern: "stack:65536".parse().unwrap(),
            ..load
        };
        // A working set takes at most a quarter of the range.
        assert_eq!(range(&repeated, 1000), "10.0.0.0/14");
    }
}
