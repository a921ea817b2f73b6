//! Plans with hosts, over OpenSSH: each host is a namespace with an sshd, created by `deploy/rehearsal/hosts`.
//!
//! - `ground`: creation and removal of the hosts, and the permitted leftovers on them;
//! - `plans`: the plans;
//! - `measured`: campaigns that run to their end;
//! - `broken`: processes killed during a campaign, and other users of the hosts;
//! - `refused`: plans and hosts that are refused.

mod broken;
mod ground;
mod measured;
mod plans;
mod refused;
