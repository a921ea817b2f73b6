//! Rows of dns64perf++ and of this program, and invalid ones.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

/// Output of dns64perf++, shortened to five rows; the last query has no response.
const THEIRS: &str = "\
dns64perf++ test parameters
server: ::1
port: 15353
number of requests: 5
burst size: 1
number of threads: 1
delay between bursts: 50000000 ns

query;thread id;tsent [ns];treceived [ns];received;answered;rtt [ns]
010-000-000-000.dns64perf.test.;0;1795255495747081631;1795255495747565918;1;1;484287
010-000-000-001.dns64perf.test.;0;1795255495797031886;1795255495748322571;1;1;290685
010-000-000-002.dns64perf.test.;0;1795255495847135210;1795255495749385446;1;0;350236
010-000-000-003.dns64perf.test.;0;1795255495897129283;1795255495750285016;1;1;255739
010-000-000-004.dns64perf.test.;0;1795255495947181640;0;0;0;-1
";

struct Written {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn written(text: &[u8]) -> Written {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raw.csv");
    std::fs::write(&path, text).unwrap();
    Written {
        _directory: directory,
        path,
    }
}

fn read(text: &[u8]) -> Result<Evenness, LabError> {
    Evenness::read(&written(text).path)
}

#[test]
fn bins_count_from_the_first_query_on() {
    let timing = read(THEIRS.as_bytes()).unwrap();
    assert_eq!((timing.queries, timing.total_ns), (5, 200_100_009));
    assert_eq!(timing.bins[0].sent, [2, 2, 1]);
    let mut tens = [0; 21];
    for k in [0, 4, 10, 15, 20] {
        tens[k] = 1;
    }
    assert_eq!(timing.bins[1].sent, tens);
    assert_eq!(timing.specified_ns(), 200_000_000);
    let spread = timing.spread(&timing.bins[0]).unwrap();
    let expected = Spread {
        bins: 2,
        min: 2,
        max: 2,
        deviation_pct_max: 0.0,
    };
    assert_eq!(spread, expected);
}

#[test]
fn table_has_the_expected_text() {
    let mut text = Vec::new();
    write_text(&mut text, &read(THEIRS.as_bytes()).unwrap()).unwrap();
    let expected = "\
5 queries sent to ::1 port 15353; 5 due in 0.200 s, threads: 1, burst size: 1
total sending time 200,100,009 ns, 100.05% of specified

queries sent in               100 ms         10 ms
whole bins                         2            21
due in each                      2.0           0.2
fewest sent                        2             0
most sent                          2             1
largest deviation              0.00%       400.00%
";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn wrong_line_is_reported_with_its_number() {
    let with = |from: &str, to: &str| read(THEIRS.replacen(from, to, 1).as_bytes());
    for (from, to, fault) in [
        (";1;1;255739", ";1;1", "line 13: 6 fields instead of 7"),
        (";1;1;255739", ";1;1;2;3", "line 13: 8 fields instead of 7"),
        (";0;0;-1", ";0;0;-", "line 14: CSV deserialize error"),
        (
            "1795255495797031886",
            "18446744073709551616",
            "line 11: CSV deserialize error",
        ),
        (
            "dns64perf++ test",
            "dns64perf",
            "line 1: \"dns64perf parameters\" instead",
        ),
        (
            "port: 15353",
            "port: 99999",
            "line 3: \"port: 99999\" instead of 'port: '",
        ),
        (
            "50000000 ns",
            "0 ns",
            "line 7: delay between bursts: 0 ns; at least 1",
        ),
    ] {
        let error = with(from, to).unwrap_err().to_string();
        assert!(error.contains(fault), "{error}, not {fault}");
    }
    let cut = THEIRS.find("query;").unwrap();
    let error = read(&THEIRS.as_bytes()[..cut]).unwrap_err().to_string();
    assert!(error.contains("\"\" instead of 'query;"), "{error}");
    let rows = THEIRS.find("010-").unwrap();
    let error = read(&THEIRS.as_bytes()[..rows]).unwrap_err().to_string();
    assert!(error.contains("has 0 queries"), "{error}");
    let far = with("1795255495797031886", "1").unwrap_err().to_string();
    assert!(far.contains("takes a day at most"), "{far}");
}

#[test]
fn the_picture_has_both_panels_and_stays_small() {
    let mut timing = read(THEIRS.as_bytes()).unwrap();
    for bins in &mut timing.bins {
        let n = index(60 * SECOND / bins.width_ns);
        bins.sent = (0..n as u64).map(|k| 1000 + k * k % 37).collect();
    }
    let svg = figure::svg(&timing, "a < b");
    for text in [
        "queries sent in 100 ms",
        "queries sent in 10 ms",
        "time [s]",
        "a &lt; b",
    ] {
        assert!(svg.contains(text), "no {text}");
    }
    assert!(svg.len() < 60_000, "{} octets", svg.len());
}

proptest! {
    #[test]
    fn no_input_causes_a_panic(at in 0_usize..700, junk: Vec<u8>) {
        let mut text = THEIRS.as_bytes().to_vec();
        let at = at.min(text.len());
        let end = (at + junk.len()).min(text.len());
        text.splice(at..end, junk);
        if let Ok(timing) = read(&text) {
            write_text(&mut Vec::new(), &timing).unwrap();
            figure::svg(&timing, "");
        }
    }
}
