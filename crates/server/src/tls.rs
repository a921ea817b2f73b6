//! TLS (RFC 7858): certificates, and the settings of sessions.
//!
//! - [`Certificate`]: for sessions with clients;
//! - [`client`]: sessions with upstreams.

pub mod client;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError as Refused, Error, RootCertStore, ServerConfig};

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
    Pair(Error),
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

    /// When the certificate is valid, in seconds since 1970 (RFC 5280 section 4.1.2.5); `None` if this is unknown.
    pub fn validity_s(&self) -> Option<RangeInclusive<u64>> {
        let leaf = ParsedCertificate::try_from(self.chain.first()?).ok()?;
        let algorithms = ring::default_provider().signature_verification_algorithms;
        // The dates are judged before the issuer is sought.
        let refused_at = |at_s| {
            let (nobody, at) = (RootCertStore::empty(), Duration::from_secs(at_s));
            let at = UnixTime::since_unix_epoch(at);
            verify_server_cert_signed_by_trust_anchor(&leaf, &nobody, &[], at, algorithms.all)
        };
        let from_s = match refused_at(0) {
            Err(Error::InvalidCertificate(Refused::NotValidYetContext { not_before, .. })) => {
                not_before.as_secs()
            }
            _ => 0,
        };
        match refused_at(u64::MAX) {
            Err(Error::InvalidCertificate(Refused::ExpiredContext { not_after, .. })) => {
                Some(from_s..=not_after.as_secs())
            }
            _ => None,
        }
    }

    /// The settings of sessions with clients.
    pub fn sessions(&self) -> &Arc<ServerConfig> {
        &self.sessions
    }
}

fn sessions(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
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
    fn dates_are_those_of_the_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut given = rcgen::CertificateParams::new([Issued::NAME.to_owned()]).unwrap();
        given.not_before = rcgen::date_time_ymd(2024, 2, 29);
        given.not_after = rcgen::date_time_ymd(2060, 1, 1);
        let chain = given.self_signed(&key).unwrap().pem();
        let read = Certificate::read(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        let dates = [given.not_before, given.not_after];
        let [from_s, until_s] = dates.map(|date| u64::try_from(date.unix_timestamp()).unwrap());
        assert_eq!(read.validity_s(), Some(from_s..=until_s));
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
