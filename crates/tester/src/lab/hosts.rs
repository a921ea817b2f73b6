//! How a host of a laboratory is reached.

use serde::{Deserialize, Serialize};

/// How the controller reaches a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// By OpenSSH: a destination as ssh(1) takes it, such as `root@gen1`.
    Ssh(String),
    /// A network namespace of this machine, as `ip netns` knows it.
    Netns(String),
    /// This machine's own network.
    Local,
}
