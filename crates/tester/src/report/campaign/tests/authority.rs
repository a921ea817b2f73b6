//! Rates by the delay of the authority, and by its working set.

use super::sample::analysed;
use crate::report::campaign::analysis::{Curve, Over};
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
fn delays_without_other_faults_are_a_curve() {
    let analysis = analysed(DELAYS);
    let told: Vec<_> = analysis.curves.iter().map(places).collect();
    let expected = [
        (Over::DelayMs, "dns64d", vec![0.0, 5.0, 20.0, 50.0]),
        (Over::DelayMs, "unbound", vec![0.0, 0.001]),
    ];
    assert_eq!(told, expected);
    let figures = &figures(&analysis)["delays"];
    assert_eq!((figures.len(), figures[0].legend.len()), (1, 2));
    let page = html::page(&analysis, &tables::all(&analysis)).unwrap();
    assert!(page.contains("<section id=\"delays\">"));
    assert!(!page.contains("<section id=\"working-sets\">"));
}

/// What a curve is over and of, and its values.
fn places(curve: &Curve) -> (Over, &str, Vec<f64>) {
    let values = curve.rows.iter().map(|row| row.0);
    (curve.over, &curve.of, values.collect())
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
    let told: Vec<_> = analysis.curves.iter().map(places).collect();
    let expected = [
        (Over::Names, "built-in, at random", vec![1024.0, 4096.0]),
        (Over::Names, "built-in, in order", vec![1024.0, 65_536.0]),
    ];
    assert_eq!(told, expected);
    assert_eq!(figures(&analysis)["working_sets"][0].legend.len(), 2);
    let tables = tables::all(&analysis);
    let page = html::page(&analysis, &tables).unwrap();
    assert!(page.contains("<section id=\"working-sets\">"));
}
