//! The keys found so far, each with the statement that it comes from.

use std::collections::BTreeMap;

use super::Imported;
use super::tree::{Statement, last};
use crate::config::error::{ConfigError, Fault, Problem};
use crate::config::parse;

/// Keys whose value is a list, to which each statement adds an element.
const LISTS: &str = "allow block-addresses block-except clients domains exclude-aaaa exempt force-domains forward-special \
    listen map records servers source zones";

fn is_list(key: &str) -> bool {
    LISTS.split(' ').any(|list| list == key)
}

/// Table and key of a path.
fn split(path: &str) -> (String, String) {
    let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
    (table.to_owned(), key.to_owned())
}

/// Lines of the text: those of a table, of its key, or of an element of a list.
type Lines = (String, Option<String>, Option<usize>);

/// The configuration in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The values in TOML by table and key, each with its statement.
    keys: BTreeMap<(String, String), Vec<(String, String)>>,
    left: Vec<String>,
}

impl Draft {
    /// Sets a key by the rule for a statement of one word and a value. `false`: there is no rule.
    pub(super) fn apply(&mut self, rules: &str, it: &Statement) -> bool {
        let mut rules = rules.lines().map(str::split_whitespace);
        let rule = rules.find_map(|mut rule| {
            let is_same = rule.next()? == it.word(0);
            is_same.then_some((rule.next()?, rule.next()?))
        });
        let Some((path, form)) = rule else {
            return false;
        };
        let value = it.word(1);
        let toml = match form {
            "text" if value == "none" => return true,
            "number" if value.parse::<u64>().is_ok() => value.to_owned(),
            "text" | "number" => quoted(value),
            "size" => size(value),
            "s" | "ms" | "00ms" => time(value, form),
            toml if value == "yes" => toml.to_owned(),
            _ => return true,
        };
        self.set(path, toml, it);
        true
    }

    /// Sets a key, `TABLE.KEY`, to a text, or adds it to its list.
    pub(super) fn text(&mut self, path: &str, text: &str, it: &Statement) {
        self.set(path, quoted(text), it);
    }

    /// Sets a key, `TABLE.KEY`, to a value in TOML, or adds it to its list.
    pub(super) fn set(&mut self, path: &str, toml: String, it: &Statement) {
        let key = split(path);
        let is_list = is_list(&key.1);
        let values = self.keys.entry(key).or_default();
        if !is_list {
            values.clear();
        }
        values.push((toml, it.to_string()));
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.keys.contains_key(&split(path))
    }

    /// Serves stale answers if the first statement is `yes`, for the time of the second.
    pub(super) fn stale(&mut self, all: &[Statement], [switch, ttl]: [&str; 2]) {
        if let Some(it) = last(all, switch).filter(|it| it.word(1) == "yes") {
            let ttl = last(all, ttl).map_or("0", |it| it.word(1));
            // 0 is without a limit.
            let ttl = if ttl == "0" { "1d" } else { ttl };
            self.set("cache.serve-stale", time(ttl, "s"), it);
        }
    }

    /// Without servers for all names: queries the other server, which then resolves for this one.
    pub(super) fn query_beside(&mut self, server: &str, it: &Statement) {
        if !self.has("upstream.servers") {
            self.text("upstream.servers", BESIDE, it);
            let why = format!("no forwarder: let {server} listen at {BESIDE}, without DNS64");
            self.leave(it, &why);
        }
    }

    /// Notes a statement without a counterpart, and why, if that is not obvious.
    pub(super) fn leave(&mut self, it: &Statement, why: &str) {
        let separator = if why.is_empty() { "" } else { ": " };
        self.left.push(format!("{it}{separator}{why}"));
    }

    /// The configuration, without the values that this server refuses.
    ///
    /// # Errors
    ///
    /// Nothing valid is left.
    pub(super) fn finish(mut self, text: &str, name: &str) -> Result<Imported, ConfigError> {
        loop {
            let (toml, lines) = self.render();
            let left = self.left.len();
            let problems = match parse(&toml, name) {
                Err(ConfigError::Invalid { problems }) => problems,
                parsed => {
                    return parsed.map(|_| Imported {
                        toml,
                        left: self.left,
                    });
                }
            };
            // From the last one, so that the places of the others stay.
            for problem in problems.iter().rev() {
                if let Some(Some(lines)) = lines.get(problem.line - 1) {
                    self.refuse(lines, &problem.text);
                }
            }
            if self.left.len() == left {
                let reason = problems.first().map_or("", |problem| &problem.text);
                let fault = Fault {
                    span: text.len()..text.len(),
                    text: format!("cannot be converted: {reason}"),
                };
                return Err(Problem::new(name, text, fault).into());
            }
        }
    }

    /// The text, and what its lines are.
    fn render(&self) -> (String, Vec<Option<Lines>>) {
        let mut lines: Vec<(String, Option<Lines>)> = Vec::new();
        let mut last = "";
        for ((table, key), values) in &self.keys {
            if table != last {
                last = table;
                lines.push((String::new(), None));
                let header = match table.split_once('.') {
                    Some((name, _)) => format!("[[{name}]]"),
                    None => format!("[{table}]"),
                };
                lines.push((header, Some((table.clone(), None, None))));
            }
            let at = |index| Some((table.clone(), Some(key.clone()), index));
            if is_list(key) {
                lines.push((format!("{key} = ["), at(None)));
                let elements = values.iter().enumerate();
                lines.extend(
                    elements.map(|(index, (toml, _))| (format!("    {toml},"), at(Some(index)))),
                );
                lines.push(("]".to_owned(), None));
            } else {
                lines.extend(
                    values
                        .iter()
                        .map(|(toml, _)| (format!("{key} = {toml}"), at(None))),
                );
            }
        }
        let (text, lines): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
        (text.join("\n") + "\n", lines)
    }

    /// Removes what is in these lines, with the reason.
    fn refuse(&mut self, (table, key, index): &Lines, why: &str) {
        for ((of, own), values) in &mut self.keys {
            if of == table && key.as_ref().is_none_or(|key| key == own) {
                let refused = index.map_or(0..values.len(), |index| index..index + 1);
                let refused = values.drain(refused);
                self.left
                    .extend(refused.map(|(_, from)| format!("{from}: {why}")));
            }
        }
        self.keys.retain(|_, values| !values.is_empty());
    }
}

/// Where a resolver on the same host listens, beside dns64d.
const BESIDE: &str = "127.0.0.1:5353";

/// A text in TOML, on one line.
pub(super) fn quoted(text: &str) -> String {
    let text = text.replace(char::is_control, "?");
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn time(text: &str, unit: &str) -> String {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    quoted(&format!("{text}{}", if has_unit { "" } else { unit }))
}

/// A number of octets, or a size like `64m`.
fn size(text: &str) -> String {
    if let Ok(octets) = text.parse::<u64>() {
        return quoted(&format!("{}KiB", octets.div_ceil(1 << 10)));
    }
    let text = text.to_ascii_uppercase();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    quoted(&format!("{number}{}iB", unit.trim_end_matches('B')))
}

/// An address with a port.
pub(super) fn endpoint(address: &str, port: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}
