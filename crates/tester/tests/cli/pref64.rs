//! The comparison of what a server answers with what trials expect: prefixes, names with an AAAA record, silence.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::thread;

use dns64_wire::pref64::Pref64;

use super::busy::until;
use super::dut::{ClosedPort, Dut, LOCALHOST};
use super::program::{Ran, assert_outcome, measured, run, server};
use super::script::{Conduct, Fault};

fn trial(address: SocketAddr) -> Ran {
    trial_with(address, "")
}

fn trial_with(address: SocketAddr, flags: &str) -> Ran {
    let server = server(address);
    run(&format!(
        "trial {server} -Q 200 -l 200ms -t 30s --json - {flags}"
    ))
}

/// Prefixes that a server uses, with whose addresses all of its answers begin.
const GIVEN: &str = "--pref64 64:ff9b::/96";

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
fn server_without_usable_answers_is_refused_before_a_trial() {
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
        for flags in ["", GIVEN] {
            let ran = match conduct {
                Conduct::Always(Fault::Silent) => trial_with(dut.address, flags),
                _ => answered(|| trial_with(dut.address, flags)),
            };
            refused(&ran, dut.address, reason);
        }
    }
}

#[test]
fn closed_port_is_reported_at_once() {
    for at in [LOCALHOST, Ipv6Addr::LOCALHOST.into()] {
        let closed = ClosedPort::at(at);
        for flags in ["", GIVEN] {
            let ran = answered(|| trial_with(closed.address, flags));
            refused(&ran, closed.address, "nothing listens at");
        }
    }
}

#[test]
fn ended_connection_is_reported_at_once() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A web server answers so, and closes; the client may be gone.
            let _got = stream.read(&mut [0; 1024]);
            let _sent = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
    });
    let ended = |transport: &str| trial_with(address, &format!("{GIVEN} --transport {transport}"));
    refused(&ended("tls"), address, "or --transport tcp");
    refused(&ended("tcp"), address, "is --transport right?");
}

#[test]
fn answers_with_several_prefixes_are_valid() {
    const BOTH: &str = "64:ff9b::/96,2001:db8:64::/96";
    for (flags, pref64, others) in [
        ("", BOTH, 0),
        (
            "--pref64 2001:db8:64::/96,64:ff9b::/96",
            "2001:db8:64::/96,64:ff9b::/96",
            0,
        ),
        ("--pref64 any", "any", 0),
        (GIVEN, "64:ff9b::/96", 40),
    ] {
        let ran = measured(|| {
            let dut = Dut::start(LOCALHOST, Conduct::Always(Fault::ExtraAddress));
            answered(|| trial_with(dut.address, flags))
        });
        let json = assert_outcome(&ran, "passed");
        assert_eq!(json["conditions"]["pref64"], pref64, "{json}");
        assert_eq!(json["answers"]["valid"], 40, "{json}");
        assert_eq!(json["answers"]["other_addresses"], others, "{json}");
    }
}

/// The halves of the Tester are set up apart: here the authority of one, and the flags of the other.
#[test]
fn halves_that_disagree_are_refused_with_the_setting_to_correct() {
    let own_of_each_name = "2001:db8::/96";
    for (pref64, flags, setting) in [
        ("64:ff9b::/96", "--aaaa-share 50%", "--aaaa-share 50%"),
        ("64:ff9b::/96", "--aaaa-share 1", "--aaaa-share 100%"),
        (own_of_each_name, "", "--aaaa-share 0%"),
        ("2001:db8:64::/96", GIVEN, "give --pref64 2001:db8:64::/96"),
    ] {
        let dut = Dut::with_pref64(LOCALHOST, Conduct::Good, pref64.parse().unwrap());
        let ran = answered(|| trial_with(dut.address, flags));
        refused(&ran, dut.address, setting);
        assert!(dut.seen_in_trials() == 0, "{ran:?}");
    }
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
