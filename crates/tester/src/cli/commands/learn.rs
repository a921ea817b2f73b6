//! `dns64bench learn`

use std::path::Path;

use anyhow::Context as _;

use super::{Failure, exit, print_raw};
use crate::cli::args::LearnArgs;
use crate::learn::{plan, read, table};

/// Writes the plan of a trace, or prints its figures.
pub(super) fn run(args: LearnArgs) -> Result<u8, Failure> {
    let figures = read(&args.trace, args.pref64)?;
    if args.describe {
        print_raw(&table(&figures))?;
        return Ok(exit::PASSED);
    }
    let text = plan(&figures, &args.trace.display().to_string());
    match args.output.as_path() {
        path if path == Path::new("-") => print_raw(&text)?,
        path => {
            let cannot = || format!("cannot write {}", path.display());
            std::fs::write(path, text).with_context(cannot)?;
        }
    }
    Ok(exit::PASSED)
}
