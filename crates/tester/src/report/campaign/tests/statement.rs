//! The statement of clauses for campaigns that differ from their plan.

use super::sample::{self, SEAL, SMALL};
use crate::campaign::plan::Plan;
use crate::campaign::record::{Line, Record};
use crate::load::names::NameRange;
use crate::namespace::DEFAULT_NAMESPACE;
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::analysis::{Clause, Met};
use crate::trial::result::TrialResult;

fn clause(plan: &Plan, lines: &[Line], id: &str) -> Clause {
    let statement = analyse(plan, lines, SEAL).statement;
    statement.into_iter().find(|c| c.id == id).unwrap()
}

fn judged(plan: &Plan, lines: &[Line], id: &str) -> (Met, String) {
    let Clause { met, why, .. } = clause(plan, lines, id);
    (met, why)
}

/// The sample as a journal from before the authority recorded each name.
fn small() -> (Plan, Vec<Line>) {
    let (plan, mut lines) = sample::small();
    for line in &mut lines {
        if let Record::Trial { result, .. } = &mut line.record {
            result.path = None;
        }
    }
    (plan, lines)
}

/// Results of the trials of a point.
fn trials(lines: &mut [Line], of: usize) -> impl Iterator<Item = &mut TrialResult> {
    lines
        .iter_mut()
        .filter_map(move |line| match &mut line.record {
            Record::Trial { task, result, .. } if task.point() == of => Some(result),
            _ => None,
        })
}

/// The sample with a running server in place of all others.
fn running() -> (Plan, Vec<Line>) {
    let duts = SMALL.find("[[dut]]").unwrap();
    let plan = SMALL[..duts].replace("[\"0%\", \"50%\", \"100%\"]", "\"0%\"");
    let plan = format!("{plan}\n[[dut]]\nname = \"field\"\nserver = \"2001:2::2\"\n");
    let (plan, mut lines) = sample::campaign(&plan);
    let mut first = 0;
    for result in trials(&mut lines, 0) {
        (result.authority, result.path) = (None, None);
        result.names = Some(NameRange {
            namespace: DEFAULT_NAMESPACE,
            begin: 0,
            first,
            fresh: result.queries_due,
        });
        first += result.queries_due;
    }
    (plan, lines)
}

#[test]
fn cached_answers_in_the_worst_case_are_not_met_with_their_number() {
    let (plan, mut lines) = small();
    let (met, why) = judged(&plan, &lines, "B-10");
    assert_eq!(met, Met::Met);
    assert!(why.starts_with("dns64d cores=1: the authority was asked for an AAAA for each of "));
    let trial = trials(&mut lines, 0).next().unwrap();
    assert_eq!(trial.queries_due, 4_000);
    trial.authority.as_mut().unwrap().aaaa -= 2_589;
    let (met, why) = judged(&plan, &lines, "B-10");
    assert_eq!(met, Met::NotMet);
    assert!(
        why.starts_with("dns64d cores=1: the authority was asked for no AAAA for 2,589 of "),
        "{why}"
    );
    // Without counts: the first variant has ten points.
    for point in 0..10 {
        trials(&mut lines, point).for_each(|result| result.authority = None);
    }
    let (met, why) = judged(&plan, &lines, "B-10");
    assert_eq!(met, Met::NotKnown, "{why}");
}

#[test]
fn names_with_an_aaaa_in_the_worst_case_are_not_met() {
    let (plan, mut lines) = small();
    assert_eq!(clause(&plan, &lines, "B-12").met, Met::Met);
    for trial in trials(&mut lines, 0) {
        let counts = trial.authority.as_mut().unwrap();
        counts.nodata -= counts.aaaa / 2;
    }
    assert_eq!(clause(&plan, &lines, "B-12").met, Met::NotMet);
}

#[test]
fn little_is_known_of_a_running_server() {
    let (plan, mut lines) = running();
    let unknown = "field: no name was asked twice, but the authority is not the Tester's own: what the \
                   cache answered is not counted";
    assert_eq!(
        judged(&plan, &lines, "B-10"),
        (Met::NotKnown, unknown.to_owned())
    );
    assert_eq!(clause(&plan, &lines, "B-12").met, Met::Met);
    for id in ["B-1", "B-19", "B-28"] {
        assert_eq!(clause(&plan, &lines, id).met, Met::NotKnown, "{id}");
    }
    let stranger = "certified by an authority that field does not ask";
    assert_eq!(
        judged(&plan, &lines, "B-17"),
        (Met::NotMet, stranger.to_owned())
    );
    assert_eq!(
        clause(&plan, &lines, "B-21").met,
        Met::NotMet,
        "no interface is named"
    );
    // Two trials have ten names in common.
    let second = trials(&mut lines, 0).nth(1).unwrap();
    second.names.as_mut().unwrap().first -= 10;
    let twice = "field: 10 names were asked twice".to_owned();
    assert_eq!(judged(&plan, &lines, "B-10"), (Met::NotMet, twice));
    trials(&mut lines, 0).next().unwrap().names = None;
    let old = "field: the journal does not say which names were asked".to_owned();
    assert_eq!(judged(&plan, &lines, "B-10"), (Met::NotKnown, old));
}

#[test]
fn clauses_on_dns64_servers_do_not_apply_to_authorities() {
    let text =
        "[trial]\nduration = \"1s\"\n[search]\nruns = 1\n[[dut]]\nauthority = \"built-in\"\n";
    let (plan, lines) = sample::campaign(text);
    for id in ["B-1", "B-10", "B-12", "B-14", "B-15", "B-17"] {
        assert_eq!(clause(&plan, &lines, id).met, Met::NotApplicable, "{id}");
    }
    let (_, why) = judged(&plan, &lines, "B-1");
    assert_eq!(why, "no DNS64 server was measured");
}

#[test]
fn the_links_of_a_lab_are_compared() {
    let (plan, mut lines) = small();
    let veth = (Met::Met, "veth at 2 interfaces".to_owned());
    assert_eq!(judged(&plan, &lines, "B-20"), veth);
    let one = (Met::Met, "MTU 1500 at 2 interfaces".to_owned());
    assert_eq!(judged(&plan, &lines, "B-21"), one);
    let mut change = |mtu: u32, driver: Option<&str>| {
        for line in &mut lines {
            if let Record::Session { environment, .. } = &mut line.record {
                let link = &mut environment.interfaces[1];
                (link.mtu, link.driver) = (mtu, driver.map(str::to_owned));
            }
        }
        ["B-20", "B-21"].map(|id| judged(&plan, &lines, id))
    };
    let [media, mtus] = change(9000, Some("ixgbe"));
    assert_eq!(
        media,
        (
            Met::Met,
            "ixgbe at client of dut; veth at measurer0 of measurer".to_owned()
        )
    );
    let two = "MTU 1500 at measurer0 of measurer; MTU 9000 at client of dut".to_owned();
    assert_eq!(mtus, (Met::NotMet, two));
    let [media, _] = change(1500, None);
    assert_eq!(
        media,
        (
            Met::NotMet,
            "the driver is not known of client of dut".to_owned()
        )
    );
}

#[test]
fn the_documented_clauses_that_do_not_apply_are_those_of_the_statement() {
    let page = include_str!("../../../../../../docs/rfc8219.md");
    let (plan, lines) = small();
    for id in ["B-23", "B-24", "B-25", "B-26"] {
        assert_eq!(clause(&plan, &lines, id).met, Met::NotApplicable, "{id}");
    }
    let row = |start: &str| page.lines().find(|line| line.starts_with(start)).unwrap();
    for start in ["| B-23 |", "| B-24 to B-26 |"] {
        assert!(row(start).contains("not applicable"), "{}", row(start));
    }
}

#[test]
fn lab_is_that_of_the_first_self_test_with_a_lab() {
    let lab = |plan: &Plan, lines: &[Line]| {
        let conditions = analyse(plan, lines, SEAL).conditions.into_iter();
        let mut labs = conditions.filter(|(name, _)| name == "laboratory");
        labs.next().unwrap().1
    };
    let (plan, mut lines) = small();
    let mut tests = lines.iter_mut().filter_map(|line| match &mut line.record {
        Record::SelfTest(test) => Some(&mut test.conditions.lab),
        _ => None,
    });
    // As beside a running server.
    let first = std::mem::take(tests.next().unwrap());
    assert_eq!(tests.next(), Some(&mut first.clone()));
    assert_eq!(lab(&plan, &lines), first);
    assert_eq!(judged(&plan, &lines, "B-2"), (Met::Met, first));
    let (plan, lines) = running();
    assert_eq!(lab(&plan, &lines), "none: the servers were there before");
    assert_eq!(clause(&plan, &lines, "B-2").met, Met::NotApplicable);
}
