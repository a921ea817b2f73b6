//! dns64bench-plan(5): docs/plan.md as a man page.
//!
//! The page of the book is the only description of plans; a test compares its tables with the keys of the parser. This
//! module supports only the Markdown that the page uses: headings, paragraphs, lists, tables, blocks of code, links,
//! code and bold.

use super::pages::{self, roff};

/// The page.
pub(super) fn page() -> String {
    let (_, text) = PLAN.split_once("\n\n").expect("a title and a text");
    let (description, tables) = text.split_once("\n## ").expect("tables with keys");
    let mut page = format!(
        ".TH {NAME} 5 \"\" \"\" dns64bench\n.SH NAME\n{} \\- plan of a campaign\n.SH SYNOPSIS\n\
         .B dns64bench run\n.I PLAN.toml\n.SH DESCRIPTION\n",
        escaped(NAME, true)
    );
    page += &below_heading(description);
    page += ".SH TABLES AND KEYS\n";
    for section in tables.split("\n## ") {
        let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
        let heading = escaped(&heading.replace('`', ""), true);
        page += &format!(".SS \"{heading}\"\n{}", below_heading(text));
    }
    page += ".SH EXAMPLES\n";
    page += verbatim(EXAMPLE.lines()).trim_start_matches(PARAGRAPH);
    page + &pages::see_also(&[
        ("dns64bench", "1"),
        ("dns64bench-run", "1"),
        ("dns64bench-resume", "1"),
        ("dns64bench-profile", "1"),
    ])
}

/// Blocks after a heading: the first needs no request for a paragraph.
fn below_heading(text: &str) -> String {
    let blocks = blocks(text);
    blocks.trim_start_matches(PARAGRAPH).to_owned()
}

const PARAGRAPH: &str = ".PP\n";

/// Name of the man page.
pub(super) const NAME: &str = "dns64bench-plan";

const PLAN: &str = include_str!("../../../../docs/plan.md");

const EXAMPLE: &str = include_str!("../../../../examples/quick.toml");

/// Paragraphs, lists, tables and code, separated by empty lines.
fn blocks(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let begins = |line: &str| line.starts_with("- ");
        if line.starts_with("```") {
            out += &verbatim(lines.by_ref().take_while(|line| *line != "```"));
            continue;
        }
        let mut block = vec![line];
        while let Some(next) = lines.next_if(|next| !next.is_empty()) {
            block.push(next);
        }
        if line.starts_with('|') {
            // Skips the heads and the separator below them.
            block.iter().skip(2).for_each(|row| out += &entry(row));
        } else if begins(line) {
            for item in block.chunk_by(|_, next| !begins(next)) {
                let item: Vec<_> = item.iter().map(|line| line.trim_start()).collect();
                let item = item.join("\n");
                out += &format!(".IP \\(bu 2\n{}", prose(item.trim_start_matches("- ")));
            }
        } else {
            out += &format!(".PP\n{}", prose(&block.join("\n")));
        }
    }
    out
}

/// A row of a table: its key, its default if there is such a column, and its meaning.
fn entry(row: &str) -> String {
    let cells: Vec<_> = row.trim_matches('|').split(" |").map(str::trim).collect();
    let (key, text) = match cells[..] {
        [key, default, text] if !default.is_empty() => {
            (key, format!("{text}\n.br\nDefault: {default}"))
        }
        [key, .., text] => (key, text.to_owned()),
        _ => return String::new(),
    };
    format!(".TP\n{}{}", prose(key), prose(&text))
}

/// Lines of text. A request among them stays on its own line.
fn prose(text: &str) -> String {
    let lines = text.lines().map(|line| match line {
        ".br" => ".br\n".to_owned(),
        line => format!("\\&{}\n", spans(line)),
    });
    lines.collect()
}

/// A line with code and bold text in bold, and links as their text.
fn spans(line: &str) -> String {
    let mut out = String::new();
    for (number, part) in line.split('`').enumerate() {
        if number % 2 == 1 {
            out += &format!("\\fB{}\\fR", escaped(part, true));
            continue;
        }
        for (number, part) in without_links(part).split("**").enumerate() {
            let text = escaped(part, false);
            match number % 2 == 1 {
                true => out += &format!("\\fB{text}\\fR"),
                false => out += &text,
            }
        }
    }
    out
}

/// Replaces `[text](address)` by `text`; other brackets stay.
fn without_links(text: &str) -> String {
    let Some((before, after)) = text.split_once("](") else {
        return text.to_owned();
    };
    let (before, name) = before.rsplit_once('[').unwrap_or(("", before));
    let (_, after) = after.split_once(')').unwrap_or((after, ""));
    format!("{before}{name}{}", without_links(after))
}

/// Lines without formatting.
fn verbatim<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: String = lines.map(|line| roff(line) + "\n").collect();
    format!(".PP\n.RS 4\n.nf\n{lines}.fi\n.RE\n")
}

/// A text with escaped special characters; in text to be typed, a hyphen is a minus sign.
fn escaped(text: &str, is_typed: bool) -> String {
    let text = text.replace('\\', "\\e");
    match is_typed {
        true => text.replace('-', "\\-"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_converted_to_requests() {
        let text = "A `max-rate` of\n'x' in [a page](a.md#b) and **bold**.\n\n- one\n  more\n- two\n\n\
                    | key | default | |\n|---|---|---|\n| `a` | `1` | text |\n| `b` | | .so |\n\n\
                    ```toml\n.a = \"\\\\\"\n```\n";
        let expected = ".PP\n\\&A \\fBmax\\-rate\\fR of\n\\&'x' in a page and \\fBbold\\fR.\n\
                        .IP \\(bu 2\n\\&one\n\\&more\n.IP \\(bu 2\n\\&two\n\
                        .TP\n\\&\\fBa\\fR\n\\&text\n.br\n\\&Default: \\fB1\\fR\n\
                        .TP\n\\&\\fBb\\fR\n\\&.so\n\
                        .PP\n.RS 4\n.nf\n\\&.a = \"\\e\\e\"\n.fi\n.RE\n";
        assert_eq!(blocks(text), expected);
    }

    #[test]
    fn every_table_and_key_of_a_plan_is_in_the_page() {
        let page = page();
        let mut keys = 0;
        for line in PLAN.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                let heading = escaped(&heading.replace('`', ""), true);
                assert!(
                    page.contains(&format!("\n.SS \"{heading}\"\n")),
                    "{heading}"
                );
            } else if let Some((key, _)) = line.strip_prefix("| `").and_then(|l| l.split_once('`'))
            {
                let key = escaped(key, true);
                assert!(page.contains(&format!("\n.TP\n\\&\\fB{key}\\fR")), "{key}");
                keys += 1;
            }
        }
        assert!(keys > 78, "{keys} keys were seen");
        // There is no other request, and no Markdown is left.
        let known = [
            ".TH", ".SH", ".SS", ".PP", ".TP", ".IP", ".RS", ".RE", ".nf", ".fi", ".br", ".B",
            ".I", ".BR",
        ];
        for line in page.lines() {
            let request = line.split(' ').next().unwrap_or_default();
            let is_text = line.starts_with("\\&") || line.starts_with(&escaped(NAME, true));
            assert!(is_text || known.contains(&request), "{line}");
            assert!(
                !line.contains("](") && !line.contains("**") && !line.starts_with("\\&|"),
                "{line}"
            );
        }
    }
}
