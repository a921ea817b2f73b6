//! The timing of a sender, from the raw data of a trial: queries sent in each 100 ms and in each 10 ms, as in figures
//! 2, 4 and 5 of Lencse and Pivoda 2018.

pub mod figure;
pub mod read;

use std::io::{self, Write};
use std::path::Path;

use dns64_transport::clock::{Nanos, SECOND};

use super::Thousands;
use super::raw::Header;
use crate::lab::{Blame, LabError};

/// Widths of the bins: Lencse and Pivoda 2018, figures 2 and 4, and figure 5.
const WIDTHS_NS: [Nanos; 2] = [100_000_000, 10_000_000];

/// Sending times of the queries of a trial.
#[derive(Clone, Debug)]
pub struct Evenness {
    /// Parameters of the trial.
    pub header: Header,
    /// Number of sent queries.
    pub queries: u64,
    /// Time from the first query to the last.
    pub total_ns: Nanos,
    /// Counts in bins of 100 ms and of 10 ms, starting at the first query.
    pub bins: [Bins; 2],
}

/// Queries sent in spans of equal width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins {
    /// Width of a bin.
    pub width_ns: Nanos,
    /// Queries sent in each bin, up to the last bin with any.
    pub sent: Vec<u64>,
}

/// Summary of bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Number of bins within the schedule, without the one that it ends in.
    pub bins: usize,
    /// Fewest queries sent in a bin.
    pub min: u64,
    /// Most queries sent in a bin.
    pub max: u64,
    /// Largest deviation from the queries due in a bin, in per cent of these.
    pub deviation_pct_max: f64,
}

impl Evenness {
    /// Reads the raw data twice: for the time of the first query, and for all times relative to it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not the raw data of a trial.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let (mut queries, mut first, mut last) = (0, Nanos::MAX, 0);
        let header = read::each(path, |sent_ns| {
            queries += 1;
            first = first.min(sent_ns);
            last = last.max(sent_ns);
        })?;
        let total_ns = last.saturating_sub(first);
        if queries == 0 || total_ns > LONGEST_NS {
            return Err(Blame::Request.error(format!(
                "{} has {queries} queries within {} s; a trial has at least one, and takes a day at \
                 most",
                path.display(),
                total_ns / SECOND
            )));
        }
        let mut bins = WIDTHS_NS.map(|width_ns| Bins {
            width_ns,
            sent: vec![0; index(total_ns / width_ns) + 1],
        });
        read::each(path, |sent_ns| {
            for bins in &mut bins {
                bins.add(sent_ns.saturating_sub(first));
            }
        })?;
        Ok(Self {
            header,
            queries,
            total_ns,
            bins,
        })
    }

    /// Due time of the last query, relative to the first.
    pub fn specified_ns(&self) -> Nanos {
        let header = &self.header;
        let bursts_before = header.requests.saturating_sub(1) / header.burst;
        share(bursts_before, header.delay_ns, header.threads)
    }

    /// Average number of queries due in a time.
    pub fn due_in(&self, span_ns: Nanos) -> f64 {
        let header = &self.header;
        let queries = header.burst as f64 * header.threads as f64;
        queries * span_ns as f64 / header.delay_ns as f64
    }

    /// Length of the schedule: up to the due time of the query that would follow the last.
    pub fn length_ns(&self) -> Nanos {
        let header = &self.header;
        let queries = header.burst.saturating_mul(header.threads);
        share(header.requests, header.delay_ns, queries)
    }

    /// The bins to draw: without the one in which sending ended, unless it is the only one. Late queries fall into bins
    /// after the schedule.
    fn whole<'a>(&self, bins: &'a Bins) -> &'a [u64] {
        let whole = index(self.length_ns().max(self.total_ns) / bins.width_ns);
        &bins.sent[..whole.clamp(1, bins.sent.len())]
    }

    /// Summary of the bins; `None` if the schedule is shorter than one bin.
    pub fn spread(&self, bins: &Bins) -> Option<Spread> {
        // A trial that ended early sent nothing in the bins after its end.
        let whole = index(self.length_ns() / bins.width_ns).min(bins.sent.len());
        let due = self.due_in(bins.width_ns);
        let sent = &bins.sent[..whole];
        let deviation = |&n: &u64| 100.0 * (n as f64 - due).abs() / due;
        Some(Spread {
            bins: whole,
            min: *sent.iter().min()?,
            max: *sent.iter().max()?,
            deviation_pct_max: sent.iter().map(deviation).fold(0.0, f64::max),
        })
    }
}

impl Bins {
    fn add(&mut self, moment_ns: Nanos) {
        // The file may have grown between the two readings.
        if let Some(bin) = self.sent.get_mut(index(moment_ns / self.width_ns)) {
            *bin += 1;
        }
    }
}

/// Writes the table of a trial.
///
/// # Errors
///
/// Those of the writer.
pub fn write_text(out: &mut impl Write, timing: &Evenness) -> io::Result<()> {
    let header = &timing.header;
    writeln!(
        out,
        "{} queries sent to {} port {}; {} due in {:.3} s, threads: {}, burst size: {}",
        Thousands(timing.queries),
        header.server,
        header.port,
        Thousands(header.requests),
        timing.specified_ns() as f64 / SECOND as f64,
        header.threads,
        header.burst,
    )?;
    writeln!(
        out,
        "total sending time {} ns, {:.2}% of specified\n",
        Thousands(timing.total_ns),
        100.0 * timing.total_ns as f64 / timing.specified_ns().max(1) as f64
    )?;
    let spreads = timing.bins.each_ref().map(|bins| timing.spread(bins));
    let told = |tell: fn(Spread) -> String| spreads.map(|s| s.map_or("-".into(), tell));
    let width = |bins: &Bins| format!("{} ms", bins.width_ns / 1_000_000);
    let due = |bins: &Bins| format!("{:.1}", timing.due_in(bins.width_ns));
    for (label, [wide, narrow]) in [
        ("queries sent in", timing.bins.each_ref().map(width)),
        ("whole bins", told(|s| Thousands(s.bins as u64).to_string())),
        ("due in each", timing.bins.each_ref().map(due)),
        ("fewest sent", told(|s| Thousands(s.min).to_string())),
        ("most sent", told(|s| Thousands(s.max).to_string())),
        (
            "largest deviation",
            told(|s| format!("{:.2}%", s.deviation_pct_max)),
        ),
    ] {
        writeln!(out, "{label:<22}{wide:>14}{narrow:>14}")?;
    }
    Ok(())
}

/// `a * b / c`, rounded down.
fn share(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Longest trial: a day. A file that claims more would need unlimited memory.
const LONGEST_NS: Nanos = 24 * 60 * 60 * SECOND;

#[cfg(test)]
mod tests;
