//! The text of `dns64bench run --dry-run`: what a plan will do.

use std::fmt::Display;
use std::io::{self, Write};

use crate::campaign::estimate::{Estimate, names_last};
use crate::campaign::plan::tasks::point_name;
use crate::campaign::plan::{Plan, Variant};
use crate::campaign::status::Phase;
use crate::lab::zone::Room;
use crate::report::numbers::{Thousands, wait};

/// Writes the plan's size, its points, its cost, the zones of its authorities, and its deviations from RFC 8219.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    out: &mut dyn Write,
    plan: &Plan,
    estimate: &Estimate,
    rooms: &[Room],
) -> io::Result<()> {
    heading(out, plan)?;
    costs(out, estimate)?;
    names(out, plan, estimate)?;
    for room in rooms {
        writeln!(out, "{room}.")?;
    }
    for remark in plan.remarks() {
        writeln!(out, "Remark: {remark}.")?;
    }
    Ok(())
}

fn heading(out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
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
    let cells: Vec<String> = plan
        .points
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
        plan.points.len(),
        plan.search.runs
    )?;
    for table in ["tester", "trial", "search"] {
        let settings = plan.settings_of(table).into_iter();
        let settings = settings.map(|(name, value)| format!("{name} {value}"));
        let settings: Vec<_> = settings.collect();
        writeln!(out, "  {table:<9} {}", settings.join(", "))?;
    }
    if let Some(sources) = plan.sources() {
        writeln!(out, "  {:<9} {sources}", "sources")?;
    }
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
    let mut line = |row: [&dyn Display; 5]| {
        let [what, tasks, trials, time, most] = row.map(|cell| cell.to_string());
        writeln!(
            out,
            "  {what:<16}{tasks:>7}{trials:>9}  {time:>11}  {most:>11}"
        )
    };
    line([&"", &"tasks", &"trials", &"time", &"at most"])?;
    let tasks: u64 = estimate.rows.iter().map(|(_, tasks, _)| tasks).sum();
    let all = (&"in all" as &dyn Display, tasks, &estimate.total);
    let rows = estimate.rows.iter();
    let rows = rows.map(|(kind, tasks, cost)| {
        let name: &dyn Display = match kind {
            Phase::SelfTest => &"self-tests",
            Phase::Search => &"searches",
            Phase::Goals => &"goals",
            Phase::Overload => &"overload curves",
            Phase::Soak => &"soaks",
            Phase::Preparing | Phase::Over => &"others",
        };
        (name, *tasks, cost)
    });
    for (what, tasks, cost) in rows.chain([all]) {
        let (time, most) = (wait(cost.time_ns), wait(cost.most_ns));
        line([
            what,
            &Thousands(tasks),
            &Thousands(cost.trials),
            &time,
            &most,
        ])?;
    }
    writeln!(
        out,
        "\nThe time assumes a first rate within a factor of 16 of the result; \"at most\" is for the DUTs with the most \
         trials,\nall of full length. Repetitions of invalid trials are extra."
    )
}

/// How long the names last for servers that are not restarted when the names are used up.
fn names(out: &mut dyn Write, plan: &Plan, estimate: &Estimate) -> io::Result<()> {
    let range = plan.load.cidr;
    for &(server, trials, length_ns) in &estimate.running {
        write!(
            out,
            "{server} is already running and gets each name once: the names of {range} suffice for its {} likely trials at\n{} \
             queries/s on average",
            Thousands(trials),
            Thousands(names_last(range, length_ns))
        )?;
        match range.widened_to(1 << 32).filter(|all| *all != range) {
            Some(all) => {
                let rate = Thousands(names_last(all, length_ns));
                writeln!(out, ", at {rate} with namespace = \"{all}\".")?;
            }
            None => writeln!(out, ".")?,
        }
    }
    Ok(())
}

/// Maximum number of items in a list; the rest is only counted.
const LIST_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::campaign::estimate::estimate;

    #[test]
    fn dry_run_shows_how_long_names_of_a_running_server_last() {
        let told = |namespace: &str| {
            let plan = Plan::parse(
                "x.toml",
                &format!(
                    "[tester]\nuncertified = true\nnamespace = \"{namespace}\"\n[trial]\n\
                     duration = \"10s\"\n[search]\nmethod = \"fixed-range\"\nmax-rate = 1024\n\
                     resolution = 1\nruns = 2\n[[dut]]\nserver = \"2001:db8::53\"\n"
                ),
            );
            let plan = plan.unwrap();
            let mut text = Vec::new();
            names(&mut text, &plan, &estimate(&plan)).unwrap();
            String::from_utf8(text).unwrap()
        };
        // 20 trials of 10 s.
        expect![[r#"
            [2001:db8::53]:53 is already running and gets each name once: the names of 10.0.0.0/8 suffice for its 20 likely trials at
            83,886 queries/s on average, at 21,474,836 with namespace = "0.0.0.0/0".
        "#]].assert_eq(&told("10.0.0.0/8"));
        let all = told("0.0.0.0/0");
        assert!(all.ends_with("queries/s on average.\n"), "{all}");
    }

    #[test]
    fn dry_run_shows_tasks_and_duration() {
        let plan = Plan::parse(
            "x.toml",
            "name = \"small\"\ndescription = \"Two servers.\"\n[trial]\nduration = \"5s\"\n\
             [search]\nruns = 3\nresolution = \"1%\"\nmax-rate = \"100k\"\n[cells]\n\
             aaaa-share = [\"0%\", \"100%\"]\n[[dut]]\nprofile = \"bind\"\n[[dut]]\n\
             profile = \"unbound\"\n[overload]\nfactors = [1, 2]\n",
        )
        .unwrap();
        let mut text = Vec::new();
        write(&mut text, &plan, &estimate(&plan), &[]).unwrap();
        expect![[r#"
            Plan small
            Two servers.

              variants  bind
                        unbound
              cells     AAAA 0 %, cached 0 %
                        AAAA 100 %, cached 0 %
              points    2 x 2 = 4 points, 3 runs of each
              tester    uncertified false, self-tests 3, lab auto, setup three-device, authority built-in, threads 1, transport udp, segmentation on, backend auto, burst 64, suffix dns64perf.test., addresses 1, cname-share 0, cname-length 1, pref64 auto
              trial     duration 5s, timeout 1s, types AAAA=100%, edns none, max-stall 10ms, max-burst 32 queries, max-rate-error 10 %, max-stolen 1 %
              search    max-rate 100k, resolution 1%, restart never, runs 3, method galloping, settle 0s, order interleaved

                                tasks   trials         time      at most
              self-tests            2       26   1 min 46 s   8 min 15 s
              searches             12      100   6 min 31 s  24 min 32 s
              overload curves       2        4         26 s         26 s
              in all               16      130   8 min 44 s  33 min 13 s

            The time assumes a first rate within a factor of 16 of the result; "at most" is for the DUTs with the most trials,
            all of full length. Repetitions of invalid trials are extra.
            Remark: other than RFC 8219 section 9.2 asks: trials of 5 s instead of 60 s, 3 searches instead of 20.
        "#]].assert_eq(&String::from_utf8(text).unwrap());
    }
}
