//! Sample values of authorities that are measured by themselves.

use dns64_transport::clock::SECOND;

use crate::campaign::plan::Plan;
use crate::campaign::plan::tasks::Point;
use crate::campaign::record::{Memory, Start};
use crate::machine::Role;
use crate::machine::usage::{RoleUsage, Usage};
use crate::rig::spec::AuthorityChoice;

/// One start without figures; for an authority that is a program three, with 80 MiB, 512 octets and 2 us for each name,
/// over all processes.
pub(super) fn starts(plan: &Plan, variant: usize) -> Vec<Option<Start>> {
    let subject = &plan.variants[variant].subject;
    let authority = subject.lab().map(|lab| &lab.authority);
    if !subject.is_authority() || authority == Some(&AuthorityChoice::BuiltIn) {
        return vec![None];
    }
    let names = plan.cidr(variant).names();
    let pss_bytes = (80 << 20) + 512 * names;
    let start = |number: u64| Start {
        took_ns: 2_000 * names + 100_000_000 + if number == 0 { SECOND } else { 0 },
        memory: Some(Memory {
            rss_bytes: pss_bytes + (30 << 20),
            pss_bytes,
        }),
        zone_written: Some(number == 0),
    };
    (0..3).map(|number| Some(start(number))).collect()
}

/// Resource usage of the measured program: 4 us for each query of an authority, 100 us for a DUT of the first variant.
pub(super) fn machine(plan: &Plan, point: &Point, queries: u64) -> Option<Usage> {
    let subject = &plan.variants[point.variant].subject;
    let (role, each_ns) = match subject.is_authority() {
        true => (Role::Authority, 4_000),
        false => (Role::Dut, 100_000),
    };
    let is_known = role == Role::Authority || point.variant == 0;
    is_known.then(|| Usage {
        span_ns: point.duration_ns,
        pressure_ns: None,
        roles: vec![RoleUsage {
            host: None,
            role,
            threads: 1,
            cores: None,
            cpu_ns: each_ns * queries,
            run_delay_ns: 0,
            involuntary_switches: 0,
            steal_ns: None,
            foreign_ns: None,
            neighbour: None,
            throttled_ns: None,
            pressure_ns: None,
            frequency_khz: None,
        }],
    })
}
