//! The distribution of the runs, for gnuplot.

use super::plotted::{OWNER, owner};
use crate::report::campaign::analysis::Analysis;
use crate::report::campaign::distribution::{Step, steps};
use crate::report::campaign::table::{Column, Table, columns};
use crate::report::campaign::words;

/// Distribution of the rates of the runs: a group for each point.
pub(in super::super) fn distribution(analysis: &Analysis) -> Table {
    let title: [Column<String>; 1] = columns![title: String; "title", "" => title;];
    let columns = columns![step: (Step, Option<bool>);
        "rate_qps", "" => step.0.rate_qps;
        "runs", "" => step.0.runs;
        "probability", "" => step.0.share;
        "cumulative", "" => step.0.cumulative;
        "certified", "" => words::certified(step.1);
    ];
    let points = analysis.points.iter();
    let groups = points.map(|point| (point, steps(point)));
    let groups: Vec<_> = groups.filter(|(_, steps)| !steps.is_empty()).collect();
    let of_rows = groups
        .iter()
        .flat_map(|(point, steps)| steps.iter().map(move |_| *point));
    let named = |point| words::point(analysis, point) + words::unless_certified(point.certified);
    let rows = groups
        .iter()
        .flat_map(|(point, steps)| steps.iter().map(|step| (*step, point.certified)));
    let caption = "rate in queries/s, runs that found it, their share, share of the runs up to it, certified: \
                   1 yes, 0 no, -1 need not be, numbers of the variant and of its cell";
    Table::new("", "", caption)
        .with(&title, of_rows.clone().map(named))
        .with(&columns, rows)
        .with(&OWNER, of_rows.map(|point| owner(analysis, point)))
        .grouped()
}
