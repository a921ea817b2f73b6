//! The top of a report: the ranking, and the most important warnings.

use super::*;
use crate::conform::case::Level;
use crate::conform::report::Verdict::{Failed, NotKnown, Passed};
use crate::conform::report::{CaseVerdict, Conformance, Verdict};
use crate::procedure::search::SearchEnd;
use crate::report::campaign::analysis::{Analysis, PointResult, Standing};
use crate::report::campaign::plots::{Figure, figures};
use crate::report::campaign::{tables, words};
use crate::trial::fault::TesterFault;
use crate::trial::result::Outcome;

fn of_lines(plan: &Plan, lines: &[Line]) -> Analysis {
    analyse(plan, lines, SEAL)
}

fn names<'a>(analysis: &'a Analysis, rows: &[Standing]) -> Vec<&'a str> {
    let names = rows
        .iter()
        .map(|row| analysis.variants[row.variant].name.as_str());
    names.collect()
}

/// Index of the representative point of a variant.
fn point_of(analysis: &Analysis, variant: usize) -> usize {
    let rows = &analysis.standings.rows;
    rows.iter()
        .find(|row| row.variant == variant)
        .unwrap()
        .point
}

/// Makes a run of a point end at another rate.
fn end_at(lines: &mut [Line], point: usize, run: u32, rate: u64) {
    for line in lines {
        if let Record::Finished(end) = &mut line.record
            && end.task == (Task::Search { point, run })
        {
            (end.rate_qps, end.failed_qps) = (Some(rate), Some(rate + rate / 100));
        }
    }
}

#[test]
fn servers_are_ranked_with_a_sentence_on_the_first_two() {
    let analysis = analysed(SMALL);
    let standings = &analysis.standings;
    assert_eq!(
        names(&analysis, &standings.rows),
        ["dns64d cores=1-2", "un_bound & <co>", "dns64d cores=1"]
    );
    let [answer] = &standings.answers[..] else {
        panic!("{:?}", standings.answers)
    };
    assert!(
        answer.starts_with("dns64d cores=1-2 is the fastest: 1.43 times (")
            && answer
                .ends_with("the rate of un_bound & <co>, the next; their ranges do not overlap"),
        "{answer}"
    );
    assert_eq!(standings.rows[0].against, "the fastest");
    let second = &standings.rows[1];
    assert_eq!(
        second.against,
        "slower than dns64d cores=1-2: ranges do not overlap"
    );
    let (low, high) = second.of_fastest_range.unwrap();
    let part = second.of_fastest.unwrap();
    assert!(low < part && part < high, "{low} {part} {high}");
}

#[test]
fn ranges_that_overlap_show_no_difference() {
    let (plan, mut lines) = small();
    let point = point_of(&of_lines(&plan, &lines), 2);
    end_at(&mut lines, point, 1, 17_100);
    let analysis = of_lines(&plan, &lines);
    let answer = &analysis.standings.answers[0];
    assert_eq!(
        answer,
        "No difference is shown between dns64d cores=1-2 and un_bound & <co>: their ranges overlap"
    );
}

#[test]
fn a_single_run_shows_no_difference() {
    let (plan, mut lines) = small();
    let point = point_of(&of_lines(&plan, &lines), 2);
    lines.retain(|line| {
        let Record::Finished(end) = &line.record else {
            return true;
        };
        !matches!(end.task, Task::Search { point: of, run } if of == point && run > 1)
    });
    let analysis = of_lines(&plan, &lines);
    let standings = &analysis.standings;
    assert_eq!(
        standings.answers,
        [
            "No difference is shown between dns64d cores=1-2 and un_bound & <co>: un_bound & <co> has one run, which shows no \
          spread"
        ]
    );
    let second = &standings.rows[1];
    assert_eq!(
        second.against,
        "one run shows no spread: no difference shown"
    );
    assert_eq!(second.of_fastest_range, None);
}

#[test]
fn runs_that_disagree_have_no_rate_and_no_rank() {
    let (plan, mut lines) = small();
    let point = point_of(&of_lines(&plan, &lines), 1);
    end_at(&mut lines, point, 2, 900);
    let analysis = of_lines(&plan, &lines);
    assert!(analysis.points[point].agreement.unwrap().unstable);
    let told = &analysis.verdict[1];
    assert!(
        told.starts_with("dns64d cores=1-2: unstable: 900 to 17,"),
        "{told}"
    );
    assert_eq!(
        names(&analysis, &analysis.standings.rows)[2],
        "dns64d cores=1-2"
    );
    let answer = &analysis.standings.answers[0];
    assert!(
        answer.ends_with("; not ranked because the runs disagree: dns64d cores=1-2"),
        "{answer}"
    );
    let grave = analysis
        .warnings
        .iter()
        .filter(|w| w.severity == Severity::Critical);
    let texts: Vec<_> = grave.map(|warning| warning.text.as_str()).collect();
    assert!(
        texts
            .iter()
            .any(|text| text.starts_with("the runs of 1 point disagree (900 to 17,")),
        "{texts:?}"
    );
}

#[test]
fn a_factor_has_the_digits_that_its_range_allows() {
    let (plan, mut lines) = small();
    let (first, second) = {
        let analysis = of_lines(&plan, &lines);
        (point_of(&analysis, 1), point_of(&analysis, 2))
    };
    end_at(&mut lines, second, 1, 10_000);
    let answer = of_lines(&plan, &lines).standings.answers.remove(0);
    assert!(
        answer.contains(" is the fastest: 1.4 times (1.4 to 1.7) the rate"),
        "{answer}"
    );
    for line in &mut lines {
        if let Record::Finished(end) = &mut line.record
            && matches!(end.task, Task::Search { point, .. } if point == first)
        {
            end.end = Some(SearchEnd::LimitedByRequest { rate_qps: 17_125 });
            end.failed_qps = None;
        }
    }
    let answer = of_lines(&plan, &lines).standings.answers.remove(0);
    assert!(
        answer.contains(" is the fastest: at least 41 % faster than"),
        "{answer}"
    );
}

/// Makes the runs of a point end because the Tester was disturbed.
fn disturb(lines: &mut [Line], point: usize, runs: std::ops::RangeInclusive<u32>) {
    for line in lines {
        if let Record::Finished(end) = &mut line.record
            && matches!(end.task, Task::Search { point: p, run } if p == point && runs.contains(&run))
        {
            let fault = TesterFault::ClockStep { step_ns: 3_600 };
            end.end = Some(SearchEnd::TesterFault { fault });
            end.rate_qps = None;
        }
    }
}

#[test]
fn server_without_an_ended_search_is_not_measured_yet() {
    let (plan, mut lines) = small();
    let point = point_of(&of_lines(&plan, &lines), 1);
    lines.retain(|line| line.record.task().is_none_or(|task| task.point() != point));
    let analysis = of_lines(&plan, &lines);
    assert_eq!(
        analysis.points[point].why_no_rate(),
        "no search has ended yet"
    );
    assert!(analysis.verdict[1].contains(": no search has ended yet at "));
    let mut lines = small().1;
    for line in &mut lines {
        if let Record::Finished(end) = &mut line.record
            && end.task.point() == point
        {
            (end.end, end.rate_qps) = (Some(SearchEnd::NothingPasses), None);
        }
    }
    let analysis = of_lines(&plan, &lines);
    assert_eq!(analysis.points[point].why_no_rate(), "no rate was found");
}

#[test]
fn rates_that_passed_in_disturbed_runs_are_lower_bounds_of_a_point_without_a_rate() {
    let (plan, mut lines) = small();
    let point = point_of(&of_lines(&plan, &lines), 1);
    let of_point = |lines: &[Line]| of_lines(&plan, lines).points.swap_remove(point);
    let rates = |found: &PointResult| {
        found
            .runs
            .iter()
            .map(|run| run.rate_qps)
            .collect::<Vec<_>>()
    };
    let undisturbed = of_point(&lines);
    disturb(&mut lines, point, 1..=1);
    let one = of_point(&lines);
    assert_eq!((rates(&one)[0], one.lower_bound), (None, false));
    assert_eq!(rates(&one)[1..], rates(&undisturbed)[1..]);
    disturb(&mut lines, point, 1..=3);
    let all = of_point(&lines);
    assert_eq!(rates(&all), rates(&undisturbed));
    assert_eq!(
        (all.lower_bound, all.median()),
        (true, undisturbed.median())
    );
}

#[test]
fn servers_without_a_second_rate_are_not_ranked() {
    let (plan, mut lines) = small();
    for variant in [1, 2] {
        let point = point_of(&of_lines(&plan, &lines), variant);
        end_at(&mut lines, point, 2, 900);
    }
    assert_eq!(
        of_lines(&plan, &lines).standings.answers,
        ["No server is the fastest: the runs of dns64d cores=1-2, un_bound & <co> disagree"]
    );
}

#[test]
fn rates_of_runs_that_disagree_stand_in_no_table_and_no_map() {
    let (plan, mut lines) = small();
    let own = |analysis: &Analysis| -> Vec<usize> {
        let points = analysis.points.iter().filter(|point| point.variant == 1);
        points.map(|point| point.point).take(2).collect()
    };
    for point in own(&of_lines(&plan, &lines)) {
        end_at(&mut lines, point, 2, 900);
    }
    let analysis = of_lines(&plan, &lines);
    let text = |text: &str| {
        analysis
            .warnings
            .iter()
            .any(|warning| warning.text.starts_with(text))
    };
    assert!(text("the runs of 2 points disagree (the first: 900 to 17,"));
    let tables = tables::all(&analysis);
    let results = tables.iter().find(|table| table.key == "results").unwrap();
    let median = results
        .columns
        .iter()
        .position(|column| column.key == "rate_qps")
        .unwrap();
    let unstable = results
        .rows
        .iter()
        .filter(|row| row[median].text("") == "unstable");
    assert_eq!(unstable.count(), 2);
    let bars = |analysis: &Analysis| {
        figures(analysis)["rates"][0]
            .svg
            .matches("class=\"fill s2\"")
            .count()
    };
    assert_eq!(bars(&analysis) + 2, bars(&analysed(SMALL)));
    let maps = figures(&analysis);
    let marked = |map: &&Figure| map.svg.contains("?</text>");
    assert_eq!(maps["heat"].iter().filter(marked).count(), 1);
}

#[test]
fn a_failed_soak_is_a_critical_warning() {
    let (plan, mut lines) = small();
    let soak = lines.iter_mut().find_map(|line| match &mut line.record {
        Record::Trial {
            task: Task::Soak { .. },
            result,
            ..
        } => Some(result),
        _ => None,
    });
    soak.unwrap().outcome = Outcome::Failed { shortfall: 5 };
    let analysis = of_lines(&plan, &lines);
    let warning = analysis
        .warnings
        .iter()
        .find(|w| w.text.starts_with("the soak at "));
    let warning = warning.unwrap();
    assert_eq!(warning.severity, Severity::Critical);
    assert!(
        warning
            .text
            .ends_with("failed: 5 queries without a valid answer in time, in 1 of 12 segments"),
        "{}",
        warning.text
    );
}

#[test]
fn remarks_that_differ_in_numbers_and_names_are_told_once() {
    let (plan, mut lines) = small();
    let mut trials = lines.iter_mut().filter_map(|line| match &mut line.record {
        Record::Trial { result, .. } => Some(result),
        _ => None,
    });
    for note in [
        "used 4.7 % of core 1 (most of all a, pid 5)",
        "used 72 % of core 1 (most of all b-c, pid 16)",
    ] {
        trials.next().unwrap().notes = vec![note.to_owned()];
    }
    let analysis = of_lines(&plan, &lines);
    let texts = analysis
        .warnings
        .iter()
        .map(|warning| warning.text.as_str());
    let told: Vec<_> = texts.filter(|text| text.starts_with("used")).collect();
    assert_eq!(
        told,
        ["used 4.7 % of core 1 (most of all a, pid 5) (the same or similar in 2 trials)"]
    );
}

#[test]
fn short_soak_has_no_change_per_hour() {
    for soak in &analysed(SMALL).soaks {
        assert!(!soak.slopes.is_empty());
        for slope in &soak.slopes {
            assert_eq!(slope.per_hour, None);
            assert!(!slope.verdict.contains("per hour"), "{}", slope.verdict);
        }
    }
}

#[test]
fn latencies_are_compared_at_a_rate_that_all_have_passed() {
    let analysis = analysed(SMALL);
    let load = &analysis.common_loads[0];
    assert_eq!(load.rows.len(), 3);
    let passed = |variant| {
        let point = &analysis.points[point_of(&analysis, variant)];
        point
            .steps()
            .any(|t| t.rate_qps == load.rate_qps && t.outcome == Outcome::Passed)
    };
    assert!((0..3).all(passed), "{}", load.rate_qps);
}

#[test]
fn models_of_few_cells_are_refused_without_an_r_squared() {
    let analysis = analysed(SMALL);
    let over_one: Vec<_> = analysis
        .models
        .iter()
        .filter(|model| model.fitted.iter().all(|row| row.other_pct <= 0.0))
        .collect();
    assert!(!over_one.is_empty());
    for model in over_one {
        assert_eq!(model.r_squared, None);
        assert_eq!(
            model.refused.as_deref(),
            Some("3 cells are too few to judge a fit of 2 parameters: measure at least 5")
        );
    }
    assert!(
        !analysis
            .warnings
            .iter()
            .any(|w| w.text.contains("is refused"))
    );
}

#[test]
fn each_point_has_processor_time_if_its_trials_have() {
    let analysis = analysed(SMALL);
    for point in &analysis.points {
        // 100 us for each query: 1 % of a core for 100 queries per second.
        let expected = (point.variant == 0).then(|| point.median().unwrap() / 100.0);
        let known = point.dut_cpu_pct;
        assert!(known.is_some() == expected.is_some());
        assert!(
            known
                .zip(expected)
                .is_none_or(|(a, b)| (a - b).abs() < 1e-9)
        );
    }
    let column = |file: &str| {
        text_of(file)
            .lines()
            .next()
            .unwrap()
            .contains("dut_cpu_pct")
    };
    assert!(column("points.csv") && column("trials.csv"));
}

/// Three musts passed, one failed, and what does not count.
fn tested() -> Conformance {
    let case = |(name, level, verdict): (&str, Level, Verdict)| {
        (name.to_owned(), CaseVerdict { level, verdict })
    };
    let cases = [
        ("rfc6147-a", Level::Must, Failed),
        ("rfc6147-b", Level::Must, Passed),
        ("rfc6147-c", Level::Must, Passed),
        ("rfc6147-d", Level::Must, Passed),
        ("rfc6147-e", Level::Must, NotKnown),
        ("rfc6147-f", Level::Should, Failed),
        ("rfc6147-g", Level::Policy, Passed),
    ];
    Conformance {
        incomplete: None,
        cases: cases.map(case).into(),
    }
}

#[test]
fn server_that_fails_a_must_has_a_mark_and_its_verdicts() {
    let (plan, mut lines) = small();
    let before = of_lines(&plan, &lines);
    for line in &mut lines {
        if let Record::Variant {
            variant: 0,
            conformance,
            ..
        } = &mut line.record
        {
            *conformance = Some(Box::new(tested()));
        }
    }
    let analysis = of_lines(&plan, &lines);
    assert_eq!(analysis.name_of(0), format!("{}‡", before.name_of(0)));
    assert_eq!(analysis.variants[0].name, before.variants[0].name);
    assert_eq!(analysis.name_of(1), before.name_of(1));
    assert_eq!(analysis.warnings.len(), before.warnings.len() + 1);
    let of_first = |it: &&PointResult| it.variant == 0;
    let failed = analysis.points.iter().find(of_first).unwrap();
    assert!(failed.rules_failed.contains(&"conformance"));
    let csv = |analysis: &Analysis| {
        let tables = tables::all(analysis);
        let table = tables.into_iter().find(|table| table.key == "standings");
        let table = table.unwrap();
        let cells = table.rows.iter().flatten().map(|cell| cell.text("; "));
        cells.filter(|text| text == "3 of 4 must").count()
    };
    assert_eq!([csv(&before), csv(&analysis)], [0, 1]);
}

#[test]
fn rate_above_the_certificate_is_explained_in_place() {
    let (plan, lines) = small();
    let means = words::UNCERTIFIED_MEANS;
    let mut analysis = of_lines(&plan, &lines);
    let caption = |analysis: &Analysis| {
        let tables = tables::all(analysis);
        let table = tables.iter().find(|table| table.key == "standings");
        table.unwrap().caption.clone()
    };
    assert!(!caption(&analysis).contains(means));
    for point in &mut analysis.points {
        point.certified = Some(false);
    }
    assert!(
        caption(&analysis).ends_with(means),
        "{}",
        caption(&analysis)
    );
    for table in tables::papers(&analysis) {
        let (before, _) = table.caption.split_once(means).unwrap();
        assert!(before.ends_with(". "), "{}", table.caption);
    }
    let figures = figures(&analysis);
    for figure in [&figures["rates"][0], &figures["heat"][0]] {
        assert!(figure.title.contains("† marks"), "{}", figure.title);
        assert!(figure.svg.contains("†</text>"), "{}", figure.svg);
    }
}

#[test]
fn map_with_few_tiles_is_omitted() {
    let (plan, lines) = small();
    let mut analysis = of_lines(&plan, &lines);
    assert!(!figures(&analysis)["heat"].is_empty());
    for point in &mut analysis.points {
        point.cached_pct = 0.0;
    }
    assert_eq!(figures(&analysis)["heat"].len(), 0);
}
