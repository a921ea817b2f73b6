//! Locates the losses of queries without a valid answer, as far as counters show them: pure functions on plain numbers.
//!
//! ```text
//! Measurer --ToDut--> DUT's host --DutHost--> DutSockets --> DUT --ToAuthority--> Authority
//! Measurer <--FromDut-------------------------------------- DUT <--FromAuthority-- Authority
//! ```
//!
//! Everything except the DUT and its sockets belongs to the Tester. A loss that the Tester's side can explain is never
//! attributed to the DUT: in doubt it is undecided.

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Role;
use crate::machine::watch::HostOf;

/// Location of a lost query, in the order of its path; or the kind of its answer, if it was answered.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The kernel did not accept it from the Measurer.
    NotSent,
    /// It left the Measurer and did not reach the DUT's host.
    ToDut,
    /// It reached the DUT's host and was dropped before a socket.
    DutHost,
    /// The DUT's sockets were full. A loss of the DUT.
    DutSockets,
    /// An upstream query of the DUT did not reach the authority.
    ToAuthority,
    /// The authority's sockets were full, or it did not respond.
    Authority,
    /// A response of the authority did not reach the DUT.
    FromAuthority,
    /// The DUT sent no response. A loss of the DUT.
    Dut,
    /// A response of the DUT did not reach the Measurer.
    FromDut,
    /// A response reached the Measurer's host and was dropped there.
    Measurer,
    /// It was answered after its timeout.
    Late,
    /// It was answered, but not with the expected AAAA.
    NotValid,
}

impl Place {
    /// All places, in the order of the path.
    pub const ALL: [Self; 12] = [
        Self::NotSent,
        Self::ToDut,
        Self::DutHost,
        Self::DutSockets,
        Self::ToAuthority,
        Self::Authority,
        Self::FromAuthority,
        Self::Dut,
        Self::FromDut,
        Self::Measurer,
        Self::Late,
        Self::NotValid,
    ];

    /// Returns whether a loss there is the DUT's. Whether a late or invalid answer is the DUT's depends on the other
    /// losses of the trial.
    pub fn is_dut(self) -> bool {
        matches!(
            self,
            Self::DutSockets | Self::Dut | Self::Late | Self::NotValid
        )
    }

    /// Returns the text after a number of queries.
    pub fn words(self) -> &'static str {
        match self {
            Self::NotSent => "never sent by the Measurer",
            Self::ToDut => "lost on the way to the DUT",
            Self::DutHost => "dropped by the DUT's host before its sockets",
            Self::DutSockets => "at the DUT's sockets",
            Self::ToAuthority => "lost on the way to the authority",
            Self::Authority => "lost at the authority",
            Self::FromAuthority => "lost on the way from the authority",
            Self::Dut => "never answered by the DUT",
            Self::FromDut => "lost on the way back from the DUT",
            Self::Measurer => "lost at the Measurer",
            Self::Late => "answered late",
            Self::NotValid => "answered, but not validly",
        }
    }
}

/// Counter that shows a loss, of a host or of a link at that host.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Source {
    /// The host.
    pub host: HostOf,
    /// Interface; `None` for the whole host.
    pub link: Option<String>,
    /// Name of the counter.
    pub counter: String,
    /// Increase of the counter.
    pub count: u64,
}

impl Source {
    /// Returns the location as the subject of a sentence.
    pub fn at(&self) -> String {
        let host = &self.host;
        match &self.link {
            Some(link) => format!("the {host}'s link {link}"),
            None => format!("the {host}'s host"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, count, counter) = (self.at(), self.count, &self.counter);
        write!(f, "{at} lost {count} packets ({counter})")
    }
}

impl Evidence {
    /// Returns the maximum number of queries that it can affect; `each` stands for an unknown number.
    fn cost(&self, each: u64) -> u64 {
        let any = || self.source.count.saturating_mul(each);
        self.high.unwrap_or_else(any)
    }
}

/// Meaning of a counter of the Tester's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Datagrams dropped at a full socket buffer.
    Sockets,
    /// Packets that were lost.
    Lost,
    /// Packets that were delayed, so that answers can have been late.
    Held,
}

/// A loss on the Tester's side.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Evidence {
    /// Location of the loss.
    pub place: Place,
    /// Kind of the loss.
    pub kind: LossKind,
    /// Counter that shows it.
    pub source: Source,
    /// Minimum number of affected queries.
    pub low: u64,
    /// Maximum number of affected queries. `None` if the loss also affects other queries: a DUT that waits for a lost
    /// response refuses them, or answers them late; [`LossFacts::each`] is their number.
    pub high: Option<u64>,
}

/// Upstream queries for the queries that were not answered, as counted by the authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamReach {
    /// Queries with an upstream query that reached the authority.
    pub reached: u64,
    /// Queries among them whose upstream queries were all answered.
    pub answered: u64,
}

/// What counters and ledgers show of the losses of a trial, in addition to the other figures of its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LossEvidence {
    /// Queries that the kernel did not accept.
    pub not_sent: u64,
    /// Queue of the Measurer's link that dropped them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<Source>,
    /// Queries that were open at an early end for longer than the slowest answer: most of them would have been lost
    /// too.
    pub hanging: u64,
    /// Datagrams that the DUT's sockets lost.
    pub dut_drops: u64,
    /// Both ends of the link between Measurer and DUT are observed, so that it has no losses without a counter.
    pub is_watched: bool,
    /// Losses on the Tester's side, once each.
    pub found: Vec<Evidence>,
}

/// All facts about the losses of a trial.
#[derive(Clone, Debug, Default)]
pub struct LossFacts {
    /// What counters and ledgers show.
    pub evidence: LossEvidence,
    /// Queries that were sent and got no response.
    pub missing: u64,
    /// Maximum number of queries that a loss without a [`high`](Evidence::high) affects.
    pub each: u64,
    /// Queries answered after their timeout.
    pub late: u64,
    /// Queries answered in time, but not with the expected AAAA.
    pub not_valid: u64,
    /// Counts of the authority, if it records names.
    pub asked: Option<UpstreamReach>,
}

/// Number of queries lost at one place.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Placed {
    /// Place.
    pub place: Place,
    /// Minimum number.
    pub low: u64,
    /// Maximum number.
    pub high: u64,
    /// Counter that shows it; `None` for numbers derived from the answers, and for the remainder.
    pub source: Option<Source>,
}

/// Sending times of the queries without a valid answer, since the start of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LossSpan {
    /// First sending time.
    pub from_ns: Nanos,
    /// Last sending time.
    pub until_ns: Nanos,
}

impl LossSpan {
    /// Creates the span of one query.
    pub(super) fn at(at_ns: Nanos) -> Self {
        Self {
            from_ns: at_ns,
            until_ns: at_ns,
        }
    }

    /// Returns the span extended by one query.
    pub(super) fn with(self, at_ns: Nanos) -> Self {
        Self {
            from_ns: self.from_ns.min(at_ns),
            until_ns: self.until_ns.max(at_ns),
        }
    }

    /// Returns the length from the first to the last.
    pub fn span_ns(&self) -> Nanos {
        self.until_ns.saturating_sub(self.from_ns)
    }
}

/// Locations of the queries without a valid answer. The lows and `undecided` sum to `queries`.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Losses {
    /// Queries that were due and have no valid answer in time, without those open at an early end.
    pub queries: u64,
    /// Places of the losses.
    pub places: Vec<Placed>,
    /// Queries with an unknown place.
    pub undecided: u64,
    /// Possible places of these.
    pub between: Vec<Place>,
    /// Sending times of the lost queries, including those hanging at an early end; `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<LossSpan>,
    /// What the places follow from.
    pub evidence: LossEvidence,
    /// Hosts whose counters were read.
    pub hosts: Vec<HostOf>,
    /// Other programs also increase the counters: they are evidence, not proof.
    pub shared: bool,
    /// All loss counters that increased during the trial.
    pub counters: Vec<Source>,
}

impl Losses {
    /// Sets the places, and the number of queries, from those of other losses.
    pub(super) fn locate(&mut self, placed: Self) {
        self.queries = placed.queries;
        self.places = placed.places;
        self.undecided = placed.undecided;
        self.between = placed.between;
    }

    /// Returns a text with the number at each place, the possible places of the others, and their sending times; `None`
    /// without losses.
    pub fn words(&self) -> Option<String> {
        let some = self.places.iter().filter(|placed| placed.low > 0);
        let mut parts: Vec<String> = some
            .map(|placed| format!("{} {}", placed.low, placed.place.words()))
            .collect();
        if self.undecided > 0 {
            let between = self.between.iter().map(|place| place.words());
            let between = between.collect::<Vec<_>>().join(" or ");
            parts.push(format!("{} {between}", self.undecided));
        }
        let when = self.span.map_or_else(String::new, |span| {
            let seconds = |ns: Nanos| ns as f64 / SECOND as f64;
            let (from, until) = (seconds(span.from_ns), seconds(span.until_ns));
            format!(" (sent from {from:.3} to {until:.3} s)")
        });
        (!parts.is_empty()).then(|| parts.join(", ") + &when)
    }
}

/// Places of the losses, and the reason if the trial gives no result about the DUT.
#[derive(Clone, Debug, Default)]
pub struct Placing {
    /// Places of the losses.
    pub losses: Losses,
    /// Largest loss on the Tester's side, if these losses can explain every query that was sent and has no valid
    /// answer. `None` without losses, or if the DUT lost queries beyond them.
    pub cause: Option<Evidence>,
}

/// Assigns each query without a valid answer to one place.
pub fn place(facts: LossFacts) -> Placing {
    let LossFacts { missing, asked, .. } = facts;
    let seen = facts.evidence;
    let mut evidence = seen.found;
    evidence.extend(asked.and_then(unanswered));
    evidence.sort_by_key(|evidence| evidence.place);
    let Explained {
        mut places,
        rest,
        slack,
        clogged,
    } = Explained::by(&evidence, missing, seen.hanging, facts.each, asked);
    places.extend(exact(Place::NotSent, seen.not_sent, None));
    let beyond = rest.saturating_sub(slack);
    let of_dut = if seen.is_watched { beyond } else { 0 };
    let at_sockets = of_dut.min(seen.dut_drops);
    let undecided = rest - of_dut;
    places.extend(exact(Place::DutSockets, at_sockets, None));
    let (low, high) = (of_dut - at_sockets, of_dut - at_sockets + undecided);
    if high > 0 {
        places.push(Placed {
            place: Place::Dut,
            low,
            high,
            source: None,
        });
    }
    places.extend(exact(Place::Late, facts.late, None));
    places.extend(exact(Place::NotValid, facts.not_valid, None));
    places.sort_by_key(|placed| placed.place);
    let answered = facts.late + facts.not_valid;
    let is_explained =
        missing + answered > 0 && rest.saturating_add(seen.hanging) <= slack && answered <= clogged;
    Placing {
        cause: evidence
            .into_iter()
            .filter(|_| is_explained)
            .max_by_key(weight),
        losses: Losses {
            queries: seen.not_sent + missing + answered,
            between: between(&places, undecided, seen.is_watched),
            places,
            undecided,
            ..Losses::default()
        },
    }
}

/// Missing queries explained by evidence.
struct Explained {
    /// Places of the losses.
    places: Vec<Placed>,
    /// Missing queries without a place so far.
    rest: u64,
    /// Number that the evidence can explain beyond its minimum.
    slack: u64,
    /// Number of those that can have been answered late.
    clogged: u64,
}

impl Explained {
    fn by(
        evidence: &[Evidence],
        missing: u64,
        hanging: u64,
        each: u64,
        asked: Option<UpstreamReach>,
    ) -> Self {
        let mut all = Self {
            places: Vec::new(),
            rest: missing,
            slack: 0,
            clogged: 0,
        };
        let open = missing.saturating_add(hanging);
        for evidence in evidence {
            let place = evidence.place;
            let most = missing.min(bound(place, missing, asked));
            let low = evidence.low.min(all.rest).min(most);
            all.rest -= low;
            let cost = evidence.cost(each);
            let high = cost.min(most).max(low);
            // A loss behind the DUT blocks it: queries can be lost that never reached the authority.
            let reach = match evidence.high {
                Some(_) => cost.min(bound(place, open, asked)).max(low),
                None => cost.max(low),
            };
            all.slack = all.slack.saturating_add(reach - low);
            let clogged = evidence.high.map_or(cost, |_| 0);
            all.clogged = all.clogged.saturating_add(clogged);
            let source = Some(evidence.source.clone());
            all.places.extend((high > 0).then_some(Placed {
                place,
                low,
                high,
                source,
            }));
        }
        all
    }
}

/// Returns the upstream queries that the authority received and did not answer.
fn unanswered(asked: UpstreamReach) -> Option<Evidence> {
    let low = asked.reached.saturating_sub(asked.answered);
    (low > 0).then(|| Evidence {
        place: Place::Authority,
        kind: LossKind::Lost,
        source: Source {
            host: Role::Authority.into(),
            link: None,
            counter: "questions without an answer".to_owned(),
            count: low,
        },
        low,
        high: None,
    })
}

/// Returns the maximum number of queries lost at a place. A query whose upstream query reached the authority has passed
/// the DUT; one whose response was lost behind the authority was answered by it.
fn bound(place: Place, missing: u64, asked: Option<UpstreamReach>) -> u64 {
    match (place, asked) {
        (Place::ToDut | Place::DutHost, Some(asked)) => missing.saturating_sub(asked.reached),
        (Place::FromAuthority, Some(asked)) => asked.answered,
        _ => missing,
    }
}

fn exact(place: Place, queries: u64, source: Option<Source>) -> Vec<Placed> {
    let placed = Placed {
        place,
        low: queries,
        high: queries,
        source,
    };
    Vec::from_iter((queries > 0).then_some(placed))
}

/// Orders evidence: drops before delays, then by number.
fn weight(evidence: &Evidence) -> (bool, u64) {
    (evidence.kind != LossKind::Held, evidence.source.count)
}

/// Returns the possible places of the undecided queries.
fn between(places: &[Placed], undecided: u64, is_watched: bool) -> Vec<Place> {
    if undecided == 0 {
        return Vec::new();
    }
    let open = places.iter().filter(|placed| placed.high > placed.low);
    let mut open: Vec<Place> = open.map(|placed| placed.place).collect();
    if !is_watched {
        open.extend([Place::ToDut, Place::FromDut]);
        open.sort();
    }
    open.dedup();
    open
}

#[cfg(test)]
mod tests;
