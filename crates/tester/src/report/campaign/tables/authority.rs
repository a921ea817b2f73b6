//! Tables of the authority's influence on the rate.

use super::{by_variant, two};
use crate::report::campaign::analysis::{
    Analysis, DelayCurve, DelayRow, WorkingSetRow, WorkingSets,
};
use crate::report::campaign::table::{Cell, Table, columns, rate_if};

/// Rates by the delay of the authority.
pub(super) fn delays(analysis: &Analysis) -> Table {
    let dut = columns![c: DelayCurve; "dut", "DUT" => &c.dut;];
    let columns = columns![r: DelayRow;
        "delay_ns", "delay" => Cell::Span(r.delay_ns);
        "median_qps", "median" => rate_if(r.median, r.lower_bound, r.certified);
        "rtt_ns_p50", "RTT p50" => r.rtt_ns_p50.map(Cell::Span);
        "outstanding", "outstanding" => r.outstanding.map(|n| Cell::Decimal(n, 1));
    ];
    let mut table = Table::new(
        "delay",
        "Delay of the authority",
        "Median rate by the delay of the authority, in queries per second, with the median round-trip \
         time and the queries under way at once, which are rate × time (Little’s law). ≥ marks a lower \
         bound.",
    );
    let curves = analysis.delays.iter();
    let notes = curves.clone().map(|c| format!("{}: {}.", c.dut, c.verdict));
    table.notes.extend(notes);
    let of_rows = curves.clone().flat_map(|c| c.rows.iter().map(move |_| c));
    table
        .with(&dut, of_rows)
        .with(&columns, curves.flat_map(|c| &c.rows))
        .grouped()
}

/// Rates by the working set.
pub(super) fn working_sets(analysis: &Analysis) -> Table {
    let order = columns![set: WorkingSets; "order", "names are asked" => set.order;];
    let columns = columns![r: WorkingSetRow;
        "names", "names" => r.names;
        "median_qps", "median" => rate_if(r.median, r.lower_bound, r.certified);
        "factor", "factor" => two(r.factor);
    ];
    let table = Table::new(
        "working_set",
        "Working set",
        "Median rate by the names that all queries are for, over and over, in queries per second, and \
         its factor against the fewest names. ≥ marks a lower bound.",
    );
    let sets = analysis.working_sets.iter();
    let rows = sets
        .clone()
        .flat_map(|set| set.rows.iter().map(move |_| (set.variant, set)));
    by_variant(analysis, table, &order, rows)
        .with(&columns, sets.flat_map(|set| &set.rows))
        .grouped()
}
