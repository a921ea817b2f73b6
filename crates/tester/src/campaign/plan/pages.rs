//! The keys of plans as text: tables of docs/plan.md, dns64bench-plan(5), and what the dry run prints.

use super::reader::{below, heading};
use super::settings::{Setting, of_table};

/// The keys of a table as a table of Markdown.
pub(crate) fn markdown(table: &str) -> String {
    let mut text = "| key | default | values | |\n|---|---|---|---|\n".to_owned();
    for setting in of_table(table) {
        let quoted = |text: &String| format!("`{}`", setting.in_plan(text));
        let default: Vec<_> = setting.default.iter().map(quoted).collect();
        let default = match setting.otherwise.as_deref() {
            Some(otherwise) => otherwise.to_owned(),
            None => default.join(", "),
        };
        text += &format!(
            "| `{}` | {default} | {} | {} |\n",
            setting.name(),
            setting.values(),
            setting.meaning()
        );
    }
    text.replace(" |  |", " | |")
}

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
    /// A text as a value in a plan.
    fn in_plan(&self, text: &str) -> String {
        match text.parse::<f64>().is_ok() || ["true", "false"].contains(&text) {
            true => text.to_owned(),
            false => format!("{text:?}"),
        }
    }

    /// Its help in one paragraph.
    fn meaning(&self) -> String {
        let more = self
            .more
            .as_ref()
            .map_or_else(String::new, |more| format!(". {more}"));
        let list = if self.many {
            "; one value or a list"
        } else {
            ""
        };
        format!("{}{list}{more}", self.help)
    }

    /// Its values, if they can be listed, or their bounds.
    fn values(&self) -> String {
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
