//! Where JSON and tables go, and interrupts.

use dns64_transport::clock::SECOND;
use dns64bench::lab::process::wait_until;
use serde_json::Value;

use super::dut::{Conduct, Dut, LOCALHOST};
use super::program::{finish, interrupt, run, server, start, turn, undisturbed};

const TRIAL: &str = "-Q 200 -l 200ms -t 1s --pref64 64:ff9b::/96";

#[test]
fn without_json_the_table_goes_to_standard_output() {
    let ran = undisturbed(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        run(&format!("trial {} {TRIAL}", server(dut.address)))
    });
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("PASSED at 200 queries/s"), "{ran:?}");
    assert_eq!(ran.stderr, "", "progress went to a pipe");
}

#[test]
fn with_json_standard_output_has_one_object_and_nothing_else() {
    let ran = undisturbed(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        run(&format!("trial {} {TRIAL} --json -", server(dut.address)))
    });
    assert_eq!(ran.json()["outcome"], "passed", "{ran:?}");
    assert!(ran.stdout.ends_with("}\n"), "{ran:?}");
    assert_eq!(ran.stderr, "", "progress went to a pipe");
}

#[test]
fn a_file_has_the_object_and_standard_output_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let ran = undisturbed(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        let server = server(dut.address);
        run(&format!("trial {server} {TRIAL} -j {}", path.display()))
    });
    assert!(ran.stdout.starts_with("PASSED at 200 queries/s"), "{ran:?}");
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["outcome"], "passed", "{json}");
    let quiet = undisturbed(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        run(&format!("trial {} {TRIAL} -q", server(dut.address)))
    });
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

#[test]
fn an_interrupt_ends_a_trial_with_130() {
    let _turn = turn();
    for (command, json) in [("trial", true), ("search", true), ("trial", false)] {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        let mut line = format!(
            "{command} {} -Q 200 -l 60s --pref64 64:ff9b::/96",
            server(dut.address)
        );
        if json {
            line.push_str(" --json -");
        }
        let child = start(&line);
        assert!(wait_until(20 * SECOND, || dut.seen() >= 20));
        interrupt(&child);
        let ran = finish(child, &line);
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert!(ran.stderr.contains("interrupted"), "{ran:?}");
        if json {
            assert_eq!(ran.json()["error"], "interrupted", "{ran:?}");
            assert_eq!(ran.json()["exit_code"], 130, "{ran:?}");
        } else {
            assert_eq!(ran.stdout, "");
        }
    }
}
