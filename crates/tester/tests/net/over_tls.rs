//! A running server that is asked over TLS, on the loopback interface.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use dns64bench::machine::process;

use crate::accounts::{answers, assert_accounted};
use crate::busy::until;
use crate::machine::{Run, command, turn};
use crate::servers::QUERIES;

/// A program that runs until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        process::kill(&mut self.0);
    }
}

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn running_server_is_asked_over_tls() {
    let _turn = turn();
    let keys = tempfile::tempdir().unwrap();
    let made = Command::new("unbound-control-setup")
        .arg("-d")
        .arg(keys.path())
        .output();
    assert!(made.unwrap().status.success());
    let (authority_port, port) = (free_port(), free_port());
    let directory = keys.path().display();
    let config = keys.path().join("unbound.conf");
    fs::write(
        &config,
        format!(
            "server:\n  interface: 127.0.0.1@{port}\n  tls-port: {port}\n  module-config: \"dns64 iterator\"\n  \
             tls-service-key: {directory}/unbound_server.key\n  tls-service-pem: {directory}/unbound_server.pem\n  \
             dns64-prefix: 2001:db8:64::/96\n  do-not-query-localhost: no\n  username: \"\"\n  chroot: \"\"\n  \
             pidfile: \"\"\n  use-syslog: no\n  incoming-num-tcp: 100\n  local-zone: test. nodefault\n\
             forward-zone:\n  name: dns64perf.test\n  forward-addr: 127.0.0.1@{authority_port}\n"
        ),
    )
    .unwrap();
    let listen = format!("authority --listen 127.0.0.1:{authority_port}");
    let _authority = Running::start(&mut command(&listen));
    let _server = Running::start(Command::new("unbound").arg("-d").arg("-c").arg(&config));
    let subject = format!("trial -s 127.0.0.1:{port} --transport tls -c 4");
    let run = until("has a server answered in time", || {
        let run = Run::of(&format!("{subject} --uncertified -Q 1k -l 300ms -t 5s"));
        // It has not started yet.
        (run.code != Some(4)).then_some(run)
    });
    assert_accounted(&run.json);
    assert_eq!(run.number("/queries_due"), QUERIES);
    assert_eq!(run.text("/backend"), "tls");
    assert_eq!(run.number("/connections/before_trial"), 4);
    assert_eq!(run.number("/connections/tls_failed/connections"), 0);
    let others = ["wrong", "empty", "truncated"].map(|class| answers(&run.json, class));
    assert_eq!(others, [0; 3], "{:#}", run.json);
    assert!(answers(&run.json, "valid") > 0, "{:#}", run.json);
}
