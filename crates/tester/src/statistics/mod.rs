//! The figures of repeated measurements: pure functions on numbers.
//!
//! - [`quantile`]: median and percentiles;
//! - [`summary`]: spread and flags of the runs of one point;
//! - [`mod@agreement`]: whether runs agree, and between which rates;
//! - [`bootstrap`], [`trend`], [`compare`]: intervals, slopes and differences with their tests;
//! - [`model`]: the papers' models of work, fitted to the cells;
//! - [`mod@line`]: a straight line, and what it says beyond its points;
//! - [`queue`]: whether a DUT stores requests to answer them in the timeout;
//! - [`outstanding`]: how many queries it has under way at once.
//!
//! All of them answer `None` if a number is not finite: nothing is made from it.

pub mod agreement;
pub mod bootstrap;
pub mod compare;
pub mod line;
pub mod model;
mod normal;
pub mod outstanding;
pub mod quantile;
pub mod queue;
pub mod summary;
pub mod trend;

#[cfg(test)]
mod tests;
