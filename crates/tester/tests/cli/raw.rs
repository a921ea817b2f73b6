//! `trial --raw` and `timing`.

use super::authority::Authority;
use super::dut::{Dut, LOCALHOST};
use super::program::{assert_outcome, measured, run, server};
use super::script::Conduct;

const TRIAL: &str = "-Q 200 -l 200ms -t 500ms --pref64 64:ff9b::/96";

#[test]
fn rows_of_a_trial_are_written_and_plotted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raw.csv");
    let raw = path.display();
    let ran = measured(|| {
        let dut = Dut::start(LOCALHOST, Conduct::DieAfter(30));
        run(&format!(
            "trial {} {TRIAL} -T 2 --raw {raw} --timeline 3",
            server(dut.address)
        ))
    });
    assert!([Some(1), Some(3)].contains(&ran.code), "{ran:?}");
    assert!(ran.stdout.contains("\nTimeline of query 3: "), "{ran:?}");
    let csv = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<Vec<&str>> = csv
        .lines()
        .skip(9)
        .map(|l| l.split(';').collect())
        .collect();
    assert_eq!(rows.len(), 40, "{csv}");
    // Rows are in the order of the schedule, with alternating threads; names start anywhere and continue around the
    // usable ones.
    let number = |row: &[&str]| {
        let octets = row[0][4..15]
            .split('-')
            .map(|n| n.parse::<usize>().unwrap());
        octets.fold(0, |number, octet| number * 256 + octet)
    };
    let first = number(&rows[0]);
    for (k, row) in rows.iter().enumerate() {
        assert_eq!(number(row), (first + k) % ((1 << 24) - 64), "{row:?}");
        assert_eq!(row[1], (k % 2).to_string(), "{row:?}");
    }
    let answered = |rows: &[Vec<&str>]| rows.iter().filter(|r| r[5] == "1").count();
    assert!(answered(&rows) <= 30, "{csv}");
    assert!(csv.contains("\nnumber of threads: 2\ndelay between bursts: 10000000 ns\n"));

    let timing = run(&format!("timing {raw}"));
    assert_eq!(timing.code, Some(0), "{timing:?}");
    assert!(
        timing
            .stdout
            .starts_with("40 queries sent to 127.0.0.1 port "),
        "{timing:?}"
    );
    // Fewer if the first query was delayed: the time starts with it.
    let line = timing.stdout.lines().find(|l| l.starts_with("whole bins"));
    let mut bins = line.unwrap().split_whitespace().skip(2);
    for most in [2, 20] {
        let whole: u64 = bins.next().unwrap().parse().unwrap();
        assert!((1..=most).contains(&whole), "{timing:?}");
    }
    let svg = std::fs::read_to_string(directory.path().join("raw.svg")).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("queries sent in 10 ms"),
        "{svg}"
    );

    let cut = &csv[..csv.len() - 20];
    std::fs::write(&path, cut).unwrap();
    let timing = run(&format!("timing {raw} -o {raw}.svg"));
    assert_eq!(timing.code, Some(2), "{timing:?}");
    assert!(timing.stderr.contains("raw.csv, line 49: "), "{timing:?}");
}

#[test]
fn full_disk_loses_the_rows_and_keeps_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let full = directory.path().join("full.csv");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let server = server(dut.address);
    let ran = run(&format!(
        "trial {server} {TRIAL} --raw {} --json -",
        full.display()
    ));
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(ran.json()["queries_sent"], 40, "{ran:?}");
    assert!(ran.stderr.contains("full.csv: No space left"), "{ran:?}");
}

#[test]
fn missing_directory_is_refused_before_the_trial() {
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let server = server(dut.address);
    let ran = run(&format!("trial {server} {TRIAL} --raw /nowhere/raw.csv"));
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(dut.seen(), 0);
}

#[test]
fn self_correcting_timer_gives_no_measurement() {
    let authority = Authority::start("--self-test");
    let subject = server(authority.address);
    let trial = "--aaaa-share 1 -Q 200 -l 200ms --pacing self-correcting -t 30s --json -";
    let ran = measured(|| run(&format!("trial {subject} {trial}")));
    let json = assert_outcome(&ran, "passed");
    assert_eq!(json["queries_sent"], 40, "{json}");
    let watermarks = json["not_a_measurement"].to_string();
    assert!(
        watermarks.contains("self-correcting timer of Lencse and Pivoda 2018"),
        "{json}"
    );
}
