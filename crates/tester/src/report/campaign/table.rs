//! The common form of the tables of a report: columns with names and sources of values, and typed cells.

use std::borrow::Borrow;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::{numbers, words};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Unknown, or not applicable.
    Nothing,
    /// Text.
    Text(String),
    /// An integer.
    Count(u64),
    /// A number, displayed with as many decimals as it has, four at most.
    Number(f64),
    /// A number, displayed with this many decimals.
    Decimal(f64, usize),
    /// A number, displayed with this many significant digits; integer digits are kept.
    Significant(f64, i32),
    /// Queries per second.
    Rate {
        /// The rate.
        qps: f64,
        /// Whether the true one may be higher.
        at_least: bool,
        /// Whether the Tester was not certified for it.
        uncertified: bool,
    },
    /// The lowest and the highest of several rates, in queries per second.
    Range(f64, f64),
    /// Nanoseconds.
    Span(u64),
    /// Octets.
    Bytes(u64),
    /// Several values, displayed one below another.
    List(Vec<Self>),
}

impl Cell {
    /// The value for programs: all digits, no unit; empty if unknown.
    pub(super) fn raw(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Text(text) => text.clone(),
            Self::Count(number) | Self::Span(number) | Self::Bytes(number) => number.to_string(),
            Self::Number(value)
            | Self::Decimal(value, _)
            | Self::Significant(value, _)
            | Self::Rate { qps: value, .. } => value.to_string(),
            Self::Range(low, high) => format!("{low} {high}"),
            Self::List(cells) => cells.iter().map(Self::raw).collect::<Vec<_>>().join("; "),
        }
    }

    /// The value for people; `between` separates the values of a list.
    pub(super) fn text(&self, between: &str) -> String {
        match self {
            Self::Nothing => numbers::NOTHING.to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(number) => numbers::Thousands(*number).to_string(),
            Self::Number(value) => numbers::short(*value),
            Self::Decimal(value, places) => numbers::decimal(*value, *places),
            Self::Significant(value, digits) => numbers::significant(*value, *digits),
            Self::Rate {
                qps,
                at_least,
                uncertified,
            } => {
                let bound = if *at_least { "≥ " } else { "" };
                let mark = words::dagger(Some(!uncertified));
                format!("{bound}{}{mark}", numbers::rate(*qps))
            }
            Self::Range(low, high) => {
                format!("{} – {}", numbers::rate(*low), numbers::rate(*high))
            }
            Self::Span(ns) => numbers::span(*ns as f64),
            Self::Bytes(octets) => numbers::bytes(*octets as f64),
            Self::List(cells) => {
                let texts: Vec<_> = cells.iter().map(|cell| cell.text(between)).collect();
                texts.join(between)
            }
        }
    }

    /// Whether it is a number, which is aligned to the right.
    pub(super) fn is_number(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::List(cells) => cells.iter().all(Self::is_number),
            _ => true,
        }
    }

    /// Whether it is or contains a rate for which the Tester was not certified.
    pub(super) fn is_uncertified(&self) -> bool {
        match self {
            Self::Rate { uncertified, .. } => *uncertified,
            Self::List(cells) => cells.iter().any(Self::is_uncertified),
            _ => false,
        }
    }

    /// A list of texts; nothing if there are none.
    pub(super) fn list(texts: impl IntoIterator<Item = String>) -> Self {
        let cells: Vec<_> = texts.into_iter().map(Self::Text).collect();
        match cells.is_empty() {
            true => Self::Nothing,
            false => Self::List(cells),
        }
    }
}

/// For templates: `text`, with a line feed between the values of a list, and `number`.
impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut cell = serializer.serialize_struct("Cell", 2)?;
        cell.serialize_field("text", &self.text("\n"))?;
        cell.serialize_field("number", &self.is_number())?;
        cell.end()
    }
}

macro_rules! from {
    ($($type:ty: $value:ident => $cell:expr;)+) => {
        $(impl From<$type> for Cell { fn from($value: $type) -> Self { $cell } })+
    };
}

from! {
    String: text => Self::Text(text);
    &String: text => Self::Text(text.clone());
    &str: text => Self::Text(text.to_owned());
    bool: flag => Self::Text(flag.to_string());
    u64: number => Self::Count(number);
    u32: number => Self::Count(number.into());
    usize: number => Self::Count(number as u64);
    f64: value => Self::Number(value);
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

/// A measured rate of a Tester that was certified, or needed no certificate.
#[cfg(test)]
pub(super) fn rate(qps: f64) -> Cell {
    rate_if(qps, false, None)
}

/// A measured rate, with its marks: whether it is a lower bound, and whether the Tester was certified for it.
pub(super) fn rate_if(qps: f64, at_least: bool, certified: Option<bool>) -> Cell {
    Cell::Rate {
        qps,
        at_least,
        uncertified: certified == Some(false),
    }
}

/// A number with two decimals.
pub(super) fn two(value: f64) -> Cell {
    Cell::Decimal(value, 2)
}

/// A column of rows that are made from values of type `R`.
#[derive(Clone, Copy)]
pub(super) struct Column<R> {
    /// Name for programs, with the unit of the values.
    pub(super) key: &'static str,
    /// Name for people.
    pub(super) head: &'static str,
    /// Its value in the row of an `R`.
    pub(super) cell: fn(&R) -> Cell,
}

/// Columns of the values of `$row`, each with its key and its name for people.
macro_rules! columns {
    ($row:ident: $source:ty; $($key:literal, $head:literal => $value:expr;)+) => {
        [$($crate::report::campaign::table::Column {
            key: $key,
            head: $head,
            cell: |$row: &$source| $crate::report::campaign::table::Cell::from($value),
        }),+]
    };
}
pub(super) use columns;

/// The same columns as constants with names, for tables that select among them; `$all` is the list of them.
macro_rules! named_columns {
    ($all:ident; $row:ident: $source:ty; $($name:ident: $key:literal, $head:literal => $value:expr;)+) => {
        named_columns! { $row: $source; $($name: $key, $head => $value;)+ }
        pub(super) static $all: &[Column<$source>] = &[$($name),+];
    };
    ($row:ident: $source:ty; $($name:ident: $key:literal, $head:literal => $value:expr;)+) => {
        $(pub(super) const $name: Column<$source> = Column {
            key: $key,
            head: $head,
            cell: |$row: &$source| Cell::from($value),
        };)+
    };
}
pub(super) use named_columns;

/// The names of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Head {
    /// For programs, with the unit of the values.
    pub(super) key: String,
    /// For people.
    pub(super) head: String,
    /// Whether its values are numbers.
    pub(super) number: bool,
}

/// A table.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Table {
    /// Name in templates.
    pub(super) key: &'static str,
    /// Subject in a few words.
    pub(super) title: String,
    /// Content, and meaning of its columns.
    pub(super) caption: String,
    /// Conclusions, in sentences.
    pub(super) notes: Vec<String>,
    /// Whether rows with the same first cell form a group.
    pub(super) grouped: bool,
    /// Names of the columns.
    pub(super) columns: Vec<Head>,
    /// A cell for each column.
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without columns.
    pub(super) fn new(key: &'static str, title: &str, caption: &str) -> Self {
        Self {
            key,
            title: title.to_owned(),
            caption: caption.to_owned(),
            ..Self::default()
        }
    }

    /// Adds columns at the right. The first call determines the number of rows.
    pub(super) fn with<'c, R: 'c>(
        mut self,
        columns: impl IntoIterator<Item = &'c Column<R>>,
        sources: impl IntoIterator<Item = impl Borrow<R>>,
    ) -> Self {
        let columns: Vec<_> = columns.into_iter().collect();
        let is_first = self.columns.is_empty();
        for (index, source) in sources.into_iter().enumerate() {
            if is_first {
                self.rows.push(Vec::new());
            }
            let cells = columns.iter().map(|column| (column.cell)(source.borrow()));
            self.rows[index].extend(cells);
        }
        for column in columns {
            self.add_head(column.key, column.head);
        }
        self
    }

    /// Names the next column, whose cells are already in the rows.
    pub(super) fn add_head(&mut self, key: &str, head: &str) {
        let at = self.columns.len();
        let mut cells = self.rows.iter().map(|row| &row[at]);
        self.columns.push(Head {
            key: key.to_owned(),
            head: head.to_owned(),
            number: cells.any(|cell| *cell != Cell::Nothing && cell.is_number()),
        });
    }

    /// Groups the rows by the first column.
    pub(super) fn grouped(mut self) -> Self {
        self.grouped = true;
        self
    }

    /// Removes columns without any value, except the first column.
    pub(super) fn without_empty_columns(mut self) -> Self {
        if self.rows.is_empty() {
            return self;
        }
        let rows = &self.rows;
        let empty = |at: &usize| rows.iter().all(|row| row[*at] == Cell::Nothing);
        let empty: Vec<usize> = (1..self.columns.len()).filter(empty).collect();
        for at in empty.into_iter().rev() {
            self.columns.remove(at);
            for row in &mut self.rows {
                row.remove(at);
            }
        }
        self
    }

    /// Adds the meaning of the mark to the caption if any rate has it.
    pub(super) fn explained(mut self) -> Self {
        if self.rows.iter().flatten().any(Cell::is_uncertified) {
            let end = if self.caption.ends_with('.') {
                " "
            } else {
                ". "
            };
            self.caption += end;
            self.caption += words::UNCERTIFIED_MEANS;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_every_digit_for_programs_and_a_unit_for_people() {
        let both = |cell: Cell| (cell.raw(), cell.text("; "));
        let texts = |raw: &str, text: &str| (raw.to_owned(), text.to_owned());
        assert_eq!(both(Cell::Nothing), texts("", "–"));
        assert_eq!(both(Cell::from(None::<f64>)), texts("", "–"));
        assert_eq!(both(1_234_567_usize.into()), texts("1234567", "1,234,567"));
        assert_eq!(both(0.123_456.into()), texts("0.123456", "0.1235"));
        assert_eq!(both(two(12.0)), texts("12", "12.00"));
        assert_eq!(both(rate(37_187.25)), texts("37187.25", "37,187.3"));
        let bound = |uncertified| Cell::Rate {
            qps: 59_000.0,
            at_least: true,
            uncertified,
        };
        assert_eq!(both(bound(false)), texts("59000", "≥ 59,000"));
        assert_eq!(both(bound(true)), texts("59000", "≥ 59,000†"));
        assert_eq!(both(Cell::Range(1.0, 2000.0)), texts("1 2000", "1 – 2,000"));
        assert_eq!(both(Cell::Span(12_345)), texts("12345", "12.3 us"));
        assert_eq!(both(Cell::Bytes(2048)), texts("2048", "2.0 KiB"));
        assert_eq!(
            both(Cell::list(["a", "b"].map(str::to_owned))),
            texts("a; b", "a; b")
        );
        assert_eq!(Cell::list([]), Cell::Nothing);
    }

    #[test]
    fn columns_without_a_value_are_removed() {
        let columns = columns![n: u64;
            "n", "N" => *n;
            "odd", "Odd" => (*n % 2 == 1).then_some(*n);
            "big", "Big" => (*n > 9).then_some(*n);
        ];
        let table = |numbers: [u64; 2]| {
            let table = Table::new("", "", "").with(&columns, numbers);
            let table = table.without_empty_columns();
            assert!(
                table
                    .rows
                    .iter()
                    .all(|row| row.len() == table.columns.len())
            );
            let keys = table.columns.into_iter().map(|column| column.key);
            keys.collect::<Vec<_>>()
        };
        assert_eq!(table([1, 2]), ["n", "odd"]);
        assert_eq!(table([2, 12]), ["n", "big"]);
        let none = Table::new("", "", "").with(&columns, [] as [u64; 0]);
        assert_eq!(none.without_empty_columns().columns.len(), 3);
    }

    #[test]
    fn table_grows_by_columns() {
        let name = columns![name: &str; "name", "Name" => *name;];
        let figures = columns![n: u64; "n", "N" => *n; "half", "Half" => *n as f64 / 2.0;];
        let table = Table::new("t", "T", "")
            .with(&name, ["a", "a", "b"])
            .with(&figures, [1, 2, 3]);
        let heads = table.columns.iter();
        let heads: Vec<_> = heads
            .map(|c| (c.key.as_str(), c.head.as_str(), c.number))
            .collect();
        assert_eq!(
            heads,
            [
                ("name", "Name", false),
                ("n", "N", true),
                ("half", "Half", true)
            ]
        );
        assert_eq!(
            table.rows[2],
            ["b".into(), Cell::Count(3), Cell::Number(1.5)]
        );
    }
}
