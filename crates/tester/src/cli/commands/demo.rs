//! `dns64bench demo`: the whole job in about a minute.

use std::io::Write;

use clap::Parser;

use super::measure::{COARSE, with_output};
use super::{Failure, exit, print};
use crate::cli::args::{DemoArgs, SearchArgs};
use crate::cli::resolve::Needs;
use crate::cli::{Cli, Command};
use crate::lab::profile::Profile;
use crate::procedure::search::SearchSpec;
use crate::report::{Conditions, Thousands};
use crate::rig::certify::Question;

/// Servers that the demo looks for, in this order, when none is named.
const CANDIDATES: [&str; 4] = ["unbound", "knot-resolver", "bind", "pdns-recursor"];

/// The searches of the demo, and what the user would type for one of them.
const SEARCHES: usize = 3;
const SEARCH: [&str; 6] = [
    "dns64bench",
    "search",
    "--duration=2s",
    "--resolution=2%",
    "--start-rate=5k",
    "--dut",
];

/// What the demo is not.
const STAMP: &str =
    "a demonstration; RFC 8219 section 9.2 asks for 20 searches with trials of 60 s";

/// Measures a DNS64 server that is installed here.
pub(super) fn run(args: DemoArgs) -> Result<u8, Failure> {
    let dut = match args.dut {
        Some(dut) => dut,
        None => installed()?,
    };
    let args = search_args(&dut)?;
    let measure = args.measure.resolve(Needs::Dut)?;
    with_output(&measure, |session| {
        let mut rig = session.rig(true)?;
        let question = Question::Highest {
            resolution: COARSE,
            max_qps: None,
        };
        let certified = session.certify(&rig, question, None)?;
        let mut spec = SearchSpec::from_start(args.start_rate);
        spec.resolution = args.resolution;
        spec.ceiling_qps = certified;
        let mut code = exit::PASSED;
        let mut rates = Vec::new();
        for _ in 0..SEARCHES {
            let result = session.search(&mut rig, spec.clone())?;
            // The next search starts where this one ended; a pass and a fail of its own confirm
            // its answer all the same.
            spec.start_qps = result.rate_qps.unwrap_or(args.start_rate);
            code = code.max(exit::of_search(&result.end));
            rates.push((result.rate_qps, result.trials.len()));
        }
        let mut conditions = session.conditions(&rig, certified);
        conditions.not_a_measurement.push(STAMP.into());
        show(&conditions, &rates)?;
        Ok(code)
    })
}

fn search_args(dut: &str) -> Result<SearchArgs, Failure> {
    let typed = SEARCH.into_iter().chain([dut]);
    match Cli::try_parse_from(typed).map(|cli| cli.command) {
        Ok(Command::Search(args)) => Ok(args),
        Ok(_) => Err(Failure::new(
            exit::USAGE,
            anyhow::anyhow!("the demo is a search"),
        )),
        Err(error) => Err(Failure::new(exit::USAGE, error)),
    }
}

/// The first candidate whose program is here.
fn installed() -> Result<String, Failure> {
    let mut packages = Vec::new();
    for name in CANDIDATES {
        let profile = Profile::built_in(name)?;
        if profile.program(None).is_ok() {
            return Ok(name.to_owned());
        }
        packages.extend(profile.package);
    }
    let error = format!(
        "no DNS64 server is installed; one of these Debian packages gives one: {}",
        packages.join(", ")
    );
    Err(Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(error)))
}

fn show(conditions: &Conditions, rates: &[(Option<u64>, usize)]) -> Result<(), Failure> {
    let rate =
        |qps: Option<u64>| qps.map_or("none".into(), |q| format!("{} queries/s", Thousands(q)));
    let mut sorted: Vec<_> = rates.iter().map(|(qps, _)| *qps).collect();
    sorted.sort_unstable();
    let fastest = rates.iter().filter_map(|(qps, _)| *qps).max().unwrap_or(0);
    print(|out| {
        writeln!(
            out,
            "DNS64 rate: {} (median of {SEARCHES} searches)",
            rate(sorted[SEARCHES / 2])
        )?;
        for reason in conditions.watermarks(fastest) {
            writeln!(out, "NOT A MEASUREMENT: {reason}")?;
        }
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        writeln!(out, "\n  device under test  {}", known(&conditions.dut))?;
        writeln!(
            out,
            "  lab                {} {}",
            known(&conditions.lab),
            known(&conditions.setup)
        )?;
        for (role, cores) in &conditions.cpus {
            writeln!(out, "  {:<17}  {cores}", format!("cpus of {role}"))?;
        }
        writeln!(
            out,
            "  self-test          certified up to {}",
            rate(conditions.certified_rate_qps)
        )?;
        for (i, (qps, trials)) in rates.iter().enumerate() {
            writeln!(
                out,
                "  search {}           {} ({trials} trials)",
                i + 1,
                rate(*qps)
            )?;
        }
        conditions
            .notes
            .iter()
            .try_for_each(|note| writeln!(out, "  note               {note}"))
    })
}
