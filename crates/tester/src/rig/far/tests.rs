use std::io::pipe;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use dns64_transport::Backend;
use dns64_transport::clock::SECOND;
use dns64_transport::socket::Segmentation;

use super::any::{AnyTester, Instruments};
use super::post::Post;
use super::tester::FarTester;
use crate::agent::frame::{self, Kind};
use crate::agent::handshake::{Answer, Welcome};
use crate::agent::link::Link;
use crate::agent::serve::serve;
use crate::agent::ssh::Options;
use crate::lab::Blame;
use crate::lab::server::Probe;
use crate::load::ledger::Fate;
use crate::machine::Role;
use crate::machine::watch::Watched;
use crate::namespace::Share;
use crate::rig::equipment::Client as _;
use crate::rig::probe::{ProbeError, Prober, Way};
use crate::rig::remote::host::{PROMPT_NS, Remote};
use crate::rig::remote::order::{AuthorityOrder, MeasurerOrder, Request, TesterOrder, ZoneOrder};
use crate::rig::remote::site::Sender;
use crate::rig::spec::Load;
use crate::trial::result::Outcome;
use crate::trial::surroundings::Surroundings;

mod authorities;

/// Starts a host whose agent is a thread of the test.
fn host(name: &str) -> (Remote, JoinHandle<()>) {
    let ((answers, out), (input, calls)) = (pipe().unwrap(), pipe().unwrap());
    let agent = std::thread::spawn(move || {
        let interrupted = Arc::new(AtomicBool::new(false));
        let mut post = Post::new(Arc::clone(&interrupted));
        serve(input, out, interrupted, |_| Ok(Welcome::here()), &mut post).unwrap();
    });
    let link = Link::over(name, answers, calls, &Options::new("a test")).unwrap();
    (Remote::new(name, link), agent)
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

/// Two hosts that send, with one thread and with two; the second also runs the authority.
fn two_hosts(load: &Load) -> (Instruments, Remote, Vec<JoinHandle<()>>) {
    let server = free_port();
    let ((one, first), (two, second)) = (host("one"), host("two"));
    for (host, threads) in [(&one, 1), (&two, 2)] {
        let authority = (threads == 2).then(|| AuthorityOrder {
            listen: server,
            cpus: String::new(),
            segmentation: Segmentation::Off,
            backend: Backend::Socket,
            zone: ZoneOrder::new(load.cidr, &load.zone_config(true)),
            behaviour: None,
        });
        let measurer = Some(MeasurerOrder {
            ports: 16,
            local: None,
            threads,
            cpus: String::new(),
            backend: Backend::Socket,
        });
        let order = TesterOrder {
            measurer,
            authority,
        };
        host.ask(&Request::Open(Box::new(order)), PROMPT_NS)
            .unwrap();
    }
    let sender = |host: &Remote, threads| Sender {
        host: host.clone(),
        threads,
        server,
    };
    let tester = FarTester {
        senders: vec![sender(&one, 1), sender(&two, 2)],
        authorities: vec![two.clone()],
        hosts: vec![one.clone(), two],
        last: None,
    };
    let testers = Instruments {
        tester: AnyTester::Far(Box::new(tester)),
        prober: Prober {
            way: Way::Far(one.clone()),
            local: None,
            server,
            zone: load.zone.clone(),
        },
        watched: Watched::default(),
    };
    (testers, one, vec![first, second])
}

#[test]
fn several_hosts_share_one_schedule() {
    let load = load();
    let (mut testers, one, agents) = two_hosts(&load);
    let (rate_qps, schedule) = (2000, load.schedule(2000));
    let names = load
        .names()
        .unwrap()
        .take(schedule.queries(), None)
        .unwrap();
    let first = names.asked(0);
    testers.answers(first, SECOND).unwrap();
    let asked_before = testers.authority_counts().unwrap().queries();
    let spec = load.trial(testers.prober.server, rate_qps, schedule, names);
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
fn lost_host(name: &str) -> Remote {
    let ((answers, mut out), (mut input, calls)) = (pipe().unwrap(), pipe().unwrap());
    std::thread::spawn(move || {
        frame::read(&mut input).unwrap();
        let welcome = serde_json::to_vec(&Answer::Welcome(Welcome::here())).unwrap();
        frame::write(&mut out, Kind::Message, &welcome).unwrap();
    });
    let link = Link::over(name, answers, calls, &Options::new("a test")).unwrap();
    Remote::new(name, link)
}

#[test]
fn lost_host_is_named_in_error() {
    let host = lost_host("one");
    assert!(host.link().lost().is_none());
    let error = host.ask(&Request::Facts, PROMPT_NS).unwrap_err();
    assert_eq!(error.blame, Blame::Machine);
    assert!(error.to_string().starts_with("host one: "), "{error}");
    assert!(host.link().lost().is_some());
    // Waiting stops for a server that only this host could query.
    let probe = Probe::from(ProbeError::Host(error));
    assert_eq!(probe, Probe::Abandoned);
}

#[test]
fn late_start_of_host_makes_trial_invalid() {
    let load = load();
    let (testers, one, agents) = two_hosts(&load);
    let names = load.names().unwrap().take(1000, None).unwrap();
    let spec = load.trial(testers.prober.server, 2000, load.schedule(2000), names);
    let order = crate::rig::remote::order::TrialOrder::new(
        &spec,
        crate::trial::part::Part {
            first: 0,
            shards: 3,
        },
        testers.prober.server,
    );
    one.ask(&Request::Arm(Box::new(order)), PROMPT_NS).unwrap();
    let late = match one.ask(&Request::Run(1), 20 * SECOND).unwrap() {
        crate::rig::remote::order::Reply::Ran(late_ns) => late_ns,
        other => panic!("{other:?}"),
    };
    assert!(late > 0);
    let clock = crate::trial::result::HostClock {
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
