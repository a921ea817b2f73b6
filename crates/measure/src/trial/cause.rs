//! Reasons why a role did not get its core, from the kernel's counters.

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Role;

/// Reason why a role did not get its core.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A CPU quota was used up.
    Throttled {
        /// Time throttled.
        throttled_ns: Nanos,
        /// Length of the trial.
        of_ns: Nanos,
    },
    /// The hypervisor ran another guest.
    Stolen {
        /// Time stolen.
        steal_ns: Nanos,
        /// Length of the trial, times its cores.
        of_ns: Nanos,
        /// Its cores.
        cores: String,
    },
    /// Other processes ran on its core.
    Neighbour {
        /// Time used by others; without an affinity the time in which its threads waited for a core.
        foreign_ns: Nanos,
        /// Length of the trial, times its cores.
        of_ns: Nanos,
        /// Its cores; `None` without an affinity.
        cores: Option<String>,
        /// Program and process ID of the process with the most CPU time.
        process: Option<(String, u32)>,
    },
    /// The server runs on the machine of the Tester, where processes waited for a processor.
    Crowded {
        /// Time in which at least one waited.
        pressure_ns: Nanos,
        /// Length of the trial.
        of_ns: Nanos,
    },
    /// Nothing took its core, but half of the queries were late: the rate exceeds its capacity.
    Behind,
    /// No counter of the kernel explains it: its process, or the whole machine, was stopped.
    Stopped,
}

impl Cause {
    /// Describes the effect on `role`, with its figures.
    pub fn what(&self, role: Role) -> String {
        let whose = format!("the {role}'s");
        match self {
            Self::Throttled {
                throttled_ns,
                of_ns,
            } => format!(
                "a CPU quota stopped {whose} process for {} of the trial",
                share(*throttled_ns, *of_ns)
            ),
            Self::Stolen {
                steal_ns,
                of_ns,
                cores,
            } => format!(
                "the host of this virtual machine took {} of {whose} {}",
                share(*steal_ns, *of_ns),
                named(cores)
            ),
            // Which of the other processes and of its own threads had the cores is not known.
            Self::Neighbour {
                foreign_ns,
                cores: None,
                ..
            } => format!(
                "{whose} threads waited for processors for {:.0} ms in total",
                *foreign_ns as f64 / 1e6
            ),
            Self::Neighbour {
                foreign_ns,
                of_ns,
                cores: Some(cores),
                process,
            } => {
                let cores = named(cores);
                let process = process.as_ref();
                let who = process.map(|(name, pid)| format!(" (most of all {name}, pid {pid})"));
                format!(
                    "other processes used {} of {whose} {cores}{}",
                    share(*foreign_ns, *of_ns),
                    who.unwrap_or_default()
                )
            }
            Self::Crowded { pressure_ns, of_ns } => format!(
                "the {role} shares the processors of the Tester, for which processes waited in {} of the trial",
                share(*pressure_ns, *of_ns)
            ),
            Self::Behind => {
                format!("half of the queries left late: the rate is too high for {whose} cores")
            }
            Self::Stopped => format!(
                "no other process, quota or hypervisor took {whose} core: its process or the whole \
                 machine was stopped"
            ),
        }
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Throttled { .. } => "lift the quota (cpu.max, or cpu.cfs_quota_us in version 1)",
            Self::Stolen { .. } => {
                "use a machine whose host gives it cores of its own, or repeat when it is quiet"
            }
            Self::Neighbour { cores: None, .. } => {
                "stop other programs, or give it cores of its own (--cpus)"
            }
            Self::Neighbour { .. } => "stop it, or keep it to other cores (taskset)",
            Self::Crowded { .. } => {
                "measure from another machine, or in a lab, which gives each role its own cores"
            }
            Self::Behind => "lower the rate, or give it more --threads and cores",
            Self::Stopped => "do not stop the process (SIGSTOP, a debugger) or suspend the machine",
        }
    }
}

fn named(cores: &str) -> String {
    match cores.contains([',', '-']) {
        true => format!("cores {cores}"),
        false => format!("core {cores}"),
    }
}

/// Formats a share, with one decimal below 10 %.
fn share(part_ns: Nanos, of_ns: Nanos) -> String {
    let percent = 100.0 * part_ns as f64 / of_ns.max(1) as f64;
    match percent < 10.0 {
        true => format!("{percent:.1} %"),
        false => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_text() {
        let told = |cause: Cause, role| format!("{}; {}", cause.what(role), cause.remedy());
        let neighbour = Cause::Neighbour {
            foreign_ns: 432,
            of_ns: 1000,
            cores: Some("1".into()),
            process: Some(("stress-ng".into(), 1234)),
        };
        assert_eq!(
            told(neighbour, Role::Dut),
            "other processes used 43 % of the DUT's core 1 (most of all stress-ng, pid 1234); stop it, or \
             keep it to other cores (taskset)"
        );
        let waited = Cause::Neighbour {
            foreign_ns: 2_070_000_000,
            of_ns: 1_000_000_000,
            cores: None,
            process: None,
        };
        assert_eq!(
            told(waited, Role::Measurer),
            "the Measurer's threads waited for processors for 2070 ms in total; stop other programs, or give it cores \
             of its own (--cpus)"
        );
        let stolen = Cause::Stolen {
            steal_ns: 25,
            of_ns: 1000,
            cores: "2-3".into(),
        };
        assert_eq!(
            stolen.what(Role::Authority),
            "the host of this virtual machine took 2.5 % of the authority's cores 2-3"
        );
        let throttled = Cause::Throttled {
            throttled_ns: 500,
            of_ns: 1000,
        };
        assert_eq!(
            throttled.what(Role::Measurer),
            "a CPU quota stopped the Measurer's process for 50 % of the trial"
        );
    }
}
