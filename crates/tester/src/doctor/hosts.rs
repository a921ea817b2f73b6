//! Checks the hosts of a plan, from the facts of each host and from the plan.

mod links;
pub mod ready;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use super::{Finding, Grade, clock, finding, governors, memory, unless};
use crate::agent::facts::{HostFacts, LOOK_NS};
use crate::agent::handshake::Welcome;
use crate::lab::hosts::{HostSpec, Hosts};
use crate::machine::Role;

/// Checks all hosts whose facts are known, by their names in the plan. For the others, it reports the errors in
/// `unknown`. The property of a finding begins with the host: "gen1: link client".
pub fn check(
    hosts: &Hosts,
    facts: &[(String, HostFacts)],
    unknown: &[(String, String)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for host in hosts.iter() {
        if let Some(facts) = of(&host.name, facts) {
            findings.extend(one(host, facts));
        }
        let here = unknown.iter().filter(|(name, _)| *name == host.name);
        findings.extend(here.map(|(name, why)| broken(name, "host", why, UNKNOWN)));
    }
    findings.extend(links::between(hosts, facts));
    findings.extend(same_program(hosts, facts));
    findings.extend(same_machine(hosts, facts));
    findings
}

/// Returns the facts of the host of this name.
fn of<'a>(name: &str, facts: &'a [(String, HostFacts)]) -> Option<&'a HostFacts> {
    let (_, facts) = facts.iter().find(|(other, _)| other == name)?;
    Some(facts)
}

/// Creates a finding about a host.
fn about(host: &str, what: &str, value: impl ToString, remedy: Option<String>) -> Finding {
    finding(&format!("{host}: {what}"), value, remedy)
}

/// Creates a finding about something that does not work.
fn broken(host: &str, what: &str, value: impl ToString, remedy: impl Into<String>) -> Finding {
    Finding {
        grade: Grade::Missing,
        ..about(host, what, value, Some(remedy.into()))
    }
}

/// Checks one host on its own.
fn one(host: &HostSpec, facts: &HostFacts) -> Vec<Finding> {
    let name = &host.name;
    let of_host = |finding: Finding| Finding {
        what: format!("{name}: {}", finding.what),
        ..finding
    };
    let mut findings = vec![
        about(name, "program", &facts.identity.tester, None),
        of_host(finding("kernel", &facts.identity.host.kernel, None)),
        cpus(host, facts),
        of_host(clock(facts.clock_source.clone())),
        time_sync(host, facts),
    ];
    if !facts.governors.is_empty() {
        let governors = governors(&facts.governors);
        let remedy = governors.remedy.as_ref();
        findings.push(of_host(Finding {
            remedy: remedy.map(|remedy| format!("{remedy}, or {PLAY}")),
            ..governors
        }));
    }
    findings.push(others(host, facts));
    findings.extend(facts.memory_available_bytes.map(memory).map(of_host));
    if let Some(bytes) = facts.disk_free_bytes {
        let remedy = unless(
            bytes >= DISK_BYTES,
            "zone files and logs need room below /var: free 1 GiB",
        );
        findings.push(about(
            name,
            "disk free",
            format!("{} MiB", bytes >> 20),
            remedy,
        ));
    }
    if host.has(Role::Dut) || host.has(Role::Authority) {
        findings.push(port_53(host, facts));
    }
    if !facts.lab_namespaces.is_empty() {
        let remedy =
            "a local lab is in use there, or a crash left it: `dns64bench lab down` on the host";
        let namespaces = facts.lab_namespaces.join(", ");
        findings.push(about(
            name,
            "namespaces of a lab",
            namespaces,
            Some(remedy.into()),
        ));
    }
    findings.extend(links::of(host, facts));
    findings
}

/// Checks whether the CPUs of the plan exist.
fn cpus(host: &HostSpec, facts: &HostFacts) -> Finding {
    let wanted = host.cpus.cpus().iter().chain(host.authority_cpus.cpus());
    let absent: Vec<_> = wanted
        .filter(|cpu| !facts.cpus.cpus().contains(cpu))
        .map(ToString::to_string)
        .collect();
    if facts.cpus.is_unrestricted() || absent.is_empty() {
        let online = match facts.cpus.is_unrestricted() {
            true => "unknown".to_owned(),
            false => facts.cpus.to_string(),
        };
        return about(&host.name, "CPUs online", online, None);
    }
    let remedy = format!("the plan names {}, too: correct cpus", absent.join(", "));
    broken(&host.name, "CPUs online", &facts.cpus, remedy)
}

/// Checks the time synchronisation. The Tester measures clock offsets itself and needs no program; two programs
/// conflict.
fn time_sync(host: &HostSpec, facts: &HostFacts) -> Finding {
    let remedy = unless(
        facts.time_sync.len() < 2,
        "they steer one clock against each other: stop all but one",
    );
    let programs = match facts.time_sync.as_slice() {
        [] => "none".to_owned(),
        programs => programs.join(", "),
    };
    about(&host.name, "time synchronization", programs, remedy)
}

/// Checks the CPU time of other processes.
fn others(host: &HostSpec, facts: &HostFacts) -> Finding {
    let percent = facts.others_cpu_ns * 100 / LOOK_NS;
    let busiest = facts.busiest.as_deref();
    let who = busiest.map_or_else(String::new, |name| format!(", most of it {name}"));
    let remedy = "others take the CPUs of a role: stop them, or give cpus that they do not use";
    let remedy = unless(percent <= OTHERS_PERCENT_MAX, remedy);
    let value = format!("{percent} % of a CPU{who}");
    about(&host.name, "other processes", value, remedy)
}

/// Checks whether a DUT or an authority can listen on port 53.
fn port_53(host: &HostSpec, facts: &HostFacts) -> Finding {
    // systemd-resolved listens at 127.0.0.53, which no role uses. A Measurer reaches the authority on its own host at
    // [::1].
    let is_elsewhere = |socket: &&String| {
        let address = socket.rsplit(' ').next().and_then(|text| text.parse().ok());
        matches!(address, Some(IpAddr::V4(address)) if address.is_loopback())
    };
    let taken = facts.port_53.iter().filter(|socket| !is_elsewhere(socket));
    let taken: Vec<_> = taken.map(String::as_str).collect();
    let what = "port 53";
    if facts.may_serve == Some(false) {
        let remedy = "reach the host as root, or with sudo = true: servers there listen at port 53";
        return broken(&host.name, what, "not permitted", remedy);
    }
    if !taken.is_empty() {
        let remedy =
            format!("stop the server that listens there (`ss -lnp sport = 53`), or {PLAY}");
        return broken(&host.name, what, taken.join(", "), remedy);
    }
    match facts.port_53.as_slice() {
        [] => about(&host.name, what, "free", None),
        local => {
            let remedy = "a server that takes all addresses fails: `systemctl disable --now systemd-resolved`";
            about(&host.name, what, local.join(", "), Some(remedy.into()))
        }
    }
}

/// Checks that all hosts run the same build; otherwise differences between builds could affect results.
fn same_program(hosts: &Hosts, facts: &[(String, HostFacts)]) -> Vec<Finding> {
    let known = || {
        hosts
            .iter()
            .filter_map(|host| Some((host, of(&host.name, facts)?)))
    };
    let Some((first, reference)) = known().next() else {
        return Vec::new();
    };
    let other = |(host, facts): (&HostSpec, &HostFacts)| {
        let [own, its] = [facts, reference].map(|facts| match &facts.identity {
            Welcome {
                tester,
                sha256: Some(sha256),
                ..
            } => format!("{tester} (SHA-256 {sha256:.12})"),
            Welcome { tester, .. } => tester.clone(),
        });
        if own == its {
            return None;
        }
        let value = format!("{own}, on {} {its}", first.name);
        Some(broken(
            &host.name,
            "program",
            value,
            format!("install one build everywhere: --push-binary, or {PLAY}"),
        ))
    };
    known().filter_map(other).collect()
}

/// Checks for hosts that are the same machine: they share its CPUs, which is acceptable only for a rehearsal.
fn same_machine(hosts: &Hosts, facts: &[(String, HostFacts)]) -> Vec<Finding> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let mut findings = Vec::new();
    for host in hosts.iter() {
        let Some(boot_id) = of(&host.name, facts).map(|facts| facts.identity.host.boot_id.as_str())
        else {
            continue;
        };
        match seen
            .iter()
            .find(|(_, other)| *other == boot_id && !boot_id.is_empty())
        {
            Some((other, _)) => {
                let value = format!("the same as that of {other}");
                let remedy =
                    "roles on one machine take CPUs from each other: use a machine for each";
                findings.push(about(&host.name, "machine", value, Some(remedy.into())));
            }
            None => seen.push((&host.name, boot_id)),
        }
    }
    findings
}

/// Remedy of a finding that is only an error.
const UNKNOWN: &str = "nothing else of this host is checked until that is solved";

/// The command that sets up a host.
const PLAY: &str = "`ansible-playbook -i hosts.yml deploy/ansible/site.yml`";

/// A tenth of one CPU covers a quiet system and its monitoring.
const OTHERS_PERCENT_MAX: u64 = 10;

const DISK_BYTES: u64 = 1 << 30;
