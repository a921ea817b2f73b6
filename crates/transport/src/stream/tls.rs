//! TLS on a connection (RFC 7858), by the opportunistic profile: the server's certificate is not verified.

use std::io::{self, BufRead as _, ErrorKind, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

/// Settings of the sessions of a link, with the tickets that resume them.
pub(super) type Config = Arc<ClientConfig>;

/// Octets that a record, an alert or a handshake message adds at most to the octets of a call.
pub(super) const OVERHEAD_BYTES: usize = 256;

/// Returns the settings of a client: TLS 1.2 and 1.3, with resumption.
///
/// # Errors
///
/// None: the library has both versions.
pub(super) fn config() -> io::Result<Config> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(Unverified));
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// A session. Octets of queries wait in it until its handshake has ended.
pub(super) struct Session(Box<ClientConnection>);

/// The server has ended the session, by a close_notify (`true`) or against the protocol.
pub(super) struct Over(pub(super) bool);

impl Session {
    /// Begins a session with a server.
    pub(super) fn new(config: &Config, server: IpAddr) -> io::Result<Self> {
        let name = ServerName::IpAddress(server.into());
        let session = ClientConnection::new(Arc::clone(config), name);
        let mut session = session.map_err(io::Error::other)?;
        // The connection bounds them.
        session.set_buffer_limit(None);
        Ok(Self(Box::new(session)))
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Takes octets that are sent when the handshake has ended.
    pub(super) fn hold(&mut self, octets: &[u8]) -> io::Result<()> {
        self.0.writer().write_all(octets)
    }

    /// Appends the records of these octets, and of what else is due, to `output`.
    pub(super) fn seal(&mut self, octets: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        self.hold(octets)?;
        while self.0.wants_write() {
            self.0.write_tls(output)?;
        }
        Ok(())
    }

    /// Announces the end of the session.
    pub(super) fn close(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        self.0.send_close_notify();
        self.seal(&[], output)
    }

    /// Takes records that arrived, and passes their contents to `each`.
    pub(super) fn take(
        &mut self,
        mut records: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Over> {
        while !records.is_empty() {
            self.0.read_tls(&mut records).map_err(|_| Over(false))?;
            self.0.process_new_packets().map_err(|_| Over(false))?;
            loop {
                let mut reader = self.0.reader();
                let len = match reader.fill_buf() {
                    Ok([]) => return Err(Over(true)),
                    Ok(contents) => {
                        each(contents);
                        contents.len()
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return Err(Over(false)),
                };
                reader.consume(len);
            }
        }
        Ok(())
    }
}

/// Accepts every certificate (RFC 7858 section 4.1).
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = ring::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
