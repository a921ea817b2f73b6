//! One agent at a time on a host.
//!
//! The lock is an abstract Unix socket (unix(7)): the kernel frees it however its holder ends, and each network
//! namespace has its own, which is right because a namespace can be a host. Whoever finds it taken connects and
//! is told in one line who has it. Any user of the host can take it: it prevents mistakes and not malice.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use rustix::net::Shutdown;

use super::handshake::Refusal;
use super::trouble::printable;

/// The host is this process' until it is dropped.
#[derive(Debug)]
pub struct HostLock(Arc<UnixListener>);

impl HostLock {
    /// Takes the lock of this host; others are told `who` has it. Waits for two seconds: an agent that has lost its
    /// controller takes a moment to end.
    ///
    /// # Errors
    ///
    /// Somebody else has it, who is named; or there can be no socket.
    pub fn take(who: &str) -> Result<Self, Refusal> {
        Self::take_named(NAME, who, RETRIES)
    }

    /// Few retries, because each wakes the holder, which may be measuring.
    fn take_named(name: &str, who: &str, retries: u32) -> Result<Self, Refusal> {
        let mut last = Self::try_take(name, who);
        for _ in 0..retries {
            if !matches!(last, Err(Refusal::InUse { .. })) {
                break;
            }
            MonotonicClock.sleep(PAUSE);
            last = Self::try_take(name, who);
        }
        last
    }

    fn try_take(name: &str, who: &str) -> Result<Self, Refusal> {
        let address = SocketAddr::from_abstract_name(name);
        match address.and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => {
                let listener = Arc::new(listener);
                tell(Arc::clone(&listener), format!("{}\n", printable(who)));
                Ok(Self(listener))
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => Err(Refusal::InUse {
                by: holder(name).unwrap_or_else(|_| UNKNOWN.to_owned()),
            }),
            Err(error) => Err(Refusal::Other {
                reason: format!("cannot take the lock of the host, the socket @{name}: {error}"),
            }),
        }
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // Wakes the thread that accepts, which closes the socket then.
        let _ = rustix::net::shutdown(&*self.0, Shutdown::Both);
    }
}

/// Answers each connection with the line, on a thread that ends with the listener.
fn tell(listener: Arc<UnixListener>, line: String) {
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            match connection {
                // Whoever does not read it does not want it; a line fits any socket's buffer.
                Ok(mut connection) => drop(connection.write_all(line.as_bytes())),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => return,
            }
        }
    });
}

/// What the holder of the lock says.
fn holder(name: &str) -> io::Result<String> {
    let holder = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    holder.set_read_timeout(Some(ANSWER_LIMIT))?;
    let mut line = String::new();
    BufReader::new(holder.take(LINE_MAX)).read_line(&mut line)?;
    match printable(line.trim()) {
        line if line.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        line => Ok(line),
    }
}

const NAME: &str = "dns64bench-agent";
const UNKNOWN: &str =
    "a process that does not say who it is: look for it with `ss -xlp src @dns64bench-agent`";
const RETRIES: u32 = 4;
const PAUSE: Nanos = SECOND / 2;
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Longer than any name of a controller.
const LINE_MAX: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> String {
        format!("dns64bench-test-{of}-{}", std::process::id())
    }

    #[test]
    fn the_second_one_is_told_who_was_first() {
        let name = name("second");
        let first = HostLock::take_named(&name, "alice@ctl, PID 7", 0).unwrap();
        for _ in 0..2 {
            let second = HostLock::take_named(&name, "bob", 0).unwrap_err();
            assert_eq!(second.to_string(), "the host is in use by alice@ctl, PID 7");
        }
        drop(first);
        let freed = HostLock::take_named(&name, "bob", RETRIES);
        assert!(freed.is_ok(), "{freed:?}");
    }

    #[test]
    fn a_silent_holder_is_a_holder() {
        let name = name("silent");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let silent = UnixListener::bind_addr(&address).unwrap();
        let closes = std::thread::spawn(move || drop(silent.accept()));
        let error = HostLock::take_named(&name, "bob", 0).unwrap_err();
        closes.join().unwrap();
        assert!(error.to_string().contains("does not say who"), "{error}");
    }

    #[test]
    fn a_line_is_one_line() {
        let name = name("line");
        let _first = HostLock::take_named(&name, "a\nb\x1b[2J", 0).unwrap();
        let error = HostLock::take_named(&name, "bob", 0).unwrap_err();
        assert_eq!(error.to_string(), "the host is in use by a?b?[2J");
    }
}
