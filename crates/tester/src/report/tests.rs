//! The rendered results in full: whoever changes a line of them sees it here.

use expect_test::{Expect, expect};

use super::*;
use crate::authority::counts::AuthorityCounts;
use crate::procedure::search::{Search, SearchSpec, run};
use crate::procedure::selftest::{certify, certify_at};
use crate::procedure::simulated::{Simulated, threshold};
use crate::trial::result::{Outcome, Rtt, TesterFault, Timing, TrialResult};

fn conditions() -> Conditions {
    Conditions {
        tester: "dns64bench 0.1.0".into(),
        server: "[2001:2::2]:53".into(),
        dut: Some("unbound 1.17.1".into()),
        authority: Some("built-in".into()),
        lab: Some("netns".into()),
        setup: Some("three-device".into()),
        upstream_family: Some("IPv4".into()),
        pref64: Some("64:ff9b::/96".into()),
        namespace: "10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test".into(),
        aaaa_share: "0".into(),
        cached_share: "0".into(),
        threads: 1,
        sockets: 16,
        cpus: vec![("Measurer".into(), "0".into()), ("DUT".into(), "1".into())],
        certified_rate_qps: Some(25_000),
        not_a_measurement: Vec::new(),
        notes: vec!["trials of 5 s are shorter than 60 s".into()],
    }
}

fn failed() -> TrialResult {
    TrialResult {
        outcome: Outcome::Failed { shortfall: 1234 },
        rate_qps: 20_000,
        duration_ns: 5_000_000_000,
        timeout_ns: 1_000_000_000,
        queries_due: 100_000,
        queries_sent: 100_000,
        undecided: 0,
        ended_early: false,
        answers: Answers {
            valid: 98_766,
            late: 34,
            missing: 1200,
            duplicate: 2,
            ..Answers::default()
        },
        rtt: Rtt {
            p50: 123_456,
            p99: 9_876_543,
            p999: 99_000_000,
            max: 1_002_000_000,
        },
        timing: Timing {
            lateness_ns_p50: 12,
            lateness_ns_p99: 800,
            lateness_ns_p999: 19_000,
            lateness_ns_max: 310_000,
            bin_10ms_deviation_pct_max: 0.5,
            bin_100ms_deviation_pct_max: 0.05,
            quantum_ns: 10_000,
            burst: 1,
        },
        tester_drops: 0,
        authority: Some(AuthorityCounts {
            aaaa: 99_500,
            a: 99_400,
            answered: 99_400,
            nodata: 99_500,
            ..AuthorityCounts::default()
        }),
        backend: "udp",
        notes: vec!["the DUT's sockets lost 1,150 datagrams".into()],
    }
}

fn check(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>, expected: &Expect) -> String {
    let mut out = Vec::new();
    render(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    expected.assert_eq(&text);
    text
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_trial_for_a_terminal() {
    check(
        |out| text::trial(out, &failed(), &conditions()),
        &expect![[r#"
            FAILED at 20,000 queries/s: 1,234 queries without a valid answer in time

            Conditions
              tester                      dns64bench 0.1.0
              server                      [2001:2::2]:53
              device under test           unbound 1.17.1
              authority                   built-in
              lab                         netns
              setup                       three-device
              upstream                    IPv4
              pref64                      64:ff9b::/96
              names                       10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test
              names with an AAAA          0
              queries for a cached name   0
              duration of a trial         5 s
              timeout of a query          1 s
              threads, sockets            1, 16
              cpus of Measurer            0
              cpus of DUT                 1

            Queries
              due                                  100,000
              sent                                 100,000   100.0000 %

            Answers, in queries and in per cent of those sent
              valid                                 98,766    98.7660 %  the expected AAAA, in time
              late                                      34     0.0340 %  the expected AAAA, after the timeout
              wrong                                      0     0.0000 %  another AAAA than the expected one
              empty                                      0     0.0000 %  NOERROR without an AAAA
              error                                      0     0.0000 %  another RCODE, or not to be parsed
              truncated                                  0     0.0000 %  TC set
              missing                                1,200     1.2000 %  no answer at all

            Datagrams beyond those
              duplicate                                  2               second reply to a query
              stray                                      0               answers no query of this trial
              lost by the Tester                         0               at its own sockets

            Round-trip time of the answered queries
              median                              123.456 us
              99th percentile                       9.876 ms
              99.9th percentile                        99 ms
              largest                                1.002 s

            Timing of the Tester: how late the queries left
              median                                   12 ns
              99th percentile                         800 ns
              99.9th percentile                        19 us
              largest                                 310 us
              worst bin of 10 ms                     0.500 %  off the schedule
              worst bin of 100 ms                    0.050 %  off the schedule
              sent in one call            up to 1 queries within 10 us, over udp

            Authority
              AAAA queries                          99,500
              A queries                             99,400
              other queries                              0
              answered                              99,400               with records
              no data                               99,500               NOERROR without an answer record
              NXDOMAIN                                   0
              refused                                    0               FORMERR, NOTIMP, REFUSED, BADVERS
              ignored                                    0               not even a query
              over TCP                                   0               counted above as well

            Notes
              - trials of 5 s are shorter than 60 s
              - the DUT's sockets lost 1,150 datagrams
        "#]],
    );
}

#[test]
fn a_silent_dut_beyond_the_certified_rate_for_a_terminal() {
    let silent = TrialResult {
        outcome: Outcome::Failed { shortfall: 41_000 },
        rate_qps: 30_000,
        queries_sent: 41_000,
        ended_early: true,
        answers: Answers {
            missing: 41_000,
            ..Answers::default()
        },
        authority: None,
        notes: Vec::new(),
        ..failed()
    };
    check(
        |out| text::trial(out, &silent, &conditions()),
        &expect![[r#"
            FAILED at 30,000 queries/s: at least 41,000 queries without a valid answer in time
            not a measurement: the Tester is certified up to 25,000 queries/s only (RFC 8219 section 9.2.1)

            Conditions
              tester                      dns64bench 0.1.0
              server                      [2001:2::2]:53
              device under test           unbound 1.17.1
              authority                   built-in
              lab                         netns
              setup                       three-device
              upstream                    IPv4
              pref64                      64:ff9b::/96
              names                       10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test
              names with an AAAA          0
              queries for a cached name   0
              duration of a trial         5 s
              timeout of a query          1 s
              threads, sockets            1, 16
              cpus of Measurer            0
              cpus of DUT                 1

            Queries
              due                                  100,000
              sent                                  41,000    41.0000 %  the trial ended as soon as it had failed

            Answers, in queries and in per cent of those sent
              valid                                      0     0.0000 %  the expected AAAA, in time
              late                                       0     0.0000 %  the expected AAAA, after the timeout
              wrong                                      0     0.0000 %  another AAAA than the expected one
              empty                                      0     0.0000 %  NOERROR without an AAAA
              error                                      0     0.0000 %  another RCODE, or not to be parsed
              truncated                                  0     0.0000 %  TC set
              missing                               41,000   100.0000 %  no answer at all

            Datagrams beyond those
              duplicate                                  0               second reply to a query
              stray                                      0               answers no query of this trial
              lost by the Tester                         0               at its own sockets

            Round-trip time of the answered queries
              none                        no query was answered

            Timing of the Tester: how late the queries left
              median                                   12 ns
              99th percentile                         800 ns
              99.9th percentile                        19 us
              largest                                 310 us
              worst bin of 10 ms                     0.500 %  off the schedule
              worst bin of 100 ms                    0.050 %  off the schedule
              sent in one call            up to 1 queries within 10 us, over udp

            Notes
              - trials of 5 s are shorter than 60 s
        "#]],
    );
}

#[test]
fn a_search_for_a_terminal() {
    let mut stalls = 1;
    let mut dut = Simulated(|rate| match (rate, stalls) {
        (15_000, 1) => {
            stalls = 0;
            Outcome::Invalid(TesterFault::NotSent { queries: 7 })
        }
        _ => threshold(14_321, rate),
    });
    let Ok(result) = run(
        Search::new(SearchSpec::from_start(10_000)),
        &mut dut,
        &mut |_| {},
    );
    check(
        |out| text::search(out, &result, &conditions()),
        &expect![[r#"
            RESULT: 14,315 queries/s

            Conditions
              tester                      dns64bench 0.1.0
              server                      [2001:2::2]:53
              device under test           unbound 1.17.1
              authority                   built-in
              lab                         netns
              setup                       three-device
              upstream                    IPv4
              pref64                      64:ff9b::/96
              names                       10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test
              names with an AAAA          0
              queries for a cached name   0
              duration of a trial         1 s
              timeout of a query          1 s
              threads, sockets            1, 16
              cpus of Measurer            0
              cpus of DUT                 1

            Trials
                #  rate, queries/s  outcome      shortfall  why
                1           10,000  passed               0
                2           20,000  failed           5,679  5,679 missing
                3           15,000  invalid              -  the kernel did not take 7 queries; lower the rate or raise the socket buffers
                4           15,000  failed             679  679 missing
                5           12,500  passed               0
                6           13,750  passed               0
                7           14,375  failed              54  54 missing
                8           14,062  passed               0
                9           14,218  passed               0
               10           14,296  passed               0
               11           14,335  failed              14  14 missing
               12           14,315  passed               0
               13           14,325  failed               4  4 missing

            Result
              fastest that passed         14,315 queries/s
              slowest that failed         14,325 queries/s
              resolution                  14 queries/s
              Tester certified to         25,000 queries/s

            Notes
              - trials of 5 s are shorter than 60 s
        "#]],
    );
}

#[test]
fn a_search_that_the_tester_limits_says_at_least() {
    let spec = SearchSpec {
        ceiling_qps: Some(25_000),
        ..SearchSpec::from_start(10_000)
    };
    let Ok(result) = run(
        Search::new(spec),
        &mut Simulated(|_| Outcome::Passed),
        &mut |_| {},
    );
    let conditions = Conditions {
        not_a_measurement: vec!["all roles share this host (loopback)".into()],
        ..conditions()
    };
    check(
        |out| text::search(out, &result, &conditions),
        &expect![[r#"
            AT LEAST 25,000 queries/s: the DUT passed at the highest rate for which the Tester is good; give the Tester more cores
            not a measurement: all roles share this host (loopback)

            Conditions
              tester                      dns64bench 0.1.0
              server                      [2001:2::2]:53
              device under test           unbound 1.17.1
              authority                   built-in
              lab                         netns
              setup                       three-device
              upstream                    IPv4
              pref64                      64:ff9b::/96
              names                       10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test
              names with an AAAA          0
              queries for a cached name   0
              duration of a trial         1 s
              timeout of a query          1 s
              threads, sockets            1, 16
              cpus of Measurer            0
              cpus of DUT                 1

            Trials
                #  rate, queries/s  outcome      shortfall  why
                1           10,000  passed               0
                2           20,000  passed               0
                3           25,000  passed               0

            Result
              fastest that passed         25,000 queries/s
              slowest that failed         -
              resolution                  25 queries/s
              Tester certified to         25,000 queries/s

            Notes
              - trials of 5 s are shorter than 60 s
        "#]],
    );
}

#[test]
fn self_tests_for_a_terminal() {
    let mut tester = Simulated(|rate| threshold(44_000, rate));
    let Ok(one) = certify_at(20_000, 1, &mut tester, &mut |_| {});
    check(
        |out| text::self_test(out, &one, 1_000_000_000, &conditions()),
        &expect![[r#"
            CERTIFIED for DUTs up to 20,000 queries/s

            Conditions
              tester                      dns64bench 0.1.0
              server                      [2001:2::2]:53
              device under test           unbound 1.17.1
              authority                   built-in
              lab                         netns
              setup                       three-device
              upstream                    IPv4
              pref64                      64:ff9b::/96
              names                       10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test
              names with an AAAA          0
              queries for a cached name   0
              duration of a trial         1 s
              timeout of a query          1 s
              threads, sockets            1, 16
              cpus of Measurer            0
              cpus of DUT                 1

            Self-test (RFC 8219 section 9.2.1)
              rate of the DUT, r          20,000 queries/s
              asked for, 2(1 + 0.1)r      44,000 queries/s (the papers' reading)
              literally, 2(r + 0.1)       40,001 queries/s (the RFC's words, rounded up)
              passed at                   44,000 queries/s
              timeout, a quarter of t     250 ms (t = 1 s)

            Queries
              due                                   44,000
              sent                                  44,000   100.0000 %

            Answers, in queries and in per cent of those sent
              valid                                 44,000   100.0000 %  the expected AAAA, in time
              late                                       0     0.0000 %  the expected AAAA, after the timeout
              wrong                                      0     0.0000 %  another AAAA than the expected one
              empty                                      0     0.0000 %  NOERROR without an AAAA
              error                                      0     0.0000 %  another RCODE, or not to be parsed
              truncated                                  0     0.0000 %  TC set
              missing                                    0     0.0000 %  no answer at all

            Datagrams beyond those
              duplicate                                  0               second reply to a query
              stray                                      0               answers no query of this trial
              lost by the Tester                         0               at its own sockets

            Round-trip time of the answered queries
              median                                    0 ns
              99th percentile                           0 ns
              99.9th percentile                         0 ns
              largest                                   0 ns

            Timing of the Tester: how late the queries left
              median                                    0 ns
              99th percentile                           0 ns
              99.9th percentile                         0 ns
              largest                                   0 ns
              worst bin of 10 ms                     0.000 %  off the schedule
              worst bin of 100 ms                    0.000 %  off the schedule
              sent in one call            up to 0 queries within 0 ns, over simulated

            Notes
              - trials of 5 s are shorter than 60 s
        "#]],
    );
    let spec = SearchSpec {
        max_qps: Some(40_000),
        ..SearchSpec::from_start(10_000)
    };
    let Ok(highest) = certify(spec, &mut tester, &mut |_| {});
    check(
        |out| text::self_test(out, &highest, 1_000_000_000, &conditions()),
        &expect![[r#"
            CERTIFIED for DUTs up to 18,181 queries/s

            Conditions
              tester                      dns64bench 0.1.0
              server                      [2001:2::2]:53
              device under test           unbound 1.17.1
              authority                   built-in
              lab                         netns
              setup                       three-device
              upstream                    IPv4
              pref64                      64:ff9b::/96
              names                       10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test
              names with an AAAA          0
              queries for a cached name   0
              duration of a trial         1 s
              timeout of a query          1 s
              threads, sockets            1, 16
              cpus of Measurer            0
              cpus of DUT                 1

            Self-test (RFC 8219 section 9.2.1)
              rate of the DUT, r          18,181 queries/s
              asked for, 2(1 + 0.1)r      39,999 queries/s (the papers' reading)
              literally, 2(r + 0.1)       36,363 queries/s (the RFC's words, rounded up)
              passed at                   40,000 queries/s
              timeout, a quarter of t     250 ms (t = 1 s)

            Trials
                #  rate, queries/s  outcome      shortfall  why
                1           10,000  passed               0
                2           20,000  passed               0
                3           40,000  passed               0

            Notes
              - trials of 5 s are shorter than 60 s
        "#]],
    );
}

#[test]
fn a_trial_as_json() {
    let text = check(
        |out| json::trial(out, &failed(), &conditions()),
        &expect![[r#"
            {
              "outcome": "failed",
              "invalid_because": null,
              "shortfall": 1234,
              "certified": true,
              "rate_qps": 20000,
              "duration_s": 5.0,
              "timeout_s": 1.0,
              "queries_due": 100000,
              "queries_sent": 100000,
              "undecided": 0,
              "ended_early": false,
              "answers": {
                "valid": 98766,
                "late": 34,
                "wrong": 0,
                "empty": 0,
                "error": 0,
                "truncated": 0,
                "duplicate": 2,
                "stray": 0,
                "missing": 1200
              },
              "rtt_ns": {
                "p50": 123456,
                "p99": 9876543,
                "p999": 99000000,
                "max": 1002000000
              },
              "timing": {
                "lateness_ns_p50": 12,
                "lateness_ns_p99": 800,
                "lateness_ns_p999": 19000,
                "lateness_ns_max": 310000,
                "bin_10ms_deviation_pct_max": 0.5,
                "bin_100ms_deviation_pct_max": 0.05,
                "quantum_ns": 10000,
                "burst": 1
              },
              "tester_drops": 0,
              "authority": {
                "aaaa": 99500,
                "a": 99400,
                "other": 0,
                "answered": 99400,
                "nodata": 99500,
                "nxdomain": 0,
                "refused": 0,
                "ignored": 0,
                "tcp": 0
              },
              "backend": "udp",
              "notes": [
                "the DUT's sockets lost 1,150 datagrams"
              ],
              "not_a_measurement": [],
              "conditions": {
                "tester": "dns64bench 0.1.0",
                "server": "[2001:2::2]:53",
                "dut": "unbound 1.17.1",
                "authority": "built-in",
                "lab": "netns",
                "setup": "three-device",
                "upstream_family": "IPv4",
                "pref64": "64:ff9b::/96",
                "namespace": "10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test",
                "aaaa_share": "0",
                "cached_share": "0",
                "threads": 1,
                "sockets": 16,
                "cpus": [
                  [
                    "Measurer",
                    "0"
                  ],
                  [
                    "DUT",
                    "1"
                  ]
                ],
                "certified_rate_qps": 25000,
                "not_a_measurement": [],
                "notes": [
                  "trials of 5 s are shorter than 60 s"
                ]
              }
            }
        "#]],
    );
    assert_eq!(parsed(&text)["invalid_because"], serde_json::Value::Null);
}

#[test]
fn an_invalid_trial_without_answers_is_still_json() {
    let mut result = TrialResult {
        outcome: Outcome::Invalid(TesterFault::Link {
            error: "sendmmsg failed: \"quoted\"\n".into(),
        }),
        answers: Answers::default(),
        ..failed()
    };
    result.timing.bin_10ms_deviation_pct_max = f64::NAN;
    result.timing.bin_100ms_deviation_pct_max = f64::INFINITY;
    let mut out = Vec::new();
    json::trial(&mut out, &result, &conditions()).unwrap();
    let report = parsed(&String::from_utf8(out).unwrap());
    assert_eq!(report["outcome"], "invalid");
    assert_eq!(report["invalid_because"], "sendmmsg failed: \"quoted\"\n");
    assert!(report["rtt_ns"]["p50"].is_null());
    assert!(report["timing"]["bin_10ms_deviation_pct_max"].is_null());
    assert!(report["timing"]["bin_100ms_deviation_pct_max"].is_null());
}

#[test]
fn a_search_as_json() {
    let mut dut = Simulated(|rate| threshold(1, rate));
    let Ok(result) = run(
        Search::new(SearchSpec::from_start(1)),
        &mut dut,
        &mut |_| {},
    );
    let text = check(
        |out| json::search(out, &result, &conditions()),
        &expect![[r#"
            {
              "ended": "found",
              "invalid_because": null,
              "rate_qps": 1,
              "failed_qps": 2,
              "resolution_qps": 1,
              "certified": true,
              "certified_rate_qps": 25000,
              "not_a_measurement": [],
              "trials": [
                {
                  "outcome": "passed",
                  "invalid_because": null,
                  "shortfall": 0,
                  "certified": true,
                  "rate_qps": 1,
                  "duration_s": 1.0,
                  "timeout_s": 1.0,
                  "queries_due": 1,
                  "queries_sent": 1,
                  "undecided": 0,
                  "ended_early": false,
                  "answers": {
                    "valid": 1,
                    "late": 0,
                    "wrong": 0,
                    "empty": 0,
                    "error": 0,
                    "truncated": 0,
                    "duplicate": 0,
                    "stray": 0,
                    "missing": 0
                  },
                  "rtt_ns": {
                    "p50": 0,
                    "p99": 0,
                    "p999": 0,
                    "max": 0
                  },
                  "timing": {
                    "lateness_ns_p50": 0,
                    "lateness_ns_p99": 0,
                    "lateness_ns_p999": 0,
                    "lateness_ns_max": 0,
                    "bin_10ms_deviation_pct_max": 0.0,
                    "bin_100ms_deviation_pct_max": 0.0,
                    "quantum_ns": 0,
                    "burst": 0
                  },
                  "tester_drops": 0,
                  "authority": null,
                  "backend": "simulated",
                  "notes": []
                },
                {
                  "outcome": "failed",
                  "invalid_because": null,
                  "shortfall": 1,
                  "certified": true,
                  "rate_qps": 2,
                  "duration_s": 1.0,
                  "timeout_s": 1.0,
                  "queries_due": 2,
                  "queries_sent": 2,
                  "undecided": 0,
                  "ended_early": false,
                  "answers": {
                    "valid": 1,
                    "late": 0,
                    "wrong": 0,
                    "empty": 0,
                    "error": 0,
                    "truncated": 0,
                    "duplicate": 0,
                    "stray": 0,
                    "missing": 1
                  },
                  "rtt_ns": {
                    "p50": 0,
                    "p99": 0,
                    "p999": 0,
                    "max": 0
                  },
                  "timing": {
                    "lateness_ns_p50": 0,
                    "lateness_ns_p99": 0,
                    "lateness_ns_p999": 0,
                    "lateness_ns_max": 0,
                    "bin_10ms_deviation_pct_max": 0.0,
                    "bin_100ms_deviation_pct_max": 0.0,
                    "quantum_ns": 0,
                    "burst": 0
                  },
                  "tester_drops": 0,
                  "authority": null,
                  "backend": "simulated",
                  "notes": []
                }
              ],
              "conditions": {
                "tester": "dns64bench 0.1.0",
                "server": "[2001:2::2]:53",
                "dut": "unbound 1.17.1",
                "authority": "built-in",
                "lab": "netns",
                "setup": "three-device",
                "upstream_family": "IPv4",
                "pref64": "64:ff9b::/96",
                "namespace": "10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test",
                "aaaa_share": "0",
                "cached_share": "0",
                "threads": 1,
                "sockets": 16,
                "cpus": [
                  [
                    "Measurer",
                    "0"
                  ],
                  [
                    "DUT",
                    "1"
                  ]
                ],
                "certified_rate_qps": 25000,
                "not_a_measurement": [],
                "notes": [
                  "trials of 5 s are shorter than 60 s"
                ]
              }
            }
        "#]],
    );
    assert_eq!(parsed(&text)["trials"][1]["outcome"], "failed");
}

#[test]
fn a_search_without_result_as_json() {
    let mut dut = Simulated(|_| Outcome::Invalid(TesterFault::ClockStep { step_ns: -5 }));
    let Ok(result) = run(
        Search::new(SearchSpec::from_start(9)),
        &mut dut,
        &mut |_| {},
    );
    let mut out = Vec::new();
    json::search(&mut out, &result, &conditions()).unwrap();
    let report = parsed(&String::from_utf8(out).unwrap());
    assert_eq!(report["ended"], "tester_fault");
    assert!(report["rate_qps"].is_null());
    assert!(
        report["invalid_because"]
            .as_str()
            .is_some_and(|why| why.contains("-5 ns"))
    );
}

#[test]
fn a_self_test_as_json() {
    let mut tester = Simulated(|rate| threshold(43_999, rate));
    let Ok(result) = certify_at(20_000, 0, &mut tester, &mut |_| {});
    let text = check(
        |out| json::self_test(out, &result, 1_000_000_000, &conditions()),
        &expect![[r#"
            {
              "outcome": "failed",
              "invalid_because": null,
              "shortfall": 1,
              "rate_qps": 20000,
              "self_test_rate_qps": 44000,
              "literal_self_test_rate_qps": 40001,
              "certified_rate_qps": null,
              "delta": 0.1,
              "timeout_s": 1.0,
              "self_test_timeout_s": 0.25,
              "not_a_measurement": [],
              "trials": [
                {
                  "outcome": "failed",
                  "invalid_because": null,
                  "shortfall": 1,
                  "rate_qps": 44000,
                  "duration_s": 1.0,
                  "timeout_s": 1.0,
                  "queries_due": 44000,
                  "queries_sent": 44000,
                  "undecided": 0,
                  "ended_early": false,
                  "answers": {
                    "valid": 43999,
                    "late": 0,
                    "wrong": 0,
                    "empty": 0,
                    "error": 0,
                    "truncated": 0,
                    "duplicate": 0,
                    "stray": 0,
                    "missing": 1
                  },
                  "rtt_ns": {
                    "p50": 0,
                    "p99": 0,
                    "p999": 0,
                    "max": 0
                  },
                  "timing": {
                    "lateness_ns_p50": 0,
                    "lateness_ns_p99": 0,
                    "lateness_ns_p999": 0,
                    "lateness_ns_max": 0,
                    "bin_10ms_deviation_pct_max": 0.0,
                    "bin_100ms_deviation_pct_max": 0.0,
                    "quantum_ns": 0,
                    "burst": 0
                  },
                  "tester_drops": 0,
                  "authority": null,
                  "backend": "simulated",
                  "notes": []
                }
              ],
              "conditions": {
                "tester": "dns64bench 0.1.0",
                "server": "[2001:2::2]:53",
                "dut": "unbound 1.17.1",
                "authority": "built-in",
                "lab": "netns",
                "setup": "three-device",
                "upstream_family": "IPv4",
                "pref64": "64:ff9b::/96",
                "namespace": "10.0.0.0/8, {000..255}-{000..255}-{000..255}-{000..255}.dns64perf.test",
                "aaaa_share": "0",
                "cached_share": "0",
                "threads": 1,
                "sockets": 16,
                "cpus": [
                  [
                    "Measurer",
                    "0"
                  ],
                  [
                    "DUT",
                    "1"
                  ]
                ],
                "certified_rate_qps": 25000,
                "not_a_measurement": [],
                "notes": [
                  "trials of 5 s are shorter than 60 s"
                ]
              }
            }
        "#]],
    );
    assert_eq!(parsed(&text)["self_test_timeout_s"], 0.25);
}

#[test]
fn counts_have_commas() {
    let text = [0, 999, 1000, 1_234_567].map(|n| Thousands(n).to_string());
    assert_eq!(text, ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(format!("{:>7}|", Thousands(1000)), "  1,000|");
}

#[test]
fn spans_take_the_largest_unit() {
    let text = [
        0,
        999,
        1_000,
        10_500,
        250_000_000,
        1_000_000_000,
        60_000_000_000,
    ]
    .map(|ns| Span(ns).to_string());
    assert_eq!(
        text,
        ["0 ns", "999 ns", "1 us", "10.5 us", "250 ms", "1 s", "60 s"]
    );
}

#[test]
fn an_uncertified_rate_is_watermarked() {
    let mut conditions = Conditions {
        certified_rate_qps: Some(1000),
        ..Conditions::default()
    };
    assert!(conditions.watermarks(1000).is_empty());
    assert_eq!(conditions.watermarks(1001).len(), 1);
    conditions.certified_rate_qps = None;
    conditions.not_a_measurement.push("loopback".to_owned());
    assert_eq!(
        conditions.watermarks(1),
        [
            "loopback",
            "the Tester is not certified (RFC 8219 section 9.2.1)"
        ]
    );
}
