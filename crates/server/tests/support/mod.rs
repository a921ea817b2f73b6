//! The built program, started on loopback as an operator would.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64d");

/// Longer than anything here takes on a busy machine: what does not come by then does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How often ports are chosen again because another program was faster to take one.
const ATTEMPTS: u32 = 20;

/// How often a server that is starting is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A server that runs; dropping it kills it.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) dir: TempDir,
    pub(crate) dns: SocketAddr,
    notices: UnixDatagram,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts it with this configuration, which begins at the top level and leaves out `listen` and
    /// `[control]`, and waits until it is ready.
    pub(crate) fn start(settings: &str, stderr: impl Fn() -> Stdio) -> Self {
        Self::start_with(|| (settings.to_owned(), ()), &[], stderr).0
    }

    /// The same with settings that name ports as well, which are chosen again for each attempt, and with
    /// variables of the environment.
    pub(crate) fn start_with<T>(
        settings: impl Fn() -> (String, T),
        environment: &[(&str, &str)],
        stderr: impl Fn() -> Stdio,
    ) -> (Self, T) {
        for _ in 0..ATTEMPTS {
            let (settings, ports) = settings();
            if let Some(server) = Self::attempt(&settings, stderr(), environment) {
                return (server, ports);
            }
        }
        panic!("it does not start, at {ATTEMPTS} ports");
    }

    /// `None` if it ended because it does not get what it needs, which is a port here.
    fn attempt(settings: &str, stderr: Stdio, environment: &[(&str, &str)]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let notices = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        // Whoever it becomes.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path().join("notify"), Permissions::from_mode(0o666)).unwrap();
        let dns = free_port();
        let config = config(&dir, dns, settings);
        let child = Command::new(PROGRAM)
            .arg("--config")
            .arg(&config)
            .env("NOTIFY_SOCKET", dir.path().join("notify"))
            .envs(environment.iter().copied())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut server = Self {
            child,
            dir,
            dns,
            notices,
        };
        let mut notice = [0; 1024];
        server.notices.set_read_timeout(Some(POLL)).unwrap();
        let len = loop {
            if let Ok(len) = server.notices.recv(&mut notice) {
                break len;
            }
            if let Some(status) = server.child.try_wait().unwrap() {
                assert_eq!(status.code(), Some(4), "it ended by itself");
                return None;
            }
        };
        assert!(notice[..len].starts_with(b"READY=1"));
        server.notices.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(server)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.dir)
    }

    /// What it tells its service manager next.
    pub(crate) fn notice(&self) -> String {
        let mut notice = [0; 1024];
        let len = self.notices.recv(&mut notice).unwrap();
        String::from_utf8(notice[..len].to_vec()).unwrap()
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> Output {
        let mut ctl = Command::new(PROGRAM);
        ctl.arg("ctl").arg("--socket").arg(self.socket());
        ctl.args(arguments).output().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// It is told to end, and does so in good order.
    pub(crate) fn ends(mut self) {
        self.signal(Signal::TERM);
        assert!(self.notice().contains("STOPPING=1"));
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.socket().exists());
    }
}

/// Its control socket, in a directory that it has to make.
fn socket(dir: &TempDir) -> PathBuf {
    dir.path().join("run/control.sock")
}

/// Writes a configuration for a server at this address.
pub(crate) fn config(dir: &TempDir, dns: SocketAddr, settings: &str) -> PathBuf {
    let path = dir.path().join("dns64d.toml");
    let socket = socket(dir);
    let text = format!("listen = [\"{dns}\"]\n{settings}\n[control]\nsocket = {socket:?}\n");
    fs::write(&path, text).unwrap();
    path
}

/// Sockets for datagrams and connections at one port of loopback.
pub(crate) fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            return (socket, listener);
        }
    }
    panic!("no port that is free for both");
}

/// An address that nobody listens at yet.
pub(crate) fn free_port() -> SocketAddr {
    bind().0.local_addr().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The value of `NAME=VALUE`.
pub(crate) fn value(text: &str, name: &str) -> String {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}=")));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}
