//! The program on a real kernel: servers, namespaces, and their ends. Needs root and the DUT programs.
//!
//! A real clock runs while others use the machine. So no test asserts a speed or a trial that passes, only values that
//! load cannot change, see `accounts`. A test that needs an event first tries for minutes and then fails with the
//! message that the machine is too busy.
//!
//! - `lab`: namespaces, links, and servers in them;
//! - `servers`: trials and searches with each server;
//! - `faults`: killed servers, interrupts and crashes;
//! - `conform`: conformance of servers;
//! - `driver`: the authority's program in the driver, frame by frame (`frames`);
//! - `in_driver`: that program in labs, and its leftovers;
//! - `ways`: disturbances of a trial, and the reported cause; `spoil`: their implementation;
//! - `users`: functions for users: `demo`, `lab`, custom profiles, no root;
//! - `campaign`: a campaign, killed twice on the way;
//! - `examples`: each plan of `examples/`, run to its end in a copy that takes seconds (`shortened`);
//! - `signature`: journals signed with OpenSSH keys;
//! - `sources`: queries from each address of a prefix, by sockets and over AF_XDP;
//! - `audit`: audits of servers that are prepared for the measurement;
//! - `agent`: an agent over OpenSSH;
//! - `hosts`: campaigns over several hosts, which are namespaces with an sshd each;
//! - `machine`: the lab, and processes in it.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

#[path = "../support/accounts.rs"]
mod accounts;
mod agent;
mod audit;
#[path = "../support/busy.rs"]
mod busy;
mod campaign;
mod conform;
mod driver;
mod examples;
mod faults;
mod frames;
mod hosts;
mod in_driver;
mod lab;
mod machine;
mod over_tls;
mod servers;
mod shortened;
mod signature;
mod sources;
mod spoil;
mod users;
mod ways;
