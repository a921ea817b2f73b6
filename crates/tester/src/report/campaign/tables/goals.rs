//! The results of goals beside those of the runs.

use super::point::MEDIAN;
use super::{by_variant, numbers};
use crate::procedure::goal::STRICT;
use crate::procedure::search::SearchEnd;
use crate::report::campaign::analysis::{Analysis, GoalRow, PointResult};
use crate::report::campaign::table::{Cell, Table, columns};
use crate::report::campaign::words;

/// What was found at a point, by its runs or for a goal.
struct Found<'a> {
    point: &'a PointResult,
    goal: String,
    rate: Cell,
    /// Ends of the range, of the interval, or the relevant bounds.
    ends: [Option<f64>; 2],
    result: &'static str,
    valid_trials: u64,
    took_s: f64,
}

impl<'a> Found<'a> {
    fn by_runs(point: &'a PointResult) -> Self {
        let found = point.agreement;
        Self {
            point,
            goal: STRICT.to_owned(),
            rate: (MEDIAN.cell)(point),
            ends: [found.map(|it| it.low_qps), found.and_then(|it| it.high_qps)],
            result: match found {
                Some(found) if !found.unstable => "stable",
                Some(_) => "unstable",
                None => "no rate",
            },
            valid_trials: point.steps().filter(|it| it.outcome.is_valid()).count() as u64,
            took_s: point.runs.iter().map(|run| run.took_s).sum(),
        }
    }

    fn for_goal(point: &'a PointResult, row: &GoalRow) -> Self {
        let found = &row.result;
        Self {
            point,
            goal: found.goal.to_string(),
            rate: found.throughput_qps.into(),
            ends: [found.lower_qps, found.upper_qps].map(|end| end.map(|qps| qps as f64)),
            result: match found.end {
                Some(SearchEnd::Found) => "regular",
                _ => "irregular",
            },
            valid_trials: row.valid_trials,
            took_s: numbers::seconds(row.took_ns),
        }
    }
}

/// Rate, interval and cost of the runs of each point with goals, and of each goal.
pub(in super::super) fn goals(analysis: &Analysis) -> Table {
    let columns = columns![it: Found<'_>;
        "cell", "cell" => words::cell_and_spans(it.point);
        "goal", "goal" => &it.goal;
        "rate_qps", "rate" => it.rate.clone();
        "lower_qps", "from" => it.ends[0];
        "upper_qps", "to" => it.ends[1];
        "result", "result" => it.result;
        "valid_trials", "valid trials" => it.valid_trials;
        "took_s", "time (s)" => Cell::Decimal(it.took_s, 0);
    ];
    let table = Table::new(
        "goals",
        "Goals",
        "The runs of a point (rfc8219: median and range) and its goals, which are not results of RFC 8219, in queries per \
         second, with their valid trials and their time. A goal after RFC 9971 has its conditional throughput and its relevant \
         bounds, and is irregular if one is missing: then the rate is limited by the Tester or the plan, or nothing was low \
         enough. An interval has the rate at which half of the trials pass and the ends of its 95 % interval, and is irregular \
         if they are too far apart. All goals share the trials and the time of one search.",
    );
    let of_point = analysis.goals.chunk_by(|a, b| a.point == b.point);
    let rows = of_point.flat_map(|goals| {
        let point = &analysis.points[goals[0].point];
        let goals = goals.iter().map(move |row| Found::for_goal(point, row));
        std::iter::once(Found::by_runs(point)).chain(goals)
    });
    let rows: Vec<Found<'_>> = rows.collect();
    let rows = rows.iter().map(|row| (row.point.variant, row));
    by_variant(analysis, table, &columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::audit::tests::of_kind;
    use crate::report::campaign::analyse::analyse;
    use crate::report::campaign::csv;
    use crate::report::campaign::tests::sample::SEAL;

    #[test]
    fn goals_are_beside_the_runs_of_their_point() {
        let of = |name| {
            let (plan, lines) = of_kind(name);
            csv::text(&goals(&analyse(&plan, &lines, SEAL))).unwrap()
        };
        let kinds = ["goals", "interval", "wide-interval", "load"];
        expect_test::expect![[r#"
            variant,cell,goal,rate_qps,lower_qps,upper_qps,result,valid_trials,took_s
            unbound,"AAAA 0 %, cached 0 %",rfc8219,5000,5000,5500,stable,12,156
            unbound,"AAAA 0 %, cached 0 %","loss=0%,exceed=50%,trial=1s,sum=20s,width=0.5%",5000,5000,5015,regular,98,1176
            unbound,"AAAA 0 %, cached 0 %","loss=2%,exceed=50%,initial=1s,trial=4s,sum=8s,width=2%",5000,5062,5125,regular,98,1176
            variant,cell,goal,rate_qps,lower_qps,upper_qps,result,valid_trials,took_s
            unbound,"AAAA 0 %, cached 0 %",rfc8219,5000,5000,5500,stable,12,156
            unbound,"AAAA 0 %, cached 0 %","interval,loss=0%,exceed=50%,trial=1s,sum=72s,width=2%",5015,4970,5031,regular,105,1260
            unbound,"AAAA 0 %, cached 0 %","loss=0%,exceed=50%,trial=1s,sum=20s,width=0.5%",5000,5000,5015,regular,105,1260
            variant,cell,goal,rate_qps,lower_qps,upper_qps,result,valid_trials,took_s
            unbound,"AAAA 0 %, cached 0 %",rfc8219,5000,5000,5500,stable,12,156
            unbound,"AAAA 0 %, cached 0 %","interval,loss=0%,exceed=50%,trial=1s,sum=30s,width=0.01%",5001,4999,5002,irregular,32,384
            variant,cell,goal,rate_qps,lower_qps,upper_qps,result,valid_trials,took_s
        "#]].assert_eq(&kinds.map(of).concat());
    }
}
