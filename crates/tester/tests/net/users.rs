//! Functions for users: `demo`, `lab`, custom profiles, and use without root.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use dns64_transport::clock::SECOND;
use dns64bench::machine::process;

use crate::accounts::{answers, assert_accounted, code_of, is_disturbed};
use crate::busy::until;
use crate::machine::{PROGRAM, Run, command, left_behind, output, turn};

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn lab_can_be_inspected_from_its_hosts() {
    let _turn = turn();
    let up = output(command("lab up"));
    assert!(up.status.success());
    let look = output(command("lab exec dut -- ip -br addr"));
    // The program takes the place of the command, so that signals reach it.
    let mut held = command("lab exec dut -- sleep 60").spawn().unwrap();
    let name = format!("/proc/{}/comm", held.id());
    until("is the program there", || {
        (std::fs::read_to_string(&name).unwrap() == "sleep\n").then_some(())
    });
    held.kill().unwrap();
    held.wait().unwrap();
    // Nothing but `lab down` removes it, and whoever finds it leaves nothing.
    let directory = tempfile::tempdir().unwrap();
    let campaign = directory.path().join("campaign");
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net/small.toml");
    for refused in [
        "trial --lab netns --uncertified -Q 1k -l 300ms --dut dns64d".to_owned(),
        format!("run {plan} --output {}", campaign.display()),
        "lab up".to_owned(),
    ] {
        let refused = output(command(&refused));
        assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    }
    assert!(!campaign.exists());
    assert!(!left_behind().is_empty());
    let down = output(command("lab down"));
    let told = String::from_utf8_lossy(&up.stdout);
    assert!(told.contains("2001:2:0:1::2 port 53"), "{told}");
    let seen = String::from_utf8_lossy(&look.stdout);
    for address in ["2001:2:0:1::2/64", "2001:2:0:2::1/64", "198.18.0.1/24"] {
        assert!(seen.contains(address), "{seen}");
    }
    assert!(look.status.success() && down.status.success());
    assert_eq!(left_behind(), Vec::<String>::new());
    let nowhere = output(command("lab exec dut -- true"));
    assert_eq!(nowhere.status.code(), Some(4));
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(said.contains("there is no lab"), "{said}");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn custom_profile_works() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let text = include_str!("../../profiles/unbound.toml");
    let mine = text.replace("name = \"unbound\"", "name = \"mine\"");
    std::fs::write(&file, mine).unwrap();
    let run = until("has a server answered in time", || {
        let dut = file.display();
        let run = Run::of(&format!(
            "trial --lab netns --uncertified -Q 1k -l 600ms --dut {dut}"
        ));
        assert_accounted(&run.json);
        (answers(&run.json, "valid") > 0).then_some(run)
    });
    assert_eq!(run.code, code_of(&run.json));
    assert!(run.text("/conditions/dut").starts_with("mine (Version "));
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn server_that_does_not_start_is_reported_with_its_last_log_lines() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("broken.toml");
    let text = "name = 'broken'\nrole = 'dut'\nprograms = ['sh']\ncaches = false\n\
                command = ['{program}', '-c', 'echo no such zone >&2; exit 7']\n\
                version = { command = ['echo', 'broken 1'], starts_with = 'broken ' }\n";
    std::fs::write(&file, text).unwrap();
    let run = Run::of(&format!(
        "trial --lab netns --uncertified -Q 1k -l 300ms --dut {}",
        file.display()
    ));
    assert_eq!(run.code, Some(4), "{:#}", run.json);
    assert_eq!(run.number("/exit_code"), 4);
    let error = run.text("/error");
    assert!(error.contains("exit status: 7"), "{error}");
    assert!(error.contains("no such zone"), "{error}");
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// The limit that a demo finds, and whether the Tester is fast enough for one, depend on the machine.
#[test]
#[ignore = "needs root and dns64d: run by .ci/run net"]
fn demo_measures_dns64d_and_names_the_limiting_part() {
    let _turn = turn();
    let (code, said) = until("was the Tester certified", || {
        let Output {
            status,
            stdout,
            stderr,
        } = output(command("demo"));
        let (said, complaint) = (
            String::from_utf8_lossy(&stdout).into_owned(),
            String::from_utf8_lossy(&stderr).into_owned(),
        );
        let refused = complaint.contains("the self-test of the Tester failed");
        assert!(!said.is_empty() || refused, "{complaint}");
        (!refused).then_some((status.code(), said))
    });
    assert!([Some(0), Some(1), Some(3)].contains(&code), "{said}");
    assert!(said.contains("device under test  dns64d "), "{said}");
    assert!(!said.contains("dns64d (dns64d"), "{said}");
    let first = said.lines().next().unwrap_or_default();
    assert!(first.starts_with("DNS64 rate: "), "{said}");
    let by_the_tester = ["THE TESTER IS THE LIMIT", "THE TESTER WAS DISTURBED"];
    assert_eq!(
        first.contains("at least"),
        by_the_tester.iter().any(|why| said.contains(why)),
        "{said}"
    );
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// The user and group without files (Debian policy 9.2.2).
const NOBODY: &str = "65534";

/// Environment variable of all processes that the next test starts.
const MARK: &str = "DNS64BENCH_TEST_USERNS";

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn user_without_root_has_a_lab_as_well() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let program = directory.path().join("dns64bench");
    std::fs::copy(PROGRAM, &program).unwrap();
    let mark = directory.path().display().to_string();
    let run = until("has a server answered in time", || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command.arg(&program).args([
            "trial", "--lab", "userns", "--dut", "unbound", "-Q", "500", "-l", "1s",
        ]);
        command.args(["--local", "2001:2:0:78::/120", "--uncertified"]);
        command
            .args(["--json", "-"])
            .env(MARK, &mark)
            .current_dir("/");
        let run = Run::new(&output(command));
        assert_accounted(&run.json);
        (answers(&run.json, "valid") > 0).then_some(run)
    });
    assert_eq!(run.code, code_of(&run.json));
    let is_invalid = run.text("/outcome") == "invalid";
    assert_eq!(is_invalid, is_disturbed(&run.json), "{:#}", run.json);
    assert_eq!(run.number("/queries_due"), 500);
    assert_eq!(run.text("/conditions/lab"), "userns");
    // A user namespace may not load XDP programs.
    assert_eq!(run.text("/conditions/backend"), "socket");
    assert_eq!(run.number("/conditions/source_addresses"), 255);
    assert_eq!(left_behind(), Vec::<String>::new());
    let ended = process::wait_until(20 * SECOND, || marked(&mark).is_empty());
    assert!(ended, "{:?}", marked(&mark));
}

/// Names of the processes with [`MARK`] in their environment.
fn marked(mark: &str) -> Vec<String> {
    let entry = format!("{MARK}={mark}");
    let has_it = |process: &Path| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment
            .split(|&octet| octet == 0)
            .any(|it| it == entry.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|process| process.path())
        .filter(|process| has_it(process))
        .map(|process| std::fs::read_to_string(process.join("comm")).unwrap_or_default())
        .collect()
}
