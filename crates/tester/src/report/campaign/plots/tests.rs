use super::*;
use crate::report::campaign::html::specimen;

fn sample() -> Analysis {
    let cells = [(0.0, 0.0), (50.0, 0.0), (100.0, 0.0), (0.0, 100.0)];
    specimen::analysis(3, &cells, 20)
}

fn first_rows(figure: &Figure, rows: usize) -> Vec<String> {
    let rows = figure.table.rows.iter().take(rows);
    rows.map(|row| row.join(" | ")).collect()
}

#[test]
fn bars_are_grouped_by_cell_and_hold_the_plans_trials_only() {
    let figures = Figures::of(&sample());
    let [figure] = &figures.rates[..] else {
        panic!("{} figures", figures.rates.len());
    };
    assert_eq!(
        first_rows(figure, 4),
        [
            "AAAA 0 %, cached 0 % | dns64d | 41,300 | 40,680.5 | 41,919.5",
            "AAAA 0 %, cached 0 % | Unbound 1 thread | 14,200 | 13,987 | 14,413",
            "AAAA 0 %, cached 0 % | Unbound 4 threads | 37,800 | 37,233 | 38,367",
            "AAAA 50 %, cached 0 % | dns64d | 52,278.5 | 51,494.3 | 53,062.7",
        ]
    );
    assert_eq!(figure.table.rows.len(), 12, "not the trials of 5 s");
    assert_eq!(figure.legend.len(), 3);
    let bound = &figure.table.rows[9];
    assert_eq!(bound[2], "≥ 206,500");
    assert!(figure.svg.contains(">≥ 206,500</text>"));
}

#[test]
fn many_bars_are_spread_over_figures() {
    let cells: Vec<_> = (0..=20).map(|i| (5.0 * f64::from(i), 0.0)).collect();
    let figures = Figures::of(&specimen::analysis(3, &cells, 3));
    let bars = figures.rates.iter().map(|figure| figure.table.rows.len());
    assert_eq!(bars.collect::<Vec<_>>(), [18, 18, 18, 9]);
    assert!(figures.rates[3].title.ends_with("(4 of 4)"));
}

#[test]
fn curves_show_the_model_beside_the_medians() {
    let figures = Figures::of(&sample());
    let titles: Vec<_> = figures.curves.iter().map(|figure| &figure.title).collect();
    assert_eq!(titles.len(), 2);
    assert!(titles[0].contains("AAAA share") && titles[1].contains("cached share"));
    assert_eq!(
        first_rows(&figures.curves[0], 2),
        [
            "dns64d | 0 | 41,300 | 41,713 | 1.00",
            "dns64d | 50 | 52,278.5 | 52,801 | 1.00",
        ]
    );
}

#[test]
fn a_search_is_told_trial_by_trial() {
    let figures = Figures::of(&sample());
    let figure = &figures.convergence[0].figures[0];
    let trials = "+1000 +2000 +4000 +8000 +16000 +32000 ×64000 ×48000 +40000 ×44000 ×42000 +41000 \
                  ×41500 +41250";
    assert_eq!(
        first_rows(figure, 1),
        [format!("1 | 41,250 | 41,500 | 5 min 11 s | {trials}")]
    );
}

#[test]
fn marks_of_many_searches_are_few_elements() {
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
fn what_a_soak_did_not_see_has_no_figure() {
    let figures = Figures::of(&sample());
    let titles: Vec<_> = figures.soak[0]
        .figures
        .iter()
        .map(|f| f.title.as_str())
        .collect();
    assert_eq!(
        titles,
        [
            "Resident memory",
            "Open descriptors",
            "99th percentile of the round-trip times",
            "99.9th percentile of the round-trip times",
        ]
    );
}

#[test]
fn doubtful_points_of_an_overload_are_said_to_be() {
    let figures = Figures::of(&sample());
    let [goodput, latency] = &figures.overload[0].figures[..] else {
        panic!("not two figures");
    };
    let mut hollow = goodput.svg.split("<path class=\"line s1\" d=\"").skip(1);
    let hollow = hollow.next().and_then(|rest| rest.split('"').next());
    assert_eq!(hollow.unwrap().matches('M').count(), 2);
    assert_eq!(goodput.table.rows, latency.table.rows);
    assert_eq!(goodput.table.rows[8][5], "yes");
    assert_eq!(goodput.table.rows[8][1], "5.00");
}

#[test]
fn tables_have_a_cell_for_each_column() {
    let figures = Figures::of(&sample());
    let groups = [figures.convergence, figures.overload, figures.soak];
    let grouped = groups.into_iter().flatten().flat_map(|group| group.figures);
    let single = [
        figures.rates,
        figures.latency,
        figures.curves,
        figures.scaling,
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
