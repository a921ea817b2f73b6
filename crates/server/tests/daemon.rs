//! The built program on loopback: started, asked, reloaded and ended as an operator would.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64d");

/// Longer than anything here takes: what does not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A query for `. A`, with ID 0x1234.
const QUERY: [u8; 17] = *b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01";

/// A server that runs; dropping it kills it.
struct Server {
    child: Child,
    dir: TempDir,
    notices: UnixDatagram,
    dns: SocketAddr,
    metrics: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts it with these lines added to its configuration, and waits until it is ready.
    fn start(more: &str, stderr: Stdio) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let notices = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        // Whoever it becomes.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path().join("notify"), Permissions::from_mode(0o666)).unwrap();
        notices.set_read_timeout(Some(PATIENCE)).unwrap();
        let (dns, metrics) = (free_port(), free_port());
        let config = config(&dir, dns, metrics, more);
        let child = Command::new(PROGRAM)
            .arg("--config")
            .arg(&config)
            .env("NOTIFY_SOCKET", dir.path().join("notify"))
            .stderr(stderr)
            .spawn()
            .unwrap();
        let server = Self {
            child,
            dir,
            notices,
            dns,
            metrics,
        };
        assert!(server.notice().contains("READY=1"));
        server
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("dns64d.toml")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    /// What it tells its service manager next.
    fn notice(&self) -> String {
        let mut notice = [0; 1024];
        let len = self.notices.recv(&mut notice).unwrap();
        String::from_utf8(notice[..len].to_vec()).unwrap()
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let mut ctl = Command::new(PROGRAM);
        ctl.arg("ctl").arg("--socket").arg(self.socket());
        ctl.args(arguments).output().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Asks over TCP and says whether an answer came.
    fn answers(&self) -> bool {
        let mut stream = TcpStream::connect(self.dns).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[0, 17]).unwrap();
        stream.write_all(&QUERY).unwrap();
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        head[2..4] == QUERY[..2] && head[4] & 0x80 != 0
    }

    fn ends(mut self) {
        self.signal(Signal::TERM);
        assert!(self.notice().contains("STOPPING=1"));
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.socket().exists());
    }
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Writes a configuration with an upstream that nobody is.
fn config(dir: &TempDir, dns: SocketAddr, metrics: SocketAddr, more: &str) -> PathBuf {
    let path = dir.path().join("dns64d.toml");
    let socket = dir.path().join("control.sock");
    let text = format!(
        "listen = [\"{dns}\"]\nworkers = 2\n{more}\n\
         [upstream]\nservers = [\"{}\"]\ntimeout = \"50ms\"\nattempts = 1\n\
         [metrics]\nlisten = \"{metrics}\"\n[control]\nsocket = {socket:?}\n",
        free_port()
    );
    fs::write(&path, text).unwrap();
    path
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The value of `NAME=VALUE`.
fn value(text: &str, name: &str) -> String {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}=")));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}

#[test]
fn it_serves_says_how_it_is_and_ends() {
    let server = Server::start("", Stdio::inherit());
    assert!(server.answers());
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
    assert!(stderr(&flush).starts_with("dns64d: \"a..b\" is no name: "));

    let mut page = String::new();
    let mut scraper = TcpStream::connect(server.metrics).unwrap();
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
fn a_bad_configuration_leaves_the_old_one_in_force() {
    let server = Server::start("", Stdio::null());
    let good = fs::read_to_string(server.config()).unwrap();
    fs::write(server.config(), good.replace("workers = 2", "workers = no")).unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(1), "{reload:?}");
    let place = format!("{}:2:11: ", server.config().display());
    assert!(stderr(&reload).contains(&place), "{reload:?}");
    assert!(server.notice().contains("RELOADING=1\nMONOTONIC_USEC="));
    assert!(server.notice().contains("READY=1"));
    assert!(server.answers());

    let new = good.replace("workers = 2", "workers = 1");
    fs::write(
        server.config(),
        new.replace("timeout = \"50ms\"", "timeout = \"60ms\""),
    )
    .unwrap();
    let reload = server.ctl(&["reload"]);
    assert_eq!(reload.status.code(), Some(0), "{reload:?}");
    assert!(stdout(&reload).contains("note: workers counts after a restart\n"));
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    server.signal(Signal::HUP);
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    assert!(server.answers());
    assert_eq!(value(&stdout(&server.ctl(&["status"])), "workers"), "2");
    server.ends();
}

#[test]
fn an_address_is_not_shared_with_another_server() {
    let server = Server::start("", Stdio::null());
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, server.dns, free_port(), "");
    let second = Command::new(PROGRAM).arg("--config").arg(config).output();
    let second = second.unwrap();
    assert_eq!(second.status.code(), Some(4), "{second:?}");
    let text = stderr(&second);
    assert!(
        text.contains(&format!("cannot listen at {}", server.dns)),
        "{text}"
    );
    assert!(text.contains("stop the server that has it"), "{text}");
    assert!(server.answers());
}

#[test]
fn a_log_that_cannot_be_written_hurts_nobody() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let server = Server::start("", full.into());
    server.signal(Signal::HUP);
    assert!(server.notice().contains("RELOADING=1"));
    assert!(server.notice().contains("READY=1"));
    assert!(server.answers());
    server.ends();
}

#[test]
fn root_becomes_the_user_of_the_configuration() {
    if !rustix::process::geteuid().is_root() {
        // There is nothing to give up then.
        return;
    }
    let server = Server::start("user = \"nobody\"", Stdio::null());
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for name in ["Uid:", "Gid:"] {
        assert!(line(name).iter().all(|id| id != "0"), "{status}");
    }
    assert_eq!(line("CapEff:"), ["0000000000000000"]);
    assert!(server.answers());
    assert_eq!(server.ctl(&["status"]).status.code(), Some(0));
}

#[test]
fn a_user_that_does_not_exist_is_named_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, free_port(), free_port(), "user = \"no-such-user\"");
    let output = Command::new(PROGRAM).arg("--config").arg(config).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(stderr(&output).contains("useradd --system"), "{output:?}");
}
