//! The program on a real kernel: servers, namespaces, and the ways in which they end. Needs root
//! and the DUT programs.
//!
//! A real clock runs while others use the machine. So nothing here asks for a speed or for a trial
//! that passes: what is asserted is what load cannot change, see `accounts`. Where a test needs
//! something to happen first, it tries for minutes and then says that the machine is too busy.
//!
//! - `lab`: namespaces, links, and servers in them;
//! - `servers`: trials and searches with each server;
//! - `faults`: servers that are killed, interrupts and crashes;
//! - `driver`: the authority's program in the driver, frame by frame (`frames`);
//! - `in_driver`: that program in labs, and what is left of it;
//! - `ways`: ways to spoil a trial, and whose fault it is said to be; `spoil`: how;
//! - `users`: what users call: `demo`, `lab`, profiles of their own, no root;
//! - `campaign`: a campaign, killed twice on the way;
//! - `examples`: each plan of `examples/` to its end, in a copy that takes seconds (`shortened`);
//! - `signature`: journals that are signed with keys of OpenSSH;
//! - `sources`: queries from each address of a prefix, by sockets and over AF_XDP;
//! - `agent`: an agent over OpenSSH;
//! - `hosts`: campaigns over several hosts, which are namespaces with an sshd each;
//! - `machine`: one lab for all, and processes in it.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

#[path = "../support/accounts.rs"]
mod accounts;
mod agent;
#[path = "../support/busy.rs"]
mod busy;
mod campaign;
mod driver;
mod examples;
mod faults;
mod frames;
mod hosts;
mod in_driver;
mod lab;
mod machine;
mod servers;
mod shortened;
mod signature;
mod sources;
mod spoil;
mod users;
mod ways;
