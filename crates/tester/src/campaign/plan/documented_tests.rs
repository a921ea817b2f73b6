//! Checks that `docs/plan.md` and `examples/` agree with the code.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use super::*;
use crate::campaign::estimate::estimate;
use crate::campaign::tasks::{points, tasks};
use crate::report::numbers::wait;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The keys that the parser expects in a table, taken from its error for an unknown key.
fn keys_of(table: &str) -> Vec<String> {
    let error = Plan::parse("x.toml", &format!("{table}\nno-such-key = 1\n")).unwrap_err();
    let error = error.to_string();
    let (_, told) = error.split_once("`no-such-key` is not a key of ").unwrap();
    let (_, expected) = told
        .lines()
        .next()
        .unwrap()
        .split_once("; there are ")
        .unwrap();
    expected.split(", ").map(str::to_owned).collect()
}

const TABLES: [&str; 11] = [
    "",
    "[hosts.NAME]",
    "[hosts.NAME.links.client]",
    "[tester]",
    "[trial]",
    "[search]",
    "[cells]",
    "[[dut]]",
    "[queue-check]",
    "[overload]",
    "[soak]",
];

#[test]
fn keys_named_for_the_papers_exist() {
    let page = read_to_string(root().join("docs/papers.md")).unwrap();
    let codes = page.split('`').skip(1).step_by(2);
    let values: Vec<_> = codes.filter_map(|code| code.split_once(" = ")).collect();
    assert!(values.len() >= 15, "{values:?}");
    for (key, value) in values {
        let known = match key.split_once(' ') {
            Some((table, key)) => keys_of(table).iter().any(|known| known == key),
            None => TABLES
                .iter()
                .any(|table| keys_of(table).iter().any(|known| known == key)),
        };
        assert!(known, "{key} = {value}");
        let readable: Result<toml::Table, _> = format!("value = {value}").parse();
        assert!(readable.is_ok(), "{key} = {value}");
    }
}

#[test]
fn every_key_is_documented() {
    let page = read_to_string(root().join("docs/plan.md")).unwrap();
    let mut documented = 0;
    for table in TABLES {
        let section = match table {
            "" => page.split("## At the top").nth(1).unwrap(),
            table => {
                let heading = format!("## `{table}`");
                let section = page.split(&heading).nth(1);
                section.unwrap_or_else(|| panic!("no section {heading}"))
            }
        };
        let section = section.split("\n## ").next().unwrap();
        for key in keys_of(table) {
            let is_table = table.is_empty()
                && ["]", "."]
                    .iter()
                    .any(|end| page.contains(&format!("[{key}{end}")));
            assert!(
                is_table || section.contains(&format!("\n| `{key}` |")),
                "{table} {key} is not in docs/plan.md"
            );
            documented += 1;
        }
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let key = row.split('`').nth(1).unwrap();
            let known = keys_of(table).iter().any(|known| known == key);
            assert!(known, "{table} has no key {key}");
        }
    }
    assert_eq!(documented, 79);
}

#[test]
fn every_example_has_the_size_that_it_states() {
    // Name, variants, points and tasks.
    let expected = [
        ("overload-soak", 2, 2, 14),
        ("paper-000-aaaa", 1, 6, 120),
        ("paper-000-cached", 1, 6, 120),
        ("paper-000-delay", 14, 14, 70),
        ("paper-000-queue", 3, 36, 720),
        ("paper-000-working-set", 2, 20, 100),
        ("paper-001-accuracy", 4, 4, 80),
        ("paper-002-workers", 22, 22, 440),
        ("paper-004-authorities", 6, 6, 120),
        ("patterns", 2, 10, 50),
        ("quick", 5, 35, 105),
        ("rfc8219", 1, 31, 620),
    ];
    let mut found = Vec::new();
    for entry in root().join("examples").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let (plan, text) = Plan::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(plan.name, stem);
        let total = estimate(&plan).total;
        let takes = format!(
            "# By --dry-run: {}, at most {}.\n",
            wait(total.likely_ns),
            wait(total.most_ns)
        );
        assert!(text.starts_with("# "), "{stem}");
        assert!(text.contains(&takes), "{stem} does not say: {takes}");
        found.push((
            plan.name.clone(),
            plan.variants.len(),
            points(&plan).len(),
            tasks(&plan).len(),
        ));
    }
    found.sort();
    let found: Vec<_> = found
        .iter()
        .map(|(n, v, p, t)| (n.as_str(), *v, *p, *t))
        .collect();
    assert_eq!(found, expected);
}
