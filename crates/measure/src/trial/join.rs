//! Joins the ledgers of Measurer and authority into the [`Path`] of the AAAA queries of a trial: the fate of each name on its
//! way.

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rtype;

use super::TrialSpec;
use super::distribution::Times;
use super::path::{AuthorityTimes, Path, Timeline, UpstreamOrder};
use crate::authority::ledger::{ANSWER_MAX_NS, NameLedger, Question, Questions};
use crate::load::ledger::{Entry, Fate};
use crate::load::names::Names;

/// Maximum part of the timeout that the authority may use: the Tester is certified for it (RFC 8219 section 9.2.1).
const TIMEOUT_PART: Nanos = 4;

impl AuthorityTimes {
    /// Returns the times of queries during a trial with this timeout; each wait is the response time, or the waiting
    /// time without a response.
    pub(super) fn sampled(waits_ns: &[Nanos], timeout_ns: Nanos) -> Self {
        let mut times = Times::new();
        waits_ns.iter().for_each(|wait_ns| times.record(*wait_ns));
        let limit_ns = timeout_ns / TIMEOUT_PART;
        let over = |least_ns| waits_ns.iter().filter(move |&&ns| ns > least_ns).count() as u64;
        Self {
            p50_ns: times.median(),
            p99_ns: times.quantile(0.99),
            max_ns: waits_ns.iter().max().copied(),
            limit_ns,
            slow: over(limit_ns),
            unanswered: over(timeout_ns),
        }
    }
}

/// Accumulates a path, query by query.
pub(super) struct Join<'a> {
    names: &'a Names,
    ledger: &'a NameLedger,
    path: Path,
    dut_only: Times,
    /// Round-trip times of the queries with a valid answer and timestamps of all messages.
    authority: Times,
}

impl<'a> Join<'a> {
    /// Creates an empty join. The configured delay of the authority is at most `allowed_ns`.
    pub(super) fn new(spec: &'a TrialSpec, ledger: &'a NameLedger, allowed_ns: Nanos) -> Self {
        let mut path = Path::default();
        // Times beyond the range of the ledger are slow at any timeout.
        let part_ns = (spec.timeout_ns / TIMEOUT_PART).min(ANSWER_MAX_NS - 1);
        path.authority.limit_ns = part_ns + allowed_ns;
        (path.questions.other_aaaa, path.questions.other_a) = ledger.other();
        Self {
            names: &spec.names,
            ledger,
            path,
            dut_only: Times::new(),
            authority: Times::new(),
        }
    }

    /// Adds query `i` of the trial, which was sent. `expired`: its timeout had passed when the trial ended.
    pub(super) fn query(&mut self, i: u64, sent_at: Nanos, entry: &Entry, expired: bool) {
        let number = self.names.repeats.fresh(i);
        let rtype = self.names.question(i).rtype;
        if rtype != Rtype::AAAA {
            let asked = number.map(|n| self.ledger.questions(n).a.asked);
            *self.path.questions.client_a.get_or_insert(0) += u64::from(asked.unwrap_or(0));
            return;
        }
        let Some(n) = number else {
            return;
        };
        let questions = self.ledger.questions(n);
        let timeline = Timeline::new(sent_at, *entry, Some(questions));
        self.path.fresh_names += 1;
        self.questions(&questions);
        match timeline.dut_only_ns() {
            Some(span_ns) => self.dut_only.record(span_ns),
            None if timeline.received_at.is_some() => self.path.untimed_names += 1,
            None => {}
        }
        match entry.fate {
            Fate::Valid => self.answered(&timeline, &questions),
            Fate::Pending if expired => self.lost(&questions),
            _ => {}
        }
    }

    fn questions(&mut self, questions: &Questions) {
        let Questions { aaaa, a } = questions;
        self.path.questions.aaaa += u64::from(aaaa.asked);
        self.path.questions.a += u64::from(a.asked);
        for question in [aaaa, a] {
            let told = &mut self.path.authority;
            told.unanswered += u64::from(question.asked > 0 && !question.answered);
            if let Some(answer_ns) = question.answer_ns {
                told.slow += u64::from(answer_ns > told.limit_ns);
                self.authority.record(answer_ns);
            }
        }
    }

    fn answered(&mut self, timeline: &Timeline, questions: &Questions) {
        let Questions { aaaa, a } = questions;
        let names = &mut self.path.answered;
        names.names += 1;
        names.again += u64::from(aaaa.asked > 1 || a.asked > 1);
        let class = match timeline.order() {
            Some(UpstreamOrder::AaaaThenA) => &mut names.aaaa_then_a,
            Some(UpstreamOrder::AThenAaaa) => &mut names.a_then_aaaa,
            Some(UpstreamOrder::Parallel) => &mut names.parallel,
            Some(UpstreamOrder::AaaaOnly) => &mut names.aaaa_only,
            Some(UpstreamOrder::AOnly) => &mut names.a_only,
            None if aaaa.asked == 0 && a.asked == 0 => &mut names.unasked,
            None => &mut names.untimed,
        };
        *class += 1;
    }

    fn lost(&mut self, questions: &Questions) {
        let of = [questions.aaaa, questions.a];
        let is_asked = |question: &Question| question.asked > 0;
        let lost = &mut self.path.lost;
        lost.names += 1;
        let class = match of.iter().filter(|q| is_asked(q)).all(|q| q.answered) {
            _ if !of.iter().any(is_asked) => &mut lost.unasked,
            false => &mut lost.unserved,
            true => &mut lost.served,
        };
        *class += 1;
    }

    /// Returns the path.
    pub(super) fn finish(self) -> Path {
        Path {
            dut_only_percentiles_ns: self.dut_only.percentiles(),
            authority: AuthorityTimes {
                p50_ns: self.authority.median(),
                p99_ns: self.authority.quantile(0.99),
                max_ns: self.authority.max(),
                ..self.path.authority
            },
            ..self.path
        }
    }
}
