//! TLS.

use std::fs;

use expect_test::{Expect, expect};

use super::super::{load, read};
use super::{refused, refused_beside_upstream};
use crate::tls::tests::issue;

#[test]
fn encrypted_connections_are_refused_with_a_remedy() {
    refused_beside_upstream(
        &[
            "[tls]",
            "[tls]\ncertificate = \"/c.pem\"",
            "[tls]\ncertificate = \"c.pem\"\nkey = 3",
            "tcp.connections = 0\n[tls]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"",
            "[tls]\nlisten = [\"[::1]:53\", \"[::1]\", \"[::1]\"]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"",
            "listen = [\"[::1]:853\"]\n[tls]\nlisten = [\"[::1]:853\"]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"",
        ],
        expect![[r#"
            dns64d.toml:2:1: [tls] has no certificate; add certificate = "/etc/dns64d/certificate.pem"
              |
            2 | [tls]
              | ^^^^^

            dns64d.toml:2:1: [tls] has no key; add key = "/etc/dns64d/key.pem"
              |
            2 | [tls]
              | ^^^^^
            ---
            dns64d.toml:2:1: [tls] has no key; add key = "/etc/dns64d/key.pem"
              |
            2 | [tls]
              | ^^^^^
            ---
            dns64d.toml:3:15: certificate "c.pem" is not an absolute path; write it like "/etc/dns64d/certificate.pem"
              |
            3 | certificate = "c.pem"
              |               ^^^^^^^

            dns64d.toml:4:7: key is a whole number where a text is expected; write it like "/etc/dns64d/key.pem"
              |
            4 | key = 3
              |       ^
            ---
            dns64d.toml:3:1: [tls] has no effect with connections = 0 of [tcp]; allow some, or remove this table
              |
            3 | [tls]
              | ^^^^^
            ---
            dns64d.toml:3:11: listen "[::1]:53" has port 53, which is not for TLS (RFC 7858 section 3.1); use 853
              |
            3 | listen = ["[::1]:53", "[::1]", "[::1]"]
              |           ^^^^^^^^^^

            dns64d.toml:3:32: listen has [::1]:853 twice; remove one
              |
            3 | listen = ["[::1]:53", "[::1]", "[::1]"]
              |                                ^^^^^^^
            ---
            dns64d.toml:4:11: listen "[::1]:853" is also in listen of the top level, in clear text; use another port
              |
            4 | listen = ["[::1]:853"]
              |           ^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn certificates_are_refused_at_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (one, other) = (issue(), issue());
    fs::write(path("c.pem"), &one.chain).unwrap();
    fs::write(path("k.pem"), &one.key).unwrap();
    fs::write(path("other.pem"), &other.key).unwrap();
    fs::write(path("empty.pem"), "").unwrap();
    let with = |certificate: &str, key: &str| {
        let text = format!(
            "[upstream]\nservers = [\"192.0.2.1\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\n",
            path(certificate),
            path(key)
        );
        fs::write(path("dns64d.toml"), text).unwrap();
        load(&path("dns64d.toml"))
    };
    let settings = with("c.pem", "k.pem").unwrap().settings;
    let certificate = settings.tls.unwrap().certificate;
    assert_eq!(certificate, Some(one.certificate()));
    let folder = folder.path().display().to_string();
    let refusal = |certificate, key| {
        let refusal = with(certificate, key).unwrap_err().to_string();
        let first = refusal.lines().next().unwrap().to_owned();
        first.replace(&folder, "")
    };
    let refusals = [
        refusal("c.pem", "other.pem"),
        refusal("k.pem", "k.pem"),
        refusal("c.pem", "empty.pem"),
        refusal("c.pem", "none.pem"),
    ];
    expect![[r#"
        /dns64d.toml:5:8: /other.pem cannot be used with the certificate (keys may not be consistent: KeyMismatch); give the key of the certificate
        /dns64d.toml:4:16: /k.pem has no certificate in PEM form (no items found); give the file with the whole chain
        /dns64d.toml:5:8: /empty.pem has no private key in PEM form (no items found); give that of the certificate
        /dns64d.toml:5:8: /none.pem cannot be read: No such file or directory (os error 2); let the user that starts dns64d read it, and for a reload the one of user
    "#]].assert_eq(&(refusals.join("\n") + "\n"));
}

#[test]
fn certificate_is_reloaded_and_addresses_are_kept() {
    let with = |listen: &str| {
        let text =
            format!("[tls]\nlisten = [{listen:?}]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"");
        let mut settings = read(&text);
        settings.tls.as_mut().unwrap().certificate = Some(issue().certificate());
        settings
    };
    let (running, mut new) = (with("[::1]"), with("[::2]"));
    let changed = new.tls.clone().unwrap();
    assert_eq!(
        crate::config::diff_needing_restart(&running, &new),
        ["listen of [tls]"]
    );
    crate::config::keep_until_restart(&running, &mut new);
    let kept = new.tls.as_ref().unwrap();
    assert_eq!(kept.listen, running.tls.as_ref().unwrap().listen);
    assert_eq!(kept.certificate, changed.certificate);
    let mut without = read("");
    crate::config::keep_until_restart(&running, &mut without);
    assert_eq!(without, running);
}

/// The errors for servers with these keys after `address`.
fn servers_refused(keys: &[&str], expected: Expect) {
    let whole = |keys: &&str| format!("[upstream]\nservers = [{{ address = {keys} }}]\n");
    let texts: Vec<String> = keys.iter().map(whole).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    refused(&texts, expected);
}

#[test]
fn encrypted_upstreams_are_refused_with_a_remedy() {
    servers_refused(
        &[
            "\"192.0.2.1\", tls = true",
            "\"192.0.2.1\", tls = \"strict\"",
            "\"192.0.2.1\", tls = {}",
            "\"192.0.2.1\", tls = { name = \"dns example\" }",
            "\"192.0.2.1\", tls = { pins = [] }",
        ],
        expect![[r#"
            dns64d.toml:2:43: tls is true or false where a text is expected; write it like "opportunistic" or { name = "dns.example" }
              |
            2 | servers = [{ address = "192.0.2.1", tls = true }]
              |                                           ^^^^
            ---
            dns64d.toml:2:43: tls "strict" is unknown; write it like "opportunistic" or { name = "dns.example" }
              |
            2 | servers = [{ address = "192.0.2.1", tls = "strict" }]
              |                                           ^^^^^^^^
            ---
            dns64d.toml:2:43: tls says neither whose certificate it has nor which key; add name or pins
              |
            2 | servers = [{ address = "192.0.2.1", tls = {} }]
              |                                           ^^
            ---
            dns64d.toml:2:52: name "dns example" is not the name of a host; write it like "dns.example", or use pins
              |
            2 | servers = [{ address = "192.0.2.1", tls = { name = "dns example" } }]
              |                                                    ^^^^^^^^^^^^^
            ---
            dns64d.toml:2:52: pins is empty; write at least one, like ["sha256/HASH="]
              |
            2 | servers = [{ address = "192.0.2.1", tls = { pins = [] } }]
              |                                                    ^^
        "#]],
    );
}

#[test]
fn pins_and_ports_of_encrypted_upstreams_are_refused_with_a_remedy() {
    servers_refused(
        &[
            "\"192.0.2.1\", tls = { pins = [\"sha256/YWJj\", \"AAAA\"] }",
            "\"192.0.2.1\", tls = { name = \"dns.example\", pins = [\"sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"] }",
            "\"192.0.2.1\", tls = { roots = \"/r.pem\", pins = [\"sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"] }",
            "\"192.0.2.1:53\", tls = { name = \"dns.example\" }",
            "\"192.0.2.1:853\", tls = \"opportunistic\"",
        ],
        expect![[r#"
            dns64d.toml:2:53: pins "sha256/YWJj" is not a SHA-256 digest in base64; write it like ["sha256/HASH="], with 44 characters for HASH=
              |
            2 | servers = [{ address = "192.0.2.1", tls = { pins = ["sha256/YWJj", "AAAA"] } }]
              |                                                     ^^^^^^^^^^^^^

            dns64d.toml:2:68: pins "AAAA" is not a SHA-256 digest in base64; write it like ["sha256/HASH="], with 44 characters for HASH=
              |
            2 | servers = [{ address = "192.0.2.1", tls = { pins = ["sha256/YWJj", "AAAA"] } }]
              |                                                                    ^^^^^^
            ---
            dns64d.toml:2:74: pins has no effect beside name; remove one of them
              |
            2 | servers = [{ address = "192.0.2.1", tls = { name = "dns.example", pins = ["sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="] } }]
              |                                                                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:53: roots has no effect beside pins; remove it
              |
            2 | servers = [{ address = "192.0.2.1", tls = { roots = "/r.pem", pins = ["sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="] } }]
              |                                                     ^^^^^^^^
            ---
            dns64d.toml:2:24: address "192.0.2.1:53" has port 53, which is not for TLS (RFC 7858 section 3.1); omit it for 853
              |
            2 | servers = [{ address = "192.0.2.1:53", tls = { name = "dns.example" } }]
              |                        ^^^^^^^^^^^^^^
            ---
            dns64d.toml:2:24: address "192.0.2.1:853" has the port of TLS, and in clear text the server is queried there, too; omit the port
              |
            2 | servers = [{ address = "192.0.2.1:853", tls = "opportunistic" }]
              |                        ^^^^^^^^^^^^^^^
        "#]],
    );
}

#[test]
fn encrypted_upstream_has_port_853_and_needs_authorities() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("roots.pem"), issue().chain).unwrap();
    fs::write(path("empty.pem"), "").unwrap();
    let with = |roots: &str| {
        let text = format!(
            "upstream.servers = [{{ address = \"192.0.2.1\", tls = {{ name = \"dns.example\", roots = {:?} }} }}]\n",
            path(roots)
        );
        fs::write(path("dns64d.toml"), text).unwrap();
        load(&path("dns64d.toml"))
    };
    let upstream = with("roots.pem").unwrap().settings.upstreams.remove(0);
    assert_eq!(upstream.address.port(), 853);
    assert!(upstream.tls.unwrap().sessions.is_some());
    let refusal = with("empty.pem").unwrap_err().to_string();
    assert!(
        refusal.contains("has no certificate in PEM form; give that of an authority"),
        "{refusal}"
    );
    assert!(refusal.contains("dns64d.toml:1:"), "{refusal}");
}
