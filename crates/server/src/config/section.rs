//! Reads the tables of a TOML document key by key, so that every fault is found and has its
//! position.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use dns64_transport::clock::Nanos;
use ipnet::IpNet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, Faults};
use super::keys::Keys;
use super::values;

/// A value and its position in the file.
pub(super) type Item<'t> = Spanned<DeValue<'t>>;

/// A table with known keys.
#[derive(Clone, Debug)]
pub(super) struct Section<'a, 't> {
    table: &'a DeTable<'t>,
    span: Range<usize>,
    keys: &'static Keys,
}

impl<'a, 't> Section<'a, 't> {
    /// Opens the table at its position. Unknown keys are faults.
    pub(super) fn open(
        table: &'a DeTable<'t>,
        span: Range<usize>,
        keys: &'static Keys,
        faults: &mut Faults,
    ) -> Self {
        for key in table.keys() {
            if !keys.keys.contains(&key.get_ref().as_ref()) {
                faults.add(key.span(), keys.unknown(key.get_ref()));
            }
        }
        Self { table, span, keys }
    }

    /// The notation of the table.
    pub(super) fn table(&self) -> &'static str {
        self.keys.table
    }

    /// The position of the table.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The value of a key, if it is given.
    pub(super) fn value(&self, key: &'static str) -> Option<Value<'a, 't>> {
        debug_assert!(self.keys.keys.contains(&key), "{key} is not listed");
        let item = self.table.get(key)?;
        Some(Value { name: key, item })
    }

    /// The parsed value of a key; `None` if it is missing or invalid.
    pub(super) fn read<T>(
        &self,
        key: &'static str,
        faults: &mut Faults,
        read: impl FnOnce(Value<'a, 't>) -> Result<T, Fault>,
    ) -> Option<T> {
        let value = self.value(key)?;
        faults.keep(read(value))
    }

    /// The parsed elements of a list; `None` if it is missing or not a list. Invalid elements are
    /// omitted.
    pub(super) fn list<T>(
        &self,
        key: &'static str,
        example: &'static str,
        faults: &mut Faults,
        mut read: impl FnMut(Value<'a, 't>, &mut Faults) -> Option<T>,
    ) -> Option<Vec<Spanned<T>>> {
        let value = self.value(key)?;
        let DeValue::Array(items) = value.item.get_ref() else {
            faults.keep::<()>(Err(value.mistyped("a list", example)));
            return None;
        };
        let mut read_one = |item: &'a Item<'t>| {
            let element = read(Value { name: key, item }, faults)?;
            Some(Spanned::new(item.span(), element))
        };
        Some(items.iter().filter_map(&mut read_one).collect())
    }

    /// Like [`Section::list`], but an empty list is a fault.
    pub(super) fn some<T>(
        &self,
        key: &'static str,
        example: &'static str,
        faults: &mut Faults,
        read: impl FnMut(Value<'a, 't>, &mut Faults) -> Option<T>,
    ) -> Option<Vec<Spanned<T>>> {
        let value = self.value(key)?;
        if value.is_empty_list() {
            let text = format!("{key} is empty; write at least one, like {example}");
            faults.add(value.span(), text);
            return None;
        }
        self.list(key, example, faults, read)
    }

    /// Networks of clients; at least one.
    pub(super) fn networks(
        &self,
        key: &'static str,
        faults: &mut Faults,
    ) -> Option<Vec<Spanned<IpNet>>> {
        let example = "[\"2001:db8::/32\", \"10.0.0.0/8\"]";
        self.some(key, example, faults, |v, faults| {
            faults.keep(v.text("\"2001:db8::/32\"", values::network))
        })
    }

    /// A subtable.
    pub(super) fn section(
        &self,
        key: &'static str,
        keys: &'static Keys,
        faults: &mut Faults,
    ) -> Option<Self> {
        let value = self.value(key)?;
        value.section(keys, faults)
    }
}

/// A value and the name of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a, 't> {
    name: &'static str,
    item: &'a Item<'t>,
}

impl<'a, 't> Value<'a, 't> {
    pub(super) fn span(&self) -> Range<usize> {
        self.item.span()
    }

    /// Adds the position to a value.
    pub(super) fn spanned<T>(&self, value: T) -> Spanned<T> {
        Spanned::new(self.span(), value)
    }

    /// A fault of this value: its key, followed by the text.
    pub(super) fn fault(&self, text: impl fmt::Display) -> Fault {
        Fault {
            span: self.span(),
            text: format!("{} {text}", self.name),
        }
    }

    fn mistyped(&self, wanted: &str, example: &str) -> Fault {
        let given = match self.item.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a decimal number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date or time of day",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.fault(format_args!(
            "is {given} where {wanted} is expected; write it like {example}"
        ))
    }

    /// A text, parsed by `read`.
    pub(super) fn text<T>(
        &self,
        example: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Fault> {
        let text = self
            .item
            .get_ref()
            .as_str()
            .ok_or_else(|| self.mistyped("a text", example))?;
        read(text).map_err(|wrong| self.fault(wrong))
    }

    /// The absolute path of a file.
    pub(super) fn path(&self, example: &str) -> Result<PathBuf, Fault> {
        let read = |path: &str| values::absolute_path(path, example);
        self.text(&format!("{example:?}"), read)
    }

    pub(super) fn is_text(&self) -> bool {
        self.item.get_ref().is_str()
    }

    pub(super) fn is_list(&self) -> bool {
        self.item.get_ref().is_array()
    }

    pub(super) fn is_empty_list(&self) -> bool {
        let list = self.item.get_ref().as_array();
        list.is_some_and(|list| list.is_empty())
    }

    pub(super) fn is_table(&self) -> bool {
        self.item.get_ref().is_table()
    }

    pub(super) fn section(
        &self,
        keys: &'static Keys,
        faults: &mut Faults,
    ) -> Option<Section<'a, 't>> {
        match self.item.get_ref() {
            DeValue::Table(table) => Some(Section::open(table, self.span(), keys, faults)),
            _ => {
                let example = format!("{} with lines like `key = value` below", keys.table);
                faults.keep(Err(self.mistyped("a table", &example)))
            }
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, Fault> {
        self.item
            .get_ref()
            .as_bool()
            .ok_or_else(|| self.mistyped("true or false", "true, without quotes"))
    }

    /// A whole number within bounds.
    pub(super) fn whole(&self, bounds: RangeInclusive<u64>) -> Result<u64, Fault> {
        let example = bounds.start().to_string();
        let DeValue::Integer(given) = self.item.get_ref() else {
            return Err(self.mistyped("a whole number", &format!("{example}, without quotes")));
        };
        // Outside i128: below or above every bound.
        let edge = if given.as_str().starts_with('-') {
            i128::MIN
        } else {
            i128::MAX
        };
        let number = i128::from_str_radix(given.as_str(), given.radix()).unwrap_or(edge);
        if number < 0 {
            let (least, most) = (bounds.start(), bounds.end());
            return Err(self.fault(format_args!(
                "{given} is below {least}: must be {least} to {most}"
            )));
        }
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        values::within(number, &bounds, |n| n.to_string())
            .map_err(|wrong| self.fault(format_args!("{given} {wrong}")))?;
        Ok(number)
    }

    /// Like [`Value::whole`], for a smaller type that can hold the bounds.
    pub(super) fn number<T>(&self, bounds: RangeInclusive<T>) -> Result<T, Fault>
    where
        T: Copy + Into<u64> + TryFrom<u64>,
    {
        let wide = self.whole((*bounds.start()).into()..=(*bounds.end()).into())?;
        Ok(T::try_from(wide).unwrap_or(*bounds.end()))
    }

    /// Like [`Value::whole`], for a number of objects in memory.
    pub(super) fn count(&self, bounds: RangeInclusive<usize>) -> Result<usize, Fault> {
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let counted = self.whole(wide(*bounds.start())..=wide(*bounds.end()))?;
        Ok(usize::try_from(counted).unwrap_or(*bounds.end()))
    }

    pub(super) fn time(&self, bounds: RangeInclusive<Nanos>) -> Result<Nanos, Fault> {
        self.needs_unit("\"800ms\", \"2s\" or \"1h\"")?;
        self.text("\"800ms\"", |text| values::time(text, bounds))
    }

    pub(super) fn seconds(&self, bounds: RangeInclusive<u32>) -> Result<u32, Fault> {
        self.needs_unit("\"30s\" or \"1h\"")?;
        self.text("\"30s\"", |text| values::seconds(text, bounds))
    }

    /// Detects a number without its unit, the most common mistake.
    pub(super) fn needs_unit(&self, example: &str) -> Result<(), Fault> {
        match self.item.get_ref() {
            DeValue::Integer(n) => {
                Err(self.fault(format_args!("{n} has no unit; write it like {example}")))
            }
            DeValue::Float(n) => Err(self.fault(format_args!(
                "{} has no unit; write it like {example}",
                n.as_str()
            ))),
            _ => Ok(()),
        }
    }

    /// Whether this is the given word, such as "off".
    pub(super) fn says(&self, word: &str) -> bool {
        self.item.get_ref().as_str() == Some(word)
    }

    /// Whether this is the number 0.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self.item.get_ref(), DeValue::Integer(n) if n.as_str().bytes().all(|b| b == b'0'))
    }
}
