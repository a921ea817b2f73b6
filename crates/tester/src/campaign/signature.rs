//! Signs a journal: a detached signature with an SSH key, by the program `ssh-keygen`.
//!
//! The signed data are the 64 digits of the journal's last seal, which depends on every octet before it, in the
//! namespace [`NAMESPACE`] of SSH signatures. The signature is the file [`SIGNATURE_FILE`] beside the journal;
//! `docs/journal.md` describes how to check it without this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};

use crate::lab::{Blame, LabError};
use crate::machine::process::{Ended, find_program, run_with_input};

/// Name of the signature in the directory of a campaign.
pub const SIGNATURE_FILE: &str = "journal.jsonl.sig";

/// Purpose of the signature: signatures for other purposes are not accepted (ssh-keygen(1), `-Y sign -n`).
pub const NAMESPACE: &str = "dns64bench";

/// The program that signs and checks.
const PROGRAM: &str = "ssh-keygen";

/// Time limit, long enough to type the passphrase of a key.
const LIMIT: Nanos = 120 * SECOND;

/// Signs the journal in `dir`, which ends with `seal`, with an SSH key. Returns the path of the signature, which
/// replaces an earlier one. `ssh-keygen` prompts for a passphrase on the terminal.
///
/// # Errors
///
/// `ssh-keygen` is missing, or the key cannot be used ([`Blame::Request`]).
pub fn sign(dir: &Path, seal: &str, key: &Path) -> Result<PathBuf, LabError> {
    let mut command = command("sign")?;
    let made = run_with_input(command.arg("-f").arg(key), seal.as_bytes(), LIMIT)?;
    if !made.status.success() {
        return Err(Blame::Request.error(format!(
            "cannot sign with {}: {PROGRAM} says: {}; give an SSH key that can be read, or its public half if an agent has it",
            key.display(),
            said(&made)
        )));
    }
    let path = dir.join(SIGNATURE_FILE);
    fs::write(&path, made.stdout).map_err(Blame::Machine.because(cannot("write", &path)))?;
    Ok(path)
}

/// Checks the signature of the journal in `dir`, which ends with `seal`, against a file of allowed signers
/// (ssh-keygen(1), ALLOWED SIGNERS). Returns the signer and the key.
///
/// # Errors
///
/// The signature is missing, for another journal, or of a key that no allowed signer has ([`Blame::Record`]).
pub fn check(dir: &Path, seal: &str, allowed: &Path) -> Result<String, LabError> {
    let path = dir.join(SIGNATURE_FILE);
    if !path.exists() {
        return Err(Blame::Machine.error(format!(
            "{} is missing: the journal is not signed; sign it with `dns64bench verify --sign KEY DIR`",
            path.display()
        )));
    }
    fs::metadata(allowed).map_err(Blame::Machine.because(cannot("read", allowed)))?;
    // Validate the signature first: for other data the signer has no meaning.
    let mut novalidate = command("check-novalidate")?;
    let good = run_with_input(novalidate.arg("-s").arg(&path), seal.as_bytes(), LIMIT)?;
    if !good.status.success() {
        return Err(Blame::Record.error(format!(
            "{} is not a signature of this journal, whose seal is {seal}: the journal was changed or continued after it was \
             signed ({PROGRAM} says: {}); get the journal that was signed, or have this one signed",
            path.display(),
            said(&good)
        )));
    }
    let mut whose = command("find-principals")?;
    whose.arg("-s").arg(&path).arg("-f").arg(allowed);
    let names = run_with_input(&mut whose, &[], LIMIT)?;
    for name in names.stdout.lines() {
        let mut verify = command("verify")?;
        verify.arg("-s").arg(&path).arg("-f").arg(allowed);
        let verified = run_with_input(verify.args(["-I", name]), seal.as_bytes(), LIMIT)?;
        if verified.status.success() {
            return Ok(format!("{name} with {}", key_of(&verified)));
        }
    }
    Err(Blame::Record.error(format!(
        "the journal was signed with {}, which {} does not list as valid at this time; if you trust the key, add \
         the line `NAME namespaces=\"{NAMESPACE}\" KEY`, see ssh-keygen(1)",
        key_of(&good),
        allowed.display()
    )))
}

/// `ssh-keygen -Y WHAT`, with the namespace of journals.
fn command(what: &str) -> Result<Command, LabError> {
    let missing = format!("there is no {PROGRAM}; install the Debian package openssh-client");
    let program = find_program(PROGRAM).ok_or_else(|| Blame::Machine.error(missing))?;
    let mut command = Command::new(program);
    command.args(["-Y", what, "-n", NAMESPACE]);
    Ok(command)
}

/// The key in `Good "dns64bench" signature for NAME with ED25519 key SHA256:...`; the whole text if it has another
/// form. Only for display.
fn key_of(good: &Ended) -> String {
    let text = good.stdout.trim();
    let key = text.rsplit_once(" with ").map(|(_, key)| key);
    key.unwrap_or(text).to_owned()
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

/// The error output of the program in one line.
fn said(ended: &Ended) -> String {
    let text = format!("{} {}", ended.stdout, ended.stderr);
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.is_empty() {
        true => "nothing".to_owned(),
        false => words.join(" "),
    }
}
