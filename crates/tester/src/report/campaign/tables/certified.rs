//! Tables of the self-tests and their certificates.

use std::collections::{BTreeMap, BTreeSet};

use crate::campaign::plan::tasks;
use crate::campaign::record::CertificateConditions;
use crate::procedure::certificate::Certificate;
use crate::report::campaign::analyse::grouped;
use crate::report::campaign::analysis::{Analysis, Certificate as SelfTest};
use crate::report::campaign::table::{Cell, Table, columns};
use crate::rig::spec::SelfTestPath;

/// Self-tests under the same conditions.
type Alike<'a> = (&'a CertificateConditions, Vec<&'a SelfTest>);

/// One row for the self-tests under the same conditions.
pub(super) fn self_tests(analysis: &Analysis) -> Table {
    let caption = "Self-tests, those under the same conditions together, with rates in queries per second. Passed: the \
                   lowest to the highest rate that one of them passed. Certified: for DUTs up to this rate.";
    let columns = columns![alike: Alike<'_>;
        "cell", "names" => tasks::spaced(&alike.0.cell);
        "authority", "authority" => &alike.0.authority;
        "duration_ns", "duration" => Cell::Span(alike.0.duration_ns);
        "timeout_ns", "timeout" => Cell::Span(alike.0.timeout_ns);
        "self_tests", "self-tests" => alike.1.len();
        "trials", "trials" => alike.1.iter().map(|test| test.trials).sum::<usize>();
        "passed_qps", "passed" => passed(&alike.1);
        "certified_qps", "certified" => {
            let rates = alike.1.iter().filter_map(|test| test.certified_rate_qps);
            Certificate::of(&rates.collect::<Vec<_>>()).map(|certificate| certificate.rate_qps)
        };
        "end", "end" => ends(&alike.1);
    ];
    let tests = analysis.certificates.iter();
    let alike = grouped(tests.map(|test| (&test.conditions, test)));
    let mut table = Table::new("self_tests", "Self-tests", caption).with(&columns, alike);
    table.notes = notes(analysis);
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
    if analysis.certificates.len() > 1 {
        let lowest = "Of several self-tests under the same conditions, the lowest rate is the certified one.";
        notes.push(lowest.to_owned());
    }
    let covers = analysis.certificates.iter();
    let covers: BTreeSet<SelfTestPath> = covers.map(|test| test.conditions.covers).collect();
    let told = covers.iter();
    notes.extend(told.map(|covers| format!("The self-tests cover {covers}.")));
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
                "authority",
                "duration_ns",
                "timeout_ns",
                "self_tests",
                "trials",
                "passed_qps",
                "certified_qps",
                "end"
            ]
        );
        let ends: Vec<_> = table.rows.iter().map(|row| row[8].text("; ")).collect();
        assert_eq!(ends, ["certified", "1 certified; 1 failed"]);
    }
}
