//! Errors before a campaign starts: one error names the host, the problem and the remedy. Nothing is started, and no
//! directory is created.

use super::ground::{Ground, said};
use super::plans::{THREE, plan, three};

/// Asserts that the plan is refused with this exit code and these words, by a dry run as well.
fn assert_refused(ground: &Ground, what: &str, text: &str, code: i32, words: &[&str]) {
    let path = ground.plan("refused", text);
    let path = path.to_str().unwrap();
    for arguments in [&["run", path][..], &["run", "--dry-run", path]] {
        let output = ground.run(arguments);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{what}: {said}");
        for word in words {
            assert!(said.contains(word), "{what}, without {word:?}: {said}");
        }
        assert_eq!(
            said.lines()
                .filter(|line| line.starts_with("dns64bench: "))
                .count(),
            1,
            "{what}: {said}"
        );
        assert!(!ground.path("refused").exists(), "{what}");
        ground.assert_nothing_left();
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn dry_run_of_ready_hosts_lists_their_programs() {
    let ground = Ground::up();
    let path = ground.plan("ready", &three("ready"));
    let output = ground.run(&["run", "--dry-run", path.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{told}{}", said(&output));
    let dut = told.lines().find(|line| line.starts_with("  dut "));
    assert!(
        dut.is_some_and(|line| line.contains(", unbound (")),
        "{told}"
    );
    assert!(!ground.path("ready").exists());
    ground.assert_nothing_left();
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn unreachable_host_is_refused_with_the_remedy() {
    let ground = Ground::up();
    let usual = ground.known();
    let three = three("refused");
    let refused = |what: &str, text: &str, words: &[&str]| {
        assert_refused(&ground, what, text, 4, words);
    };

    let nowhere = format!("Host nowhere\n    HostName nowhere.invalid\n{usual}");
    ground.know(&nowhere);
    let text = three.replace("ssh = \"gen1\"", "ssh = \"nowhere\"");
    let words = [
        "host gen1: cannot resolve the name of nowhere",
        "~/.ssh/config",
    ];
    refused("an unknown name", &text, &words);

    ground.know(&usual.replace("IdentityFile ", "IdentityFile /no/such"));
    let words = ["accepts no key of this user", "ssh-copy-id"];
    refused("no key", &three, &words);

    let keys = std::fs::read_to_string("/run/dns64bench-net-test/known_hosts").unwrap();
    let (dut, auth) = (key_of(&keys, "dut"), key_of(&keys, "auth"));
    let changed = ground.path("known_hosts");
    std::fs::write(&changed, keys.replace(dut, auth)).unwrap();
    let from = "UserKnownHostsFile /run/dns64bench-net-test/known_hosts";
    ground.know(&usual.replace(from, &format!("UserKnownHostsFile {}", changed.display())));
    let words = ["host dut: the host key of dut HAS CHANGED", "ssh-keygen -R"];
    refused("another host key", &three, &words);
    ground.know(&usual);

    ground.shell("auth", "rm /usr/local/bin/dns64bench");
    let words = ["host auth: dns64bench is not installed", "--push-binary"];
    refused("no program", &three, &words);
    ground.install("auth");

    let text = three.replace("2001:2:0:1::2/64", "2001:2:0:1::9/64");
    let words = [
        "the hosts are not ready",
        "dut: link client",
        "2001:2:0:1::9",
    ];
    refused("another address", &text, &words);

    let text = three.replace("\"unbound\"", "\"mtd64-ng\"");
    let words = ["host dut: ", "mtd64-ng"];
    refused("no such program", &text, &words);
}

fn key_of<'a>(known: &'a str, host: &str) -> &'a str {
    let line = known
        .lines()
        .find(|line| line.starts_with(&format!("{host} ")));
    line.unwrap().split_whitespace().nth(2).unwrap()
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn invalid_plan_is_refused_without_contact_to_a_host() {
    let ground = Ground::up();
    let authority = THREE.find("[hosts.auth]").unwrap();
    let text = plan("refused", &THREE[..authority], "", "profile = \"unbound\"");
    assert_refused(&ground, "no authority", &text, 2, &["authority"]);
    let text = three("refused").replace("roles = [\"dut\"]", "roles = []");
    assert_refused(&ground, "no roles", &text, 2, &["dut", "roles"]);
}
