//! Where the queries without a valid answer were lost, as far as counters tell: pure functions on plain
//! numbers.
//!
//! ```text
//! Measurer --ToDut--> DUT's host --DutHost--> DutSockets --> DUT --ToAuthority--> Authority
//! Measurer <--FromDut-------------------------------------- DUT <--FromAuthority-- Authority
//! ```
//!
//! Everything but the DUT and its sockets is the Tester's. What the Tester's side can explain is never the DUT's: in
//! doubt a loss stays undecided.

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

/// Where a query was lost, in the order of its way; or how it was answered, if it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The kernel did not take it from the Measurer.
    NotSent,
    /// It left the Measurer and did not reach the DUT's host.
    ToDut,
    /// It reached the DUT's host and was dropped before a socket.
    DutHost,
    /// The DUT's sockets had no room. The DUT's own.
    DutSockets,
    /// A question of the DUT did not reach the authority.
    ToAuthority,
    /// The authority's sockets had no room, or it did not answer.
    Authority,
    /// An answer of the authority did not reach the DUT.
    FromAuthority,
    /// The DUT sent no answer. The DUT's own.
    Dut,
    /// An answer of the DUT did not reach the Measurer.
    FromDut,
    /// An answer reached the Measurer's host and was dropped there.
    Measurer,
    /// It was answered after its timeout.
    Late,
    /// It was answered, but not with the expected AAAA.
    NotValid,
}

impl Place {
    /// All of them, in the order of the way.
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

    /// Whether what is lost there is the DUT's loss. If an answer that was late or not valid is the DUT's
    /// depends on what else was lost in the trial.
    pub fn is_dut(self) -> bool {
        matches!(
            self,
            Self::DutSockets | Self::Dut | Self::Late | Self::NotValid
        )
    }

    /// In words, after a number of queries.
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

/// What shows a loss: a counter of a host, or of a link at that host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Whose host it is.
    pub host: String,
    /// The interface; `None` for the whole host.
    pub link: Option<String>,
    /// Name of the counter.
    pub counter: String,
    /// How far it went.
    pub count: u64,
}

impl Source {
    /// Where it counts, as the subject of a sentence.
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
    /// Queries that it can have cost an answer, if one whose number is not known costs up to `each`.
    fn cost(&self, each: u64) -> u64 {
        let any = || self.source.count.saturating_mul(each);
        self.high.unwrap_or_else(any)
    }
}

/// What a counter of the Tester's side stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams that found the socket's buffer full.
    Sockets,
    /// Packets that were lost.
    Lost,
    /// Packets that were held up, so that answers can have been late.
    Held,
}

/// A loss on the Tester's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Where.
    pub place: Place,
    /// What it is.
    pub kind: Kind,
    /// What shows it.
    pub source: Source,
    /// Queries that it cost an answer, at least.
    pub low: u64,
    /// At most. `None` where the loss concerns other queries too: a DUT that waits for a lost answer turns them away,
    /// or answers them late; [`Facts::each`] has how many.
    pub high: Option<u64>,
}

/// What the authority knows of the queries that were not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Queries for which a question of the DUT reached the authority.
    pub reached: u64,
    /// Those of them for which it answered every question.
    pub answered: u64,
}

/// All that is known of the losses of a trial.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Queries that the kernel did not take.
    pub not_sent: u64,
    /// Queries that were sent and got no answer at all.
    pub missing: u64,
    /// Queries that hung when the trial ended early.
    pub hanging: u64,
    /// Queries that a loss without a [`high`](Evidence::high) can cost, at most.
    pub each: u64,
    /// Queries answered after their timeout.
    pub late: u64,
    /// Queries answered in time, but not with the expected AAAA.
    pub not_valid: u64,
    /// Datagrams that the DUT's sockets lost.
    pub dut_drops: u64,
    /// Both ends of the link between Measurer and DUT are watched, so that what no counter shows did not
    /// happen there.
    pub is_watched: bool,
    /// Losses on the Tester's side, each of them once.
    pub evidence: Vec<Evidence>,
    /// What the authority knows, if it keeps account of names.
    pub asked: Option<Asked>,
}

/// How many queries were lost at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Where.
    pub place: Place,
    /// At least so many,
    pub low: u64,
    /// and at most so many.
    pub high: u64,
    /// What shows it; `None` for what follows from the answers, or is left over.
    pub source: Option<Source>,
}

/// When the queries without a valid answer were sent, since the start of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossSpan {
    /// The first of them,
    pub from_ns: Nanos,
    /// and the last.
    pub until_ns: Nanos,
}

impl LossSpan {
    /// Of one query.
    pub(super) fn at(at_ns: Nanos) -> Self {
        Self {
            from_ns: at_ns,
            until_ns: at_ns,
        }
    }

    /// With one more.
    pub(super) fn with(self, at_ns: Nanos) -> Self {
        Self {
            from_ns: self.from_ns.min(at_ns),
            until_ns: self.until_ns.max(at_ns),
        }
    }

    /// From the first to the last.
    pub fn span_ns(&self) -> Nanos {
        self.until_ns.saturating_sub(self.from_ns)
    }
}

/// Where the queries without a valid answer were lost. The lows and `undecided` sum to `queries`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Queries that were due and have no valid answer in time, those open at an early end left out.
    pub queries: u64,
    /// Where they were lost.
    pub places: Vec<Placed>,
    /// Those of which the place cannot be told,
    pub undecided: u64,
    /// and the places that come into question.
    pub between: Vec<Place>,
    /// When those were sent that were lost, the ones included that hung at an early end; `None` without any, and in
    /// results from before this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<LossSpan>,
    /// The hosts whose counters were read.
    pub hosts: Vec<String>,
    /// Other programs use the counters as well: they are evidence, not proof.
    pub shared: bool,
    /// All counters of losses that went on during the trial.
    pub counters: Vec<Source>,
}

impl Losses {
    /// How many at each place, in words, the places between which the others are, and when they were sent; `None`
    /// without any.
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

/// The places, and why the trial says nothing about the DUT, if it does not.
#[derive(Clone, Debug, Default)]
pub struct Placing {
    /// The places.
    pub losses: Losses,
    /// The loss on the Tester's side that counts most, if those can explain every query that was sent and has
    /// no valid answer. `None` if there was none, or the DUT has lost some beyond them.
    pub cause: Option<Evidence>,
}

/// Places each query without a valid answer once.
pub fn place(facts: Facts) -> Placing {
    let Facts { missing, asked, .. } = facts;
    let mut evidence = facts.evidence;
    evidence.extend(asked.and_then(unanswered));
    evidence.sort_by_key(|evidence| evidence.place);
    let Explained {
        mut places,
        rest,
        slack,
        clogged,
    } = Explained::by(&evidence, missing, facts.hanging, facts.each, asked);
    places.extend(exact(Place::NotSent, facts.not_sent, None));
    let beyond = rest.saturating_sub(slack);
    let of_dut = if facts.is_watched { beyond } else { 0 };
    let at_sockets = of_dut.min(facts.dut_drops);
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
    let is_explained = missing + answered > 0
        && rest.saturating_add(facts.hanging) <= slack
        && answered <= clogged;
    Placing {
        cause: evidence
            .into_iter()
            .filter(|_| is_explained)
            .max_by_key(weight),
        losses: Losses {
            queries: facts.not_sent + missing + answered,
            between: between(&places, undecided, facts.is_watched),
            places,
            undecided,
            ..Losses::default()
        },
    }
}

/// What evidence explains of the missing queries.
struct Explained {
    /// Where.
    places: Vec<Placed>,
    /// Missing queries that are placed nowhere yet.
    rest: u64,
    /// How many the evidence can explain beyond its least,
    slack: u64,
    /// and how many of these can have been answered late.
    clogged: u64,
}

impl Explained {
    fn by(
        evidence: &[Evidence],
        missing: u64,
        hanging: u64,
        each: u64,
        asked: Option<Asked>,
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
            // What is lost behind the DUT clogs it: queries can be lost there that it never asked for.
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

/// Questions that the authority got and did not answer.
fn unanswered(asked: Asked) -> Option<Evidence> {
    let low = asked.reached.saturating_sub(asked.answered);
    (low > 0).then(|| Evidence {
        place: Place::Authority,
        kind: Kind::Lost,
        source: Source {
            host: "authority".to_owned(),
            link: None,
            counter: "questions without an answer".to_owned(),
            count: low,
        },
        low,
        high: None,
    })
}

/// A query for which the authority was asked has reached the DUT; for one whose answer was lost behind the
/// authority it has answered.
fn bound(place: Place, missing: u64, asked: Option<Asked>) -> u64 {
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

/// Drops tell more than delays, and many more than few.
fn weight(evidence: &Evidence) -> (bool, u64) {
    (evidence.kind != Kind::Held, evidence.source.count)
}

/// The places at which the undecided can have been lost.
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
