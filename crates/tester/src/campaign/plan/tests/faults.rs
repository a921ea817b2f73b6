//! Plans with several faults, and their complete messages.

use expect_test::expect;

use super::*;

/// The complete error of a plan.
fn full(text: &str) -> String {
    Plan::parse("dir/x.toml", text).unwrap_err().to_string()
}

/// Faults of every kind.
const FAULTY: &str = r#"
nmae = "slip"
[tester]
threads = 300
cpus = "3-1"
lab = "cloud"
burst = 2.5
uncertified = "yes"
[trial]
duration = [60]
timeout = "61s"
[search]
runs = -1
resolution = 2.5
start-rate = "10k"
max-rate = "5k"
[cells]
aaaa-share = ["0%", "101%", 0.5, "50%"]
cached-share = {}
[[dut]]
profile = 7
[[dut]]
server = "ns.example"
cores = "1"
[[dut]]
profile = "bind"
set = { threads = [1] }
sweep = { threads = 2 }
[soak]
share = 0
"#;

#[test]
fn faults_of_every_kind_are_reported_together() {
    expect![[r#"
        17 faults in the plan
        dir/x.toml:2:1: `nmae` is not a key of a plan; write `name`
        2 | nmae = "slip"
          | ^^^^
        dir/x.toml:4:11: `threads` is 300: must be a whole number from 1 to 256
        4 | threads = 300
          |           ^^^
        dir/x.toml:5:8: `cpus`: "3-1" is not a set of CPUs; write "0" or "0,2-3"
        5 | cpus = "3-1"
          |        ^^^^^
        dir/x.toml:6:7: `lab` is "cloud": must be auto, netns, userns or loopback
        6 | lab = "cloud"
          |       ^^^^^^^
        dir/x.toml:7:9: `burst` is 2.5: must be a whole number from 1 to 64
        7 | burst = 2.5
          |         ^^^
        dir/x.toml:8:15: `uncertified` is "yes": must be true or false
        8 | uncertified = "yes"
          |               ^^^^^
        dir/x.toml:10:12: `duration` is [60]: it must be a text or a number; write duration = "60s"
        10 | duration = [60]
           |            ^^^^
        dir/x.toml:11:11: `timeout` is "61s": a timeout must be at most 60s
        11 | timeout = "61s"
           |           ^^^^^
        dir/x.toml:13:8: `runs` is -1: must be a whole number from 1 to 1000
        13 | runs = -1
           |        ^^
        dir/x.toml:14:14: `resolution` is 2.5: a rate must be a whole number of queries per second
        14 | resolution = 2.5
           |              ^^^
        dir/x.toml:15:14: start-rate = 10000 is beyond max-rate = 5000; lower the one or raise the other
        15 | start-rate = "10k"
           |              ^^^^^
        dir/x.toml:18:21: `aaaa-share`: '101%' is not a share; write a number from 0 to 1 or a percentage, as in 0.2 or 20%
        18 | aaaa-share = ["0%", "101%", 0.5, "50%"]
           |                     ^^^^^^
        dir/x.toml:18:34: `aaaa-share` is "50%": the list has it twice; omit one of them
        18 | aaaa-share = ["0%", "101%", 0.5, "50%"]
           |                                  ^^^^^
        dir/x.toml:19:16: `cached-share` is {}: it must be a text, a number, or a list of them; write cached-share = 0
        19 | cached-share = {}
           |                ^^
        dir/x.toml:23:10: `server`: "ns.example" is not an address; write it like "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353"
        23 | server = "ns.example"
           |          ^^^^^^^^^^^^
        dir/x.toml:27:19: `threads` is [1]: it must be a text or a number; write threads = 1
        27 | set = { threads = [1] }
           |                   ^^^
        dir/x.toml:30:9: `share` is 0: a soak without load shows nothing; give a share above 0
        30 | share = 0
           |         ^"#]].assert_eq(&full(FAULTY));
}

#[test]
fn checks_that_need_valid_values_wait_for_them() {
    // The default duration would make the soak too short, and the default rate needs more names than there are.
    let text = "[trial]\nduration = \"1w\"\n[search]\nruns = 0\n[tester]\nnamespace = \"10.0.0.0/24\"\n[soak]\n\
                length = \"10s\"\n[[dut]]\nprofile = \"bind\"\n";
    expect![[r#"
        2:12: `duration` is "1w": a time is expected, such as 250ms, 5s or 1m; a bare number is in seconds
        4:8: `runs` is 0: must be a whole number from 1 to 1000"#]].assert_eq(&error(text));
}

#[test]
fn toml_errors_are_reported_with_every_place() {
    expect![[r#"
        3 faults in the plan
        dir/x.toml:1:8: not valid TOML: string values must be quoted, expected literal string; put texts into quotes, and close each quote and bracket
        1 | name = plan
          |        ^^^^
        dir/x.toml:2:7: not valid TOML: unclosed table, expected `]`; put texts into quotes, and close each quote and bracket
        2 | [trial
          |       ^
        dir/x.toml:6:1: not valid TOML: duplicate key; omit one of them
        6 | name = "b"
          | ^^^^"#]].assert_eq(&full(
        "name = plan\n[trial\nduration = \"60s\n[[dut]]\nname = \"a\"\nname = \"b\"\n",
    ));
    expect!["3:1: not valid TOML: duplicate key; omit one of them"]
        .assert_eq(&error("[[dut]]\nname = \"a\"\nname = \"b\"\n"));
}

#[test]
fn mark_is_below_its_place_after_tabs_and_wide_characters() {
    expect![[r#"
        1 fault in the plan
        dir/x.toml:1:13: not valid TOML: invalid basic string, expected non-double-quote visible characters, `\`; put texts into quotes, and close each quote and bracket
        1 | name = "été/�"
          |             ^"#]].assert_eq(&full(
        "name = \"\u{e9}t\u{e9}/\u{1}\"\n[[dut]]\n\tprofile = true # \u{e9}\n",
    ));
}

#[test]
fn profile_setting_and_pattern_faults_are_reported_with_the_others() {
    let text = "[trial]\ntimeout = \"1h\"\n[cells]\npattern = \"stack:1000\"\n[[dut]]\nprofile = \"unbund\"\n[[dut]]\n\
                profile = \"unbound\"\nset = { threads = 0, thread = 1 }\n";
    expect![[r#"
        2:11: `timeout` is "1h": a timeout must be at most 60s
        4:11: pattern has no effect because cached-share is 0; omit it, or add for example cached-share = "80%"
        6:11: no profile "unbund" (did you mean "unbound"?); built-in profiles are dns64d, bind, unbound, pdns-recursor, knot-resolver, coredns, mtd64-ng, totd, nsd, bind-authority, knot, knot-xdp, pdns-authoritative, yadifa, fakedns, or give the path of a .toml file
        9:19: setting threads of profile unbound is "0": it must be a whole number from 1 to 1024; write such as threads=1
        9:31: profile unbound has no setting "thread"; it has msg_cache_size, rrset_cache_size, threads"#]].assert_eq(&load_error(text));
}

#[test]
fn plan_in_a_journal_may_have_a_pattern_without_effect() {
    let text = format!("[cells]\npattern = \"stack:1000\"\n{MINIMAL}");
    assert_eq!(cells(&plan(&text)), ["AAAA 0%, cached 0%"]);
    assert!(load_error(&text).contains("pattern has no effect"));
}
