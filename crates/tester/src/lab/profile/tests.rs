use super::template::unknown;
use super::*;
use expect_test::{Expect, expect};

const MINIMAL: &str = r#"
name = "x"
role = "dut"
programs = ["xd"]
caches = false
command = ["{program}"]
version = { command = ["{program}", "-v"], starts_with = "x " }
"#;

fn settings() -> Settings {
    Settings {
        listen: "2001:2:0:1::2".parse().unwrap(),
        listen_v4: Ipv4Addr::UNSPECIFIED,
        port: 53,
        upstreams: vec!["[2001:2:0:2::2]:53".parse().unwrap()],
        pref64: ("2001:2:0:6464::".parse().unwrap(), 96),
        suffix: "dns64perf.test".into(),
        aaaa_share: Share::NONE,
        cpus: "0-1".parse().unwrap(),
        chosen: BTreeMap::new(),
    }
}

fn check_error(extra: &str, expected: &Expect) {
    let error = Profile::parse("x.toml", &format!("{MINIMAL}{extra}")).unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn toml_errors_have_line_and_column() {
    check_error(
        "colour = \"red\"\n",
        &expect![[r#"
            profile x.toml: TOML parse error at line 8, column 1
              |
            8 | colour = "red"
              | ^^^^^^
            unknown field `colour`, expected one of `name`, `role`, `programs`, `package`, `caches`, `command`, `stop_signal`, `receive_buffer`, `version`, `requires`, `upstreams`, `zone`, `settings`, `environment`, `files`"#]],
    );
    let error = Profile::parse("x.toml", "name = \n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 1, column 8"), "{error}");
    let error = Profile::parse("x.toml", "name = \"x\"\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("missing field `role`"), "{error}");
}

#[test]
fn line_ends_of_windows_are_not_in_the_files_of_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.toml");
    let text = format!("{MINIMAL}[files]\n\"x.conf\" = '''\na\nb\n'''\n");
    std::fs::write(&path, text.replace('\n', "\r\n")).unwrap();
    let loaded = Profile::load(path.to_str().unwrap()).unwrap();
    assert_eq!(loaded.text(), text);
}

#[test]
fn unknown_placeholders_are_located() {
    check_error(
        "[files]\n\"x.conf\" = '''\nlisten {listen};\n  port {prot};\n'''\n",
        &expect![
            "profile x.toml, line 11, column 8: unknown placeholder {prot}; there are program, workdir, listen, listen_v4, port, upstream, upstream_port, upstream_socket, upstream_family, pref64, pref64_address, suffix, cores, zone, aaaa_share"
        ],
    );
}

#[test]
fn files_outside_the_working_directory_are_refused() {
    for name in ["../x", "/etc/x", "a/b", "..", ""] {
        let text = format!("{MINIMAL}[files]\n\"{name}\" = ''\n");
        let error = Profile::parse("x.toml", &text).unwrap_err().to_string();
        assert!(
            error.contains("line 9") && error.contains("not a plain name"),
            "{error}"
        );
    }
}

#[test]
fn empty_lists_are_refused() {
    let text = MINIMAL.replace("[\"xd\"]", "[]");
    let error = Profile::parse("x.toml", &text).unwrap_err().to_string();
    assert!(error.contains("`programs` is empty"), "{error}");
}

#[test]
fn placeholders_are_replaced_and_other_braces_kept() {
    let text = format!(
        "{MINIMAL}[environment]\nN = \"{{cores}}\"\n[files]\nf = '{{ {{listen}}#{{port}}; }} {{}} {{A}} {{{{suffix}}}} {{upstream_socket}} {{upstream_family}} {{pref64}} {{workdir}} {{zone}}'\n"
    );
    let profile = Profile::parse("x.toml", &text).unwrap();
    let rendered = profile
        .render(&settings(), Path::new("/bin/xd"), Path::new("/w"))
        .unwrap();
    assert_eq!(rendered.command, ["/bin/xd"]);
    assert_eq!(rendered.environment, [("N".to_owned(), "2".to_owned())]);
    assert_eq!(
        rendered.files[0].1,
        "{ 2001:2:0:1::2#53; } {} {A} {dns64perf.test} [2001:2:0:2::2]:53 ipv6 2001:2:0:6464::/96 /w /w/zone"
    );
}

#[test]
fn every_built_in_profile_is_valid() {
    for name in built_in_names() {
        let profile = Profile::built_in(name).unwrap();
        assert_eq!(profile.name, name);
        let mut settings = settings();
        settings.upstreams = vec!["198.18.0.2:53".parse().unwrap()];
        if profile.requires.root && !rustix::process::geteuid().is_root() {
            continue;
        }
        let rendered = profile
            .render(&settings, Path::new("/bin/server"), Path::new("/w"))
            .unwrap();
        for (file, contents) in rendered.files {
            assert!(unknown(&contents, |_| false).is_none(), "{name}: {file}");
        }
    }
}

/// The same settings with a second authority.
fn two_upstreams(of: &Settings) -> Settings {
    let mut settings = of.clone();
    settings.upstreams.push(match of.upstreams[0].is_ipv4() {
        true => "198.18.1.2:53".parse().unwrap(),
        false => "[2001:2:0:12::2]:53".parse().unwrap(),
    });
    settings
}

#[test]
fn each_authority_is_written_and_one_is_written_as_before() {
    let text = format!(
        "{MINIMAL}[upstreams]\neach = '{{upstream}}#{{upstream_port}}'\nbetween = ', '\nmost = 2\n\
         [files]\nf = '{{upstreams}}; {{upstream}}'\n"
    );
    let profile = Profile::parse("x.toml", &text).unwrap();
    let file = |settings: &Settings| {
        let rendered = profile.render(settings, Path::new("x"), Path::new("w"));
        rendered.map(|rendered| rendered.files[0].1.clone())
    };
    let one = settings();
    assert_eq!(file(&one).unwrap(), "2001:2:0:2::2#53; 2001:2:0:2::2");
    let mut several = two_upstreams(&one);
    assert_eq!(
        file(&several).unwrap(),
        "2001:2:0:2::2#53, 2001:2:0:12::2#53; 2001:2:0:2::2"
    );
    several
        .upstreams
        .push("[2001:2:0:22::2]:53".parse().unwrap());
    assert_eq!(
        file(&several).unwrap_err().to_string(),
        "x asks at most 2 of the 3 authorities; use a plan with fewer"
    );
    let plain = Profile::parse("x.toml", MINIMAL).unwrap();
    assert_eq!(
        plain.check_upstreams(2).unwrap_err().to_string(),
        "x asks at most 1 of the 2 authorities; use a plan with one, or a profile with a table [upstreams]"
    );
    plain.check_upstreams(1).unwrap();
}

#[test]
fn table_of_upstreams_must_be_used_and_have_known_placeholders() {
    let with = |table: &str, file: &str| {
        let text = format!("{MINIMAL}[upstreams]\n{table}\n[files]\nf = '{file}'\n");
        Profile::parse("x.toml", &text)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let table = "each = '{upstream}'\nbetween = ' '";
    with(table, "{upstreams}").unwrap();
    let unused = with(table, "{upstream}").unwrap_err();
    assert!(
        unused.contains("line 9, column 8: nothing has the placeholder {upstreams}"),
        "{unused}"
    );
    let unknown = with("each = '{upstreams}'\nbetween = ' '", "{upstreams}").unwrap_err();
    assert!(
        unknown.contains("unknown placeholder {upstreams}"),
        "{unknown}"
    );
    let text = format!("{MINIMAL}[files]\nf = '{{upstreams}}'\n");
    let without = Profile::parse("x.toml", &text).unwrap_err().to_string();
    assert!(
        without.contains("unknown placeholder {upstreams}"),
        "{without}"
    );
}

/// The lines in the files of a DUT that contain its authorities, with one authority and with two.
fn written(name: &str) -> [String; 2] {
    let profile = Profile::built_in(name).unwrap();
    let mut one = settings();
    one.upstreams = vec!["198.18.0.2:53".parse().unwrap()];
    let two = two_upstreams(&one);
    [one, two].map(|settings| {
        let rendered = render_of(&profile, &settings);
        let lines = rendered.files.iter().flat_map(|(_, text)| text.lines());
        let named = lines.filter(|line| line.contains("198.18."));
        named.map(str::trim).collect::<Vec<_>>().join("|")
    })
}

#[test]
fn every_dut_supports_several_authorities() {
    for (name, one, two) in [
        (
            "dns64d",
            r#"servers = ["198.18.0.2:53"]"#,
            r#"servers = ["198.18.0.2:53", "198.18.1.2:53"]"#,
        ),
        (
            "bind",
            "server-addresses { 198.18.0.2; };",
            "server-addresses { 198.18.0.2; 198.18.1.2; };",
        ),
        (
            "unbound",
            "forward-addr: 198.18.0.2@53",
            "forward-addr: 198.18.0.2@53|forward-addr: 198.18.1.2@53",
        ),
        (
            "pdns-recursor",
            "forward-zones-recurse=.=198.18.0.2:53",
            "forward-zones-recurse=.=198.18.0.2:53;198.18.1.2:53",
        ),
        (
            "knot-resolver",
            "policy.add(policy.all(policy.FORWARD({ '198.18.0.2@53' })))",
            "policy.add(policy.all(policy.FORWARD({ '198.18.0.2@53', '198.18.1.2@53' })))",
        ),
        (
            "coredns",
            "forward . 198.18.0.2:53 {",
            "forward . 198.18.0.2:53 198.18.1.2:53 {",
        ),
        (
            "totd",
            "forwarder 198.18.0.2 port 53",
            "forwarder 198.18.0.2 port 53|forwarder 198.18.1.2 port 53",
        ),
    ] {
        assert_eq!(written(name), [one, two], "{name}");
    }
    if rustix::process::geteuid().is_root() {
        let both = "nameserver 198.18.0.2|nameserver 198.18.1.2";
        assert_eq!(written("mtd64-ng"), ["nameserver 198.18.0.2", both]);
    }
    let duts = built_in_names().map(|name| Profile::built_in(name).unwrap());
    for profile in duts.filter(|profile| profile.role == ProfileRole::Dut) {
        profile.check_upstreams(4).unwrap();
    }
}

#[test]
fn settings_have_defaults_and_can_be_chosen() {
    let text = format!(
        "{MINIMAL}[settings]\nthreads = '{{cores}}'\ncache = '64m'\n\
         [files]\nf = '{{threads}} {{cache}} {{cores}}'\n"
    );
    let profile = Profile::parse("x.toml", &text).unwrap();
    let mut settings = settings();
    let file = |settings: &Settings| {
        let rendered = profile.render(settings, Path::new("x"), Path::new("w"));
        rendered.map(|r| r.files[0].1.clone())
    };
    assert_eq!(file(&settings).unwrap(), "2 64m 2");
    settings.chosen.insert("threads".into(), "7".into());
    assert_eq!(file(&settings).unwrap(), "7 64m 2");
    settings.chosen.insert("thraeds".into(), "7".into());
    assert_eq!(
        file(&settings).unwrap_err().to_string(),
        "profile x has no setting \"thraeds\"; it has cache, threads"
    );
    let plain = Profile::parse("x.toml", MINIMAL).unwrap();
    assert_eq!(
        plain
            .check_settings(&settings.chosen)
            .unwrap_err()
            .to_string(),
        "profile x has no setting \"thraeds\"; it has none"
    );
    let defaults: Vec<_> = profile.settings().collect();
    assert_eq!(defaults, [("cache", "64m"), ("threads", "{cores}")]);
}

#[test]
fn settings_cannot_hide_placeholders_or_depend_on_each_other() {
    for (extra, expected) in [
        (
            "[settings]\nport = '1'\n",
            "line 9, column 8: \"port\" cannot be a setting",
        ),
        (
            "[settings]\nPort-x = '1'\n",
            "line 9, column 10: \"Port-x\" cannot be a setting",
        ),
        (
            "[settings]\na = '1'\nb = '{a}'\n",
            "line 10, column 6: unknown placeholder {a}; there are",
        ),
        (
            "[settings]\na = '1'\n[files]\nf = '{c}'\n",
            "upstream_family, pref64, pref64_address, suffix, cores, zone, aaaa_share, a",
        ),
    ] {
        let error = Profile::parse("x.toml", &format!("{MINIMAL}{extra}")).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn every_dut_has_a_setting_for_its_threads_that_is_used() {
    for name in built_in_names() {
        let profile = Profile::built_in(name).unwrap();
        if profile.role == ProfileRole::Authority || profile.requires.root {
            continue;
        }
        // It is single-threaded.
        if name == "totd" {
            assert_eq!(profile.settings().count(), 0);
            continue;
        }
        let mut settings = settings();
        let names: Vec<String> = profile.settings().map(|(n, _)| n.to_owned()).collect();
        assert!(names.contains(&"threads".to_owned()), "{name}");
        let mut seen = vec![format!("{:?}", render_of(&profile, &settings))];
        for setting in names {
            settings.chosen.insert(setting.clone(), "77".into());
            let rendered = format!("{:?}", render_of(&profile, &settings));
            assert!(
                !seen.contains(&rendered),
                "{name}: {setting} changes nothing"
            );
            seen.push(rendered);
        }
    }
}

fn render_of(profile: &Profile, settings: &Settings) -> Rendered {
    profile
        .render(settings, Path::new("/bin/server"), Path::new("/w"))
        .unwrap()
}

#[test]
fn missing_requirements_of_a_server_are_reported() {
    let text = format!("{MINIMAL}[requires]\nupstream_family = \"ipv4\"\nupstream_port = 53\n");
    let profile = Profile::parse("x.toml", &text).unwrap();
    let mut settings = settings();
    let render = |settings: &Settings| {
        profile
            .render(settings, Path::new("x"), Path::new("w"))
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        render(&settings).unwrap_err(),
        "x needs an authority over ipv4, not at 2001:2:0:2::2"
    );
    settings.upstreams = vec!["127.0.0.1:10054".parse().unwrap()];
    assert_eq!(
        render(&settings).unwrap_err(),
        "x needs an authority at port 53, not 10054; use a lab of namespaces"
    );
    settings.upstreams = vec!["127.0.0.1:53".parse().unwrap()];
    render(&settings).unwrap();
}

#[test]
fn missing_program_names_its_package() {
    let mut profile = Profile::parse("x.toml", MINIMAL).unwrap();
    profile.programs = vec!["no-such-server".into()];
    assert_eq!(
        profile.program(None).unwrap_err().to_string(),
        "x: found none of no-such-server; build it and use --dut-binary PATH"
    );
    profile.package = Some("xpkg".into());
    assert_eq!(
        profile.program(None).unwrap_err().to_string(),
        "x: found none of no-such-server; install the Debian package xpkg"
    );
    let error = profile.program(Some(Path::new("/etc/passwd"))).unwrap_err();
    assert!(error.to_string().contains("not an executable file"));
    assert!(Profile::load("bnid").unwrap_err().to_string().starts_with(
        "no profile \"bnid\" (did you mean \"bind\"?); built-in profiles are dns64d, bind, unbound,"
    ));
}

#[test]
fn version_is_found_after_a_timestamp() {
    let profile = Profile::parse("x.toml", MINIMAL).unwrap();
    assert_eq!(
        profile.version_in("hello\nNov 21 03:46:13 x 4.8.8 (C) 2022 \n"),
        Some("x 4.8.8 (C) 2022".to_owned())
    );
    assert_eq!(profile.version_in("y 1\n"), None);
}

#[test]
fn a_server_with_its_version_is_named_once() {
    let told = [
        (
            "dns64d",
            "dns64d 0.1.0 (commit ab)",
            "dns64d 0.1.0 (commit ab)",
        ),
        ("bind", "BIND 9.18.49", "BIND 9.18.49"),
        ("unbound", "Version 1.17.1", "unbound (Version 1.17.1)"),
        (
            "knot",
            "knotd (Knot DNS), version 3.2.6",
            "knot (knotd (Knot DNS), version 3.2.6)",
        ),
        ("x", "x", "x (x)"),
    ];
    for (name, version, expected) in told {
        assert_eq!(with_version(name, version), expected);
    }
}
