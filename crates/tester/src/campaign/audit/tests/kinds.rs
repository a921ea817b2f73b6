//! Journals of campaigns of all kinds.

use super::honest::{PLAN, Servers, written};
use super::*;

/// What all small plans begin with.
const SMALL: &str = r#"
trial = { duration = "10s" }
[search]
runs = 2
resolution = "10%"
"#;

/// The rest of these plans, with their names.
const PLANS: [(&str, &str); 9] = [
    (
        "goals",
        r#"
start-rate = "1k"
goals = ["ndr", "loss=2%,exceed=50%,initial=1s,trial=4s,sum=8s"]
[[dut]]
profile = "unbound"
"#,
    ),
    (
        "interval",
        r#"
start-rate = "1k"
goals = ["interval", "ndr"]
[[dut]]
profile = "unbound"
"#,
    ),
    (
        "wide-interval",
        r#"
start-rate = "1k"
goals = "interval,loss=0%,exceed=50%,trial=1s,sum=30s,width=0.01%"
[[dut]]
profile = "unbound"
"#,
    ),
    (
        "load",
        r#"
start-rate = "1k"
[overload]
factors = [0.5, 2]
[soak]
share = "50%"
length = "30s"
[[dut]]
profile = "unbound"
"#,
    ),
    (
        "sweep",
        r#"
start-rate = "1k"
order = "sequential"
[cells]
cached-share = ["0%", "33%"]
[queue-check]
durations = "10s"
timeouts = ["1s", "2s"]
[[dut]]
profile = "unbound"
sweep = { threads = [1, 2] }
"#,
    ),
    (
        "fixed",
        r#"
method = "fixed-range"
max-rate = "9k"
[[dut]]
profile = "unbound"
"#,
    ),
    (
        "server",
        r#"
max-rate = "4k"
[[dut]]
server = "2001:db8::53"
self-test-server = "2001:db8::54"
"#,
    ),
    (
        "authority",
        r#"
[[dut]]
authority = "nsd"
"#,
    ),
    (
        "uncertified",
        r#"
[tester]
uncertified = true
[[dut]]
profile = "unbound"
"#,
    ),
];

/// The plan and the journal of the campaign with this name.
pub(crate) fn of_kind(name: &str) -> (Plan, Vec<Line>) {
    let (_, rest) = PLANS.iter().find(|(known, _)| *known == name).unwrap();
    let plan = format!("{SMALL}{rest}");
    let lines = written(&plan, [Servers::of(&plan)]);
    (Plan::parse("kind.toml", &plan).unwrap(), lines)
}

/// Journals of campaigns of all kinds, with their names.
pub(crate) fn of_all_kinds() -> Vec<(&'static str, Vec<Line>)> {
    let small = PLANS.map(|(name, rest)| (name, format!("{SMALL}{rest}")));
    let on_hosts = ("hosts", hosts::PLAN.to_owned());
    let plans = small.into_iter().chain([on_hosts]);
    let mut all: Vec<_> = plans
        .map(|(name, plan)| (name, written(&plan, [Servers::of(&plan)])))
        .collect();
    // A process that is interrupted, another one after a restart of the machine, and a journal that ends anywhere.
    let first = Servers {
        interrupted_in: Some((Task::Search { point: 1, run: 2 }, 3)),
        ..Servers::new("-d", "aa")
    };
    let second = Servers {
        boot: "c",
        ..Servers::new("-d", "aa")
    };
    let resumed = written(PLAN, [first, second]);
    all.push(("unfinished", resumed[..resumed.len() - 20].to_vec()));
    all.push(("resumed", resumed));
    all
}
