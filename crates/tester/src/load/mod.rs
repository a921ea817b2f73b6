//! The Measurer: sends queries on an absolute schedule and judges what comes back.
//!
//! [`names`], [`ring`] and [`repeat`] say which name is asked for, [`query`] writes the query, [`pace`] says
//! when it is due, [`catch_up`] what a held-up sender does, [`ledger`] remembers it, [`verdict`] judges a
//! reply, and [`generator`] turns them
//! over a link.

pub mod catch_up;
pub mod generator;
pub mod ledger;
pub mod names;
pub mod pace;
pub mod query;
pub mod repeat;
pub mod ring;
pub mod verdict;
