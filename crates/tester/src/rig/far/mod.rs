//! Measurements over several hosts: the agent's work on each host ([`post`]), and the interface of a local Tester and
//! local servers for those on connected hosts ([`tester`], [`any`]).

pub mod any;
pub mod post;
pub mod preflight;
mod rig;
pub mod tester;

#[cfg(test)]
mod tests;
