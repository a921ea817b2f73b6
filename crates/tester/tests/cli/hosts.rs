//! Plans with hosts, inventories with a substitute for `ansible-inventory`, and the findings of `doctor` about hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dns64bench::cli::exit;

const DUT: &str = "[[dut]]\nprofile = \"unbound\"\n";

/// Two hosts in the output of `ansible-inventory`.
const LISTED: &str = r#"{"_meta": {"hostvars": {
 "tester": {"ansible_host": "no-such-host.invalid", "dns64bench_roles": ["measurer", "authority"], "dns64bench_links": {
  "client": {"interface": "c", "addresses": ["2001:2:0:1::1/64"]},
  "upstream": {"interface": "u", "addresses": ["2001:2:0:2::2/64", "198.18.0.2/24"]}}},
 "dut": {"ansible_connection": "local", "dns64bench_roles": ["dut"], "dns64bench_links": {
  "client": {"interface": "no-c", "addresses": ["2001:2:0:1::2/64"]},
  "upstream": {"interface": "no-u", "addresses": ["2001:2:0:2::1/64", "198.18.0.1/24"]}}}}}}"#;

/// A directory with a plan that names an inventory, and with this shell script as `ansible-inventory`, if given.
fn folder(script: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let plan =
        format!("name = \"x\"\ninventory = \"hosts.yml\" # ours\ndescription = \"y\"\n{DUT}");
    fs::write(at("plan.toml"), plan).unwrap();
    fs::write(at("hosts.yml"), "all:\n").unwrap();
    fs::write(at("listed.json"), LISTED).unwrap();
    fs::create_dir(at("bin")).unwrap();
    if let Some(script) = script {
        let program = at("bin/ansible-inventory");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Runs the program with no other `ansible-inventory` in PATH.
fn run(folder: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_dns64bench"))
        .args(words)
        .current_dir(folder)
        .env("PATH", folder.join("bin"))
        .output()
        .unwrap();
    let text = |octets| String::from_utf8(octets).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Only one agent at a time serves a host, and this machine is one of the hosts.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const LISTS: &str = "test \"$1 $3\" = '-i --list' && test -e \"$2\" && $ANSIBLE_INVENTORY_UNPARSED_FAILED && exec /bin/cat listed.json";

#[test]
fn dry_run_reports_problems_of_each_host_and_leaves_nothing() {
    let folder = folder(Some(LISTS));
    let _turn = turn();
    let (code, stdout, stderr) = run(folder.path(), &["run", "--dry-run", "plan.toml"]);
    assert_eq!(code, Some(exit::ENVIRONMENT.into()), "{stderr}");
    for said in [
        "Plan x\ny\n",
        "\n  tester  not known\n",
        "\n  dut     dns64bench ",
        "`dns64bench doctor --hosts plan.toml`",
    ] {
        assert!(stdout.contains(said), "{said:?}: {stdout}");
    }
    for said in [
        "the hosts are not ready:\nhost tester: cannot start the program that reaches it",
        "\ndut: link client (no-c): no such interface; ",
    ] {
        assert!(stderr.contains(said), "{said:?}: {stderr}");
    }
    assert!(!folder.path().join("x").exists());
}

#[test]
fn inventory_without_ansible_names_its_package() {
    let folder = folder(None);
    let (code, _, stderr) = run(folder.path(), &["run", "--dry-run", "plan.toml"]);
    assert_eq!(code, Some(exit::USAGE.into()));
    assert!(
        stderr.contains("plan.toml:2:13: inventory hosts.yml: "),
        "{stderr}"
    );
    assert!(stderr.contains("Debian package ansible-core"), "{stderr}");
}

#[test]
fn failing_inventory_gives_the_reason() {
    let folder = folder(Some("echo 'ERROR! bad indentation' >&2; exit 4"));
    let (code, _, stderr) = run(folder.path(), &["run", "--dry-run", "plan.toml"]);
    assert_eq!(code, Some(exit::USAGE.into()));
    assert!(
        stderr.contains("exit status: 4): ERROR! bad indentation"),
        "{stderr}"
    );
    fs::remove_file(folder.path().join("hosts.yml")).unwrap();
    let (_, _, stderr) = run(folder.path(), &["run", "--dry-run", "plan.toml"]);
    assert!(
        stderr.contains("inventory hosts.yml: there is no such file"),
        "{stderr}"
    );
}

#[test]
fn invalid_hosts_of_an_inventory_are_reported_at_its_name() {
    let folder = folder(Some(LISTS));
    let spoilt = LISTED.replace("2001:2:0:1::2/64", "2001:2:0:7::2/64");
    fs::write(folder.path().join("listed.json"), spoilt).unwrap();
    let (code, _, stderr) = run(folder.path(), &["run", "--dry-run", "plan.toml"]);
    assert_eq!(code, Some(exit::USAGE.into()));
    let expected = "plan.toml:2:13: inventory hosts.yml: host tester: link client does not connect it to host dut";
    assert!(stderr.contains(expected), "{stderr}");
}

#[test]
fn faults_of_a_plan_with_an_inventory_have_their_place() {
    let folder = folder(Some(LISTS));
    let path = folder.path().join("plan.toml");
    let spoilt = fs::read_to_string(&path)
        .unwrap()
        .replace("unbound", "unbund");
    fs::write(&path, spoilt).unwrap();
    let (_, _, stderr) = run(folder.path(), &["run", "--dry-run", "plan.toml"]);
    assert!(stderr.contains("plan.toml:5:11: "), "{stderr}");
}

#[test]
fn doctor_checks_the_hosts_that_it_reaches() {
    let folder = folder(Some(LISTS));
    let _turn = turn();
    let (code, stdout, stderr) = run(folder.path(), &["doctor", "--hosts", "plan.toml"]);
    assert_eq!(code, Some(exit::PASSED.into()), "{stderr}");
    let has = |mark: &str, what: &str| {
        let mut lines = stdout.lines().filter(|line| line.contains(what));
        lines.any(|line| line.starts_with(mark))
    };
    assert!(has("MISS", "tester: host"), "{stdout}");
    assert!(has("ok", "dut: program"), "{stdout}");
    assert!(has("MISS", "dut: link client (no-c)"), "{stdout}");
}

#[test]
fn doctor_refuses_a_plan_without_hosts() {
    let folder = folder(None);
    fs::write(folder.path().join("plan.toml"), DUT).unwrap();
    let (code, _, stderr) = run(folder.path(), &["doctor", "--hosts", "plan.toml"]);
    assert_eq!(code, Some(exit::USAGE.into()));
    assert!(stderr.contains("the plan has no hosts"), "{stderr}");
}

#[test]
fn doctor_names_packages_of_missing_tools_and_does_not_blame_the_kernel() {
    let folder = folder(None);
    let (code, stdout, stderr) = run(folder.path(), &["doctor"]);
    assert_eq!(code, Some(exit::PASSED.into()), "{stderr}");
    for tool in ["taskset", "unshare"] {
        let at = stdout
            .find(&format!("MISS  {tool} "))
            .unwrap_or_else(|| panic!("{stdout}"));
        let remedy = stdout[at..].lines().nth(1).unwrap();
        assert!(
            remedy.ends_with("-> install the Debian package util-linux"),
            "{stdout}"
        );
    }
    assert!(!stdout.contains("user namespaces"), "{stdout}");
}
