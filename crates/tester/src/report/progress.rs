//! Progress on standard error, if that is a terminal; silence if not.

use std::fmt;
use std::io::IsTerminal as _;
use std::time::Duration;

use dns64_transport::clock::Nanos;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::{Span, Thousands};
use crate::procedure::Event;
use crate::procedure::search::Bracket;
use crate::trial::result::TrialResult;

/// Bars that follow the events of a procedure.
///
/// A trial has an absolute schedule, so its bar follows the time, not the worker threads: watching
/// a trial costs them nothing.
#[derive(Debug)]
pub struct Progress {
    screen: MultiProgress,
    procedure: ProgressBar,
    trial: ProgressBar,
    trial_ns: Nanos,
}

impl Progress {
    /// Bars for trials that take `duration_ns` and wait another `timeout_ns` for the last answers.
    /// They are drawn only if standard error is a terminal and the user did not ask for `quiet`.
    pub fn new(duration_ns: Nanos, timeout_ns: Nanos, quiet: bool) -> Self {
        let target = if quiet || !std::io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            on_terminal()
        };
        Self::on(target, duration_ns + timeout_ns)
    }

    fn on(target: ProgressDrawTarget, trial_ns: Nanos) -> Self {
        let screen = MultiProgress::with_draw_target(target);
        let procedure = screen.add(ProgressBar::new_spinner());
        let trial = screen.add(ProgressBar::new(trial_ns / MILLISECOND));
        procedure.set_style(style("{msg}"));
        trial.set_style(style("{msg}  {schedule}"));
        Self {
            screen,
            procedure,
            trial,
            trial_ns,
        }
    }

    /// Takes in one event.
    pub fn event(&self, event: &Event<'_>) {
        match event {
            Event::TrialStarted { rate_qps, number } => {
                self.trial.set_message(started(*number, *rate_qps));
                self.trial.reset();
                self.trial.enable_steady_tick(TICK);
            }
            Event::TrialFinished(result) => {
                self.trial.disable_steady_tick();
                self.trial.set_message(finished(result));
            }
            Event::Bracket(bracket) => self.procedure.set_message(self.outlook(bracket)),
            Event::Repeat { fault, attempt, of } => {
                self.procedure
                    .set_message(format!("repeat {attempt} of {of}: {fault}"));
            }
            Event::Finished(_) => self.clear(),
        }
    }

    /// Removes the bars, so that the result stands alone.
    pub fn clear(&self) {
        self.trial.finish_and_clear();
        self.procedure.finish_and_clear();
        // Hidden or closed terminals cannot be cleared, and need not be.
        self.screen.clear().unwrap_or_default();
    }

    fn outlook(&self, bracket: &Bracket) -> String {
        let known = seen(bracket.passed_qps, bracket.failed_qps);
        match bracket.trials_left() {
            Some(trials) => format!(
                "{known}; at most {trials} trials left, {}",
                Span(Nanos::from(trials) * self.trial_ns)
            ),
            None => format!("{known}; looking for a bracket"),
        }
    }
}

/// Standard error, redrawn seldom.
pub(super) fn on_terminal() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S)
}

/// What a search has seen.
pub(super) fn seen(passed_qps: Option<u64>, failed_qps: Option<u64>) -> String {
    let rate = |qps: Option<u64>| qps.map_or("-".to_owned(), |q| Thousands(q).to_string());
    format!(
        "passed {}, failed {} queries/s",
        rate(passed_qps),
        rate(failed_qps)
    )
}

/// What a trial under way is.
pub(super) fn started(number: u64, rate_qps: u64) -> String {
    format!("trial {number} at {} queries/s", Thousands(rate_qps))
}

fn finished(result: &TrialResult) -> String {
    let (rate_qps, verdict) = (result.rate_qps, result.outcome.word());
    format!("{} queries/s {verdict}", Thousands(rate_qps))
}

/// The bar of the time that has passed, and the time that is left.
fn schedule(state: &ProgressState, out: &mut dyn fmt::Write) {
    let elapsed_ms = u64::try_from(state.elapsed().as_millis()).unwrap_or(u64::MAX);
    let text = bar(elapsed_ms, state.len().unwrap_or(0));
    // Writing into the line's own buffer cannot fail.
    out.write_str(&text).unwrap_or_default();
}

fn bar(elapsed_ms: u64, whole_ms: u64) -> String {
    let done_ms = elapsed_ms.min(whole_ms);
    let share = done_ms * BAR_COLUMNS as u64 / whole_ms.max(1);
    let filled = usize::try_from(share).unwrap_or(BAR_COLUMNS);
    let left_s = (whole_ms - done_ms).div_ceil(1000);
    format!(
        "[{}{}] {left_s} s left",
        "#".repeat(filled),
        ".".repeat(BAR_COLUMNS - filled)
    )
}

/// A line of a template, in which `{schedule}` is the bar of the time.
pub(super) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("schedule", schedule)
}

pub(super) const MILLISECOND: Nanos = 1_000_000;

/// Redraws of the terminal: seldom, since on a small machine they take time from a role.
const REDRAWS_PER_S: u8 = 2;

/// Steps of the trial's bar.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// Width of the trial's bar.
const BAR_COLUMNS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_follows_the_time() {
        assert_eq!(bar(0, 2000), "[..............................] 2 s left");
        assert_eq!(bar(1001, 2000), "[###############...............] 1 s left");
        assert_eq!(bar(9999, 2000), "[##############################] 0 s left");
        assert_eq!(bar(5, 0), "[..............................] 0 s left");
    }

    #[test]
    fn a_search_says_what_it_knows_and_how_long_it_takes() {
        let progress = Progress::on(ProgressDrawTarget::hidden(), 2_000_000_000);
        let mut bracket = Bracket {
            passed_qps: Some(10_000),
            failed_qps: Some(20_000),
            resolution_qps: 10,
        };
        assert_eq!(
            progress.outlook(&bracket),
            "passed 10,000, failed 20,000 queries/s; at most 10 trials left, 20 s"
        );
        bracket.failed_qps = None;
        assert_eq!(
            progress.outlook(&bracket),
            "passed 10,000, failed - queries/s; looking for a bracket"
        );
    }
}
