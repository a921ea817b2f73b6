//! The settings that result from mtd64-ng.conf files.

use expect_test::expect;

use super::*;
use crate::settings::dns64::Dns64;

const WHOLE: &str = "\
// A configuration as it comes with mtd64-ng.
nameserver 192.0.2.53
  nameserver 2001:db8::53   # the second one
selection-mode round-robin
dns64-prefix 2001:0db8:63a9:1:cafe:1::42/96
debugging yes
timeout-time 2.5
resend-attempts 2 // three in all
response-maxlength 512
num-threads 30
port 5353
";

fn loaded(text: &str) -> Loaded {
    match parse(text, "mtd64-ng.conf", "nameserver 198.51.100.1\n") {
        Ok(loaded) => loaded,
        Err(error) => panic!("{error}"),
    }
}

fn refusal(text: &str) -> String {
    let resolv_conf = "search example\nnameserver fe80::1%eth0\n";
    parse(text, "mtd64-ng.conf", resolv_conf)
        .map_or_else(|e| e.to_string() + "\n", |_| "accepted".to_owned())
}

fn function(settings: &Settings) -> &Dns64 {
    settings.views[0].dns64.as_ref().unwrap()
}

#[test]
fn all_nine_keys_keep_their_meaning() {
    let settings = loaded(WHOLE).settings;
    let upstream = |address: &str| Upstream {
        address: address.parse().unwrap(),
        timeout_ns: 2_500_000_000,
        attempts: 3,
        features: defaults::FEATURES,
        tls: None,
        outgoing: Outgoing::default(),
    };
    assert_eq!(
        settings.upstreams,
        [upstream("192.0.2.53:53"), upstream("[2001:db8::53]:53")]
    );
    // The next server if the current one does not reply in time.
    assert_eq!(settings.sets[0].selection, Selection::Failover);
    let prefix = function(&settings).prefixes[0];
    assert_eq!(prefix.to_string(), "2001:db8:63a9:1:cafe:1::/96");
    assert_eq!(settings.log.level, LogLevel::Debug);
    assert_eq!(settings.udp_size, 512);
    assert!(settings.workers <= defaults::workers());
    let listen: Vec<String> = settings.listen.iter().map(SocketAddr::to_string).collect();
    assert_eq!(listen, ["[::]:5353", "0.0.0.0:5353"]);
    assert!(settings.allow.contains("203.0.113.1".parse().unwrap()));
}

#[test]
fn line_ends_of_windows_change_nothing() {
    let windows = loaded(&WHOLE.replace('\n', "\r\n"));
    assert_eq!(windows.settings, loaded(WHOLE).settings);
}

#[test]
fn one_line_is_enough() {
    let settings = loaded("nameserver 192.0.2.53").settings;
    assert_eq!(function(&settings).prefixes, [Pref64::WELL_KNOWN]);
    assert_eq!(settings.udp_size, 1_232);
    assert_eq!(settings.log.level, LogLevel::Info);
    assert_eq!(settings.upstreams[0].attempts, defaults::ATTEMPTS);
    assert_eq!(settings.cache, defaults::CACHE);
}

#[test]
fn defaults_are_the_resolvers_of_the_system_in_order() {
    let resolv_conf = "# nameserver 192.0.2.9\noptions edns0\nnameserver 192.0.2.1\n\
                           nameserver\t2001:db8::1\nnameserver 192.0.2.1\nnameserver nonsense\n";
    let text = "nameserver 192.0.2.53\nnameserver defaults\n";
    let settings = parse(text, "mtd64-ng.conf", resolv_conf).unwrap().settings;
    let asked: Vec<String> = settings
        .upstreams
        .iter()
        .map(|u| u.address.to_string())
        .collect();
    assert_eq!(asked, ["192.0.2.53:53", "192.0.2.1:53", "[2001:db8::1]:53"]);
}

#[test]
fn sizes_and_threads_are_limited_to_valid_values() {
    let size = |text| {
        loaded(&format!("nameserver 192.0.2.53\n{text}"))
            .settings
            .udp_size
    };
    assert_eq!(size("response-maxlength 1"), 512);
    assert_eq!(size("response-maxlength 1500"), 1_500);
    assert_eq!(size("response-maxlength 65535"), 4_096);
    let loaded = loaded("nameserver 192.0.2.53\nnum-threads 100000\n");
    assert_eq!(loaded.settings.workers, defaults::workers());
}

#[test]
fn differences_are_noted() {
    let text = "nameserver 192.0.2.53\nresponse-maxlength 100\n";
    let notes = loaded(text).notes.join("\n") + "\n";
    let prefix = "nameserver 192.0.2.53\ndns64-prefix 2001:db8:0:0:dead:beef::/96\n";
    let of_prefix = loaded(prefix).notes.pop();
    assert_eq!(
        of_prefix.as_deref(),
        Some(
            "dns64-prefix: 2001:db8::dead:beef:0:0/96 has bits set among bits 64 to 71, which are zero in every prefix of \
             RFC 6052 (section 2.2); it is used as it is"
        )
    );
    expect![[r#"
        cache: answers are cached, up to 256 MiB; mtd64-ng has no cache
        clients: every address may send queries, as with mtd64-ng; the key allow of a TOML file restricts this
        failures: clients get SERVFAIL when no server answers; mtd64-ng sends no response
        answers: PTR of synthesised addresses and ipv4only.arpa are answered, and TTLs are bounded by those of the missing AAAA (RFC 6147 section 5.1.7); keys that are not given have the defaults of dns64d
        dns64-prefix: 64:ff9b::/96 must not stand for private IPv4 addresses (RFC 6052 section 3.1), so AAAA records are not synthesised for these
        response-maxlength: 512 is used instead of 100
    "#]].assert_eq(&notes);
}

#[test]
fn invalid_servers_and_keys_are_shown_in_their_lines() {
    let text = "nameserver ns.example\n\
                nameserver defaults // none here\n\
                nameserver 0.0.0.0\n\
                nameserver\n\
                nameservers 192.0.2.1\n\
                frobnicate 1\n\
                port 53\n\
                port 53\n";
    expect![[r#"
        mtd64-ng.conf:1:12: nameserver "ns.example" is not an address; write it like 192.0.2.53, or write defaults
          |
        1 | nameserver ns.example
          |            ^^^^^^^^^^

        mtd64-ng.conf:3:12: nameserver "0.0.0.0" is not the address of one server; write that of a recursive resolver
          |
        3 | nameserver 0.0.0.0
          |            ^^^^^^^

        mtd64-ng.conf:4:1: nameserver has no value; write it after the key, like 192.0.2.53
          |
        4 | nameserver
          | ^^^^^^^^^^

        mtd64-ng.conf:5:1: unknown key "nameservers"; did you mean nameserver?
          |
        5 | nameservers 192.0.2.1
          | ^^^^^^^^^^^

        mtd64-ng.conf:6:1: unknown key "frobnicate"; its keys are nameserver, selection-mode, dns64-prefix, debugging, timeout-time, resend-attempts, response-maxlength, num-threads and port
          |
        6 | frobnicate 1
          | ^^^^^^^^^^

        mtd64-ng.conf:8:1: port is given twice; remove one
          |
        8 | port 53
          | ^^^^
    "#]].assert_eq(&refusal(text));
}

#[test]
fn invalid_values_are_shown_in_their_lines() {
    let text = "nameserver 192.0.2.1\n\
                selection-mode fastest\n\
                dns64-prefix 64:ff9b::/80\n\
                debugging 1\n\
                timeout-time 0\n\
                resend-attempts 10\n\
                response-maxlength 0\n\
                num-threads many\n\
                port 65536\n";
    expect![[r#"
        mtd64-ng.conf:2:16: selection-mode "fastest" is not one of random and round-robin; use one of these
          |
        2 | selection-mode fastest
          |                ^^^^^^^

        mtd64-ng.conf:3:14: dns64-prefix length 80 is not one of 32, 40, 48, 56, 64 and 96; use one of these
          |
        3 | dns64-prefix 64:ff9b::/80
          |              ^^^^^^^^^^^^

        mtd64-ng.conf:4:11: debugging "1" is not one of yes and no; use one of these
          |
        4 | debugging 1
          |           ^

        mtd64-ng.conf:5:14: timeout-time 0 is below 0.01: must be 0.01 to 4.5
          |
        5 | timeout-time 0
          |              ^

        mtd64-ng.conf:6:17: resend-attempts 10 is above 9: must be 0 to 9
          |
        6 | resend-attempts 10
          |                 ^^

        mtd64-ng.conf:7:20: response-maxlength 0 is below 1: must be 1 to 65535
          |
        7 | response-maxlength 0
          |                    ^

        mtd64-ng.conf:8:13: num-threads "many" is not a whole number from 1 to 4294967295
          |
        8 | num-threads many
          |             ^^^^

        mtd64-ng.conf:9:6: port 65536 is above 65535: must be 1 to 65535
          |
        9 | port 65536
          |      ^^^^^
    "#]].assert_eq(&refusal(text));
    expect![[r#"
        mtd64-ng.conf:1:14: timeout-time "2.5s" is not a number of seconds; write it like 2.5
          |
        1 | timeout-time 2.5s
          |              ^^^^

        mtd64-ng.conf:2:1: no upstream is given; add a line like nameserver 192.0.2.53
          |
        2 |
          | ^
    "#]]
    .assert_eq(&refusal("timeout-time 2.5s\n"));
}

#[test]
fn server_is_given_once_and_is_not_this_server() {
    expect![[r#"
        mtd64-ng.conf:1:12: upstream 127.0.0.1:53 is this server itself, which listens at 0.0.0.0:53; name another server, or listen at other addresses or another port
          |
        1 | nameserver 127.0.0.1
          |            ^^^^^^^^^
    "#]].assert_eq(&refusal("nameserver 127.0.0.1\n"));
    expect![[r#"
        mtd64-ng.conf:2:12: nameserver has 192.0.2.1:53 twice; remove one
          |
        2 | nameserver 192.0.2.1
          |            ^^^^^^^^^
    "#]]
    .assert_eq(&refusal("nameserver 192.0.2.1\nnameserver 192.0.2.1\n"));
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "((nameserver|port|timeout-time|x|//|#)?[ \t]{0,2}[ -~é\u{0}]{0,12}[\r\n]{0,2}){0,12}") {
        let said = refusal(&text);
        proptest::prop_assert!(said == "accepted" || said.starts_with("mtd64-ng.conf:"));
    }
}
