//! Profiles: how to find, configure, start and stop a server and read its version.
//!
//! Built-in profiles and profiles of users have the same TOML format:
//!
//! ```toml
//! name = "example"
//! role = "dut"                    # or "authority"
//! programs = ["exampled"]         # names looked up (see `find_program`), or absolute paths
//! package = "example-dns"         # optional: the Debian package that has the program
//! caches = true                   # whether it answers repeated questions from a cache
//! command = ["{program}", "-f", "{workdir}/example.conf"]
//! stop_signal = "TERM"            # optional: TERM (default), INT, QUIT, HUP or KILL
//! receive_buffer = "..."          # optional: known facts about its UDP receive buffers
//!
//! [version]
//! command = ["{program}", "--version"]
//! starts_with = "example "        # the version is this text and the rest of its line
//!
//! [requires]                      # optional: requirements
//! root = true
//! upstream_family = "ipv4"
//! upstream_port = 53
//!
//! [upstreams]                     # optional, for DUTs that support several authorities: see `Upstreams`
//! each = "forward {upstream} {upstream_port};"
//! between = "\n"
//!
//! [zone]                          # optional, for authorities: see `ZoneUse`
//! base_mib = 20
//! octets_per_name = 280
//! octets_per_record = 90
//! records_per_s = 400_000
//!
//! [settings]                      # optional: placeholders of its own and their defaults
//! threads = "{cores}"
//!
//! [environment]                   # optional
//! THREADS = "{threads}"
//!
//! [files]                         # file name below the working directory -> contents
//! "example.conf" = '''
//! listen {listen} {port};
//! {upstreams}
//! '''
//! ```
//!
//! Placeholders are names in braces without spaces: those of [`placeholders`] and of the profile's own settings, whose
//! defaults the user can override. Braces around anything other than lower-case letters, digits and underscores are not
//! placeholders, so write `{ any; }` with spaces.

mod chosen;
mod template;
mod upstreams;
mod zone_use;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use strum::AsRefStr;
use toml::Spanned;

use super::{Blame, LabError};
use crate::machine::cpuset::CpuSet;
use crate::machine::process::find_program;
use crate::namespace::Share;
use crate::naming::{BINARY, Message, Naming};
use crate::quantity::is_near;
use template::{check_placeholders, is_plain, substitute};

pub use upstreams::Upstreams;
pub use zone_use::ZoneUse;

/// How to run one kind of server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The role of the server.
    pub role: ProfileRole,
    /// Names or absolute paths of the program; the first existing one is used.
    pub programs: Vec<String>,
    /// The Debian package that has the program.
    pub package: Option<String>,
    /// Whether repeated queries are answered from a cache.
    pub caches: bool,
    command: Vec<Spanned<String>>,
    #[serde(default)]
    stop_signal: StopSignal,
    /// Known facts about the receive buffers of the server's UDP sockets.
    pub receive_buffer: Option<String>,
    version: VersionCommand,
    /// Requirements of the server.
    #[serde(default)]
    pub requires: Requires,
    /// Format of several upstreams; `None` for a DUT that uses one.
    upstreams: Option<Upstreams>,
    /// Costs of the zone for an authority.
    #[serde(default)]
    pub zone: ZoneUse,
    #[serde(default)]
    settings: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    environment: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    files: BTreeMap<String, Spanned<String>>,
    #[serde(skip)]
    text: String,
}

/// Role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileRole {
    /// A DNS64 server to measure.
    Dut,
    /// An authoritative server for the DUT.
    Authority,
}

/// Requirements of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requires {
    /// Root, of the machine or of a user namespace.
    pub root: bool,
    /// The only IP version that it supports towards the authority.
    pub upstream_family: Option<Family>,
    /// The only port that it supports at the authority.
    pub upstream_port: Option<u16>,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Family {
    /// IPv4
    Ipv4,
    /// IPv6
    Ipv6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionCommand {
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

/// A profile as its name and its text, for `#[serde(with = "as_source")]`.
pub(crate) mod as_source {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Profile;

    pub(crate) fn serialize<S: Serializer>(
        profile: &Profile,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (&profile.name, &profile.text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Profile, D::Error> {
        let (origin, text) = <(String, String)>::deserialize(deserializer)?;
        Profile::parse(&origin, &text).map_err(D::Error::custom)
    }
}

/// Values of the placeholders for one start of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Listening address of the server.
    pub listen: Ipv6Addr,
    /// IPv4 address on which an authority listens as well.
    pub listen_v4: Ipv4Addr,
    /// Listening port.
    pub port: u16,
    /// Addresses of the authorities, for a DUT; at least one.
    pub upstreams: Vec<SocketAddr>,
    /// Prefix for synthesis (pref64) and its length in bits (RFC 6052 section 2.2).
    pub pref64: (Ipv6Addr, u8),
    /// Zone of the measurement names, without the final dot.
    pub suffix: String,
    /// Share of the names with an AAAA record, for an authority.
    pub aaaa_share: Share,
    /// CPUs of the server, which starts one thread on each.
    pub cpus: CpuSet,
    /// Values of the profile's own settings; the others have their defaults.
    pub chosen: BTreeMap<String, String>,
}

/// A placeholder: its name, and its value for a program in a working directory.
type Placeholder = (&'static str, fn(&Settings, &Path, &Path) -> String);

const PLACEHOLDERS: [Placeholder; 15] = [
    ("program", |_, program, _| program.display().to_string()),
    // Directory of the server's files, its working directory.
    ("workdir", |_, _, workdir| workdir.display().to_string()),
    ("listen", |it, _, _| it.listen.to_string()),
    // For authorities.
    ("listen_v4", |it, _, _| it.listen_v4.to_string()),
    ("port", |it, _, _| it.port.to_string()),
    // The authority of a DUT; the first if there are several.
    ("upstream", |it, _, _| it.upstream(|at| at.ip().to_string())),
    ("upstream_port", |it, _, _| {
        it.upstream(|at| at.port().to_string())
    }),
    // Both: 198.18.0.2:53, [2001:2:0:2::2]:53.
    ("upstream_socket", |it, _, _| {
        it.upstream(|at| at.to_string())
    }),
    ("upstream_family", |it, _, _| {
        it.upstream(|at| Family::of(at.ip()).as_ref().to_owned())
    }),
    // Prefix for synthesis with its length: 2001:2:0:6464::/96.
    ("pref64", |it, _, _| {
        format!("{}/{}", it.pref64.0, it.pref64.1)
    }),
    ("pref64_address", |it, _, _| it.pref64.0.to_string()),
    // Zone of the measurement names, without the final dot.
    ("suffix", |it, _, _| it.suffix.clone()),
    // Number of CPUs that the server may use.
    ("cores", |it, _, _| it.cpus.cores().to_string()),
    // Path of the zone file, for authorities.
    ("zone", |_, _, workdir| {
        workdir.join(ZONE_FILE).display().to_string()
    }),
    // Share of the names with an AAAA record, such as 0, 0.25 or 1, for authorities.
    ("aaaa_share", |it, _, _| it.aaaa_share.fraction()),
];

/// Names of the placeholders.
pub fn placeholders() -> impl Iterator<Item = &'static str> {
    PLACEHOLDERS.iter().map(|(name, _)| *name)
}

/// A profile with all placeholders replaced: ready to be written and executed.
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
    /// Parses a profile; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// Not TOML, a missing or unknown key, an unknown placeholder, or a file name that leads out of the working
    /// directory. All errors have the line and the column.
    pub fn parse(origin: &str, text: &str) -> Result<Self, LabError> {
        let refused = |why: String| Blame::Request.error(format!("profile {origin}{why}"));
        let mut profile: Self = toml::from_str(text)
            .map_err(|error| refused(format!(": {}", error.to_string().trim_end())))?;
        profile.check(text).map_err(|(offset, message)| {
            let (line, column) = position(text, offset);
            refused(format!(", line {line}, column {column}: {message}"))
        })?;
        text.clone_into(&mut profile.text);
        Ok(profile)
    }

    /// Checks the rules that the types cannot express; an error is a byte offset and a message.
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
        for (name, default) in &self.settings {
            let at = default.span().start;
            let is_taken = placeholders().any(|taken| taken == name) || name == UPSTREAMS;
            if !is_plain(name) || is_taken {
                let message = format!(
                    "{name:?} cannot be a setting; write small letters, digits and underscores, and \
                     none of {}",
                    placeholders().collect::<Vec<_>>().join(", ")
                );
                return Err((at, message));
            }
        }
        let own = self.settings.keys().map(String::as_str);
        let own: Vec<&str> = own
            .chain(self.upstreams.iter().map(|_| UPSTREAMS))
            .collect();
        let here = self.command.iter().chain(self.environment.values());
        let here = here.chain(self.files.values());
        if let Some(upstreams) = &self.upstreams {
            upstreams.check(here.clone())?;
        }
        let elsewhere = self.version.command.iter().chain(self.settings.values());
        let elsewhere = elsewhere.chain(self.upstreams.iter().map(Upstreams::each));
        here.map(|template| (template, &own[..]))
            .chain(elsewhere.map(|template| (template, &[][..])))
            .try_for_each(|(template, own)| check_placeholders(text, template, own))
    }

    /// Returns the built-in profile of this name.
    ///
    /// # Errors
    ///
    /// There is none; the error lists the existing ones.
    pub fn built_in(name: &str) -> Result<Self, LabError> {
        let mut all = BUILT_IN.iter();
        let Some((origin, text)) = all.find(|(built_in, _)| *built_in == name) else {
            let known = built_in_names().collect::<Vec<_>>().join(", ");
            let near = built_in_names().find(|known| is_near(name, known));
            let near = near.map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"));
            return Err(Blame::Request.error(format!(
                "no profile {name:?}{near}; built-in profiles are {known}, or give the path of a .toml file"
            )));
        };
        Self::parse(origin, text)
    }

    /// Loads the built-in profile `name`, or the profile in that file if `name` has a slash or ends in `.toml`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::parse`] and [`Self::built_in`], or the file cannot be read.
    pub fn load(name: &str) -> Result<Self, LabError> {
        if !name.contains('/') && !name.ends_with(".toml") {
            return Self::built_in(name);
        }
        let text = std::fs::read_to_string(name)
            .map_err(Blame::Request.because(format!("cannot read profile {name:?}")))?;
        // Line ends of Windows would be in the files of the server.
        Self::parse(name, &text.replace("\r\n", "\n"))
    }

    /// The parsed text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Names of the profile's own settings, with their defaults.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.settings.iter();
        own.map(|(name, default)| (name.as_str(), default.get_ref().as_str()))
    }

    /// Finds the server's program: `given` if any, otherwise the first of [`Self::programs`].
    ///
    /// # Errors
    ///
    /// None of them exists; the error names the package that contains one.
    pub fn program(&self, given: Option<&Path>) -> Result<PathBuf, LabError> {
        if let Some(path) = given {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            return find_program(&absolute.to_string_lossy()).ok_or_else(|| {
                Blame::Server.error(format!(
                    "{path:?} is not an executable file; give the path of the server's binary"
                ))
            });
        }
        let found = self.programs.iter().find_map(|name| find_program(name));
        found.ok_or_else(|| {
            let (name, programs) = (&self.name, self.programs.join(", "));
            Blame::Server.error(Message::new(|naming| {
                let remedy = self.remedy(naming);
                format!("{name}: found none of {programs}; {remedy}")
            }))
        })
    }

    /// Returns how to install the server's program.
    pub fn remedy(&self, naming: Naming) -> String {
        let own = "build it and put it into a directory of PATH";
        match &self.package {
            Some(package) => format!("install the Debian package {package}"),
            None if self.role == ProfileRole::Authority => own.to_owned(),
            None => format!("build it and use {}", naming.value(BINARY, "PATH")),
        }
    }

    /// Returns the signal that stops the server.
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
    /// The server [`requires`](Self::requires) something that `settings` lack, or does not have one of the chosen
    /// settings.
    pub fn render(
        &self,
        settings: &Settings,
        program: &Path,
        workdir: &Path,
    ) -> Result<Rendered, LabError> {
        self.check_requirements(settings)?;
        self.check_settings(&settings.chosen)?;
        let given = |name: &str| match &self.upstreams {
            Some(upstreams) if name == UPSTREAMS => {
                upstreams.written(settings, |one, name| one.value(name, program, workdir))
            }
            _ => settings.value(name, program, workdir),
        };
        let value = |name: &str| match (settings.chosen.get(name), self.settings.get(name)) {
            (Some(chosen), _) => chosen.clone(),
            (None, Some(default)) => substitute(default.get_ref(), given),
            (None, None) => given(name),
        };
        let fill = |template: &Spanned<String>| substitute(template.get_ref(), value);
        let fill_all = |templates: &BTreeMap<String, Spanned<String>>| {
            let named = templates.iter();
            named.map(|(name, it)| (name.clone(), fill(it))).collect()
        };
        Ok(Rendered {
            command: self.command.iter().map(fill).collect(),
            environment: fill_all(&self.environment),
            files: fill_all(&self.files),
        })
    }

    fn check_requirements(&self, settings: &Settings) -> Result<(), LabError> {
        self.check_upstreams(settings.upstreams.len())?;
        let Requires {
            root,
            upstream_family,
            upstream_port,
        } = self.requires;
        let needs = |what: String| Err(Blame::Server.error(format!("{} needs {what}", self.name)));
        if root && !rustix::process::geteuid().is_root() {
            return needs("root; run it as root or in a user namespace".to_owned());
        }
        for upstream in &settings.upstreams {
            let (address, at) = (upstream.ip(), upstream.port());
            if let Some(family) = upstream_family.filter(|family| *family != Family::of(address)) {
                let family = family.as_ref();
                return needs(format!("an authority over {family}, not at {address}"));
            }
            if let Some(port) = upstream_port.filter(|port| *port != at) {
                return needs(format!(
                    "an authority at port {port}, not {at}; use a lab of namespaces"
                ));
            }
        }
        Ok(())
    }

    /// The command that prints the version.
    pub(crate) fn version_command(&self, program: &Path) -> Vec<String> {
        // Only the program is known when the version is requested.
        let value = |name: &str| match name {
            "program" => program.display().to_string(),
            _ => String::new(),
        };
        let command = self.version.command.iter();
        command
            .map(|template| substitute(template.get_ref(), value))
            .collect()
    }

    /// Finds the version in the output of that command.
    pub(crate) fn version_in(&self, output: &str) -> Option<String> {
        output.lines().find_map(|line| {
            let at = line.find(&self.version.starts_with)?;
            Some(line[at..].trim().to_owned())
        })
    }
}

/// A server with its version, and its name once: "dns64d 0.1.0", "unbound (Version 1.17.1)".
pub(crate) fn with_version(name: &str, version: &str) -> String {
    match without_name(name, version) {
        Some(_) => version.to_owned(),
        None => format!("{name} ({version})"),
    }
}

/// A version without the name of the server in front of it, if it begins with that.
pub(crate) fn without_name<'a>(name: &str, version: &'a str) -> Option<&'a str> {
    let (first, rest) = version.split_once(' ')?;
    first.eq_ignore_ascii_case(name).then_some(rest)
}

impl Settings {
    /// The value of a placeholder; [`Profile::check`] rejects other names.
    fn value(&self, name: &str, program: &Path, workdir: &Path) -> String {
        let mut all = PLACEHOLDERS.iter();
        let found = all.find(|(placeholder, _)| *placeholder == name);
        found.map_or_else(String::new, |(_, value)| value(self, program, workdir))
    }

    fn upstream(&self, told: fn(SocketAddr) -> String) -> String {
        self.upstreams
            .first()
            .copied()
            .map_or_else(String::new, told)
    }
}

impl Family {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

/// The placeholder for all authorities, for profiles with a table of this name.
const UPSTREAMS: &str = "upstreams";

/// Name of the zone file in an authority's working directory.
pub(crate) const ZONE_FILE: &str = "zone";

/// Names of the built-in profiles.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Names and texts of the profiles of this program.
macro_rules! built_in {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*]
    };
}

const BUILT_IN: [(&str, &str); 15] = built_in!(
    "dns64d" "bind" "unbound" "pdns-recursor" "knot-resolver" "coredns" "mtd64-ng" "totd"
    "nsd" "bind-authority" "knot" "knot-xdp" "pdns-authoritative" "yadifa" "fakedns"
);

/// Returns line and column, from 1, of a byte offset.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

#[cfg(test)]
mod tests;
