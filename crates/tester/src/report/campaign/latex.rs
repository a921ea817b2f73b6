//! Tables as LaTeX, for a paper.

use std::collections::BTreeSet;
use std::io;

use super::table::{Cell, Exporter, Table};

/// LaTeX with the rules of booktabs.
pub(super) struct Latex;

impl Exporter for Latex {
    fn export(&self, tables: &[Table]) -> io::Result<String> {
        let long = tables.iter().any(is_long);
        let packages = if long {
            "booktabs,longtable"
        } else {
            "booktabs"
        };
        let head = format!("% Tables of the campaign; they need \\usepackage{{{packages}}}.\n");
        let mut labels = BTreeSet::new();
        let texts = tables.iter().map(|table| {
            let label = label(&table.title, &labels);
            labels.insert(label.clone());
            text(table, &label)
        });
        Ok(head + &texts.collect::<String>())
    }
}

/// What `\\ref` calls a table of this title; none of those that are taken.
fn label(title: &str, taken: &BTreeSet<String>) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let label = format!("tab:{}", words.join("-").to_lowercase());
    let numbered = (2..).map(|number| format!("{label}-{number}"));
    let mut free = std::iter::once(label.clone()).chain(numbered);
    free.find(|label| !taken.contains(label)).unwrap_or(label)
}

fn text(table: &Table, label: &str) -> String {
    let side = |is_number| if is_number { 'r' } else { 'l' };
    let sides: String = table.columns.iter().map(|c| side(c.number)).collect();
    let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
    let heads = line(table.columns.iter().map(|c| escaped(&c.head)).collect());
    let cell = |cell: &Cell| escaped(&cell.text("; "));
    let group = |rows: &[Vec<Cell>]| -> String {
        let rows = rows.iter();
        rows.map(|row| line(row.iter().map(cell).collect()))
            .collect()
    };
    // Rows that belong together stand between rules.
    let rows = match table.grouped {
        true => table
            .groups()
            .map(group)
            .collect::<Vec<_>>()
            .join("\\midrule\n"),
        false => group(&table.rows),
    };
    let named = format!(
        "\\caption{{{}}}\n\\label{{{label}}}",
        escaped(&table.caption)
    );
    if is_long(table) {
        return format!(
            "\n\\begin{{longtable}}{{{sides}}}\n{named} \\\\\n\\toprule\n{heads}\\midrule\n\\endfirsthead\n\
             \\toprule\n{heads}\\midrule\n\\endhead\n\\bottomrule\n\\endfoot\n{rows}\\end{{longtable}}\n"
        );
    }
    format!(
        "\n\\begin{{table}}\n\\centering\n{named}\n\\begin{{tabular}}{{{sides}}}\n\\toprule\n\
         {heads}\\midrule\n{rows}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )
}

/// Whether a table is longer than a page holds.
fn is_long(table: &Table) -> bool {
    table.rows.len() > ROWS_OF_A_PAGE
}

/// With some room for the caption and the rules between groups.
const ROWS_OF_A_PAGE: usize = 35;

/// Text as LaTeX prints it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '≥' => out.push_str("$\\geq$"),
            '–' => out.push_str("--"),
            '†' => out.push_str("\\dag{}"),
            '−' => out.push_str("$-$"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_longer_than_a_page_is_broken_between_pages() {
        let long = |rows: u64| {
            let mut table = Table::new("", "t", "c");
            table.rows = (0..rows).map(|row| vec![Cell::Count(row)]).collect();
            table.add_head("n", "N");
            Latex.export(&[table]).unwrap()
        };
        let (short, long) = (long(35), long(36));
        assert!(short.contains("{booktabs}") && short.contains("\\begin{tabular}{r}"));
        assert!(long.contains("{booktabs,longtable}"), "{long}");
        assert!(
            long.contains("\\endhead\n\\bottomrule\n\\endfoot\n0 \\\\\n1"),
            "{long}"
        );
        assert!(long.ends_with("35 \\\\\n\\end{longtable}\n"), "{long}");
    }

    #[test]
    fn labels_are_words_and_each_is_another() {
        let mut taken = BTreeSet::new();
        let mut of = |title: &str| {
            let label = label(title, &taken);
            taken.insert(label.clone());
            label
        };
        assert_eq!(
            of("un_bound & <co> durations, 0.5 s"),
            "tab:un-bound-co-durations-0-5-s"
        );
        assert_eq!(of("a=1"), "tab:a-1");
        assert_eq!(of("a 1"), "tab:a-1-2");
    }
}
