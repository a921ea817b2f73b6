//! Domains with servers of their own.

use expect_test::expect;

use super::{refused, refused_beside_upstream};

#[test]
fn incomplete_tables_are_refused() {
    refused_beside_upstream(
        &[
            "[[forward]]",
            "[[forward]]\ndomains = []\nservers = [\"10.0.0.1\"]\nprefix = 1",
            "[[forward]]\nname = \"a b\"\ndomains = [\"*.corp.example\"]\nservers = [\"0.0.0.0\"]",
            "[[view]]\nclients = [\"10.0.0.0/8\"]\nforward = [\"corp\"]",
        ],
        expect![[r#"
            dns64d.toml:2:1: [[forward]] names no domains; add domains = ["corp.example"]
              |
            2 | [[forward]]
              | ^^^^^^^^^^^

            dns64d.toml:2:1: [[forward]] names no servers; add servers = ["192.0.2.53"]
              |
            2 | [[forward]]
              | ^^^^^^^^^^^
            ---
            dns64d.toml:3:11: domains is empty; write at least one, like ["corp.example", "10.in-addr.arpa"]
              |
            3 | domains = []
              |           ^^

            dns64d.toml:5:1: unknown key "prefix" in [[forward]]; write it under [dns64]
              |
            5 | prefix = 1
              | ^^^^^^
            ---
            dns64d.toml:3:8: name "a b" is not a name of ASCII letters, digits, dots, hyphens and underscores; write it like "corp"
              |
            3 | name = "a b"
              |        ^^^^^

            dns64d.toml:4:12: domains "*.corp.example" has a wildcard, but a domain stands for all names below it anyway; write "corp.example"
              |
            4 | domains = ["*.corp.example"]
              |            ^^^^^^^^^^^^^^^^

            dns64d.toml:5:12: servers "0.0.0.0" is not the address of one server; write that of a recursive resolver
              |
            5 | servers = ["0.0.0.0"]
              |            ^^^^^^^^^
            ---
            dns64d.toml:4:12: forward "corp" is the name of no [[forward]]; add one with name = "corp"
              |
            4 | forward = ["corp"]
              |            ^^^^^^
        "#]],
    );
}

#[test]
fn contradictions_are_refused() {
    refused(
        &[r#"listen = ["10.0.0.1"]
forward-special = ["10.in-addr.arpa"]
[upstream]
servers = ["192.0.2.1"]
[[forward]]
name = "corp"
domains = ["10.in-addr.arpa"]
servers = ["10.0.0.1", "10.0.0.2", "10.0.0.2"]
[[forward]]
name = "corp"
domains = ["Corp.example"]
servers = [{ address = "192.0.2.1", edns = false }]
[[forward]]
name = "upstream"
domains = ["corp.example"]
servers = ["10.0.0.3"]"#],
        expect![[r#"
            dns64d.toml:2:20: 10.in-addr.arpa. is a domain of [[forward]], too; remove it from forward-special, which means the servers of [upstream]
              |
            2 | forward-special = ["10.in-addr.arpa"]
              |                    ^^^^^^^^^^^^^^^^^

            dns64d.toml:8:12: upstream 10.0.0.1:53 is this server itself, which listens at 10.0.0.1:53; name another server, or listen at other addresses or another port
              |
            8 | servers = ["10.0.0.1", "10.0.0.2", "10.0.0.2"]
              |            ^^^^^^^^^^

            dns64d.toml:8:36: servers has 10.0.0.2:53 twice; remove one
              |
            8 | servers = ["10.0.0.1", "10.0.0.2", "10.0.0.2"]
              |                                    ^^^^^^^^^^

            dns64d.toml:9:1: another table is named corp, too; add name = "..."
              |
            9 | [[forward]]
              | ^^^^^^^^^^^

            dns64d.toml:12:12: 192.0.2.1:53 has other keys in an earlier table; write the same ones in both
               |
            12 | servers = [{ address = "192.0.2.1", edns = false }]
               |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:13:1: another table is named upstream, too; add name = "..."
               |
            13 | [[forward]]
               | ^^^^^^^^^^^

            dns64d.toml:15:12: corp.example. is already a domain of [[forward]] corp; remove it from one, or list the tables in different views
               |
            15 | domains = ["corp.example"]
               |            ^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn tables_with_one_domain_in_a_view_and_unknown_ones_are_refused() {
    refused(
        &[r#"upstream.servers = ["192.0.2.1"]
[[forward]]
name = "one"
domains = ["corp.example"]
servers = ["10.0.0.1"]
[[forward]]
name = "two"
domains = ["corp.example"]
servers = ["10.0.0.2"]
[[view]]
clients = ["10.1.0.0/16"]
forward = ["one", "two", "too"]"#],
        expect![[r#"
            dns64d.toml:12:19: forward lists one and two, which both have corp.example.; remove one
               |
            12 | forward = ["one", "two", "too"]
               |                   ^^^^^

            dns64d.toml:12:26: forward "too" is not one of one and two; did you mean "two"?
               |
            12 | forward = ["one", "two", "too"]
               |                          ^^^^^
        "#]],
    );
}
