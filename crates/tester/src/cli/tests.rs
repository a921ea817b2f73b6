//! Tests of the whole command line; the tests of single flags are beside their parsers.

use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, Command as Definition, CommandFactory as _, Parser as _};
use clap_complete::Shell;
use dns64_transport::Backend;

use super::args::Generated;
use super::resolve::{Measurement, Needs};
use super::{Cli, Command, generate};
use crate::lab::topology::Setup;
use crate::lab::{LabError, LabKind};
use crate::rig::spec::Subject;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

/// The measurement of a `trial`, `search` or `selftest` command line.
fn measure(line: &str) -> Result<Measurement, LabError> {
    let (measure, needs) = match parse(line).unwrap().command {
        Command::Trial(args) => (args.measure, Needs::Dut),
        Command::Search(args) => (args, Needs::Dut),
        Command::SelfTest(args) => (args.measure, Needs::AuthorityOnly),
        other => panic!("{other:?} measures nothing"),
    };
    measure.resolve(needs)
}

fn walk(definition: &Definition, visit: &mut impl FnMut(&Definition)) {
    visit(definition);
    for subcommand in definition.get_subcommands() {
        walk(subcommand, visit);
    }
}

fn generated(what: &Generated) -> String {
    let mut out = Vec::new();
    generate::run(what, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn each_flag_and_each_command_has_one_line_of_help() {
    let mut flags = 0;
    walk(&Cli::command(), &mut |definition| {
        let name = definition.get_name().to_owned();
        assert!(definition.get_about().is_some(), "{name}");
        for arg in definition.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let id = Arg::get_id(arg);
            assert!(!help.is_empty(), "{name} {id}");
            assert!(
                !help.contains('\n') && help.len() <= 100,
                "{name} {id}: {help}"
            );
            assert!(!help.ends_with('.'), "{name} {id}: {help}");
            flags += 1;
        }
    });
    assert!(flags > 60, "only {flags} flags were seen");
}

#[test]
fn each_help_renders() {
    walk(&Cli::command(), &mut |definition| {
        let help = definition.clone().render_long_help().to_string();
        assert!(help.contains("Usage:"), "{}", definition.get_name());
    });
}

#[test]
fn man_pages_of_all_commands_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    generated(&Generated::Man {
        directory: Some(pages.clone()),
    });
    for page in [
        "dns64bench",
        "dns64bench-trial",
        "dns64bench-selftest",
        "dns64bench-search",
        "dns64bench-run",
        "dns64bench-resume",
        "dns64bench-report",
        "dns64bench-verify",
        "dns64bench-compare",
        "dns64bench-timing",
        "dns64bench-dns64perf",
        "dns64bench-authority",
        "dns64bench-lab",
        "dns64bench-lab-up",
        "dns64bench-lab-down",
        "dns64bench-lab-exec",
        "dns64bench-agent",
        "dns64bench-profile",
        "dns64bench-profile-show",
        "dns64bench-doctor",
        "dns64bench-demo",
    ] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".TH"), "{page}");
        assert!(text.contains(".SH \"EXIT STATUS\"\n\\&0 passed"), "{page}");
        assert!(!text.contains("EXTRA"), "{page}");
    }
    let run = std::fs::read_to_string(pages.join("dns64bench-run.1")).unwrap();
    let also = ".SH \"SEE ALSO\"\n.BR dns64bench (1) ,\n.BR dns64bench\\-plan (5)\n";
    assert!(run.ends_with(also), "{run}");
    assert!(pages.join("dns64bench-plan.5").exists());
    let main = generated(&Generated::Man { directory: None });
    assert!(main.contains("RFC 8219"));
    let search = std::fs::read_to_string(pages.join("dns64bench-search.1")).unwrap();
    let examples = ".SH EXAMPLES\n.nf\n\\&dns64bench search \\-\\-dut bind";
    assert!(search.contains(examples), "{search}");
    let synopsis = search
        .split(".SH ")
        .find(|section| section.starts_with("SYNOPSIS"));
    let values = [
        "[\\-Q QPS]",
        "[\\-s ADDR|NAME]",
        "[\\-\\-dut\\-set NAME=VALUE]...",
        "[\\-\\-restart]",
    ];
    for value in values {
        assert!(
            synopsis.is_some_and(|text| text.contains(value)),
            "{value}: {search}"
        );
    }
}

#[test]
fn help_fits_into_eighty_columns() {
    let mut command = Cli::command().term_width(80);
    command.build();
    walk(&command, &mut |definition| {
        for help in [
            definition.clone().render_help(),
            definition.clone().render_long_help(),
        ] {
            let help = help.to_string();
            let long: Vec<_> = help
                .lines()
                .filter(|line| line.chars().count() > 80)
                .collect();
            assert!(long.is_empty(), "{}: {long:#?}", definition.get_name());
        }
    });
}

#[test]
fn completions_have_the_flags_of_the_table() {
    for shell in [
        Shell::Bash,
        Shell::Zsh,
        Shell::Fish,
        Shell::Elvish,
        Shell::PowerShell,
    ] {
        let text = generated(&Generated::Completions { shell });
        assert!(text.contains("max-stall"), "{shell:?}: {text}");
    }
}

#[test]
fn running_server_takes_the_flags_of_dnsperf() {
    let line = "dns64bench trial -s ::1 -p 5353 -Q 20k -l 5 -t 0.25 -T 2 -c 8 -a ::1 -j - -q";
    let measure = measure(line).unwrap();
    let Subject::Server { server, .. } = &measure.spec.subject else {
        panic!("{:?}", measure.spec.subject)
    };
    assert_eq!(server.to_string(), "[::1]:5353");
    assert_eq!(measure.spec.load.duration_ns, 5_000_000_000);
    assert_eq!(measure.spec.load.timeout_ns, 250_000_000);
    assert_eq!(
        (measure.spec.load.threads, measure.spec.load.ports),
        (2, Some(8))
    );
    assert!(measure.output.quiet);
    assert_eq!(
        measure.recommended(Some(1)).deviation().unwrap(),
        "other than RFC 8219 section 9.2 asks: trials of 5 s instead of 60 s, 1 search instead of 20"
    );
}

#[test]
fn the_defaults_are_those_of_rfc_8219() {
    let measure = measure("dns64bench search -s 2001:db8::53").unwrap();
    assert_eq!(measure.spec.load.duration_ns, 60_000_000_000);
    assert_eq!(measure.spec.load.timeout_ns, 1_000_000_000);
    assert_eq!(measure.spec.load.pref64, None);
    let recommended = measure.recommended(None);
    assert_eq!(
        (recommended.deviation(), recommended.remarks()),
        (None, Vec::new())
    );
}

#[test]
fn deviations_from_rfc_8219_are_noted() {
    let measure = measure("dns64bench trial -s 192.0.2.1 -Q 1 -t 2s").unwrap();
    let recommended = measure.recommended(None);
    let remarks = recommended.remarks().into_iter();
    let remarks: Vec<_> = remarks.map(|remark| remark.to_string()).collect();
    assert_eq!(
        recommended.deviation().unwrap(),
        "other than RFC 8219 section 9.2 asks: a timeout of 2 s instead of 1 s"
    );
    assert_eq!(
        remarks,
        [
            "the server is queried over IPv4; RFC 8219 section 9.1 requires IPv6 between client and \
             DNS64 server"
        ]
    );
}

#[test]
fn a_profile_is_started_in_a_lab() {
    let measure =
        measure("dns64bench search --dut unbound --lab netns --setup two-device --dut-cpus 1")
            .unwrap();
    let Subject::Lab(plan) = &measure.spec.subject else {
        panic!("{:?}", measure.spec.subject)
    };
    assert_eq!(measure.plan.lab, LabKind::Netns);
    assert_eq!(plan.setup, Setup::TwoDevice);
    let dut = plan.dut.as_ref().unwrap();
    assert_eq!(dut.profile, "unbound");
    assert_eq!(dut.cpus.cpus(), [1]);
}

#[test]
fn authority_behaviour_is_refused_in_self_tests_and_for_other_authorities() {
    let faults = "--authority-behaviour delay=5ms,loss=0.1%";
    let lab = measure(&format!("dns64bench trial --dut unbound -Q 1 {faults}")).unwrap();
    let behaviour = &lab.spec.subject.lab().unwrap().behaviour;
    assert_eq!(behaviour.to_string(), "delay=5ms,loss=0.1%");
    for line in ["selftest", "search --dut bind --authority nsd"] {
        let refused = measure(&format!("dns64bench {line} {faults}")).unwrap_err();
        let messages = refused.to_string();
        let expected = "--authority-behaviour does not apply to";
        assert!(
            messages.starts_with(expected) && !messages.contains('\n'),
            "{messages}"
        );
        // `none` is valid for any authority.
        let none = format!("dns64bench {line} --authority-behaviour none");
        assert!(measure(&none).is_ok());
    }
}

#[test]
fn no_server_and_two_servers_are_errors_that_name_both_flags() {
    let none = measure("dns64bench trial -Q 1").unwrap_err();
    let both = measure("dns64bench search -s ::1 --dut bind").unwrap_err();
    assert!(none.to_string().starts_with("no server"), "{none}");
    assert!(both.to_string().starts_with("--server and --dut"), "{both}");
    for error in [none, both] {
        let text = error.to_string();
        assert!(
            text.contains("--server ADDR") && text.contains("--dut PROFILE"),
            "{text}"
        );
    }
}

#[test]
fn self_test_has_no_dut() {
    let measure = measure("dns64bench selftest -Q 20k").unwrap();
    let Subject::Lab(plan) = &measure.spec.subject else {
        panic!("{:?}", measure.spec.subject)
    };
    assert!(plan.dut.is_none());
}

#[test]
fn contradictions_are_usage_errors() {
    for (line, kind) in [
        ("trial -s ::1", ErrorKind::MissingRequiredArgument),
        ("trial -s ::1 -Q NaN", ErrorKind::ValueValidation),
        ("trial -s ::1 -Q -5", ErrorKind::ValueValidation),
        ("trial -s ::1 -Q 0.5", ErrorKind::ValueValidation),
        ("trial -s ::1 -Q 1 -l 0", ErrorKind::ValueValidation),
        ("trial -s ::1 -Q 1 -t 61s", ErrorKind::ValueValidation),
        (
            "trial -s ::1 -Q 1 --namespace 10.0.0.1/8",
            ErrorKind::ValueValidation,
        ),
        (
            "trial -s ::1 -Q 1 --pref64 64:ff9b::/95",
            ErrorKind::ValueValidation,
        ),
        (
            "trial -s ::1 -Q 1 --aaaa-share 1.5",
            ErrorKind::ValueValidation,
        ),
        ("trial -s ::1 -Q 1 --cpus x", ErrorKind::ValueValidation),
        ("trial -s ::1 -Q 1 -p 0", ErrorKind::ValueValidation),
        ("trial -s ::1 -Q 1 -T 0", ErrorKind::ValueValidation),
        ("trial -s ::1 -Q 1 --lab netns", ErrorKind::ArgumentConflict),
        (
            "trial -s ::1 -Q 1 --restart",
            ErrorKind::MissingRequiredArgument,
        ),
        (
            "trial --dut bind -Q 1 -p 53",
            ErrorKind::MissingRequiredArgument,
        ),
        (
            "authority --self-test --aaaa-share 0.2",
            ErrorKind::ArgumentConflict,
        ),
        (
            "authority --self-test --behaviour loss=1%",
            ErrorKind::ArgumentConflict,
        ),
        (
            "trial -s ::1 -Q 1 --authority-behaviour loss=1%",
            ErrorKind::ArgumentConflict,
        ),
        (
            "trial --dut bind -Q 1 --authority-behaviour lose=1%",
            ErrorKind::ValueValidation,
        ),
        ("lab exec measurer", ErrorKind::MissingRequiredArgument),
        ("measure", ErrorKind::InvalidSubcommand),
        ("run --dry-run", ErrorKind::MissingRequiredArgument),
    ] {
        match parse(&format!("dns64bench {line}")) {
            Err(error) => assert_eq!(error.kind(), kind, "{line}: {error}"),
            Ok(cli) => panic!("{line}: {cli:?}"),
        }
    }
}

#[test]
fn the_page_of_the_command_line_is_what_the_program_prints() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli-dns64bench.md");
    expect_test::expect_file![page].assert_eq(&generated(&Generated::Markdown));
}

#[test]
fn commands_and_plans_named_for_the_papers_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/papers.md")).unwrap();
    let definition = Cli::command();
    let (mut commands, mut plans) = (0, 0);
    for code in page.split('`').skip(1).step_by(2) {
        if code.ends_with(".toml") {
            assert!(root.join("examples").join(code).exists(), "{code}");
            plans += 1;
        }
        let Some(line) = code.strip_prefix("dns64bench ") else {
            continue;
        };
        let mut words = line.split_whitespace();
        let command = definition.find_subcommand(words.next().unwrap());
        let command = command.unwrap_or_else(|| panic!("{code}"));
        for flag in words.filter_map(|word| word.strip_prefix("--")) {
            let known = command
                .get_arguments()
                .any(|it| it.get_long() == Some(flag));
            assert!(known, "{code}: no --{flag}");
        }
        commands += 1;
    }
    assert!(commands >= 12 && plans >= 9, "{commands} {plans}");
}

#[test]
fn invalid_rate_error_says_what_is_expected() {
    let error = parse("dns64bench trial -s ::1 -Q NaN")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("'NaN' for '--rate <QPS>': a rate in queries per second is expected"),
        "{error}"
    );
}

#[test]
fn flags_are_checked_against_each_other() {
    let families = measure("dns64bench trial -s ::1 -Q 1 -a 127.0.0.1").unwrap_err();
    assert_eq!(
        families.to_string(),
        "--local 127.0.0.1 and --server ::1 are of different IP versions; omit --local, or give an address of the \
         server's IP version"
    );
    let two_ports = measure("dns64bench trial -s [::1]:5300 -p 53 -Q 1").unwrap_err();
    let expected = "--server has the port 5300, and --port is 53; omit one of them";
    assert_eq!(two_ports.to_string(), expected);
    let link_local = measure("dns64bench trial -s ::1 -Q 1 -a fe80::1%lo").unwrap_err();
    assert_eq!(
        link_local.to_string(),
        "--local fe80::1 is link-local and --server ::1 is not; give another source address, or the link-local address \
         of the server"
    );
    let in_lab = measure("dns64bench trial --dut unbound -Q 1 -a 2001:2:0:78::/116").unwrap();
    assert_eq!(in_lab.spec.load.local.unwrap().count(), 4095);
    let of_lab = measure("dns64bench selftest -a 2001:2:0:1::/116").unwrap_err();
    assert_eq!(
        of_lab.to_string(),
        "--local 2001:2:0:1::/116 contains 2001:2:0:1::1, an address of the lab; give a prefix without it, such as 2001:2:0:78::/116"
    );
    let sockets = measure("dns64bench trial -s ::1 -Q 1 -T 4 -c 2").unwrap_err();
    assert_eq!(
        sockets.to_string(),
        "--sockets 2 is fewer than --threads 4; each thread needs one, so use --sockets 4 or more"
    );
}

#[test]
fn rate_of_a_search_is_its_first_rate() {
    for line in [
        "search -s ::1 -Q 2k",
        "search -s ::1 --rate 2k",
        "search -s ::1 --start-rate 2k",
    ] {
        let measured = measure(&format!("dns64bench {line}")).unwrap();
        assert_eq!(measured.plan.search.method.first_qps(), 2000, "{line}");
    }
}

#[test]
fn program_for_a_host_keeps_its_flags() {
    let cli = parse("dns64bench lab exec dut dig -p 53 @::1").unwrap();
    let text = format!("{cli:?}");
    assert!(text.contains(r#"["dig", "-p", "53", "@::1"]"#), "{text}");
}

#[test]
fn force_requires_a_backend() {
    let backend = |flags: &str| {
        let measured = measure(&format!("dns64bench trial --server ::1 -Q 1k {flags}"));
        measured.unwrap().spec.load.backend
    };
    let xdp = |force| Some(Backend::Xdp { force });
    assert_eq!([backend(""), backend("--backend auto")], [None, None]);
    assert_eq!(backend("--backend socket"), Some(Backend::Socket));
    assert_eq!(backend("--backend xdp"), xdp(false));
    assert_eq!(backend("--backend xdp --force"), xdp(true));
    let alone = parse("dns64bench trial --server ::1 -Q 1k --force");
    assert_eq!(
        alone.unwrap_err().kind(),
        ErrorKind::MissingRequiredArgument
    );
    let authority = parse("dns64bench authority --backend xdp").unwrap().command;
    assert!(
        matches!(authority, Command::Authority(args) if args.settings.0.plan.load.backend == xdp(false))
    );
}
