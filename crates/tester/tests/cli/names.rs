//! Names that consecutive processes use on a running server.

use dns64bench::campaign::names::asked_twice;
use dns64bench::load::names::NameRange;
use serde_json::Value;

use super::dut::{Dut, LOCALHOST};
use super::program::{run, server, turn};
use super::script::Conduct;

fn dealt(result: &Value) -> NameRange {
    serde_json::from_value(result["names"].clone()).unwrap()
}

#[test]
fn two_processes_start_at_different_names() {
    let _turn = turn();
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let trial = "-Q 50 -l 100ms -t 100ms --pref64 64:ff9b::/96 --json -";
    let line = format!("trial {} {trial}", server(dut.address));
    let [first, second] = [run(&line), run(&line)].map(|ran| dealt(&ran.json()));
    assert_eq!((first.fresh, second.fresh), (5, 5));
    assert_ne!(first.begin, second.begin);
}

#[test]
fn campaign_uses_no_name_twice_on_a_server_across_rigs() {
    let _turn = turn();
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // Two alternating cells, so that each search has its own rig.
    let plan = format!(
        "[tester]\nuncertified = true\npref64 = \"64:ff9b::/96\"\n[trial]\nduration = \"100ms\"\n\
         timeout = \"200ms\"\n[search]\nruns = 2\nstart-rate = 100\nmax-rate = 200\n\
         resolution = \"20%\"\n[cells]\naaaa-share = [0]\ncached-share = [0, 0.5]\n\
         [[dut]]\nserver = \"{}\"\n",
        dut.address
    );
    std::fs::write(path("plan.toml"), plan).unwrap();
    let (plan, results) = (path("plan.toml"), path("results"));
    let ran = run(&format!(
        "run {} -o {} -q",
        plan.display(),
        results.display()
    ));
    let journal = std::fs::read_to_string(path("results/journal.jsonl")).unwrap();
    let lines = journal
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let trials = lines.map(|line| line["record"]["trial"]["result"].clone());
    let trials: Vec<NameRange> = trials
        .filter(Value::is_object)
        .map(|result| dealt(&result))
        .collect();
    assert!(trials.len() >= 4, "{ran:?} {journal}");
    assert_eq!(asked_twice(trials.iter()), 0, "{trials:?}");
    let one = trials.iter().all(|dealt| dealt.begin == trials[0].begin);
    assert!(one, "{trials:?}");
}
