//! Converts a plan to tasks, in order.

use std::fmt;

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cell, Method, Order, Plan};
use crate::load::pace::Schedule;
use crate::namespace::Cidr;
use crate::procedure::goal;
use crate::procedure::search::{self, SearchSpec};
use crate::quantity::Span;

/// One row of the results: a variant, a cell, a duration and a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Index into [`Plan::variants`].
    pub variant: usize,
    /// Shares of cached names and of names with an AAAA record.
    pub cell: Cell,
    /// Range of the names.
    pub cidr: Cidr,
    /// Whether duration and timeout are those of the plan, and not of its queue check alone.
    pub is_usual: bool,
    /// Length of a trial.
    pub duration_ns: Nanos,
    /// A response counts up to this time after its query.
    pub timeout_ns: Nanos,
}

/// One unit of work. `point` is an index into [`Plan::points`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// One search.
    Search {
        /// Index of its point in the plan.
        point: usize,
        /// Number of the run, counted from 1.
        run: u32,
    },
    /// The search for the goals of the plan.
    Goals {
        /// Index of its point in the plan.
        point: usize,
    },
    /// The trials of the overload curve.
    Overload {
        /// Index of its point in the plan.
        point: usize,
    },
    /// The segments of the soak.
    Soak {
        /// Index of its point in the plan.
        point: usize,
    },
}

impl Task {
    /// Its point.
    pub fn point(self) -> usize {
        match self {
            Self::Search { point, .. }
            | Self::Goals { point }
            | Self::Overload { point }
            | Self::Soak { point } => point,
        }
    }

    /// The number of its run, if it is a search.
    pub fn run(self) -> Option<u32> {
        match self {
            Self::Search { run, .. } => Some(run),
            Self::Goals { .. } | Self::Overload { .. } | Self::Soak { .. } => None,
        }
    }

    /// Whether its rates follow from the outcomes of its trials.
    pub fn is_search(self) -> bool {
        matches!(self, Self::Search { .. } | Self::Goals { .. })
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Search { run, .. } => write!(f, "run {run}"),
            Self::Goals { .. } => f.write_str("search for goals"),
            Self::Overload { .. } => f.write_str("overload curve"),
            Self::Soak { .. } => f.write_str("soak"),
        }
    }
}

/// All points of a plan, in order: variants, in each its cells, then those of the queue check.
pub(super) fn points(plan: &Plan) -> Vec<Point> {
    let usual = (plan.load.duration_ns, plan.load.timeout_ns);
    let checks = plan.queue_check.iter().zip(&plan.cells);
    let checks = checks.flat_map(|(check, first)| {
        let timeouts = check.timeouts_ns.iter();
        let spans = timeouts.flat_map(|t| check.durations_ns.iter().map(move |d| (*d, *t)));
        spans.map(move |spans| (*first, spans))
    });
    let cells = plan.cells.iter().map(|cell| (*cell, usual));
    let mut rows: Vec<(Cell, (Nanos, Nanos))> = Vec::new();
    for row in cells.chain(checks) {
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let of_variant = |variant| {
        let cidr = plan.cidr(variant);
        rows.iter().map(move |&(cell, spans)| Point {
            variant,
            cell,
            cidr,
            is_usual: spans == usual,
            duration_ns: spans.0,
            timeout_ns: spans.1,
        })
    };
    (0..plan.variants.len()).flat_map(of_variant).collect()
}

/// All tasks of a plan, in order: the searches, those for goals, then the overload curves, then the soaks, since both need the results
/// of the searches. Authorities as DUTs have only searches by RFC 8219.
pub(super) fn tasks(plan: &Plan) -> Vec<Task> {
    let points = 0..plan.points.len();
    let runs = 1..=plan.search.runs;
    let mut tasks: Vec<Task> = match plan.search.order {
        Order::Interleaved => runs
            .flat_map(|run| points.clone().map(move |point| Task::Search { point, run }))
            .collect(),
        Order::Sequential => points
            .flat_map(|point| runs.clone().map(move |run| Task::Search { point, run }))
            .collect(),
    };
    let is_dut = |point: &Point| !plan.variants[point.variant].subject.is_authority();
    if !plan.search.goals.is_empty() {
        let all = plan.points.iter().enumerate();
        let usual = all.filter(|(_, point)| point.is_usual && is_dut(point));
        tasks.extend(usual.map(|(point, _)| Task::Goals { point }));
    }
    // The first point of a variant is its first cell with the duration and timeout of the plan.
    let duts = plan.variants.iter().enumerate();
    let duts = duts.filter(|(_, variant)| !variant.subject.is_authority());
    let firsts: Vec<usize> = duts
        .filter_map(|(variant, _)| plan.points.iter().position(|p| p.variant == variant))
        .collect();
    if !plan.overload_milli.is_empty() {
        tasks.extend(firsts.iter().map(|&point| Task::Overload { point }));
    }
    if plan.soak.is_some() {
        tasks.extend(firsts.iter().map(|&point| Task::Soak { point }));
    }
    tasks
}

/// How a search, perhaps for goals, selects its rates: up to the certified rate, and from the results of the earlier runs, `before`, if
/// the plan reuses them.
pub fn search_spec(
    plan: &Plan,
    task: Task,
    certified_qps: Option<u64>,
    before: &[u64],
) -> SearchSpec {
    let resolution = plan.search.resolution;
    let goals = match task {
        Task::Goals { .. } => plan.search.goals.clone(),
        _ => Vec::new(),
    };
    let duration_ns = plan.points[task.point()].duration_ns;
    let spec = SearchSpec {
        resolution,
        ceiling_qps: certified_qps,
        lowest_qps: Schedule::lowest_rate_qps(goal::shortest_ns(&goals, duration_ns)),
        goals,
        ..SearchSpec::from_start(1)
    };
    match plan.search.method {
        method @ Method::FixedRange { max_qps } if !spec.goals.is_empty() => SearchSpec {
            start_qps: method.first_qps(),
            max_qps: Some(max_qps),
            ..spec
        },
        Method::FixedRange { max_qps } => SearchSpec {
            fixed_range_qps: Some(max_qps),
            ..spec
        },
        Method::Galloping {
            start_qps,
            max_qps,
            reuse,
        } => {
            let known = reuse.then(|| search::reuse(before, resolution)).flatten();
            let spec = SearchSpec {
                start_qps: known.map_or(start_qps, |(start_qps, _)| start_qps.max(spec.lowest_qps)),
                first_step_qps: known.map(|(_, step_qps)| step_qps),
                max_qps,
                ..spec
            };
            match before {
                [] => spec.from_low_load(),
                _ => spec,
            }
        }
    }
}

/// Rates of the trials of an overload curve, or of a soak: one for each of its segments. Those of a search follow from
/// its outcomes.
pub fn rates(plan: &Plan, task: Task, base_rate_qps: u64) -> Vec<u64> {
    match (task, &plan.soak) {
        (Task::Overload { .. }, _) => {
            let factors = plan.overload_milli.iter();
            let rate = |&milli: &u32| base_rate_qps.saturating_mul(u64::from(milli)) / 1000;
            factors.map(rate).collect()
        }
        (Task::Soak { .. }, Some(soak)) => {
            let segments = soak.length_ns.div_ceil(plan.load.duration_ns.max(1));
            let rate_qps = soak.share.below(base_rate_qps);
            (0..segments).map(|_| rate_qps).collect()
        }
        _ => Vec::new(),
    }
}

/// A cell as in journals ("AAAA 50%"), in the form of all texts ("AAAA 50 %").
pub fn spaced(cell: &str) -> String {
    cell.replace('%', " %")
}

/// A point in words: its variant, and its cell with duration and timeout if they are not the plan's.
pub fn point_name(plan: &Plan, point: &Point) -> (String, String) {
    let mut cell = spaced(&point.cell.to_string());
    if point.duration_ns != plan.load.duration_ns {
        cell.push_str(&format!(", trials of {}", Span(point.duration_ns)));
    }
    if point.timeout_ns != plan.load.timeout_ns {
        cell.push_str(&format!(", timeout {}", Span(point.timeout_ns)));
    }
    (plan.variants[point.variant].name.clone(), cell)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::parse("x.toml", text).unwrap()
    }

    fn words(tasks: &[Task]) -> Vec<String> {
        let words = tasks.iter().map(|t| format!("{}: {t}", t.point()));
        words.collect()
    }

    const TWO: &str = "[[dut]]\nprofile = \"bind\"\n[[dut]]\nprofile = \"unbound\"\n";

    #[test]
    fn runs_are_interleaved_before_overload_and_soak() {
        let plan = plan(&format!(
            "[search]\nruns = 2\n[cells]\naaaa-share = [0, 1]\n[overload]\n[soak]\n{TWO}"
        ));
        assert_eq!(
            words(&plan.tasks),
            [
                "0: run 1",
                "1: run 1",
                "2: run 1",
                "3: run 1",
                "0: run 2",
                "1: run 2",
                "2: run 2",
                "3: run 2",
                "0: overload curve",
                "2: overload curve",
                "0: soak",
                "2: soak",
            ]
        );
    }

    #[test]
    fn sequential_order_measures_one_point_at_a_time() {
        let plan = plan(&format!(
            "[search]\nruns = 2\norder = \"sequential\"\n{TWO}"
        ));
        assert_eq!(
            words(&plan.tasks),
            ["0: run 1", "0: run 2", "1: run 1", "1: run 2"]
        );
    }

    #[test]
    fn authorities_as_duts_have_searches_only() {
        let plan = plan("[search]\nruns = 1\n[overload]\n[[dut]]\nauthority = \"nsd\"\n");
        assert_eq!(words(&plan.tasks), ["0: run 1"]);
    }

    #[test]
    fn goals_have_a_search_at_each_usual_point_of_a_dut() {
        let text = "[trial]\nduration = \"60s\"\n[search]\nruns = 1\ngoals = [\"ndr\", \"pdr\"]\n[queue-check]\n\
                    durations = [\"5s\"]\n[[dut]]\nauthority = \"nsd\"\n[[dut]]\nprofile = \"bind\"\n";
        let plan = plan(text);
        let goals = plan
            .tasks
            .iter()
            .filter(|task| matches!(task, Task::Goals { .. }));
        let points: Vec<&Point> = goals.map(|task| &plan.points[task.point()]).collect();
        let [point] = points[..] else {
            panic!("{points:?}");
        };
        assert_eq!((point.variant, point.is_usual), (1, true));
        let spec = search_spec(&plan, *plan.tasks.last().unwrap(), Some(50_000), &[]);
        assert_eq!((spec.goals.len(), spec.lowest_qps), (2, 1));
        assert_eq!(spec.ceiling_qps, Some(50_000));
    }

    #[test]
    fn goals_beyond_the_bounds_are_refused() {
        let refused = |goals: &str| {
            let text = format!("[trial]\nduration = \"10s\"\n[search]\ngoals = [{goals}]\n{TWO}");
            Plan::parse("x.toml", &text).is_err()
        };
        assert!(!refused("\"ndr\", \"pdr\""));
        assert!(refused("\"rfc2544\""), "longer than the certified trials");
        assert!(refused("\"ndr\", \"ndr\""));
        assert!(!refused("\"interval\", \"ndr\""));
        assert!(refused("\"ndr\", \"interval\""));
        let goals = |number: u32| {
            let goal = |loss| format!("\"loss={loss}%,exceed=0%,trial=1s,sum=1s\"");
            (0..number).map(goal).collect::<Vec<_>>().join(",")
        };
        assert_eq!((refused(&goals(8)), refused(&goals(9))), (false, true));
    }

    #[test]
    fn point_name_has_only_deviations_from_the_plan() {
        let plan = plan(&format!(
            "[trial]\nduration = \"60s\"\n[queue-check]\ndurations = [\"5s\", \"60s\"]\n\
             timeouts = [\"0.5s\", \"1s\"]\n{TWO}"
        ));
        let names: Vec<_> = plan
            .points
            .iter()
            .map(|point| point_name(&plan, point))
            .map(|(variant, cell)| format!("{variant}: {cell}"))
            .collect();
        assert_eq!(
            names[..4],
            [
                "bind: AAAA 0 %, cached 0 %",
                "bind: AAAA 0 %, cached 0 %, trials of 5 s, timeout 500 ms",
                "bind: AAAA 0 %, cached 0 %, timeout 500 ms",
                "bind: AAAA 0 %, cached 0 %, trials of 5 s",
            ]
        );
        assert_eq!(names.len(), 8);
    }

    proptest! {
        #[test]
        fn each_point_has_each_run_once_and_in_order(
            duts in 1usize..4,
            runs in 1u32..6,
            grid in prop::sample::select(vec!["worst-case", "aaaa", "cached", "rfc8219"]),
            sequential: bool,
        ) {
            let order = if sequential { "sequential" } else { "interleaved" };
            let mut text = format!(
                "[search]\nruns = {runs}\norder = \"{order}\"\n[cells]\ngrid = \"{grid}\"\n"
            );
            for dut in 0..duts {
                text.push_str(&format!("[[dut]]\nprofile = \"bind\"\nname = \"d{dut}\"\n"));
            }
            let plan = plan(&text);
            let tasks = &plan.tasks;
            prop_assert_eq!(tasks.len(), plan.points.len() * runs as usize);
            prop_assert_eq!(tasks.iter().collect::<HashSet<_>>().len(), tasks.len());
            for point in 0..plan.points.len() {
                let of_it: Vec<u32> = tasks
                    .iter()
                    .filter_map(|task| match *task {
                        Task::Search { point: p, run } if p == point => Some(run),
                        _ => None,
                    })
                    .collect();
                prop_assert_eq!(of_it, (1..=runs).collect::<Vec<_>>());
            }
        }
    }
}
