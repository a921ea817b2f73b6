//! Finds the places of keys in a plan, for faults that appear only when the plan is checked against the machine.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::fault::Problem;

/// A key of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A key outside all tables.
    Top(&'static str),
    /// A key of a table, such as `tester` and `cpus`.
    In(&'static str, &'static str),
    /// A key of the `[[dut]]` with this number, from 0.
    Dut(usize, &'static str),
}

/// The text of a plan without faults.
#[derive(Debug)]
pub struct Places<'a> {
    origin: &'a str,
    text: &'a str,
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

    /// Creates a problem at a key; at its table if the plan omits the key, or else at the beginning of the plan. Flags
    /// of the command line in the message become keys.
    pub fn problem(&self, place: Place, message: &str) -> Problem {
        let span = self.span(place).unwrap_or(0..0);
        Problem::new(self.origin, self.text, span, in_keys(message))
    }

    fn span(&self, place: Place) -> Option<Range<usize>> {
        let (table, key) = match place {
            Place::Top(key) => return Some(self.document.get(key)?.span()),
            Place::In(table, key) => (self.document.get(table), key),
            Place::Dut(number, key) => {
                let duts = self.document.get("dut")?;
                (duts.get_ref().get(number), key)
            }
        };
        let table = table.or_else(|| {
            let duts = self.document.get("dut")?;
            duts.get_ref().get(0)
        })?;
        let value = DeValue::as_table(table.get_ref()).and_then(|table| table.get(key));
        Some(value.unwrap_or(table).span())
    }
}

/// Converts the flags in a remedy to keys of a plan: `--namespace 10.0.0.0/8` becomes `namespace = "10.0.0.0/8"`.
pub fn in_keys(message: &str) -> String {
    let mut words = message.split(' ');
    let mut told = Vec::new();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--").unwrap_or_default();
        let (bare, end) = flag.split_at(flag.trim_end_matches(END).len());
        let Some((_, key)) = KEYS.iter().find(|(known, _)| *known == bare) else {
            told.push(word.to_owned());
            continue;
        };
        if !end.is_empty() {
            told.push(format!("{key}{end}"));
            continue;
        }
        told.push(match words.next() {
            Some(value) => {
                let bare = value.trim_end_matches(END);
                let quote = if bare.parse::<u64>().is_ok() {
                    ""
                } else {
                    "\""
                };
                format!("{key} = {quote}{bare}{quote}{}", &value[bare.len()..])
            }
            None => (*key).to_owned(),
        });
    }
    told.join(" ")
}

/// What ends a word of a message.
const END: [char; 3] = [',', ';', ')'];

/// Flags with a value, and their keys.
const KEYS: [(&str, &str); 7] = [
    ("local", "local"),
    ("server", "server"),
    ("sockets", "sockets"),
    ("namespace", "namespace"),
    ("setup", "setup"),
    ("lab", "lab"),
    ("dut-binary", "binary"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_in_a_remedy_becomes_a_key() {
        for (flag, key) in [
            (
                "use --namespace 10.0.0.0/15, or less",
                "use namespace = \"10.0.0.0/15\", or less",
            ),
            ("or a smaller --namespace", "or a smaller namespace"),
            (
                "use --setup three-device and --lab netns, or no",
                "use setup = \"three-device\" and lab = \"netns\", or no",
            ),
            (
                "build it and use --dut-binary PATH",
                "build it and use binary = \"PATH\"",
            ),
            (
                "--local ::1 is not; omit --local, or use",
                "local = \"::1\" is not; omit local, or use",
            ),
            ("or use --sockets 250", "or use sockets = 250"),
            ("give --force", "give --force"),
        ] {
            assert_eq!(in_keys(flag), key);
        }
    }

    #[test]
    fn omitted_key_is_reported_at_its_table_or_the_first_dut() {
        let text = "[search]\nruns = 3\n[[dut]]\nprofile = \"a\"\n[[dut]]\nprofile = \"b\"\n";
        let places = Places::of("x.toml", text);
        let line = |place| {
            let problem = places.problem(place, "");
            (problem.line, problem.column)
        };
        assert_eq!(line(Place::Dut(1, "profile")), (6, 11));
        assert_eq!(line(Place::Dut(1, "cores")), (5, 1));
        assert_eq!(line(Place::In("search", "runs")), (2, 8));
        assert_eq!(line(Place::In("search", "method")), (1, 1));
        assert_eq!(line(Place::In("tester", "cpus")), (3, 1));
        assert_eq!(line(Place::Top("name")), (1, 1));
    }
}
