//! A page that compares two or more campaigns: bars side by side, and the history of the rates.

use minijinja::context;
use minijinja::value::{Serde, Value};
use serde::Serialize;

use super::super::analysis::{Analysis, PointResult};
use super::super::html::{self, ReportError};
use super::super::{numbers, plots, tables, words};
use super::{Comparison, Row, Verdict, keyed};
use crate::report::chart::Axis;

/// The template of the page.
const TEMPLATE: &str = include_str!("../compare.html.jinja");

/// A campaign on the page.
#[derive(Serialize)]
struct Side {
    letter: char,
    name: String,
    tester: String,
    began: String,
    /// Servers with their versions.
    servers: Vec<String>,
    /// Why its rates are not a measurement.
    doubts: Vec<String>,
}

/// A point with its rows, one for each campaign that has it.
#[derive(Serialize)]
struct Group {
    point: String,
    rows: Vec<SideRow>,
    /// SVG; empty for two campaigns.
    history: String,
}

/// A point of one campaign.
#[derive(Serialize)]
struct SideRow {
    letter: char,
    name: String,
    began: String,
    /// Rate, range, and median of the failing rates.
    rates: [String; 3],
    runs: usize,
    bar: String,
    ratio: String,
    verdict: String,
}

/// Renders the page of these campaigns. The others are compared with the first: `compared` has one comparison for each
/// of them.
///
/// # Errors
///
/// None with the built-in template.
pub fn page(campaigns: &[Analysis], compared: &[Comparison]) -> Result<String, ReportError> {
    let (
        Some(first),
        Some(Comparison {
            max_regression_pct, ..
        }),
    ) = (campaigns.first(), compared.first())
    else {
        return Ok(String::new());
    };
    let letters = ('A'..='Z').cycle();
    let sides = letters.zip(campaigns).map(|(letter, campaign)| Side {
        letter,
        name: campaign.name.clone(),
        tester: campaign.tester.clone(),
        began: campaign
            .sessions
            .first()
            .map_or_else(String::new, |s| s.began.clone()),
        servers: servers(campaign),
        doubts: campaign.not_a_measurement.clone(),
    });
    let sides: Vec<Side> = sides.collect();
    let groups = keyed(first).into_iter();
    let groups: Vec<Group> = groups
        .map(|(key, point)| group(campaigns, &sides, compared, key, point))
        .collect();
    let differences = differences(campaigns, &sides);
    let points = || campaigns.iter().flat_map(|campaign| &campaign.points);
    let uncertified = points().any(|point| point.certified == Some(false));
    let count = |verdict| -> usize { compared.iter().map(|c| c.count(verdict)).sum() };
    let rows: usize = compared.iter().map(|c| c.rows.len()).sum();
    let counted = [
        Verdict::Slower,
        Verdict::Faster,
        Verdict::NotShown,
        Verdict::NotJudged,
    ];
    let [slower, faster, not_shown, not_judged] = counted.map(count);
    let judged = rows - not_judged;
    html::render(
        TEMPLATE,
        context! {
            sides => Value::from(Serde(&sides)),
            groups => Value::from(Serde(&groups)),
            differences,
            uncertified_means => uncertified.then_some(words::UNCERTIFIED_MEANS),
            bounds => points().any(|point| point.lower_bound),
            slower,
            faster,
            most => [Verdict::Slower, Verdict::Faster].map(|verdict| most(compared, &sides, verdict)),
            one_judged => judged == 1,
            judged => numbers::count(judged, "judged point"),
            not_shown => (not_shown > 0).then(|| numbers::count(not_shown, "point")),
            not_judged => (not_judged > 0).then(|| numbers::count(not_judged, "point")),
            allowed => numbers::pct(*max_regression_pct),
        },
    )
}

/// Which campaigns are not complete, and what is not the same in the first and another.
fn differences(campaigns: &[Analysis], sides: &[Side]) -> Vec<String> {
    let both = || sides.iter().zip(campaigns);
    let incomplete =
        both().filter_map(|(side, campaign)| super::incomplete(&side.letter.to_string(), campaign));
    let differences = both().skip(1).flat_map(|(side, campaign)| {
        let differences = super::differences(&campaigns[0], campaign);
        let told = move |text| format!("A and {}: {text}", side.letter);
        differences.into_iter().map(told)
    });
    incomplete.chain(differences).collect()
}

/// "unbound: Version 1.17.1".
fn servers(campaign: &Analysis) -> Vec<String> {
    let variants = campaign.variants.iter();
    let told = variants.map(|variant| match &variant.version {
        Some(version) => format!("{}: {version}", variant.name),
        None => variant.name.clone(),
    });
    told.collect()
}

fn group(
    campaigns: &[Analysis],
    sides: &[Side],
    compared: &[Comparison],
    key: String,
    first: &PointResult,
) -> Group {
    let twin = |campaign| {
        let mut points = keyed(campaign).into_iter();
        Some(points.find(|(other, _)| *other == key)?.1)
    };
    let points: Vec<Option<&PointResult>> = campaigns.iter().map(twin).collect();
    let scale = plots::standings::scale(points.iter().copied().flatten());
    let row = |(i, point): (usize, &Option<&PointResult>)| {
        let point = (*point)?;
        let compared = i.checked_sub(1).and_then(|i| {
            let mut rows = compared[i].rows.iter();
            rows.find(|row| row.point == key)
        });
        Some(SideRow {
            letter: sides[i].letter,
            name: sides[i].name.clone(),
            began: sides[i].began.clone(),
            rates: tables::standings::rates(point),
            runs: point.agreement.map_or(0, |found| found.runs),
            bar: plots::standings::bar(point, first.variant, scale),
            // Lower bounds have no ratio.
            ratio: match point.lower_bound || first.lower_bound {
                true => numbers::NOTHING.to_owned(),
                false => compared.map_or_else(String::new, ratio),
            },
            verdict: compared.map_or_else(String::new, Row::told),
        })
    };
    let rows = points.iter().enumerate().filter_map(row).collect();
    let history = match campaigns.len() > 2 {
        true => history(&key, sides, &points, first.variant),
        false => String::new(),
    };
    Group {
        point: key,
        rows,
        history,
    }
}

/// Where a median is slower or faster by most: "unbound, AAAA 0 %, ... in B: 0.95 (0.93 to 0.98)".
fn most(compared: &[Comparison], sides: &[Side], verdict: Verdict) -> Option<String> {
    let each = compared.iter().zip(sides.iter().skip(1));
    let rows = each.flat_map(|(compared, side)| compared.rows.iter().map(move |row| (row, side)));
    let rows = rows.filter(|(row, _)| row.verdict == verdict && row.lower_bounds == (false, false));
    let size = |row: &Row| row.change_pct.unwrap_or(0.0).abs();
    let (row, side) = rows.max_by(|a, b| size(a.0).total_cmp(&size(b.0)))?;
    Some(format!("{} in {}: {}", row.point, side.letter, ratio(row)))
}

/// "0.95 (0.93 to 0.98)".
fn ratio(row: &Row) -> String {
    let part = |pct: f64| numbers::significant(1.0 + pct / 100.0, 3);
    let Some(change_pct) = row.change_pct else {
        return numbers::NOTHING.to_owned();
    };
    match row.interval_pct {
        Some((low, high)) => format!("{} ({} to {})", part(change_pct), part(low), part(high)),
        None => part(change_pct),
    }
}

/// The rate over the campaigns, in order of time.
fn history(key: &str, sides: &[Side], points: &[Option<&PointResult>], variant: usize) -> String {
    let mut order: Vec<usize> = (0..sides.len()).collect();
    order.sort_by(|a, b| sides[*a].began.cmp(&sides[*b].began));
    let known = order.iter().zip(1..).filter_map(|(side, place)| {
        let point = points[*side]?;
        let stands = point.agreement.filter(|found| !found.unstable)?;
        Some((
            f64::from(place),
            point.summary.as_ref()?.median,
            stands,
            point.lower_bound,
        ))
    });
    let mut series = plots::Series::new(variant, "");
    for (place, median, found, lower_bound) in known {
        let high = found.high_qps.unwrap_or(found.fastest_qps);
        series.add((place, median), Some([found.low_qps, high]), lower_bound);
    }
    let series = [series];
    let names = order.iter().map(|side| sides[*side].letter.to_string());
    let x = Axis::named("campaign, by the time of its start", names);
    let y = Axis::from_zero("queries/s", plots::values(&series));
    plots::lines(
        &format!("rate of {key} over the campaigns"),
        (x, y),
        &series,
        "",
    )
    .svg
}
