//! Profiles: how a server is found, configured, started, asked for its version and stopped.
//!
//! One TOML format for the built-in profiles and for those of users:
//!
//! ```toml
//! name = "example"
//! role = "dut"                    # or "authority"
//! programs = ["exampled"]         # names looked up (see `find_program`), or absolute paths
//! package = "example-dns"         # optional: the Debian package that has the program
//! caches = true                   # whether it answers repeated questions from a cache
//! command = ["{program}", "-f", "{workdir}/example.conf"]
//! stop_signal = "TERM"            # optional: TERM (default), INT, QUIT, HUP or KILL
//! receive_buffer = "..."          # optional: what is known about its UDP receive buffers
//!
//! [version]
//! command = ["{program}", "--version"]
//! starts_with = "example "        # the version is this text and the rest of its line
//!
//! [requires]                      # optional: what it cannot do without
//! root = true
//! upstream_family = "ipv4"
//! upstream_port = 53
//!
//! [environment]                   # optional
//! THREADS = "{cores}"
//!
//! [files]                         # file name below the working directory -> contents
//! "example.conf" = '''
//! listen {listen} {port};
//! '''
//! ```
//!
//! Placeholders stand in braces without spaces: see [`PLACEHOLDERS`]. Braces around anything else
//! than small letters, digits and underscores are left alone, so write `{ any; }` with spaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde::Deserialize;
use toml::Spanned;

use super::host::CpuSet;
use super::process::find_program;

/// How one kind of server is run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What the profile is called.
    pub name: String,
    /// What the server is for.
    pub role: ProfileRole,
    /// Names or absolute paths of the program, the first that exists is taken.
    pub programs: Vec<String>,
    /// The Debian package that has the program.
    pub package: Option<String>,
    /// Whether repeated questions are answered from a cache.
    pub caches: bool,
    command: Vec<Spanned<String>>,
    #[serde(default)]
    stop_signal: StopSignal,
    /// What is known about the receive buffers of the server's UDP sockets.
    pub receive_buffer: Option<String>,
    version: Version,
    /// What the server cannot do without.
    #[serde(default)]
    pub requires: Requires,
    #[serde(default)]
    environment: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    files: BTreeMap<String, Spanned<String>>,
}

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileRole {
    /// A DNS64 server to be measured.
    Dut,
    /// An authoritative server for the DUT to ask.
    Authority,
}

/// What a server cannot do without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requires {
    /// Root, of the machine or of a user namespace.
    pub root: bool,
    /// The only IP version that it can ask the authority over.
    pub upstream_family: Option<Family>,
    /// The only port that it can ask the authority at.
    pub upstream_port: Option<u16>,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Version {
    command: Vec<Spanned<String>>,
    starts_with: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum StopSignal {
    #[default]
    Term,
    Int,
    Quit,
    Hup,
    Kill,
}

/// What the placeholders stand for in one start of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address that the server listens on.
    pub listen: Ipv6Addr,
    /// IPv4 address that an authority listens on as well.
    pub listen_v4: Ipv4Addr,
    /// Port that it listens on.
    pub port: u16,
    /// Where the authority is, for a DUT.
    pub upstream: SocketAddr,
    /// Prefix for synthesis and its length in bits (RFC 6052 section 2.2).
    pub pref64: (Ipv6Addr, u8),
    /// Zone of the measurement names, without the last dot.
    pub suffix: String,
    /// CPUs that the server runs on, with a thread for each.
    pub cpus: CpuSet,
}

/// The names that may stand in braces.
pub const PLACEHOLDERS: [&str; 14] = [
    "program",         // path of the program
    "workdir",         // directory of the server's files, its current directory
    "listen",          // IPv6 address to listen on
    "listen_v4",       // IPv4 address to listen on (authorities)
    "port",            // port to listen on
    "upstream",        // address of the authority
    "upstream_port",   // port of the authority
    "upstream_socket", // both: 198.18.0.2:53, [2001:2:0:2::2]:53
    "upstream_family", // ipv4 or ipv6
    "pref64",          // prefix for synthesis with its length: 2001:2:0:6464::/96
    "pref64_address",  // the same without its length
    "suffix",          // zone of the measurement names, without the last dot
    "cores",           // CPUs that the server may use
    "zone",            // path of the zone file (authorities)
];

/// A profile with all placeholders replaced: what is executed and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables to set.
    pub environment: Vec<(String, String)>,
    /// Names and contents of files below the working directory.
    pub files: Vec<(String, String)>,
}

impl Profile {
    /// Reads a profile; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// Not TOML, a missing or unknown key, an unknown placeholder, a file name that leads out of
    /// the working directory. All say the line and column.
    pub fn parse(origin: &str, text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError::Toml {
            origin: origin.to_owned(),
            error: error.to_string().trim_end().to_owned(),
        })?;
        profile
            .check(text)
            .map_err(|(offset, message)| {
                let (line, column) = position(text, offset);
                ProfileError::Content {
                    origin: origin.to_owned(),
                    line,
                    column,
                    message,
                }
            })
            .map(|()| profile)
    }

    /// Checks what the types cannot; an error is a byte offset and a message.
    fn check(&self, text: &str) -> Result<(), (usize, String)> {
        for (empty, key) in [
            (self.programs.is_empty(), "programs"),
            (self.command.is_empty(), "command"),
            (self.version.command.is_empty(), "version.command"),
        ] {
            if empty {
                return Err((0, format!("`{key}` is empty; name at least a program")));
            }
        }
        for (name, contents) in &self.files {
            let plain = Path::new(name)
                .file_name()
                .is_some_and(|last| last == name.as_str());
            if !plain {
                let message = format!(
                    "file name {name:?} is not a plain name; files are written below {{workdir}}"
                );
                return Err((contents.span().start, message));
            }
        }
        let templates = self.command.iter().chain(&self.version.command);
        let templates = templates.chain(self.environment.values());
        for template in templates.chain(self.files.values()) {
            if let Some(unknown) = unknown_placeholder(template.get_ref()) {
                let span = template.span();
                let within = text[span.clone()].find(&format!("{{{unknown}}}"));
                let message = format!(
                    "unknown placeholder {{{unknown}}}; there are {}",
                    PLACEHOLDERS.join(", ")
                );
                return Err((span.start + within.unwrap_or(0), message));
            }
        }
        Ok(())
    }

    /// The built-in profile of this name.
    ///
    /// # Errors
    ///
    /// There is none; the error lists those that there are.
    pub fn built_in(name: &str) -> Result<Self, ProfileError> {
        let (origin, text) = BUILT_IN
            .iter()
            .find(|(built_in, _)| *built_in == name)
            .ok_or_else(|| ProfileError::Unknown(name.to_owned()))?;
        Self::parse(origin, text)
    }

    /// The built-in profile `name`, or the profile in the file of that path if it has a slash or
    /// ends in `.toml`.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`] and [`Self::built_in`]; the file cannot be read.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if !name.contains('/') && !name.ends_with(".toml") {
            return Self::built_in(name);
        }
        let text = std::fs::read_to_string(name).map_err(|source| ProfileError::Read {
            path: name.to_owned(),
            source,
        })?;
        Self::parse(name, &text)
    }

    /// Finds the server's program: `given` if any, otherwise the first of [`Self::programs`].
    ///
    /// # Errors
    ///
    /// None of them is there; the error names the package that would bring it.
    pub fn program(&self, given: Option<&Path>) -> Result<PathBuf, ProfileError> {
        if let Some(path) = given {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            return find_program(&absolute.to_string_lossy()).ok_or_else(|| {
                ProfileError::NotExecutable {
                    path: path.to_path_buf(),
                }
            });
        }
        self.programs
            .iter()
            .find_map(|name| find_program(name))
            .ok_or_else(|| ProfileError::NoProgram {
                name: self.name.clone(),
                programs: self.programs.join(", "),
                remedy: match &self.package {
                    Some(package) => format!("install the Debian package {package}"),
                    None => "build it and give its path (--dut-binary PATH)".to_owned(),
                },
            })
    }

    /// The signal that stops the server.
    pub fn stop_signal(&self) -> Signal {
        match self.stop_signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
            StopSignal::Hup => Signal::HUP,
            StopSignal::Kill => Signal::KILL,
        }
    }

    /// Replaces all placeholders.
    ///
    /// # Errors
    ///
    /// The server [`requires`](Self::requires) what `settings` do not give.
    pub fn render(
        &self,
        settings: &Settings,
        program: &Path,
        workdir: &Path,
    ) -> Result<Rendered, ProfileError> {
        self.check_requirements(settings)?;
        let value = |name: &str| settings.value(name, program, workdir);
        let fill = |template: &Spanned<String>| substitute(template.get_ref(), value);
        Ok(Rendered {
            command: self.command.iter().map(fill).collect(),
            environment: self
                .environment
                .iter()
                .map(|(key, template)| (key.clone(), fill(template)))
                .collect(),
            files: self
                .files
                .iter()
                .map(|(name, template)| (name.clone(), fill(template)))
                .collect(),
        })
    }

    fn check_requirements(&self, settings: &Settings) -> Result<(), ProfileError> {
        let upstream = settings.upstream;
        let needs = match &self.requires {
            Requires { root: true, .. } if !rustix::process::geteuid().is_root() => {
                "root; run it as root or in a user namespace".to_owned()
            }
            Requires {
                upstream_family: Some(family),
                ..
            } if *family != Family::of(upstream.ip()) => {
                format!(
                    "an authority over {}, not at {}",
                    family.name(),
                    upstream.ip()
                )
            }
            Requires {
                upstream_port: Some(port),
                ..
            } if *port != upstream.port() => format!(
                "an authority at port {port}, not {}; use a lab of namespaces",
                upstream.port()
            ),
            _ => return Ok(()),
        };
        Err(ProfileError::Requires {
            name: self.name.clone(),
            needs,
        })
    }

    /// The command that tells the version.
    pub(crate) fn version_command(&self, program: &Path) -> Vec<String> {
        // Nothing but the program is known when only the version is asked for.
        let value = |name: &str| match name {
            "program" => program.display().to_string(),
            _ => String::new(),
        };
        let command = self.version.command.iter();
        command
            .map(|template| substitute(template.get_ref(), value))
            .collect()
    }

    /// Finds the version in what that command said.
    pub(crate) fn version_in(&self, output: &str) -> Option<String> {
        output.lines().find_map(|line| {
            let at = line.find(&self.version.starts_with)?;
            Some(line[at..].trim().to_owned())
        })
    }
}

impl Settings {
    fn value(&self, name: &str, program: &Path, workdir: &Path) -> String {
        let (prefix, length) = self.pref64;
        match name {
            "program" => program.display().to_string(),
            "workdir" => workdir.display().to_string(),
            "listen" => self.listen.to_string(),
            "listen_v4" => self.listen_v4.to_string(),
            "port" => self.port.to_string(),
            "upstream" => self.upstream.ip().to_string(),
            "upstream_port" => self.upstream.port().to_string(),
            "upstream_socket" => self.upstream.to_string(),
            "upstream_family" => Family::of(self.upstream.ip()).name().to_owned(),
            "pref64" => format!("{prefix}/{length}"),
            "pref64_address" => prefix.to_string(),
            "suffix" => self.suffix.clone(),
            "cores" => self.cpus.cores().to_string(),
            "zone" => workdir.join(ZONE_FILE).display().to_string(),
            // `Profile::check` has let nothing else through.
            _ => String::new(),
        }
    }
}

impl Family {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

/// Name of the zone file in an authority's working directory.
pub(crate) const ZONE_FILE: &str = "zone";

/// Names of the built-in profiles.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

const BUILT_IN: [(&str, &str); 8] = [
    ("dns64d", include_str!("../../profiles/dns64d.toml")),
    ("bind", include_str!("../../profiles/bind.toml")),
    ("unbound", include_str!("../../profiles/unbound.toml")),
    (
        "pdns-recursor",
        include_str!("../../profiles/pdns-recursor.toml"),
    ),
    (
        "knot-resolver",
        include_str!("../../profiles/knot-resolver.toml"),
    ),
    ("coredns", include_str!("../../profiles/coredns.toml")),
    ("mtd64-ng", include_str!("../../profiles/mtd64-ng.toml")),
    ("nsd", include_str!("../../profiles/nsd.toml")),
];

/// One piece of a template.
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// Cuts a template at its placeholders.
fn pieces(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(name) = placeholder_at_start(rest) {
            rest = &rest[name.len() + 2..];
            return Some(Piece::Placeholder(name));
        }
        let end = rest
            .char_indices()
            .skip(1)
            .find(|&(at, c)| c == '{' && placeholder_at_start(&rest[at..]).is_some())
            .map_or(rest.len(), |(at, _)| at);
        let (text, tail) = rest.split_at(end);
        rest = tail;
        Some(Piece::Text(text))
    })
}

fn placeholder_at_start(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

fn unknown_placeholder(template: &str) -> Option<&str> {
    pieces(template).find_map(|piece| match piece {
        Piece::Placeholder(name) if !PLACEHOLDERS.contains(&name) => Some(name),
        _ => None,
    })
}

fn substitute(template: &str, value: impl Fn(&str) -> String) -> String {
    pieces(template)
        .map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Placeholder(name) => value(name),
        })
        .collect()
}

/// Line and column, from 1, of a byte offset.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML or not a profile; the text has line and column.
    #[error("profile {origin}: {error}")]
    Toml {
        /// File or built-in name.
        origin: String,
        /// What the parser said.
        error: String,
    },
    /// A value that cannot be.
    #[error("profile {origin}, line {line}, column {column}: {message}")]
    Content {
        /// File or built-in name.
        origin: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong and what to do.
        message: String,
    },
    /// The file cannot be read.
    #[error("cannot read profile {path:?}")]
    Read {
        /// The file.
        path: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// No built-in profile of that name.
    #[error(
        "no profile {0:?}; there are {known}, or give the path of a .toml file",
        known = built_in_names().collect::<Vec<_>>().join(", ")
    )]
    Unknown(String),
    /// The server is not installed.
    #[error("{name}: found none of {programs}; {remedy}")]
    NoProgram {
        /// Name of the profile.
        name: String,
        /// What was looked for.
        programs: String,
        /// How to get it.
        remedy: String,
    },
    /// The program that was given is none.
    #[error("{path:?} is not an executable file; give the path of the server's binary")]
    NotExecutable {
        /// What was given.
        path: PathBuf,
    },
    /// The server cannot do what is asked.
    #[error("{name} needs {needs}")]
    Requires {
        /// Name of the profile.
        name: String,
        /// What it needs, and the remedy.
        needs: String,
    },
}

#[cfg(test)]
mod tests;
