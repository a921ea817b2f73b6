mod behaviours;
mod documented;
mod faults;
mod host_faults;
mod hosts;
mod namespaces;
mod pacing;
mod sources;

use expect_test::{Expect, expect};

use dns64_transport::Backend;
use dns64_transport::socket::Segmentation;
use dns64_transport::xdp::program::Mode;
use dns64_wire::pref64::Pref64;

use super::*;
use crate::lab::profile::Family;
use crate::lab::topology::Setup;
use crate::rig::spec::DutChoice;

/// The tables of a plan, by their names in the table of settings; the empty name is that of the plan itself.
#[cfg(test)]
pub(super) const TABLES: [&str; 13] = [
    "",
    "tester",
    "hosts",
    "links",
    "link",
    "trial",
    "search",
    "cells",
    "dut",
    "queue-check",
    "overload",
    "soak",
    "conformance",
];

const MINIMAL: &str = "[[dut]]\nprofile = \"unbound\"\n";

fn plan(text: &str) -> Plan {
    Plan::parse("dir/x.toml", text).unwrap()
}

/// Place and message of each fault of a plan.
fn error(text: &str) -> String {
    places(&Plan::parse("dir/x.toml", text).unwrap_err())
}

fn places(error: &PlanError) -> String {
    let PlanError::Refused { problems } = error else {
        return error.to_string();
    };
    let texts = problems
        .iter()
        .map(|it| format!("{}:{}: {}", it.line, it.column, it.message));
    texts.collect::<Vec<_>>().join("\n")
}

/// Checks the error of a plan with `text` before its DUT.
fn check(text: &str, expected: &Expect) {
    expected.assert_eq(&error(&format!("{text}\n{MINIMAL}")));
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.variants.iter().map(|v| v.name.as_str()).collect()
}

fn cells(plan: &Plan) -> Vec<String> {
    plan.cells.iter().map(Cell::to_string).collect()
}

#[test]
fn line_ends_of_windows_change_nothing() {
    let text =
        "[cells]\naaaa-share = [\n  0.25, # a quarter\n  0.5,\n]\n[[dut]]\nprofile = \"unbound\"\n";
    let windows = plan(&text.replace('\n', "\r\n"));
    assert_eq!(cells(&windows), cells(&plan(text)));
    assert_eq!(names(&windows), ["unbound"]);
}

#[test]
fn plan_of_one_dut_meets_rfc_8219() {
    let plan = plan(MINIMAL);
    assert_eq!(plan.name, "x");
    assert_eq!(plan.load.duration_ns, 60_000_000_000);
    assert_eq!(plan.load.timeout_ns, 1_000_000_000);
    assert_eq!(
        plan.search,
        SearchPlan {
            runs: 20,
            resolution: Resolution::Relative { millionths: 1000 },
            method: Method::Galloping {
                start_qps: 10_000,
                max_qps: None,
                reuse: true
            },
            stop_early: true,
            restart: Restart::Never,
            order: Order::Interleaved,
            ..SearchPlan::default()
        }
    );
    assert_eq!(names(&plan), ["unbound"]);
    assert_eq!(cells(&plan), ["AAAA 0%, cached 0%"]);
    assert_eq!(plan.load.cidr.to_string(), "10.0.0.0/8");
    assert_eq!(plan.load.zone.suffix.to_string(), "dns64perf.test.");
    assert_eq!(plan.hosts.authority, AuthorityChoice::BuiltIn);
    assert!(plan.queue_check.is_none() && plan.overload_milli.is_empty() && plan.soak.is_none());
    assert_eq!(plan.remarks(), []);
}

/// Every key, with a value that is not its default.
const EVERY_KEY: &str = r#"
name = "all of it"
description = "every key"
[tester]
lab = "userns"
setup = "two-device"
upstream-family = "ipv6"
authority = "nsd"
threads = 2
sockets = 16
cpus = "0"
authority-cpus = "1"
namespace = "10.0.0.0/7"
suffix = "example.org"
pref64 = "64:ff9b::/96"
segmentation = "off"
backend = "xdp"
burst = 1
self-tests = 5
uncertified = true
raw = "csv"
[trial]
duration = "30s"
timeout = 0.5
[search]
runs = 5
resolution = "1%"
method = "galloping"
start-rate = "20k"
max-rate = 100000
reuse = false
stop-early = false
restart = "search"
settle = "10s"
order = "sequential"
[cells]
aaaa-share = ["0%", 0.5, 1]
cached-share = "80%"
pattern = "stack:100"
[[dut]]
name = "mine"
profile = "my/own.toml"
binary = "bin/own"
cores = ["1", "1-2"]
set = { cache = 10, mode = "fast" }
sweep = { threads = [1, "2"] }
[[dut]]
server = "2001:db8::53"
self-test-server = "[::1]:5300"
[queue-check]
durations = ["5s", "10s"]
timeouts = [0.5, 5]
[overload]
factors = [0.5, 2]
[soak]
share = "50%"
length = "2h"
"#;

#[test]
fn every_key_is_read() {
    let plan = plan(EVERY_KEY);
    assert_eq!(plan.name, "all of it");
    assert_eq!(plan.lab, LabKind::Userns);
    assert_eq!(plan.hosts.setup, Setup::TwoDevice);
    assert_eq!(plan.hosts.upstream, Some(Family::Ipv6));
    assert_eq!((plan.load.threads, plan.load.ports), (2, Some(16)));
    assert_eq!(
        (plan.load.segmentation, plan.self_tests),
        (Segmentation::Off, 5)
    );
    assert_eq!(plan.load.backend, Some(Backend::Xdp { force: false }));
    assert_eq!(plan.load.schedule(1_000_000).burst(), 1);
    assert_eq!(plan.hosts.authority_cpus.to_string(), "1");
    assert_eq!(plan.load.pref64, Some(Pref64::WELL_KNOWN.into()));
    assert!(plan.raw);
    assert_eq!(plan.load.timeout_ns, 500_000_000);
    assert_eq!(
        plan.search.method,
        Method::Galloping {
            start_qps: 20_000,
            max_qps: Some(100_000),
            reuse: false
        }
    );
    assert_eq!(plan.search.settle_ns, 10_000_000_000);
}

#[test]
fn every_key_of_cells_and_duts_is_read() {
    let plan = plan(EVERY_KEY);
    assert_eq!(
        cells(&plan),
        [
            "AAAA 0%, cached 80% (stack distance 100)",
            "AAAA 50%, cached 80% (stack distance 100)",
            "AAAA 100%, cached 80% (stack distance 100)",
        ]
    );
    assert_eq!(
        names(&plan),
        [
            "mine cores=1 threads=1",
            "mine cores=1-2 threads=1",
            "mine cores=1 threads=2",
            "mine cores=1-2 threads=2",
            "[2001:db8::53]:53",
        ]
    );
    let settings = [("cache", "10"), ("mode", "fast"), ("threads", "2")];
    assert_eq!(
        plan.variants[3].subject,
        Subject::Lab(Box::new(LabSpec {
            dut: Some(DutChoice {
                profile: "dir/my/own.toml".into(),
                program: Some("dir/bin/own".into()),
                settings: settings.map(|(k, v)| (k.into(), v.into())).into(),
                host: None,
                restart: false,
                cpus: "1-2".parse().unwrap(),
            }),
            ..plan.hosts
        }))
    );
    let check = plan.queue_check.unwrap();
    assert_eq!(check.timeouts_ns, [500_000_000, 5_000_000_000]);
    assert_eq!(plan.overload_milli, [500, 2000]);
    assert_eq!(plan.soak.unwrap().length_ns, 7_200_000_000_000);
}

#[test]
fn the_grids_are_those_of_rfc_8219() {
    let of = |grid| cells(&plan(&format!("[cells]\ngrid = \"{grid}\"\n{MINIMAL}")));
    assert_eq!(of("worst-case"), ["AAAA 0%, cached 0%"]);
    assert_eq!(of("aaaa").len(), 6);
    assert_eq!(of("aaaa")[5], "AAAA 100%, cached 0%");
    assert_eq!(of("cached").len(), 6);
    assert_eq!(of("cached")[5], "AAAA 0%, cached 100%");
    let all = of("rfc8219");
    assert_eq!(all.len(), 31);
    assert_eq!(all[0], "AAAA 0%, cached 0%");
    assert_eq!(all[30], "AAAA 0%, cached 100%");
}

#[test]
fn pattern_applies_only_to_cells_with_repeated_names() {
    let plan = plan(&format!(
        "[cells]\ncached-share = [\"0%\", \"50%\"]\npattern = [\"one-name\", \"window:9\"]\n{MINIMAL}"
    ));
    assert_eq!(
        cells(&plan),
        [
            "AAAA 0%, cached 0%",
            "AAAA 0%, cached 50%",
            "AAAA 0%, cached 50% (the last 9 names)",
        ]
    );
}

#[test]
fn unknown_keys_and_values_are_refused_with_place() {
    check(
        "[trial]\nlength = \"60s\"",
        &expect![
            "2:1: `length` is not a key of [trial]; there are duration, timeout, types, edns, max-stall, max-burst, max-rate-error, max-stolen"
        ],
    );
    check(
        "[search]\norder = \"random\"",
        &expect![[r#"2:9: `order` is "random": must be interleaved or sequential"#]],
    );
    check(
        "[trial]\ntimeout = [1]",
        &expect![[
            r#"2:11: `timeout` is [1]: it must be a text or a number; write timeout = "1s""#
        ]],
    );
}

#[test]
fn invalid_values_are_refused_with_place() {
    for (text, expected) in [
        (
            "[trial]\ntimeout = \"61s\"",
            expect![[r#"2:11: `timeout` is "61s": a timeout must be at most 60s"#]],
        ),
        (
            "[trial]\nduration = \"100us\"",
            expect![[r#"2:12: `duration` is "100us": a duration must be at least 1ms"#]],
        ),
        (
            "[search]\nruns = 0",
            expect!["2:8: `runs` is 0: must be a whole number from 1 to 1000"],
        ),
        (
            "[search]\nruns = 1001",
            expect!["2:8: `runs` is 1001: must be a whole number from 1 to 1000"],
        ),
        (
            "[tester]\nthreads = 4\nsockets = 2",
            expect![
                "3:11: sockets = 2 is fewer than threads = 4; each thread needs one, so use sockets = 4 or more"
            ],
        ),
        (
            "[tester]\ncpus = \"a\"",
            expect![[r#"2:8: `cpus`: "a" is not a set of CPUs; write "0" or "0,2-3""#]],
        ),
    ] {
        check(text, &expected);
    }
}

#[test]
fn invalid_shares_and_names_are_refused_with_place() {
    for (text, expected) in [
        (
            "[cells]\naaaa-share = [\"0%\", \"101%\"]",
            expect![
                "2:21: `aaaa-share`: '101%' is not a share; write a number from 0 to 1 or a percentage, as in 0.2 or 20%"
            ],
        ),
        (
            "[cells]\naaaa-share = []",
            expect!["2:14: `aaaa-share` is []: give at least one value, or omit the key"],
        ),
        (
            "[cells]\naaaa-share = [0.5, \"50%\"]",
            expect![[r#"2:20: `aaaa-share` is "50%": the list has it twice; omit one of them"#]],
        ),
        (
            "[cells]\ngrid = \"aaaa\"\ncached-share = 0.5",
            expect!["3:16: grid already sets the shares; omit it, or aaaa-share and cached-share"],
        ),
        (
            "[overload]\nfactors = [1, 101]",
            expect!["2:15: `factors` is 101: a factor must be at most 100"],
        ),
        (
            "[soak]\nshare = 0",
            expect!["2:9: `share` is 0: a soak without load shows nothing; give a share above 0"],
        ),
        (
            "name = \"a/b\"",
            expect![[
                r#"1:8: `name` is "a/b": a name has at least one character, none of them / or a control character, and begins with no dot"#
            ]],
        ),
    ] {
        check(text, &expected);
    }
}

#[test]
fn invalid_combinations_are_refused_with_place() {
    for (text, expected) in [
        (
            "[search]\nmethod = \"fixed-range\"",
            expect![[
                r#"2:10: `method` is "fixed-range", which bisects from 0 to max-rate: it must be given; write max-rate = 16384"#
            ]],
        ),
        (
            "[search]\nmethod = \"fixed-range\"\nmax-rate = 9\nreuse = true",
            expect!["4:9: `reuse` is for the galloping method; omit it"],
        ),
        (
            "[search]\nstart-rate = \"10k\"\nmax-rate = \"5k\"",
            expect![
                "2:14: start-rate = 10000 is beyond max-rate = 5000; lower the one or raise the other"
            ],
        ),
        (
            "[trial]\nduration = \"1ms\"\n[search]\nstart-rate = 10",
            expect![
                "2:12: a trial of 1 ms at the first rate, 10 queries per second, has no query; give a longer duration or a rate of at least 1000"
            ],
        ),
        (
            "[tester]\nnamespace = \"10.0.0.0/16\"",
            expect![[
                r#"2:13: the namespace 10.0.0.0/16 has 65536 names, and a trial of 60 s at the first rate, 10000 queries per second, needs 600064; give namespace = "10.0.0.0/12""#
            ]],
        ),
        (
            "[cells]\ncached-share = 0.5\npattern = \"window:5000000\"",
            expect![[
                r#"3:11: a pattern over 5000000 names takes more than a quarter of 10.0.0.0/8, which is 4194304; use namespace = "10.0.0.0/7", or fewer names"#
            ]],
        ),
        (
            "[soak]\nlength = \"30s\"",
            expect![
                "2:10: a soak of 30 s is shorter than one trial of 60 s, which is its segment; lengthen it"
            ],
        ),
    ] {
        check(text, &expected);
    }
}

#[test]
fn invalid_duts_are_refused_with_place() {
    for (text, expected) in [
        (
            "",
            expect![[
                r#"1:1: no [[dut]]: a plan measures at least one; add [[dut]] with profile = "unbound""#
            ]],
        ),
        (
            "[[dut]]\nname = \"x\"",
            expect![[
                r#"1:1: a [[dut]] is one of three: profile = "unbound" for a DNS64 server to be started, server = "2001:db8::53" for one that runs, authority = "nsd" for an authoritative server by itself"#
            ]],
        ),
        (
            "[[dut]]\nprofile = \"bind\"\n\n[[dut]]\nprofile = \"bind\"",
            expect![[r#"4:1: two variants have the name "bind"; give one [[dut]] another name"#]],
        ),
        (
            "[[dut]]\nserver = \"ns.example\"",
            expect![[
                r#"2:10: `server`: "ns.example" is not an address; write it like "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353""#
            ]],
        ),
        (
            "[[dut]]\nserver = \"::1\"\ncores = \"1\"",
            expect!["3:9: cores does not apply to a server that runs; omit it"],
        ),
        (
            "[[dut]]\nprofile = \"bind\"\nset = { a = 1 }\nsweep = { a = [1] }",
            expect!["4:15: a is both in set and in sweep; omit it in one"],
        ),
        (
            "[[dut]]\nprofile = \"bind\"\nsweep = { a = [] }",
            expect!["3:15: `a` is []: give at least one value, or omit the key"],
        ),
        (
            "[[dut]]\nauthority = \"nsd\"\n[cells]\ngrid = \"aaaa\"",
            expect![[
                r#"2:13: the authority "nsd" is measured by the self-test, in which every name has an AAAA: omit aaaa-share, or put the DUTs into another plan"#
            ]],
        ),
    ] {
        expected.assert_eq(&error(text));
    }
}

#[test]
fn plan_too_large_for_a_report_is_refused() {
    let values: Vec<String> = (1..=500).map(|n| n.to_string()).collect();
    let text = format!(
        "[cells]\ngrid = \"rfc8219\"\n[[dut]]\nprofile = \"bind\"\nsweep = {{ a = [{}] }}",
        values.join(",")
    );
    expect!["3:1: 500 variants with 31 cells each, and 0 of the queue check, are more than 10000 points; split it into several plans"].assert_eq(&error(&text));
    let twice = text.replace(
        "sweep = {",
        &format!("sweep = {{ b = [{}],", values.join(",")),
    );
    expect!["5:15: sweeps make more than 1000 variants of one DUT; omit some values"]
        .assert_eq(&error(&twice));
}

#[test]
fn deviations_from_the_recommendations_are_remarked() {
    let plan = plan(
        "[trial]\nduration = \"5s\"\ntimeout = \"2s\"\n[search]\nruns = 3\n[cells]\naaaa-share = 1\n\
         [[dut]]\nserver = \"192.0.2.1\"\nname = \"old\"\n[tester]\nlab = \"loopback\"",
    );
    let expected = expect![[r#"
        other than RFC 8219 section 9.2 asks: trials of 5 s instead of 60 s, a timeout of 2 s instead of 1 s, 3 searches instead of 20
        old is queried over IPv4; RFC 8219 section 9.1 requires IPv6 between client and DNS64 server
        no cell without AAAA records and cached names, which RFC 8219 section 9.2 requires
        the Tester is not certified for old; name an authority with self-test-server"#]];
    let remarks: Vec<_> = plan.remarks().iter().map(ToString::to_string).collect();
    expected.assert_eq(&remarks.join("\n"));
}

fn load_error(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    std::fs::write(&path, text).unwrap();
    let error = places(&Plan::load(&path).unwrap_err());
    error.replace(&directory.path().display().to_string(), "DIR")
}

#[test]
fn profiles_are_looked_up_when_a_plan_is_loaded() {
    for (text, expected) in [
        (
            "[[dut]]\nprofile = \"unbund\"",
            expect![[
                r#"2:11: no profile "unbund" (did you mean "unbound"?); built-in profiles are dns64d, bind, unbound, pdns-recursor, knot-resolver, coredns, mtd64-ng, totd, nsd, bind-authority, knot, knot-xdp, pdns-authoritative, yadifa, fakedns, or give the path of a .toml file"#
            ]],
        ),
        (
            "[[dut]]\nprofile = \"./my.toml\"",
            expect![[
                r#"2:11: cannot read profile "DIR/./my.toml": No such file or directory (os error 2)"#
            ]],
        ),
        (
            "[[dut]]\nprofile = \"nsd\"",
            expect![[
                r#"2:11: "nsd" is an authoritative server; measure it by itself with authority = "nsd" in place of profile"#
            ]],
        ),
        (
            "[tester]\nauthority = \"bind\"\n[[dut]]\nprofile = \"unbound\"",
            expect![[
                r#"2:13: "bind" is a DNS64 server, not an authority; write "built-in" or "nsd""#
            ]],
        ),
        (
            "[[dut]]\nprofile = \"mtd64-ng\"\nsweep = { thread = [1, 2] }",
            expect![[r#"
                3:21: profile mtd64-ng has no setting "thread"; it has threads
                3:24: profile mtd64-ng has no setting "thread"; it has threads"#]],
        ),
        (
            "[tester]\nupstream-family = \"ipv6\"\n[[dut]]\nprofile = \"mtd64-ng\"",
            expect![
                "4:11: mtd64-ng cannot ask the authority over the upstream-family of the plan; omit upstream-family or measure it in a plan of its own"
            ],
        ),
    ] {
        expected.assert_eq(&load_error(text));
    }
    let missing = Plan::load(Path::new("/no/such/plan.toml")).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "cannot read plan \"/no/such/plan.toml\": No such file or directory (os error 2); give \
         the path of a TOML file"
    );
}

#[test]
fn an_authority_in_the_driver_needs_three_devices_and_has_no_faults() {
    for (name, mode) in [
        ("in-driver", Mode::Native),
        ("in-driver:generic", Mode::Generic),
    ] {
        let dut = plan(&format!(
            "[tester]\nauthority = \"{name}\"\n[[dut]]\nprofile = \"unbound\"\n"
        ));
        let alone = plan(&format!("[[dut]]\nauthority = \"{name}\"\n"));
        for subject in [&dut.variants[0].subject, &alone.variants[0].subject] {
            let authority = &subject.lab().unwrap().authority;
            assert_eq!(authority.driver_mode(), Some(mode));
            assert_eq!(authority.to_string(), name);
        }
    }
    let text = "[tester]\nsetup = \"two-device\"\nauthority = \"in-driver\"\n[[dut]]\nprofile = \"unbound\"\n";
    let refused = error(text);
    assert!(refused.contains("3:13: "), "{refused}");
    assert!(refused.contains("needs a three-device lab"), "{refused}");
    let refused = error(
        "[tester]\nauthority = \"in-driver\"\n[[dut]]\nprofile = \"unbound\"\nauthority-behaviour = \"loss=1%\"\n",
    );
    assert!(
        refused.contains("authority-behaviour does not apply"),
        "{refused}"
    );
}

#[test]
fn an_authority_by_itself_gets_its_own_cores_and_settings() {
    let plan = plan(
        "[tester]\nauthority-cpus = \"0\"\n[[dut]]\nauthority = \"nsd\"\ncores = \"1\"\n\
         set = { threads = 2 }\n",
    );
    let variant = &plan.variants[0];
    assert!(variant.subject.is_authority());
    assert_eq!(variant.cpus().to_string(), "1");
    assert_eq!(variant.settings()["threads"], "2");
}
