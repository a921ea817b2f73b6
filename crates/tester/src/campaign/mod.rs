//! A campaign: many searches by one plan, in a directory that survives crashes.
//!
//! ```text
//! PLAN.toml -> plan (its tasks) -> run (over a bench) -> journal -> history -> state (what is next)
//!                                                                   |   \-> report
//!                                                                   \-> status (terminal, live page)
//!                                      plan, journal -> audit (does it follow from the trials?)
//! ```
//!
//! Everything that a report says follows from the journal alone.

pub mod audit;
pub mod bench;
pub mod environment;
pub mod estimate;
pub mod facts;
pub mod history;
pub mod journal;
pub mod names;
pub mod plan;
pub mod preflight;
pub mod record;
pub mod run;
pub mod signature;
pub mod state;
pub mod status;
