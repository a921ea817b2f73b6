//! Reads the text of a plan: one pass over its keys, by the table of settings.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{Directory, Draft, Dut, Host};
use super::places::{Fault, Faults, Place};
use super::settings::{Setting, of_table};
use crate::lab::hosts::{LinkEnd, LinkName};
use crate::quantity::is_near;

/// Reads all keys. `None` if the text is not TOML.
pub(super) fn read(text: &str, origin: &str, faults: &mut Faults) -> Option<Draft> {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        let remedy = match message.starts_with("duplicate key") {
            true => "omit one of them",
            false => "put texts into quotes, and close each quote and bracket",
        };
        faults.put(Fault {
            place: Place::default(),
            span: Some(error.span().unwrap_or(text.len()..text.len())),
            message: format!("not valid TOML: {message}; {remedy}"),
        });
    }
    if !faults.is_empty() {
        return None;
    }
    let mut draft = Draft::new(Directory::of(origin));
    (draft.plan.origin, draft.plan.text) = (origin.to_owned(), text.to_owned());
    let mut reader = Reader {
        text,
        draft,
        faults,
    };
    let top = Place::default();
    reader.table("", &top, document.get_ref());
    let absent = SECTIONS
        .iter()
        .filter(|key| !document.get_ref().contains_key(**key));
    absent.for_each(|key| reader.table(key, &top.key(key), &DeTable::new()));
    Some(reader.draft)
}

/// Tables whose settings have a value in any plan.
const SECTIONS: [&str; 4] = ["tester", "trial", "search", "cells"];

type Item<'t> = Spanned<DeValue<'t>>;

struct Reader<'a> {
    text: &'a str,
    draft: Draft,
    faults: &'a mut Faults,
}

impl Reader<'_> {
    /// Reads the keys of a table, and sets the others by default.
    fn table(&mut self, table: &str, place: &Place, items: &DeTable<'_>) {
        let mut set = Vec::new();
        for (key, item) in items {
            let (name, span) = (key.get_ref().as_ref(), key.span());
            let place = place.key(name);
            match of_table(table).find(|setting| setting.name() == name) {
                Some(setting) => {
                    self.draft.given.push(place.clone());
                    if self.setting(setting, &place, item) {
                        set.push(name);
                    }
                }
                None if below(table).contains(&name) => self.below(table, &place, item),
                None => self.unknown(table, &place, span),
            }
        }
        for setting in of_table(table).filter(|it| !set.contains(&it.name())) {
            setting.set_default(&mut self.draft);
        }
    }

    fn unknown(&mut self, table: &str, place: &Place, span: Range<usize>) {
        let given = place.name();
        let names = of_table(table).map(Setting::name);
        let names: Vec<_> = names.chain(below(table).iter().copied()).collect();
        let remedy = match names.iter().find(|known| is_near(given, known)) {
            Some(known) => format!("write `{known}`"),
            None => format!("there are {}", names.join(", ")),
        };
        self.faults.put(Fault {
            place: place.clone(),
            span: Some(span),
            message: format!("`{given}` is not a key of {}; {remedy}", heading(table)),
        });
    }

    /// Reads the tables at a key.
    fn below(&mut self, table: &str, place: &Place, item: &Item<'_>) {
        match (table, place.name()) {
            ("", "dut") => {
                let Some(duts) = item.get_ref().as_array() else {
                    return self.refuse(place, item, "a list of tables", "[[dut]]");
                };
                for (number, item) in duts.iter().enumerate() {
                    let place = place.item(number);
                    self.draft.dut = Dut {
                        place: place.clone(),
                        ..Dut::default()
                    };
                    if self.open("dut", &place, item) {
                        self.draft.duts.push(self.draft.dut.clone());
                    }
                }
            }
            ("", "hosts") => {
                let Some(hosts) = item.get_ref().as_table() else {
                    return self.refuse(place, item, "a table", "[hosts.NAME]");
                };
                let mut hosts: Vec<_> = hosts.iter().collect();
                hosts.sort_by_key(|(_, item)| item.span().start);
                for (name, item) in hosts {
                    let place = place.key(name.get_ref());
                    self.draft.host = Host {
                        place: place.clone(),
                        ..Host::default()
                    };
                    self.draft.host.spec.name = name.get_ref().to_string();
                    if self.open("hosts", &place, item) {
                        self.draft.hosts.push(self.draft.host.clone());
                    }
                }
            }
            ("hosts", _) => drop(self.open("links", place, item)),
            ("links", name) => {
                let links = LINKS.into_iter().find(|link| link.as_ref() == name);
                let one = std::slice::from_ref(item);
                let ends = item.get_ref().as_array().map_or(one, |items| items);
                for (number, item) in ends.iter().enumerate() {
                    self.draft.link = LinkEnd::default();
                    if let (true, Some(link)) =
                        (self.open("link", &place.item(number), item), links)
                    {
                        let ends = self.draft.host.spec.links.entry(link).or_default();
                        ends.push(self.draft.link.clone());
                    }
                }
            }
            (_, section) => drop(self.open(section, place, item)),
        }
    }

    /// Reads a table, if the value is one.
    fn open(&mut self, table: &str, place: &Place, item: &Item<'_>) -> bool {
        match item.get_ref().as_table() {
            Some(items) => self.table(table, place, items),
            None => {
                let example = format!("{} with its keys below", heading(table));
                self.refuse(place, item, "a table", &example);
            }
        }
        item.get_ref().is_table()
    }

    /// Sets a setting; whether it has a value then.
    fn setting(&mut self, setting: &Setting, place: &Place, item: &Item<'_>) -> bool {
        if !setting.named {
            return self.values(setting, place, item, "");
        }
        let Some(entries) = item.get_ref().as_table() else {
            let example = format!("{} = {}", setting.name(), setting.example());
            self.refuse(place, item, "a table", &example);
            return false;
        };
        for (name, item) in entries {
            let name = name.get_ref();
            self.values(setting, &place.key(name), item, &format!("{name}="));
        }
        true
    }

    /// Sets one value or each of a list, after the name of a value in a table.
    fn values(&mut self, setting: &Setting, place: &Place, item: &Item<'_>, name: &str) -> bool {
        let items = item.get_ref().as_array().filter(|_| setting.many);
        let items = items.map_or(std::slice::from_ref(item), |items| items);
        if items.is_empty() {
            let remedy = match setting.by_default().is_empty() {
                true => "",
                false => ", or omit the key",
            };
            let (name, one) = (place.name(), setting.one());
            let message = format!("`{name}` is []: give at least one {one}{remedy}");
            self.faults.add(place, message);
        }
        let mut is_set = false;
        for (number, item) in items.iter().enumerate() {
            let place = place.item(number);
            let Some(text) = scalar(item.get_ref()) else {
                let wanted = match setting.many {
                    true => "a text, a number, or a list of them",
                    false => "a text or a number",
                };
                let example = match name {
                    "" => setting.example(),
                    _ => "1".to_owned(),
                };
                self.refuse(
                    &place,
                    item,
                    wanted,
                    &format!("{} = {example}", place.name()),
                );
                continue;
            };
            match setting.set(&mut self.draft, &format!("{name}{text}")) {
                Ok(()) => is_set = true,
                Err(error) => self.refuse_value(&place, item, &text, &error.to_string()),
            }
        }
        is_set
    }

    /// A value that is not `wanted`.
    fn refuse(&mut self, place: &Place, item: &Item<'_>, wanted: &str, example: &str) {
        let written = shown(&self.text[item.span()]);
        let message = format!(
            "`{}` is {written}: it must be {wanted}; write {example}",
            place.name()
        );
        self.put(place, item, message);
    }

    /// Adds the value to the reason unless the reason contains it.
    fn refuse_value(&mut self, place: &Place, item: &Item<'_>, text: &str, reason: &str) {
        let quotes = [format!("{text:?}"), format!("'{text}'")];
        let is_named = quotes.iter().any(|quoted| reason.contains(quoted));
        let (key, written) = (place.name(), shown(&self.text[item.span()]));
        let message =
            match is_named || (text.len() > 3 && reason.split(' ').any(|word| word == text)) {
                true => format!("`{key}`: {reason}"),
                false => format!("`{key}` is {written}: {reason}"),
            };
        self.put(place, item, message);
    }

    fn put(&mut self, place: &Place, item: &Item<'_>, message: String) {
        self.faults.put(Fault {
            place: place.clone(),
            span: Some(item.span()),
            message,
        });
    }
}

/// Tables within a table.
pub(super) fn below(table: &str) -> &'static [&'static str] {
    match table {
        "" => &[
            "tester",
            "trial",
            "search",
            "cells",
            "queue-check",
            "overload",
            "soak",
            "conformance",
            "dut",
            "hosts",
        ],
        "hosts" => &["links"],
        "links" => &["client", "upstream", "self-test"],
        _ => &[],
    }
}

const LINKS: [LinkName; 3] = [LinkName::Client, LinkName::Upstream, LinkName::SelfTest];

/// The heading of a table in a plan.
pub(super) fn heading(table: &str) -> String {
    match table {
        "" => "a plan".to_owned(),
        "dut" => "[[dut]]".to_owned(),
        "hosts" => "[hosts.NAME]".to_owned(),
        "links" => "[hosts.NAME.links]".to_owned(),
        "link" => "[hosts.NAME.links.client]".to_owned(),
        section => format!("[{section}]"),
    }
}

/// A value as it would be on the command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .ok()?
            .to_string(),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok()?.to_string(),
        DeValue::Boolean(is_true) => is_true.to_string(),
        _ => return None,
    })
}

/// A value as written, shortened to fit into a message.
fn shown(written: &str) -> String {
    let line = written.lines().next().unwrap_or_default();
    match line.chars().count() > SHOWN_MAX || line.len() < written.len() {
        true => line.chars().take(SHOWN_MAX).chain("...".chars()).collect(),
        false => line.to_owned(),
    }
}

/// Characters of a value in a message; more are of no use.
const SHOWN_MAX: usize = 40;
