//! The program on a real kernel: servers, namespaces, and the ways in which they end. Needs root
//! and the DUT programs. Rates are modest and nothing asserts a speed.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use dns64_transport::clock::{Clock, MonotonicClock, SECOND};
use dns64bench::lab::process;
use dns64bench::lab::profile::{Profile, ProfileRole, built_in_names};
use dns64bench::lab::topology::leftovers;
use rustix::process::Signal;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64bench");

/// A shared machine disturbs a trial now and then; it is repeated this often in all.
const ATTEMPTS: usize = 5;

/// What one run of the program left.
struct Run {
    code: Option<i32>,
    json: Value,
}

impl Run {
    fn new(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let json = serde_json::from_str(&text).unwrap_or_else(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            panic!("{error} in {text:?}; the program said {said}")
        });
        Self {
            code: output.status.code(),
            json,
        }
    }

    fn text(&self, pointer: &str) -> &str {
        self.json
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn number(&self, pointer: &str) -> u64 {
        let value = self.json.pointer(pointer);
        value
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no {pointer} in {:#}", self.json))
    }

    fn assert_passed(&self) {
        assert_eq!(self.text("/outcome"), "passed", "{:#}", self.json);
        assert_eq!(self.code, Some(0));
        assert_eq!(self.number("/answers/valid"), self.number("/queries_due"));
    }
}

fn command(arguments: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments.split_whitespace());
    command.args(["--json", "-"]);
    command
}

/// Runs the program to its end; JSON comes back.
fn run(arguments: &str) -> Run {
    Run::new(&command(arguments).output().unwrap())
}

/// Runs a measurement until the machine has not disturbed it: the Tester says so of itself, and a
/// DUT whose core others use as well fails without a fault of its own.
fn undisturbed(mut measure: impl FnMut() -> Run) -> Run {
    for _ in 1..ATTEMPTS {
        let (began, waited) = (MonotonicClock.now(), waited_ns());
        let run = measure();
        let crowded = (waited_ns() - waited) * CROWDED > MonotonicClock.now() - began;
        if run.code != Some(3) && (run.code == Some(0) || !crowded) {
            return run;
        }
        process::wait_until(30 * SECOND, || {
            let waited = waited_ns();
            MonotonicClock.sleep(SECOND);
            (waited_ns() - waited) * CROWDED < SECOND
        });
    }
    measure()
}

/// A machine is crowded if programs wait for a core during more than one part in this many of the
/// time. Tester and DUT alone, on a core each, make it about one in a hundred.
const CROWDED: u64 = 10;

/// How long so far some program has waited for a core (`/proc/pressure/cpu`, psi.rst of Linux).
fn waited_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = text
        .lines()
        .next()
        .and_then(|some| some.split("total=").nth(1));
    total.and_then(|us| us.parse::<u64>().ok()).unwrap_or(0) * 1000
}

fn trial(arguments: &str) -> Run {
    undisturbed(|| {
        run(&format!(
            "trial --lab netns --uncertified -Q 1k -l 2s {arguments}"
        ))
    })
}

/// A measurement under way, which is ended with the test at the latest.
struct Underway(Child);

impl Underway {
    /// Returns once the DUT, which is `server`, is in the midst of a trial: more queries have come
    /// than any probe sends.
    fn start(server: &str, arguments: &str) -> Self {
        let mut command = command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut underway = Self(command.spawn().unwrap());
        let mut early_end = None;
        let asked = process::wait_until(60 * SECOND, || {
            early_end = underway.0.try_wait().unwrap();
            let dut = pids("dns64bench-dut", server);
            early_end.is_some() || dut.iter().any(|pid| queries_received(*pid) > 300)
        });
        assert!(asked && early_end.is_none(), "no trial of {arguments}");
        underway
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn output(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        std::io::Read::read_to_end(self.0.stdout.as_mut().unwrap(), &mut stdout).unwrap();
        std::io::Read::read_to_end(self.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        Output {
            status: self.0.wait().unwrap(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            process::signal(self.0.id(), Signal::TERM);
            if process::wait(&mut self.0, 20 * SECOND).is_none() {
                process::kill(&mut self.0);
            }
        }
    }
}

/// Processes in a namespace whose name begins so.
fn pids(namespace: &str, name: &str) -> Vec<u32> {
    let mut command = Command::new("ip");
    let Ok(output) = command.args(["netns", "pids", namespace]).output() else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.starts_with(name))
        })
        .collect()
}

/// Datagrams over IPv6 that have come to the network of this process.
fn queries_received(pid: u32) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{pid}/net/snmp6")).unwrap_or_default();
    counters
        .lines()
        .find_map(|line| line.strip_prefix("Udp6InDatagrams"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).exists()
}

/// Directories of servers that the process `pid` started.
fn workdirs(pid: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/dns64bench") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.contains(&format!(".{pid}.")))
        .collect()
}

/// Whether `value` is `expected`, or a few more because a query came twice.
fn assert_about(value: u64, expected: u64, what: &str) {
    assert!(
        (expected..=expected + 20).contains(&value),
        "{what}: {value} instead of {expected}"
    );
}

/// Names of the built-in DNS64 servers that are installed.
fn installed() -> Vec<&'static str> {
    built_in_names()
        .filter(|name| {
            let profile = Profile::built_in(name).unwrap();
            profile.role == ProfileRole::Dut && profile.program(None).is_ok()
        })
        .collect()
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_server_in_a_lab_is_asked_twice_for_each_query() {
    let run = trial("--dut unbound");
    run.assert_passed();
    assert_about(run.number("/authority/aaaa"), 2000, "AAAA");
    assert_about(run.number("/authority/a"), 2000, "A");
    assert!(run.text("/conditions/dut").starts_with("unbound (Version "));
    assert_eq!(run.text("/conditions/lab"), "netns");
    assert_eq!(leftovers(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn every_installed_server_passes() {
    let servers = installed();
    for expected in ["dns64d", "unbound"] {
        assert!(servers.contains(&expected), "{expected}: {servers:?}");
    }
    for name in servers {
        let run = trial(&format!("--dut {name}"));
        run.assert_passed();
        assert_about(run.number("/authority/aaaa"), 2000, name);
        assert_about(run.number("/authority/a"), 2000, name);
        let dut = run.text("/conditions/dut");
        assert!(dut.starts_with(name) && !dut.contains("unknown"), "{dut}");
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn names_with_an_aaaa_of_their_own_are_asked_for_once() {
    for name in installed() {
        let run = trial(&format!("--dut {name} --aaaa-share 50%"));
        run.assert_passed();
        assert_about(run.number("/authority/aaaa"), 2000, name);
        assert_about(run.number("/authority/a"), 1000, name);
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn the_cached_share_does_not_reach_the_authority() {
    for name in installed() {
        if !Profile::built_in(name).unwrap().caches {
            continue;
        }
        for pattern in ["one-name", "stack:100", "window:500", "zipf:500,0.9"] {
            let repeated = format!("--cached-share 50% --cached-pattern {pattern}");
            let run = trial(&format!("--dut {name} {repeated}"));
            run.assert_passed();
            assert_about(run.number("/authority/aaaa"), 1000, name);
            assert_about(run.number("/authority/a"), 1000, name);
        }
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_trial_over_an_ipv6_upstream_passes() {
    for name in ["dns64d", "unbound"] {
        let run = trial(&format!("--dut {name} --upstream-family ipv6"));
        run.assert_passed();
        assert_eq!(run.text("/conditions/upstream_family"), "IPv6");
        assert_about(run.number("/authority/a"), 2000, "A over IPv6");
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_trial_with_two_devices_passes() {
    for name in ["dns64d", "unbound"] {
        let run = trial(&format!("--dut {name} --setup two-device"));
        run.assert_passed();
        assert_eq!(run.text("/conditions/setup"), "two-device");
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_trial_with_nsd_and_a_restart_passes() {
    for name in ["dns64d", "unbound"] {
        let run = trial(&format!(
            "--dut {name} --authority nsd --namespace 10.0.0.0/16 --restart"
        ));
        run.assert_passed();
        assert_eq!(run.text("/conditions/authority"), "nsd");
        // Only the built-in authority counts.
        assert_eq!(run.json["authority"], Value::Null);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn the_tester_passes_its_self_test() {
    let run = undisturbed(|| run("selftest --lab netns -Q 1k -l 1s"));
    assert_eq!(run.text("/outcome"), "passed", "{:#}", run.json);
    assert_eq!(run.code, Some(0));
    assert_eq!(run.number("/self_test_rate_qps"), 2200);
    assert!(run.number("/certified_rate_qps") >= 1000);
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_search_stops_at_the_rate_that_was_asked_for() {
    let run = undisturbed(|| run("search --lab netns --dut unbound -l 1s --max-rate 2k"));
    assert_eq!(run.text("/ended"), "limited_by_request", "{:#}", run.json);
    assert_eq!(run.code, Some(0));
    assert_eq!(run.number("/rate_qps"), 2000);
    assert_eq!(run.json["certified"], Value::Bool(true));
    assert!(run.number("/certified_rate_qps") >= 2000);
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_server_that_is_killed_fails_the_trial() {
    for name in ["dns64d", "unbound"] {
        let run = undisturbed(|| {
            let arguments = format!("trial --lab netns --dut {name} --uncertified -Q 1k -l 4s");
            let underway = Underway::start(name, &arguments);
            for pid in pids("dns64bench-dut", name) {
                process::signal(pid, Signal::KILL);
            }
            Run::new(&underway.output())
        });
        assert_eq!(run.text("/outcome"), "failed", "{:#}", run.json);
        assert_eq!(run.code, Some(1));
        let notes = run.json["notes"].to_string();
        assert!(notes.contains("the DUT ended during the trial"), "{notes}");
        assert_eq!(leftovers(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_search_goes_on_with_a_server_that_was_killed() {
    let run = undisturbed(|| {
        let underway = Underway::start(
            "unbound",
            "search --lab netns --dut unbound --uncertified -l 2s -Q 1k --max-rate 2k --resolution 20%",
        );
        for pid in pids("dns64bench-dut", "unbound") {
            process::signal(pid, Signal::KILL);
        }
        Run::new(&underway.output())
    });
    // Found, or limited by the request if the machine disturbed the very trial of the killing:
    // the search does not learn from that one.
    assert_eq!(run.code, Some(0), "{:#}", run.json);
    assert!(run.number("/rate_qps") >= 500);
    let trials = run.json["trials"].as_array().unwrap();
    let said = |trial: &Value, what: &str| trial["notes"].to_string().contains(what);
    let ended = trials
        .iter()
        .position(|trial| said(trial, "the DUT ended during the trial"))
        .unwrap();
    assert!(said(&trials[ended + 1], "the DUT was restarted"));
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn an_authority_that_is_killed_makes_the_trial_invalid() {
    let underway = Underway::start(
        "unbound",
        "trial --lab netns --dut unbound --authority nsd --namespace 10.0.0.0/16 \
         --uncertified -Q 1k -l 4s",
    );
    for pid in pids("dns64bench-authority", "nsd") {
        process::signal(pid, Signal::KILL);
    }
    let run = Run::new(&underway.output());
    assert_eq!(run.text("/outcome"), "invalid", "{:#}", run.json);
    assert_eq!(run.code, Some(3));
    let why = run.text("/invalid_because");
    assert!(why.contains("the authority stopped"), "{why}");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn an_interrupted_trial_leaves_nothing() {
    let underway = Underway::start(
        "unbound",
        "trial --lab netns --dut unbound --uncertified -Q 1k -l 60s",
    );
    let tester = underway.pid();
    let servers = pids("dns64bench-dut", "unbound");
    assert_ne!(workdirs(tester), Vec::<String>::new());
    process::signal(tester, Signal::INT);
    let run = Run::new(&underway.output());
    assert_eq!(run.code, Some(130));
    assert_eq!(run.text("/error"), "interrupted");
    assert!(!servers.is_empty() && !servers.into_iter().any(exists));
    assert_eq!(leftovers(), Vec::<String>::new());
    assert_eq!(workdirs(tester), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn after_a_crash_lab_down_leaves_nothing() {
    let mut underway = Underway::start(
        "unbound",
        "trial --lab netns --dut unbound --uncertified -Q 1k -l 60s",
    );
    let tester = underway.pid();
    let servers = pids("dns64bench-dut", "unbound");
    process::kill(&mut underway.0);
    assert_ne!(workdirs(tester), Vec::<String>::new());
    assert_eq!(leftovers().len(), 3);
    let down = Command::new(PROGRAM).args(["lab", "down"]).status();
    assert!(down.unwrap().success());
    assert!(!servers.is_empty() && !servers.into_iter().any(exists));
    assert_eq!(leftovers(), Vec::<String>::new());
    assert_eq!(workdirs(tester), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn a_lab_can_be_looked_at_from_its_hosts() {
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("lab").args(arguments).output().unwrap()
    };
    let up = lab(&["up"]);
    assert!(up.status.success());
    let look = lab(&["exec", "dut", "--", "ip", "-br", "addr"]);
    let down = lab(&["down"]);
    let told = String::from_utf8_lossy(&up.stdout);
    assert!(told.contains("2001:2:0:1::2 port 53"), "{told}");
    let seen = String::from_utf8_lossy(&look.stdout);
    for address in ["2001:2:0:1::2/64", "2001:2:0:2::1/64", "198.18.0.1/24"] {
        assert!(seen.contains(address), "{seen}");
    }
    assert!(look.status.success() && down.status.success());
    assert_eq!(leftovers(), Vec::<String>::new());
    let nowhere = lab(&["exec", "dut", "--", "true"]);
    assert_eq!(nowhere.status.code(), Some(4));
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(said.contains("no lab is up"), "{said}");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_profile_of_the_users_own_works() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let text = include_str!("../profiles/unbound.toml");
    let mine = text.replace("name = \"unbound\"", "name = \"mine\"");
    std::fs::write(&file, mine).unwrap();
    let run = trial(&format!("--dut {}", file.display()));
    run.assert_passed();
    assert!(run.text("/conditions/dut").starts_with("mine (Version "));
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn a_server_that_does_not_start_is_told_with_its_last_words() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("broken.toml");
    let text = "name = 'broken'\nrole = 'dut'\nprograms = ['sh']\ncaches = false\n\
                command = ['{program}', '-c', 'echo no such zone >&2; exit 7']\n\
                version = { command = ['echo', 'broken 1'], starts_with = 'broken ' }\n";
    std::fs::write(&file, text).unwrap();
    let run = run(&format!(
        "trial --lab netns --uncertified -Q 1k -l 1s --dut {}",
        file.display()
    ));
    assert_eq!(run.code, Some(4), "{:#}", run.json);
    assert_eq!(run.number("/exit_code"), 4);
    let error = run.text("/error");
    assert!(error.contains("exit status: 7"), "{error}");
    assert!(error.contains("no such zone"), "{error}");
    assert_eq!(leftovers(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and dns64d: run by .ci/run net"]
fn the_demo_measures_dns64d_and_says_whose_limit_it_found() {
    let mut said = String::new();
    let mut code = None;
    // As `undisturbed`, but the demo has no JSON.
    for _ in 0..ATTEMPTS {
        let output = Command::new(PROGRAM).arg("demo").output().unwrap();
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        code = output.status.code();
        if code != Some(3) {
            break;
        }
    }
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("device under test  dns64d (dns64d "),
        "{said}"
    );
    let first = said.lines().next().unwrap_or_default();
    assert!(first.starts_with("DNS64 rate: "), "{said}");
    assert_eq!(
        first.contains("at least"),
        said.contains("THE TESTER IS THE LIMIT"),
        "{said}"
    );
    assert_eq!(leftovers(), Vec::<String>::new());
}

/// The user and group that own nothing (Debian policy 9.2.2).
const NOBODY: &str = "65534";

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_user_who_is_not_root_has_a_lab_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let program = directory.path().join("dns64bench");
    std::fs::copy(PROGRAM, &program).unwrap();
    let run = undisturbed(|| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command.arg(&program).args([
            "trial", "--lab", "userns", "--dut", "unbound", "-Q", "500", "-l", "1s",
        ]);
        command.args(["--uncertified", "--json", "-"]);
        Run::new(&command.current_dir("/").output().unwrap())
    });
    run.assert_passed();
    assert_eq!(run.text("/conditions/lab"), "userns");
    assert_eq!(leftovers(), Vec::<String>::new());
    MonotonicClock.sleep(SECOND / 10);
    assert_eq!(processes_of(NOBODY), Vec::<String>::new());
}

/// Names of the servers that a user runs.
fn processes_of(uid: &str) -> Vec<String> {
    let mut command = Command::new("ps");
    let output = command.args(["-u", uid, "-o", "comm="]).output().unwrap();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|name| ["unbound", "dns64bench", "unshare"].contains(name))
        .map(str::to_owned)
        .collect()
}
