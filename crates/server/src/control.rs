//! The control socket: one request and one answer, each a line of JSON, over a Unix socket.
//!
//! - [`Request`], [`Answer`], [`Status`]: the messages;
//! - [`Socket`]: the listening socket, and its file;
//! - [`serve`]: the server side, [`ask`]: the client side;
//! - `take_over`: passes the listening sockets to another process.

mod request;
mod status;
mod take_over;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::cache::Place;

#[doc(inline)]
pub use request::Request;
#[doc(inline)]
pub use status::{
    DriverStatus, ForwardStatus, InterfaceStatus, PrefixStatus, Status, UpstreamStatus,
};
#[doc(inline)]
pub use take_over::{Offer, Predecessor};

/// Default path of the socket (FHS 3.0 section 3.15).
pub const SOCKET_DEFAULT: &str = "/run/dns64d/control.sock";

/// Maximum length of a request in octets: a name of 255 octets, each of which may be written `\DDD` with the backslash
/// escaped in JSON, and the rest of the line.
pub const REQUEST_LEN_MAX: u64 = 2048;

/// Maximum length of an answer in octets: all figures and all notes on a configuration.
const ANSWER_LEN_MAX: usize = 1 << 20;

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
    /// The listening sockets of the server, which come with this line.
    Sockets {
        /// Their number.
        sockets: usize,
        /// Version of the records of its cache.
        cache: u16,
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
            Self::Sockets { sockets, .. } => writeln!(f, "sockets={sockets}"),
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

/// The listening socket. Dropping it removes its file, unless that belongs to another process.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: Option<SocketFile>,
}

/// The file of a socket; dropping it removes the file, unless another has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            inode: inode(path),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.inode.is_some() && self.inode == inode(&self.path) {
            // The process may have lost access to the directory; the next start replaces the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The device and the number of a file.
fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl Socket {
    /// Listens at `path`, with access for owner and group only, as far as the umask permits. Replaces the file of an
    /// earlier server, and creates the directory if only its last component is missing.
    ///
    /// # Errors
    ///
    /// Another server uses the path, a file of another kind exists there, or the system refuses.
    pub fn open(path: &Path) -> Result<Self, SocketError> {
        check_unused(path)?;
        let directory = path.parent().unwrap_or(path);
        // If it is still missing, the next call reports it.
        let _ = DirBuilder::new().mode(0o750).create(directory);
        let listener = listen(path).map_err(|reason| SocketError::System {
            path: path.to_owned(),
            reason,
        })?;
        Ok(Self {
            listener,
            file: Some(SocketFile::new(path)),
        })
    }

    /// The socket of another process, which has the file, too.
    pub fn inherited(listener: UnixListener) -> Self {
        Self {
            listener,
            file: None,
        }
    }

    /// The socket.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Splits this into the socket and its file.
    pub fn into_parts(self) -> (UnixListener, Option<SocketFile>) {
        (self.listener, self.file)
    }
}

/// Binds the socket to a name of this process, shorter than most, and renames that: `path` always names a socket. Sets the
/// mode before the file exists, so that the file gets it less the umask (unix(7)): a later call with the path could affect
/// another file.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o660))?;
    let own = path.with_file_name(format!(".{}", std::process::id()));
    // It may be left of a killed process with the same ID.
    let _ = std::fs::remove_file(&own);
    rustix::net::bind(&socket, &SocketAddrUnix::new(&own)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    std::fs::rename(&own, path).inspect_err(|_| drop(std::fs::remove_file(&own)))?;
    Ok(socket.into())
}

/// Checks that no server uses the path; the file of one that no longer runs may be there.
fn check_unused(path: &Path) -> Result<(), SocketError> {
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
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(system(error)),
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
    }
}

/// Serves requests as long as the runtime runs; `sink` forwards each request to the thread that answers it; another
/// process may take the `offer`. Needs a [`tokio::task::LocalSet`].
///
/// # Errors
///
/// Tokio cannot use the socket.
pub async fn serve(
    listener: UnixListener,
    offer: Offer,
    sink: impl Fn(Request, oneshot::Sender<Answer>) + 'static,
) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    // Locked while another process takes over.
    let server = Rc::new((Mutex::new(offer), sink));
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
        let (server, places) = (Rc::clone(&server), Arc::clone(&places));
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
                let (offer, sink) = &*server;
                // The client may have disconnected.
                let _ = match line.trim_end() == take_over::REQUEST {
                    true => hand_over(stream, offer).await,
                    false => answer(stream, &line, sink).await,
                };
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
    send(&mut stream, &answer).await
}

/// Lets another process take over, one at a time.
async fn hand_over(mut stream: tokio::net::UnixStream, offer: &Mutex<Offer>) -> io::Result<()> {
    let Ok(offer) = offer.try_lock() else {
        return send(&mut stream, &refused("another process is taking over")).await;
    };
    let sockets = offer.sockets.upgrade();
    let Some(sockets) = sockets.filter(|sockets| !sockets.is_empty()) else {
        let reason =
            "it is shutting down, or uses af-xdp or driver-cache: stop it, then start another";
        return send(&mut stream, &refused(reason)).await;
    };
    if take_over::give(stream, &sockets, &offer.cache).await? {
        (offer.replaced)();
    }
    Ok(())
}

async fn send(stream: &mut tokio::net::UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
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
    /// The server refuses.
    #[error("the server at {} refused: {message}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The reason.
        message: String,
    },
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
    exchange(&connect(path)?, request).map_err(|reason| AskError::NoAnswer {
        path: path.to_owned(),
        reason,
    })
}

fn connect(path: &Path) -> Result<UnixStream, AskError> {
    UnixStream::connect(path).map_err(|reason| {
        let path = path.to_owned();
        match reason.kind() {
            io::ErrorKind::PermissionDenied => AskError::Denied(path),
            _ => AskError::NoServer { path, reason },
        }
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
    BufReader::new(stream.take(ANSWER_LEN_MAX as u64)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests;
