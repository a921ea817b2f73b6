//! Findings for literal facts.

mod ready;

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::*;
use crate::agent::handshake::About;
use crate::lab::hosts::{LinkEnd, LinkName, Reach};
use crate::machine::cpuset::CpuSet;
use crate::machine::interface::Interface;

/// Link, interface, addresses.
type End = (LinkName, &'static str, &'static [&'static str]);

fn host(name: &str, role: Role, ends: &[End]) -> HostSpec {
    let mut links: BTreeMap<LinkName, Vec<LinkEnd>> = BTreeMap::new();
    for (link, interface, addresses) in ends {
        links.entry(*link).or_default().push(LinkEnd {
            interface: (*interface).to_owned(),
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        });
    }
    HostSpec {
        name: name.to_owned(),
        reach: Reach::Ssh(name.to_owned()),
        sudo: false,
        roles: vec![role],
        cpus: "0-1".parse().unwrap(),
        authority_cpus: CpuSet::unrestricted(),
        threads: 1,
        links,
    }
}

fn three() -> Hosts {
    let (client, upstream) = (LinkName::Client, LinkName::Upstream);
    Hosts::new(vec![
        host(
            "gen",
            Role::Measurer,
            &[(client, "client", &["2001:2:0:1::1/64"])],
        ),
        host(
            "dut",
            Role::Dut,
            &[
                (client, "client", &["2001:2:0:1::2/64"]),
                (upstream, "upstream", &["2001:2:0:2::1/64", "198.18.0.1/24"]),
            ],
        ),
        host(
            "auth",
            Role::Authority,
            &[(upstream, "upstream", &["2001:2:0:2::2/64", "198.18.0.2/24"])],
        ),
    ])
    .unwrap()
}

/// Facts of hosts that match the plan.
fn good(hosts: &Hosts) -> Vec<(String, HostFacts)> {
    let of_end = |end: &LinkEnd| Interface {
        name: end.interface.clone(),
        driver: Some("ixgbe".to_owned()),
        mtu: 1500,
        speed_mbps: Some(10_000),
        is_up: true,
        has_carrier: true,
        addresses: end
            .addresses
            .iter()
            .map(|it| (it.address(), it.prefix_len()))
            .collect(),
        packets: 2,
        ..Interface::default()
    };
    let of_host = |host: &HostSpec| HostFacts {
        identity: Welcome {
            tester: "dns64bench 0.1.0".to_owned(),
            sha256: Some("0123456789abcdef".to_owned()),
            host: About {
                kernel: "6.1.0".to_owned(),
                boot_id: host.name.clone(),
                ..About::default()
            },
            ..Welcome::default()
        },
        cpus: "0-3".parse().unwrap(),
        interfaces: host.links.values().flatten().map(of_end).collect(),
        default_routes: vec!["eth0".to_owned()],
        forwards_ipv6: Some(true),
        governors: vec!["performance".to_owned()],
        clock_source: Some("tsc".to_owned()),
        time_sync: vec!["chronyd".to_owned()],
        others_cpu_ns: LOOK_NS / 50,
        memory_available_bytes: Some(8 << 30),
        disk_free_bytes: Some(8 << 30),
        ..HostFacts::default()
    };
    let facts = hosts.iter().map(|host| (host.name.clone(), of_host(host)));
    facts.collect()
}

/// Findings that are not good for hosts whose facts `spoil` has changed.
fn check_spoilt(spoil: impl FnOnce(&mut [(String, HostFacts)]), expected: &Expect) {
    let hosts = three();
    let mut facts = good(&hosts);
    spoil(&mut facts);
    let told: Vec<_> = check(&hosts, &facts, &[])
        .into_iter()
        .filter(|finding| finding.grade != Grade::Good)
        .map(|finding| {
            let remedy = finding.remedy.unwrap();
            format!(
                "{:?} {}: {} -> {remedy}\n",
                finding.grade, finding.what, finding.value
            )
        })
        .collect();
    expected.assert_eq(&told.concat());
}

fn client(facts: &mut [(String, HostFacts)]) -> &mut Interface {
    &mut facts[0].1.interfaces[0]
}

#[test]
fn hosts_that_match_the_plan_are_good() {
    check_spoilt(|_| (), &expect![]);
    let hosts = three();
    let findings = check(&hosts, &good(&hosts), &[]);
    let links: Vec<_> = findings
        .iter()
        .filter(|it| it.what.contains("link"))
        .collect();
    assert_eq!(links.len(), 4);
    assert_eq!(links[0].value, "ixgbe, MTU 1500, 10000 Mbit/s");
}

#[test]
fn links_that_differ_from_the_plan_are_reported() {
    check_spoilt(
        |facts| facts[0].1.interfaces.clear(),
        &expect![[r#"
        Missing gen: link client (client): no such interface -> correct the interface in the plan; `ip link` on the host lists them
    "#]],
    );
    check_spoilt(
        |facts| client(facts).is_up = false,
        &expect![[r#"
        Missing gen: link client (client): down -> `ip link set client up`, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
    "#]],
    );
    check_spoilt(
        |facts| client(facts).has_carrier = false,
        &expect![[r#"
        Missing gen: link client (client): no carrier -> check the cable and that the other end is up
    "#]],
    );
    check_spoilt(
        |facts| client(facts).addresses = vec![("2001:2:0:1::1".parse().unwrap(), 60)],
        &expect![[r#"
            Missing gen: link client (client): without the address 2001:2:0:1::1/64 -> `ip address add 2001:2:0:1::1/64 dev client`, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
        "#]],
    );
    check_spoilt(
        |facts| client(facts).mtu = 9000,
        &expect![[r#"
        Missing gen: MTU of link client to dut: 9000, there 1500 -> large packets are lost: give both ends one MTU, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
    "#]],
    );
    check_spoilt(
        |facts| client(facts).packets = 11,
        &expect![[r#"
        Poor gen: link client (client): 11 packets in 1 s while idle -> find out who sends (`tcpdump -ni client`), and connect nothing else to it
    "#]],
    );
    check_spoilt(
        |facts| client(facts).unspread = vec!["udp4".into(), "udp6".into()],
        &expect![[r#"
            Poor gen: link client (client): RSS spreads udp4 and udp6 by addresses only -> all queries of a host arrive at one queue, and so at one core: `ethtool -N client rx-flow-hash udp4 sdfn`, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
        "#]],
    );
    check_spoilt(
        |facts| facts[2].1.default_routes.push("upstream".into()),
        &expect![[r#"
            Poor auth: link upstream (upstream): has a default route -> other traffic of the host goes over it: move the default route to the management network
        "#]],
    );
    check_spoilt(
        |facts| facts[1].1.forwards_ipv6 = Some(false),
        &expect![[r#"
        Missing dut: forwarding of IPv6: off -> self-tests go through this host: `sysctl net.ipv6.conf.all.forwarding=1`, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
    "#]],
    );
}

#[test]
fn unsuitable_machines_are_reported() {
    check_spoilt(
        |facts| {
            let facts = &mut facts[0].1;
            facts.cpus = "0".parse().unwrap();
            facts.clock_source = Some("hpet".into());
            facts.time_sync.push("ntpd".into());
            facts.governors.push("powersave".into());
            facts.others_cpu_ns = LOOK_NS / 2;
            facts.busiest = Some("cc1plus".into());
            facts.memory_available_bytes = Some(1 << 30);
            facts.disk_free_bytes = Some(1 << 20);
            facts.lab_namespaces.push("dns64bench-dut".into());
        },
        &expect![[r#"
            Missing gen: CPUs online: 0 -> the plan names 1, too: correct cpus
            Poor gen: clock source: hpet -> reading the time takes a system call: boot with clocksource=tsc
            Poor gen: time synchronization: chronyd, ntpd -> they steer one clock against each other: stop all but one
            Poor gen: frequency governor: performance, powersave -> `cpupower frequency-set -g performance` (Debian package linux-cpupower), or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
            Poor gen: other processes: 50 % of a CPU, most of it cc1plus -> others take the CPUs of a role: stop them, or give cpus that they do not use
            Poor gen: memory available: 1024 MiB: trials of up to 33 M queries -> 60 s at 1 M/s need 1 GiB for the ledger and as much again
            Poor gen: disk free: 1 MiB -> zone files and logs need room below /var: free 1 GiB
            Poor gen: namespaces of a lab: dns64bench-dut -> a local lab is in use there, or a crash left it: `dns64bench lab down` on the host
        "#]],
    );
}

#[test]
fn port_in_use_is_reported_where_a_server_needs_it() {
    let listen = |address: &'static str| {
        move |facts: &mut [(String, HostFacts)]| {
            for (_, facts) in facts {
                facts.port_53 = vec![address.to_owned()];
            }
        }
    };
    check_spoilt(
        listen("udp 0.0.0.0"),
        &expect![[r#"
        Missing dut: port 53: udp 0.0.0.0 -> stop the server that listens there (`ss -lnp sport = 53`), or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
        Missing auth: port 53: udp 0.0.0.0 -> stop the server that listens there (`ss -lnp sport = 53`), or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
    "#]],
    );
    check_spoilt(
        listen("udp 127.0.0.53"),
        &expect![[r#"
        Poor dut: port 53: udp 127.0.0.53 -> a server that takes all addresses fails: `systemctl disable --now systemd-resolved`
        Poor auth: port 53: udp 127.0.0.53 -> a server that takes all addresses fails: `systemctl disable --now systemd-resolved`
    "#]],
    );
    check_spoilt(
        listen("tcp ::1"),
        &expect![[r#"
        Missing dut: port 53: tcp ::1 -> stop the server that listens there (`ss -lnp sport = 53`), or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
        Missing auth: port 53: tcp ::1 -> stop the server that listens there (`ss -lnp sport = 53`), or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
    "#]],
    );
}

#[test]
fn different_hosts_and_shared_machines_are_reported() {
    check_spoilt(
        |facts| facts[1].1.identity.sha256 = Some("fedcba9876543210".into()),
        &expect![[r#"
            Missing dut: program: dns64bench 0.1.0 (SHA-256 fedcba987654), on gen dns64bench 0.1.0 (SHA-256 0123456789ab) -> install one build everywhere: --push-binary, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
        "#]],
    );
    check_spoilt(
        |facts| facts[2].1.identity.host.boot_id = "gen".into(),
        &expect![[r#"
        Poor auth: machine: the same as that of gen -> roles on one machine take CPUs from each other: use a machine for each
    "#]],
    );
    let hosts = three();
    let why = [("gen".to_owned(), "connection refused".to_owned())];
    let findings = check(&hosts, &good(&hosts)[1..], &why);
    assert_eq!(findings[0].what, "gen: host");
    assert_eq!(findings[0].value, "connection refused");
    assert_eq!(findings[0].grade, Grade::Missing);
}
