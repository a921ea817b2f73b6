//! Tables with a row for each point, and the columns of all of them.

use super::super::analysis::{Analysis, PointResult};
use super::super::numbers;
use super::super::table::{Cell, Column, Table, named_columns, rate_if, two};
use super::by_variant;
use crate::report::json::word;
use crate::statistics::agreement::Agreement;
use crate::statistics::pass::{PassProbability, PassRates, RateInterval, Refused};
use crate::statistics::summary::{Flag, Summary};

// The columns that identify a point of a variant.
named_columns! { CELL; p: PointResult;
    AAAA: "aaaa_pct", "AAAA (%)" => p.aaaa_pct;
    CACHED: "cached_pct", "cached (%)" => p.cached_pct;
    PATTERN: "pattern", "pattern" => &p.pattern;
    DURATION: "duration_s", "trial (s)" => p.duration_s;
    TIMEOUT: "timeout_s", "timeout (s)" => p.timeout_s;
}

// The columns for programs.
named_columns! { FIGURES; p: PointResult;
    RUNS: "runs", "runs" => p.summary.as_ref().map_or(0, |s| s.runs);
    AVERAGE: "average_qps", "average" => bound(p, |s| s.average);
    MEDIAN: "median_qps", "median" => bound(p, |s| s.median);
    P1: "p1_qps", "p1" => bound(p, |s| s.p1);
    P99: "p99_qps", "p99" => bound(p, |s| s.p99);
    STANDARD_DEVIATION: "standard_deviation_qps", "SD" => figure(p, |s| s.standard_deviation);
    MARGIN_OF_ERROR: "margin_of_error_999_qps", "MoE" => figure(p, |s| s.margin_of_error_999);
    MEDIAN_DEVIATION: "median_absolute_deviation_qps", "MAD" =>
        figure(p, |s| s.median_absolute_deviation);
    DISPERSION: "dispersion_pct", "disp. (%)" => figure(p, |s| s.dispersion_pct);
    CALCULATED: "calculated_qps", "calculated" => bound(p, |s| s.calculated);
    SUSTAINED: "sustained_qps", "sustained" => p.stored.map(|s| two(s.sustainable_qps));
    MEDIAN_LOW: "median_low_qps", "95 % from" => interval(p).map(|(low, _)| low);
    MEDIAN_HIGH: "median_high_qps", "95 % to" => interval(p).map(|(_, high)| high);
    LOWER_BOUND: "lower_bound", "lower bound" => p.lower_bound;
    WITHIN: "certified", "within it" => p.certified;
    CERTIFIED: "certified_qps", "certified" => p.certified_rate_qps;
    HEADROOM: "headroom", "headroom" => p.headroom.map(two);
    ACHIEVED_AAAA: "achieved_aaaa_pct", "achieved AAAA (%)" =>
        p.achieved.and_then(|a| a.aaaa_pct).map(two);
    ACHIEVED_CACHED: "achieved_cached_pct", "achieved cached (%)" =>
        p.achieved.map(|a| two(a.cached_pct));
    AMPLIFICATION: "amplification", "amplification" =>
        p.achieved.map(|a| Cell::Decimal(a.amplification, 3));
    TESTER_DROPS: "tester_drops", "lost at Tester" => p.tester_drops;
    MEMORY: "memory_bytes_max", "memory" => p.memory_bytes_max.map(Cell::Bytes);
    DUT_CPU: "dut_cpu_pct", "DUT CPU (%)" => p.dut_cpu_pct.map(|pct| Cell::Decimal(pct, 0));

    FRESH_NAMES: "fresh_names", "fresh names" => p.path.as_ref().map(|path| path.answered.names);
    FRESH_UNASKED: "fresh_unasked", "not asked for" =>
        p.path.as_ref().map(|path| path.answered.unasked);
    QUESTIONS: "questions_per_name", "questions" => {
        let questions = p.path.as_ref().and_then(|path| path.questions_per_name);
        questions.map(|questions| Cell::Decimal(questions, 3))
    };
    DUT_ONLY_P50: "dut_only_ns_p50", "DUT only p50" => dut_only(p, 50.0);
    DUT_ONLY_P99: "dut_only_ns_p99", "DUT only p99" => dut_only(p, 99.0);
    AUTHORITY_P50: "authority_ns_p50", "authority p50" =>
        p.path.as_ref().and_then(|path| path.authority.p50_ns).map(Cell::Span);
}

// The columns for people alone.
named_columns! { p: PointResult;
    RATE: "rate_qps", "median" => match p.agreement {
        Some(found) if found.unstable => "unstable".into(),
        Some(found) => bound(p, |s| Rounding::of(&found).down(s.median)),
        None => "no rate".into(),
    };
    RANGE: "range_qps", "range" => p.agreement.map(|found| range(&found));
    FAILED: "failed_qps", "failed at" => {
        let stable = p.agreement.filter(|found| !found.unstable);
        let failed = stable.and_then(|found| Some((found, found.failed_qps?)));
        failed.map(|(found, qps)| rate_if(Rounding::of(&found).up(qps), false, None))
    };
    FLAGS: "flags", "flags" => flags(p);

    TRIALS: "trials", "trials" => p.pass_probability.rates().map(|rates| rates.trials);
    PASS_50: "pass_50_pct_qps", "50 % pass" => pass_rate(p, |rates| rates.at_50_pct).map(|it| it.0);
    PASS_50_RANGE: "pass_50_pct_range_qps", "range" =>
        pass_rate(p, |rates| rates.at_50_pct).map(|it| it.1);
    PASS_99: "pass_99_pct_qps", "99 % pass" => pass_rate(p, |rates| rates.at_99_pct).map(|it| it.0);
    PASS_99_RANGE: "pass_99_pct_range_qps", "range" =>
        pass_rate(p, |rates| rates.at_99_pct).map(|it| it.1);
    LOSS: "loss_ppm_max", "loss below (ppm)" =>
        p.loss_ratio_max.map(|ratio| Cell::Significant(ratio * 1e6, 2));
    REFUSED: "refused", "refused" => match p.pass_probability {
        PassProbability::Estimated(_) => None,
        PassProbability::Refused(Refused::TooFew) => Some("too few trials"),
        PassProbability::Refused(Refused::Drift) => Some("the runs rise or fall with time"),
        PassProbability::Refused(Refused::Shape) => Some("it does not fall as the model says"),
    };
}

/// A rate of the runs; a lower bound if a run was limited.
fn bound(point: &PointResult, figure: impl Fn(&Summary) -> f64) -> Cell {
    let qps = point.summary.as_ref().map(figure);
    let cell = |qps| rate_if(qps, point.lower_bound, point.certified);
    qps.map(cell).into()
}

fn figure(point: &PointResult, figure: fn(&Summary) -> f64) -> Cell {
    let value = point.summary.as_ref().map(figure);
    value.map(|value| Cell::Significant(value, 3)).into()
}

/// The digits that the range of a rate allows.
#[derive(Clone, Copy)]
struct Rounding {
    unit: f64,
}

impl Rounding {
    fn of(found: &Agreement) -> Self {
        let high = found.high_qps.unwrap_or(found.fastest_qps);
        Self {
            unit: numbers::unit_of(found.low_qps, high),
        }
    }

    fn down(self, rate: f64) -> f64 {
        (rate / self.unit).floor() * self.unit
    }

    fn up(self, rate: f64) -> f64 {
        (rate / self.unit).ceil() * self.unit
    }
}

/// The rounded range for a table of numbers.
fn range(found: &Agreement) -> Cell {
    let rounding = Rounding::of(found);
    let low = rounding.down(found.low_qps);
    match found.high_qps {
        Some(high) if found.interval => return Cell::Range(low, rounding.up(high)),
        Some(_) if low < found.fastest_qps => {
            return Cell::Range(low, rounding.up(found.fastest_qps));
        }
        Some(_) => return rate_if(low, false, None),
        None => {}
    }
    let [low, fastest] = [low, rounding.down(found.fastest_qps)].map(numbers::rate);
    Cell::Text(match found.low_qps < found.fastest_qps {
        true => format!("{low} – ≥ {fastest}"),
        false => format!("≥ {low}"),
    })
}

fn interval(point: &PointResult) -> Option<(f64, f64)> {
    point.summary.as_ref()?.median_interval
}

/// A rate of the pass probability and its interval, rounded to the digits that the interval allows.
fn pass_rate(point: &PointResult, of: fn(&PassRates) -> RateInterval) -> Option<(Cell, Cell)> {
    let found = of(point.pass_probability.rates()?);
    let rounding = Rounding {
        unit: numbers::unit_of(found.low_qps, found.high_qps),
    };
    let rate = rate_if(rounding.down(found.rate_qps), false, point.certified);
    let [low, high] = [rounding.down(found.low_qps), rounding.up(found.high_qps)];
    Some((rate, Cell::Range(low, high)))
}

/// The round-trip time without that of the authority.
fn dut_only(point: &PointResult, percent: f64) -> Option<Cell> {
    let mut all = point.path.iter().flat_map(|path| &path.dut_only_ns);
    let found = all.find(|at| (at.0 - percent).abs() < 1e-9);
    found.map(|at| Cell::Span(at.1))
}

/// Why the summary is doubtful or missing; the number of runs is a column of its own.
fn flags(point: &PointResult) -> Option<String> {
    let Some(summary) = &point.summary else {
        // The exports have the reason for each run; here the kinds are enough.
        let mut kinds: Vec<_> = point.runs.iter().map(|run| word(run.ended)).collect();
        kinds.dedup();
        let kinds = kinds.join(", ").replace('_', " ");
        return Some(format!("no rate: {kinds}"));
    };
    // Of fewer runs than an interval needs, shape and order are noise.
    let flags = summary.flags.iter().filter(|_| interval(point).is_some());
    let names = flags.filter_map(|flag| match flag {
        Flag::Skewed { .. } => Some("skewed"),
        Flag::Scattered { .. } => Some("scattered"),
        Flag::Drift { .. } => Some("drift"),
        Flag::FewRuns { .. } => None,
    });
    let unstable = point.is_unstable().then_some("unstable").into_iter();
    let names: Vec<_> = unstable.chain(names).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Adds a row for each point with data, in groups by variant. Columns that are equal for all points, or that have no
/// value, are omitted.
pub(super) fn by_point(
    analysis: &Analysis,
    table: Table,
    figures: &[Column<PointResult>],
    has: fn(&PointResult) -> bool,
) -> Table {
    let all = &analysis.points;
    let spans = |p: &PointResult| (p.duration_s, p.timeout_s);
    let mut columns = vec![AAAA, CACHED];
    if all.iter().any(|p| !p.pattern.is_empty()) {
        columns.push(PATTERN);
    }
    if all.iter().any(|p| spans(p) != spans(&all[0])) {
        columns.extend([DURATION, TIMEOUT]);
    }
    columns.extend_from_slice(figures);
    let mut points: Vec<_> = all.iter().filter(|p| has(p)).collect();
    points.sort_by_key(|point| point.variant);
    let rows = points.iter().map(|point| (point.variant, *point));
    by_variant(analysis, table, &columns, rows)
        .without_empty_columns()
        .grouped()
}

/// The rates of all points.
pub(super) fn results(analysis: &Analysis) -> Table {
    let table = Table::new(
        "results",
        "Results",
        "Rates over the runs, in queries per second. Median, range and failed at: rounded to the digits that the range allows. Range: 95 % interval of the median (percentile bootstrap), including \
         the resolution of the searches, or lowest to highest rate that passed of fewer than 6 runs. Failed at: median of the lowest \
         failed rates. DUT CPU: processor time of the DUT at the rates that were found, the median of the runs; 100 % is one \
         core. Memory: its largest resident memory after a trial. ≥ marks a lower bound.",
    );
    let mut figures = vec![RUNS, RATE, RANGE, FAILED];
    // The ends of fewer runs are in the range.
    if analysis.points.iter().any(|p| interval(p).is_some()) {
        figures.extend([P1, P99]);
    }
    figures.extend([DUT_CPU, MEMORY, FLAGS]);
    by_point(analysis, table, &figures, |_| true)
}

/// Rates at which trials pass with a given probability, of points with enough runs.
pub(super) fn pass_probability(analysis: &Analysis) -> Table {
    let table = Table::new(
        "pass_probability",
        "Pass probability",
        "Not results of RFC 8219: rates at which 50 and 99 % of the trials pass, in queries per second, with 95 % intervals, \
         rounded to the digits that these allow. A logistic curve over the logarithm of the rate is fitted to all valid trials \
         of the searches, which are taken to be independent. Loss below: what the passed trial of the run nearest to the \
         median alone shows with 95 %, 3 / its queries.",
    );
    let figures = [
        TRIALS,
        PASS_50,
        PASS_50_RANGE,
        PASS_99,
        PASS_99_RANGE,
        LOSS,
        REFUSED,
    ];
    by_point(analysis, table, &figures, |point| {
        point.pass_probability != PassProbability::Refused(Refused::TooFew)
    })
}

/// What the authority saw, and the time of the DUT alone.
pub(super) fn path(analysis: &Analysis) -> Table {
    let table = Table::new(
        "path",
        "What the authority saw",
        "Achieved: shares in the trials that passed, beside those asked for. Amplification: queries to the authority for one \
         query of the client; 2 in the worst case. DUT only: round-trip time of the passed trial of the run nearest to the \
         median, without the time that its authority took, with the links and the system calls of the Tester.",
    );
    let figures = [
        ACHIEVED_AAAA,
        ACHIEVED_CACHED,
        AMPLIFICATION,
        DUT_ONLY_P50,
        DUT_ONLY_P99,
        AUTHORITY_P50,
    ];
    let has = |point: &PointResult| point.path.is_some() || point.achieved.is_some();
    by_point(analysis, table, &figures, has)
}
