//! Valid laboratories of plans, and each kind of error.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use expect_test::{Expect, expect};

use super::*;

mod authorities;
mod routes;

/// Link, interface, addresses.
type End<'a> = (LinkName, &'a str, &'a [&'a str]);

/// The errors, one a line.
fn lines(errors: &[HostsError]) -> String {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

fn end<'a>(link: LinkName, interface: &'a str, addresses: &'a [&'a str]) -> End<'a> {
    (link, interface, addresses)
}

fn host(name: &str, roles: &[Role], ends: &[End<'_>]) -> HostSpec {
    let mut links: BTreeMap<LinkName, Vec<LinkEnd>> = BTreeMap::new();
    for (link, interface, addresses) in ends {
        links.entry(*link).or_default().push(LinkEnd {
            interface: (*interface).to_owned(),
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        });
    }
    HostSpec {
        name: name.to_owned(),
        reach: Reach::Ssh(format!("root@{name}")),
        sudo: false,
        roles: roles.to_vec(),
        cpus: CpuSet::unrestricted(),
        authority_cpus: CpuSet::unrestricted(),
        threads: 1,
        links,
    }
}

const GEN1: End<'_> = (LinkName::Client, "ens1", &["2001:2:0:1::1/64"]);
const GEN2: End<'_> = (LinkName::Client, "ens1", &["2001:2:0:11::1/64"]);
const DUT1: End<'_> = (LinkName::Client, "client1", &["2001:2:0:1::2/64"]);
const DUT2: End<'_> = (LinkName::Client, "client2", &["2001:2:0:11::2/64"]);
const UP: End<'_> = (
    LinkName::Upstream,
    "up",
    &["2001:2:0:2::1/64", "198.18.0.1/24"],
);
const AUTH: End<'_> = (
    LinkName::Upstream,
    "up",
    &["2001:2:0:2::2/64", "198.18.0.2/24"],
);
const SELF1: End<'_> = (LinkName::SelfTest, "self", &["2001:2:0:3::1/64"]);
const SELF2: End<'_> = (LinkName::SelfTest, "self", &["2001:2:0:3::2/64"]);

fn three() -> Vec<HostSpec> {
    vec![
        host("gen1", &[Role::Measurer], &[GEN1]),
        host("dut", &[Role::Dut], &[DUT1, UP]),
        host("auth", &[Role::Authority], &[AUTH]),
    ]
}

fn two() -> Vec<HostSpec> {
    vec![
        host("tester", &[Role::Measurer, Role::Authority], &[GEN1, AUTH]),
        host("dut", &[Role::Dut], &[DUT1, UP]),
    ]
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn links(site: &Site) -> Vec<String> {
    let told = |link: &SiteLink| {
        let end = |end: &SiteEnd| format!("{}/{}", end.host, end.interface);
        format!("{}: {} - {}", link.name, end(&link.near), end(&link.far))
    };
    site.links.iter().map(told).collect()
}

#[test]
fn three_devices_self_test_through_the_host_of_the_dut() {
    let hosts = Hosts::new(three()).unwrap();
    let site = hosts.site(Some("dut"), Family::Ipv4).unwrap();
    let measurer = &site.measurers[0];
    assert_eq!(measurer.host, "gen1");
    assert_eq!(measurer.local, address("2001:2:0:1::1"));
    assert_eq!(measurer.dut, Some(at("[2001:2:0:1::2]:53")));
    assert_eq!(measurer.self_test_local, measurer.local);
    assert_eq!(measurer.self_test, at("[2001:2:0:2::2]:53"));
    let dut = site.dut.as_ref().unwrap();
    assert_eq!(dut.listen, address("2001:2:0:1::2"));
    assert_eq!(dut.upstreams, [at("198.18.0.2:53")]);
    assert_eq!(site.authorities[0].host, "auth");
    assert_eq!(site.authorities[0].listen, at("198.18.0.2:53"));
    assert_eq!(
        site.authorities[0].self_test_listen,
        at("[2001:2:0:2::2]:53")
    );
    assert_eq!(
        links(&site),
        [
            "client: gen1/ens1 - dut/client1",
            "upstream: dut/up - auth/up"
        ]
    );
    let over_v6 = hosts.site(Some("dut"), Family::Ipv6).unwrap();
    assert_eq!(over_v6.dut.unwrap().upstreams, [at("[2001:2:0:2::2]:53")]);
}

#[test]
fn two_devices_self_test_over_the_loopback_interface() {
    let mut specs = two();
    specs[0].cpus = "0-1".parse().unwrap();
    specs[0].authority_cpus = "2".parse().unwrap();
    specs[0].threads = 2;
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv6).unwrap();
    let measurer = &site.measurers[0];
    assert_eq!(measurer.self_test, at("[::1]:53"));
    assert_eq!(measurer.self_test_local, Ipv6Addr::LOCALHOST);
    assert_eq!(
        (measurer.threads, measurer.cpus.to_string()),
        (2, "0-1".into())
    );
    assert_eq!(site.authorities[0].self_test_listen, at("[::1]:53"));
    assert_eq!(site.authorities[0].cpus.to_string(), "2");
    assert_eq!(
        links(&site),
        [
            "client: tester/ens1 - dut/client1",
            "upstream: dut/up - tester/up"
        ]
    );
}

#[test]
fn each_of_two_measurers_reaches_the_dut_in_its_own_prefix() {
    let mut specs = three();
    specs[1] = host("dut", &[Role::Dut], &[DUT1, DUT2, UP]);
    specs.push(host("gen2", &[Role::Measurer], &[GEN2]));
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv4).unwrap();
    let servers: Vec<_> = site.measurers.iter().filter_map(|it| it.dut).collect();
    assert_eq!(
        servers,
        [at("[2001:2:0:1::2]:53"), at("[2001:2:0:11::2]:53")]
    );
    let dut = site.dut.as_ref().unwrap();
    assert_eq!(dut.listen, Ipv6Addr::UNSPECIFIED);
    // Both reach the authority at one address.
    assert_eq!(
        site.authorities[0].self_test_listen,
        at("[2001:2:0:2::2]:53")
    );
    assert_eq!(
        links(&site),
        [
            "client: gen1/ens1 - dut/client1",
            "client: gen2/ens1 - dut/client2",
            "upstream: dut/up - auth/up"
        ]
    );
}

#[test]
fn two_measurers_behind_a_switch_share_an_address_of_the_dut() {
    let mut specs = three();
    let other = end(LinkName::Client, "eth0", &["2001:2:0:1::3/64"]);
    specs.push(host("gen2", &[Role::Measurer], &[other]));
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv4).unwrap();
    assert_eq!(site.dut.unwrap().listen, address("2001:2:0:1::2"));
    assert_eq!(site.measurers[1].local, address("2001:2:0:1::3"));
}

#[test]
fn separate_self_test_link_is_used_by_its_hosts() {
    let mut specs = three();
    specs[0] = host("gen1", &[Role::Measurer], &[GEN1, SELF1]);
    specs[1] = host("dut", &[Role::Dut], &[DUT1, DUT2, UP]);
    specs[2] = host("auth", &[Role::Authority], &[AUTH, SELF2]);
    specs.push(host("gen2", &[Role::Measurer], &[GEN2]));
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv4).unwrap();
    assert_eq!(site.measurers[0].local, address("2001:2:0:1::1"));
    assert_eq!(site.measurers[0].self_test_local, address("2001:2:0:3::1"));
    assert_eq!(site.measurers[0].self_test, at("[2001:2:0:3::2]:53"));
    assert_eq!(site.measurers[1].self_test, at("[2001:2:0:2::2]:53"));
    assert_eq!(site.authorities[0].self_test_listen, at("[::]:53"));
    assert!(links(&site).contains(&"self-test: gen1/self - auth/self".to_owned()));
}

#[test]
fn without_a_dut_only_the_self_test_path_remains() {
    let hosts = Hosts::new(three()).unwrap();
    let site = hosts.site(None, Family::Ipv4).unwrap();
    assert_eq!((site.dut, site.measurers[0].dut), (None, None));
    assert_eq!(site.authorities[0].listen, at("[2001:2:0:2::2]:53"));
    // A laboratory for authorities needs no DUT.
    let direct = Hosts::new(vec![
        host("gen1", &[Role::Measurer], &[SELF1]),
        host("auth", &[Role::Authority], &[SELF2]),
    ]);
    let site = direct.unwrap().site(None, Family::Ipv4).unwrap();
    assert_eq!(site.measurers[0].local, address("2001:2:0:3::1"));
    assert_eq!(site.authorities[0].listen, at("[2001:2:0:3::2]:53"));
    assert_eq!(links(&site), ["self-test: gen1/self - auth/self"]);
}

#[test]
fn dut_with_only_ipv4_upstream_needs_another_self_test_path() {
    let v4 = |own| end(LinkName::Upstream, "up", own);
    let mut specs = three();
    specs[1] = host("dut", &[Role::Dut], &[DUT1, v4(&["198.18.0.1/24"])]);
    specs[2] = host("auth", &[Role::Authority], &[v4(&["198.18.0.2/24"])]);
    expect!["host gen1: no way to the authority auth for self-tests; connect both by a link self-test, or give the upstream link IPv6 addresses of one prefix at the DUT and at the authority"]
        .assert_eq(&lines(&Hosts::new(specs.clone()).unwrap_err()));
    specs[0] = host("gen1", &[Role::Measurer], &[GEN1, SELF1]);
    specs[2] = host("auth", &[Role::Authority], &[v4(&["198.18.0.2/24"]), SELF2]);
    let hosts = Hosts::new(specs).unwrap();
    assert!(hosts.site(Some("dut"), Family::Ipv4).is_ok());
    expect![[r#"
        host dut: no IPv6 address on a link upstream; add one in the prefix of auth
        host auth: no IPv6 address on a link upstream; add one in the prefix of dut"#]]
    .assert_eq(&lines(&hosts.site(Some("dut"), Family::Ipv6).unwrap_err()));
    expect![[r#"no host of a DUT is named "gen1"; there is dut"#]]
        .assert_eq(&lines(&hosts.site(Some("gen1"), Family::Ipv4).unwrap_err()));
}

/// Checks the error of three devices changed by `spoil`.
fn check(spoil: impl FnOnce(&mut Vec<HostSpec>), expected: &Expect) {
    let mut specs = three();
    spoil(&mut specs);
    expected.assert_eq(&lines(&Hosts::new(specs).unwrap_err()));
}

#[test]
fn invalid_names_and_reaches_are_refused() {
    check(
        |specs| specs[0].name = "Gen_1".into(),
        &expect![[
            r#"host Gen_1: invalid name "Gen_1"; use 1 to 32 of a-z, 0-9 and -, not starting with -"#
        ]],
    );
    check(
        |specs| specs[0].name = "x".repeat(33),
        &expect![[
            r#"host xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: invalid name "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; use 1 to 32 of a-z, 0-9 and -, not starting with -"#
        ]],
    );
    check(
        |specs| specs[0].reach = Reach::Ssh("-oProxyCommand=x".into()),
        &expect![[
            r#"host gen1: ssh = "-oProxyCommand=x" is not a destination of ssh; write "gen1", "root@gen1" or "ssh://root@gen1:2222""#
        ]],
    );
    check(
        |specs| specs[0].reach = Reach::Netns("../x".into()),
        &expect![[
            r#"host gen1: netns = "../x" is not the name of a network namespace; write one that `ip netns` lists"#
        ]],
    );
    check(
        |specs| specs[0].reach = specs[2].reach.clone(),
        &expect![
            "host auth: it is the same machine as host gen1; give one host both roles, or correct ssh, netns or local of one"
        ],
    );
    check(
        |specs| {
            let one = specs[0].clone();
            specs.extend(vec![one; HOSTS_MAX]);
        },
        &expect!["67 hosts; must be at most 64"],
    );
}

#[test]
fn invalid_roles_are_refused() {
    check(
        |specs| specs[0].roles.clear(),
        &expect![[
            r#"host gen1: it has no role; write such as roles = ["measurer"]; there are measurer, dut and authority"#
        ]],
    );
    check(
        |specs| specs[1].roles.push(Role::Authority),
        &expect![
            "host dut: it is the host of a DUT and has another role; the DUT has a host of its own (RFC 8219 section 9), so that nobody else takes its CPUs"
        ],
    );
    check(
        |specs| {
            specs.remove(2);
        },
        &expect![[r#"no host is the authority; add "authority" to the roles of one"#]],
    );
    check(
        |specs| {
            specs.remove(0);
        },
        &expect![[r#"no host is the measurer; add "measurer" to the roles of one"#]],
    );
}

#[test]
fn invalid_numbers_are_refused() {
    check(
        |specs| specs[1].threads = 2,
        &expect![[
            r#"host dut: threads = 2 is for a Measurer; omit it, or add the role "measurer""#
        ]],
    );
    check(
        |specs| specs[2].authority_cpus = "1".parse().unwrap(),
        &expect![[
            r#"host auth: authority-cpus = "1" without both roles; it is for a host that is Measurer and authority; of any other, give cpus"#
        ]],
    );
    let mut specs = two();
    specs[0].cpus = "0-2".parse().unwrap();
    specs[0].authority_cpus = "2-3".parse().unwrap();
    expect!["host tester: CPU 2 is in cpus and in authority-cpus; give each CPU to one role, or the same CPUs to both"]
        .assert_eq(&lines(&Hosts::new(specs.clone()).unwrap_err()));
    specs[0].cpus = specs[0].authority_cpus.clone();
    assert!(Hosts::new(specs).is_ok(), "one core can run both roles");
}

/// Checks the error of three devices, one of which has other ends.
fn check_ends(number: usize, ends: &[End<'_>], expected: &Expect) {
    let replace = |specs: &mut Vec<HostSpec>| {
        specs[number].links = host("x", &[], ends).links;
    };
    check(replace, expected);
}

#[test]
fn invalid_links_are_refused() {
    check_ends(
        0,
        &[GEN1, UP],
        &expect![
            "host gen1: link upstream is between dut and authority; omit the link, or add the role"
        ],
    );
    check_ends(
        0,
        &[end(LinkName::Client, "", &["2001:2:0:1::1/64"])],
        &expect![[
            r#"host gen1: "" of link client is not the name of an interface; write one that `ip link` lists"#
        ]],
    );
    check_ends(
        0,
        &[end(LinkName::Client, "an/interface", &["2001:2:0:1::1/64"])],
        &expect![[
            r#"host gen1: "an/interface" of link client is not the name of an interface; write one that `ip link` lists"#
        ]],
    );
    check_ends(
        1,
        &[DUT1, end(LinkName::Upstream, "client1", UP.2)],
        &expect![
            "host dut: interface client1 is given twice; give each link an interface of its own, all addresses of one in one list"
        ],
    );
    check_ends(
        0,
        &[end(LinkName::Client, "ens1", &[])],
        &expect![[
            r#"host gen1: interface ens1 of link client has no address; add one, such as "2001:2:0:1::1/64""#
        ]],
    );
    check_ends(
        0,
        &[end(LinkName::Client, "ens1", &["fe80::1/64"])],
        &expect![
            "host gen1: fe80::1/64 of link client is not the address of a host; use a global unicast address, such as one of 2001:2::/48 or 198.18.0.0/15"
        ],
    );
}

#[test]
fn ambiguous_addresses_are_refused() {
    let client = |addresses| end(LinkName::Client, "ens1", addresses);
    check_ends(
        0,
        &[client(&["2001:2:0:1::2/64"])],
        &expect![
            "host dut: 2001:2:0:1::2/64 is also the address of host gen1; give each interface addresses of its own"
        ],
    );
    check_ends(
        0,
        &[client(&["2001:2:0:2::7/64"])],
        &expect![
            "host dut: 2001:2:0:2::1/64 of link upstream and 2001:2:0:2::7/64 of host gen1 of link client are in one prefix; give each link a prefix of its own"
        ],
    );
    check_ends(
        0,
        &[client(&["2001:2::7/32"])],
        &expect![
            "host dut: 2001:2:0:1::2/64 and 2001:2::7/32 of host gen1 have prefixes of different lengths on one link; give both ends the same length"
        ],
    );
    check_ends(
        0,
        &[client(&["2001:2:0:1::1/56"])],
        &expect![
            "host dut: 2001:2:0:1::2/64 and 2001:2:0:1::1/56 of host gen1 have prefixes of different lengths on one link; give both ends the same length"
        ],
    );
    check_ends(
        1,
        &[
            DUT1,
            end(LinkName::Client, "client2", &["2001:2:0:1::4/64"]),
            UP,
        ],
        &expect![
            "host dut: its interfaces client1 and client2 have addresses in one prefix; give each interface a prefix of its own"
        ],
    );
}

#[test]
fn unconnected_links_are_refused() {
    check_ends(
        0,
        &[end(LinkName::Client, "ens1", &["2001:2:0:9::1/64"])],
        &expect![
            "host gen1: link client does not connect it to host dut: no two IPv6 addresses in one prefix; correct the addresses of one"
        ],
    );
    check_ends(
        0,
        &[],
        &expect!["host gen1: no IPv6 address on a link client; add one in the prefix of dut"],
    );
    check_ends(
        0,
        &[end(LinkName::Client, "ens1", &["198.18.1.1/24"])],
        &expect!["host gen1: no IPv6 address on a link client; add one in the prefix of dut"],
    );
    check_ends(
        1,
        &[DUT1],
        &expect!["host dut: no IPv4 address on a link upstream; add one in the prefix of auth"],
    );
    check_ends(
        2,
        &[end(LinkName::Upstream, "up", &["2001:2:0:8::2/64"])],
        &expect![
            "host dut: link upstream does not connect it to host auth: no two IPv6 addresses in one prefix; correct the addresses of one"
        ],
    );
    // Every Measurer is connected to every DUT.
    check(
        |specs| specs.push(host("gen2", &[Role::Measurer], &[GEN2])),
        &expect![
            "host gen2: link client does not connect it to host dut: no two IPv6 addresses in one prefix; correct the addresses of one"
        ],
    );
}

#[test]
fn addresses_are_parsed_with_their_prefix_length() {
    let address: LinkAddress = "2001:2:0:1::1/64".parse().unwrap();
    assert_eq!(
        address.address(),
        "2001:2:0:1::1".parse::<IpAddr>().unwrap()
    );
    assert_eq!(address.prefix().to_string(), "2001:2:0:1::/64");
    assert_eq!(address.to_string(), "2001:2:0:1::1/64");
    for (text, expected) in [
        (
            "2001:2:0:1::1",
            expect![[
                r#""2001:2:0:1::1" is not an address with the length of its prefix, such as "2001:2:0:1::1/64" or "198.18.0.1/24""#
            ]],
        ),
        (
            "2001:2:0:1::1/128",
            expect![[
                r#"prefix length 128 of "2001:2:0:1::1/128" leaves no address for the other end: must be 1-127"#
            ]],
        ),
        (
            "198.18.0.1/0",
            expect![[
                r#"prefix length 0 of "198.18.0.1/0" leaves no address for the other end: must be 1-31"#
            ]],
        ),
        (
            "198.18.0.1/33",
            expect![[
                r#""198.18.0.1/33" is not an address with the length of its prefix, such as "2001:2:0:1::1/64" or "198.18.0.1/24""#
            ]],
        ),
    ] {
        let error = text.parse::<LinkAddress>().unwrap_err();
        expected.assert_eq(&error.to_string());
    }
}
