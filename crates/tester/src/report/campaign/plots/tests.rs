use super::*;
use crate::report::campaign::analysis::OverloadRow;
use crate::report::campaign::tests::sample::{SMALL, analysed};

/// The small sample with four cells and twenty runs.
fn sample() -> Analysis {
    let cells = SMALL.replace(r#"["0%", "50%", "100%"]"#, r#"["0%", "100%"]"#);
    let cells = cells.replacen(r#"["0%", "100%"]"#, r#"["0%", "50%", "100%"]"#, 1);
    analysed(&cells.replace("runs = 3", "runs = 20"))
}

/// The paths of this class in a drawing, as their data.
fn paths<'f>(figure: &'f Figure, class: &str) -> Vec<&'f str> {
    let begin = format!("<path class=\"{class}\"");
    let of_class = figure.svg.split(begin.as_str()).skip(1);
    let data = of_class.filter_map(|rest| rest.split(" d=\"").nth(1)?.split('"').next());
    data.collect()
}

#[test]
fn bars_are_grouped_by_cell_without_queue_check() {
    let figures = figures(&sample());
    let [figure] = &figures["rates"][..] else {
        panic!("{} figures", figures["rates"].len());
    };
    let bars = ["fill s1", "fill s2", "fill s3"].map(|class| paths(figure, class).len());
    assert_eq!(bars, [4, 4, 4], "not the trials of 2 s");
    assert_eq!(figure.legend.len(), 3);
    assert!(figure.svg.contains(">≥ 59,000</text>"));
}

#[test]
fn many_bars_are_spread_over_figures() {
    let shares: Vec<_> = (0..=20).map(|i| format!("\"{}%\"", 5 * i)).collect();
    let shares = format!("aaaa-share = [{}]\n", shares.join(", "));
    let cells =
        "aaaa-share = [\"0%\", \"50%\", \"100%\"]\ncached-share = [\"0%\", \"50%\", \"100%\"]\n";
    let figures = figures(&analysed(&SMALL.replace(cells, &shares)));
    let bars = figures["rates"]
        .iter()
        .map(|figure| paths(figure, "fill s1").len());
    assert_eq!(bars.collect::<Vec<_>>(), [6, 6, 6, 3]);
    assert!(figures["rates"][3].title.ends_with("(4 of 4)"));
}

#[test]
fn curves_show_accepted_models_as_dashes() {
    let mut analysis = sample();
    let dashes = |analysis: &Analysis| {
        let figures = figures(analysis);
        let curves = figures["curves"].iter();
        let dashes = curves.map(|figure| figure.svg.matches("stroke-dasharray").count());
        dashes.collect::<Vec<_>>()
    };
    // The sample has too few cells for accepted models.
    assert_eq!(dashes(&analysis), [0, 0]);
    for model in &mut analysis.models {
        model.refused = None;
    }
    assert_eq!(dashes(&analysis), [3, 0]);
}

#[test]
fn quantity_missing_in_a_soak_has_no_figure() {
    let mut analysis = sample();
    for row in &mut analysis.soaks[0].rows {
        row.memory_bytes = None;
    }
    let figures = figures(&analysis);
    let name = analysis.name_of(analysis.soaks[0].variant);
    let own = figures["soak"].iter();
    let own = own.filter(|figure| figure.title.starts_with(&format!("{name}: ")));
    assert_eq!(own.count(), 2);
}

/// The overload of the second variant.
fn goodput(analysis: &Analysis) -> Figure {
    figures(analysis)["overload"][1].clone()
}

#[test]
fn doubtful_overload_points_are_hollow() {
    let mut analysis = sample();
    let hollow = |analysis: &Analysis| {
        let figure = goodput(analysis);
        let lines = figure.svg.split("<path class=\"line s2\" d=\"");
        lines
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().matches('M').count())
            .sum()
    };
    let before: usize = hollow(&analysis);
    assert_eq!(before, 1);
    let rows = &mut analysis.overloads[1].rows;
    let disturbed = OverloadRow {
        goodput_qps: 1.0,
        doubtful: true,
        ..rows[1]
    };
    rows.insert(1, disturbed);
    assert_eq!(hollow(&analysis), before + 1);
}

#[test]
fn a_file_of_a_figure_says_what_the_page_does() {
    let mut analysis = sample();
    let file = |analysis: &Analysis| {
        let figure = &figures(analysis)["rates"][0];
        figure.captioned(&conditions(analysis)).svg_file()
    };
    let plain = file(&analysis);
    for said in [
        "≥ 59,000",
        "dns64d cores=1-2",
        "un_bound &amp; &lt;co&gt;",
        "n = 19 to 20;",
        "timeout",
    ] {
        assert!(plain.contains(said), "{said}: {plain}");
    }
    assert!(!plain.contains("NOT A MEASUREMENT") && !plain.contains("var("));
    analysis.not_a_measurement.push("no certificate".to_owned());
    assert!(file(&analysis).contains("NOT A MEASUREMENT: no certificate"));
}

/// A word of an SVG as a string of a PDF has it.
fn of_pdf(word: &str) -> String {
    let replaced = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
        ("≥", ">="),
        ("–", "\\226"),
        ("−", "\\226"),
        ("†", "\\206"),
        ("(", "\\050"),
        (")", "\\051"),
    ];
    let replaced = replaced.iter();
    replaced.fold(word.to_owned(), |word, (from, to)| word.replace(from, to))
}

#[test]
fn pdf_of_each_figure_has_its_paths_and_words() {
    let mut analysis = sample();
    analysis.points[0].certified = Some(false);
    for figure in figures(&analysis).values().flatten() {
        let drawing = figure.captioned(&conditions(&analysis));
        let (svg, pdf) = (drawing.svg_file(), drawing.pdf_file());
        let operators = |wanted: &[&str]| {
            let ends = pdf.lines().filter_map(|line| line.rsplit(' ').next());
            ends.filter(|operator| wanted.contains(operator)).count()
        };
        let paths = svg.split("<path ").skip(1);
        let paths = paths.map(|path| path.split("/>").next().unwrap());
        assert_eq!(operators(&["S", "f"]), paths.clone().count());
        let starts = paths.map(|path| path.matches('M').count());
        assert_eq!(operators(&["m"]), starts.sum::<usize>());
        let words = svg.split("</text>").map(|word| word.rsplit('>').next());
        let words: Vec<_> = words.flatten().map(of_pdf).collect();
        let drawn = pdf.lines().filter_map(|line| {
            let (_, word) = line.strip_suffix(") Tj ET")?.split_once(" Tm (")?;
            Some(word)
        });
        let drawn: Vec<_> = drawn.chain(["\n"]).collect();
        assert_eq!(drawn, words, "{}", figure.title);
    }
}

#[test]
fn every_subject_of_the_sample_has_a_figure() {
    let figures = figures(&sample());
    let empty: Vec<_> = figures
        .iter()
        .filter(|(_, figures)| figures.is_empty())
        .collect();
    let empty: Vec<_> = empty.into_iter().map(|(key, _)| *key).collect();
    assert_eq!(empty, ["delays", "working_sets"]);
    assert_eq!(standings::bars(&sample()).len(), 3);
}
