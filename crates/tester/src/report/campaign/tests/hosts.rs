//! The report of a plan with several hosts.

use expect_test::expect;

use super::sample::{SEAL, analysed, campaign};
use crate::campaign::plan::Plan;
use crate::campaign::record::{Line, Record};
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::analysis::{Analysis, Met};
use crate::report::campaign::table::Table;
use crate::report::campaign::{csv, html, tables};
use crate::trial::result::TrialResult;

/// Two Measurers with different numbers of threads, one DUT, one authority.
pub(super) const HOSTS: &str = r#"
name = "Four hosts"
[search]
runs = 2
start-rate = 4000
[hosts.gen1]
ssh = "root@gen1"
roles = ["measurer"]
threads = 3
links.client = { interface = "ens1", addresses = ["2001:2:0:1::1/64"] }
[hosts.gen2]
ssh = "root@gen2"
roles = ["measurer"]
links.client = { interface = "ens1", addresses = ["2001:2:0:3::1/64"] }
[hosts.dut]
ssh = "root@dut"
roles = ["dut"]
links.client = [
  { interface = "ens1", addresses = ["2001:2:0:1::2/64"] },
  { interface = "ens2", addresses = ["2001:2:0:3::2/64"] },
]
links.upstream = { interface = "ens3", addresses = ["198.18.0.1/24", "2001:2:0:2::2/64"] }
[hosts.auth]
ssh = "root@auth"
roles = ["authority"]
links.upstream = { interface = "ens1", addresses = ["198.18.0.2/24", "2001:2:0:2::1/64"] }
[[dut]]
profile = "unbound"
"#;

fn table(analysis: &Analysis, key: &str) -> Table {
    let tables = tables::all(analysis).into_iter();
    tables.into_iter().find(|table| table.key == key).unwrap()
}

fn trials(lines: &mut [Line]) -> impl Iterator<Item = &mut TrialResult> {
    lines.iter_mut().filter_map(|line| match &mut line.record {
        Record::Trial { result, .. } => Some(result),
        _ => None,
    })
}

fn after(change: impl FnOnce(&mut Vec<Line>)) -> Analysis {
    let (plan, mut lines): (Plan, _) = campaign(HOSTS);
    change(&mut lines);
    analyse(&plan, &lines, SEAL)
}

#[test]
fn each_host_has_a_row() {
    let analysis = analysed(HOSTS);
    let text = csv::text(&table(&analysis, "hosts")).unwrap();
    expect![[r#"
        host,roles,machine,program,queries_pct,waited_pct_max,taken_pct_max,bound_ns_max,drift_ppm,late_ns_max,clock_set
        gen1,Measurer,gen1.example; 6.1.0-18-amd64; 8 CPUs,dns64bench 0.1.0; sha256 efefefefefef,75,0,0.05,20800,−1.5,in time,never
        gen2,Measurer,gen2.example; 6.1.0-18-amd64; 8 CPUs,dns64bench 0.1.0; sha256 efefefefefef,25,0.1,0.05,40800,−0.5,in time,never
        dut,DUT,dut.example; 6.1.0-18-amd64; 8 CPUs,dns64bench 0.1.0; sha256 efefefefefef,,0.2,0.05,60800,0.5,in time,never
        auth,authority,auth.example; 6.1.0-18-amd64; 8 CPUs,dns64bench 0.1.0; sha256 efefefefefef,,0.3,0.05,80800,1.5,in time,never
    "#]].assert_eq(&text);
    let tables = tables::all(&analysis);
    let page = html::page(&analysis, &tables).unwrap();
    assert_eq!(page.matches("<section id=\"hosts\">").count(), 1);
    assert!(page.contains("href=\"#hosts\"") && page.contains("The controller of session 1"));
}

#[test]
fn a_clock_that_was_set_has_no_bound() {
    let set = after(|lines| {
        let clock = &mut trials(lines).next().unwrap().clocks[0];
        (clock.bound_ns, clock.late_ns) = (u64::MAX, 7_000_000);
    });
    let clock = set.hosts.rows[0].clock.unwrap();
    assert_eq!((clock.set, clock.late_ns_max), (1, 7_000_000));
    assert!(clock.bound_ns_max.unwrap() < 21_000, "{clock:?}");
}

/// Adds a second authority behind another interface.
fn two_authorities() -> String {
    let up = "links.upstream = { interface = \"ens3\", addresses = [\"198.18.0.1/24\", \"2001:2:0:2::2/64\"] }";
    let both = "links.upstream = [{ interface = \"ens3\", addresses = [\"198.18.0.1/24\", \"2001:2:0:2::2/64\"] }, \
                { interface = \"ens4\", addresses = [\"198.18.1.1/24\", \"2001:2:0:12::2/64\"] }]";
    let second = "[hosts.auth2]\nssh = \"root@auth2\"\nroles = [\"authority\"]\nlinks.upstream = { interface = \"ens1\", \
                  addresses = [\"198.18.1.2/24\", \"2001:2:0:12::1/64\"] }\n[[dut]]";
    HOSTS.replace(up, both).replace("[[dut]]", second)
}

#[test]
fn each_of_two_authorities_has_its_share() {
    let analysis = analysed(&two_authorities());
    let shares = table(&analysis, "authority_shares");
    let text = csv::text(&shares).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["trials", "host", "questions", "pct", "drops"]);
    let of: Vec<_> = rows[1..]
        .iter()
        .map(|row| (row[0], row[1], row[3]))
        .collect();
    assert_eq!(
        of,
        [
            ("self-tests", "auth", "50"),
            ("self-tests", "auth2", "50"),
            ("unbound", "auth", "50"),
            ("unbound", "auth2", "50")
        ]
    );
    let told = serde_json::to_value(&analysis).unwrap();
    assert_eq!(told["hosts"]["shares"].as_array().unwrap().len(), 4);
    // A single authority has no share.
    let one = tables::all(&analysed(HOSTS));
    assert!(one.iter().all(|table| table.key != "authority_shares"));
}

#[test]
fn unknown_host_is_reported() {
    let analysis = after(|lines| {
        lines.retain(|line| {
            matches!(
                line.record,
                Record::Campaign { .. } | Record::Session { .. }
            )
        });
    });
    let row = &analysis.hosts.rows[0];
    assert_eq!(
        (row.queries_pct, analysis.hosts.rows.len()),
        (Some(75.0), 4)
    );
    assert!(row.machine.is_none() && row.clock.is_none() && row.waited_pct_max.is_none());
}

#[test]
fn the_conditions_and_clauses_are_those_of_hosts() {
    let analysis = analysed(HOSTS);
    let condition = |name: &str| {
        let mut all = analysis.conditions.iter();
        all.find(|(own, _)| own == name).unwrap().1.clone()
    };
    assert_eq!(
        condition("laboratory"),
        "4 hosts over OpenSSH, three devices"
    );
    assert!(
        analysis.not_a_measurement.is_empty(),
        "{:?}",
        analysis.not_a_measurement
    );
    let judged = |analysis: &Analysis, id: &str| {
        let clause = analysis.statement.iter().find(|c| c.id == id).unwrap();
        (clause.met, clause.why.clone())
    };
    let lab = condition("laboratory");
    assert_eq!(judged(&analysis, "B-2"), (Met::Met, lab));
    for id in ["B-19", "B-28"] {
        assert_eq!(judged(&analysis, id).0, Met::NotKnown, "{id}");
    }
    let media = "ixgbe at 6 interfaces".to_owned();
    assert_eq!(judged(&analysis, "B-20"), (Met::Met, media));
    assert_eq!(judged(&analysis, "B-21").0, Met::Met);
    assert_eq!(judged(&analysis, "B-22").0, Met::Met);
    let (plan, lines) = campaign(&HOSTS.replace("2001:2:0:3::", "2001:db8:3::"));
    let analysis = analyse(&plan, &lines, SEAL);
    let elsewhere = "other addresses: gen2, dut".to_owned();
    assert_eq!(judged(&analysis, "B-22"), (Met::NotMet, elsewhere));
}

#[test]
fn results_have_the_hosts_by_schema() {
    let analysis = analysed(HOSTS);
    let told = serde_json::to_value(&analysis).unwrap();
    assert_eq!(
        told["hosts"]["rows"][0]["roles"],
        serde_json::json!(["measurer"])
    );
}
