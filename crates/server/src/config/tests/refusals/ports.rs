//! Local ports and addresses.

use expect_test::expect;

use super::{refused, refused_beside_upstream};

#[test]
fn ports_to_avoid_are_refused_with_what_is_left() {
    refused_beside_upstream(
        &[
            r#"upstream.avoid-ports = 5353"#,
            r#"upstream.avoid-ports = [0]"#,
            r#"upstream.avoid-ports = ["53a"]"#,
            r#"upstream.avoid-ports = ["6100-6000"]"#,
            r#"upstream.avoid-ports = ["1024-20000", "40000-65535"]"#,
        ],
        expect![[r#"
            dns64d.toml:2:24: avoid-ports is a whole number where a list is expected; write it like [5353, "6000-6100"]
              |
            2 | upstream.avoid-ports = 5353
              |                        ^^^^
            ---
            dns64d.toml:2:25: avoid-ports 0 is below 1: must be 1 to 65535
              |
            2 | upstream.avoid-ports = [0]
              |                         ^
            ---
            dns64d.toml:2:25: avoid-ports "53a" is not a range of ports; write it like "6000-6100"
              |
            2 | upstream.avoid-ports = ["53a"]
              |                         ^^^^^
            ---
            dns64d.toml:2:25: avoid-ports "6100-6000" is not a range of ports; write it like "6000-6100"
              |
            2 | upstream.avoid-ports = ["6100-6000"]
              |                         ^^^^^^^^^^^
            ---
            dns64d.toml:2:24: avoid-ports leaves 19999 ports above 1023: must leave 32768; list fewer
              |
            2 | upstream.avoid-ports = ["1024-20000", "40000-65535"]
              |                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn sources_are_refused_with_their_remedy() {
    refused(
        &[
            r#"upstream = { servers = ["192.0.2.1"], source = "192.0.2.7:53" }"#,
            r#"upstream = { servers = ["192.0.2.1"], source = ["::"] }"#,
            r#"upstream = { servers = [{ address = "192.0.2.1", source = "2001:db8::7" }] }"#,
            r#"upstream = { servers = ["192.0.2.1"], interface = "a/b" }"#,
            r#"upstream = { servers = [{ address = "192.0.2.1", tls = "opportunistic" }, { address = "192.0.2.1:54", tls = "opportunistic", interface = "eth0" }] }"#,
        ],
        expect![[r#"
            dns64d.toml:1:48: source "192.0.2.7:53" is not an address of an interface; write one like "192.0.2.1", without a port
              |
            1 | upstream = { servers = ["192.0.2.1"], source = "192.0.2.7:53" }
              |                                                ^^^^^^^^^^^^^^
            ---
            dns64d.toml:1:49: source "::" is not an address of an interface; write one like "192.0.2.1", without a port
              |
            1 | upstream = { servers = ["192.0.2.1"], source = ["::"] }
              |                                                 ^^^^
            ---
            dns64d.toml:1:59: source has no address of the family of this server; add one, or remove this key
              |
            1 | upstream = { servers = [{ address = "192.0.2.1", source = "2001:db8::7" }] }
              |                                                           ^^^^^^^^^^^^^
            ---
            dns64d.toml:1:51: interface "a/b" is not the name of an interface; `ip link` lists those of this host
              |
            1 | upstream = { servers = ["192.0.2.1"], interface = "a/b" }
              |                                                   ^^^^^
            ---
            dns64d.toml:1:75: 192.0.2.1:54 has the sessions of 192.0.2.1:53, at 192.0.2.1:853, but another source or interface; write the same ones in both
              |
            1 | upstream = { servers = [{ address = "192.0.2.1", tls = "opportunistic" }, { address = "192.0.2.1:54", tls = "opportunistic", interface = "eth0" }] }
              |                                                                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}
