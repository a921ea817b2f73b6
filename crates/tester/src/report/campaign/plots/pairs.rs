//! Charts of pairs: each row has two values of one kind, joined by a line, with a limit and a note.

use crate::report::chart::{self, Axis, Chart, MEDIUM, Mark, Role, Stroke};

/// One row.
pub(super) struct Pair {
    /// Its name.
    pub(super) name: String,
    /// Values of the filled mark and of the hollow one.
    pub(super) values: [f64; 2],
    /// The limit of this row.
    pub(super) limit: Option<f64>,
    /// Both values in words.
    pub(super) note: String,
}

/// Rows of a variant, under its name.
pub(super) struct Rows {
    /// The name.
    pub(super) title: String,
    /// Index of the variant.
    pub(super) variant: usize,
    /// The rows.
    pub(super) pairs: Vec<Pair>,
}

impl Rows {
    fn height(&self) -> f64 {
        self.pairs.len() as f64 + TITLE
    }
}

/// Height of a row.
const ROW: f64 = 40.0;

/// Height of the name above the rows, in rows.
const TITLE: f64 = 1.3;

/// Width for notes such as "12.3 us – 12.3 ms".
const NOTES: f64 = 260.0;

/// Maximum number of groups in a chart, so that it fits on a page of paper.
pub(super) const GROUPS_MAX: usize = 6;

/// All values and limits, for the range of an axis.
pub(super) fn values(groups: &[Rows]) -> impl Iterator<Item = f64> {
    let pairs = groups.iter().flat_map(|rows| &rows.pairs);
    pairs.flat_map(|pair| pair.values.into_iter().chain(pair.limit))
}

/// Draws the rows over a logarithmic axis.
pub(super) fn draw(spoken: &str, x: Axis, groups: &[Rows]) -> String {
    let height = groups.iter().map(Rows::height).sum::<f64>() + 0.2;
    let mut names = Vec::new();
    let mut top = 0.0;
    for rows in groups {
        let place = |i: usize| top + TITLE + i as f64 + 0.5;
        let pairs = rows.pairs.iter().enumerate();
        names.extend(pairs.map(|(i, pair)| (place(i), pair.name.clone())));
        top += rows.height();
    }
    let y = Axis::named_rows(height, names.clone());
    let size = (MEDIUM.0, 88.0 + ROW * height);
    let mut chart = Chart::with_margin(size, x.decades_only(), y, NOTES);
    let mut top = 0.0;
    let mut places = names.into_iter().map(|(place, _)| place);
    for rows in groups {
        chart.word((0.0, top + TITLE / 2.0 + 0.1), 0.0, &rows.title);
        for (pair, y) in rows.pairs.iter().zip(&mut places) {
            draw_pair(&mut chart, rows.variant, pair, y);
        }
        top += rows.height();
    }
    chart.svg(spoken)
}

fn draw_pair(chart: &mut Chart, variant: usize, pair: &Pair, y: f64) {
    let role = Role::variant(variant);
    if let Some(limit) = pair.limit {
        let ends = [(limit, y - 0.5), (limit, y + 0.5)];
        chart.line(Role::INK, Stroke::Dashed, ends);
    }
    chart.line(role, Stroke::THIN, pair.values.map(|value| (value, y)));
    for (value, hollow) in pair.values.into_iter().zip([false, true]) {
        chart.marks(role, Mark::variant(variant, hollow), [(value, y)]);
    }
    chart.note(y, &pair.note);
}

/// Legend of the marks, and of the limit if there is one.
pub(super) fn legend(marks: [&str; 2], limit: Option<String>) -> Vec<(String, String)> {
    let keys = [false, true].map(|hollow| chart::mark_key(Role::INK, Mark::variant(0, hollow)));
    let marks = keys.into_iter().zip(marks.map(str::to_owned));
    marks
        .chain(limit.map(|limit| (chart::limit_key(), limit)))
        .collect()
}
