//! Tables of the path of the queries through DUT and authority, by point.

use super::by_point;
use crate::report::campaign::analysis::{Analysis, PathResult, PointResult};
use crate::report::campaign::table::{Cell, Column, Table, columns};

/// Figures of a point.
pub(super) static FIGURES: [Column<PointResult>; 6] = columns![p: PointResult;
    "fresh_names", "fresh names" => p.path.as_ref().map(|path| path.answered.names);
    "fresh_unasked", "not asked for" => p.path.as_ref().map(|path| path.answered.unasked);
    "questions_per_name", "questions" => {
        let questions = p.path.as_ref().and_then(|path| path.questions_per_name);
        questions.map(|questions| Cell::Decimal(questions, 3))
    };
    "dut_only_ns_p50", "DUT only p50" => dut_only(p, 50.0);
    "dut_only_ns_p99", "DUT only p99" => dut_only(p, 99.0);
    "authority_ns_p50", "authority p50" => {
        let authority = p.path.as_ref().map(|path: &PathResult| path.authority);
        authority.and_then(|times| times.p50_ns).map(Cell::Span)
    };
];

/// The round-trip time without that of the authority.
fn dut_only(point: &PointResult, percent: f64) -> Option<Cell> {
    let mut all = point.path.iter().flat_map(|path| &path.dut_only_ns);
    let found = all.find(|at| (at.0 - percent).abs() < 1e-9);
    found.map(|at| Cell::Span(at.1))
}

/// The table for people.
pub(super) fn path(analysis: &Analysis) -> Table {
    let table = Table::new(
        "path",
        "Time of the DUT",
        "DUT only: round-trip time of the passed trial of the run nearest to the median, without the time \
         that its authority took, with the links and the system calls of the Tester. Questions: at the \
         authority, for each fresh name. Not asked for: fresh names that were answered without a question, \
         in all valid trials.",
    );
    let figures = "dut_only_ns_p50 dut_only_ns_p99 authority_ns_p50 questions_per_name fresh_names \
                   fresh_unasked";
    by_point(analysis, table, figures, |point| point.path.is_some())
}
