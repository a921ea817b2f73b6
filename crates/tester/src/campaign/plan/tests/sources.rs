//! Source addresses of a plan.

use super::*;

/// Two Measurers, and a DUT with a link to each.
const HOSTS: &str = r#"
[hosts.gen1]
ssh = "gen1"
roles = ["measurer", "authority"]
links.client = { interface = "c", addresses = ["2001:2:0:1::1/64"] }
links.upstream = { interface = "u", addresses = ["2001:2:0:2::2/64"] }
[hosts.gen2]
ssh = "gen2"
roles = ["measurer"]
threads = 2
links.client = { interface = "c", addresses = ["2001:2:0:11::1/64"] }
[hosts.dut]
ssh = "dut"
roles = ["dut"]
links.client = [
  { interface = "c1", addresses = ["2001:2:0:1::2/64"] },
  { interface = "c2", addresses = ["2001:2:0:11::2/64"] },
]
links.upstream = { interface = "u", addresses = ["2001:2:0:2::1/64"] }
"#;

fn with(local: &str, more: &str) -> String {
    format!("[tester]\nupstream-family = \"ipv6\"\nlocal = \"{local}\"\n{more}\n{HOSTS}\n{MINIMAL}")
}

#[test]
fn the_number_of_source_addresses_is_told() {
    let plain = format!("[tester]\nlocal = \"2001:2:0:78::/116\"\n{MINIMAL}");
    let told = |text: &str| plan(text).sources().unwrap();
    assert_eq!(told(&plain), "4,095 of 2001:2:0:78::/116");
    let few = plain.replace("[tester]", "[tester]\nsockets = 16");
    assert_eq!(told(&few), "16 of 2001:2:0:78::/116");
    assert_eq!(told(&plain.replace("::/116", "::7")), "2001:2:0:78::7");
    // Two parts of 2048 addresses, of which the first one is not used.
    let divided = with("2001:2:0:78::/116", "");
    assert_eq!(told(&divided), "4,094 of 2001:2:0:78::/116");
    // One thread and two: eight ports for each.
    let few = with("2001:2:0:78::/116", "sockets = 24");
    assert_eq!(told(&few), "24 of 2001:2:0:78::/116");
    assert_eq!(plan(MINIMAL).sources(), None);
}

#[test]
fn source_addresses_that_cannot_be_are_pointed_at() {
    for (text, expected) in [
        (
            "[tester]\nlocal = \"2001:db8::/64\"",
            expect![[
                r#"2:9: `local`: 2001:db8::/64 has more than 16384 addresses, the limit of source ports; give a prefix of /114 to /128"#
            ]],
        ),
        (
            "[tester]\nlocal = \"198.18.78.0/24\"",
            expect![[
                r#"2:9: local = "198.18.78.0/24" is IPv4, and in a lab the Measurer queries over IPv6; give an IPv6 prefix such as 2001:2:0:78::/116"#
            ]],
        ),
        (
            "[tester]\nlocal = \"ff02::/120\"",
            expect![[
                r#"2:9: local = "ff02::/120" is not a prefix of hosts; give a global unicast prefix such as 2001:2:0:78::/116"#
            ]],
        ),
        (
            "[tester]\nlocal = \"2001:2:0:2::/120\"",
            expect![[
                r#"2:9: local = "2001:2:0:2::/120" contains 2001:2:0:2::1, an address of the lab; give a prefix without it, such as 2001:2:0:78::/116"#
            ]],
        ),
        (
            "[tester]\nlocal = \"2001:2:0:78::/120\"\n[[dut]]\nserver = \"192.0.2.1\"\n[[dut]]\nserver = \"2001:2:0:78::9\"",
            expect![[r#"
                2:9: local = "2001:2:0:78::/120" and server = "192.0.2.1" are of different IP versions; omit local, or give an address of the server's IP version
                2:9: local = "2001:2:0:78::/120" contains server = "2001:2:0:78::9"; give a prefix that only this host uses"#]],
        ),
    ] {
        check(text, &expected);
    }
    for (local, expected) in [
        (
            "2001:2:0:11::/120",
            expect![[
                r#"3:9: local = "2001:2:0:11::/120" contains 2001:2:0:11::1, an address of host gen2; give a prefix without it, such as 2001:2:0:78::/116"#
            ]],
        ),
        (
            "2001:2:0:78::1",
            expect![[
                r#"3:9: local = "2001:2:0:78::1" has fewer addresses than there are Measurers, 2; give a prefix of /127 or shorter"#
            ]],
        ),
    ] {
        expected.assert_eq(&error(&with(local, "")));
    }
}
