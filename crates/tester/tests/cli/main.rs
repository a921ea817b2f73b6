//! The built program from its user's view: arguments, sockets on the loopback interface, text, JSON and exit codes. No
//! root, no other programs.
//!
//! A real clock runs while others use the machine: `accounts` describes what may be asserted. If a server answers at
//! all, its timeout is half a minute, so that its answers are certain to be received.
//!
//! - `verdicts`: each faulty DUT gets its class, outcome and exit code.
//! - `truth`: every class of answers at once, counted exactly.
//! - `pref64`: the prefix that `--pref64 auto` learns, and its error if it learns none.
//! - `authority`: the authority as a process, and certificates of self-tests with it.
//! - `zone`: zone files, and comparison of servers with them.
//! - `search`: ends of searches.
//! - `input`: input that is refused before anything is sent, and the messages.
//! - `output`: destinations of JSON and tables, and interrupts; `raw`: the rows of a trial and their plots.
//! - `hosts`: plans with hosts and inventories, and `doctor --hosts`.
//! - `hands`: profiles, host names, progress, errors as JSON.
//! - `targets`: public addresses, which are refused without a flag.
//! - `names`: names that several processes and rigs use on one server.
//! - `agent`: the agent of a laboratory as a process; `link`: connections of a controller to it.
//! - `dns64perf`: the command lines and the output of the predecessors.
//! - `conform`: servers without a verdict of conformance, or without all.
//! - `docs`: the commands of README and the book.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../support/accounts.rs"]
mod accounts;
mod agent;
mod authority;
#[path = "../support/busy.rs"]
mod busy;
mod conform;
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
