//! One round of a suite: each case once, and again if it may have failed by chance.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::random::{self, SplitMix64};

use super::case::Case;
use super::client::WAIT_NS;
use super::report::{Judged, Verdict};
use super::{End, Known, Suite};

/// Cases that run at once: most of a case is the wait for the server.
const AT_ONCE: usize = 4;

/// How often a case is run until it passes: a busy machine may make a server ask twice.
const RUNS: usize = 2;

/// The same under load, which costs queries and answers of the cases as well.
const RUNS_LOADED: usize = 5;

/// Time for a response under load.
const WAIT_LOADED_NS: Nanos = 5 * SECOND;

/// The verdicts of a round.
pub(super) struct Round<'s> {
    suite: &'s Suite,
    cases: &'s [Case],
    known: Known,
    /// Whether a load is sent.
    loaded: bool,
    interrupted: &'s AtomicBool,
    gone: AtomicBool,
    judged: Mutex<Vec<Judged>>,
}

impl<'s> Round<'s> {
    /// No verdicts yet.
    pub(super) fn new(
        suite: &'s Suite,
        cases: &'s [Case],
        known: Known,
        interrupted: &'s AtomicBool,
    ) -> Self {
        let open = |case| Judged::unknown(case, "it is not judged under load");
        Self {
            suite,
            cases,
            known,
            loaded: false,
            interrupted,
            gone: AtomicBool::new(false),
            judged: Mutex::new(cases.iter().map(open).collect()),
        }
    }

    /// The same under load.
    pub(super) fn loaded(self) -> Self {
        Self {
            loaded: true,
            ..self
        }
    }

    /// The cases in an order that follows from the seed, those that harm apart.
    pub(super) fn order(&self, seed: u64) -> (Vec<usize>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.cases.len()).collect();
        shuffle(&mut order, seed);
        let harms = |at: &usize| self.cases[*at].harms;
        order.into_iter().partition(|at| !harms(at))
    }

    /// Judges cases, several at a time.
    pub(super) fn judge_all(&self, cases: Vec<usize>) {
        let queue = Mutex::new(cases.into_iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| std::iter::from_fn(next).for_each(|at| self.judge(at)));
            }
        });
    }

    /// Whether the remaining cases get no verdict.
    pub(super) fn is_over(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.gone.load(Ordering::Relaxed)
    }

    /// The server has stopped answering.
    pub(super) fn is_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Judges a case.
    pub(super) fn judge(&self, at: usize) {
        let case = &self.cases[at];
        let needs = case.needs.iter().find(|need| !self.known.has(**need));
        let judged = if self.interrupted.load(Ordering::Relaxed) {
            Judged::unknown(case, "the run was interrupted")
        } else if self.gone.load(Ordering::Relaxed) {
            Judged::unknown(case, "the server had stopped answering")
        } else if let Some(need) = needs {
            Judged::unknown(case, &format!("needs {}", need.as_ref()))
        } else if self.loaded {
            self.verdict_loaded(case)
        } else {
            self.verdict(case)
        };
        // After a case that harms, the caller decides.
        if judged.silent && !case.harms && self.suite.recovered().is_err() {
            self.is_gone();
        }
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)[at] = judged;
    }

    /// A failure only if it is repeated. After a case that harms, the server would be another one.
    fn verdict(&self, case: &Case) -> Judged {
        let run = || self.suite.judge(case, self.known.pref64, WAIT_NS);
        let is_open = |it: &Judged| it.verdict == Verdict::Failed && !case.harms && !it.silent;
        repeated(RUNS, run, is_open)
    }

    /// A failure only if it is repeated and no message of it was lost: the load is what loses them.
    fn verdict_loaded(&self, case: &Case) -> Judged {
        let run = || {
            let lost = self.suite.authority.lost();
            let judged = self.suite.judge(case, self.known.pref64, WAIT_LOADED_NS);
            match judged.verdict {
                Verdict::Failed if judged.silent => Judged {
                    silent: true,
                    ..Judged::unknown(case, "no response")
                },
                Verdict::Failed if self.suite.authority.lost() > lost => {
                    Judged::unknown(case, "the authority of the cases lost questions")
                }
                _ => judged,
            }
        };
        repeated(RUNS_LOADED, run, |it| it.verdict != Verdict::Passed)
    }

    /// Ends it.
    pub(super) fn end(self) -> (Vec<Judged>, End) {
        let end = match (
            self.interrupted.load(Ordering::Relaxed),
            self.gone.into_inner(),
        ) {
            (true, _) => End::Interrupted,
            (false, true) => End::Gone,
            (false, false) => End::Complete,
        };
        let judged = self.judged.into_inner();
        (judged.unwrap_or_else(PoisonError::into_inner), end)
    }
}

/// The last verdict of at most so many, of which all but the last are open.
fn repeated(
    runs: usize,
    mut run: impl FnMut() -> Judged,
    is_open: impl Fn(&Judged) -> bool,
) -> Judged {
    let mut judged = run();
    for _ in 1..runs {
        if !is_open(&judged) {
            break;
        }
        judged = run();
    }
    judged
}

/// Puts items into an order that follows from the seed (Fisher and Yates).
fn shuffle(items: &mut [usize], seed: u64) {
    let mut random = SplitMix64(seed);
    for end in (1..items.len()).rev() {
        let other = random::below(random.draw(), end as u64 + 1);
        items.swap(end, usize::try_from(other).unwrap_or(end));
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict::{Failed, NotKnown, Passed};
    use super::super::{CONTROL, only};
    use super::*;

    #[test]
    fn case_is_repeated_while_its_verdict_is_open() {
        let case = only(CONTROL).unwrap();
        for (runs, verdicts, last) in [
            (1, vec![Failed], Failed),
            (2, vec![Passed], Passed),
            (2, vec![Failed, Passed], Passed),
            (3, vec![NotKnown, Failed, Failed], Failed),
        ] {
            let mut left = verdicts.into_iter();
            let run = || Judged::of(&case, left.next().unwrap());
            let judged = repeated(runs, run, |it| it.verdict != Passed);
            assert_eq!(judged.verdict, last);
            assert_eq!(left.next(), None);
        }
    }
}
