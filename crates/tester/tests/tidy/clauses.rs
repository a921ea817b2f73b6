//! Checks that the code and the tests in the tables of clauses exist.

use std::fs::read_to_string;
use std::path::Path;

use super::{root, rust_files, tester_file};

/// A row of a table, column by column.
struct Row(Vec<String>);

impl Row {
    /// Returns the rows of a page of `docs` with this prefix.
    fn all(page: &str, prefix: &str) -> Vec<Self> {
        let page = read_to_string(root().join("docs").join(page)).unwrap();
        let rows = page.lines().filter(|line| line.starts_with(prefix));
        rows.map(|row| Self(row.split('|').map(str::to_owned).collect()))
            .collect()
    }

    /// Returns the texts in backquotes in a column.
    fn quoted(&self, column: usize) -> Vec<&str> {
        self.0[column].split('`').skip(1).step_by(2).collect()
    }
}

/// Returns whether one of the texts has a function of this name.
fn is_test(name: &str, texts: &[String]) -> bool {
    let function = format!("fn {name}(");
    texts.iter().any(|text| text.contains(&function))
}

/// Returns whether it is a script of a dialogue, or a test in one of the texts.
fn is_proof(proof: &str, scripts: &Path, texts: &[String]) -> bool {
    match proof.ends_with(".txt") {
        true => scripts.join(proof).is_file(),
        false => is_test(proof, texts),
    }
}

fn texts(folder: &str) -> Vec<String> {
    let files = rust_files(folder);
    files.iter().map(|f| read_to_string(f).unwrap()).collect()
}

#[test]
fn clauses_of_rfc_8219_name_existing_code_and_tests() {
    let texts = texts("crates");
    let mut named = 0;
    for row in Row::all("rfc8219.md", "| B-") {
        for code in row.quoted(4).iter().filter(|code| code.ends_with(".rs")) {
            tester_file(code);
        }
        for test in row.quoted(5) {
            assert!(
                is_test(test, &texts),
                "no test {test}, named in: {:?}",
                row.0
            );
            named += 1;
        }
    }
    assert!(named > 20, "the table was not read");
}

#[test]
fn clauses_of_rfc_6147_name_existing_code_and_proofs() {
    let transport = texts("crates/transport");
    let mut texts = texts("crates/server");
    texts.extend(transport);
    let server = root().join("crates/server");
    let scripts = server.join("tests/dialogues/scripts");
    let rows = Row::all("rfc6147.md", "| ");
    let rows: Vec<_> = rows.into_iter().filter(|row| row.0.len() == 7).collect();
    for row in &rows {
        for code in row.quoted(4) {
            let exists = server.join("src").join(code).is_file() || root().join(code).is_file();
            assert!(exists, "no {code}, named in: {:?}", row.0);
        }
        for proof in row.quoted(5) {
            assert!(
                is_proof(proof, &scripts, &texts),
                "no {proof}, named in: {:?}",
                row.0
            );
        }
    }
    for number in 1..=23 {
        let clause = format!("D-{number}");
        let named = rows.iter().any(|row| row.0[1].trim() == clause);
        assert!(named, "no row {clause}");
    }
    let attacks = Row::all("security.md", "| ");
    let attacks = attacks.iter().filter(|row| row.0.len() == 5);
    let proofs = rows.iter().flat_map(|row| row.quoted(5));
    let proofs: Vec<_> = proofs
        .chain(attacks.flat_map(|row| row.quoted(3)))
        .collect();
    for script in scripts.read_dir().unwrap() {
        let name = script.unwrap().file_name().into_string().unwrap();
        assert!(proofs.contains(&name.as_str()), "no row names {name}");
    }
}

#[test]
fn attack_classes_name_existing_proofs() {
    let texts = texts("crates/server");
    let scripts = root().join("crates/server/tests/dialogues/scripts");
    let rows = Row::all("security.md", "| ");
    let classes = rows.iter().filter(|row| row.0.len() == 5).skip(1);
    let mut named = 0;
    for row in classes {
        let proofs = row.quoted(3);
        assert!(!proofs.is_empty(), "no proof in: {:?}", row.0);
        for proof in proofs {
            assert!(
                is_proof(proof, &scripts, &texts),
                "no {proof}, named in: {:?}",
                row.0
            );
            named += 1;
        }
    }
    assert!(named > 20, "the table was not read");
}
