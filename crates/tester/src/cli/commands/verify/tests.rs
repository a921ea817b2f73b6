use tempfile::TempDir;

use super::*;
use crate::campaign::audit::tests::{honest, resealed};
use crate::campaign::journal::JOURNAL_FILE;
use crate::cli::commands::report;

/// The directory of a campaign with its report.
fn reported() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (_, lines) = honest();
    fs::write(dir.path().join(JOURNAL_FILE), resealed(lines)).unwrap();
    let loaded = load(dir.path()).unwrap();
    report::write(dir.path(), &loaded).unwrap();
    dir
}

/// Exit code and text of a verification that must fail.
fn failure(dir: &TempDir) -> (u8, String) {
    let failure = verify(dir.path()).unwrap_err();
    let folder = dir.path().display().to_string();
    (
        failure.code,
        format!("{:#}", failure.error).replace(&folder, "DIR"),
    )
}

/// "18 files": those of the report.
fn files(dir: &TempDir) -> String {
    count(below(&dir.path().join(FOLDER)).len(), "file")
}

#[test]
fn report_is_verified_with_the_numbers_of_checks() {
    let dir = reported();
    let verified = verify(dir.path()).unwrap();
    let (plan, lines) = honest();
    let trials = count(audit(&plan, &lines).unwrap().trials, "trial");
    let seal = &verified.0;
    let expected = format!(
        "verified: {trials} recounted, 11 searches replayed, 6 certificates recomputed, {}, seal {seal}",
        files(&dir)
    );
    assert_eq!(verified.1, expected);
    // A new report is equal.
    let loaded = load(dir.path()).unwrap();
    report::write(dir.path(), &loaded).unwrap();
    assert_eq!(verify(dir.path()).unwrap().1, expected);
}

#[test]
fn a_changed_number_is_named_with_both_values() {
    let dir = reported();
    let path = dir.path().join(FOLDER).join("results.json");
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.replacen("\"median\": 5000.0", "\"median\": 5900.0", 1);
    let mut lines = changed.lines().zip(1..);
    let (_, line) = lines.find(|(line, _)| line.contains("5900.0")).unwrap();
    fs::write(&path, &changed).unwrap();
    let (code, text) = failure(&dir);
    assert_eq!(code, exit::TESTER);
    assert_eq!(
        text,
        format!(
            "DIR/report: results.json does not follow from the journal: line {line} is '        \"median\": 5900.0,', and should \
             be '        \"median\": 5000.0,'; do not trust it, and write the report again with `dns64bench report`"
        )
    );
}

#[test]
fn one_changed_octet_of_the_journal_is_found() {
    let dir = reported();
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
fn missing_and_wrong_files_have_different_errors() {
    let dir = reported();
    let folder = dir.path().join(FOLDER);
    fs::remove_file(folder.join("runs.csv")).unwrap();
    let missing =
        "DIR/report: runs.csv is missing; write the report again with `dns64bench report`";
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
    let dir = reported();
    let (_, lines) = honest();
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
fn incomplete_line_is_omitted_from_a_report_but_fails_verification() {
    let dir = reported();
    let path = dir.path().join(JOURNAL_FILE);
    let octets = fs::read(&path).unwrap();
    fs::write(&path, &octets[..octets.len() - 10]).unwrap();
    let loaded = load(dir.path()).unwrap();
    assert!(
        loaded
            .1
            .torn
            .as_ref()
            .is_some_and(|torn| torn.to_string().contains("is incomplete"))
    );
    report::write(dir.path(), &loaded).unwrap();
    assert_eq!(failure(&dir).0, exit::TESTER);
}

#[test]
fn a_forged_journal_with_good_seals_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut lines) = honest();
    let is_end = |line: &&mut Line| matches!(line.record, Record::Finished(_));
    let end = lines.iter_mut().find(is_end).unwrap();
    let number = end.number + 1;
    if let Record::Finished(end) = &mut end.record {
        end.rate_qps = Some(39_999);
    }
    if let Record::Campaign { tester, .. } = &mut lines[0].record {
        *tester = "dns64bench 0.0.1".to_owned();
    }
    fs::write(dir.path().join(JOURNAL_FILE), resealed(lines)).unwrap();
    // A report from the forged journal.
    let loaded = load(dir.path()).unwrap();
    report::write(dir.path(), &loaded).unwrap();
    let (code, text) = failure(&dir);
    assert_eq!(code, exit::TESTER);
    let first =
        format!("line {number} of the journal contradicts what it holds: run 1 of unbound, ");
    assert!(text.starts_with(&first), "{text}");
    assert!(
        text.ends_with(
            "do not trust the journal or its report; it was written by dns64bench 0.0.1, which may have other \
             rules: verify it with that version"
        ),
        "{text}"
    );
}

#[test]
fn files_outside_the_report_are_named() {
    let dir = reported();
    let folder = dir.path().join(FOLDER);
    fs::write(folder.join("figures/extra.svg"), "1\n").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    let text = "DIR/report: not part of the report: figures/extra.svg; move or delete them";
    assert_eq!(failure(&dir), (exit::TESTER, text.to_owned()));
}
