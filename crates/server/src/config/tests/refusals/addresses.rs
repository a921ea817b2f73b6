//! Ambiguous addresses.

use expect_test::expect;

use super::refused_beside_upstream;

#[test]
fn ipv6_addresses_that_seem_to_have_a_port_need_brackets() {
    refused_beside_upstream(
        &[
            r#"listen = ["::1:53"]"#,
            r#"listen = ["2001:db8::1:53"]"#,
            r#"listen = ["::1:5353"]"#,
            r#"metrics.listen = "fd00::1:9164""#,
        ],
        expect![[r#"
            dns64d.toml:2:11: listen "::1:53" has no brackets; write "[::1]:53" for port 53 of ::1, or "[::1:53]" for the address ::1:53
              |
            2 | listen = ["::1:53"]
              |           ^^^^^^^^
            ---
            dns64d.toml:2:11: listen "2001:db8::1:53" has no brackets; write "[2001:db8::1]:53" for port 53 of 2001:db8::1, or "[2001:db8::1:53]" for the address 2001:db8::1:53
              |
            2 | listen = ["2001:db8::1:53"]
              |           ^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:11: listen "::1:5353" has no brackets; write "[::1]:5353" for port 5353 of ::1, or "[::1:5353]" for the address ::1:5353
              |
            2 | listen = ["::1:5353"]
              |           ^^^^^^^^^^
            ---
            dns64d.toml:2:18: listen "fd00::1:9164" has no brackets; write "[fd00::1]:9164" for port 9164 of fd00::1, or "[fd00::1:9164]" for the address fd00::1:9164
              |
            2 | metrics.listen = "fd00::1:9164"
              |                  ^^^^^^^^^^^^^^
        "#]],
    );
}
