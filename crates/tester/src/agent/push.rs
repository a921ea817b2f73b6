//! Copies this program to a host that lacks it or has another version.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};

use super::pipe::{self, Outlet, Tail};
use super::ssh::{self, Options};
use super::trouble::{LinkError, Remains, Trouble, printable, tail};
use crate::hash::sha256_of;
use crate::lab::hosts::Reach;
use crate::machine::process;

/// Copies the program `file` ([`OWN`](super::program::OWN) for the running one) to a host that is reached by ssh,
/// unless it is already there. The path is `~/.cache/dns64bench/SHA256/dns64bench`; the copy is renamed to it after its
/// SHA-256 has been verified. Returns the path on the host for [`Options::program`]; `None` for a host on this machine,
/// which needs no copy.
///
/// # Errors
///
/// Those of [`AgentLink::open`](super::link::AgentLink::open); or the copy fails.
pub fn push(
    host: &str,
    reach: &Reach,
    file: &Path,
    options: &Options,
) -> Result<Option<String>, LinkError> {
    let Reach::Ssh(target) = reach else {
        return Ok(None);
    };
    let pushed = copy(reach, target, file, options);
    let failed = |trouble| LinkError::new(host, reach, trouble);
    pushed.map(Some).map_err(failed)
}

fn copy(reach: &Reach, target: &str, file: &Path, options: &Options) -> Result<String, Trouble> {
    let unreadable = |error| Trouble::Push(format!("cannot read {}: {error}", file.display()));
    let sha256 = sha256_of(file).map_err(unreadable)?;
    let source = File::open(file).map_err(unreadable)?;
    let line = format!("sh -c {}", ssh::quoted(&script(&sha256)));
    let command = ssh::remote(target, &line, options)?;
    let start = |error: std::io::Error| Trouble::Start(error.to_string());
    let piped = pipe::spawn(command).map_err(start)?;
    let copying = Copying {
        said: lines(piped.stdout),
        stderr: piped.stderr,
        child: piped.child,
        reach,
    };
    copying.run(source, Outlet::new(piped.stdin).map_err(start)?, options)
}

/// A copy in progress.
struct Copying<'a> {
    said: Receiver<String>,
    stderr: Tail,
    child: Child,
    reach: &'a Reach,
}

impl Copying<'_> {
    fn run(mut self, source: File, mut to: Outlet, options: &Options) -> Result<String, Trouble> {
        if let Some(path) = self.line(SEND, HAVE, options.open_limit_ns)? {
            return Ok(path);
        }
        let deadline_ns = MonotonicClock.now() + COPY_LIMIT;
        let mut source = BufReader::with_capacity(1 << 16, source);
        loop {
            let octets = source.fill_buf();
            let octets = octets.map_err(|error| Trouble::Push(error.to_string()))?;
            // A write error is explained by the process at its end.
            let is_over = octets.is_empty() || to.write(octets, deadline_ns).is_err();
            let n = octets.len();
            source.consume(n);
            if is_over {
                break;
            }
        }
        drop(to);
        match self.line(HAVE, HAVE, COPY_LIMIT)? {
            Some(path) => Ok(path),
            None => Err(Trouble::Push("the host has sent no path".into())),
        }
    }

    /// Reads lines until one starts with `found` or `go_on`, and skips the output of shell profiles. Returns the path
    /// after `found`; `None` for `go_on`.
    fn line(
        &mut self,
        go_on: &str,
        found: &str,
        limit_ns: Nanos,
    ) -> Result<Option<String>, Trouble> {
        let deadline_ns = MonotonicClock.now() + limit_ns;
        loop {
            let left = deadline_ns.saturating_sub(MonotonicClock.now());
            match self.said.recv_timeout(Duration::from_nanos(left)) {
                Ok(line) => {
                    if let Some(path) = line.strip_prefix(found) {
                        return Ok(Some(path.to_owned()));
                    }
                    if line.starts_with(go_on) {
                        return Ok(None);
                    }
                }
                Err(_) => return Err(self.trouble(limit_ns, deadline_ns)),
            }
        }
    }

    /// Returns why no line arrived.
    fn trouble(&mut self, limit_ns: Nanos, deadline_ns: Nanos) -> Trouble {
        let is_late = MonotonicClock.now() >= deadline_ns;
        let status = match is_late {
            true => None,
            false => process::wait(&mut self.child, END_PATIENCE),
        };
        let stderr = self.stderr.text();
        if is_late {
            let said = tail(&stderr);
            return Trouble::Silent { limit_ns, said };
        }
        let remains = Remains {
            reach: self.reach,
            greeted: false,
            status,
            stderr: &stderr,
        };
        match remains.trouble() {
            Trouble::Died { how, said } if said.is_empty() => Trouble::Push(how),
            Trouble::Died { said, .. } | Trouble::NoProgram(said) => Trouble::Push(said),
            other => other,
        }
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        if process::wait(&mut self.child, END_PATIENCE).is_none() {
            process::kill_group(&mut self.child);
        }
    }
}

/// The script that runs on the host, in one line, because not every login shell accepts more. An interrupted transfer
/// fails the SHA-256 check and leaves no file.
fn script(sha256: &str) -> String {
    format!(
        "umask 077; d=\"$HOME/.cache/dns64bench/{sha256}\"; f=\"$d/dns64bench\"; \
         sum() {{ sha256sum <\"$1\" | cut -c1-64; }}; \
         if [ -x \"$f\" ] && [ \"$(sum \"$f\")\" = {sha256} ]; then echo \"{HAVE}$f\"; exit 0; fi; \
         mkdir -p \"$d\" && t=$(mktemp \"$d/new.XXXXXX\") || exit 1; \
         trap \"rm -f \\\"$t\\\"\" EXIT; trap \"exit 1\" HUP INT TERM PIPE; \
         echo {SEND}; cat >\"$t\" || exit 1; \
         if [ \"$(sum \"$t\")\" != {sha256} ]; then echo \"the copy is damaged or incomplete\" >&2; exit 1; fi; \
         chmod 700 \"$t\" && mv -f \"$t\" \"$f\" && echo \"{HAVE}$f\""
    )
}

/// Reads lines of at most 4 KiB until the stream ends.
fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    let mut from = BufReader::new(from);
    std::thread::spawn(move || {
        for _ in 0..LINES_MAX {
            let mut line = Vec::new();
            let read = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
            let line = printable(String::from_utf8_lossy(&line).trim());
            if read.is_err() || read.is_ok_and(|n| n == 0) || sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

const HAVE: &str = "dns64bench-push-have ";
const SEND: &str = "dns64bench-push-send";
/// 150 MB, the size with debug information, at 2 Mbit/s.
const COPY_LIMIT: Nanos = 600 * SECOND;
const END_PATIENCE: Nanos = 5 * SECOND;
const LINE_MAX: u64 = 4096;
/// A longer output of a shell profile is an error.
const LINES_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_on_this_machine_needs_no_copy() {
        let options = Options::new("test");
        for reach in [Reach::Local, Reach::Netns("x".into())] {
            let pushed = push("h", &reach, Path::new("/no/such/file"), &options);
            assert_eq!(pushed, Ok(None));
        }
    }

    #[test]
    fn unreadable_program_file_is_named() {
        let options = Options::new("test");
        let reach = Reach::Ssh("gen1".into());
        let error = push("gen1", &reach, Path::new("/no/such/file"), &options).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
