mod mutants;
mod simulated;

use std::collections::BTreeSet;

use self::simulated::{Simulated, failed};
use super::*;

#[test]
fn every_built_in_case_can_be_read() {
    let cases = read::built_in().unwrap_or_else(|why| panic!("{why}"));
    let names: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(names.len(), cases.len());
}

#[test]
fn fault_in_a_case_is_reported_with_its_line() {
    let text = "rfc = 1\n[[case]]\nid = \"a\"\nclause = \"1\"\nlevel = \"must\"\nwhy = \"\"\n\
                [[case.step]]\nask = \"@ AAAAA\"\n";
    let error = read::parse("x.toml", text).unwrap_err();
    assert_eq!(error, "x.toml, line 2: rfc1-a: there is no type \"AAAAA\"");
    let error = read::parse("x.toml", &text.replace("why", "because")).unwrap_err();
    assert!(
        error.starts_with("x.toml: TOML parse error at line 6"),
        "{error}"
    );
}

#[test]
fn functions_are_replaced_from_the_inside() {
    let run = Run {
        origin: "c.test.".into(),
        pref64: "2001:db8::/96".parse().unwrap(),
        number: 0x0102,
    };
    assert_eq!(run.fill("addr(7)").unwrap(), "20.1.2.7");
    assert_eq!(
        run.fill("pref64(addr(7)) wkp(192.0.2.1)").unwrap(),
        "2001:db8::1401:207 64:ff9b::c000:201"
    );
    assert_eq!(
        run.fill("reverse(addr(7))").unwrap(),
        "7.2.1.20.in-addr.arpa."
    );
    assert!(run.fill("addr(x)").is_err() && run.fill("addr(1").is_err());
}

#[test]
fn dns64d_fails_no_must_and_no_should() {
    let cases = read::built_in().unwrap();
    for pref64 in ["2001:db8:64::/96", "64:ff9b::/96"] {
        assert_eq!(
            failed(&cases, &simulated::RIGHT, pref64),
            [""; 0],
            "{pref64}"
        );
    }
}

#[test]
fn attack_costs_few_questions() {
    for case in read::attacks().unwrap() {
        let settings = simulated::settings(&simulated::RIGHT, "2001:db8::/96");
        let server = Simulated::new(&simulated::RIGHT, &settings);
        let run = simulated::run("2001:db8::/96", 1);
        let played = play::steps(&case, &run, &server.runs, &server, WAIT_NS).unwrap();
        let cost = attacks::cost(&played[0], &case, None);
        assert!((1..=64).contains(&cost.questions), "{cost:?}");
        assert!(cost.question_octets > 0.5, "{cost:?}");
    }
}

/// A case of level must.
fn a_case() -> Case {
    let text = "rfc = 6147\n[[case]]\nid = \"a\"\nclause = \"5.1\"\nlevel = \"must\"\nwhy = \"A & B\"\n\
                [[case.step]]\nask = \"@ AAAA\"\n";
    read::parse("x.toml", text).unwrap().remove(0)
}

fn a_failure() -> Judged {
    let mut failed = Judged::of(&a_case(), Verdict::Failed);
    failed.faults.push("no response".into());
    failed.packets.push("response: none".into());
    failed
}

fn report(cases: Vec<Judged>, loads: Vec<UnderLoad>) -> report::Report {
    report::Report {
        tester: "dns64bench 0".into(),
        server: "dns64d 0".into(),
        pref64: "2001:db8::/96".into(),
        seed: 7,
        levels: report::Levels::of(&cases),
        loads,
        attacks: None,
        repeat: "dns64bench conform --dut dns64d --seed 7".into(),
        cases,
    }
}

#[test]
fn verdict_that_changes_under_load_and_costs_of_attacks_are_findings() {
    let sent = report::Sent {
        rate_qps: 900,
        sent_qps: 890,
        answered_pct: 99.5,
    };
    let mut judged = Judged::of(&a_case(), Verdict::Passed);
    judged.under_load.push(a_failure().into());
    let mut report = report(vec![judged], vec![UnderLoad::new(sent, &[a_failure()])]);
    report.attacks = Some(Attacks {
        questions: 1024,
        port_bits: 12.94,
        id_bits: 15.5,
        classes: vec![report::Attack {
            id: "loop".into(),
            why: "two aliases of each other".into(),
            questions: 3,
            question_octets: 2.96,
            response_octets: 0.0,
            cpu_us: Some(81.4),
        }],
    });
    assert_eq!(
        (
            report.levels.must.failed,
            report.loads[0].levels.must.failed
        ),
        (0, 1)
    );
    expect_test::expect![[r#"
        failed at 900 queries/s, passed without load, must: rfc6147-a (RFC 6147 section 5.1)
          A & B
          - no response
            response: none
          repeat: dns64bench conform --dut dns64d --seed 7 --case rfc6147-a --load 900

        dns64d 0, prefix 2001:db8::/96, seed 7
        must    1 passed, 0 failed, 0 not known
        should  0 passed, 0 failed, 0 not known
        policy  0 passed, 0 failed, 0 not known
        must    0 passed, 1 failed, 0 not known at 900 queries/s (890 sent, 99.5 % answered)
        forged responses: one in 2^28.4 has the port and the ID of a question (12.9 and 15.5 bits of entropy in 1024 questions)
        loop        3 questions to the authority; octets for each octet of the query: 3.0 to the authority, 0.0 to the client; 81 us of CPU time (two aliases of each other)
    "#]]
    .assert_eq(&report.written(report::Form::Text).unwrap());
    let junit = report.written(report::Form::Junit).unwrap();
    assert_eq!(junit.matches("<failure").count(), 1);
}

#[test]
fn report_has_a_form_for_people_for_ci_and_for_programs() {
    let unknown = Judged::unknown(&a_case(), "needs own-prefix");
    let report = report(vec![a_failure(), unknown], Vec::new());
    let written = |form| report.written(form).unwrap();
    expect_test::expect![[r#"
        failed must: rfc6147-a (RFC 6147 section 5.1)
          A & B
          - no response
            response: none
          repeat: dns64bench conform --dut dns64d --seed 7 --case rfc6147-a

        not known: rfc6147-a (needs own-prefix)
        dns64d 0, prefix 2001:db8::/96, seed 7
        must    0 passed, 1 failed, 1 not known
        should  0 passed, 0 failed, 0 not known
        policy  0 passed, 0 failed, 0 not known
    "#]]
    .assert_eq(&written(report::Form::Text));
    expect_test::expect![[r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites>
        <testsuite name="dns64d 0" tests="2" failures="1" skipped="1">
        <testcase classname="must.RFC 6147 section 5.1" name="rfc6147-a"><failure message="no response">response: none</failure></testcase>
        <testcase classname="must.RFC 6147 section 5.1" name="rfc6147-a"><skipped message="needs own-prefix"/></testcase>
        </testsuite>
        </testsuites>
    "#]].assert_eq(&written(report::Form::Junit));
    expect_test::expect![[r#"
        # Conformance of dns64d 0

        | level | passed | failed | not known |
        |---|---|---|---|
        | must | 0 | 1 | 1 |
        | should | 0 | 0 | 0 |
        | policy | 0 | 0 | 0 |

        | case | clause | level | verdict | difference |
        |---|---|---|---|---|
        | rfc6147-a | RFC 6147 section 5.1 | must | failed | no response |
        | rfc6147-a | RFC 6147 section 5.1 | must | not-known | needs own-prefix |
    "#]]
    .assert_eq(&written(report::Form::Markdown));
}

/// A server that does not answer, or answers without the authority.
struct Deaf(Option<&'static [u8]>);

impl client::Client for Deaf {
    fn ask(&self, _: &query::Query, _: u16, _: Nanos, _: Option<&query::Query>) -> client::Back {
        match self.0 {
            Some(octets) => client::Back::Response(octets.to_vec()),
            None => client::Back::Gone,
        }
    }

    fn sleep(&self, _: Nanos) {}

    fn now(&self) -> Nanos {
        0
    }
}

#[test]
fn server_that_crashes_or_answers_garbage_fails_each_case_with_a_reason() {
    for (server, fault) in [
        (Deaf(None), "no response"),
        (Deaf(Some(b"\0\0")), "the response is malformed"),
    ] {
        let (runs, case) = (simulated::runs(), only(ELSEWHERE).unwrap());
        let next = || simulated::run("2001:db8::/96", 1);
        let judged = play::judged(&case, next, &runs, &server, WAIT_NS);
        assert_eq!(judged.verdict, Verdict::Failed);
        assert!(judged.faults[0].starts_with(fault), "{judged:?}");
        assert_eq!(judged.silent, server.0.is_none());
    }
}

#[test]
fn step_that_comes_too_late_gives_no_verdict() {
    let text = "rfc = 1\n[[case]]\nid = \"a\"\nclause = \"1\"\nlevel = \"must\"\nwhy = \"\"\n\
                zone = \"@ A 20.0.0.1\"\n[[case.step]]\nask = \"@ A\"\n\
                [[case.step]]\nask = \"@ A\"\nafter_s = 1\nwithin_ms = 1001\n";
    for (within_ms, verdict) in [("1001", Verdict::Passed), ("999", Verdict::NotKnown)] {
        let text = text.replace("1001", within_ms);
        let case = read::parse("x.toml", &text).unwrap().remove(0);
        let settings = simulated::settings(&simulated::RIGHT, "2001:db8::/96");
        let server = Simulated::new(&simulated::RIGHT, &settings);
        let next = || simulated::run("2001:db8::/96", 1);
        let judged = play::judged(&case, next, &server.runs, &server, WAIT_NS);
        assert_eq!(judged.verdict, verdict, "{within_ms}");
    }
}
