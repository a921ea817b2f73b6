//! The command line, up to the bytes that it prints.

use clap::CommandFactory as _;

use super::run::{Failure, run};
use super::*;

fn dns64d(arguments: &[&str]) -> Result<(u8, String), Failure> {
    let arguments = std::iter::once(&"dns64d").chain(arguments);
    let mut out = Vec::new();
    let code = run(Cli::try_parse_from(arguments).unwrap(), &mut out)?;
    Ok((code, String::from_utf8(out).unwrap()))
}

fn parse(arguments: &[&str]) -> Result<Cli, clap::error::ErrorKind> {
    let arguments = std::iter::once(&"dns64d").chain(arguments);
    Cli::try_parse_from(arguments).map_err(|error| error.kind())
}

#[test]
fn command_line_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn server_runs_with_exactly_one_configuration() {
    let cli = parse(&[]).unwrap();
    assert_eq!(cli.config.to_str(), Some("/etc/dns64d/dns64d.toml"));
    assert!(cli.command.is_none());
    let cli = parse(&["--mtd64-ng", "x.conf"]).unwrap();
    assert_eq!(cli.mtd64_ng, Some("x.conf".into()));
    let both = parse(&["--mtd64-ng", "x.conf", "--config", "y.toml"]);
    assert_eq!(both.unwrap_err(), clap::error::ErrorKind::ArgumentConflict);
    let with_command = parse(&["--config", "y.toml", "template"]);
    assert_eq!(
        with_command.unwrap_err(),
        clap::error::ErrorKind::ArgumentConflict
    );
}

#[test]
fn template_is_valid_except_for_its_upstream() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dns64d.toml");
    let (code, text) = dns64d(&["template"]).unwrap();
    assert_eq!(code, exit::DONE);
    std::fs::write(&path, &text).unwrap();
    let failure = dns64d(&["check", path.to_str().unwrap()]).unwrap_err();
    assert_eq!(failure.code, exit::REFUSED);
    std::fs::write(&path, text.replace("192.0.2.53", "192.0.2.1")).unwrap();
    let path = path.to_str().unwrap();
    let (code, text) = dns64d(&["check", path]).unwrap();
    assert_eq!(code, exit::DONE);
    assert!(text.starts_with(&format!("{path}: valid\n")), "{text}");
}

#[test]
fn imported_configuration_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["unbound.conf", "dns64d.toml"].map(|name| dir.path().join(name));
    let text = "server:\n  harden-glue: yes\nforward-zone:\n  name: .\n  forward-addr: 192.0.2.1\n";
    std::fs::write(&old, text).unwrap();
    let (code, text) = dns64d(&["import", old.to_str().unwrap()]).unwrap();
    let left = format!("# {}:2:3: harden-glue yes\n", old.display());
    assert!(code == exit::DONE && text.ends_with(&left), "{text}");
    std::fs::write(&new, text).unwrap();
    assert_eq!(
        dns64d(&["check", new.to_str().unwrap()]).unwrap().0,
        exit::DONE
    );
    let missing = dns64d(&["import", "/nonexistent"]).unwrap_err();
    assert_eq!(missing.code, exit::ENVIRONMENT);
}

#[test]
fn invalid_file_and_missing_file_have_different_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dns64d.toml");
    let path = path.to_str().unwrap();
    let failure = dns64d(&["check", path]).unwrap_err();
    assert_eq!(failure.code, exit::ENVIRONMENT, "{:#}", failure.error);
    std::fs::write(path, "listen = []\nno-such-key = 1\n").unwrap();
    let failure = dns64d(&["check", path]).unwrap_err();
    assert_eq!(failure.code, exit::REFUSED);
    let text = format!("{:#}", failure.error);
    assert!(text.contains(&format!("{path}:2:1: ")), "{text}");
    std::fs::write(path, "nameserver 192.0.2.53\n").unwrap();
    assert_eq!(
        dns64d(&["check", "--mtd64-ng", path]).unwrap().0,
        exit::DONE
    );
}

#[test]
fn missing_server_is_named_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let failure = dns64d(&["ctl", "stats", "--socket", path.to_str().unwrap()]).unwrap_err();
    assert_eq!(failure.code, exit::ENVIRONMENT);
    let text = format!("{:#}", failure.error);
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    assert!(text.contains("start dns64d"), "{text}");
}

#[test]
fn errors_are_json_if_requested() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let line = [
        "dns64d",
        "ctl",
        "--json",
        "stats",
        "--socket",
        path.to_str().unwrap(),
    ];
    let mut out = Vec::new();
    let failure = run(Cli::try_parse_from(line).unwrap(), &mut out).unwrap_err();
    let object: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(object["exit_code"], failure.code);
    assert_eq!(object["error"], failure.error.to_string());
}

#[test]
fn help_fits_into_eighty_columns() {
    let mut command = Cli::command().term_width(80);
    command.build();
    let mut all = vec![command];
    while let Some(mut command) = all.pop() {
        let help = command.render_long_help().to_string();
        let long: Vec<_> = help
            .lines()
            .filter(|line| line.chars().count() > 80)
            .collect();
        assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
        all.extend(command.get_subcommands().cloned());
    }
}

#[test]
fn pages_and_completions_name_the_commands() {
    let (_, page) = dns64d(&["generate", "man"]).unwrap();
    assert!(page.contains("mtd64\\-ng"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let (_, text) = dns64d(&["generate", "completions", shell]).unwrap();
        assert!(text.contains("reload"), "{shell}: {text}");
    }
}

#[test]
fn man_page_of_the_server_is_in_section_8_and_of_its_configuration_in_section_5() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("man");
    dns64d(&["generate", "man", path.to_str().unwrap()]).unwrap();
    let names = std::fs::read_dir(&path).unwrap();
    let mut names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert!(names.contains(&"dns64d.8".into()), "{names:?}");
    assert!(names.contains(&"dns64d-ctl-reload.8".into()), "{names:?}");
    let ctl = std::fs::read_to_string(path.join("dns64d-ctl.8")).unwrap();
    assert!(
        ctl.contains(".SH EXAMPLES\n.nf\n\\&dns64d ctl status\n"),
        "{ctl}"
    );
    assert!(ctl.contains(".SH \"EXIT STATUS\"\n\\&0 success"), "{ctl}");
    assert!(ctl.contains("[\\-\\-socket PATH]"), "{ctl}");
    let page = std::fs::read_to_string(path.join("dns64d.toml.5")).unwrap();
    assert!(page.contains("\n\\&[upstream]\n"), "{page}");
    // A line that begins with a dot is a roff request.
    let requests: Vec<_> = page.lines().filter(|l| l.starts_with('.')).collect();
    let known = [".TH", ".SH", ".B ", ".nf", ".fi", ".BR"];
    let is_known = |l: &&str| known.iter().any(|known| l.starts_with(known));
    assert!(requests.iter().all(is_known), "{requests:?}");
}

#[test]
fn the_page_of_the_command_line_is_what_the_program_prints() {
    let (_, text) = dns64d(&["generate", "markdown"]).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli-dns64d.md");
    expect_test::expect_file![page].assert_eq(&text);
}

#[test]
fn source_that_this_host_lacks_is_a_fault_at_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dns64d.toml");
    let check = |source: &str, more: &str| {
        let upstream = "servers = ['192.0.2.1']  # \"192.0.2.77\"";
        let text = format!("{more}\n[upstream]\nsource = ['127.0.0.9', {source}]\n{upstream}\n");
        std::fs::write(&path, text).unwrap();
        dns64d(&["check", path.to_str().unwrap()]).map_err(|failure| failure.error.to_string())
    };
    let error = check("\"192.0.2.77\"", "").unwrap_err();
    assert!(
        error.contains("dns64d.toml:3:25: no interface of this host has 192.0.2.77; "),
        "{error}"
    );
    let error = check("'2001:DB8:0::77'", "").unwrap_err();
    assert!(
        error.contains("dns64d.toml:3:25: no interface of this host has 2001:db8::77; "),
        "{error}"
    );
    assert!(check("'192.0.2.77'", "free-bind = true").is_ok());
    assert!(check("'127.0.0.8'", "").is_ok());
}
