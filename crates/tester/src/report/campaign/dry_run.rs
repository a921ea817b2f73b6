//! What a plan is about to do, as text: `dns64bench run --dry-run`.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::time::Duration;

use dns64_transport::clock::Nanos;

use crate::campaign::estimate::{Cost, Estimate};
use crate::campaign::plan::{Plan, Variant};
use crate::campaign::tasks::{point_name, points};
use crate::quantity::Span;
use crate::report::Thousands;

/// Writes the plan's size, its points, what it takes, and where it leaves RFC 8219.
///
/// # Errors
///
/// Those of `out`.
pub fn write(out: &mut dyn Write, plan: &Plan, estimate: &Estimate) -> io::Result<()> {
    heading(out, plan)?;
    costs(out, estimate)?;
    papers(out, plan, estimate)?;
    for remark in plan.remarks() {
        writeln!(out, "Remark: {remark}.")?;
    }
    Ok(())
}

fn heading(out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
    let points = points(plan);
    writeln!(out, "Plan {}", plan.name)?;
    if !plan.description.is_empty() {
        writeln!(out, "{}", plan.description)?;
    }
    writeln!(out)?;
    let names = plan
        .variants
        .iter()
        .map(|Variant { name, .. }| name.as_str());
    list(out, "variants", &names.collect::<Vec<_>>())?;
    let cells: Vec<String> = points
        .iter()
        .filter(|point| point.variant == 0)
        .map(|point| point_name(plan, point).1)
        .collect();
    list(out, "cells", &cells)?;
    writeln!(
        out,
        "  {:<9} {} x {} = {} points, {} runs of each",
        "points",
        plan.variants.len(),
        cells.len(),
        points.len(),
        plan.search.runs
    )?;
    writeln!(
        out,
        "  {:<9} of {}, timeout {}",
        "trials",
        Span(plan.load.duration_ns),
        Span(plan.load.timeout_ns)
    )?;
    writeln!(out)
}

/// Up to a dozen items, one on a line.
fn list(out: &mut dyn Write, what: &str, items: &[impl Display]) -> io::Result<()> {
    for (i, item) in items.iter().take(LIST_MAX).enumerate() {
        let what = if i == 0 { what } else { "" };
        writeln!(out, "  {what:<9} {item}")?;
    }
    match items.len().saturating_sub(LIST_MAX) {
        0 => Ok(()),
        more => writeln!(out, "  {:<9} and {more} more", ""),
    }
}

fn costs(out: &mut dyn Write, estimate: &Estimate) -> io::Result<()> {
    writeln!(out, "{:>35}{:>37}", "trials", "time")?;
    writeln!(
        out,
        "  {:<16}{:>7}  {:>9} {:>9} {:>9}  {:>10}  {:>10}",
        "", "tasks", "at least", "likely", "at most", "likely", "at most"
    )?;
    let mut line = |what: &dyn Display, tasks: u64, cost: &Cost| {
        writeln!(
            out,
            "  {what:<16}{:>7}  {:>9} {:>9} {:>9}  {:>10}  {:>10}",
            Thousands(tasks).to_string(),
            Thousands(cost.least_trials).to_string(),
            Thousands(cost.likely_trials).to_string(),
            Thousands(cost.most_trials).to_string(),
            Long(cost.likely_ns),
            Long(cost.most_ns)
        )
    };
    for (kind, tasks, cost) in &estimate.rows {
        line(kind, *tasks, cost)?;
    }
    let tasks = estimate.rows.iter().map(|(_, tasks, _)| tasks).sum();
    line(&"in all", tasks, &estimate.total)?;
    writeln!(
        out,
        "\nThe rates are not known yet. \"At least\" is for the DUTs that take the fewest trials, \
         \"likely\" for a first rate\nwithin 16 times of what is found, \"at most\" for the DUTs that \
         take the most, all to their end; invalid trials\nare repeated and come on top."
    )
}

fn papers(out: &mut dyn Write, plan: &Plan, estimate: &Estimate) -> io::Result<()> {
    let papers = &estimate.papers;
    writeln!(
        out,
        "The script of paper 002 (figure 3) would take {} for the searches alone: {} trials, {} \
         in each search of\n0..{} queries/s to within 1, every trial to its end ({} and {}), 10 s \
         of rest after it.",
        Long(papers.time_ns),
        Thousands(papers.trials),
        papers.trials_per_search,
        Thousands(papers.max_qps),
        Span(plan.load.duration_ns),
        Span(plan.load.timeout_ns)
    )
}

/// A long time in its two largest units: "2h 5m".
#[derive(Clone, Copy, Debug)]
pub struct Long(pub Nanos);

impl Display for Long {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE_S: u64 = 60;
        const HOUR_S: u64 = 60 * MINUTE_S;
        const DAY_S: u64 = 24 * HOUR_S;
        let s = Duration::from_nanos(self.0).as_secs();
        let text = match s {
            0..MINUTE_S => format!("{s}s"),
            MINUTE_S..HOUR_S => format!("{}m {}s", s / MINUTE_S, s % MINUTE_S),
            HOUR_S..DAY_S => format!("{}h {}m", s / HOUR_S, s % HOUR_S / MINUTE_S),
            _ => format!("{}d {}h", s / DAY_S, s % DAY_S / HOUR_S),
        };
        f.pad(&text)
    }
}

/// More items than this are counted.
const LIST_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::campaign::estimate::estimate;

    #[test]
    fn a_dry_run_says_what_is_done_and_how_long_it_takes() {
        let plan = Plan::parse(
            "x.toml",
            "name = \"small\"\ndescription = \"Two servers.\"\n[trial]\nduration = \"5s\"\n\
             [search]\nruns = 3\nresolution = \"1%\"\nmax-rate = \"100k\"\n[cells]\n\
             aaaa-share = [\"0%\", \"100%\"]\n[[dut]]\nprofile = \"bind\"\n[[dut]]\n\
             profile = \"unbound\"\n[overload]\nfactors = [1, 2]\n",
        )
        .unwrap();
        let mut text = Vec::new();
        write(&mut text, &plan, &estimate(&plan)).unwrap();
        expect![[r#"
            Plan small
            Two servers.

              variants  bind
                        unbound
              cells     AAAA 0%, cached 0%
                        AAAA 100%, cached 0%
              points    2 x 2 = 4 points, 3 runs of each
              trials    of 5 s, timeout 1 s

                                         trials                                 time
                                tasks   at least    likely   at most      likely     at most
              self-tests            2         10        18        32      1m 12s       3m 7s
              searches             12         28       104       244      8m 19s     26m 44s
              overload curves       2          4         4         4         29s         29s
              in all               16         42       126       280      10m 0s     30m 20s

            The rates are not known yet. "At least" is for the DUTs that take the fewest trials, "likely" for a first rate
            within 16 times of what is found, "at most" for the DUTs that take the most, all to their end; invalid trials
            are repeated and come on top.
            The script of paper 002 (figure 3) would take 54m 24s for the searches alone: 204 trials, 17 in each search of
            0..100,000 queries/s to within 1, every trial to its end (5 s and 1 s), 10 s of rest after it.
            Remark: trials of 5 s are shorter than the 60 s that RFC 8219 section 9.2 asks for.
            Remark: 3 runs of each search are fewer than the 20 that RFC 8219 section 9.2 asks for.
        "#]].assert_eq(&String::from_utf8(text).unwrap());
    }

    #[test]
    fn times_are_told_in_two_units() {
        let s = [59, 60, 3_599, 3_600, 86_399, 86_400, 900_000];
        let texts = s.map(|s| Long(s * 1_000_000_000).to_string());
        assert_eq!(
            texts,
            [
                "59s", "1m 0s", "59m 59s", "1h 0m", "23h 59m", "1d 0h", "10d 10h"
            ]
        );
    }
}
