//! How a server is told of several authorities.

use serde::Deserialize;
use toml::Spanned;

use super::template::{has, substitute};
use super::{Profile, Settings, UPSTREAMS};
use crate::lab::{Blame, LabError};

/// The table `[upstreams]` of a profile: what `{upstreams}` in its files stands for. Lists have another form in each server,
/// so a profile says what is written for each authority, and what between two of them. A server that is told of one alone
/// is told the same as by the placeholders of `each`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstreams {
    /// What is written for an authority, with placeholders such as `{upstream}` for its address.
    each: Spanned<String>,
    /// What is written between two.
    between: String,
    /// The most that the server takes; without it any number.
    most: Option<usize>,
}

impl Upstreams {
    /// Authorities that the server takes at most.
    pub fn most(&self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }

    /// What is written for each.
    pub(super) fn each(&self) -> &Spanned<String> {
        &self.each
    }

    /// Refuses a table that nothing of the profile uses, so that several authorities would be one; an error is a byte
    /// offset and a message.
    pub(super) fn check<'a>(
        &self,
        mut templates: impl Iterator<Item = &'a Spanned<String>>,
    ) -> Result<(), (usize, String)> {
        match templates.any(|template| has(template.get_ref(), UPSTREAMS)) {
            true => Ok(()),
            false => Err((
                self.each.span().start,
                format!(
                    "nothing has the placeholder {{{UPSTREAMS}}}; write it into a file, or omit the table"
                ),
            )),
        }
    }

    /// All authorities, by what placeholders stand for where there is one.
    pub(super) fn written(
        &self,
        settings: &Settings,
        value: impl Fn(&Settings, &str) -> String,
    ) -> String {
        let each = settings.upstreams.iter().map(|&upstream| {
            let one = Settings {
                upstreams: vec![upstream],
                ..settings.clone()
            };
            substitute(self.each.get_ref(), |name| value(&one, name))
        });
        each.collect::<Vec<_>>().join(&self.between)
    }
}

impl Profile {
    /// Whether the server can ask so many authorities.
    ///
    /// # Errors
    ///
    /// They are more than it can ask; the error says how many those are.
    pub fn check_upstreams(&self, authorities: usize) -> Result<(), LabError> {
        let most = self.upstreams.as_ref().map_or(1, Upstreams::most);
        if authorities <= most {
            return Ok(());
        }
        let remedy = match &self.upstreams {
            None => "use a plan with one, or a profile with a table [upstreams]",
            Some(_) => "use a plan with fewer",
        };
        Err(Blame::Request.error(format!(
            "{} asks at most {most} of the {authorities} authorities; {remedy}",
            self.name
        )))
    }
}
