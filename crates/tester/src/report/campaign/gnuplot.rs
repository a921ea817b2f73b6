//! Data and a script for gnuplot: medians as boxes with the 1st and 99th percentile, the way of
//! every search to its rate, and round-trip times by percentile.

use super::analysis::{Analysis, PointResult};
use super::words;
use crate::trial::result::Outcome;

/// What gnuplot calls an index: lines of data apart from others. Blocks without data would not
/// count there, so there are none.
struct Block {
    title: String,
    rows: Vec<String>,
}

/// Boxes: a block for each variant.
pub(super) fn rates(analysis: &Analysis) -> String {
    let columns = "place, median, 1st and 99th percentile in queries/s, AAAA/cached in per cent";
    data(columns, rate_blocks(analysis))
}

/// Searches: a block for each run.
pub(super) fn convergence(analysis: &Analysis) -> String {
    let columns = "trial, rate in queries/s, outcome: 1 passed, 0 failed, -1 invalid";
    data(columns, convergence_blocks(analysis))
}

/// Round-trip times: a block for each point, at its run nearest to the median.
pub(super) fn latency(analysis: &Analysis) -> String {
    let columns = "percentile, share of slower answers in per cent, round-trip time in us";
    data(columns, latency_blocks(analysis))
}

fn data(columns: &str, blocks: Vec<Block>) -> String {
    let mut out = format!("# {columns}\n");
    for (index, block) in blocks.iter().enumerate() {
        let apart = if index > 0 { "\n\n" } else { "" };
        let title = block.title.replace(char::is_control, " ");
        out += &format!("{apart}# {title}\n{}\n", block.rows.join("\n"));
    }
    out
}

fn with_data(title: String, rows: Vec<String>) -> Option<Block> {
    (!rows.is_empty()).then_some(Block { title, rows })
}

fn rate_blocks(analysis: &Analysis) -> Vec<Block> {
    let block = |(variant, info): (usize, &super::analysis::VariantInfo)| {
        let own = analysis.points.iter().filter(|p| p.variant == variant);
        let rows = own.enumerate().filter_map(|(place, point)| {
            let s = point.summary.as_ref()?;
            let label = quoted(&label(analysis, point));
            Some(format!("{place} {} {} {} {label}", s.median, s.p1, s.p99))
        });
        with_data(info.name.clone(), rows.collect())
    };
    analysis
        .variants
        .iter()
        .enumerate()
        .filter_map(block)
        .collect()
}

fn label(analysis: &Analysis, point: &PointResult) -> String {
    let shares = format!("{}/{}", point.aaaa_pct, point.cached_pct);
    match words::is_usual(analysis, point) {
        true => shares,
        false => format!("{shares} {} s, {} s", point.duration_s, point.timeout_s),
    }
}

fn convergence_blocks(analysis: &Analysis) -> Vec<Block> {
    let runs = analysis
        .points
        .iter()
        .flat_map(|point| point.runs.iter().map(move |run| (point, run)));
    let block = |(point, run): (&PointResult, &super::analysis::RunResult)| {
        let row = |(index, step): (usize, &super::analysis::Step)| {
            let outcome = match step.outcome {
                Outcome::Passed => "1",
                Outcome::Failed { .. } => "0",
                Outcome::Invalid(_) => "-1",
            };
            format!("{} {} {outcome}", index + 1, step.rate_qps)
        };
        let title = format!("{}, run {}", words::point(analysis, point), run.run);
        with_data(title, run.trials.iter().enumerate().map(row).collect())
    };
    runs.filter_map(block).collect()
}

fn latency_blocks(analysis: &Analysis) -> Vec<Block> {
    let block = |point: &PointResult| {
        let row = |(pct, rtt_ns): &(f64, u64)| {
            let slower = ((100.0 - pct) * 1e6).round() / 1e6;
            format!("{pct} {slower} {}", *rtt_ns as f64 / 1000.0)
        };
        let rows = point.rtt_ns.iter().map(row).collect();
        with_data(words::point(analysis, point), rows)
    };
    analysis.points.iter().filter_map(block).collect()
}

/// A text as gnuplot reads it, in data and in scripts.
fn quoted(text: &str) -> String {
    let clean = text.replace(char::is_control, " ");
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "'"))
}

/// The script: run in the folder of the data, it draws one picture for each file that has any.
pub(super) fn script(analysis: &Analysis) -> String {
    let mut out = String::from(
        "# In this folder: gnuplot plot.gp\nset terminal svg size 1000,600 noenhanced\n\
         set key outside below\nset grid\nset style fill solid 0.5\nset xtics rotate by -45\n",
    );
    let rates = rate_blocks(analysis);
    if let Some(last) = rates.len().checked_sub(1) {
        let count = rates.len();
        out += &format!(
            "\nset output \"rates.svg\"\nset title {title}\nset xlabel \"AAAA / cached, %\"\n\
             set ylabel \"queries/s\"\nset yrange [0:*]\nwidth = 0.8 / {count}\n\
             array names[{count}] = [{names}]\n\
             plot for [i=0:{last}] \"rates.dat\" index i using ($1 + i * width):2:(width):xtic(5) \
             with boxes title names[i + 1], \\\n     for [i=0:{last}] \"rates.dat\" index i using \
             ($1 + i * width):2:3:4 with yerrorbars lc \"black\" pt 0 notitle\n",
            title = quoted(&analysis.name),
            names = titles(&rates),
        );
    }
    if let Some(last) = convergence_blocks(analysis).len().checked_sub(1) {
        out += &format!(
            "\nset output \"convergence.svg\"\nset title \"Trials of every search\"\n\
             set xlabel \"trial\"\nset ylabel \"queries/s\"\nset xtics norotate autofreq\n\
             set yrange [*:*]\nplot for [i=0:{last}] \"convergence.dat\" index i using 1:2 \
             with linespoints notitle\n"
        );
    }
    let latency = latency_blocks(analysis);
    if let Some(last) = latency.len().checked_sub(1) {
        out += &format!(
            "\nset output \"latency.svg\"\nset title \"Round-trip times\"\n\
             set xlabel \"slower answers, %\"\nset ylabel \"us\"\nset xtics norotate autofreq\n\
             set yrange [*:*]\nset logscale xy\nset xrange [100:0.001] reverse\n\
             array points[{count}] = [{names}]\n\
             plot for [i=0:{last}] \"latency.dat\" index i using 2:3 with linespoints \
             title points[i + 1]\n",
            count = latency.len(),
            names = titles(&latency),
        );
    }
    out
}

fn titles(blocks: &[Block]) -> String {
    let titles: Vec<_> = blocks.iter().map(|block| quoted(&block.title)).collect();
    titles.join(", ")
}
