use std::collections::BTreeSet;

use super::*;
use crate::campaign::plan::draft::Directory;
use crate::campaign::plan::reader::below;
use crate::campaign::plan::tests::TABLES;

fn set(setting: &Setting, text: &str) -> Result<(), ValueError> {
    setting.set(&mut Draft::new(Directory::default()), text)
}

/// A number or a quantity times a factor.
fn times(bound: &str, factor: f64) -> String {
    let end = bound.rfind(|c: char| c.is_ascii_digit()).unwrap() + 1;
    let number: f64 = bound[..end].parse().unwrap();
    format!("{}{}", number * factor, &bound[end..])
}

#[test]
fn each_setting_takes_its_values_and_refuses_what_is_beyond_its_bounds() {
    let mut bounds = 0;
    for setting in all() {
        let id = setting.id();
        for text in setting
            .default
            .iter()
            .chain(setting.choices.iter().map(|(name, _)| name))
        {
            assert_eq!(set(setting, text), Ok(()), "{id} {text}");
        }
        for text in setting.least.iter().chain(&setting.most) {
            assert_eq!(set(setting, text), Ok(()), "{id} {text}");
        }
        let beyond = |bound, factor| (bound, times(bound, factor));
        let below = setting.least.iter();
        let below = below.flat_map(|least| [beyond(least, 0.5), beyond(least, 0.0)]);
        let above = setting.most.iter().map(|most| beyond(most, 2.0));
        for (bound, text) in below.chain(above).filter(|(bound, text)| *bound != text) {
            let error = set(setting, &text)
                .expect_err(&format!("{id} {text}"))
                .to_string();
            // Of one query a half is refused because it is not a whole number; shares are told from 0 to 1.
            let is_named = error.contains(bound) || error.contains("whole number");
            let is_share = bound == "100%" && error.contains("from 0 to 1");
            assert!(is_named || is_share, "{id} {text}: {error}");
            bounds += 1;
        }
        if setting.least.is_some() {
            set(setting, "-1").expect_err(id);
        }
    }
    assert!(bounds > 40, "{bounds}");
}

#[test]
fn each_setting_has_a_setter() {
    for setting in all() {
        let choice = setting.choices.first().map(|(name, _)| name);
        let text = choice
            .or(setting.default.first())
            .or(setting.least.as_ref());
        let text = text.map_or("x", String::as_str);
        assert_ne!(set(setting, text), Err(no_setter()), "{}", setting.id());
    }
}

#[test]
fn defaults_are_those_of_the_types() {
    let mut draft = Draft::new(Directory::default());
    let built_in = draft.clone();
    all()
        .iter()
        .for_each(|setting| setting.set_default(&mut draft));
    assert_eq!(
        format!("{:?}", draft.plan.load),
        format!("{:?}", built_in.plan.load)
    );
    assert_eq!(draft.plan.hosts, built_in.plan.hosts);
    assert_eq!(draft.plan.lab, built_in.plan.lab);
}

#[test]
fn keys_and_flags_are_unique_and_each_key_is_in_a_table() {
    let mut names = BTreeSet::new();
    for setting in all() {
        assert!(names.insert(setting.id()), "{}", setting.id());
        if let Some(table) = setting.table() {
            assert!(TABLES.contains(&table), "{}", setting.id());
            assert!(!below(table).contains(&setting.name()), "{}", setting.id());
        }
    }
    let flags: Vec<_> = all().iter().filter_map(|it| it.flag.as_ref()).collect();
    assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len());
}

#[test]
fn slips_are_recognised() {
    for (given, known) in [
        ("unbuond", "unbound"),
        ("max_rate", "max-rate"),
        ("nmae", "name"),
        ("duratio", "duration"),
        ("roless", "roles"),
    ] {
        assert!(quantity::is_near(given, known), "{given}");
    }
    assert!(!quantity::is_near("length", "duration"));
}

#[test]
fn settings_in_messages_of_other_modules_are_in_the_table() {
    use crate::naming::{BINARY, LAB, LOCAL, NAMESPACE, SERVER, SETUP, SOCKETS};
    for name in [BINARY, LAB, LOCAL, NAMESPACE, SERVER, SETUP, SOCKETS] {
        assert!(
            all()
                .iter()
                .any(|it| it.key.is_some() && it.name() == name.key),
            "{name:?}"
        );
        assert!(
            all().iter().any(|it| it.flag.as_deref() == name.flag),
            "{name:?}"
        );
    }
}
