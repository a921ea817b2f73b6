//! All tables of a report, each defined once for all formats.

mod authorities;
mod certified;
mod goals;
mod hosts;
mod machine;
mod papers;
mod point;
pub(super) mod standings;

pub(super) use goals::goals;
pub(super) use machine::{points, runs, trials};
pub(super) use papers::papers;

use super::analysis::{
    Analysis, Clause, Evidence, Lost, LostAt, Met, ModelResult, OverloadRow, PlacesOfLoss,
    QueueCheckRow, Slope, VariantInfo,
};
use super::numbers;
use super::table::{Cell, Column, Table, columns, rate_if, two};
use crate::report::json::word;

/// The tables for people, in order, without empty ones.
pub(super) fn all(analysis: &Analysis) -> Vec<Table> {
    let mut tables = vec![
        standings::standings(analysis),
        point::results(analysis),
        point::pass_probability(analysis),
        conditions(analysis),
        variants(analysis),
        hosts::hosts(analysis),
        hosts::shares(analysis),
        certified::self_tests(analysis),
        sender(analysis),
        losses(analysis),
        point::path(analysis),
        models(analysis),
        authorities::authorities(analysis),
        goals(analysis),
        overload(analysis),
        soak(analysis),
        queue(analysis),
    ];
    tables.extend(machines(analysis));
    tables.extend([hashes(analysis), statement(analysis)]);
    tables.retain(|table| !table.rows.is_empty());
    tables.into_iter().map(Table::explained).collect()
}

static NAME: [Column<VariantInfo>; 1] = columns![v: VariantInfo; "variant", "variant" => &v.name;];

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

/// How the trials ended, and how well the sender kept to its schedule: the worst of all valid trials, beside the limits.
fn sender(analysis: &Analysis) -> Table {
    let columns = columns![e: Evidence;
        "passed", "passed" => e.passed;
        "failed", "failed" => e.failed;
        "invalid", "invalid" => match e.invalid.is_empty() {
            true => Cell::Count(0),
            false => Cell::list(e.invalid.iter().map(|(why, trials)| format!("{trials} {why}"))),
        };
        "lateness_ns_p99", "lateness p99" => e.sender.map(|s| Cell::Span(s.lateness_ns_p99));
        "lateness_ns_max", "max" => e.sender.map(|s| Cell::Span(s.lateness_ns_max));
        "lateness_limit_ns", "limit" => e.sender.map(|s| Cell::Span(s.lateness_limit_ns));
        "bin_10ms_pct_max", "10 ms bins (%)" => e.sender.map(|s| two(s.bin_10ms_deviation_pct_max));
        "bin_100ms_pct_max", "100 ms bins (%)" => e.sender.map(|s| two(s.bin_100ms_deviation_pct_max));
        "rate_error_limit_pct", "limit (%)" => e.sender.and_then(|s| s.rate_error_limit_pct);
    ];
    let table = Table::new(
        "sender",
        "Timing of the sender",
        "Was the Tester fast enough, and did it keep to its schedule? Trials by outcome: invalid ones say nothing about the \
         DUT and were repeated. Lateness and bins are those of the worst trial that passed or failed: how late queries \
         left, and the largest deviation from the queries due in 10 and 100 ms, with the limits of a valid trial; \
         narrow bins hold few queries.",
    );
    let rows = analysis.evidence.iter().map(|e| (e.variant, e));
    by_variant(analysis, table, &columns, rows)
}

/// Where queries were lost, and whose loss it is.
type LossRow = (&'static str, &'static str, Lost);

fn losses(analysis: &Analysis) -> Table {
    let columns = columns![row: LossRow;
        "place", "queries" => row.0;
        "whose", "whose" => row.1;
        "valid_trials", "in valid trials" => row.2.valid_trials;
        "invalid_trials", "in invalid ones" => row.2.invalid_trials;
    ];
    let mut table = Table::new(
        "losses",
        "Losses",
        "Where were queries lost? Those of the DUT are what a search looks for; in valid trials the Tester has none.",
    );
    let mut rows: Vec<(usize, LossRow)> = Vec::new();
    for (variant, losses) in known_losses(analysis) {
        let row = |at: &LostAt| {
            let whose = if at.place.is_dut() { "DUT" } else { "Tester" };
            (at.place.words(), whose, at.lost)
        };
        let places = losses.places.iter().map(row);
        let all = places.chain([("lost at an unknown place", "unknown", losses.undecided)]);
        let some = all.filter(|(_, _, lost)| *lost != Lost::default());
        rows.extend(some.map(|row| (variant, row)));
    }
    let shared = known_losses(analysis).filter(|(_, losses)| losses.shared);
    table.notes.extend(shared.map(|(variant, _)| {
        let name = analysis.name_of(variant);
        format!("{name}: other programs use the counters as well, which are evidence, not proof.")
    }));
    let rows = rows.iter().map(|(variant, row)| (*variant, row));
    by_variant(analysis, table, &columns, rows).grouped()
}

fn known_losses(analysis: &Analysis) -> impl Iterator<Item = (usize, &PlacesOfLoss)> {
    let evidence = analysis.evidence.iter();
    evidence.filter_map(|it| Some((it.variant, it.losses.as_ref()?)))
}

/// Names and values.
static PAIR: [Column<(String, Cell)>; 2] = columns![pair: (String, Cell);
    "name", "what" => &pair.0;
    "value", "value" => pair.1.clone();
];

fn conditions(analysis: &Analysis) -> Table {
    let pairs = analysis.conditions.iter();
    Table::new(
        "conditions",
        "Conditions",
        "Conditions of all trials, and the settings of the plan.",
    )
    .with(
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

fn models(analysis: &Analysis) -> Table {
    let columns = columns![m: ModelResult;
        "model", "over" => m.model;
        "rate_qps", "at" => m.rate_qps;
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
         straight line over a share. Those of reply times are fitted to their means at the lowest rate that \
         all cells passed, since the model has no waiting.",
    );
    let rows = analysis.models.iter().map(|m| (m.variant, m));
    by_variant(analysis, table, &columns, rows)
}

fn overload(analysis: &Analysis) -> Table {
    let columns = columns![r: OverloadRow;
        "rate_qps", "offered" => r.rate_qps;
        "goodput_qps", "answered in time" =>
            rate_if(r.goodput_qps, r.doubtful, r.certified);
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
        "verdict", "in words" => &s.verdict;
    ];
    let mut table = Table::new(
        "soak",
        "Soak",
        "Changes over time, by a Mann-Kendall test (two-sided).",
    );
    table.notes.extend(analysis.soaks.iter().map(|soak| {
        let length_s = soak.rows.last().map_or(0.0, |row| row.at_s);
        format!(
            "{} at {} queries/s for {}: {} queries without a valid answer in time.",
            analysis.name_of(soak.variant),
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
        "median_qps", "median" => rate_if(r.median, false, r.certified);
        "calculated_qps", "calculated" => rate_if(r.calculated, false, r.certified);
    ];
    let mut table = Table::new(
        "queue",
        "Stored requests",
        "Rates by duration and timeout, in queries per second.",
    );
    let checks = analysis.queue_checks.iter();
    table.notes.extend(
        checks
            .clone()
            .map(|check| format!("{}: {}", analysis.name_of(check.variant), check.verdict)),
    );
    let rows = checks.flat_map(|check| check.rows.iter().map(|row| (check.variant, row)));
    by_variant(analysis, table, &columns, rows).grouped()
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
            ("Began", session.began.clone()),
            ("Ended", session.ended.clone()),
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

fn statement(analysis: &Analysis) -> Table {
    let columns = columns![c: Clause;
        "clause", "clause" => c.id;
        "asks", "asks for" => c.asks;
        "level", "level" => c.level;
        "met", "met" => word(c.met);
        "why", "why" => &c.why;
    ];
    let verdicts = [Met::Met, Met::NotMet, Met::NotApplicable, Met::NotKnown];
    let counts = verdicts.map(|met| {
        let clauses = analysis.statement.iter().filter(|c| c.met == met);
        format!("{} {}", clauses.count(), word(met))
    });
    let caption = "RFC 8219, clause by clause.";
    let mut table = Table::new("statement", "RFC 8219 statement", caption);
    table.notes.push(format!("{}.", counts.join(", ")));
    let numbers =
        "B-1 to B-28 are numbers of this report; each clause names its section of RFC 8219.";
    table.notes.push(numbers.to_owned());
    table.with(&columns, &analysis.statement)
}
