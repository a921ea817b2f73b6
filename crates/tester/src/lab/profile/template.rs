//! Texts with placeholders in braces.

use toml::Spanned;

use super::placeholders;

/// A piece of a template.
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// Splits a template at its placeholders.
fn pieces(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let Some(name) = placeholder_at_start(rest) {
            rest = &rest[name.len() + 2..];
            return Some(Piece::Placeholder(name));
        }
        let end = rest
            .char_indices()
            .skip(1)
            .find(|&(at, c)| c == '{' && placeholder_at_start(&rest[at..]).is_some())
            .map_or(rest.len(), |(at, _)| at);
        let (text, tail) = rest.split_at(end);
        rest = tail;
        Some(Piece::Text(text))
    })
}

fn placeholder_at_start(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    is_plain(name).then_some(name)
}

/// Returns the first unknown placeholder.
pub(super) fn unknown(template: &str, is_known: impl Fn(&str) -> bool) -> Option<&str> {
    pieces(template).find_map(|piece| match piece {
        Piece::Placeholder(name) if !is_known(name) => Some(name),
        _ => None,
    })
}

/// Returns whether it has this placeholder.
pub(super) fn has(template: &str, name: &str) -> bool {
    unknown(template, |other| other != name).is_some()
}

/// Returns whether this is a valid name of a placeholder.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.chars().all(plain)
}

/// Replaces the placeholders by their values.
pub(super) fn substitute(template: &str, value: impl Fn(&str) -> String) -> String {
    pieces(template)
        .map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Placeholder(name) => value(name),
        })
        .collect()
}

/// Checks that every placeholder of `template`, which is a part of `text`, is known.
pub(super) fn check_placeholders(
    text: &str,
    template: &Spanned<String>,
    own: &[&str],
) -> Result<(), (usize, String)> {
    let is_known = |name: &str| placeholders().any(|known| known == name) || own.contains(&name);
    let Some(unknown) = unknown(template.get_ref(), is_known) else {
        return Ok(());
    };
    let span = template.span();
    let within = text[span.clone()].find(&format!("{{{unknown}}}"));
    let mut known: Vec<&str> = placeholders().collect();
    known.extend(own);
    let known = known.join(", ");
    let message = format!("unknown placeholder {{{unknown}}}; there are {known}");
    Err((span.start + within.unwrap_or(0), message))
}
