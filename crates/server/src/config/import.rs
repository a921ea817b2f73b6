//! Converts the configuration of Unbound or BIND to one of this server.
//!
//! - [`import()`]: an unbound.conf or named.conf to the text of a TOML file;
//! - `tree`: the statements of both syntaxes, with those of included files;
//! - `unbound`, `named`: what the statements mean; `draft`: the keys found so far, and statements without a counterpart.

mod draft;
mod named;
#[cfg(test)]
mod tests;
mod tree;
mod unbound;

use std::path::Path;

use super::error::ConfigError;
use super::read_text;
use draft::Draft;
use tree::File;

/// A converted configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// A valid configuration.
    pub toml: String,
    /// Statements without a counterpart, each with its file, line and column.
    pub left: Vec<String>,
}

/// Converts a file, and those that it includes, to the nearest configuration of this server.
///
/// # Errors
///
/// A file cannot be read or has a syntax error; nothing valid is left.
pub fn import(path: &Path) -> Result<Imported, ConfigError> {
    let name = path.display().to_string();
    let text = read_text(path, &name)?;
    let file = File::new(path, &text);
    let statements = file.statements()?;
    let mut draft = Draft::default();
    match file.is_named {
        true => named::convert(&statements, &mut draft),
        false => unbound::convert(&statements, &mut draft),
    }
    let mut imported = draft.finish(&text, &name)?;
    if !imported.left.is_empty() {
        imported.toml.push_str("\n# Without a counterpart:\n");
    }
    let comments = imported.left.iter().map(|left| format!("# {left}\n"));
    imported.toml.extend(comments);
    Ok(imported)
}
