//! Copies this program to a host that lacks it or has another version.

use std::fs::File;
use std::path::Path;

use dns64_transport::clock::{Nanos, SECOND};

use super::ssh::{self, Options};
use super::trouble::{LinkError, Remains, Trouble, printable};
use crate::hash::sha256_of;
use crate::lab::hosts::Reach;
use crate::machine::process::{Ended, run_with_file};

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
    let program = File::open(file).map_err(unreadable)?;
    let line = format!("sh -c {}", ssh::quoted(&script(&sha256)));
    let mut command = ssh::remote(target, &line, options)?;
    let end = run_with_file(&mut command, program, COPY_LIMIT);
    let end = end.map_err(|error| match std::error::Error::source(&error) {
        Some(_) => Trouble::Start(error.to_string()),
        None => Trouble::Push(error.to_string()),
    })?;
    let mut lines = end.stdout.lines();
    // A shell profile may print lines of its own.
    match lines.find_map(|line| line.trim().strip_prefix(HAVE)) {
        Some(path) if end.status.success() => Ok(printable(path)),
        _ => Err(failed(reach, &end)),
    }
}

/// Why a copy failed.
fn failed(reach: &Reach, end: &Ended) -> Trouble {
    let remains = Remains {
        reach,
        greeted: false,
        status: Some(end.status),
        stderr: &end.stderr,
    };
    match remains.trouble() {
        Trouble::Died { how, said } if said.is_empty() => Trouble::Push(how),
        Trouble::Died { said, .. } | Trouble::NoProgram(said) => Trouble::Push(said),
        other => other,
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
         cat >\"$t\" || exit 1; \
         if [ \"$(sum \"$t\")\" != {sha256} ]; then echo \"the copy is damaged or incomplete\" >&2; exit 1; fi; \
         chmod 700 \"$t\" && mv -f \"$t\" \"$f\" && echo \"{HAVE}$f\""
    )
}

const HAVE: &str = "dns64bench-push-have ";
/// 150 MB, the size with debug information, at 2 Mbit/s.
const COPY_LIMIT: Nanos = 600 * SECOND;

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
