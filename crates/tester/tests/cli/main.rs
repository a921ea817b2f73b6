//! The built program as its users meet it: arguments in, sockets on loopback, text, JSON and exit
//! codes out. No root, no other programs.
//!
//! A real clock runs while others use the machine: see `accounts` for what may be asserted. Timeouts
//! are of half a minute where a server answers at all, so that what it answers is known.
//!
//! - `verdicts`: each bad DUT gets the class, the outcome and the exit code that it earned.
//! - `truth`: every class of answers at once, counted to the last.
//! - `pref64`: what `--pref64 auto` learns, and what it says when there is nothing to learn.
//! - `authority`: the authority as a process of its own, and the certificates that it gives.
//! - `zone`: zone files, and servers that are compared with them.
//! - `search`: how searches end.
//! - `input`: what is refused, with which words, before anything is sent.
//! - `output`: where JSON and tables go, and interrupts; `raw`: the rows of a trial and their figures.
//! - `hosts`: plans with hosts and inventories, and `doctor --hosts`.
//! - `hands`: profiles, completion, host names, progress, errors as JSON.
//! - `targets`: public addresses, which are not loaded without a flag.
//! - `names`: which names a server is asked for by several processes and rigs.
//! - `agent`: the agent of a laboratory as a process; `link`: how a controller reaches one.
//! - `dns64perf`: the command lines and the output of the predecessors.
//! - `docs`: the commands of README and the book.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../support/accounts.rs"]
mod accounts;
mod agent;
mod authority;
#[path = "../support/busy.rs"]
mod busy;
mod dns64perf;
mod docs;
mod dut;
mod hands;
mod hosts;
mod input;
mod link;
mod names;
mod output;
mod pref64;
mod program;
mod raw;
#[path = "../support/script.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod script;
mod search;
mod targets;
mod truth;
mod verdicts;
mod zone;
