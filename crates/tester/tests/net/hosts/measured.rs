//! Campaigns that run to their end: each trial is accounted for, and nothing is left on any host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use dns64bench::campaign::record::Record;
use serde_json::Value;

use super::ground::{Ground, read, records, said};
use super::plans::{FIVE, SECOND, THREE, plan, three};
use crate::accounts::{assert_accounted, number};
use crate::busy::until;

/// Largest error of a host's clock offset in a valid trial.
const BOUND_MAX_NS: u64 = 1_000_000;

/// Trials of a completed campaign; those of self-tests come first.
fn trials(directory: &Path) -> Vec<Value> {
    let lines = read(directory);
    assert!(matches!(lines.last().unwrap().record, Record::Complete));
    let tests = records(directory, "self_test").into_iter();
    let certifying = tests.flat_map(|test| test["trials"].as_array().unwrap().clone());
    let own = records(directory, "trial").into_iter();
    certifying
        .chain(own.map(|trial| trial["result"].clone()))
        .collect()
}

/// Asserts that each trial accounts for all queries and reports the clocks of these hosts.
fn assert_measured(ground: &Ground, directory: &Path, hosts: &[&str]) -> Vec<Value> {
    let trials = trials(directory);
    assert!(!trials.is_empty());
    for trial in &trials {
        assert_accounted(trial);
        let clocks = trial["clocks"].as_array().unwrap();
        let told: Vec<_> = clocks
            .iter()
            .map(|clock| clock["host"].as_str().unwrap())
            .collect();
        assert_eq!(told, hosts, "{trial:#}");
        let is_known = |clock: &Value| number(clock, "bound_ns") < BOUND_MAX_NS;
        let known = clocks.iter().all(is_known);
        assert!(known || trial["outcome"] == "invalid", "{trial:#}");
    }
    let verified = ground.run(&["verify", directory.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
    ground.assert_nothing_left();
    trials
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn three_hosts_are_measured_over_ssh_and_left_unchanged() {
    let ground = Ground::up();
    let directory = ground.campaign("three", &three("three"));
    assert_measured(&ground, &directory, &["auth", "dut", "gen1"]);
    let variants = records(&directory, "variant");
    let self_tests = records(&directory, "self_test");
    let certifies = |it: &Value| !it["certified_rate_qps"].is_null();
    // Others on this machine can prevent a certificate: only then is no server started.
    assert_eq!(variants.is_empty(), !self_tests.iter().any(certifies));
    for variant in variants {
        assert_eq!(variant["server"], "[2001:2:0:1::2]:53");
    }
}

/// A link between `auth`, here the Tester, and `dut`.
fn client_link_of_auth() {
    let ip = |line: &str| {
        let status = Command::new("ip").args(line.split_whitespace()).status();
        assert!(status.unwrap().success(), "{line}");
    };
    ip("-n net-test-auth link add client type veth peer name client3 netns net-test-dut");
    for (host, interface, address) in [
        ("auth", "client", "2001:2:0:21::1/64"),
        ("dut", "client3", "2001:2:0:21::2/64"),
    ] {
        ip(&format!(
            "-n net-test-{host} link set {interface} addrgenmode none"
        ));
        ip(&format!("-n net-test-{host} link set {interface} up"));
        ip(&format!(
            "-n net-test-{host} address add {address} dev {interface} nodad"
        ));
    }
}

const TWO: &str = r#"
[hosts.auth]
ssh = "auth"
roles = ["measurer", "authority"]
cpus = "0"
authority-cpus = "1"
links.client = { interface = "client", addresses = ["2001:2:0:21::1/64"] }
links.upstream = { interface = "upstream", addresses = ["2001:2:0:2::2/64", "198.18.0.2/24"] }

[hosts.dut]
ssh = "dut"
roles = ["dut"]
links.client = { interface = "client3", addresses = ["2001:2:0:21::2/64"] }
links.upstream = { interface = "upstream", addresses = ["2001:2:0:2::1/64", "198.18.0.1/24"] }
"#;

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn one_host_can_be_measurer_and_authority() {
    let mut ground = Ground::up();
    client_link_of_auth();
    ground.is_as_it_was();
    let plan = plan("two", TWO, "", "profile = \"unbound\"");
    let directory = ground.campaign("two", &plan);
    assert_measured(&ground, &directory, &["auth", "dut"]);
    let conditions = &records(&directory, "self_test")[0]["conditions"];
    assert_eq!(conditions["lab"], "hosts, two-device");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn two_measurers_share_the_queries_of_each_trial() {
    let ground = Ground::up();
    let hosts = THREE.replace(
        "links.client = { interface = \"client1\", addresses = [\"2001:2:0:1::2/64\"] }",
        "links.client = [{ interface = \"client1\", addresses = [\"2001:2:0:1::2/64\"] }, \
         { interface = \"client2\", addresses = [\"2001:2:0:11::2/64\"] }]",
    );
    let plan = plan(
        "several",
        &(hosts + SECOND),
        "raw = \"csv\"",
        "profile = \"unbound\"",
    );
    let directory = ground.campaign("several", &plan);
    let trials = assert_measured(&ground, &directory, &["auth", "dut", "gen1", "gen2"]);
    for trial in trials.iter().filter(|trial| trial["outcome"] == "passed") {
        let users = trial["machine"]["roles"].as_array().unwrap();
        let senders = users.iter().filter(|user| user["role"] == "measurer");
        let hosts: BTreeSet<_> = senders.map(|user| user["host"].as_str().unwrap()).collect();
        assert_eq!(hosts, BTreeSet::from(["gen1", "gen2"]), "{trial:#}");
    }
    // A search that was disturbed too often begins again, with the same numbers and files.
    let all = records(&directory, "trial").into_iter();
    let last: BTreeMap<_, _> = all.map(|it| (it["number"].to_string(), it)).collect();
    for (number_of, trial) in &last {
        let path = format!("raw/point-0-run-1-trial-{number_of}.csv");
        assert_shared(&directory.join(path), &trial["result"]);
        // Unbound queries AAAA and A of each name once, and again if a busy machine delays a response.
        let (asked, sent) = (
            &trial["result"]["authority"],
            number(&trial["result"], "queries_sent"),
        );
        if trial["result"]["outcome"] == "passed" {
            let of = |keys: [&str; 2]| keys.map(|key| number(asked, key));
            let each = of(["aaaa", "a"]);
            let is_once_or_again = |count: &u64| (sent..2 * sent).contains(count);
            assert!(each.iter().all(is_once_or_again), "{sent}: {asked:#}");
            // The names have A records only.
            assert_eq!(of(["nodata", "answered"]), each, "{asked:#}");
        }
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn two_authorities_share_the_queries_of_a_dut() {
    let ground = Ground::up();
    let mut campaigns = 0;
    // On a busy machine, a DUT whose first questions an authority answers late prefers the other one for minutes.
    until("has a DUT asked both authorities", || {
        campaigns += 1;
        let name = format!("authorities-{campaigns}");
        let plan = plan(&name, FIVE, "", "profile = \"unbound\"");
        let plan = plan.replace("duration = \"600ms\"", "duration = \"2s\"");
        let plan = plan.replace(
            "start-rate = \"1k\"\nmax-rate = \"2k\"",
            "start-rate = 200\nmax-rate = 400",
        );
        let directory = ground.campaign(&name, &plan);
        let hosts = ["auth", "auth2", "dut", "gen1", "gen2"];
        let trials = assert_measured(&ground, &directory, &hosts);
        trials.iter().for_each(assert_shares);
        let results = fs::read_to_string(directory.join("report/results.json")).unwrap();
        let results: Value = serde_json::from_str(&results).unwrap();
        let shares = results["hosts"]["shares"].as_array().map(Vec::len);
        assert!(shares >= Some(4), "{results:#}");
        let by_dut = |trial: &Value| trial.get("certified").is_some();
        let both = |trial: &&Value| asked(trial).iter().all(|asked| *asked > 0);
        trials
            .iter()
            .filter(|trial| by_dut(trial))
            .find(both)
            .map(drop)
    });
}

/// Queries that each authority received.
fn asked(trial: &Value) -> Vec<u64> {
    let shares = trial["authorities"].as_array().unwrap();
    shares
        .iter()
        .map(|share| number(share, "questions"))
        .collect()
}

/// Asserts that the sum of what the authorities received is the reported total. In a self-test each Measurer sends half
/// of the queries, for the names of its own authority.
fn assert_shares(trial: &Value) {
    let shares = trial["authorities"].as_array().unwrap();
    let hosts: Vec<_> = shares.iter().map(|share| &share["host"]).collect();
    assert_eq!(hosts, ["auth", "auth2"], "{trial:#}");
    let asked = asked(trial);
    let counts = &trial["authority"];
    let sum: u64 = ["aaaa", "a", "other"]
        .map(|of| number(counts, of))
        .iter()
        .sum();
    assert_eq!(asked.iter().sum::<u64>(), sum, "{trial:#}");
    if trial.get("certified").is_none() {
        if trial["outcome"] == "passed" {
            assert!(asked.iter().all(|asked| *asked > 0), "{trial:#}");
        }
        let half = number(trial, "queries_due").div_ceil(2);
        assert!(asked.iter().all(|asked| *asked <= half), "{trial:#}");
    }
}

/// Asserts that the file has each query of the trial once, and that the two hosts sent alternate queries.
fn assert_shared(path: &Path, trial: &Value) {
    let text = fs::read_to_string(path).unwrap();
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("query;"))
        .skip(1);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(';').collect()).collect();
    let names: BTreeSet<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names.len(), rows.len(), "a query is duplicated");
    assert_eq!(
        rows.len() as u64,
        number(trial, "queries_sent"),
        "{trial:#}"
    );
    if trial["queries_due"] == trial["queries_sent"] {
        let on = |shard: &str| rows.iter().filter(|row| row[1] == shard).count();
        assert_eq!(on("0") + on("1"), rows.len());
        assert!(
            on("0").abs_diff(on("1")) <= 1,
            "{} and {}",
            on("0"),
            on("1")
        );
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn programs_can_be_two_authorities_and_be_measured_together() {
    let ground = Ground::up();
    let tester = "authority = \"nsd\"\nnamespace = \"10.0.0.0/16\"";
    let duts = "profile = \"unbound\"\n\n[[dut]]\nauthority = \"nsd\"";
    let directory = ground.campaign("programs", &plan("programs", FIVE, tester, duts));
    assert!(assert_measured_by(&ground, &directory) > 0);
    for trial in trials(&directory) {
        let shares = trial["authorities"].as_array().unwrap();
        let hosts: Vec<_> = shares.iter().map(|share| &share["host"]).collect();
        assert_eq!(hosts, ["auth", "auth2"], "{trial:#}");
        let is_asked = |share: &Value| number(share, "questions") > 0;
        assert!(shares.iter().all(is_asked), "{trial:#}");
    }
    let variants = records(&directory, "variant");
    let authority = &variants[0]["authority"];
    for version in [&authority["version"], &variants[1]["version"]] {
        let version = version.as_str().unwrap_or_default().to_lowercase();
        assert!(version.contains("nsd"), "{variants:#?}");
    }
    let kept = ground.shell("auth", "ls /var/cache/dns64bench");
    assert!(
        !kept.is_empty(),
        "the zone file is kept for the next campaign"
    );
    let files = authority["files_sha256"].as_object().unwrap();
    let names: Vec<_> = files.keys().collect();
    assert_eq!(names, ["nsd.conf on auth", "nsd.conf on auth2"]);
}

/// Like [`assert_measured`], for a campaign with subjects on different hosts; returns the number of trials.
fn assert_measured_by(ground: &Ground, directory: &Path) -> usize {
    let trials = trials(directory);
    trials.iter().for_each(assert_accounted);
    let verified = ground.run(&["verify", directory.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
    ground.assert_nothing_left();
    trials.len()
}
