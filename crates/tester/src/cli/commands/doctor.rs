//! `dns64bench doctor`

use std::io::Write;

use super::{Failure, exit, print};
use crate::doctor::{self, Grade};

/// Prints what this machine can do, worst findings included, and always succeeds: it is advice.
pub(super) fn run() -> Result<u8, Failure> {
    let findings = doctor::examine();
    let width = findings
        .iter()
        .map(|f| f.what.chars().count())
        .max()
        .unwrap_or(0);
    print(|out| {
        for finding in &findings {
            let mark = match finding.grade {
                Grade::Good => "ok  ",
                Grade::Poor => "poor",
                Grade::Missing => "MISS",
            };
            writeln!(out, "{mark}  {:width$}  {}", finding.what, finding.value)?;
            if let Some(remedy) = &finding.remedy {
                writeln!(out, "      {:width$}  -> {remedy}", "")?;
            }
        }
        Ok(())
    })?;
    Ok(exit::PASSED)
}
