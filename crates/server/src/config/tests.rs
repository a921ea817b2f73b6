//! Every refusal with its text, and what a configuration comes to.

use std::net::IpAddr;

use dns64_transport::clock::SECOND;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::settings::dns64::{DomainAction, Ptr};
use crate::settings::{LookupOrder, RateLimit, Selection, UPSTREAMS_MAX};

/// What is said to a text.
fn refusal(text: &str) -> String {
    parse(text, "dns64d.toml").map_or_else(|e| e.to_string(), |_| "accepted".to_owned())
}

/// What is said to each text in turn.
fn refused(texts: &[&str], expected: Expect) {
    let refusals: Vec<String> = texts.iter().map(|text| refusal(text)).collect();
    expected.assert_eq(&(refusals.join("\n---\n") + "\n"));
}

/// As [`refused`], with an upstream before each text that has none.
fn refused_beside_upstream(texts: &[&str], expected: Expect) {
    let whole: Vec<String> = texts.iter().map(|text| beside_upstream(text)).collect();
    let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
    refused(&whole, expected);
}

/// A text with an upstream before its first line, which a dotted key allows anywhere.
fn beside_upstream(text: &str) -> String {
    format!("upstream.servers = [\"192.0.2.53\"]\n{text}")
}

fn accepted(text: &str) -> Settings {
    match parse(text, "dns64d.toml") {
        Ok(settings) => settings,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_prefix_is_one_of_six_lengths_without_stray_bits() {
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
            dns64d.toml:3:10: prefix prefix length 80 is none of 32, 40, 48, 56, 64 and 96; use one of these
              |
            3 | prefix = "2001:db8::/80"
              |          ^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:10: prefix 2001:db8:0:0:ff00::/96 has bits set among bits 64 to 71, which RFC 6052 reserves; 2001:db8::/96 would do
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
fn networks_have_no_host_bits_and_the_right_family() {
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

            dns64d.toml:2:24: allow "2001:db8::/129" is no network; write it like "10.0.0.0/8" or "2001:db8::/32"
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
fn ranges_of_the_map_do_not_overlap() {
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
            dns64d.toml:5:3: 10.1.0.0/16 of map overlaps 10.0.0.0/8; leave one out, or split the larger one around the smaller
              |
            5 |   { ipv4 = "10.1.0.0/16", prefix = "2001:db8::/96" },
              |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:6:3: 10.1.0.0/16 of map overlaps 10.0.0.0/8; leave one out, or split the larger one around the smaller
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
fn a_domain_has_one_rule() {
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
            dns64d.toml:3:30: exclude-domains has A.test. twice; leave one out
              |
            3 | exclude-domains = ["a.test", "A.test."]
              |                              ^^^^^^^^^

            dns64d.toml:4:28: force-domains has a.test. as well as exclude-domains; leave one out
              |
            4 | force-domains = ["b.test", "a.test"]
              |                            ^^^^^^^^
            ---
            dns64d.toml:4:20: a.test. has a prefix here, but exclude-domains makes none for it; leave one out
              |
            4 | domain-prefixes = [{ domain = "a.test", prefix = "2001:db8::/96" }]
              |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:50: prefix "none" is said of a domain by exclude-domains; name it there
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
fn unknown_keys_lead_to_known_ones() {
    refused_beside_upstream(
        &[
            r#"[dns64]
prefx = "64:ff9b::/96""#,
            r#"[dns64]
exclude_aaaa = []"#,
            r#"[tcp]
frobnicate = 1"#,
            r#"[[view]]
clients = ["10.0.0.0/8"]
prefix = "64:ff9b::/96""#,
            r#"selection = "random""#,
            r#"[cache]
udp-size = 512"#,
        ],
        expect![[r#"
            dns64d.toml:3:1: "prefx" is no key of [dns64]; did you mean prefix?
              |
            3 | prefx = "64:ff9b::/96"
              | ^^^^^
            ---
            dns64d.toml:3:1: "exclude_aaaa" is no key of [dns64]; did you mean exclude-aaaa?
              |
            3 | exclude_aaaa = []
              | ^^^^^^^^^^^^
            ---
            dns64d.toml:3:1: "frobnicate" is no key of [tcp]; its keys are connections, idle and pipeline
              |
            3 | frobnicate = 1
              | ^^^^^^^^^^
            ---
            dns64d.toml:4:1: "prefix" is no key of [[view]]; write it under [view.dns64]
              |
            4 | prefix = "64:ff9b::/96"
              | ^^^^^^
            ---
            dns64d.toml:2:1: "selection" is no key of the top of the file; write it under [upstream]
              |
            2 | selection = "random"
              | ^^^^^^^^^
            ---
            dns64d.toml:3:1: "udp-size" is no key of [cache]; write it at the top of the file, before the first table
              |
            3 | udp-size = 512
              | ^^^^^^^^
        "#]],
    );
}

#[test]
fn words_are_those_that_are_known() {
    refused_beside_upstream(
        &[
            r#"any = "minimum""#,
            r#"[log]
target = "file"
level = 3"#,
        ],
        expect![[r#"
            dns64d.toml:2:7: any "minimum" is none of minimal, forward and refuse; did you mean "minimal"?
              |
            2 | any = "minimum"
              |       ^^^^^^^^^
            ---
            dns64d.toml:3:10: target "file" is none of stderr, journald and syslog; use one of these
              |
            3 | target = "file"
              |          ^^^^^^

            dns64d.toml:4:9: level is a whole number where a text is expected; write it like "info"
              |
            4 | level = 3
              |         ^
        "#]],
    );
}

#[test]
fn times_have_units_and_bounds() {
    refused_beside_upstream(
        &[
            r#"[tcp]
idle = 10"#,
            r#"[tcp]
idle = "10""#,
            r#"[tcp]
idle = "10 parsecs""#,
            r#"[tcp]
idle = "1h""#,
            r#"[tcp]
idle = "1ms""#,
            r#"[cache]
max-ttl = "8d"
min-ttl = "1500ms"
serve-stale = 1.5"#,
            r#"[cache]
min-ttl = "1h"
max-ttl = "1m""#,
        ],
        expect![[r#"
            dns64d.toml:3:8: idle 10 has no unit; write it like "800ms", "2s" or "1h"
              |
            3 | idle = 10
              |        ^^
            ---
            dns64d.toml:3:8: idle "10" has no unit; add one of d, h, m, s and ms, like "800ms", "2s" or "1h"
              |
            3 | idle = "10"
              |        ^^^^
            ---
            dns64d.toml:3:8: idle "10 parsecs" has the unit "parsecs", which is none of d, h, m, s and ms; write it like "800ms", "2s" or "1h"
              |
            3 | idle = "10 parsecs"
              |        ^^^^^^^^^^^^
            ---
            dns64d.toml:3:8: idle "1h" is above 10m; take something from 1s to 10m
              |
            3 | idle = "1h"
              |        ^^^^
            ---
            dns64d.toml:3:8: idle "1ms" is below 1s; take something from 1s to 10m
              |
            3 | idle = "1ms"
              |        ^^^^^
            ---
            dns64d.toml:3:11: max-ttl "8d" is above 7d; take something from 1s to 7d
              |
            3 | max-ttl = "8d"
              |           ^^^^

            dns64d.toml:4:11: min-ttl "1500ms" is no whole number of seconds; write it like "30s" or "1h"
              |
            4 | min-ttl = "1500ms"
              |           ^^^^^^^^

            dns64d.toml:5:15: serve-stale 1.5 has no unit; write it like "30s" or "1h"
              |
            5 | serve-stale = 1.5
              |               ^^^
            ---
            dns64d.toml:3:11: min-ttl of 3600 s is above max-ttl of 60 s; lower it
              |
            3 | min-ttl = "1h"
              |           ^^^^
        "#]],
    );
}

#[test]
fn sizes_have_units_and_bounds() {
    refused_beside_upstream(
        &[
            r#"[cache]
size = 256"#,
            r#"[cache]
size = "256MB""#,
            r#"[cache]
size = "1KiB""#,
            r#"[cache]
size = "lots""#,
        ],
        expect![[r#"
            dns64d.toml:3:8: size 256 has no unit; write it like "256MiB", or "off"
              |
            3 | size = 256
              |        ^^^
            ---
            dns64d.toml:3:8: size "256MB" has the unit "MB", which is none of GiB, MiB and KiB; write it like "64MiB" or "1GiB"
              |
            3 | size = "256MB"
              |        ^^^^^^^
            ---
            dns64d.toml:3:8: size "1KiB" is below 1MiB; take something from 1MiB to 1024GiB
              |
            3 | size = "1KiB"
              |        ^^^^^^
            ---
            dns64d.toml:3:8: size "lots" is no size; write it like "64MiB" or "1GiB"
              |
            3 | size = "lots"
              |        ^^^^^^
        "#]],
    );
}

#[test]
fn numbers_have_bounds() {
    refused_beside_upstream(
        &[
            r#"udp-size = 511"#,
            r#"udp-size = 4097"#,
            r#"udp-size = -1"#,
            r#"udp-size = "1232""#,
            r#"udp-size = 0xffffffffffffffffffffffffffffffffffff"#,
            r#"workers = 0"#,
            r#"workers = "two""#,
            r#"queries-max = 1.5"#,
            r#"[rate-limit]
responses-per-second = 0"#,
            r#"[rate-limit]
burst = 10"#,
        ],
        expect![[r#"
            dns64d.toml:2:12: udp-size 511 is below 512; take something from 512 to 4096
              |
            2 | udp-size = 511
              |            ^^^
            ---
            dns64d.toml:2:12: udp-size 4097 is above 4096; take something from 512 to 4096
              |
            2 | udp-size = 4097
              |            ^^^^
            ---
            dns64d.toml:2:12: udp-size -1 is below 512; take something from 512 to 4096
              |
            2 | udp-size = -1
              |            ^^
            ---
            dns64d.toml:2:12: udp-size is a text where a whole number is expected; write it like 512, without quotes
              |
            2 | udp-size = "1232"
              |            ^^^^^^
            ---
            dns64d.toml:2:12: udp-size 0xffffffffffffffffffffffffffffffffffff is above 4096; take something from 512 to 4096
              |
            2 | udp-size = 0xffffffffffffffffffffffffffffffffffff
              |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:11: workers 0 is below 1; take something from 1 to 1024
              |
            2 | workers = 0
              |           ^
            ---
            dns64d.toml:2:11: workers "two" is no number; write "auto", or a number without quotes
              |
            2 | workers = "two"
              |           ^^^^^
            ---
            dns64d.toml:2:15: queries-max is a decimal number where a whole number is expected; write it like 1, without quotes
              |
            2 | queries-max = 1.5
              |               ^^^
            ---
            dns64d.toml:3:24: responses-per-second 0 would answer nobody; write "off" for no limit
              |
            3 | responses-per-second = 0
              |                        ^
            ---
            dns64d.toml:2:1: [rate-limit] has no rate; add responses-per-second = 100, or "off"
              |
            2 | [rate-limit]
              | ^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn what_has_no_effect_alone_is_refused() {
    refused_beside_upstream(
        &[
            r#"[dns64]
ptr = "local""#,
            r#"[dns64]
ptr-name = "nat64.test""#,
        ],
        expect![[r#"
            dns64d.toml:3:7: ptr "local" has no name to answer with; add ptr-name = "nat64.example"
              |
            3 | ptr = "local"
              |       ^^^^^^^
            ---
            dns64d.toml:3:12: ptr-name has no effect unless ptr = "local"; add that, or leave it out
              |
            3 | ptr-name = "nat64.test"
              |            ^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn views_have_clients_and_can_be_reached() {
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
            dns64d.toml:5:12: clients 10.1.0.0/16 are within 10.0.0.0/8 of an earlier view, which takes them; put this view before that one, or leave the network out
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
fn paths_and_users_are_usable() {
    refused_beside_upstream(
        &[
            r#"user = """#,
            r#"[control]
socket = "control.sock""#,
            r#"[metrics]
listen = true"#,
            r#"[cache]
prefetch = "yes""#,
        ],
        expect![[r#"
            dns64d.toml:2:8: user "" is no name of a user; write one of /etc/passwd
              |
            2 | user = ""
              |        ^^
            ---
            dns64d.toml:3:10: socket "control.sock" is no absolute path; write it like "/run/dns64d/control.sock"
              |
            3 | socket = "control.sock"
              |          ^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:10: listen is true or false where a text is expected; write it like "127.0.0.1:9164" or "off"
              |
            3 | listen = true
              |          ^^^^
            ---
            dns64d.toml:3:12: prefetch is a text where true or false is expected; write it like true, without quotes
              |
            3 | prefetch = "yes"
              |            ^^^^^
        "#]],
    );
}

#[test]
fn listen_addresses_are_given_once() {
    refused_beside_upstream(
        &[
            r#"listen = ["[::]:53", "[::]"]"#,
            r#"listen = "[::]:53""#,
            r#"listen = ["eth0", 53]"#,
        ],
        expect![[r#"
            dns64d.toml:2:22: listen has [::]:53 twice; leave one out
              |
            2 | listen = ["[::]:53", "[::]"]
              |                      ^^^^^^
            ---
            dns64d.toml:2:10: listen is a text where a list is expected; write it like ["[::]:53"]
              |
            2 | listen = "[::]:53"
              |          ^^^^^^^^^
            ---
            dns64d.toml:2:11: listen "eth0" is no address; write it like "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353"
              |
            2 | listen = ["eth0", 53]
              |           ^^^^^^

            dns64d.toml:2:19: listen is a whole number where a text is expected; write it like "[::]:53"
              |
            2 | listen = ["eth0", 53]
              |                   ^^
        "#]],
    );
}

#[test]
fn some_upstream_is_given() {
    refused(
        &[
            r#"listen = ["[::]:53"]
"#,
            r#"[upstream]
selection = "random""#,
            r#"[upstream]
servers = []"#,
            r#"upstream = "192.0.2.1""#,
        ],
        expect![[r#"
            dns64d.toml:2:1: no upstream is given; add [upstream] and below it servers = ["192.0.2.53"]
              |
            2 | 
              | ^
            ---
            dns64d.toml:1:1: [upstream] names no servers; add servers = ["192.0.2.53"]
              |
            1 | [upstream]
              | ^^^^^^^^^^
            ---
            dns64d.toml:2:11: servers is empty; write at least one, like ["192.0.2.53"]
              |
            2 | servers = []
              |           ^^
            ---
            dns64d.toml:1:12: upstream is a text where a table is expected; write it like [upstream] with lines like `key = value` below
              |
            1 | upstream = "192.0.2.1"
              |            ^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn an_upstream_is_one_server_and_not_this_one() {
    refused(
        &[
            r#"[upstream]
servers = ["192.0.2.1:0", "0.0.0.0", "dns.example"]"#,
            r#"[upstream]
servers = ["192.0.2.1", "192.0.2.1:53"]"#,
            r#"[upstream]
servers = ["127.0.0.1"]"#,
            r#"listen = ["192.0.2.1:5353"]
[upstream]
servers = ["192.0.2.1:5353"]"#,
        ],
        expect![[r#"
            dns64d.toml:2:12: servers "192.0.2.1:0" has port 0, at which nobody can be asked; leave the port out for 53
              |
            2 | servers = ["192.0.2.1:0", "0.0.0.0", "dns.example"]
              |            ^^^^^^^^^^^^^

            dns64d.toml:2:27: servers "0.0.0.0" is not the address of one server; write that of a recursive resolver
              |
            2 | servers = ["192.0.2.1:0", "0.0.0.0", "dns.example"]
              |                           ^^^^^^^^^

            dns64d.toml:2:38: servers "dns.example" is no address; write it like "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353"
              |
            2 | servers = ["192.0.2.1:0", "0.0.0.0", "dns.example"]
              |                                      ^^^^^^^^^^^^^
            ---
            dns64d.toml:2:25: servers has 192.0.2.1:53 twice; leave one out
              |
            2 | servers = ["192.0.2.1", "192.0.2.1:53"]
              |                         ^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:12: upstream 127.0.0.1:53 is this server itself, which listens at 0.0.0.0:53; name another server, or listen at other addresses or another port
              |
            2 | servers = ["127.0.0.1"]
              |            ^^^^^^^^^^^
            ---
            dns64d.toml:3:12: upstream 192.0.2.1:5353 is this server itself, which listens at 192.0.2.1:5353; name another server, or listen at other addresses or another port
              |
            3 | servers = ["192.0.2.1:5353"]
              |            ^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn an_upstream_has_a_time_and_a_number_of_attempts() {
    refused(
        &[
            r#"[upstream]
servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]"#,
            r#"[upstream]
servers = ["192.0.2.1"]
timeout = "31s"
attempts = 300
selection = "fast"
delay = "50ms""#,
        ],
        expect![[r#"
            dns64d.toml:2:47: timeout "1ms" is below 10ms; take something from 10ms to 30s
              |
            2 | servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]
              |                                               ^^^^^

            dns64d.toml:2:65: attempts 0 is below 1; take something from 1 to 10
              |
            2 | servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]
              |                                                                 ^

            dns64d.toml:2:70: this server has no address; add address = "192.0.2.53"
              |
            2 | servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]
              |                                                                      ^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:11: timeout "31s" is above 30s; take something from 10ms to 30s
              |
            3 | timeout = "31s"
              |           ^^^^^

            dns64d.toml:4:12: attempts 300 is above 10; take something from 1 to 10
              |
            4 | attempts = 300
              |            ^^^

            dns64d.toml:5:13: selection "fast" is none of fastest, round-robin, random and failover; use one of these
              |
            5 | selection = "fast"
              |             ^^^^^^

            dns64d.toml:6:9: delay has no effect unless order = "delayed"; add that, or leave it out
              |
            6 | delay = "50ms"
              |         ^^^^^^
        "#]],
    );
}

#[test]
fn what_is_no_toml_is_shown() {
    refused(
        &[
            r#"[dns64]
prefix = 64:ff9b::/96"#,
            r#"listen = ["[::]:53""#,
            r#"workers = 1
workers = 2"#,
            r#"= 1"#,
            r#"[upstream
"#,
            "a = \"\u{1}\"\n",
        ],
        expect![[r#"
            dns64d.toml:2:10: no TOML: invalid time, expected minute; texts stand in quotes, lists in brackets, and each key once on its line
              |
            2 | prefix = 64:ff9b::/96
              |          ^^^^^^^^^^^^
            ---
            dns64d.toml:1:20: no TOML: unclosed array, expected `]`; texts stand in quotes, lists in brackets, and each key once on its line
              |
            1 | listen = ["[::]:53"
              |                    ^
            ---
            dns64d.toml:2:1: no TOML: duplicate key; texts stand in quotes, lists in brackets, and each key once on its line
              |
            2 | workers = 2
              | ^^^^^^^
            ---
            dns64d.toml:1:1: no TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`; texts stand in quotes, lists in brackets, and each key once on its line
              |
            1 | = 1
              | ^
            ---
            dns64d.toml:1:10: no TOML: unclosed table, expected `]`; texts stand in quotes, lists in brackets, and each key once on its line
              |
            1 | [upstream
              |          ^
            ---
            dns64d.toml:1:6: no TOML: invalid basic string, expected non-double-quote visible characters, `\`; texts stand in quotes, lists in brackets, and each key once on its line
              |
            1 | a = "�"
              |      ^
        "#]],
    );
}
