//! The complete files of the small sample, and properties of any report.

use expect_test::{ExpectFile, expect_file};
use serde_json::Value;

use super::analyse::analyse;
use super::analysis::{Analysis, Met};
use super::files::files;
use super::tables;
use crate::campaign::plan::Plan;
use crate::campaign::plan::tasks::Task;
use crate::campaign::record::{Line, Record};
use crate::lab::LabKind;
use crate::report::tests::schemas;
use crate::statistics::pass::{PassProbability, Refused};
use crate::trial::result::TrialResult;
use crate::warning::Severity;

mod authorities;
mod authority;
mod hosts;
mod losses;
pub(crate) mod sample;
mod standings;
mod statement;

use sample::{SEAL, SMALL, analysed, full, small};

fn text_of(file: &str) -> String {
    let (plan, lines) = small();
    let analysis = analyse(&plan, &lines, SEAL);
    let files = files(&analysis, &lines).unwrap();
    let (_, octets) = files.into_iter().find(|(path, _)| *path == file).unwrap();
    String::from_utf8(octets).unwrap()
}

fn check(file: &str, expected: &ExpectFile) {
    expected.assert_eq(&text_of(file));
}

/// The words of the page: verdict, warnings, and the cells of all tables.
fn words_of(analysis: &Analysis) -> String {
    let mut text = analysis.verdict.join("\n") + "\n";
    text.extend(
        analysis
            .warnings
            .iter()
            .map(|warning| format!("- {warning}\n")),
    );
    for table in tables::all(analysis) {
        text += &format!("\n# {}\n{}\n", table.key, table.caption);
        text.extend(table.notes.iter().map(|note| format!("- {note}\n")));
        let heads: Vec<_> = table.columns.iter().map(|c| c.head.as_str()).collect();
        text += &(heads.join(" | ") + "\n");
        for row in &table.rows {
            let cells: Vec<_> = row.iter().map(|cell| cell.text("; ")).collect();
            text += &(cells.join(" | ") + "\n");
        }
    }
    text
}

#[test]
fn the_words_of_a_page() {
    expect_file!["testdata/page.txt"].assert_eq(&words_of(&analysed(SMALL)));
}

#[test]
fn the_tables_of_the_papers() {
    check("tables.tex", &expect_file!["testdata/tables.tex"]);
}

#[test]
fn fewer_than_six_runs_a_row_do_not_decide_whether_requests_are_stored() {
    let of = |runs: u32| {
        let plan = SMALL.replace("runs = 3", &format!("runs = {runs}"));
        let checks = analysed(&plan).queue_checks.into_iter();
        checks
            .map(|check| check.stores_requests)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(5), [None; 3]);
    assert_eq!(of(6), [Some(false), Some(false), Some(true)]);
}

#[test]
fn a_row_for_each_run_and_point() {
    check("runs.csv", &expect_file!["testdata/runs.csv"]);
    check("points.csv", &expect_file!["testdata/points.csv"]);
}

#[test]
fn a_row_for_each_trial() {
    let (_, lines) = small();
    let trials = lines
        .iter()
        .filter(|l| matches!(l.record, Record::Trial { .. }))
        .count();
    let text = text_of("trials.csv");
    assert_eq!(text.lines().count(), trials + 1);
    let columns = |line: &str| line.matches(',').count();
    let mut rows = text.lines();
    let header = rows.next().unwrap();
    // Names without a comma or a quote need no quotes.
    assert!(
        rows.clone()
            .all(|row| row.contains('"') || columns(row) == columns(header))
    );
    let invalid = rows.find(|row| row.contains(",invalid,")).unwrap();
    assert!(invalid.contains(
        ",8000,true,invalid,,late_schedule,the sender was held up for 3.0 ms and the limit is 2.5 ms; give the Tester a \
         core of its own (--cpus) or lower the rate,8000,8000,0,false,"
    ));
}

/// The small campaign, with a Tester that was not certified for the third variant.
fn partly_certified() -> (Plan, Vec<Line>) {
    let (plan, mut lines) = small();
    let points = &plan.points;
    let is_third = |task: &Task| points[task.point()].variant == 2;
    for line in &mut lines {
        match &mut line.record {
            Record::Started {
                task,
                search: Some(search),
                ..
            } if is_third(task) => search.ceiling_qps = None,
            Record::Trial { task, result, .. } if is_third(task) => result.certified = Some(false),
            _ => {}
        }
    }
    (plan, lines)
}

#[test]
fn a_run_is_certified_only_if_its_passing_trial_was() {
    let (plan, mut lines) = small();
    let first = Task::Search { point: 0, run: 1 };
    for line in &mut lines {
        match &mut line.record {
            Record::Trial { task, result, .. } if *task == first => result.certified = Some(false),
            _ => {}
        }
    }
    let point = &analyse(&plan, &lines, SEAL).points[0];
    let runs: Vec<_> = point.runs.iter().map(|run| run.certified).collect();
    assert_eq!(runs, [Some(false), Some(true), Some(true)]);
    assert_eq!(point.certified, Some(false));
}

#[test]
fn every_file_marks_exactly_the_uncertified_rates() {
    let (plan, lines) = partly_certified();
    let analysis = analyse(&plan, &lines, SEAL);
    let why = "the Tester is not certified (RFC 8219 section 9.2.1)";
    assert_eq!(
        analysis.not_a_measurement,
        [format!("un_bound & <co>: {why}")]
    );
    let is_marked = |text: &str| text.ends_with(&format!("; not a measurement: {why}"));
    let marked: Vec<_> = analysis
        .verdict
        .iter()
        .map(|text| is_marked(text))
        .collect();
    assert_eq!(marked, [false, false, true]);
    let files = files(&analysis, &lines).unwrap();
    let text = |file: &str| {
        let (_, octets) = files.iter().find(|(path, _)| *path == file).unwrap();
        String::from_utf8(octets.clone()).unwrap()
    };
    // Each table is of one variant, or of all.
    let latex = text("tables.tex");
    let blocks: Vec<_> = latex.split("\\begin{table}").collect();
    assert!(blocks.iter().any(|block| block.contains("un\\_bound")));
    for block in blocks {
        let of_it = block.contains("un\\_bound");
        assert_eq!(block.contains("\\dag{}"), of_it, "{block}");
    }
    for file in ["index.html", "figures/rates-1.svg"] {
        assert!(text(file).contains('†'), "{file}");
        assert!(!text_of(file).contains('†'), "{file}");
    }
}

#[test]
fn results_have_the_certification_of_each_point_and_run() {
    let (plan, lines) = partly_certified();
    let results = serde_json::to_value(analyse(&plan, &lines, SEAL)).unwrap();
    for point in results["points"].as_array().unwrap() {
        let expected = if point["variant"] == 2 {
            Value::Bool(false)
        } else {
            Value::Bool(true)
        };
        assert_eq!(point["certified"], expected, "{point:#}");
        for run in point["runs"].as_array().unwrap() {
            let is = if run["rate_qps"].is_null() {
                &Value::Null
            } else {
                &expected
            };
            assert_eq!(run["certified"], *is, "{run:#}");
        }
    }
}

/// Values of a column of a CSV table, with the name of the variant in each row.
fn column(text: &str, name: &str) -> Vec<(String, String)> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let at = reader
        .headers()
        .unwrap()
        .iter()
        .position(|head| head == name);
    let rows = reader.records().map(|row| {
        let row = row.unwrap();
        (row[0].to_owned(), row[at.unwrap()].to_owned())
    });
    rows.collect()
}

#[test]
fn tables_for_programs_have_the_certification_of_each_row() {
    let (plan, lines) = partly_certified();
    let analysis = analyse(&plan, &lines, SEAL);
    let files = files(&analysis, &lines).unwrap();
    for (file, octets) in files.iter().filter(|(path, _)| path.ends_with(".csv")) {
        let text = std::str::from_utf8(octets).unwrap();
        let rows = column(text, "certified");
        let of = |name: &str, value: &str| {
            let own = rows.iter().filter(|(variant, _)| variant == name);
            own.filter(|(_, found)| found == value).count()
        };
        assert!(
            of("un_bound & <co>", "false") > 0 && of("un_bound & <co>", "true") == 0,
            "{file}"
        );
        assert!(
            of("dns64d cores=1", "true") > 0 && of("dns64d cores=1", "false") == 0,
            "{file}"
        );
    }
}

#[test]
fn results_and_lines_of_every_sample_match_their_schemas() {
    let samples = [SMALL, hosts::HOSTS, authority::DELAYS, authorities::ZONES];
    for (plan, lines) in samples.map(sample::campaign) {
        let results = serde_json::to_value(analyse(&plan, &lines, SEAL)).unwrap();
        assert_eq!(schemas::fault(&schemas::RESULTS, &results), None);
        for line in &lines {
            let line = serde_json::to_value(line).unwrap();
            assert_eq!(schemas::fault(&schemas::LINE, &line), None);
        }
        let mut wrong = results;
        wrong["points"][0]["summary"]["median"] = "fast".into();
        assert!(schemas::fault(&schemas::RESULTS, &wrong).is_some());
    }
}

#[test]
fn points_of_six_runs_have_a_pass_probability() {
    let [few, enough] = [3, 6].map(|runs| {
        let plan = SMALL.replace("runs = 3", &format!("runs = {runs}"));
        analysed(&plan)
    });
    let point = &few.points[0];
    let too_few = PassProbability::Refused(Refused::TooFew);
    assert_eq!(point.pass_probability, too_few);
    // The trial of 1 s at 9,000 queries per second.
    assert_eq!(point.loss_ratio_max, Some(3.0 / 9_000.0));
    let found = enough.points[0].pass_probability.rates().unwrap();
    // All runs pass at 9,000; one of six passes at the next rate.
    let half = found.at_50_pct;
    assert!((9_000.0..9_063.0).contains(&half.rate_qps), "{half:?}");
    assert!(half.low_qps < half.rate_qps && half.rate_qps < half.high_qps);
    assert!(found.at_99_pct.rate_qps < half.rate_qps);
    let rows = |analysis: &Analysis| {
        let tables = tables::all(analysis).into_iter();
        let mut found = tables.filter(|table| table.key == "pass_probability");
        found.next().map_or(0, |table| table.rows.len())
    };
    let estimated = enough.points.iter();
    let estimated = estimated.filter(|point| point.pass_probability != too_few);
    assert_eq!([rows(&few), rows(&enough)], [0, estimated.count()]);
    let results = serde_json::to_value(&enough).unwrap();
    assert_eq!(schemas::fault(&schemas::RESULTS, &results), None);
}

#[test]
fn any_prefix_of_a_journal_gives_a_report() {
    let (plan, lines) = small();
    for end in [0, 1, 2, 3, 4, 6, 7, 8, 40, 200, lines.len() - 1] {
        let analysis = analyse(&plan, &lines[..end], SEAL);
        assert!(!analysis.complete);
        assert!(
            analysis.warnings[0]
                .text
                .starts_with("the campaign is not complete"),
            "{end}"
        );
        files(&analysis, &lines[..end]).unwrap();
    }
}

#[test]
fn lab_is_that_of_the_first_line() {
    let (plan, mut lines) = small();
    let shared = "all roles share the loopback interface";
    let mut judged = |of: Option<LabKind>| {
        if let Record::Campaign { lab, .. } = &mut lines[0].record {
            *lab = of;
        }
        let analysis = analyse(&plan, &lines, SEAL);
        let met = |id| analysis.statement.iter().find(|c| c.id == id).unwrap().met;
        let doubted = analysis.not_a_measurement.iter().any(|text| text == shared);
        (doubted, ["B-2", "B-19", "B-22", "B-28"].map(met))
    };
    assert_eq!(judged(None), (false, [Met::Met; 4]), "the plan has netns");
    assert_eq!(judged(Some(LabKind::Userns)), (false, [Met::Met; 4]));
    assert_eq!(judged(Some(LabKind::Loopback)), (true, [Met::NotMet; 4]));
}

#[test]
fn clauses_of_names_are_judged_by_queries_at_the_authority() {
    let (plan, mut lines) = small();
    let mut judged = |change: fn(&mut TrialResult)| {
        for line in &mut lines {
            if let Record::Trial { result, .. } = &mut line.record {
                change(result);
            }
        }
        let analysis = analyse(&plan, &lines, SEAL);
        ["B-10", "B-12"].map(|id| {
            let clause = analysis.statement.iter().find(|c| c.id == id).unwrap();
            (clause.met, clause.why.clone())
        })
    };
    let [names, one_a] = judged(|_| ());
    assert_eq!((names.0, one_a.0), (Met::Met, Met::Met));
    assert!(names.1.contains("asked for each of"), "{}", names.1);
    let [names, one_a] = judged(|trial| {
        if let Some(path) = &mut trial.path {
            path.answered.unasked = path.answered.names.min(1);
        }
    });
    assert_eq!((names.0, one_a.0), (Met::NotMet, Met::NotMet));
    assert!(
        names
            .1
            .ends_with("names were answered without a question to the authority")
    );
    // Older journals have only totals.
    let [names, one_a] = judged(|trial| trial.path = None);
    assert_eq!((names.0, one_a.0), (Met::Met, Met::Met));
}

#[test]
fn warnings_are_sorted_by_severity() {
    let (plan, lines) = small();
    let severities: Vec<_> = analyse(&plan, &lines, SEAL)
        .warnings
        .iter()
        .map(|warning| warning.severity)
        .collect();
    assert!(severities.is_sorted(), "{severities:?}");
    assert_eq!(severities.first(), Some(&Severity::Critical));
    assert_eq!(severities.last(), Some(&Severity::Note));
}

#[test]
fn changed_profile_at_a_later_start_causes_a_note() {
    let warned = |profiles: &[&str]| {
        let (plan, mut lines) = small();
        let is_variant = |line: &Line| matches!(line.record, Record::Variant { variant: 0, .. });
        let first = lines.iter().find(|line| is_variant(line)).unwrap().clone();
        for profile in profiles {
            let mut again = first.clone();
            if let Record::Variant { facts, .. } = &mut again.record {
                facts.program.profile_sha256 = Some((*profile).to_owned());
            }
            lines.push(again);
        }
        let warnings = analyse(&plan, &lines, SEAL).warnings.into_iter();
        let changed = warnings.filter(|warning| warning.text.starts_with("changed during"));
        changed
            .map(|w| (w.severity, w.to_string()))
            .collect::<Vec<_>>()
    };
    assert_eq!(warned(&[]), []);
    assert_eq!(warned(&["aa", "aa"]), [], "it was not known before");
    let text = "dns64d cores=1: changed during the campaign: profile (SHA-256) was aa, is ab; this does not affect the measurement";
    assert_eq!(warned(&["aa", "ab"]), [(Severity::Note, text.to_owned())]);
}

#[test]
fn doubtful_machine_causes_a_warning_at_its_first_session() {
    let (plan, mut lines) = small();
    let warned = |lines: &[Line]| -> Vec<_> {
        let warnings = analyse(&plan, lines, SEAL).warnings.into_iter();
        let with_remedy = warnings.filter(|w| w.text.contains("governor is"));
        with_remedy
            .map(|w| (w.about.unwrap(), w.remedy.is_some()))
            .collect()
    };
    assert_eq!(warned(&lines), []);
    let mut set = |session: usize, governor: &str| {
        let mut sessions = lines.iter_mut().filter_map(|line| match &mut line.record {
            Record::Session { environment, .. } => Some(environment),
            _ => None,
        });
        let details = &mut sessions.nth(session).unwrap().details;
        details.insert("frequency governor".to_owned(), governor.to_owned());
        warned(&lines)
    };
    assert_eq!(set(1, "powersave"), [("session 2".to_owned(), true)]);
    assert_eq!(set(0, "powersave"), [("session 1".to_owned(), true)]);
}

#[test]
fn scaling_compares_variants_with_the_same_settings_only() {
    let swept = r#"sweep = { threads = ["1", "2"] }"#;
    let analysis = analysed(&SMALL.replace("set = { threads = 1 }", swept));
    let scaling: Vec<_> = analysis
        .curves
        .iter()
        .map(|c| (c.of.as_str(), c.rows.iter().map(|row| row.0).collect()))
        .collect();
    let both: Vec<f64> = vec![1.0, 2.0];
    assert_eq!(
        scaling,
        [
            ("dns64d threads=1", both.clone()),
            ("dns64d threads=2", both)
        ]
    );
    assert_eq!(analysed(SMALL).curves[0].of, "dns64d");
}

#[test]
fn a_campaign_of_full_size_has_all_its_figures() {
    let (plan, lines) = full();
    let analysis = analyse(&plan, &lines, SEAL);
    assert_eq!(analysis.points.len(), 93);
    for point in &analysis.points {
        assert_eq!(
            point.summary.as_ref().unwrap().runs,
            if point.point == 2 { 19 } else { 20 }
        );
    }
    // Three models of work and three of reply times for each DUT, and all clauses of the RFC.
    assert_eq!(analysis.models.len(), 18);
    let met = |id: &str| analysis.statement.iter().find(|c| c.id == id).unwrap().met;
    assert_eq!(
        [met("B-6"), met("B-9"), met("B-14"), met("B-17")],
        [Met::Met, Met::NotMet, Met::Met, Met::Met]
    );
}
