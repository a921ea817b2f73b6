//! Copies of plans that take seconds instead of days: only parameters that determine the time are reduced.

use std::collections::BTreeSet;

use dns64bench::lab::profile::Profile;
use dns64bench::machine::cpuset::CpuSet;
use dns64bench::quantity::duration;
use toml::{Table, Value};

/// A copy of a plan.
pub(crate) struct Shortened {
    /// TOML.
    pub(crate) text: String,
    /// DUTs of the plan that are omitted, because they have no Debian package and are not installed.
    pub(crate) left_out: Vec<String>,
    /// Number of DUTs in the copy.
    pub(crate) duts: usize,
}

/// Reduces durations, runs, rates, and numbers of cells, names and cores, and omits DUTs that are not available here. The
/// namespace becomes the plan's default for trials of this length. Timeouts stay unchanged: waiting for answers that
/// arrive takes no time, and the delays of authorities must fit.
pub(crate) fn shortened(text: &str) -> Shortened {
    let mut plan: Table = text.parse().unwrap();
    let tester = table(&mut plan, "tester");
    set(tester, "self-tests", 1);
    // On a busy machine each trial waits a second until the kernel releases the queues of the one before.
    set(tester, "backend", "socket");
    tester.remove("namespace");
    for key in ["cpus", "authority-cpus"] {
        fit_cores(tester, key);
    }
    let search = table(&mut plan, "search");
    set(search, "runs", 1);
    set(search, "max-rate", RATE_QPS);
    if search.get("method").and_then(Value::as_str) != Some("fixed-range") {
        set(search, "start-rate", RATE_QPS);
    }
    if search.contains_key("settle") {
        set(search, "settle", REST);
    }
    set(table(&mut plan, "trial"), "duration", TRIAL);
    if let Some(Value::Table(cells)) = plan.get_mut("cells") {
        each(cells, "pattern", fewer_names);
        ends_of_grid(cells);
        cells.iter_mut().for_each(|(_, values)| keep_ends(values));
    }
    if let Some(Value::Table(check)) = plan.get_mut("queue-check") {
        each(check, "durations", shorter_trial);
        check.iter_mut().for_each(|(_, values)| keep_ends(values));
    }
    if let Some(Value::Table(soak)) = plan.get_mut("soak") {
        set(soak, "length", SOAK);
    }
    let (mut left_out, mut duts) = (Vec::new(), 0);
    if let Some(Value::Array(all)) = plan.get_mut("dut") {
        all.retain(|dut| {
            let missing = not_to_be_had(dut.as_table().unwrap());
            let stays = missing.is_none();
            left_out.extend(missing);
            stays
        });
        for dut in all.iter_mut() {
            fit_cores(dut.as_table_mut().unwrap(), "cores");
        }
        duts = all.len();
    }
    Shortened {
        text: plan.to_string(),
        left_out,
        duts,
    }
}

/// Name of a DUT's program, or of its authority's, that is neither installed nor in a package.
fn not_to_be_had(dut: &Table) -> Option<String> {
    let names = ["profile", "authority"].map(|key| dut.get(key).and_then(Value::as_str));
    let mut profiles = names
        .into_iter()
        .flatten()
        .filter(|name| *name != "built-in");
    profiles.find_map(|name| {
        let profile = Profile::load(name).unwrap();
        // dns64d has no package either, but is built with these tests.
        let packaged = profile.package.is_some() || name == "dns64d";
        (!packaged && profile.program(None).is_err()).then(|| name.to_owned())
    })
}

fn table<'a>(plan: &'a mut Table, key: &str) -> &'a mut Table {
    let entry = plan.entry(key).or_insert_with(|| Table::new().into());
    entry.as_table_mut().unwrap()
}

fn set(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

/// Changes one value or each value of a list; of values that become equal the first stays.
fn each(table: &mut Table, key: &str, change: impl Fn(&str) -> String) {
    let change = |value: &Value| match value {
        Value::String(text) => change(text),
        number => change(&number.to_string()),
    };
    match table.get_mut(key) {
        None => {}
        Some(Value::Array(values)) => {
            let mut seen = BTreeSet::new();
            let changed = values.iter().map(change);
            let different = changed.filter(|text| seen.insert(text.clone()));
            *values = different.map(Value::String).collect();
        }
        Some(value) => *value = Value::String(change(value)),
    }
}

/// Keeps the CPUs that a machine with two has as well. If none remains, the choice is the plan's.
fn fit_cores(table: &mut Table, key: &str) {
    each(table, key, |text| {
        let cpus: CpuSet = text.parse().unwrap();
        let here = cpus.cpus().iter().filter(|&&cpu| cpu < CPUS);
        let here: Vec<String> = here.map(ToString::to_string).collect();
        here.join(",")
    });
    let nothing = |value: &Value| match value {
        Value::Array(all) => all.iter().all(|one| one.as_str() == Some("")),
        one => one.as_str() == Some(""),
    };
    if table.get(key).is_some_and(nothing) {
        table.remove(key);
    }
}

/// Replaces a grid by the ends of its shares.
fn ends_of_grid(cells: &mut Table) {
    let shares: &[&str] = match cells.remove("grid").as_ref().and_then(Value::as_str) {
        None => &[],
        Some("aaaa") => &["aaaa-share"],
        Some("cached") => &["cached-share"],
        Some(_) => &["aaaa-share", "cached-share"],
    };
    for share in shares {
        set(cells, share, ["0%", "100%"].map(Value::from).to_vec());
    }
}

/// Keeps the first and the last value of a list: those between them are asked for in the same way.
fn keep_ends(values: &mut Value) {
    if let Value::Array(values) = values
        && values.len() > 2
    {
        values.drain(1..values.len() - 1);
    }
}

/// `stack:262144` becomes `stack:64`.
fn fewer_names(pattern: &str) -> String {
    let Some((kind, of)) = pattern.split_once(':') else {
        return pattern.to_owned();
    };
    let (names, rest) = match of.split_once(',') {
        Some((names, exponent)) => (names, format!(",{exponent}")),
        None => (of, String::new()),
    };
    let names: u64 = names.parse().unwrap();
    format!("{kind}:{}{rest}", (names / NAMES_PART).max(1))
}

fn shorter_trial(length: &str) -> String {
    let part_ms = duration(length).unwrap() / PART / 1_000_000;
    format!("{}ms", part_ms.max(1))
}

/// Divisor of the duration of trials of 60 s.
const PART: u64 = 256;

/// Divisor of numbers of names, which are queried at the rate of the first trial beforehand.
const NAMES_PART: u64 = 4096;

const TRIAL: &str = "100ms";

/// The shortest duration that a plan may have.
const SOAK: &str = "1s";

const REST: &str = "20ms";

/// A rate that every server sustains on a shared machine.
const RATE_QPS: i64 = 1000;

const CPUS: usize = 2;
