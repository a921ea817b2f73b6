//! Heat maps of rates: one server by both shares, or cells by servers.

use super::super::analysis::{Analysis, Grid, GridRow, PointResult};
use super::super::{numbers, words};
use super::{Figure, by_cell};
use crate::report::chart::{Diagram, LETTER, MEDIUM};

/// Height of a row.
const ROW: f64 = 44.0;

/// Width of a letter of the names, which are larger on a phone.
const NAME_LETTER: f64 = 1.25 * LETTER;

/// Minimum number of tiles: smaller maps show nothing more than the bars.
const TILES_MIN: usize = 6;

/// A cell: the rate, if one was found, and the texts before and after it.
type Tile = Option<(f64, &'static str, String)>;

/// Rows of tiles with their names.
struct Map {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Tile>)>,
}

/// A map for each server with several values of both shares; otherwise one of all servers with several cells.
pub(super) fn maps(analysis: &Analysis) -> Vec<Figure> {
    let mut maps: Vec<Map> = analysis
        .grids
        .iter()
        .map(|grid| by_shares(analysis, grid))
        .collect();
    if maps.is_empty() {
        maps.extend(by_server(analysis));
    }
    maps.retain(|map| map.rows.len() * map.columns.len() >= TILES_MIN);
    let tiles = maps.iter().flat_map(|map| &map.rows).flat_map(|row| &row.1);
    let highest = tiles.flatten().map(|tile| tile.0).fold(0.0, f64::max);
    let certified = analysis.points.iter().map(|point| point.certified);
    let unstable = analysis.points.iter().any(PointResult::is_unstable);
    let told = match unstable {
        true => "in queries/s; the darker, the faster; ?: the runs disagree",
        false => "in queries/s; the darker, the faster",
    };
    let told = words::explained(told, certified);
    maps.iter().map(|map| draw(map, highest, &told)).collect()
}

fn by_shares(analysis: &Analysis, grid: &Grid) -> Map {
    let row = |row: &GridRow| {
        let cells = row.cells.iter();
        let tiles = cells.map(|point| tile(&analysis.points[(*point)?]));
        (numbers::pct(row.cached_pct), tiles.collect())
    };
    Map {
        title: format!(
            "{}: median rate by cached share, downwards, and AAAA share, to the right",
            analysis.name_of(grid.variant)
        ),
        columns: grid.aaaa_pct.iter().map(|pct| numbers::pct(*pct)).collect(),
        rows: grid.rows.iter().map(row).collect(),
    }
}

fn by_server(analysis: &Analysis) -> Option<Map> {
    let cells = by_cell(analysis, |point| Some((point.variant, tile(point))));
    let variants = 0..analysis.variants.len();
    let row = |(name, found): &(String, Vec<(usize, Tile)>)| {
        let tile = |variant| found.iter().find(|tile| tile.0 == variant)?.1.clone();
        (name.clone(), variants.clone().map(tile).collect())
    };
    (cells.len() > 1 && variants.len() > 1).then(|| Map {
        title: "Median rate by cell and server".to_owned(),
        columns: variants
            .clone()
            .map(|v| analysis.name_of(v).to_owned())
            .collect(),
        rows: cells.iter().map(row).collect(),
    })
}

fn draw(map: &Map, highest: f64, told_of_all: &str) -> Figure {
    let letters = map.rows.iter().map(|row| row.0.chars().count()).max();
    let left = (NAME_LETTER * letters.unwrap_or(0) as f64 + 8.0).min(MEDIUM.0 / 2.0);
    let width = (MEDIUM.0 - left) / map.columns.len().max(1) as f64;
    let height = ROW * (map.rows.len() + 1) as f64 + 8.0;
    let mut drawing = Diagram::new((MEDIUM.0, height));
    let across = |column: usize| left + width * column as f64;
    for (column, name) in map.columns.iter().enumerate() {
        let at = (across(column) + width / 2.0, ROW / 2.0);
        drawing.word("middle ink", at, &cut(name, width));
    }
    for (row, (name, tiles)) in map.rows.iter().enumerate() {
        let top = ROW * (row + 1) as f64;
        drawing.word("ink", (0.0, top + ROW / 2.0), &cut(name, left));
        for (column, tile) in tiles.iter().enumerate() {
            let size = (width - 4.0, ROW - 4.0);
            let share = tile.as_ref().map_or(0.0, |(rate, ..)| rate / highest);
            drawing.shade(share, (across(column) + 2.0, top), size);
            let word = told(tile);
            let at = (across(column) + width / 2.0, top + ROW / 2.0 - 2.0);
            drawing.word("middle ink", at, &word);
        }
    }
    let title = format!("{}, {told_of_all}", map.title);
    Figure::new(&title, drawing.drawing(), "points.csv")
}

/// The rate of a point with its marks.
fn tile(point: &PointResult) -> Tile {
    let median = point.summary.as_ref()?.median;
    let (sign, doubt) = match (point.is_unstable(), point.lower_bound) {
        (true, _) => ("", "?"),
        (false, true) => ("≥", ""),
        (false, false) => ("", ""),
    };
    Some((
        median,
        sign,
        format!("{doubt}{}", words::dagger(point.certified)),
    ))
}

/// The rate in three digits: a heat map shows orders, not values.
fn told(tile: &Tile) -> String {
    let Some((rate, sign, mark)) = tile else {
        return numbers::NOTHING.to_owned();
    };
    let unit = 10f64.powf((rate.max(1.0).log10().floor() - 2.0).max(0.0));
    let rate = numbers::decimal((rate / unit).floor() * unit, 0);
    format!("{sign}{rate}{mark}")
}

/// A name truncated to the available width.
fn cut(name: &str, width: f64) -> String {
    let room = (width / LETTER).max(2.0);
    if name.chars().count() as f64 <= room {
        return name.to_owned();
    }
    let kept = name.chars().enumerate();
    let kept = kept.take_while(|(i, _)| ((i + 1) as f64) < room);
    kept.map(|(_, c)| c).chain(['…']).collect()
}
