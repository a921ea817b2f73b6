//! Lists of ports.

use expect_test::expect;

use super::refused_beside_upstream;

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
