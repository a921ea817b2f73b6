//! A Linux machine: what its kernel and its programs tell of it, and its processes.
//!
//! [`Machine`] has its processors, frequencies, memory and limits, [`interface`] its links, [`counters`] the packets that
//! its kernel counted, [`watch`] their increase during a trial, and [`usage`] who used its cores.
//! A [`network::Network`] is a network on it, a [`process`] a program that was started.
//!
//! Properties are read from files below [`Machine::here`]'s root; nothing is changed. Missing and unparsable values are
//! `None`: virtual machines and containers lack most of them.

pub mod counters;
pub mod cpuset;
mod error;
pub mod interface;
pub mod network;
pub mod process;
pub mod usage;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cpuset::CpuSet;
pub use error::{Blame, LabError};

/// Clock sources that are read without a system call (vdso(7)).
pub const FAST_CLOCK_SOURCES: [&str; 3] = ["tsc", "kvm-clock", "arch_sys_counter"];

/// Remedy for active SMT.
pub const SMT_REMEDY: &str = "two threads of one core disturb each other: `echo off > \
                              /sys/devices/system/cpu/smt/control`, or give each role whole cores";

/// Remedy for a frequency governor other than "performance".
pub const GOVERNOR_REMEDY: &str =
    "`cpupower frequency-set -g performance` (Debian package linux-cpupower)";

/// Remedy for a clock source that is not in [`FAST_CLOCK_SOURCES`].
pub const CLOCK_REMEDY: &str = "reading the time takes a system call: boot with clocksource=tsc";

/// What a host is for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends the queries and judges the answers.
    Measurer,
    /// The device under test.
    Dut,
    /// Answers the queries of the DUT.
    Authority,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Measurer, Self::Dut, Self::Authority];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Measurer => "Measurer",
            Self::Dut => "DUT",
            Self::Authority => "authority",
        })
    }
}

/// A machine, represented by its files.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

/// Processors that share a frequency (`cpufreq/policyN`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequencyPolicy {
    /// Its processors.
    pub cpus: CpuSet,
    /// Frequency governor: "performance", "powersave", "schedutil", ...
    pub governor: String,
    /// Frequency driver: "intel_pstate", "acpi-cpufreq", ...
    pub driver: Option<String>,
    /// Lowest and highest frequency for the governor, in kHz.
    pub range_khz: Option<(u64, u64)>,
}

/// The CPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs that a process may be pinned to.
    pub allowed: CpuSet,
}

impl Cpus {
    /// Returns why a role cannot run on a set of CPUs; `None` if it can.
    pub fn refuse(&self, wished: &CpuSet) -> Option<String> {
        let missing = |from: &CpuSet| -> CpuSet {
            let cpus = wished.cpus().iter().copied();
            cpus.filter(|cpu| !from.cpus().contains(cpu)).collect()
        };
        let absent = missing(&self.online);
        if !absent.is_unrestricted() {
            return Some(format!(
                "core {absent} is missing; use CPUs that are online: {}",
                self.online
            ));
        }
        let forbidden = missing(&self.allowed);
        (!forbidden.is_unrestricted()).then(|| {
            format!(
                "core {forbidden} is outside the cpuset of this process; use its CPUs, {}, or widen cpuset.cpus \
                 of its cgroup (of a container: --cpuset-cpus)",
                self.allowed
            )
        })
    }
}

impl Machine {
    /// The machine that this process runs on.
    pub fn here() -> Self {
        Self::at(Path::new("/"))
    }

    /// Returns a machine whose `/proc`, `/sys` and `/etc` are below `root`.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    /// Path of a file of the machine, from its absolute path.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the trimmed text of a file; `None` if it is unreadable or empty. Reads at most 4 MiB.
    pub fn read(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(READ_MAX).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Returns the names in a directory, unordered; empty if it is unreadable.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = self.path(folder).read_dir().into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Returns a kernel setting by its dotted name; numbers are separated by one space.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let text = self.read(&format!("/proc/sys/{}", name.replace('.', "/")))?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Returns an amount of memory from `/proc/meminfo`, such as "`MemTotal`", in octets.
    pub fn memory_bytes(&self, field: &str) -> Option<u64> {
        number(&self.read("/proc/meminfo")?, field)?.checked_mul(1024)
    }

    /// Returns the memory that this process and its children can still allocate, in octets: the available memory of the
    /// kernel, limited by its cgroup and all cgroups above. The page cache of a cgroup counts as free, because it is
    /// reclaimed first.
    pub fn memory_room(&self) -> Option<u64> {
        let groups = self.groups(
            &self.read("/proc/self/cgroup").unwrap_or_default(),
            "memory",
        );
        let left = |folder: String| {
            let figure = |names: [&str; 2]| {
                let mut texts = names
                    .iter()
                    .filter_map(|name| self.read(&format!("{folder}/{name}")));
                texts.next()?.parse::<u64>().ok()
            };
            let limit = figure(["memory.max", "memory.limit_in_bytes"])?;
            let taken = figure(["memory.current", "memory.usage_in_bytes"])?;
            let kept = self.read(&format!("{folder}/memory.stat"));
            let kept = kept.and_then(|stat| {
                let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
                let (_, octets) = lines.find(|(key, _)| *key == "inactive_file")?;
                octets.parse::<u64>().ok()
            });
            Some(limit.saturating_sub(taken.saturating_sub(kept.unwrap_or(0))))
        };
        let available = self.memory_bytes("MemAvailable");
        groups.into_iter().filter_map(left).chain(available).min()
    }

    /// Returns the CPUs that are online, and those of them that the cgroup of this process allows.
    pub fn cpus(&self) -> Option<Cpus> {
        let online: CpuSet = self.read("/sys/devices/system/cpu/online")?.parse().ok()?;
        let cgroups = self.read("/proc/self/cgroup").unwrap_or_default();
        let groups = self.groups(&cgroups, "cpuset");
        let files = [
            "cpuset.cpus.effective",
            "cpuset.effective_cpus",
            "cpuset.cpus",
        ];
        let allowed = groups.iter().find_map(|group| {
            let mut texts = files
                .iter()
                .filter_map(|file| self.read(&format!("{group}/{file}")));
            texts.next()?.parse().ok()
        });
        let allowed = allowed.unwrap_or_else(|| online.clone());
        Some(Cpus { online, allowed })
    }

    /// Name of the processor.
    pub fn cpu_model(&self) -> Option<String> {
        cpu_model(&self.read("/proc/cpuinfo")?)
    }

    /// Whether two or more threads of a core are in use.
    pub fn smt(&self) -> Option<bool> {
        let active = self.read("/sys/devices/system/cpu/smt/active")?;
        Some(active == "1")
    }

    /// The frequency policies in the order of their processors.
    pub fn frequency_policies(&self) -> Vec<FrequencyPolicy> {
        let folder = "/sys/devices/system/cpu/cpufreq";
        let mut policies: Vec<_> = self
            .names(folder)
            .into_iter()
            .filter_map(|name| {
                let file = |file: &str| self.read(&format!("{folder}/{name}/{file}"));
                let khz = |name: &str| file(name)?.parse().ok();
                let cpus = file("affected_cpus")?;
                Some(FrequencyPolicy {
                    cpus: cpus.split_whitespace().flat_map(str::parse).collect(),
                    governor: file("scaling_governor")?,
                    driver: file("scaling_driver"),
                    range_khz: khz("scaling_min_freq").zip(khz("scaling_max_freq")),
                })
            })
            .collect();
        policies.sort_by(|a, b| a.cpus.cpus().cmp(b.cpus.cpus()));
        policies
    }

    /// The frequency governors, each once; empty if they are not readable.
    pub fn governors(&self) -> Vec<String> {
        let policies = self.frequency_policies().into_iter();
        let governors: BTreeSet<_> = policies.map(|policy| policy.governor).collect();
        governors.into_iter().collect()
    }

    /// Whether processors may temporarily exceed their nominal frequency.
    pub fn turbo(&self) -> Option<bool> {
        if let Some(off) = self.read("/sys/devices/system/cpu/intel_pstate/no_turbo") {
            return Some(off == "0");
        }
        let boost = self.read("/sys/devices/system/cpu/cpufreq/boost")?;
        Some(boost == "1")
    }

    /// Name of the hypervisor; `None` on bare metal, or if it is hidden.
    pub fn hypervisor(&self) -> Option<String> {
        let flag = self
            .read("/proc/cpuinfo")
            .is_some_and(|text| is_guest(&text));
        let kind = self.read("/sys/hypervisor/type");
        if !flag && kind.is_none() {
            return None;
        }
        let dmi = |name: &str| self.read(&format!("/sys/class/dmi/id/{name}"));
        let words: Vec<_> = [kind, dmi("sys_vendor"), dmi("product_name")]
            .into_iter()
            .flatten()
            .collect();
        Some(match words.is_empty() {
            true => "unknown".to_owned(),
            false => words.join(" "),
        })
    }

    /// Clock source of the kernel.
    pub fn clock_source(&self) -> Option<String> {
        self.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    }

    /// Vulnerabilities of the processor with their mitigations, by name; those that do not affect it are omitted.
    pub fn mitigations(&self) -> BTreeMap<String, String> {
        let folder = "/sys/devices/system/cpu/vulnerabilities";
        self.names(folder)
            .into_iter()
            .filter_map(|name| {
                let state = self.read(&format!("{folder}/{name}"))?;
                let state = state.trim_start_matches("Mitigation: ").to_owned();
                (state != "Not affected").then_some((name, state))
            })
            .collect()
    }

    /// Kernel command line, without the arguments of the first process.
    pub fn command_line(&self) -> Option<String> {
        Some(kernel_words(&self.read("/proc/cmdline")?))
    }

    /// Mode of transparent huge pages: "always", "madvise" or "never".
    pub fn transparent_hugepages(&self) -> Option<String> {
        chosen(&self.read("/sys/kernel/mm/transparent_hugepage/enabled")?)
    }

    /// Returns a limit of this process's cgroup (version 2), such as "cpu.max": its own, or that of the nearest
    /// ancestor that has one. `None` without a limit.
    pub fn cgroup_limit(&self, file: &str) -> Option<String> {
        let own = cgroup_path(&self.read("/proc/self/cgroup")?)?;
        own.ancestors().find_map(|group| {
            let group = group.to_str()?.trim_matches('/');
            let limit = self.read(&format!("/sys/fs/cgroup/{group}/{file}"))?;
            (!limit.starts_with("max")).then_some(limit)
        })
    }

    /// Directories of the CPU controller for a `/proc/PID/cgroup`: those of the cgroup and of all its ancestors, in
    /// both versions, existing or not (cgroups(7)). In a container the path may be that of the host's view; then its
    /// own cgroup is the root.
    pub fn cpu_groups(&self, cgroups: &str) -> Vec<String> {
        self.groups(cgroups, "cpu")
    }

    /// The same for another controller.
    fn groups(&self, cgroups: &str, controller: &str) -> Vec<String> {
        let mut folders = Vec::new();
        for line in cgroups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let mounts = match controllers {
                "" => ["", "/unified"].map(str::to_owned),
                _ if controllers.split(',').any(|name| name == controller) => {
                    [format!("/{controller}"), format!("/{controllers}")]
                }
                _ => continue,
            };
            for mount in mounts {
                let groups = Path::new(path).ancestors().filter_map(Path::to_str);
                let groups = groups.map(|group| group.trim_end_matches('/'));
                folders.extend(groups.map(|group| format!("/sys/fs/cgroup{mount}{group}")));
            }
        }
        folders.dedup();
        folders
    }

    /// Returns the CPU quota of this process's cgroup, or of the nearest ancestor that has one: quota and period in
    /// microseconds, as in `cpu.max`. `None` without a quota.
    pub fn cpu_quota(&self) -> Option<String> {
        let groups = self.cpu_groups(&self.read("/proc/self/cgroup")?);
        groups.iter().find_map(|group| {
            let of_two = self.read(&format!("{group}/cpu.max"));
            if let Some(limit) = of_two.filter(|limit| !limit.starts_with("max")) {
                return Some(limit);
            }
            let quota = self.read(&format!("{group}/cpu.cfs_quota_us"))?;
            let period = self.read(&format!("{group}/cpu.cfs_period_us"))?;
            // -1 means no quota.
            (!quota.starts_with('-')).then(|| format!("{quota} {period}"))
        })
    }

    /// Load average over 1, 5 and 15 minutes.
    pub fn load_average(&self) -> Option<String> {
        let text = self.read("/proc/loadavg")?;
        let words: Vec<_> = text.split(' ').take(3).collect();
        Some(words.join(" "))
    }

    /// Name and version of the distribution.
    pub fn distribution(&self) -> Option<String> {
        let text = self
            .read("/etc/os-release")
            .or_else(|| self.read("/usr/lib/os-release"))?;
        let name = text
            .lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(name.trim_matches(['"', '\'']).to_owned())
    }
}

/// `/proc/cpuinfo` has about 1.5 KiB for each processor: enough for more than 2000.
const READ_MAX: u64 = 4 << 20;

/// Returns the trimmed value of the first line "KEY: VALUE", the format of most files of `/proc` and of `ethtool`.
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == key).then_some(value.trim())
    })
}

/// The same as a number, without a unit that may follow.
pub fn number(text: &str, key: &str) -> Option<u64> {
    let value = field(text, key)?.split_whitespace().next()?;
    value.parse().ok()
}

/// Returns the name of the processor: x86 has names, ARM has numbers (Arm ARM, register MIDR_EL1).
fn cpu_model(text: &str) -> Option<String> {
    if let Some(name) = field(text, "model name") {
        return Some(name.to_owned());
    }
    let implementer = field(text, "CPU implementer")?;
    let part = field(text, "CPU part")?;
    Some(format!("implementer {implementer}, part {part}"))
}

/// Returns whether the flag `CPUID.1:ECX.31` is set, as by hypervisors for their guests.
fn is_guest(text: &str) -> bool {
    field(text, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
}

/// Returns the words before "--": the later ones are for the first process (bootparam(7)).
fn kernel_words(text: &str) -> String {
    let words: Vec<_> = text
        .split_whitespace()
        .take_while(|word| *word != "--")
        .collect();
    words.join(" ")
}

/// Returns the word in brackets of "always [madvise] never".
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

/// Returns the cgroup of version 2 in `/proc/self/cgroup` (cgroups(7)).
fn cgroup_path(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests;
