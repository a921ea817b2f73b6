//! Comparison of the servers: ranking, differences and their significance, and latency at a common load.

use super::grouped;
use crate::campaign::history::Recorded;
use crate::report::campaign::analysis::{
    Analysis, CommonLoad, CommonLoadRow, PointResult, Standing, Standings,
};
use crate::report::campaign::{numbers, words};
use crate::trial::result::{Outcome, TrialResult};

/// The servers side by side; DNS64 servers separate from authorities.
pub(super) fn standings(analysis: &Analysis) -> Standings {
    let mut standings = Standings::default();
    for authorities in [false, true] {
        let own = analysis.variants.iter().zip(0..);
        let own = own.filter(|(info, _)| info.is_authority() == authorities);
        let own = own.filter_map(|(_, variant)| analysis.headline(variant));
        let mut own: Vec<&PointResult> = own.collect();
        let rank = |p: &PointResult| p.median().filter(|_| stands(p)).unwrap_or(0.0);
        own.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        let fastest = own.first().copied().filter(|p| stands(p));
        let rows = own.iter().map(|point| standing(analysis, point, fastest));
        standings.rows.extend(rows);
        standings.answers.extend(answer(analysis, &own));
        if let (Some(first), true) = (own.first(), standings.cell.is_empty()) {
            standings.cell = format!("{}, {}", words::cell(first), words::spans(first));
        }
    }
    standings
}

/// Whether the runs of a point agree on a rate.
fn stands(point: &PointResult) -> bool {
    point.agreement.is_some() && !point.is_unstable()
}

/// Ends of the interval or range; the upper one is infinite at a limit.
fn ends(point: &PointResult) -> Option<(f64, f64)> {
    let found = point.agreement?;
    Some((found.low_qps, found.high_qps.unwrap_or(f64::INFINITY)))
}

/// Compares a point with the fastest.
fn standing(analysis: &Analysis, point: &PointResult, fastest: Option<&PointResult>) -> Standing {
    let mut standing = Standing {
        variant: point.variant,
        point: point.point,
        of_fastest: None,
        of_fastest_range: None,
        against: String::new(),
    };
    let known = |p: &PointResult| p.median().zip(ends(p)).filter(|_| stands(p));
    let Some((own, (low, high))) = known(point) else {
        standing.against = match point.agreement {
            Some(_) => "the runs disagree".to_owned(),
            None => point.why_no_rate().to_owned(),
        };
        return standing;
    };
    let Some((fastest, (highest, (least, most)))) = fastest.and_then(|f| Some((f, known(f)?)))
    else {
        return standing;
    };
    if fastest.point == point.point {
        let is_alone = analysis.variants.len() == 1;
        standing.against = if is_alone { "" } else { "the fastest" }.to_owned();
    } else {
        let name = analysis.name_of(fastest.variant);
        let what = ranges(point, fastest);
        standing.against = match high < least {
            _ if is_lone(point) || is_lone(fastest) => {
                "one run shows no spread: no difference shown".to_owned()
            }
            true => format!("slower than {name}: {what} do not overlap"),
            false => format!("{what} overlap with {name}: no difference shown"),
        };
    }
    if high.is_finite() && most.is_finite() && !is_lone(point) && !is_lone(fastest) {
        standing.of_fastest = Some(own / highest);
        standing.of_fastest_range = Some((low / most, high / least));
    }
    standing
}

/// Whether it rests on a single run.
fn is_lone(point: &PointResult) -> bool {
    point.agreement.is_some_and(|found| found.runs < 2)
}

/// What the ends of both are.
fn ranges(a: &PointResult, b: &PointResult) -> &'static str {
    let is_interval = |p: &PointResult| p.agreement.is_some_and(|found| found.interval);
    match is_interval(a) && is_interval(b) {
        true => "intervals",
        false => "ranges",
    }
}

/// The first against the second, in a sentence, and who has no rank.
fn answer(analysis: &Analysis, ranked: &[&PointResult]) -> Option<String> {
    let name = |p: &PointResult| analysis.name_of(p.variant);
    let mut standing = ranked.iter().filter(|p| stands(p));
    let unstable = ranked.iter().filter(|p| p.is_unstable());
    let unstable = unstable.map(|p| name(p)).collect::<Vec<_>>().join(", ");
    match (standing.next(), standing.next()) {
        (Some(first), Some(second)) => {
            let text = compared(first, second, [name(first), name(second)])?;
            Some(match unstable.is_empty() {
                true => text,
                false => format!("{text}; not ranked because the runs disagree: {unstable}"),
            })
        }
        _ if ranked.len() < 2 => None,
        _ if unstable.is_empty() => {
            Some("No server is the fastest: too few have a rate".to_owned())
        }
        _ => Some(format!(
            "No server is the fastest: the runs of {unstable} disagree"
        )),
    }
}

fn compared(a: &PointResult, b: &PointResult, [first, second]: [&str; 2]) -> Option<String> {
    let ((a_low, a_high), (b_low, b_high)) = (ends(a)?, ends(b)?);
    let what = ranges(a, b);
    let lone = [(a, first), (b, second)]
        .into_iter()
        .find(|side| is_lone(side.0));
    if let Some((_, lone)) = lone {
        return Some(format!(
            "No difference is shown between {first} and {second}: {lone} has one run, which shows no spread"
        ));
    }
    if b_high >= a_low {
        return Some(format!(
            "No difference is shown between {first} and {second}: their {what} overlap"
        ));
    }
    let lead = match a_high.is_finite() {
        true => times(a.median()? / b.median()?, (a_low / b_high, a_high / b_low)),
        false => format!("at least {}", lead(a_low / b_high)),
    };
    Some(format!(
        "{first} is the fastest: {lead} {second}, the next; their {what} do not overlap"
    ))
}

/// "1.43 times (1.41 to 1.46) the rate of", with the digits that the range allows.
fn times(factor: f64, (low, high): (f64, f64)) -> String {
    let digits = if high - low < 0.1 * factor { 3 } else { 2 };
    let [factor, low, high] = [factor, low, high].map(|f| numbers::significant(f, digits));
    format!("{factor} times ({low} to {high}) the rate of")
}

/// "7 % faster than" or "2.4 times the rate of", of a factor that is at least as high.
fn lead(factor: f64) -> String {
    if factor < 2.0 {
        let pct = (factor - 1.0) * 100.0;
        let unit = if pct < 1.0 { 0.1 } else { 1.0 };
        let pct = numbers::short((pct / unit + 1e-9).floor() * unit);
        return format!("{pct} % faster than");
    }
    let unit = 10f64.powf(factor.log10().floor() - 1.0);
    let factor = numbers::significant((factor / unit + 1e-9).floor() * unit, 2);
    format!("{factor} times the rate of")
}

/// Round-trip times at the highest rate that all servers of a cell passed, for cells with several servers.
pub(super) fn common_loads(history: &Recorded<'_>, analysis: &Analysis) -> Vec<CommonLoad> {
    let points = analysis.points.iter().filter(|p| p.planned.is_usual);
    let cells = grouped(points.map(|point| (words::cell(point), point)));
    let of = |(cell, points): (String, Vec<&PointResult>)| common_load(history, cell, &points);
    cells.into_iter().filter_map(of).collect()
}

/// The passed trials of a point.
pub(super) fn passed<'l>(history: &Recorded<'l>, point: &PointResult) -> Vec<&'l TrialResult> {
    let trials = history.trials_of(|planned| *planned == point.planned);
    trials.filter(|t| t.outcome == Outcome::Passed).collect()
}

/// Rates that each of these points has a trial at.
pub(super) fn common_rates(points: &[Vec<&TrialResult>]) -> impl Iterator<Item = u64> {
    let is_at = |trials: &[&TrialResult], rate_qps| trials.iter().any(|t| t.rate_qps == rate_qps);
    let rates = points
        .first()
        .into_iter()
        .flatten()
        .map(|trial| trial.rate_qps);
    rates.filter(move |&rate| points.iter().all(|trials| is_at(trials, rate)))
}

fn common_load(
    history: &Recorded<'_>,
    cell: String,
    points: &[&PointResult],
) -> Option<CommonLoad> {
    let trials: Vec<_> = points.iter().map(|point| passed(history, point)).collect();
    let rate_qps = common_rates(&trials).max().filter(|_| points.len() > 1)?;
    let row = |(point, trials): (&&PointResult, &Vec<&TrialResult>)| {
        let trial = trials.iter().find(|trial| trial.rate_qps == rate_qps)?;
        Some(CommonLoadRow {
            point: point.point,
            rtt_ns: trial.rtt_percentiles.clone(),
        })
    };
    let rows = points.iter().zip(&trials).filter_map(row).collect();
    Some(CommonLoad {
        cell,
        rate_qps,
        rows,
    })
}
