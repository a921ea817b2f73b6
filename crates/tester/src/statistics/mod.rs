//! The figures of repeated measurements: pure functions on numbers.
//!
//! - [`summary`]: median, percentiles, spread and flags of the runs of one point;
//! - `bootstrap`, `trend`, `compare`: intervals, slopes and differences with their tests;
//! - `model`: the papers' models of work, fitted to the cells;
//! - `queue`: whether a DUT stores requests to answer them in the timeout.

pub mod summary;
