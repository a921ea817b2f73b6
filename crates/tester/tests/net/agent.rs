//! An agent over OpenSSH: a server in a network namespace of the test, with its own keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dns64_transport::clock::SECOND;
use dns64bench::agent::handshake::AgentRefusal;
use dns64bench::agent::link::AgentLink;
use dns64bench::agent::push::push;
use dns64bench::agent::ssh::Options;
use dns64bench::agent::trouble::{LinkError, Trouble};
use dns64bench::lab::hosts::Reach;
use dns64bench::machine::process;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::busy::BUSY_MAX;
use crate::machine::PROGRAM;

/// A namespace with an SSH server at 127.0.0.1; removed when dropped.
struct Host {
    dir: TempDir,
    netns: String,
    sshd: Child,
}

impl Host {
    fn up(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let netns = format!("agent-test-{name}-{}", std::process::id());
        ip(&["netns", "add", &netns]);
        ip(&["-n", &netns, "link", "set", "lo", "up"]);
        for key in ["host_key", "other_key", "key"] {
            keygen(&dir.path().join(key));
        }
        fs::create_dir(dir.path().join("home")).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        fs::copy(
            dir.path().join("key.pub"),
            dir.path().join("authorized_keys"),
        )
        .unwrap();
        let at = dir.path().display();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort 2222\nHostKey {at}/host_key\nAuthorizedKeysFile {at}/authorized_keys\n\
             PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nSetEnv HOME={at}/home\n"
        );
        fs::write(dir.path().join("sshd_config"), config).unwrap();
        let sshd = Command::new("ip")
            .args(["netns", "exec", &netns, "/usr/sbin/sshd", "-D", "-E"])
            .arg(dir.path().join("sshd.log"))
            .arg("-f")
            .arg(dir.path().join("sshd_config"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let host = Self { dir, netns, sshd };
        host.knows("host_key");
        host.client("key");
        let listens = || {
            let log = fs::read_to_string(host.dir.path().join("sshd.log"));
            log.is_ok_and(|log| log.contains("Server listening on 127.0.0.1"))
        };
        assert!(process::wait_until(BUSY_MAX, listens), "{}", host.log());
        host
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("sshd.log")).unwrap_or_default()
    }

    /// Makes the controller accept this host key.
    fn knows(&self, key: &str) {
        let key = fs::read_to_string(self.dir.path().join(format!("{key}.pub"))).unwrap();
        let line = format!("[127.0.0.1]:2222 {key}");
        fs::write(self.dir.path().join("known_hosts"), line).unwrap();
    }

    /// Gives the controller this key.
    fn client(&self, key: &str) {
        let at = self.dir.path().display();
        let config = format!(
            "Host gen1\nHostName 127.0.0.1\nPort 2222\nUser root\nIdentityFile {at}/{key}\nIdentitiesOnly yes\n\
             IdentityAgent none\nUserKnownHostsFile {at}/known_hosts\nGlobalKnownHostsFile /dev/null\n"
        );
        fs::write(self.dir.path().join("config"), config).unwrap();
    }

    fn options(&self) -> Options {
        let mut options = Options::new("tests");
        let config = self.dir.path().join("config").display().to_string();
        let words = ["ip", "netns", "exec", &self.netns, "ssh", "-F", &config];
        options.ssh = words.map(str::to_owned).to_vec();
        options.program = Some(PROGRAM.to_owned());
        options.open_limit_ns = BUSY_MAX;
        options
    }

    fn open(&self) -> Result<AgentLink, LinkError> {
        AgentLink::open("gen1", &reach(), false, &self.options())
    }

    /// The error of a connection, once the previous fault has been removed.
    fn trouble(&self) -> Trouble {
        self.open().unwrap_err().trouble
    }

    /// Its processes of this name.
    fn processes(&self, name: &str) -> Vec<u32> {
        let output = Command::new("ip")
            .args(["netns", "pids", &self.netns])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.filter(|&pid| crate::machine::comm(pid) == name)
            .collect()
    }

    /// Waits until no process of an agent is left.
    fn assert_no_agent(&self) {
        process::wait_until(60 * SECOND, || self.processes("dns64bench").is_empty());
        assert_eq!(self.processes("dns64bench"), Vec::<u32>::new());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for pid in process::tree(self.sshd.id()).into_iter().skip(1) {
            process::signal(pid, Signal::KILL);
        }
        process::kill(&mut self.sshd);
        let _ = Command::new("ip")
            .args(["netns", "del", &self.netns])
            .status();
    }
}

fn ip(arguments: &[&str]) {
    assert!(
        Command::new("ip")
            .args(arguments)
            .status()
            .unwrap()
            .success()
    );
}

fn keygen(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path);
    assert!(command.status().unwrap().success());
}

fn reach() -> Reach {
    Reach::Ssh("gen1".into())
}

#[test]
#[ignore = "needs root and sshd: run by .ci/run net"]
fn agent_serves_over_ssh_and_ends_with_its_link() {
    let host = Host::up("serves");
    let mut link = host.open().unwrap();
    let facts: Value = link.ask(&json!("facts"), BUSY_MAX).unwrap();
    assert_eq!(facts["facts"]["identity"]["tester"], dns64bench::PROGRAM);
    let it = link.clock_exchange().unwrap();
    assert!(it.t0_ns <= it.t1_ns && it.t2_ns <= it.t3_ns, "{it:?}");
    assert_eq!(host.processes("dns64bench").len(), 2);
    // A second controller finds it in use, over the same connection or another.
    let Trouble::Refused(AgentRefusal::InUse { by }) = host.trouble() else {
        panic!("not in use");
    };
    assert!(
        by.contains(&format!("PID {}, tests", std::process::id())),
        "{by}"
    );
    drop(link);
    host.assert_no_agent();
}

#[test]
#[ignore = "needs root and sshd: run by .ci/run net"]
fn ssh_errors_are_distinguished() {
    let host = Host::up("refuses");
    host.knows("other_key");
    assert_eq!(host.trouble(), Trouble::HostKeyChanged);
    fs::write(host.dir.path().join("known_hosts"), "").unwrap();
    assert_eq!(host.trouble(), Trouble::HostKeyUnknown);
    host.knows("host_key");
    host.client("other_key");
    assert!(matches!(host.trouble(), Trouble::PermissionDenied(_)));
    host.client("key");
    let mut options = host.options();
    options.program = Some("/no/such/dns64bench".into());
    let error = AgentLink::open("gen1", &reach(), false, &options).unwrap_err();
    assert!(matches!(error.trouble, Trouble::NoProgram(_)), "{error}");
    let config = fs::read_to_string(host.dir.path().join("config")).unwrap();
    let closed = config.replace("Port 2222", "Port 2223");
    fs::write(host.dir.path().join("config"), closed).unwrap();
    assert!(matches!(host.trouble(), Trouble::Unreachable(_)));
    assert!(host.processes("dns64bench").is_empty());
}

#[test]
#[ignore = "needs root and sshd: run by .ci/run net"]
fn killed_session_is_reported_and_leaves_no_agent() {
    let host = Host::up("killed");
    let mut link = host.open().unwrap();
    let sessions = process::tree(host.sshd.id());
    let sessions = sessions.into_iter().skip(1);
    for pid in sessions.filter(|&pid| crate::machine::comm(pid) == "sshd") {
        process::signal(pid, Signal::KILL);
    }
    let error = link.ask::<_, Value>(&json!("facts"), BUSY_MAX);
    let error = error.unwrap_err();
    assert!(matches!(error.trouble, Trouble::Lost(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("host gen1: the connection was lost"),
        "{error}"
    );
    host.assert_no_agent();
}

#[test]
#[ignore = "needs root and sshd: run by .ci/run net"]
fn program_is_copied_over_ssh_and_runs() {
    let host = Host::up("copied");
    let mut options = host.options();
    let path = push("gen1", &reach(), Path::new(PROGRAM), &options).unwrap();
    let home = host.dir.path().join("home/.cache/dns64bench");
    let path = path.unwrap();
    assert!(PathBuf::from(&path).starts_with(&home), "{path}");
    options.program = Some(path);
    let link = AgentLink::open("gen1", &reach(), false, &options).unwrap();
    assert!(home.join(link.welcome().sha256.as_ref().unwrap()).exists());
}
