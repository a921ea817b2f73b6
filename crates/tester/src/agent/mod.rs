//! The connection between the controller of a laboratory and the agents on its hosts.
//!
//! The controller starts `dns64bench agent` on each host, by OpenSSH, in a network namespace or as a plain
//! child process, and exchanges [`frame`]s with it over its standard input and output. [`link`] is the
//! controller's end and [`serve`] the agent's; both send a [`handshake`]. This module does not interpret the
//! requests: an agent's [`serve::Work`] executes them.
//!
//! On the host, [`lock`] admits one agent at a time, and [`outer`] is the process that cleans up after an agent
//! however it ends. [`ssh`] builds the ssh command, [`trouble`] has the possible errors with their remedies, and
//! [`push`] copies this program to a host.

pub mod clock;
pub mod facts;
pub mod frame;
pub mod handshake;
pub mod link;
pub mod lock;
pub mod outer;
mod pipe;
pub mod program;
pub mod push;
pub mod serve;
pub mod ssh;
pub mod trouble;
