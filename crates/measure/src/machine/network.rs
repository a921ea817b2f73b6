//! Where a role runs: in this machine's own network, or in a network namespace.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::cpuset::CpuSet;
use super::process::find_program;
use super::{Blame, LabError};

/// Directory of the namespaces of `ip netns` (ip-netns(8)).
pub const NETNS_DIR: &str = "/run/netns";

/// A network of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// The network in which this process was started.
    Own,
    /// The network namespace of this name, as listed by `ip netns`.
    Netns(String),
}

impl Network {
    /// Builds a command that runs `program` on this host, pinned to `cpus`.
    ///
    /// Every wrapper (`ip netns exec`, `taskset`, `setpriv`) replaces itself with the next program, so the child's
    /// process ID is that of `program`. If `setpriv` of util-linux is installed, the program is killed when the
    /// *thread* that started it ends: start it from a thread that outlives it. A program that daemonises escapes this;
    /// whoever removes its namespace ends it.
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

    /// Runs `work` on a thread in this host's network and returns its result.
    ///
    /// A socket stays in the network in which it was opened, so the sockets that `work` opens can be used anywhere
    /// later. The calling thread stays in its network.
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

    /// Returns whether only this lab uses the host's network.
    pub fn is_private(&self) -> bool {
        matches!(self, Self::Netns(_))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("this host"),
            Self::Netns(name) => write!(f, "namespace {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_enters_the_namespace_before_it_sets_the_affinity() {
        let host = Network::Netns("lab-x".into());
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
    fn missing_namespace_is_named() {
        let error = Network::Netns("no-such-lab".into())
            .enter(|| ())
            .unwrap_err();
        assert!(error.to_string().contains("\"no-such-lab\""));
    }
}
