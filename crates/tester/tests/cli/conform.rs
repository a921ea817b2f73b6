//! Conformance of servers that get no verdict, or not all.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use super::dut::{ClosedPort, LOCALHOST};
use super::program::run;

/// Where an authority can listen: a free port of an address that no other test uses, so that none takes it first.
fn unused(host: u8) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 53, host), 0)).unwrap();
    socket.local_addr().unwrap()
}

/// A server that forwards each query, or fails it. It ends with the test.
fn server(upstream: Option<SocketAddr>) -> SocketAddr {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut octets = [0; 1232];
        while let Ok((mut length, from)) = socket.recv_from(&mut octets) {
            if let Some(upstream) = upstream {
                let other = UdpSocket::bind((LOCALHOST, 0)).unwrap();
                other.send_to(&octets[..length], upstream).unwrap();
                length = other.recv(&mut octets).unwrap();
            } else {
                // A response with SERVFAIL.
                octets[2] |= 0x80;
                octets[3] = 2;
            }
            let _ = socket.send_to(&octets[..length], from);
        }
    });
    address
}

#[test]
fn server_that_cannot_be_judged_is_an_error_of_the_environment() {
    let listen = unused(1);
    let silent = ClosedPort::at(LOCALHOST);
    for (address, remedy) in [
        (silent.address, "is it running"),
        (server(None), "let it forward that zone to the authority"),
        (server(Some(listen)), "is DNS64 on for this client"),
    ] {
        let ran = run(&format!("conform -s {address} --authority-listen {listen}"));
        assert_eq!(ran.code, Some(4), "{}", ran.stderr);
        assert!(ran.stderr.contains(remedy), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
}

/// A server that synthesises as the names of the first case want it, and ends after so many queries.
fn mortal(upstream: SocketAddr, queries: usize) -> SocketAddr {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut octets = [0; 1232];
        for _ in 0..queries {
            let (length, from) = socket.recv_from(&mut octets).unwrap();
            let other = UdpSocket::bind((LOCALHOST, 0)).unwrap();
            other.send_to(&octets[..length], upstream).unwrap();
            let mut length = other.recv(&mut octets).unwrap();
            let mut end = 12;
            while octets[end] != 0 {
                end += usize::from(octets[end]) + 1;
            }
            end += 5;
            let is_aaaa = octets[end - 4..end] == [0, 28, 0, 1];
            if is_aaaa && octets[6..8] == [0, 0] {
                let is_other = octets[13..].starts_with(b"other");
                let ipv4 = [20, 0, 0, if is_other { 171 } else { 170 }];
                // The name of the question, AAAA, IN, a TTL of 60 s, 16 octets.
                let head = [0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16];
                let prefix = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
                length = end + 28;
                octets[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
                octets[end..length].copy_from_slice(&[&head[..], &prefix, &ipv4].concat());
            }
            socket.send_to(&octets[..length], from).unwrap();
        }
    });
    address
}

#[test]
fn verdicts_of_a_server_that_crashes_are_kept() {
    let listen = unused(2);
    let address = mortal(listen, 40);
    let ran = run(&format!(
        "conform -s {address} --authority-listen {listen} --case rfc6147 --seed 1 --format json"
    ));
    let report = ran.json();
    let verdicts = |verdict: &str| report["must"][verdict].as_u64().unwrap();
    assert!(verdicts("passed") > 0, "{report}");
    assert!(verdicts("not_known") > 0, "{report}");
    // Of the cases that were under way.
    assert!(verdicts("failed") > 0, "{report}");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
}

#[test]
fn server_that_ends_before_the_attacks_is_given_up_at_once() {
    let listen = unused(3);
    let address = mortal(listen, 40);
    let ran = run(&format!(
        "conform -s {address} --authority-listen {listen} --case rfc8020 --seed 1 --attacks --format json"
    ));
    let report = ran.json();
    let attacks = &report["attacks"];
    assert!(attacks["questions"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(attacks["classes"].as_array().unwrap().len(), 0, "{report}");
}

#[test]
fn unknown_cases_and_profiles_are_refused() {
    for (line, reason) in [
        (
            "conform --dut dns64d --case rfc9999",
            "no case has \"rfc9999\"",
        ),
        (
            "conform --dut dns64d --case /none.toml",
            "cannot read cases",
        ),
        ("conform --dut none", "no profile \"none\""),
        (
            "conform --dut dns64d --dut-set colour=1",
            "has no setting \"colour\"",
        ),
        (
            "conform --dut dns64d --load 0",
            "at least 1 query per second",
        ),
        ("conform", "--dut"),
    ] {
        let ran = run(line);
        assert!(ran.stderr.contains(reason), "{line}: {}", ran.stderr);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
    }
}
