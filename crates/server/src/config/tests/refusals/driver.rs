//! Interfaces of the cache in the driver and of AF_XDP.

use expect_test::expect;

use super::refused_beside_upstream;

#[test]
fn invalid_interface_names_and_keys_are_refused() {
    refused_beside_upstream(
        &[
            r#"driver-cache = "eth0""#,
            r#"driver-cache = [5]"#,
            r#"driver-cache = ["a b"]"#,
            r#"driver-cache = ["eth0", "eth0"]"#,
            r#"driver-cache = [{ mode = "auto" }]"#,
            r#"driver-cache = [{ interface = "eth0", mode = "nativ" }]"#,
            r#"driver-cache = [{ interface = "eth0", forced = true }]"#,
            r#"driver-cache = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]"#,
        ],
        expect![[r#"
            dns64d.toml:2:16: driver-cache is a text where a list is expected; write it like ["eth0"]
              |
            2 | driver-cache = "eth0"
              |                ^^^^^^
            ---
            dns64d.toml:2:17: driver-cache is a whole number where a text is expected; write it like "eth0" or { interface = "eth0", mode = "generic" }
              |
            2 | driver-cache = [5]
              |                 ^
            ---
            dns64d.toml:2:17: driver-cache "a b" is not the name of an interface; `ip link` lists those of this host
              |
            2 | driver-cache = ["a b"]
              |                 ^^^^^
            ---
            dns64d.toml:2:25: driver-cache has eth0 twice; remove one
              |
            2 | driver-cache = ["eth0", "eth0"]
              |                         ^^^^^^
            ---
            dns64d.toml:2:17: this entry has no interface; add interface = "eth0"
              |
            2 | driver-cache = [{ mode = "auto" }]
              |                 ^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:46: mode "nativ" is not one of auto, native and generic; did you mean "native"?
              |
            2 | driver-cache = [{ interface = "eth0", mode = "nativ" }]
              |                                              ^^^^^^^
            ---
            dns64d.toml:2:39: unknown key "forced" in an interface of driver-cache or af-xdp; did you mean force?
              |
            2 | driver-cache = [{ interface = "eth0", forced = true }]
              |                                       ^^^^^^
            ---
            dns64d.toml:2:57: driver-cache has 9, and at most 8 are possible; remove this and the following
              |
            2 | driver-cache = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
              |                                                         ^^^
        "#]],
    );
}

#[test]
fn interface_for_two_programs_is_refused() {
    refused_beside_upstream(
        &["af-xdp = [\"eth1\", \"eth0\"]\ndriver-cache = [\"eth0\"]"],
        expect![[r#"
            dns64d.toml:2:10: af-xdp and driver-cache both have eth0, and an interface takes one XDP program; remove it from one
              |
            2 | af-xdp = ["eth1", "eth0"]
              |          ^^^^^^^^^^^^^^^^
        "#]],
    );
}
