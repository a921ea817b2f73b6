//! Runs the built program with XDP programs, between two network namespaces. This file tests the
//! cache in the driver: what the driver answers, what it passes to the sockets, and that nothing
//! remains after the process ends. `af_xdp` tests AF_XDP sockets, `law` that both answer the `frames` that sockets
//! answer.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod af_xdp;
mod frames;
mod law;

use std::cell::Cell;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use dns64_transport::xdp::STEER_OBJECT;
use dns64_transport::xdp::program::{Mode, Object};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64d");

/// Time limit of every operation, longer than any takes on a busy machine.
const PATIENCE_S: u64 = 60;

const SERVER: &str = "10.64.0.1:53";

/// In the namespace of the server.
const UPSTREAM: &str = "127.0.0.1:5300";

/// A query for `www.example. AAAA`, and the same with a cookie.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03wWw\x07eXample\0\0\x1c\0\x01";
const COOKIE: &[u8] = b"\x56\x78\x01\0\0\x01\0\0\0\0\0\x01\x03www\x07example\0\0\x1c\0\x01\
    \0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08clientck";

fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until a condition holds.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = MonotonicClock.now() + PATIENCE_S * SECOND;
    while !so() {
        assert!(MonotonicClock.now() < end, "{what}");
        MonotonicClock.sleep(SECOND / 20);
    }
}

/// Two namespaces with a link, which are deleted when dropped.
struct Lab {
    server: String,
    client: String,
    dir: TempDir,
    child: Option<Child>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

impl Lab {
    fn new(kind: impl fmt::Display) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let name = |end| format!("dns64d-{kind}-{end}-{}", std::process::id());
        let lab = Self {
            server: name("s"),
            client: name("c"),
            dir,
            child: None,
        };
        let (server, client) = (&lab.server, &lab.client);
        for name in [server, client] {
            run(&format!("ip netns add {name}"));
        }
        run(&format!(
            "ip link add s0 address 02:00:00:00:00:01 netns {server} type veth \
             peer name c0 address 02:00:00:00:00:02 netns {client}"
        ));
        for (name, device, address) in [
            (server, "s0", "10.64.0.1/24"),
            (client, "c0", "10.64.0.2/24"),
        ] {
            run(&format!("ip -n {name} address add {address} dev {device}"));
            run(&format!("ip -n {name} link set {device} up"));
            run(&format!(
                "ip netns exec {name} ethtool -K {device} rx-vlan-hw-parse off rx-vlan-stag-hw-parse off \
                 tx-vlan-hw-insert off tx-vlan-stag-hw-insert off"
            ));
            run(&format!("ip -n {name} link set lo up"));
        }
        lab
    }

    fn write_config(&self, mode: Mode, more: &str) {
        self.write_config_with("driver-cache", mode, UPSTREAM, more);
    }

    /// Writes a configuration with a program at the interface, under this key.
    fn write_config_with(&self, key: &str, mode: Mode, upstream: &str, more: &str) {
        let own = format!(
            "listen = [\"{SERVER}\"]\n{key} = [{{ interface = \"s0\", mode = \"{mode}\" }}]\n"
        );
        self.write_settings(&own, upstream, more);
    }

    fn write_settings(&self, own: &str, upstream: &str, more: &str) {
        let socket = self.dir.path().join("run/control.sock");
        let text = format!(
            "{own}workers = 1\nuser = \"nobody\"\n\
             [upstream]\nservers = [\"{upstream}\"]\n[control]\nsocket = {socket:?}\n{more}"
        );
        fs::write(self.dir.path().join("dns64d.toml"), text).unwrap();
    }

    fn start(&mut self) {
        let config = self.dir.path().join("dns64d.toml");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.server, PROGRAM, "--config"]);
        // ip(8) executes the program in its place.
        self.child = Some(command.arg(config).spawn().unwrap());
        until("the server does not start", || {
            self.ctl("status").contains("sandbox=")
        });
    }

    fn ctl(&self, what: &str) -> String {
        let mut ctl = Command::new(PROGRAM);
        let socket = self.dir.path().join("run/control.sock");
        let output = ctl
            .arg("ctl")
            .arg("--socket")
            .arg(socket)
            .arg(what)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn figure(&self, name: &str) -> u64 {
        let stats = self.ctl("stats");
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap().parse().unwrap()
    }

    /// Whether a program is attached to the server's interface.
    fn is_attached(&self) -> bool {
        run(&format!("ip -n {} -details link show s0", self.server)).contains("xdp")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.as_ref().unwrap().id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    fn ends(&mut self) {
        self.child.take().unwrap().wait().unwrap();
    }
}

fn enter(name: &str) {
    let namespace = File::open(format!("/run/netns/{name}")).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Answers all queries at an address of a namespace: A with one record, all other types with none.
fn serve(name: &str, address: &'static str, asked: Arc<AtomicUsize>) {
    let name = name.to_owned();
    let (sender, ready) = std::sync::mpsc::channel();
    thread::spawn(move || {
        enter(&name);
        let socket = UdpSocket::bind(address).unwrap();
        sender.send(()).unwrap();
        let mut message = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut message) {
            asked.fetch_add(1, Ordering::Relaxed);
            let name_len = message[12..len]
                .iter()
                .position(|octet| *octet == 0)
                .unwrap()
                + 1;
            let question_end = 12 + name_len + 4;
            let mut reply = message[..question_end].to_vec();
            reply[2] |= 0x80;
            reply[10..12].fill(0);
            if message[question_end - 3] == 1 {
                reply[7] = 1;
                reply.extend(b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\x08\x08");
                reply.extend(number(&message[12..]).unwrap_or(0x0808).to_be_bytes());
            } else {
                reply[9] = 1;
                reply.extend(b"\0\0\x06\0\x01\0\0\x01\x2c\0\x16\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\x01\x2c");
            }
            socket.send_to(&reply, from).unwrap();
        }
    });
    ready.recv().unwrap();
}

/// The number in a name that consists of `n` and a number.
fn number(name: &[u8]) -> Option<u16> {
    let label = name.get(1..=usize::from(*name.first()?))?;
    let digits = std::str::from_utf8(label.get(1..)?).ok()?;
    digits.parse().ok()
}

/// Sends a query; checks the ID of the response, and returns the response with TTL 0 in its record.
fn ask(socket: &UdpSocket, query: &[u8]) -> Vec<u8> {
    socket.send_to(query, SERVER).unwrap();
    let mut answer = [0; 1500];
    let (len, from) = socket.recv_from(&mut answer).unwrap();
    assert_eq!(from.to_string(), SERVER);
    assert_eq!((&answer[..2], answer[7]), (&query[..2], 1));
    let record = 12 + 13 + 4;
    assert_eq!(
        answer[12..record - 4],
        query[12..record - 4],
        "the case of the question"
    );
    let ttl = u32::from_be_bytes(answer[record + 6..record + 10].try_into().unwrap());
    assert!((200..=300).contains(&ttl), "{ttl}");
    answer[record + 6..record + 10].fill(0);
    answer[..len].to_vec()
}

/// A client that counts its queries.
struct Client {
    socket: UdpSocket,
    sent: Cell<u64>,
}

impl Client {
    fn ask(&self, query: &[u8]) -> Vec<u8> {
        self.sent.set(self.sent.get() + 1);
        ask(&self.socket, query)
    }

    /// Sends queries until the driver answers. The response to a query from an earlier second is
    /// passed to the driver only when it is requested again.
    fn warm(&self, lab: &Lab) -> Vec<u8> {
        let mut answer = self.ask(QUERY);
        until("entries of the driver", || {
            answer = self.ask(QUERY);
            lab.ctl("status").contains(" entries=1\n")
        });
        answer
    }

    /// Number of responses of the driver once all queries are counted; checks the responses too.
    fn answers_of_driver(&self, lab: &Lab) -> u64 {
        let sent = self.sent.get();
        until("queries", || lab.figure("queries.udp") == sent);
        let figures = ["responses.NOERROR", "query_types.AAAA"];
        assert_eq!(figures.map(|name| lab.figure(name)), [sent; 2]);
        lab.figure("driver_answers")
    }
}

/// The driver answers and counts repeated queries; it passes queries with a cookie to the sockets.
fn answers(lab: &Lab, client: &Client) {
    let first = client.warm(lab);
    let before = client.answers_of_driver(lab);
    for _ in 0..3 {
        assert_eq!(client.ask(QUERY), first);
    }
    assert_eq!(client.answers_of_driver(lab), before + 3);
    client.ask(COOKIE);
    assert_eq!(client.answers_of_driver(lab), before + 3);
}

/// A flush and a reload remove the responses from the driver.
fn withdraws(lab: &Lab, mode: Mode, client: &Client, asked: &AtomicUsize) {
    let (before, questions) = (client.answers_of_driver(lab), asked.load(Ordering::Relaxed));
    lab.ctl("flush");
    let first = client.ask(QUERY);
    assert!(
        asked.load(Ordering::Relaxed) > questions,
        "upstreams are asked again"
    );
    assert_eq!(client.answers_of_driver(lab), before);
    client.warm(lab);

    let before = client.answers_of_driver(lab);
    lab.write_config(mode, "[rate-limit]\nresponses-per-second = 1000\n");
    lab.ctl("reload");
    let status = lab.ctl("status");
    assert!(
        status.contains(&format!("driver_cache=s0 {mode} idle=rate-limit\n")),
        "{status}"
    );
    client.ask(QUERY);
    assert_eq!(client.answers_of_driver(lab), before);
    lab.write_config(mode, "");
    lab.ctl("reload");
    assert_eq!(client.ask(QUERY), first);
    assert_eq!(client.answers_of_driver(lab), before + 1);
}

fn lives(mode: Mode) {
    let mut lab = Lab::new(mode);
    let asked = Arc::new(AtomicUsize::new(0));
    serve(&lab.server, UPSTREAM, Arc::clone(&asked));
    enter(&lab.client);
    // Native programs at both ends of the link send frames to each other.
    let mut peer = Object::load(STEER_OBJECT).unwrap();
    let _pass = (mode == Mode::Native).then(|| peer.attach("pass", "c0", mode).unwrap());
    let socket = UdpSocket::bind("10.64.0.2:0").unwrap();
    let patience = Duration::from_secs(PATIENCE_S);
    socket.set_read_timeout(Some(patience)).unwrap();

    lab.write_config(mode, "");
    lab.start();
    let status = lab.ctl("status");
    assert!(
        status.contains(&format!("driver_cache=s0 {mode} entries=0\n")),
        "{status}"
    );
    let client = Client {
        socket,
        sent: Cell::new(0),
    };
    answers(&lab, &client);
    withdraws(&lab, mode, &client, &asked);
    for signal in [Signal::KILL, Signal::TERM] {
        assert!(lab.is_attached());
        lab.signal(signal);
        lab.ends();
        until("the program outlives the process", || !lab.is_attached());
        if signal == Signal::KILL {
            lab.start();
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn driver_answers_until_the_process_ends() {
    for mode in [Mode::Native, Mode::Generic] {
        // A separate thread, because it joins a namespace.
        thread::spawn(move || lives(mode)).join().unwrap();
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn missing_or_unsuitable_interface_prevents_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dns64d.toml");
    for (interface, reason) in [
        ("nowhere0", "there is no interface nowhere0"),
        ("lo", "interface lo has no Ethernet address"),
    ] {
        let text = format!(
            "listen = [\"127.0.0.1:5399\"]\ndriver-cache = [\"{interface}\"]\n\
             [upstream]\nservers = [\"192.0.2.1\"]\n[control]\nsocket = \"off\"\n"
        );
        fs::write(&path, text).unwrap();
        let output = Command::new(PROGRAM)
            .arg("--config")
            .arg(&path)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
}
