//! The figures of a trace as a plan, and as a table.

use dns64_wire::codes::Rtype;

use super::figures::{Estimate, Figures};
use super::trace::ENTRIES_MAX;
use crate::load::query::{Edns, Types};
use crate::namespace::{ADDRESSES_MAX, CNAME_LENGTH_MAX};
use crate::quantity::Thousands;

/// EDNS in the order of the counts.
const EDNS: [Edns; 4] = [Edns::None, Edns::Plain, Edns::Do, Edns::Cookie];

/// Shares in plans: hundredths of a per cent.
const PARTS: u64 = 10_000;

/// Returns a plan with the load of a trace; what plans have no key for is in its comments. `origin` is the file of the trace.
pub fn plan(figures: &Figures, origin: &str) -> String {
    let origin: String = origin.chars().filter(|c| !c.is_control()).collect();
    let mut text = format!("# Learnt from {origin}. Intervals have a confidence of 95 %.\n#\n");
    for (label, value) in rows(figures) {
        text += &format!("# {label:<26}  {value}\n");
    }
    text += "\n[trial]\n";
    if let Some(edns) = edns(figures) {
        text += &format!("edns = \"{edns}\"\n");
    }
    if let Some(types) = types(figures) {
        text += &format!("types = \"{types}\"\n");
    }
    text += &records(figures);
    text += "\n[cells]\n";
    if let Some(share) = fraction(figures.names_with_aaaa, figures.names_answered) {
        text += &format!("aaaa-share = {share}\n");
    }
    let repeated = &figures.repeated;
    if let Some(share) = fraction(repeated.queries, figures.queries) {
        text += &format!("cached-share = {share}\n");
        if let Some(exponent) = repeated.exponent {
            let names = repeated.questions;
            text += &format!("pattern = \"zipf:{names},{:.3}\"\n", exponent.value);
        }
    }
    text + "\n# The server to measure.\n[[dut]]\nprofile = \"dns64d\"\n"
}

/// The keys of the records of names, if these have others than one address.
fn records(figures: &Figures) -> String {
    let mut text = String::new();
    let mean = |all: u64, names: u64| (all + names / 2).checked_div(names);
    let addresses = mean(figures.addresses, figures.names_resolved);
    if let Some(addresses @ 2..) = addresses {
        text += &format!("addresses = {}\n", addresses.min(ADDRESSES_MAX.into()));
    }
    if let Some(share) = fraction(figures.aliases, figures.names_resolved)
        && let Some(length) = mean(figures.cnames, figures.aliases)
    {
        let length = length.min(CNAME_LENGTH_MAX.into());
        text += &format!("cname-share = {share}\ncname-length = {length}\n");
    }
    match text.is_empty() {
        true => text,
        false => format!("\n[tester]\n{text}"),
    }
}

/// A share as a value of a plan; `None` if it rounds to 0.
fn fraction(part: u64, whole: u64) -> Option<String> {
    let text = format!("{:.4}", Estimate::share(part, whole)?.value);
    (text != "0.0000").then_some(text)
}

/// Returns the figures as a table.
pub fn table(figures: &Figures) -> String {
    let rows = rows(figures).into_iter();
    let lines = rows.map(|(label, value)| format!("{label:<26}  {value}\n"));
    lines.collect()
}

fn rows(figures: &Figures) -> Vec<(String, String)> {
    let of_all = |part| share(part, figures.queries).filter(|_| part > 0);
    let types = figures.types.iter();
    let types = types.map(|(rtype, queries)| (format!("type {}", Rtype(*rtype)), of_all(*queries)));
    let edns = EDNS.into_iter().zip(figures.edns);
    let edns = edns.map(|(edns, queries)| (format!("EDNS {edns}"), of_all(queries)));
    let hours = (0..).zip(figures.hours);
    let hours =
        hours.map(|(hour, queries)| (format!("{hour:02}:00 to {hour:02}:59 UTC"), of_all(queries)));
    let labelled = |rows: Vec<(&'static str, Option<String>)>| {
        let rows = rows.into_iter();
        rows.map(|(label, value)| (label.to_owned(), value))
    };
    let all = labelled(traffic(figures)).chain(types).chain(edns);
    let all = all.chain(labelled(names(figures))).chain(hours);
    all.filter_map(|(label, value)| Some((label, value?)))
        .collect()
}

/// Amount, time and transports.
fn traffic(figures: &Figures) -> Vec<(&'static str, Option<String>)> {
    let of_all = |part| share(part, figures.queries).filter(|_| part > 0);
    let partial = format!("the beginning, up to {ENTRIES_MAX} names, clients or seconds");
    let rate_qps = figures.span_s.map(|span_s| figures.queries / span_s);
    let encrypted = count(figures.encrypted_connections);
    vec![
        ("read", figures.is_partial.then_some(partial)),
        ("queries", count(figures.queries)),
        ("length in seconds", figures.span_s.and_then(count)),
        ("mean rate in queries/s", rate_qps.and_then(count)),
        (
            "queries in busiest second",
            figures.peak_qps.and_then(count),
        ),
        ("addresses of clients", count(figures.clients)),
        ("over UDP", of_all(figures.over_udp)),
        ("over TCP", of_all(figures.over_tcp)),
        ("over TLS or HTTPS", of_all(figures.over_tls)),
        ("unread TLS connections", encrypted),
        ("other packets", count(figures.others)),
    ]
}

/// Names, their records and their repetition.
fn names(figures: &Figures) -> Vec<(&'static str, Option<String>)> {
    let repeated = &figures.repeated;
    let exponent = |it: Estimate| format!("{:.3} +- {:.3}", it.value, it.margin);
    let resolved = figures.names_resolved;
    vec![
        (
            "names with an AAAA record",
            share(figures.names_with_aaaa, figures.names_answered),
        ),
        ("names that are aliases", share(figures.aliases, resolved)),
        (
            "CNAME records of an alias",
            mean(figures.cnames, figures.aliases),
        ),
        ("addresses of a name", mean(figures.addresses, resolved)),
        ("different names and types", count(figures.questions)),
        ("repeated names and types", count(repeated.questions)),
        (
            "queries for repeated ones",
            share(repeated.queries, figures.queries),
        ),
        ("their Zipf exponent", repeated.exponent.map(exponent)),
    ]
}

/// A number with separators; `None` of nothing.
fn count(number: u64) -> Option<String> {
    (number > 0).then(|| Thousands(number).to_string())
}

/// The mean; `None` of nothing.
fn mean(all: u64, number: u64) -> Option<String> {
    (number > 0).then(|| format!("{:.2} in the mean", all as f64 / number as f64))
}

/// A share with its confidence interval; `None` of nothing.
fn share(part: u64, whole: u64) -> Option<String> {
    let told = |it: Estimate| format!("{:.2} % +- {:.2}", 100.0 * it.value, 100.0 * it.margin);
    Estimate::share(part, whole).map(told)
}

/// The most frequent EDNS; `None` if it is not known.
fn edns(figures: &Figures) -> Option<Edns> {
    let all = EDNS.into_iter().zip(figures.edns);
    let most = all.max_by_key(|(_, queries)| *queries)?;
    (most.1 > 0).then_some(most.0)
}

/// The shares of the types of which a plan can have queries; `None` without any.
fn types(figures: &Figures) -> Option<Types> {
    let counts = Types::ALL.map(|rtype| figures.of_type(rtype));
    let all: u64 = counts.iter().sum();
    let [_, a, https] = counts.map(|count| (count * PARTS + all / 2).checked_div(all));
    let (a, https) = (a?, https?);
    let aaaa = PARTS.checked_sub(a + https)?;
    let percent = |parts: u64| format!("{}.{:02}%", parts / 100, parts % 100);
    let parts = [("AAAA", aaaa), ("A", a), ("HTTPS", https)];
    let parts = parts.into_iter().filter(|(_, parts)| *parts > 0);
    let texts: Vec<_> = parts
        .map(|(name, parts)| format!("{name}={}", percent(parts)))
        .collect();
    texts.join(",").parse().ok()
}
