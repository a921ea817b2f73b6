//! Routes to the source addresses of Measurers.

use super::*;
use crate::load::sources::Sources;

/// All routes of a site, one line each, by host.
fn routes(specs: Vec<HostSpec>, dut: Option<&str>, local: &str) -> String {
    let hosts = Hosts::new(specs).unwrap();
    let site = hosts.site(dut, Family::Ipv4).unwrap();
    let local: Sources = local.parse().unwrap();
    let routes = site.routes(local).unwrap();
    let lines = routes.iter().flat_map(|(host, routes)| {
        let line = move |route| format!("{host}: {route}");
        routes.iter().map(line)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn replies_return_over_the_links_that_queries_take() {
    expect![[r#"
        auth: route add 2001:2:0:78::/116 via 2001:2:0:2::1
        dut: route add 2001:2:0:78::/116 via 2001:2:0:1::1
        gen1: route add local 2001:2:0:78::/116 dev lo"#]]
    .assert_eq(&routes(three(), Some("dut"), "2001:2:0:78::/116"));
    expect![[r#"
        dut: route add 2001:2:0:78::/116 via 2001:2:0:1::1
        tester: route add local 2001:2:0:78::/116 dev lo"#]]
    .assert_eq(&routes(two(), Some("dut"), "2001:2:0:78::/116"));
}

#[test]
fn an_authority_by_itself_answers_through_the_host_of_a_dut() {
    assert_eq!(
        routes(three(), None, "2001:2:0:78::/116"),
        routes(three(), Some("dut"), "2001:2:0:78::/116")
    );
}

#[test]
fn each_measurer_has_a_part_and_a_link_of_its_own() {
    let specs = vec![
        host("gen1", &[Role::Measurer], &[GEN1, SELF1]),
        host("gen2", &[Role::Measurer], &[GEN2]),
        host("dut", &[Role::Dut], &[DUT1, DUT2, UP]),
        host("auth", &[Role::Authority], &[AUTH, SELF2]),
    ];
    expect![[r#"
        auth: route add 2001:2:0:78::/117 via 2001:2:0:3::1
        auth: route add 2001:2:0:78::800/117 via 2001:2:0:2::1
        dut: route add 2001:2:0:78::/117 via 2001:2:0:1::1
        dut: route add 2001:2:0:78::800/117 via 2001:2:0:11::1
        gen1: route add local 2001:2:0:78::/117 dev lo
        gen2: route add local 2001:2:0:78::800/117 dev lo"#]]
    .assert_eq(&routes(specs, Some("dut"), "2001:2:0:78::/116"));
}

#[test]
fn a_prefix_with_too_few_addresses_is_not_divided() {
    let mut specs = three();
    specs.push(host("gen2", &[Role::Measurer], &[GEN2]));
    specs[1] = host("dut", &[Role::Dut], &[DUT1, DUT2, UP]);
    let site = Hosts::new(specs).unwrap();
    let site = site.site(Some("dut"), Family::Ipv4).unwrap();
    assert_eq!(site.routes("2001:2:0:78::1".parse().unwrap()), None);
}
