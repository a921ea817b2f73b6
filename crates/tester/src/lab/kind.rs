//! Kinds of labs, and which of them this machine allows.

use std::process::Command;

use clap::ValueEnum;
use dns64_transport::clock::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use super::{LabError, userns};
use crate::machine::process::{find_program, run, tool};

/// Where the roles run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
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
    /// Name on the command line and in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Netns => "netns",
            Self::Userns => "userns",
            Self::Loopback => "loopback",
        }
    }

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
        Ok(end) => Err(format!(
            "root may not make namespaces here ({}): start the container with CAP_SYS_ADMIN and \
             CAP_NET_ADMIN",
            end.stderr.trim()
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// `unshare` takes milliseconds; the limit allows for a machine that swaps.
const LIMIT: Nanos = 5 * SECOND;
