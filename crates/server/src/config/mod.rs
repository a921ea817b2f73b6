//! Converts the text of a configuration to [`Settings`].
//!
//! - [`load`], [`parse`]: a TOML file; [`template`] is one with every key;
//! - [`mtd64ng`]: the nine keys of an mtd64-ng.conf;
//! - [`import()`]: a TOML file from an unbound.conf or named.conf;
//! - `keys`, `defaults`: all keys, their defaults and the reasons for them;
//! - `section`, `values`: tables and values with their positions;
//! - `server`, `upstream`, `forward`, `local`, `cookies`, `dns64`, `nat64`, `tls`: the meaning of the tables; `check`: settings that exclude each other;
//! - [`ConfigError`]: all errors, each with its line, column and remedy.

mod check;
mod cookies;
mod defaults;
mod dns64;
mod error;
mod forward;
mod import;
mod keys;
mod local;
pub mod mtd64ng;
mod nat64;
mod section;
mod server;
#[cfg(test)]
mod tests;
mod tls;
mod upstream;
mod values;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use dns64_transport::relay::Missing;
use rustls::pki_types::UnixTime;
use toml::de::DeTable;

pub use error::{ConfigError, Problem};
pub use import::{Imported, import};
pub(crate) use server::log_level;
pub(crate) use values::upstream_address;

use crate::settings::{Settings, Upstream};
use error::Faults;

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Possibly unexpected effects, one sentence each.
    pub notes: Vec<String>,
}

/// Loads a TOML file.
///
/// # Errors
///
/// A file that cannot be read, that is larger than 16 MiB, the upstream of the template, and everything that [`parse`]
/// refuses.
pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
    let name = path.display().to_string();
    let text = read_text(path, &name)?;
    let mut settings = parse(&text, &name)?;
    local::read_files(&mut settings)?;
    tls::read_files(&mut settings, &text, &name)?;
    tls::read_roots(&mut settings, &text, &name)?;
    cookies::read_file(&mut settings)?;
    refuse_example(&settings, &text, &name)?;
    let notes = notes(&settings);
    Ok(Loaded { settings, notes })
}

/// Refuses the upstream of the template, which must be replaced.
fn refuse_example(settings: &Settings, text: &str, name: &str) -> Result<(), ConfigError> {
    let is_asked = |upstream: &Upstream| upstream.address == defaults::EXAMPLE_UPSTREAM;
    if !settings.upstreams.iter().any(is_asked) {
        return Ok(());
    }
    let example = defaults::EXAMPLE_UPSTREAM;
    let mut faults = Faults::default();
    faults.add(
        place(text, |value| upstream_address(value) == Ok(example)),
        format!(
            "{} is the example address of the template (RFC 5737); replace it with the address of your resolver",
            example.ip()
        ),
    );
    faults.check(name, text)
}

/// The position of the first quoted text that is meant, outside lines of comments.
fn place(text: &str, is_meant: impl Fn(&str) -> bool) -> Range<usize> {
    let lines = text.split_inclusive('\n').scan(0, |begin, line| {
        *begin += line.len();
        Some((*begin - line.len(), line))
    });
    let in_use = lines.filter(|(_, line)| !line.trim_start().starts_with('#'));
    let words = in_use.flat_map(|(begin, line)| {
        line.split(['"', '\'']).scan(begin, |at, word| {
            *at += word.len() + 1;
            Some((*at - word.len() - 1, word))
        })
    });
    let mut meant = words.filter(|(_, word)| is_meant(word));
    let found = meant.next().map(|(at, word)| at..at + word.len());
    found.unwrap_or(text.len()..text.len())
}

/// Checks what only the host knows: that it has the source addresses and interfaces of a TOML file.
///
/// # Errors
///
/// The file cannot be read; what this host lacks.
pub fn check_host(path: &Path, settings: &Settings) -> Result<(), ConfigError> {
    let name = path.display().to_string();
    let text = read_text(path, &name)?;
    let mut faults = Faults::default();
    for missing in settings.missing() {
        let (lacks, span) = match &missing {
            Missing::Source(source) => (
                "no interface of this host has",
                place(&text, |value| value.parse() == Ok(*source)),
            ),
            Missing::Interface(interface) => (
                "this host has no interface",
                place(&text, |value| value == interface),
            ),
        };
        let text = format!(
            "{lacks} {missing}; `ip address` lists those it has, and free-bind = true allows other addresses"
        );
        faults.add(span, text);
    }
    faults.check(&name, &text)
}

/// Parses the text of a TOML file of that name.
///
/// # Errors
///
/// Invalid TOML; unknown keys; values of another type, outside their bounds or without their unit; values that
/// contradict each other. All faults are reported, unless the TOML is invalid.
pub fn parse(text: &str, name: &str) -> Result<Settings, ConfigError> {
    let mut faults = Faults::default();
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        faults.add(span, syntax(error.message()));
    }
    faults.check(name, text)?;
    let settings = server::read(&document, text.len(), &mut faults);
    faults.check(name, text)?;
    Ok(settings)
}

/// A complete file: every key with its default and its meaning.
pub fn template() -> &'static str {
    include_str!("template.toml")
}

/// The keys that differ and need a restart: sockets, threads, the user and the log are set up only at the start.
pub fn diff_needing_restart(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let differs = [
        (
            "listen",
            (&old.listen, old.free_bind) != (&new.listen, new.free_bind),
        ),
        ("driver-cache", old.driver_cache != new.driver_cache),
        ("af-xdp", old.af_xdp != new.af_xdp),
        ("workers", old.workers != new.workers),
        ("user", old.user != new.user),
        ("sandbox", old.sandbox != new.sandbox),
        ("control", old.control != new.control),
        ("metrics", old.metrics != new.metrics),
        ("log", old.log != new.log),
        ("listen of [tls]", tls::listen(old) != tls::listen(new)),
    ];
    let names = differs.into_iter().filter(|(_, differs)| *differs);
    names.map(|(name, _)| name).collect()
}

/// Copies the keys that need a restart from the running settings to `new`, so that it contains the settings in effect:
/// the next reload is compared with them, and each worker keeps its share.
pub fn keep_until_restart(running: &Settings, new: &mut Settings) {
    new.listen.clone_from(&running.listen);
    new.free_bind = running.free_bind;
    new.driver_cache.clone_from(&running.driver_cache);
    new.af_xdp.clone_from(&running.af_xdp);
    new.workers = running.workers;
    new.user.clone_from(&running.user);
    new.sandbox = running.sandbox;
    new.control.clone_from(&running.control);
    new.metrics = running.metrics;
    new.log.clone_from(&running.log);
    tls::keep_until_restart(running, new);
    new.source_ports = running.source_ports;
    new.reserved_ports.clone_from(&running.reserved_ports);
    let withdrawn = running.prefixes().into_iter();
    let withdrawn: Vec<_> = withdrawn
        .filter(|prefix| running.is_withdrawn(*prefix))
        .collect();
    new.withdraw(&withdrawn);
}

/// Settings that are allowed but rarely intended.
fn notes(settings: &Settings) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.allow == defaults::allow() {
        notes.push(
            "allow: only loopback, link-local and private addresses may send queries; if your clients have \
             other addresses, add their networks"
                .to_owned(),
        );
    }
    let everybody = settings
        .allow
        .nets()
        .iter()
        .any(|net| net.prefix_len() == 0);
    if everybody && settings.rate_limit.is_none() {
        notes.push(
            "allow: every address may send queries and there is no rate limit, so attackers can flood others \
             with responses; restrict allow, or set responses-per-second in [rate-limit]"
                .to_owned(),
        );
    }
    if !settings.driver_cache.is_empty()
        && let Some(key) = settings.driver_obstacle()
    {
        notes.push(format!(
            "driver-cache: has no effect with {key}; the sockets answer all queries"
        ));
    }
    let (workers, cores) = (settings.workers, defaults::workers());
    if workers > cores {
        notes.push(format!(
            "workers: {workers} threads run on {cores} cores; \"auto\" is faster"
        ));
    }
    let now_s = UnixTime::now().as_secs();
    notes.extend(settings.tls.iter().filter_map(|tls| tls::note(tls, now_s)));
    notes
}

/// The message of the TOML parser, with the most frequent cause.
fn syntax(message: &str) -> String {
    let message = message.lines().collect::<Vec<_>>().join(", ");
    let remedy = if message.starts_with("duplicate key") {
        "leave one of them out"
    } else {
        "put texts into quotes, and close each quote and bracket"
    };
    format!("not valid TOML: {message}; {remedy}")
}

/// The octets of a file.
fn read_octets(path: &Path) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    let mut file = File::open(path)?.take(defaults::FILE_MAX + 1);
    file.read_to_end(&mut octets)?;
    if octets.len() as u64 > defaults::FILE_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(octets)
}

/// The text of a file. Invalid UTF-8 is reported at its position.
fn read_text(path: &Path, name: &str) -> Result<String, ConfigError> {
    let octets = read_octets(path).map_err(|reason| ConfigError::unreadable(name, reason))?;
    let wrong = match String::from_utf8(octets) {
        Ok(text) => return Ok(text),
        Err(wrong) => wrong,
    };
    let at = wrong.utf8_error().valid_up_to();
    let text = String::from_utf8_lossy(wrong.as_bytes());
    let mut faults = Faults::default();
    faults.add(
        at..at + 1,
        "this octet is not valid UTF-8; save the file as UTF-8",
    );
    faults.check(name, &text)?;
    Ok(text.into_owned())
}
