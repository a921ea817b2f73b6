//! Names that the server answers itself.

use expect_test::expect;

use super::refused_beside_upstream;

#[test]
fn invalid_records_are_refused() {
    refused_beside_upstream(
        &[r#"[local]
records = [
    "",
    "router.home",
    "router.home 4294967296 A 192.168.1.1",
    "router.home MX 10 mail.home",
    "router.home A 192.168.1",
    "router.home AAAA 192.168.1.1",
    "*.home CNAME *.home.",
    ". A 192.168.1.1",
    'home TXT "open',
]"#],
        expect![[r#"
            dns64d.toml:4:5: records "" is empty; write it like "router.home 300 A 192.168.1.1"
              |
            4 |     "",
              |     ^^

            dns64d.toml:5:5: records "router.home" has no type; write it like "router.home 300 A 192.168.1.1"
              |
            5 |     "router.home",
              |     ^^^^^^^^^^^^^

            dns64d.toml:6:5: records "router.home 4294967296 A 192.168.1.1" has a TTL above 2147483647 s; write it like "router.home 300 A 192.168.1.1"
              |
            6 |     "router.home 4294967296 A 192.168.1.1",
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:7:5: records "MX" is not one of A, AAAA, PTR, CNAME and TXT; use one of these
              |
            7 |     "router.home MX 10 mail.home",
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:8:5: records "router.home A 192.168.1" has 192.168.1, which is not an IPv4 address; write it like "router.home 300 A 192.168.1.1"
              |
            8 |     "router.home A 192.168.1",
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:9:5: records "router.home AAAA 192.168.1.1" has 192.168.1.1, which is not an IPv6 address; write it like "router.home 300 A 192.168.1.1"
              |
            9 |     "router.home AAAA 192.168.1.1",
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:10:5: the alias leads back to itself, or to more than 11 others; change its target
               |
            10 |     "*.home CNAME *.home.",
               |     ^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:11:5: records "." cannot have local records; name a host
               |
            11 |     ". A 192.168.1.1",
               |     ^^^^^^^^^^^^^^^^^

            dns64d.toml:12:5: records "home TXT \"open" has no closing quote; write it like "router.home 300 A 192.168.1.1"
               |
            12 |     'home TXT "open',
               |     ^^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn invalid_files_and_zones_are_refused() {
    refused_beside_upstream(
        &["[local]\nfiles = [\"hosts\"]\nzones = [\".\"]\nrecord = []"],
        expect![[r#"
            dns64d.toml:3:10: files "hosts" is not an absolute path; write it like "/etc/dns64d/hosts"
              |
            3 | files = ["hosts"]
              |          ^^^^^^^

            dns64d.toml:4:10: "." would leave nothing to upstreams; name a domain, like "home"
              |
            4 | zones = ["."]
              |          ^^^

            dns64d.toml:5:1: unknown key "record" in [local]; did you mean records?
              |
            5 | record = []
              | ^^^^^^
        "#]],
    );
}

#[test]
fn contradictory_records_are_refused() {
    refused_beside_upstream(
        &[r#"[local]
records = [
    "a.home A 192.168.1.1",
    "A.home. 60 IN A 192.168.1.1",
    "a.home CNAME b.home",
    "b.home CNAME c.home",
    "b.home CNAME d.home",
    "c.home CNAME b.home",
    "*.loop CNAME x.loop",
    "corp.example A 192.168.1.1",
    "www.corp.example A 192.168.1.1",
]
zones = ["home", "Corp.example"]
[[forward]]
domains = ["corp.example"]
servers = ["10.0.0.1"]"#],
        expect![[r#"
            dns64d.toml:5:5: this record is given twice; remove one
              |
            5 |     "A.home. 60 IN A 192.168.1.1",
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:6:5: a.home. has a CNAME record, and so can have no other; remove one of them
              |
            6 |     "a.home CNAME b.home",
              |     ^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:6:5: the alias leads back to itself, or to more than 11 others; change its target
              |
            6 |     "a.home CNAME b.home",
              |     ^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:7:5: the alias leads back to itself, or to more than 11 others; change its target
              |
            7 |     "b.home CNAME c.home",
              |     ^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:8:5: b.home. has a CNAME record, and so can have no other; remove one of them
              |
            8 |     "b.home CNAME d.home",
              |     ^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:9:5: the alias leads back to itself, or to more than 11 others; change its target
              |
            9 |     "c.home CNAME b.home",
              |     ^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:10:5: the alias leads back to itself, or to more than 11 others; change its target
               |
            10 |     "*.loop CNAME x.loop",
               |     ^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:11:5: corp.example. is a domain of [[forward]], too; remove it from one of them
               |
            11 |     "corp.example A 192.168.1.1",
               |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^

            dns64d.toml:14:18: Corp.example. is a domain of [[forward]], too; remove it from one of them
               |
            14 | zones = ["home", "Corp.example"]
               |                  ^^^^^^^^^^^^^^
        "#]],
    );
}
