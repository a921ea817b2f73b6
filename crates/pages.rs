//! Generates pages from the definition of a command line: man pages and a page of the book. Part of both programs,
//! which have no common crate for it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;

/// Common parts of all man pages of a program.
pub(crate) struct Manual {
    /// Section of the manual.
    pub section: &'static str,
    /// The text under "EXIT STATUS".
    pub exit_status: &'static str,
    /// Page of a file that commands read, with its section, and the pages of those commands.
    pub file: (Reference, &'static [&'static str]),
}

/// Name and section of a man page.
pub(crate) type Reference = (&'static str, &'static str);

/// The man page of a command.
pub(crate) fn man(command: Command, manual: &Manual, out: &mut impl Write) -> io::Result<()> {
    let section = manual.section;
    let examples = command.get_after_help().map(ToString::to_string);
    let examples = examples
        .as_deref()
        .and_then(|text| text.strip_prefix("Examples:\n"));
    let has_commands = command.get_subcommands().any(|it| !it.is_hide_set());
    let has_version = command
        .get_version()
        .or(command.get_long_version())
        .is_some();
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    // The same for `dns64d-ctl` and `dns64d`.
    let program = name.split('-').next().unwrap_or_default().to_owned();
    let synopsis = synopsis(&command);
    writeln!(out, ".TH {name} {section} \"\" \"\" {program}")?;
    let page = Man::new(
        command
            .override_usage(synopsis)
            .after_help(Resettable::Reset),
    );
    let page = page.section(section);
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if has_commands {
        page.render_subcommands_section(out)?;
    }
    if let Some(examples) = examples {
        write!(out, ".SH EXAMPLES\n.nf\n")?;
        for line in examples.lines() {
            writeln!(out, "{}", roff(line.trim_start()))?;
        }
        writeln!(out, ".fi")?;
    }
    let exit_status = manual.exit_status.trim_start_matches("Exit codes: ");
    writeln!(out, ".SH \"EXIT STATUS\"\n{}", roff(exit_status))?;
    if has_version {
        page.render_version_section(out)?;
    }
    let mut others = Vec::new();
    if name != program {
        others.push((program.as_str(), section));
    }
    let (file, readers) = manual.file;
    if readers.contains(&name.as_str()) {
        others.push(file);
    }
    write!(out, "{}", see_also(&others))
}

/// The section that refers to these pages; empty without pages.
pub(crate) fn see_also(pages: &[(&str, &str)]) -> String {
    let reference =
        |(name, section): &(&str, &str)| format!(".BR {} ({section})", name.replace('-', "\\-"));
    match pages {
        [] => String::new(),
        pages => {
            let pages: Vec<_> = pages.iter().map(reference).collect();
            format!(".SH \"SEE ALSO\"\n{}\n", pages.join(" ,\n"))
        }
    }
}

/// Writes the man pages of a built command and of all its subcommands that are not hidden to a directory.
pub(crate) fn man_pages(command: Command, manual: &Manual, directory: &Path) -> io::Result<()> {
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    for below in shown.filter(|it| it.get_name() != "help").cloned() {
        man_pages(below, manual, directory)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.{}", manual.section));
    let mut text = Vec::new();
    man(command, manual, &mut text)?;
    std::fs::write(path, text)
}

/// Escapes a line for roff.
pub(crate) fn roff(line: &str) -> String {
    // A dot or an apostrophe at the beginning of a line would be a request.
    format!("\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))
}

/// The synopsis of a command, with the values of its options.
fn synopsis(command: &Command) -> String {
    if let Some(usage) = command.get_overridden_usage() {
        return usage.to_string();
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let (positional, options): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(shown)
        .partition(|arg| arg.is_positional());
    let mut words = vec![name.to_owned()];
    words.extend(options.into_iter().chain(positional).map(word));
    if command.has_subcommands() {
        let required = command.is_subcommand_required_set();
        words.push(if required { "COMMAND" } else { "[COMMAND]" }.to_owned());
    }
    words.join(" ")
}

/// An option with its value, or a positional argument.
fn word(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => String::new(),
    };
    let takes_value = arg.is_positional() || arg.get_action().takes_values();
    let mut word = match (flag.is_empty(), takes_value) {
        (true, _) => values,
        (false, true) => format!("{flag} {values}"),
        (false, false) => flag,
    };
    if !arg.is_required_set() {
        word = format!("[{word}]");
    }
    if matches!(arg.get_action(), ArgAction::Append) {
        word += "...";
    }
    word
}

/// The help of a command and of all below it as a page of Markdown. An option of several commands is described under the
/// first of them.
pub(crate) fn markdown(command: Command, out: &mut impl Write) -> io::Result<()> {
    let mut command = command.term_width(WIDTH);
    command.build();
    let name = command.get_name();
    writeln!(
        out,
        "# The command line of {name}\n\nPrinted by `{name} generate markdown`."
    )?;
    chapter(command, &mut HashMap::new(), out)
}

/// The help of a command and of all its subcommands, each under its own heading, without hidden commands. `described` has
/// the command under which an option is described.
fn chapter(
    command: Command,
    described: &mut HashMap<String, String>,
    out: &mut impl Write,
) -> io::Result<()> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let name = name.to_owned();
    let mut elsewhere: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut command = command.mut_args(|arg| {
        let Some(flag) = arg.get_long().filter(|_| !arg.is_hide_set()) else {
            return arg;
        };
        let meaning = (
            arg.get_help(),
            arg.get_long_help(),
            arg.get_default_values(),
        );
        match described.entry(format!("{flag} {meaning:?}")) {
            Entry::Vacant(new) => {
                new.insert(name.clone());
                arg
            }
            Entry::Occupied(first) => {
                if flag != "help" {
                    let same = elsewhere.entry(first.get().clone()).or_default();
                    same.push(format!("`--{flag}`"));
                }
                arg.hide(true)
            }
        }
    });
    let help = command.render_long_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    write!(
        out,
        "\n## {name}\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    )?;
    for (first, flags) in elsewhere {
        writeln!(out, "\nAs for `{first}`: {}.", flags.join(", "))?;
    }
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let mut subcommands = command.get_subcommands().filter(shown);
    subcommands.try_for_each(|subcommand| chapter(subcommand.clone(), described, out))
}

/// Columns of the text, independent of the terminal.
const WIDTH: usize = 100;
