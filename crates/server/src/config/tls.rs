//! The table `[tls]`, encrypted connections of clients, and the key `tls` of servers.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName};
use toml::Spanned;

use super::error::{ConfigError, Fault, Faults};
use super::section::{Section, Value};
use super::values::DNS_PORT;
use super::{check, defaults, keys, place, read_octets, values};
use crate::settings::{Settings, TLS_PORT, TcpSettings, TlsSettings, UpstreamTls};
use crate::tls::client::{Authentication, Pin, Sessions};
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
        listen = defaults::listen(TLS_PORT);
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
    let mut file = |key| section.read(key, faults, |v| v.path(&format!("/etc/dns64d/{key}.pem")));
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
    let address = values::address(text, TLS_PORT)?;
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
        faults.add(
            place(text, |value| value == path),
            format!("{path} {wrong}"),
        );
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

/// What clients would refuse at this time, in seconds since 1970.
pub(super) fn note(tls: &TlsSettings, now_s: u64) -> Option<String> {
    let validity_s = tls.certificate.as_ref()?.validity_s()?;
    let hours = |span_s: u64| span_s / 3600;
    let (from_s, until_s) = (*validity_s.start(), *validity_s.end());
    if now_s > until_s {
        let hours = hours(now_s - until_s);
        let text = format!("expired {hours} h ago, so clients refuse it; renew it, then reload");
        return Some(format!("certificate of [tls]: {text}"));
    }
    (now_s < from_s).then(|| {
        let hours = hours(from_s - now_s);
        let text = format!("is valid in {hours} h, and clients refuse it until then");
        format!("certificate of [tls]: {text}; check the clock of this machine")
    })
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

/// Reads the key `tls` of a server.
pub(super) fn of_upstream(section: &Section<'_, '_>, faults: &mut Faults) -> Option<UpstreamTls> {
    let value = section.value("tls")?;
    if !value.is_table() {
        faults.keep(value.text(TLS_EXAMPLE, opportunistic))?;
        return Some(with(Authentication::Opportunistic));
    }
    let section = value.section(&keys::SERVER_TLS, faults)?;
    let name = section.read("name", faults, |v| v.text("\"dns.example\"", host));
    let pins = section.some("pins", PINS_EXAMPLE, faults, |v, faults| {
        faults.keep(v.text(PINS_EXAMPLE, pin))
    });
    let roots = section.read("roots", faults, |v| {
        v.path("/etc/ssl/certs/ca-certificates.crt")
    });
    let fault = |value: Value<'_, '_>, text| -> Option<Fault> { Some(value.fault(text)) };
    let wrong = match (
        section.value("name"),
        section.value("pins"),
        section.value("roots"),
    ) {
        (None, None, _) => fault(
            value,
            "says neither whose certificate it has nor which key; add name or pins",
        ),
        (Some(_), Some(pins), _) => fault(pins, "has no effect beside name; remove one of them"),
        (None, Some(_), Some(roots)) => fault(roots, "has no effect beside pins; remove it"),
        _ => None,
    };
    if let Some(fault) = wrong {
        faults.add(fault.span, fault.text);
    }
    let pins = pins.map(|pins| pins.into_iter().map(Spanned::into_inner).collect());
    let authentication = name
        .map(Authentication::Name)
        .or(pins.map(Authentication::Pins))?;
    Some(UpstreamTls {
        roots,
        ..with(authentication)
    })
}

const TLS_EXAMPLE: &str = "\"opportunistic\" or { name = \"dns.example\" }";
const PINS_EXAMPLE: &str = "[\"sha256/HASH=\"]";

fn with(authentication: Authentication) -> UpstreamTls {
    UpstreamTls {
        authentication,
        roots: None,
        sessions: None,
    }
}

fn opportunistic(text: &str) -> Result<(), String> {
    match text {
        "opportunistic" => Ok(()),
        _ => Err(format!("{text:?} is unknown; write it like {TLS_EXAMPLE}")),
    }
}

/// Parses the name of a certificate.
fn host(text: &str) -> Result<DnsName<'static>, String> {
    DnsName::try_from(text.to_owned()).map_err(|_| {
        format!("{text:?} is not the name of a host; write it like \"dns.example\", or use pins")
    })
}

/// Parses the SHA-256 digest of a key.
fn pin(text: &str) -> Result<Pin, String> {
    let digest = text
        .strip_prefix("sha256/")
        .and_then(|digest| STANDARD.decode(digest).ok());
    digest.and_then(|digest| digest.try_into().ok()).ok_or_else(|| {
        format!(
            "{text:?} is not a SHA-256 digest in base64; write it like {PINS_EXAMPLE}, with 44 characters for HASH="
        )
    })
}

/// Parses the address of a server with this authentication.
pub(super) fn upstream_address(
    text: &str,
    authentication: Option<&Authentication>,
) -> Result<SocketAddr, String> {
    match authentication {
        None => values::upstream_address(text),
        Some(Authentication::Opportunistic) => {
            let address = values::upstream_address(text)?;
            match address.port() == TLS_PORT {
                true => Err(format!(
                    "{text:?} has the port of TLS, and in clear text the server is queried there, too; omit the port"
                )),
                false => Ok(address),
            }
        }
        Some(Authentication::Name(_) | Authentication::Pins(_)) => {
            let address = values::server_address(text, TLS_PORT)?;
            match address.port() == DNS_PORT {
                true => Err(format!(
                    "{text:?} has port 53, which is not for TLS (RFC 7858 section 3.1); omit it for 853"
                )),
                false => Ok(address),
            }
        }
    }
}

/// Reads the authorities that are trusted, and prepares the sessions with upstreams.
///
/// # Errors
///
/// A file cannot be read or has no certificate, or the system has none: where a server needs them.
pub(super) fn read_roots(
    settings: &mut Settings,
    text: &str,
    name: &str,
) -> Result<(), ConfigError> {
    let mut faults = Faults::default();
    let all = settings.upstreams.iter_mut();
    for tls in all.filter_map(|upstream| upstream.tls.as_mut()) {
        let (at, roots) = match (&tls.authentication, &tls.roots) {
            (Authentication::Name(_), Some(path)) => (path.display().to_string(), roots_of(path)),
            (Authentication::Name(host), None) => (host.as_ref().to_owned(), roots_of_system()),
            _ => (String::new(), Ok(RootCertStore::empty())),
        };
        let sessions = roots.and_then(|roots| Sessions::new(&tls.authentication, roots));
        match sessions {
            Ok(sessions) => tls.sessions = Some(sessions),
            Err(wrong) => faults.add(place(text, |value| value == at), format!("{at}: {wrong}")),
        }
    }
    faults.check(name, text)
}

fn roots_of(path: &Path) -> Result<RootCertStore, String> {
    let octets =
        read_octets(path).map_err(|error| format!("cannot be read: {error}; {UNREADABLE}"))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&octets)
        .map_while(Result::ok)
        .collect();
    store(certificates)
        .ok_or_else(|| "has no certificate in PEM form; give that of an authority".to_owned())
}

fn roots_of_system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    store(found.certs).ok_or_else(|| {
        "the system has no list of authorities; install one (ca-certificates), or add roots = \"FILE\"".to_owned()
    })
}

/// `None`: none of the certificates is usable.
fn store(certificates: Vec<CertificateDer<'static>>) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    (!roots.is_empty()).then_some(roots)
}
