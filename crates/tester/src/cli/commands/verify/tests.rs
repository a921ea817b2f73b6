use tempfile::TempDir;

use super::*;
use crate::campaign::journal::{JOURNAL_FILE, tests::octets_of_lines};
use crate::cli::commands::report;
use crate::report::campaign::tests::sample::small;

/// The directory of a campaign, with its report.
fn reported(template: Option<&str>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (_, lines) = small();
    fs::write(dir.path().join(JOURNAL_FILE), octets_of_lines(&lines)).unwrap();
    let loaded = load(dir.path()).unwrap();
    report::write(dir.path(), &loaded, template).unwrap();
    dir
}

/// Exit code and words of a verification that has to fail.
fn failure(dir: &TempDir) -> (u8, String) {
    let failure = verify(dir.path()).unwrap_err();
    let folder = dir.path().display().to_string();
    (
        failure.code,
        format!("{:#}", failure.error).replace(&folder, "DIR"),
    )
}

#[test]
fn a_report_is_verified_and_says_how_much() {
    let dir = reported(None);
    let text = verify(dir.path()).unwrap();
    let (_, lines) = small();
    let trials = lines
        .iter()
        .filter(|l| matches!(l.record, Record::Trial { .. }))
        .count();
    assert!(
        text.starts_with(&format!("verified: {trials} trials, 15 files, seal ")),
        "{text}"
    );
    // Made again, it is the same.
    let loaded = load(dir.path()).unwrap();
    report::write(dir.path(), &loaded, None).unwrap();
    assert_eq!(verify(dir.path()).unwrap(), text);
}

#[test]
fn a_changed_number_is_named_with_both_values() {
    let dir = reported(None);
    let path = dir.path().join(FOLDER).join("results.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replacen("\"median\": 9000.0", "\"median\": 9900.0", 1),
    )
    .unwrap();
    let (code, text) = failure(&dir);
    assert_eq!(code, exit::TESTER);
    assert_eq!(
        text,
        "DIR/report: results.json does not follow from the journal: /points/0/summary/median is 9900.0, \
         and should be 9000.0; do not trust it, make the report anew"
    );
}

#[test]
fn one_changed_octet_of_the_journal_is_found() {
    let dir = reported(None);
    let path = dir.path().join(JOURNAL_FILE);
    let octets = fs::read(&path).unwrap();
    for place in [
        0,
        1,
        octets.len() / 3,
        octets.len() / 2,
        octets.len() - 2,
        octets.len() - 1,
    ] {
        let mut changed = octets.clone();
        changed[place] ^= 1;
        fs::write(&path, changed).unwrap();
        let (code, text) = failure(&dir);
        assert_eq!(code, exit::TESTER, "octet {place}: {text}");
        assert!(text.contains("journal.jsonl"), "{text}");
    }
}

#[test]
fn what_is_not_there_is_told_apart_from_what_is_wrong() {
    let dir = reported(None);
    let folder = dir.path().join(FOLDER);
    fs::remove_file(folder.join("runs.csv")).unwrap();
    let missing = "DIR/report: runs.csv is missing; make the report anew with `dns64bench report`";
    assert_eq!(failure(&dir), (exit::ENVIRONMENT, missing.to_owned()));

    let sums = fs::read_to_string(folder.join(files::SUMS)).unwrap();
    let older = sums.replacen(crate::PROGRAM, "dns64bench 0.0.1", 1);
    fs::write(folder.join(files::SUMS), older).unwrap();
    let (code, text) = failure(&dir);
    assert_eq!(code, exit::ENVIRONMENT);
    assert!(
        text.contains("the report was made by dns64bench 0.0.1, and this is"),
        "{text}"
    );

    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(failure(&dir).0, exit::ENVIRONMENT);
    fs::remove_file(dir.path().join(JOURNAL_FILE)).unwrap();
    assert_eq!(failure(&dir).0, exit::ENVIRONMENT);
}

#[test]
fn a_changed_copy_of_the_plan_is_found() {
    let dir = reported(None);
    let (_, lines) = small();
    let Record::Campaign { plan, .. } = &lines[0].record else {
        panic!("no plan")
    };
    let copy = dir.path().join(PLAN_FILE);
    fs::write(&copy, plan).unwrap();
    verify(dir.path()).unwrap();
    fs::write(&copy, plan.replace("runs = 3", "runs = 20")).unwrap();
    let (code, text) = failure(&dir);
    assert_eq!(code, exit::TESTER);
    assert!(
        text.starts_with("DIR/plan.toml is not the plan of the journal"),
        "{text}"
    );
}

#[test]
fn half_a_line_is_left_out_of_a_report_but_not_verified() {
    let dir = reported(None);
    let path = dir.path().join(JOURNAL_FILE);
    let octets = fs::read(&path).unwrap();
    fs::write(&path, &octets[..octets.len() - 10]).unwrap();
    let loaded = load(dir.path()).unwrap();
    assert!(
        loaded
            .torn
            .as_ref()
            .is_some_and(|torn| torn.contains("is not whole"))
    );
    report::write(dir.path(), &loaded, None).unwrap();
    assert_eq!(failure(&dir).0, exit::TESTER);
}

#[test]
fn a_page_by_another_template_is_verified_by_it() {
    let dir = reported(Some("<h1>{{ analysis.name }}</h1>"));
    let text = verify(dir.path()).unwrap();
    assert!(text.contains("16 files"), "{text}");
    let page = dir.path().join(FOLDER).join("index.html");
    assert_eq!(
        fs::read_to_string(page).unwrap(),
        "<h1>Sample &lt;of&gt; 100 % &amp; more</h1>"
    );
    // The built-in template again leaves nothing of the other.
    let loaded = load(dir.path()).unwrap();
    report::write(dir.path(), &loaded, None).unwrap();
    assert!(verify(dir.path()).unwrap().contains("15 files"));
    let error = report::write(dir.path(), &loaded, Some("{{ nothing }}")).unwrap_err();
    assert_eq!(error.code, exit::USAGE);
}
