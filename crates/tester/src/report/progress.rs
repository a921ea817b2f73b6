//! Progress on standard error: bars on a terminal, a line for each trial elsewhere.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use dns64_transport::clock::Nanos;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::{Span, Thousands};
use crate::procedure::Event;
use crate::procedure::search::Bracket;
use crate::trial::fault::TesterFault;
use crate::trial::result::TrialResult;

/// Follows the events of a procedure.
///
/// A trial has an absolute schedule, so its bar follows the time and not the worker threads: it costs them nothing.
#[derive(Debug)]
pub struct Progress {
    /// With bars of the step, its procedure and the trial.
    view: View<3>,
    /// Server and step.
    step: String,
    /// Number of the current trial.
    number: u64,
    trial_ns: Nanos,
}

/// Where progress is shown, with `N` bars on a terminal.
#[derive(Debug)]
pub(super) enum View<const N: usize> {
    /// No output.
    Quiet,
    /// Lines for a log.
    Log,
    /// Bars, below the lines.
    Terminal {
        screen: MultiProgress,
        bars: [ProgressBar; N],
    },
}

impl Progress {
    /// Progress of a `step`, whose text names the server too, with trials that take `duration_ns` and wait another
    /// `timeout_ns` for the last responses. Without output if the user requested `quiet`.
    pub fn new(step: String, duration_ns: Nanos, timeout_ns: Nanos, quiet: bool) -> Self {
        let view = View::new(quiet, [LINE, LINE, TRIAL_LINE]);
        if let View::Terminal { bars, .. } = &view {
            bars[0].set_message(step.clone());
            bars[0].tick();
        }
        Self {
            view,
            step,
            number: 0,
            trial_ns: duration_ns + timeout_ns,
        }
    }

    /// Applies an event.
    pub fn event(&mut self, event: &Event<'_>) {
        if let Event::TrialStarted { number, .. } = event {
            self.number = *number;
        }
        match &self.view {
            View::Quiet => {}
            View::Log => {
                let line = self.line(event).unwrap_or_default();
                // A closed log needs no more lines.
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
            View::Terminal { bars, .. } => self.draw(bars, event),
        }
    }

    /// Removes the bars, so that only the result remains; the lines stay.
    pub fn clear(&self) {
        self.view.clear();
    }

    /// The log line of an event.
    fn line(&self, event: &Event<'_>) -> Option<String> {
        let told = match event {
            Event::TrialFinished(result) => format!("trial {}: {}", self.number, finished(result)),
            Event::Repeat { fault, attempt, of } => repeat(*attempt, *of, fault),
            _ => return None,
        };
        Some(format!("{}: {told}\n", self.step))
    }

    fn draw(&self, [_, procedure, trial]: &[ProgressBar; 3], event: &Event<'_>) {
        match event {
            Event::TrialStarted { rate_qps, number } => {
                trial.set_length(self.trial_ns / MILLISECOND);
                trial.set_message(started(*number, *rate_qps));
                trial.reset();
                trial.enable_steady_tick(TICK);
            }
            Event::TrialFinished(result) => {
                trial.disable_steady_tick();
                trial.set_message(finished(result));
            }
            Event::Bracket(bracket) => procedure.set_message(self.outlook(bracket)),
            Event::Repeat { fault, attempt, of } => {
                procedure.set_message(repeat(*attempt, *of, fault));
            }
            Event::Finished(_) => self.clear(),
        }
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

impl<const N: usize> View<N> {
    /// The view for the kind of standard error, with bars of these styles; without output if the user requested `quiet`.
    pub(super) fn new(quiet: bool, lines: [&str; N]) -> Self {
        if quiet {
            Self::Quiet
        } else if std::io::stderr().is_terminal() {
            Self::on(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S), lines)
        } else {
            Self::Log
        }
    }

    pub(super) fn on(target: ProgressDrawTarget, lines: [&str; N]) -> Self {
        let screen = MultiProgress::with_draw_target(target);
        let bar = |line| screen.add(ProgressBar::new(0).with_style(style(line)));
        let bars = lines.map(bar);
        Self::Terminal { screen, bars }
    }

    /// Removes the bars; lines stay.
    pub(super) fn clear(&self) {
        if let Self::Terminal { screen, bars } = self {
            bars.iter().rev().for_each(ProgressBar::finish_and_clear);
            // A closed terminal cannot be cleared.
            screen.clear().unwrap_or_default();
        }
    }
}

/// A line truncated at the width of the terminal.
pub(super) const LINE: &str = "{wide_msg}";

/// The line of the current trial.
pub(super) const TRIAL_LINE: &str = "{msg}  {schedule}";

/// Results of a search so far.
pub(super) fn seen(passed_qps: Option<u64>, failed_qps: Option<u64>) -> String {
    let rate = |qps: Option<u64>| qps.map_or("-".to_owned(), |q| Thousands(q).to_string());
    format!(
        "passed {}, failed {} queries/s",
        rate(passed_qps),
        rate(failed_qps)
    )
}

/// Description of the current trial.
pub(super) fn started(number: u64, rate_qps: u64) -> String {
    format!("trial {number} at {} queries/s", Thousands(rate_qps))
}

fn finished(result: &TrialResult) -> String {
    let (rate, verdict) = (Thousands(result.rate_qps), result.outcome.word());
    format!("{rate} queries/s {verdict}")
}

fn repeat(attempt: u32, of: u32, fault: &TesterFault) -> String {
    format!("repeat {attempt} of {of}: {fault}")
}

/// The bar of the elapsed time, and the remaining time.
fn schedule(state: &ProgressState, out: &mut dyn fmt::Write) {
    let elapsed_ms = u64::try_from(state.elapsed().as_millis()).unwrap_or(u64::MAX);
    let text = bar(elapsed_ms, state.len().unwrap_or(0));
    // Writing to the line's own buffer cannot fail.
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

/// Style of a line; `{schedule}` in its template is the bar of the time.
pub(super) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("schedule", schedule)
}

pub(super) const MILLISECOND: Nanos = 1_000_000;

/// Redraws of the terminal: few, since on a small machine they take time from a role.
const REDRAWS_PER_S: u8 = 2;

/// Steps of the trial's bar.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// Width of the trial's bar.
const BAR_COLUMNS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedure::simulated;
    use crate::trial::result::Outcome;

    #[test]
    fn the_bar_follows_the_time() {
        assert_eq!(bar(0, 2000), "[..............................] 2 s left");
        assert_eq!(bar(1001, 2000), "[###############...............] 1 s left");
        assert_eq!(bar(9999, 2000), "[##############################] 0 s left");
        assert_eq!(bar(5, 0), "[..............................] 0 s left");
    }

    fn progress(view: View<3>) -> Progress {
        Progress {
            view,
            step: "unbound: search 1 of 3".into(),
            number: 0,
            trial_ns: 2_000_000_000,
        }
    }

    #[test]
    fn search_shows_its_results_and_duration() {
        let progress = progress(View::Quiet);
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

    #[test]
    fn a_log_has_a_line_for_each_trial_that_names_server_and_step() {
        let mut progress = progress(View::Quiet);
        let started = Event::TrialStarted {
            rate_qps: 12_000,
            number: 4,
        };
        assert_eq!(progress.line(&started), None);
        progress.event(&started);
        let failed = simulated::result(12_000, Outcome::Failed { shortfall: 1 });
        let line = progress.line(&Event::TrialFinished(&failed));
        let expected = "unbound: search 1 of 3: trial 4: 12,000 queries/s failed\n";
        assert_eq!(line.as_deref(), Some(expected));
        let fault = TesterFault::NotSent { queries: 7 };
        let repeat = Event::Repeat {
            fault: &fault,
            attempt: 1,
            of: 3,
        };
        let line = progress.line(&repeat).unwrap();
        assert!(
            line.starts_with("unbound: search 1 of 3: repeat 1 of 3: "),
            "{line}"
        );
    }

    #[test]
    fn the_bars_have_step_bracket_and_trial_within_eighty_columns() {
        let hidden = ProgressDrawTarget::hidden();
        let mut progress = progress(View::on(hidden, [LINE, LINE, TRIAL_LINE]));
        let bracket = Bracket {
            passed_qps: Some(1_150_000),
            failed_qps: Some(2_300_000),
            resolution_qps: 10,
        };
        progress.event(&Event::Bracket(bracket));
        progress.event(&Event::TrialStarted {
            rate_qps: 1_725_000,
            number: 14,
        });
        let View::Terminal { bars, .. } = &progress.view else {
            unreachable!("it was made for a terminal");
        };
        let lines = bars.each_ref().map(ProgressBar::message);
        assert!(lines[1].starts_with("passed 1,150,000, failed 2,300,000 queries/s; at most "));
        assert_eq!(lines[2], "trial 14 at 1,725,000 queries/s");
        let trial = format!("{}  {}", lines[2], bar(0, 61_000));
        assert!(
            lines[1].len() <= 80 && trial.len() <= 80,
            "{lines:?} {trial}"
        );
        let bars = bars.clone();
        progress.clear();
        assert!(bars.iter().all(ProgressBar::is_finished));
    }
}
