//! Tables as LaTeX, for a paper.

use std::io;

use super::table::{Cell, Exporter, Table};

/// LaTeX with the rules of booktabs.
pub(super) struct Latex;

impl Exporter for Latex {
    fn export(&self, tables: &[Table]) -> io::Result<String> {
        let head = "% Tables of the campaign; they need \\usepackage{booktabs}.\n".to_owned();
        Ok(head + &tables.iter().map(text).collect::<String>())
    }
}

fn text(table: &Table) -> String {
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
        "\n\\begin{{table}}\n\\centering\n\\caption{{{}}}\n\\begin{{tabular}}{{{sides}}}\n\\toprule\n\
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
