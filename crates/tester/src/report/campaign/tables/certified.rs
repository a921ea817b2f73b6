//! Tables of the self-tests and their certificates.

use std::collections::BTreeSet;

use super::by_point;
use crate::campaign::tasks;
use crate::report::campaign::analysis::{Analysis, Certificate as SelfTest};
use crate::report::campaign::numbers;
use crate::report::campaign::table::{Cell, Table, columns};

/// One row for each self-test.
pub(super) fn self_tests(analysis: &Analysis) -> Table {
    let caption = "Self-tests, with rates in queries per second.";
    let columns = columns![c: SelfTest;
        "conditions", "conditions" => {
            let c = &c.conditions;
            format!("{}, {}, {}", c.authority, c.lab, numbers::count(c.threads, "thread"))
        };
        "cell", "names" => tasks::spaced(&c.conditions.cell);
        "duration_ns", "duration" => Cell::Span(c.conditions.duration_ns);
        "timeout_ns", "timeout" => Cell::Span(c.conditions.timeout_ns);
        "trials", "trials" => c.trials;
        "passed_qps", "passed" => c.passed_rate_qps;
        "certified_qps", "certified" => c.certified_rate_qps;
        "end", "end" => &c.end;
    ];
    Table::new("self_tests", "Self-tests", caption).with(&columns, &analysis.certificates)
}

/// Ratio of the certificates to the medians.
pub(super) fn headroom(analysis: &Analysis) -> Table {
    let mut table = Table::new(
        "headroom",
        "Headroom",
        "Headroom: certified rate / median rate, both in queries per second.",
    );
    let headrooms = analysis.points.iter().filter_map(|p| p.headroom);
    let Some(lowest) = headrooms.min_by(f64::total_cmp) else {
        return table;
    };
    table.notes.push(format!(
        "The lowest headroom is {}.",
        numbers::decimal(lowest, 2)
    ));
    table.notes.extend(certificates(analysis));
    by_point(analysis, table, "certified_qps median_qps headroom", |_| {
        true
    })
}

/// The common certificates of the self-tests, and the parts of the lab that they cover.
fn certificates(analysis: &Analysis) -> Vec<String> {
    let mut notes = Vec::new();
    let covers = analysis.certificates.iter();
    let covers: BTreeSet<_> = covers.map(|test| test.conditions.covers.as_str()).collect();
    if analysis.certificates.len() > 1 {
        let lowest = "Of several self-tests under the same conditions, the lowest rate is the certified one.";
        notes.push(lowest.to_owned());
    }
    let covers = covers.into_iter().filter(|covers| !covers.is_empty());
    notes.extend(covers.map(|covers| format!("The self-tests cover {covers}.")));
    notes
}
