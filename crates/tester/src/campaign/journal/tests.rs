use std::collections::BTreeMap;
use std::env;
use std::process::Command;

use expect_test::expect;

use super::*;
use crate::campaign::plan::tasks::Task;
use crate::campaign::record::{
    CertificateConditions, Environment, HostNote, ProgramFacts, SelfTest, TaskEnd, VariantFacts,
};
use crate::machine::Role;
use crate::machine::process::Resources;
use crate::procedure::search::{SearchEnd, SearchSpec};
use crate::procedure::simulated::result;
use crate::trial::result::{Outcome, TrialResult};

const PLAN: &str = "name = \"two\"\n";

fn beginning() -> Beginning {
    Beginning {
        tester: "dns64bench 0.1.0".to_owned(),
        plan: PLAN.to_owned(),
        plan_origin: "two.toml".to_owned(),
        command: vec!["dns64bench".to_owned(), "run".to_owned()],
        lab: None,
    }
}

/// Conditions of a certificate for trials of this length.
pub(crate) fn conditions(duration_ns: u64) -> CertificateConditions {
    CertificateConditions {
        boot_id: "b".to_owned(),
        kernel: "Linux 6.1".to_owned(),
        lab: "netns, three-device".to_owned(),
        authority: "built-in".to_owned(),
        threads: 1,
        sockets: None,
        cpus: vec![(Role::Measurer.into(), "0".to_owned())],
        names: "10.0.0.0/8 under dns64perf.test.".to_owned(),
        cell: "AAAA 0%, cached 0%".to_owned(),
        duration_ns,
        timeout_ns: 1_000_000_000,
        ..CertificateConditions::default()
    }
}

fn trial(number: u64, rate_qps: u64) -> Record {
    Record::Trial {
        task: Task::Search { point: 0, run: 1 },
        number,
        took_ns: 2_500_000_000,
        result: TrialResult {
            resources: Some(Resources::default()),
            ..result(rate_qps, Outcome::Failed { shortfall: 1 })
        },
    }
}

/// One record of each kind except the first.
pub(crate) fn every_record() -> Vec<Record> {
    let task = Task::Search { point: 0, run: 1 };
    let text = || "text".to_owned();
    let texts = BTreeMap::from([(text(), text())]);
    vec![
        Record::Session {
            environment: Box::new(Environment {
                details: texts.clone(),
                ..Environment::default()
            }),
            torn_bytes: 0,
            tester: text(),
            tester_sha256: None,
        },
        Record::SelfTest(SelfTest {
            conditions: Box::new(conditions(1_000_000_000)),
            end: Outcome::Passed,
            passed_rate_qps: Some(220),
            certified_rate_qps: Some(100),
            trials: vec![result(220, Outcome::Passed)],
        }),
        Record::Variant {
            start: None,
            conformance: Some(Box::default()),
            variant: 0,
            facts: VariantFacts {
                program: ProgramFacts {
                    version: Some("1.0 \"\u{e9}\"\n".to_owned()),
                    files_sha256: texts,
                    command: vec![text()],
                    ..ProgramFacts::default()
                },
                server: "[2001:db8::1]:53".to_owned(),
                pref64: "64:ff9b::/96".to_owned(),
                cpus: vec![(Role::Dut.into(), "1".to_owned())],
                authority: Some(Box::default()),
                hosts: vec![HostNote::default()],
                not_a_measurement: vec![],
                notes: vec![text()],
            },
        },
        Record::Started {
            task,
            search: Some(SearchSpec::from_start(100)),
            base_rate_qps: None,
        },
        trial(1, 100),
        Record::Finished(TaskEnd {
            end: Some(SearchEnd::Found),
            rate_qps: Some(50),
            failed_qps: Some(51),
            took_ns: 1,
            ..TaskEnd::of(task)
        }),
        Record::Abandoned {
            task: Task::Overload { point: 0 },
            reason: text(),
        },
        Record::Stopped { reason: text() },
        Record::Complete,
    ]
}

/// Octets and lines of a journal with these records.
pub(crate) fn octets_of(records: impl IntoIterator<Item = Record>) -> Vec<u8> {
    let first = Record::Campaign {
        format: FORMAT,
        tester: "dns64bench 0.1.0".to_owned(),
        plan: PLAN.to_owned(),
        plan_origin: "two.toml".to_owned(),
        plan_sha256: sha256_hex(PLAN.as_bytes()),
        command: vec![],
        lab: None,
    };
    sealed_all(std::iter::once(first).chain(records))
}

fn sealed_all(records: impl IntoIterator<Item = Record>) -> Vec<u8> {
    let (mut octets, mut seal) = (Vec::new(), String::new());
    for (number, record) in records.into_iter().enumerate() {
        let line = Line {
            number: number as u64,
            at_unix_ms: 1_700_000_000_000,
            record,
        };
        let (text, next) = lines::sealed(&seal, &line).unwrap();
        octets.extend(text);
        seal = next;
    }
    octets
}

fn parsed(octets: &[u8]) -> Result<Reading, LabError> {
    lines::parse(Path::new("DIR/journal.jsonl"), octets)
}

fn fault(octets: &[u8]) -> String {
    parsed(octets).unwrap_err().to_string()
}

fn fresh() -> (tempfile::TempDir, PathBuf, Journal) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("campaign");
    let (journal, line) = Journal::create(&dir, beginning()).unwrap();
    let kind: &str = (&line.record).into();
    assert_eq!((line.number, kind), (0, "campaign"));
    (parent, dir, journal)
}

#[test]
fn format_matches_its_description() {
    let octets = octets_of([Record::Complete]);
    let text = String::from_utf8(octets).unwrap();
    expect![[r#"
        {"number":0,"at_unix_ms":1700000000000,"record":{"campaign":{"format":2,"tester":"dns64bench 0.1.0","plan":"name = \"two\"\n","plan_origin":"two.toml","plan_sha256":"6408ddf7ff4ca94450c90d7ba14f83813426cbdbf9c66de49053ad35353d0b33","command":[],"lab":null}},"seal":"23e395b74effbf47df33413703a31cf354d907c1c6d849be03b28927d8721f45"}
        {"number":1,"at_unix_ms":1700000000000,"record":"complete","seal":"533008824f60a357bbc0e07ee8ef32d5174b53e7669e80659d1dfedaa81b3a3e"}
    "#]]
    .assert_eq(&text);
}

#[test]
fn appended_records_are_read() {
    let (_parent, dir, mut journal) = fresh();
    assert_eq!(
        fs::read_to_string(dir.join("pid")).unwrap(),
        format!("{}\n", std::process::id())
    );
    let mut written: Vec<Line> = Vec::new();
    for record in every_record() {
        written.push(journal.append(record).unwrap());
    }
    drop(journal);
    assert!(!dir.join("pid").exists(), "drop removes it");
    let reading = read(&dir).unwrap();
    assert_eq!(
        format!("{written:?}"),
        format!("{:?}", &reading.lines[1..]),
        "live and replayed records are the same"
    );
    assert!(written[0].at_unix_ms > 1_700_000_000_000);
    let (mut journal, lines, torn) = Journal::resume(&dir).unwrap();
    assert_eq!((lines.len(), torn), (10, 0));
    assert_eq!(journal.append(Record::Complete).unwrap().number, 10);
    let names = fs::read_dir(&dir).unwrap();
    let mut names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["journal.jsonl", "pid", "plan.toml"], "no drafts");
}

#[test]
fn campaign_does_not_overwrite_another() {
    let (_parent, dir, journal) = fresh();
    drop(journal);
    let error = Journal::create(&dir, beginning()).unwrap_err();
    assert!(
        error.to_string().contains("holds a campaign already"),
        "{error}"
    );
    fs::remove_file(dir.join(JOURNAL_FILE)).unwrap();
    fs::write(dir.join(PLAN_FILE), "name = \"mine\"\n").unwrap();
    let error = Journal::create(&dir, beginning()).unwrap_err();
    assert!(error.to_string().contains("is a different plan"), "{error}");
    assert!(!dir.join(JOURNAL_FILE).exists());
    let within = dir.join(PLAN_FILE).join("mine");
    let error = Journal::create(&within, beginning()).unwrap_err();
    let remedy = "plan.toml/mine: Not a directory (os error 20); choose another with --output";
    assert!(error.to_string().ends_with(remedy), "{error}");
    let none = dir.join("none");
    for error in [Journal::resume(&dir).unwrap_err(), read(&none).unwrap_err()] {
        assert!(
            error
                .to_string()
                .contains("is not the directory of a campaign"),
            "{error}"
        );
    }
}

#[test]
fn a_second_controller_is_refused() {
    let (_parent, dir, mut journal) = fresh();
    let error = Journal::resume(&dir).unwrap_err();
    let expected = format!(
        "{} is in use by process {}; wait for its end, or stop it and continue with `dns64bench resume`",
        dir.join(JOURNAL_FILE).display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    assert!(dir.join("pid").exists(), "the other keeps it");
    journal.append(Record::Complete).unwrap();
    assert_eq!(read(&dir).unwrap().lines.len(), 2, "a reader needs no lock");
    drop(journal);
    assert!(Journal::resume(&dir).is_ok());
}

#[test]
fn changed_plan_is_refused_and_lost_plan_is_restored() {
    let (_parent, dir, journal) = fresh();
    drop(journal);
    let plan = dir.join(PLAN_FILE);
    fs::write(&plan, "name = \"three\"\n").unwrap();
    let text = Journal::resume(&dir).unwrap_err().to_string();
    for hash in [&b"name = \"three\"\n"[..], PLAN.as_bytes()] {
        assert!(text.contains(&sha256_hex(hash)), "{text}");
    }
    fs::remove_file(&plan).unwrap();
    Journal::resume(&dir).unwrap();
    assert_eq!(fs::read_to_string(&plan).unwrap(), PLAN);
}

#[test]
fn kill_at_any_octet_loses_only_the_incomplete_line() {
    let octets = octets_of([
        Record::Stopped {
            reason: "asked to".to_owned(),
        },
        Record::Complete,
    ]);
    let starts: Vec<usize> = (0..octets.len())
        .filter(|&at| at == 0 || octets[at - 1] == b'\n')
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(JOURNAL_FILE);
    for cut in starts[1]..=octets.len() {
        fs::write(&path, &octets[..cut]).unwrap();
        let start = *starts.iter().rfind(|&&start| start <= cut).unwrap();
        let whole = if cut == octets.len() { cut } else { start };
        match read(dir.path()) {
            Ok(reading) => match reading.torn {
                None => assert_eq!(whole, cut, "{}", reading.octets),
                Some(torn) => {
                    let octets = (cut - start) as u64;
                    assert_eq!((torn.offset, torn.octets), (start as u64, octets));
                    assert_eq!(reading.lines.len() as u64 + 1, torn.line);
                }
            },
            Err(other) => panic!("at {cut}: {other}"),
        }
        let (journal, lines, torn) = Journal::resume(dir.path()).unwrap();
        assert_eq!(torn, (cut - whole) as u64);
        assert_eq!(fs::read(&path).unwrap(), &octets[..whole]);
        assert_eq!(journal.next, lines.len() as u64);
        assert!(parsed(&octets[..whole]).is_ok());
    }
    // A journal continued after a cut equals an uninterrupted one.
    fs::write(&path, &octets[..octets.len() - 1]).unwrap();
    let (mut journal, _, _) = Journal::resume(dir.path()).unwrap();
    journal.append(Record::Complete).unwrap();
    assert_eq!(read(dir.path()).unwrap().lines.len(), 3);
}

#[test]
fn zeros_after_a_machine_crash_are_a_torn_line() {
    let mut octets = octets_of([trial(1, 100), trial(2, 50)]);
    let len = octets.len();
    octets[len - 300..len - 20].fill(0);
    let reading = parsed(&octets).unwrap();
    assert_eq!((reading.torn.unwrap().line, reading.lines.len()), (3, 2));
}

#[test]
fn every_changed_bit_is_found() {
    let octets = octets_of([
        Record::Stopped {
            reason: "asked to".to_owned(),
        },
        Record::Complete,
    ]);
    let last = octets.len() - 1;
    for at in 0..octets.len() {
        for bit in 0..8 {
            let mut changed = octets.clone();
            changed[at] ^= 1 << bit;
            if let Ok(reading) = parsed(&changed) {
                assert!(
                    at == last && reading.torn.is_some(),
                    "bit {bit} of octet {at} was changed unnoticed"
                );
            }
        }
    }
}

#[test]
fn lost_moved_and_duplicate_lines_are_found() {
    let octets = octets_of([trial(1, 100), trial(2, 50), Record::Complete]);
    let lines: Vec<&[u8]> = octets.split_inclusive(|&octet| octet == b'\n').collect();
    for order in [
        &[0, 2, 3][..],
        &[0, 1, 3],
        &[1, 2, 3],
        &[0, 2, 1, 3],
        &[0, 1, 1, 2, 3],
    ] {
        let changed: Vec<u8> = order.iter().flat_map(|&i| lines[i].to_vec()).collect();
        assert_eq!(
            parsed(&changed).unwrap_err().blame,
            Blame::Record,
            "{order:?}"
        );
    }
}

#[test]
fn the_first_bad_line_is_named() {
    let octets = octets_of([trial(1, 100), Record::Complete]);
    let second = octets.iter().position(|&octet| octet == b'\n').unwrap() + 1;
    let mut changed = octets.clone();
    let digit = second + br#"{"number":"#.len();
    changed[digit] = b'7';
    let mut unsealed = octets[..second].to_vec();
    unsealed.extend_from_slice(b"{}\n");
    expect![[r#"
        line 2 of DIR/journal.jsonl, at octet 333, was changed: its octets do not fit its seal; restore the file from a copy, or measure again
        line 1 of DIR/journal.jsonl, at octet 0, is a record 'complete', which is not allowed there; restore the file from a copy, or measure again
        line 1 of DIR/journal.jsonl, at octet 0, is missing: the file holds no whole line; restore the file from a copy, or measure again
        line 1 of DIR/journal.jsonl, at octet 0, is missing: the file holds no whole line; restore the file from a copy, or measure again
        line 2 of DIR/journal.jsonl, at octet 333, does not end with a seal; restore the file from a copy, or measure again"#]]
    .assert_eq(
        &[
            fault(&changed),
            fault(&sealed_all([Record::Complete])),
            fault(b""),
            fault(&octets[..second - 1]),
            fault(&unsealed),
        ]
        .join("\n"),
    );
}

#[test]
fn resealed_impossible_records_are_refused() {
    let campaign = |format, plan_sha256: &str| Record::Campaign {
        format,
        tester: "dns64bench 9.0".to_owned(),
        plan: PLAN.to_owned(),
        plan_origin: String::new(),
        plan_sha256: plan_sha256.to_owned(),
        command: vec![],
        lab: None,
    };
    let hash = sha256_hex(PLAN.as_bytes());
    let twice = sealed_all([campaign(FORMAT, &hash), campaign(FORMAT, &hash)]);
    assert!(fault(&twice).contains("is a record 'campaign'"));
    let other = sealed_all([campaign(FORMAT, "00")]);
    assert!(fault(&other).contains("has a plan whose SHA-256 is"));
    assert_eq!(
        fault(&sealed_all([campaign(3, &hash)])),
        "DIR/journal.jsonl is of format 3, written by dns64bench 9.0; this program reads format 2, \
         use that one"
    );
}

#[test]
fn other_format_is_refused_whatever_its_content() {
    let later = br#"{"record":{"campaign":{"format":7,"new":[]}},"mac":"x"}
"#;
    assert!(fault(later).contains("is of format 7"));
}

#[test]
fn number_without_json_form_is_not_written() {
    let (_parent, dir, mut journal) = fresh();
    let Record::Trial {
        task,
        number,
        took_ns,
        mut result,
    } = trial(1, 100)
    else {
        unreachable!()
    };
    result.timing.bin_10ms_deviation_pct_max = f64::NAN;
    let error = journal.append(Record::Trial {
        task,
        number,
        took_ns,
        result,
    });
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("this record is lost")
    );
    journal.append(Record::Complete).unwrap();
    assert_eq!(read(&dir).unwrap().lines.len(), 2);
}

/// Runs this test again under a file size limit, which stops a write in the middle of a line as a full disk does.
#[test]
fn full_disk_loses_only_the_current_record() {
    const DIR: &str = "DNS64BENCH_TEST_JOURNAL";
    if let Some(dir) = env::var_os(DIR) {
        return fill(Path::new(&dir));
    }
    let (_parent, dir, journal) = fresh();
    drop(journal);
    let output = Command::new("sh")
        .arg("-c")
        // In units of 512 octets.
        .arg(r#"trap "" XFSZ; ulimit -f 8; exec "$0" --exact --nocapture "$1""#)
        .arg(env::current_exe().unwrap())
        .arg("campaign::journal::tests::full_disk_loses_only_the_current_record")
        .env(DIR, &dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let whole = read(&dir).unwrap();
    assert_eq!(whole.lines.len(), 3, "{output:?}");
    let (mut journal, lines, torn) = Journal::resume(&dir).unwrap();
    assert_eq!((lines.len(), torn), (3, 0));
    journal.append(Record::Complete).unwrap();
}

fn fill(dir: &Path) {
    let (mut journal, _, _) = Journal::resume(dir).unwrap();
    journal.append(Record::Complete).unwrap();
    let long = Record::Stopped {
        reason: "-".repeat(5_000),
    };
    let expected = format!(
        "cannot write line 3 (stopped) of {}: File too large (os error 27); this record is lost, all earlier \
         ones are safe: free space on the disk and continue with `dns64bench resume`",
        dir.join(JOURNAL_FILE).display()
    );
    assert_eq!(journal.append(long).unwrap_err().to_string(), expected);
    assert_eq!(read(dir).unwrap().lines.len(), 2, "no partial line");
    // A shorter record still fits: the space of the lost one is free.
    assert_eq!(journal.append(Record::Complete).unwrap().number, 2);
}

#[test]
fn the_description_names_every_record() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/journal.md");
    let description = fs::read_to_string(path).unwrap();
    let octets = octets_of(every_record());
    for line in String::from_utf8(octets).unwrap().lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let kind: &str = (&line.record).into();
        assert!(description.contains(&format!("\n| `{kind}` | ")), "{kind}");
    }
}

/// Octets of a journal with these lines.
pub(crate) fn octets_of_lines(all: &[Line]) -> Vec<u8> {
    let (mut octets, mut seal) = (Vec::new(), String::new());
    for line in all {
        let (text, next) = lines::sealed(&seal, line).unwrap();
        octets.extend(text);
        seal = next;
    }
    octets
}
