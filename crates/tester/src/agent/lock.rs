//! Lock that admits one agent at a time on a host.
//!
//! The lock is an abstract Unix socket (unix(7)): the kernel releases it however its holder ends. Each network
//! namespace has its own, because a namespace can be a host. A process that finds it taken connects and reads one line
//! that names the holder. Any user of the host can take it: it prevents mistakes, not attacks.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use rustix::net::Shutdown;

use super::handshake::AgentRefusal;
use super::trouble::printable;

/// The lock of a host, held until dropped.
#[derive(Debug)]
pub struct HostLock(Arc<UnixListener>);

impl HostLock {
    /// Takes the lock of this host; others are told `who` holds it. Waits up to two seconds, because an agent that lost
    /// its controller takes a moment to end.
    ///
    /// # Errors
    ///
    /// Another process holds it, which the error names, or the socket cannot be created.
    pub fn take(who: &str) -> Result<Self, AgentRefusal> {
        Self::take_named(NAME, who, RETRIES)
    }

    /// Few retries, because each wakes the holder, which may be measuring.
    fn take_named(name: &str, who: &str, retries: u32) -> Result<Self, AgentRefusal> {
        let mut last = Self::try_take(name, who);
        for _ in 0..retries {
            if !matches!(last, Err(AgentRefusal::InUse { .. })) {
                break;
            }
            MonotonicClock.sleep(PAUSE);
            last = Self::try_take(name, who);
        }
        last
    }

    fn try_take(name: &str, who: &str) -> Result<Self, AgentRefusal> {
        let address = SocketAddr::from_abstract_name(name);
        match address.and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => {
                let listener = Arc::new(listener);
                tell(Arc::clone(&listener), format!("{}\n", printable(who)));
                Ok(Self(listener))
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => Err(AgentRefusal::InUse {
                by: holder(name).unwrap_or_else(|_| UNKNOWN.to_owned()),
            }),
            Err(error) => Err(AgentRefusal::Other {
                reason: format!("cannot take the lock of the host, the socket @{name}: {error}"),
            }),
        }
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // Wakes the accepting thread, which then closes the socket.
        let _ = rustix::net::shutdown(&*self.0, Shutdown::Both);
    }
}

/// Sends the line to each connection, on a thread that ends with the listener.
fn tell(listener: Arc<UnixListener>, line: String) {
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            match connection {
                // An error is ignored: the peer does not read. A line fits into the buffer of any socket.
                Ok(mut connection) => drop(connection.write_all(line.as_bytes())),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => return,
            }
        }
    });
}

/// Asks the holder of the lock for its line.
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
const UNKNOWN: &str = "an unidentified process: find it with `ss -xlp src @dns64bench-agent`";
const RETRIES: u32 = 4;
const PAUSE: Nanos = SECOND / 2;
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Longer than any description of a controller.
const LINE_MAX: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(of: &str) -> String {
        format!("dns64bench-test-{of}-{}", std::process::id())
    }

    #[test]
    fn second_agent_learns_the_holder_of_the_lock() {
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
    fn silent_holder_keeps_the_lock() {
        let name = name("silent");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let silent = UnixListener::bind_addr(&address).unwrap();
        let closes = std::thread::spawn(move || drop(silent.accept()));
        let error = HostLock::take_named(&name, "bob", 0).unwrap_err();
        closes.join().unwrap();
        assert!(
            error.to_string().contains("an unidentified process"),
            "{error}"
        );
    }

    #[test]
    fn line_breaks_are_removed_from_the_line() {
        let name = name("line");
        let _first = HostLock::take_named(&name, "a\nb\x1b[2J", 0).unwrap();
        let error = HostLock::take_named(&name, "bob", 0).unwrap_err();
        assert_eq!(error.to_string(), "the host is in use by a?b?[2J");
    }
}
