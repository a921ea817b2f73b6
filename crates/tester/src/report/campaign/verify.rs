//! Finds differences between a report and its journal.

use super::files::{SUMS, maker_line};
use crate::PROGRAM;
use crate::lab::{Blame, LabError};

/// Compares the files on the disk with those that follow from the journal.
///
/// # Errors
///
/// The first difference.
pub fn check(
    expected: &[(String, Vec<u8>)],
    mut read: impl FnMut(&str) -> Option<Vec<u8>>,
) -> Result<(), LabError> {
    let missing = |path: &str| {
        Blame::Machine.error(format!(
            "{path} is missing; write the report again with `dns64bench report`"
        ))
    };
    let sums = read(SUMS).ok_or_else(|| missing(SUMS))?;
    let sums = String::from_utf8_lossy(&sums);
    let made = sums.lines().next().unwrap_or_default();
    if made.starts_with("# made by ") && made != maker_line() {
        let made = made.trim_start_matches("# ");
        return Err(Blame::Machine.error(format!(
            "the report was {made}, and this is {PROGRAM}; write it again, or verify it with that version"
        )));
    }
    for (path, octets) in expected {
        let found = read(path).ok_or_else(|| missing(path))?;
        if found != *octets {
            let what = first_difference(octets, &found);
            return Err(Blame::Record.error(format!(
                "{path} does not follow from the journal: {what}; do not trust it, and write the report again with \
                 `dns64bench report`"
            )));
        }
    }
    Ok(())
}

/// Checks that all files `found` in the folder of a report follow from the journal.
///
/// # Errors
///
/// There are other files.
pub fn check_no_others(
    expected: &[(String, Vec<u8>)],
    mut found: Vec<String>,
) -> Result<(), LabError> {
    found.retain(|path| !expected.iter().any(|(known, _)| known == path));
    found.sort();
    match found.is_empty() {
        true => Ok(()),
        false => Err(Blame::Record.error(format!(
            "not part of the report: {}; move or delete them",
            found.join(", ")
        ))),
    }
}

fn first_difference(expected: &[u8], found: &[u8]) -> String {
    let common = expected.iter().zip(found).take_while(|(a, b)| a == b);
    let line_number = 1 + common.filter(|(octet, _)| **octet == b'\n').count();
    let line = |octets: &[u8]| {
        let text = String::from_utf8_lossy(octets);
        let line = text.lines().nth(line_number - 1).unwrap_or("nothing");
        format!("'{}'", shortened(line))
    };
    let (is, should_be) = (line(found), line(expected));
    format!("line {line_number} is {is}, and should be {should_be}")
}

/// A value shortened for the screen.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 100;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::analyse::analyse;
    use crate::report::campaign::files::files;
    use crate::report::campaign::tests::sample::{SEAL, small};

    #[test]
    fn one_changed_octet_of_any_file_is_found() {
        let (plan, lines) = small();
        let analysis = analyse(&plan, &lines, SEAL);
        let files = files(&analysis, &lines).unwrap();
        let with = |wrong: Option<(&str, usize)>| {
            check(&files, |name| {
                let (_, octets) = files.iter().find(|(path, _)| *path == name)?;
                let mut octets = octets.clone();
                if let Some((path, place)) = wrong
                    && path == name
                {
                    octets[place] ^= 1;
                }
                Some(octets)
            })
        };
        assert!(with(None).is_ok());
        for (name, octets) in &files {
            for place in [0, octets.len() / 2, octets.len() - 1] {
                let error = with(Some((name, place))).unwrap_err();
                let what = error.to_string();
                assert!(
                    what.starts_with(name.as_str()) && what.contains("should be"),
                    "{what}"
                );
                assert_eq!(error.blame, Blame::Record);
            }
        }
    }

    #[test]
    fn extra_files_are_named_in_order() {
        let expected = [
            ("index.html".to_owned(), Vec::new()),
            ("figures/rates-1.svg".to_owned(), Vec::new()),
        ];
        let check = |found: &[&str]| {
            let found = found.iter().map(|path| (*path).to_owned()).collect();
            check_no_others(&expected, found).map_err(|difference| difference.to_string())
        };
        assert_eq!(check(&["figures/rates-1.svg", "index.html"]), Ok(()));
        let text = "not part of the report: data/x.dat, extra.csv; move or delete them";
        assert_eq!(
            check(&["index.html", "extra.csv", "data/x.dat"]),
            Err(text.to_owned())
        );
    }

    #[test]
    fn the_first_difference_is_named() {
        let text =
            |expected: &str, found: &str| first_difference(expected.as_bytes(), found.as_bytes());
        assert_eq!(
            text("a\nb,1\n", "a\nb,2\n"),
            "line 2 is 'b,2', and should be 'b,1'"
        );
        assert_eq!(
            text("a\nb\n", "a\n"),
            "line 2 is 'nothing', and should be 'b'"
        );
    }
}
