//! Take-over: a new process gets the listening sockets of a running one, and serves instead of it. Both have the same
//! sockets, so nothing that waits in them is lost. The connection stays open until the new process serves; if it is
//! closed before, the old one continues as if nothing had happened.

use std::fmt;
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, Pauses, SECOND};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{ANSWER_LEN_MAX, ANSWER_TIME, Answer, AskError, SocketFile, connect, send};
use crate::cache::{Page, Place, RECORD_MAX, RECORDS};
use crate::inherited::{self, Inherited};

/// Asks for the cache; any other octet says that the new process serves.
const CACHE: u8 = b'c';

/// Time for the cache: enough for a million responses. The server serves meanwhile.
const CACHE_NS: Nanos = 10 * SECOND;

/// The request, without its end of line.
pub(super) const REQUEST: &str = r#"{"command":"take-over"}"#;

/// What another process can take.
pub struct Offer {
    /// The listening sockets; none if it cannot take over. They are held until that process serves or fails.
    pub sockets: Weak<Vec<OwnedFd>>,
    /// The records of the cache, see [`crate::cache::Cache::records`].
    pub cache: Box<dyn Fn(Place) -> Page>,
    /// Is called once the other process serves.
    pub replaced: Box<dyn Fn()>,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").finish_non_exhaustive()
    }
}

/// Passes the sockets and the cache on; returns whether the other process serves, as soon as this is known.
///
/// # Errors
///
/// It did not get them.
pub(super) async fn give(
    mut stream: tokio::net::UnixStream,
    sockets: &[OwnedFd],
    cache: &impl Fn(Place) -> Page,
) -> io::Result<bool> {
    inherited::send(&stream, sockets)?;
    let answer = Answer::Sockets {
        sockets: sockets.len(),
        cache: RECORDS,
    };
    send(&mut stream, &answer).await?;
    let (mut reader, mut writer) = stream.split();
    let records = async {
        let mut from = Some(Place::default());
        while let Some(place) = from {
            let (records, next) = cache(place);
            writer.write_all(&records).await?;
            from = next;
        }
        writer.write_u32(0).await
    };
    if reader.read_u8().await? != CACHE {
        return Ok(true);
    }
    // It may have no time for the whole cache.
    tokio::select! {
        served = reader.read_u8() => return Ok(served.is_ok()),
        sent = records => sent?,
    }
    Ok(reader.read_u8().await.is_ok())
}

/// A server that serves until this process does.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    file: PathBuf,
    /// Whether the records of its cache are known here.
    has_records: bool,
}

impl Predecessor {
    /// Gets the listening sockets of the server whose control socket is at `path`.
    ///
    /// # Errors
    ///
    /// No server answers, the user has no permission, or the server refuses.
    pub fn ask(path: &Path) -> Result<(Self, Inherited), AskError> {
        let mut stream = connect(path)?;
        let mut exchange = || -> io::Result<(Answer, Inherited)> {
            stream.set_read_timeout(Some(2 * ANSWER_TIME))?;
            stream.write_all(format!("{REQUEST}\n").as_bytes())?;
            let (line, sockets) = inherited::receive(&stream, ANSWER_LEN_MAX)?;
            Ok((serde_json::from_slice(&line)?, sockets))
        };
        let file = path.to_owned();
        match exchange() {
            Ok((Answer::Refused { message }, _)) => Err(AskError::Refused {
                path: file,
                message,
            }),
            Ok((answer, sockets)) => {
                let has_records = matches!(answer, Answer::Sockets { cache: RECORDS, .. });
                let server = Self {
                    stream,
                    file,
                    has_records,
                };
                Ok((server, sockets))
            }
            Err(reason) => Err(AskError::NoAnswer { path: file, reason }),
        }
    }

    /// Passes the records of its cache to `restore`, for at most 10 s, with pauses:
    /// its own work, too, ceases when the socket is full.
    ///
    /// # Errors
    ///
    /// The server ends, or sends something else.
    pub fn records(&self, mut restore: impl FnMut(&[u8])) -> io::Result<()> {
        if !self.has_records {
            return Ok(());
        }
        (&self.stream).write_all(&[CACHE])?;
        let mut stream = BufReader::with_capacity(RECORD_MAX, &self.stream);
        let mut record = Vec::new();
        let until = MonotonicClock.now() + CACHE_NS;
        let mut pauses = Pauses::begin();
        while MonotonicClock.now() < until {
            let mut len = [0; 4];
            stream.read_exact(&mut len)?;
            match usize::try_from(u32::from_be_bytes(len)) {
                Ok(0) => break,
                Ok(len @ ..=RECORD_MAX) => record.resize(len, 0),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            stream.read_exact(&mut record)?;
            restore(&record);
            pauses.rest();
        }
        Ok(())
    }

    /// Tells the server that this process serves, so that it ends. Returns the file of its control socket.
    pub fn replace(mut self) -> SocketFile {
        // It may have ended already.
        let _ = self.stream.write_all(b"\n");
        SocketFile::new(&self.file)
    }
}
