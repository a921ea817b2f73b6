//! Data and a script for gnuplot: medians as boxes with the 1st and 99th percentile, the distribution of the runs, the
//! trials of every search, and round-trip times by percentile.

use std::io;

use super::analysis::Analysis;
use super::table::{Cell, Exporter, Table};
use super::tables;

/// Data in blocks, the indices of gnuplot: one block with a title for each group.
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

/// The script. Run in the folder of the data, it draws one picture for each file with data.
pub(super) fn script(analysis: &Analysis) -> String {
    let mut out = String::from(
        "# In this folder: gnuplot plot.gp\nset key outside below height 1\nset grid\n\
         set style fill solid 0.5\nset offsets graph 0.02, graph 0.02, graph 0.03, 0\n\
         set xtics rotate by -45\n\
         # The mark of what is not certified stands above its bar, and not at the axis.\n\
         mark(cell) = strstrt(cell, \"†\") > 0 ? \"†\" : \"\"\n\
         plain(cell) = strstrt(cell, \"†\") > 0 ? cell[1:strstrt(cell, \"†\") - 1].\
         cell[strstrt(cell, \"†\") + strlen(\"†\"):*] : cell\n\
         # Of each variant the colour and the mark that the page has.\n",
    );
    for place in 0..analysis.variants.len() {
        let (colour, mark) = (COLOURS[place % COLOURS.len()], MARKS[place % MARKS.len()]);
        out += &format!("set linetype {} lc rgb \"{colour}\" pt {mark}\n", place + 1);
    }
    out += &rates(analysis);
    let runs = Series::of(&tables::distribution(analysis));
    if let Some(last) = runs.last {
        out += &format!(
            "{canvas}set title \"Distribution of the runs\"\n\
             set xlabel \"queries/s\"\nset ylabel \"share of the runs up to a rate\"\n\
             set xtics norotate autofreq\nset yrange [0:1.02]\n{arrays}\
             plot for [i=0:{last}] \"distribution.dat\" index i using 1:4 with steps \
             {style} title runs[i + 1], \\\n     for [i=0:{last}] \"distribution.dat\" index i \
             using 1:3 with impulses {style} notitle\n",
            canvas = canvas("distribution", runs.titles.len()),
            arrays = runs.arrays("runs"),
            style = style("runs"),
        );
    }
    out += &convergence(analysis);
    let latency = Series::of(&tables::latency(analysis));
    if let Some(last) = latency.last {
        out += &format!(
            "{canvas}set title \"Round-trip times\"\n\
             set xlabel \"slower answers, %\"\nset ylabel \"us\"\nset xtics norotate autofreq\n\
             set yrange [*:*]\nset logscale xy\nset xrange [100:0.001] reverse\n{arrays}\
             plot for [i=0:{last}] \"latency.dat\" index i using 2:3 with linespoints \
             {style} title points[i + 1]\n",
            canvas = canvas("latency", latency.titles.len()),
            arrays = latency.arrays("points"),
            style = style("points"),
        );
    }
    out + &dut_only(analysis) + &lateness(analysis)
}

/// A picture with this number of titles below: higher by their lines, so that the diagram keeps its height.
fn canvas(name: &str, titles: usize) -> String {
    let height = HEIGHT + titles * LINE;
    format!("\nset terminal svg size 1000,{height} noenhanced\nset output \"{name}.svg\"\n")
}

/// Medians as boxes, with the 1st and 99th percentile.
fn rates(analysis: &Analysis) -> String {
    let rates = Series::of(&tables::rates(analysis));
    let Some(last) = rates.last else {
        return String::new();
    };
    format!(
        "{canvas}set title {title}\nset xlabel \"AAAA / cached, %\"\n\
             set ylabel \"queries/s\"\nset yrange [0:*]\nwidth = 0.8 / {count}\n{arrays}\
             plot for [i=0:{last}] \"rates.dat\" index i using ($1 + i * width):2:(width) \
             with boxes lt variant_rates[i + 1] title rates[i + 1], \\\n     for [i=0:{last}] \
             \"rates.dat\" index i using ($1 + i * width):3:(0):($4 - $3) with vectors heads \
             size graph 0.006,90 lc rgb \"{INK}\" notitle, \\\n     for [i=0:{last}] \
             \"rates.dat\" index i using ($1 + i * width):4:(mark(strcol(5))) with labels \
             offset 0,0.6 notitle, \\\n     for [i=0:{last}] \
             \"rates.dat\" index i using ($1 + {last} * width / 2):(0):xtic(plain(strcol(5))) \
             with dots lc rgb \"white\" notitle\n",
        canvas = canvas("rates", rates.titles.len()),
        title = quoted(&analysis.name),
        count = last + 1,
        arrays = rates.arrays("rates"),
    )
}

/// Every search, with the marks of the page for outcomes.
fn convergence(analysis: &Analysis) -> String {
    let groups = tables::convergence(analysis).groups().count();
    let Some(last) = groups.checked_sub(1) else {
        return String::new();
    };
    let mut out = format!(
        "{canvas}set title \"Trials of every search\"\n\
         set xlabel \"trial\"\nset ylabel \"queries/s\"\nset xtics norotate autofreq\n\
         set yrange [*:*]\nplot for [i=0:{last}] \"convergence.dat\" index i using 1:2 \
         with lines lc rgb \"{GREY}\" notitle",
        canvas = canvas("convergence", OUTCOMES.len()),
    );
    for (outcome, colour, mark, name) in OUTCOMES {
        out += &format!(
            ", \\\n     \"convergence.dat\" using 1:($3 == {outcome} ? $2 : NaN) with points \
             lc rgb \"{colour}\" pt {mark} title \"{name}\""
        );
    }
    out + "\n"
}

/// Round-trip times without the authority, on the same axes as those with it.
fn dut_only(analysis: &Analysis) -> String {
    let duts = Series::of(&tables::dut_only(analysis));
    let Some(last) = duts.last else {
        return String::new();
    };
    format!(
        "{canvas}set title \"Round-trip times without the authority\"\n{arrays}\
         plot for [i=0:{last}] \"dut-only.dat\" index i using 2:3 with linespoints \
         {style} title duts[i + 1]\n",
        canvas = canvas("dut-only", duts.titles.len()),
        arrays = duts.arrays("duts"),
        style = style("duts"),
    )
}

/// Lateness: for each figure of a trial the median and the maximum over all trials, and the limit.
fn lateness(analysis: &Analysis) -> String {
    let senders = Series::of(&tables::lateness(analysis));
    let Some(last) = senders.last else {
        return String::new();
    };
    format!(
        "{canvas}set title \"Lateness of queries, from the median to the worst trial\"\n\
         set xlabel \"figure of a trial\"\nset ylabel \"us\"\nunset logscale x\nset xrange [-0.5:3.9]\n{arrays}\
         plot for [i=0:{last}] \"lateness.dat\" index i using ($1 + i * 0.4 / {count}):2:2:3 \
         with yerrorbars lt variant_senders[i + 1] title senders[i + 1], \\\n     \"lateness.dat\" \
         index 0 using ($1 + {last} * 0.2 / {count}):2:xtic(5) with dots lc rgb \"white\" notitle, \\\n     \"lateness.dat\" \
         index 0 using 1:4 with lines dt 2 lc rgb \"{INK}\" title \"limit\"\n",
        canvas = canvas("lateness", senders.titles.len()),
        count = last + 1,
        arrays = senders.arrays("senders"),
    )
}

/// The groups of a file, each with its title and style.
struct Series {
    /// Index of the last group, if any.
    last: Option<usize>,
    titles: Vec<String>,
    /// Number of the variant of each group, from 1.
    variants: Vec<String>,
    /// Number of each group's cell among those of its variant, from 1; empty for variants.
    cells: Vec<String>,
}

impl Series {
    /// The groups of a table with owner columns.
    fn of(table: &Table) -> Self {
        let of_groups = |at: usize| table.groups().map(move |group| group[0][at].raw());
        let column = |key: &str| table.columns.iter().position(|column| column.key == key);
        let numbers = |key| column(key).into_iter().flat_map(of_groups).collect();
        Self {
            last: table.groups().count().checked_sub(1),
            titles: of_groups(0).collect(),
            variants: numbers("variant_number"),
            cells: numbers("cell_number"),
        }
    }

    /// The groups as arrays of gnuplot; the titles have this name.
    fn arrays(&self, name: &str) -> String {
        let count = self.titles.len();
        let array = |name: &str, values: &[String]| {
            format!("array {name}[{count}] = [{}]\n", values.join(", "))
        };
        let titles: Vec<_> = self.titles.iter().map(|title| quoted(title)).collect();
        let mut out = array(name, &titles);
        out += &array(&format!("variant_{name}"), &self.variants);
        if !self.cells.is_empty() {
            out += &array(&format!("cell_{name}"), &self.cells);
        }
        out
    }
}

/// Style of a group of points: colour and mark of the variant, dashes of the cell.
fn style(name: &str) -> String {
    format!("lt variant_{name}[i + 1] dt cell_{name}[i + 1]")
}

/// A text quoted for gnuplot, for data and scripts.
fn quoted(text: &str) -> String {
    let clean = text.replace(char::is_control, " ");
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "'"))
}

/// Height of a picture without titles.
const HEIGHT: usize = 600;

/// Height of a title in the font of the terminal.
const LINE: usize = 18;

/// Colours of variants on a white page: `--s1` to `--s6` of the style sheet.
const COLOURS: [&str; 6] = [
    "#0072b2", "#c98600", "#008c66", "#b65a8f", "#3f9fd0", "#d55e00",
];

/// Filled circle, square, triangle, diamond and inverted triangle, as numbers of gnuplot.
const MARKS: [u8; 5] = [7, 5, 9, 13, 11];

/// Colour of lines without a variant.
const INK: &str = "#1b1b1a";

/// Colour of lines between trials.
const GREY: &str = "#6a6f74";

/// Number in the data, colour and mark on the page, name.
const OUTCOMES: [(i8, &str, u8, &str); 3] = [
    (0, "#a3210f", 2, "failed"),
    (-1, "#6a6f74", 12, "invalid"),
    (1, INK, 7, "passed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_the_page() {
        let page = include_str!("style.css.jinja");
        for (place, colour) in COLOURS.iter().enumerate() {
            let defined = format!("--s{}:{colour}", place + 1);
            assert!(page.contains(&defined), "{defined}");
        }
        for (_, colour, _, name) in OUTCOMES {
            let defined = format!("--{name}:{colour}");
            assert!(page.contains(&defined), "{defined}");
        }
    }
}
