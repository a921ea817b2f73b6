//! TLS (RFC 7858): certificates, and the settings of sessions.
//!
//! - [`Certificate`]: for sessions with clients;
//! - [`client`]: sessions with upstreams.

pub mod client;

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The protocol that clients may name by ALPN (RFC 7858 section 8, IANA).
const ALPN: &[u8] = b"dot";

/// A certificate and its key, with the settings of the sessions that use them: TLS 1.2 and 1.3, which have no
/// renegotiation here, and resumption by tickets.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate, followed by those that lead to its issuer.
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    sessions: Arc<ServerConfig>,
}

/// Reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The first text has no certificate.
    #[error("has no certificate in PEM form ({0}); give the file with the whole chain")]
    Chain(pem::Error),
    /// The second text has no key.
    #[error("has no private key in PEM form ({0}); give that of the certificate")]
    Key(pem::Error),
    /// They do not belong together, or are of an unknown kind.
    #[error("cannot be used with the certificate ({0}); give the key of the certificate")]
    Pair(rustls::Error),
}

impl Certificate {
    /// Reads a certificate chain and a key in PEM form.
    ///
    /// # Errors
    ///
    /// One of them is missing or invalid, or they do not match.
    pub fn read(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = all.and_then(|chain| match chain.is_empty() {
            true => Err(pem::Error::NoItemsFound),
            false => Ok(chain),
        });
        let chain = chain.map_err(CertificateError::Chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::Key)?;
        let sessions = sessions(chain.clone(), key.clone_key()).map_err(CertificateError::Pair)?;
        Ok(Self {
            chain,
            key: Arc::new(key),
            sessions: Arc::new(sessions),
        })
    }

    /// The settings of sessions with clients.
    pub fn sessions(&self) -> &Arc<ServerConfig> {
        &self.sessions
    }
}

fn sessions(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}

/// Of the same certificate and key.
impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain && self.key.secret_der() == other.key.secret_der()
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    /// A self-signed certificate and its key.
    pub(crate) struct Issued {
        pub(crate) chain: String,
        pub(crate) key: String,
        pub(crate) der: CertificateDer<'static>,
    }

    impl Issued {
        /// Its name.
        pub(crate) const NAME: &'static str = "dns.example";

        pub(crate) fn certificate(&self) -> Certificate {
            Certificate::read(self.chain.as_bytes(), self.key.as_bytes()).unwrap()
        }
    }

    /// Issues another certificate.
    pub(crate) fn issue() -> Issued {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([Issued::NAME.to_owned()]).unwrap();
        Issued {
            chain: cert.pem(),
            key: signing_key.serialize_pem(),
            der: cert.into(),
        }
    }

    #[test]
    fn certificates_are_equal_if_certificate_and_key_are() {
        let (one, other) = (issue(), issue());
        assert_eq!(one.certificate(), one.certificate());
        assert_ne!(one.certificate(), other.certificate());
    }

    #[test]
    fn unusable_pairs_are_refused() {
        let (one, other) = (issue(), issue());
        let read = |chain: &str, key: &str| Certificate::read(chain.as_bytes(), key.as_bytes());
        let refused = |chain, key| read(chain, key).unwrap_err();
        assert!(matches!(refused("", &one.key), CertificateError::Chain(_)));
        let broken = one.chain.replace("CERTIFICATE", "CERT");
        assert!(matches!(
            refused(&broken, &one.key),
            CertificateError::Chain(_)
        ));
        assert!(matches!(
            refused(&one.chain, "key"),
            CertificateError::Key(_)
        ));
        assert!(matches!(
            refused(&one.chain, &other.key),
            CertificateError::Pair(_)
        ));
        let not_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(
            refused(not_der, &one.key),
            CertificateError::Pair(_)
        ));
        let whole = one.chain.clone() + &other.chain;
        assert_eq!(read(&whole, &one.key).unwrap().chain.len(), 2);
    }
}
