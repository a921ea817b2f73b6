//! Tables in LaTeX, for papers.

use std::collections::BTreeSet;

use super::table::Table;

/// These tables with the rules of booktabs. Tables that are too wide are scaled down.
pub(super) fn text(tables: &[Table]) -> String {
    let mut out = String::from(HEAD);
    let mut labels = BTreeSet::new();
    for table in tables {
        let label = label(&table.title, &labels);
        out += &of_table(table, &label);
        labels.insert(label);
    }
    out
}

/// Preamble of the file.
const HEAD: &str = "% Tables of the campaign; they need \\usepackage{booktabs,graphicx}.\n";

/// The `\label` of a table with this title, different from those in `taken`.
fn label(title: &str, taken: &BTreeSet<String>) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let label = format!("tab:{}", words.join("-").to_lowercase());
    let numbered = (2..).map(|number| format!("{label}-{number}"));
    let mut free = std::iter::once(label.clone()).chain(numbered);
    free.find(|label| !taken.contains(label)).unwrap_or(label)
}

/// A table, split into parts if it is longer than a page.
fn of_table(table: &Table, label: &str) -> String {
    let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
    let heads = line(table.columns.iter().map(|c| escaped(&c.head)).collect());
    let mut out = String::new();
    for (number, rows) in table.rows.chunks(ROWS_OF_A_PAGE).enumerate() {
        let name = match number {
            0 => format!(
                "\\caption{{{}}}\n\\label{{{label}}}",
                escaped(&table.caption)
            ),
            _ => format!("\\tablename~\\ref{{{label}}} (continued)\\par\\vspace{{1ex}}"),
        };
        let mut body = String::new();
        for (at, row) in rows.iter().enumerate() {
            // Rules separate groups of rows.
            if table.grouped && at > 0 && rows[at - 1][0] != row[0] {
                body += "\\midrule\n";
            }
            body += &line(row.iter().map(|cell| escaped(&cell.text("; "))).collect());
        }
        out += &float(table, &name, &format!("{heads}\\midrule\n{body}"));
    }
    out
}

/// A part of a table: `name` identifies it, `lines` are all of its lines.
fn float(table: &Table, name: &str, lines: &str) -> String {
    // A starred float spans both columns of a page with two.
    let float = match table.columns.len() > COLUMNS_OF_A_COLUMN {
        true => "table*",
        false => "table",
    };
    let side = |is_number| if is_number { 'r' } else { 'l' };
    let sides: String = table.columns.iter().map(|c| side(c.number)).collect();
    format!(
        "\n\\begin{{{float}}}\n\\centering\n\\setlength{{\\belowcaptionskip}}{{1ex}}\n{name}\n\
         \\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n\
         \\begin{{tabular}}{{{sides}}}\n\\toprule\n{lines}\\bottomrule\n\\end{{tabular}}}}\n\
         \\end{{{float}}}\n"
    )
}

/// Rows on a page, with some room for the caption and the rules between groups.
const ROWS_OF_A_PAGE: usize = 35;

/// Table columns that fit into one column of a page with two.
const COLUMNS_OF_A_COLUMN: usize = 6;

/// Text escaped for LaTeX, on one line.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // At the beginning of a row they would be an argument of the preceding row end.
            '[' | ']' | '*' => out.extend(['{', c, '}']),
            // Two of them form a dash or a quotation mark.
            '-' | '\'' | ',' if out.ends_with(c) => out.extend(['{', '}', c]),
            '`' => out.push_str("\\textasciigrave{}"),
            '|' => out.push_str("\\textbar{}"),
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
            '–' if out.ends_with('-') => out.push_str("{}--"),
            '–' => out.push_str("--"),
            '†' => out.push_str("\\dag{}"),
            '‡' => out.push_str("\\ddag{}"),
            '−' => out.push_str("$-$"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::report::campaign::table::Cell;

    /// Independent implementation of what TeX prints for a text without arguments; `None` if it means anything else.
    fn printed(tex: &str) -> Option<String> {
        let mut out = String::new();
        let mut depth = 0_u32;
        let mut rest = tex;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\\' => {
                    let name = rest.split(|c: char| !c.is_ascii_alphabetic()).next()?;
                    let name = if name.is_empty() {
                        rest.get(..1)?
                    } else {
                        name
                    };
                    rest = &rest[name.len()..];
                    let (_, character) = COMMANDS.into_iter().find(|(known, _)| *known == name)?;
                    // A following letter would belong to the name, and a space would be lost.
                    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
                        rest = rest.strip_prefix("{}")?;
                    }
                    out.push(character);
                }
                '$' => {
                    let (formula, after) = rest.split_once('$')?;
                    out.push(match formula {
                        "\\geq" => '≥',
                        "-" => '−',
                        _ => return None,
                    });
                    rest = after;
                }
                '{' => depth += 1,
                '}' => depth = depth.checked_sub(1)?,
                '[' | ']' | '*' if depth == 0 => return None,
                '&' | '%' | '#' | '_' | '^' | '~' | '`' | '|' => return None,
                '-' if rest.starts_with('-') => {
                    rest = &rest[1..];
                    out.push('–');
                }
                '\'' | ',' if rest.starts_with(c) => return None,
                c if c.is_control() => return None,
                c => out.push(c),
            }
        }
        (depth == 0).then_some(out)
    }

    const COMMANDS: [(&str, char); 16] = [
        ("&", '&'),
        ("%", '%'),
        ("$", '$'),
        ("#", '#'),
        ("_", '_'),
        ("{", '{'),
        ("}", '}'),
        ("textbackslash", '\\'),
        ("textasciitilde", '~'),
        ("textasciicircum", '^'),
        ("textasciigrave", '`'),
        ("textless", '<'),
        ("textgreater", '>'),
        ("textbar", '|'),
        ("dag", '†'),
        ("ddag", '‡'),
    ];

    /// Texts of TeX's special characters and of any others.
    fn names() -> impl Strategy<Value = String> {
        let special = "[-a 0\\\\&%$#_{}~^<>|\\[\\]*`',\"≥–†−\n]{0,12}";
        prop_oneof![special, "\\PC{0,12}"]
    }

    proptest! {
        #[test]
        fn any_text_is_printed_unchanged(text in names()) {
            let tex = escaped(&text);
            prop_assert_eq!(printed(&tex), Some(text.replace(char::is_control, " ")), "{}", tex);
        }

        #[test]
        fn any_names_give_a_complete_table(names in vec(names(), 1..80), caption in names()) {
            let mut table = Table::new("", "t", &caption).grouped();
            let row = |name| vec![Cell::Text(name), Cell::Count(1)];
            table.rows = names.iter().cloned().map(row).collect();
            table.add_head("name", &names[0]);
            table.add_head("n", "N");
            let tex = text(&[table]);
            let mut open = Vec::new();
            let mut rows = 0;
            for line in tex.lines() {
                if let Some(name) = line.strip_prefix("\\begin{") {
                    open.push(name.split('}').next().unwrap());
                } else if let Some(name) = line.strip_prefix("\\end{") {
                    prop_assert_eq!(Some(name.split('}').next().unwrap()), open.pop());
                } else if let Some(row) = line.strip_suffix(" & 1 \\\\") {
                    let name = names[rows].replace(char::is_control, " ");
                    prop_assert_eq!(printed(row), Some(name), "{}", line);
                    rows += 1;
                }
            }
            prop_assert!(open.is_empty());
            prop_assert_eq!(rows, names.len());
        }
    }

    #[test]
    fn table_longer_than_a_page_is_split() {
        let export = |rows: u64| {
            let mut table = Table::new("", "t", "c");
            table.rows = (0..rows).map(|row| vec![Cell::Count(row)]).collect();
            table.add_head("n", "N");
            text(&[table])
        };
        let (short, long) = (export(35), export(36));
        assert_eq!(short.matches("\\begin{table}").count(), 1);
        let (first, second) = long.split_once("\\end{table}\n").unwrap();
        assert_eq!(format!("{first}\\end{{table}}\n"), short);
        assert!(
            second.contains("\\tablename~\\ref{tab:t} (continued)"),
            "{second}"
        );
        assert!(
            second.contains("\\toprule\nN \\\\\n\\midrule\n35 \\\\\n\\bottomrule"),
            "{second}"
        );
    }

    #[test]
    fn a_wide_table_goes_across_both_columns() {
        let export = |columns: usize| {
            let mut table = Table::new("", "t", "c");
            table.rows = vec![vec![Cell::Count(1); columns]];
            (0..columns).for_each(|_| table.add_head("n", "N"));
            text(&[table])
        };
        assert!(export(6).contains("\n\\begin{table}\n"));
        assert!(export(7).contains("\n\\begin{table*}\n"));
    }

    #[test]
    fn labels_are_words_and_unique() {
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
