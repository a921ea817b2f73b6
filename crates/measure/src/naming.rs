//! Settings in messages: flags on the command line, keys in a plan. An error that names settings is printed by `{}` with
//! flags and by `{:#}` with keys.

use std::error::Error;
use std::fmt::{self, Display};
use std::iter;

/// How a message names settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// `--sockets 16`
    Flags,
    /// `sockets = 16`
    #[default]
    Keys,
}

/// The names of a setting.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// Its flag without hyphens; none if it is a key only.
    pub flag: Option<&'static str>,
    /// Its key.
    pub key: &'static str,
}

/// Share of the names with an AAAA record.
pub const AAAA_SHARE: Name = same("aaaa-share");
/// Number of addresses of the names.
pub const ADDRESSES: Name = same("addresses");
/// Share of the names that are aliases.
pub const CNAME_SHARE: Name = same("cname-share");
/// Program of a DUT.
pub const BINARY: Name = Name {
    flag: Some("dut-binary"),
    key: "binary",
};
/// Kind of lab.
pub const LAB: Name = same("lab");
/// Source addresses.
pub const LOCAL: Name = same("local");
/// Range of names.
pub const NAMESPACE: Name = same("namespace");
/// Prefixes of the expected answers.
pub const PREF64: Name = same("pref64");
/// Running server.
pub const SERVER: Name = same("server");
/// Hosts of a lab.
pub const SETUP: Name = same("setup");
/// Threads of the Measurer.
pub const THREADS: Name = same("threads");
/// Source ports.
pub const SOCKETS: Name = same("sockets");

const fn same(name: &'static str) -> Name {
    let flag = Some(name);
    Name { flag, key: name }
}

impl Naming {
    /// That of the format of an error.
    pub fn of(f: &fmt::Formatter<'_>) -> Self {
        match f.alternate() {
            true => Self::Keys,
            false => Self::Flags,
        }
    }

    /// Formats an error that may name settings.
    pub fn text(self, error: &(impl Display + ?Sized)) -> String {
        match self {
            Self::Flags => format!("{error}"),
            Self::Keys => format!("{error:#}"),
        }
    }

    /// Formats an error and its causes in one line.
    pub fn with_causes(self, error: &dyn Error) -> String {
        let sources = iter::successors(Some(error), |&error| error.source());
        let texts: Vec<_> = sources.map(|error| self.text(error)).collect();
        texts.join(": ")
    }

    /// Names a setting.
    pub fn name(self, name: Name) -> String {
        match (self, name.flag) {
            (Self::Flags, Some(flag)) => format!("--{flag}"),
            _ => name.key.to_owned(),
        }
    }

    /// Names a setting with a value.
    pub fn value(self, name: Name, value: impl Display) -> String {
        let (name, value) = (self.name(name), value.to_string());
        match (self, value.parse::<f64>()) {
            (Self::Flags, _) => format!("{name} {value}"),
            (Self::Keys, Ok(_)) => format!("{name} = {value}"),
            (Self::Keys, Err(_)) => format!("{name} = {value:?}"),
        }
    }
}

/// The text of an error that may name settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    flags: String,
    keys: String,
}

impl Message {
    /// The text with each naming.
    pub fn new(text: impl Fn(Naming) -> String) -> Self {
        Self {
            flags: text(Naming::Flags),
            keys: text(Naming::Keys),
        }
    }
}

impl<T: Into<String>> From<T> for Message {
    fn from(text: T) -> Self {
        let text = text.into();
        Self::new(|_| text.clone())
    }
}

impl Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match Naming::of(f) {
            Naming::Flags => &self.flags,
            Naming::Keys => &self.keys,
        })
    }
}

impl Error for Message {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_as_flags_and_as_keys() {
        let message = Message::new(|naming| {
            let (few, range) = (
                naming.value(SOCKETS, 250),
                naming.value(NAMESPACE, "10.0.0.0/8"),
            );
            format!("{few}, {range}, {}", naming.name(BINARY))
        });
        assert_eq!(
            format!("{message}"),
            "--sockets 250, --namespace 10.0.0.0/8, --dut-binary"
        );
        assert_eq!(
            format!("{message:#}"),
            "sockets = 250, namespace = \"10.0.0.0/8\", binary"
        );
    }
}
