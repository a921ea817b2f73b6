//! Configuration of a server with several authorities.

use serde::Deserialize;
use toml::Spanned;

use super::template::{has, substitute};
use super::{Profile, Settings, UPSTREAMS};
use crate::lab::{Blame, LabError};

/// The table `[upstreams]` of a profile: the value of `{upstreams}` in its files. Each server has its own format of
/// lists, so a profile gives the text for each authority and the separator. For a single authority, the result is the
/// same as with the placeholders of `each`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstreams {
    /// Text for one authority, with placeholders such as `{upstream}` for its address.
    each: Spanned<String>,
    /// Separator between two.
    between: String,
    /// Largest number that the server supports; unlimited if absent.
    most: Option<usize>,
}

impl Upstreams {
    /// Largest number of authorities that the server supports.
    pub fn most(&self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }

    /// The text for each authority.
    pub(super) fn each(&self) -> &Spanned<String> {
        &self.each
    }

    /// Refuses a table that the profile does not use, because all but one of several authorities would be ignored. An
    /// error is a byte offset and a message.
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

    /// Text for all authorities; `value` gives the placeholders for one authority.
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
    /// Checks that the server supports this number of authorities.
    ///
    /// # Errors
    ///
    /// It does not; the error has the largest number.
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
