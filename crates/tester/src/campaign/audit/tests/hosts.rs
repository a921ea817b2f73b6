//! Trials on several hosts, and forgeries of them.

use super::figures::each_number_of;
use super::honest::written;
use super::*;
use crate::campaign::plan::Plan;
use crate::machine::Role;
use crate::machine::usage::Usage;
use crate::trial::result::{HostClock, Outcome};

/// Two hosts with DUTs; each trial uses one of them.
pub(super) const PLAN: &str = r#"
[trial]
duration = "10s"
[search]
runs = 1
start-rate = "1k"
resolution = "1%"
[hosts.gen]
ssh = "gen"
roles = ["measurer"]
links.client = { interface = "c", addresses = ["2001:2:0:1::1/64", "2001:2:0:3::1/64"] }
[hosts.one]
ssh = "one"
roles = ["dut"]
links.client = { interface = "c", addresses = ["2001:2:0:1::2/64"] }
links.upstream = { interface = "u", addresses = ["2001:2:0:2::2/64"] }
[hosts.two]
ssh = "two"
roles = ["dut"]
links.client = { interface = "c", addresses = ["2001:2:0:3::2/64"] }
links.upstream = { interface = "u", addresses = ["2001:2:0:2::3/64"] }
[hosts.auth]
ssh = "auth"
roles = ["authority"]
links.upstream = { interface = "u", addresses = ["2001:2:0:2::1/64"] }
[[dut]]
profile = "unbound"
host = "one"
[[dut]]
profile = "bind"
host = "two"
"#;

fn on_hosts() -> (Plan, Vec<Line>) {
    let lines = written(PLAN, [Servers::of(PLAN)]);
    (Plan::parse("hosts.toml", PLAN).unwrap(), lines)
}

/// The result after a change of the first trial of the first DUT.
fn changed(change: impl FnOnce(&mut TrialResult)) -> Result<Audited, Contradiction> {
    let (plan, mut lines) = on_hosts();
    change(trial(&mut lines, 1, 1).1);
    audit(&plan, &lines)
}

fn said(change: impl FnOnce(&mut TrialResult)) -> String {
    let error = changed(change).expect_err("the forgery was not noticed");
    let what = error.what.split(": ").skip(1);
    what.collect::<Vec<_>>().join(": ")
}

fn usage_of(role: &str, host: Option<&str>) -> Usage {
    serde_json::from_value(serde_json::json!({
        "span_ns": 11_000_000_000_u64,
        "pressure_ns": null,
        "roles": [{
            "role": role, "host": host, "threads": 1, "cores": null, "cpu_ns": 7, "run_delay_ns": 8,
            "involuntary_switches": 9, "steal_ns": null, "foreign_ns": null, "neighbour": null,
            "throttled_ns": null, "pressure_ns": null, "frequency_khz": null,
        }],
    }))
    .unwrap()
}

#[test]
fn trials_on_the_hosts_of_the_plan_are_verified() {
    let (plan, lines) = on_hosts();
    let audited = audit(&plan, &lines).unwrap();
    assert_eq!(audited.searches, 2);
    let hosts = lines.iter().filter_map(|line| match &line.record {
        Record::Trial { result, .. } => Some(result.clocks.iter().map(|it| it.host.as_str())),
        _ => None,
    });
    let mut hosts: Vec<String> = hosts.map(|it| it.collect::<Vec<_>>().join(" ")).collect();
    hosts.sort();
    hosts.dedup();
    assert_eq!(hosts, ["gen one auth", "gen two auth"]);
}

#[test]
fn each_host_has_exactly_one_clock() {
    assert_eq!(
        said(|trial| drop(trial.clocks.remove(1))),
        "it has no clock of host one"
    );
    assert_eq!(
        said(|trial| trial.clocks[1].host = "two".to_owned()),
        "it has no clock of host one"
    );
    let another = |trial: &mut TrialResult, host: &str| {
        let host = host.to_owned();
        trial.clocks.push(HostClock {
            host,
            ..trial.clocks[0].clone()
        });
    };
    assert_eq!(
        said(|trial| another(trial, "two")),
        "it has a clock of host two, which has no part in it"
    );
    assert_eq!(
        said(|trial| another(trial, "gen")),
        "the figures of the clock of host gen are impossible"
    );
    let (plan, mut lines) = honest();
    let clock = on_hosts().1;
    let clock = clock.into_iter().find_map(|line| match line.record {
        Record::Trial { result, .. } => result.clocks.into_iter().next(),
        _ => None,
    });
    trial(&mut lines, 1, 1).1.clocks.extend(clock);
    let error = audit(&plan, &lines).unwrap_err().to_string();
    assert!(error.contains("it has a clock of host gen"), "{error}");
}

/// The plan with one DUT host, and with another Measurer and another authority.
fn with_two_authorities() -> (Plan, Vec<Line>) {
    let plan = PLAN
        .replace("[hosts.two]\nssh = \"two\"\nroles = [\"dut\"]", "[hosts.gen2]\nssh = \"gen2\"\nroles = [\"measurer\"]")
        .replace("links.client = { interface = \"c\", addresses = [\"2001:2:0:3::2/64\"] }", "links.client = { interface = \"c\", addresses = [\"2001:2:0:1::3/64\"] }")
        .replace("links.upstream = { interface = \"u\", addresses = [\"2001:2:0:2::3/64\"] }", "[hosts.auth2]\nssh = \"auth2\"\nroles = [\"authority\"]\nlinks.upstream = { interface = \"u\", addresses = [\"2001:2:0:12::1/64\"] }")
        .replace(", \"2001:2:0:3::1/64\"", "")
        .replace("links.upstream = { interface = \"u\", addresses = [\"2001:2:0:2::2/64\"] }", "links.upstream = [{ interface = \"u\", addresses = [\"2001:2:0:2::2/64\"] }, { interface = \"u2\", addresses = [\"2001:2:0:12::2/64\"] }]")
        .replace("[[dut]]\nprofile = \"bind\"\nhost = \"two\"\n", "");
    let lines = written(&plan, [Servers::of(&plan)]);
    (Plan::parse("hosts.toml", &plan).unwrap(), lines)
}

#[test]
fn shares_of_authorities_match_their_queries() {
    let (plan, lines) = with_two_authorities();
    audit(&plan, &lines).unwrap();
    let said = |change: fn(&mut TrialResult)| {
        let (plan, mut lines) = with_two_authorities();
        change(trial(&mut lines, 1, 1).1);
        audit(&plan, &lines).unwrap_err().what
    };
    let more = said(|trial| trial.authorities[1].questions += 1);
    assert!(more.contains("questions by their own counts"), "{more}");
    let other = said(|trial| trial.authorities[0].host = "gen".to_owned());
    assert!(
        other.ends_with("its authorities are auth, auth2"),
        "{other}"
    );
    let none = said(|trial| trial.authorities.clear());
    assert!(none.contains("it has shares of none"), "{none}");
    let of_one = changed(|trial| {
        let questions = trial.authority.unwrap().queries();
        let host = "auth".to_owned();
        trial.authorities = vec![crate::trial::result::AuthorityShare {
            host,
            questions,
            drops: 0,
        }];
    });
    let error = of_one.unwrap_err().what;
    assert!(
        error.ends_with("it has shares of auth, and one authority at most"),
        "{error}"
    );
}

#[test]
fn self_test_has_the_hosts_of_one_dut() {
    let of_self_test = |change: fn(&mut TrialResult)| {
        let (plan, mut lines) = on_hosts();
        self_test(&mut lines).trials.iter_mut().for_each(change);
        audit(&plan, &lines).map_err(|error| error.what)
    };
    let other = |trial: &mut TrialResult| trial.clocks[1].host = "two".to_owned();
    assert!(of_self_test(other).is_ok(), "the plan has both");
    let both = |trial: &mut TrialResult| {
        let mut two = trial.clocks[1].clone();
        two.host = "two".to_owned();
        trial.clocks.push(two);
    };
    let error = of_self_test(both).unwrap_err();
    assert!(error.starts_with("trial 1 of the self-test: "), "{error}");
    let none = |trial: &mut TrialResult| trial.clocks.clear();
    assert!(of_self_test(none).is_err());
}

#[test]
fn late_host_or_unknown_clock_invalidates_trial() {
    assert_eq!(
        said(|trial| trial.clocks[2].late_ns = 1_500_000),
        "it is called passed, and by its figures it is invalid (host auth began its part of the trial 1.5 ms too late)"
    );
    let vague = said(|trial| trial.clocks[0].bound_ns = 1_000_001);
    assert!(
        vague.contains("it is invalid (the clock of host gen "),
        "{vague}"
    );
    assert!(changed(|trial| trial.clocks[0].bound_ns = 1_000_000).is_ok());
    let set = said(|trial| trial.clocks[0].bound_ns = u64::MAX);
    assert!(set.contains("by its figures it is invalid ("), "{set}");
    // The fault requires its figures.
    let fault = TesterFault::HostLate {
        host: "gen".to_owned(),
        late_ns: 5,
    };
    let unfounded = said(|trial| trial.outcome = Outcome::Invalid(fault));
    assert!(
        unfounded.ends_with("by its figures it is passed"),
        "{unfounded}"
    );
}

#[test]
fn impossible_clocks_and_roles_are_found() {
    let cannot_be = "the figures of the clock of host gen are impossible";
    assert_eq!(said(|trial| trial.clocks[0].exchanges = 0), cannot_be);
    assert_eq!(said(|trial| trial.clocks[0].drift_ppm = -1e10), cannot_be);
    let out = said(|trial| trial.clocks[0].late_ns = 1 << 60);
    assert_eq!(out, "its late_ns is more than any trial has");
    for (role, host) in [
        ("dut", Some("gen")),
        ("dut", Some("two")),
        ("measurer", None),
    ] {
        let said = said(|trial| trial.machine = usage_of(role, host));
        assert!(said.ends_with(", and not by the plan"), "{said}");
    }
    let usage = usage_of("dut", Some("one"));
    assert_eq!(usage.roles[0].role, Role::Dut);
    assert!(changed(|trial| trial.machine = usage).is_ok());
}

#[test]
fn no_number_of_a_host_causes_a_panic() {
    let (plan, mut lines) = on_hosts();
    let at = place(&lines, |record| is_trial_of(record, 0, 1, 4));
    trial(&mut lines, 1, 5).1.machine = usage_of("authority", Some("auth"));
    lines.truncate(at + 1);
    each_number_of(&plan, &lines, at);
}
