//! Whole files, and any text at all.

use std::fs;

use expect_test::{expect, expect_file};
use proptest::prelude::*;

use super::import;
use crate::config::parse;

/// The result for the first of these files, or its error, without the path of their folder.
fn imported(files: &[(&str, &[u8])]) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let shown = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
    let imported = import(&folder.path().join(files[0].0)).map_err(|e| shown(e.to_string()))?;
    parse(&imported.toml, "dns64d.toml").unwrap_or_else(|error| panic!("{error}"));
    Ok(shown(imported.toml))
}

#[test]
fn policies_of_unbound_are_kept() {
    let text = include_bytes!("tests/unbound.conf");
    expect_file!["tests/unbound.toml"].assert_eq(&imported(&[("unbound.conf", text)]).unwrap());
}

#[test]
fn policies_of_bind_are_kept() {
    let text = include_bytes!("tests/named.conf");
    expect_file!["tests/named.toml"].assert_eq(&imported(&[("named.conf", text)]).unwrap());
}

#[test]
fn included_files_are_read_and_those_of_debian_lead_to_a_resolver_beside() {
    let unbound: &[(&str, &[u8])] = &[
        ("unbound.conf", b"# Debian\ninclude-toplevel: \"conf.d/*.conf\"\n"),
        ("conf.d/b.conf", b"remote-control:\n  control-enable: yes\n"),
        ("conf.d/a.conf", b"server:\n    auto-trust-anchor-file: \"root.key\"\n    include: ../c\n    prefetch: yes\n"),
        ("conf.d/a.bak", b"not read"),
        ("c", b"num-threads: 3\n"),
    ];
    expect![[r#"
        allow = [
            "127.0.0.0/8",
            "::1",
        ]
        listen = [
            "127.0.0.1:53",
            "[::1]:53",
        ]
        workers = 3

        [cache]
        prefetch = true

        [dns64]
        enabled = false

        [upstream]
        servers = [
            "127.0.0.1:5353",
        ]

        # Without a counterpart:
        # conf.d/a.conf:2:5: auto-trust-anchor-file root.key
        # conf.d/b.conf:1:1: remote-control { ... }
        # conf.d/a.conf:1:1: server { ... }: no forwarder: let Unbound listen at 127.0.0.1:5353, without DNS64
    "#]].assert_eq(&imported(unbound).unwrap());
    let bind: &[(&str, &[u8])] = &[
        (
            "named.conf",
            b"// Debian\ninclude \"named.conf.options\";\ninclude \"zones\";\n",
        ),
        (
            "named.conf.options",
            b"options {\n\tdnssec-validation auto;\n\tlisten-on-v6 { any; };\n};\n",
        ),
        (
            "zones",
            b"zone \".\" {\n\ttype hint;\n\tfile \"root.hints\";\n};\n",
        ),
    ];
    expect![[r#"
        allow = [
            "127.0.0.0/8",
            "::1",
        ]
        listen = [
            "[::]:53",
            "0.0.0.0:53",
        ]

        [dns64]
        enabled = false

        [upstream]
        servers = [
            "127.0.0.1:5353",
        ]

        # Without a counterpart:
        # named.conf.options:2:2: dnssec-validation auto
        # named.conf.options:1:1: options { ... }: localnets: add the networks of this host to allow
        # named.conf.options:1:1: options { ... }: no forwarder: let BIND listen at 127.0.0.1:5353, without DNS64
    "#]].assert_eq(&imported(bind).unwrap());
}

#[test]
fn syntax_errors_have_their_place() {
    for (text, expected) in [
        (
            &b"server:\n  interface ::1\n"[..],
            "a:2:3: \"interface\" is not a key",
        ),
        (
            b"server:\n  identity: \"x\n",
            "a:2:13: this text has no end; add \"",
        ),
        (
            b"server:\n  identity: \"\xe4\"\n",
            "a:2:14: this octet is not valid UTF-8",
        ),
        (b"server: include: b\n", "a:1:9: b cannot be read: "),
        (
            b"server: include: a\n",
            "a:1:9: too many files include one another",
        ),
        (
            b"options { listen-on { any; };\n",
            "a:1:9: this block has no end; add };",
        ),
        (
            b"options { querylog yes }\n",
            "a:1:24: the statement before this brace has no end",
        ),
        (b"options { };\n};\n", "a:2:1: this brace closes no block"),
        (b"options { }\n", "a:1:1: this statement has no end; add ;"),
        (b"/* options { };", "a:1:1: this comment has no end; add */"),
        (
            &b"a{".repeat(17),
            "a:1:34: this block is too deep in others",
        ),
        (b"", "a:1:1: cannot be converted: no upstream is given"),
    ] {
        let error = imported(&[("a", text)]).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Words of both syntaxes, and what breaks them.
const WORDS: &str = "server: forward-zone: interface: access-control: name: forward-addr: local-data: local-zone: \
    dns64-prefix: num-threads: cache-max-ttl: private-domain: identity: allow static yes ::1 10.0.0.0/8 64:ff9b::/96 \
    192.0.2.1 'a. A 192.0.2.1' example.com . 007 0 # \" options dns64 clients mapped forwarders zone type forward { } }; ; \
    any; ! \u{e4}\\ /* */ //";

proptest! {
    #[test]
    fn any_text_gives_a_valid_configuration_or_an_error_with_a_place(
        words in proptest::collection::vec(prop_oneof![
            8 => proptest::sample::select(WORDS.split(' ').collect::<Vec<_>>()).prop_map(str::to_owned),
            2 => Just("\n".to_owned()),
            1 => any::<String>(),
        ], 0..60),
    ) {
        if let Err(error) = imported(&[("a", words.join(" ").as_bytes())]) {
            let mut place = error.split(':').skip(1).take(2);
            prop_assert!(place.all(|number| number.parse::<u32>().is_ok()), "{error}");
        }
    }
}
