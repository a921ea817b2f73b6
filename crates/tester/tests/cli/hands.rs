//! Functions for interactive use: profiles, host names, progress, and errors in JSON.

use std::net::ToSocketAddrs as _;
use std::process::Command;

use super::dut::{Dut, LOCALHOST};
use super::program::{measured, run, server};
use super::script::Conduct;

#[test]
fn profiles_are_listed_and_printed() {
    let list = run("profile list");
    assert_eq!(list.code, Some(0), "{list:?}");
    let row = |name: &str| {
        let mut rows = list.stdout.lines();
        rows.find(|row| row.split(' ').next() == Some(name))
            .unwrap_or_else(|| panic!("{name}: {list:?}"))
    };
    assert!(
        row("dns64d").contains("  dut        ")
            && row("dns64d").ends_with("  af_xdp, cache_size, driver_cache, threads")
    );
    assert!(row("nsd").contains("  authority  "));
    let show = run("profile show unbound");
    assert_eq!(show.stdout, include_str!("../../profiles/unbound.toml"));
    let none = run("profile show no-such");
    assert_eq!((none.code, none.stdout.as_str()), (Some(2), ""));
    assert!(
        none.stderr.contains("built-in profiles are dns64d, bind"),
        "{none:?}"
    );
}

#[test]
fn server_can_be_given_by_its_host_name() {
    let localhost = ("localhost", 0)
        .to_socket_addrs()
        .unwrap()
        .next()
        .unwrap()
        .ip();
    let ran = measured(|| {
        let dut = Dut::start(localhost, Conduct::Good);
        let port = dut.address.port();
        run(&format!(
            "trial -s localhost -p {port} -Q 200 -l 200ms -t 30s --pref64 64:ff9b::/96 --json -"
        ))
    });
    let asked = ran.json()["conditions"]["server"]
        .as_str()
        .map(str::to_owned);
    assert!(
        asked.is_some_and(|asked| asked.contains(&localhost.to_string())),
        "{ran:?}"
    );
    let unknown = run("trial -s no-such-host.invalid -Q 200 --json -");
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    assert!(
        unknown
            .stderr
            .contains("cannot find the address of --server no-such-host.invalid: ")
    );
}

#[test]
fn each_trial_of_a_search_prints_a_line_to_a_pipe() {
    let mut at = String::new();
    let ran = measured(|| {
        let dut = Dut::start(LOCALHOST, Conduct::Good);
        at = dut.address.to_string();
        let subject = server(dut.address);
        run(&format!(
            "search {subject} -Q 200 --max-rate 400 -l 200ms -t 30s --pref64 64:ff9b::/96 --json -"
        ))
    });
    let trials = ran.json()["trials"].as_array().unwrap().len();
    let is_trial = |line: &&str| line.starts_with(&format!("{at}: search: trial "));
    assert_eq!(
        ran.stderr.lines().filter(is_trial).count(),
        trials,
        "{ran:?}"
    );
    assert!(
        ran.stderr.lines().all(|line| line.starts_with(&at)),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains(['\r', '\u{1b}']), "{ran:?}");
}

/// `script` provides a terminal for its command (script(1) of bsdutils, part of every Debian).
#[test]
fn no_color_disables_escapes_on_a_terminal() {
    let shown = |color: Option<&str>| {
        let line = format!(
            "stty cols 80 rows 24; {} trial --help",
            env!("CARGO_BIN_EXE_dns64bench")
        );
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .env_remove("NO_COLOR")
            .env("TERM", "xterm");
        script.envs(color.map(|value| ("NO_COLOR", value)));
        String::from_utf8(script.output().unwrap().stdout).unwrap()
    };
    assert!(shown(None).contains('\u{1b}'));
    let plain = shown(Some("1"));
    assert!(
        plain.contains("--max-stall") && !plain.contains('\u{1b}'),
        "{plain}"
    );
    assert!(
        plain.lines().all(|line| line.chars().count() <= 80),
        "{plain}"
    );
}

#[test]
fn every_error_is_json_if_requested() {
    for (line, code, words) in [
        (
            "trial -Q 0 -s ::1 --json -",
            2,
            "at least 1 query per second",
        ),
        (
            "search --frobnicate --json -",
            2,
            "unexpected argument '--frobnicate' found",
        ),
        ("trial -Q 5 --json -", 2, "no server to measure"),
        (
            "selftest --server ::1 --dut bind --json=-",
            2,
            "cannot be combined",
        ),
        (
            "trial --dut no-such -Q 5 --lab loopback -j -",
            2,
            "no profile \"no-such\"",
        ),
        ("compare --json /no/such /no/such", 4, "/no/such"),
        (
            "compare --json",
            2,
            "required arguments were not provided: <A> <B>",
        ),
    ] {
        let ran = run(line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        let json = ran.json();
        assert_eq!(json["exit_code"], code, "{line}: {ran:?}");
        let error = json["error"].as_str().unwrap();
        assert!(error.contains(words), "{line}: {ran:?}");
        assert_eq!(json.as_object().unwrap().len(), 2, "{line}: {ran:?}");
        assert!(!ran.stderr.is_empty(), "{line}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let ran = run(&format!("trial -Q 5 --json {}", path.display()));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(written["exit_code"], 2);
    // Help is not an error.
    let help = run("trial --help --json -");
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
}
