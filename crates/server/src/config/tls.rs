//! The table `[tls]`: encrypted connections of clients.

use std::net::SocketAddr;
use std::path::Path;

use toml::Spanned;

use super::error::{ConfigError, Faults};
use super::section::Section;
use super::values::DNS_PORT;
use super::{check, defaults, keys, place_of, read_octets, values};
use crate::settings::{Settings, TcpSettings, TlsSettings};
use crate::tls::{Certificate, CertificateError};

/// Reads the table, beside the addresses in clear text.
pub(super) fn read(
    top: &Section<'_, '_>,
    clear: &[Spanned<SocketAddr>],
    tcp: &TcpSettings,
    faults: &mut Faults,
) -> Option<TlsSettings> {
    let section = top.section("tls", &keys::TLS, faults)?;
    let listen = section.some("listen", "[\"[::]:853\"]", faults, |v, faults| {
        faults.keep(v.text("\"[::]:853\"", |text| address(text, clear)))
    });
    let listen = listen.unwrap_or_default();
    check::once(&listen, "listen", faults);
    let mut listen: Vec<_> = listen.into_iter().map(Spanned::into_inner).collect();
    if listen.is_empty() {
        listen = defaults::listen(defaults::TLS_PORT);
    }
    for key in ["certificate", "key"] {
        if section.value(key).is_none() {
            let text = format!("[tls] has no {key}; add {key} = \"/etc/dns64d/{key}.pem\"");
            faults.add(section.span(), text);
        }
    }
    if tcp.connections_max == 0 {
        let text =
            "[tls] has no effect with connections = 0 of [tcp]; allow some, or remove this table";
        faults.add(section.span(), text);
    }
    let mut file = |key| {
        let example = "/etc/dns64d/key.pem";
        section.read(key, faults, |v| {
            v.text(&format!("{example:?}"), |path| {
                values::absolute_path(path, example)
            })
        })
    };
    let (certificate_file, key_file) = (file("certificate"), file("key"));
    Some(TlsSettings {
        listen,
        certificate_file: certificate_file?,
        key_file: key_file?,
        certificate: None,
    })
}

/// Parses an address that is not used in clear text.
fn address(text: &str, clear: &[Spanned<SocketAddr>]) -> Result<SocketAddr, String> {
    let address = values::address(text, defaults::TLS_PORT)?;
    if address.port() == DNS_PORT {
        return Err(format!(
            "{text:?} has port 53, which is not for TLS (RFC 7858 section 3.1); use 853"
        ));
    }
    match clear.iter().any(|other| *other.get_ref() == address) {
        true => Err(format!(
            "{text:?} is also in listen of the top level, in clear text; use another port"
        )),
        false => Ok(address),
    }
}

/// Reads the certificate and its key.
///
/// # Errors
///
/// One of the files cannot be read or has none, or they do not match: at its path in the configuration.
pub(super) fn read_files(
    settings: &mut Settings,
    text: &str,
    name: &str,
) -> Result<(), ConfigError> {
    let Some(tls) = &mut settings.tls else {
        return Ok(());
    };
    let mut faults = Faults::default();
    let mut fault = |path: &Path, wrong: String| {
        let path = path.display().to_string();
        faults.add(place_of(&path, text), format!("{path} {wrong}"));
    };
    let mut read = |path: &Path| {
        let octets = read_octets(path);
        octets
            .map_err(|error| fault(path, format!("cannot be read: {error}; {UNREADABLE}")))
            .ok()
    };
    if let (Some(chain), Some(key)) = (read(&tls.certificate_file), read(&tls.key_file)) {
        match Certificate::read(&chain, &key) {
            Ok(certificate) => tls.certificate = Some(certificate),
            Err(error @ CertificateError::Chain(_)) => {
                fault(&tls.certificate_file, error.to_string());
            }
            Err(error) => fault(&tls.key_file, error.to_string()),
        }
    }
    faults.check(name, text)
}

const UNREADABLE: &str =
    "let the user that starts dns64d read it, and for a reload the one of user";

/// The addresses for TLS.
pub(super) fn listen(settings: &Settings) -> &[SocketAddr] {
    settings.tls.as_ref().map_or(&[], |tls| &tls.listen)
}

/// Copies what needs a restart, and keeps the tickets of sessions if the certificate is the same.
pub(super) fn keep_until_restart(running: &Settings, new: &mut Settings) {
    match (&running.tls, &mut new.tls) {
        (Some(old), Some(new)) => {
            new.listen.clone_from(&old.listen);
            if new.certificate == old.certificate {
                new.certificate.clone_from(&old.certificate);
            }
        }
        (old, new) => new.clone_from(old),
    }
}
