//! Converts the texts of a plan to values or faults.

use std::fmt::Display;

use super::fault::{Fault, Faults};
use super::file::{At, Many, Word};

/// Converts an optional text.
pub(super) fn text<T, E: Display>(
    at: Option<&At<String>>,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, Fault> {
    let read = |at: &At<String>| {
        let text = at.get_ref();
        read(text).map_err(|reason| at.refused(text, &reason.to_string()))
    };
    at.map(read).transpose()
}

fn word<T, E: Display>(at: &At<Word>, read: impl Fn(&str) -> Result<T, E>) -> Result<T, Fault> {
    let Word(text) = at.get_ref();
    read(text).map_err(|reason| at.refused(text, &reason.to_string()))
}

pub(super) fn word_or<T, E: Display>(
    at: &Option<At<Word>>,
    read: impl Fn(&str) -> Result<T, E>,
    default: T,
) -> Result<T, Fault> {
    at.as_ref().map_or(Ok(default), |at| word(at, read))
}

/// Converts a list of distinct values with at least one, or takes `default`. Invalid values are omitted.
pub(super) fn list_or<T: PartialEq, E: Display>(
    at: &Option<At<Many>>,
    read: impl Fn(&str) -> Result<T, E>,
    default: impl IntoIterator<Item = T>,
    faults: &mut Faults<'_>,
) -> Vec<T> {
    let mut values = Vec::new();
    if let Some(at) = at {
        let Many(words) = at.get_ref();
        if words.is_empty() {
            faults.add(at.refused("[]", "a value is needed; name at least one or omit the key"));
        }
        for at in words {
            match faults.keep(word(at, &read)) {
                Some(value) if values.contains(&value) => {
                    let Word(text) = at.get_ref();
                    faults.add(at.refused(text, "the list has it twice; omit one of them"));
                }
                read => values.extend(read),
            }
        }
    }
    match values.is_empty() {
        true => default.into_iter().collect(),
        false => values,
    }
}

/// A number within bounds that its type holds.
pub(super) fn number<T: TryFrom<u64>>(at: Option<&At<u64>>) -> Option<T> {
    T::try_from(*at?.get_ref()).ok()
}

/// Checks a name for use in reports and file names.
pub(super) fn label(text: &str) -> Result<String, String> {
    let bad = |c: char| c.is_control() || c == '/';
    if text.trim().is_empty() || text.starts_with('.') || text.contains(bad) {
        return Err(
            "a name has at least one character, none of them / or a control character, and begins \
             with no dot"
                .to_owned(),
        );
    }
    if text.chars().count() > LABEL_CHARS_MAX {
        return Err(format!(
            "a name has at most {LABEL_CHARS_MAX} characters; shorten it"
        ));
    }
    Ok(text.to_owned())
}

/// A terminal is about 100 characters wide.
const LABEL_CHARS_MAX: usize = 100;
