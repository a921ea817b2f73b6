//! TLS with clients of a service, which cannot verify its certificate (RFC 7858 section 4.1).

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection};

/// First octet of a handshake (RFC 8446 section 5.1). A DNS message over TCP that begins so has more than 5,632 octets.
const HANDSHAKE: u8 = 22;

/// Returns settings of sessions with a new self-signed certificate.
///
/// # Errors
///
/// The system gives no random numbers.
pub fn self_signed() -> io::Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed(Vec::new()).map_err(io::Error::other)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_no_client_auth();
    let config = builder.with_single_cert(vec![made.cert.into()], key.into());
    config.map(Arc::new).map_err(io::Error::other)
}

/// A session with a client.
pub(super) struct Session(Box<ServerConnection>);

impl Session {
    /// Begins a session if the first octets of a client begin a handshake.
    pub(super) fn of(config: &Arc<ServerConfig>, octets: &[u8]) -> io::Result<Option<Self>> {
        if octets.first() != Some(&HANDSHAKE) {
            return Ok(None);
        }
        let session = ServerConnection::new(Arc::clone(config));
        let session = session.map_err(io::Error::other)?;
        Ok(Some(Self(Box::new(session))))
    }

    /// Takes records that arrived, and appends their contents to `input`.
    pub(super) fn open(&mut self, mut records: &[u8], input: &mut Vec<u8>) -> io::Result<()> {
        while !records.is_empty() {
            self.0.read_tls(&mut records)?;
            let state = self.0.process_new_packets().map_err(io::Error::other)?;
            let contents = state.plaintext_bytes_to_read() as u64;
            self.0.reader().take(contents).read_to_end(input)?;
        }
        Ok(())
    }

    /// Appends the records of these octets, and of what else is due, to `output`.
    pub(super) fn seal(&mut self, octets: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        self.0.writer().write_all(octets)?;
        while self.0.wants_write() {
            self.0.write_tls(output)?;
        }
        Ok(())
    }
}
