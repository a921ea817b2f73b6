//! Tables of the self-tests and their certificates.

use std::collections::{BTreeMap, BTreeSet};

use super::two;
use crate::campaign::plan::tasks;
use crate::report::campaign::analysis::{Analysis, Certificate as SelfTest};
use crate::report::campaign::numbers;
use crate::report::campaign::table::{Cell, Table, columns};

/// Self-tests under the same conditions, what they certify together, and the highest median under these conditions.
type Alike<'a> = (&'a SelfTest, Vec<&'a SelfTest>, Option<u64>, Option<f64>);

/// One row for the self-tests under the same conditions.
pub(super) fn self_tests(analysis: &Analysis) -> Table {
    let caption = "Self-tests, those under the same conditions together, with rates in queries per second. Passed: the \
                   lowest to the highest rate that one of them passed. Certified: for DUTs up to this rate. Headroom: certified rate / highest median rate under the same conditions.";
    let columns = columns![alike: Alike<'_>;
        "cell", "names" => tasks::spaced(&alike.0.conditions.cell);
        "conditions", "conditions" => {
            let c = &alike.0.conditions;
            let sources = c.source_addresses.map(|count| {
                format!(", {} source addresses", numbers::Thousands(count as u64))
            });
            let threads = numbers::count(c.threads, "thread");
            format!("{}, {}, {threads}{}", c.authority, c.lab, sources.unwrap_or_default())
        };
        "duration_ns", "duration" => Cell::Span(alike.0.conditions.duration_ns);
        "timeout_ns", "timeout" => Cell::Span(alike.0.conditions.timeout_ns);
        "self_tests", "self-tests" => alike.1.len();
        "trials", "trials" => alike.1.iter().map(|test| test.trials).sum::<usize>();
        "passed_qps", "passed" => passed(&alike.1);
        "certified_qps", "certified" => alike.2;
        "headroom", "headroom" => alike.2.zip(alike.3).map(|(certified, median)| two(certified as f64 / median));
        "end", "end" => ends(&alike.1);
    ];
    let alike = analysis.margins.iter().filter_map(|margin| {
        let tests = margin.certificates.iter();
        let tests: Vec<_> = tests.map(|test| &analysis.certificates[*test]).collect();
        let medians = margin.points.iter().filter_map(|point| {
            let summary = analysis.points[*point].summary.as_ref();
            summary.map(|summary| summary.median)
        });
        let highest = medians.reduce(f64::max);
        Some((*tests.first()?, tests, margin.certified_rate_qps, highest))
    });
    let mut table = Table::new("self_tests", "Self-tests", caption).with(&columns, alike);
    table.notes = notes(analysis);
    common_in_caption(table)
}

/// The table with what is the same in all rows in its caption.
fn common_in_caption(mut table: Table) -> Table {
    let mut common = Vec::new();
    for key in ["timeout_ns", "duration_ns", "conditions"] {
        let column = table.columns.iter().position(|column| column.key == key);
        let same = |at: usize| table.rows.iter().all(|row| row[at] == table.rows[0][at]);
        if let Some(at) = column.filter(|at| table.rows.len() > 1 && same(*at)) {
            let head = table.columns.remove(at).head;
            let cells: Vec<_> = table.rows.iter_mut().map(|row| row.remove(at)).collect();
            common.push(format!("{head}: {}", cells[0].text("; ")));
        }
    }
    if !common.is_empty() {
        common.reverse();
        table.caption += &format!(" The same for all: {}.", common.join("; "));
    }
    table
}

/// From the lowest to the highest rate that these self-tests passed.
fn passed(tests: &[&SelfTest]) -> Cell {
    let rates = || tests.iter().filter_map(|test| test.passed_rate_qps);
    match (rates().min(), rates().max()) {
        (Some(low), Some(high)) if low < high => Cell::Range(low as f64, high as f64),
        (low, _) => low.into(),
    }
}

/// How these self-tests ended: each end once, with how many ended so if there are several.
fn ends(tests: &[&SelfTest]) -> Cell {
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for test in tests {
        *ends.entry(&test.end).or_default() += 1;
    }
    let is_one = ends.len() == 1;
    Cell::list(ends.into_iter().map(|(end, number)| match is_one {
        true => end.to_owned(),
        false => format!("{number} {end}"),
    }))
}

/// The common certificates of the self-tests, and the parts of the lab that they cover.
fn notes(analysis: &Analysis) -> Vec<String> {
    let mut notes = Vec::new();
    let covers = analysis.certificates.iter();
    let covers: BTreeSet<_> = covers
        .map(|test| test.conditions.covers.to_string())
        .collect();
    if analysis.certificates.len() > 1 {
        let lowest = "Of several self-tests under the same conditions, the lowest rate is the certified one.";
        notes.push(lowest.to_owned());
    }
    let covers = covers.into_iter().filter(|covers| !covers.is_empty());
    notes.extend(covers.map(|covers| format!("The self-tests cover {covers}.")));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::tests::sample::{SMALL, analysed};

    #[test]
    fn self_tests_under_the_same_conditions_are_one_row() {
        let mut analysis = analysed(SMALL);
        let mut other = analysis.certificates[0].clone();
        other.conditions.cell = "AAAA 50 %, cached 0 %".to_owned();
        other.end = "failed".to_owned();
        analysis.certificates.extend([other.clone(), other]);
        analysis.certificates[2].end = "certified".to_owned();
        let mut margin = analysis.margins[0].clone();
        margin.certificates = vec![2, 3];
        analysis.margins.push(margin);
        let table = self_tests(&analysis);
        let keys: Vec<_> = table
            .columns
            .iter()
            .map(|column| column.key.as_str())
            .collect();
        assert_eq!(
            keys,
            [
                "cell",
                "self_tests",
                "trials",
                "passed_qps",
                "certified_qps",
                "headroom",
                "end"
            ]
        );
        assert!(
            table
                .caption
                .ends_with("1 thread; duration: 1 s; timeout: 1 s."),
            "{}",
            table.caption
        );
        let ends: Vec<_> = table.rows.iter().map(|row| row[6].text("; ")).collect();
        assert_eq!(ends, ["certified", "1 certified; 1 failed"]);
    }
}
