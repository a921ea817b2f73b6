//! Plays the steps of a case: query, response, questions to the authority; then the verdict.

use std::sync::Arc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::random::SplitMix64;

use super::authority::Runs;
use super::case::{Case, Run, Step};
use super::client::{Back, Client};
use super::judge::{self, Exchange};
use super::query::Query;
use super::report::{Judged, Verdict};
use super::script::{Asked, Script};
use super::text;

/// A step that was played.
pub(super) struct Played {
    /// The query.
    pub(super) query: Query,
    /// Its ID.
    pub(super) id: u16,
    /// What came back.
    pub(super) back: Back,
    /// All questions to the authority so far.
    pub(super) asked: Vec<Asked>,
}

impl Played {
    /// The response, if there was one.
    pub(super) fn response(&self) -> Option<&[u8]> {
        match &self.back {
            Back::Response(octets) => Some(octets),
            Back::Nothing | Back::Gone => None,
        }
    }
}

/// Reason why the steps say nothing.
#[derive(Debug)]
pub(super) enum Unplayed {
    /// A step came too late after the one before.
    Late,
    /// A text of the case cannot be read.
    Unreadable(String),
}

/// Plays the steps of a case.
pub(super) fn steps(
    case: &Case,
    run: &Run,
    runs: &Runs,
    client: &impl Client,
    wait_ns: Nanos,
) -> Result<Vec<Played>, Unplayed> {
    let script = Script::new(case, run).map_err(Unplayed::Unreadable)?;
    let script = Arc::new(script);
    runs.begin(&script);
    let mut ids = SplitMix64(run.number.into());
    let mut played: Vec<Played> = Vec::new();
    let mut answered_at = client.now();
    let mut late = false;
    for step in &case.step {
        client.sleep(step.after_s * SECOND);
        let query = Query::parse(&step.ask, run).map_err(Unplayed::Unreadable)?;
        late |= step
            .within_ms
            .is_some_and(|within_ms| client.now() - answered_at > within_ms * 1_000_000);
        let id = (ids.draw() >> 48) as u16;
        let control = needs_control(case, step).then(|| runs.control());
        let back = client.ask(&query, id, wait_ns, control.as_ref());
        answered_at = client.now();
        let asked = script.asked();
        let is_over = !matches!(back, Back::Response(_)) && !step.may_be_silent();
        played.push(Played {
            query,
            id,
            back,
            asked,
        });
        if is_over {
            break;
        }
    }
    runs.end(&script);
    if late {
        Err(Unplayed::Late)
    } else {
        Ok(played)
    }
}

/// Whether the response to another query shows that there is none. An authority that is silent itself may keep a server
/// waiting.
fn needs_control(case: &Case, step: &Step) -> bool {
    step.may_be_silent() && !case.reply.iter().any(|it| it.drop)
}

/// Plays a case, again if it was late, and judges it.
pub(super) fn judged(
    case: &Case,
    mut next: impl FnMut() -> Run,
    runs: &Runs,
    client: &impl Client,
    wait_ns: Nanos,
) -> Judged {
    for _ in 0..TRIES {
        let run = next();
        match steps(case, &run, runs, client, wait_ns) {
            Ok(played) => return judged_steps(case, &played, &run),
            Err(Unplayed::Late) => {}
            Err(Unplayed::Unreadable(why)) => return Judged::unknown(case, &why),
        }
    }
    Judged::unknown(case, "this machine is too slow for its steps")
}

/// How often a case whose steps were late is played.
const TRIES: usize = 5;

fn judged_steps(case: &Case, played: &[Played], run: &Run) -> Judged {
    let mut asked_before = 0;
    for (played, step) in played.iter().zip(&case.step) {
        let exchange = Exchange {
            asked_before,
            query: &played.query,
            id: played.id,
            response: played.response(),
            asked: &played.asked,
        };
        asked_before = played.asked.len();
        let mut faults = judge::faults(&exchange, &step.expect, run);
        let is_gone = matches!(played.back, Back::Gone);
        if is_gone {
            faults.push("no response to the next query either".into());
        }
        if !faults.is_empty() {
            let mut judged = Judged::of(case, Verdict::Failed);
            judged.silent = played.response().is_none();
            judged.faults = faults;
            judged.packets = packets(played);
            return judged;
        }
    }
    Judged::of(case, Verdict::Passed)
}

/// The messages of a step as text: query, response, questions to the authority.
fn packets(played: &Played) -> Vec<String> {
    let labelled = |label: &str, octets: &[u8]| -> Vec<String> {
        let lines = text::packet(octets).into_iter();
        lines.map(|line| format!("{label}: {line}")).collect()
    };
    let mut lines = labelled("query", &played.query.octets(played.id));
    match played.response() {
        Some(response) => lines.extend(labelled("response", response)),
        None => lines.push("response: none".into()),
    }
    let asked = played.asked.iter().take(ASKED_SHOWN).map(|it| {
        let over = if it.tcp { "TCP" } else { "UDP" };
        format!("authority asked over {over}: {} {}", it.name, it.rtype)
    });
    lines.extend(asked);
    lines
}

/// Questions to the authority in a text.
const ASKED_SHOWN: usize = 12;
