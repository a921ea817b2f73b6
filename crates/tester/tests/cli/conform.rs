//! Conformance of servers that get no verdict.

use std::net::{SocketAddr, UdpSocket};

use super::dut::{ClosedPort, LOCALHOST};
use super::program::run;

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
    let free = UdpSocket::bind((LOCALHOST, 0)).and_then(|it| it.local_addr());
    let listen = free.unwrap();
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
