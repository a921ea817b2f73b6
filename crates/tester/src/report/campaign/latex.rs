//! Tables as LaTeX, for a paper.

use std::collections::BTreeSet;
use std::io;

use super::table::{Cell, Exporter, Table};

/// LaTeX with the rules of booktabs.
pub(super) struct Latex;

impl Exporter for Latex {
    fn export(&self, tables: &[Table]) -> io::Result<String> {
        let head = "% Tables of the campaign; they need \\usepackage{booktabs}.\n".to_owned();
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
    let rows = table.rows.iter();
    let rows: String = rows
        .map(|row| line(row.iter().map(cell).collect()))
        .collect();
    format!(
        "\n\\begin{{table}}\n\\centering\n\\caption{{{}}}\n\\label{{{label}}}\n\\begin{{tabular}}{{{sides}}}\n\\toprule\n\
         {heads}\\midrule\n{rows}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n",
        escaped(&table.caption)
    )
}

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
