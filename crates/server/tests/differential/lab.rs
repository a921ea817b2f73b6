//! Runs all servers in a network namespace, which is removed when the test ends in any way.
//!
//! ```text
//!                    +--> dns64d  10.53.0.3 --+
//! questions ---------+--> Unbound 10.53.0.4 --+--> Unbound 10.53.0.2 --> NSD    10.53.0.1
//!                    +--> BIND    10.53.0.5 --+    resolver, no DNS64    script 10.53.0.9
//!                    +--> dns64d  10.53.0.7 --+
//!                    +--> dns64d  10.53.0.6 ----------------------------> script
//! ```

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use crate::ask::{Question, ask};
use crate::script;
use crate::world::World;

pub(crate) const AUTHORITY: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 1);
pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 2);
pub(crate) const DNS64D: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 3);
pub(crate) const UNBOUND: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 4);
pub(crate) const BIND: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 5);
/// A dns64d with the script as its upstream.
pub(crate) const SCRIPTED: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 6);
/// A dns64d with different settings.
pub(crate) const SPECIAL: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 7);
pub(crate) const SCRIPT: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 9);

/// Time limit for the start of a server, in seconds.
const START_S: u64 = 20;

/// Time limit for the end of a server before it is killed, in seconds. dns64d waits 5 s for queries
/// in flight.
const END_S: u64 = 6;

/// The signed zones. The trust anchor for the second is the key of the first, so nothing in it
/// validates.
const SIGNED: &str = "signed.example.";
const BOGUS: &str = "bogus.example.";

/// Running servers; they are killed when dropped.
pub(crate) struct Lab {
    children: Vec<Child>,
    dir: TempDir,
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The first process holds the namespace and is killed last.
        for child in self.children.iter_mut().rev() {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                continue;
            }
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
            if !wait_until(END_S, || {
                child.try_wait().is_ok_and(|ended| ended.is_some())
            }) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Runs `work` in a namespace with the servers that `start` starts there.
pub(crate) fn run(start: impl FnOnce(&mut Lab) + Send, work: impl FnOnce(&Lab) + Send) {
    // A separate thread, because it joins the namespace and the servers must end with it.
    let done = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut lab = Lab::new();
            start(&mut lab);
            work(&lab);
        });
        thread.join()
    });
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

impl Lab {
    fn new() -> Self {
        let mut lab = Self {
            children: Vec::new(),
            dir: tempfile::tempdir().unwrap(),
        };
        lab.join_namespace();
        run_ip("link set lo up");
        let tested = [DNS64D, UNBOUND, BIND, SCRIPTED, SPECIAL];
        for address in [AUTHORITY, RESOLVER, SCRIPT].into_iter().chain(tested) {
            run_ip(&format!("address add {address}/32 dev lo"));
        }
        lab
    }

    /// Creates and joins a namespace. A process that only sleeps keeps it alive.
    fn join_namespace(&mut self) {
        let net = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        let (here, before) = ("thread-self", net("thread-self"));
        let command = ["unshare", "--net", "sleep", "infinity"];
        self.spawn("holder", &command.map(str::to_owned));
        let holder = self.children[0].id().to_string();
        let joined = wait_until(START_S, || net(&holder) != before);
        assert!(joined, "no namespace: this needs root");
        let namespace = File::open(format!("/proc/{holder}/ns/net")).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        assert_eq!(net(here), net(&holder));
    }

    /// Starts a program that is killed at the latest when this thread ends.
    fn spawn(&mut self, name: &str, command: &[String]) {
        let log = File::create(self.path(&format!("{name}.log"))).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(command)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.children.push(child.unwrap());
    }

    /// Starts a server with a configuration file and waits until it answers.
    fn start(&mut self, name: &str, address: Ipv4Addr, command: &[&str], config: &str) {
        let dir = self.dir.path().display().to_string();
        let file = self.path(&format!("{name}.conf"));
        fs::write(&file, config.replace("{dir}", &dir)).unwrap();
        let command = command.iter().map(|&word| word.to_owned());
        let command: Vec<_> = command.chain([file]).collect();
        self.spawn(name, &command);
        let answers = wait_until(START_S, || {
            let ended = self.children.last_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended: {}", self.log(name));
            is_awake(address.into())
        });
        assert!(answers, "{name} does not answer: {}", self.log(name));
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The output of a server.
    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap()
    }

    /// Starts the authority, the script and the resolver, which is the upstream of all servers
    /// under test.
    pub(crate) fn start_upstream(&mut self, world: &World) {
        script::serve(SCRIPT);
        let mut config = NSD.replace("{address}", &AUTHORITY.to_string());
        for (number, zone) in world.zones.iter().enumerate() {
            let mut file = format!("zone{number}");
            fs::write(self.path(&file), &zone.text).unwrap();
            if [SIGNED, BOGUS].contains(&zone.origin) {
                sign(self.dir.path(), zone.origin, &file);
                file += ".signed";
            }
            config += &format!("zone:\n    name: {}\n    zonefile: {file}\n", zone.origin);
        }
        self.start("nsd", AUTHORITY, &["nsd", "-d", "-c"], &config);
        let mut config = UNBOUND_CONFIG.replace("{address}", &RESOLVER.to_string());
        config = config.replace("{modules}", "validator iterator");
        config = config.replace("{anchors}", &self.anchors());
        config += &format!(
            "forward-zone:\n    name: .\n    forward-addr: {AUTHORITY}\n\
             forward-zone:\n    name: script.example.\n    forward-addr: {SCRIPT}\n"
        );
        self.start(
            "resolver",
            RESOLVER,
            &["unbound", "-d", "-p", "-c"],
            &config,
        );
    }

    /// Lines of the resolver's configuration with the trust anchors.
    fn anchors(&self) -> String {
        let key = fs::read_to_string(self.path("signed.key")).unwrap();
        let data = key.split_once("DNSKEY").unwrap().1.trim();
        [SIGNED, BOGUS]
            .map(|zone| format!("    trust-anchor: \"{zone} IN DNSKEY {data}\"\n"))
            .concat()
    }

    pub(crate) fn start_dns64d(
        &mut self,
        name: &str,
        address: Ipv4Addr,
        upstream: Ipv4Addr,
        more: &str,
    ) {
        let config = format!(
            "listen = [\"{address}\"]\nworkers = 1\nforward-special = [\".\"]\n[upstream]\nservers = [\"{upstream}\"]\n\
             {more}[control]\nsocket = \"off\"\n"
        );
        let program = env!("CARGO_BIN_EXE_dns64d");
        self.start(name, address, &[program, "--config"], &config);
    }

    pub(crate) fn start_unbound(&mut self) {
        let mut config = UNBOUND_CONFIG.replace("{address}", &UNBOUND.to_string());
        config = config.replace("{modules}", "dns64 iterator");
        config = config.replace("{anchors}", "    dns64-prefix: 64:ff9b::/96\n");
        config += &format!("forward-zone:\n    name: .\n    forward-addr: {RESOLVER}\n");
        self.start("unbound", UNBOUND, &["unbound", "-d", "-p", "-c"], &config);
    }

    pub(crate) fn start_bind(&mut self) {
        let config = BIND_CONFIG
            .replace("{address}", &BIND.to_string())
            .replace("{upstream}", &RESOLVER.to_string());
        self.start("bind", BIND, &["named", "-f", "-n", "1", "-c"], &config);
    }
}

fn is_awake(server: IpAddr) -> bool {
    let question = Question {
        name: "ns.lab.example.".parse().unwrap(),
        rtype: dns64_wire::codes::Rtype::A,
        class: dns64_wire::codes::Class::IN,
        rd: true,
        cd: false,
        ad: false,
        edns: None,
    };
    ask(server, &question, 1).is_some()
}

fn wait_until(limit_s: u64, mut done: impl FnMut() -> bool) -> bool {
    let end = MonotonicClock.now() + limit_s * SECOND;
    while MonotonicClock.now() < end {
        if done() {
            return true;
        }
        MonotonicClock.sleep(SECOND / 50);
    }
    false
}

fn run_ip(arguments: &str) {
    let mut command = Command::new("ip");
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}

/// Signs a zone file with a new key; the key of the first zone is kept as `signed.key`.
fn sign(dir: &Path, zone: &str, file: &str) {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let key = run("dnssec-keygen", &["-q", "-a", "13", "-f", "KSK", zone]);
    let public = fs::read_to_string(dir.join(format!("{}.key", key.trim()))).unwrap();
    if zone == SIGNED {
        fs::write(dir.join("signed.key"), public.lines().last().unwrap()).unwrap();
    }
    run("dnssec-signzone", &["-q", "-S", "-z", "-o", zone, file]);
}

const NSD: &str = r#"
server:
    ip-address: {address}
    server-count: 1
    username: ""
    chroot: ""
    zonesdir: "{dir}"
    database: ""
    pidfile: ""
    xfrdfile: "{dir}/xfrd.state"
    xfrdir: "{dir}"
    zonelistfile: "{dir}/zone.list"
    # By default it answers 200 queries per second and network.
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
remote-control:
    control-enable: no
"#;

const UNBOUND_CONFIG: &str = r#"
server:
    directory: "{dir}"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    logfile: ""
    verbosity: 0
    interface: {address}
    access-control: 0.0.0.0/0 allow
    num-threads: 1
    module-config: "{modules}"
    minimal-responses: no
    qname-minimisation: no
    rrset-roundrobin: no
    # As of dns64d and BIND.
    max-udp-size: 1232
    # Nothing here is on the Internet: no zone of it is answered locally.
    unblock-lan-zones: yes
    insecure-lan-zones: yes
    trust-anchor-signaling: no
{anchors}
remote-control:
    control-enable: no
"#;

const BIND_CONFIG: &str = r#"
options {
    directory "{dir}";
    pid-file none;
    session-keyfile none;
    managed-keys-directory "{dir}";
    listen-on { {address}; };
    listen-on-v6 { none; };
    query-source address {address};
    recursion yes;
    allow-query { any; };
    allow-recursion { any; };
    dnssec-validation no;
    minimal-responses no;
    // Nothing here is on the Internet: no zone of it is answered locally.
    empty-zones-enable no;
    forward only;
    forwarders { {upstream}; };
    dns64 64:ff9b::/96 { clients { any; }; };
};
controls { };
"#;
