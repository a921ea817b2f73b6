//! The list of all files of a report, for both `report` and `verify`.

use super::analysis::Analysis;
use super::csv::Csv;
use super::html::{self, ReportError};
use super::latex::Latex;
use super::table::Exporter;
use super::{markdown, metrics, plots, tables};
use crate::PROGRAM;
use crate::campaign::record::{Line, Record};
use crate::hash::sha256_hex;

/// Published schema of `results.json`, JSON Schema 2020-12.
pub const SCHEMA: &str = include_str!("../../../schema/results.schema.json");

/// Name of the file with the hashes of all others and the program that made them.
pub const SUMS: &str = "SHA256SUMS";

/// Name of the copy of the page's template, if it is not the built-in one.
pub const TEMPLATE: &str = "template.html";

/// Folder of the drawings in that of the report.
pub const FIGURES: &str = "figures";

/// Why the files cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The page cannot be rendered.
    #[error(transparent)]
    Page(#[from] ReportError),
    /// A number of the report has no JSON form.
    #[error("cannot write results.json: {reason}")]
    Json {
        /// Error of the writer.
        reason: serde_json::Error,
    },
    /// A table could not be written.
    #[error("cannot write the tables: {0}")]
    Table(#[from] std::io::Error),
}

/// Every file of the report: its path below the folder of the report, and its octets. `analysis` is that of `lines`.
/// The same journal and template give the same files.
///
/// # Errors
///
/// The template is wrong, or a number of the report has no JSON form.
pub fn files(
    analysis: &Analysis,
    lines: &[Line],
    template: Option<&str>,
) -> Result<Vec<(String, Vec<u8>)>, FilesError> {
    let mut results =
        serde_json::to_string_pretty(analysis).map_err(|reason| FilesError::Json { reason })?;
    results.push('\n');
    let plan_text = lines.iter().find_map(|line| match &line.record {
        Record::Campaign { plan, .. } => Some(plan.clone()),
        _ => None,
    });
    let people = tables::all(analysis);
    let csv = |table| Csv.export(&[table]);
    let texts = [
        ("results.json", results),
        ("index.html", html::page(analysis, &people, template)?),
        ("report.md", markdown::page(analysis, &people)?),
        ("results.schema.json", SCHEMA.to_owned()),
        ("plan.toml", plan_text.unwrap_or_default()),
        ("points.csv", csv(tables::points(analysis))?),
        ("runs.csv", csv(tables::runs(analysis))?),
        ("trials.csv", csv(tables::trials(analysis, lines))?),
        ("tables.tex", Latex.export(&tables::papers(analysis))?),
        ("dns-metrics.jsonl", metrics::lines(analysis, lines)),
    ];
    let mut texts: Vec<_> = texts.map(|(path, text)| (path.to_owned(), text)).into();
    let conditions = plots::conditions(analysis);
    for (key, figures) in plots::figures(analysis) {
        let files = figures.iter().zip(1..).map(|(figure, number)| {
            let path = format!("{FIGURES}/{key}-{number}.svg");
            (path, figure.file(&conditions))
        });
        texts.extend(files);
    }
    texts.extend(template.map(|text| (TEMPLATE.to_owned(), text.to_owned())));
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
    if let Some((path, text)) = texts.iter().find(|(path, _)| path == TEMPLATE) {
        let hash = sha256_hex(text.as_bytes());
        sums += &format!("# index.html by a template of the user's: {path}, sha256 {hash}\n");
    }
    for (path, text) in texts {
        sums += &format!("{}  {path}\n", sha256_hex(text.as_bytes()));
    }
    sums
}

/// First line of [`SUMS`], without its line end.
pub fn maker_line() -> String {
    format!("# made by {PROGRAM}")
}
