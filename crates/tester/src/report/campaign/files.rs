//! The list of all files of a report, for both `report` and `verify`.

use super::analysis::Analysis;
use super::{csv, html, latex, plots, tables};
use crate::PROGRAM;
use crate::campaign::record::Line;
use crate::hash::sha256_hex;
use crate::lab::{Blame, LabError};
use crate::report::json;

/// Published schema of `results.json`, JSON Schema 2020-12.
pub const SCHEMA: &str = include_str!("../../../schema/results.schema.json");

/// Name of the file with the hashes of all others and the program that made them.
pub const SUMS: &str = "SHA256SUMS";

/// Folder of the drawings in that of the report.
pub const FIGURES: &str = "figures";

/// Every file of the report: its path below the folder of the report, and its octets. `analysis` is that of `lines`.
/// The same journal gives the same files.
///
/// # Errors
///
/// A number of the report has no JSON form.
pub fn files(analysis: &Analysis, lines: &[Line]) -> Result<Vec<(String, Vec<u8>)>, LabError> {
    let results =
        json::text(analysis).map_err(Blame::Machine.because("cannot write results.json"))?;
    let page = html::page(analysis, &tables::all(analysis));
    let csv = |table| csv::text(&table).map_err(Blame::Machine.because("cannot write the tables"));
    let texts = [
        ("results.json", results),
        (
            "index.html",
            page.map_err(Blame::Machine.because("cannot render the page"))?,
        ),
        ("results.schema.json", SCHEMA.to_owned()),
        ("points.csv", csv(tables::points(analysis))?),
        ("runs.csv", csv(tables::runs(analysis))?),
        ("trials.csv", csv(tables::trials(analysis, lines))?),
        ("tables.tex", latex::text(&tables::papers(analysis))),
    ];
    let mut texts: Vec<_> = texts.map(|(path, text)| (path.to_owned(), text)).into();
    if !analysis.goals.is_empty() {
        texts.push(("goals.csv".to_owned(), csv(tables::goals(analysis))?));
    }
    let conditions = plots::conditions(analysis);
    for (key, figures) in plots::figures(analysis) {
        for (figure, number) in figures.iter().zip(1..) {
            let drawing = figure.captioned(&conditions);
            let path = |ending| format!("{FIGURES}/{key}-{number}.{ending}");
            texts.push((path("svg"), drawing.svg_file()));
            texts.push((path("pdf"), drawing.pdf_file()));
        }
    }
    let sums = sums(&texts, &analysis.journal_seal);
    texts.push((SUMS.to_owned(), sums));
    Ok(texts
        .into_iter()
        .map(|(path, text)| (path, text.into_bytes()))
        .collect())
}

/// Hashes in the format of `sha256sum --check`, which skips the lines before them.
fn sums(texts: &[(String, String)], seal: &str) -> String {
    let mut sums = format!(
        "{}\n# from the journal with the seal {seal}\n",
        maker_line()
    );
    for (path, text) in texts {
        sums += &format!("{}  {path}\n", sha256_hex(text.as_bytes()));
    }
    sums
}

/// First line of [`SUMS`], without its line end.
pub fn maker_line() -> String {
    format!("# made by {PROGRAM}")
}
