//! All files of a report: the one list that `report` writes by and `verify` compares with.

use super::analyse::analyse;
use super::{csv, gnuplot, latex, markdown, metrics};
use crate::campaign::plan::Plan;
use crate::campaign::record::{Line, Record};

/// The published form of `results.json`, JSON Schema 2020-12.
pub const SCHEMA: &str = include_str!("../../../schema/results.schema.json");

/// Every file of the report: its path below the folder of the report, and its octets. The same
/// journal gives the same files.
///
/// # Errors
///
/// A number of the report has no form in JSON.
pub fn files(
    plan: &Plan,
    lines: &[Line],
    seal: &str,
) -> Result<Vec<(&'static str, Vec<u8>)>, serde_json::Error> {
    let analysis = analyse(plan, lines, seal);
    let mut results = serde_json::to_string_pretty(&analysis)?;
    results.push('\n');
    let plan_text = lines.iter().find_map(|line| match &line.record {
        Record::Campaign { plan, .. } => Some(plan.clone()),
        _ => None,
    });
    let texts = [
        ("report.md", markdown::page(&analysis)),
        ("results.json", results),
        ("results.schema.json", SCHEMA.to_owned()),
        ("plan.toml", plan_text.unwrap_or_default()),
        ("points.csv", csv::points(&analysis, plan)),
        ("runs.csv", csv::runs(&analysis, plan)),
        ("trials.csv", csv::trials(&analysis, plan, lines)),
        ("tables.tex", latex::tables(&analysis)),
        ("dns-metrics.jsonl", metrics::lines(&analysis, plan, lines)),
        ("data/rates.dat", gnuplot::rates(&analysis)),
        ("data/convergence.dat", gnuplot::convergence(&analysis)),
        ("data/latency.dat", gnuplot::latency(&analysis)),
        ("data/plot.gp", gnuplot::script(&analysis)),
    ];
    Ok(texts.map(|(path, text)| (path, text.into_bytes())).into())
}
