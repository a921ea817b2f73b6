//! Starts the built program on loopback, like an operator.

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

/// Time limit of every operation, longer than any takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Number of attempts to find free ports, in case another program takes one first.
const ATTEMPTS: u32 = 20;

/// Polling interval while a server starts.
const POLL: Duration = Duration::from_millis(20);

/// A running server; it is killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) dir: TempDir,
    pub(crate) dns: SocketAddr,
    notices: UnixDatagram,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server with this configuration, which begins at the top level and has neither
    /// `listen` nor `[control]`, and waits until it is ready.
    pub(crate) fn start(settings: &str, stderr: impl Fn() -> Stdio) -> Self {
        Self::start_with(|| (settings.to_owned(), ()), &[], stderr).0
    }

    /// Like `start`, with settings that contain ports, which are chosen again for each attempt, and
    /// with environment variables.
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
        panic!("the server does not start; {ATTEMPTS} ports tried");
    }

    /// Starts a server; `None` if it exits because a port is in use.
    fn attempt(settings: &str, stderr: Stdio, environment: &[(&str, &str)]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let notices = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        // Readable and writable for any user that the server changes to.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path().join("notify"), Permissions::from_mode(0o666)).unwrap();
        let dns = free_port();
        config(&dir, dns, settings);
        let child = command(&dir)
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
                assert_eq!(status.code(), Some(4), "the server exited");
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

    /// The next notification to its service manager.
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

    /// Stops the server with SIGTERM and checks that it exits cleanly.
    pub(crate) fn ends(mut self) {
        self.signal(Signal::TERM);
        assert!(self.notice().contains("STOPPING=1"));
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.socket().exists());
    }
}

/// Its control socket, in a directory that the server must create.
fn socket(dir: &TempDir) -> PathBuf {
    dir.path().join("run/control.sock")
}

/// A server with the configuration in this directory.
pub(crate) fn command(dir: &TempDir) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("--config").arg(dir.path().join("dns64d.toml"));
    command.env("NOTIFY_SOCKET", dir.path().join("notify"));
    command
}

/// Writes a configuration for a server at this address.
pub(crate) fn config(dir: &TempDir, dns: SocketAddr, settings: &str) -> PathBuf {
    let path = dir.path().join("dns64d.toml");
    let socket = socket(dir);
    let text = format!("listen = [\"{dns}\"]\n{settings}\n[control]\nsocket = {socket:?}\n");
    fs::write(&path, text).unwrap();
    path
}

/// UDP and TCP sockets with the same port on loopback.
pub(crate) fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            return (socket, listener);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

/// An unused address on loopback.
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
