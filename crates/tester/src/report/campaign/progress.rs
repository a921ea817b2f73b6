//! The progress of a campaign on standard error: bars on a terminal, lines for a log elsewhere.

use std::io::Write as _;

use dns64_transport::clock::Nanos;
use indicatif::ProgressBar;

use super::numbers;
use crate::campaign::status::{Done, Phase, Status, TrialNow};
use crate::report::progress::{LINE, MILLISECOND, TICK, TRIAL_LINE, View, seen, started, style};
use crate::report::{Thousands, terminal};

/// Shows the progress of a campaign.
///
/// Each event has a permanent line; on a terminal four lines below them show the current work. The bar of a trial
/// follows the time, as its schedule does, so it costs the trial nothing.
#[derive(Debug)]
pub struct CampaignProgress {
    /// With bars of the campaign, the task, its search and the trial.
    view: View<4>,
    last: Option<Done>,
    message: Option<String>,
    trial: Option<TrialNow>,
}

impl CampaignProgress {
    /// Creates the view for the kind of standard error; without output if the user requested `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self::on(View::new(quiet, [LINE; 4]))
    }

    fn on(view: View<4>) -> Self {
        Self {
            view,
            last: None,
            message: None,
            trial: None,
        }
    }

    /// Marks the known events as shown, so that a resumed campaign does not repeat them.
    pub fn begin(&mut self, status: &Status) {
        self.last.clone_from(&status.last);
        self.message.clone_from(&status.message);
    }

    /// Shows the changes since the last call.
    pub fn show(&mut self, status: &Status, now_unix_ms: u64) {
        let news = self.news(status, now_unix_ms);
        match &self.view {
            View::Quiet => {}
            View::Log => {
                let text = news.concat();
                // A closed log needs no more lines.
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
            View::Terminal {
                screen,
                bars: [campaign, task, search, trial],
            } => {
                for line in news {
                    let line = terminal::fitting(line.trim_end(), std::io::stderr());
                    screen.println(line).unwrap_or_default();
                }
                campaign.set_message(campaign_line(status));
                task.set_message(task_line(status));
                search.set_message(search_line(status));
                if self.trial != status.trial {
                    show_trial(trial, status.trial.as_ref());
                }
            }
        }
        self.trial = status.trial;
    }

    /// Removes the bars; the lines stay.
    pub fn clear(&self) {
        self.view.clear();
    }

    /// A line with its line end for each new event.
    fn news(&mut self, status: &Status, now_unix_ms: u64) -> Vec<String> {
        let mut lines = Vec::new();
        if status.last != self.last {
            self.last.clone_from(&status.last);
            lines.extend(status.last.as_ref().map(|done| done_line(status, done)));
        }
        if status.message != self.message {
            self.message.clone_from(&status.message);
            // The line of an abandoned task already has the reason.
            let told = status.last.as_ref().and_then(|done| done.remark.as_ref());
            let message = status.message.as_ref().filter(|text| told != Some(text));
            lines.extend(message.map(|text| format!("{} {text}\n", numbers::moment(now_unix_ms))));
        }
        lines
    }
}

fn show_trial(bar: &ProgressBar, trial: Option<&TrialNow>) {
    let Some(trial) = trial else {
        bar.disable_steady_tick();
        bar.set_style(style(LINE));
        bar.set_message("between trials");
        return;
    };
    bar.set_length(trial.length_ns / MILLISECOND);
    bar.set_message(started(trial.number, trial.rate_qps));
    bar.reset();
    bar.set_style(style(TRIAL_LINE));
    bar.enable_steady_tick(TICK);
}

/// `quick: 12 of 60 tasks, 143 trials (2 invalid), about 2 h 5 min left`
fn campaign_line(status: &Status) -> String {
    let invalid = match status.invalid_trials {
        0 => String::new(),
        trials => format!(" ({} invalid)", Thousands(trials)),
    };
    format!(
        "{}: {} of {} tasks, {} trials{invalid}{}",
        status.campaign,
        Thousands(status.tasks_done),
        Thousands(status.tasks),
        Thousands(status.trials),
        left(status.left_ns)
    )
}

fn left(left_ns: Option<Nanos>) -> String {
    let left = |ns| format!(", about {} left", numbers::wait(ns));
    left_ns.map_or(String::new(), left)
}

/// `unbound, AAAA 50 %, cached 0 %: run 3 of 20`
fn task_line(status: &Status) -> String {
    let task = match (status.phase, status.run) {
        (Phase::Preparing, _) => "preparing".to_owned(),
        (Phase::SelfTest, _) => "self-test of the Tester".to_owned(),
        (Phase::Search, Some((run, of))) => format!("run {run} of {of}"),
        (Phase::Search, None) => "search".to_owned(),
        (Phase::Goals, _) => "search for goals".to_owned(),
        (Phase::Overload, _) => "overload curve".to_owned(),
        (Phase::Soak, _) => "soak".to_owned(),
        (Phase::Over, _) => "over".to_owned(),
    };
    match (&status.variant, &status.cell) {
        (Some(variant), Some(cell)) => format!("{variant}, {cell}: {task}"),
        _ => task,
    }
}

/// `passed 10,000, failed 20,000 queries/s; Tester certified for 80,000`
fn search_line(status: &Status) -> String {
    let bracket = status.passed_qps.or(status.failed_qps);
    let bracket = bracket.map(|_| seen(status.passed_qps, status.failed_qps));
    let certified = |qps| format!("Tester certified for {}", Thousands(qps));
    let parts = [bracket, status.certified_qps.map(certified)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// `2026-01-02T03:04:05Z 12 of 60: unbound, AAAA 50 %, cached 0 %: run 3 of 20: 21,480 queries/s in 5 min 20 s`
fn done_line(status: &Status, done: &Done) -> String {
    let rate = |qps| format!("{} queries/s", Thousands(qps));
    let outcome = match (done.rate_qps.map(rate), &done.remark) {
        (Some(rate), Some(remark)) => format!("{rate}, {remark}"),
        (Some(one), None) => one,
        (None, remark) => remark.clone().unwrap_or("done".to_owned()),
    };
    let took = |ns| format!(" in {}", numbers::wait(ns));
    let took = done.took_ns.map_or(String::new(), took);
    format!(
        "{} {} of {}: {}, {}: {}: {}{took}{}\n",
        numbers::moment(done.at_unix_ms),
        Thousands(status.tasks_done),
        Thousands(status.tasks),
        done.variant,
        done.cell,
        done.task,
        outcome,
        left(status.left_ns)
    )
}

#[cfg(test)]
mod tests {
    use dns64_transport::clock::SECOND;
    use expect_test::expect;
    use indicatif::ProgressDrawTarget;

    use super::*;

    fn status() -> Status {
        Status {
            campaign: "quick".into(),
            phase: Phase::Search,
            variant: Some("unbound".into()),
            cell: Some("AAAA 50 %, cached 0 %".into()),
            run: Some((3, 20)),
            passed_qps: Some(10_000),
            certified_qps: Some(80_000),
            tasks_done: 12,
            tasks: 60,
            trials: 1143,
            invalid_trials: 2,
            left_ns: Some((2 * 3600 + 5 * 60 + 7) * SECOND),
            ..Status::default()
        }
    }

    fn done() -> Done {
        Done {
            at_unix_ms: 1_767_323_045_678,
            variant: "bind".into(),
            cell: "AAAA 0 %, cached 0 %".into(),
            task: "run 2 of 20".into(),
            rate_qps: Some(21_480),
            remark: None,
            took_ns: Some(320 * SECOND),
        }
    }

    #[test]
    fn four_lines_show_the_current_work() {
        let mut status = status();
        expect![[r#"quick: 12 of 60 tasks, 1,143 trials (2 invalid), about 2 h 5 min left"#]]
            .assert_eq(&campaign_line(&status));
        expect!["unbound, AAAA 50 %, cached 0 %: run 3 of 20"].assert_eq(&task_line(&status));
        expect!["passed 10,000, failed - queries/s; Tester certified for 80,000"]
            .assert_eq(&search_line(&status));
        status.failed_qps = Some(20_000);
        expect!["passed 10,000, failed 20,000 queries/s; Tester certified for 80,000"]
            .assert_eq(&search_line(&status));
        status.enter(Phase::SelfTest);
        expect!["unbound, AAAA 50 %, cached 0 %: self-test of the Tester"]
            .assert_eq(&task_line(&status));
        assert_eq!(search_line(&status), "Tester certified for 80,000");
        assert_eq!(search_line(&Status::default()), "");
        assert_eq!(task_line(&Status::default()), "preparing");
    }

    #[test]
    fn a_log_has_a_line_for_each_task_and_each_message() {
        let mut progress = CampaignProgress::on(View::Log);
        let mut status = status();
        let mut log = String::new();
        let mut show = |status: &Status, progress: &mut CampaignProgress| {
            for line in progress.news(status, 1_767_323_050_000) {
                log.push_str(&line);
            }
        };
        status.last = Some(done());
        show(&status, &mut progress);
        // Nothing new.
        show(&status, &mut progress);
        status.message = Some("bind 9.18 answers at [::1]:53".into());
        show(&status, &mut progress);
        status.last = Some(Done {
            rate_qps: None,
            remark: Some("given up: bind ended".into()),
            took_ns: None,
            ..done()
        });
        status.message = Some("given up: bind ended".into());
        status.left_ns = None;
        show(&status, &mut progress);
        status.last = Some(Done {
            task: "soak".into(),
            rate_qps: None,
            ..done()
        });
        show(&status, &mut progress);
        expect![[r#"
            2026-01-02T03:04:05Z 12 of 60: bind, AAAA 0 %, cached 0 %: run 2 of 20: 21,480 queries/s in 5 min 20 s, about 2 h 5 min left
            2026-01-02T03:04:10Z bind 9.18 answers at [::1]:53
            2026-01-02T03:04:05Z 12 of 60: bind, AAAA 0 %, cached 0 %: run 2 of 20: given up: bind ended
            2026-01-02T03:04:05Z 12 of 60: bind, AAAA 0 %, cached 0 %: soak: done in 5 min 20 s
        "#]].assert_eq(&log);
    }

    #[test]
    fn resumed_campaign_does_not_repeat_earlier_events() {
        let mut progress = CampaignProgress::on(View::Log);
        let status = Status {
            last: Some(done()),
            message: Some("stopped: interrupted".into()),
            ..status()
        };
        progress.begin(&status);
        assert_eq!(progress.news(&status, 0), [""; 0]);
    }

    #[test]
    fn bar_is_that_of_the_current_trial() {
        let mut progress = CampaignProgress::on(View::on(ProgressDrawTarget::hidden(), [LINE; 4]));
        let mut status = status();
        status.trial = Some(TrialNow {
            rate_qps: 15_000,
            number: 4,
            started_unix_ms: 0,
            length_ns: 61 * SECOND,
        });
        progress.show(&status, 0);
        let View::Terminal { bars, .. } = &progress.view else {
            unreachable!("it was made for a terminal");
        };
        let [.., trial] = bars;
        let bar = trial.clone();
        assert_eq!(bar.message(), "trial 4 at 15,000 queries/s");
        assert_eq!(bar.length(), Some(61_000));
        status.trial = None;
        progress.show(&status, 0);
        assert_eq!(bar.message(), "between trials");
        progress.clear();
        assert!(bar.is_finished());
    }
}
