//! Builds the command that starts a program on a host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dns64_transport::clock::{Nanos, SECOND};
use rustix::process::getpid;

use super::trouble::Trouble;
use crate::lab::hosts::Reach;
use crate::machine::Machine;
use crate::machine::process::find_program;

/// Environment variable that replaces `ssh`, as `GIT_SSH_COMMAND` does for git: words separated by spaces, such as
/// `ssh -F lab.config`.
pub const VARIABLE: &str = "DNS64BENCH_SSH";

/// How agents are reached; the same for all hosts of a plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// Description of the controller, shown to others that find the host in use.
    pub controller: String,
    /// The ssh command: `ssh`, or the value of [`VARIABLE`].
    pub ssh: Vec<String>,
    /// Path of the program on the host. `None` means `dns64bench` in the host's PATH, and the running program for a
    /// host on this machine; [`push`](super::push::push) returns the path of a copy.
    pub program: Option<String>,
    /// Time limit for the first answer of a host, connection and authentication included.
    pub open_limit_ns: Nanos,
    /// Becomes true when the user interrupts the operation; then no host is waited for any more.
    pub interrupted: Arc<AtomicBool>,
}

impl Options {
    /// Default options for a controller with this purpose: "plan x.toml".
    pub fn new(purpose: &str) -> Self {
        let variable = std::env::var(VARIABLE).unwrap_or_default();
        Self {
            controller: controller(purpose),
            ssh: words(&variable),
            program: None,
            open_limit_ns: OPEN_LIMIT,
            interrupted: Arc::default(),
        }
    }
}

/// Formats the description: "root@ctl, PID 7, plan x.toml".
fn controller(purpose: &str) -> String {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::geteuid().as_raw()));
    let host = Machine::here().sysctl("kernel.hostname");
    let host = host.unwrap_or_else(|| "unknown host".to_owned());
    let pid = getpid().as_raw_nonzero();
    format!("{user}@{host}, PID {pid}, {purpose}")
}

/// Splits the value of [`VARIABLE`] into the words of the ssh command.
fn words(variable: &str) -> Vec<String> {
    let words: Vec<_> = variable.split_whitespace().map(str::to_owned).collect();
    match words.is_empty() {
        true => vec!["ssh".to_owned()],
        false => words,
    }
}

/// Builds the command that starts the agent of a host.
pub(super) fn agent(reach: &Reach, sudo: bool, options: &Options) -> Result<Command, Trouble> {
    let mut words: Vec<String> = Vec::new();
    if sudo {
        words.extend(["sudo", "-n"].map(str::to_owned));
    }
    match reach {
        Reach::Ssh(target) => {
            let program = options.program.as_deref().unwrap_or("dns64bench");
            words.extend([quoted(program), "agent".to_owned()]);
            return remote(target, &words.join(" "), options);
        }
        Reach::Netns(name) => {
            let ip = find_program("ip").unwrap_or_else(|| PathBuf::from("ip"));
            words.extend([text(&ip), "netns".into(), "exec".into(), name.clone()]);
        }
        Reach::Local => {}
    }
    let program = match &options.program {
        Some(program) => program.clone(),
        None => text(&std::env::current_exe().map_err(|e| Trouble::Start(e.to_string()))?),
    };
    let mut command = Command::new(words.first().unwrap_or(&program));
    if !words.is_empty() {
        command.args(&words[1..]).arg(&program);
    }
    command.arg("agent");
    Ok(command)
}

/// Builds the ssh command that runs a line in the login shell of `target`.
pub(super) fn remote(target: &str, line: &str, options: &Options) -> Result<Command, Trouble> {
    // ssh would parse it as an option, and some options run programs.
    let strange = |c: char| c.is_whitespace() || c.is_control();
    if target.is_empty() || target.starts_with('-') || target.contains(strange) {
        return Err(Trouble::Target);
    }
    let mut words = options.ssh.iter();
    let mut command = Command::new(words.next().map_or("ssh", String::as_str));
    command.args(words).arg("-T");
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    command.args([target, "--", line]);
    Ok(command)
}

/// Quotes a word for a shell if necessary.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:=@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// ssh never prompts, never accepts an unknown host key, and detects a dead connection within 10 s (ssh_config(5)).
const OPTIONS: [&str; 5] = [
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=2",
    "ServerAliveCountMax=5",
];
/// 10 s for the connection, and the rest for authentication, a busy host and an agent that waits for the end of another
/// one.
const OPEN_LIMIT: Nanos = 40 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            controller: "test".into(),
            ssh: words(""),
            program: None,
            open_limit_ns: SECOND,
            interrupted: Arc::default(),
        }
    }

    fn line(command: &Command) -> Vec<String> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn ssh_never_prompts_and_runs_the_agent() {
        let reach = Reach::Ssh("root@gen1".into());
        let command = agent(&reach, true, &options()).unwrap();
        assert_eq!(
            line(&command).join(" "),
            "ssh -T -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 \
             -o ServerAliveInterval=2 -o ServerAliveCountMax=5 root@gen1 -- sudo -n dns64bench agent"
        );
    }

    #[test]
    fn custom_ssh_command_and_pushed_program_are_used() {
        let options = Options {
            ssh: words(" ssh  -F /path/config "),
            program: Some("/home/o'hara/x".into()),
            ..options()
        };
        let command = agent(&Reach::Ssh("gen1".into()), false, &options).unwrap();
        let words = line(&command);
        assert_eq!(words[..4], ["ssh", "-F", "/path/config", "-T"]);
        assert_eq!(words.last().unwrap(), r"'/home/o'\''hara/x' agent");
    }

    #[test]
    fn namespace_is_entered_and_this_machine_uses_its_own_program() {
        let options = Options {
            program: Some("/x/dns64bench".into()),
            ..options()
        };
        let netns = agent(&Reach::Netns("gen1".into()), true, &options).unwrap();
        let words = line(&netns);
        assert_eq!(words[..2], ["sudo", "-n"]);
        assert!(words[2].ends_with("ip"), "{words:?}");
        assert_eq!(
            words[3..],
            ["netns", "exec", "gen1", "/x/dns64bench", "agent"]
        );
        let local = agent(&Reach::Local, false, &options).unwrap();
        assert_eq!(line(&local), ["/x/dns64bench", "agent"]);
    }

    #[test]
    fn target_that_looks_like_an_ssh_option_is_refused() {
        for target in ["", "-oProxyCommand=id", "a b", "a\n"] {
            let error = remote(target, "true", &options()).unwrap_err();
            assert_eq!(error, Trouble::Target, "{target:?}");
        }
    }

    #[test]
    fn description_of_the_controller_has_its_process_id() {
        let name = controller("plan x.toml");
        let pid = format!(", PID {}, plan x.toml", std::process::id());
        assert!(name.contains('@') && name.ends_with(&pid), "{name}");
    }
}
