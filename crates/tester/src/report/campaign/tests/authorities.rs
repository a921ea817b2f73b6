//! Authoritative servers measured by themselves: the table, and the recommendation.

use super::*;
use crate::report::campaign::analyse::authorities::{limited, recommendation};
use crate::report::campaign::analysis::Analysis;
use crate::report::campaign::plots::figures;
use crate::report::campaign::{html, tables};

/// In the sample the first variant reaches 9,000 queries per second, the second 17,100, all others 6,000.
const CORES: &str = r#"
[search]
runs = 3
start-rate = 4000
[tester]
namespace = "10.0.0.0/12"
[[dut]]
authority = "nsd"
cores = ["1", "1-2"]
[[dut]]
authority = "knot"
cores = ["1", "1-2"]
[[dut]]
authority = "built-in"
cores = "1"
"#;

pub(super) const ZONES: &str = r#"
[search]
runs = 3
start-rate = 4000
[[dut]]
authority = "knot"
cores = "1"
namespace = ["10.0.0.0/12", "10.0.0.0/8", "10.0.0.0/10"]
"#;

fn near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() < 1e-6 * expected.abs().max(1.0))
}

#[test]
fn each_authority_has_its_rates_processor_time_memory_and_starts() {
    let analysis = analysed(CORES);
    let rows = &analysis.authorities.rows;
    let servers: Vec<_> = rows
        .iter()
        .map(|row| (row.server.as_str(), row.cores))
        .collect();
    let expected = [
        ("nsd", Some(1)),
        ("nsd", Some(2)),
        ("knot", Some(1)),
        ("knot", Some(2)),
        ("built-in", Some(1)),
    ];
    assert_eq!(servers, expected);
    let (nsd, built_in) = (&rows[0], &rows[4]);
    assert_eq!(nsd.names, 1 << 20);
    assert!(near(nsd.cpu_ns_per_query, 4000.0), "{nsd:?}");
    assert_eq!(nsd.pss_bytes, Some((80 << 20) + (512 << 20)));
    assert_eq!(nsd.rss_bytes, nsd.pss_bytes.map(|bytes| bytes + (30 << 20)));
    assert_eq!((nsd.starts, nsd.zone_written), (3, Some(true)));
    let later_ns = 2_000 * (1 << 20) + 100_000_000;
    assert_eq!(nsd.first_start_ns, Some(later_ns + 1_000_000_000));
    assert!(near(nsd.later_starts_ns, later_ns as f64));
    assert_eq!((built_in.starts, built_in.pss_bytes), (0, None));
    assert!(nsd.p1 <= nsd.median && nsd.median <= nsd.p99 && nsd.p1 > Some(8_000.0));
}

#[test]
fn figures_of_an_authority_follow_from_the_timeout_of_its_trials() {
    let (plan, mut lines) = sample::campaign(CORES);
    for line in &mut lines {
        if let Record::Trial { result, .. } = &mut line.record {
            result.timeout_ns /= 4;
        }
    }
    let analysis = analyse(&plan, &lines, SEAL);
    for point in &analysis.points {
        assert_eq!(point.timeout_s, 0.25);
        let summary = point.summary.as_ref().unwrap();
        let calculated = summary.median / (1.0 + 0.25 / point.duration_s);
        assert!(near(Some(summary.calculated), calculated), "{summary:?}");
        assert!(point.achieved.is_none(), "a self-test has no cell");
    }
    let why = |id| {
        &analysis
            .statement
            .iter()
            .find(|it| it.id == id)
            .unwrap()
            .why
    };
    assert_eq!(why("B-7"), "timeout of 0.25 s");
}

#[test]
fn highest_first_percentile_over_2_2_is_recommended() {
    let analysis = analysed(CORES);
    let found = analysis.authorities.recommendation.as_ref().unwrap();
    let best = &analysis.authorities.rows[1];
    assert_eq!((found.variant, Some(found.p1)), (1, best.p1));
    assert!(found.tied.is_empty() && found.not_compared.is_empty());
    let rate = found.p1 / 2.2;
    assert!((found.certifies_qps as f64) <= rate && rate < found.certifies_qps as f64 + 1.0);
    let said = analysis.verdict.last().unwrap();
    assert!(
        said.starts_with("Recommendation: nsd on 2 cores certifies DNS64 tests up to 7,"),
        "{said}"
    );
    assert!(
        said.contains("/ 2.2 (RFC 8219 section 9.2.1)") && !said.contains("at least"),
        "{said}"
    );
    assert_eq!(analysis.verdict.len(), analysis.variants.len() + 1);
}

#[test]
fn equal_authorities_are_a_tie() {
    // Without the three faster ones all others are equal.
    let more = CORES.replace(
        "[[dut]]\nauthority = \"built-in\"",
        "[[dut]]\nauthority = \"yadifa\"\ncores = \"1\"\n[[dut]]\nauthority = \"built-in\"",
    );
    let mut analysis = analysed(&more);
    analysis.authorities.rows.drain(..3);
    let found = recommendation(&analysis).unwrap();
    assert_eq!((found.variant, found.tied), (3, vec![4, 5]));
    let tie = "a tie with yadifa on 1 core, built-in on 1 core";
    assert!(found.text.contains(tie), "{}", found.text);
    assert!(!found.text.contains("it is the highest"));
}

#[test]
fn authority_limited_by_the_tester_is_listed_but_not_compared() {
    let mut analysis = analysed(CORES);
    let knot = &mut analysis.authorities.rows[2];
    (knot.p1, knot.median, knot.p99) = (None, None, None);
    (knot.tester_limited_runs, knot.passed_qps) = (3, Some(20_000));
    let found = recommendation(&analysis).unwrap();
    assert_eq!(found.not_compared, [2]);
    assert!(
        found.text.ends_with("was the limit: knot on 1 core"),
        "{}",
        found.text
    );
    let warnings: Vec<_> = limited(&analysis).collect();
    assert_eq!(warnings.len(), 1);
    let text = warnings[0].to_string();
    assert!(
        text.contains("in 3 runs: it passed at 20,000 queries/s and may do more"),
        "{text}"
    );
}

#[test]
fn a_rate_that_may_be_higher_is_a_lower_bound_of_the_recommendation() {
    let mut analysis = analysed(CORES);
    analysis.authorities.rows[1].lower_bound = true;
    analysis.authorities.rows[0].lower_bound = true;
    let found = recommendation(&analysis).unwrap();
    assert!(found.lower_bound);
    assert_eq!((found.variant, found.not_compared), (1, vec![0]));
    assert!(
        found
            .text
            .starts_with("Recommendation: nsd on 2 cores certifies DNS64 tests up to at least 7,"),
        "{}",
        found.text
    );
    for row in &mut analysis.authorities.rows {
        (row.p1, row.p99, row.lower_bound) = (Some(9_000.0), Some(9_000.0), true);
    }
    let found = recommendation(&analysis).unwrap();
    assert_eq!(found.tied, [1, 2, 3, 4]);
    assert!(
        found.text.starts_with("No authority is the best"),
        "{}",
        found.text
    );
}

fn page(analysis: &Analysis) -> String {
    html::page(analysis, &tables::all(analysis)).unwrap()
}

#[test]
fn authorities_have_a_table_and_a_section_and_dns64_servers_have_none() {
    let analysis = analysed(CORES);
    let drawn = &figures(&analysis)["scaling"];
    assert_eq!((drawn.len(), drawn[0].legend.len()), (1, 2));
    assert!(page(&analysis).contains("<section id=\"authorities\">"));
    let rows = &analysed(ZONES).authorities.rows;
    let names: Vec<_> = rows.iter().map(|row| row.names).collect();
    assert_eq!(names, [1 << 20, 1 << 24, 1 << 22]);
    let other = analysed("[search]\nstart-rate = 4000\nruns = 3\n[[dut]]\nprofile = \"bind\"\n");
    assert!(other.authorities.rows.is_empty() && other.authorities.recommendation.is_none());
    assert!(!page(&other).contains("id=\"authorities\""));
}
