//! Kinds of labs, and which of them this machine allows.

use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

use super::{LabError, userns};
use crate::machine::process::{find_program, run, tool};

/// Where the roles run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, AsRefStr, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum LabKind {
    /// The best of the following kinds that this machine allows
    #[default]
    Auto,
    /// Network namespaces, as root
    Netns,
    /// Network namespaces in a user namespace, without root
    Userns,
    /// All roles on the loopback interface: not a measurement
    Loopback,
}

impl LabKind {
    /// Returns this kind, or for [`LabKind::Auto`] the best one here.
    ///
    /// # Errors
    ///
    /// The requested user namespace is not allowed, or the program that creates namespaces is not installed.
    pub fn settle(self) -> Result<Self, LabError> {
        match self {
            Self::Auto => return Ok(Self::best().0),
            Self::Netns | Self::Userns => drop(tool("ip", "makes the lab")?),
            Self::Loopback => {}
        }
        if self == Self::Userns && !userns::inside() {
            userns::check()?;
        }
        Ok(self)
    }

    /// Returns the best kind here, and what a better one requires.
    pub fn best() -> (Self, Option<String>) {
        let userns = || (Self::Userns, Some("run it as root for netns".into()));
        let checked = if find_program("ip").is_none() {
            Err("there is no `ip`: install the Debian package iproute2".into())
        } else if userns::inside() {
            Ok(userns())
        } else if rustix::process::geteuid().is_root() {
            namespaces_as_root().map(|()| (Self::Netns, None))
        } else {
            let check = userns::check().map(|()| userns());
            check.map_err(|error| error.to_string())
        };
        checked.unwrap_or_else(|why| (Self::Loopback, Some(why)))
    }
}

/// Checks whether root can create namespaces: a container may lack the capabilities.
fn namespaces_as_root() -> Result<(), String> {
    tool("unshare", "makes namespaces").map_err(|error| error.to_string())?;
    let mut command = Command::new("unshare");
    match run(command.args(["--net", "--mount", "true"]), LIMIT) {
        Ok(end) if end.status.success() => Ok(()),
        Ok(end) => {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let remedy = match is_mounted(&mounts, "/") {
                true => "start the container with CAP_SYS_ADMIN and CAP_NET_ADMIN",
                false => {
                    "/ is not a mount point, as in a chroot: bind-mount its directory to itself before chroot(8)"
                }
            };
            let reason = end.stderr.trim();
            Err(format!(
                "root may not make namespaces here ({reason}): {remedy}"
            ))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the directory is a mount point in this text of `/proc/self/mountinfo` (proc(5)).
fn is_mounted(mounts: &str, directory: &str) -> bool {
    let mut points = mounts.lines().map(|line| line.split(' ').nth(4));
    points.any(|point| point == Some(directory))
}

/// `unshare` takes milliseconds; the limit allows for a machine that swaps.
const LIMIT: Nanos = 5 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_chroot_is_no_mount_point() {
        let mounted = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
                       23 22 0:21 / /proc rw - proc proc rw\n";
        assert!(is_mounted(mounted, "/"));
        assert!(!is_mounted("23 22 0:21 / /proc rw - proc proc rw\n", "/"));
    }
}
