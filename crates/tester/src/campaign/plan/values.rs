//! Values of a plan: from the text that is written to what it means, or where the fault is.

use std::fmt::Display;

use super::Fault;
use super::file::{At, Many, Word};

/// Reads the text of one value.
pub(super) fn value<T, E: Display>(
    text: &str,
    offset: usize,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<T, Fault> {
    read(text).map_err(|error| {
        let error = error.to_string();
        let quotes = [format!("{text:?}"), format!("'{text}'")];
        let named = quotes.iter().any(|quoted| error.contains(quoted));
        let message = if named || (text.len() > 3 && error.contains(text)) {
            error
        } else {
            format!("{text:?}: {error}")
        };
        Fault::new(offset, message)
    })
}

/// Reads a text, if there is one.
pub(super) fn text<T, E: Display>(
    at: Option<&At<String>>,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, Fault> {
    at.map(|at| value(at.get_ref(), at.span().start, read))
        .transpose()
}

pub(super) fn word_or<T, E: Display>(
    at: &Option<At<Word>>,
    read: impl Fn(&str) -> Result<T, E>,
    default: T,
) -> Result<T, Fault> {
    match at {
        Some(at) => value(&at.get_ref().0, at.span().start, read),
        None => Ok(default),
    }
}

/// Reads a list of different values with at least one, or takes `default`.
pub(super) fn list_or<T: PartialEq, E: Display>(
    at: &Option<At<Many>>,
    read: impl Fn(&str) -> Result<T, E>,
    default: impl IntoIterator<Item = T>,
) -> Result<Vec<T>, Fault> {
    let Some(at) = at else {
        return Ok(default.into_iter().collect());
    };
    let offset = at.span().start;
    let words = &at.get_ref().0;
    if words.is_empty() {
        return Err(Fault::new(
            offset,
            "[] is an empty list; name at least one value or leave the key away",
        ));
    }
    let mut values = Vec::with_capacity(words.len());
    for Word(word) in words {
        let read = value(word, offset, &read)?;
        if values.contains(&read) {
            let message = format!("{word:?} stands twice in the list; leave one of them away");
            return Err(Fault::new(offset, message));
        }
        values.push(read);
    }
    Ok(values)
}

/// A whole number within bounds.
pub(super) fn number<T: TryFrom<u64>>(
    at: Option<&At<u64>>,
    what: &str,
    most: u64,
) -> Result<Option<T>, Fault> {
    let Some(at) = at else { return Ok(None) };
    let given = *at.get_ref();
    match T::try_from(given) {
        Ok(number) if (1..=most).contains(&given) => Ok(Some(number)),
        _ => Err(Fault::new(
            at.span().start,
            format!("invalid number of {what} {given}: must be 1-{most}"),
        )),
    }
}

/// A name for people and for file names.
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

/// A terminal is some 100 characters wide.
const LABEL_CHARS_MAX: usize = 100;
