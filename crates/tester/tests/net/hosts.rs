//! Plans with hosts, over OpenSSH: each host is a namespace with an sshd, created by `deploy/rehearsal/hosts`.
//!
//! - `ground`: creation and removal of the hosts, and the permitted leftovers on them;
//! - `plans`: the plans;
//! - `measured`: campaigns that run to their end;
//! - `broken`: what is killed on the way, and who else wants the hosts;
//! - `refused`: plans and hosts that nothing is begun with;
//! - `sources`: queries from each address of a prefix that two Measurers divide.

mod broken;
mod ground;
mod measured;
mod plans;
mod refused;
mod sources;
