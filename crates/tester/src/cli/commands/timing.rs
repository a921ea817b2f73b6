//! `dns64bench timing`

use anyhow::Context as _;

use super::{Failure, exit, print};
use crate::cli::args::TimingArgs;
use crate::report::timing::{Evenness, figure, write_text};

/// Draws the figures of a trial and prints their table.
pub(super) fn run(args: &TimingArgs) -> Result<u8, Failure> {
    let timing = Evenness::read(&args.raw)?;
    let title = args.raw.display().to_string();
    let svg = figure::svg(&timing, &title);
    let path = match &args.output {
        Some(path) => path.clone(),
        None => args.raw.with_extension("svg"),
    };
    std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    print(|out| write_text(out, &timing))?;
    Ok(exit::PASSED)
}
