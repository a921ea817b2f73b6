//! All other refusals: syntax, keys, values and upstreams.

use expect_test::expect;

use super::{refused, refused_beside_upstream};

#[test]
fn unknown_keys_suggest_known_ones() {
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
            dns64d.toml:3:1: unknown key "prefx" in [dns64]; did you mean prefix?
              |
            3 | prefx = "64:ff9b::/96"
              | ^^^^^
            ---
            dns64d.toml:3:1: unknown key "exclude_aaaa" in [dns64]; did you mean exclude-aaaa?
              |
            3 | exclude_aaaa = []
              | ^^^^^^^^^^^^
            ---
            dns64d.toml:3:1: unknown key "frobnicate" in [tcp]; its keys are connections, connections-per-client, idle and pipeline
              |
            3 | frobnicate = 1
              | ^^^^^^^^^^
            ---
            dns64d.toml:4:1: unknown key "prefix" in [[view]]; write it under [view.dns64]
              |
            4 | prefix = "64:ff9b::/96"
              | ^^^^^^
            ---
            dns64d.toml:2:1: unknown key "selection" at the top level; write it under [upstream]
              |
            2 | selection = "random"
              | ^^^^^^^^^
            ---
            dns64d.toml:3:1: unknown key "udp-size" in [cache]; write it at the top of the file, before the first table
              |
            3 | udp-size = 512
              | ^^^^^^^^
        "#]],
    );
}

#[test]
fn unknown_words_are_refused() {
    refused_beside_upstream(
        &[
            r#"any = "minimum""#,
            r#"[log]
target = "file"
level = 3"#,
        ],
        expect![[r#"
            dns64d.toml:2:7: any "minimum" is not one of minimal, forward and refuse; did you mean "minimal"?
              |
            2 | any = "minimum"
              |       ^^^^^^^^^
            ---
            dns64d.toml:3:10: target "file" is not one of stderr, journald and syslog; use one of these
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
fn durations_without_units_or_outside_bounds_are_refused() {
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
            dns64d.toml:3:8: idle "10 parsecs" has the unit "parsecs", which is not one of d, h, m, s and ms; write it like "800ms", "2s" or "1h"
              |
            3 | idle = "10 parsecs"
              |        ^^^^^^^^^^^^
            ---
            dns64d.toml:3:8: idle "1h" is above 10m: must be 1s to 10m
              |
            3 | idle = "1h"
              |        ^^^^
            ---
            dns64d.toml:3:8: idle "1ms" is below 1s: must be 1s to 10m
              |
            3 | idle = "1ms"
              |        ^^^^^
        "#]],
    );
}

#[test]
fn ttls_must_be_whole_seconds_and_in_order() {
    refused_beside_upstream(
        &[
            r#"[cache]
max-ttl = "8d"
min-ttl = "1500ms"
serve-stale = 1.5"#,
            r#"[cache]
min-ttl = "1h"
max-ttl = "1m""#,
        ],
        expect![[r#"
            dns64d.toml:3:11: max-ttl "8d" is above 7d: must be 1s to 7d
              |
            3 | max-ttl = "8d"
              |           ^^^^

            dns64d.toml:4:11: min-ttl "1500ms" is not a whole number of seconds; write it like "30s" or "1h"
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
fn sizes_without_units_or_outside_bounds_are_refused() {
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
            dns64d.toml:3:8: size "256MB" has the unit "MB", which is not one of GiB, MiB and KiB; write it like "64MiB" or "1GiB"
              |
            3 | size = "256MB"
              |        ^^^^^^^
            ---
            dns64d.toml:3:8: size "1KiB" is below 1MiB: must be 1MiB to 1024GiB
              |
            3 | size = "1KiB"
              |        ^^^^^^
            ---
            dns64d.toml:3:8: size "lots" is not a size; write it like "64MiB" or "1GiB"
              |
            3 | size = "lots"
              |        ^^^^^^
        "#]],
    );
}

#[test]
fn numbers_outside_bounds_are_refused() {
    refused_beside_upstream(
        &[
            r#"udp-size = 511"#,
            r#"udp-size = 4097"#,
            r#"udp-size = -1"#,
            r#"udp-size = "1232""#,
            r#"udp-size = 0xffffffffffffffffffffffffffffffffffff"#,
        ],
        expect![[r#"
            dns64d.toml:2:12: udp-size 511 is below 512: must be 512 to 4096
              |
            2 | udp-size = 511
              |            ^^^
            ---
            dns64d.toml:2:12: udp-size 4097 is above 4096: must be 512 to 4096
              |
            2 | udp-size = 4097
              |            ^^^^
            ---
            dns64d.toml:2:12: udp-size -1 is below 512: must be 512 to 4096
              |
            2 | udp-size = -1
              |            ^^
            ---
            dns64d.toml:2:12: udp-size is a text where a whole number is expected; write it like 512, without quotes
              |
            2 | udp-size = "1232"
              |            ^^^^^^
            ---
            dns64d.toml:2:12: udp-size 0xffffffffffffffffffffffffffffffffffff is above 4096: must be 512 to 4096
              |
            2 | udp-size = 0xffffffffffffffffffffffffffffffffffff
              |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn counts_outside_bounds_and_unknown_words_are_refused() {
    refused_beside_upstream(
        &[
            r#"workers = 0"#,
            r#"workers = "two""#,
            r#"queries-max = 1.5"#,
            r#"[rate-limit]
responses-per-second = 0"#,
            r#"[rate-limit]
burst = 10"#,
        ],
        expect![[r#"
            dns64d.toml:2:11: workers 0 is below 1: must be 1 to 1024
              |
            2 | workers = 0
              |           ^
            ---
            dns64d.toml:2:11: workers "two" is not a number; write "auto", or a number without quotes
              |
            2 | workers = "two"
              |           ^^^^^
            ---
            dns64d.toml:2:15: queries-max is a decimal number where a whole number is expected; write it like 1, without quotes
              |
            2 | queries-max = 1.5
              |               ^^^
            ---
            dns64d.toml:3:24: responses-per-second 0 allows no responses; write "off" for no limit
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
fn unusable_paths_and_users_are_refused() {
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
            dns64d.toml:2:8: user "" is not a user of this system; write a name from /etc/passwd
              |
            2 | user = ""
              |        ^^
            ---
            dns64d.toml:3:10: socket "control.sock" is not an absolute path; write it like "/run/dns64d/control.sock"
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
fn repeated_listen_addresses_are_refused() {
    refused_beside_upstream(
        &[
            r#"listen = ["[::]:53", "[::]"]"#,
            r#"listen = "[::]:53""#,
            r#"listen = ["eth0", 53]"#,
        ],
        expect![[r#"
            dns64d.toml:2:22: listen has [::]:53 twice; remove one
              |
            2 | listen = ["[::]:53", "[::]"]
              |                      ^^^^^^
            ---
            dns64d.toml:2:10: listen is a text where a list is expected; write it like ["[::]:53"]
              |
            2 | listen = "[::]:53"
              |          ^^^^^^^^^
            ---
            dns64d.toml:2:11: listen "eth0" is not an address; write it like "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353"
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
fn missing_upstream_is_refused() {
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
fn upstream_must_be_one_server_and_not_this_server() {
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
            r#"listen = ["127.0.0.1"]
[upstream]
servers = ["[::ffff:127.0.0.1]:53"]"#,
        ],
        expect![[r#"
            dns64d.toml:2:12: servers "192.0.2.1:0" has a port that cannot be used; it is a number from 1 to 65535
              |
            2 | servers = ["192.0.2.1:0", "0.0.0.0", "dns.example"]
              |            ^^^^^^^^^^^^^

            dns64d.toml:2:27: servers "0.0.0.0" is not the address of one server; write that of a recursive resolver
              |
            2 | servers = ["192.0.2.1:0", "0.0.0.0", "dns.example"]
              |                           ^^^^^^^^^

            dns64d.toml:2:38: servers "dns.example" is not an address; write it like "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353"
              |
            2 | servers = ["192.0.2.1:0", "0.0.0.0", "dns.example"]
              |                                      ^^^^^^^^^^^^^
            ---
            dns64d.toml:2:25: servers has 192.0.2.1:53 twice; remove one
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
            ---
            dns64d.toml:3:12: upstream 127.0.0.1:53 is this server itself, which listens at 127.0.0.1:53; name another server, or listen at other addresses or another port
              |
            3 | servers = ["[::ffff:127.0.0.1]:53"]
              |            ^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn address_needs_a_valid_port() {
    refused(
        &[r#"listen = ["127.0.0.1:0"]
[upstream]
servers = ["[fe80::1%7]:53", "192.0.2.1@65536"]"#],
        expect![[r#"
            dns64d.toml:1:11: listen "127.0.0.1:0" has a port that cannot be used; it is a number from 1 to 65535
              |
            1 | listen = ["127.0.0.1:0"]
              |           ^^^^^^^^^^^^^

            dns64d.toml:3:30: servers "192.0.2.1@65536" has a port that cannot be used; it is a number from 1 to 65535
              |
            3 | servers = ["[fe80::1%7]:53", "192.0.2.1@65536"]
              |                              ^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn invalid_timeout_and_attempts_of_an_upstream_are_refused() {
    refused(
        &[
            r#"[upstream]
servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]"#,
            r#"[upstream]
servers = ["192.0.2.1"]
timeout = "4501ms"
attempts = 300
selection = "fast"
delay = "50ms""#,
        ],
        expect![[r#"
            dns64d.toml:2:47: timeout "1ms" is below 10ms: must be 10ms to 4500ms
              |
            2 | servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]
              |                                               ^^^^^

            dns64d.toml:2:65: attempts 0 is below 1: must be 1 to 10
              |
            2 | servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]
              |                                                                 ^

            dns64d.toml:2:70: this server has no address; add address = "192.0.2.53"
              |
            2 | servers = [{ address = "192.0.2.1", timeout = "1ms", attempts = 0 }, { timeout = "1s" }]
              |                                                                      ^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:3:11: timeout "4501ms" is above 4500ms: must be 10ms to 4500ms
              |
            3 | timeout = "4501ms"
              |           ^^^^^^^^

            dns64d.toml:4:12: attempts 300 is above 10: must be 1 to 10
              |
            4 | attempts = 300
              |            ^^^

            dns64d.toml:5:13: selection "fast" is not one of fastest, round-robin, random and failover; did you mean "fastest"?
              |
            5 | selection = "fast"
              |             ^^^^^^

            dns64d.toml:6:9: delay has no effect unless order = "delayed"; add that, or remove this key
              |
            6 | delay = "50ms"
              |         ^^^^^^
        "#]],
    );
}

#[test]
fn invalid_toml_is_shown() {
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
            dns64d.toml:2:10: not valid TOML: invalid time, expected minute; put texts into quotes, and close each quote and bracket
              |
            2 | prefix = 64:ff9b::/96
              |          ^^^^^^^^^^^^
            ---
            dns64d.toml:1:20: not valid TOML: unclosed array, expected `]`; put texts into quotes, and close each quote and bracket
              |
            1 | listen = ["[::]:53"
              |                    ^
            ---
            dns64d.toml:2:1: not valid TOML: duplicate key; leave one of them out
              |
            2 | workers = 2
              | ^^^^^^^
            ---
            dns64d.toml:1:1: not valid TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`; put texts into quotes, and close each quote and bracket
              |
            1 | = 1
              | ^
            ---
            dns64d.toml:1:10: not valid TOML: unclosed table, expected `]`; put texts into quotes, and close each quote and bracket
              |
            1 | [upstream
              |          ^
            ---
            dns64d.toml:1:6: not valid TOML: invalid basic string, expected non-double-quote visible characters, `\`; put texts into quotes, and close each quote and bracket
              |
            1 | a = "�"
              |      ^
        "#]],
    );
}

#[test]
fn more_connections_per_client_than_in_total_are_refused() {
    refused_beside_upstream(
        &["[tcp]\nconnections = 8\nconnections-per-client = 9"],
        expect![[r#"
            dns64d.toml:4:26: connections-per-client 9 is above 8: must be 1 to 8
              |
            4 | connections-per-client = 9
              |                          ^
        "#]],
    );
}
