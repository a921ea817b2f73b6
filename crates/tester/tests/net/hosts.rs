//! Plans with hosts, over OpenSSH: each host is a namespace with an sshd, as `deploy/rehearsal/hosts` makes them.
//!
//! - `ground`: the hosts, brought up and taken down; what may be left on them;
//! - `plans`: the plans;
//! - `measured`: campaigns that run to their end;
//! - `broken`: what is killed on the way, and who else wants the hosts;
//! - `refused`: plans and hosts that nothing is begun with.

mod broken;
mod ground;
mod measured;
mod plans;
mod refused;
