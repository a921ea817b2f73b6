//! Reads tables of a plan key by key, so that every fault is found together with its place.

use std::fmt::{self, Display};
use std::ops::Range;

use serde::Deserialize;
use serde::de::value::StrDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, Faults};

/// A value and its key.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    table: &'static str,
    key: String,
    span: Range<usize>,
    /// The value as written, shortened to fit into a message.
    written: String,
    value: T,
}

impl<T> At<T> {
    pub(super) fn get_ref(&self) -> &T {
        &self.value
    }

    /// Its place in the text.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Its place without the value.
    pub(super) fn whole(&self) -> At<()> {
        At {
            table: self.table,
            key: self.key.clone(),
            span: self.span(),
            written: self.written.clone(),
            value: (),
        }
    }

    /// Creates a fault at this place; `message` is a complete sentence.
    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault {
            span: self.span(),
            table: self.table,
            message: message.into(),
        }
    }

    /// Creates a fault for a refused text; adds the value unless the reason contains it.
    pub(super) fn refused(&self, text: &str, reason: &str) -> Fault {
        let quotes = [format!("{text:?}"), format!("'{text}'")];
        let is_named = quotes.iter().any(|quoted| reason.contains(quoted));
        let (key, written) = (&self.key, &self.written);
        self.fault(
            match is_named || (text.len() > 3 && reason.contains(text)) {
                true => format!("`{key}`: {reason}"),
                false => format!("`{key}` is {written}: {reason}"),
            },
        )
    }
}

/// A text or a number: `"10k"`, `10000`, `0.5`. A number is converted to the text that it would be on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub String);

/// One [`Word`], or a list of them.
#[derive(Clone, Debug)]
pub(crate) struct Many(pub Vec<At<Word>>);

type Item<'t> = Spanned<DeValue<'t>>;

/// A table that is being read. A key that is not read is a fault.
pub(super) struct Section<'a, 't, 'f> {
    table: &'a DeTable<'t>,
    name: &'static str,
    asked: Vec<&'static str>,
    pub(super) faults: &'a mut Faults<'f>,
}

/// Reads a table with this name.
pub(super) fn open<T>(
    table: &DeTable<'_>,
    name: &'static str,
    faults: &mut Faults<'_>,
    read: impl FnOnce(&mut Section<'_, '_, '_>) -> T,
) -> T {
    let mut section = Section {
        table,
        name,
        asked: Vec::new(),
        faults,
    };
    let value = read(&mut section);
    section.refuse_unknown();
    value
}

impl<'a, 't> Section<'a, 't, '_> {
    fn refuse_unknown(&mut self) {
        for key in self.table.keys() {
            let given = key.get_ref().as_ref();
            if self.asked.contains(&given) {
                continue;
            }
            let near = self.asked.iter().find(|known| is_near(given, known));
            let remedy = match near {
                Some(known) => format!("write `{known}`"),
                None => format!("there are {}", self.asked.join(", ")),
            };
            self.faults.add(Fault {
                span: key.span(),
                table: self.name,
                message: format!("`{given}` is not a key of {}; {remedy}", self.name),
            });
        }
    }

    fn item(&mut self, key: &'static str) -> Option<&'a Item<'t>> {
        self.asked.push(key);
        self.table.get(key)
    }

    fn at<T>(&self, key: &str, item: &Item<'_>, value: T) -> At<T> {
        At {
            table: self.name,
            key: key.to_owned(),
            span: item.span(),
            written: shown(&self.faults.text[item.span()]),
            value,
        }
    }

    /// Whether a key exists, whatever its value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A value; `None` and a fault if its type is not `wanted`.
    fn typed<T>(
        &mut self,
        key: &str,
        item: &Item<'_>,
        (wanted, example): (&str, &str),
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<At<T>> {
        let value = read(item.get_ref());
        let at = self.at(key, item, ());
        if value.is_none() {
            let given = &at.written;
            let message = format!("`{key}` is {given}: it must be {wanted}; write {example}");
            self.faults.add(at.fault(message));
        }
        Some(self.at(key, item, value?))
    }

    pub(super) fn text(&mut self, key: &'static str, example: &str) -> Option<At<String>> {
        let item = self.item(key)?;
        let example = format!("{key} = {example:?}");
        self.typed(key, item, ("a text", &example), |value| {
            value.as_str().map(str::to_owned)
        })
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Option<At<bool>> {
        let item = self.item(key)?;
        let wanted = ("true or false", format!("{key} = true"));
        self.typed(key, item, (wanted.0, &wanted.1), |value| value.as_bool())
    }

    /// An integer from 1 to `most`.
    pub(super) fn number(&mut self, key: &'static str, most: u64) -> Option<At<u64>> {
        let item = self.item(key)?;
        let wanted = format!("a whole number from 1 to {most}");
        let example = format!("{key} = {}", most.min(4));
        self.typed(key, item, (&wanted, &example), |value| {
            let number = value.as_integer()?;
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok()?;
            (1..=most).contains(&number).then_some(number)
        })
    }

    pub(super) fn word(&mut self, key: &'static str, example: &str) -> Option<At<Word>> {
        let item = self.item(key)?;
        let example = format!("{key} = {example}");
        self.typed(key, item, ("a text or a number", &example), word)
    }

    /// One word, or a list of words.
    pub(super) fn many(&mut self, key: &'static str, example: &str) -> Option<At<Many>> {
        let item = self.item(key)?;
        let words = self.words(key, item, example)?;
        Some(self.at(key, item, Many(words.value)))
    }

    fn words(&mut self, key: &str, item: &Item<'_>, example: &str) -> Option<At<Vec<At<Word>>>> {
        let one = std::slice::from_ref(item);
        let items = item.get_ref().as_array().map_or(one, |items| items);
        let example = format!("{key} = {example}");
        let wanted = ("a text, a number, or a list of them", example.as_str());
        let words: Vec<_> = items
            .iter()
            .map(|item| self.typed(key, item, wanted, word))
            .collect();
        let words = words.into_iter().collect::<Option<_>>()?;
        Some(self.at(key, item, words))
    }

    /// One of the names of a type; the error lists them.
    pub(super) fn choice<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &'static str,
    ) -> Option<At<T>> {
        let item = self.item(key)?;
        self.chosen(key, item, ["", ""])
    }

    /// A list of names of a type.
    pub(super) fn choices<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &'static str,
        example: &str,
    ) -> Option<At<Vec<T>>> {
        let items = self.list(key, example);
        let chosen = items
            .iter()
            .filter_map(|item| self.chosen(key, item, ["[", "]"]));
        let chosen = chosen.map(|at| at.value).collect();
        let item = self.table.get(key)?;
        Some(self.at(key, item, chosen))
    }

    fn chosen<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &str,
        item: &Item<'_>,
        [open, close]: [&str; 2],
    ) -> Option<At<T>> {
        let text = item.get_ref().as_str().unwrap_or_default();
        let choice = T::deserialize(StrDeserializer::<Names>::new(text));
        let names = choice.as_ref().err().map_or(&[][..], |names| names.0);
        let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
        let wanted = quoted.join(" or ");
        let first = quoted.first().map_or("", String::as_str);
        let example = format!("{key} = {open}{first}{close}");
        self.typed(key, item, (&wanted, &example), |_| choice.ok())
    }

    /// The elements of a list of texts.
    pub(super) fn texts(&mut self, key: &'static str, example: &str) -> Vec<At<String>> {
        let items = self.list(key, example);
        let of = |item| {
            self.typed(key, item, ("a list of texts", example), |value| {
                value.as_str().map(str::to_owned)
            })
        };
        items.iter().filter_map(of).collect()
    }

    fn list(&mut self, key: &'static str, example: &str) -> &'a [Item<'t>] {
        let Some(item) = self.item(key) else {
            return &[];
        };
        if let Some(items) = item.get_ref().as_array() {
            return items;
        }
        self.typed(key, item, ("a list of texts", example), |_| None::<()>);
        &[]
    }

    /// A subtable.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        name: &'static str,
        read: impl FnOnce(&mut Section<'_, '_, '_>) -> T,
    ) -> Option<At<T>> {
        let item = self.item(key)?;
        self.opened(key, item, name, read)
    }

    fn opened<T>(
        &mut self,
        key: &str,
        item: &Item<'_>,
        name: &'static str,
        read: impl FnOnce(&mut Section<'_, '_, '_>) -> T,
    ) -> Option<At<T>> {
        let Some(table) = item.get_ref().as_table() else {
            let example = format!("{name} with its keys below");
            let is_of = std::mem::replace(&mut self.name, name);
            self.typed(key, item, ("a table", &example), |_| None::<()>);
            self.name = is_of;
            return None;
        };
        let value = open(table, name, self.faults, read);
        let at = self.at(key, item, value);
        Some(At { table: name, ..at })
    }

    /// A list of subtables; a single table is accepted in place of a list with one.
    pub(super) fn sections<T>(
        &mut self,
        key: &'static str,
        name: &'static str,
        may_be_one: bool,
        mut read: impl FnMut(&mut Section<'_, '_, '_>) -> T,
    ) -> Vec<At<T>> {
        let Some(item) = self.item(key) else {
            return Vec::new();
        };
        let items = match item.get_ref().as_array() {
            Some(items) => items,
            None if may_be_one => std::slice::from_ref(item),
            None => {
                self.typed(key, item, ("a list of tables", name), |_| None::<()>);
                &[]
            }
        };
        let all = items.iter();
        all.filter_map(|item| self.opened(key, item, name, &mut read))
            .collect()
    }

    /// Subtables with names from the user.
    pub(super) fn named<T>(
        &mut self,
        key: &'static str,
        name: &'static str,
        mut read: impl FnMut(&mut Section<'_, '_, '_>) -> T,
    ) -> Vec<(String, At<T>)> {
        let entries = self.entries(key);
        let of = |(key, item): (String, _)| {
            let opened = self.opened(&key, item, name, &mut read)?;
            Some((key, opened))
        };
        entries.into_iter().filter_map(of).collect()
    }

    /// A table with keys from the user; its values are words or lists of words.
    pub(super) fn settings(
        &mut self,
        key: &'static str,
        may_be_lists: bool,
    ) -> Vec<(String, At<Vec<At<Word>>>)> {
        let entries = self.entries(key);
        let example = if may_be_lists { "[1, 2]" } else { "1" };
        let of = |(key, item): (String, &'a Item<'t>)| {
            let is_right = may_be_lists == item.get_ref().is_array();
            let words = match is_right {
                true => self.words(&key, item, example),
                false => {
                    let wanted = match may_be_lists {
                        true => "a list of texts or numbers",
                        false => "a text or a number",
                    };
                    let example = format!("{key} = {example}");
                    self.typed(&key, item, (wanted, &example), |_| None)
                }
            };
            Some((key, words?))
        };
        entries.into_iter().filter_map(of).collect()
    }

    fn entries(&mut self, key: &'static str) -> Vec<(String, &'a Item<'t>)> {
        let Some(item) = self.item(key) else {
            return Vec::new();
        };
        let Some(table) = item.get_ref().as_table() else {
            let example = format!("{key} = {{ name = value }}");
            self.typed(key, item, ("a table", &example), |_| None::<()>);
            return Vec::new();
        };
        let entries = table.iter();
        let named = |(key, item): (&Spanned<_>, _)| {
            let key: &std::borrow::Cow<'_, str> = key.get_ref();
            (key.to_string(), item)
        };
        entries.map(named).collect()
    }
}

fn word(value: &DeValue<'_>) -> Option<Word> {
    Some(Word(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .ok()?
            .to_string(),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok()?.to_string(),
        _ => return None,
    }))
}

/// A value as written, shortened to fit into a message.
fn shown(written: &str) -> String {
    let line = written.lines().next().unwrap_or_default();
    match line.chars().count() > SHOWN_MAX || line.len() < written.len() {
        true => line.chars().take(SHOWN_MAX).chain("...".chars()).collect(),
        false => line.to_owned(),
    }
}

/// Whether `given` may be a misspelling of `known`: one character added, missing or different, or underscores.
fn is_near(given: &str, known: &str) -> bool {
    let given: Vec<char> = given.replace('_', "-").to_lowercase().chars().collect();
    let known: Vec<char> = known.chars().collect();
    let same = given.iter().zip(&known).take_while(|(a, b)| a == b).count();
    let (given, known) = (&given[same..], &known[same..]);
    let ends = given.iter().rev().zip(known.iter().rev());
    let same_end = ends.take_while(|(a, b)| a == b).count();
    let left = |rest: &[char]| rest.len() - same_end.min(rest.len());
    let swapped = matches!((given, known), ([a, b, ..], [c, d, ..]) if a == d && b == c);
    left(given).max(left(known)) <= if swapped { 2 } else { 1 }
}

/// The names of a type, taken from the error for an unknown name.
#[derive(Debug)]
struct Names(&'static [&'static str]);

impl Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Names {}

impl serde::de::Error for Names {
    fn custom<T: Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

/// Characters of a value in a message; more are of no use.
const SHOWN_MAX: usize = 40;
