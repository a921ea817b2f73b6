use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use super::*;
use crate::lab::server::tests::{free_port, spec};
use crate::post::HostQuery;
use crate::rig::tester::tests::host;

#[test]
fn server_that_is_silent_is_restarted_and_its_starts_are_counted() {
    let here = Host::here(&Arc::default());
    let mut probes = 0;
    let server = HostedServer::start(here.clone(), spec("exec sleep 100", free_port()), || {
        probes += 1;
        match probes {
            1 => Probe::FellSilent("none".to_owned()),
            _ => Probe::Answered,
        }
    });
    let mut servers = Servers::new(vec![server.unwrap()]).unwrap();
    assert_eq!(servers.take_silent_starts(), 1);
    assert_eq!(servers.take_silent_starts(), 0);
    assert!(servers.take_start().is_some());
    assert!(servers.take_start().is_none());
    assert_eq!(servers.ended(), None);
    assert_eq!(servers.program().version.as_deref(), Some("script 1.2"));
    assert_eq!(servers.state().resources.threads, 1);
    servers.restart(&mut || Probe::Answered).unwrap();
    drop(servers);
    let stopped = here.ask(Request::State(Role::Dut), PROMPT_NS);
    assert_eq!(stopped.unwrap_err().blame, Blame::Server);
}

#[test]
fn error_of_a_server_that_ends_has_its_last_log_lines() {
    let here = Host::here(&Arc::default());
    let silent = || Probe::NotYet("no answer".into());
    let script = "echo cannot do that >&2; exit 7";
    let error = HostedServer::start(here, spec(script, free_port()), silent);
    assert_eq!(
        error.unwrap_err().to_string(),
        "script ended before it answered (exit status: 7); last log lines:\ncannot do that"
    );
}

/// A query for an authority that never answers.
fn question(server: SocketAddr) -> HostQuery {
    Prober::here(server, Zone::default()).question(Ipv4Addr::LOCALHOST, Rtype::AAAA, SECOND)
}

fn waits(host: &Host) -> Vec<Nanos> {
    host.get(Request::EndPulse, PROMPT_NS).unwrap()
}

#[test]
fn queries_to_an_authority_end_with_their_owner_with_close_and_with_the_connection() {
    let (far, agent) = host("one");
    for at in [Host::here(&Arc::default()), far] {
        let begin = || {
            let silent = UdpSocket::bind("[::1]:0").unwrap();
            let question = question(silent.local_addr().unwrap());
            at.ask(Request::Pulse(question, None), PROMPT_NS).unwrap();
            silent.recv_from(&mut [0; 512]).unwrap();
        };
        begin();
        assert!(!waits(&at).is_empty(), "they went on until now");
        begin();
        // As of a trial that has failed.
        let mut pulses = Pulses::default();
        pulses.add(at.clone());
        drop(pulses);
        assert_eq!(waits(&at), Vec::<Nanos>::new());
        begin();
        at.ask(Request::Close, PROMPT_NS).unwrap();
        assert_eq!(waits(&at), Vec::<Nanos>::new());
        begin();
    }
    // Joins the thread that queries.
    agent.join().unwrap();
}

#[test]
fn programs_of_one_profile_are_combined() {
    let program = |version: &str, sha256: &str, address: &str| Program {
        version: Some(version.to_owned()),
        sha256: Some(sha256.to_owned()),
        command: vec!["nsd".to_owned()],
        files: [("nsd.conf".to_owned(), address.to_owned())].into(),
        ..Program::default()
    };
    let one = united(vec![("auth1", program("NSD 4.6.1", "aa", "::1"))]);
    assert_eq!(
        one.files.keys().map(String::as_str).collect::<Vec<_>>(),
        ["nsd.conf"]
    );
    let both = united(vec![
        ("auth1", program("NSD 4.6.1", "aa", "::1")),
        ("auth2", program("NSD 4.6.1", "bb", "::2")),
    ]);
    assert_eq!(both.version.as_deref(), Some("NSD 4.6.1"));
    assert_eq!(both.sha256.as_deref(), Some("aa on auth1, bb on auth2"));
    assert_eq!((both.command, both.cores), (vec!["nsd".to_owned()], None));
    let files: Vec<_> = both.files.into_iter().collect();
    assert_eq!(
        files,
        [
            ("nsd.conf on auth1".to_owned(), "::1".to_owned()),
            ("nsd.conf on auth2".to_owned(), "::2".to_owned())
        ]
    );
}
