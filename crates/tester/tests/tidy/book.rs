//! Checks the book: every page is in its table of contents, and every link has a target.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use super::{files, root};

/// A large terminal, or the first screen of a browser.
const README_LINES_MAX: usize = 70;

/// Returns the text of a page without its fenced and indented code.
fn prose(page: &str) -> String {
    let mut fenced = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence && !line.starts_with("    ")
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the targets of the links of a page, without those to other sites.
fn targets(page: &str) -> Vec<String> {
    let text = prose(page);
    let ends = text.split("](").skip(1);
    let targets = ends.filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned()));
    targets.filter(|target| !target.contains("://")).collect()
}

/// Returns the anchor of a heading in mdBook and GitHub.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(path: &Path, wanted: &str) -> bool {
    let page = prose(&read_to_string(path).unwrap());
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .any(|it| it == wanted)
}

fn pages() -> Vec<PathBuf> {
    let mut pages = files("docs", &["md"]);
    let top = root()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path());
    pages.extend(top.filter(|path| path.extension().is_some_and(|e| e == "md")));
    pages
}

#[test]
fn every_page_is_in_table_of_contents_once() {
    let summary = read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed = targets(&summary);
    let once: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(
        listed.len(),
        once.len(),
        "a page is listed twice: {listed:?}"
    );
    let docs = files("docs", &["md"]);
    let names = docs
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap());
    let mut written: BTreeSet<_> = names.map(str::to_owned).collect();
    written.remove("SUMMARY.md");
    let missing: Vec<_> = written.difference(&once).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
    let empty: Vec<_> = once.difference(&written).collect();
    assert!(
        empty.is_empty(),
        "docs/SUMMARY.md lists pages that do not exist: {empty:?}"
    );
}

#[test]
fn readme_fits_on_one_screen() {
    let readme = read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(
        lines <= README_LINES_MAX,
        "{lines} lines: move some to a page of the book"
    );
}

#[test]
fn every_link_has_file_and_heading() {
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages() {
        for target in targets(&read_to_string(&page).unwrap()) {
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_there = path.exists() && (heading.is_empty() || has_anchor(&path, heading));
            // mdBook copies only the files in docs/.
            let leaves_book =
                page.parent() == Some(root().join("docs").as_path()) && file.starts_with("../");
            if !is_there || leaves_book {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(links > 100, "the links were not found");
}

#[test]
fn performance_page_has_figures_of_budget() {
    let page = read_to_string(root().join("docs/performance.md")).unwrap();
    let budget = read_to_string(root().join(".ci/budget.txt")).unwrap();
    let figures: Vec<_> = budget
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(figures.len() >= 5, "{budget}");
    for figure in figures {
        let (stage, count) = figure.split_once(' ').unwrap();
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{stage}` | ")));
        let told = row.and_then(|row| row.trim_end_matches(" |").rsplit_once("| "));
        let told = told.map(|(_, told)| told.replace(',', ""));
        assert_eq!(told.as_deref(), Some(count), "{stage}");
    }
}
