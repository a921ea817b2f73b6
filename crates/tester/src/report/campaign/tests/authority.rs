//! Rates by the delay of the authority, and by its working set.

use super::sample::analysed;
use crate::report::campaign::plots::figures;
use crate::report::campaign::{html, tables};

pub(super) const DELAYS: &str = r#"
[search]
runs = 3
start-rate = 4000
[[dut]]
profile = "dns64d"
authority-behaviour = ["delay=20ms", "none", "delay=5ms", "delay=50ms", "delay=5ms,loss=1%"]
[[dut]]
profile = "unbound"
authority-behaviour = ["none", "delay=1us"]
[[dut]]
profile = "bind"
"#;

#[test]
fn falling_rate_with_delay_shows_the_limit_of_outstanding_queries() {
    let analysis = analysed(DELAYS);
    let [limited, unlimited] = &analysis.delays[..] else {
        panic!("{:?}", analysis.delays);
    };
    let delays: Vec<_> = limited
        .rows
        .iter()
        .map(|row| row.delay_ns / 1_000_000)
        .collect();
    assert_eq!(
        (limited.dut.as_str(), delays),
        ("dns64d", vec![0, 5, 20, 50])
    );
    let limit = limited.limit.unwrap();
    assert!((99.0..102.0).contains(&limit), "{limit}");
    let in_sequence = limited.in_sequence.unwrap();
    assert!((1.98..2.05).contains(&in_sequence), "{in_sequence}");
    assert!(
        limited.verdict.starts_with("limit of about 10"),
        "{}",
        limited.verdict
    );
    assert_eq!((unlimited.dut.as_str(), unlimited.limit), ("unbound", None));
    assert!(
        unlimited.verdict.starts_with("no limit seen"),
        "{}",
        unlimited.verdict
    );
}

#[test]
fn the_delays_have_a_figure_and_a_section() {
    let analysis = analysed(DELAYS);
    let figures = &figures(&analysis)["delays"];
    assert_eq!(figures.len(), 2);
    assert!(figures[0].title.contains("dashes") && !figures[1].title.contains("dashes"));
    let page = html::page(&analysis, &tables::all(&analysis)).unwrap();
    assert!(page.contains("<section id=\"delays\">") && page.contains("limit of about 10"));
    assert!(!page.contains("<section id=\"working-sets\">"));
}

#[test]
fn working_sets_are_shown_by_order_and_size() {
    let analysis = analysed(
        r#"
[search]
runs = 3
start-rate = 4000
[cells]
cached-share = ["0%", "100%"]
pattern = ["zipf:4096,0", "stack:1024", "zipf:1024,0", "stack:65536", "zipf:1024,1", "window:64"]
[[dut]]
authority = "built-in"
"#,
    );
    let sets = analysis.working_sets.iter();
    let told: Vec<_> = sets
        .map(|set| (set.order, set.rows.iter().map(|row| row.names).collect()))
        .collect();
    let expected: [(_, Vec<u64>); 2] = [
        ("in order", vec![1024, 65_536]),
        ("at random", vec![1024, 4096]),
    ];
    assert_eq!(told, expected);
    let figures = &figures(&analysis)["working_sets"];
    assert_eq!(figures.len(), 1);
    let legend: Vec<_> = figures[0]
        .legend
        .iter()
        .map(|(_, name)| name.as_str())
        .collect();
    assert_eq!(legend, ["in order", "at random"]);
    let tables = tables::all(&analysis);
    let page = html::page(&analysis, &tables).unwrap();
    assert!(page.contains("<section id=\"working-sets\">"));
}
