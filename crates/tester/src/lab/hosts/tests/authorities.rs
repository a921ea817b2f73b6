//! Laboratories with several authorities.

use super::*;

const UP2: End<'_> = (
    LinkName::Upstream,
    "up2",
    &["2001:2:0:12::1/64", "198.18.1.1/24"],
);
const AUTH2: End<'_> = (
    LinkName::Upstream,
    "up",
    &["2001:2:0:12::2/64", "198.18.1.2/24"],
);

/// Two Measurers, a DUT, and two authorities.
fn five() -> Vec<HostSpec> {
    vec![
        host("gen1", &[Role::Measurer], &[GEN1]),
        host("gen2", &[Role::Measurer], &[GEN2]),
        host("dut", &[Role::Dut], &[DUT1, DUT2, UP, UP2]),
        host("auth1", &[Role::Authority], &[AUTH]),
        host("auth2", &[Role::Authority], &[AUTH2]),
    ]
}

#[test]
fn dut_queries_all_authorities_and_each_measurer_tests_one() {
    let hosts = Hosts::new(five()).unwrap();
    assert!(hosts.clone().self_tested().is_ok());
    let site = hosts.site(Some("dut"), Family::Ipv4).unwrap();
    let dut = site.dut.as_ref().unwrap();
    assert_eq!(dut.upstreams, [at("198.18.0.2:53"), at("198.18.1.2:53")]);
    let told = site.measurers.iter().map(|it| (it.authority, it.self_test));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (0, at("[2001:2:0:2::2]:53")),
            (1, at("[2001:2:0:12::2]:53"))
        ]
    );
    let listen = site.authorities.iter().map(|it| {
        let name = it.host.as_str();
        (name, it.listen, it.self_test_listen)
    });
    assert_eq!(
        listen.collect::<Vec<_>>(),
        [
            ("auth1", at("198.18.0.2:53"), at("[2001:2:0:2::2]:53")),
            ("auth2", at("198.18.1.2:53"), at("[2001:2:0:12::2]:53"))
        ]
    );
    assert_eq!(
        links(&site),
        [
            "client: gen1/ens1 - dut/client1",
            "client: gen2/ens1 - dut/client2",
            "upstream: dut/up - auth1/up",
            "upstream: dut/up2 - auth2/up"
        ]
    );
    assert_eq!(site.hosts(), ["gen1", "gen2", "dut", "auth1", "auth2"]);
    assert_eq!(site.roles_of("auth2"), [Role::Authority]);
    assert!(!site.is_two_device());
}

#[test]
fn measurers_use_the_authorities_in_rotation() {
    let more = ["2001:2:0:21::", "2001:2:0:31::", "2001:2:0:41::"];
    let mut specs = five();
    for (k, prefix) in more.into_iter().enumerate() {
        let (near, far) = (format!("{prefix}1/64"), format!("{prefix}2/64"));
        let client = |interface, address| end(LinkName::Client, interface, address);
        let name = format!("gen{}", k + 3);
        let near = [near.as_str()];
        specs.push(host(&name, &[Role::Measurer], &[client("ens1", &near)]));
        let interface = format!("client{}", k + 3);
        let far = [far.as_str()];
        let end = host("x", &[Role::Dut], &[client(&interface, &far)]).links;
        for (link, ends) in end {
            specs[2].links.entry(link).or_default().extend(ends);
        }
    }
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv6).unwrap();
    let asked: Vec<_> = site.measurers.iter().map(|it| it.authority).collect();
    assert_eq!(asked, [0, 1, 0, 1, 0]);
}

#[test]
fn each_measurer_needs_a_self_test_link_only_to_its_own_authority() {
    let (own, far) = (
        end(LinkName::SelfTest, "self", &["2001:2:0:13::1/64"]),
        end(LinkName::SelfTest, "self", &["2001:2:0:13::2/64"]),
    );
    let mut specs = five();
    specs[0] = host("gen1", &[Role::Measurer], &[GEN1, SELF1]);
    specs[1] = host("gen2", &[Role::Measurer], &[GEN2, own]);
    specs[3] = host("auth1", &[Role::Authority], &[AUTH, SELF2]);
    specs[4] = host("auth2", &[Role::Authority], &[AUTH2, far]);
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv4).unwrap();
    let listen: Vec<_> = site
        .authorities
        .iter()
        .map(|it| it.self_test_listen)
        .collect();
    assert_eq!(
        listen,
        [at("[2001:2:0:3::2]:53"), at("[2001:2:0:13::2]:53")]
    );
    let told = links(&site);
    assert!(told.contains(&"self-test: gen1/self - auth1/self".to_owned()));
    assert!(told.contains(&"self-test: gen2/self - auth2/self".to_owned()));
}

#[test]
fn hosts_that_are_measurer_and_authority_test_themselves() {
    let both = [Role::Measurer, Role::Authority];
    let specs = vec![
        host("one", &both, &[GEN1, AUTH]),
        host("two", &both, &[GEN2, AUTH2]),
        host("dut", &[Role::Dut], &[DUT1, DUT2, UP, UP2]),
    ];
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv4).unwrap();
    let local = site.measurers.iter().map(|it| it.self_test);
    assert_eq!(local.collect::<Vec<_>>(), [at("[::1]:53"); 2]);
    assert!(site.is_two_device());
}

fn refused(spoil: impl FnOnce(&mut Vec<HostSpec>), expected: &Expect) {
    let mut specs = five();
    spoil(&mut specs);
    expected.assert_eq(&lines(&Hosts::new(specs).unwrap_err()));
}

#[test]
fn invalid_links_of_the_second_authority_are_reported() {
    refused(
        |specs| specs[2] = host("dut", &[Role::Dut], &[DUT1, DUT2, UP]),
        &expect![
            "host dut: link upstream does not connect it to host auth2: no two IPv6 addresses in one prefix; correct the addresses of one"
        ],
    );
    refused(
        |specs| {
            let switched = end(LinkName::Upstream, "up", &["2001:2:0:2::3/64"]);
            specs[4] = host("auth2", &[Role::Authority], &[switched]);
        },
        &expect![
            "host auth2: it is behind interface up of host dut, as authority auth1 is; give each authority a link of its own, with an interface of the DUT's host; an interface of a VLAN is one"
        ],
    );
    refused(
        |specs| {
            let same = end(LinkName::Upstream, "up", &["2001:2:0:2::2/64"]);
            specs[4] = host("auth2", &[Role::Authority], &[same]);
        },
        &expect![
            "host auth2: 2001:2:0:2::2/64 is also the address of host auth1; give each interface addresses of its own"
        ],
    );
    refused(
        |specs| {
            let v4 = end(LinkName::Upstream, "up", &["198.18.1.2/24"]);
            specs[4] = host("auth2", &[Role::Authority], &[v4]);
        },
        &expect![
            "host gen2: no way to the authority auth2 for self-tests; connect both by a link self-test, or give the upstream link IPv6 addresses of one prefix at the DUT and at the authority"
        ],
    );
}

#[test]
fn self_tests_need_a_measurer_for_each_authority() {
    let mut specs = five();
    specs.remove(1);
    // They are valid without self-tests.
    let faults = Hosts::new(specs).unwrap().self_tested().unwrap_err();
    expect!["self-tests cannot cover 2 authorities (auth1, auth2) with 1 Measurer (gen1): each Measurer asks one of them, so there must be at most as many authorities as Measurers; add \"measurer\" to the roles of other hosts, remove \"authority\" from auth2, or write uncertified = true in [tester]"]
        .assert_eq(&lines(&faults));
}
