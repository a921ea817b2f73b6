//! The way of the queries of a trial through DUT and authority: the six messages of each (RFC 8219
//! section 9.1), and what they tell of all together. `docs/latency.md` says what each figure includes.

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

use crate::authority::ledger::{ANSWER_MAX_NS, Question, Questions};
use crate::load::ledger::{Entry, Fate};

/// The messages of one query, on the link's clock. What the Tester sends is stamped right before the
/// system call, what it receives by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The query left the Measurer.
    pub sent_at: Nanos,
    /// Its first answer came back.
    pub received_at: Option<Nanos>,
    /// What the authority was asked for its name; `None` of a repeated name, whose questions belong to
    /// several queries, and of an authority that is not ours.
    pub questions: Option<Questions>,
}

impl Timeline {
    /// Of a query that was sent.
    pub fn new(sent_at: Nanos, entry: Entry, questions: Option<Questions>) -> Self {
        let is_answered = !matches!(entry.fate, Fate::Pending | Fate::Unsent);
        Self {
            sent_at,
            received_at: is_answered.then(|| sent_at + entry.rtt_ns),
            questions,
        }
    }

    /// From sending to the first answer.
    pub fn rtt_ns(&self) -> Option<Nanos> {
        Some(self.received_at?.saturating_sub(self.sent_at))
    }

    /// How long the authority had questions for the name while the query was open: what it had of both
    /// types at the same time counts once. `None` without an answer, and where a question was not answered or not timed.
    pub fn authority_ns(&self) -> Option<Nanos> {
        let received_at = self.received_at?;
        let Questions { aaaa, a } = self.questions?;
        // Before the query was sent: what the resolution of the stamps makes of it.
        let within = |at: Nanos| at.clamp(self.sent_at, received_at);
        let interval = |question: Question| {
            if question.asked == 0 {
                return Some((received_at, received_at));
            }
            let (from, answer_ns) = (question.arrived_at?, question.answer_ns?);
            let until = from + answer_ns;
            let is_known = answer_ns < ANSWER_MAX_NS || until >= received_at;
            is_known.then(|| (within(from), within(until)))
        };
        let (first, second) = (interval(aaaa)?, interval(a)?);
        let both_ns = first.1.min(second.1).saturating_sub(first.0.max(second.0));
        Some(first.1 - first.0 + second.1 - second.0 - both_ns)
    }

    /// The round-trip time without that of the authority: that of the DUT, of the links, and of the
    /// system calls with which the Tester sends.
    pub fn dut_only_ns(&self) -> Option<Nanos> {
        Some(self.rtt_ns()?.saturating_sub(self.authority_ns()?))
    }

    /// Its messages, counted from the sending of the query; `None` without an answer, and where a question was
    /// not answered or not timed.
    pub fn messages(&self) -> Option<Messages> {
        self.authority_ns()?;
        let Questions { aaaa, a } = self.questions?;
        let after = |at: Nanos| at.saturating_sub(self.sent_at);
        Some(Messages {
            aaaa_question_ns: aaaa.arrived_at.map(after),
            aaaa_answer_ns: aaaa.answered_at().map(after),
            a_question_ns: a.arrived_at.map(after),
            a_answer_ns: a.answered_at().map(after),
            response_ns: self.rtt_ns()?,
        })
    }

    /// How the DUT asked; `None` if it did not ask, or where that was not timed.
    pub fn order(&self) -> Option<Order> {
        let Questions { aaaa, a } = self.questions?;
        match (aaaa.asked, a.asked) {
            (0, 0) => None,
            (_, 0) => Some(Order::AaaaOnly),
            (0, _) => Some(Order::AOnly),
            _ => {
                let (first, second) = (aaaa.arrived_at?, a.arrived_at?);
                let before =
                    |a: Question, next: Nanos| a.answered_at().is_some_and(|at| at <= next);
                Some(match () {
                    () if before(aaaa, second) => Order::AaaaThenA,
                    () if before(a, first) => Order::AThenAaaa,
                    () => Order::Parallel,
                })
            }
        }
    }
}

/// The messages of RFC 8219 section 9.1, figure 3, of one query, in nanoseconds after it was sent. A question that
/// the DUT did not ask is `None` with its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// The AAAA question came to the authority.
    pub aaaa_question_ns: Option<Nanos>,
    /// Its answer left the authority.
    pub aaaa_answer_ns: Option<Nanos>,
    /// The A question came to the authority.
    pub a_question_ns: Option<Nanos>,
    /// Its answer left the authority.
    pub a_answer_ns: Option<Nanos>,
    /// The response came back to the Measurer.
    pub response_ns: Nanos,
}

impl Messages {
    /// Both questions with their answers: AAAA, then A.
    pub fn exchanges(&self) -> [(Option<Nanos>, Option<Nanos>); 2] {
        [
            (self.aaaa_question_ns, self.aaaa_answer_ns),
            (self.a_question_ns, self.a_answer_ns),
        ]
    }

    /// Whether each question has an answer that is not before it.
    pub fn are_in_order(&self) -> bool {
        let is_answered = |(question, answer): (Option<Nanos>, Option<Nanos>)| {
            question.is_some() == answer.is_some() && question <= answer
        };
        self.exchanges().into_iter().all(is_answered)
    }
}

/// How a DUT asks for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// For A when AAAA had been answered: as RFC 8219 section 9.1 and RFC 6147 section 5.1 have it.
    AaaaThenA,
    /// For AAAA when A had been answered.
    AThenAaaa,
    /// For one before the other had been answered.
    Parallel,
    /// For AAAA alone.
    AaaaOnly,
    /// For A alone.
    AOnly,
}

/// What the messages of all queries of a trial tell. The names are its fresh ones: those that no query
/// of the trial asked for before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Fresh names that were asked for.
    pub fresh_names: u64,
    /// Questions at the authority.
    pub questions: QuestionCounts,
    /// Names with a valid answer in time, by the questions for them.
    pub answered: AnsweredNames,
    /// Names without any answer.
    pub lost: LostNames,
    /// Round-trip time of the answered names without the time of the authority: percentiles and
    /// nanoseconds, the percentiles as of the round-trip times.
    pub dut_only_percentiles_ns: Vec<(f64, Nanos)>,
    /// Answered names whose questions were not all answered and timed, so that they are not in it.
    pub untimed_names: u64,
    /// Median times between the messages.
    pub stages: Stages,
    /// Median times of the model of Lencse et al. 2017, section 7.2.
    pub model: ModelTimes,
    /// How long the authority took to answer.
    pub authority: AuthorityTimes,
    /// The messages of the typical query: the first whose round-trip time is the median of those with a valid answer
    /// and all messages timed. `None` without such queries, and in journals from before this key.
    #[serde(default)]
    pub typical: Option<Messages>,
}

impl Path {
    /// What the reader of a trial with a DUT has to know.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self {
            answered,
            authority,
            ..
        } = self;
        let mut notes = Vec::new();
        if answered.unasked > 0 {
            notes.push(format!(
                "{} of {} fresh names were answered without a question to the authority: the DUT had them in \
                 its cache, and RFC 8219 section 9.2 asks for names that are all different",
                answered.unasked, answered.names
            ));
        }
        notes.extend(authority.note());
        notes
    }

    /// Questions for each fresh name; `None` without names.
    pub fn questions_per_name(&self) -> Option<f64> {
        let asked = self.questions.aaaa.saturating_add(self.questions.a);
        (self.fresh_names > 0).then(|| asked as f64 / self.fresh_names as f64)
    }

    /// A percentile of the time without the authority, if there are answers enough to tell.
    pub fn dut_only_ns(&self, percent: f64) -> Option<Nanos> {
        let all = &self.dut_only_percentiles_ns;
        let found = all.iter().find(|at| (at.0 - percent).abs() < 1e-9);
        found.map(|at| at.1)
    }

    /// How the DUT asked for most of the names, in words.
    pub fn order(&self) -> &'static str {
        let names = &self.answered;
        let orders = [
            (names.aaaa_then_a, "AAAA then A"),
            (names.a_then_aaaa, "A then AAAA"),
            (names.parallel, "AAAA and A in parallel"),
            (names.aaaa_only, "AAAA alone"),
            (names.a_only, "A alone"),
            (names.unasked, "answered from the cache"),
        ];
        let most = orders.into_iter().max_by_key(|order| order.0);
        most.filter(|most| most.0 > 0)
            .map_or("unknown", |most| most.1)
    }
}

/// Questions that the authority got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionCounts {
    /// For the AAAA of fresh names.
    pub aaaa: u64,
    /// For their A.
    pub a: u64,
    /// For the AAAA of other names: repeated ones that the DUT does not have in its cache, and what is left of
    /// earlier trials.
    pub other_aaaa: u64,
    /// For their A.
    pub other_a: u64,
}

/// Names by the questions for them. All but `again` are disjoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredNames {
    /// All of them.
    pub names: u64,
    /// Asked for AAAA, and for A when that was answered.
    pub aaaa_then_a: u64,
    /// Asked for A, and for AAAA when that was answered.
    pub a_then_aaaa: u64,
    /// Asked for one before the other was answered.
    pub parallel: u64,
    /// Asked for both at times that are not known, 18 min after the start of the trial.
    pub untimed: u64,
    /// Asked for AAAA alone.
    pub aaaa_only: u64,
    /// Asked for A alone.
    pub a_only: u64,
    /// Not asked for: the DUT had the answer in its cache.
    pub unasked: u64,
    /// Asked for the same type twice or more.
    pub again: u64,
}

impl AnsweredNames {
    /// Names that the authority was not asked for an A of.
    pub fn without_a(&self) -> u64 {
        self.aaaa_only.saturating_add(self.unasked)
    }

    /// Adds those of another trial.
    pub fn add(&mut self, other: Self) {
        let sums = [
            (&mut self.names, other.names),
            (&mut self.aaaa_then_a, other.aaaa_then_a),
            (&mut self.a_then_aaaa, other.a_then_aaaa),
            (&mut self.parallel, other.parallel),
            (&mut self.untimed, other.untimed),
            (&mut self.aaaa_only, other.aaaa_only),
            (&mut self.a_only, other.a_only),
            (&mut self.unasked, other.unasked),
            (&mut self.again, other.again),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Names without any answer, by how far they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostNames {
    /// All of them.
    pub names: u64,
    /// The authority was not asked.
    pub unasked: u64,
    /// It was asked, and left a question without an answer.
    pub unserved: u64,
    /// It was asked and has answered, but nothing came back from the DUT.
    pub served: u64,
}

/// Median times between the messages of the names with a valid answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// From the sending of the query to the first question at the authority.
    pub to_authority_ns: Option<Nanos>,
    /// From the question for AAAA to its answer.
    pub aaaa_answer_ns: Option<Nanos>,
    /// From the answer for AAAA to the question for A, where that came after it.
    pub between_ns: Option<Nanos>,
    /// From the question for A to its answer.
    pub a_answer_ns: Option<Nanos>,
    /// From the last answer of the authority to that of the DUT.
    pub to_client_ns: Option<Nanos>,
}

/// Median times in the terms of Lencse et al. 2017, section 7.2, as far as six messages tell them: their T_Q, T_C, T_S and
/// T_R cannot be told from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelTimes {
    /// T_A: from the question for AAAA to that for A, where the DUT asked for A when AAAA was answered.
    pub t_a_ns: Option<Nanos>,
    /// T_Q + T_C + T_S + T_R of these: the round-trip time less 2 T_A.
    pub t_q_c_s_r_ns: Option<Nanos>,
    /// T_Q + T_C + T_R: the round-trip time of names asked for before the trial, if the authority was asked for
    /// none of them.
    pub t_q_c_r_ns: Option<Nanos>,
}

/// How long the authority took, from the arrival of a question until it handed its answer to the
/// network: the first of each type for each fresh name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityTimes {
    /// Median.
    pub p50_ns: Option<Nanos>,
    /// 99th percentile.
    pub p99_ns: Option<Nanos>,
    /// Longest, at most 1.07 s.
    pub max_ns: Option<Nanos>,
    /// A quarter of the timeout (RFC 8219 section 9.2.1), of an authority with a ledger less than 1.07 s, and the delay
    /// that it was asked to have.
    pub limit_ns: Nanos,
    /// Answers that took longer. Not known for a limit beyond 1.07 s.
    pub slow: u64,
    /// Questions that got no answer.
    pub unanswered: u64,
}

impl AuthorityTimes {
    /// What the reader has to know; `None` if it was fast enough.
    pub(super) fn note(&self) -> Option<String> {
        (self.slow > 0).then(|| {
            format!(
                "the authority took more than the allowed {:.1} ms (RFC 8219 section 9.2.1) for {} answers; if the \
                 trial passed, it passed in spite of that",
                self.limit_ns as f64 / 1e6,
                self.slow
            )
        })
    }
}

#[cfg(test)]
mod tests;
