//! Statistics of repeated measurements: pure functions on numbers.
//!
//! - [`quantile`]: median and percentiles;
//! - [`summary`]: spread and flags of the runs of one point;
//! - [`mod@agreement`]: agreement of runs, and their range;
//! - [`bootstrap`], [`trend`], [`compare`]: intervals, slopes and differences with their tests;
//! - [`changes`]: change points of a series;
//! - [`model`]: the papers' models of work, fitted to the cells;
//! - [`pass`]: the probability that a trial passes, by its rate;
//! - [`queue`]: whether a DUT stores requests and answers them within the timeout.
//!
//! All of them return `None` if a number is not finite; [`pass`] takes integers.

pub mod agreement;
pub mod bootstrap;
pub mod changes;
pub mod compare;
pub mod model;
mod normal;
pub mod pass;
pub mod quantile;
pub mod queue;
pub mod summary;
pub mod trend;

#[cfg(test)]
mod tests;
