//! Runs the built program on loopback: starts, queries, reloads and stops it like an operator.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;
#[path = "support/tls.rs"]
mod tls;

use std::fs::{self, Metadata, Permissions};
use std::io::{Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use rustix::process::Signal;
use tempfile::TempDir;

use support::{PATIENCE, PROGRAM, Server, free_port, stdout, value};

/// A query for `. A`, with ID 0x1234.
const QUERY: [u8; 17] = *b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01";

/// Starts a server with these lines added to its configuration.
fn start(more: &str, stderr: impl Fn() -> Stdio) -> Server {
    Server::start(&settings(more), stderr)
}

/// A configuration with an unused address as its upstream.
fn settings(more: &str) -> String {
    format!(
        "workers = 2\n{more}\n\
         [upstream]\nservers = [\"{}\"]\ntimeout = \"50ms\"\nattempts = 1\n",
        nobody()
    )
}

/// An unused address, now and later: bound to a socket that is connected to itself.
fn nobody() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    // Keeps the socket open until the tests end.
    mem::forget(socket);
    address
}

fn config_of(server: &Server) -> PathBuf {
    server.dir.path().join("dns64d.toml")
}

/// Sends a query over TCP; returns whether there was a response.
fn answers(server: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    answers_on(&mut stream)
}

/// Sends a query over a connection; returns whether there was a response without records.
fn answers_on(stream: &mut (impl Read + Write)) -> bool {
    stream.write_all(&[0, 17]).unwrap();
    stream.write_all(&QUERY).unwrap();
    let mut answer = [0; 2 + QUERY.len()];
    stream.read_exact(&mut answer).unwrap();
    answer[2..4] == QUERY[..2] && answer[4] & 0x80 != 0
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn datagrams_lost_at_the_sockets_are_counted() {
    let server = start("", Stdio::inherit);
    assert!(answers(server.dns));
    // No program listens at the upstream's address: the kernel reports ICMP errors, and the server
    // reads the counters of its sockets once a second.
    let deadline = MonotonicClock.now() + 120 * SECOND;
    let unreachable = || {
        let stats = stdout(&server.ctl(&["stats"]));
        value(&stats, "datagrams_lost.unreachable") != "0"
    };
    while !unreachable() {
        assert!(
            MonotonicClock.now() < deadline,
            "the ICMP error was not counted"
        );
        MonotonicClock.sleep(SECOND / 20);
    }
    server.ends();
}

#[test]
fn server_answers_reports_status_and_stops() {
    let with_metrics = || {
        let metrics = free_port();
        let text = format!("{}[metrics]\nlisten = \"{metrics}\"\n", settings(""));
        (text, metrics)
    };
    let (server, metrics) = Server::start_with(with_metrics, &[], Stdio::inherit);
    assert!(answers(server.dns));
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    udp.send_to(&QUERY, server.dns).unwrap();
    let mut answer = [0; 512];
    let (_, from) = udp.recv_from(&mut answer).unwrap();
    assert_eq!((from, &answer[..2]), (server.dns, &QUERY[..2]));

    let status = server.ctl(&["status"]);
    assert_eq!(value(&stdout(&status), "workers"), "2");
    assert_eq!(
        value(&stdout(&status), "pid"),
        server.child.id().to_string()
    );
    assert_eq!(value(&stdout(&status), "listen"), server.dns.to_string());
    let upstream = value(&stdout(&status), "upstream");
    assert!(
        upstream.ends_with(" up loss=0.0% failed=0.0%"),
        "{upstream}"
    );
    let stats = stdout(&server.ctl(&["stats"]));
    assert_eq!(value(&stats, "queries.udp"), "1");
    assert_eq!(value(&stats, "queries.tcp"), "1");
    assert_eq!(value(&stats, "tcp_accepted"), "1");
    let json = stdout(&server.ctl(&["stats", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["figures"]["queries.udp"], 1);
    let flush = server.ctl(&["flush"]);
    assert!(stdout(&flush).starts_with("flushed="), "{flush:?}");
    let flush = server.ctl(&["flush", "a..b"]);
    assert_eq!(flush.status.code(), Some(1), "{flush:?}");
    assert!(stderr(&flush).starts_with("dns64d: \"a..b\" is not a domain name: "));

    let mut page = String::new();
    let mut scraper = TcpStream::connect(metrics).unwrap();
    scraper.set_read_timeout(Some(PATIENCE)).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    scraper.read_to_string(&mut page).unwrap();
    assert!(
        page.contains("dns64d_queries_total{transport=\"udp\"} 1\n"),
        "{page}"
    );
    server.ends();
}

#[test]
fn simultaneous_queries_to_all_workers_share_one_upstream_query() {
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    upstream.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = upstream.local_addr().unwrap();
    let settings = format!("workers = 2\n[upstream]\nservers = [\"{address}\"]\nattempts = 1\n");
    let server = Server::start(&settings, Stdio::inherit);
    // The kernel selects the worker by the source port. Each worker gets at least one of 32
    // queries, except in one of 2^31 runs.
    let clients: Vec<_> = (0..32)
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    let begun = MonotonicClock.now();
    for client in &clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.send_to(&QUERY, server.dns).unwrap();
    }
    while value(&stdout(&server.ctl(&["stats"])), "queries.udp") != "32" {
        assert!(MonotonicClock.now() < begun + 120 * SECOND);
    }
    let mut questions = 0;
    let mut answer_one = || {
        let mut message = [0; 512];
        let from = upstream.recv_from(&mut message).ok()?.1;
        questions += 1;
        // A response without records, of the length of the query.
        message[2] |= 0x80;
        message[10..12].fill(0);
        upstream.send_to(&message[..QUERY.len()], from).ok()
    };
    answer_one().unwrap();
    for client in &clients {
        let mut answer = [0; 512];
        client.recv_from(&mut answer).unwrap();
        assert_eq!((&answer[..2], answer[3] & 0xf), (&QUERY[..2], 0));
    }
    upstream.set_nonblocking(true).unwrap();
    while answer_one().is_some() {}
    // If the machine stalled, the server may have retried: first after 376 ms.
    let stood_still = MonotonicClock.now() > begun + SECOND / 4;
    assert!(questions == 1 || stood_still, "{questions} questions");
    server.ends();
}

#[test]
fn invalid_configuration_keeps_the_old_one() {
    let server = start("", Stdio::null);
    let good = fs::read_to_string(config_of(&server)).unwrap();
    fs::write(
        config_of(&server),
        good.replace("workers = 2", "workers = no"),
    )
    .unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(1), "{reload:?}");
    let place = format!("{}:2:11: ", config_of(&server).display());
    assert!(stderr(&reload).contains(&place), "{reload:?}");
    assert!(server.notice().contains("RELOADING=1\nMONOTONIC_USEC="));
    assert!(server.notice().contains("READY=1"));
    assert!(answers(server.dns));

    let new = good.replace("workers = 2", "workers = 1");
    fs::write(
        config_of(&server),
        new.replace("timeout = \"50ms\"", "timeout = \"60ms\""),
    )
    .unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(0), "{reload:?}");
    assert!(stdout(&reload).contains("note: workers takes effect after a restart\n"));
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    server.signal(Signal::HUP);
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    assert!(answers(server.dns));
    assert_eq!(value(&stdout(&server.ctl(&["status"])), "workers"), "2");
    server.ends();
}

#[test]
fn certificate_is_reloaded_without_a_lost_query() {
    let folder = tempfile::tempdir().unwrap();
    let old = tls::issue(folder.path());
    let with_tls = || {
        let listen = free_port();
        let table = tls::table(folder.path(), listen);
        (format!("{}{table}", settings("")), listen)
    };
    // In the sandbox.
    let (server, listen) = Server::start_with(with_tls, &[], Stdio::inherit);
    let mut first = tls::connect(&old, listen);
    assert!(answers_on(&mut first));
    let mut again = tls::connect(&old, listen);
    assert!(answers_on(&mut again));
    let resumed = again.conn.handshake_kind();
    assert_eq!(resumed, Some(rustls::HandshakeKind::Resumed));

    // A key without its certificate changes nothing.
    let certificate = fs::read(folder.path().join("certificate.pem")).unwrap();
    let new = tls::issue(folder.path());
    let its_own = fs::read(folder.path().join("certificate.pem")).unwrap();
    fs::write(folder.path().join("certificate.pem"), certificate).unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(1), "{reload:?}");
    assert!(
        stderr(&reload).contains("give the key of the certificate"),
        "{reload:?}"
    );
    assert!(answers_on(&mut tls::connect(&old, listen)));

    fs::write(folder.path().join("certificate.pem"), its_own).unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(0), "{reload:?}");
    assert!(answers_on(&mut tls::connect(&new, listen)));
    assert!(
        answers_on(&mut first),
        "a connection of the old certificate ended"
    );
    let stats = stdout(&server.ctl(&["stats"]));
    assert_eq!(value(&stats, "queries.tls"), "5");
    assert_eq!(value(&stats, "tcp_closed.tls"), "0");
    for notice in ["RELOADING=1", "READY=1"].repeat(2) {
        assert!(server.notice().contains(notice));
    }
    server.ends();
}

/// A header of the PROXY protocol for a client in 192.0.2.0/24.
fn header(host: u8) -> Vec<u8> {
    let begin = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\xc0\0\x02";
    [&begin[..], &[host], b"\x7f\0\0\x01\x10\0\0\x35"].concat()
}

#[test]
fn client_behind_a_proxy_is_that_of_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let client = tls::issue(folder.path());
    let with_tls = || {
        let listen = free_port();
        let more = "proxy-protocol = [\"127.0.0.1\"]\nallow = [\"192.0.2.7\"]";
        let table = tls::table(folder.path(), listen);
        (format!("{}{table}", settings(more)), listen)
    };
    let (server, listen) = Server::start_with(with_tls, &[], Stdio::inherit);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    let rcodes = [7, 8].map(|host| {
        // Without a header.
        udp.send_to(&QUERY, server.dns).unwrap();
        udp.send_to(&[&header(host)[..], &QUERY].concat(), server.dns)
            .unwrap();
        let mut answer = [0; 512];
        udp.recv_from(&mut answer).unwrap();
        assert_eq!(answer[..2], QUERY[..2]);
        answer[3] & 0xf
    });
    assert_eq!(rcodes, [2, 5], "SERVFAIL without an upstream, and REFUSED");

    let connect = |first: &[u8]| {
        let mut stream = TcpStream::connect(server.dns).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(first).unwrap();
        stream
    };
    assert!(answers_on(&mut connect(&header(7))));
    let mut encrypted = tls::connect(&client, listen);
    encrypted.sock.write_all(&header(7)).unwrap();
    assert!(answers_on(&mut encrypted));
    for refused in [
        &header(8)[..],
        &[0, 17, 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let ended = connect(refused).read(&mut [0]);
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    let stats = stdout(&server.ctl(&["stats"]));
    for (name, expected) in [
        ("dropped.proxy", "2"),
        ("tcp_refused.proxy", "1"),
        ("tcp_refused.access", "1"),
        ("queries.tls", "1"),
    ] {
        assert_eq!(value(&stats, name), expected, "{name}");
    }
    server.ends();
}

#[test]
fn watchdog_is_notified_while_workers_run() {
    // Three notifications are expected within 3 s; workers iterate once a second.
    let limit = [("WATCHDOG_USEC", "3000000")];
    let (server, ()) = Server::start_with(|| (settings(""), ()), &limit, Stdio::null);
    for _ in 0..3 {
        assert_eq!(server.notice(), "WATCHDOG=1\n");
    }
    assert!(answers(server.dns));
}

#[test]
fn address_in_use_by_another_server_is_an_error() {
    let server = start("", Stdio::null);
    let dir = tempfile::tempdir().unwrap();
    let config = support::config(&dir, server.dns, &settings(""));
    let second = Command::new(PROGRAM).arg("--config").arg(config).output();
    let second = second.unwrap();
    assert_eq!(second.status.code(), Some(4), "{second:?}");
    let text = stderr(&second);
    assert!(
        text.contains(&format!("cannot listen at {}", server.dns)),
        "{text}"
    );
    assert!(text.contains("stop the server that has it"), "{text}");
    assert!(answers(server.dns));
}

#[test]
fn unwritable_log_does_not_stop_the_server() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full");
    let server = start("", || full().unwrap().into());
    server.signal(Signal::HUP);
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    assert!(answers(server.dns));
    server.ends();
}

#[test]
fn server_started_as_root_changes_to_configured_user() {
    if !rustix::process::geteuid().is_root() {
        // Without root there are no privileges to drop.
        return;
    }
    let server = start("user = \"nobody\"", Stdio::null);
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    for name in ["Uid:", "Gid:"] {
        assert!(line(&status, name).iter().all(|id| *id != "0"), "{status}");
    }
    let run = server.socket().parent().unwrap().metadata().unwrap();
    let socket = server.socket().metadata().unwrap();
    for (found, mode) in [(&run, 0o750), (&socket, 0o660)] {
        assert_eq!(found.mode() & 0o777, mode, "{:o}", found.mode());
        assert_eq!(found.uid().to_string(), line(&status, "Uid:")[0]);
        assert_eq!(found.gid().to_string(), line(&status, "Gid:")[0]);
    }
    assert!(answers(server.dns));
    assert_eq!(server.ctl(&["status"]).status.code(), Some(0));
}

/// The words after a name in a file of /proc.
fn line<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().skip(1).collect()
}

#[test]
fn running_threads_have_no_capabilities_and_filtered_system_calls() {
    let server = start("", Stdio::null);
    assert!(answers(server.dns));
    let sandbox = value(&stdout(&server.ctl(&["status"])), "sandbox");
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(&status, name), ["0000000000000000"], "{status}");
        }
        assert_eq!(line(&status, "NoNewPrivs:"), ["1"], "{status}");
        // 2 is a filter (proc_pid_status(5)).
        let filtered = line(&status, "Seccomp:") == ["2"];
        assert_eq!(
            filtered,
            sandbox.ends_with("seccomp"),
            "{sandbox}: {status}"
        );
        threads += 1;
    }
    // The main thread, two workers, the gateway, the log, and the threads for signals and for the
    // end of other threads.
    assert!(threads >= 6, "{threads}");
    server.ends();
}

#[test]
fn disabled_sandbox_is_reported() {
    let server = start("sandbox = \"off\"", Stdio::null);
    assert_eq!(value(&stdout(&server.ctl(&["status"])), "sandbox"), "off");
    let json = stdout(&server.ctl(&["status", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sandbox"], "off");
    assert_eq!(json["upstreams"][0]["loss_ppm"], 0);
    server.ends();
}

#[test]
fn reload_reads_only_the_directory_of_the_configuration() {
    let server = start("", Stdio::null);
    let config = config_of(&server);
    // Replaces the file, like editors do.
    let new = config.with_extension("new");
    fs::copy(&config, &new).unwrap();
    fs::rename(&new, &config).unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(0), "{reload:?}");

    let elsewhere = tempfile::tempdir().unwrap();
    let moved = elsewhere.path().join("dns64d.toml");
    fs::copy(&config, &moved).unwrap();
    fs::remove_file(&config).unwrap();
    symlink(&moved, &config).unwrap();
    let reload = server.ctl(&["reload"]);
    let sandbox = value(&stdout(&server.ctl(&["status"])), "sandbox");
    // A kernel without Landlock cannot separate directories.
    let confined = i32::from(sandbox.starts_with("landlock"));
    assert_eq!(reload.status.code(), Some(confined), "{reload:?}");
    assert_eq!(stderr(&reload).contains("ermission denied"), confined == 1);
    assert!(answers(server.dns));
}

/// Starts the server as root with `nobody` as its user and the control socket below `dir`. It must
/// fail.
fn refused_for_nobody(dir: &TempDir) -> String {
    let config = support::config(dir, free_port(), &settings("user = \"nobody\""));
    let mut server = Command::new(PROGRAM);
    server.arg("--config").arg(config).stderr(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut error = server.stderr.take().unwrap();
    let mut text = String::new();
    let mut octets = [0; 1024];
    // Reads until the process exits; a server that runs would not exit.
    while let len @ 1.. = error.read(&mut octets).unwrap() {
        text.push_str(&String::from_utf8_lossy(&octets[..len]));
        if text.contains("is serving") {
            server.kill().unwrap();
        }
    }
    assert_eq!(server.wait().unwrap().code(), Some(4), "{text}");
    text
}

#[test]
fn root_does_not_follow_symlinks_of_the_user() {
    if !rustix::process::geteuid().is_root() {
        // This needs root.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let target = dir.path().join("target");
    fs::create_dir(&target).unwrap();
    let untouched = target.metadata().unwrap();
    symlink(&target, dir.path().join("run")).unwrap();
    let error = refused_for_nobody(&dir);
    assert!(error.contains("make it writable for dns64d"), "{error}");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);

    let other = tempfile::tempdir().unwrap();
    fs::set_permissions(other.path(), Permissions::from_mode(0o755)).unwrap();
    let run = other.path().join("run");
    fs::create_dir(&run).unwrap();
    // Another user can write to the directory, and `nobody` cannot: root must not open the socket
    // there.
    let error = refused_for_nobody(&other);
    assert!(error.contains("make it writable for dns64d"), "{error}");
    symlink(&target, run.join("control.sock")).unwrap();
    let error = refused_for_nobody(&other);
    assert!(error.contains("is not a socket"), "{error}");

    let found = target.metadata().unwrap();
    let rights = |of: &Metadata| (of.uid(), of.gid(), of.mode());
    assert_eq!(rights(&found), rights(&untouched));
}

#[test]
fn unknown_user_is_reported_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let config = support::config(&dir, free_port(), &settings("user = \"no-such-user\""));
    let output = Command::new(PROGRAM).arg("--config").arg(config).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(stderr(&output).contains("useradd --system"), "{output:?}");
}

#[test]
fn upstream_is_queried_from_the_sources_that_the_host_has() {
    let (udp, tcp) = support::bind();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    let sources = ["127.0.0.5", "192.0.2.77", "127.0.0.6"];
    let settings = format!(
        "[upstream]\nservers = [\"{}\"]\nsource = {sources:?}\ninterface = \"lo\"\n",
        udp.local_addr().unwrap()
    );
    let server = Server::start(&settings, Stdio::inherit);
    let status = stdout(&server.ctl(&["status"]));
    assert_eq!(value(&status, "missing"), "192.0.2.77");
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&QUERY, server.dns).unwrap();
    let mut message = [0; 512];
    let (len, from) = udp.recv_from(&mut message).unwrap();
    let is_source = |from: SocketAddr| sources.contains(&from.ip().to_string().as_str());
    assert!(is_source(from), "{from}");
    // Truncated: the same over TCP.
    message[2] |= 0x82;
    udp.send_to(&message[..len], from).unwrap();
    let (_, from) = tcp.accept().unwrap();
    assert!(is_source(from), "{from}");
    server.ends();
}

#[test]
fn responses_are_written_to_a_dnstap_socket_with_the_network_of_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tap.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let log = format!("[log]\ndnstap = {path:?}\nanonymise = true\n");
    let server = Server::start(&format!("{}{log}", settings("")), Stdio::inherit);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // READY with the type of the content, and the same in return.
    let mut control = [0; 42];
    stream.read_exact(&mut control).unwrap();
    assert!(control.ends_with(b"protobuf:dnstap.Dnstap"));
    control[11] = 1;
    stream.write_all(&control).unwrap();
    assert!(answers(server.dns));
    stream.read_exact(&mut control).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut frame).unwrap();
    let has = |octets: &[u8]| frame.windows(octets.len()).any(|part| part == octets);
    // Address and port of the client, and the start of the response.
    assert!(has(&[0x22, 4, 127, 0, 0, 0, 0x30, 0]), "{frame:?}");
    assert!(has(&QUERY[..2]) && has(&QUERY[4..6]), "{frame:?}");
    server.ends();
}
