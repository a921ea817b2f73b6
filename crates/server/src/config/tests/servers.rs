//! Keys of upstreams and of client networks.

use dns64_transport::relay::Outgoing;

use super::*;
use crate::settings::nets::ClientPrefixes;
use crate::settings::{PORTS_LEFT_MIN, ports_left};

#[test]
fn keys_of_a_server_override_the_common_ones() {
    let settings = accepted(
        r#"
        [upstream]
        servers = ["192.0.2.1", { address = "[2001:db8::1]:54", timeout = "2s" }, { address = "192.0.2.2", attempts = 7, cookies = true, tcp = false }]
        timeout = "50ms"
        attempts = 1
        selection = "failover"
        randomise-case = true
        cookies = false
        order = "both"
        "#,
    );
    let asked: Vec<_> = settings
        .upstreams
        .iter()
        .map(|u| {
            (
                u.address.to_string(),
                u.timeout_ns / MILLISECOND,
                u.attempts,
                u.features.cookies,
                u.features.tcp,
            )
        })
        .collect();
    let expected = [
        ("192.0.2.1:53".to_owned(), 50, 1, false, true),
        ("[2001:db8::1]:54".to_owned(), 2_000, 1, false, true),
        ("192.0.2.2:53".to_owned(), 50, 7, true, false),
    ];
    assert_eq!(asked, expected);
    assert_eq!(
        (settings.sets[0].selection, settings.order),
        (Selection::Failover, LookupOrder::Both)
    );
    assert!(settings.randomises_case());
    assert!(!read("").randomises_case());
    let delayed = read("upstream.order = \"delayed\"");
    assert_eq!(delayed.order, LookupOrder::Delayed(50 * MILLISECOND));
}

#[test]
fn client_networks_have_their_own_prefix_lengths() {
    let prefixes = |text| read(text).client_prefixes;
    assert_eq!(prefixes(""), ClientPrefixes { ipv4: 24, ipv6: 56 });
    let narrow = prefixes("client-prefix-ipv4 = 32\nclient-prefix-ipv6 = 64");
    assert_eq!(narrow, ClientPrefixes { ipv4: 32, ipv6: 64 });
    for text in [
        "client-prefix-ipv4 = 33",
        "client-prefix-ipv6 = 65",
        "client-prefix-ipv6 = 31",
    ] {
        let text = format!("{text}\nupstream.servers = [\"192.0.2.1\"]");
        assert!(parse(&text, "dns64d.toml").is_err(), "{text}");
    }
}

#[test]
fn ports_to_avoid_are_numbers_and_ranges() {
    let settings = read("upstream.avoid-ports = [5353, \"6000 - 6100\"]");
    assert_eq!(settings.avoid_ports, [5353..=5353, 6000..=6100]);
    assert_eq!(read("").avoid_ports, []);
    let half = read("upstream.avoid-ports = [\"1024-32767\"]");
    assert_eq!(ports_left(&half.avoid_ports), PORTS_LEFT_MIN);
}

#[test]
fn domains_have_servers_of_their_own() {
    let settings = accepted(
        r#"
        [upstream]
        servers = ["192.0.2.1"]
        selection = "random"
        timeout = "100ms"
        [[forward]]
        domains = ["corp.example", "10.in-addr.arpa"]
        servers = ["10.0.0.2", { address = "10.0.0.1", tcp = false }]
        selection = "failover"
        edns = false
        [[forward]]
        name = "lab"
        domains = ["lab.corp.example"]
        servers = ["10.0.0.2"]
        edns = false
        "#,
    );
    let of = |set: usize| {
        let set = &settings.sets[set];
        let servers = set.servers.iter().map(|i| {
            let upstream = &settings.upstreams[*i];
            (upstream.address.to_string(), upstream.features.edns)
        });
        (
            set.name.as_str(),
            set.selection,
            servers.collect::<Vec<_>>(),
        )
    };
    let server = |address: &str, edns| (format!("{address}:53"), edns);
    let shared = server("10.0.0.2", false);
    let corp = vec![shared.clone(), server("10.0.0.1", false)];
    assert_eq!(of(0).2, [server("192.0.2.1", true)]);
    assert_eq!(of(1), ("corp.example.", Selection::Failover, corp));
    assert_eq!(of(2), ("lab", Selection::Random, vec![shared]));
    assert_eq!(settings.upstreams.len(), 3, "each server once");
    assert_eq!(settings.upstreams[1].timeout_ns, 100 * MILLISECOND);
}

#[test]
fn view_has_the_domains_that_it_lists_and_those_that_no_view_lists() {
    let settings = read(
        r#"
        [[forward]]
        name = "all"
        domains = ["all.example", "both.example"]
        servers = ["10.0.0.1"]
        [[forward]]
        name = "staff"
        domains = ["staff.example", "both.example"]
        servers = ["10.0.0.2"]
        [[view]]
        clients = ["10.1.0.0/16"]
        forward = ["staff"]
        [[view]]
        clients = ["10.2.0.0/16"]
        "#,
    );
    let set = |view: usize, name: &str| {
        let found = settings.views[view].forwards.get(&name.parse().unwrap());
        found.map(|(_, set)| *set)
    };
    let asked = ["x.all.example", "both.example", "staff.example", "example"];
    for (view, expected) in [
        (0, [Some(1), Some(2), Some(2), None]),
        (1, [Some(1), Some(1), None, None]),
        (2, [Some(1), Some(1), None, None]),
    ] {
        assert_eq!(asked.map(|name| set(view, name)), expected, "{view}");
    }
}

#[test]
fn blocked_addresses_are_networks_and_the_private_ones() {
    let settings =
        read("block-addresses = [\"private\", \"192.0.2.0/24\"]\nblock-except = [\"a.test\"]");
    for address in ["10.1.2.3", "127.0.0.1", "fd00::1", "::1", "192.0.2.7"] {
        assert!(settings.block_addresses.contains(ip(address)), "{address}");
    }
    assert!(!settings.block_addresses.contains(ip("192.0.3.1")));
    assert!(
        settings
            .block_except
            .get(&"x.a.test".parse().unwrap())
            .is_some()
    );
    assert!(read("").block_addresses.nets().is_empty());
    assert!(
        parse(
            "block-except = [\"a.test\"]\nupstream.servers = [\"192.0.2.1\"]",
            "t"
        )
        .is_err()
    );
}

#[test]
fn server_has_its_own_sources_or_those_of_its_table() {
    let settings = accepted(
        r#"
        free-bind = true
        [upstream]
        servers = ["192.0.2.1", { address = "192.0.2.2", source = "10.0.0.9" }]
        source = ["10.0.0.7", "10.0.0.8"]
        [[forward]]
        domains = ["corp.example"]
        servers = ["192.0.2.3"]
        interface = "vrf-blue"
        "#,
    );
    let outgoing = |server: usize| settings.upstreams[server].outgoing.clone();
    let expected = |sources: &[&str], interface: Option<&str>| Outgoing {
        sources: sources.iter().map(|source| ip(source)).collect(),
        interface: interface.map(str::to_owned),
        free_bind: true,
    };
    let both = ["10.0.0.7", "10.0.0.8"];
    assert_eq!(outgoing(0), expected(&both, None));
    assert_eq!(outgoing(1), expected(&["10.0.0.9"], None));
    assert_eq!(outgoing(2), expected(&both, Some("vrf-blue")));
    assert!(settings.free_bind && !read("").free_bind);
}
