//! Reads scripts: stimuli for the engine, and its output.
//!
//! An unindented line is a stimulus, a comment (`#`) or blank. A line indented by two blanks belongs
//! to the stimulus above; `->` after them marks the output of the engine. A script passes if playing
//! it reproduces it exactly.
//!
//! ```text
//! config:                                    settings (TOML) over those in stage.rs; first, or not at all
//!   dns64.prefix = "64:ff9b::/96"
//! reload:                                    new settings
//! query 1 from 2001:db8::1: NAME TYPE [CLASS] [words]    from is optional; 1..30: this many queries
//! reply [NAME TYPE] [from SERVER]: RCODE [words]         to the latest query in flight
//!   answer NAME TTL TYPE DATA                            authority and additional likewise
//! closed [NAME TYPE] [from SERVER]                       a failed connection
//! no-tls [NAME TYPE] [from SERVER]                       no TLS session
//! unreachable [NAME TYPE] [from SERVER]                  an ICMP port unreachable error
//! wait 800ms                                             or s
//! flush [NAME]
//! count METRIC
//! withdraw [PREFIX]...                                   the translators of these prefixes do not answer
//! inflight                                               the questions that clients wait for
//! ```
//!
//! `messages.rs` lists the words. `keep`: the query stays in flight for another response.

use dns64_transport::clock::{Nanos, SECOND};
use dns64d::mailbox::ConnectionFailed;

use super::messages::{REPLY_WORDS, Words};
use super::stage::{Query, Stage};
use super::text;

/// The client of a query without `from`.
const CLIENT: &str = "2001:db8::1";

/// Plays a script and returns it with the current output.
pub(crate) fn play(script: &str) -> String {
    let mut played = String::new();
    let mut lines = script
        .lines()
        .filter(|line| !line.trim_start().starts_with("->"))
        .peekable();
    let stimuli = std::iter::from_fn(move || {
        let first = lines.next()?;
        let mut below = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
            below.push(line);
        }
        Some((first, below))
    });
    let mut stage = None;
    for (first, below) in stimuli {
        for line in [first].iter().chain(&below) {
            played.push_str(line);
            played.push('\n');
        }
        if first.is_empty() || first.starts_with('#') {
            continue;
        }
        if first == "config:" {
            assert!(
                stage.is_none(),
                "config: comes first; later settings are a reload:"
            );
            stage = Some(Stage::new(&below.join("\n")));
            continue;
        }
        let stage = stage.get_or_insert_with(|| Stage::new(""));
        perform(stage, first, &below);
        for line in stage.take_lines() {
            played.push_str("  -> ");
            played.push_str(&line);
            played.push('\n');
        }
    }
    played
}

fn perform(stage: &mut Stage, first: &str, below: &[&str]) {
    let (head, tail) = first.split_once(": ").unwrap_or((first, ""));
    let head: Vec<&str> = head.trim_end_matches(':').split_whitespace().collect();
    let tail: Vec<&str> = tail.split_whitespace().collect();
    match head.as_slice() {
        ["reload"] => stage.reload(&below.join("\n")),
        ["query", label, rest @ ..] => {
            let from = match rest {
                ["from", from] => from,
                _ => CLIENT,
            };
            let (least, most) = label.split_once("..").unwrap_or((label, label));
            stage.query(&Query {
                labels: least.parse().unwrap()..=most.parse().unwrap(),
                from,
                words: tail,
            });
        }
        ["reply", which @ ..] => {
            let rcode = text::rcode(tail[0]).unwrap_or_else(|| panic!("no response code: {first}"));
            let words = Words::read(&tail[1..], &REPLY_WORDS);
            let records: Vec<_> = below.iter().map(|line| record(line)).collect();
            stage.reply(stage.find(which), rcode, &words, &records);
        }
        ["closed", which @ ..] => stage.close(stage.find(which), ConnectionFailed::Unanswered),
        ["no-tls", which @ ..] => stage.close(stage.find(which), ConnectionFailed::Tls),
        ["unreachable", which @ ..] => stage.unreachable(stage.find(which)),
        ["wait", span] => stage.wait(nanos(span)),
        ["flush", name @ ..] => stage.flush(name.first().copied()),
        ["inflight"] => stage.list_waiting(),
        ["withdraw", prefixes @ ..] => stage.withdraw(prefixes),
        ["count", metric] => stage.count(metric),
        _ => panic!("not understood: {first}"),
    }
}

/// Section and record of a line.
fn record(line: &str) -> (String, String) {
    let (section, record) = line.trim().split_once(' ').unwrap();
    assert!(
        ["answer", "authority", "additional"].contains(&section),
        "no section: {line}"
    );
    (section.to_owned(), record.to_owned())
}

fn nanos(text: &str) -> Nanos {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, SECOND / 1_000),
        None => (text.strip_suffix('s').unwrap(), SECOND),
    };
    number.parse::<Nanos>().unwrap() * unit
}
