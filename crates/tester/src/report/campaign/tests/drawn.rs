//! The figures, drawn by gnuplot.

use std::process::Command;

use super::partly_certified;
use super::sample::{SEAL, full, small};
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::files::files;

#[test]
#[ignore = "needs gnuplot: run by .ci/run rules"]
fn gnuplot_draws_every_figure_without_messages() {
    for (plan, lines) in [small(), full(), partly_certified()] {
        let directory = tempfile::tempdir().unwrap();
        let analysis = analyse(&plan, &lines, SEAL);
        let mut figures = 0;
        for (path, octets) in files(&analysis, &plan, &lines, None).unwrap() {
            if let Some(name) = path.strip_prefix("data/") {
                std::fs::write(directory.path().join(name), octets).unwrap();
                figures += usize::from(name.ends_with(".dat"));
            }
        }
        let mut gnuplot = Command::new("gnuplot");
        let output = gnuplot.arg("plot.gp").current_dir(&directory).output();
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{told}");
        let drawn = directory.path().read_dir().unwrap().filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            path.extension().is_some_and(|e| e == "svg")
                && std::fs::read_to_string(path)
                    .unwrap()
                    .ends_with("</svg>\n\n")
        });
        assert_eq!(drawn.count(), figures);
    }
}
