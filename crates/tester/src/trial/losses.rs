//! What the losses of a trial mean for its verdict.

use super::evidence::{self, Own};
use super::place::{self, Evidence, Facts, Kind, Losses, Place};
use super::result::{Answers, TesterFault};
use crate::lab::watch::Observed;

/// Where the queries without a valid answer were lost, and what follows.
#[derive(Debug)]
pub(super) struct Judged {
    /// The places.
    pub(super) losses: Losses,
    /// The loss on the Tester's side that explains what has no valid answer. A trial in which every query was
    /// answered validly has none, whatever was lost beside.
    pub(super) fault: Option<TesterFault>,
    /// Losses that cost no answer: they were of repeated questions, or of what was nobody's.
    pub(super) notes: Vec<String>,
}

/// Judges by the answers, what the Tester knows of its own datagrams, those that the DUT's sockets lost, and the
/// counters of the hosts.
pub(super) fn judge(answers: &Answers, own: &Own, dut_drops: u64, observed: &Observed) -> Judged {
    let evidence = evidence::gather(observed, own);
    let mut placing = place::place(Facts {
        not_sent: own.not_sent,
        missing: answers.missing,
        late: answers.late,
        not_valid: answers.answered() - answers.valid - answers.late,
        dut_drops,
        is_watched: evidence::is_watched(observed),
        evidence: evidence.clone(),
        asked: None,
    });
    placing.losses = Losses {
        hosts: observed.hosts.iter().map(|h| h.role.to_owned()).collect(),
        shared: observed.hosts.iter().any(|host| host.shared),
        counters: evidence::counters(observed),
        ..placing.losses
    };
    let is_spared = placing.losses.queries == 0 && own.undecided == 0;
    Judged {
        fault: not_sent(own, observed).or_else(|| placing.cause.map(fault)),
        notes: is_spared
            .then(|| without_effect(&evidence))
            .unwrap_or_default(),
        losses: placing.losses,
    }
}

/// The kernel did not take queries: the counter of the queue that refused them tells why.
fn not_sent(own: &Own, observed: &Observed) -> Option<TesterFault> {
    let queries = own.not_sent;
    let refused = || evidence::refusing(observed).map(TesterFault::NetworkLoss);
    (queries > 0).then(|| refused().unwrap_or(TesterFault::NotSent { queries }))
}

fn fault(cause: Evidence) -> TesterFault {
    let datagrams = cause.source.count;
    match (cause.kind, cause.place) {
        (Kind::Sockets, Place::Measurer) => TesterFault::ReceiveDrops { datagrams },
        (Kind::Sockets, _) => TesterFault::AuthorityDrops { datagrams },
        (Kind::Lost, _) => TesterFault::NetworkLoss(cause.source),
        (Kind::Held, _) => TesterFault::NetworkDelay(cause.source),
    }
}

fn without_effect(evidence: &[Evidence]) -> Vec<String> {
    let lost = evidence.iter().filter(|lost| lost.kind != Kind::Held);
    lost.map(|lost| format!("{}; every query was answered all the same", lost.source))
        .collect()
}
