//! Signed journals, tested with the program that signs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dns64bench::campaign::journal::{Beginning, Journal};
use dns64bench::campaign::record::{Environment, Record};

use crate::machine::PROGRAM;

/// Creates a key, and the file of allowed signers with this key alone.
fn key(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (key, allowed) = (dir.join(name), dir.join(format!("{name}.allowed")));
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
        .arg(&key)
        .status();
    assert!(made.unwrap().success());
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    fs::write(
        &allowed,
        format!("{name} namespaces=\"dns64bench\" {public}"),
    )
    .unwrap();
    (key, allowed)
}

/// A campaign without measurements, with its report.
fn campaign(dir: &Path) -> PathBuf {
    let campaign = dir.join("campaign");
    let beginning = Beginning {
        tester: dns64bench::PROGRAM.to_owned(),
        plan: "[[dut]]\nprofile = \"unbound\"\n".to_owned(),
        plan_origin: "plan.toml".to_owned(),
        command: Vec::new(),
        lab: None,
    };
    let (mut journal, _) = Journal::create(&campaign, beginning).unwrap();
    append_session(&mut journal);
    drop(journal);
    report(&campaign);
    campaign
}

fn append_session(journal: &mut Journal) {
    let session = Record::Session {
        environment: Box::new(Environment::default()),
        torn_bytes: 0,
        tester: String::new(),
        tester_sha256: None,
    };
    journal.append(session).unwrap();
}

fn report(campaign: &Path) {
    let made = Command::new(PROGRAM).arg("report").arg(campaign).output();
    let made = made.unwrap();
    assert_eq!(made.status.code(), Some(0), "{made:?}");
}

/// Exit code and all output.
fn verify(campaign: &Path, option: Option<(&str, &Path)>) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    command.arg("verify").arg(campaign);
    if let Some((option, file)) = option {
        command.arg(option).arg(file);
    }
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), said.concat())
}

/// Exit code and output of the verifier in Python.
fn verify_again(campaign: &Path, allowed: &Path) -> (Option<i32>, String) {
    let mut python = Command::new("python3");
    python.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../contrib/verify.py"
    ));
    let output = python
        .arg("--allowed-signers")
        .arg(allowed)
        .arg(campaign)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
#[ignore = "needs ssh-keygen: run by .ci/run net"]
fn signature_identifies_the_signer_of_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let campaign = campaign(dir.path());
    let (alice, alices) = key(dir.path(), "alice");
    let (_, bobs) = key(dir.path(), "bob");
    let check = |allowed: &Path| verify(&campaign, Some(("--check-signature", allowed)));

    let (code, said) = verify(&campaign, None);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("\nnot signed\n"), "{said}");
    let (code, said) = check(&alices);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("the journal is not signed"), "{said}");

    let (code, said) = verify(&campaign, Some(("--sign", &alice)));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = check(&alices);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("\nsigned by alice with ED25519 key SHA256:"),
        "{said}"
    );
    let (code, said) = verify(&campaign, None);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("journal.jsonl.sig is not checked"), "{said}");

    // A signature by a key that is not allowed.
    let (code, said) = check(&bobs);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("the journal was signed with ED25519 key SHA256:"),
        "{said}"
    );
    // The second verifier.
    let (code, said) = verify_again(&campaign, &alices);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with(", signed by alice\n"), "{said}");
    assert_eq!(verify_again(&campaign, &bobs).0, Some(1));
    // A missing key.
    let (code, said) = verify(&campaign, Some(("--sign", &dir.path().join("nobody"))));
    assert_eq!(code, Some(2), "{said}");

    // The journal continues.
    let (mut journal, _, _) = Journal::resume(&campaign).unwrap();
    append_session(&mut journal);
    drop(journal);
    report(&campaign);
    let (code, said) = check(&alices);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("is not a signature of this journal"),
        "{said}"
    );
    assert_eq!(verify_again(&campaign, &alices).0, Some(1));
}

#[test]
#[ignore = "needs ssh-keygen: run by .ci/run net"]
fn unverified_campaign_is_not_signed() {
    let dir = tempfile::tempdir().unwrap();
    let campaign = campaign(dir.path());
    let (alice, _) = key(dir.path(), "alice");
    fs::write(campaign.join("report/extra.csv"), "1\n").unwrap();
    let (code, said) = verify(&campaign, Some(("--sign", &alice)));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("not part of the report: extra.csv"), "{said}");
    assert!(!campaign.join("journal.jsonl.sig").exists());
}
