//! The controller's end of a link, with a script that prints the messages of OpenSSH 9.2 in place of ssh.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use dns64_transport::clock::SECOND;
use dns64bench::agent::frame;
use dns64bench::agent::handshake::{About, AgentRefusal, Answer, VERSION, Welcome};
use dns64bench::agent::link::AgentLink;
use dns64bench::agent::push::push;
use dns64bench::agent::ssh::Options;
use dns64bench::agent::trouble::{LinkError, Trouble};
use dns64bench::hash::sha256_of;
use dns64bench::lab::hosts::Reach;
use dns64bench::machine::process;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::agent::{PROGRAM, linked, options, turn};
use super::busy::BUSY_MAX;

/// A script that is called like ssh, and the home directory of its remote user.
struct FakeSsh {
    dir: TempDir,
    options: Options,
}

/// Beginning of each script: `$line` is the command for the host, whose shell has a separate home directory.
const BEGIN: &str = "#!/bin/sh\n\
    for word; do line=$word; done\n\
    HOME=$(dirname \"$0\")/home; export HOME; mkdir -p \"$HOME\"\n\
    printf '%s\\n' \"$@\" >\"$(dirname \"$0\")/arguments\"\n";

/// Runs the line as the host's shell would.
const SHELL: &str = "cd \"$HOME\" && exec sh -c \"$line\"\n";

impl FakeSsh {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ssh");
        // Executing a file fails while a newly started process has it open for writing.
        let text = dir.path().join("script");
        fs::write(&text, format!("{BEGIN}{script}")).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&text, &path).unwrap();
        let mut options = options("alice");
        options.ssh = vec!["sh".to_owned(), path.display().to_string()];
        Self { dir, options }
    }

    fn open(&self) -> Result<AgentLink, LinkError> {
        AgentLink::open("gen1", &reach(), false, &self.options)
    }

    /// The error of a link through a script that fails.
    fn fails(script: &str) -> LinkError {
        let error = Self::new(script).open().unwrap_err();
        assert!(error.to_string().starts_with("host gen1: "), "{error}");
        error
    }

    /// Writes the welcome of an agent with this protocol version, which the script sends.
    fn answers(&self, version: u32) {
        let welcome = Answer::<()>::Welcome(Welcome {
            version,
            tester: "dns64bench 9.0.0".to_owned(),
            sha256: None,
            host: About::default(),
        });
        let octets = frame::encode(&welcome).unwrap();
        fs::write(self.dir.path().join("answer"), octets).unwrap();
    }

    /// A small program in place of this one.
    fn program(&self) -> PathBuf {
        let path = self.dir.path().join("program");
        let padding = "#".repeat(200_000);
        fs::write(
            &path,
            format!("#!/bin/sh\nexec {PROGRAM} \"$@\"\n{padding}\n"),
        )
        .unwrap();
        path
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Arguments after the options.
    fn asked(&self) -> String {
        let words = fs::read_to_string(self.dir.path().join("arguments")).unwrap();
        let (_, words) = words.split_once("root@gen1\n--\n").unwrap();
        words.trim().to_owned()
    }
}

fn reach() -> Reach {
    Reach::Ssh("root@gen1".into())
}

/// A script that prints these lines and ends with this exit code.
fn says(code: i32, lines: &[&str]) -> String {
    let lines: Vec<_> = lines
        .iter()
        .map(|line| format!("printf '%s\\r\\n' '{line}' >&2\n"))
        .collect();
    format!("{}exit {code}\n", lines.concat())
}

#[test]
fn agent_is_reached_through_ssh() {
    let _turn = turn();
    let ssh = FakeSsh::new(SHELL);
    let mut link = linked(|| ssh.open());
    assert_eq!(ssh.asked(), format!("{PROGRAM} agent"));
    let facts: Value = link.ask(&json!("facts"), BUSY_MAX).unwrap();
    assert_eq!(facts["facts"]["identity"]["tester"], dns64bench::PROGRAM);
    let it = link.clock_exchange().unwrap();
    assert!(it.t0_ns <= it.t1_ns && it.t2_ns <= it.t3_ns, "{it:?}");
}

#[test]
fn unknown_host_name_is_reported() {
    let error = FakeSsh::fails(&says(
        255,
        &["ssh: Could not resolve hostname gen1: Name or service not known"],
    ));
    assert!(matches!(error.trouble, Trouble::UnknownName(_)), "{error}");
}

#[test]
fn refused_connection_and_timeout_are_reported() {
    for why in ["Connection refused", "Connection timed out"] {
        let line = format!("ssh: connect to host gen1 port 22: {why}");
        let error = FakeSsh::fails(&says(255, &[&line]));
        assert_eq!(error.trouble, Trouble::Unreachable(line));
    }
}

#[test]
fn unknown_host_key_is_reported() {
    let error = FakeSsh::fails(&says(
        255,
        &[
            "No ED25519 host key is known for gen1 and you have requested strict checking.",
            "Host key verification failed.",
        ],
    ));
    assert_eq!(error.trouble, Trouble::HostKeyUnknown);
}

#[test]
fn changed_host_key_is_reported() {
    let error = FakeSsh::fails(&says(
        255,
        &[
            "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
            "Host key for gen1 has changed and you have requested strict checking.",
            "Host key verification failed.",
        ],
    ));
    assert_eq!(error.trouble, Trouble::HostKeyChanged);
}

#[test]
fn missing_user_key_is_reported() {
    let line = "root@gen1: Permission denied (publickey,password).";
    let error = FakeSsh::fails(&says(255, &[line]));
    assert_eq!(error.trouble, Trouble::PermissionDenied(line.into()));
}

#[test]
fn missing_program_is_reported() {
    let error = FakeSsh::fails(&says(127, &["bash: line 1: dns64bench: command not found"]));
    assert!(matches!(error.trouble, Trouble::NoProgram(_)), "{error}");
    let mut missing = FakeSsh::new(SHELL);
    missing.options.program = Some("/no/such/dns64bench".into());
    let error = missing.open().unwrap_err();
    assert!(matches!(error.trouble, Trouble::NoProgram(_)), "{error}");
}

#[test]
fn program_that_is_not_executable_is_reported() {
    let mut ssh = FakeSsh::new(SHELL);
    let file = ssh.dir.path().join("dns64bench");
    fs::write(&file, "no program").unwrap();
    ssh.options.program = Some(file.display().to_string());
    let error = ssh.open().unwrap_err();
    assert!(
        matches!(error.trouble, Trouble::NotExecutable(_)),
        "{error}"
    );
}

#[test]
fn sudo_that_requires_a_password_is_reported() {
    let error = FakeSsh::fails(&says(1, &["sudo: a password is required"]));
    assert_eq!(
        error.trouble,
        Trouble::Sudo("sudo: a password is required".into())
    );
}

#[test]
fn unknown_ssh_failure_is_shown_unchanged() {
    let line = "kex_exchange_identification: Connection closed by remote host";
    let error = FakeSsh::fails(&says(255, &[line]));
    assert_eq!(error.trouble, Trouble::Ssh(line.into()));
}

#[test]
fn output_of_a_shell_profile_is_reported() {
    let error = FakeSsh::fails("echo Welcome to gen1; sleep 1000\n");
    assert_eq!(error.trouble, Trouble::Garbage("Welcome to gen1".into()));
}

#[test]
fn other_agent_version_is_reported_with_the_remedy() {
    let ssh = FakeSsh::new("cat \"$(dirname \"$0\")/answer\"; cat >/dev/null\n");
    ssh.answers(99);
    let error = ssh.open().unwrap_err();
    assert!(
        matches!(
            error.trouble,
            Trouble::Refused(AgentRefusal::Version { version: 99, .. })
        ),
        "{error}"
    );
    assert!(error.to_string().contains("--push-binary"), "{error}");
}

#[test]
fn ssh_that_hangs_is_ended_with_its_children() {
    let mut ssh = FakeSsh::new("sleep 98765 & echo $! >\"$0.pid\"; wait\n");
    ssh.options.open_limit_ns = SECOND / 2;
    let error = ssh.open().unwrap_err();
    assert!(matches!(error.trouble, Trouble::Silent { .. }), "{error}");
    assert!(
        error.to_string().contains("no answer within 500 ms"),
        "{error}"
    );
    // The file is missing if the machine was too busy to start the process.
    let pid = fs::read_to_string(ssh.dir.path().join("ssh.pid")).unwrap_or_default();
    if !pid.is_empty() {
        let command = format!("/proc/{}/cmdline", pid.trim());
        let gone = || !fs::read_to_string(&command).is_ok_and(|line| line.contains("98765"));
        assert!(process::wait_until(BUSY_MAX, gone));
    }
}

#[test]
fn ssh_that_dies_inside_a_frame_is_reported() {
    let line = "Timeout, server gen1 not responding.";
    let dies = format!(
        "printf '\\0\\0\\0\\0\\0\\0\\0\\144{{'; {}",
        says(255, &[line])
    );
    let error = FakeSsh::fails(&dies);
    assert_eq!(error.trouble, Trouble::Ssh(line.into()));
    // The same after the agent's first frame.
    let ssh = FakeSsh::new(&format!("cat \"$(dirname \"$0\")/answer\"; {dies}"));
    ssh.answers(VERSION);
    let mut link = ssh.open().unwrap();
    let error = link.ask::<_, Value>(&json!("facts"), BUSY_MAX);
    assert_eq!(error.unwrap_err().trouble, Trouble::Lost(line.into()));
    let error = link.clock_exchange().unwrap_err().to_string();
    let lost = "host gen1: the connection was lost; last messages:";
    assert_eq!(error, format!("{lost}\n{line}"));
}

#[test]
fn program_is_copied_once_and_runs() {
    let _turn = turn();
    let mut ssh = FakeSsh::new(&format!("echo 'a profile that prints'; {SHELL}"));
    let program = ssh.program();
    let push = || push("gen1", &reach(), &program, &ssh.options).unwrap();
    let path = push().unwrap();
    let sha256 = sha256_of(&program).unwrap();
    let expected = ssh
        .home()
        .join(format!(".cache/dns64bench/{sha256}/dns64bench"));
    assert_eq!(Path::new(&path), expected);
    let copied = fs::metadata(&path).unwrap();
    assert_eq!(sha256_of(&expected).unwrap(), sha256);
    assert_eq!(copied.permissions().mode() & 0o777, 0o700);
    assert_eq!(push().as_ref(), Some(&path));
    let again = fs::metadata(&path).unwrap();
    assert_eq!(again.modified().unwrap(), copied.modified().unwrap());
    // A modified copy is replaced.
    fs::write(&path, "something else").unwrap();
    assert_eq!(push().as_ref(), Some(&path));
    assert_eq!(sha256_of(&expected).unwrap(), sha256);
    assert_eq!(fs::read_dir(expected.parent().unwrap()).unwrap().count(), 1);

    let quiet = FakeSsh::new(SHELL);
    ssh.options.ssh.clone_from(&quiet.options.ssh);
    ssh.options.program = Some(path.clone());
    let link = linked(|| ssh.open());
    assert_eq!(quiet.asked(), format!("{path} agent"));
    assert_eq!(link.welcome().tester, dns64bench::PROGRAM);
}

#[test]
fn truncated_or_damaged_copy_leaves_nothing() {
    for spoil in ["head -c 100 |", "tr a b |"] {
        let ssh = FakeSsh::new(&format!("cd \"$HOME\"; {spoil} sh -c \"$line\"\n"));
        let error = push("gen1", &reach(), &ssh.program(), &ssh.options).unwrap_err();
        assert_eq!(
            error.trouble,
            Trouble::Push("the copy is damaged or incomplete".into())
        );
        let cache = ssh.home().join(".cache/dns64bench");
        for directory in fs::read_dir(&cache).unwrap() {
            assert_eq!(fs::read_dir(directory.unwrap().path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn copy_without_space_or_host_is_reported() {
    let full = "printf '%s\\n' dns64bench-push-send; head -c 1000 >/dev/null; \
                echo 'cat: write error: No space left on device' >&2; exit 1\n";
    let ssh = FakeSsh::new(full);
    let error = push("gen1", &reach(), &ssh.program(), &ssh.options).unwrap_err();
    let expected =
        "host gen1: cannot copy dns64bench to root@gen1: cat: write error: No space left on device";
    assert_eq!(error.to_string(), expected);
    let ssh = FakeSsh::new(&says(
        255,
        &["ssh: connect to host gen1 port 22: Connection refused"],
    ));
    let error = push("gen1", &reach(), &ssh.program(), &ssh.options).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Unreachable(_)), "{error}");
}
