//! The socket of a connection, in clear text or with TLS. No call waits.

use std::io::{self, IoSlice, Read as _, Write as _};

use rustls::Connection;
use tokio::net::TcpStream;

/// Octets per read.
const CHUNK_LEN: usize = 16 * 1024;

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    socket: TcpStream,
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    tls: Box<Connection>,
    /// Number of octets whose records are not sent completely.
    sealed: usize,
}

impl Stream {
    /// A connection in clear text, or with a TLS session that begins.
    pub(super) fn new(socket: TcpStream, tls: Option<Connection>) -> Self {
        // Messages are sent without delay; a socket that refuses this option still works.
        let _ = socket.set_nodelay(true);
        let session = tls.map(|tls| Session {
            tls: Box::new(tls),
            sealed: 0,
        });
        Self { socket, session }
    }

    /// Whether a TLS handshake has not ended.
    pub(super) fn is_handshaking(&self) -> bool {
        let tls = self.session.as_ref().map(|session| &session.tls);
        tls.is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether [`Stream::write`] can send something, if there are octets to send or not.
    pub(super) fn wants_write(&self, has_octets: bool) -> bool {
        match &self.session {
            None => has_octets,
            Some(Session { tls, .. }) => tls.wants_write() || has_octets && !tls.is_handshaking(),
        }
    }

    /// Waits until the TLS handshake has ended.
    ///
    /// # Errors
    ///
    /// It failed.
    pub(super) async fn establish(&mut self) -> io::Result<()> {
        let mut early = Vec::new();
        while self.is_handshaking() {
            if self.wants_write(false) {
                self.writable().await?;
                unless_blocked(self.write(&[]))?;
            } else {
                self.readable().await?;
                if !self.read(&mut early)? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        match early.is_empty() {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Waits until [`Stream::read`] may have data.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Waits until [`Stream::write`] may have room.
    pub(super) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Appends received data, if there is any. `false`: the other end sends no more.
    ///
    /// # Errors
    ///
    /// The connection is reset, or its TLS session has failed.
    pub(super) fn read(&mut self, inbox: &mut Vec<u8>) -> io::Result<bool> {
        let Some(session) = &mut self.session else {
            let mut chunk = [0; CHUNK_LEN];
            return match unless_blocked(self.socket.try_read(&mut chunk))? {
                None => Ok(true),
                Some(len) => {
                    inbox.extend_from_slice(&chunk[..len]);
                    Ok(len > 0)
                }
            };
        };
        let read = unless_blocked(session.tls.read_tls(&mut Socket(&self.socket)))?;
        let Some(len) = read else {
            return Ok(true);
        };
        let taken = session.take(inbox);
        // The next records of a handshake, or the reason of its end.
        let sent = session.flush(&self.socket);
        let is_open = taken?;
        sent?;
        Ok(is_open && len > 0)
    }

    /// Sends octets, and returns how many of them are sent completely. The next call must begin with the others.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`], or the connection is reset.
    pub(super) fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return self.socket.try_write(octets);
        };
        if session.sealed == 0 && !session.tls.is_handshaking() {
            session.sealed = session.tls.writer().write(octets)?;
        }
        session.flush(&self.socket)?;
        if session.tls.wants_write() || session.sealed == 0 && !octets.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(std::mem::take(&mut session.sealed))
    }

    /// Announces the end of a TLS session, if the socket has room for it.
    pub(super) fn close(&mut self) {
        if let Some(session) = &mut self.session {
            session.tls.send_close_notify();
            // The connection ends anyway.
            let _ = session.flush(&self.socket);
        }
    }
}

impl Session {
    /// Appends the contents of the received records. `false`: the other end has ended the session.
    fn take(&mut self, inbox: &mut Vec<u8>) -> io::Result<bool> {
        let state = self.tls.process_new_packets().map_err(io::Error::other)?;
        let len = state.plaintext_bytes_to_read() as u64;
        self.tls.reader().take(len).read_to_end(inbox)?;
        Ok(!state.peer_has_closed())
    }

    /// Sends as many records as the socket has room for.
    fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.tls.wants_write() {
            if unless_blocked(self.tls.write_tls(&mut Socket(socket)))?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A socket that does not block.
struct Socket<'a>(&'a TcpStream);

impl io::Read for Socket<'_> {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(octets)
    }
}

impl io::Write for Socket<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.try_write(octets)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
