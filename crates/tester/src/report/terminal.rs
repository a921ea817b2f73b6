//! Text for a terminal: long lines are folded between words and indented to the column of their text.

use std::os::fd::AsFd;

/// Columns of a terminal; `None` if this is not one. 80 if the terminal does not report them.
pub fn columns(of: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(of).ok()?;
    Some(match size.ws_col {
        0 => 80,
        columns => columns.into(),
    })
}

/// A text for that output: folded for a terminal, unchanged for files and pipes.
pub fn fitting(text: &str, of: impl AsFd) -> String {
    columns(of).map_or_else(|| text.to_owned(), |columns| folded(text, columns))
}

/// A text with its lines folded to this many columns. Longer words are not split.
pub fn folded(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        fold(line, columns, &mut out);
    }
    out
}

fn fold(line: &str, columns: usize, out: &mut String) {
    let indent = indent(line, columns);
    let mut rest = line;
    let mut room = columns;
    while rest.trim_end().chars().count() > room {
        let begin = rest.len() - rest.trim_start().len();
        let limit = rest
            .char_indices()
            .nth(room + 1)
            .map_or(rest.len(), |(at, _)| at);
        let last = rest[begin..limit].rfind(' ');
        let Some(at) = last.or_else(|| rest[begin..].trim_end().find(' ')) else {
            break;
        };
        let (kept, after) = rest.split_at(begin + at);
        *out += kept.trim_end();
        out.push('\n');
        *out += &" ".repeat(indent);
        rest = after.trim_start();
        room = columns - indent;
    }
    *out += rest;
}

/// Indentation of a continued line: the column after its last gap that leaves room for text.
fn indent(line: &str, columns: usize) -> usize {
    let mut best = 0;
    let mut blanks = 0;
    for (column, c) in line.chars().enumerate() {
        if c != ' ' {
            if blanks >= 2 && column + TEXT_MIN <= columns {
                best = column;
            }
            blanks = 0;
        } else {
            blanks += 1;
        }
    }
    best.max(2).min(columns / 2)
}

/// Minimum width of readable text.
const TEXT_MIN: usize = 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn folded_line_continues_below_its_text() {
        let text = "ok    kernel  Linux 6.12.0 with everything that is needed here\nshort\n";
        assert_eq!(
            folded(text, 44),
            "ok    kernel  Linux 6.12.0 with everything\n              that is needed here\nshort\n"
        );
        assert_eq!(folded(text, 80), text);
        assert_eq!(folded("one two three four", 9), "one two\n  three\n  four");
        assert_eq!(
            folded("  a-word-without-end and more\n", 10),
            "  a-word-without-end\n  and more\n"
        );
    }

    #[test]
    fn file_is_not_a_terminal() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(columns(&file), None);
        let long = "word ".repeat(100);
        assert_eq!(fitting(&long, &file), long);
    }

    proptest! {
        #[test]
        fn folding_keeps_all_words_within_the_width(
            words in prop::collection::vec("[a-z]{1,12}", 1..60),
            gap in 1_usize..4,
            columns in 40_usize..120,
        ) {
            let text = words.join(&" ".repeat(gap));
            let folded = folded(&text, columns);
            prop_assert_eq!(folded.split_whitespace().collect::<Vec<_>>(), words);
            for line in folded.lines() {
                prop_assert!(line.chars().count() <= columns, "{}", line);
            }
        }
    }
}
