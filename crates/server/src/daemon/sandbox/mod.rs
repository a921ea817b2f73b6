//! The sandbox of the running process: Landlock (landlock(7)) restricts files, and seccomp (seccomp(2))
//! restricts system calls. A bug in the message parser then opens neither a file nor a shell.
//!
//! - [`enter`]: enters both, as far as the kernel supports them;
//! - `calls`: the allowed system calls.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod calls;

use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, NetPort, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::Source;
use crate::config::mtd64ng;
use crate::settings::{LogTarget, Settings};
use crate::tls::client::Authentication;

/// The active parts of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sandbox {
    /// Version of the Landlock interface in use.
    landlock: Option<i32>,
    /// Whether system calls are restricted.
    seccomp: bool,
}

/// `landlock abi 7, seccomp`, or `off` if nothing is active.
impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let landlock = self.landlock.map(|abi| format!("landlock abi {abi}"));
        let seccomp = self.seccomp.then(|| "seccomp".to_owned());
        let parts: Vec<String> = [landlock, seccomp].into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "off" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

impl Sandbox {
    /// For servers with a disabled sandbox.
    pub(super) const OFF: Self = Self {
        landlock: None,
        seccomp: false,
    };
}

/// The newest supported version of the Landlock interface (Linux 6.15).
const NEWEST: ABI = ABI::V7;

/// Restricts the calling thread and all threads that it starts, permanently. If the kernel lacks one of the two, the
/// server still starts, and the log reports it.
pub(super) fn enter(source: &Source, settings: &Settings) -> Sandbox {
    let sandbox = Sandbox {
        landlock: logged("landlock", restrict_files(source, settings)),
        seccomp: logged("seccomp", restrict_calls(writes_maps(settings))).is_some(),
    };
    tracing::info!("sandbox: {sandbox}");
    sandbox
}

fn logged<T>(name: &str, result: Result<T, impl fmt::Display>) -> Option<T> {
    result
        .inspect_err(|error| tracing::warn!("sandbox: {name} is not in force: {error}"))
        .ok()
}

/// Whether entries of BPF maps are written: those of the cache in the driver, or the source ports that AF_XDP steers.
fn writes_maps(settings: &Settings) -> bool {
    !(settings.driver_cache.is_empty() && settings.af_xdp.is_empty())
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn restrict_calls(with_maps: bool) -> Result<(), seccompiler::Error> {
    calls::restrict(with_maps)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn restrict_calls(_with_maps: bool) -> Result<(), &'static str> {
    Err("this processor architecture is not supported")
}

/// Reason why files are not restricted.
#[derive(Debug, thiserror::Error)]
enum FilesError {
    /// The kernel refuses.
    #[error(transparent)]
    Refused(#[from] RulesetError),
    /// The kernel lacks Landlock.
    #[error("the kernel lacks it, or it is disabled")]
    Missing,
}

/// Restricts the file system to reading the configuration and removing the control socket. Of TCP ports, only one that
/// the kernel selects for a source address can be bound, and no outside process can be signalled. If the kernel supports
/// fewer restrictions, fewer apply. Returns the version in use.
fn restrict_files(source: &Source, settings: &Settings) -> Result<i32, FilesError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::Signal)?;
    let restricted = ruleset
        .create()?
        .add_rules(path_beneath_rules(
            readable(source, settings),
            AccessFs::ReadFile,
        ))?
        .add_rules(path_beneath_rules(
            settings.control.as_deref().and_then(Path::parent),
            AccessFs::RemoveFile,
        ))?
        .add_rule(NetPort::new(0, AccessNet::BindTcp))?
        .restrict_self()?;
    match restricted {
        RestrictionStatus {
            ruleset: RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            landlock: LandlockStatus::Available { effective_abi, .. },
            ..
        } => Ok((effective_abi as i32).min(NEWEST as i32)),
        _ => Err(FilesError::Missing),
    }
}

/// The paths that are read while the server runs. A reload opens the configuration by its name again, and many editors
/// replace the file, so these are directories and not files.
fn readable(source: &Source, settings: &Settings) -> Vec<PathBuf> {
    let mut files = vec![source.path().as_path()];
    let others = settings.hosts.iter().chain(&settings.cookie_file);
    files.extend(others.map(PathBuf::as_path));
    if let Some(tls) = &settings.tls {
        files.extend([tls.certificate_file.as_path(), &tls.key_file]);
    }
    let upstreams = settings.upstreams.iter();
    let named = || {
        upstreams
            .clone()
            .filter_map(|it| it.tls.as_ref())
            .filter(|tls| matches!(tls.authentication, Authentication::Name(_)))
    };
    files.extend(named().filter_map(|tls| tls.roots.as_deref()));
    if let Source::Mtd64Ng(_) = source {
        files.push(Path::new(mtd64ng::RESOLV_CONF));
    }
    let mut readable: Vec<PathBuf> = files.into_iter().flat_map(directories).collect();
    if named().any(|tls| tls.roots.is_none()) {
        readable.extend(AUTHORITIES.map(PathBuf::from));
    }
    if settings.log.target == LogTarget::Syslog {
        // syslog(3) writes local time.
        readable.push("/etc/localtime".into());
    }
    readable
}

/// Where systems have their list of authorities.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// The directory of a file and, if the file is a symbolic link, that of its target.
fn directories(file: &Path) -> impl Iterator<Item = PathBuf> {
    let target = file.canonicalize().ok();
    [Some(file.to_owned()), target]
        .into_iter()
        .flatten()
        .filter_map(|file| {
            let directory = file.parent()?;
            // A bare name has an empty parent.
            Some(Path::new(".").join(directory))
        })
}

#[cfg(test)]
mod tests;
