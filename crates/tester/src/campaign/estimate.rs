//! How long a plan takes: before it is begun, from what trials cost, and on the way, from what
//! they did cost.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use dns64_transport::clock::{Nanos, SECOND};

use super::plan::{Cell, Method, Plan, Restart};
use super::tasks::{Point, Task, points, tasks};
use crate::load::pace::Schedule;
use crate::procedure::search::{Bracket, HIGHEST_RATE_QPS};
use crate::procedure::selftest::self_test_timeout;
use crate::rig::spec::Subject;

/// Kinds of work, in the order in which they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Certificates of the Tester.
    SelfTest,
    /// Searches.
    Search,
    /// Overload curves.
    Overload,
    /// Soaks.
    Soak,
}

impl From<Task> for Kind {
    fn from(task: Task) -> Self {
        match task {
            Task::Search { .. } => Self::Search,
            Task::Overload { .. } => Self::Overload,
            Task::Soak { .. } => Self::Soak,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SelfTest => "self-tests",
            Self::Search => "searches",
            Self::Overload => "overload curves",
            Self::Soak => "soaks",
        })
    }
}

/// Trials and time of one or more pieces of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// If the first rate is a lucky guess.
    pub least_trials: u64,
    /// If the rate is within 16 times of the first one, and later runs find what the first found.
    pub likely_trials: u64,
    /// If it is as far from the first rate as can be; invalid trials, which are repeated, not
    /// counted.
    pub most_trials: u64,
    /// Time of the likely trials.
    pub likely_ns: Nanos,
    /// Time of the most trials, all to their end.
    pub most_ns: Nanos,
}

impl Cost {
    fn exactly(trials: u64, trial_ns: Nanos) -> Self {
        let time_ns = trials.saturating_mul(trial_ns);
        Self {
            least_trials: trials,
            likely_trials: trials,
            most_trials: trials,
            likely_ns: time_ns,
            most_ns: time_ns,
        }
    }

    #[must_use]
    fn and(self, other: Self) -> Self {
        Self {
            least_trials: self.least_trials.saturating_add(other.least_trials),
            likely_trials: self.likely_trials.saturating_add(other.likely_trials),
            most_trials: self.most_trials.saturating_add(other.most_trials),
            likely_ns: self.likely_ns.saturating_add(other.likely_ns),
            most_ns: self.most_ns.saturating_add(other.most_ns),
        }
    }

    #[must_use]
    fn and_starts(self, starts: u64) -> Self {
        self.and(Self {
            likely_ns: starts.saturating_mul(START_NS),
            most_ns: starts.saturating_mul(START_NS),
            ..Self::default()
        })
    }
}

/// What a plan takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Kind, how many of them, and what they take together; only kinds that there are.
    pub rows: Vec<(Kind, u64, Cost)>,
    /// All together.
    pub total: Cost,
    /// What the same searches take as the papers did them.
    pub papers: Papers,
}

/// The script of paper 002, figure 3: it bisects a fixed range to within 1 query per second, each
/// trial to its end, and lets the server rest for 10 s after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Papers {
    /// Upper end of the range.
    pub max_qps: u64,
    /// Trials of one search.
    pub trials_per_search: u64,
    /// All trials.
    pub trials: u64,
    /// All the time.
    pub time_ns: Nanos,
}

/// What a plan takes, from its first trial to its last.
pub fn estimate(plan: &Plan) -> Estimate {
    let points = points(plan);
    let mut rows: BTreeMap<Kind, (u64, Cost)> = BTreeMap::new();
    let mut add = |kind, cost| {
        let (count, sum) = rows.entry(kind).or_default();
        *count += 1;
        *sum = sum.and(cost);
    };
    let mut certified = Vec::new();
    let mut last = None;
    for task in tasks(plan) {
        let Some(point) = points.get(task.point()) else {
            continue;
        };
        if let Some(conditions) = conditions(plan, point)
            && !certified.contains(&conditions)
        {
            add(Kind::SelfTest, self_test(plan, point));
            certified.push(conditions);
        }
        let moved = last != Some(task.point());
        last = Some(task.point());
        add(Kind::from(task), task_cost(plan, point, task, moved));
    }
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(k, (n, cost))| (k, n, cost))
        .collect();
    let total = rows
        .iter()
        .fold(Cost::default(), |sum, (_, _, cost)| sum.and(*cost));
    Estimate {
        total,
        rows,
        papers: papers(plan, &points),
    }
}

/// How long the rest of a campaign takes. `done` are the tasks that are over with the time that
/// each took: by as much as they differ from their estimate, the others of their kind will.
pub fn left_ns(plan: &Plan, done: &[(Task, Nanos)], remaining: &[Task]) -> Nanos {
    let points = points(plan);
    let likely_ns = |task: Task| {
        let point = points.get(task.point())?;
        Some(task_cost(plan, point, task, true).likely_ns)
    };
    let mut measured: BTreeMap<Kind, (u128, u128)> = BTreeMap::new();
    let mut certified = Vec::new();
    for &(task, took_ns) in done {
        let (estimated, took) = measured.entry(task.into()).or_default();
        *estimated += u128::from(likely_ns(task).unwrap_or(0));
        *took += u128::from(took_ns);
        certified.extend(points.get(task.point()).and_then(|p| conditions(plan, p)));
    }
    let mut left = 0u128;
    for &task in remaining {
        let likely = u128::from(likely_ns(task).unwrap_or(0));
        left += match measured.get(&task.into()) {
            Some(&(estimated @ 1.., took)) => likely * took / estimated,
            _ => likely,
        };
        let Some(point) = points.get(task.point()) else {
            continue;
        };
        if let Some(conditions) = conditions(plan, point)
            && !certified.contains(&conditions)
        {
            left += u128::from(self_test(plan, point).likely_ns);
            certified.push(conditions);
        }
    }
    Nanos::try_from(left).unwrap_or(Nanos::MAX)
}

/// What sets one certificate apart from another within a plan.
type Conditions = (Option<SocketAddr>, Cell, Nanos, Nanos);

/// The certificate that a point needs; `None` if it needs or gets none.
fn conditions(plan: &Plan, point: &Point) -> Option<Conditions> {
    let authority = match &plan.variants.get(point.variant)?.subject {
        Subject::Server {
            self_test_server, ..
        } => Some((*self_test_server)?),
        subject if subject.is_authority() => return None,
        Subject::Lab(_) => None,
    };
    let conditions = (authority, point.cell, point.duration_ns, point.timeout_ns);
    (!plan.uncertified).then_some(conditions)
}

/// Looks for the highest rate to within a tenth by trials of 5 s, then confirms it by a whole one.
fn self_test(plan: &Plan, point: &Point) -> Cost {
    let timeout_ns = self_test_timeout(point.timeout_ns);
    let short_ns = point.duration_ns.min(SELF_TEST_TRIAL_NS);
    let bisections = halvings(SELF_TEST_START_QPS, SELF_TEST_START_QPS / 10);
    let doublings = halvings(HIGHEST_RATE_QPS, SELF_TEST_START_QPS) + 1;
    let search = Cost {
        least_trials: 2 + bisections,
        likely_trials: GALLOP_LIKELY + bisections,
        most_trials: doublings + bisections,
        likely_ns: 0,
        most_ns: 0,
    };
    let search = Cost {
        likely_ns: search.likely_trials * trial_ns(plan, likely_ns(short_ns), timeout_ns),
        most_ns: search.most_trials * trial_ns(plan, short_ns, timeout_ns),
        ..search
    };
    let whole_ns = trial_ns(plan, point.duration_ns, timeout_ns);
    let confirmations = u64::from(point.duration_ns > short_ns);
    let lowered = confirmations * (SELF_TEST_LOWERINGS - 1);
    let confirmed = Cost::exactly(confirmations, whole_ns).and(Cost {
        most_trials: lowered,
        most_ns: lowered.saturating_mul(whole_ns),
        ..Cost::default()
    });
    search.and(confirmed).and_starts(1)
}

fn task_cost(plan: &Plan, point: &Point, task: Task, moved: bool) -> Cost {
    let timeout_ns = match plan.variants.get(point.variant).map(|v| &v.subject) {
        Some(subject) if subject.is_authority() => self_test_timeout(point.timeout_ns),
        _ => point.timeout_ns,
    };
    let whole_ns = trial_ns(plan, point.duration_ns, timeout_ns);
    match task {
        Task::Search { run, .. } => {
            let (least_trials, likely_trials, most_trials) = search_trials(plan, point, run);
            let shortened_ns = if plan.search.stop_early {
                likely_ns(point.duration_ns)
            } else {
                point.duration_ns
            };
            let cost = Cost {
                least_trials,
                likely_trials,
                most_trials,
                likely_ns: likely_trials.saturating_mul(trial_ns(plan, shortened_ns, timeout_ns)),
                most_ns: most_trials.saturating_mul(whole_ns),
            };
            let started = moved || plan.search.restart == Restart::Search;
            cost.and_starts(u64::from(started))
        }
        Task::Overload { .. } => {
            let factors = plan.overload.as_ref().map_or(0, |o| o.factors_milli.len());
            Cost::exactly(factors as u64, whole_ns).and_starts(1)
        }
        Task::Soak { .. } => {
            let length_ns = plan.soak.map_or(0, |soak| soak.length_ns);
            let segments = length_ns.div_ceil(point.duration_ns.max(1));
            Cost::exactly(segments, whole_ns).and_starts(1)
        }
    }
}

/// Least, likely and most trials of one search.
fn search_trials(plan: &Plan, point: &Point, run: u32) -> (u64, u64, u64) {
    let resolution = plan.search.resolution;
    match plan.search.method {
        Method::FixedRange { max_qps } => {
            let trials = |rate_qps| halvings(max_qps, resolution.qps(rate_qps)).max(1);
            (trials(max_qps), trials(max_qps / 2), trials(1))
        }
        Method::Galloping {
            start_qps,
            max_qps,
            reuse,
        } => {
            let limit_qps = max_qps
                .unwrap_or(HIGHEST_RATE_QPS)
                .min(names_qps(plan, point));
            let lowest_qps = Schedule::lowest_rate_qps(point.duration_ns);
            let bisections = |rate_qps| halvings(rate_qps, resolution.qps(rate_qps));
            let up = halvings(limit_qps, start_qps) + 1 + bisections((limit_qps / 2).max(1));
            let down = halvings(start_qps, lowest_qps) + 1 + bisections(start_qps);
            let most = up.max(down);
            let likely = (GALLOP_LIKELY + bisections(start_qps)).min(most);
            if reuse && run > 1 {
                // What was found before is nothing like what is found now: steps that double from
                // the resolution to the farthest rate, two of them in the wrong direction.
                let steps = halvings(limit_qps, resolution.qps(start_qps)) + 1;
                let astray = steps + bisections((limit_qps / 2).max(1));
                let bracket_qps = (start_qps / REUSED_PART).max(1);
                let reused = 2 + halvings(bracket_qps, resolution.qps(start_qps));
                (2, likely.min(reused), most.max(astray) + 2)
            } else {
                let least = 2 + bisections((start_qps / 2).max(1)).saturating_sub(1);
                (least.min(likely), likely, most)
            }
        }
    }
}

/// The highest rate that the names of the plan are enough for.
fn names_qps(plan: &Plan, point: &Point) -> u64 {
    let names = u128::from(plan.load.cidr.names());
    let rate = names * u128::from(SECOND) / u128::from(point.duration_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX).max(1)
}

/// Trials that narrow a range of `width_qps` to `resolution_qps`.
fn halvings(width_qps: u64, resolution_qps: u64) -> u64 {
    let bracket = Bracket {
        passed_qps: Some(0),
        failed_qps: Some(width_qps),
        resolution_qps: resolution_qps.max(1),
    };
    bracket.trials_left().map_or(0, u64::from)
}

/// One trial with what is before and after it.
fn trial_ns(plan: &Plan, sending_ns: Nanos, timeout_ns: Nanos) -> Nanos {
    let start_ns = match plan.search.restart {
        Restart::Trial => START_NS,
        Restart::Never | Restart::Search => 0,
    };
    [timeout_ns, GAP_NS, plan.search.settle_ns, start_ns]
        .into_iter()
        .fold(sending_ns, Nanos::saturating_add)
}

/// How long a trial sends on average if half of the trials fail and end early.
fn likely_ns(duration_ns: Nanos) -> Nanos {
    duration_ns / 2 + duration_ns / 2 / FAILED_PART
}

fn papers(plan: &Plan, points: &[Point]) -> Papers {
    let max_qps = match plan.search.method {
        Method::Galloping { max_qps, .. } => max_qps.unwrap_or(PAPERS_MAX_QPS),
        Method::FixedRange { max_qps } => max_qps,
    };
    let trials_per_search = halvings(max_qps, 1);
    let runs = u64::from(plan.search.runs);
    let of_points = runs.saturating_mul(trials_per_search);
    let time_ns = points.iter().fold(0, |sum: Nanos, point| {
        let trial_ns = point.duration_ns + point.timeout_ns + PAPERS_REST_NS;
        sum.saturating_add(of_points.saturating_mul(trial_ns))
    });
    Papers {
        max_qps,
        trials_per_search,
        trials: of_points.saturating_mul(points.len() as u64),
        time_ns,
    }
}

/// To build a lab of namespaces, start authority and DUT in it and probe them: what it takes with
/// Unbound and dns64d on two cores of a virtual machine, rounded.
const START_NS: Nanos = SECOND / 2 * 3;

/// Between two trials, for ledgers, probes and the DUT's queues, on the same machine.
const GAP_NS: Nanos = SECOND / 2;

/// A failing trial sends this part of its duration until its first loss is certain. It is less far
/// beyond the rate, and more just above it.
const FAILED_PART: u64 = 4;

/// Trials of galloping: a first rate, four doublings or halvings of it.
const GALLOP_LIKELY: u64 = 5;

/// Part of the rate that the bracket of a run has which begins with what the runs before found: with a
/// standard deviation of 3 % they spread over an eighth, and half of that is added at either end.
const REUSED_PART: u64 = 4;

/// As `rig::certify` does it.
const SELF_TEST_START_QPS: u64 = 22_000;

/// As `rig::certify` does it.
const SELF_TEST_TRIAL_NS: Nanos = 5 * SECOND;

/// As `rig::certify` does it.
const SELF_TEST_LOWERINGS: u64 = 5;

/// Paper 000, section 6.9.2: 16 steps of a binary search.
const PAPERS_MAX_QPS: u64 = 65_536;

/// Paper 002, figure 3: `sleept`.
const PAPERS_REST_NS: Nanos = 10 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::parse(
            "x.toml",
            &format!("{text}\n[[dut]]\nprofile = \"unbound\"\n"),
        )
        .unwrap()
    }

    fn row(plan: &Plan, kind: Kind) -> (u64, Cost) {
        let rows = estimate(plan).rows;
        let row = rows.iter().find(|(k, _, _)| *k == kind);
        row.map(|(_, n, cost)| (*n, *cost)).unwrap_or_default()
    }

    fn trials(cost: Cost) -> [u64; 3] {
        [cost.least_trials, cost.likely_trials, cost.most_trials]
    }

    #[test]
    fn the_papers_search_takes_fourteen_trials_of_its_range() {
        let plan = plan(
            "[search]\nmethod = \"fixed-range\"\nmax-rate = 16384\nresolution = 1\nruns = 20\n",
        );
        let (searches, cost) = row(&plan, Kind::Search);
        assert_eq!((searches, trials(cost)), (20, [280, 280, 280]));
        // 60 s, a timeout of 1 s and 0.5 s; and one start of 1.5 s.
        assert_eq!(cost.likely_ns, 280 * 61_500_000_000 + 1_500_000_000);
        let papers = estimate(&plan).papers;
        assert_eq!((papers.trials_per_search, papers.trials), (14, 280));
        assert_eq!(papers.time_ns, 280 * 71_000_000_000);
    }

    #[test]
    fn galloping_is_told_as_a_range() {
        let plan = plan("[search]\nruns = 2\nmax-rate = \"80k\"\n");
        let (searches, cost) = row(&plan, Kind::Search);
        // First run: 2 + 9, 5 + 10; down to 1 query per minute takes 14 halvings.
        // Second run: 2, 2 + 8, two more than the first.
        assert_eq!(searches, 2);
        assert_eq!(trials(cost), [11 + 2, 15 + 10, 25 + 27]);
        // Of 60 s, 37.5 s are sent on average.
        assert_eq!(cost.likely_ns, 25 * 39_000_000_000 + 1_500_000_000);
    }

    #[test]
    fn certificates_are_counted_by_their_conditions() {
        let one = plan("[search]\nruns = 3\n");
        assert_eq!(row(&one, Kind::SelfTest).0, 1);
        let four = plan("[queue-check]\ndurations = [\"5s\", \"60s\"]\ntimeouts = [0.5, 1]\n");
        assert_eq!(row(&four, Kind::SelfTest).0, 4);
        let none = plan("[tester]\nuncertified = true\n");
        assert_eq!(row(&none, Kind::SelfTest).0, 0);
    }

    #[test]
    fn overload_and_soak_run_to_their_end() {
        let plan = plan("[trial]\nduration = \"10s\"\n[overload]\n[soak]\nlength = \"65s\"\n");
        let (curves, cost) = row(&plan, Kind::Overload);
        assert_eq!((curves, trials(cost)), (1, [6, 6, 6]));
        assert_eq!(cost.likely_ns, 6 * 11_500_000_000 + 1_500_000_000);
        let (soaks, cost) = row(&plan, Kind::Soak);
        assert_eq!((soaks, trials(cost)), (1, [7, 7, 7]));
    }

    #[test]
    fn restarts_and_rests_are_counted() {
        let base =
            "[search]\nruns = 1\nmethod = \"fixed-range\"\nmax-rate = 1024\nresolution = 1\n";
        let likely = |more: &str| {
            row(&plan(&format!("{base}{more}")), Kind::Search)
                .1
                .likely_ns
        };
        assert_eq!(likely(""), 10 * 61_500_000_000 + 1_500_000_000);
        assert_eq!(
            likely("settle = \"10s\"\n"),
            10 * 71_500_000_000 + 1_500_000_000
        );
        assert_eq!(
            likely("restart = \"trial\"\n"),
            10 * 63_000_000_000 + 1_500_000_000
        );
    }

    #[test]
    fn what_is_left_follows_from_what_was_measured() {
        let plan = plan(
            "[tester]\nuncertified = true\n[search]\nruns = 4\nmethod = \"fixed-range\"\n\
             max-rate = 1024\nresolution = 1\n[overload]\nfactors = [1, 2]\n",
        );
        let all = tasks(&plan);
        // Nothing is known: 10 trials of 61.5 s and a start, four times; two trials and a start.
        assert_eq!(
            left_ns(&plan, &[], &all),
            4 * 616_500_000_000 + 124_500_000_000
        );
        // The first search took twice its estimate; of the overload curve nothing is known yet.
        let done = [(all[0], 2 * 616_500_000_000)];
        assert_eq!(
            left_ns(&plan, &done, &all[1..]),
            6 * 616_500_000_000 + 124_500_000_000
        );
        assert_eq!(left_ns(&plan, &done, &[]), 0);
    }

    #[test]
    fn certificates_that_are_there_are_not_waited_for() {
        let plan = plan("[search]\nruns = 2\n");
        let all = tasks(&plan);
        let first = left_ns(&plan, &[], &all[..1]);
        let after = left_ns(&plan, &[(all[0], 0)], &[Task::Overload { point: 0 }]);
        assert!(first > row(&plan, Kind::SelfTest).1.likely_ns);
        assert_eq!(after, 1_500_000_000, "no factors: only a start is left");
    }

    #[test]
    fn no_plan_is_too_long_to_count() {
        let plan = plan(
            "[trial]\nduration = \"24h\"\n[search]\nruns = 1000\nstart-rate = 1\n[cells]\n\
             grid = \"rfc8219\"\n",
        );
        assert!(estimate(&plan).total.most_ns > 31 * 1000 * 86_400 * SECOND);
    }
}
