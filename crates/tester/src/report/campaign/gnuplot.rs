//! Data and a script for gnuplot: medians as boxes with the 1st and 99th percentile, the distribution
//! of the runs, the way of every search to its rate, and round-trip times by percentile.

use std::io;

use super::analysis::Analysis;
use super::table::{Cell, Exporter, Table};
use super::tables;

/// Data in blocks that gnuplot calls indices: a block for each group, under its title.
pub(super) struct Gnuplot;

impl Exporter for Gnuplot {
    fn export(&self, tables: &[Table]) -> io::Result<String> {
        Ok(tables.iter().map(data).collect())
    }
}

fn data(table: &Table) -> String {
    let mut out = format!("# {}\n", table.caption);
    for (index, group) in table.groups().enumerate() {
        let apart = if index > 0 { "\n\n" } else { "" };
        let title = group[0][0].raw().replace(char::is_control, " ");
        out += &format!("{apart}# {title}\n");
        for row in group {
            let cells: Vec<_> = row[1..].iter().map(value).collect();
            let marked = row.iter().any(Cell::is_uncertified);
            let remark = if marked { " # not certified" } else { "" };
            out += &format!("{}{remark}\n", cells.join(" "));
        }
    }
    out
}

fn value(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => quoted(text),
        cell => cell.raw(),
    }
}

/// The script: run in the folder of the data, it draws one picture for each file that has any.
pub(super) fn script(analysis: &Analysis) -> String {
    let mut out = String::from(
        "# In this folder: gnuplot plot.gp\nset terminal svg size 1000,600 noenhanced\n\
         set key outside below\nset grid\nset style fill solid 0.5\nset xtics rotate by -45\n",
    );
    let rates = titles(&tables::rates(analysis));
    if let Some(last) = rates.len().checked_sub(1) {
        out += &format!(
            "\nset output \"rates.svg\"\nset title {title}\nset xlabel \"AAAA / cached, %\"\n\
             set ylabel \"queries/s\"\nset yrange [0:*]\nwidth = 0.8 / {count}\n\
             array names[{count}] = [{names}]\n\
             plot for [i=0:{last}] \"rates.dat\" index i using ($1 + i * width):2:(width):xtic(5) \
             with boxes title names[i + 1], \\\n     for [i=0:{last}] \"rates.dat\" index i using \
             ($1 + i * width):2:3:4 with yerrorbars lc \"black\" pt 0 notitle\n",
            title = quoted(&analysis.name),
            count = rates.len(),
            names = rates.join(", "),
        );
    }
    let runs = titles(&tables::distribution(analysis));
    if let Some(last) = runs.len().checked_sub(1) {
        out += &format!(
            "\nset output \"distribution.svg\"\nset title \"Distribution of the runs\"\n\
             set xlabel \"queries/s\"\nset ylabel \"share of the runs up to a rate\"\n\
             set xtics norotate autofreq\nset yrange [0:1.02]\narray runs[{count}] = [{names}]\n\
             plot for [i=0:{last}] \"distribution.dat\" index i using 1:4 with steps \
             title runs[i + 1], \\\n     for [i=0:{last}] \"distribution.dat\" index i using 1:3 \
             with impulses notitle\n",
            count = runs.len(),
            names = runs.join(", "),
        );
    }
    if let Some(last) = tables::convergence(analysis)
        .groups()
        .count()
        .checked_sub(1)
    {
        out += &format!(
            "\nset output \"convergence.svg\"\nset title \"Trials of every search\"\n\
             set xlabel \"trial\"\nset ylabel \"queries/s\"\nset xtics norotate autofreq\n\
             set yrange [*:*]\nplot for [i=0:{last}] \"convergence.dat\" index i using 1:2 \
             with linespoints notitle\n"
        );
    }
    let latency = titles(&tables::latency(analysis));
    if let Some(last) = latency.len().checked_sub(1) {
        out += &format!(
            "\nset output \"latency.svg\"\nset title \"Round-trip times\"\n\
             set xlabel \"slower answers, %\"\nset ylabel \"us\"\nset xtics norotate autofreq\n\
             set yrange [*:*]\nset logscale xy\nset xrange [100:0.001] reverse\n\
             array points[{count}] = [{names}]\n\
             plot for [i=0:{last}] \"latency.dat\" index i using 2:3 with linespoints \
             title points[i + 1]\n",
            count = latency.len(),
            names = latency.join(", "),
        );
    }
    out + &dut_only(analysis) + &lateness(analysis)
}

/// Round-trip times without the authority, in the axes of those with it.
fn dut_only(analysis: &Analysis) -> String {
    let names = titles(&tables::dut_only(analysis));
    let Some(last) = names.len().checked_sub(1) else {
        return String::new();
    };
    format!(
        "\nset output \"dut-only.svg\"\nset title \"Round-trip times without the authority\"\n\
         array duts[{count}] = [{names}]\n\
         plot for [i=0:{last}] \"dut-only.dat\" index i using 2:3 with linespoints \
         title duts[i + 1]\n",
        count = names.len(),
        names = names.join(", "),
    )
}

/// Lateness: for each figure of a trial the median and the worst of all trials, and the limit.
fn lateness(analysis: &Analysis) -> String {
    let names = titles(&tables::lateness(analysis));
    let Some(last) = names.len().checked_sub(1) else {
        return String::new();
    };
    format!(
        "\nset output \"lateness.svg\"\nset title \"Lateness of queries, from the median to the worst trial\"\n\
         set xlabel \"figure of a trial\"\nset ylabel \"us\"\nunset logscale x\nset xrange [-0.5:3.9]\n\
         array senders[{count}] = [{names}]\n\
         plot for [i=0:{last}] \"lateness.dat\" index i using ($1 + i * 0.4 / {count}):2:2:3:xtic(5) \
         with yerrorbars title senders[i + 1], \\\n     \"lateness.dat\" index 0 using 1:4 with lines \
         dt 2 lc \"black\" title \"limit\"\n",
        count = names.len(),
        names = names.join(", "),
    )
}

/// The titles of the groups, as texts of gnuplot.
fn titles(table: &Table) -> Vec<String> {
    table
        .groups()
        .map(|group| quoted(&group[0][0].raw()))
        .collect()
}

/// A text as gnuplot reads it, in data and in scripts.
fn quoted(text: &str) -> String {
    let clean = text.replace(char::is_control, " ");
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "'"))
}
