//! `zone`: writing, refusing and checking zones.

use super::authority::Authority;
use super::program::run;

#[test]
fn zone_is_written_to_standard_output_or_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zone");
    let flags = "--namespace 192.0.2.0/31 --suffix example.test --aaaa-share 50%";
    let told = run(&format!("zone {flags}"));
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.stdout.starts_with("$ORIGIN example.test.\n"),
        "{told:?}"
    );
    assert_eq!(told.stdout.matches("192-000-002-00").count(), 2, "{told:?}");
    assert_eq!(
        told.stdout.matches(" AAAA 2001:db8::c000:02").count(),
        1,
        "{told:?}"
    );
    let silent = run(&format!("zone {flags} -o {}", path.display()));
    assert_eq!((silent.code, silent.stdout.as_str()), (Some(0), ""));
    assert_eq!(std::fs::read_to_string(path).unwrap(), told.stdout);
}

#[test]
fn check_reports_the_first_answer_that_differs() {
    let authority = Authority::start("--self-test");
    let check = |flags: &str| run(&format!("zone --check {} {flags}", authority.address));
    let same = check("--self-test");
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.stdout.contains("64 names of 10.0.0.0/8"), "{same:?}");
    let other = check("--aaaa-share 0");
    assert_eq!(other.code, Some(4), "{other:?}");
    let expected = "answers the AAAA query for 010-000-000-000.dns64perf.test. with \
                    2001:db8::a00:0, and the built-in authority with no record";
    assert!(other.stderr.contains(expected), "{other:?}");
    let outside = check("--suffix example.test");
    assert!(
        outside.stderr.contains("with REFUSED, and the built-in"),
        "{outside:?}"
    );
}

#[test]
fn dry_run_refuses_a_zone_that_does_not_fit_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let dry_run = |namespace: &str| {
        let plan = directory.path().join("plan.toml");
        let text = format!(
            "[tester]\nnamespace = \"{namespace}\"\n[search]\nmax-rate = \"10k\"\n[[dut]]\n\
             authority = \"knot\"\n"
        );
        std::fs::write(&plan, text).unwrap();
        run(&format!("run --dry-run {}", plan.display()))
    };
    let refused = dry_run("0.0.0.0/0");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("knot needs about 1760 GiB of memory"),
        "{refused:?}"
    );
    let told = dry_run("10.0.0.0/12");
    // Knot itself may be missing.
    assert!(!told.stderr.contains("of memory"), "{told:?}");
    let zone = "knot serves 1,048,576 names of 10.0.0.0/12 with 2,097,152 records: about 448 MiB";
    assert!(told.stdout.contains(zone), "{told:?}");
}

#[test]
fn dry_run_lists_missing_programs_after_the_steps() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    let dut = |name: &str| format!("[[dut]]\nname = \"{name}\"\nprofile = \"{name}.toml\"\n");
    for name in ["one", "two"] {
        let profile = format!(
            "name = \"{name}\"\nrole = \"dut\"\nprograms = [\"no-such-{name}\"]\ncaches = true\n\
             command = [\"{{program}}\"]\n[version]\ncommand = [\"{{program}}\"]\nstarts_with = \"\"\n"
        );
        std::fs::write(directory.path().join(format!("{name}.toml")), profile).unwrap();
    }
    std::fs::write(&plan, dut("one") + &dut("two")).unwrap();
    let told = run(&format!("run --dry-run {}", plan.display()));
    assert_eq!(told.code, Some(4), "{told:?}");
    assert!(told.stdout.contains("variants  one\n"), "{told:?}");
    for (name, line) in [("one", 3), ("two", 6)] {
        let missing = format!(
            "plan.toml:{line}:11: {name}: found none of no-such-{name}; build it and use binary = \"PATH\"\n"
        );
        assert!(told.stderr.contains(&missing), "{told:?}");
    }
}
