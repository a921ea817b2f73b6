//! `authority` as a process of its own, and the self-tests against it.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, ChildStdout};

use super::dut::{Conduct, Dut, LOCALHOST, closed_port};
use super::program::{finish, interrupt, run, server, start, turn, undisturbed};

/// A running authority; dropping it kills it.
pub(crate) struct Authority {
    child: Option<Child>,
    stdout: Option<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    /// What it said when it was ready.
    ready: String,
}

impl Authority {
    pub(crate) fn start(flags: &str) -> Self {
        let address = free_port();
        let line = format!(
            "authority --listen {} --port {} {flags}",
            address.ip(),
            address.port()
        );
        let mut child = start(&line);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let authority = Self {
            child: Some(child),
            stdout: Some(stdout),
            address,
            ready,
        };
        assert!(
            authority.ready.starts_with("serving"),
            "{}",
            authority.ready
        );
        authority
    }

    /// Interrupts it; returns its exit code and its last words.
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
fn free_port() -> SocketAddr {
    let tcp = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = tcp.local_addr().unwrap();
    UdpSocket::bind(address).unwrap();
    address
}

#[test]
fn the_tester_certifies_itself_against_it() {
    let authority = Authority::start("--self-test");
    let subject = server(authority.address);
    let ran = undisturbed(|| run(&format!("selftest {subject} -Q 200 -l 1s --json -")));
    let json = ran.json();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(json["outcome"], "passed", "{json}");
    assert_eq!(json["certified_rate_qps"], 200, "{json}");
    assert_eq!(json["self_test_rate_qps"], 440, "{json}");
    let last = json["trials"].as_array().unwrap().last().unwrap();
    assert_eq!(last["answers"]["valid"], 440, "{json}");
}

#[test]
fn a_trial_with_an_authority_beside_it_is_certified() {
    let authority = Authority::start("--self-test");
    let trial = |flags: &str| {
        undisturbed(|| {
            let dut = Dut::start(LOCALHOST, Conduct::Good);
            let subject = server(dut.address);
            run(&format!("trial {subject} -Q 200 -l 200ms {flags} --json -"))
        })
    };
    let ran = trial(&format!("--self-test-server {}", authority.address));
    let json = ran.json();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(json["certified"], true, "{json}");
    assert_eq!(json["conditions"]["certified_rate_qps"], 200, "{json}");
    assert_eq!(json["not_a_measurement"].as_array().unwrap().len(), 0);
    let ran = trial("");
    let json = ran.json();
    assert_eq!(json["certified"], false, "{json}");
    let watermark = json["not_a_measurement"].to_string();
    assert!(watermark.contains("not certified"), "{json}");
}

#[test]
fn a_self_test_against_anything_else_is_refused_and_not_blamed_on_the_tester() {
    let plain = Authority::start("");
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    for (address, reason) in [
        (closed_port(LOCALHOST), "nothing listens at"),
        (plain.address, "it answers no AAAA for 010-000-000-000"),
        (dut.address, "it answers [64:ff9b::a00:0] for"),
    ] {
        let selftest = format!("selftest {} -Q 200 -l 200ms --json -", server(address));
        let trial = format!(
            "trial {} -Q 200 -l 200ms --self-test-server {address} --json -",
            server(dut.address)
        );
        for line in [selftest, trial] {
            let ran = run(&line);
            assert_eq!(ran.code, Some(4), "{line}: {ran:?}");
            let json = ran.json();
            let error = json["error"].as_str().unwrap();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}

#[test]
fn an_authority_that_dies_gives_no_certificate() {
    let _turn = turn();
    // What a name has of its own is what this prefix makes of it.
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
fn an_interrupt_ends_it_with_its_counters() {
    let authority = Authority::start("");
    assert!(
        authority
            .ready
            .contains(&format!("dns64perf.test. at {}", authority.address)),
        "{}",
        authority.ready
    );
    let subject = server(authority.address);
    let ran = run(&format!(
        "trial {subject} -Q 200 -l 200ms -t 1s --pref64 64:ff9b::/96 --json -"
    ));
    assert_eq!(ran.json()["queries_sent"], 40, "{ran:?}");
    let (code, words) = authority.end();
    assert_eq!(code, Some(0), "{words}");
    assert!(
        words.contains("queries: 40 AAAA, 0 A,") && words.contains(" 40 NODATA,"),
        "{words}"
    );
}

#[test]
fn half_of_the_names_have_an_aaaa_of_their_own() {
    let authority = Authority::start("--aaaa-share 0.5");
    assert!(authority.ready.contains("50% of the names"));
    let subject = server(authority.address);
    let ran = undisturbed(|| {
        run(&format!(
            "trial {subject} -Q 200 -l 200ms -t 1s --aaaa-share 50% --pref64 64:ff9b::/96 --json -"
        ))
    });
    let json = ran.json();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(json["answers"]["valid"], 20, "{json}");
    assert_eq!(json["answers"]["empty"], 20, "{json}");
}

#[test]
fn a_name_of_255_octets_is_served_and_asked() {
    let suffix = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(45));
    let authority = Authority::start(&format!("--self-test --suffix {suffix}"));
    let subject = server(authority.address);
    let ran = undisturbed(|| {
        run(&format!(
            "selftest {subject} -Q 50 -l 200ms --suffix {suffix} --json -"
        ))
    });
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_port_in_use_is_named() {
    let udp = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let tcp = TcpListener::bind((LOCALHOST, 0)).unwrap();
    for taken in [udp.local_addr().unwrap(), tcp.local_addr().unwrap()] {
        let (address, port) = (taken.ip(), taken.port());
        let ran = run(&format!("authority --listen {address} --port {port}"));
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.stderr.contains(&taken.to_string()), "{ran:?}");
        assert!(ran.stderr.contains("in use"), "{ran:?}");
        assert_eq!(ran.stdout, "");
    }
}
