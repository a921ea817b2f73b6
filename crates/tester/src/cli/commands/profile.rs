//! `dns64bench profile`

use std::io::Write as _;

use super::{Failure, exit, print, print_raw};
use crate::cli::args::ProfileCommand;
use crate::lab::profile::{Profile, ProfileRole, built_in_names};

pub(super) fn run(command: &ProfileCommand) -> Result<u8, Failure> {
    match command {
        ProfileCommand::List => list()?,
        ProfileCommand::Show { name } => {
            let profile = Profile::load(name)?;
            print_raw(profile.text())?;
        }
    }
    Ok(exit::PASSED)
}

/// Prints a line for each built-in profile: its role, whether its program is installed, and its settings.
fn list() -> Result<(), Failure> {
    let rows = built_in_names().map(|name| {
        let profile = Profile::built_in(name)?;
        let role = match profile.role {
            ProfileRole::Dut => "dut",
            ProfileRole::Authority => "authority",
        };
        let program = profile.program(None);
        let program = match (program, &profile.package) {
            (Ok(path), _) => path.display().to_string(),
            (Err(_), Some(package)) => format!("- (package {package})"),
            (Err(_), None) => "-".to_owned(),
        };
        let settings: Vec<_> = profile.settings().map(|(name, _)| name).collect();
        let settings = settings.join(", ");
        Ok([name.to_owned(), role.to_owned(), program, settings])
    });
    let mut rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    rows.insert(
        0,
        ["PROFILE", "ROLE", "PROGRAM", "SETTINGS"].map(str::to_owned),
    );
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let [a, b, c] = [0, 1, 2].map(width);
    print(|out| {
        rows.iter().try_for_each(|[name, role, program, settings]| {
            let line = format!("{name:a$}  {role:b$}  {program:c$}  {settings}");
            writeln!(out, "{}", line.trim_end())
        })
    })
}
