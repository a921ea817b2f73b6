//! Destinations of JSON and tables, and interrupts.

use dns64_transport::clock::SECOND;
use dns64bench::machine::process::wait_until;
use serde_json::Value;

use super::accounts::is_disturbed;
use super::dut::{Dut, LOCALHOST};
use super::program::{Ran, assert_outcome, finish, interrupt, measured, run, server, start, turn};
use super::script::Conduct;

const TRIAL: &str = "-Q 200 -l 200ms -t 30s --pref64 64:ff9b::/96";

/// Asserts that the verdict in the table matches the exit code.
fn assert_table(ran: &Ran) {
    let verdict = match ran.code {
        Some(0) => "PASSED at 200 queries/s",
        Some(130) => "INTERRUPTED at 200 queries/s",
        _ => "INVALID at 200 queries/s",
    };
    assert!(ran.stdout.starts_with(verdict), "{ran:?}");
}

#[test]
fn table_goes_to_standard_output_without_json() {
    let ran = measured(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        run(&format!("trial {} {TRIAL}", server(dut.address)))
    });
    assert_table(&ran);
    assert_eq!(ran.stderr, "", "progress went to a pipe");
}

#[test]
fn standard_output_has_only_one_object_with_json() {
    let ran = measured(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        run(&format!("trial {} {TRIAL} --json -", server(dut.address)))
    });
    assert_outcome(&ran, "passed");
    assert!(ran.stdout.ends_with("}\n"), "{ran:?}");
    assert_eq!(ran.stderr, "", "progress went to a pipe");
}

#[test]
fn file_gets_the_object_and_standard_output_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let ran = measured(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        let server = server(dut.address);
        run(&format!("trial {server} {TRIAL} -j {}", path.display()))
    });
    assert_table(&ran);
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(json["outcome"] == "passed" || is_disturbed(&json), "{json}");
    let quiet = measured(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        run(&format!("trial {} {TRIAL} -q", server(dut.address)))
    });
    assert_table(&quiet);
    let lines = quiet.stdout.lines().count();
    assert_eq!((lines, quiet.stderr.as_str()), (1, ""));
}

#[test]
fn interrupt_ends_with_130_and_what_was_measured_until_then() {
    let _turn = turn();
    // A search begins at 5 % of its rate.
    for (command, json) in [
        ("trial -Q 200", true),
        ("search -Q 4k", true),
        ("trial -Q 200", false),
    ] {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        let mut line = format!(
            "{command} {} -l 60s --pref64 64:ff9b::/96",
            server(dut.address)
        );
        if json {
            line.push_str(" --json -");
        }
        let child = start(&line);
        // More than are sent before a trial.
        assert!(wait_until(120 * SECOND, || dut.seen() >= 300));
        interrupt(&child);
        let ran = finish(child, &line);
        assert_eq!(ran.code, Some(130), "{ran:?}");
        if json {
            let told = ran.json();
            assert_eq!(told["fault"], "interrupted", "{ran:?}");
            let trial = match command {
                "trial -Q 200" => &told,
                _ => &told["trials"][0],
            };
            assert_eq!(trial["interrupted"], true, "{ran:?}");
            let [sent, due] = ["queries_sent", "queries_due"].map(|key| trial[key].as_u64());
            assert!(Some(20) <= sent && sent < due, "{ran:?}");
        } else {
            assert_table(&ran);
        }
    }
}
