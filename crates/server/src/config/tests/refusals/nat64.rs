//! Probes of translators, and what the server says of itself.

use expect_test::expect;

use super::refused_beside_upstream;

#[test]
fn hosts_that_cannot_be_probed_are_refused() {
    refused_beside_upstream(
        &[
            r#"[nat64-health]
hosts = ["192.168.1.1", "2001:db8::1", "a", "192.0.2.1:0", "ping:a"]
failures = 0"#,
            r#"[dns64]
enabled = false
[nat64-health]
hosts = ["8.8.8.8"]"#,
            r#"[nat64-health]
hosts = ["8.8.8.8", "8.8.4.4", "9.9.9.9", "1.1.1.1", "1.0.0.1"]"#,
            r#"server-id = "a-name-of-more-than-thirty-one-octets.example""#,
        ],
        expect![[r#"
            dns64d.toml:3:10: no prefix of [dns64] can represent 192.168.1.1; give a host with a public address
              |
            3 | hosts = ["192.168.1.1", "2001:db8::1", "a", "192.0.2.1:0", "ping:a"]
              |          ^^^^^^^^^^^^^

            dns64d.toml:3:25: hosts "2001:db8::1" is not an IPv4 address; give a host behind the translator
              |
            3 | hosts = ["192.168.1.1", "2001:db8::1", "a", "192.0.2.1:0", "ping:a"]
              |                         ^^^^^^^^^^^^^

            dns64d.toml:3:40: hosts "a" is not an address; write it like "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353"
              |
            3 | hosts = ["192.168.1.1", "2001:db8::1", "a", "192.0.2.1:0", "ping:a"]
              |                                        ^^^

            dns64d.toml:3:45: hosts "192.0.2.1:0" has a port that cannot be used; it is a number from 1 to 65535
              |
            3 | hosts = ["192.168.1.1", "2001:db8::1", "a", "192.0.2.1:0", "ping:a"]
              |                                             ^^^^^^^^^^^^^

            dns64d.toml:3:60: hosts "ping:a" has no IPv4 address; write it like "ping:192.0.2.1"
              |
            3 | hosts = ["192.168.1.1", "2001:db8::1", "a", "192.0.2.1:0", "ping:a"]
              |                                                            ^^^^^^^^

            dns64d.toml:4:12: failures 0 is below 1: must be 1 to 60
              |
            4 | failures = 0
              |            ^
            ---
            dns64d.toml:5:10: no prefix of [dns64] can represent 8.8.8.8; give a host with a public address
              |
            5 | hosts = ["8.8.8.8"]
              |          ^^^^^^^^^
            ---
            dns64d.toml:3:54: more than 4 hosts are given; remove this and the following
              |
            3 | hosts = ["8.8.8.8", "8.8.4.4", "9.9.9.9", "1.1.1.1", "1.0.0.1"]
              |                                                      ^^^^^^^^^
            ---
            dns64d.toml:2:13: server-id "a-name-of-more-than-thirty-one-octets.example" has 45 octets: must be 31 at most; shorten it
              |
            2 | server-id = "a-name-of-more-than-thirty-one-octets.example"
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        "#]],
    );
}
