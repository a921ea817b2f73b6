//! Trials from each address of a prefix: one that is routed to the Tester, one of a lab, one of a plan.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dns64_transport::address;
use dns64bench::authority::answer::Authority;
use dns64bench::authority::zone::ZoneConfig;
use dns64bench::load::sources::Sources;
use dns64bench::load::transport::Protocol;
use dns64bench::namespace::Zone;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use tempfile::TempDir;

use crate::accounts::{all_answered, answers, assert_accounted};
use crate::busy::until;
use crate::machine::{PROGRAM, Run, left_behind, turn};

/// The namespaces of the Tester and of the server, with a veth pair between them; removed when dropped.
struct Pair([String; 2]);

const SERVER: [&str; 2] = ["2001:2:0:77::2", "198.19.77.2"];
const TESTER: [&str; 2] = ["2001:2:0:77::1", "198.19.77.1"];

impl Pair {
    fn new(name: &str) -> Self {
        let pair = Self(["t", "s"].map(|end| format!("src-{name}-{}-{end}", std::process::id())));
        let [tester, server] = &pair.0;
        for end in &pair.0 {
            ip(&format!("netns add {end}"));
            ip(&format!("-n {end} link set lo up"));
            // Addresses are usable at once, link-local ones included, because these are the sources of neighbour
            // solicitations.
            ip(&format!(
                "netns exec {end} sysctl -qw net.ipv6.conf.default.accept_dad=0"
            ));
        }
        ip(&format!(
            "-n {tester} link add wire type veth peer name wire netns {server}"
        ));
        for (end, [v6, v4]) in pair.0.iter().zip([TESTER, SERVER]) {
            ip(&format!("-n {end} link set wire up"));
            // Without waiting for the carrier, which the kernel notices late on a busy machine.
            ip(&format!("-n {end} address add {v6}/64 dev wire nodad"));
            ip(&format!("-n {end} address add {v4}/24 dev wire"));
        }
        pair
    }

    /// Assigns a prefix to the Tester and routes it on the server.
    fn route(&self, prefix: &str, via: &str) {
        ip(&format!("-n {} route add local {prefix} dev lo", self.0[0]));
        ip(&format!("-n {} route add {prefix} via {via}", self.0[1]));
    }

    /// Runs the Tester against a server at this address; returns the source addresses of the queries as well.
    fn trial(&self, server: &str, line: &str, json: &Path) -> (Output, BTreeSet<IpAddr>) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let namespace = File::open(format!("/run/netns/{}", self.0[1])).unwrap();
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network).unwrap();
                serve(address::parse(server, 53).unwrap(), &over)
            });
            let program = [
                "netns", "exec", &self.0[0], PROGRAM, "trial", "--server", server,
            ];
            let mut trial = Command::new("ip");
            trial.args(program).args(line.split(' '));
            let output = trial.arg("--json").arg(json).output();
            over.store(true, Ordering::Relaxed);
            (output.unwrap(), serving.join().unwrap())
        })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in &self.0 {
            ip(&format!("netns delete {end}"));
        }
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
}

/// Answers like an authority in self-test mode, and records the source addresses.
fn serve(at: SocketAddr, over: &AtomicBool) -> BTreeSet<IpAddr> {
    let mut authority = Authority::new(ZoneConfig {
        zone: Zone::default(),
        self_test: true,
        ttl_s: 60,
        negative_ttl_s: 60,
    });
    let socket = UdpSocket::bind(at).unwrap();
    let patience = Duration::from_millis(20);
    socket.set_read_timeout(Some(patience)).unwrap();
    let (mut query, mut reply) = ([0; 512], [0; 512]);
    let mut peers = BTreeSet::new();
    while !over.load(Ordering::Relaxed) {
        let Ok((len, peer)) = socket.recv_from(&mut query) else {
            continue;
        };
        peers.insert(peer.ip());
        let answer = authority.answer(&query[..len], &mut reply, Protocol::Udp);
        socket.send_to(&reply[..answer.len], peer).unwrap();
    }
    peers
}

/// Runs two trials, over IPv6 and IPv4: asserts that each address of the prefix sends queries, and that each query is
/// answered.
fn each_address_asks(backend: &str, threads: usize) {
    let _turn = turn();
    let pair = Pair::new(backend);
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("trial.json");
    for (server, via, prefix) in [
        (SERVER[0], TESTER[0], "2001:2:0:78::/118"),
        (SERVER[1], TESTER[1], "198.19.78.0/24"),
    ] {
        pair.route(prefix, via);
        let sources: Sources = prefix.parse().unwrap();
        let line = format!(
            "--local {prefix} --backend {backend} -T {threads} -Q 1k -l 4s -t 10s --aaaa-share 1 --uncertified --quiet"
        );
        until("was each query answered", || {
            let (output, peers) = pair.trial(server, &line, &json);
            let text = fs::read(&json).unwrap();
            let told: Value =
                serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
            let conditions = &told["conditions"];
            assert_eq!(conditions["local"], prefix, "{told:#}");
            assert_eq!(conditions["source_addresses"], sources.count());
            assert_accounted(&told);
            all_answered(&told, 4000).then(|| assert_eq!(peers, all(prefix)))
        });
    }
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn each_address_of_a_prefix_is_used_and_answered_by_sockets() {
    each_address_asks("socket", 2);
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn each_address_of_a_prefix_is_used_and_answered_over_af_xdp() {
    each_address_asks("xdp", 1);
}

/// Trials between two link-local addresses, which only their interface completes.
fn link_local(backend: &str) {
    let _turn = turn();
    let pair = Pair::new(&format!("ll-{backend}"));
    for (end, address) in pair.0.iter().zip(["fe80::1", "fe80::53"]) {
        ip(&format!("-n {end} address add {address}/64 dev wire nodad"));
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("trial.json");
    let line = format!(
        "--local fe80::1%wire --backend {backend} -Q 100 -l 300ms -t 5s --aaaa-share 1 --uncertified --quiet"
    );
    until("was each query answered", || {
        let (output, peers) = pair.trial("fe80::53%wire", &line, &json);
        let text = fs::read(&json).unwrap();
        let told: Value =
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!(
            told["conditions"]["server"], "[fe80::53%wire]:53",
            "{told:#}"
        );
        all_answered(&told, 30).then(|| assert_eq!(peers, ["fe80::1".parse().unwrap()].into()))
    });
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn link_local_server_is_measured_by_sockets() {
    link_local("socket");
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn link_local_server_is_measured_over_af_xdp() {
    link_local("xdp");
}

/// As a server in a container does.
#[test]
#[ignore = "needs root: run by .ci/run net"]
fn server_in_another_network_of_the_machine_is_recognised() {
    let _turn = turn();
    let pair = Pair::new("here");
    let mut authority = Command::new("ip");
    authority.args([
        "netns",
        "exec",
        &pair.0[1],
        PROGRAM,
        "authority",
        "--self-test",
    ]);
    let mut authority = authority.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(authority.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    for server in SERVER {
        let mut trial = Command::new("ip");
        let program = [
            "netns", "exec", &pair.0[0], PROGRAM, "trial", "--server", server,
        ];
        let flags = "-Q 100 -l 300ms -t 5s --aaaa-share 1 --uncertified --json -";
        let output = trial.args(program).args(flags.split(' ')).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["server_is_here"], true, "{output:?}");
        let doubts = told["conditions"]["not_a_measurement"].as_array().unwrap();
        assert_eq!(doubts.len(), 1, "{output:?}");
    }
    authority.kill().unwrap();
    authority.wait().unwrap();
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn prefix_that_is_not_local_is_refused_with_the_remedy() {
    let pair = Pair::new("none");
    let dir = tempfile::tempdir().unwrap();
    let line = "--local 2001:2:0:79::/120 -Q 1k -l 300ms --aaaa-share 1 --uncertified";
    let (output, peers) = pair.trial(SERVER[0], line, &dir.path().join("trial.json"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && peers.is_empty(), "{output:?}");
    for words in ["2001:2:0:79::1 is not an address", "ip route add local"] {
        assert!(error.contains(words), "{error}");
    }
}

/// Unbound that notes who asks it.
pub(crate) struct Noting(TempDir);

impl Noting {
    pub(crate) fn new() -> Self {
        let noting = Self(tempfile::tempdir().unwrap());
        let text = include_str!("../../profiles/unbound.toml");
        let log = noting.0.path().join("queries");
        let logs = format!("logfile: \"{}\"\n    log-queries: yes", log.display());
        let text = text.replace("logfile: \"\"", &logs);
        fs::write(noting.profile(), text).unwrap();
        noting
    }

    pub(crate) fn profile(&self) -> PathBuf {
        self.0.path().join("unbound.toml")
    }

    /// `[1700000000] unbound[7:0] info: 2001:2:0:78::1 010-0-0-1.dns64perf.test. AAAA IN`
    pub(crate) fn clients(&self) -> BTreeSet<IpAddr> {
        let log = fs::read_to_string(self.0.path().join("queries")).unwrap();
        let asked = log.lines().filter(|line| line.ends_with(" AAAA IN"));
        let words = asked.filter_map(|line| line.split(" info: ").nth(1)?.split(' ').next());
        words.map(|word| word.parse().unwrap()).collect()
    }
}

pub(crate) fn all(prefix: &str) -> BTreeSet<IpAddr> {
    let sources: Sources = prefix.parse().unwrap();
    let each = (0..sources.count()).map(|flow| sources.address(flow));
    each.collect()
}

/// The DUT of a lab hears from each address of the prefix and from no other, and each query is answered.
fn each_address_of_a_lab_asks(flags: &str) {
    const PREFIX: &str = "2001:2:0:78::/118";
    let _turn = turn();
    until("was each query answered", || {
        let noting = Noting::new();
        let dut = noting.profile();
        let run = Run::of(&format!(
            "trial --lab netns --dut {} {flags} --local {PREFIX} -Q 2k -l 600ms --uncertified",
            dut.display()
        ));
        assert_accounted(&run.json);
        assert_eq!(run.text("/conditions/local"), PREFIX);
        assert_eq!(run.number("/conditions/source_addresses"), 1023);
        all_answered(&run.json, 1200).then(|| assert_eq!(noting.clients(), all(PREFIX)))
    });
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn each_address_of_a_lab_asks_by_sockets() {
    each_address_of_a_lab_asks("--setup two-device");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn each_address_of_a_lab_asks_over_af_xdp() {
    each_address_of_a_lab_asks("--backend xdp");
}

/// The replies of the self-test return over its link.
#[test]
#[ignore = "needs root: run by .ci/run net"]
fn a_self_test_of_a_lab_is_made_from_each_address() {
    let _turn = turn();
    until("did the Tester pass", || {
        let line = "selftest --lab netns --local 2001:2:0:78::/118 -Q 1k -l 600ms --self-tests 1";
        let run = Run::of(line);
        assert_eq!(run.number("/conditions/source_addresses"), 1023);
        (run.code == Some(0)).then_some(())
    });
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// What keeps a plan from being run, or what came of it.
fn campaign(plan: &str, dir: &Path) -> Output {
    let (path, campaign) = (dir.join("sources.toml"), dir.join("campaign"));
    fs::write(&path, plan).unwrap();
    let mut run = Command::new(PROGRAM);
    run.arg("run").arg(&path).arg("--output").arg(&campaign);
    run.output().unwrap()
}

/// Short trials that hardly anything disturbs.
const PLAN: &str = r#"
[tester]
lab = "netns"
local = "2001:2:0:78::/120"
self-tests = 1

[trial]
duration = "500ms"
timeout = "500ms"
max-stall = "1s"
max-burst = 1000000
max-rate-error = "100%"
max-stolen = "100%"

[search]
runs = 1
start-rate = 1000
max-rate = 1000
resolution = "50%"

[[dut]]
"#;

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_campaign_from_many_addresses_names_them() {
    let _turn = turn();
    let (dir, noting) = (tempfile::tempdir().unwrap(), Noting::new());
    let plan = format!("{PLAN}profile = {:?}", noting.profile());
    let output = campaign(&plan, dir.path());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(noting.clients(), all("2001:2:0:78::/120"));
    let read = |name: &str| fs::read_to_string(dir.path().join("campaign").join(name)).unwrap();
    let journal = read("journal.jsonl");
    let named = r#""local":"2001:2:0:78::/120","source_addresses":255"#;
    assert!(journal.contains(named), "{journal}");
    let results = read("report/results.json");
    assert!(results.contains("255 of 2001:2:0:78::/120"), "{results}");
    let campaign = dir.path().join("campaign");
    let verified = Command::new(PROGRAM).arg("verify").arg(campaign).output();
    assert!(verified.unwrap().status.success());
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn a_plan_for_a_server_needs_addresses_of_this_host() {
    let dir = tempfile::tempdir().unwrap();
    let plan = PLAN.replace("lab = \"netns\"\n", "") + "server = \"::1\"\n";
    let refused = campaign(&plan, dir.path());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    let why = "sources.toml:3:9: source address 2001:2:0:78::1 is not an address of this host";
    assert!(said.contains(why), "{said}");
    assert!(!dir.path().join("campaign").exists());
}

/// A server on which each name has its own AAAA record, of which it answers all or all but 2 %.
const LOSSY: &str = r#"
name = "lossy"
role = "dut"
programs = ["dns64bench"]
caches = false
command = ["{program}", "authority", "--listen", "{listen}", "--port", "{port}", "--aaaa-share", "1", "--behaviour", "loss={loss}"]
version = { command = ["{program}", "--version"], starts_with = "dns64bench " }

[settings]
loss = "0%"
"#;

/// Losses are those of the side that had them, whatever counts them: what arrives at an address of a `local` route is
/// counted at the loopback interface, and what a socket of AF_XDP takes by no counter of the host.
#[test]
#[ignore = "needs root: run by .ci/run net"]
fn only_a_dut_with_losses_fails_from_each_kind_of_source() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("lossy.toml");
    fs::write(&profile, LOSSY).unwrap();
    let dut = format!("--dut {} --dut-binary {PROGRAM}", profile.display());
    let patience = "--max-stall 1s --max-burst 1000000 --max-rate-error 100% --max-stolen 100%";
    for local in ["", "--local 2001:2:0:78::5", "--local 2001:2:0:78::/120"] {
        for setup in ["two-device", "three-device"] {
            for backend in ["socket", "xdp"] {
                let with = format!("{local} --setup {setup} --backend {backend}");
                let trial = |loss: &str| {
                    until("did the Tester lose nothing", || {
                        let run = Run::of(&format!(
                            "trial --lab netns {dut} --dut-set loss={loss} --aaaa-share 1 {with} {patience} -Q 1k -l 300ms \
                             -t 400ms --uncertified"
                        ));
                        assert_accounted(&run.json);
                        let own = run.number("/tester_drops");
                        let is_disturbed = run.text("/outcome") == "invalid";
                        let is_exact = own == 0 && answers(&run.json, "late") == 0;
                        (is_exact && !is_disturbed).then_some(run)
                    })
                };
                let (lossy, good) = (trial("2%"), trial("0%"));
                assert_eq!(lossy.text("/outcome"), "failed", "{with}: {:#}", lossy.json);
                assert_eq!(answers(&lossy.json, "missing"), 6, "{with}");
                assert_eq!(good.text("/outcome"), "passed", "{with}: {:#}", good.json);
                let told = &good.json["losses"]["evidence"]["found"];
                assert_eq!(told.as_array().map(Vec::len), Some(0), "{with}: {told:#}");
            }
        }
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}
