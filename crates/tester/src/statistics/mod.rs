//! The figures of repeated measurements: pure functions on numbers.
//!
//! - [`summary`]: median, percentiles, spread and flags of the runs of one point;
//! - [`bootstrap`], [`trend`], [`compare`]: intervals, slopes and differences with their tests;
//! - [`model`]: the papers' models of work, fitted to the cells;
//! - [`queue`]: whether a DUT stores requests to answer them in the timeout.
//!
//! All of them answer `None` if a number is not finite: nothing is made from it.

pub mod bootstrap;
pub mod compare;
pub mod model;
mod normal;
pub mod queue;
pub mod summary;
pub mod trend;

#[cfg(test)]
mod tests;

/// A sorted copy; `None` if a value is not finite.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.iter().all(|v| v.is_finite()).then_some(values)
}

/// How often each value occurs, as numbers for the corrections of rank tests.
fn ties(sorted: &[f64]) -> impl Iterator<Item = f64> {
    sorted
        .chunk_by(|a, b| a == b)
        .map(|group| group.len() as f64)
}
