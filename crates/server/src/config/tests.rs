//! The settings that result from configurations.

mod hosts;
mod refusals;
mod servers;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use dns64_transport::clock::SECOND;
use dns64_wire::name::NameBuf;
use proptest::prelude::*;

use super::values::{MIB, MILLISECOND};
use super::*;
use crate::settings::dns64::{Dns64, DomainAction, Ptr, SignedPolicy};
use crate::settings::nets::NetSet;
use crate::settings::{
    AnyPolicy, Attachment, LogLevel, LogTarget, LookupOrder, RateLimit, Selection, TlsSettings,
    UPSTREAMS_MAX, XdpMode,
};
use crate::tls::tests::issue;

/// Adds an upstream before the first line of a text, as a dotted key, so that top-level keys can follow.
fn beside_upstream(text: &str) -> String {
    format!("upstream.servers = [\"192.0.2.53\"]\n{text}")
}

fn accepted(text: &str) -> Settings {
    match parse(text, "dns64d.toml") {
        Ok(settings) => settings,
        Err(error) => panic!("{error}"),
    }
}

/// The settings of a text with an upstream.
fn read(text: &str) -> Settings {
    accepted(&beside_upstream(text))
}

/// The DNS64 function of a view.
fn function(settings: &Settings, view: usize) -> &Dns64 {
    settings.views[view].dns64.as_ref().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The action and the prefix for a name.
fn rule(dns64: &Dns64, name: &str) -> (DomainAction, Option<String>) {
    let rule = dns64
        .domains
        .rule(&name.parse::<NameBuf>().unwrap().as_name());
    (rule.action, rule.prefix.map(|prefix| prefix.to_string()))
}

#[test]
fn two_lines_suffice_and_the_rest_has_the_documented_defaults() {
    let settings = accepted("[upstream]\nservers = [\"192.0.2.53\"]\n");
    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["[::]:53", "0.0.0.0:53"]);
    assert_eq!(settings.upstreams[0].address.to_string(), "192.0.2.53:53");
    assert_eq!(settings.upstreams[0].timeout_ns, 4000 * MILLISECOND);
    assert_eq!(settings.order, LookupOrder::AaaaThenA);
    assert_eq!(settings.udp_size, 1_232);
    assert_eq!(settings.cache.bytes, 256 * MIB);
    assert_eq!(settings.rate_limit, None);
    assert_eq!(settings.metrics, None);
    assert_eq!(settings.views.len(), 1);
    let made = function(&settings, 0);
    assert_eq!(made.prefixes[0].to_string(), "64:ff9b::/96");
    assert!(made.excludes("::ffff:192.0.2.1".parse().unwrap()));
    assert!(!made.excludes("::192.0.2.1".parse().unwrap()));
    for inside in [
        "127.0.0.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "10.1.2.3",
        "172.31.0.1",
        "192.168.1.1",
    ] {
        assert!(settings.allow.contains(ip(inside)), "{inside}");
    }
    for stranger in ["192.0.2.1", "2001:db8::1", "172.32.0.1", "100.64.0.1"] {
        assert!(!settings.allow.contains(ip(stranger)), "{stranger}");
    }
}

#[test]
fn template_equals_the_defaults() {
    let least = accepted("[upstream]\nservers = [\"192.0.2.53\"]\n");
    assert_eq!(accepted(template()), least);
}

#[test]
fn template_has_every_key() {
    for table in keys::tables() {
        for key in table.keys {
            let said = [format!("{key} = "), format!("[{key}]")];
            assert!(
                said.iter().any(|s| template().contains(s)),
                "{key} of {}",
                table.table
            );
        }
    }
}

#[test]
fn commented_keys_of_the_template_are_valid() {
    let used: Vec<String> = template()
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.is_empty() && !key.starts_with(' ') => key.to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    let used = used.join("\n");
    let used = used
        .replace("\"cname\"", "\"local\"")
        .replace("\"aaaa-then-a\"\n", "\"delayed\"\n");
    let used = used.replace("second = \"off\"", "second = 50");
    let settings = accepted(&used);
    assert_eq!(settings.user.as_deref(), Some("dns64d"));
    assert_eq!(settings.order, LookupOrder::Delayed(50 * MILLISECOND));
    assert_eq!(settings.rate_limit.as_ref().unwrap().burst, 100);
    assert_eq!(settings.views.len(), 2);
    assert!(settings.views[0].dns64.is_none());
    assert!(matches!(function(&settings, 1).ptr, Ptr::Local(_)));
}

#[test]
fn top_level_and_operator_keys_are_applied() {
    let settings = read(
        r#"
        listen = ["192.0.2.1", "[2001:db8::1]:5353"]
        workers = 3
        user = "nobody"
        allow = ["2001:db8::/32"]
        any = "refuse"
        udp-size = 4096
        queries-max = 65536
        [log]
        target = "syslog"
        level = "debug"
        queries = true
        [metrics]
        listen = "127.0.0.1"
        [control]
        socket = "off"
        "#,
    );
    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["192.0.2.1:53", "[2001:db8::1]:5353"]);
    assert_eq!(
        (settings.workers, settings.user.as_deref()),
        (3, Some("nobody"))
    );
    assert!(!settings.allow.contains(ip("::1")));
    assert_eq!(settings.any, AnyPolicy::Refuse);
    assert_eq!((settings.udp_size, settings.queries_max), (4_096, 65_536));
    assert_eq!(
        (settings.log.target, settings.log.level),
        (LogTarget::Syslog, LogLevel::Debug)
    );
    assert!(settings.log.queries);
    assert_eq!(settings.metrics.unwrap().to_string(), "127.0.0.1:9164");
    assert_eq!(settings.control, None);
}

#[test]
fn limits_of_cache_tcp_and_rates_are_applied() {
    let settings = read(
        r#"
        [cache]
        size = "1GiB"
        min-ttl = "5s"
        max-ttl = "7d"
        max-negative-ttl = "0s"
        serve-stale = "1d"
        prefetch = true
        [tcp]
        connections = 0
        idle = "1.5s"
        pipeline = 1
        [rate-limit]
        responses-per-second = 20
        slip = 0
        exempt = ["192.0.2.0/28"]
        "#,
    );
    let cache = settings.cache;
    assert_eq!(
        (cache.bytes, cache.min_ttl_s, cache.max_ttl_s),
        (1_024 * MIB, 5, 604_800)
    );
    assert_eq!(
        (cache.max_negative_ttl_s, cache.stale_s, cache.prefetch),
        (0, 86_400, true)
    );
    let tcp = settings.tcp;
    assert_eq!(
        (tcp.connections_max, tcp.idle_ns, tcp.pipeline_max),
        (0, 3 * SECOND / 2, 1)
    );
    let per_client = |text: &str| read(&format!("[tcp]\n{text}")).tcp.per_client_max;
    assert_eq!(per_client("connections = 41"), 11);
    assert_eq!(per_client("connections-per-client = 256"), 256);
    let limit = RateLimit {
        responses_per_second: 20,
        burst: 20,
        slip: 0,
        exempt: NetSet::new(vec!["192.0.2.0/28".parse().unwrap()]),
    };
    assert_eq!(settings.rate_limit, Some(limit));
}

#[test]
fn cache_is_disabled_by_off_or_zero() {
    assert_eq!(read("[cache]\nsize = \"off\"").cache.bytes, 0);
    assert_eq!(read("[cache]\nsize = 0").cache.bytes, 0);
}

#[test]
fn upstreams_are_bounded() {
    let with = |count: usize| {
        let servers: Vec<String> = (1..=count).map(|n| format!("\"192.0.2.{n}\"")).collect();
        parse(
            &format!("upstream.servers = [{}]", servers.join(", ")),
            "dns64d.toml",
        )
    };
    assert_eq!(with(UPSTREAMS_MAX).unwrap().upstreams.len(), UPSTREAMS_MAX);
    let refusal = with(UPSTREAMS_MAX + 1).unwrap_err().to_string();
    assert!(
        refusal.contains("more than 32 servers are given; remove this and the following"),
        "{refusal}"
    );
}

#[test]
fn view_inherits_settings_that_it_does_not_override() {
    let settings = read(
        r#"
        [dns64]
        prefix = "2001:db8:1::/96"
        map = [{ ipv4 = "10.0.0.0/8", prefix = "none" }]
        exclude-domains = ["a.test"]
        ptr = "local"
        ptr-name = "nat64.test"
        [[view]]
        clients = ["2001:db8:aaaa::/48"]
        [view.dns64]
        prefix = "2001:db8:2::/48"
        exclude-domains = []
        ptr = "cname"
        [[view]]
        clients = ["192.0.2.0/24"]
        dns64 = { enabled = false }
        [[view]]
        clients = ["198.51.100.0/24"]
        "#,
    );
    let view = |client| settings.view_of(ip(client));
    assert_eq!(view("2001:db8:aaaa::1"), 0);
    assert_eq!(view("::ffff:192.0.2.7"), 1);
    assert_eq!(view("198.51.100.1"), 2);
    assert_eq!(view("2001:db8::1"), 3);
    let (own, rest) = (function(&settings, 0), function(&settings, 3));
    assert_eq!(own.prefixes[0].to_string(), "2001:db8:2::/48");
    assert_eq!(own.ranges, rest.ranges);
    assert_eq!(rule(own, "a.test").0, DomainAction::Include);
    assert_eq!(own.ptr, Ptr::Cname);
    assert_eq!(settings.views[1].dns64, None);
    assert_eq!(function(&settings, 2), rest);
    assert_eq!(rule(rest, "www.a.test").0, DomainAction::Exclude);
    assert_eq!(rest.ptr, Ptr::Local("nat64.test".parse().unwrap()));
}

#[test]
fn several_prefixes_keep_their_order() {
    let settings = read(
        "[dns64]\nprefix = [\"2001:db8:2::/96\", \"64:ff9b::/96\"]\n[[view]]\n\
         clients = [\"2001:db8::/32\"]\ndns64.synthesise-signed = \"never\"",
    );
    let own = function(&settings, 0);
    let prefixes: Vec<_> = own.prefixes.iter().map(ToString::to_string).collect();
    assert_eq!(prefixes, ["2001:db8:2::/96", "64:ff9b::/96"]);
    assert_eq!(own.signed, SignedPolicy::Never);
    assert_eq!(function(&settings, 1).signed, SignedPolicy::Validated);
}

#[test]
fn forwarding_can_be_the_default_and_dns64_the_exception() {
    let settings = read(
        "[dns64]\nenabled = false\n[[view]]\nclients = [\"2001:db8::/32\"]\n\
         dns64 = { enabled = true, prefix = \"none\" }",
    );
    assert_eq!(settings.views[1].dns64, None);
    assert_eq!(function(&settings, 0).prefixes, []);
}

#[test]
fn prefix_for_a_domain_does_not_exclude_other_names() {
    let settings =
        read("dns64.domain-prefixes = [{ domain = \"a.test\", prefix = \"2001:db8::/96\" }]");
    let dns64 = function(&settings, 0);
    let prefix = Some("2001:db8::/96".to_owned());
    assert_eq!(rule(dns64, "www.A.test"), (DomainAction::Include, prefix));
    assert_eq!(rule(dns64, "b.test"), (DomainAction::Include, None));
}

#[test]
fn action_and_prefix_of_a_domain_come_from_the_nearest_parent() {
    let settings = read(
        r#"
        [dns64]
        include-domains = ["in.test"]
        force-domains = ["a.test", "deep.b.test"]
        exclude-domains = ["not.b.test"]
        domain-prefixes = [
            { domain = "b.test", prefix = "2001:db8:b::/96" },
            { domain = "sub.a.test", prefix = "2001:db8:a::/96" },
        ]
        "#,
    );
    let dns64 = function(&settings, 0);
    let (a, b) = (
        Some("2001:db8:a::/96".to_owned()),
        Some("2001:db8:b::/96".to_owned()),
    );
    assert_eq!(rule(dns64, "a.test"), (DomainAction::Force, None));
    assert_eq!(rule(dns64, "x.sub.a.test"), (DomainAction::Force, a));
    assert_eq!(rule(dns64, "b.test"), (DomainAction::Include, b.clone()));
    assert_eq!(rule(dns64, "deep.b.test"), (DomainAction::Force, b));
    assert_eq!(rule(dns64, "not.b.test").0, DomainAction::Exclude);
    assert_eq!(rule(dns64, "in.test"), (DomainAction::Include, None));
    assert_eq!(rule(dns64, "other.test"), (DomainAction::Exclude, None));
}

#[test]
fn changed_keys_that_need_a_restart_are_named() {
    let old = read("");
    assert!(diff_needing_restart(&old, &old).is_empty());
    let kept = read(
        "any = \"refuse\"\nupstream.attempts = 1\ncache.size = \"off\"\ndns64.enabled = false",
    );
    assert!(diff_needing_restart(&old, &kept).is_empty());
    let changed = read(
        "listen = [\"[::1]:53\"]\ndriver-cache = [\"eth0\"]\nworkers = 1000\nuser = \"x\"\nsandbox = \"off\"\n\
         control.socket = \"off\"\nmetrics.listen = \"127.0.0.1\"\nlog.queries = true",
    );
    let names = [
        "listen",
        "driver-cache",
        "workers",
        "user",
        "sandbox",
        "control",
        "metrics",
        "log",
    ];
    assert_eq!(diff_needing_restart(&old, &changed), names);
}

#[test]
fn driver_interfaces_are_texts_or_tables() {
    assert_eq!(read("").driver_cache, []);
    let settings =
        read("driver-cache = [\"eth0\", { interface = \"s0\", mode = \"generic\", force = true }]");
    let interface = |name: &str, mode, force| Attachment {
        interface: name.to_owned(),
        mode,
        force,
    };
    let expected = [
        interface("eth0", XdpMode::Auto, false),
        interface("s0", XdpMode::Generic, true),
    ];
    assert_eq!(settings.driver_cache, expected);
}

#[test]
fn settings_that_disable_the_driver_are_noted() {
    for (text, key) in [
        ("rate-limit.responses-per-second = 9", "rate-limit"),
        ("log.queries = true", "log.queries"),
        ("proxy-protocol = [\"::1\"]", "proxy-protocol"),
        ("cache.size = \"off\"", "cache.size"),
    ] {
        let own = "allow = [\"2001:db8::/32\"]\n";
        let settings = read(&format!("{own}driver-cache = [\"eth0\"]\n{text}"));
        let [note] = &notes(&settings)[..] else {
            panic!("one note");
        };
        assert!(
            note.starts_with(&format!("driver-cache: has no effect with {key}")),
            "{note}"
        );
        assert_eq!(notes(&read(&format!("{own}{text}"))), [""; 0]);
    }
}

#[test]
fn certificate_that_clients_refuse_is_noted() {
    let certificate = issue().certificate();
    let validity_s = certificate.validity_s().unwrap();
    let settings = TlsSettings {
        listen: Vec::new(),
        certificate_file: PathBuf::new(),
        key_file: PathBuf::new(),
        certificate: Some(certificate),
    };
    let (from_s, until_s) = (*validity_s.start(), *validity_s.end());
    let note = |now_s| tls::note(&settings, now_s).unwrap_or_default();
    assert!(note(from_s - 3 * 3600).starts_with("certificate of [tls]: is valid in 3 h, "));
    assert_eq!([note(from_s), note(until_s)], ["", ""]);
    assert!(note(until_s + 48 * 3600).starts_with("certificate of [tls]: expired 48 h ago, "));
}

#[test]
fn rarely_intended_settings_are_noted() {
    let count = |text: &str| notes(&read(text)).len();
    let own = "allow = [\"2001:db8::/32\"]\n";
    assert_eq!(count(own), 0);
    assert_eq!(count(&format!("{own}workers = 1024")), 1);
    assert!(notes(&read(""))[0].starts_with("allow: only loopback"));
    assert!(notes(&read("allow = [\"::/0\"]"))[0].starts_with("allow: every address"));
    assert_eq!(
        count("allow = [\"::/0\"]\nrate-limit.responses-per-second = 5"),
        0
    );
}

#[test]
fn unreadable_file_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns64d.toml");
    let missing = load(&path).unwrap_err().to_string();
    assert!(
        missing.contains("dns64d.toml: cannot be read: "),
        "{missing}"
    );
    assert!(
        missing.ends_with("; `dns64d template` prints an example"),
        "{missing}"
    );
    std::fs::write(&path, beside_upstream("").replace("53", "1")).unwrap();
    let upstream = load(&path).unwrap().settings.upstreams[0].address;
    assert_eq!(upstream.to_string(), "192.0.2.1:53");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"workers = 1\nuser = \"\xff\"\n").unwrap();
    let refusal = load(&path).unwrap_err().to_string();
    assert!(
        refusal.contains("dns64d.toml:2:9: this octet is not valid UTF-8"),
        "{refusal}"
    );
    assert!(
        load(folder.path())
            .unwrap_err()
            .to_string()
            .ends_with("; give a regular file")
    );
}

#[test]
fn ipv6_address_without_a_port_needs_no_brackets() {
    let settings = read(
        "listen = [\"::1\", \"2001:db8::53\", \"2001:db8::1:5\", \"[2001:db8::1:53]\", \"::\"]",
    );
    let listen: Vec<_> = settings.listen.iter().map(ToString::to_string).collect();
    let expected = [
        "[::1]:53",
        "[2001:db8::53]:53",
        "[2001:db8::1:5]:53",
        "[2001:db8::1:53]:53",
        "[::]:53",
    ];
    assert_eq!(listen, expected);
}

#[test]
fn upstream_of_the_template_must_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns64d.toml");
    std::fs::write(&path, template()).unwrap();
    let refusal = load(&path).unwrap_err().to_string();
    let at = template()
        .lines()
        .position(|line| line.starts_with("servers ="))
        .unwrap()
        + 1;
    let expected = format!(
        "dns64d.toml:{at}:13: 192.0.2.53 is the example address of the template (RFC 5737); replace it with the \
         address of your resolver\n"
    );
    assert!(refusal.contains(&expected), "{refusal}");
    assert!(refusal.ends_with("           ^^^^^^^^^^"), "{refusal}");
}

/// The template with some octets replaced, removed or inserted.
fn mutated(changes: &[(usize, usize, String)]) -> String {
    let mut text: Vec<char> = template().chars().filter(|c| *c != '#').collect();
    for (at, removed, inserted) in changes {
        let at = at % text.len().max(1);
        let end = (at + removed).min(text.len());
        text.splice(at..end, inserted.chars());
    }
    text.into_iter().collect()
}

/// A line of the template alone, with another value.
fn line_with(line: usize, value: &str) -> String {
    let lines: Vec<&str> = template().lines().filter(|l| l.contains(" = ")).collect();
    let key = lines[line % lines.len()]
        .split(" = ")
        .next()
        .unwrap_or_default();
    let key = key.trim_start_matches('#');
    let tables = [
        "",
        "[upstream]\n",
        "[dns64]\n",
        "[cache]\n",
        "[tcp]\n",
        "[rate-limit]\n",
        "[[view]]\n",
    ];
    tables
        .iter()
        .map(|table| format!("{table}{key} = {value}\n"))
        .collect::<Vec<_>>()
        .join("\u{c}")
}

proptest! {
    #[test]
    fn mutated_template_never_panics(
        changes in prop::collection::vec((any::<usize>(), 0..20_usize, "[ -~é\n\t\u{0}]{0,8}"), 0..6)
    ) {
        let text = mutated(&changes);
        if let Err(error) = parse(&text, "dns64d.toml") {
            prop_assert!(error.to_string().starts_with("dns64d.toml:"));
        }
    }

    #[test]
    fn arbitrary_values_never_panic(
        line in any::<usize>(),
        value in prop_oneof![
            "\"[0-9a-fx:./\\[\\]%msh iGMB-]{0,24}\"",
            "-?[0-9]{1,40}(\\.[0-9]{1,5})?",
            "\\[\"[0-9a-f:./]{0,12}\"(, \"[0-9a-f:./*é]{0,12}\")?\\]",
            "\\{ (ipv4|address|prefix|domain) = \"[0-9a-f:./]{0,12}\" \\}",
        ],
    ) {
        for text in line_with(line, &value).split('\u{c}') {
            if let Err(error) = parse(text, "dns64d.toml") {
                prop_assert!(error.to_string().starts_with("dns64d.toml:"));
            }
        }
    }

    #[test]
    fn every_mark_is_below_its_line(
        changes in prop::collection::vec((any::<usize>(), 0..3_usize, "[ -~é\n]{0,3}"), 1..4)
    ) {
        let text = mutated(&changes);
        if let Err(ConfigError::Invalid { problems }) = parse(&text, "dns64d.toml") {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                let line = text.split('\n').nth(problem.line - 1);
                let line = line.ok_or_else(|| TestCaseError::fail("no such line"))?;
                prop_assert!(problem.column <= line.chars().count() + 1);
            }
        }
    }
}
