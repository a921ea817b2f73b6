//! The tables of paper 000 as LaTeX: figures in rows, durations or shares in columns (tables 1 to 5,
//! and 6 and 7).

use std::fmt::Write as _;

use super::analysis::{Analysis, PointResult};
use super::words;
use crate::statistics::summary::Summary;

/// All tables, with those of one variant after the other.
pub(super) fn tables(analysis: &Analysis) -> String {
    let mut out = String::from("% Tables of the campaign; they need \\usepackage{booktabs}.\n");
    for variant in 0..analysis.variants.len() {
        for timeout_s in distinct(own(analysis, variant).map(|p| p.timeout_s)) {
            by_duration(&mut out, analysis, variant, timeout_s);
        }
        let usual: Vec<_> = own(analysis, variant)
            .filter(|p| p.pattern.is_empty() && words::is_usual(analysis, p))
            .collect();
        for cached in distinct(usual.iter().map(|p| p.cached_pct)) {
            let row = usual.iter().copied().filter(|p| p.cached_pct == cached);
            let fixed = format!("{} cached", words::pct(cached));
            by_share(
                &mut out,
                analysis,
                "AAAA record rate (%)",
                &fixed,
                row,
                |p| p.aaaa_pct,
            );
        }
        for aaaa in distinct(usual.iter().map(|p| p.aaaa_pct)) {
            let row = usual.iter().copied().filter(|p| p.aaaa_pct == aaaa);
            let fixed = format!("{} with AAAA records", words::pct(aaaa));
            by_share(&mut out, analysis, "Cache hit rate (%)", &fixed, row, |p| {
                p.cached_pct
            });
        }
    }
    out
}

fn own(analysis: &Analysis, variant: usize) -> impl Iterator<Item = &PointResult> + Clone {
    let measured = |p: &&PointResult| p.summary.is_some();
    analysis
        .points
        .iter()
        .filter(move |p| p.variant == variant)
        .filter(measured)
}

fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

type Figure = (&'static str, usize, fn(&Summary) -> f64);

/// The rows of tables 1 to 5, with their decimals.
const FIGURES: [Figure; 8] = [
    ("Average", 1, |s| s.average),
    ("Median", 1, |s| s.median),
    ("1st Perc. (min)", 0, |s| s.p1),
    ("99th Perc. (max)", 0, |s| s.p99),
    ("Standard Deviat.", 2, |s| s.standard_deviation),
    ("MoE 99.9", 2, |s| s.margin_of_error_999),
    ("Median Abs. Dev.", 2, |s| s.median_absolute_deviation),
    ("Calculated rate", 1, |s| s.calculated),
];

/// The rows of tables 6 and 7.
const SHORT_FIGURES: [Figure; 3] = [
    ("Median", 1, |s| s.median),
    ("1st Percentile (minimum)", 0, |s| s.p1),
    ("99th Percentile (maximum)", 0, |s| s.p99),
];

fn by_duration(out: &mut String, analysis: &Analysis, variant: usize, timeout_s: f64) {
    let Some(first) = own(analysis, variant).next() else {
        return;
    };
    let same_cell =
        |p: &&PointResult| p.timeout_s == timeout_s && words::cell(p) == words::cell(first);
    let mut columns: Vec<_> = own(analysis, variant).filter(same_cell).collect();
    columns.sort_by(|a, b| a.duration_s.total_cmp(&b.duration_s));
    let info = &analysis.variants[variant];
    let caption = format!(
        "{} DNS64 performance: number of answered queries per second, {}, {timeout_s} s timeout",
        info.name,
        words::cell(first)
    );
    table(
        out,
        &caption,
        "Duration (s)",
        &columns,
        |p| p.duration_s,
        &FIGURES,
    );
}

fn by_share<'p>(
    out: &mut String,
    analysis: &Analysis,
    header: &str,
    fixed: &str,
    columns: impl Iterator<Item = &'p PointResult>,
    share: fn(&PointResult) -> f64,
) {
    let mut columns: Vec<_> = columns.collect();
    columns.sort_by(|a, b| share(a).total_cmp(&share(b)));
    let Some(first) = columns.first().filter(|_| columns.len() > 1) else {
        return;
    };
    let caption = format!(
        "{} DNS64 performance: number of answered queries per second as a function of {}, {fixed}, {}",
        analysis.variants[first.variant].name,
        header
            .trim_end_matches(" (%)")
            .replacen("Cache", "cache", 1),
        words::spans(first)
    );
    table(out, &caption, header, &columns, share, &SHORT_FIGURES);
}

fn table(
    out: &mut String,
    caption: &str,
    header: &str,
    columns: &[&PointResult],
    head: fn(&PointResult) -> f64,
    figures: &[Figure],
) {
    if columns.is_empty() {
        return;
    }
    let heads: Vec<_> = columns.iter().map(|p| head(p).to_string()).collect();
    // Writing to a text does not fail.
    let _ = write!(
        out,
        "\n\\begin{{table}}\n\\centering\n\\caption{{{}}}\n\\begin{{tabular}}{{l{}}}\n\\toprule\n{} & {} \\\\\n\\midrule\n",
        escaped(caption),
        "r".repeat(columns.len()),
        escaped(header),
        heads.join(" & ")
    );
    for (name, decimals, figure) in figures {
        let value = |p: &&PointResult| {
            let bound = if p.lower_bound { "$\\geq$" } else { "" };
            let figure = p.summary.as_ref().map_or(f64::NAN, figure);
            format!("{bound}{figure:.decimals$}")
        };
        let values: Vec<_> = columns.iter().map(value).collect();
        let _ = writeln!(out, "{name} & {} \\\\", values.join(" & "));
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
}

/// Text as LaTeX prints it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
