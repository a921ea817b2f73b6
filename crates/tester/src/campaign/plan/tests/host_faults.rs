//! Hosts with several faults, and their complete messages.

use expect_test::{Expect, expect};

use super::*;
use crate::campaign::plan::inventory::as_toml;

fn check(hosts: &str, expected: &Expect) {
    expected.assert_eq(&error(&format!("{hosts}{MINIMAL}")));
}

/// A Measurer, a DUT and an authority with one fault of each kind that a host has by itself.
const FAULTY: &str = r#"
[hosts.gen1]
ssh = "root@gen1"
roles = ["measurer"]
cpus = "0-2"
authority-cpus = "2"
links.client = { interface = "ens1", addresses = ["2001:2:0:1::1/64", "fe80::1/64"] }
[hosts.gen2]
ssh = "-oProxyCommand=x"
roles = ["measurer"]
links.client = { interface = "ens1", addresses = ["2001:2:0:9::1/64"] }
[hosts.Gen_3]
netns = "../x"
roles = ["authority"]
threads = 2
[hosts.dut]
ssh = "dut"
roles = ["dut"]
threads = 4
[hosts.dut.links]
client = [
  { interface = "client1", addresses = ["2001:2:0:1::2/64"] },
  { interface = "client1", addresses = ["2001:2:0:11::2/64"] },
]
upstream = { interface = "an/interface", addresses = ["2001:2:0:2::1/64"] }
self-test = { interface = "self", addresses = ["2001:2:0:3::1/64"] }
[hosts.auth]
ssh = "auth"
roles = ["authority"]
links.upstream = { interface = "up", addresses = ["2001:2:0:2::2/56"] }
"#;

#[test]
fn faults_of_several_hosts_are_reported_together() {
    check(
        FAULTY,
        &expect![[r#"
            5:8: host gen1: CPU 2 is in cpus and in authority-cpus; give each CPU to one role, or the same CPUs to both
            6:18: host gen1: authority-cpus = "2" without both roles; it is for a host that is Measurer and authority; of any other, give cpus
            7:71: host gen1: fe80::1/64 of link client is not the address of a host; use a global unicast address, such as one of 2001:2::/48 or 198.18.0.0/15
            9:7: host gen2: ssh = "-oProxyCommand=x" is not a destination of ssh; write "gen1", "root@gen1" or "ssh://root@gen1:2222"
            12:1: host Gen_3: invalid name "Gen_3"; use 1 to 32 of a-z, 0-9 and -, not starting with -
            13:9: host Gen_3: netns = "../x" is not the name of a network namespace; write one that `ip netns` lists
            15:11: host Gen_3: threads = 2 is for a Measurer; omit it, or add the role "measurer"
            19:11: host dut: threads = 4 is for a Measurer; omit it, or add the role "measurer"
            23:3: host dut: interface client1 is given twice; give each link an interface of its own, all addresses of one in one list
            25:12: host dut: "an/interface" of link upstream is not the name of an interface; write one that `ip link` lists
            26:13: host dut: link self-test is between measurer and authority; omit the link, or add the role"#]],
    );
}

/// Three hosts that form a valid lab.
const SOUND: &str = r#"
[hosts.gen1]
ssh = "gen1"
roles = ["measurer"]
links.client = { interface = "ens1", addresses = ["2001:2:0:1::1/64"] }
[hosts.gen2]
ssh = "gen2"
roles = ["measurer"]
links.client = { interface = "ens1", addresses = ["2001:2:0:11::1/64"] }
[hosts.dut]
ssh = "dut"
roles = ["dut"]
[hosts.dut.links]
client = [
  { interface = "client1", addresses = ["2001:2:0:1::2/64"] },
  { interface = "client2", addresses = ["2001:2:0:11::2/64"] },
]
upstream = { interface = "up", addresses = ["2001:2:0:2::1/64"] }
[hosts.auth]
ssh = "auth"
roles = ["authority"]
links.upstream = { interface = "up", addresses = ["2001:2:0:2::2/64"] }
"#;

/// Checks the error of these hosts after changes.
fn spoilt(changes: &[(&str, &str)], expected: &Expect) {
    let mut hosts = SOUND.to_owned();
    for (from, to) in changes {
        assert!(hosts.contains(from), "{from}");
        hosts = hosts.replacen(from, to, 1);
    }
    check(&hosts, expected);
}

#[test]
fn all_unconnected_hosts_are_reported() {
    plan(&format!("{SOUND}{MINIMAL}"));
    spoilt(
        &[
            ("2001:2:0:1::1/64", "2001:2:0:7::1/64"),
            ("2001:2:0:11::1/64", "198.18.7.1/24"),
            ("2001:2:0:2::2/64", "2001:2:0:8::2/64"),
        ],
        &expect![[r#"
            5:16: host gen1: link client does not connect it to host dut: no two IPv6 addresses in one prefix; correct the addresses of one
            9:16: host gen2: no IPv6 address on a link client; add one in the prefix of dut
            18:12: host dut: link upstream does not connect it to host auth: no two IPv6 addresses in one prefix; correct the addresses of one"#]],
    );
}

#[test]
fn consequences_of_a_fault_are_not_reported() {
    // The missing connection follows from the unreadable address.
    spoilt(
        &[("2001:2:0:1::1/64", "2001:2:0:1::1")],
        &expect![[
            r#"5:51: `addresses`: "2001:2:0:1::1" is not an address with the length of its prefix, such as "2001:2:0:1::1/64" or "198.18.0.1/24""#
        ]],
    );
    // The missing authority follows from the unknown role.
    spoilt(
        &[("\"authority\"", "\"auth\"")],
        &expect!["21:10: `roles` is \"auth\": must be measurer, dut or authority"],
    );
    // The missing link between the two follows from the prefix.
    spoilt(
        &[("2001:2:0:2::2/64", "2001:2:0:1::9/64")],
        &expect![
            "22:51: host auth: 2001:2:0:1::9/64 of link upstream and 2001:2:0:1::1/64 of host gen1 of link client are in one prefix; give each link a prefix of its own"
        ],
    );
    // The missing connection follows from the invalid value.
    spoilt(
        &[("ssh = \"gen1\"", "local = \"yes\"")],
        &expect![[r#"3:9: `local` is "yes": must be true or false"#]],
    );
}

#[test]
fn hosts_after_a_faulty_one_are_checked() {
    spoilt(
        &[
            ("ssh = \"gen1\"", "local = \"yes\""),
            ("2001:2:0:11::1/64", "2001:2:0:7::1/64"),
            ("roles = [\"dut\"]", "roles = [\"dut\"]\nthreads = 2"),
        ],
        &expect![[r#"
            3:9: `local` is "yes": must be true or false
            13:11: host dut: threads = 2 is for a Measurer; omit it, or add the role "measurer""#]],
    );
    let text = format!("{SOUND}{MINIMAL}host = \"gen1\"\n").replace("\"gen2\"", "\"gen1\"");
    expect![[r#"
        7:7: host gen2: it is the same machine as host gen1; give one host both roles, or correct ssh, netns or local of one
        25:8: "gen1" is not a host with the role "dut"; there is dut"#]].assert_eq(&error(&text));
}

#[test]
fn all_invalid_variables_of_an_inventory_are_reported() {
    let json = r#"{"_meta": {"hostvars": {
      "gen": {"ansible_connection": "docker", "dns64bench_roles": ["measurer"], "dns64bench_cpus": [1],
        "dns64bench_threads": "{% x %}"},
      "dut": {"ansible_become": "maybe", "dns64bench_roles": "{{ roles }}"}}}}"#;
    expect![[r#"
        host dut: ansible_become is "maybe"; must be true or false
        host dut: dns64bench_roles has the template "{{ roles }}", which ansible-inventory does not expand; write its value
        host gen: ansible_connection is "docker"; an agent is reached by ssh or local
        host gen: dns64bench_threads has the template "{% x %}", which ansible-inventory does not expand; write its value"#]].assert_eq(&as_toml(json).unwrap_err().join("\n"));
}

#[test]
fn unreadable_inventory_hides_no_other_fault() {
    let text = "inventory = \"no/such.yml\"\n[tester]\nlab = \"netns\"\n[search]\nruns = 0\n";
    let text = format!("{text}{MINIMAL}host = \"gen1\"\n");
    expect![[r#"
        1:13: inventory DIR/no/such.yml: there is no such file; give the path of an Ansible inventory
        3:7: `lab` contradicts the hosts of the plan: the roles run on them; omit it
        5:8: `runs` is 0: must be a whole number from 1 to 1000"#]].assert_eq(&load_error(&text));
    let both = format!("inventory = \"no/such.yml\"\n{FAULTY}{MINIMAL}");
    let told = load_error(&both);
    assert!(told.contains("both inventory and [hosts.NAME]"), "{told}");
    assert!(told.contains("host gen1: CPU 2 is in cpus"), "{told}");
}
