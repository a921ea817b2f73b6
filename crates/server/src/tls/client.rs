//! TLS sessions with upstreams, and who is believed to be one (RFC 8310).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use sha2::{Digest as _, Sha256};

use super::ALPN;

/// The SHA-256 digest of a public key with its algorithm, a SubjectPublicKeyInfo (RFC 7858 section 4.2).
pub type Pin = [u8; 32];

/// Who is believed to be an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// Anybody at its address. Without TLS it is queried in clear text (RFC 8310 section 5: opportunistic).
    Opportunistic,
    /// Who has a certificate for this name, of one of the trusted authorities.
    Name(DnsName<'static>),
    /// Who has one of these keys.
    Pins(Vec<Pin>),
}

impl Authentication {
    /// Whether it is queried with TLS only.
    pub fn is_strict(&self) -> bool {
        *self != Self::Opportunistic
    }
}

/// The sessions with one upstream.
#[derive(Clone)]
pub struct Sessions {
    name: Option<DnsName<'static>>,
    config: Arc<ClientConfig>,
}

impl Sessions {
    /// Sessions with a server that `authentication` shows, for a name by one of the authorities in `roots`.
    ///
    /// # Errors
    ///
    /// There is no authority for a name.
    pub fn new(authentication: &Authentication, roots: RootCertStore) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let by_keys = |pins| -> Arc<dyn ServerCertVerifier> {
            let provider = Arc::clone(&provider);
            Arc::new(Keys { pins, provider })
        };
        let verifier = match authentication {
            Authentication::Opportunistic => by_keys(None),
            Authentication::Pins(pins) => by_keys(Some(pins.clone())),
            Authentication::Name(_) => {
                let provider = Arc::clone(&provider);
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| error.to_string())?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?.dangerous();
        let builder = builder.with_custom_certificate_verifier(verifier);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let name = match authentication {
            Authentication::Name(name) => Some(name.clone()),
            Authentication::Opportunistic | Authentication::Pins(_) => None,
        };
        Ok(Self {
            name,
            config: Arc::new(config),
        })
    }

    /// Begins a session with the server at this address.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub fn begin(&self, address: std::net::IpAddr) -> Result<rustls::Connection, Error> {
        let name = match &self.name {
            Some(name) => ServerName::DnsName(name.clone()),
            None => ServerName::IpAddress(address.into()),
        };
        ClientConnection::new(Arc::clone(&self.config), name).map(Into::into)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// Accepts certificates by their keys, or all of them. The handshake shows that the server has the key.
#[derive(Debug)]
struct Keys {
    /// `None`: any key.
    pins: Option<Vec<Pin>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Keys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(pins) = &self.pins {
            let found = pin(end_entity)?;
            if !pins.contains(&found) {
                let found = STANDARD.encode(found);
                let error = format!("its key is \"sha256/{found}\", which is not one of its pins");
                return Err(OtherError(Arc::from(Box::from(error))).into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// The pin of the key of a certificate.
///
/// # Errors
///
/// It is malformed.
pub fn pin(certificate: &CertificateDer<'_>) -> Result<Pin, Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    Ok(Sha256::digest(parsed.subject_public_key_info()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::issue;

    #[test]
    fn pin_is_the_digest_of_the_key_alone_and_told_if_it_is_another() {
        let (one, other) = (issue(), issue());
        assert_eq!(pin(&one.der).unwrap(), pin(&one.der).unwrap());
        assert_ne!(pin(&one.der).unwrap(), pin(&other.der).unwrap());
        // `openssl x509 -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64`
        let known = CertificateDer::from_slice(include_bytes!("testdata/certificate.der"));
        let digest = include_str!("testdata/pin.txt").trim();
        let expected = STANDARD.decode(digest).unwrap();
        assert_eq!(pin(&known).unwrap()[..], expected[..]);
        let keys = Keys {
            pins: Some(vec![pin(&one.der).unwrap()]),
            provider: Arc::new(ring::default_provider()),
        };
        let name = ServerName::try_from("dns.example").unwrap();
        let verified = keys.verify_server_cert(&known, &[], &name, &[], UnixTime::now());
        assert_eq!(
            verified.unwrap_err().to_string(),
            format!("other error: its key is \"sha256/{digest}\", which is not one of its pins")
        );
    }
}
