//! Input that is refused before anything is sent, and the error messages.

use std::process::Command;

use super::dut::{Dut, LOCALHOST};
use super::program::{Ran, run, server};
use super::script::Conduct;

/// Runs `line`, in which `{server}` is a DUT that must not receive anything.
fn refused(line: &str, code: i32, words: &[&str]) -> Ran {
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let line = line.replace("{server}", &server(dut.address));
    let ran = run(&line);
    assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "{line}: no '{word}' in {ran:?}");
    }
    assert!(!ran.stderr.contains("panicked"), "{line}: {ran:?}");
    assert_eq!(dut.seen(), 0, "{line} has sent something");
    ran
}

#[test]
fn out_of_range_values_are_refused_with_the_bound() {
    for (flags, words) in [
        ("-Q NaN", "a rate in queries per second is expected"),
        ("-Q 0", "a rate must be at least 1 query per second"),
        ("-Q -5", "a rate must be at least 1 query per second"),
        ("-Q 1 -l 0", "a duration must be at least 1ms"),
        ("-Q 1 -t 0", "a timeout must be at least 1us"),
        ("-Q 1 -t inf", "a time is expected"),
        ("-Q 1 --namespace 10.0.0.0", "write ADDRESS/LENGTH"),
        ("-Q 1 --namespace 10.0.0.0/33", "a length of 0 to 32"),
        ("-Q 1 --namespace 10.1.0.0/8", "around it is 10.0.0.0/8"),
        (
            "-Q 1 --pref64 64:ff9b::/97",
            "not one of 32, 40, 48, 56, 64 and 96",
        ),
        ("-Q 1 --pref64 64:ff9b::1/96", "write 64:ff9b::/96"),
        ("-Q 1 --pref64 2001:db8:0:0:100::/96", "2001:db8::/96"),
        ("-Q 1 --pref64 nonsense", "write it like 64:ff9b::/96"),
        ("-Q 1 --aaaa-share 1.5", "a number from 0 to 1"),
        ("-Q 1 --cached-share -0.1", "a number from 0 to 1"),
        (
            "-Q 1 --cached-share 0.0000001",
            "whole number of millionths",
        ),
        ("-Q 1 --suffix a..b", "empty label"),
        ("-Q 1 --cpus x", "is not a set of CPUs"),
        ("-Q 1 --cpus 3-1", "is not a set of CPUs"),
        ("-Q 1 --cpus 9999", "beyond 8191"),
        ("-Q 1 -T 2 -c 1", "use --sockets 2 or more"),
        ("-Q 1 -a ::1", "of different IP versions"),
        ("-Q 1 -a 2001:db8::/120", "of different IP versions"),
        ("-Q 1 -a 2001:db8::/64", "give a prefix of /114 to /128"),
        ("-Q 1 -a 198.18.0.0/17", "give a prefix of /18 to /32"),
        ("-Q 1 -a 198.18.0.1/24", "give 198.18.0.0/24 for the prefix"),
        (
            "-Q 1 -a 198.18.0.0/",
            "an address, or a prefix of addresses",
        ),
        (
            "-Q 1 -a 127.0.0.0/24",
            "give a prefix that only this host uses",
        ),
        ("-Q 1 -l 100ms", "raise --rate or --duration"),
        ("-Q 1M -l 1ms -t 60s -c 1", "or more"),
        (
            "-Q 100 -l 1s -t 1s --transport tcp --pipeline 10 -c 12",
            "use --sockets 13 or more",
        ),
        (
            "-Q 1 --transport tcp --backend xdp",
            "omit it, or use --transport udp",
        ),
        (
            "-Q 1 --transport udp --pipeline 10",
            "has no effect over UDP; omit it, or add --transport tcp",
        ),
        ("-Q 1 --transport dot", "[possible values: udp, tcp, tls]"),
    ] {
        refused(&format!("trial {{server}} {flags}"), 2, &[words]);
    }
}

#[test]
fn contradictory_flags_are_refused() {
    for (line, words) in [
        (
            "search {server} --max-rate 100 -Q 1000",
            "--start-rate 1000 is beyond --max-rate 100",
        ),
        (
            "trial {server} -Q 1 --cached-pattern stack:9",
            "add for example --cached-share 80%",
        ),
        (
            "trial --dut unbound --lab loopback -Q 1 --local 198.18.78.0/24",
            "--local 198.18.78.0/24 is IPv4, and in a lab the Measurer queries over IPv6; give an IPv6 prefix such as 2001:2:0:78::/116",
        ),
        (
            "trial --dut unbound --dut-set threads=0 --lab loopback -Q 1",
            "setting threads of profile unbound is \"0\": it must be a whole number from 1 to 1024",
        ),
    ] {
        refused(line, 2, &[words]);
    }
}

/// A machine with so many CPUs runs none of these tests.
#[test]
fn more_threads_than_cpus_are_refused_with_the_most_possible() {
    let cpus = std::thread::available_parallelism().unwrap();
    let remedy = format!("use --threads {cpus}");
    refused(
        "trial {server} -Q 1k -l 100ms -T 256",
        4,
        &["--threads 256 is more", &remedy],
    );
}

/// Root may raise the limit, which only the child's own could be; nobody does.
#[test]
fn too_few_open_files_are_told_with_the_ports_that_they_allow() {
    let dut = Dut::start(LOCALHOST, Conduct::Good);
    let line = format!(
        "trial {} --pref64 64:ff9b::/96 -Q 10 -l 100ms -c 1000 --uncertified",
        server(dut.address)
    );
    let limited = "ulimit -n 1000 && exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_dns64bench")])
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    let told = "1000 source ports need 2000 open files and the limit allows 500; raise it (`ulimit -Hn`), or use \
                --sockets 250";
    assert!(said.contains(told), "{said}");
    assert_eq!(dut.seen(), 0, "{said}");
}

#[test]
fn suffix_without_room_for_the_label_is_refused() {
    let suffix = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(46));
    for command in ["trial {server} -Q 1", "authority --port 1"] {
        let line = format!("{command} --suffix {suffix}");
        refused(&line, 2, &["240 octets", "239 octets"]);
    }
}

#[test]
fn too_small_namespace_is_refused_with_a_sufficient_one() {
    for command in ["trial", "search"] {
        let line = format!("{command} {{server}} -Q 1k -l 1s --namespace 10.9.0.0/24 --json -");
        let ran = refused(&line, 2, &["needs 1000", "--namespace 10.9.0.0/21"]);
        assert_eq!(ran.json()["exit_code"], 2, "{ran:?}");
        assert!(ran.stderr.contains(ran.json()["error"].as_str().unwrap()));
    }
    let line = "trial {server} -Q 1000M -l 1h";
    refused(line, 2, &["even 0.0.0.0/0 is too small"]);
}

#[test]
fn exactly_one_server_is_required() {
    let both = "trial {server} --dut unbound -Q 1";
    refused(both, 2, &["--server ADDR", "--dut PROFILE"]);
    refused("trial -Q 1", 2, &["--server ADDR", "--dut PROFILE"]);
}

#[test]
fn invalid_profile_is_refused_with_the_place() {
    let trial = |profile: &str, code, words: &[&str]| {
        refused(
            &format!("trial --dut {profile} --lab loopback -Q 1"),
            code,
            words,
        )
    };
    trial("no-such-server", 2, &["no-such-server", "unbound"]);
    trial("/no/such/profile.toml", 2, &["/no/such/profile.toml"]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    std::fs::write(&path, "name = \"mine\"\nport_range = 3\n").unwrap();
    let path = path.to_str().unwrap();
    trial(path, 2, &[path, "line 2, column 1", "port_range"]);
}

#[test]
fn missing_program_is_named() {
    let line = "trial --dut coredns --dut-binary /no/such/coredns --lab loopback -Q 1";
    refused(line, 4, &["/no/such/coredns"]);
}

#[test]
fn unwritable_file_is_refused_before_the_trial() {
    let line = "trial {server} -Q 1 -l 1s --json /no/such/dir/x";
    refused(line, 4, &["/no/such/dir/x", "No such file"]);
}

#[test]
fn missing_core_is_named() {
    let line = "trial {server} -Q 1 -l 1s --pref64 64:ff9b::/96 --cpus 8191 --json -";
    let ran = refused(line, 4, &["core 8191"]);
    assert_eq!(ran.json()["exit_code"], 4, "{ran:?}");
}
