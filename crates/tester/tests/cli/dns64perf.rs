//! `dns64perf`: its output is that of dns64perf++ and dns64perf, as scripts for these programs expect.

use dns64_wire::pref64::Pref64;

use super::authority::Authority;
use super::busy::until;
use super::dut::{ClosedPort, Dut, LOCALHOST};
use super::program::{Ran, finish, interrupt, measured, run, run_in, start_in};
use super::script::Conduct;

/// Runs the test in a directory of its own; returns its CSV file as well. Its exit code shows whether other processes
/// disturbed it.
fn test(line: &str) -> (Ran, String) {
    let directory = tempfile::tempdir().unwrap();
    let ran = until("was a query for the prefix answered in time", || {
        let ran = measured(|| run_in(directory.path(), line));
        (!ran.stderr.contains("did not answer a query")).then_some(ran)
    });
    let expected = if ran.stderr.contains(DISTURBED) { 3 } else { 0 };
    assert_eq!(ran.code, Some(expected), "{ran:?}");
    let csv = std::fs::read_to_string(directory.path().join("dns64perf.csv")).unwrap();
    (ran, csv)
}

/// Message of a test that other processes disturbed.
const DISTURBED: &str = "dns64bench: the Tester disturbed the test: ";

#[test]
fn summary_lines_and_file_are_those_of_dns64perf() {
    let authority = Authority::start("--self-test");
    let (address, port) = (authority.address.ip(), authority.address.port());
    for (count, threads, delay) in [
        (1, "", 2_500_000),
        (1, "1", 2_500_000),
        (2, "2 3", 5_000_000),
    ] {
        let line = format!("dns64perf {address} {port} 10.0.0.0/8 100 1 {threads} {delay} 30");
        let (ran, csv) = test(&line);
        let lines: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "Sent queries: 100",
                "Received answers: 100 (100.00%)",
                "Valid answers: 100 (100.00%)",
            ]
        );
        assert!(lines[3].starts_with("Average round-trip time: "), "{ran:?}");
        assert!(lines[3].ends_with(" ms"), "{ran:?}");
        assert!(lines[4].starts_with("Standard deviation of the round-trip time: "));
        assert_eq!(lines.len(), 5);
        let senders = ran.stderr.lines().filter(|line| {
            line.starts_with("Full timer execution took ") && line.ends_with("% of specified.")
        });
        assert_eq!(senders.count(), count, "{ran:?}");
        let remarks = ran.stderr.lines().filter(|l| !l.starts_with(DISTURBED));
        assert_eq!(remarks.count(), count, "{ran:?}");
        let header = format!(
            "dns64perf++ test parameters\nserver: {address}\nport: {port}\n\
             number of requests: 100\nburst size: 1\nnumber of threads: {count}\n\
             delay between bursts: {delay} ns\n\n\
             query;thread id;tsent [ns];treceived [ns];received;answered;rtt [ns]\n\
             010-000-000-000.dns64perf.test.;0;"
        );
        assert!(csv.starts_with(&header), "{csv}");
        let rows: Vec<Vec<&str>> = csv
            .lines()
            .skip(9)
            .map(|l| l.split(';').collect())
            .collect();
        assert_eq!(rows.len(), 100);
        for row in &rows {
            let time = |k: usize| row[k].parse::<u64>().unwrap();
            assert_eq!((row[4], row[5], time(3) - time(2)), ("1", "1", time(6)));
        }
        assert_eq!(rows[99][0], "010-000-000-099.dns64perf.test.");
    }
}

#[test]
fn valid_answers_are_defined_by_a_learnt_or_given_prefix() {
    let authority = Authority::start("--aaaa-share 20%");
    let prefix: Pref64 = "2001:db8:64::/96".parse().unwrap();
    let dut = || Dut::with_pref64(LOCALHOST, Conduct::Good, prefix);
    let valid = |address: std::net::SocketAddr, flags: &str| {
        let (address, port) = (address.ip(), address.port());
        let (ran, csv) = test(&format!(
            "dns64perf {flags} {address} {port} 10.0.0.0/8 50 1 1 2500000 30"
        ));
        let answered = csv
            .lines()
            .skip(9)
            .filter(|l| l.split(';').nth(5) == Some("1"));
        let line = format!("Valid answers: {} ", answered.count());
        assert!(ran.stdout.contains(&line), "{ran:?}");
        (ran.stdout, ran.stderr)
    };
    for (flags, text) in [
        ("", "Valid answers: 50 (100.00%)"),
        ("--pref64 2001:db8:64::/96", "Valid answers: 50 (100.00%)"),
        ("--pref64 64:ff9b::/96", "Valid answers: 0 (0.00%)"),
        ("--pref64 any", "Valid answers: 50 (100.00%)"),
    ] {
        let (stdout, stderr) = valid(dut().address, flags);
        assert!(stdout.contains(text), "{flags}: {stdout}");
        assert!(!stderr.contains("any AAAA"), "{flags}: {stderr}");
    }
    // A fifth of the names have an AAAA record, the others none.
    let (stdout, stderr) = valid(authority.address, "");
    assert!(stdout.contains("Received answers: 50 (100.00%)\nValid answers: 10 (20.00%)"));
    assert!(
        stderr.contains("dns64bench: any AAAA record counts as valid"),
        "{stderr}"
    );
}

#[test]
fn missing_server_gives_no_answers() {
    let closed = ClosedPort::at(LOCALHOST);
    let (address, port) = (closed.address.ip(), closed.address.port());
    let (ran, csv) = test(&format!(
        "dns64perf {address} {port} 10.0.0.0/8 20 2 1 5000000 0.1"
    ));
    assert!(
        ran.stdout.contains("Received answers: 0 (0.00%)"),
        "{ran:?}"
    );
    assert_eq!(csv.matches(";0;0;0;-1\n").count(), 20, "{csv}");
    assert!(csv.contains("\nburst size: 2\n"), "{csv}");
}

#[test]
fn large_bursts_of_a_subnet_with_host_bits_are_answered() {
    let authority = Authority::start("--self-test");
    let (address, port) = (authority.address.ip(), authority.address.port());
    let directory = tempfile::tempdir().unwrap();
    let line = format!("dns64perf {address} {port} 10.1.2.3/8 400 200 1 100000000 30");
    let ran = measured(|| run_in(directory.path(), &line));
    assert!(
        ran.stdout.contains("Valid answers: 400 (100.00%)"),
        "{ran:?}"
    );
    let csv = std::fs::read_to_string(directory.path().join("dns64perf.csv")).unwrap();
    assert!(csv.contains("\nburst size: 200\n"), "{csv}");
    assert!(csv.contains("\n010-000-001-143.dns64perf.test"), "{csv}");
}

#[test]
fn invalid_arguments_are_refused_before_the_file_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    for (line, text) in [
        (
            "dns64perf ::1 53",
            "2 arguments; dns64perf++ takes 8, 9 with",
        ),
        (
            "dns64perf ::1 53 10.0.0.0/8 5 100000 1 1 1",
            "burst size is '100000'",
        ),
        (
            "dns64perf --classic 1 3 1 ::1",
            "threads is '3'; a power of two",
        ),
        (
            "dns64perf --classic --pacing absolute 1 4 1 ::1",
            "cannot be used with",
        ),
        ("dns64perf --pref64 10 1 2 3", "--pref64"),
    ] {
        let ran = run_in(directory.path(), line);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(text), "{ran:?}");
    }
    assert!(!directory.path().join("dns64perf.csv").exists());
}

#[test]
fn dns64perf_of_2015_queries_65536_names_of_the_older_form() {
    let authority = Authority::start("--self-test");
    let (address, port) = (authority.address.ip(), authority.address.port());
    let ran = run(&format!("dns64perf --classic 1 4 60 {address} {port}"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let times: Vec<f64> = ran.stdout.lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(times.len(), 256);
    assert!(times.iter().all(|&ms| ms > 0.0));
    assert!(
        ran.stderr.contains("Time of an experiment: average "),
        "{ran:?}"
    );
    assert!(
        ran.stderr.ends_with("Lost: 0, answered without AAAA: 0\n"),
        "{ran:?}"
    );
    let (_, words) = authority.end();
    assert!(words.contains("queries: 65536 AAAA, 0 A,"), "{words}");
    assert!(words.contains("answers: 65536 with records,"), "{words}");
}

#[test]
fn dns64perf_of_2015_ends_at_a_closed_port_and_at_an_interrupt() {
    let closed = ClosedPort::at(LOCALHOST);
    let line = format!(
        "dns64perf --classic 1 1 1 {} {}",
        closed.address.ip(),
        closed.address.port()
    );
    let ran = run(&line);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
    assert!(ran.stderr.contains("nothing listens at"), "{ran:?}");

    let directory = tempfile::tempdir().unwrap();
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let (address, port) = (dut.address.ip(), dut.address.port());
    let line = format!("dns64perf {address} {port} 10.0.0.0/8 6000 1 1 10000000 1");
    let child = start_in(directory.path(), &line);
    let seen = dns64bench::machine::process::wait_until(120_000_000_000, || dut.seen() >= 40);
    assert!(seen);
    interrupt(&child);
    let ran = finish(child, &line);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(130), ""), "{ran:?}");
}
