//! From a plan to what is done, in order.

use std::fmt;

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

use super::plan::{Cell, Plan};

/// One row of the results: a variant, a cell, a duration and a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Index into [`Plan::variants`].
    pub variant: usize,
    /// Shares.
    pub cell: Cell,
    /// Length of a trial.
    pub duration_ns: Nanos,
    /// An answer counts until this long after its query.
    pub timeout_ns: Nanos,
}

/// One piece of work. `point` is an index into [`points`] of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// One search.
    Search {
        /// Of this point.
        point: usize,
        /// From 1.
        run: u32,
    },
    /// The trials of the overload curve.
    Overload {
        /// Of this point.
        point: usize,
    },
    /// The segments of the soak.
    Soak {
        /// Of this point.
        point: usize,
    },
}

impl Task {
    /// The point that it is about.
    pub fn point(self) -> usize {
        match self {
            Self::Search { point, .. } | Self::Overload { point } | Self::Soak { point } => point,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Search { run, .. } => write!(f, "run {run}"),
            Self::Overload { .. } => f.write_str("overload curve"),
            Self::Soak { .. } => f.write_str("soak"),
        }
    }
}

/// All points of a plan, in its order: variants, in each its cells, then the queue check's.
pub fn points(plan: &Plan) -> Vec<Point> {
    let mut points = Vec::new();
    for variant in 0..plan.variants.len() {
        let mut add = |cell: &Cell, duration_ns, timeout_ns| {
            let point = Point {
                variant,
                cell: *cell,
                duration_ns,
                timeout_ns,
            };
            if !points.contains(&point) {
                points.push(point);
            }
        };
        for cell in &plan.cells {
            add(cell, plan.duration_ns, plan.timeout_ns);
        }
        if let (Some(check), Some(cell)) = (&plan.queue_check, plan.cells.first()) {
            for &timeout_ns in &check.timeouts_ns {
                for &duration_ns in &check.durations_ns {
                    add(cell, duration_ns, timeout_ns);
                }
            }
        }
    }
    points
}
