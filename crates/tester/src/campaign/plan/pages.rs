//! The keys of plans as text.

use super::reader::{below, heading};
use super::settings::{Setting, of_table};

/// The keys of all tables as paragraphs of a man page.
pub(crate) fn roff(escape: impl Fn(&str) -> String) -> String {
    let sections = [""].iter().chain(below("")).chain(&["link"]);
    let mut page = String::new();
    for table in sections {
        page += &format!(".SS \"{}\"\n", heading(table));
        for setting in of_table(table) {
            page += &format!(".TP\n.B {}\n", setting.name());
            let lines = [setting.meaning(), setting.values(), setting.by_default()];
            let lines = lines.iter().filter(|line| !line.is_empty());
            let lines: Vec<_> = lines.map(|line| escape(&line.replace('`', ""))).collect();
            page += &(lines.join("\n.br\n") + "\n");
        }
    }
    page
}

impl Setting {
    /// Its help in one paragraph.
    pub(super) fn meaning(&self) -> String {
        let more = self
            .more
            .as_ref()
            .map_or_else(String::new, |more| format!(". {more}"));
        self.summary() + &more
    }

    /// Its help in one line.
    pub(super) fn summary(&self) -> String {
        let help = self.key_help.as_ref().unwrap_or(&self.help);
        let list = if self.many && !self.named {
            "; one value or a list"
        } else {
            ""
        };
        format!("{help}{list}")
    }

    /// Its values, if they can be listed, or their bounds.
    pub(super) fn values(&self) -> String {
        let choices = self
            .choices
            .iter()
            .map(|(name, help)| format!("`{name:?}`: {help}"));
        let choices: Vec<_> = choices.collect();
        match (&self.least, &self.most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (None, Some(most)) => format!("up to {most}"),
            _ => choices.join("; "),
        }
    }

    /// The default in words; empty without one.
    pub(crate) fn by_default(&self) -> String {
        let default = self.default.join(", ");
        match self.otherwise.as_ref().unwrap_or(&default).as_str() {
            "" => String::new(),
            default => format!("Default: {default}"),
        }
    }
}
