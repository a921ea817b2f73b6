//! Figures of loads beyond the rate that was found, and of long ones below it.

use super::super::analysis::{Analysis, OverloadCurve, OverloadRow, SoakResult, SoakRow};
use super::super::html::ReportError;
use super::super::numbers;
use super::axis::Axis;
use super::canvas::{self, MEDIUM, SMALL};
use super::svg::Role;
use super::{Figure, Group, Table, float, variant_name};

/// Goodput and latency over the offered rate, by variant.
pub(super) fn overload(analysis: &Analysis) -> Result<Vec<Group>, ReportError> {
    let mut groups = Vec::new();
    for curve in &analysis.overloads {
        if curve.rows.is_empty() {
            continue;
        }
        let mut figures = vec![goodput(curve)?];
        if curve.rows.iter().any(|row| row.rtt_ns_p99.is_some()) {
            figures.push(latency(curve)?);
        }
        groups.push(Group {
            title: variant_name(analysis, curve.variant).to_owned(),
            figures,
        });
    }
    Ok(groups)
}

fn offered(curve: &OverloadCurve) -> Axis {
    let rates = curve.rows.iter().map(|row| row.rate_qps);
    let highest = float(rates.max().unwrap_or(0));
    Axis::from_zero("offered rate (queries/s)", highest, 5, |v| {
        numbers::decimal(v, 0)
    })
}

fn goodput(curve: &OverloadCurve) -> Result<Figure, ReportError> {
    let x = offered(curve);
    let best = curve.rows.iter().map(|row| row.goodput_qps);
    let best = best.fold(0.0, f64::max);
    let y = Axis::from_zero("goodput (queries/s)", best * 1.1, 5, |v| {
        numbers::decimal(v, 0)
    });
    let title = "Valid answers in time over the offered rate; dashes: all of them; hollow: beyond the certified rate, or disturbed";
    let svg = canvas::draw(title, MEDIUM, (&x, &y), |plot| {
        let all = (best * 1.1).min(x.to);
        plot.dashes(&[plot.at(0.0, 0.0), plot.at(all, all)], Role::Muted)?;
        let base = float(curve.base_rate_qps);
        let rate = [plot.at(base, 0.0), plot.at(base, best * 1.1)];
        plot.path(&rate, Role::Grid, 1.0)?;
        let mut places = Vec::new();
        for row in &curve.rows {
            places.push((plot.at(float(row.rate_qps), row.goodput_qps), row.doubtful));
        }
        let line: Vec<_> = places.iter().map(|(place, _)| *place).collect();
        plot.path(&line, Role::Series(0), 1.5)?;
        places
            .into_iter()
            .try_for_each(|(place, doubtful)| plot.point(place, doubtful, 0))
    })?;
    Ok(figure(title, svg, table_of_overload(curve)))
}

fn latency(curve: &OverloadCurve) -> Result<Figure, ReportError> {
    let rows = || {
        let pair = |p: Option<u64>, rate, doubtful| p.map(|p| (float(rate), float(p), doubtful));
        let p50 = move |row: &OverloadRow| pair(row.rtt_ns_p50, row.rate_qps, row.doubtful);
        let p99 = move |row: &OverloadRow| pair(row.rtt_ns_p99, row.rate_qps, row.doubtful);
        let median: Vec<_> = curve.rows.iter().filter_map(p50).collect();
        let tail: Vec<_> = curve.rows.iter().filter_map(p99).collect();
        [median, tail]
    };
    let times = || rows().into_iter().flatten().map(|(_, time, _)| time);
    let x = offered(curve);
    let y = Axis::logarithmic(
        "round-trip time",
        times().fold(f64::INFINITY, f64::min),
        times().fold(0.0, f64::max),
        numbers::round_span,
    );
    let title = "Round-trip times over the offered rate";
    let svg = canvas::draw(title, MEDIUM, (&x, &y), |plot| {
        for (series, rows) in rows().into_iter().enumerate() {
            let place = |(rate, time, _): &(f64, f64, bool)| plot.at(*rate, *time);
            let line: Vec<_> = rows.iter().map(place).collect();
            plot.path(&line, Role::Series(series), 1.5)?;
            for row in &rows {
                plot.point(place(row), row.2, series)?;
            }
        }
        Ok(())
    })?;
    let mut figure = figure(title, svg, table_of_overload(curve));
    figure.legend = vec![
        (canvas::key(0)?, "median".to_owned()),
        (canvas::key(1)?, "99th percentile".to_owned()),
    ];
    Ok(figure)
}

fn figure(title: &str, svg: String, table: Table) -> Figure {
    Figure {
        title: title.to_owned(),
        svg,
        legend: Vec::new(),
        table,
        file: "results.json",
    }
}

fn table_of_overload(curve: &OverloadCurve) -> Table {
    let mut table = Table::new([
        "Offered (queries/s)",
        "Times the rate",
        "Goodput (queries/s)",
        "Median round-trip time",
        "99th percentile",
        "Doubtful",
    ]);
    let span =
        |ns: Option<u64>| ns.map_or(numbers::NOTHING.to_owned(), |ns| numbers::span(float(ns)));
    for row in &curve.rows {
        let base = float(curve.base_rate_qps);
        table.row([
            numbers::decimal(float(row.rate_qps), 0),
            numbers::decimal(float(row.rate_qps) / base, 2),
            numbers::decimal(row.goodput_qps, 0),
            span(row.rtt_ns_p50),
            span(row.rtt_ns_p99),
            if row.doubtful { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

/// What changed during soaks, by variant.
pub(super) fn soak(analysis: &Analysis) -> Result<Vec<Group>, ReportError> {
    let mut groups = Vec::new();
    for soak in &analysis.soaks {
        let mut figures = Vec::new();
        for measured in measured(soak) {
            figures.extend(over_time(soak, &measured)?);
        }
        if !figures.is_empty() {
            groups.push(Group {
                title: variant_name(analysis, soak.variant).to_owned(),
                figures,
            });
        }
    }
    Ok(groups)
}

/// What a figure shows of a segment, if it is known.
type OfSegment = Box<dyn Fn(&SoakRow) -> Option<f64>>;

/// One figure of a soak.
struct Measured {
    title: &'static str,
    unit: String,
    value: OfSegment,
    places: usize,
}

fn measured(soak: &SoakResult) -> [Measured; 5] {
    let memory = soak.rows.iter().filter_map(|row| row.memory_bytes);
    let (byte, byte_name) = numbers::byte_unit(float(memory.max().unwrap_or(0)));
    let milliseconds = |ns: u64| float(ns) / 1e6;
    [
        Measured {
            title: "Resident memory",
            unit: byte_name.to_owned(),
            value: Box::new(move |row| Some(float(row.memory_bytes?) / byte)),
            places: 1,
        },
        Measured {
            title: "Open descriptors",
            unit: "descriptors".to_owned(),
            value: Box::new(|row| Some(float(row.descriptors?))),
            places: 0,
        },
        Measured {
            title: "Threads",
            unit: "threads".to_owned(),
            value: Box::new(|row| Some(float(row.threads?))),
            places: 0,
        },
        Measured {
            title: "99th percentile of the round-trip times",
            unit: "ms".to_owned(),
            value: Box::new(move |row| Some(milliseconds(row.rtt_ns_p99))),
            places: 3,
        },
        Measured {
            title: "99.9th percentile of the round-trip times",
            unit: "ms".to_owned(),
            value: Box::new(move |row| Some(milliseconds(row.rtt_ns_p999))),
            places: 3,
        },
    ]
}

/// A figure of it, if there is anything to draw.
fn over_time(soak: &SoakResult, measured: &Measured) -> Result<Option<Figure>, ReportError> {
    let values: Vec<_> = soak
        .rows
        .iter()
        .filter_map(|row| Some((row.at_s, (measured.value)(row)?)))
        .collect();
    let Some(&(end, _)) = values.last() else {
        return Ok(None);
    };
    let (unit_s, unit) = match end {
        s if s < 600.0 => (1.0, "s"),
        s if s < 7200.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    };
    let x = Axis::linear(
        format!("time ({unit})"),
        0.0,
        end / unit_s,
        5,
        numbers::short,
    );
    let highest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let y = Axis::from_zero(measured.unit.clone(), highest, 4, numbers::short);
    let svg = canvas::draw(measured.title, SMALL, (&x, &y), |plot| {
        let place = |(at, value): &(f64, f64)| plot.at(at / unit_s, *value);
        let line: Vec<_> = values.iter().map(place).collect();
        plot.path(&line, Role::Series(0), 1.5)?;
        line.into_iter()
            .try_for_each(|place| plot.dot(place, 3.0, Role::Series(0)))
    })?;
    let (time, value) = (
        format!("Time ({unit})"),
        format!("{} ({})", measured.title, measured.unit),
    );
    let mut table = Table::new([&time, &value]);
    for (at, value) in &values {
        table.row([
            numbers::decimal(at / unit_s, 2),
            numbers::decimal(*value, measured.places),
        ]);
    }
    Ok(Some(figure(measured.title, svg, table)))
}
