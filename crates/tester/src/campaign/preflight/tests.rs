//! Plans on simulated machines: files of `/proc` and `/sys` as data.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::*;
use crate::lab::Blame;

/// A machine with CPUs 0-3, of which 0-1 are available, 1 GiB of memory and no network.
fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("proc/self/cgroup", "0::/a\n"),
        ("sys/fs/cgroup/a/cpuset.cpus.effective", "0-1\n"),
        (
            "proc/meminfo",
            "MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\n",
        ),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// A server that prints `version`, as a profile of this role beside a plan.
fn server(root: &TempDir, name: &str, role: &str, version: &str) {
    let program = root.path().join(format!("{name}.sh"));
    fs::write(&program, format!("#!/bin/sh\necho {version}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let profile = format!(
        "name = \"{name}\"\nrole = \"{role}\"\nprograms = [{program:?}]\ncaches = true\n\
         command = [\"{{program}}\"]\n[version]\ncommand = [\"{{program}}\"]\nstarts_with = \"good \"\n\
         [zone]\nbase_mib = 16\noctets_per_name = 200\noctets_per_record = 100\n"
    );
    fs::write(root.path().join(format!("{name}.toml")), profile).unwrap();
}

/// The obstacles to a run of a plan, and what has to change.
fn obstacles(
    root: &TempDir,
    text: &str,
    change: impl FnOnce(&mut Surroundings<'_>),
) -> Vec<Obstacle> {
    let origin = root.path().join("plan.toml").display().to_string();
    let plan = Plan::parse(&origin, text).unwrap_or_else(|error| panic!("{error}"));
    let machine = Machine::at(root.path());
    let mut around = Surroundings {
        machine: &machine,
        no_lab: None,
        no_sources: None,
        directory: Path::new("results"),
        free: Some(1 << 40),
        is_resumed: false,
        may_load: false,
    };
    change(&mut around);
    check(&plan, &around)
}

fn told(root: &TempDir, obstacles: &[Obstacle], expected: &Expect) {
    let texts: Vec<_> = obstacles
        .iter()
        .map(|obstacle| obstacle.problem.to_string())
        .collect();
    let texts = texts.join("\n");
    expected.assert_eq(&texts.replace(&root.path().display().to_string(), "DIR"));
}

#[test]
fn missing_requirements_are_reported_together() {
    let root = machine();
    server(&root, "silent", "dut", "nothing");
    server(&root, "large", "authority", "good 1.0");
    let text = "[tester]\nauthority = \"large.toml\"\ncpus = \"0\"\nauthority-cpus = \"9\"\n\
                namespace = \"10.0.0.0/8\"\n[search]\nmax-rate = \"50k\"\n\
                [[dut]]\nprofile = \"silent.toml\"\ncores = [\"1\", \"0-99\"]\n\
                [[dut]]\nname = \"absent\"\nprofile = \"silent.toml\"\nbinary = \"no/such\"\ncores = \"2\"\n\
                [[dut]]\nprofile = \"totd\"\n";
    let found = obstacles(&root, text, |_| {});
    told(
        &root,
        &found,
        &expect![[r#"
            DIR/plan.toml:4:18: core 9 is missing; use CPUs that are online: 0-3
            4 | authority-cpus = "9"
              |                  ^^^
            DIR/plan.toml:5:13: large needs about 6416 MiB of memory for the 16,777,216 names of 10.0.0.0/8, and 1024 MiB are available; the memory is enough for 10.0.0.0/11 only, but a trial needs 6,600,064 names: use a lower rate, a shorter trial or the built-in authority
            5 | namespace = "10.0.0.0/8"
              |             ^^^^^^^^^^^^
            DIR/plan.toml:10:9: core 4-99 is missing; use CPUs that are online: 0-3
            10 | cores = ["1", "0-99"]
               |         ^^^^^^^^^^^^^
            DIR/plan.toml:14:10: "DIR/no/such" is not an executable file; give the path of the server's binary
            14 | binary = "no/such"
               |          ^^^^^^^^^
            DIR/plan.toml:15:9: core 2 is outside the cpuset of this process; use its CPUs, 0-1, or widen cpuset.cpus of its cgroup (of a container: --cpuset-cpus)
            15 | cores = "2"
               |         ^^^
            DIR/plan.toml:17:11: totd: found none of totd; build it and use binary = "PATH"
            17 | profile = "totd"
               |           ^^^^^^"#]],
    );
}

#[test]
fn complete_machine_has_no_obstacles() {
    let root = machine();
    server(&root, "fine", "dut", "good 1.0");
    let text = "[tester]\ncpus = \"0\"\n[[dut]]\nprofile = \"fine.toml\"\ncores = \"1\"\n[[dut]]\nserver = \
                \"2001:db8::53\"\nself-test-server = \"10.1.2.3\"\n";
    assert_eq!(obstacles(&root, text, |_| {}), []);
}

#[test]
fn public_servers_are_refused_without_permission() {
    let root = machine();
    let text = "[[dut]]\nserver = \"8.8.8.8\"\nself-test-server = \"[2001:4860:4860::8888]:53\"\n[[dut]]\n\
                server = \"ff02::1\"\n[[dut]]\nserver = \"::1\"\nself-test-server = \"::1\"\n";
    let found = obstacles(&root, text, |_| {});
    assert!(
        found
            .iter()
            .all(|obstacle| obstacle.blame == Blame::Request)
    );
    told(
        &root,
        &found,
        &expect![[r#"
        DIR/plan.toml:2:10: 8.8.8.8 is a public address: a measurement overloads the server and may overload every network on the way, which is an attack unless all their operators have agreed; measure a server of your own, or give --i-may-load-this-network if they have agreed
        2 | server = "8.8.8.8"
          |          ^^^^^^^^^
        DIR/plan.toml:3:20: 2001:4860:4860::8888 is a public address: a measurement overloads the server and may overload every network on the way, which is an attack unless all their operators have agreed; measure a server of your own, or give --i-may-load-this-network if they have agreed
        3 | self-test-server = "[2001:4860:4860::8888]:53"
          |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        DIR/plan.toml:5:10: [ff02::1]:53 is not the address of a server; use a unicast address and a port above 0
        5 | server = "ff02::1"
          |          ^^^^^^^^^
        DIR/plan.toml:8:20: the server under test cannot certify the Tester; name an authority in self-test mode, or omit it
        8 | self-test-server = "::1"
          |                    ^^^^^"#]],
    );
    let allowed = obstacles(&root, text, |around| around.may_load = true);
    assert_eq!(allowed, found[2..]);
}

#[test]
fn server_needs_names_for_trials_with_a_known_rate() {
    let root = machine();
    let plan = |more: &str| {
        format!(
            "[tester]\nnamespace = \"0.0.0.0/0\"\n[search]\nstart-rate = \"500k\"\nruns = 200\n{more}[[dut]]\nserver = \"::1\"\n"
        )
    };
    told(
        &root,
        &obstacles(&root, &plan("reuse = false\n"), |_| {}),
        &expect![[r#"
            DIR/plan.toml:8:10: [::1]:53 must not be queried twice for a name: the first trials of its searches need 6,000,000,000 names and the namespace has 4,294,967,296; give a lower rate, shorter trials or fewer runs
            8 | server = "::1"
              |          ^^^^^"#]],
    );
    assert_eq!(obstacles(&root, &plan(""), |_| {}), []);
}

#[test]
fn journal_needs_disk_space_and_a_new_directory() {
    let root = machine();
    let text = "name = \"x\"\n[tester]\nraw = \"csv\"\n[[dut]]\nserver = \"::1\"\n";
    let small = obstacles(&root, text, |around| around.free = Some(1 << 30));
    told(
        &root,
        &small,
        &expect![[r#"
            DIR/plan.toml:3:7: 204 likely trials need 10 GiB in results for the queries of its trials, and 1024 MiB are available there; make room, or choose another directory with --output
            3 | raw = "csv"
              |       ^^^^^"#]],
    );
    fs::write(root.path().join("journal.jsonl"), "").unwrap();
    let directory: &'static Path = Box::leak(root.path().into());
    let taken = |is_resumed| {
        obstacles(&root, text, |around| {
            around.directory = directory;
            around.is_resumed = is_resumed;
        })
    };
    told(
        &root,
        &taken(false),
        &expect![[r#"
        DIR/plan.toml:1:8: DIR holds a campaign already; continue it with `dns64bench resume`, or choose another directory
        1 | name = "x"
          |        ^^^"#]],
    );
    assert_eq!(taken(true), []);
}

#[test]
fn a_lab_or_sources_that_are_not_possible_are_told_where_they_are_named() {
    let root = machine();
    server(&root, "fine", "dut", "good 1.0");
    let text = "[tester]\nlab = \"userns\"\nlocal = \"2001:2:0:78::/120\"\n[[dut]]\nprofile = \"fine.toml\"\n";
    let why = Blame::Machine.error("`unshare` is not installed");
    let machine = Machine::at(root.path());
    let origin = root.path().join("plan.toml").display().to_string();
    let plan = Plan::parse(&origin, text).unwrap();
    let around = Surroundings {
        machine: &machine,
        no_lab: Some(&why),
        no_sources: Some("2001:2:0:78::1 is not an address of this host".to_owned()),
        directory: Path::new("results"),
        free: None,
        is_resumed: false,
        may_load: false,
    };
    let found = check(&plan, &around);
    told(
        &root,
        &found,
        &expect![[r#"
        DIR/plan.toml:2:7: `unshare` is not installed
        2 | lab = "userns"
          |       ^^^^^^^^
        DIR/plan.toml:3:9: 2001:2:0:78::1 is not an address of this host
        3 | local = "2001:2:0:78::/120"
          |         ^^^^^^^^^^^^^^^^^^^"#]],
    );
}

#[test]
fn a_server_without_a_version_is_remarked_and_may_be_measured() {
    let root = machine();
    server(&root, "silent", "dut", "nothing");
    let text = "[[dut]]\nprofile = \"silent.toml\"\ncores = [\"0\", \"1\"]\n";
    assert_eq!(obstacles(&root, text, |_| {}), []);
    let origin = root.path().join("plan.toml").display().to_string();
    let plan = Plan::parse(&origin, text).unwrap();
    let script = root.path().join("silent.sh").display().to_string();
    let expected =
        format!("`{script}` does not tell a version in the form that the profile expects");
    assert_eq!(remarks(&plan), [expected]);
}

#[test]
fn a_dut_on_a_core_of_the_tester_is_remarked() {
    let text = "[tester]\ncpus = \"0\"\nauthority-cpus = \"1\"\n[[dut]]\nprofile = \"bind\"\n\
                cores = [\"1-2\", \"2\", \"0-1\"]\n[[dut]]\nprofile = \"unbound\"\n";
    let plan = Plan::parse("x.toml", text).unwrap();
    let expected = [
        "bind cores=1-2 shares core 1 with the Tester: its results will not be measurements",
        "bind cores=0-1 shares core 0-1 with the Tester: its results will not be measurements",
    ];
    assert_eq!(overlaps(&plan), expected);
}
