//! Reads the cases, built-in or from a file, with every fault in its place.

use dns64_wire::pref64::Pref64;
use serde::Deserialize;
use toml::Spanned;

use super::case::{Case, Expect, Run};
use super::judge::Count;
use super::query::Query;
use super::script::Script;
use super::text;

/// The files of the built-in cases.
const FILES: [&str; 17] = [
    include_str!("../../conformance/rfc1034.toml"),
    include_str!("../../conformance/rfc1035.toml"),
    include_str!("../../conformance/rfc2181.toml"),
    include_str!("../../conformance/rfc2308.toml"),
    include_str!("../../conformance/rfc5452.toml"),
    include_str!("../../conformance/rfc6052.toml"),
    include_str!("../../conformance/rfc6147.toml"),
    include_str!("../../conformance/rfc6672.toml"),
    include_str!("../../conformance/rfc6891.toml"),
    include_str!("../../conformance/rfc7050.toml"),
    include_str!("../../conformance/rfc7766.toml"),
    include_str!("../../conformance/rfc7873.toml"),
    include_str!("../../conformance/rfc8020.toml"),
    include_str!("../../conformance/rfc8767.toml"),
    include_str!("../../conformance/rfc8880.toml"),
    include_str!("../../conformance/rfc9460.toml"),
    include_str!("../../conformance/rfc9520.toml"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Without one, the cases name their clauses with their RFC.
    rfc: Option<u16>,
    case: Vec<Spanned<Case>>,
}

/// The built-in cases.
///
/// # Errors
///
/// A fault in a file, with its line; the tests check that there is none.
pub fn built_in() -> Result<Vec<Case>, String> {
    let mut all = Vec::new();
    for text in FILES {
        all.extend(parse("built-in cases", text)?);
    }
    Ok(all)
}

/// The classes of attacks: cases without expectations.
///
/// # Errors
///
/// As [`built_in`].
pub(super) fn attacks() -> Result<Vec<Case>, String> {
    parse("attacks", include_str!("../../conformance/attacks.toml"))
}

/// Reads the cases of a file; `name` names it in errors.
///
/// # Errors
///
/// Not TOML, an unknown key, a query, record or name that cannot be read, or two cases with one name.
pub fn parse(name: &str, text: &str) -> Result<Vec<Case>, String> {
    let file: File = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
    let mut all: Vec<Case> = Vec::new();
    for spanned in file.case {
        let line = text[..spanned.span().start].lines().count() + 1;
        let mut case = spanned.into_inner();
        if let Some(rfc) = file.rfc {
            case.id = format!("rfc{rfc}-{}", case.id);
            case.clause = format!("RFC {rfc} section {}", case.clause);
        }
        let fault = |why: String| format!("{name}, line {line}: {}: {why}", case.id);
        check(&case).map_err(fault)?;
        if all.iter().any(|other| other.id == case.id) {
            return Err(fault("two cases have this name".into()));
        }
        all.push(case);
    }
    Ok(all)
}

/// Reads everything in a case once, as in a run.
fn check(case: &Case) -> Result<(), String> {
    let run = Run {
        origin: "check.example.".into(),
        pref64: Pref64::WELL_KNOWN,
        number: 1,
    };
    if !matches!(case.soa.len(), 0 | 2) {
        return Err("soa has a TTL and a MINIMUM, or nothing".into());
    }
    Script::new(case, &run)?;
    for step in &case.step {
        Query::parse(&step.ask, &run)?;
        step.expect
            .iter()
            .try_for_each(|it| check_outcome(it, &run))?;
    }
    Ok(())
}

fn check_outcome(outcome: &Expect, run: &Run) -> Result<(), String> {
    let answer = outcome.answer.iter().flatten();
    for record in answer.chain(&outcome.has) {
        text::Wanted::parse(record, run)?;
    }
    for lacked in &outcome.lacks {
        text::Lacked::parse(lacked, run)?;
    }
    if let Some(soa) = outcome.soa.as_ref().filter(|soa| !soa.is_empty()) {
        text::Bounded::parse(soa, run)?;
    }
    for asked in &outcome.asked {
        Count::parse(asked, run)?;
    }
    text::flags(&outcome.flags).map(drop)
}
