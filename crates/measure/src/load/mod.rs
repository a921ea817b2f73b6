//! The Measurer: sends queries on an absolute schedule and judges the responses.
//!
//! [`names`], [`ring`] and [`repeat`] choose the name, [`query`] writes the query, [`pace`] computes
//! its due time, [`catch_up`] handles a sender that was stopped, [`ledger`] records the query, [`verdict`] judges
//! the response, [`sources`] has the addresses that queries are sent from, [`transport`] what carries them, and [`generator`] combines them over a link.

pub mod catch_up;
pub mod generator;
pub mod ledger;
pub mod names;
pub mod pace;
pub mod query;
pub mod repeat;
pub mod ring;
pub mod sources;
pub mod transport;
pub mod verdict;
