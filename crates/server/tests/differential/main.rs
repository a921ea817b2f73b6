//! Compares dns64d with Unbound and BIND: every difference between their responses must be an
//! expected one.
//!
//! All three have the same upstream, an Unbound without DNS64 in front of an authority. So they get
//! responses of a resolver: with CNAME chains across zones, with DNSSEC validated, and with TTLs
//! that count down in one cache. A difference between two responses is therefore a difference
//! between two servers.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ask::{Answer, ask};
use compare::{Aspect, differences, ttl_tolerance_s};
use dns64_transport::clock::{Clock as _, MonotonicClock};
use expected::Peer;
use world::{Case, World};

mod ask;
mod cases;
mod compare;
mod dig;
mod expected;
mod lab;
mod rows;
mod script;
mod world;

/// The three responses to a query.
struct Answers {
    dns64d: Option<Answer>,
    unbound: Option<Answer>,
    bind: Option<Answer>,
}

impl Answers {
    fn to(case: &Case, id: u16) -> Self {
        let [dns64d, unbound, bind] = [lab::DNS64D, lab::UNBOUND, lab::BIND]
            .map(|server| ask(server.into(), &case.question, id));
        Self {
            dns64d,
            unbound,
            bind,
        }
    }
}

/// The unexpected results of a query as text; `None` if there are none.
fn complaint(case: &Case, answers: &Answers, tolerance_s: u32) -> Option<String> {
    let entry = expected::of(case.kind);
    let peers = [
        (
            "Unbound",
            &answers.unbound,
            entry.map_or(Peer::Same, |entry| entry.unbound),
        ),
        (
            "BIND",
            &answers.bind,
            entry.map_or(Peer::Same, |entry| entry.bind),
        ),
    ];
    let mut text = String::new();
    for (name, answer, peer) in peers {
        let found = differences(answers.dns64d.as_ref(), answer.as_ref(), tolerance_s);
        if !peer.allows(&found) {
            writeln!(
                text,
                "  {name} differs in {found:?} instead of {peer:?}: {answer:?}"
            )
            .unwrap();
        }
    }
    (!text.is_empty()).then(|| {
        let (kind, question, ours) = (case.kind, &case.question, &answers.dns64d);
        format!("{kind}: {question}\n{text}  dns64d: {ours:?}\n")
    })
}

#[test]
#[ignore = "needs root, NSD, Unbound and BIND: run by .ci/run net"]
fn every_difference_is_expected() {
    let world = World::new();
    let mut complaints = String::new();
    let mut counts: BTreeMap<(&str, Vec<Aspect>), usize> = BTreeMap::new();
    let start = |lab: &mut lab::Lab| {
        lab.start_upstream(&world);
        lab.start_dns64d("dns64d", lab::DNS64D, lab::RESOLVER, "");
        lab.start_unbound();
        lab.start_bind();
    };
    let started = MonotonicClock.now();
    lab::run(start, |_| {
        for (id, case) in (0..).zip(&world.cases) {
            let answers = Answers::to(case, id);
            let tolerance_s = ttl_tolerance_s(MonotonicClock.now() - started);
            complaints.extend(complaint(case, &answers, tolerance_s));
            for (name, answer) in [("Unbound", &answers.unbound), ("BIND", &answers.bind)] {
                let found = differences(answers.dns64d.as_ref(), answer.as_ref(), tolerance_s);
                *counts.entry((name, found)).or_default() += 1;
            }
        }
    });
    println!(
        "{} questions about {} names",
        world.cases.len(),
        world.names()
    );
    for ((name, aspects), count) in counts {
        println!("{name:7} {aspects:?}: {count}");
    }
    assert!(complaints.is_empty(), "{complaints}");
}

#[test]
fn every_expected_difference_has_a_query() {
    let kinds = World::new().kinds();
    let mut expected: Vec<_> = expected::EXPECTED
        .iter()
        .flat_map(|entry| entry.kinds)
        .collect();
    expected.sort();
    let count = expected.len();
    expected.dedup();
    assert_eq!(expected.len(), count);
    for kind in expected {
        assert!(kinds.contains_key(kind), "no query of kind {kind:?}");
    }
}

#[test]
fn page_lists_the_expected_differences() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differential.md");
    expect_test::expect_file![page].assert_eq(&expected::page(&World::new()));
}

#[test]
#[ignore = "needs root, NSD, Unbound and dig: run by .ci/run net"]
fn dig_rows() {
    let world = World::new();
    let start = |lab: &mut lab::Lab| {
        lab.start_upstream(&world);
        lab.start_dns64d("dns64d", lab::DNS64D, lab::RESOLVER, "");
        lab.start_dns64d(
            "special",
            lab::SPECIAL,
            lab::RESOLVER,
            rows::SPECIAL_SETTINGS,
        );
        lab.start_dns64d(
            "scripted",
            lab::SCRIPTED,
            lab::SCRIPT,
            rows::SCRIPTED_SETTINGS,
        );
    };
    lab::run(start, |_| {
        let mut complaints = String::new();
        for row in rows::ROWS {
            let printed = dig::dig(row);
            println!("### {}\n{}", row.about, printed.transcript);
            complaints.extend(printed.complaint(row));
        }
        assert!(complaints.is_empty(), "{complaints}");
    });
}
