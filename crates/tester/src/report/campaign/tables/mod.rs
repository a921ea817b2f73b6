//! All tables of a report, each defined once for all formats.

mod authorities;
mod authority;
mod certified;
mod distribution;
mod hosts;
mod machine;
mod papers;
mod path;
mod plotted;
mod results;
pub(super) mod standings;

pub(super) use distribution::distribution;
pub(super) use machine::{points, runs, trials};
pub(super) use papers::papers;
pub(super) use plotted::{convergence, dut_only, latency, lateness, rates};

use super::analysis::{
    Analysis, Clause, Grid, GridCell, Met, ModelResult, OverloadRow, PointResult, QueueCheckRow,
    Scaling, ScalingRow, Session, Slope, VariantInfo,
};
use super::numbers;
use super::table::{Cell, Column, Table, columns, rate_if, two};
use crate::statistics::summary::{Flag, Summary};

/// The tables for people, in order, without empty ones.
pub(super) fn all(analysis: &Analysis) -> Vec<Table> {
    let mut tables = vec![
        standings::standings(analysis),
        results::results(analysis),
        conditions(analysis),
        variants(analysis),
        hosts::hosts(analysis),
        hosts::links(analysis),
        hosts::shares(analysis),
        certified::self_tests(analysis),
        certified::headroom(analysis),
        results::spread(analysis),
    ];
    tables.extend(analysis.grids.iter().map(|grid| self::grid(analysis, grid)));
    tables.extend([
        achieved(analysis),
        path::path(analysis),
        models(analysis),
        authorities::authorities(analysis),
        authorities::zones(analysis),
        scaling(analysis),
        authority::delays(analysis),
        authority::working_sets(analysis),
        overload(analysis),
        soak(analysis),
        queue(analysis),
        timing(analysis),
    ]);
    tables.extend(machines(analysis));
    tables.extend([
        hashes(analysis),
        sessions(analysis),
        statement(analysis),
        time(analysis),
    ]);
    tables.retain(|table| !table.rows.is_empty());
    tables.into_iter().map(Table::explained).collect()
}

static NAME: [Column<VariantInfo>; 1] = columns![v: VariantInfo; "variant", "variant" => &v.name;];

/// Columns that identify the point of a variant.
static CELL: [Column<PointResult>; 5] = columns![p: PointResult;
    "aaaa_pct", "AAAA (%)" => p.aaaa_pct;
    "cached_pct", "cached (%)" => p.cached_pct;
    "pattern", "pattern" => &p.pattern;
    "duration_s", "trial (s)" => p.duration_s;
    "timeout_s", "timeout (s)" => p.timeout_s;
];

/// Results of a point.
static FIGURES: [Column<PointResult>; 26] = columns![p: PointResult;
    "runs", "runs" => p.summary.as_ref().map_or(0, |s| s.runs);
    "average_qps", "average" => bound(p, |s| s.average);
    "median_qps", "median" => bound(p, |s| s.median);
    "p1_qps", "p1" => bound(p, |s| s.p1);
    "p99_qps", "p99" => bound(p, |s| s.p99);
    "standard_deviation_qps", "SD" => figure(p, |s| s.standard_deviation);
    "margin_of_error_999_qps", "MoE" => figure(p, |s| s.margin_of_error_999);
    "median_absolute_deviation_qps", "MAD" => figure(p, |s| s.median_absolute_deviation);
    "dispersion_pct", "disp. (%)" => figure(p, |s| s.dispersion_pct);
    "calculated_qps", "calculated" => bound(p, |s| s.calculated);
    "sustained_qps", "sustained" => p.stored.map(|s| two(s.sustainable_qps));
    "median_low_qps", "95 % from" => interval(p).map(|(low, _)| low);
    "median_high_qps", "95 % to" => interval(p).map(|(_, high)| high);
    "lower_bound", "lower bound" => p.lower_bound;
    "certified", "within it" => p.certified;
    "certified_qps", "certified" => p.certified_rate_qps;
    "headroom", "headroom" => p.headroom.map(two);
    "of_first", "of the first cell" => p.of_first.map(|part| Cell::Significant(part, 3));
    "achieved_aaaa_pct", "achieved AAAA (%)" => p.achieved.and_then(|a| a.aaaa_pct).map(two);
    "achieved_cached_pct", "achieved cached (%)" => p.achieved.map(|a| two(a.cached_pct));
    "amplification", "amplification" => p.achieved.map(|a| Cell::Decimal(a.amplification, 3));
    "lateness_ns_p99", "lateness p99" => p.timing.map(|t| Cell::Span(t.lateness_ns_p99));
    "worst_lateness_ns", "worst lateness" => p.timing.map(|t| Cell::Span(t.worst_lateness_ns));
    "tester_drops", "lost at Tester" => p.timing.map(|t| t.tester_drops);
    "memory_bytes_max", "memory" => p.memory_bytes_max.map(Cell::Bytes);
    "dut_cpu_pct", "DUT CPU (%)" => p.dut_cpu_pct.map(|pct| Cell::Decimal(pct, 0));
];

/// More results, which programs find in other files.
static FOR_PEOPLE: [Column<PointResult>; 7] = columns![p: PointResult;
    "rate_qps", "median" => match p.agreement {
        Some(found) if found.unstable => "unstable".into(),
        Some(found) => bound(p, |s| standings::Rounding::of(&found).down(s.median)),
        None => Cell::Nothing,
    };
    "range_qps", "range" => p.agreement.map(|found| standings::range(&found));
    "failed_qps", "failed at" => p.agreement.filter(|found| !found.unstable).and_then(|found| {
        let failed = standings::Rounding::of(&found).up(found.failed_qps?);
        Some(rate_if(failed, None))
    });
    "lateness_ns_max", "lateness max" => p.timing.map(|t| Cell::Span(t.lateness_ns_max));
    "bin_10ms_pct_max", "10 ms bins (%)" => p.timing.map(|t| two(t.bin_10ms_deviation_pct_max));
    "bin_100ms_pct_max", "100 ms bins (%)" => p.timing.map(|t| two(t.bin_100ms_deviation_pct_max));
    "flags", "flags" => flags(p);
];

/// The columns of a point with these keys, in the order of the keys.
fn pick(keys: &str) -> impl Iterator<Item = &'static Column<PointResult>> {
    let all = CELL.iter().chain(&FIGURES);
    let all = all.chain(&path::FIGURES).chain(&FOR_PEOPLE);
    let keys = keys.split_whitespace();
    keys.filter_map(move |key| all.clone().find(|column| column.key == key))
}

/// A rate of the runs; a lower bound if a run was limited.
fn bound(point: &PointResult, figure: impl Fn(&Summary) -> f64) -> Cell {
    let qps = point.summary.as_ref().map(figure);
    let cell = |qps| Cell::Rate {
        qps,
        at_least: point.lower_bound,
        uncertified: point.certified == Some(false),
    };
    qps.map(cell).into()
}

fn figure(point: &PointResult, figure: fn(&Summary) -> f64) -> Cell {
    point
        .summary
        .as_ref()
        .map(figure)
        .map(|value| Cell::Significant(value, 3))
        .into()
}

fn interval(point: &PointResult) -> Option<(f64, f64)> {
    point.summary.as_ref()?.median_interval
}

/// Why the summary is doubtful or missing.
fn flags(point: &PointResult) -> String {
    if let Some(summary) = &point.summary {
        let names = summary.flags.iter().map(|flag| match flag {
            Flag::Skewed { .. } => "skewed",
            Flag::Scattered { .. } => "scattered",
            Flag::Drift { .. } => "drift",
            Flag::FewRuns { .. } => "few runs",
        });
        let unstable = point.agreement.is_some_and(|found| found.unstable);
        let unstable = unstable.then_some("unstable").into_iter();
        return unstable.chain(names).collect::<Vec<_>>().join(", ");
    }
    // The exports have the reason for each run; here the kinds are enough.
    let mut kinds: Vec<_> = point.runs.iter().map(|run| run.ended.word()).collect();
    kinds.dedup();
    format!("no rate: {}", kinds.join(", ").replace('_', " "))
}

/// Adds a row for each point with data, in groups by variant. Columns that are equal for all points, or that have no
/// value, are omitted.
fn by_point(
    analysis: &Analysis,
    table: Table,
    figures: &str,
    has: fn(&PointResult) -> bool,
) -> Table {
    let all = &analysis.points;
    let spans = |p: &PointResult| (p.duration_s, p.timeout_s);
    let mut cell = "aaaa_pct cached_pct".to_owned();
    if all.iter().any(|p| !p.pattern.is_empty()) {
        cell += " pattern";
    }
    if all.iter().any(|p| spans(p) != spans(&all[0])) {
        cell += " duration_s timeout_s";
    }
    let mut points: Vec<_> = all.iter().filter(|p| has(p)).collect();
    points.sort_by_key(|point| point.variant);
    let rows = points.iter().map(|point| (point.variant, *point));
    by_variant(analysis, table, pick(&cell).chain(pick(figures)), rows)
        .without_empty_columns()
        .grouped()
}

/// Adds the name of the variant and the columns of its rows.
fn by_variant<'a, 'c, R: 'a + 'c>(
    analysis: &'a Analysis,
    table: Table,
    columns: impl IntoIterator<Item = &'c Column<R>>,
    rows: impl Iterator<Item = (usize, &'a R)> + Clone,
) -> Table {
    table
        .with(&NAME, rows.clone().map(|(v, _)| &analysis.variants[v]))
        .with(columns, rows.map(|(_, row)| row))
}

fn achieved(analysis: &Analysis) -> Table {
    let table = Table::new(
        "achieved",
        "Achieved shares and memory",
        "What the authority saw in trials that passed, beside what was asked for. Amplification: \
         queries to the authority for one query of the client; 2 in the worst case.",
    );
    if analysis.points.iter().all(|p| p.achieved.is_none()) {
        return table;
    }
    let figures = "achieved_aaaa_pct achieved_cached_pct amplification memory_bytes_max";
    by_point(analysis, table, figures, |_| true)
}

fn timing(analysis: &Analysis) -> Table {
    let table = Table::new(
        "timing",
        "Timing",
        "Lateness against the due time, largest deviation of bins of 10 and 100 ms from the queries \
         due in them, and datagrams lost at the Tester’s own sockets.",
    );
    let figures = "lateness_ns_p99 lateness_ns_max bin_10ms_pct_max bin_100ms_pct_max \
                   worst_lateness_ns tester_drops";
    by_point(analysis, table, figures, |point| point.timing.is_some())
}

/// Names and values.
static PAIR: [Column<(String, Cell)>; 2] = columns![pair: (String, Cell);
    "name", "what" => &pair.0;
    "value", "value" => pair.1.clone();
];

fn conditions(analysis: &Analysis) -> Table {
    let pairs = analysis.conditions.iter();
    Table::new("conditions", "Conditions", "What held for all trials.").with(
        &PAIR,
        pairs.map(|(name, value)| (name.clone(), value.into())),
    )
}

fn variants(analysis: &Analysis) -> Table {
    let columns = columns![v: VariantInfo;
        "version", "version" => v.version.as_ref();
        "cores", "cores" => Cell::list(v.cpus.iter().map(|(role, list)| {
            format!("{role}: {}", if list.is_empty() { "any" } else { list })
        }));
        "settings", "settings" => Cell::list(v.settings.iter().map(|(k, v)| format!("{k} = {v}")));
        "server", "answered at" => v.server.as_ref();
        "pref64", "prefix" => v.pref64.as_ref();
        "remarks", "remarks" => {
            let reasons = v.not_a_measurement.iter();
            let reasons = reasons.map(|reason| format!("Not a measurement: {reason}"));
            Cell::list(reasons.chain(v.notes.iter().cloned()))
        };
    ];
    let rows = analysis.variants.iter().enumerate();
    let table = Table::new("variants", "Variants", "What was measured.");
    by_variant(analysis, table, &columns, rows).without_empty_columns()
}

fn grid(analysis: &Analysis, grid: &Grid) -> Table {
    let title = format!("{} by both shares", analysis.variants[grid.variant].name);
    let caption = format!(
        "{title}: median, and 1st to 99th percentile, in queries per second. When everything is \
         cached, one cell stands for all."
    );
    let cell = |cell: GridCell| {
        let median = Cell::Rate {
            qps: cell.median,
            at_least: cell.lower_bound,
            uncertified: cell.certified == Some(false),
        };
        Cell::List(vec![median, Cell::Range(cell.p1, cell.p99)])
    };
    let mut table = Table::new("grid", &title, &caption);
    for row in &grid.rows {
        let head = numbers::pct(row.cached_pct).into();
        let cells = row.cells.iter().map(|found| found.map(cell).into());
        table
            .rows
            .push(std::iter::once(head).chain(cells).collect());
    }
    table.add_head("cached_pct", "cached \\ AAAA");
    for &share in &grid.aaaa_pct {
        table.add_head("median_qps", &numbers::pct(share));
    }
    table
}

fn models(analysis: &Analysis) -> Table {
    let columns = columns![m: ModelResult;
        "model", "over" => m.model;
        "equation", "equation" => match &m.refused {
            Some(why) => format!("refused: {why}"),
            None => m.equation.clone(),
        };
        "parameters", "parameters" => Cell::list(m.parameters.iter().filter(|_| m.refused.is_none()).map(|p| {
            format!("{} = {} {}", p.name, numbers::significant(p.value, 3), p.unit)
        }));
        "residual_pct_max", "largest residual (%)" => m.refused.is_none().then(|| two(m.residual_pct_max));
        "r_squared", "R²" => m.r_squared.filter(|_| m.refused.is_none()).map(|r| Cell::Decimal(r, 4));
    ];
    let table = Table::new(
        "models",
        "Models",
        "The models of work, fitted by least squares to the medians: the reciprocal of the rate is a \
         straight line over a share. Those of reply times are fitted to their means in the trial of the \
         median run, at the rate that was found; the time in queues is in them, which the model leaves out.",
    );
    let rows = analysis.models.iter().map(|m| (m.variant, m));
    by_variant(analysis, table, &columns, rows)
}

fn scaling(analysis: &Analysis) -> Table {
    let dut = columns![s: Scaling; "dut", "DUT" => &s.dut;];
    let columns = columns![r: ScalingRow;
        "cores", "cores" => r.cores;
        "median_qps", "median" => rate_if(r.median, r.certified);
        "per_core_qps", "per core" => rate_if(r.per_core, r.certified);
        "factor", "factor" => two(r.factor);
    ];
    let duts = analysis.scaling.iter();
    let of_rows = duts.clone().flat_map(|s| s.rows.iter().map(move |_| s));
    Table::new(
        "scaling",
        "Cores",
        "Scale-up: median rate by cores of the DUT, in queries per second, and its factor against the \
         fewest cores.",
    )
    .with(&dut, of_rows)
    .with(&columns, duts.flat_map(|s| &s.rows))
}

fn overload(analysis: &Analysis) -> Table {
    let columns = columns![r: OverloadRow;
        "rate_qps", "offered" => r.rate_qps;
        "goodput_qps", "answered in time" =>
            Cell::Rate {
                qps: r.goodput_qps,
                at_least: r.doubtful,
                uncertified: r.certified == Some(false),
            };
        "rtt_ns_p50", "RTT p50" => r.rtt_ns_p50.map(Cell::Span);
        "rtt_ns_p99", "RTT p99" => r.rtt_ns_p99.map(Cell::Span);
    ];
    let table = Table::new(
        "overload",
        "Overload",
        "One trial at each multiple of the rate that was found, with rates in queries per second. ≥ \
         marks a lower bound.",
    );
    let curves = analysis.overloads.iter();
    let rows = curves.flat_map(|curve| curve.rows.iter().map(|row| (curve.variant, row)));
    by_variant(analysis, table, &columns, rows)
}

fn soak(analysis: &Analysis) -> Table {
    let columns = columns![s: Slope;
        "of", "of" => s.of;
        "change", "change" => Cell::Significant(s.change, 2);
        "span_s", "over" => Cell::Wait(s.span_s);
        "per_hour", "per hour" => s.per_hour.map(|change| Cell::Significant(change, 2));
        "unit", "unit" => s.unit;
        "p", "p" => Cell::Probability(s.p);
        "verdict", "in words" => &s.verdict;
    ];
    let mut table = Table::new(
        "soak",
        "Soak",
        "What changed with time. p: probability of such a trend by chance (Mann-Kendall, two-sided).",
    );
    table.notes.extend(analysis.soaks.iter().map(|soak| {
        let length_s = soak.rows.last().map_or(0.0, |row| row.at_s);
        format!(
            "{} at {} queries/s for {}: {} queries without a valid answer in time.",
            analysis.variants[soak.variant].name,
            numbers::Thousands(soak.rate_qps),
            numbers::duration(length_s),
            numbers::Thousands(soak.shortfall)
        )
    }));
    let soaks = analysis.soaks.iter();
    let rows = soaks.flat_map(|soak| soak.slopes.iter().map(|slope| (soak.variant, slope)));
    by_variant(analysis, table, &columns, rows)
}

fn queue(analysis: &Analysis) -> Table {
    let columns = columns![r: QueueCheckRow;
        "duration_s", "duration (s)" => r.duration_s;
        "timeout_s", "timeout (s)" => r.timeout_s;
        "median_qps", "median" => rate_if(r.median, r.certified);
        "calculated_qps", "calculated" => rate_if(r.calculated, r.certified);
    ];
    let mut table = Table::new(
        "queue",
        "Stored requests",
        "Rates by duration and timeout, in queries per second, with the dispersion of each column.",
    );
    table.columns = by_variant(analysis, Table::default(), &columns, [].into_iter()).columns;
    for check in &analysis.queue_checks {
        let own = check.rows.iter().map(|row| (check.variant, row));
        let name = &analysis.variants[check.variant].name;
        table.notes.push(format!("{name}: {}", check.verdict));
        table
            .rows
            .extend(by_variant(analysis, Table::default(), &columns, own).rows);
        let dispersions = [check.median_dispersion_pct, check.calculated_dispersion_pct];
        let texts = [name, "dispersion (%)", ""].map(Cell::from);
        table
            .rows
            .push(texts.into_iter().chain(dispersions.map(two)).collect());
    }
    table.grouped()
}

/// The machine of each session, if it or its state differs from that of the session before.
fn machines(analysis: &Analysis) -> impl Iterator<Item = Table> {
    let mut before = None;
    let (of, is) = match analysis.hosts.rows.is_empty() {
        true => ("machine", ""),
        false => (
            "controller",
            ", which ran the plan; those that measured are the hosts",
        ),
    };
    let sessions = analysis.sessions.iter().zip(1..);
    sessions.filter_map(move |(session, number)| {
        let e = &session.environment;
        if before.replace(e) == Some(e) {
            return None;
        }
        let own = [
            ("Host", e.host.clone()),
            (
                "Processor",
                format!("{}, {} logical processors", e.cpu, e.cpus),
            ),
            ("Memory", numbers::bytes(e.memory_bytes as f64)),
            ("System", e.os.clone()),
            ("Kernel", e.kernel.clone()),
            ("Start of the machine", e.boot_id.clone()),
        ];
        let details = e
            .details
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()));
        let pairs = own.into_iter().chain(details);
        let title = format!("The {of} of session {number}");
        let table = Table::new("environment", &title, &format!("{title}{is}."));
        Some(table.with(
            &PAIR,
            pairs.map(|(name, value)| (name.to_owned(), value.into())),
        ))
    })
}

fn hashes(analysis: &Analysis) -> Table {
    let columns = columns![hash: (String, String);
        "file", "file" => &hash.0;
        "sha256", "SHA-256" => &hash.1;
    ];
    let variants = analysis.variants.iter().enumerate();
    let rows = variants.flat_map(|(variant, v)| v.hashes.iter().map(move |hash| (variant, hash)));
    let caption = "SHA-256 of programs and configurations.";
    by_variant(
        analysis,
        Table::new("hashes", "Hashes", caption),
        &columns,
        rows,
    )
}

fn sessions(analysis: &Analysis) -> Table {
    let number = columns![number: usize; "session", "session" => number.to_string();];
    let columns = columns![s: Session;
        "began", "began" => &s.began;
        "host", "host" => &s.environment.host;
        "ended", "ended" => &s.ended;
        "torn_bytes", "half a line found (octets)" => s.torn_bytes;
    ];
    let caption = "The processes that worked on the campaign, with crashes.";
    Table::new("sessions", "Sessions", caption)
        .with(&number, 1..=analysis.sessions.len())
        .with(&columns, &analysis.sessions)
}

fn statement(analysis: &Analysis) -> Table {
    let columns = columns![c: Clause;
        "clause", "clause" => c.id;
        "asks", "asks for" => c.asks;
        "level", "level" => c.level;
        "met", "met" => c.met.word();
        "why", "why" => &c.why;
    ];
    let verdicts = [Met::Met, Met::NotMet, Met::NotApplicable, Met::NotKnown];
    let counts = verdicts.map(|met| {
        let clauses = analysis.statement.iter().filter(|c| c.met == met);
        format!("{} {}", clauses.count(), met.word())
    });
    let caption = "RFC 8219, clause by clause.";
    let mut table = Table::new("statement", "RFC 8219 statement", caption);
    table.notes.push(format!("{}.", counts.join(", ")));
    let numbers =
        "B-1 to B-28 are numbers of this report; each clause names its section of RFC 8219.";
    table.notes.push(numbers.to_owned());
    table.with(&columns, &analysis.statement)
}

fn time(analysis: &Analysis) -> Table {
    let time = &analysis.time;
    let searches = format!("Searches ({})", numbers::count(time.trials, "trial"));
    let mut rows = vec![
        (searches.as_str(), Cell::Wait(time.searches_s)),
        ("Self-tests", Cell::Wait(time.self_tests_s)),
        ("Overload curves and soaks", Cell::Wait(time.others_s)),
        (
            "The papers’ script for the searches",
            Cell::Wait(time.fixed_range_s),
        ),
    ];
    if time.fixed_range_s > 0.0 {
        let pct = time.searches_s / time.fixed_range_s * 100.0;
        rows.push(("Searches took of that (%)", Cell::Decimal(pct, 1)));
    }
    Table::new(
        "time",
        "Where the time went",
        "Time of the campaign, and what the papers’ script would have taken for the same searches: a \
         fixed range, each trial to its end.",
    )
    .with(&PAIR, rows.into_iter().map(|(name, value)| (name.to_owned(), value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::campaign::analyse::analyse;
    use crate::report::campaign::tests::sample::{SEAL, small};

    #[test]
    fn every_key_of_a_table_is_a_column() {
        let (plan, lines) = small();
        let tables = all(&analyse(&plan, &lines, SEAL));
        let columns = |key: &str| {
            let table = tables.iter().find(|table| table.key == key).unwrap();
            table.columns.len()
        };
        // A variant, two shares, duration and timeout, and the figures.
        let expected = [5 + 9, 5 + 3, 5 + 4, 5 + 6];
        assert_eq!(
            ["results", "headroom", "achieved", "timing"].map(columns),
            expected
        );
        for table in &tables {
            let width = table.columns.len();
            assert!(
                table.rows.iter().all(|row| row.len() == width),
                "{}",
                table.key
            );
        }
    }
}
