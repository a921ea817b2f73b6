//! What can be wrong with a profile.

use std::path::PathBuf;

use super::built_in_names;

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
    /// The profile has no such setting.
    #[error("profile {name} has no setting {unknown:?}; {known}")]
    Setting {
        /// Name of the profile.
        name: String,
        /// What was set.
        unknown: String,
        /// The settings that there are.
        known: String,
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
