//! From what the user types for one flag to what it means, where no other room reads such texts.

use std::path::PathBuf;
use std::str::FromStr;

/// Where the JSON goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonOut {
    /// `-`: standard output, which then carries nothing else.
    Stdout,
    /// A file, which is replaced.
    File(PathBuf),
}

impl FromStr for JsonOut {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "-" => Self::Stdout,
            path => Self::File(path.into()),
        })
    }
}
