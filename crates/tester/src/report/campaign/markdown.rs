//! The report in Markdown, for sites that render it: the tables of the page in the same order.

use std::fmt::Write as _;
use std::io;

use super::analysis::Analysis;
use super::table::{Cell, Exporter, Table};

/// Tables in GitHub's Markdown, each below its title.
pub(super) struct Markdown;

impl Exporter for Markdown {
    fn export(&self, tables: &[Table]) -> io::Result<String> {
        Ok(tables.iter().map(text).collect())
    }
}

/// The whole report.
pub(super) fn page(analysis: &Analysis, tables: &[Table]) -> io::Result<String> {
    let mut out = format!("# {}\n", escaped(&analysis.name));
    if !analysis.description.is_empty() {
        out += &format!("\n{}\n", escaped(&analysis.description));
    }
    out += &section("Verdict", &analysis.verdict);
    out += &section("Not a measurement", &analysis.not_a_measurement);
    let warnings: Vec<_> = analysis.warnings.iter().map(ToString::to_string).collect();
    out += &section("Warnings", &warnings);
    out += &Markdown.export(tables)?;
    out += "\n## To repeat it\n\n";
    for command in &analysis.commands {
        out += &format!("    {}\n", command.replace(char::is_control, " "));
    }
    out += &format!(
        "\n{}, plan SHA-256 {}, journal seal {}.\n",
        escaped(&analysis.tester),
        analysis.plan_sha256,
        analysis.journal_seal
    );
    Ok(out)
}

fn section(title: &str, items: &[String]) -> String {
    match items.is_empty() {
        true => String::new(),
        false => format!("\n## {title}\n\n{}", list(items)),
    }
}

fn list(items: &[String]) -> String {
    let item = |text: &String| format!("- {}\n", escaped(text));
    items.iter().map(item).collect()
}

fn text(table: &Table) -> String {
    let mut out = format!(
        "\n## {}\n\n{}\n",
        escaped(&table.title),
        escaped(&table.caption)
    );
    if !table.notes.is_empty() {
        out += &format!("\n{}", list(&table.notes));
    }
    let side = |is_number| if is_number { "---:" } else { "---" };
    let heads: Vec<_> = table.columns.iter().map(|c| escaped(&c.head)).collect();
    let sides: Vec<_> = table.columns.iter().map(|c| side(c.number)).collect();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "\n| {} |\n| {} |",
        heads.join(" | "),
        sides.join(" | ")
    );
    for row in &table.rows {
        let cell = |cell: &Cell| escaped(&cell.text("; "));
        let cells: Vec<_> = row.iter().map(cell).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// User text escaped for Markdown, on one line.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.push(' ');
            continue;
        }
        if "\\`*_<>[]|#~".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
