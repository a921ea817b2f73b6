//! The check before a run, with agents that are threads of the test.

use std::io::pipe;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::*;
use crate::agent::handshake::Welcome;
use crate::agent::link::tests::over;
use crate::agent::serve::{Work, serve};
use crate::agent::ssh::Options;
use crate::campaign::plan::Plan;
use crate::doctor::hosts::ready::{Readiness, look};
use crate::lab::{Blame, LabError};
use crate::post::host::Host;
use crate::post::{Reply, Request};

const PLAN: &str = r#"
[hosts.gen]
ssh = "gen"
roles = ["measurer"]
cpus = "0-1"
links.client = { interface = "client", addresses = ["2001:2:0:1::1/64"] }
[hosts.dut]
ssh = "dut"
roles = ["dut"]
cpus = "0-1"
links.client = { interface = "client", addresses = ["2001:2:0:1::2/64"] }
links.upstream = { interface = "upstream", addresses = ["2001:2:0:2::1/64", "198.18.0.1/24"] }
[hosts.auth]
ssh = "auth"
roles = ["authority"]
cpus = "0-1"
links.upstream = { interface = "upstream", addresses = ["2001:2:0:2::2/64", "198.18.0.2/24"] }
[[dut]]
profile = "unbound"
sweep = { threads = [1, 2] }
[[dut]]
profile = "bind"
"#;

/// Requests that any host received.
type Asked = Arc<Mutex<Vec<String>>>;

/// A host with these facts, on which only Unbound is installed.
struct Scripted {
    name: String,
    facts: HostFacts,
    asked: Asked,
}

impl Work for Scripted {
    type Request = Request;
    type Reply = Reply;

    fn handle(&mut self, request: Request) -> Reply {
        let (told, reply) = match request {
            Request::Facts => ("facts", Reply::Facts(Box::new(self.facts.clone()))),
            Request::Find(wanted) if wanted.profile.name == "unbound" => {
                ("unbound", Reply::Version(Some("1.17.1".to_owned())))
            }
            Request::Find(_) => {
                let what = "found none of named; install the Debian package bind9".to_owned();
                ("bind", Reply::Refused(Blame::Machine, what))
            }
            _ => ("something else", Reply::Done),
        };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(format!("{}: {told}", self.name));
        reply
    }
}

fn host(name: &str, facts: HostFacts, asked: &Asked) -> (Host, JoinHandle<()>) {
    let ((answers, out), (input, calls)) = (pipe().unwrap(), pipe().unwrap());
    let mut work = Scripted {
        name: name.to_owned(),
        facts,
        asked: Arc::clone(asked),
    };
    let agent = std::thread::spawn(move || {
        let interrupted = Arc::new(AtomicBool::new(false));
        serve(input, out, interrupted, |_| Ok(Welcome::here()), &mut work).unwrap();
    });
    let link = over(name, answers, calls, &Options::new("a test")).unwrap();
    (Host::at(name, link), agent)
}

/// Returns the result for a plan whose facts `spoil` has changed and whose hosts `away` cannot be reached, and the
/// requests.
fn seen(
    text: &str,
    away: Option<&str>,
    spoil: impl FnOnce(&mut [(String, HostFacts)]),
) -> (Readiness, Vec<String>) {
    let plan = Plan::parse("x.toml", text).unwrap();
    let hosts = plan.hosts.at.as_deref().unwrap();
    let mut facts = good(hosts);
    spoil(&mut facts);
    let asked = Asked::default();
    let mut agents = Vec::new();
    let tried = facts.into_iter().map(|(name, facts)| {
        if away == Some(name.as_str()) {
            let why = format!("host {name}: cannot be reached");
            return (name, Err::<_, LabError>(Blame::Machine.error(why)));
        }
        let (remote, agent) = host(&name, facts, &asked);
        agents.push(agent);
        (name, Ok(remote))
    });
    let tried = tried.collect();
    let seen = look(&plan, hosts, tried);
    // All links are closed now.
    for agent in agents {
        agent.join().unwrap();
    }
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (seen, asked)
}

#[test]
fn all_problems_are_reported_and_nothing_is_started() {
    let (seen, mut asked) = seen(PLAN, None, |facts| {
        client(facts).has_carrier = false;
        facts[1].1.cpus = "0".parse().unwrap();
        facts[1].1.may_serve = Some(false);
        facts[2].1.identity.sha256 = Some("fedcba9876543210".into());
        facts[2].1.others_cpu_ns = LOOK_NS;
    });
    expect![[r#"
        auth: program: dns64bench 0.1.0 (SHA-256 fedcba987654), on gen dns64bench 0.1.0 (SHA-256 0123456789ab); install one build everywhere: --push-binary, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`
        dut: CPUs online: 0; the plan names 1, too: correct cpus
        dut: port 53: not permitted; reach the host as root, or with sudo = true: servers there listen at port 53
        gen: link client (client): no carrier; check the cable and that the other end is up
        host dut: found none of named; install the Debian package bind9"#]].assert_eq(&seen.obstacles.join("\n"));
    let poor: Vec<_> = seen.poor.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(poor, ["auth: other processes"]);
    asked.sort();
    assert_eq!(
        asked,
        [
            "auth: facts",
            "dut: bind",
            "dut: facts",
            "dut: unbound",
            "gen: facts"
        ],
        "each program once"
    );
}

#[test]
fn unreachable_host_does_not_prevent_checks_of_others() {
    let (seen, asked) = seen(PLAN, Some("dut"), |facts| client(facts).is_up = false);
    expect![[r#"
        host dut: cannot be reached
        gen: link client (client): down; `ip link set client up`, or `ansible-playbook -i hosts.yml deploy/ansible/site.yml`"#]].assert_eq(&seen.obstacles.join("\n"));
    assert_eq!(seen.facts.len(), 2);
    assert_eq!(asked.len(), 2);
}

#[test]
fn ready_hosts_have_no_problems() {
    let unbound = PLAN
        .trim_end()
        .trim_end_matches("[[dut]]\nprofile = \"bind\"");
    let (seen, _) = seen(unbound, None, |_| {});
    assert_eq!(seen.obstacles, Vec::<String>::new());
    let programs: Vec<_> = seen.programs.iter().map(|it| format!("{it:?}")).collect();
    expect![[r#"Installed { host: "dut", profile: "unbound", version: Some("1.17.1") }"#]]
        .assert_eq(&programs.join("\n"));
    // The host of an authority needs memory for the whole zone.
    let large = format!("[tester]\nauthority = \"nsd\"\nnamespace = \"0.0.0.0/0\"\n{unbound}");
    let obstacles = self::seen(&large, None, |_| {}).0.obstacles.join("\n");
    assert!(obstacles.contains("auth: memory: "), "{obstacles}");
}
