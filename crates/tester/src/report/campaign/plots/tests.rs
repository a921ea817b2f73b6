mod evidence;

use super::*;
use crate::report::campaign::analysis::OverloadRow;
use crate::report::campaign::tests::sample::{SMALL, analysed};

/// The small sample with four cells and twenty runs.
fn sample() -> Analysis {
    let cells = SMALL.replace(r#"["0%", "50%", "100%"]"#, r#"["0%", "100%"]"#);
    let cells = cells.replacen(r#"["0%", "100%"]"#, r#"["0%", "50%", "100%"]"#, 1);
    analysed(&cells.replace("runs = 3", "runs = 20"))
}

fn first_rows(figure: &Figure, rows: usize) -> Vec<String> {
    let rows = figure.table.rows.iter().take(rows);
    rows.map(|row| row.join(" | ")).collect()
}

#[test]
fn bars_are_grouped_by_cell_without_queue_check() {
    let figures = Figures::of(&sample());
    let [figure] = &figures.rates[..] else {
        panic!("{} figures", figures.rates.len());
    };
    assert_eq!(
        first_rows(figure, 4),
        [
            "AAAA 0 %, cached 0 % | dns64d cores=1 | 9,000 | 9,000 | 9,062",
            "AAAA 0 %, cached 0 % | dns64d cores=1-2 | 17,125 | 17,000 | 17,125",
            "AAAA 0 %, cached 0 % | un_bound & <co> | 12,000 | 12,000 | 12,062",
            "AAAA 50 %, cached 0 % | dns64d cores=1 | 11,250 | 11,250 | 11,312",
        ]
    );
    assert_eq!(figure.table.rows.len(), 12, "not the trials of 2 s");
    assert_eq!(figure.legend.len(), 3);
    let bound = &figure.table.rows[10];
    assert_eq!(bound[2], "≥ 59,000");
    assert!(figure.svg.contains(">≥ 59,000</text>"));
}

#[test]
fn many_bars_are_spread_over_figures() {
    let shares: Vec<_> = (0..=20).map(|i| format!("\"{}%\"", 5 * i)).collect();
    let shares = format!("aaaa-share = [{}]\n", shares.join(", "));
    let cells =
        "aaaa-share = [\"0%\", \"50%\", \"100%\"]\ncached-share = [\"0%\", \"50%\", \"100%\"]\n";
    let figures = Figures::of(&analysed(&SMALL.replace(cells, &shares)));
    let bars = figures.rates.iter().map(|figure| figure.table.rows.len());
    assert_eq!(bars.collect::<Vec<_>>(), [18, 18, 18, 9]);
    assert!(figures.rates[3].title.ends_with("(4 of 4)"));
}

#[test]
fn curves_show_the_model_beside_the_medians() {
    let mut analysis = sample();
    // The sample has too few cells for accepted models.
    for model in &mut analysis.models {
        model.refused = None;
    }
    for row in analysis
        .models
        .iter_mut()
        .flat_map(|model| &mut model.fitted)
    {
        row.modelled *= 1.02;
    }
    let figures = Figures::of(&analysis);
    let titles: Vec<_> = figures.curves.iter().map(|figure| &figure.title).collect();
    assert_eq!(titles.len(), 2);
    assert!(titles[0].contains("AAAA share") && titles[1].contains("cached share"));
    assert_eq!(
        first_rows(&figures.curves[0], 2),
        [
            "dns64d cores=1 | 0 | 9,000 | 9,180 | 2.00",
            "dns64d cores=1 | 50 | 11,250 | 11,475 | 2.00",
        ]
    );
}

#[test]
fn search_figure_shows_each_trial() {
    let figures = Figures::of(&sample());
    let figure = &figures.convergence[0].figures[0];
    let trials = "+4000 ?8000 +8000 ×16000 ×12000 ×10000 +9000 ×9500 ×9250 ×9125 ×9062";
    assert_eq!(
        first_rows(figure, 1),
        [format!("1 | 9,000 | 9,062 | 27.5 s | {trials}")]
    );
}

#[test]
fn many_marks_need_few_elements() {
    let figures = Figures::of(&sample());
    let svg = &figures.convergence[0].figures[0].svg;
    for class in ["line passed", "line failed", "line invalid"] {
        assert_eq!(
            svg.matches(&format!("class=\"{class}\"")).count(),
            1,
            "{class}"
        );
    }
    assert!(svg.len() < 12_000, "{} octets", svg.len());
}

#[test]
fn quantity_missing_in_a_soak_has_no_figure() {
    let mut analysis = sample();
    for row in &mut analysis.soaks[0].rows {
        row.threads = None;
    }
    let figures = Figures::of(&analysis);
    let titles: Vec<_> = figures.soak[0]
        .figures
        .iter()
        .map(|f| f.title.as_str())
        .collect();
    assert_eq!(
        titles,
        [
            "Queries without a valid answer in time",
            "Resident memory",
            "Open descriptors",
            "99th percentile of the round-trip times",
            "99.9th percentile of the round-trip times",
        ]
    );
}

#[test]
fn doubtful_overload_points_are_marked() {
    let figures = Figures::of(&sample());
    let [goodput, latency] = &figures.overload[1].figures[..] else {
        panic!("not two figures");
    };
    let mut hollow = goodput.svg.split("<path class=\"line s2\" d=\"").skip(1);
    let hollow = hollow.next().and_then(|rest| rest.split('"').next());
    assert_eq!(hollow.unwrap().matches('M').count(), 1);
    assert_eq!(goodput.table.rows, latency.table.rows);
    assert_eq!(goodput.table.rows[3][5], "yes");
    assert_eq!(goodput.table.rows[3][1], "5.00");
}

#[test]
fn repeated_trials_of_an_overload_are_marks_beside_the_line() {
    let mut analysis = sample();
    let lines = |analysis: &Analysis| {
        let svg = &Figures::of(analysis).overload[1].figures[0].svg;
        let curve = svg
            .split("<path class=\"line s2\" style=\"stroke-width:3\" d=\"")
            .nth(1);
        let curve = curve
            .and_then(|rest| rest.split('"').next())
            .unwrap()
            .to_owned();
        (curve, svg.matches("<path class=\"line s2\" d=\"").count())
    };
    let (curve, hollow) = lines(&analysis);
    let rows = &mut analysis.overloads[1].rows;
    let disturbed = OverloadRow {
        goodput_qps: 1.0,
        doubtful: true,
        ..rows[1]
    };
    rows.insert(1, disturbed);
    assert_eq!(lines(&analysis), (curve, hollow + 1));
}

#[test]
fn tables_have_a_cell_for_each_column() {
    let figures = Figures::of(&sample());
    let groups = [figures.convergence, figures.overload, figures.soak];
    let grouped = groups.into_iter().flatten().flat_map(|group| group.figures);
    assert_eq!(figures.standings.len(), 3);
    let single = [
        figures.heat,
        figures.courses,
        figures.common_loads,
        figures.rates,
        figures.distributions,
        figures.margins,
        figures.sender,
        figures.losses,
        figures.messages,
        figures.dut_only,
        figures.latency,
        figures.curves,
        figures.scaling,
        figures.authorities,
        figures.delays,
        figures.working_sets,
        figures.memory,
    ];
    for figure in grouped.chain(single.into_iter().flatten()) {
        let Table { columns, rows } = figure.table;
        assert!(!rows.is_empty(), "{}", figure.title);
        assert!(
            rows.iter().all(|row| row.len() == columns.len()),
            "{}: {columns:?}",
            figure.title
        );
    }
}
