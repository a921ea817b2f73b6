//! The queries that a DUT holds open.

use super::rate;
use crate::procedure::capacity::Capacity;
use crate::quantity::Thousands;
use crate::report::counts;

/// What the first line of a search says of them.
pub(super) fn holds(capacity: &Capacity) -> String {
    format!("; it holds {} queries open", Thousands(capacity.open))
}

/// The rows of its section.
pub(super) fn rows(capacity: &Capacity) -> Vec<(String, String)> {
    let mut rows = vec![(
        "open queries".to_owned(),
        Thousands(capacity.open).to_string(),
    )];
    let at_authority = capacity
        .open_at_authority
        .map(|open| Thousands(open).to_string());
    rows.push((
        "at the authority".to_owned(),
        at_authority.unwrap_or_else(|| "-".to_owned()),
    ));
    if let Some(beyond) = capacity.beyond {
        let each = counts(&[
            (beyond.valid, "answered in time"),
            (beyond.late, "late"),
            (beyond.error, "with an error"),
            (beyond.silent, "without a response"),
            (beyond.other, "with another answer"),
        ]);
        rows.push((format!("at {}", rate(beyond.rate_qps)), each));
    }
    rows
}
