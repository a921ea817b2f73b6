//! Figures of authoritative servers: rates over cores, memory and start time over the names of the zone.

use std::collections::BTreeSet;

use super::super::analysis::{Analysis, ZoneGrowth, ZoneRow};
use super::super::numbers;
use super::{Figure, Series, lines, values};
use crate::report::chart::Axis;
use crate::statistics::line::FittedLine;

/// File with the numbers of all of them.
const DATA: &str = "results.json";

/// All figures.
pub(super) fn authorities(analysis: &Analysis) -> Vec<Figure> {
    let rows = analysis.authorities.rows.iter();
    let sizes: BTreeSet<u64> = rows.map(|row| row.names).collect();
    let rates = sizes.into_iter().filter_map(|names| rates(analysis, names));
    let zones = &analysis.authorities.zones;
    let over_names = [MEMORY, START].into_iter();
    let over_names = over_names.filter(|_| !zones.is_empty());
    rates
        .chain(over_names.map(|over| over_zones(zones, &over)))
        .collect()
}

/// Rates over cores of the authorities with this number of names, if any of them has several numbers of cores.
fn rates(analysis: &Analysis, names: u64) -> Option<Figure> {
    let rows = analysis.authorities.rows.iter();
    let mut rows: Vec<_> = rows
        .filter(|row| row.names == names && row.cores.is_some())
        .collect();
    rows.sort_by_key(|row| row.cores);
    let cores: BTreeSet<_> = rows.iter().filter_map(|row| row.cores).collect();
    let most = *cores.last().filter(|_| cores.len() > 1)? as f64;
    let mut series: Vec<Series> = Vec::new();
    let order = analysis.authorities.rows.iter();
    for row in order.filter(|row| row.names == names && row.cores.is_some()) {
        if !series.iter().any(|known| known.name == row.server) {
            series.push(Series::new(series.len(), &row.server));
        }
    }
    for row in rows {
        let own = series.iter_mut().find(|series| series.name == row.server);
        if let (Some(own), Some(cores), Some(median)) = (own, row.cores, row.median) {
            let range = row.p1.zip(row.p99).map(|(p1, p99)| [p1, p99]);
            own.add((cores as f64, median), range, row.lower_bound);
        }
    }
    let title = format!(
        "Median rate of the authorities over cores, with {} names; whiskers from the 1st to the 99th \
         percentile; hollow: lower bound",
        numbers::Thousands(names)
    );
    let x = Axis::linear("cores", (0.0, most + 0.5)).whole();
    let y = Axis::from_zero("queries/s", values(&series));
    Some(lines(&title, (x, y), &series, DATA))
}

/// A quantity over the names of the zone.
struct OverNames {
    title: &'static str,
    axis: &'static str,
    of: fn(&ZoneRow) -> Option<f64>,
    line: fn(&ZoneGrowth) -> Option<FittedLine>,
    /// Size of the unit of the axis.
    unit: f64,
}

const MEMORY: OverNames = OverNames {
    title: "Memory of the authorities over the names of the zone",
    axis: "MiB (PSS)",
    of: |row| row.pss_bytes.map(|bytes| bytes as f64),
    line: |zone| zone.memory,
    unit: 1_048_576.0,
};

const START: OverNames = OverNames {
    title: "Time of the authorities to the first right answer over the names of the zone",
    axis: "seconds",
    of: |row| row.start_ns,
    line: |zone| zone.start,
    unit: 1e9,
};

fn over_zones(zones: &[ZoneGrowth], over: &OverNames) -> Figure {
    const MILLION: f64 = 1e6;
    let rows = zones.iter().flat_map(|zone| &zone.rows);
    let most = rows.map(|row| row.names as f64).fold(0.0, f64::max);
    let series = |(index, zone): (usize, &ZoneGrowth)| {
        let name = match zone.cores {
            Some(cores) => format!("{}, {}", zone.server, numbers::count(cores, "core")),
            None => zone.server.clone(),
        };
        let places = zone
            .rows
            .iter()
            .filter_map(|row| Some((row.names as f64 / MILLION, (over.of)(row)? / over.unit)));
        let mut series = Series::new(index, &name).with(places);
        if let Some(line) = (over.line)(zone) {
            let ends = [0.0, most];
            series.dash(ends.map(|names| (names / MILLION, line.at(names).max(0.0) / over.unit)));
        }
        series
    };
    let series: Vec<_> = zones.iter().enumerate().map(series).collect();
    let title = format!("{}; dashes: straight line", over.title);
    let x = Axis::linear("million names", (0.0, most / MILLION * 1.04));
    let y = Axis::from_zero(over.axis, values(&series));
    lines(&title, (x, y), &series, DATA)
}
