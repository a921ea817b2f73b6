//! `[dns64]`, `[[view]]`, networks and prefixes.

use expect_test::expect;

use super::refused_beside_upstream;

#[test]
fn prefix_with_invalid_length_or_stray_bits_is_refused() {
    refused_beside_upstream(
        &[
            r#"[dns64]
prefix = "2001:db8::/80""#,
            r#"[dns64]
prefix = "2001:db8:0:0:ff00::/96""#,
            r#"[dns64]
prefix = "2001:db8:1::/32""#,
            r#"[dns64]
prefix = "64:ff9b::""#,
            r#"[dns64]
prefix = 96"#,
        ],
        expect![[r#"
            dns64d.toml:3:10: prefix length 80 is not one of 32, 40, 48, 56, 64 and 96; use one of these
              |
            3 | prefix = "2001:db8::/80"
              |          ^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix 2001:db8:0:0:ff00::/96 has bits set among bits 64 to 71, which RFC 6052 reserves; use 2001:db8::/96
              |
            3 | prefix = "2001:db8:0:0:ff00::/96"
              |          ^^^^^^^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix 2001:db8:1::/32 has bits set after its first 32; write 2001:db8::/32
              |
            3 | prefix = "2001:db8:1::/32"
              |          ^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix "64:ff9b::" is not an IPv6 prefix; write it like 64:ff9b::/96
              |
            3 | prefix = "64:ff9b::"
              |          ^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix is a whole number where a text is expected; write it like "64:ff9b::/96" or "none"
              |
            3 | prefix = 96
              |          ^^
        "#]],
    );
}

#[test]
fn prefix_that_no_translator_can_use_is_refused() {
    refused_beside_upstream(
        &[
            r#"[dns64]
prefix = "::ffff:0:0/96""#,
            r#"[dns64]
prefix = "::/96""#,
            r#"[dns64]
prefix = "::/32""#,
            r#"[dns64]
map = [{ ipv4 = "10.0.0.0/8", prefix = "ff00::/32" }]"#,
            r#"[dns64]
domain-prefixes = [{ domain = "example.com", prefix = "fe80::/64" }]"#,
            r#"[dns64]
prefix = "febf:ffff::/96""#,
            r#"[dns64]
prefix = "::1:0:0/96""#,
        ],
        expect![[r#"
            dns64d.toml:3:10: prefix "::ffff:0:0/96" overlaps ::ffff:0.0.0.0/96, the IPv4-mapped addresses, which are not routed to a translator; use the prefix of your NAT64, like "64:ff9b::/96"
              |
            3 | prefix = "::ffff:0:0/96"
              |          ^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix "::/96" overlaps ::/96, the IPv4-compatible addresses, which are not routed to a translator; use the prefix of your NAT64, like "64:ff9b::/96"
              |
            3 | prefix = "::/96"
              |          ^^^^^^^
            ---
            dns64d.toml:3:10: prefix "::/32" overlaps ::/96, the IPv4-compatible addresses, which are not routed to a translator; use the prefix of your NAT64, like "64:ff9b::/96"
              |
            3 | prefix = "::/32"
              |          ^^^^^^^
            ---
            dns64d.toml:3:40: prefix "ff00::/32" overlaps ff00::/8, the multicast addresses, which are not routed to a translator; use the prefix of your NAT64, like "64:ff9b::/96"
              |
            3 | map = [{ ipv4 = "10.0.0.0/8", prefix = "ff00::/32" }]
              |                                        ^^^^^^^^^^^
            ---
            dns64d.toml:3:55: prefix "fe80::/64" overlaps fe80::/10, the link-local addresses, which are not routed to a translator; use the prefix of your NAT64, like "64:ff9b::/96"
              |
            3 | domain-prefixes = [{ domain = "example.com", prefix = "fe80::/64" }]
              |                                                       ^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix "febf:ffff::/96" overlaps fe80::/10, the link-local addresses, which are not routed to a translator; use the prefix of your NAT64, like "64:ff9b::/96"
              |
            3 | prefix = "febf:ffff::/96"
              |          ^^^^^^^^^^^^^^^^
            ---
            accepted
        "#]],
    );
}

#[test]
fn repeated_or_more_than_8_prefixes_are_refused() {
    let nine: Vec<_> = (1..=9).map(|i| format!("\"2001:db8:{i}::/96\"")).collect();
    let nine = format!("[dns64]\nprefix = [{}]", nine.join(", "));
    refused_beside_upstream(
        &[
            r#"[dns64]
prefix = []"#,
            r#"[dns64]
prefix = ["2001:db8:1::/96", "64:ff9b::/96", "2001:db8:1::/96"]"#,
            r#"[dns64]
prefix = ["2001:db8:1::/96", "none"]"#,
            &nine,
        ],
        expect![[r#"
            dns64d.toml:3:10: prefix is empty; write at least one, like ["64:ff9b::/96", "2001:db8:64::/96"]
              |
            3 | prefix = []
              |          ^^
            ---
            dns64d.toml:3:46: prefix has 2001:db8:1::/96 twice; remove one
              |
            3 | prefix = ["2001:db8:1::/96", "64:ff9b::/96", "2001:db8:1::/96"]
              |                                              ^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:30: prefix "none" is not an IPv6 prefix; write it like 64:ff9b::/96
              |
            3 | prefix = ["2001:db8:1::/96", "none"]
              |                              ^^^^^^
            ---
            dns64d.toml:3:163: prefix has more than 8 entries; remove some
              |
            3 | prefix = ["2001:db8:1::/96", "2001:db8:2::/96", "2001:db8:3::/96", "2001:db8:4::/96", "2001:db8:5::/96", "2001:db8:6::/96", "2001:db8:7::/96", "2001:db8:8::/96", "2001:db8:9::/96"]
              |                                                                                                                                                                   ^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn networks_with_host_bits_or_wrong_family_are_refused() {
    refused_beside_upstream(
        &[
            r#"allow = ["10.0.0.1/8", "2001:db8::/129"]"#,
            r#"allow = []"#,
            r#"[dns64]
exclude-aaaa = ["::ffff/96", "10.0.0.0/8"]"#,
            r#"[dns64]
map = [{ ipv4 = "2001:db8::/32", prefix = "none" }]"#,
            r#"allow = ["::ffff:10.0.0.0/104"]"#,
        ],
        expect![[r#"
            dns64d.toml:2:10: allow "10.0.0.1/8" has bits set after its first 8; write "10.0.0.0/8", or "10.0.0.1" for that address alone
              |
            2 | allow = ["10.0.0.1/8", "2001:db8::/129"]
              |          ^^^^^^^^^^^^

            dns64d.toml:2:24: allow "2001:db8::/129" is not a network; write it like "10.0.0.0/8" or "2001:db8::/32"
              |
            2 | allow = ["10.0.0.1/8", "2001:db8::/129"]
              |                        ^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:9: allow is empty; write at least one, like ["2001:db8::/32", "10.0.0.0/8"]
              |
            2 | allow = []
              |         ^^
            ---
            dns64d.toml:3:17: exclude-aaaa "::ffff/96" is not the network of the IPv4-mapped addresses, though RFC 6147 writes it so; write "::ffff:0:0/96"
              |
            3 | exclude-aaaa = ["::ffff/96", "10.0.0.0/8"]
              |                 ^^^^^^^^^^^

            dns64d.toml:3:30: exclude-aaaa "10.0.0.0/8" is an IPv4 network where IPv6 is expected; write it like "::ffff:0:0/96"
              |
            3 | exclude-aaaa = ["::ffff/96", "10.0.0.0/8"]
              |                              ^^^^^^^^^^^^
            ---
            dns64d.toml:3:17: ipv4 "2001:db8::/32" is an IPv6 network where IPv4 is expected; write it like "10.0.0.0/8"
              |
            3 | map = [{ ipv4 = "2001:db8::/32", prefix = "none" }]
              |                 ^^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:10: allow "::ffff:10.0.0.0/104" is a network of IPv4-mapped addresses, which count as IPv4; write "10.0.0.0/8"
              |
            2 | allow = ["::ffff:10.0.0.0/104"]
              |          ^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn overlapping_ranges_of_the_map_are_refused() {
    refused_beside_upstream(
        &[
            r#"[dns64]
map = [
  { ipv4 = "10.0.0.0/8", prefix = "none" },
  { ipv4 = "10.1.0.0/16", prefix = "2001:db8::/96" },
  { ipv4 = "10.1.0.0/16", prefix = "none" },
]"#,
            r#"[dns64]
map = [{ ipv4 = "10.0.0.0/8" }]"#,
        ],
        expect![[r#"
            dns64d.toml:5:3: 10.1.0.0/16 of map overlaps 10.0.0.0/8; remove one, or split the larger one around the smaller
              |
            5 |   { ipv4 = "10.1.0.0/16", prefix = "2001:db8::/96" },
              |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:6:3: 10.1.0.0/16 of map overlaps 10.0.0.0/8; remove one, or split the larger one around the smaller
              |
            6 |   { ipv4 = "10.1.0.0/16", prefix = "none" },
              |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:8: an entry of map has no prefix; write it like [{ ipv4 = "10.0.0.0/8", prefix = "none" }]
              |
            3 | map = [{ ipv4 = "10.0.0.0/8" }]
              |        ^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn two_rules_for_one_domain_are_refused() {
    refused_beside_upstream(
        &[
            r#"[dns64]
exclude-domains = ["a.test", "A.test."]
force-domains = ["b.test", "a.test"]"#,
            r#"[dns64]
exclude-domains = ["a.test"]
domain-prefixes = [{ domain = "a.test", prefix = "2001:db8::/96" }]"#,
            r#"[dns64]
domain-prefixes = [{ domain = "a.test", prefix = "none" }]"#,
            r#"[dns64]
include-domains = ["*.a.test", "a..test", "münchen.de"]"#,
        ],
        expect![[r#"
            dns64d.toml:3:30: exclude-domains has A.test. twice; remove one
              |
            3 | exclude-domains = ["a.test", "A.test."]
              |                              ^^^^^^^^^

            dns64d.toml:4:28: force-domains has a.test. as well as exclude-domains; remove one
              |
            4 | force-domains = ["b.test", "a.test"]
              |                            ^^^^^^^^
            ---
            dns64d.toml:4:20: a.test. has a prefix here, but is also in exclude-domains; remove one
              |
            4 | domain-prefixes = [{ domain = "a.test", prefix = "2001:db8::/96" }]
              |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:50: prefix "none" is not allowed here; to exclude a domain, add it to exclude-domains
              |
            3 | domain-prefixes = [{ domain = "a.test", prefix = "none" }]
              |                                                  ^^^^^^
            ---
            dns64d.toml:3:20: include-domains "*.a.test" has a wildcard, but a domain stands for all names below it anyway; write "a.test"
              |
            3 | include-domains = ["*.a.test", "a..test", "münchen.de"]
              |                    ^^^^^^^^^^

            dns64d.toml:3:32: include-domains "a..test": name has an empty label; write it as labels with one dot between them, the root as "."
              |
            3 | include-domains = ["*.a.test", "a..test", "münchen.de"]
              |                                ^^^^^^^^^

            dns64d.toml:3:43: include-domains "münchen.de" has letters that are not ASCII; write their labels as xn--...
              |
            3 | include-domains = ["*.a.test", "a..test", "münchen.de"]
              |                                           ^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn keys_without_effect_are_refused() {
    refused_beside_upstream(
        &[
            r#"[dns64]
ptr = "local""#,
            r#"[dns64]
ptr-name = "nat64.test""#,
        ],
        expect![[r#"
            dns64d.toml:3:7: ptr = "local" needs a name; add ptr-name = "nat64.example"
              |
            3 | ptr = "local"
              |       ^^^^^^^
            ---
            dns64d.toml:3:12: ptr-name has no effect unless ptr = "local"; add that, or remove this key
              |
            3 | ptr-name = "nat64.test"
              |            ^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn views_without_clients_or_reachability_are_refused() {
    refused_beside_upstream(
        &[
            r#"[[view]]
dns64 = { enabled = false }"#,
            r#"[[view]]
clients = []"#,
            r#"[[view]]
clients = ["10.0.0.0/8"]
[[view]]
clients = ["10.1.0.0/16"]"#,
            r#"[view]
clients = ["10.0.0.0/8"]"#,
        ],
        expect![[r#"
            dns64d.toml:2:1: this view has no clients; add clients = ["2001:db8::/32"]
              |
            2 | [[view]]
              | ^^^^^^^^
            ---
            dns64d.toml:3:11: clients is empty; write at least one, like ["2001:db8::/32", "10.0.0.0/8"]
              |
            3 | clients = []
              |           ^^
            ---
            dns64d.toml:5:12: clients 10.1.0.0/16 are already in 10.0.0.0/8 of an earlier view; move this view before that one, or remove the network
              |
            5 | clients = ["10.1.0.0/16"]
              |            ^^^^^^^^^^^^^
            ---
            dns64d.toml:2:1: view is a table where a list is expected; write it like [[view]] with clients = ["2001:db8::/32"] below
              |
            2 | [view]
              | ^^^^^^
        "#]],
    );
}

#[test]
fn well_known_prefix_of_another_length_is_refused() {
    refused_beside_upstream(
        &[
            "[dns64]\nprefix = \"64:ff9b::/64\"",
            "[dns64]\nprefix = \"64:ff9b::/32\"",
        ],
        expect![[r#"
            dns64d.toml:3:10: prefix "64:ff9b::/64" contains the well-known prefix, which has length 96 only (RFC 6052 section 2.1); write "64:ff9b::/96", or use a prefix of your own, or one of 64:ff9b:1::/48 (RFC 8215)
              |
            3 | prefix = "64:ff9b::/64"
              |          ^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix "64:ff9b::/32" contains the well-known prefix, which has length 96 only (RFC 6052 section 2.1); write "64:ff9b::/96", or use a prefix of your own, or one of 64:ff9b:1::/48 (RFC 8215)
              |
            3 | prefix = "64:ff9b::/32"
              |          ^^^^^^^^^^^^^^
        "#]],
    );
}
