//! Servers at public addresses are refused before a socket is opened.

use std::path::Path;

use dns64bench::campaign::journal::{Beginning, Journal};
use dns64bench::cli::exit;

use super::program::{Ran, run, run_in};

const REFUSAL: &str = "8.8.8.8 is a public address: ";

fn assert_refused(ran: &Ran) {
    assert_eq!(ran.code, Some(exit::USAGE.into()), "{ran:?}");
    assert!(ran.stderr.contains(REFUSAL), "{ran:?}");
    assert!(ran.stderr.contains("--i-may-load-this-network"), "{ran:?}");
}

#[test]
fn measurement_of_a_public_address_is_refused() {
    for line in [
        "trial -s 8.8.8.8 -Q 1 -l 1s --uncertified",
        "search -s 8.8.8.8 --uncertified",
        "selftest -s 8.8.8.8 -Q 1",
        "trial -s ::ffff:8.8.8.8 -Q 1 -l 1s",
        "trial -s 127.0.0.1 --self-test-server 8.8.8.8:53 -Q 1 -l 1s",
        "dns64perf --classic 1 4 1 8.8.8.8",
    ] {
        assert_refused(&run(line));
    }
    let told = run("trial -s 8.8.8.8 -Q 1 -l 1s --json -");
    assert_refused(&told);
    assert_eq!(told.json()["exit_code"], 2, "{told:?}");
}

#[test]
fn dns64perf_refuses_a_public_address_before_it_writes_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let line = "dns64perf 8.8.8.8 53 10.0.0.0/8 1 1 1 1 1000000 1";
    assert_refused(&run_in(directory.path(), line));
    assert!(!directory.path().join("dns64perf.csv").exists());
}

const PLAN: &str = "[tester]\nuncertified = true\n[[dut]]\nserver = \"8.8.8.8\"\n";

#[test]
fn plan_with_a_public_address_is_refused_with_the_place() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("plan.toml"), PLAN).unwrap();
    for line in ["run plan.toml", "run --dry-run plan.toml"] {
        let ran = run_in(directory.path(), line);
        assert_refused(&ran);
        let place = format!("\nplan.toml:4:10: {REFUSAL}");
        assert!(ran.stderr.contains(&place), "{ran:?}");
        assert!(
            ran.stderr
                .ends_with("\n4 | server = \"8.8.8.8\"\n  |          ^^^^^^^^^\n"),
            "{ran:?}"
        );
    }
    assert!(!directory.path().join("plan").exists());
    let allowed = run_in(
        directory.path(),
        "run --dry-run --i-may-load-this-network plan.toml",
    );
    assert_eq!(allowed.code, Some(exit::PASSED.into()), "{allowed:?}");
}

#[test]
fn campaign_with_a_public_address_is_resumed_only_with_the_flag() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    let beginning = Beginning {
        tester: "a test".to_owned(),
        plan: PLAN.to_owned(),
        plan_origin: "plan.toml".to_owned(),
        command: Vec::new(),
        lab: None,
    };
    drop(Journal::create(&results, beginning).unwrap());
    let before = journal(&results);
    assert_refused(&run_in(directory.path(), "resume results"));
    assert_eq!(journal(&results), before);
}

fn journal(results: &Path) -> Vec<u8> {
    std::fs::read(results.join("journal.jsonl")).unwrap()
}
