//! Estimates how long a plan takes: before it starts, from typical costs of trials, and later from the measured ones.
//! Searches are simulated on DUTs with many limits to find their number of trials.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dns64_transport::clock::{Nanos, SECOND};

use super::plan::tasks::{Point, Task, rates, search_spec};
use super::plan::{Cell, Plan, Restart};
use super::status::Phase;
use crate::namespace::Cidr;
use crate::procedure::search::{HIGHEST_RATE_QPS, Search, SearchSpec};
use crate::procedure::selftest::{LOWERED_BY_PCT, self_test_timeout};
use crate::rig::certify::{self, Highest, SEARCH_TRIAL_NS};
use crate::rig::spec::Subject;
use crate::trial::result::Outcome;

/// Trials and time of one or more pieces of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Likely trials: half of all rates within 16 times of the first one take at most as many, and later runs find the same rate as the first.
    pub trials: u64,
    /// Their duration.
    pub time_ns: Nanos,
    /// Duration of the most trials of any simulated DUT, all of full length; repetitions of invalid trials not counted.
    pub most_ns: Nanos,
}

impl Cost {
    /// Cost of this many trials, likely and at most, plus the starts of the servers before them.
    fn of(
        [likely, most]: [u64; 2],
        likely_trial_ns: Nanos,
        most_trial_ns: Nanos,
        starts_ns: Nanos,
    ) -> Self {
        let time_ns =
            |trials: u64, each_ns| trials.saturating_mul(each_ns).saturating_add(starts_ns);
        Self {
            trials: likely,
            time_ns: time_ns(likely, likely_trial_ns),
            most_ns: time_ns(most, most_trial_ns),
        }
    }

    #[must_use]
    fn and(self, other: Self) -> Self {
        Self {
            trials: self.trials.saturating_add(other.trials),
            time_ns: self.time_ns.saturating_add(other.time_ns),
            most_ns: self.most_ns.saturating_add(other.most_ns),
        }
    }
}

/// Estimated cost of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Kind of work, number of pieces, and their total cost; only kinds that occur.
    pub rows: Vec<(Phase, u64, Cost)>,
    /// Total.
    pub total: Cost,
    /// Likely trials of each running server, which is queried for no name twice: their number and total length.
    pub running: Vec<(SocketAddr, u64, Nanos)>,
}

/// Estimated cost of a plan, from its first trial to its last.
pub fn estimate(plan: &Plan) -> Estimate {
    Estimator::new(plan).estimate()
}

/// Estimator for one plan. Equal searches are simulated only once.
#[derive(Clone, Debug)]
pub struct Estimator<'p> {
    plan: &'p Plan,
    /// Time to start the servers, by variant.
    starts_ns: Vec<Nanos>,
    /// Trials by their length and by whether the search begins at the result of earlier runs.
    searches: BTreeMap<(Nanos, bool), [u64; 2]>,
    /// Trials of a search for goals.
    goals: Option<[u64; 2]>,
}

impl<'p> Estimator<'p> {
    /// Creates the estimator of this plan.
    pub fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            starts_ns: {
                let loads_ns = plan.variants.iter().map(|it| plan.zone_load_ns(it));
                loads_ns.map(|load_ns| START_NS + load_ns).collect()
            },
            searches: BTreeMap::new(),
            goals: None,
        }
    }

    fn estimate(mut self) -> Estimate {
        let mut rows: BTreeMap<Phase, (u64, Cost)> = BTreeMap::new();
        let mut add = |kind, cost| {
            let (count, sum) = rows.entry(kind).or_default();
            *count += 1;
            *sum = sum.and(cost);
        };
        let (mut certified, mut last) = (Vec::new(), None);
        let mut running = BTreeMap::new();
        for &task in &self.plan.tasks {
            let point = self.plan.points[task.point()];
            if self.needs_certificate(&point, &mut certified) {
                add(Phase::SelfTest, self.self_test(&point));
            }
            let moved = last.replace(task.point()) != Some(task.point());
            let cost = self.task(task, moved);
            add(Phase::from(task), cost);
            if let Some(server) = self.plan.variants[point.variant].subject.server() {
                let (trials, length_ns): &mut (u64, Nanos) = running.entry(server).or_default();
                let more_ns = cost.trials.saturating_mul(point.duration_ns);
                *trials = trials.saturating_add(cost.trials);
                *length_ns = length_ns.saturating_add(more_ns);
            }
        }
        let costs = rows.values().map(|(_, cost)| *cost);
        Estimate {
            total: costs.fold(Cost::default(), Cost::and),
            running: running.into_iter().map(|(s, (n, ns))| (s, n, ns)).collect(),
            rows: rows
                .into_iter()
                .map(|(kind, (n, cost))| (kind, n, cost))
                .collect(),
        }
    }

    /// Estimates the time that remains. `done` has the finished tasks with the time that each took: their ratio to the
    /// estimate scales the other tasks of their kind.
    pub fn left_ns(&mut self, done: &[(Task, Nanos)], remaining: &[Task]) -> Nanos {
        let mut measured: BTreeMap<Phase, (u128, u128)> = BTreeMap::new();
        let (mut certified, points) = (Vec::new(), self.plan.points.len());
        for &(task, took_ns) in done.iter().filter(|(task, _)| task.point() < points) {
            let (estimated, took) = measured.entry(task.into()).or_default();
            *estimated += u128::from(self.task(task, true).time_ns);
            *took += u128::from(took_ns);
            self.needs_certificate(&self.plan.points[task.point()], &mut certified);
        }
        let mut left = 0u128;
        for &task in remaining {
            let likely = u128::from(self.task(task, true).time_ns);
            left += match measured.get(&task.into()) {
                Some(&(estimated @ 1.., took)) => likely * took / estimated,
                _ => likely,
            };
            let point = self.plan.points[task.point()];
            if self.needs_certificate(&point, &mut certified) {
                left += u128::from(self.self_test(&point).time_ns);
            }
        }
        Nanos::try_from(left).unwrap_or(Nanos::MAX)
    }

    /// Whether a point needs a certificate that is not in `certified`; if so, adds it.
    fn needs_certificate(&self, point: &Point, certified: &mut Vec<Certified>) -> bool {
        let server = match self.plan.variants[point.variant].subject {
            Subject::Server {
                self_test_server, ..
            } => self_test_server,
            Subject::Lab(_) => None,
        };
        let conditions = (server, point.cell, point.duration_ns, point.timeout_ns);
        let needed = self.plan.needs_certificate(point) && !certified.contains(&conditions);
        if needed {
            certified.push(conditions);
        }
        needed
    }

    /// Cost of all self-tests of a certificate, as [`Rig::self_test`](crate::rig::Rig::self_test) runs them: short
    /// trials search the highest rate and repeat a failure once; a trial of full length then confirms the rate of each
    /// self-test.
    fn self_test(&self, point: &Point) -> Cost {
        let timeout_ns = self_test_timeout(point.timeout_ns);
        let start_ns = self.starts_ns[point.variant];
        let short_ns = point.duration_ns.min(SEARCH_TRIAL_NS);
        let wanted = Highest::coarse(self.plan.search.method.max_qps());
        let spec = certify::search_spec(wanted, short_ns);
        let likely_ns = self.trial_ns(likely_ns(short_ns), timeout_ns / 2);
        let short = Cost::of(
            simulated([&spec], HIGHEST_RATE_QPS, 2),
            likely_ns,
            self.trial_ns(short_ns, timeout_ns),
            start_ns,
        );
        let whole_ns = self.trial_ns(point.duration_ns, timeout_ns);
        let self_tests = self.plan.self_tests as u64;
        let most = self_tests * (1 + LOWERED_BY_PCT.len() as u64);
        let confirmed = [self_tests, most];
        let starts_ns = (self_tests - 1).saturating_mul(start_ns);
        short.and(Cost::of(confirmed, whole_ns, whole_ns, starts_ns))
    }

    /// `moved` says that the servers of another point ran before. The point must belong to the plan.
    fn task(&mut self, task: Task, moved: bool) -> Cost {
        let plan = self.plan;
        let point = self.plan.points[task.point()];
        let timeout_ns = match &plan.variants[point.variant].subject {
            subject if subject.is_authority() => self_test_timeout(point.timeout_ns),
            _ => point.timeout_ns,
        };
        let whole_ns = self.trial_ns(point.duration_ns, timeout_ns);
        let start_ns = self.starts_ns[point.variant];
        let trials = match task {
            Task::Search { run, .. } => {
                let shortened_ns = match plan.search.stop_early {
                    true => likely_ns(point.duration_ns),
                    false => point.duration_ns,
                };
                let likely_ns = self.trial_ns(shortened_ns, timeout_ns / 2);
                let started = moved || plan.search.restart == Restart::Search;
                let trials = self.search(task, run);
                let start_ns = if started { start_ns } else { 0 };
                return Cost::of(trials, likely_ns, whole_ns, start_ns);
            }
            Task::Goals { .. } => return self.goals(task, timeout_ns),
            Task::Overload { .. } | Task::Soak { .. } => rates(plan, task, 0).len() as u64,
        };
        Cost::of([trials; 2], whole_ns, whole_ns, start_ns)
    }

    /// Cost of a search for goals whose trials are as long as their longest.
    fn goals(&mut self, task: Task, timeout_ns: Nanos) -> Cost {
        let plan = self.plan;
        let point = plan.points[task.point()];
        let trials = *self.goals.get_or_insert_with(|| {
            let spec = search_spec(plan, task, None, &[]);
            let names_qps = names_last(point.cidr, point.duration_ns).max(1);
            simulated([&spec], names_qps, 1)
        });
        let longest_ns = plan.search.goals.iter().map(|goal| goal.trial_ns).max();
        let trial_ns = self.trial_ns(longest_ns.unwrap_or_default(), timeout_ns);
        Cost::of(trials, trial_ns, trial_ns, self.starts_ns[point.variant])
    }

    /// Trials of one search, likely and at most. Later runs that begin at earlier results take the most trials if those
    /// results agree, because the first step is then the smallest.
    fn search(&mut self, task: Task, run: u32) -> [u64; 2] {
        let point = &self.plan.points[task.point()];
        let spec = |before: &[u64]| search_spec(self.plan, task, None, before);
        let first = spec(&[]);
        let later = run > 1 && spec(&[1]) != first;
        let known = self.searches.entry((point.duration_ns, later));
        *known.or_insert_with(|| {
            let names_qps = names_last(point.cidr, point.duration_ns).max(1);
            let first_run = simulated([&first], names_qps, 1);
            if !later {
                return first_run;
            }
            let agreed: Vec<_> = limits(names_qps)
                .skip(1)
                .map(|rate| spec(&[rate, rate]))
                .collect();
            let likely = trials(&spec(&[first.start_qps]), first.start_qps, 1);
            let [_, most] = simulated(&agreed, names_qps, 1);
            [likely, most.max(first_run[1])]
        })
    }

    /// Time of one trial, including what precedes and follows it. Only one that fails waits for its timeout, which is
    /// half of those of a search.
    fn trial_ns(&self, sending_ns: Nanos, timeout_ns: Nanos) -> Nanos {
        let start_ns = match self.plan.search.restart {
            Restart::Trial => START_NS,
            Restart::Never | Restart::Search => 0,
        };
        sending_ns + timeout_ns + GAP_NS + self.plan.search.settle_ns + start_ns
    }
}

/// What distinguishes the certificates of a plan: a self-test server, cell, duration and timeout.
type Certified = (Option<SocketAddr>, Cell, Nanos, Nanos);

/// Likely and most trials of searches with these specifications, on DUTs with all limits up to `highest_qps`. A
/// failure is tried `tries` times.
fn simulated<'s>(
    specs: impl IntoIterator<Item = &'s SearchSpec>,
    highest_qps: u64,
    tries: u64,
) -> [u64; 2] {
    let (mut near, mut most) = (Vec::new(), 0);
    for spec in specs {
        let asked_qps = spec.max_qps.or(spec.fixed_range_qps);
        let highest_qps = highest_qps.min(asked_qps.unwrap_or(HIGHEST_RATE_QPS));
        let first = SearchSpec {
            low_load_qps: None,
            ..spec.clone()
        };
        let first_qps = Search::new(first).next_rate().unwrap_or(0);
        let likely = first_qps / LIKELY_WITHIN..=first_qps.saturating_mul(LIKELY_WITHIN);
        for limit_qps in limits(highest_qps) {
            let trials = trials(spec, limit_qps, tries);
            most = most.max(trials);
            if likely.contains(&limit_qps) {
                near.push(trials);
            }
        }
    }
    near.sort_unstable();
    [near.get(near.len() / 2).copied().unwrap_or(most), most]
}

/// Trials of a search on a DUT that passes up to `limit_qps`. A failure is tried `tries` times.
fn trials(spec: &SearchSpec, limit_qps: u64, tries: u64) -> u64 {
    let mut search = Search::new(spec.clone());
    let mut trials = 0;
    while let Some(rate_qps) = search.next_rate() {
        let passes = rate_qps <= limit_qps;
        search.observe(&match passes {
            true => Outcome::Passed,
            false => Outcome::Failed {
                shortfall: u64::MAX,
            },
        });
        trials += if passes { 1 } else { tries };
    }
    trials
}

/// Limits of DUTs from 0 to `highest_qps`, each a quarter above the one before.
fn limits(highest_qps: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0), move |&limit: &u64| {
        let next = limit + (limit / 4).max(1);
        (limit < highest_qps).then_some(next.min(highest_qps))
    })
}

/// The rate at which the names of a range last for `length_ns`, without those reserved for probes.
pub fn names_last(range: Cidr, length_ns: Nanos) -> u64 {
    let rate = u128::from(range.names()) * u128::from(SECOND) / u128::from(length_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Average sending time of a trial if half of the trials fail and end early.
fn likely_ns(duration_ns: Nanos) -> Nanos {
    duration_ns / 2 + duration_ns / 2 / FAILED_PART
}

/// Time to build a lab of namespaces and to start and probe authority and DUT in it: on two cores of a virtual machine 0.15 s with dns64d, and
/// 0.65 to 0.85 s with Unbound, BIND, PowerDNS and Knot Resolver. The zone load of an authority is added.
const START_NS: Nanos = SECOND / 4 * 3;

/// Time between two trials, for ledgers, probes and the DUT's queues: 0.17 to 0.2 s on the same machine.
const GAP_NS: Nanos = SECOND / 5;

/// A failing trial sends for one part in this number of its duration until its first loss is certain: less far above
/// the limit, more just above it.
const FAILED_PART: u64 = 4;

/// The rate is likely within this factor of the first one.
const LIKELY_WITHIN: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::profile::Profile;

    fn plan(text: &str) -> Plan {
        Plan::parse(
            "x.toml",
            &format!("{text}\n[[dut]]\nprofile = \"unbound\"\n"),
        )
        .unwrap()
    }

    fn row(plan: &Plan, kind: Phase) -> (u64, Cost) {
        let rows = estimate(plan).rows;
        let row = rows.iter().find(|(k, _, _)| *k == kind);
        row.map(|(_, n, cost)| (*n, *cost)).unwrap_or_default()
    }

    #[test]
    fn search_of_the_papers_takes_fourteen_trials() {
        let plan = plan(
            "[search]\nmethod = \"fixed-range\"\nmax-rate = 16384\nresolution = 1\nruns = 20\n",
        );
        let (searches, cost) = row(&plan, Phase::Search);
        assert_eq!((searches, cost.trials), (20, 280));
        // 60 s, half of a timeout of 1 s and 0.2 s; and one start of 0.75 s.
        assert_eq!(cost.time_ns, 280 * 60_700_000_000 + 750_000_000);
    }

    #[test]
    fn start_includes_zone_load_of_the_authority() {
        let likely_ns = |authority: &str| {
            let plan = Plan::parse(
                "x.toml",
                &format!(
                    "[tester]\nnamespace = \"10.0.0.0/12\"\n[search]\nmethod = \"fixed-range\"\n\
                     max-rate = 1024\nresolution = 1\nruns = 1\n[[dut]]\nauthority = \"{authority}\"\n"
                ),
            );
            row(&plan.unwrap(), Phase::Search).1.time_ns
        };
        let nsd = Profile::built_in("nsd").unwrap();
        let load_ns = nsd.zone.load_ns(1 << 21).unwrap();
        assert!(load_ns > SECOND);
        assert_eq!(likely_ns("nsd"), likely_ns("built-in") + load_ns);
    }

    #[test]
    fn galloping_is_estimated_as_a_range() {
        let plan = plan("[search]\nruns = 2\nmax-rate = \"80k\"\n");
        let (searches, cost) = row(&plan, Phase::Search);
        // First run: at low load and at 10k, and at most 13 of bisection between them. Second run: the most if the limit is far above
        // the earlier results.
        assert_eq!((searches, cost.trials), (2, 14 + 10));
        assert_eq!(cost.most_ns, (15 + 26) * 61_200_000_000 + 750_000_000);
        // Of 60 s, a trial sends for 37.5 s on average.
        assert_eq!(cost.time_ns, cost.trials * 38_200_000_000 + 750_000_000);
    }

    #[test]
    fn certificates_are_counted_by_their_conditions() {
        let one = plan("[search]\nruns = 3\n");
        assert_eq!(row(&one, Phase::SelfTest).0, 1);
        let four = plan("[queue-check]\ndurations = [\"5s\", \"60s\"]\ntimeouts = [0.5, 1]\n");
        assert_eq!(row(&four, Phase::SelfTest).0, 4);
        let none = plan("[tester]\nuncertified = true\n");
        assert_eq!(row(&none, Phase::SelfTest).0, 0);
    }

    #[test]
    fn overload_and_soak_run_to_their_end() {
        let plan = plan("[trial]\nduration = \"10s\"\n[overload]\n[soak]\nlength = \"65s\"\n");
        let (curves, cost) = row(&plan, Phase::Overload);
        assert_eq!((curves, cost.trials), (1, 6));
        assert_eq!(cost.time_ns, 6 * 11_200_000_000 + 750_000_000);
        let (soaks, cost) = row(&plan, Phase::Soak);
        assert_eq!((soaks, cost.trials), (1, 7));
    }

    #[test]
    fn restarts_and_rests_are_counted() {
        let base =
            "[search]\nruns = 1\nmethod = \"fixed-range\"\nmax-rate = 1024\nresolution = 1\n";
        let likely = |more: &str| {
            row(&plan(&format!("{base}{more}")), Phase::Search)
                .1
                .time_ns
        };
        assert_eq!(likely(""), 10 * 60_700_000_000 + 750_000_000);
        assert_eq!(
            likely("settle = \"10s\"\n"),
            10 * 70_700_000_000 + 750_000_000
        );
        assert_eq!(
            likely("restart = \"trial\"\n"),
            10 * 61_450_000_000 + 750_000_000
        );
    }

    #[test]
    fn remaining_time_follows_from_measured_times() {
        let plan = plan(
            "[tester]\nuncertified = true\n[search]\nruns = 4\nmethod = \"fixed-range\"\n\
             max-rate = 1024\nresolution = 1\n[overload]\nfactors = [1, 2]\n",
        );
        let all = plan.tasks.clone();
        // No task is finished: 10 trials of 60.7 s and a start, four times; two trials and a start.
        assert_eq!(
            Estimator::new(&plan).left_ns(&[], &all),
            4 * 607_750_000_000 + 123_150_000_000
        );
        // The first search took twice its estimate; no overload curve is finished.
        let done = [(all[0], 2 * 607_750_000_000)];
        assert_eq!(
            Estimator::new(&plan).left_ns(&done, &all[1..]),
            6 * 607_750_000_000 + 123_150_000_000
        );
        assert_eq!(Estimator::new(&plan).left_ns(&done, &[]), 0);
    }

    #[test]
    fn existing_certificates_cost_no_time() {
        let plan = plan("[search]\nruns = 2\n");
        let all = plan.tasks.clone();
        let first = Estimator::new(&plan).left_ns(&[], &all[..1]);
        let after = Estimator::new(&plan).left_ns(&[(all[0], 0)], &[Task::Overload { point: 0 }]);
        assert!(first > row(&plan, Phase::SelfTest).1.time_ns);
        assert_eq!(after, 750_000_000, "no factors: only a start is left");
    }

    #[test]
    fn longest_plan_does_not_overflow() {
        let plan = plan(
            "[trial]\nduration = \"24h\"\n[search]\nruns = 1000\nstart-rate = 1\n[cells]\n\
             grid = \"rfc8219\"\n",
        );
        assert!(estimate(&plan).total.most_ns > 31 * 1000 * 86_400 * SECOND);
    }
}
