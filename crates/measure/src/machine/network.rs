//! Where a role runs: in this machine's own network, or in a network namespace.

use std::fmt;
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::Builder;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::cpuset::CpuSet;
use super::process::find_program;
use super::{Blame, LabError, Machine};

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
    /// The namespace does not exist, this process may not join it, or the thread cannot be started.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let Self::Netns(name) = self else {
            return Ok(work());
        };
        let path = Path::new(NETNS_DIR).join(name);
        let namespace = File::open(&path).map_err(Blame::Machine.because(format!(
            "cannot open network namespace {name:?}; bring the lab up first"
        )))?;
        std::thread::scope(|scope| {
            let joined = Builder::new().spawn_scoped(scope, || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(Blame::Machine.because(format!(
                        "cannot join network namespace {name:?}; this needs root or a user \
                         namespace"
                    )))?;
                Ok(work())
            });
            // It cannot be started where memory is limited.
            let joined = joined.map_err(Blame::Machine.because("cannot start a thread"))?;
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

/// Returns whether a process of this machine has this address in a network other than that of this process. Processes
/// that are not visible in /proc have none.
pub fn is_of_another(machine: &Machine, address: IpAddr) -> bool {
    let (file, has): (_, fn(&str, IpAddr) -> bool) = match address {
        IpAddr::V4(_) => ("net/fib_trie", has_v4),
        IpAddr::V6(_) => ("net/if_inet6", has_v6),
    };
    let addresses = |process: &str| machine.read(&format!("/proc/{process}/{file}"));
    let own = addresses("self");
    let is_process = |name: &String| name.bytes().all(|octet| octet.is_ascii_digit());
    let mut processes = machine.names("/proc").into_iter().filter(is_process);
    processes.any(|process| {
        let others = addresses(&process).filter(|text| Some(text) != own.as_ref());
        others.is_some_and(|text| has(&text, address))
    })
}

/// Whether an address is in `fib_trie`: "|-- 192.0.2.1" and, as the first of its routes, "/32 host LOCAL".
fn has_v4(text: &str, address: IpAddr) -> bool {
    let address = address.to_string();
    text.split("|-- ").any(|leaf| {
        let mut words = leaf.split_whitespace();
        words.next() == Some(&address) && words.take(3).eq(["/32", "host", "LOCAL"])
    })
}

/// Whether an address is in `if_inet6`, at the beginning of a line.
fn has_v6(text: &str, address: IpAddr) -> bool {
    let bits = |line: &str| u128::from_str_radix(line.split(' ').next()?, 16).ok();
    let mut all = text.lines().filter_map(bits);
    all.any(|bits| IpAddr::from(Ipv6Addr::from_bits(bits)) == address)
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
    fn address_of_a_process_in_another_network_is_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |process: &str, v6: &str, v4: &str| {
            let folder = root.path().join("proc").join(process).join("net");
            std::fs::create_dir_all(&folder).unwrap();
            let v6 = format!("{v6} 01 80 10 80       lo\n");
            std::fs::write(folder.join("if_inet6"), v6).unwrap();
            let v4 = format!(
                "Local:\n  +-- 0.0.0.0/0 3 0 5\n     +-- {v4}/31 1 0 0\n        |-- 192.0.2.0\n           /24 link \
                 UNICAST\n        |-- {v4}\n           /32 host LOCAL\n"
            );
            std::fs::write(folder.join("fib_trie"), v4).unwrap();
        };
        let own = ("fe800000000000000000000000000001", "192.0.2.1");
        write("self", own.0, own.1);
        write("1", own.0, own.1);
        write("sys", "20010db8000000000000000000000054", "192.0.2.54");
        write("77", "20010db8000000000000000000000053", "192.0.2.53");
        let machine = Machine::at(root.path());
        let found = |address: &str| is_of_another(&machine, address.parse().unwrap());
        assert!(found("2001:db8::53") && found("192.0.2.53"));
        for other in [
            "2001:db8::54",
            "192.0.2.54",
            "192.0.2.0",
            "fe80::1",
            "192.0.2.1",
        ] {
            assert!(!found(other), "{other}");
        }
    }

    #[test]
    fn missing_namespace_is_named() {
        let error = Network::Netns("no-such-lab".into())
            .enter(|| ())
            .unwrap_err();
        assert!(error.to_string().contains("\"no-such-lab\""));
    }
}
