//! Plans with hosts, and inventories.

use expect_test::{Expect, expect};

use super::*;
use crate::campaign::plan::inventory::as_toml;
use crate::lab::hosts::Reach;
use crate::machine::Role;

const HOSTS: &str = r#"
[hosts.gen1]
ssh = "root@gen1"
sudo = true
roles = ["measurer"]
cpus = "2-5"
threads = 4
[hosts.gen1.links]
client = { interface = "ens1", addresses = ["2001:2:0:1::1/64"] }
[hosts.a-dut]
netns = "the-dut"
roles = ["dut"]
[hosts.a-dut.links]
client = [
  { interface = "client1", addresses = ["2001:2:0:1::2/64"] },
  { interface = "client2", addresses = ["2001:2:0:11::2/64"] },
]
upstream = { interface = "up", addresses = ["2001:2:0:2::1/64", "198.18.0.1/24"] }
[hosts.gen2]
local = true
roles = ["measurer", "authority"]
authority-cpus = "6"
links.client = { interface = "ens1", addresses = ["2001:2:0:11::1/64"] }
links.upstream = { interface = "ens2", addresses = ["2001:2:0:2::2/64", "198.18.0.2/24"] }
"#;

fn with_hosts(more: &str) -> String {
    format!("{more}{HOSTS}{MINIMAL}")
}

#[test]
fn hosts_are_read_in_the_order_of_the_plan() {
    let plan = plan(&with_hosts(""));
    let hosts = plan.hosts.at.as_ref().unwrap();
    let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["gen1", "a-dut", "gen2"]);
    let gen1 = hosts.by_name("gen1").unwrap();
    assert_eq!(gen1.reach, Reach::Ssh("root@gen1".into()));
    assert_eq!((gen1.sudo, gen1.threads), (true, 4));
    assert_eq!(gen1.cpus.to_string(), "2-5");
    assert_eq!(gen1.roles, [Role::Measurer]);
    let dut = hosts.by_name("a-dut").unwrap();
    assert_eq!(dut.reach, Reach::Netns("the-dut".into()));
    let gen2 = hosts.by_name("gen2").unwrap();
    assert_eq!(gen2.reach, Reach::Local);
    let subject = &plan.variants[0].subject;
    assert_eq!(subject.dut().unwrap().host.as_deref(), Some("a-dut"));
    assert_eq!(subject.lab().unwrap().at.as_ref(), Some(hosts));
    assert_eq!(plan.remarks(), []);
}

#[test]
fn a_plan_without_hosts_has_a_lab_on_this_machine() {
    let plan = plan(MINIMAL);
    assert_eq!(plan.hosts.at, None);
    assert_eq!(plan.variants[0].subject.dut().unwrap().host, None);
}

fn refused(text: &str, expected: &Expect) {
    expected.assert_eq(&error(text));
}

#[test]
fn keys_that_contradict_hosts_are_refused_with_place() {
    for (key, expected) in [
        (
            "lab = \"netns\"",
            expect!["2:7: `lab` contradicts the hosts of the plan: the roles run on them; omit it"],
        ),
        (
            "setup = \"two-device\"",
            expect![
                "2:9: `setup` contradicts the hosts of the plan: it follows from their roles; omit it"
            ],
        ),
        (
            "threads = 2",
            expect![
                "2:11: `threads` contradicts the hosts of the plan: each host has its own; omit it"
            ],
        ),
        (
            "cpus = \"1\"",
            expect![
                "2:8: `cpus` contradicts the hosts of the plan: each host has its own; omit it"
            ],
        ),
        (
            "authority-cpus = \"1\"",
            expect![
                "2:18: `authority-cpus` contradicts the hosts of the plan: each host has its own; omit it"
            ],
        ),
    ] {
        refused(&with_hosts(&format!("[tester]\n{key}\n")), &expected);
    }
    refused(
        &format!("{HOSTS}[[dut]]\nserver = \"2001:db8::53\"\n"),
        &expect![
            "26:10: a server that runs already is measured from this machine; put it into a plan without hosts"
        ],
    );
    refused(
        &with_hosts("inventory = \"hosts.yml\"\n"),
        &expect![
            "1:13: an inventory is read when a plan is run: give the path of this plan to `dns64bench run`, or write its hosts as [hosts.NAME]"
        ],
    );
    refused(
        &format!("inventory = \"hosts.yml\"\n{MINIMAL}"),
        &expect![
            "1:13: an inventory is read when a plan is run: give the path of this plan to `dns64bench run`, or write its hosts as [hosts.NAME]"
        ],
    );
    refused(
        &format!("{MINIMAL}host = \"x\"\n"),
        &expect!["3:8: `host` is for a plan with [hosts.NAME] or an inventory; omit it"],
    );
}

/// Checks the error of a plan in whose hosts `from` is replaced by `to`.
fn spoilt(from: &str, to: &str, expected: &Expect) {
    assert!(HOSTS.contains(from), "{from}");
    refused(&with_hosts("").replace(from, to), expected);
}

#[test]
fn invalid_hosts_are_refused_with_place() {
    spoilt(
        "ssh = \"root@gen1\"",
        "local = false",
        &expect![[
            r#"2:1: host gen1: nothing says how it is reached; give one of ssh = "root@gen1", netns = "gen1" and local = true"#
        ]],
    );
    spoilt(
        "sudo = true",
        "netns = \"x\"",
        &expect![[
            r#"2:1: host gen1: more than one thing says how it is reached; give one of ssh = "root@gen1", netns = "gen1" and local = true"#
        ]],
    );
    spoilt(
        "sudo = true",
        "port = 22",
        &expect![
            "4:1: `port` is not a key of [hosts.NAME]; there are ssh, netns, local, sudo, roles, cpus, authority-cpus, threads, links"
        ],
    );
    spoilt(
        "[\"measurer\"]",
        "[\"tester\"]",
        &expect![[r#"5:10: `roles` is "tester": must be measurer, dut or authority"#]],
    );
    spoilt(
        "\"2-5\"",
        "\"5-2\"",
        &expect![[r#"6:8: `cpus`: "5-2" is not a set of CPUs; write "0" or "0,2-3""#]],
    );
    spoilt(
        "threads = 4",
        "threads = 1000",
        &expect!["7:11: `threads` is 1000: must be a whole number from 1 to 256"],
    );
    spoilt(
        "roles = [\"dut\"]",
        "roles = []",
        &expect![["12:9: `roles` is []: give at least one of measurer, dut or authority"]],
    );
}

#[test]
fn invalid_links_are_refused_with_place() {
    spoilt(
        "2001:2:0:1::1/64",
        "2001:2:0:1::1",
        &expect![[
            r#"9:45: `addresses`: "2001:2:0:1::1" is not an address with the length of its prefix, such as "2001:2:0:1::1/64" or "198.18.0.1/24""#
        ]],
    );
    spoilt(
        "2001:2:0:11::1/64",
        "2001:2:0:12::1/64",
        &expect![
            "23:16: host gen2: link client does not connect it to host a-dut: no two IPv6 addresses in one prefix; correct the addresses of one"
        ],
    );
    spoilt(
        "{ interface = \"ens1\", addresses = [\"2001:2:0:1::1/64\"] }",
        "\"ens1\"",
        &expect![[
            r#"9:10: `client` is "ens1": it must be a table; write [hosts.NAME.links.client] with its keys below"#
        ]],
    );
    spoilt(
        "client = { interface",
        "server = { interface",
        &expect![[r#"
            9:1: `server` is not a key of [hosts.NAME.links]; there are client, upstream, self-test
            23:7: `server` is not a key of [hosts.NAME.links]; there are client, upstream, self-test"#]],
    );
    spoilt(
        "interface = \"client2\"",
        "dev = \"client2\"",
        &expect![
            "16:5: `dev` is not a key of [hosts.NAME.links.client]; there are interface, addresses"
        ],
    );
}

/// A second authority behind another interface of the DUT's host.
fn two_authorities() -> String {
    let up = "198.18.0.1/24\"] }";
    let second = "[hosts.auth2]\nssh = \"auth2\"\nroles = [\"authority\"]\nlinks.upstream = { interface = \"up\", \
                  addresses = [\"2001:2:0:12::2/64\", \"198.18.1.2/24\"] }\n";
    let both = ", { interface = \"up2\", addresses = [\"2001:2:0:12::1/64\", \"198.18.1.1/24\"] }]";
    let text = with_hosts(second).replace(
        "upstream = { interface = \"up\", addresses = [\"2001:2:0:2::1",
        "upstream = [{ interface = \"up\", addresses = [\"2001:2:0:2::1",
    );
    text.replacen(up, &format!("{up}{both}"), 1)
}

#[test]
fn a_plan_can_have_several_authorities() {
    let plan = plan(&two_authorities());
    let subject = &plan.variants[0].subject;
    let site = subject.site(None).unwrap();
    let hosts: Vec<_> = site.authorities.iter().map(|it| it.host.as_str()).collect();
    assert_eq!(hosts, ["auth2", "gen2"], "in the order of the plan");
    assert_eq!(site.dut.unwrap().upstreams.len(), 2);
}

#[test]
fn self_test_without_one_of_the_authorities_is_refused() {
    let measurer = "roles = [\"measurer\"]\ncpus = \"2-5\"\nthreads = 4";
    let fewer = two_authorities().replace(measurer, "roles = [\"authority\"]").replace(
        "client = { interface = \"ens1\", addresses = [\"2001:2:0:1::1/64\"] }",
        "upstream = { interface = \"ens1\", addresses = [\"2001:2:0:22::2/64\", \"198.18.2.2/24\"] }",
    );
    let fewer = fewer.replace(
        ", { interface = \"up2\"",
        ", { interface = \"up3\", addresses = [\"2001:2:0:22::1/64\", \"198.18.2.1/24\"] }, { interface = \"up2\"",
    );
    let refusal = error(&fewer);
    for word in [
        "self-tests cannot cover 3 authorities (",
        "with 1 Measurer (gen2)",
        "uncertified = true",
    ] {
        assert!(refusal.contains(word), "{refusal}");
    }
    let uncertified = format!("[tester]\nuncertified = true\n{fewer}");
    assert_eq!(
        plan(&uncertified)
            .hosts
            .at
            .as_ref()
            .unwrap()
            .authorities()
            .len(),
        3
    );
    let measured = format!("{uncertified}[[dut]]\nauthority = \"nsd\"\n");
    assert!(
        error(&measured).contains("self-tests cannot cover"),
        "an authority is measured by the self-test"
    );
}

#[test]
fn profile_for_one_authority_is_refused_with_two() {
    let dir = tempfile::tempdir().unwrap();
    let profile = "name = \"one\"\nrole = \"dut\"\nprograms = [\"sh\"]\ncaches = false\ncommand = [\"{program}\", \
                   \"{upstream}\"]\nversion = { command = [\"echo\"], starts_with = \"x\" }\n";
    std::fs::write(dir.path().join("one.toml"), profile).unwrap();
    let load = |text: &str| {
        let path = dir.path().join("plan.toml");
        let text = text.replace("profile = \"unbound\"", "profile = \"./one.toml\"");
        std::fs::write(&path, text).unwrap();
        Plan::load(&path)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let refusal = load(&two_authorities()).unwrap_err();
    let why = "one asks at most 1 of the 2 authorities; use a plan with one";
    assert!(refusal.contains(why), "{refusal}");
    load(&with_hosts("")).unwrap();
}

#[test]
fn dut_without_host_is_refused_with_two_dut_hosts() {
    let second = "[hosts.dut2]\nssh = \"dut2\"\nroles = [\"dut\"]\n[hosts.dut2.links]\n\
                  client = [{ interface = \"c1\", addresses = [\"2001:2:0:1::3/64\"] },\n\
                  { interface = \"c2\", addresses = [\"2001:2:0:11::3/64\"] }]\n\
                  upstream = { interface = \"up\", addresses = [\"2001:2:0:2::3/64\"] }\n";
    refused(
        &with_hosts(second),
        &expect![[
            r#"32:1: several hosts have the role "dut"; give host = "dut2" or another of them"#
        ]],
    );
    let text = format!("{}host = \"dut2\"\n", with_hosts(second));
    let plan = plan(&text);
    assert_eq!(
        plan.variants[0].subject.dut().unwrap().host.as_deref(),
        Some("dut2")
    );
    // It has no IPv4 address on the link to the authority, and the DUT queries over IPv4 by default.
    let error = load_error(&text);
    expect!["32:1: host dut2: no IPv4 address on a link upstream; add one in the prefix of gen2, or give upstream-family in [tester]"].assert_eq(&error);
    let over_v6 = format!("[tester]\nupstream-family = \"ipv6\"\n{text}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    std::fs::write(&path, over_v6).unwrap();
    Plan::load(&path).unwrap();
    refused(
        &text.replace("host = \"dut2\"", "host = \"gen1\""),
        &expect![[r#"34:8: "gen1" is not a host with the role "dut"; there is dut2, a-dut"#]],
    );
}

/// Output of `ansible-inventory --list` for the hosts above, without unused parts.
const INVENTORY: &str = r#"{
 "_meta": {"hostvars": {
  "gen1": {"ansible_host": "gen1.example.org", "ansible_user": "bench", "ansible_port": 2222, "ansible_become": true,
   "dns64bench_roles": ["measurer"], "dns64bench_cpus": "2-5", "dns64bench_threads": 4,
   "dns64bench_links": {"client": {"interface": "ens1", "addresses": ["2001:2:0:1::1/64"]}}},
  "dut": {"ansible_user": "root", "ansible_become": "yes", "dns64bench_roles": "dut",
   "dns64bench_links": {
    "client": [{"interface": "client1", "addresses": ["2001:2:0:1::2/64"]}],
    "upstream": {"interface": "up", "addresses": ["2001:2:0:2::1/64", "198.18.0.1/24"]}}},
  "auth": {"ansible_connection": "local", "dns64bench_roles": ["authority"], "dns64bench_cpus": 6,
   "dns64bench_links": {"upstream": {"interface": "up", "addresses": ["2001:2:0:2::2/64", "198.18.0.2/24"]}}},
  "switch": {"ansible_host": "192.0.2.1"}
 }},
 "all": {"children": ["ungrouped"]}
}"#;

#[test]
fn inventory_is_converted_to_tables_of_a_plan() {
    let tables = as_toml(INVENTORY).unwrap();
    expect![[r#"
        [hosts.auth]
        cpus = 6
        local = true
        roles = ["authority"]

        [hosts.auth.links.upstream]
        addresses = ["2001:2:0:2::2/64", "198.18.0.2/24"]
        interface = "up"

        [hosts.dut]
        roles = "dut"
        ssh = "root@dut"

        [[hosts.dut.links.client]]
        addresses = ["2001:2:0:1::2/64"]
        interface = "client1"

        [hosts.dut.links.upstream]
        addresses = ["2001:2:0:2::1/64", "198.18.0.1/24"]
        interface = "up"

        [hosts.gen1]
        cpus = "2-5"
        roles = ["measurer"]
        ssh = "ssh://bench@gen1.example.org:2222"
        sudo = true
        threads = 4

        [hosts.gen1.links.client]
        addresses = ["2001:2:0:1::1/64"]
        interface = "ens1"
    "#]]
    .assert_eq(&tables);
    let plan = plan(&format!("{tables}\n{MINIMAL}"));
    let hosts = plan.hosts.at.unwrap();
    assert_eq!(hosts.iter().count(), 3);
    assert!(hosts.site(Some("dut"), Family::Ipv4).is_ok());
}

/// Checks the error of an inventory in which `from` is replaced by `to`.
fn inventory_refused(from: &str, to: &str, expected: &Expect) {
    assert!(INVENTORY.contains(from), "{from}");
    let faults = as_toml(&INVENTORY.replace(from, to)).unwrap_err();
    expected.assert_eq(&faults.join("\n"));
}

#[test]
fn invalid_variables_are_reported_with_their_host() {
    for (from, to, expected) in [
        (
            "\"2-5\"",
            "\"{{ cpus }}\"",
            expect![[
                r#"host gen1: dns64bench_cpus has the template "{{ cpus }}", which ansible-inventory does not expand; write its value"#
            ]],
        ),
        (
            "\"yes\"",
            "\"maybe\"",
            expect![[r#"host dut: ansible_become is "maybe"; must be true or false"#]],
        ),
    ] {
        inventory_refused(from, to, &expected);
    }
}

#[test]
fn invalid_values_of_variables_are_found_by_the_plan() {
    for (from, to, expected) in [
        (
            "\"2-5\"",
            "[2, 5]",
            expect![[
                r#"23:8: `cpus` is [2, 5]: it must be a text or a number; write cpus = "0,2-3""#
            ]],
        ),
        (
            "\"dns64bench_threads\": 4",
            "\"dns64bench_threads\": \"x\"",
            expect![[r#"27:11: `threads` is "x": must be a whole number from 1 to 256"#]],
        ),
        (
            "{\"client\": {",
            "{\"server\": {",
            expect![
                "29:19: `server` is not a key of [hosts.NAME.links]; there are client, upstream, self-test"
            ],
        ),
        (
            "{\"interface\": \"ens1\",",
            "{\"dev\": \"ens1\",",
            expect![
                "31:1: `dev` is not a key of [hosts.NAME.links.client]; there are interface, addresses"
            ],
        ),
    ] {
        assert!(INVENTORY.contains(from), "{from}");
        let tables = as_toml(&INVENTORY.replace(from, to)).unwrap();
        refused(&format!("{tables}\n{MINIMAL}"), &expected);
    }
}

#[test]
fn invalid_inventories_are_reported() {
    for (from, to, expected) in [
        (
            "\"local\"",
            "\"docker\"",
            expect![[
                r#"host auth: ansible_connection is "docker"; an agent is reached by ssh or local"#
            ]],
        ),
        (
            "\"ansible_become\": true",
            "\"ansible_become\": true, \"ansible_become_method\": \"su\"",
            expect![[r#"host gen1: ansible_become_method is "su"; must be sudo"#]],
        ),
        (
            "dns64bench_roles",
            "roles",
            expect![
                "no host has the variable dns64bench_roles; set it, such as dns64bench_roles: [measurer]"
            ],
        ),
        (
            "_meta",
            "meta",
            expect![
                "no host has the variable dns64bench_roles; set it, such as dns64bench_roles: [measurer]"
            ],
        ),
        (
            " \"_meta\"",
            "_meta",
            expect![
                "what ansible-inventory says is not JSON (key must be a string at line 2 column 1); update ansible-core"
            ],
        ),
    ] {
        inventory_refused(from, to, &expected);
    }
}
