//! The flags of the table of settings.

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use crate::campaign::plan::draft::Draft;
use crate::campaign::plan::settings::{self, Setting};

/// What the flags of a command set. Which flags a command has is a column of the table.
#[derive(Clone, Debug)]
pub struct Flags(pub Box<Draft>);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let name = command.get_name().to_owned();
        let its = settings::all()
            .iter()
            .filter(|it| it.commands.contains(&name));
        command.args(its.filter_map(|setting| Some(arg(setting, setting.flag.as_deref()?))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let draft = Draft::of_flags(|setting| texts(setting, matches));
        let invalid = |error| clap::Error::raw(ErrorKind::ValueValidation, error);
        draft.map(|draft| Self(Box::new(draft))).map_err(invalid)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The values of a flag, if it is given.
fn texts(setting: &Setting, matches: &ArgMatches) -> Option<Vec<String>> {
    let flag = setting.flag.as_deref()?;
    if let Some(text) = &setting.switch {
        let is_given = *matches.try_get_one::<bool>(flag).ok()??;
        return is_given.then(|| vec![text.clone()]);
    }
    // A command may have a flag of its own in place of this one.
    let texts = matches.try_get_many::<String>(flag).ok()??;
    Some(texts.cloned().collect())
}

fn arg(setting: &'static Setting, flag: &'static str) -> Arg {
    let help = match &setting.otherwise {
        Some(otherwise) => format!("{} [default: {otherwise}]", setting.help),
        None => setting.help.clone(),
    };
    let mut arg = Arg::new(flag)
        .long(flag)
        .short(setting.short)
        .visible_aliases(setting.alias.as_deref())
        .help_heading(setting.heading.as_deref())
        .conflicts_with_all(setting.conflicts.iter().map(String::as_str));
    if let Some(more) = &setting.more {
        arg = arg.long_help(format!("{help}\n\n{more}"));
    }
    arg = arg.help(help);
    if let Some(other) = setting.requires.as_deref() {
        arg = arg.requires(other);
    }
    if setting.switch.is_some() {
        return arg.action(ArgAction::SetTrue);
    }
    if setting.named || setting.repeats {
        arg = arg.action(ArgAction::Append);
    }
    if let Some(default) = setting.default.first() {
        arg = arg.default_value(default.as_str());
    }
    if ["dut", "authority"].contains(&flag) {
        arg = arg.value_hint(ValueHint::FilePath);
    }
    arg.value_name(setting.value.as_deref().unwrap_or("VALUE"))
        .allow_negative_numbers(true)
        .value_parser(parser(setting))
}

fn parser(setting: &'static Setting) -> ValueParser {
    if setting.choices.is_empty() {
        return ValueParser::new(move |text: &str| setting.check(text).map(|()| text.to_owned()));
    }
    let choices = setting.choices.iter();
    let values = choices.map(|(name, help)| PossibleValue::new(name.as_str()).help(help.as_str()));
    PossibleValuesParser::new(values).into()
}
