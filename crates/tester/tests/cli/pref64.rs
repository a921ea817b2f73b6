//! `--pref64 auto`.

use std::net::SocketAddr;

use dns64_wire::pref64::Pref64;

use super::busy::until;
use super::dut::{ClosedPort, Dut, LOCALHOST};
use super::program::{Ran, assert_outcome, measured, run, server};
use super::script::{Conduct, Fault};

fn trial(address: SocketAddr) -> Ran {
    let server = server(address);
    run(&format!("trial {server} -Q 200 -l 200ms -t 30s --json -"))
}

#[test]
fn prefix_is_learnt_from_the_server() {
    for prefix in ["64:ff9b::/96", "2001:db8:122:344::/64", "2001:db8::/32"] {
        let pref64: Pref64 = prefix.parse().unwrap();
        let ran = measured(|| {
            let dut = Dut::with_pref64(LOCALHOST, Conduct::Good, pref64);
            answered(|| trial(dut.address))
        });
        let json = assert_outcome(&ran, "passed");
        assert_eq!(json["conditions"]["pref64"], prefix, "{json}");
        assert_eq!(json["answers"]["valid"], 40, "{json}");
    }
}

#[test]
fn error_without_a_prefix_to_learn_gives_the_reason() {
    let other_address = "127.0.0.2".parse().unwrap();
    for (conduct, reason) in [
        (
            Conduct::Always(Fault::Silent),
            "did not answer a query for 010-255-",
        ),
        (Conduct::From(LOCALHOST), "but 127.0.0.1:"),
        (Conduct::From(other_address), "but 127.0.0.2:"),
        (
            Conduct::Always(Fault::Empty),
            "no AAAA; check that DNS64 is on",
        ),
        (
            Conduct::Always(Fault::ServFail),
            "SERVFAIL; check that it forwards the zone",
        ),
        (
            Conduct::Always(Fault::Garbage),
            "garbage; a DNS server must listen there",
        ),
        (Conduct::Always(Fault::Truncated), "a truncated answer"),
    ] {
        let dut = Dut::start(LOCALHOST, conduct);
        let ran = match conduct {
            Conduct::Always(Fault::Silent) => trial(dut.address),
            _ => answered(|| trial(dut.address)),
        };
        refused(&ran, dut.address, reason);
    }
}

#[test]
fn closed_port_is_reported_at_once() {
    let closed = ClosedPort::at(LOCALHOST);
    let ran = answered(|| trial(closed.address));
    refused(&ran, closed.address, "nothing listens at");
}

/// Measures until the queries for the prefix were answered within their second.
fn answered(mut measure: impl FnMut() -> Ran) -> Ran {
    until("was a probe answered in time", || {
        let ran = measure();
        (!ran.stderr.contains("did not answer a query")).then_some(ran)
    })
}

/// Asserts exit code 4, the same text for humans and programs, and the name of the server in both.
fn refused(ran: &Ran, address: SocketAddr, reason: &str) {
    let json = ran.json();
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(json["exit_code"], 4, "{json}");
    let error = json["error"].as_str().unwrap();
    assert!(
        error.contains(reason) && error.contains(&address.to_string()),
        "not for the reason '{reason}': {error}"
    );
    assert!(ran.stderr.contains(error), "{ran:?}");
}
