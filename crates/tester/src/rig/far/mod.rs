//! A measurement over several hosts: what an agent does there ([`post`]), and the same Tester and servers as on one machine,
//! made of hosts that were reached ([`tester`], [`any`]).

pub mod any;
pub mod post;
pub mod preflight;
mod rig;
pub mod tester;

#[cfg(test)]
mod tests;
