use std::io::pipe;
use std::net::UdpSocket;
use std::thread::JoinHandle;

use dns64_transport::Backend;
use dns64_transport::socket::Segmentation;

use super::*;
use crate::agent::frame;
use crate::agent::handshake::{Answer, Welcome};
use crate::agent::link::tests::over;
use crate::agent::serve::serve;
use crate::agent::ssh::Options;
use crate::authority::behaviour::Behaviour;
use crate::lab::Blame;
use crate::lab::server::Probe;
use crate::load::ledger::Fate;
use crate::load::pace::Schedule;
use crate::machine::Role;
use crate::machine::network::Network;
use crate::namespace::Share;
use crate::post::work::Post;
use crate::rig::spec::Load;
use crate::trial::AuthDns;
use crate::trial::result::Outcome;

mod authorities;

/// Starts a host whose agent is a thread of the test.
pub(crate) fn host(name: &str) -> (Host, JoinHandle<()>) {
    let ((answers, out), (input, calls)) = (pipe().unwrap(), pipe().unwrap());
    let agent = std::thread::spawn(move || {
        let interrupted = Arc::new(AtomicBool::new(false));
        let mut post = Post::new(Arc::clone(&interrupted));
        serve(input, out, interrupted, |_| Ok(Welcome::here()), &mut post).unwrap();
    });
    let link = over(name, answers, calls, &Options::new("a test")).unwrap();
    (Host::at(name, link), agent)
}

fn free_port() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    socket.local_addr().unwrap()
}

fn load() -> Load {
    let mut load = Load {
        duration_ns: SECOND / 2,
        cidr: "10.0.0.0/16".parse().unwrap(),
        segmentation: Segmentation::Off,
        ..Load::default()
    };
    load.zone.aaaa_share = Share::ALL;
    load
}

fn authority(load: &Load, listen: SocketAddr) -> AuthDns {
    AuthDns {
        network: Network::Own,
        listen,
        workers: 1,
        cores: Vec::new(),
        segmentation: Segmentation::Off,
        backend: Backend::Socket,
        zone: load.zone_config(true),
        behaviour: Behaviour::default(),
        driver: None,
    }
}

fn measurer(threads: usize) -> Measurer {
    Measurer {
        threads,
        ..Measurer::none()
    }
}

/// Opens the Tester of these hosts, each with its number of Measurer threads and its authority; each thread queries
/// `server`.
fn opened(
    load: &Load,
    hosts: &[(&Host, usize, Option<AuthDns>)],
    server: SocketAddr,
) -> Instruments {
    for (host, threads, authority) in hosts {
        let spec = TesterSpec {
            measurer: Some(measurer(*threads)),
            ports: 16,
            authority: authority.clone(),
        };
        host.ask(Request::Open(Box::new(spec)), PROMPT_NS).unwrap();
    }
    let senders = hosts.iter().filter(|(_, threads, _)| *threads > 0);
    let senders = senders.map(|(host, threads, _)| Sender {
        host: (*host).clone(),
        threads: *threads,
        server,
    });
    let own = hosts.iter().filter(|(_, _, authority)| authority.is_some());
    Instruments {
        senders: senders.collect(),
        authorities: own.map(|(host, ..)| (*host).clone()).collect(),
        hosts: hosts.iter().map(|(host, ..)| (*host).clone()).collect(),
        probers: vec![Prober {
            host: hosts[0].0.clone(),
            ..Prober::here(server, load.zone.clone())
        }],
        watched: Watched::default(),
        last: None,
    }
}

/// Two hosts that send, with one thread and with two; the second also runs the authority.
fn two_hosts(load: &Load) -> (Instruments, Host, Vec<JoinHandle<()>>) {
    let server = free_port();
    let ((one, first), (two, second)) = (host("one"), host("two"));
    let own = authority(load, server);
    let testers = opened(load, &[(&one, 1, None), (&two, 2, Some(own))], server);
    (testers, one, vec![first, second])
}

#[test]
fn this_machine_runs_all_parts_in_this_process() {
    let (load, server) = (load(), free_port());
    let here = Host::here(&Arc::default());
    let own = authority(&load, server);
    let mut testers = opened(&load, &[(&here, 2, Some(own))], server);
    for _ in 0..2 {
        let schedule = load.schedule(1000);
        let names = load.names().unwrap().take(schedule.queries(), None);
        let spec = load.trial(server, schedule, names.unwrap());
        let result = testers.trial(&spec, Surroundings::default).unwrap();
        assert_eq!(result.queries_due, 500);
        assert_eq!(result.clocks, [], "there is one clock");
        let usage = result.machine;
        assert!(usage.roles.iter().all(|row| row.host.is_none()));
        let asked = result.authority.unwrap().aaaa;
        assert!((result.answers.valid..=500).contains(&asked), "{asked}");
        let rows = testers.rows().unwrap().map(|row| row.index);
        assert!(rows.eq(0..500), "none missing, none twice");
    }
    drop(testers);
    let closed = here.ask(Request::Counts, PROMPT_NS).unwrap_err();
    assert_eq!(closed.blame, Blame::Machine, "no Tester is open");
}

#[test]
fn trial_that_cannot_be_prepared_replaces_the_one_before() {
    let (load, server) = (load(), free_port());
    let here = Host::here(&Arc::default());
    let own = authority(&load, server);
    let testers = opened(&load, &[(&here, 1, Some(own))], server);
    let names = load.names().unwrap().take(500, None).unwrap();
    let spec = load.trial(server, load.schedule(1000), names);
    let arm = |spec: &TrialSpec| {
        let order = Request::Arm {
            spec: Box::new(spec.clone()),
            part: Part {
                first: 0,
                shards: 1,
            },
            spare: ReusedLedgers::default(),
        };
        here.ask(order, PROMPT_NS)
    };
    arm(&spec).unwrap();
    let without_queries = TrialSpec {
        schedule: Schedule::new(1000, 1),
        ..spec
    };
    assert_eq!(arm(&without_queries).unwrap_err().blame, Blame::Request);
    let error = here.ask(Request::Run(1), PROMPT_NS).unwrap_err();
    assert_eq!(error.to_string(), "no trial is ready here");
    drop(testers);
}

#[test]
fn several_hosts_share_one_schedule() {
    let load = load();
    let (mut testers, one, agents) = two_hosts(&load);
    let schedule = load.schedule(2000);
    let names = load
        .names()
        .unwrap()
        .take(schedule.queries(), None)
        .unwrap();
    let first = names.asked(0);
    testers.answers(first, SECOND).unwrap();
    let asked_before = testers.authority_counts().unwrap().queries();
    let spec = load.trial(testers.probers[0].server, schedule, names);
    let result = testers.trial(&spec, Surroundings::default).unwrap();
    assert_eq!((result.queries_due, result.queries_sent), (1000, 1000));
    let rows: Vec<_> = testers.rows().unwrap().collect();
    let indices: Vec<u64> = rows.iter().map(|row| row.index).collect();
    assert_eq!(
        indices,
        (0..1000).collect::<Vec<_>>(),
        "none missing, none twice"
    );
    let on_shard = |shard| rows.iter().filter(|row| row.shard == shard).count();
    assert!(
        (0..3).all(|shard| on_shard(shard) >= 333),
        "each has its share"
    );
    let asked = testers.authority_counts().unwrap().queries() - asked_before;
    assert_eq!(asked, result.authority.unwrap().aaaa);
    assert!(asked <= 1000 && asked >= result.answers.valid, "{asked}");
    // Each query arrives at the authority after it was sent, on one clock.
    for row in rows.iter().filter(|row| row.fate == Fate::Valid) {
        let told = testers.rows().unwrap().timeline(row.index).unwrap();
        let at = told.questions.unwrap().aaaa.arrived_at.unwrap();
        let bound_ns = 1_000_000;
        assert!(at + bound_ns >= told.sent_at, "{told:?}");
        assert!(at <= told.received_at.unwrap() + bound_ns, "{told:?}");
    }
    let hosts: Vec<&str> = result
        .clocks
        .iter()
        .map(|clock| clock.host.as_str())
        .collect();
    assert_eq!(hosts, ["one", "two"]);
    let usage = result.machine;
    let rows: Vec<_> = usage
        .roles
        .iter()
        .map(|row| (row.role, row.host.as_deref()))
        .collect();
    let of = |role, host| rows.contains(&(role, Some(host)));
    assert!(of(Role::Measurer, "one") && of(Role::Measurer, "two") && of(Role::Authority, "two"));
    drop((testers, one));
    for agent in agents {
        agent.join().unwrap();
    }
}

/// Starts a host whose agent exits right after its greeting.
fn lost_host(name: &str) -> Host {
    let ((answers, mut out), (mut input, calls)) = (pipe().unwrap(), pipe().unwrap());
    std::thread::spawn(move || {
        frame::read(&mut input).unwrap();
        frame::write(&mut out, &Answer::<()>::Welcome(Welcome::here())).unwrap();
    });
    let link = over(name, answers, calls, &Options::new("a test")).unwrap();
    Host::at(name, link)
}

#[test]
fn lost_host_is_named_in_error() {
    let host = lost_host("one");
    assert!(host.link().unwrap().lost().is_none());
    let error = host.ask(Request::Facts, PROMPT_NS).unwrap_err();
    assert_eq!(error.blame, Blame::Machine);
    assert!(error.to_string().starts_with("host one: "), "{error}");
    assert!(host.link().unwrap().lost().is_some());
    // Waiting stops for a server that only this host could query.
    let why = error.to_string();
    let probe = Probe::from(ProbeError::Lab(error));
    assert_eq!(probe, Probe::Abandoned(why));
}

#[test]
fn query_that_could_not_be_sent_is_no_missing_answer() {
    let why = "socket failed: Too many open files (os error 24)".to_owned();
    let probe = Probe::from(ProbeError::NotSent(why.clone()));
    assert_eq!(probe, Probe::NotAsked(why));
}

#[test]
fn late_start_of_host_makes_trial_invalid() {
    let load = load();
    let (testers, one, agents) = two_hosts(&load);
    let names = load.names().unwrap().take(1000, None).unwrap();
    let spec = load.trial(testers.probers[0].server, load.schedule(2000), names);
    let order = Request::Arm {
        spec: Box::new(spec.clone()),
        part: Part {
            first: 0,
            shards: 3,
        },
        spare: ReusedLedgers::default(),
    };
    one.ask(order, PROMPT_NS).unwrap();
    let late: Nanos = one.get(Request::Run(1), 20 * SECOND).unwrap();
    assert!(late > 0);
    let clock = HostClock {
        host: "one".to_owned(),
        offset_ns: 0,
        bound_ns: 1,
        drift_ppm: 0.0,
        exchanges: 16,
        late_ns: late,
    };
    let around = Surroundings {
        hosts: vec![clock],
        ..Surroundings::default()
    };
    let result = crate::trial::summary::result(&spec, &[], None, around);
    let Outcome::Invalid(fault) = result.outcome else {
        panic!("{:?}", result.outcome);
    };
    assert!(
        fault.to_string().starts_with("host one began its part"),
        "{fault}"
    );
    drop((testers, one));
    for agent in agents {
        agent.join().unwrap();
    }
}
