//! The control socket: one request and one answer, each a line of JSON, over a Unix socket.
//!
//! - [`Request`], [`Answer`], [`Status`]: the messages;
//! - [`Socket`]: the listening socket, and its file;
//! - [`serve`]: the server side, [`ask`]: the client side.

mod request;
mod status;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::cache::Place;

#[doc(inline)]
pub use request::Request;
#[doc(inline)]
pub use status::{
    DriverStatus, ForwardStatus, InterfaceStatus, PrefixStatus, Status, UpstreamStatus,
};

/// Default path of the socket (FHS 3.0 section 3.15).
pub const SOCKET_DEFAULT: &str = "/run/dns64d/control.sock";

/// Maximum length of a request in octets: a name of 255 octets, each of which may be written `\DDD` with the backslash
/// escaped in JSON, and the rest of the line.
pub const REQUEST_LEN_MAX: u64 = 2048;

/// Maximum length of an answer in octets: all figures and all notes on a configuration.
const ANSWER_LEN_MAX: u64 = 1 << 20;

/// Maximum number of requests in progress; others wait.
const REQUESTS_MAX: usize = 8;

/// Maximum number of connections whose request is incomplete or waits: as many as scrapes of the metrics page. A
/// further connection closes the oldest.
const WAITING_MAX: usize = 64;

/// Maximum number of requests that wait in the kernel: the default of the Rust library.
const BACKLOG: i32 = 128;

/// Timeout for receiving the request.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Timeout for the answer, on either side; a reload reads one file.
const ANSWER_TIME: Duration = Duration::from_secs(15);

/// Pause after the kernel refused to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The state.
    Status(Box<Status>),
    /// The counters, by name.
    Stats {
        /// The counters.
        figures: BTreeMap<String, u64>,
    },
    /// The cache was flushed.
    Flushed {
        /// Number of removed entries.
        entries: usize,
    },
    /// The configuration was reloaded.
    Reloaded {
        /// Notes on the configuration.
        notes: Vec<String>,
        /// Keys whose new values take effect only after a restart.
        needs_restart: Vec<String>,
    },
    /// Lines `KEY=VALUE ...`.
    Lines {
        /// The lines.
        lines: Vec<String>,
        /// Where to continue, if there are more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Place>,
    },
    /// The request was refused.
    Refused {
        /// The reason.
        message: String,
    },
}

/// Text for people and scripts: a line `NAME=VALUE` for each value.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::Stats { figures } => figures
                .iter()
                .try_for_each(|(name, value)| writeln!(f, "{name}={value}")),
            Self::Flushed { entries } => writeln!(f, "flushed={entries}"),
            Self::Reloaded {
                notes,
                needs_restart,
            } => {
                writeln!(f, "reloaded")?;
                notes
                    .iter()
                    .try_for_each(|note| writeln!(f, "note: {note}"))?;
                needs_restart
                    .iter()
                    .try_for_each(|key| writeln!(f, "note: {key} takes effect after a restart"))
            }
            Self::Lines { lines, .. } => lines.iter().try_for_each(|line| writeln!(f, "{line}")),
            Self::Refused { message } => writeln!(f, "{message}"),
        }
    }
}

/// Reason why a control socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another server answers at this path.
    #[error(
        "the control socket {} is in use by another server; stop that server, or set another path",
        .0.display()
    )]
    InUse(PathBuf),
    /// A file of another kind exists at this path.
    #[error("{} is not a socket; remove it, or set another path for the control socket", .0.display())]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error(
        "cannot open the control socket {}: {reason}; create its directory and make it writable for dns64d, or \
         set another path",
        path.display()
    )]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        reason: io::Error,
    },
}

/// The listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket; dropping it removes the file.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The process may have lost access to the directory; the next start removes the file.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Socket {
    /// Listens at `path`, with access for owner and group only, as far as the umask permits. Removes the file of an
    /// earlier server, and creates the directory if only its last component is missing.
    ///
    /// # Errors
    ///
    /// Another server uses the path, a file of another kind exists there, or the system refuses.
    pub fn open(path: &Path) -> Result<Self, SocketError> {
        remove_stale(path)?;
        let directory = path.parent().unwrap_or(path);
        // If it is still missing, the next call reports it.
        let _ = DirBuilder::new().mode(0o750).create(directory);
        let listener = listen(path).map_err(|reason| SocketError::System {
            path: path.to_owned(),
            reason,
        })?;
        Ok(Self {
            listener,
            file: SocketFile(path.to_owned()),
        })
    }

    /// Splits this into the socket and its file.
    pub fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Sets the mode before the file exists, so that the file gets it less the umask (unix(7)): a later call with the path
/// could affect another file.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o660))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket file of a server that no longer runs.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let system = |reason| SocketError::System {
        path: path.to_owned(),
        reason,
    };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::NoSocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(system)
        }
        Err(error) => Err(system(error)),
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
    }
}

/// Serves requests as long as the runtime runs; `sink` forwards each request to the thread that answers it. Needs a
/// [`tokio::task::LocalSet`].
///
/// # Errors
///
/// Tokio cannot use the socket.
pub async fn serve(
    listener: UnixListener,
    sink: impl Fn(Request, oneshot::Sender<Answer>) + 'static,
) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let sink = Rc::new(sink);
    let places = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut waiting = VecDeque::<AbortHandle>::new();
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            // Usually no descriptors are left.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        waiting.retain(|connection| !connection.is_finished());
        if waiting.len() == WAITING_MAX
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.abort();
        }
        let (sink, places) = (Rc::clone(&sink), Arc::clone(&places));
        let connection = tokio::task::spawn_local(async move {
            let Ok(Ok(line)) = timeout(REQUEST_TIME, read(&mut stream)).await else {
                return;
            };
            // Fails only if the semaphore is closed, which never happens.
            let Ok(place) = places.acquire_owned().await else {
                return;
            };
            // A task of its own, which is never aborted.
            tokio::task::spawn_local(async move {
                // The client may have disconnected.
                let _ = answer(stream, &line, &*sink).await;
                drop(place);
            });
        });
        waiting.push_back(connection.abort_handle());
    }
}

/// Reads a line, or its first part up to the maximum length.
async fn read(stream: &mut tokio::net::UnixStream) -> io::Result<String> {
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(stream.take(REQUEST_LEN_MAX));
    reader.read_line(&mut line).await?;
    Ok(line)
}

async fn answer(
    mut stream: tokio::net::UnixStream,
    line: &str,
    sink: &impl Fn(Request, oneshot::Sender<Answer>),
) -> io::Result<()> {
    let answer = match Request::parse(line) {
        Ok(request) => {
            let (sender, receiver) = oneshot::channel();
            sink(request, sender);
            match timeout(ANSWER_TIME, receiver).await {
                Ok(Ok(answer)) => answer,
                _ => refused("the server is shutting down or overloaded"),
            }
        }
        Err(message) => refused(message),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    timeout(ANSWER_TIME, stream.write_all(&line)).await?
}

/// The answer to a refused request.
pub fn refused(message: impl Into<String>) -> Answer {
    Answer::Refused {
        message: message.into(),
    }
}

/// An answer of lines.
pub fn lines(lines: impl IntoIterator<Item = String>) -> Answer {
    Answer::Lines {
        lines: lines.into_iter().collect(),
        next: None,
    }
}

/// Reason why no answer was received from a server.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server listens at the path.
    #[error(
        "no server answers at {}: {reason}; start dns64d, or name its socket with --socket",
        path.display()
    )]
    NoServer {
        /// The socket.
        path: PathBuf,
        /// Error of the system.
        reason: io::Error,
    },
    /// The user has no permission to connect.
    #[error(
        "no permission to use {}; use sudo, or become a member of the socket's group (`ls -l` shows it)",
        .0.display()
    )]
    Denied(PathBuf),
    /// The answer is invalid.
    #[error(
        "the server at {} gave no answer: {reason}; see its log",
        path.display()
    )]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// The fault.
        reason: io::Error,
    },
}

/// Sends a request to the server whose socket is at `path`.
///
/// # Errors
///
/// No server answers, the user has no permission, or the answer is invalid.
pub fn ask(path: &Path, request: &Request) -> Result<Answer, AskError> {
    let stream = UnixStream::connect(path).map_err(|reason| {
        let path = path.to_owned();
        match reason.kind() {
            io::ErrorKind::PermissionDenied => AskError::Denied(path),
            _ => AskError::NoServer { path, reason },
        }
    })?;
    exchange(&stream, request).map_err(|reason| AskError::NoAnswer {
        path: path.to_owned(),
        reason,
    })
}

fn exchange(mut stream: &UnixStream, request: &Request) -> io::Result<Answer> {
    // The server's own timeout expires first.
    stream.set_read_timeout(Some(2 * ANSWER_TIME))?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_LEN_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;

    use expect_test::expect;

    use super::*;

    /// Serves one socket in a separate thread, which ends with the test process.
    fn served(path: &Path) -> SocketFile {
        let (listener, file) = Socket::open(path).unwrap().into_parts();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let serving = serve(listener, |request, answer| {
                let said = match request {
                    Request::Flush {
                        name: None,
                        rtype: None,
                    } => Answer::Flushed { entries: 3 },
                    Request::Flush {
                        name: Some(name), ..
                    } => refused(name),
                    // Sends no answer.
                    _ => return,
                };
                answer.send(said).unwrap();
            });
            tokio::task::LocalSet::new().block_on(&runtime, serving)
        });
        file
    }

    #[test]
    fn requests_can_be_written_by_hand() {
        let parse = |text: &str| serde_json::from_str::<Request>(text).map_err(|e| e.to_string());
        assert_eq!(parse(r#"{"command":"status"}"#), Ok(Request::Status));
        let flush = |name: Option<&str>| {
            Ok(Request::Flush {
                name: name.map(str::to_owned),
                rtype: None,
            })
        };
        assert_eq!(parse(r#"{"command":"flush"}"#), flush(None));
        assert_eq!(
            parse(r#"{"command":"flush","name":"a.b"}"#),
            flush(Some("a.b"))
        );
        assert!(parse(r#"{"command":"halt"}"#).unwrap_err().contains("halt"));
        assert!(parse(r#"{"command":"flush","nam":"a.b"}"#).is_err());
        let line = serde_json::to_string(&Request::Flush {
            name: None,
            rtype: None,
        })
        .unwrap();
        assert_eq!(line, r#"{"command":"flush"}"#);
    }

    #[test]
    fn answers_are_readable_by_people_and_programs() {
        let stats = Answer::Stats {
            figures: [("queries.udp".to_owned(), 3), ("coalesced".to_owned(), 0)].into(),
        };
        expect![[r#"
            coalesced=0
            queries.udp=3
        "#]]
        .assert_eq(&stats.to_string());
        let reloaded = Answer::Reloaded {
            notes: vec!["a note".into()],
            needs_restart: vec!["workers".into()],
        };
        expect![[r#"
            reloaded
            note: a note
            note: workers takes effect after a restart
        "#]]
        .assert_eq(&reloaded.to_string());
        for answer in [stats, reloaded, refused("no")] {
            let line = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
        }
    }

    #[test]
    fn request_over_the_socket_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let file = served(&path);
        // The umask of the test may remove more permissions.
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o117, 0, "{mode:o}");
        let flush = |name: Option<&str>| {
            let name = name.map(str::to_owned);
            ask(&path, &Request::Flush { name, rtype: None }).unwrap()
        };
        assert_eq!(flush(None), Answer::Flushed { entries: 3 });
        let long = "x".repeat(3000);
        assert_eq!(flush(Some("a.b")), refused("a.b"));
        let Answer::Refused { message } = flush(Some(&long)) else {
            panic!("an unterminated request was accepted");
        };
        assert!(message.starts_with("no such request"), "{message}");
        let dropped = ask(&path, &Request::Status).unwrap();
        assert_eq!(
            dropped,
            refused("the server is shutting down or overloaded")
        );
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn idle_connections_delay_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let _file = served(&path);
        let connect = |_| UnixStream::connect(&path).unwrap();
        let silent: Vec<_> = (0..WAITING_MAX).map(connect).collect();
        let flush = Request::Flush {
            name: None,
            rtype: None,
        };
        let flushed = Answer::Flushed { entries: 3 };
        assert_eq!(ask(&path, &flush).unwrap(), flushed);
        // The oldest connection was closed; the others may still send their requests.
        assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
        for peer in &silent[1..] {
            assert_eq!(exchange(peer, &flush).unwrap(), flushed);
        }
    }

    #[test]
    fn socket_file_is_replaced_only_if_no_server_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let error = ask(&path, &Request::Status).unwrap_err().to_string();
        assert!(error.contains("start dns64d"), "{error}");
        let denied = AskError::Denied(path.clone()).to_string();
        assert!(denied.ends_with("control.sock; use sudo, or become a member of the socket's group (`ls -l` shows it)"), "{denied}");
        // Binds and closes, and leaves the file.
        drop(UnixListener::bind(&path).unwrap());
        let first = Socket::open(&path).unwrap();
        let second = Socket::open(&path);
        assert!(matches!(second, Err(SocketError::InUse(_))), "{second:?}");
        drop(first);
        std::fs::write(&path, "a file").unwrap();
        let third = Socket::open(&path);
        assert!(matches!(third, Err(SocketError::NoSocket(_))), "{third:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
        let new = dir.path().join("new");
        let fourth = Socket::open(&new.join("control.sock")).unwrap();
        assert_eq!(new.metadata().unwrap().permissions().mode() & 0o027, 0);
        drop(fourth);
        let nowhere = dir.path().join("no/where/control.sock");
        let error = Socket::open(&nowhere).unwrap_err().to_string();
        assert!(error.contains("create its directory"), "{error}");
    }
}
