//! Errors between controller and agent, each with its remedy.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use dns64_transport::clock::Nanos;

use super::handshake::{AgentRefusal, VERSION};
use crate::PROGRAM;
use crate::lab::hosts::Reach;
use crate::quantity::Span;

/// An error of the connection to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// The host's name in the plan.
    pub host: String,
    /// How it is reached.
    pub reach: Reach,
    /// The error.
    pub trouble: Trouble,
}

/// Errors of a host. Texts are those of ssh, a shell or an agent, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Invalid ssh destination.
    Target,
    /// The local program that starts the agent cannot be started.
    Start(String),
    /// The host's name cannot be resolved.
    UnknownName(String),
    /// The connection times out or is refused.
    Unreachable(String),
    /// The host key is not in the local list of known hosts.
    HostKeyUnknown,
    /// The host key has changed.
    HostKeyChanged,
    /// The host accepts no key of this user.
    PermissionDenied(String),
    /// The network namespace does not exist.
    NoNamespace,
    /// The host has no dns64bench.
    NoProgram(String),
    /// Its dns64bench is not executable.
    NotExecutable(String),
    /// sudo requires a password, or does not allow the command.
    Sudo(String),
    /// The agent refuses for another reason.
    Refused(AgentRefusal),
    /// The host sent other output before the agent's first frame.
    Garbage(String),
    /// The agent did not answer in time. The connection was closed.
    Silent {
        /// The time limit.
        limit_ns: Nanos,
        /// Last output on standard error.
        said: String,
    },
    /// ssh ended for an unknown reason.
    Ssh(String),
    /// The connection was lost.
    Lost(String),
    /// The agent ended.
    Died {
        /// Its exit status: "exit status: 4".
        how: String,
        /// Last output on standard error.
        said: String,
    },
    /// The agent sent an unexpected message.
    Protocol(String),
    /// The user interrupted it. The connection was closed.
    Interrupted,
    /// The program cannot be copied to the host.
    Push(String),
}

impl LinkError {
    /// Creates an error of this host.
    pub(super) fn new(host: &str, reach: &Reach, trouble: Trouble) -> Self {
        Self {
            host: host.to_owned(),
            reach: reach.clone(),
            trouble,
        }
    }
}

impl std::error::Error for LinkError {}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}: ", self.host)?;
        let target = match &self.reach {
            Reach::Ssh(target) => target.as_str(),
            Reach::Netns(name) => name.as_str(),
            Reach::Local => "this machine",
        };
        match &self.trouble {
            Trouble::Target => write!(
                f,
                "invalid ssh destination {target:?}: must not be empty, begin with '-' or contain spaces"
            ),
            Trouble::Start(why) => write!(
                f,
                "cannot start the program that reaches it: {why}; for ssh, install the Debian package \
                 openssh-client"
            ),
            Trouble::UnknownName(said) => write!(
                f,
                "cannot resolve the name of {target}: correct the plan, or add the host to ~/.ssh/config or \
                 /etc/hosts ({said})"
            ),
            Trouble::Unreachable(said) => write!(
                f,
                "cannot connect to {target}: check that the host is up, that sshd runs there, and the address \
                 and port ({said})"
            ),
            Trouble::HostKeyUnknown => write!(
                f,
                "the host key of {target} is unknown: connect once with `ssh {target}` and compare the \
                 fingerprint, or add the key to ~/.ssh/known_hosts"
            ),
            Trouble::HostKeyChanged => write!(
                f,
                "the host key of {target} HAS CHANGED: another machine may be answering in its place; if the host \
                 was reinstalled, remove the old key with `ssh-keygen -R HOST` and connect once with `ssh {target}`"
            ),
            Trouble::PermissionDenied(said) => write!(
                f,
                "{target} accepts no key of this user: install one with `ssh-copy-id {target}`, and load a key with a \
                 passphrase into ssh-agent ({said})"
            ),
            Trouble::NoNamespace => write!(
                f,
                "there is no network namespace {target:?}: create it with `ip netns add {target}`"
            ),
            trouble => self.tell_agent(f, target, trouble),
        }
    }
}

impl LinkError {
    /// Formats the errors that concern the agent itself.
    fn tell_agent(
        &self,
        f: &mut fmt::Formatter<'_>,
        target: &str,
        trouble: &Trouble,
    ) -> fmt::Result {
        let install = self.install(target);
        match trouble {
            Trouble::NoProgram(said) => {
                write!(f, "dns64bench is not installed: {install} ({said})")
            }
            Trouble::NotExecutable(said) => write!(
                f,
                "its dns64bench cannot be executed ({said}): {install}, for its processor architecture and where \
                 programs may be executed"
            ),
            Trouble::Sudo(said) => write!(
                f,
                "sudo does not start dns64bench there: allow it without a password (`NOPASSWD:` in sudoers(5)), or \
                 connect as root ({said})"
            ),
            Trouble::Refused(AgentRefusal::Version { version, tester }) => write!(
                f,
                "its {} uses protocol version {version}, this {PROGRAM} version {VERSION}: {install}",
                printable(tester)
            ),
            Trouble::Refused(AgentRefusal::InUse { by }) => {
                let by = printable(by);
                write!(f, "in use by {by}: wait until it has finished, or stop it")
            }
            Trouble::Refused(AgentRefusal::Other { reason }) => {
                write!(f, "the agent refuses: {}", printable(reason))
            }
            Trouble::Garbage(text) => write!(
                f,
                "printed {text:?} before the agent's first message: a shell profile such as ~/.bashrc that prints \
                 must not do so in sessions that are not interactive, and the account needs a login shell"
            ),
            Trouble::Silent { limit_ns, said } => {
                write!(f, "no answer within {}{}", Span(*limit_ns), last(said))
            }
            Trouble::Ssh(said) => write!(f, "ssh failed{}", last(said)),
            Trouble::Lost(said) => write!(f, "the connection was lost{}", last(said)),
            Trouble::Died { how, said } => write!(f, "the agent ended ({how}){}", last(said)),
            Trouble::Protocol(what) => write!(f, "the agent broke the protocol: {what}"),
            Trouble::Interrupted => f.write_str("interrupted"),
            Trouble::Push(why) => write!(f, "cannot copy dns64bench to {target}: {why}"),
            // Formatted by the caller.
            _ => Ok(()),
        }
    }

    /// How to install the same program on the host.
    fn install(&self, target: &str) -> String {
        match &self.reach {
            Reach::Ssh(_) => format!(
                "use --push-binary, or copy this program with `scp {} {target}:/usr/local/bin/dns64bench`",
                std::env::current_exe()
                    .map_or_else(|_| "dns64bench".into(), |path| path.display().to_string())
            ),
            _ => "install the same version as this program".to_owned(),
        }
    }
}

/// "; last output:" and the text, or nothing if it is empty.
fn last(said: &str) -> String {
    match said.is_empty() {
        true => "; there was no error message".to_owned(),
        false => format!("; last messages:\n{said}"),
    }
}

/// State of a process that connected to an agent and has ended.
#[derive(Debug)]
pub(super) struct Remains<'a> {
    /// How it reached the host.
    pub(super) reach: &'a Reach,
    /// Whether the agent completed the handshake.
    pub(super) greeted: bool,
    /// Its exit status, if known.
    pub(super) status: Option<ExitStatus>,
    /// Its output on standard error.
    pub(super) stderr: &'a str,
}

impl Remains<'_> {
    /// Returns why it has ended, derived from the exit status and the messages of OpenSSH, sudo, shells and
    /// ip-netns(8). Unknown messages are shown unchanged.
    pub(super) fn trouble(&self) -> Trouble {
        let said = tail(self.stderr);
        let code = self.status.and_then(|status| status.code());
        let by_ssh = matches!(self.reach, Reach::Ssh(_)) && code == Some(SSH_FAILED);
        if by_ssh && self.greeted {
            return Trouble::Lost(said);
        }
        let killed = self.status.and_then(killed_by);
        if let (Reach::Ssh(_), Some(how)) = (self.reach, &killed) {
            // If only the agent had been killed, ssh would have exited with a status.
            return Trouble::Lost(format!("ssh was {how}"));
        }
        if by_ssh {
            return self.of_ssh(said);
        }
        if !self.greeted
            && let Some(trouble) = self.of_start(code)
        {
            return trouble;
        }
        let how = match self.status {
            Some(status) => killed.unwrap_or_else(|| status.to_string()),
            None => "it has closed its output".to_owned(),
        };
        Trouble::Died { how, said }
    }

    /// Classifies a failed ssh connection.
    fn of_ssh(&self, said: String) -> Trouble {
        let has = |text: &str| self.stderr.contains(text);
        let line = |text: &str| self.line(|line| line.contains(text)).unwrap_or_default();
        if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            Trouble::HostKeyChanged
        } else if has("Host key verification failed") {
            Trouble::HostKeyUnknown
        } else if has("Could not resolve hostname") {
            Trouble::UnknownName(line("Could not resolve hostname"))
        } else if has("Permission denied (") {
            Trouble::PermissionDenied(line("Permission denied ("))
        } else if has("Too many authentication failures") {
            Trouble::PermissionDenied(line("Too many authentication failures"))
        } else if has("ssh: connect to host") {
            Trouble::Unreachable(line("ssh: connect to host"))
        } else if has("timed out during banner exchange") {
            Trouble::Unreachable(line("timed out during banner exchange"))
        } else {
            Trouble::Ssh(said)
        }
    }

    /// Classifies a failed start of the agent.
    fn of_start(&self, code: Option<i32>) -> Option<Trouble> {
        let line = |wanted: fn(&str) -> bool| self.line(wanted);
        if let Some(said) = line(|line| line.contains("Cannot open network namespace")) {
            let missing = matches!(self.reach, Reach::Netns(_)) && said.contains("No such file");
            return missing.then_some(Trouble::NoNamespace);
        }
        if let Some(said) = line(|line| line.starts_with("sudo:")) {
            return Some(match said.contains("command not found") {
                true => Trouble::NoProgram(said),
                false => Trouble::Sudo(said),
            });
        }
        // Exit statuses of shells (POSIX.1-2017, Shell Command Language, section 2.8.2).
        match code {
            Some(127) => Some(Trouble::NoProgram(tail(self.stderr))),
            Some(126) => Some(Trouble::NotExecutable(tail(self.stderr))),
            _ => None,
        }
    }

    /// Returns the first matching line.
    fn line(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let line = self.stderr.lines().find(|line| wanted(line.trim()))?;
        Some(printable(line.trim()))
    }
}

fn killed_by(status: ExitStatus) -> Option<String> {
    let signal = status.signal()?;
    Some(format!("killed by signal {signal}"))
}

/// Last lines of a text, printable.
pub(super) fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let lines = lines.iter().filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.map(|line| printable(line)).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Removes control characters from a foreign text and shortens it.
pub(super) fn printable(text: &str) -> String {
    let harmless = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(TEXT_MAX).map(harmless).collect()
}

/// Exit status of ssh for its own errors (ssh(1)).
const SSH_FAILED: i32 = 255;
const TAIL_LINES: usize = 8;
/// Longest line that is shown, in characters.
const TEXT_MAX: usize = 2000;

#[cfg(test)]
mod tests;
