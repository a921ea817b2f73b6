//! Sample values of the hosts of a plan with several.

use crate::campaign::plan::Plan;
use crate::campaign::record::{HostNote, InterfaceFacts, Line, Record};
use crate::lab::hosts::{Site, SiteAuthority};
use crate::machine::usage::{RoleUsage, Usage};
use crate::trial::result::{AuthorityShare, HostClock, TrialResult};

/// Adds the hosts to a journal if its plan has any.
pub(super) fn tell(plan: &Plan, lines: &mut [Line]) {
    if plan.hosts.at.is_none() {
        return;
    }
    let points = &plan.points;
    let site = |variant: usize| plan.variants[variant].subject.site(None).unwrap();
    for line in lines {
        match &mut line.record {
            Record::Session { environment, .. } => environment.interfaces = interfaces(&site(0)),
            Record::SelfTest(test) => {
                test.conditions.lab = "hosts, three-device".to_owned();
                for trial in &mut test.trials {
                    tell_trial(&site(0), trial);
                }
            }
            Record::Variant { variant, facts, .. } => facts.hosts = notes(&site(*variant)),
            Record::Trial { task, result, .. } => {
                tell_trial(&site(points[task.point()].variant), result);
            }
            _ => {}
        }
    }
}

/// The later a host is in the list, the less accurate is its clock, and the longer its threads wait.
fn tell_trial(site: &Site, trial: &mut TrialResult) {
    let hosts = site.hosts();
    let named = (0_u32..).zip(&hosts);
    let clock = |(index, host): (u32, &&str)| HostClock {
        host: (*host).to_owned(),
        offset_ns: 1 << 40,
        bound_ns: 20_000 * u64::from(index + 1) + trial.rate_qps % 1000,
        drift_ppm: f64::from(index) - 1.5,
        exchanges: 32,
        late_ns: 0,
    };
    trial.clocks = named.clone().map(clock).collect();
    let span_ns = trial.duration_ns + trial.timeout_ns;
    let row = |(index, host): (u32, &&str)| RoleUsage {
        host: Some((*host).to_owned()),
        role: site.roles_of(host)[0],
        threads: 2,
        cores: Some("2-3".to_owned()),
        cpu_ns: span_ns,
        run_delay_ns: u64::from(index) * span_ns / 500,
        involuntary_switches: 0,
        steal_ns: Some(span_ns / 1000),
        foreign_ns: None,
        neighbour: None,
        throttled_ns: None,
        pressure_ns: None,
        frequency_khz: None,
    };
    if site.authorities.len() > 1 {
        // Each receives half of the remaining queries, and the last one the rest.
        let mut left = trial.authority.map_or(0, |counts| counts.queries());
        let share = |(k, it): (usize, &SiteAuthority)| {
            let is_last = k + 1 == site.authorities.len();
            let questions = if is_last { left } else { left / 2 };
            left -= questions;
            AuthorityShare {
                host: it.host.clone(),
                questions,
                drops: 0,
            }
        };
        trial.authorities = site.authorities.iter().enumerate().map(share).collect();
    }
    trial.machine = Usage {
        span_ns,
        pressure_ns: None,
        roles: named.map(row).collect(),
    };
}

fn notes(site: &Site) -> Vec<HostNote> {
    let note = |host: &str| HostNote {
        host: host.to_owned(),
        roles: site.roles_of(host),
        hostname: format!("{host}.example"),
        kernel: "6.1.0-18-amd64".to_owned(),
        cpus: 8,
        tester: "dns64bench 0.1.0".to_owned(),
        sha256: Some("ef".repeat(32)),
    };
    site.hosts().into_iter().map(note).collect()
}

fn interfaces(site: &Site) -> Vec<InterfaceFacts> {
    let ends = site.links.iter().flat_map(|link| [&link.near, &link.far]);
    let interface = ends.map(|end| InterfaceFacts {
        host: Some(end.host.clone()),
        name: end.interface.clone(),
        driver: Some("ixgbe".to_owned()),
        mtu: 1500,
        speed_mbps: Some(10_000),
    });
    interface.collect()
}
