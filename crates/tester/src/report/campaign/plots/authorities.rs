//! Figures of authoritative servers: rates over cores, memory and start time over the names of the zone.

use std::collections::BTreeSet;

use super::super::analysis::{Analysis, AuthorityRow, ZoneGrowth, ZoneRow};
use super::super::numbers;
use super::{Figure, Table};
use crate::report::chart::{self, Axis, Chart, MEDIUM, Mark, Role, Stroke};
use crate::statistics::line::Line;

/// File with the numbers of all of them.
const FILE: &str = "results.json";

/// All figures.
pub(super) fn authorities(analysis: &Analysis) -> Vec<Figure> {
    let sizes: BTreeSet<u64> = analysis
        .authorities
        .rows
        .iter()
        .map(|row| row.names)
        .collect();
    let rates = sizes.into_iter().filter_map(|names| rates(analysis, names));
    rates.chain(zones(analysis)).collect()
}

/// Rates over cores of the authorities with this number of names, if any of them has several numbers of cores.
fn rates(analysis: &Analysis, names: u64) -> Option<Figure> {
    let rows = analysis.authorities.rows.iter();
    let rows: Vec<_> = rows
        .filter(|row| row.names == names && row.cores.is_some())
        .collect();
    let cores: BTreeSet<_> = rows.iter().map(|row| row.cores).collect();
    let mut servers: Vec<&str> = Vec::new();
    for row in &rows {
        if !servers.contains(&row.server.as_str()) {
            servers.push(&row.server);
        }
    }
    let most = cores.last().copied().flatten()? as f64;
    let x = Axis::linear("cores", (0.0, most + 0.5)).whole();
    let y = Axis::from_zero("queries/s", rows.iter().filter_map(|row| row.p99));
    let mut chart = Chart::new(MEDIUM, x, y);
    for (place, server) in servers.iter().enumerate() {
        let own = rows.iter().filter(|row| row.server == *server);
        let mut own: Vec<_> = own
            .filter_map(|row| {
                Some((
                    row.cores? as f64,
                    [row.p1?, row.p99?],
                    row.median?,
                    row.lower_bound,
                ))
            })
            .collect();
        own.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (cores, ends, ..) in &own {
            let ends = ends.map(|rate| (*cores, rate));
            chart.whisker(Role::variant(place), Mark::LEVEL, ends);
        }
        let curve = own
            .iter()
            .map(|&(cores, _, median, hollow)| (cores, median, hollow));
        chart.curve(place, &curve.collect::<Vec<_>>());
    }
    let title = format!(
        "Median rate of the authorities over cores, with {} names; whiskers from the 1st to the 99th \
         percentile; hollow: lower bound",
        numbers::Thousands(names)
    );
    let rate = |rate: Option<f64>| rate.map_or(numbers::NOTHING.to_owned(), numbers::rate);
    let row = |row: &&AuthorityRow| {
        let cores = row.cores.map_or(String::new(), |cores| cores.to_string());
        [
            row.server.clone(),
            cores,
            rate(row.p1),
            rate(row.median),
            rate(row.p99),
        ]
    };
    let heads = "Server | Cores | p1 (queries/s) | Median (queries/s) | p99 (queries/s)";
    let table = Table::new(heads, rows.iter().map(row));
    (cores.len() > 1).then(|| Figure {
        legend: keys(servers.iter().map(|server| (*server).to_owned())),
        ..Figure::new(&title, chart.svg(&title), table, FILE)
    })
}

fn keys(names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    names
        .enumerate()
        .map(|(place, name)| (chart::key(place), name))
        .collect()
}

/// A quantity over the names of the zone.
struct Over {
    title: &'static str,
    axis: &'static str,
    head: &'static str,
    of: fn(&ZoneRow) -> Option<f64>,
    line: fn(&ZoneGrowth) -> Option<Line>,
    /// Size of the unit of the axis.
    unit: f64,
    name: fn(f64) -> String,
}

const MEMORY: Over = Over {
    title: "Memory of the authorities over the names of the zone",
    axis: "MiB (PSS)",
    head: "Memory (PSS)",
    of: |row| row.pss_bytes.map(|bytes| bytes as f64),
    line: |zone| zone.memory,
    unit: 1_048_576.0,
    name: numbers::bytes,
};

const START: Over = Over {
    title: "Time of the authorities to the first right answer over the names of the zone",
    axis: "seconds",
    head: "Start",
    of: |row| row.start_ns,
    line: |zone| zone.start,
    unit: 1e9,
    name: numbers::span,
};

fn zones(analysis: &Analysis) -> impl Iterator<Item = Figure> {
    let zones = &analysis.authorities.zones;
    let figures = [MEMORY, START].into_iter();
    figures.filter_map(|over| (!zones.is_empty()).then(|| over_names(zones, &over)))
}

fn over_names(zones: &[ZoneGrowth], over: &Over) -> Figure {
    const MILLION: f64 = 1e6;
    let rows = || zones.iter().flat_map(|zone| &zone.rows);
    let most = rows().map(|row| row.names as f64).fold(0.0, f64::max);
    let highest = rows().filter_map(over.of).map(|value| value / over.unit);
    let x = Axis::linear("million names", (0.0, most / MILLION * 1.04));
    let mut chart = Chart::new(MEDIUM, x, Axis::from_zero(over.axis, highest));
    for (place, zone) in zones.iter().enumerate() {
        let role = Role::variant(place);
        if let Some(line) = (over.line)(zone) {
            let ends =
                [0.0, most].map(|names| (names / MILLION, line.at(names).max(0.0) / over.unit));
            chart.line(role, Stroke::Dashed, ends);
        }
        let places = zone.rows.iter();
        let places = places
            .filter_map(|row| Some((row.names as f64 / MILLION, (over.of)(row)? / over.unit)));
        chart.marks(role, Mark::variant(place, false), places);
    }
    let title = format!("{}; dashes: straight line", over.title);
    let name = |zone: &ZoneGrowth| match zone.cores {
        Some(cores) => format!("{}, {}", zone.server, numbers::count(cores, "core")),
        None => zone.server.clone(),
    };
    let row = |zone: &ZoneGrowth, names: f64, what: &str, value: Option<f64>| {
        let value = value.map_or(numbers::NOTHING.to_owned(), over.name);
        [
            name(zone),
            numbers::decimal(names, 0),
            what.to_owned(),
            value,
        ]
    };
    let table = zones.iter().flat_map(|zone| {
        let measured = zone.rows.iter();
        let measured = measured.map(|it| row(zone, it.names as f64, "measured", (over.of)(it)));
        let whole = zone.whole_names as f64;
        let by_line = (over.line)(zone).map(|line| line.at(whole));
        let by_line = row(
            zone,
            whole,
            if zone.extrapolated {
                "extrapolated"
            } else {
                "by the line"
            },
            by_line,
        );
        measured.chain([by_line]).collect::<Vec<_>>()
    });
    let table = Table::new(
        &format!("Server | Names | Figure is | {}", over.head),
        table,
    );
    Figure {
        legend: keys(zones.iter().map(name)),
        ..Figure::new(&title, chart.svg(&title), table, FILE)
    }
}
