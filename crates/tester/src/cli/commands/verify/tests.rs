use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::campaign::audit::tests::{honest, of_all_kinds, resealed};
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
    let first = format!("line {number} of the journal is inconsistent: run 1 of unbound, ");
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

#[test]
fn a_key_that_repeats_others_follows_from_them() {
    let written = json!({"number": 3, "record": {"trial": {"form": "trial/2", "places": [{"low": 1}, {"low": 2}]}}});
    let changed = |old: &str, new: &str| {
        let text = written.to_string().replacen(old, new, 1);
        otherwise(&serde_json::from_str(&text).unwrap(), &written)
    };
    let path = Some(" record trial form".to_owned());
    assert_eq!(changed("trial/2", "trial/1"), path);
    let path = Some(" record trial places low".to_owned());
    assert_eq!(changed("\"low\":2", "\"low\":null"), path);
    // A key of another program, and one that it did not write.
    assert_eq!(changed("\"number\":3", "\"seal\":4"), None);
}

/// The verifier of `contrib` was written from the documentation. `contrib/forge.py` makes forgeries of campaigns of all
/// kinds, and runs it on them.
#[test]
#[ignore = "needs python3: run by .ci/run rules"]
fn both_verifiers_accept_honest_campaigns_and_refuse_forgeries() {
    let dir = tempfile::tempdir().unwrap();
    let forged = dir.path().join("forged");
    let mut forge = Command::new("python3");
    forge.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../contrib/forge.py"
    ));
    forge.arg(&forged);
    for (name, lines) in of_all_kinds() {
        let campaign = dir.path().join(name);
        fs::create_dir(&campaign).unwrap();
        fs::write(campaign.join(JOURNAL_FILE), resealed(lines)).unwrap();
        report::write(&campaign, &load(&campaign).unwrap()).unwrap();
        verify(&campaign).unwrap_or_else(|failure| panic!("{name}: {:#}", failure.error));
        forge.arg(campaign);
    }
    let made = forge.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let forgeries: Vec<_> = fs::read_dir(&forged)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(forgeries.len() >= 100, "{}", forgeries.len());
    for forgery in forgeries {
        let name = forgery.display();
        let failure = verify(&forgery).expect_err(&format!("{name} was accepted"));
        // A forged journal has no report, and is refused before that is noticed.
        let is_refused = failure.code == exit::TESTER || load(&forgery).is_err();
        assert!(
            is_refused || forgery.join(FOLDER).exists(),
            "{name}: {:#}",
            failure.error
        );
    }
}
