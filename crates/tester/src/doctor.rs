//! Checks whether this machine is suitable for benchmarks, and how to improve it.
//!
//! Every [`Finding`] is read from the system on request; nothing is changed. [`hosts`] does the same for the hosts of a
//! plan.

pub mod hosts;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_transport::cpu;
use std::fmt;

use crate::lab::profile::{Profile, ProfileRole, built_in_names};
use crate::lab::server;
use crate::lab::{LabKind, userns};
use crate::load::catch_up::Limits;
use crate::machine::cpuset::CpuSet;
use crate::machine::process::{TOOLS, find_program};
use crate::machine::usage;
use crate::machine::{self, Machine};
use crate::naming::Naming;

/// One fact about this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The property that was checked.
    pub what: String,
    /// Its value.
    pub value: String,
    /// The assessment.
    pub grade: Grade,
    /// How to improve it, if it needs improvement.
    pub remedy: Option<String>,
}

impl fmt::Display for Finding {
    /// Formats it in one line: property, value and remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.value)?;
        let remedy = self.remedy.as_ref();
        remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

/// Assessment of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// No action is necessary.
    Good,
    /// It works, but results are less accurate or a feature is unavailable.
    Poor,
    /// A function requires it.
    Missing,
}

/// Returns all findings about this machine.
pub fn examine() -> Vec<Finding> {
    let here = Machine::here();
    let mut findings = vec![
        best_tier(),
        finding(
            "kernel",
            here.sysctl("kernel.osrelease").unwrap_or_default(),
            None,
        ),
        user(),
    ];
    if !userns::inside() && find_program("unshare").is_some() {
        findings.push(user_namespaces());
    }
    findings.extend(apparmor(&here));
    findings.push(cgroup(&here));
    findings.extend(quota(&here));
    findings.extend(TOOLS.map(|(program, package)| installed(program, package)));
    findings.extend(processors(&here));
    findings.extend(pressure(&here));
    findings.push(stalls(STALL_NS));
    findings.extend(BUFFERS.iter().filter_map(|name| buffer(&here, name)));
    findings.push(conntrack(&here));
    findings.extend(here.memory_bytes("MemAvailable").map(memory));
    let profiles = built_in_names().filter_map(|name| Profile::built_in(name).ok());
    findings.extend(profiles.map(|profile| server(&profile)));
    findings
}

/// Returns the findings that prevent a short measurement on this machine or would disturb it. Takes a second, or two
/// with PSI.
pub fn disturbances() -> Vec<Finding> {
    let here = Machine::here();
    let mut findings: Vec<_> = TOOLS
        .map(|(program, package)| installed(program, package))
        .into();
    findings.extend(quota(&here));
    // Read before the stall check keeps all cores busy.
    findings.extend(pressure(&here));
    findings.push(stalls(Limits::default().max_stall_ns));
    findings.retain(|finding| finding.grade != Grade::Good);
    findings
}

/// Creates a finding that is good if it has no remedy.
fn finding(what: &str, value: impl ToString, remedy: Option<String>) -> Finding {
    Finding {
        what: what.to_owned(),
        value: value.to_string(),
        grade: match remedy {
            None => Grade::Good,
            Some(_) => Grade::Poor,
        },
        remedy,
    }
}

/// Creates a finding about a missing item, with its remedy.
fn missing(what: &str, remedy: String) -> Finding {
    Finding {
        grade: Grade::Missing,
        ..finding(what, "not found", Some(remedy))
    }
}

/// Returns `remedy` unless `well`.
fn unless(well: bool, remedy: impl Into<String>) -> Option<String> {
    (!well).then(|| remedy.into())
}

fn best_tier() -> Finding {
    let (kind, remedy) = LabKind::best();
    let grade = match kind {
        LabKind::Loopback => Grade::Poor,
        _ => Grade::Good,
    };
    Finding {
        grade,
        ..finding("best tier", kind.as_ref(), remedy)
    }
}

fn user() -> Finding {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return finding("user", "root", None);
    }
    let remedy = "as root: larger socket buffers, and no user namespace needed";
    finding(
        "user",
        format!("uid {}", user.as_raw()),
        Some(remedy.into()),
    )
}

fn user_namespaces() -> Finding {
    let (value, remedy) = match userns::check() {
        Ok(()) => ("allowed", None),
        Err(error) => ("not allowed", Some(error.to_string())),
    };
    finding("user namespaces", value, remedy)
}

fn apparmor(here: &Machine) -> Option<Finding> {
    let enabled = here.read("/sys/module/apparmor/parameters/enabled")?;
    let remedy = "if named or unbound may not read their configuration: `aa-complain named \
                  unbound` (Debian package apparmor-utils)";
    (enabled == "Y").then(|| finding("AppArmor", "enabled", Some(remedy.into())))
}

fn cgroup(here: &Machine) -> Finding {
    let unified = here.path("/sys/fs/cgroup/cgroup.controllers").exists();
    let version = match unified {
        true => "version 2",
        false => "version 1 or none",
    };
    finding("cgroup", version, None)
}

/// Checks the CPU quota: a quota pauses the Tester in the middle of a trial.
fn quota(here: &Machine) -> Option<Finding> {
    let remedy = "remove it (cpu.max, or cpu.cfs_quota_us in version 1): the Tester is stopped whenever the quota is used up";
    let value = format!("{} (us of each period)", here.cpu_quota()?);
    Some(finding("CPU quota", value, Some(remedy.to_owned())))
}

fn installed(program: &str, package: &str) -> Finding {
    match find_program(program) {
        Some(path) => finding(program, path.display(), None),
        None => missing(program, format!("install the Debian package {package}")),
    }
}

fn processors(here: &Machine) -> Vec<Finding> {
    let cores = CpuSet::unrestricted().cores();
    let more = format!("with {ROLES} or more, Measurer, DUT and AuthDNS have one each");
    let smt = here.smt().map(|on| match on {
        true => finding("SMT", "on", Some(machine::SMT_REMEDY.into())),
        false => finding("SMT", "off", None),
    });
    let mut findings = vec![finding("cores", cores, unless(cores >= ROLES, more))];
    findings.extend(smt);
    findings.push(governors(&here.governors()));
    findings.push(clock(here.clock_source()));
    findings
}

fn clock(source: Option<String>) -> Finding {
    let source = source.unwrap_or_else(|| "unknown".into());
    let fast = machine::FAST_CLOCK_SOURCES.contains(&source.as_str());
    finding("clock source", source, unless(fast, machine::CLOCK_REMEDY))
}

fn governors(all: &[String]) -> Finding {
    let (value, well) = match all {
        [] => ("not visible (a virtual machine?)".to_owned(), true),
        all => (all.join(", "), all == ["performance"]),
    };
    let remedy = unless(well, machine::GOVERNOR_REMEDY);
    finding("frequency governor", value, remedy)
}

/// Limits of socket buffers, and the defaults for a server without an option for them.
const BUFFERS: [&str; 4] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.rmem_default",
    "net.core.wmem_default",
];

fn buffer(here: &Machine, name: &str) -> Option<Finding> {
    let value: u64 = here.sysctl(name)?.parse().ok()?;
    // Root of the machine can exceed the limit (`SO_RCVBUFFORCE`); a DUT possibly cannot.
    let root = rustix::process::geteuid().is_root() && !userns::inside();
    let why = match (name.ends_with("max"), root) {
        (true, true) => ": otherwise the buffers of the DUT overflow in bursts",
        (true, false) => ": otherwise the buffers of the Tester and the DUT overflow in bursts",
        (false, _) => {
            " and mention it with the results: servers without an option for buffers lose queries in bursts"
        }
    };
    let enough = value >= BUFFER_BYTES || name.ends_with("wmem_default");
    let remedy = unless(enough, format!("`sysctl {name}={BUFFER_BYTES}`{why}"));
    Some(finding(name, value, remedy))
}

fn conntrack(here: &Machine) -> Finding {
    let loaded = here.sysctl("net.netfilter.nf_conntrack_max").is_some();
    let remedy = "connection tracking slows down each datagram on real interfaces; the lab's namespaces have none";
    let value = if loaded { "loaded" } else { "not loaded" };
    finding("nf_conntrack", value, unless(!loaded, remedy))
}

/// Measures how long tasks wait for a processor during a second in which this one sleeps. The kernel's averages cover a
/// longer time: they would include a build that has just ended.
fn pressure(here: &Machine) -> Option<Finding> {
    let so_far_ns = || usage::pressure_ns(&here.read("/proc/pressure/cpu")?);
    let (before_ns, began) = (so_far_ns()?, MonotonicClock.now());
    MonotonicClock.sleep(SECOND);
    let waited_ns = so_far_ns()?.saturating_sub(before_ns);
    Some(waited(waited_ns, MonotonicClock.now() - began))
}

fn waited(waited_ns: Nanos, span_ns: Nanos) -> Finding {
    let pct = waited_ns * 100 / span_ns.max(1);
    let remedy = "other processes use the CPUs: stop them, or wait until they have finished";
    let value = format!("{pct} % of 1 s");
    finding("CPU pressure", value, unless(pct < PRESSURE_PCT, remedy))
}

/// Keeps all cores busy for a second and measures their longest stalls: CPU time that a host takes from its guests
/// appears in no counter of the guest. Shorter stalls than `tolerated_ns` are good.
fn stalls(tolerated_ns: Nanos) -> Finding {
    let cores = cpu::available();
    let longest_ns: Vec<Nanos> = std::thread::scope(|scope| {
        let looks: Vec<_> = cores
            .iter()
            .map(|&core| scope.spawn(move || longest_stall_ns(core)))
            .collect();
        let ended = looks.into_iter().map(|look| look.join().unwrap_or(0));
        ended.collect()
    });
    let told: Vec<_> = cores
        .iter()
        .zip(&longest_ns)
        .map(|(core, ns)| format!("core {core}: {} us", ns / 1000))
        .collect();
    let remedy = match longest_ns.into_iter().max().unwrap_or(0) {
        stall_ns if stall_ns < tolerated_ns => None,
        stall_ns if stall_ns <= Limits::default().max_stall_ns => Some(
            "other guests of this host take CPU time: repeat results that vary, or use a dedicated machine",
        ),
        _ => Some("trials will be invalid because the sender is delayed: use a quieter machine"),
    };
    let remedy = remedy.map(str::to_owned);
    finding("longest stall in 1 s", told.join(", "), remedy)
}

/// Longest time between two clock readings on a core that does nothing else for a second.
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

fn memory(available: u64) -> Finding {
    let queries = available / 2 / LEDGER_BYTES_PER_QUERY;
    let value = format!(
        "{} MiB: trials of up to {} M queries",
        available >> 20,
        queries / 1_000_000
    );
    let remedy = "60 s at 1 M/s need 1 GiB for the ledger and as much again";
    let remedy = unless(queries >= LEDGER_QUERIES, remedy);
    finding("memory available", value, remedy)
}

fn server(profile: &Profile) -> Finding {
    let role = match profile.role {
        ProfileRole::Dut => "DUT",
        ProfileRole::Authority => "authority",
    };
    let what = format!("{role} {}", profile.name);
    let Ok(program) = profile.program(None) else {
        return missing(&what, profile.remedy(Naming::Flags));
    };
    match server::version(profile, &program) {
        Ok(version) => finding(&what, version, None),
        Err(error) => finding(&what, program.display(), Some(error.to_string())),
    }
}

/// A longer stall is not an interrupt but another task, or another guest.
const STALL_NS: Nanos = SECOND / 1000;
/// An idle machine has hundredths of a per cent; a machine with a compiler on each core has tens.
const PRESSURE_PCT: u64 = 5;
/// Measurer, DUT and AuthDNS.
const ROLES: usize = 3;
/// 4 MiB hold the datagrams of about 5 ms at 1 M/s, at 768 bytes of buffer for a small datagram.
const BUFFER_BYTES: u64 = 4 << 20;
/// Octets of the ledger for each query; the ledger of 60 s at 1 M/s then fits into 1 GiB.
const LEDGER_BYTES_PER_QUERY: u64 = 16;
const LEDGER_QUERIES: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_of_others_is_poor_and_unknown_on_an_old_kernel() {
        let root = tempfile::tempdir().unwrap();
        assert!(pressure(&Machine::at(root.path())).is_none());
        let told = |waited_ns| {
            let found = waited(waited_ns, SECOND);
            (found.value, found.grade)
        };
        assert_eq!(told(49_900_000), ("4 % of 1 s".to_owned(), Grade::Good));
        assert_eq!(told(50_000_000), ("5 % of 1 s".to_owned(), Grade::Poor));
    }

    #[test]
    fn every_shortcoming_has_a_remedy() {
        let findings = examine();
        for finding in &findings {
            let wanting = finding.grade != Grade::Good;
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
    fn missing_server_names_its_package() {
        let mut profile = Profile::built_in("unbound").unwrap();
        profile.programs = vec!["no-such-server".into()];
        let finding = server(&profile);
        assert_eq!(finding.grade, Grade::Missing);
        assert_eq!(
            finding.remedy.as_deref(),
            Some("install the Debian package unbound")
        );
    }
}
