//! The list of all files of a report, for both `report` and `verify`.

use super::analysis::Analysis;
use super::{csv, html, latex, plots, tables};
use crate::PROGRAM;
use crate::campaign::record::Line;
use crate::hash::sha256_hex;

/// Published schema of `results.json`, JSON Schema 2020-12.
pub const SCHEMA: &str = include_str!("../../../schema/results.schema.json");

/// Name of the file with the hashes of all others and the program that made them.
pub const SUMS: &str = "SHA256SUMS";

/// Folder of the drawings in that of the report.
pub const FIGURES: &str = "figures";

/// Why the files cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The page cannot be rendered.
    #[error("cannot render the page: {0}")]
    Page(#[from] minijinja::Error),
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
/// The same journal gives the same files.
///
/// # Errors
///
/// A number of the report has no JSON form.
pub fn files(analysis: &Analysis, lines: &[Line]) -> Result<Vec<(String, Vec<u8>)>, FilesError> {
    let mut results =
        serde_json::to_string_pretty(analysis).map_err(|reason| FilesError::Json { reason })?;
    results.push('\n');
    let texts = [
        ("results.json", results),
        ("index.html", html::page(analysis, &tables::all(analysis))?),
        ("results.schema.json", SCHEMA.to_owned()),
        ("points.csv", csv::text(&tables::points(analysis))?),
        ("runs.csv", csv::text(&tables::runs(analysis))?),
        ("trials.csv", csv::text(&tables::trials(analysis, lines))?),
        ("tables.tex", latex::text(&tables::papers(analysis))),
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
