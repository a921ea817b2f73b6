//! What this machine can do for a benchmark, and how to make it better.
//!
//! Every [`Finding`] is read from the system at the moment of asking and nothing is changed.

use std::path::Path;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_transport::cpu;

use crate::lab::host::CpuSet;
use crate::lab::machine::{self, Machine};
use crate::lab::process::find_program;
use crate::lab::profile::{Profile, ProfileRole, built_in_names};
use crate::lab::server;
use crate::lab::{LabKind, userns};
use crate::trial::summary::STALL_MAX_NS;

/// One fact about this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// What was found.
    pub value: String,
    /// What that means.
    pub verdict: Verdict,
    /// What would make it better, where something would.
    pub remedy: Option<String>,
}

/// What a finding means for a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// It works, but figures suffer or something is left out.
    Poor,
    /// Something does not work without it.
    Missing,
}

/// Everything that is known about this machine.
pub fn examine() -> Vec<Finding> {
    let mut findings = vec![tier_finding()];
    findings.extend(kernel());
    findings.extend(tools());
    findings.extend(processors());
    findings.push(stalls());
    findings.extend(network());
    findings.extend(memory());
    findings.extend(servers());
    findings
}

/// A stall beyond this is no interrupt any more but another task, or another guest.
const STALL_NS: Nanos = SECOND / 1000;

fn tier_finding() -> Finding {
    let (kind, remedy) = LabKind::best();
    let verdict = match kind {
        LabKind::Loopback => Verdict::Poor,
        _ => Verdict::Good,
    };
    finding("best tier", kind.name(), verdict, remedy)
}

fn kernel() -> Vec<Finding> {
    let here = Machine::here();
    let release = here.sysctl("kernel.osrelease").unwrap_or_default();
    let mut findings = vec![match kernel_version(&release) {
        Some(version) if version >= GRO_KERNEL => good("kernel", &release),
        Some(version) if version >= SEGMENT_KERNEL => finding(
            "kernel",
            &release,
            Verdict::Poor,
            Some("Linux 5.0 or later has UDP_GRO: fewer system calls for each reply".into()),
        ),
        _ => finding(
            "kernel",
            &release,
            Verdict::Poor,
            Some("Linux 4.18 or later has UDP_SEGMENT: twice the rate for each core".into()),
        ),
    }];
    let user = rustix::process::geteuid();
    findings.push(if user.is_root() {
        good("user", "root")
    } else {
        finding(
            "user",
            &format!("uid {}", user.as_raw()),
            Verdict::Poor,
            Some("root can force socket buffers and needs no user namespace".into()),
        )
    });
    if !userns::inside() {
        findings.push(match userns::check() {
            Ok(()) => good("user namespaces", "allowed"),
            Err(error) => finding(
                "user namespaces",
                "not allowed",
                Verdict::Poor,
                Some(error.to_string()),
            ),
        });
    }
    findings.extend(apparmor(&here));
    let cgroup = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        "version 2"
    } else {
        "version 1 or none"
    };
    findings.push(good("cgroup", cgroup));
    findings
}

fn apparmor(here: &Machine) -> Option<Finding> {
    if here.read("/sys/module/apparmor/parameters/enabled")? != "Y" {
        return None;
    }
    Some(finding(
        "AppArmor",
        "enabled",
        Verdict::Poor,
        Some(
            "if named or unbound may not read their configuration: `aa-complain named unbound` \
             (Debian package apparmor-utils)"
                .into(),
        ),
    ))
}

fn tools() -> Vec<Finding> {
    [
        ("ip", "iproute2"),
        ("taskset", "util-linux"),
        ("unshare", "util-linux"),
        ("setpriv", "util-linux"),
    ]
    .into_iter()
    .map(|(program, package)| match find_program(program) {
        Some(path) => good(program, &path.display().to_string()),
        None => finding(
            program,
            "not found",
            Verdict::Missing,
            Some(format!("install the Debian package {package}")),
        ),
    })
    .collect()
}

fn processors() -> Vec<Finding> {
    let cores = CpuSet::unrestricted().cores();
    let enough = cores >= ROLES;
    let mut findings = vec![finding(
        "cores",
        &cores.to_string(),
        if enough { Verdict::Good } else { Verdict::Poor },
        (!enough).then(|| {
            format!("{ROLES} or more give the Measurer, the DUT and the AuthDNS one each")
        }),
    )];
    let here = Machine::here();
    if let Some(on) = here.smt() {
        findings.push(if on {
            finding("SMT", "on", Verdict::Poor, Some(machine::SMT_REMEDY.into()))
        } else {
            good("SMT", "off")
        });
    }
    findings.push(governors(&here));
    let clock = here.clock_source().unwrap_or_else(|| "unknown".into());
    findings.push(if machine::FAST_CLOCK_SOURCES.contains(&clock.as_str()) {
        good("clock source", &clock)
    } else {
        let remedy = machine::CLOCK_REMEDY;
        finding("clock source", &clock, Verdict::Poor, Some(remedy.into()))
    });
    findings
}

fn governors(here: &Machine) -> Finding {
    let what = "frequency governor";
    let policies = here.frequency_policies();
    let mut governors: Vec<&str> = policies.iter().map(|p| p.governor.as_str()).collect();
    governors.sort_unstable();
    governors.dedup();
    let value = governors.join(", ");
    match governors.as_slice() {
        [] => good(what, "not visible (a virtual machine?)"),
        ["performance"] => good(what, &value),
        _ => finding(
            what,
            &value,
            Verdict::Poor,
            Some(machine::GOVERNOR_REMEDY.into()),
        ),
    }
}

fn network() -> Vec<Finding> {
    let root = rustix::process::geteuid().is_root() && !userns::inside();
    let mut findings: Vec<Finding> = ["net.core.rmem_max", "net.core.wmem_max"]
        .into_iter()
        .filter_map(|name| {
            let value = sysctl(name)?;
            // Root of the machine forces buffers of its own, whatever the limit; DUTs may not.
            let enough = value >= BUFFER_BYTES;
            let who = if root {
                "of the DUT"
            } else {
                "of the Tester and the DUT"
            };
            Some(finding(
                name,
                &value.to_string(),
                if enough { Verdict::Good } else { Verdict::Poor },
                (!enough).then(|| {
                    format!("`sysctl {name}={BUFFER_BYTES}`: buffers {who} lose at bursts")
                }),
            ))
        })
        .collect();
    findings.extend(
        ["net.core.rmem_default", "net.core.wmem_default"]
            .into_iter()
            .filter_map(|name| {
                let value = sysctl(name)?;
                // A server without an option for its buffers has this one.
                let enough = value >= BUFFER_BYTES || name.ends_with("wmem_default");
                Some(finding(
                    name,
                    &value.to_string(),
                    if enough { Verdict::Good } else { Verdict::Poor },
                    (!enough).then(|| {
                        format!(
                            "`sysctl {name}={BUFFER_BYTES}` and say so in the report: servers \
                             without an option for their buffers lose at bursts"
                        )
                    }),
                ))
            }),
    );
    findings.push(
        if Path::new("/proc/sys/net/netfilter/nf_conntrack_max").exists() {
            let remedy = "rules that track connections cost each datagram on real interfaces; the \
                      lab's namespaces have none";
            finding("nf_conntrack", "loaded", Verdict::Poor, Some(remedy.into()))
        } else {
            good("nf_conntrack", "not loaded")
        },
    );
    findings
}

/// Keeps all cores busy for a moment and looks how long each of them stands still: what a host
/// takes from its guests shows in no counter of the guest.
fn stalls() -> Finding {
    let cores = cpu::available();
    let longest_ns: Vec<Nanos> = std::thread::scope(|scope| {
        let looks: Vec<_> = cores
            .iter()
            .map(|&core| scope.spawn(move || longest_stall_ns(core)))
            .collect();
        looks
            .into_iter()
            .filter_map(|look| look.join().ok())
            .collect()
    });
    let list = |(core, ns): (&usize, &Nanos)| format!("core {core}: {} us", ns / 1000);
    let value = cores
        .iter()
        .zip(&longest_ns)
        .map(list)
        .collect::<Vec<_>>()
        .join(", ");
    let worst_ns = longest_ns.into_iter().max().unwrap_or(0);
    let what = "longest stall in 1 s";
    match worst_ns {
        0..STALL_NS => good(what, &value),
        STALL_NS..STALL_MAX_NS => finding(
            what,
            &value,
            Verdict::Poor,
            Some("other guests of this host are heard: repeat what varies, or use a machine of your own".into()),
        ),
        _ => finding(
            what,
            &value,
            Verdict::Poor,
            Some("trials will be invalid for a sender that was held up: use a quieter machine".into()),
        ),
    }
}

/// Longest time between two readings of the clock on a core that does nothing else for a second.
fn longest_stall_ns(core: usize) -> Nanos {
    if cpu::pin(core).is_err() {
        return 0;
    }
    cpu::take_precedence();
    let mut last = MonotonicClock.now();
    let end = last + SECOND;
    let mut longest = 0;
    while last < end {
        let now = MonotonicClock.now();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

fn memory() -> Vec<Finding> {
    let available = Machine::here().memory_bytes("MemAvailable");
    let Some(available) = available else {
        return Vec::new();
    };
    let queries = available / 2 / LEDGER_BYTES_PER_QUERY;
    let enough = queries >= LEDGER_QUERIES;
    vec![finding(
        "memory available",
        &format!(
            "{} MiB: trials of up to {} M queries",
            available >> 20,
            queries / 1_000_000
        ),
        if enough { Verdict::Good } else { Verdict::Poor },
        (!enough).then(|| "60 s at 1 M/s need 1 GiB for the ledger and as much again".into()),
    )]
}

fn servers() -> Vec<Finding> {
    built_in_names()
        .filter_map(|name| Profile::built_in(name).ok())
        .map(|profile| server(&profile))
        .collect()
}

fn server(profile: &Profile) -> Finding {
    let role = match profile.role {
        ProfileRole::Dut => "DUT",
        ProfileRole::Authority => "authority",
    };
    let what = format!("{role} {}", profile.name);
    match profile.program(None) {
        Ok(program) => match server::version(profile, &program) {
            Ok(version) => good(&what, &version),
            Err(error) => finding(
                &what,
                &program.display().to_string(),
                Verdict::Poor,
                Some(error.to_string()),
            ),
        },
        Err(_) => finding(
            &what,
            "not found",
            Verdict::Missing,
            Some(match &profile.package {
                Some(package) => format!("install the Debian package {package}"),
                None => "no Debian package; build it and give --dut-binary PATH".into(),
            }),
        ),
    }
}

fn good(what: &str, value: &str) -> Finding {
    finding(what, value, Verdict::Good, None)
}

fn finding(what: &str, value: &str, verdict: Verdict, remedy: Option<String>) -> Finding {
    Finding {
        what: what.to_owned(),
        value: value.to_owned(),
        verdict,
        remedy,
    }
}

fn sysctl(name: &str) -> Option<u64> {
    Machine::here().sysctl(name)?.parse().ok()
}

/// Major and minor version of "6.18.44-fc-v657".
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// First kernel with `UDP_SEGMENT` (udp(7)).
const SEGMENT_KERNEL: (u32, u32) = (4, 18);
/// First kernel with `UDP_GRO` (udp(7)).
const GRO_KERNEL: (u32, u32) = (5, 0);
/// Measurer, DUT and AuthDNS.
const ROLES: usize = 3;
/// 4 MiB hold what arrives in about 5 ms at 1 M/s, at 768 bytes of buffer for a small datagram.
const BUFFER_BYTES: u64 = 4 << 20;
/// The ledger's share of a query; 60 s at 1 M/s then fit 1 GiB.
const LEDGER_BYTES_PER_QUERY: u64 = 16;
const LEDGER_QUERIES: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_read_from_releases() {
        assert_eq!(kernel_version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(kernel_version("4.9"), Some((4, 9)));
        assert_eq!(kernel_version("next"), None);
    }

    #[test]
    fn every_shortcoming_has_a_remedy() {
        let findings = examine();
        for finding in &findings {
            let wanting = finding.verdict != Verdict::Good;
            assert!(!wanting || finding.remedy.is_some(), "{finding:?}");
        }
        for what in [
            "best tier",
            "kernel",
            "cores",
            "DUT dns64d",
            "authority nsd",
        ] {
            assert!(
                findings.iter().any(|finding| finding.what == what),
                "{what}"
            );
        }
    }

    #[test]
    fn a_server_that_is_not_there_names_its_package() {
        let mut profile = Profile::built_in("unbound").unwrap();
        profile.programs = vec!["no-such-server".into()];
        let finding = server(&profile);
        assert_eq!(finding.verdict, Verdict::Missing);
        assert_eq!(
            finding.remedy.as_deref(),
            Some("install the Debian package unbound")
        );
    }
}
