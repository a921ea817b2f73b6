//! Certificates of a server, and clients that trust them.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::support::PATIENCE;

const NAME: &str = "dns.example";

/// A connection with TLS.
pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Writes a new certificate and its key to `certificate.pem` and `key.pem`; returns a client that trusts it.
pub(crate) fn issue(dir: &Path) -> Arc<ClientConfig> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    fs::write(dir.join("certificate.pem"), made.cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    client(made.cert.into())
}

fn client(trusted: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The table of a server at this address with that certificate.
pub(crate) fn table(dir: &Path, listen: SocketAddr) -> String {
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    format!("[tls]\nlisten = [\"{listen}\"]\ncertificate = {certificate:?}\nkey = {key:?}\n")
}

/// Connects; the handshake begins with the first use.
pub(crate) fn connect(client: &Arc<ClientConfig>, server: SocketAddr) -> Tls {
    let name = ServerName::try_from(NAME).unwrap();
    let session = ClientConnection::new(Arc::clone(client), name).unwrap();
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(session, stream)
}
