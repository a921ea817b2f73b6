//! One round of a suite: each case once, and again if it may have failed by chance.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::random::{self, SplitMix64};

use super::case::{Case, Level};
use super::client::WAIT_NS;
use super::lab::Dut;
use super::report::{Judged, STOPPED, Verdict};
use super::{End, Known, Suite};

/// Cases that run at once: most of a case is the wait for the server.
const AT_ONCE: usize = 4;

/// How often a server is started again that ended or stopped answering in a case.
const RESTARTS_MAX: usize = 32;

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
    /// How the server went down for good.
    gone: OnceLock<String>,
    /// How often the server was started again after a case in which it ended.
    restarts: AtomicUsize,
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
            gone: OnceLock::new(),
            restarts: AtomicUsize::new(0),
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

    /// Judges cases, several at a time. If the server goes down, those that it left without a response are judged again, one
    /// by one, to find the one that did it.
    pub(super) fn judge_all(&self, cases: Vec<usize>, dut: &mut Dut<'_>) {
        let queue = Mutex::new(cases.into_iter());
        while let Some(down) = self.judge_some(&queue, dut) {
            if self.loaded || !self.restart(dut) {
                self.is_gone(&down.how);
                continue;
            }
            let again = down.cases.iter();
            let found = again.filter(|at| self.judge_alone(**at, dut)).count();
            if found == 0 && !self.is_over() {
                let fault = format!(
                    "{} in one of {} cases, and in none of them alone",
                    down.how,
                    down.cases.len()
                );
                down.cases.iter().for_each(|at| self.fail(*at, &fault));
            }
        }
    }

    /// Judges cases until none is left, or the server is down.
    fn judge_some(
        &self,
        queue: &Mutex<impl Iterator<Item = usize> + Send>,
        dut: &Dut<'_>,
    ) -> Option<Down> {
        let down: Mutex<Option<Down>> = Mutex::default();
        let next = || match locked(&down).is_some() {
            true => None,
            false => locked(queue).next(),
        };
        let judge = |at| {
            let silent = self.judge(at);
            if let Some(how) = silent.then(|| self.down(dut)).flatten() {
                let cases = Vec::new();
                locked(&down)
                    .get_or_insert(Down { how, cases })
                    .cases
                    .push(at);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| std::iter::from_fn(next).for_each(judge));
            }
        });
        down.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a case beside no other. Returns whether the server went down; then the case has failed, as a must: a query ends
    /// no server.
    pub(super) fn judge_alone(&self, at: usize, dut: &mut Dut<'_>) -> bool {
        if self.is_over() {
            return self.judge(at);
        }
        let silent = self.judge(at);
        let harms = self.cases[at].harms;
        let down = match dut.ended() {
            Some(how) => Some(ended(&how)),
            // After a case that harms, the caller restarts it anyway.
            None if silent && !harms => self.down(dut),
            None => None,
        };
        let Some(how) = down else {
            return false;
        };
        self.fail(at, &how);
        if !harms && !self.restart(dut) {
            self.is_gone(&how);
        }
        true
    }

    /// How the server has gone down, if it has.
    fn down(&self, dut: &Dut<'_>) -> Option<String> {
        self.suite.recovered(dut).err()?;
        let how = dut.ended().map(|how| ended(&how));
        Some(how.unwrap_or_else(|| STOPPED.into()))
    }

    /// Starts it again, unless it was too often.
    fn restart(&self, dut: &mut Dut<'_>) -> bool {
        self.restarts.fetch_add(1, Ordering::Relaxed) < RESTARTS_MAX
            && !self.is_over()
            && dut.restart()
    }

    fn fail(&self, at: usize, fault: &str) {
        let judged = &mut locked(&self.judged)[at];
        judged.verdict = Verdict::Failed;
        judged.level = Level::Must;
        judged.faults.insert(0, fault.to_owned());
    }

    /// Whether the remaining cases get no verdict.
    pub(super) fn is_over(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.gone.get().is_some()
    }

    /// The server went down for good, in this way.
    pub(super) fn is_gone(&self, how: &str) {
        self.gone.get_or_init(|| how.to_owned());
    }

    /// Judges a case. Returns whether there was no response.
    fn judge(&self, at: usize) -> bool {
        let case = &self.cases[at];
        let needs = case.needs.iter().find(|need| !self.known.has(**need));
        let judged = if self.interrupted.load(Ordering::Relaxed) {
            Judged::unknown(case, "the run was interrupted")
        } else if let Some(how) = self.gone.get() {
            Judged::unknown(case, how)
        } else if let Some(need) = needs {
            Judged::unknown(case, &format!("needs {}", need.as_ref()))
        } else if self.loaded {
            self.verdict_loaded(case)
        } else {
            self.verdict(case)
        };
        let silent = judged.silent;
        locked(&self.judged)[at] = judged;
        silent
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
            self.gone.get().is_some(),
        ) {
            (true, _) => End::Interrupted,
            (false, true) => End::Gone,
            (false, false) => End::Complete,
        };
        let judged = self.judged.into_inner();
        (judged.unwrap_or_else(PoisonError::into_inner), end)
    }
}

/// The server went down.
struct Down {
    how: String,
    /// The cases that it left without a response.
    cases: Vec<usize>,
}

fn ended(how: &str) -> String {
    format!("the server ended ({how})")
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
