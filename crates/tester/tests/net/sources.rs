//! Trials from each address of a prefix that is routed to the Tester.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dns64bench::authority::answer::{Authority, Transport};
use dns64bench::authority::zone::ZoneConfig;
use dns64bench::load::sources::Sources;
use dns64bench::namespace::Zone;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::accounts::{answers, assert_accounted};
use crate::machine::{PROGRAM, turn};

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
            ip(&format!("-n {end} address add {v6}/64 dev wire"));
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
                serve(SocketAddr::new(server.parse().unwrap(), 53), &over)
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
        let answer = authority.answer(&query[..len], &mut reply, Transport::Udp);
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
        let (output, peers) = pair.trial(server, &line, &json);
        let all = (0..sources.count()).map(|flow| sources.address(flow));
        let missing: Vec<IpAddr> = all.filter(|address| !peers.contains(address)).collect();
        assert!(
            missing.is_empty(),
            "{backend}, {prefix}: {missing:?}, {output:?}"
        );
        assert_eq!(peers.len(), sources.count());
        let told: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let conditions = &told["conditions"];
        assert_eq!(conditions["local"], prefix);
        assert_eq!(conditions["source_addresses"], sources.count());
        assert_accounted(&told);
        assert_eq!(answers(&told, "valid"), 4000, "{backend}, {prefix}: {told}");
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

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn prefix_that_is_not_local_is_refused_with_the_remedy() {
    let pair = Pair::new("none");
    let dir = tempfile::tempdir().unwrap();
    let line = "--local 2001:2:0:79::/120 -Q 1k -l 1s --aaaa-share 1 --uncertified";
    let (output, peers) = pair.trial(SERVER[0], line, &dir.path().join("trial.json"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && peers.is_empty(), "{output:?}");
    for words in ["2001:2:0:79::1 is not an address", "ip route add local"] {
        assert!(error.contains(words), "{error}");
    }
}
