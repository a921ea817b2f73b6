//! Where a role runs: on this machine's own network, or in a network namespace.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::find_program;
use super::{Blame, LabError};
use crate::quantity::ValueError;

/// Where `ip netns` keeps its namespaces (ip-netns(8)).
pub(crate) const NETNS_DIR: &str = "/run/netns";

/// A place with a network of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// The network that this process was started in.
    Here,
    /// The network namespace of this name, as `ip netns` knows it.
    Netns(String),
}

impl Host {
    /// A command that runs `program` on this host, pinned to `cpus`.
    ///
    /// Everything put in front (`ip netns exec`, `taskset`, `setpriv`) executes the next program
    /// in its own place, so the child's process ID is that of `program`. Where util-linux'
    /// `setpriv` is installed, the program is killed when the *thread* that started it ends:
    /// start it from a thread that outlives it. What forks itself away from that is ended by the
    /// next [`super::topology::Lab::up`] or [`super::topology::down`].
    pub fn command(&self, program: &Path, cpus: &CpuSet) -> Command {
        let mut words: Vec<PathBuf> = Vec::new();
        if let Self::Netns(name) = self {
            words.extend(["ip", "netns", "exec", name].map(PathBuf::from));
        }
        if !cpus.is_unrestricted() {
            words.extend(["taskset".into(), "-c".into(), cpus.to_string().into()]);
        }
        if find_program("setpriv").is_some() {
            words.extend(["setpriv", "--pdeathsig", "KILL"].map(PathBuf::from));
        }
        words.push(program.to_path_buf());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Runs `work` on a thread that has joined this host's network and gives back its result.
    ///
    /// A socket stays in the network that it was opened in, so the sockets that `work` opens can
    /// be used anywhere later. The calling thread stays where it is.
    ///
    /// # Errors
    ///
    /// The namespace does not exist, or this process may not join it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let Self::Netns(name) = self else {
            return Ok(work());
        };
        let path = Path::new(NETNS_DIR).join(name);
        let namespace = File::open(&path).map_err(Blame::Machine.because(format!(
            "cannot open network namespace {name:?}; bring the lab up first"
        )))?;
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(Blame::Machine.because(format!(
                        "cannot join network namespace {name:?}; this needs root or a user \
                         namespace"
                    )))?;
                Ok(work())
            });
            match joined.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Whether the host's network is one that only this lab uses.
    pub fn is_private(&self) -> bool {
        matches!(self, Self::Netns(_))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("this host"),
            Self::Netns(name) => write!(f, "namespace {name}"),
        }
    }
}

/// A set of CPUs as `taskset -c` writes it: "0", "0,2-3".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<usize>);

impl CpuSet {
    /// No restriction: the scheduler decides.
    pub fn unrestricted() -> Self {
        Self::default()
    }

    /// The CPUs in ascending order; empty when unrestricted.
    pub fn cpus(&self) -> &[usize] {
        &self.0
    }

    /// Whether the scheduler decides.
    pub fn is_unrestricted(&self) -> bool {
        self.0.is_empty()
    }

    /// These CPUs, or `others` where it is unrestricted.
    #[must_use]
    pub fn or(self, others: &[usize]) -> Self {
        if self.is_unrestricted() {
            others.iter().copied().collect()
        } else {
            self
        }
    }

    /// How many threads can run at once: the size of the set, or what the machine has.
    pub fn cores(&self) -> usize {
        if self.is_unrestricted() {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            self.0.len()
        }
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut cpus: Vec<usize> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl FromStr for CpuSet {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || {
            ValueError(format!(
                "{text:?} is not a set of CPUs; write \"0\" or \"0,2-3\""
            ))
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: usize = low.trim().parse().map_err(|_| malformed())?;
            let high: usize = high.trim().parse().map_err(|_| malformed())?;
            if low > high {
                return Err(malformed());
            }
            if high >= CPUS_MAX {
                return Err(ValueError(format!(
                    "CPU {high} is beyond {}, the most that Linux knows",
                    CPUS_MAX - 1
                )));
            }
            cpus.extend(low..=high);
        }
        Ok(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = rest.windows(2).take_while(|w| w[0] + 1 == w[1]).count();
            write!(f, "{separator}{first}")?;
            if run > 0 {
                write!(f, "-{}", first + run)?;
            }
            rest = &rest[run + 1..];
            separator = ",";
        }
        Ok(())
    }
}

/// Largest `CONFIG_NR_CPUS` of Linux on x86-64 (arch/x86/Kconfig, `MAXSMP`).
const CPUS_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_sets_are_read_and_written_as_taskset_does() {
        for (text, cpus, back) in [
            ("0", vec![0], "0"),
            ("0,2-3", vec![0, 2, 3], "0,2-3"),
            ("3,2,1,1", vec![1, 2, 3], "1-3"),
            ("7-7", vec![7], "7"),
        ] {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!(set.cpus(), cpus);
            assert_eq!(set.to_string(), back);
            assert_eq!(set.cores(), cpus.len());
        }
    }

    #[test]
    fn bad_cpu_sets_are_refused() {
        for text in ["", ",", "a", "1-", "-1", "3-1", "0x2", "1,,2"] {
            let error = text.parse::<CpuSet>().unwrap_err().to_string();
            let expected = format!("{text:?} is not a set of CPUs; ");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = "0-99999999999".parse::<CpuSet>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "CPU 99999999999 is beyond 8191, the most that Linux knows"
        );
    }

    #[test]
    fn a_command_enters_the_namespace_before_it_pins_itself() {
        let host = Host::Netns("lab-x".into());
        let cpus: CpuSet = "1".parse().unwrap();
        let command = host.command(Path::new("/bin/true"), &cpus);
        let words: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_str().unwrap())
            .collect();
        assert_eq!(
            words[..7],
            ["ip", "netns", "exec", "lab-x", "taskset", "-c", "1"]
        );
        assert_eq!(words.last(), Some(&"/bin/true"));
    }

    #[test]
    fn a_missing_namespace_is_named() {
        let error = Host::Netns("no-such-lab".into()).enter(|| ()).unwrap_err();
        assert!(error.to_string().contains("\"no-such-lab\""));
    }
}
