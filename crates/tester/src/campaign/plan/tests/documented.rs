//! Checks that `docs/plan.md` and `examples/` agree with the code.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use super::super::settings;
use super::*;
use crate::campaign::estimate::estimate;
use crate::report::numbers::wait;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The keys of a table in Markdown. The page of the command line describes those that are options with the same values.
/// The man page has the bounds of the others, and says more about them.
fn markdown(table: &str) -> String {
    let is_option = |it: &&settings::Setting| {
        it.flag.as_deref() == Some(it.name()) && !it.many && it.key_help.is_none()
    };
    let (options, others): (Vec<_>, Vec<_>) = settings::of_table(table).partition(is_option);
    let names: Vec<_> = options
        .iter()
        .map(|it| format!("`{}`", it.name()))
        .collect();
    let listed = format!("As options: {}.\n", names.join(", "));
    let rows: String = others.iter().copied().map(row).collect();
    let rows = format!("| key | default | |\n|---|---|---|\n{rows}");
    match (options.is_empty(), others.is_empty()) {
        (true, _) => rows,
        (false, true) => listed,
        (false, false) => format!("{listed}\n{rows}"),
    }
}

/// A key as the row of a table.
fn row(setting: &settings::Setting) -> String {
    let quoted = |text: &String| format!("`{}`", in_plan(text));
    let default: Vec<_> = setting.default.iter().map(quoted).collect();
    let default = setting
        .otherwise
        .clone()
        .unwrap_or_else(|| default.join(", "));
    let choices = setting.choices.iter();
    let values: Vec<_> = choices
        .map(|(name, help)| format!("`{name:?}`: {help}"))
        .collect();
    let colon = if values.is_empty() { "" } else { ": " };
    let (name, meaning) = (setting.name(), setting.summary());
    let row = format!(
        "| `{name}` | {default} | {meaning}{colon}{} |\n",
        values.join("; ")
    );
    row.replace(" |  |", " | |")
}

/// A text as a value in a plan.
fn in_plan(text: &str) -> String {
    match text.parse::<f64>().is_ok() || ["true", "false"].contains(&text) {
        true => text.to_owned(),
        false => format!("{text:?}"),
    }
}

/// All keys of a table.
fn keys_of(table: &str) -> Vec<&'static str> {
    settings::of_table(table)
        .map(settings::Setting::name)
        .collect()
}

#[test]
fn keys_named_for_the_papers_exist() {
    let page = read_to_string(root().join("docs/papers.md")).unwrap();
    let codes = page.split('`').skip(1).step_by(2);
    let values: Vec<_> = codes.filter_map(|code| code.split_once(" = ")).collect();
    assert!(values.len() >= 15, "{values:?}");
    for (key, value) in values {
        let known = match key.split_once(' ') {
            Some((table, key)) => keys_of(table.trim_matches(['[', ']'])).contains(&key),
            None => TABLES.iter().any(|table| keys_of(table).contains(&key)),
        };
        assert!(known, "{key} = {value}");
        let readable: Result<toml::Table, _> = format!("value = {value}").parse();
        assert!(readable.is_ok(), "{key} = {value}");
    }
}

#[test]
fn the_tables_of_the_page_are_those_of_the_settings() {
    let path = root().join("docs/plan.md");
    let page = read_to_string(&path).unwrap();
    let mut parts = page.split("<!-- keys: ");
    let mut expected = parts.next().unwrap().to_owned();
    let mut tables = Vec::new();
    for part in parts {
        let (table, rest) = part.split_once(" -->\n").unwrap();
        let (_, text) = rest.split_once("<!-- end -->").unwrap();
        let table = table.trim_start_matches("top");
        let keys = markdown(table);
        let name = if table.is_empty() { "top" } else { table };
        expected += &format!("<!-- keys: {name} -->\n{keys}<!-- end -->{text}");
        tables.push(table);
    }
    tables.sort_unstable();
    let mut all: Vec<_> = TABLES
        .into_iter()
        .filter(|table| *table != "links")
        .collect();
    all.sort_unstable();
    assert_eq!(tables, all);
    expect_test::expect_file![path].assert_eq(&expected);
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
    let (mut found, mut untold) = (Vec::new(), Vec::new());
    for entry in root().join("examples").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let plan = Plan::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(plan.name, stem);
        let total = estimate(&plan).total;
        let takes = format!(
            "# By --dry-run: {}, at most {}.\n",
            wait(total.time_ns),
            wait(total.most_ns)
        );
        let text = &plan.text;
        assert!(text.starts_with("# "), "{stem}");
        if !text.contains(&takes) {
            untold.push(format!("{stem}: {takes}"));
        }
        found.push((
            plan.name.clone(),
            plan.variants.len(),
            plan.points.len(),
            plan.tasks.len(),
        ));
    }
    assert!(
        untold.is_empty(),
        "examples do not say their time: {untold:#?}"
    );
    found.sort();
    let found: Vec<_> = found
        .iter()
        .map(|(n, v, p, t)| (n.as_str(), *v, *p, *t))
        .collect();
    assert_eq!(found, expected);
}
