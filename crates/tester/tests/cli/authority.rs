//! `authority` as a process, and self-tests with it.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, ChildStdout};

use super::accounts::{answers, assert_accounted, is_disturbed};
use super::busy::until;
use super::dut::{ClosedPort, Dut, LOCALHOST};
use super::program::{
    Ran, assert_outcome, finish, interrupt, measured, run, run_in, server, start, turn,
};
use super::script::Conduct;

/// A running authority; dropping it kills it.
pub(crate) struct Authority {
    child: Option<Child>,
    stdout: Option<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    /// Its output when it was ready.
    ready: String,
}

impl Authority {
    /// Starts one at a port that the kernel chooses; retries if another program takes the port first.
    pub(crate) fn start(flags: &str) -> Self {
        until("was a port still free", || {
            let address = free_port()?;
            let line = format!(
                "authority --listen {} --port {} {flags}",
                address.ip(),
                address.port()
            );
            let mut child = start(&line);
            let mut stdout = BufReader::new(child.stdout.take().unwrap());
            let mut ready = String::new();
            stdout.read_line(&mut ready).unwrap();
            if !ready.starts_with("serving") {
                let ran = finish(child, &line);
                assert!(ran.stderr.contains("in use"), "{ran:?}");
                return None;
            }
            Some(Self {
                child: Some(child),
                stdout: Some(stdout),
                address,
                ready,
            })
        })
    }

    /// Interrupts it; returns its exit code and its last log lines.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let child = self.child.take().unwrap();
        interrupt(&child);
        let ran = finish(child, "authority");
        let mut words = String::new();
        let mut stdout = self.stdout.take().unwrap();
        while stdout.read_line(&mut words).unwrap() > 0 {}
        (ran.code, words)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that is free for UDP and TCP.
fn free_port() -> Option<SocketAddr> {
    let tcp = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = tcp.local_addr().unwrap();
    UdpSocket::bind(address).ok()?;
    Some(address)
}

/// Asserts that a self-test certifies the rates that it passed; it passes unless other processes disturbed it.
fn assert_certified(ran: &Ran, rate_qps: u64) {
    let json = ran.json();
    let trials = json["trials"].as_array().unwrap();
    trials.iter().for_each(assert_accounted);
    let last = trials.last().unwrap();
    let passed = last["outcome"] == "passed";
    assert!(passed || is_disturbed(last), "{json:#}");
    assert_eq!(ran.code, Some(if passed { 0 } else { 3 }), "{ran:?}");
    assert_eq!(json["outcome"] == "passed", passed, "{json:#}");
    let certified = json["certified_rate_qps"].as_u64();
    assert_eq!(certified, passed.then_some(rate_qps), "{json:#}");
}

#[test]
fn self_test_with_it_certifies_the_tester() {
    let authority = Authority::start("--self-test");
    let subject = server(authority.address);
    let ran = measured(|| run(&format!("selftest {subject} -Q 200 -l 1s -t 60s --json -")));
    assert_certified(&ran, 200);
    let json = ran.json();
    assert_eq!(json["self_test_rate_qps"], 440, "{json}");
    for trial in json["trials"].as_array().unwrap() {
        assert_eq!(trial["segmentation"], false, "{json}");
    }
    if json["outcome"] == "passed" {
        let certificate = &json["conditions"]["certificate"];
        assert_eq!(certificate["self_tests"], 3, "{json}");
    }
    let last = json["trials"].as_array().unwrap().last().unwrap();
    assert_eq!(answers(last, "valid"), 440, "{json}");
}

/// Runs a trial over connections of 40 queries, all of which the authority answers; returns its connections.
fn over(transport: &str, flags: &str) -> serde_json::Value {
    let authority = Authority::start("--self-test");
    let subject = server(authority.address);
    let ran = measured(|| {
        run(&format!(
            "trial {subject} --aaaa-share 1 -Q 200 -l 200ms -t 30s --transport {transport} {flags} --json -"
        ))
    });
    let json = assert_outcome(&ran, "passed");
    assert_eq!(answers(&json, "valid"), 40, "{json}");
    assert_eq!(json["backend"], transport, "{json}");
    let conditions = &json["conditions"];
    assert_eq!(conditions["transport"]["protocol"], transport, "{json}");
    json["connections"].clone()
}

#[test]
fn queries_over_connections_are_all_answered_and_their_connections_counted() {
    for transport in ["tcp", "tls"] {
        let connections = over(transport, "-c 3");
        assert_eq!(connections["established"], 3, "{connections}");
        assert_eq!(connections["before_trial"], 3, "{connections}");
        for ending in ["reset", "closed", "tls_failed"] {
            assert_eq!(connections[ending]["queries"], 0, "{connections}");
        }
    }
}

#[test]
fn each_connection_has_as_many_queries_as_were_asked_for() {
    // Another connection is requested with half of the queries of the one before, and not used up at the end.
    for transport in ["tcp", "tls"] {
        let connections = over(transport, "-c 1 --queries-per-connection 8");
        assert_eq!(connections["before_trial"], 1, "{connections}");
        let established = connections["established"].as_u64().unwrap();
        assert!((5..=6).contains(&established), "{connections}");
    }
}

#[test]
fn self_test_over_connections_certifies_the_tester_for_them() {
    for transport in ["tcp", "tls"] {
        let authority = Authority::start("--self-test");
        let subject = server(authority.address);
        let ran = measured(|| {
            run(&format!(
                "selftest {subject} -Q 200 -l 300ms -t 60s --transport {transport} --json -"
            ))
        });
        assert_certified(&ran, 200);
        let last = ran.json()["trials"].as_array().unwrap().last().cloned();
        assert_eq!(last.unwrap()["backend"], transport, "{ran:?}");
        let (_, words) = authority.end();
        assert!(words.contains("TCP"), "{words}");
    }
}

#[test]
fn trial_with_a_separate_authority_is_certified() {
    let authority = Authority::start("--self-test");
    let trial = |flags: &str| {
        measured(|| {
            let dut = Dut::start(LOCALHOST, Conduct::Good);
            let subject = server(dut.address);
            run(&format!(
                "trial {subject} -Q 200 -l 200ms -t 60s --pref64 64:ff9b::/96 {flags} --json -"
            ))
        })
    };
    let json = until("was the Tester certified", || {
        let ran = trial(&format!("--self-test-server {}", authority.address));
        let refused = ran.stderr.contains("the self-test of the Tester failed");
        (!refused).then(|| assert_outcome(&ran, "passed"))
    });
    assert_eq!(json["certified"], true, "{json}");
    assert_eq!(json["conditions"]["certified_rate_qps"], 200, "{json}");
    let doubts = json["not_a_measurement"].as_array().unwrap();
    assert!(doubts.len() == 1 && doubts[0].to_string().contains("the machine of the Tester"));
    // Nothing shows that this server queries that authority.
    let covers = json["conditions"]["self_test_covers"].as_str().unwrap();
    assert!(covers.starts_with("the Tester alone"), "{json}");
    assert!(
        json["conditions"]["notes"].to_string().contains(covers),
        "{json}"
    );
    let json = assert_outcome(&trial(""), "passed");
    assert_eq!(json["certified"], false, "{json}");
    let watermark = json["not_a_measurement"].to_string();
    assert!(watermark.contains("not certified"), "{json}");
}

#[test]
fn self_test_with_another_server_is_refused_and_not_blamed_on_the_tester() {
    let plain = Authority::start("");
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let closed = ClosedPort::at(LOCALHOST);
    for (address, reason) in [
        (closed.address, "nothing listens at"),
        (plain.address, "it answers no AAAA for 010-000-000-000"),
        (dut.address, "it answers [64:ff9b::a00:0] for"),
    ] {
        let selftest = format!("selftest {} -Q 200 -l 200ms --json -", server(address));
        let trial = format!(
            "trial {} -Q 200 -l 200ms --pref64 64:ff9b::/96 --self-test-server {address} --json -",
            server(dut.address)
        );
        for line in [selftest, trial] {
            let ran = until("was a probe answered in time", || {
                let ran = run(&line);
                (!ran.stderr.contains("did not answer")).then_some(ran)
            });
            assert_eq!(ran.code, Some(4), "{line}: {ran:?}");
            let json = ran.json();
            let error = json["error"].as_str().unwrap();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}

#[test]
fn authority_that_dies_gives_no_certificate() {
    let _turn = turn();
    // With this prefix, the AAAA record of a name equals its synthesised address.
    let own = "2001:db8::/96".parse().unwrap();
    let dying = Dut::with_pref64(LOCALHOST, Conduct::DieAfter(50), own);
    let subject = server(dying.address);
    let ran = run(&format!("selftest {subject} -Q 200 -l 1s --json -"));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let json = ran.json();
    assert_ne!(json["outcome"], "passed", "{json}");
    assert!(json["certified_rate_qps"].is_null(), "{json}");
}

#[test]
fn interrupt_ends_it_with_its_counters() {
    let authority = Authority::start("--aaaa-share 1");
    assert!(
        authority
            .ready
            .contains(&format!("dns64perf.test. at {}", authority.address)),
        "{}",
        authority.ready
    );
    let subject = server(authority.address);
    let ran = run(&format!(
        "trial {subject} -Q 200 -l 200ms -t 30s --aaaa-share 1 --json -"
    ));
    let json = assert_outcome(&ran, "passed");
    assert_eq!(json["queries_sent"], 40, "{json}");
    assert_eq!(json["answers"]["valid"], 40, "{json}");
    let (code, words) = authority.end();
    assert_eq!(code, Some(0), "{words}");
    assert!(
        // With the names that are asked for before the trial.
        words.contains("queries: 48 AAAA, 0 A,") && words.contains(" 48 with records, 0 NODATA,"),
        "{words}"
    );
}

#[test]
fn half_of_the_names_have_an_aaaa_record() {
    let authority = Authority::start("--aaaa-share 0.5");
    assert!(authority.ready.contains("50% of the names"));
    let (address, port) = (authority.address.ip(), authority.address.port());
    let directory = tempfile::tempdir().unwrap();
    let ran = measured(|| {
        let line = format!("dns64perf {address} {port} 10.0.0.0/8 40 1 1 5000000 30");
        run_in(directory.path(), &line)
    });
    assert!(
        ran.stdout.contains("Received answers: 40 (100.00%)"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("Valid answers: 20 (50.00%)"), "{ran:?}");
}

#[test]
fn name_of_255_octets_is_served_and_queried() {
    let suffix = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(45));
    let authority = Authority::start(&format!("--self-test --suffix {suffix}"));
    let subject = server(authority.address);
    let ran = measured(|| {
        run(&format!(
            "selftest {subject} -Q 50 -l 200ms -t 60s --suffix {suffix} --json -"
        ))
    });
    assert_certified(&ran, 50);
    let last = ran.json()["trials"].as_array().unwrap().last().cloned();
    assert_eq!(answers(&last.unwrap(), "valid"), 22, "{ran:?}");
}

#[test]
fn port_in_use_is_named() {
    let udp = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let tcp = TcpListener::bind((LOCALHOST, 0)).unwrap();
    for taken in [udp.local_addr().unwrap(), tcp.local_addr().unwrap()] {
        let (address, port) = (taken.ip(), taken.port());
        let ran = run(&format!("authority --listen {taken}"));
        assert_eq!(ran.code, Some(4), "{ran:?}");
        let ran = run(&format!("authority --listen {address} --port {port}"));
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.stderr.contains(&taken.to_string()), "{ran:?}");
        assert!(ran.stderr.contains("in use"), "{ran:?}");
        assert_eq!(ran.stdout, "");
    }
}
