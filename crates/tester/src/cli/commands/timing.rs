//! `dns64bench timing`

use super::{Failure, exit, print};
use crate::cli::args::TimingArgs;
use crate::report::timing::read::ReadError;
use crate::report::timing::{Timing, figure, write_text};

/// Draws the figures of a trial and prints their table.
pub(super) fn run(args: &TimingArgs) -> Result<u8, Failure> {
    let timing = Timing::read(&args.raw)?;
    let title = args.raw.display().to_string();
    let svg = figure::svg(&timing, &title);
    let path = match &args.output {
        Some(path) => path.clone(),
        None => args.raw.with_extension("svg"),
    };
    std::fs::write(&path, svg).map_err(|e| {
        let what = format!("cannot write {}: {e}", path.display());
        Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(what))
    })?;
    print(|out| write_text(out, &timing))?;
    Ok(exit::PASSED)
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let code = match error {
            ReadError::Read { .. } => exit::ENVIRONMENT,
            ReadError::Line { .. } | ReadError::NoTrial { .. } => exit::USAGE,
        };
        Self::new(code, error)
    }
}
