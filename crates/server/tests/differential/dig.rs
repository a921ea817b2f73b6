//! Runs dig and reads its output.

use std::process::Command;

use crate::rows::Row;

/// Options of every call, which make the output independent of the version of dig.
const OPTIONS: &str = "+tries=1 +time=10 +nocookie +noad +nosplit";

/// The output of dig.
pub(crate) struct Printed {
    /// The command and all lines of its output.
    pub(crate) transcript: String,
    status: String,
    flags: String,
    answer: Vec<String>,
    others: Vec<String>,
}

pub(crate) fn dig(row: &Row) -> Printed {
    let call = format!("@{} {OPTIONS} {}", row.server, row.dig);
    let output = Command::new("dig")
        .args(call.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let between = |begin: &str, end: &str| {
        let rest = text.split_once(begin).map_or("", |(_, rest)| rest);
        rest.split_once(end)
            .map_or("", |(found, _)| found)
            .to_owned()
    };
    let section = |name: &str| {
        let lines = between(&format!(";; {name} SECTION:\n"), "\n\n");
        lines.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let others = [section("AUTHORITY"), section("ADDITIONAL")].concat();
    let rtype = |line: &String| {
        line.split_whitespace()
            .nth(3)
            .unwrap_or_default()
            .to_owned()
    };
    Printed {
        transcript: format!("$ dig {call}{text}"),
        status: between("status: ", ","),
        flags: between(";; flags: ", ";"),
        answer: section("ANSWER"),
        others: others.iter().map(rtype).collect(),
    }
}

impl Printed {
    /// The difference from the expected output of the row, if any.
    pub(crate) fn complaint(&self, row: &Row) -> Option<String> {
        let fit = row.answer.len() == self.answer.len()
            && row
                .answer
                .iter()
                .all(|pattern| self.answer.iter().any(|line| fits(pattern, line)));
        let right = self.status == row.status
            && self.flags == row.flags
            && fit
            && self.others == row.others;
        (!right).then(|| {
            let (about, status, flags, others) = (row.about, row.status, row.flags, row.others);
            format!(
                "{about}\nwanted: {status}; {flags}; {:?}; {others:?}\nbut:\n{}\n",
                row.answer, self.transcript
            )
        })
    }
}

/// Whether a line matches a pattern, in which `*` matches any word.
fn fits(pattern: &str, line: &str) -> bool {
    let words = |text: &str| text.split_whitespace().count();
    let mut pairs = pattern.split_whitespace().zip(line.split_whitespace());
    words(pattern) == words(line) && pairs.all(|(wanted, word)| wanted == "*" || wanted == word)
}
