//! Faults of a plan: all of them at once, each with its line and a mark below the place.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::PlanError;
use crate::lab::profile::position;

/// A place in a plan: the keys and numbers that lead to it. A number counts from 0; a single value counts as a list of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

impl Place {
    /// The value at these keys, such as `["tester", "cpus"]`.
    pub fn of(keys: &[&str]) -> Self {
        let step = |key: &&str| Step::Key((*key).to_owned());
        Self(keys.iter().map(step).collect())
    }

    /// A key of the `[[dut]]` with this number.
    pub fn dut(number: usize, key: &str) -> Self {
        Self::of(&["dut"]).item(number).key(key)
    }

    /// The place of the setting of a flag; its DUT is the first.
    pub(super) fn of_flag(id: &str) -> Self {
        match id.split_once('.') {
            Some(("dut", key)) => Self::dut(0, key),
            Some((table, key)) => Self::of(&[table, key]),
            None => Self::of(&[id]),
        }
    }

    pub(super) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    pub(super) fn item(&self, number: usize) -> Self {
        self.with(Step::Item(number))
    }

    fn with(&self, step: Step) -> Self {
        let mut place = self.clone();
        place.0.push(step);
        place
    }

    /// Its last key.
    pub(super) fn name(&self) -> &str {
        let mut keys = self.0.iter().rev();
        let key = keys.find_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Item(_) => None,
        });
        key.unwrap_or_default()
    }

    /// Whether it is this place, or within it.
    pub(super) fn is_within(&self, outer: &Self) -> bool {
        self.0.starts_with(&outer.0)
    }
}

/// The text of a plan.
#[derive(Debug)]
pub struct Places<'a> {
    origin: &'a str,
    pub(super) text: &'a str,
    document: DeTable<'a>,
}

impl<'a> Places<'a> {
    /// Parses a text that was read from `origin`.
    pub fn of(origin: &'a str, text: &'a str) -> Self {
        let (document, _) = DeTable::parse_recoverable(text);
        Self {
            origin,
            text,
            document: document.into_inner(),
        }
    }

    /// Creates a problem at a place. If the plan omits it, at the nearest table around it, or at the first DUT, or at the
    /// beginning.
    pub fn problem(&self, place: &Place, message: &str) -> Problem {
        self.located(&self.span(place), message)
    }

    pub(super) fn span(&self, place: &Place) -> Range<usize> {
        let dut = || {
            self.value(&Place::of(&["dut"]).item(0))
                .filter(|_| place.0.len() > 1)
        };
        self.value(place).or_else(dut).map_or(0..0, Spanned::span)
    }

    /// The innermost value on the way to a place.
    fn value(&self, place: &Place) -> Option<&Spanned<DeValue<'a>>> {
        let mut found: Option<&Spanned<DeValue<'a>>> = None;
        for step in &place.0 {
            let below = match (step, found.map(Spanned::get_ref)) {
                (Step::Key(key), None) => self.document.get(key.as_str()),
                (Step::Key(key), Some(value)) => {
                    value.as_table().and_then(|table| table.get(key.as_str()))
                }
                (Step::Item(number), Some(DeValue::Array(items))) => items.get(*number),
                (Step::Item(_), _) => found,
            };
            let Some(below) = below else { break };
            found = Some(below);
        }
        found
    }

    pub(super) fn located(&self, span: &Range<usize>, message: &str) -> Problem {
        Problem::new(self.origin, self.text, span, message)
    }
}

/// One fault of a plan. Its text is complete: file, line, column, the value, the bound and the remedy, then the line
/// itself with a mark below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the plan.
    pub origin: String,
    /// Line of the file, counted from 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The fault and its remedy.
    pub message: String,
    /// The line, without control characters that a terminal would interpret.
    shown: String,
    /// Number of characters to mark, at least 1.
    width: usize,
}

impl Problem {
    /// Creates a problem for these octets of `text`.
    fn new(origin: &str, text: &str, at: &Range<usize>, message: &str) -> Self {
        let start = floor(text, at.start);
        let (line, column) = position(text, start);
        let begin = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let end = text[start..].find('\n').map_or(text.len(), |n| start + n);
        let marked = text[start..floor(text, at.end).clamp(start, end)].trim_end();
        let printable = |c: char| match c {
            '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        };
        Self {
            origin: origin.to_owned(),
            line,
            column,
            message: message.to_owned(),
            shown: text[begin..end].trim_end().chars().map(printable).collect(),
            width: marked.chars().count().max(1),
        }
    }
}

/// The nearest character boundary at or before an offset.
fn floor(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column, width) = (self.line, self.column, self.width);
        writeln!(f, "{}:{line}:{column}: {}", self.origin, self.message)?;
        let gutter = line.to_string().len();
        let code = format!("{line} | {}", self.shown);
        writeln!(f, "{}", code.trim_end())?;
        let before = column - 1;
        write!(f, "{:gutter$} | {:before$}{:^<width$}", "", "", "")
    }
}

/// A fault of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The setting.
    pub(super) place: Place,
    /// Octets of the text, if they are not those of the value.
    pub(super) span: Option<Range<usize>>,
    /// The fault and its remedy.
    pub(super) message: String,
}

impl Fault {
    /// The host whose key has an invalid value; other faults name their hosts.
    pub(super) fn host(&self) -> Option<&str> {
        self.span.as_ref()?;
        match self.place.0.as_slice() {
            [Step::Key(hosts), Step::Key(name), ..] if hosts == "hosts" => Some(name),
            _ => None,
        }
    }

    pub(super) fn locate(&self, places: &Places<'_>) -> Problem {
        match &self.span {
            Some(span) => places.located(span, &self.message),
            None => places.problem(&self.place, &self.message),
        }
    }
}

/// The faults found so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault; the same fault at the same place counts once.
    pub(super) fn add(&mut self, place: &Place, message: impl Into<String>) {
        self.put(Fault {
            place: place.clone(),
            span: None,
            message: message.into(),
        });
    }

    pub(super) fn put(&mut self, fault: Fault) {
        if !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    /// Returns the value; after an error, adds it as a fault and returns `None`.
    pub(super) fn keep<T, E: fmt::Display>(
        &mut self,
        place: &Place,
        read: Result<T, E>,
    ) -> Option<T> {
        read.map_err(|error| self.add(place, error.to_string()))
            .ok()
    }

    /// Whether there is a fault at or within this place: then checks that need its value are impossible.
    pub(super) fn spoil(&self, place: &Place) -> bool {
        self.0.iter().any(|fault| fault.place.is_within(place))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The messages.
    pub(super) fn messages(self) -> Vec<String> {
        self.0.into_iter().map(|fault| fault.message).collect()
    }

    /// Returns the value if there is one and no fault.
    pub(super) fn check<T>(
        self,
        value: Option<T>,
        locate: impl FnMut(Fault) -> Problem,
    ) -> Result<T, PlanError> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            _ => {
                let mut problems: Vec<_> = self.0.into_iter().map(locate).collect();
                problems.sort_by_key(|problem| (problem.line, problem.column));
                Err(PlanError::Refused { problems })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_key_is_reported_at_its_table_or_the_first_dut() {
        let text = "[search]\nruns = 3\n[[dut]]\nprofile = \"a\"\n[[dut]]\nprofile = \"b\"\n";
        let places = Places::of("x.toml", text);
        let line = |place| {
            let problem = places.problem(&place, "");
            (problem.line, problem.column)
        };
        assert_eq!(line(Place::dut(1, "profile")), (6, 11));
        assert_eq!(line(Place::dut(1, "cores")), (5, 1));
        assert_eq!(line(Place::of(&["search", "runs"])), (2, 8));
        assert_eq!(line(Place::of(&["search", "method"])), (1, 1));
        assert_eq!(line(Place::of(&["tester", "cpus"])), (3, 1));
        assert_eq!(line(Place::of(&["name"])), (1, 1));
    }
}
