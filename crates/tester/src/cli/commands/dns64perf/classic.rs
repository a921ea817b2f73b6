//! `dns64bench dns64perf --classic`: the program of Lencse 2015.

use std::io::{self, Write};
use std::sync::atomic::Ordering;

use super::super::measure::may_load;
use super::super::{Failure, exit, interrupt, print};
use super::arguments::Classic;
use super::arguments::EXPERIMENTS;
use super::experiment::Experiment;
use super::remark;
use crate::cli::args::MayLoadArgs;
use crate::rig::RigError;

/// Runs all experiments; prints the time of each at its end, in milliseconds.
pub(super) fn run(arguments: &[String], may: MayLoadArgs) -> Result<u8, Failure> {
    let classic = Classic::parse(arguments)?;
    may_load(std::iter::once(classic.server), may)?;
    let interrupted = interrupt()?;
    let mut all = Vec::with_capacity(EXPERIMENTS);
    for b in 0..=u8::MAX {
        let experiment = classic.experiment(b)?;
        print(|out| write_line(out, experiment))?;
        all.push(experiment);
        if interrupted.load(Ordering::Relaxed) {
            return Err(RigError::Interrupted.into());
        }
    }
    remark(&summary(&all));
    Ok(exit::PASSED)
}

fn write_line(out: &mut impl Write, experiment: Experiment) -> io::Result<()> {
    writeln!(out, "{:.3}", milliseconds(experiment))
}

/// The figures of Lencse 2015, table I, and in addition the number of missing answers.
fn summary(all: &[Experiment]) -> Vec<String> {
    let n = all.len() as f64;
    let times = all.iter().copied().map(milliseconds);
    let average = times.clone().sum::<f64>() / n;
    let squares: f64 = times.clone().map(|ms| (ms - average).powi(2)).sum();
    let deviation = (squares / (n - 1.0)).sqrt();
    let maximum = times.fold(0.0, f64::max);
    let rate = EXPERIMENTS as f64 * 1000.0 / average;
    let answered: usize = all.iter().map(|e| e.answered).sum();
    let with_aaaa: usize = all.iter().map(|e| e.with_aaaa).sum();
    let lost = all.len() * EXPERIMENTS - answered;
    vec![
        format!(
            "Time of an experiment: average {average:.3} ms, standard deviation {deviation:.3} ms, \
             maximum {maximum:.3} ms"
        ),
        format!("AAAA queries per second: {rate:.0}"),
        format!(
            "Lost: {lost}, answered without AAAA: {}",
            answered - with_aaaa
        ),
    ]
}

fn milliseconds(experiment: Experiment) -> f64 {
    experiment.elapsed_ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_figures_of_table_1() {
        let experiment = |ms: u64, answered, with_aaaa| Experiment {
            elapsed_ns: ms * 1_000_000,
            answered,
            with_aaaa,
        };
        let all = [
            experiment(42, 256, 256),
            experiment(49, 255, 250),
            experiment(56, 256, 256),
        ];
        let expected = [
            "Time of an experiment: average 49.000 ms, standard deviation 7.000 ms, maximum 56.000 ms",
            // Equation (1): 256 / 0.049 s.
            "AAAA queries per second: 5224",
            "Lost: 1, answered without AAAA: 5",
        ];
        assert_eq!(summary(&all), expected);
        let mut text = Vec::new();
        write_line(&mut text, all[0]).unwrap();
        assert_eq!(text, b"42.000\n");
    }
}
