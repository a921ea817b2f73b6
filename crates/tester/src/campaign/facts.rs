//! Checks whether a variant is unchanged after a restart.
//!
//! The runs of a resumed campaign share a median with the earlier ones. So everything that influences the results of a
//! variant must be the same at each start: program, command line, environment, configuration, cores, prefix and
//! address, including those of a separate authority. A campaign stops if one of them differs. A profile with a changed
//! text that still renders the same files is accepted and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::record::{ProgramFacts, VariantFacts};

/// One difference of a variant between two starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name: "command", "environment variable THREADS", "authority's program (SHA-256)".
    pub what: String,
    /// Earlier value; "nothing" if it was absent.
    pub before: String,
    /// Current value.
    pub after: String,
    /// Whether the measured system is the same nevertheless.
    pub harmless: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            before,
            after,
            ..
        } = self;
        write!(f, "{what} was {before}, is {after}")
    }
}

/// Differences between two starts of the same variant, harmless ones last. A value that one of the two does not have is
/// no difference.
pub fn changes(before: &VariantFacts, after: &VariantFacts) -> Vec<Change> {
    let mut changes = Changes::default();
    changes.program("", &before.program, &after.program);
    if let (Some(before), Some(after)) = (&before.authority, &after.authority) {
        changes.program("authority's ", before, after);
    }
    let text = |text: &String| Some(text.clone());
    changes.note("address", text(&before.server), text(&after.server));
    changes.note("pref64", text(&before.pref64), text(&after.pref64));
    let cores = |facts: &VariantFacts| {
        let cpus = facts.cpus.iter();
        cpus.map(|(of, list)| (of.to_string(), list.clone()))
            .collect()
    };
    changes.each("cores of the ", &cores(before), &cores(after));
    changes.found.sort_by_key(|change| change.harmless);
    changes.found
}

/// The changes between two starts that end a campaign, if there are any: runs before and after would share a median.
pub fn grave(before: &VariantFacts, after: &VariantFacts) -> Option<String> {
    let changes = changes(before, after).into_iter();
    let grave = changes.filter(|change| !change.harmless);
    let grave: Vec<_> = grave.map(|change| change.to_string()).collect();
    (!grave.is_empty()).then(|| grave.join("; "))
}

#[derive(Default)]
struct Changes {
    found: Vec<Change>,
}

impl Changes {
    fn program(&mut self, whose: &str, before: &ProgramFacts, after: &ProgramFacts) {
        let known = |facts: &ProgramFacts| !facts.command.is_empty();
        let same_program =
            before.program_sha256.is_some() && before.program_sha256 == after.program_sha256;
        // An unchanged program may fail to report its version on a busy machine.
        if !same_program {
            let version = format!("{whose}version");
            self.both(&version, &before.version, &after.version);
            let program = format!("{whose}program (SHA-256)");
            self.both(&program, &before.program_sha256, &after.program_sha256);
        }
        if known(before) && known(after) {
            let text = |facts: &ProgramFacts| Some(facts.command.join(" "));
            self.note(&format!("{whose}command"), text(before), text(after));
            let variable = format!("{whose}environment variable ");
            self.each(&variable, &before.environment, &after.environment);
        }
        let file = format!("{whose}configuration (SHA-256) ");
        self.each(&file, &before.files_sha256, &after.files_sha256);
        let profile = format!("{whose}profile (SHA-256)");
        let sure = self.found.len();
        self.both(&profile, &before.profile_sha256, &after.profile_sha256);
        for change in &mut self.found[sure..] {
            change.harmless = true;
        }
    }

    /// Compares two values if both are known.
    fn both(&mut self, what: &str, before: &Option<String>, after: &Option<String>) {
        if before.is_some() && after.is_some() {
            self.note(what, before.clone(), after.clone());
        }
    }

    /// Compares values by name, including those that only one side has.
    fn each(
        &mut self,
        what: &str,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let [before, after] = [before, after].map(|values| values.get(name).cloned());
            self.note(&format!("{what}{name}"), before, after);
        }
    }

    fn note(&mut self, what: &str, before: Option<String>, after: Option<String>) {
        if before != after {
            let text = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
            self.found.push(Change {
                what: what.to_owned(),
                before: text(before),
                after: text(after),
                harmless: false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Role;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn facts() -> VariantFacts {
        VariantFacts {
            program: ProgramFacts {
                version: Some("unbound 1.17".to_owned()),
                files_sha256: texts(&[("unbound.conf", "aa")]),
                program_sha256: Some("bb".to_owned()),
                command: vec!["unbound".to_owned(), "-d".to_owned()],
                environment: texts(&[("THREADS", "1")]),
                profile_sha256: Some("cc".to_owned()),
            },
            server: "[2001:2::2]:53".to_owned(),
            pref64: "64:ff9b::/96".to_owned(),
            cpus: vec![(Role::Dut.into(), "1".to_owned())],
            authority: Some(Box::new(ProgramFacts {
                command: vec!["nsd".to_owned()],
                program_sha256: Some("dd".to_owned()),
                ..ProgramFacts::default()
            })),
            hosts: Vec::new(),
            not_a_measurement: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The reported changes after a change of the facts.
    fn said(change: impl FnOnce(&mut VariantFacts)) -> Vec<(String, bool)> {
        let mut after = facts();
        change(&mut after);
        let changes = changes(&facts(), &after);
        changes
            .iter()
            .map(|c| (c.to_string(), c.harmless))
            .collect()
    }

    #[test]
    fn every_relevant_change_is_named_with_both_values() {
        let grave = |text: &str| vec![(text.to_owned(), false)];
        assert_eq!(said(|_| {}), []);
        assert_eq!(
            said(|f| f.program.command.push("-v".to_owned())),
            grave("command was unbound -d, is unbound -d -v")
        );
        assert_eq!(
            said(|f| f.program.environment = texts(&[("THREADS", "2")])),
            grave("environment variable THREADS was 1, is 2")
        );
        assert_eq!(
            said(|f| f.program.environment.clear()),
            grave("environment variable THREADS was 1, is nothing")
        );
        assert_eq!(
            said(|f| f.program.files_sha256 = texts(&[("unbound.conf", "ab")])),
            grave("configuration (SHA-256) unbound.conf was aa, is ab")
        );
        assert_eq!(
            said(|f| f.cpus[0].1 = "1-2".to_owned()),
            grave("cores of the DUT was 1, is 1-2")
        );
        assert_eq!(
            said(|f| f.authority.as_mut().unwrap().command.push("-4".to_owned())),
            grave("authority's command was nsd, is nsd -4")
        );
        assert_eq!(
            said(|f| f.program.program_sha256 = Some("b0".to_owned())),
            grave("program (SHA-256) was bb, is b0")
        );
    }

    #[test]
    fn profile_with_equal_output_is_harmless_and_last() {
        let changes = said(|f| {
            f.program.profile_sha256 = Some("c0".to_owned());
            f.pref64 = "2001:db8::/96".to_owned();
        });
        let expected = [
            (
                "pref64 was 64:ff9b::/96, is 2001:db8::/96".to_owned(),
                false,
            ),
            ("profile (SHA-256) was cc, is c0".to_owned(), true),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn unknown_value_is_no_difference() {
        assert_eq!(said(|f| f.program.version = None), []);
        assert_eq!(
            said(|f| f.program.version = Some("version unknown".to_owned())),
            []
        );
        let before = VariantFacts {
            program: ProgramFacts {
                command: Vec::new(),
                environment: BTreeMap::new(),
                profile_sha256: None,
                ..facts().program
            },
            authority: None,
            ..facts()
        };
        assert_eq!(changes(&before, &facts()), []);
    }
}
