//! Records the machine that a campaign runs on: what is needed to repeat it, and what makes its results doubtful.

use std::collections::BTreeMap;
use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::cpu;

use super::record::{Environment, InterfaceFacts};
use crate::agent::facts::HostFacts;
use crate::lab::hosts::Hosts;
use crate::machine::cpuset::CpuSet;
use crate::machine::interface::{self, Interface};
use crate::machine::network::Network;
use crate::machine::process::{find_program, run};
use crate::machine::{
    CLOCK_REMEDY, FAST_CLOCK_SOURCES, FrequencyPolicy, GOVERNOR_REMEDY, Machine, SMT_REMEDY,
};
use crate::warning::{Severity, Warning};

/// Reads the machine, with the interfaces of its own network and of the `hosts` of a lab.
///
/// Reads files below `/proc`, `/sys` and `/etc` and calls `ip`, `ethtool` and `taskset` a few times, which takes some
/// tens of milliseconds. Changes nothing. Unreadable items are omitted; a host that is not up has no interfaces.
pub fn capture(hosts: &[Network]) -> Environment {
    let mut environment = machine(&Machine::here());
    environment.cpus = cpu::available().len();
    let mut seen: Vec<&Network> = Vec::new();
    for host in std::iter::once(&Network::Own).chain(hosts) {
        if seen.contains(&host) {
            continue;
        }
        seen.push(host);
        for interface in interface::list(host) {
            let lab = match host {
                Network::Own => None,
                Network::Netns(name) => Some(name.clone()),
            };
            let key = match &lab {
                None => format!("interface {}", interface.name),
                Some(host) => format!("interface {} of {host}", interface.name),
            };
            environment.details.insert(key, interface.to_string());
            environment.interfaces.push(facts_of(lab, &interface));
        }
    }
    for (program, argument) in TOOLS {
        if let Some(version) = version(program, argument) {
            environment
                .details
                .insert(format!("version of {program}"), version);
        }
    }
    environment
}

/// The test links of the hosts of a plan, as reported by these hosts.
pub fn of_hosts(hosts: &Hosts, told: &[(String, HostFacts)]) -> Vec<InterfaceFacts> {
    let of_host = |(name, facts): &(String, HostFacts)| {
        let ends = hosts.by_name(name).map(|host| host.links.values());
        let ends = ends.into_iter().flatten().flatten();
        let known = ends.filter_map(|end| {
            let mut all = facts.interfaces.iter();
            all.find(|interface| interface.name == end.interface)
        });
        let of_interface = |interface| facts_of(Some(name.clone()), interface);
        known.map(of_interface).collect::<Vec<_>>()
    };
    told.iter().flat_map(of_host).collect()
}

fn facts_of(host: Option<String>, interface: &Interface) -> InterfaceFacts {
    InterfaceFacts {
        host,
        name: interface.name.clone(),
        driver: interface.driver.clone(),
        mtu: interface.mtu,
        speed_mbps: interface.speed_mbps,
    }
}

/// Settings that change the speed of a machine, by name: they change the capacity of a Tester.
pub fn speed(machine: &Machine) -> BTreeMap<String, String> {
    let mut found = details(machine);
    found.retain(|name, _| SPEED.contains(&name.as_str()));
    found
}

/// What the files of a machine contain.
fn machine(machine: &Machine) -> Environment {
    let text = |path: &str| machine.read(path).unwrap_or_default();
    let release = text("/proc/sys/kernel/osrelease");
    let build = text("/proc/sys/kernel/version");
    let kernel = format!("Linux {release} {} {build}", std::env::consts::ARCH);
    Environment {
        host: text("/proc/sys/kernel/hostname"),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        kernel: kernel.trim().to_owned(),
        os: machine.distribution().unwrap_or_default(),
        cpu: machine.cpu_model().unwrap_or_default(),
        cpus: 0,
        memory_bytes: machine.memory_bytes("MemTotal").unwrap_or(0),
        details: details(machine),
        interfaces: Vec::new(),
    }
}

fn details(machine: &Machine) -> BTreeMap<String, String> {
    let switch = |on: bool| if on { ON } else { "off" }.to_owned();
    let policies = machine.frequency_policies();
    let driver = |policy: &FrequencyPolicy| policy.driver.clone();
    let mut found = vec![
        (SMT, machine.smt().map(switch)),
        (GOVERNOR, by_policy(&policies, |p| Some(p.governor.clone()))),
        ("frequency driver", by_policy(&policies, driver)),
        (RANGE, by_policy(&policies, range)),
        (TURBO, machine.turbo().map(switch)),
        (
            "idle driver",
            machine.read("/sys/devices/system/cpu/cpuidle/current_driver"),
        ),
        (
            "isolated processors",
            machine.read("/sys/devices/system/cpu/isolated"),
        ),
        (HYPERVISOR, machine.hypervisor()),
        (CLOCK, machine.clock_source()),
        ("mitigations", mitigations(&machine.mitigations())),
        ("kernel command line", machine.command_line().map(bounded)),
        ("transparent hugepages", machine.transparent_hugepages()),
        (CPU_LIMIT, machine.cpu_quota()),
        ("cgroup memory.max", machine.cgroup_limit("memory.max")),
        (LOAD, machine.load_average()),
    ];
    found.extend(SYSCTLS.map(|name| (name, machine.sysctl(name))));
    found
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The common value of all policies; if they differ, each value with its processors.
fn by_policy(
    policies: &[FrequencyPolicy],
    value: impl Fn(&FrequencyPolicy) -> Option<String>,
) -> Option<String> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for policy in policies {
        let Some(value) = value(policy) else { continue };
        let cpus = policy.cpus.cpus();
        match groups.iter_mut().find(|(other, _)| *other == value) {
            Some((_, all)) => all.extend(cpus),
            None => groups.push((value, cpus.to_vec())),
        }
    }
    match groups.as_slice() {
        [] => None,
        [(value, _)] => Some(value.clone()),
        _ => {
            let told = groups.into_iter().map(|(value, cpus)| {
                let cpus: CpuSet = cpus.into_iter().collect();
                format!("{value} (CPUs {cpus})")
            });
            Some(told.collect::<Vec<_>>().join("; "))
        }
    }
}

fn range(policy: &FrequencyPolicy) -> Option<String> {
    let (least_khz, most_khz) = policy.range_khz?;
    Some(format!("{} to {} MHz", least_khz / 1000, most_khz / 1000))
}

fn mitigations(faults: &BTreeMap<String, String>) -> Option<String> {
    let told: Vec<_> = faults
        .iter()
        .map(|(fault, state)| format!("{fault}: {state}"))
        .collect();
    (!told.is_empty()).then(|| bounded(told.join(" | ")))
}

/// Truncates a text from outside, at a character boundary.
fn bounded(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(" [cut]");
    }
    text
}

/// First line of the version output of a tool.
fn version(program: &str, argument: &str) -> Option<String> {
    let path = find_program(program)?;
    let end = run(Command::new(path).arg(argument), VERSION_LIMIT).ok()?;
    let line = end.stdout.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Conditions that may make the results of this machine wrong or hard to repeat, each with its remedy. They follow from
/// the record alone.
pub fn warnings(environment: &Environment) -> Vec<Warning> {
    let detail = |name: &str| environment.details.get(name).map(String::as_str);
    let mut warnings = Vec::new();
    let mut warn = |text: String, remedy: &str| {
        warnings.push(Severity::Warning.warning(text).remedy(remedy));
    };
    if let Some(maker) = detail(HYPERVISOR) {
        warn(
            format!(
                "the machine is virtual (hypervisor: {maker}): its host may take CPU time without a trace in its counters"
            ),
            "use a physical machine, or repeat results that vary",
        );
    }
    if let Some(governor) = detail(GOVERNOR).filter(|governor| *governor != "performance") {
        warn(
            format!(
                "the frequency governor is {governor}, so that the speed of the processors follows \
                 the load"
            ),
            GOVERNOR_REMEDY,
        );
    }
    if detail(SMT) == Some(ON) {
        warn("SMT is on".to_owned(), SMT_REMEDY);
    }
    if detail(TURBO) == Some(ON) {
        warn(
            "turbo is on: the speed of the processors depends on their temperature and load"
                .to_owned(),
            TURBO_REMEDY,
        );
    }
    if let Some(clock) = detail(CLOCK).filter(|clock| !FAST_CLOCK_SOURCES.contains(clock)) {
        warn(format!("the clock source is {clock}"), CLOCK_REMEDY);
    }
    if let Some(limit) = detail(CPU_LIMIT) {
        warn(
            format!(
                "the cgroup of the Tester has a CPU quota and is stopped when it is used up (cpu.max {limit}, in \
                 us of each period)"
            ),
            "lift the limit",
        );
    }
    let load = detail(LOAD).and_then(|load| load.split(' ').next());
    if let Some(load) = load.filter(|load| load.parse().is_ok_and(|load: f64| load > LOAD_MAX)) {
        warn(
            format!("the load in the minute before the start was {load}"),
            "stop other programs on the machine, unless the load was an earlier part of the campaign",
        );
    }
    warnings
}

/// Value of a detail that is a switch.
const ON: &str = "on";

const SMT: &str = "SMT";
const GOVERNOR: &str = "frequency governor";
const RANGE: &str = "frequency range";
const TURBO: &str = "turbo";
const HYPERVISOR: &str = "hypervisor";
const CLOCK: &str = "clock source";
const CPU_LIMIT: &str = "cgroup cpu.max";
/// Details that [`speed`] returns.
const SPEED: [&str; 6] = [SMT, GOVERNOR, RANGE, TURBO, CLOCK, CPU_LIMIT];

/// Name of the detail that differs at each start.
pub const LOAD: &str = "load average at the start";

/// The two places where turbo is switched off (Documentation/admin-guide/pm).
const TURBO_REMEDY: &str = "`echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo` or `echo 0 > \
                            /sys/devices/system/cpu/cpufreq/boost`";

/// An idle machine is below 0.1; one task that is always running gives 1.
const LOAD_MAX: f64 = 0.5;

/// Octets kept of a text of free form.
const TEXT_MAX: usize = 1024;

/// Settings that determine whether and where datagrams are lost or queued (Documentation/admin-guide/sysctl/net.rst,
/// networking/ip-sysctl.rst).
const SYSCTLS: [&str; 10] = [
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.udp_mem",
];

/// Tools that build labs, and the option that prints their version.
const TOOLS: [(&str, &str); 3] = [
    ("ip", "-V"),
    ("ethtool", "--version"),
    ("taskset", "--version"),
];

/// Tools respond at once; one that takes longer hangs.
const VERSION_LIMIT: Nanos = 2 * SECOND;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;

    use expect_test::expect;

    use super::*;

    /// A machine with these files.
    fn of_files(files: &[(&str, &str)]) -> Environment {
        let root = tempfile::tempdir().unwrap();
        let here = Machine::at(root.path());
        for (path, text) in files {
            let path = here.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        machine(&here)
    }

    fn warned(environment: &Environment) -> String {
        let warnings = warnings(environment);
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        warnings.join("\n")
    }

    fn told(environment: &Environment) -> String {
        let mut text = String::new();
        for (name, value) in &environment.details {
            writeln!(text, "{name} = {value}").unwrap();
        }
        text
    }

    const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

    #[test]
    fn machine_with_two_kinds_of_cores_is_recorded_in_full_with_warnings() {
        let policy = |n: u32, file: &str| format!("{CPUFREQ}/policy{n}/{file}");
        let mut files = vec![
            ("/proc/sys/kernel/hostname".to_owned(), "bench1\n"),
            ("/proc/sys/kernel/random/boot_id".to_owned(), "0d7c\n"),
            ("/proc/sys/kernel/osrelease".to_owned(), "6.1.0-18-amd64\n"),
            ("/proc/meminfo".to_owned(), "MemTotal: 2 kB\n"),
            ("/sys/devices/system/cpu/smt/active".to_owned(), "1\n"),
            (format!("{CPUFREQ}/boost"), "1\n"),
            ("/proc/loadavg".to_owned(), "1.17 0.70 0.51 1/96 21097\n"),
            ("/proc/sys/net/core/rmem_max".to_owned(), "212992\n"),
            (
                "/proc/sys/net/ipv4/ip_local_port_range".to_owned(),
                "32768\t60999\n",
            ),
        ];
        for (n, cpus, governor, most) in [
            (0, "0 1", "powersave", "4400000"),
            (2, "2 3", "powersave", "4400000"),
            (4, "4", "performance", "3300000"),
        ] {
            files.push((policy(n, "affected_cpus"), cpus));
            files.push((policy(n, "scaling_governor"), governor));
            files.push((policy(n, "scaling_driver"), "intel_pstate"));
            files.push((policy(n, "scaling_min_freq"), "400000"));
            files.push((policy(n, "scaling_max_freq"), most));
        }
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (path.as_str(), *text))
            .collect();
        let environment = of_files(&files);
        assert_eq!(environment.host, "bench1");
        assert_eq!(environment.boot_id, "0d7c");
        assert_eq!(environment.memory_bytes, 2048);
        assert!(environment.kernel.starts_with("Linux 6.1.0-18-amd64 "));
        expect![[r#"
            SMT = on
            frequency driver = intel_pstate
            frequency governor = powersave (CPUs 0-3); performance (CPUs 4)
            frequency range = 400 to 4400 MHz (CPUs 0-3); 400 to 3300 MHz (CPUs 4)
            load average at the start = 1.17 0.70 0.51
            net.core.rmem_max = 212992
            net.ipv4.ip_local_port_range = 32768 60999
            turbo = on
        "#]]
        .assert_eq(&told(&environment));
        expect![[r#"
            the frequency governor is powersave (CPUs 0-3); performance (CPUs 4), so that the speed of the processors follows the load; `cpupower frequency-set -g performance` (Debian package linux-cpupower)
            SMT is on; two threads of one core disturb each other: `echo off > /sys/devices/system/cpu/smt/control`, or give each role whole cores
            turbo is on: the speed of the processors depends on their temperature and load; `echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo` or `echo 0 > /sys/devices/system/cpu/cpufreq/boost`
            the load in the minute before the start was 1.17; stop other programs on the machine, unless the load was an earlier part of the campaign"#]].assert_eq(&warned(&environment));
    }

    #[test]
    fn speed_has_the_settings_that_change_tester_capacity() {
        let root = tempfile::tempdir().unwrap();
        let here = Machine::at(root.path());
        for (path, text) in [
            ("/sys/devices/system/cpu/smt/active", "1\n"),
            ("/sys/devices/system/cpu/cpufreq/boost", "0\n"),
            ("/proc/loadavg", "0.50 0.70 0.51 1/96 21097\n"),
            ("/sys/fs/cgroup/cpu.max", "150000 100000\n"),
            ("/proc/self/cgroup", "0::/\n"),
        ] {
            let path = here.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let told: Vec<_> = speed(&here).into_iter().collect();
        let expected = [
            ("SMT", "on"),
            ("cgroup cpu.max", "150000 100000"),
            ("turbo", "off"),
        ];
        assert_eq!(told, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn guest_with_cpu_quota_causes_warnings() {
        let environment = of_files(&[
            (
                "/proc/cpuinfo",
                "model name : AMD EPYC\nflags : sse2 hypervisor\n",
            ),
            (
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                "hpet\n",
            ),
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/cpu.max", "150000 100000\n"),
            ("/proc/loadavg", "0.50 0.70 0.51 1/96 21097\n"),
        ]);
        expect![[r#"
            the machine is virtual (hypervisor: unknown): its host may take CPU time without a trace in its counters; use a physical machine, or repeat results that vary
            the clock source is hpet; reading the time takes a system call: boot with clocksource=tsc
            the cgroup of the Tester has a CPU quota and is stopped when it is used up (cpu.max 150000 100000, in us of each period); lift the limit"#]].assert_eq(&warned(&environment));
    }

    #[test]
    fn idle_physical_machine_causes_no_warning() {
        let environment = of_files(&[
            ("/sys/devices/system/cpu/smt/active", "0\n"),
            ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
            (
                "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
            ("/proc/loadavg", "0.03 0.01 0.00 1/96 21097\n"),
        ]);
        assert_eq!(warnings(&environment), []);
        assert_eq!(warnings(&Environment::default()), []);
    }

    #[test]
    fn long_text_is_truncated_at_character_boundary() {
        let text = bounded("\u{e4}".repeat(TEXT_MAX));
        assert_eq!(text, format!("{} [cut]", "\u{e4}".repeat(TEXT_MAX / 2)));
        assert_eq!(bounded("ro quiet".into()), "ro quiet");
    }

    #[test]
    fn this_machine_has_basic_linux_facts() {
        let environment = capture(&[Network::Own, Network::Netns("no-such-lab".into())]);
        assert!(!environment.boot_id.is_empty());
        assert!(environment.cpus > 0);
        assert!(environment.memory_bytes > 0);
        assert!(environment.details.contains_key("net.ipv4.udp_mem"));
        assert!(environment.details.contains_key(LOAD));
        let again: Environment =
            serde_json::from_str(&serde_json::to_string(&environment).unwrap()).unwrap();
        assert_eq!(again, environment);
    }
}
