//! Several authorities: queried by different Measurers, or all of them by one DUT.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::trial::result::{AuthorityShare, TrialResult};

/// Measurers on hosts with one thread each, and authorities on other hosts.
struct Lab {
    testers: Instruments,
    agents: Vec<JoinHandle<()>>,
}

impl Lab {
    /// Each Measurer queries `dut`, or the authorities in turn.
    fn new(
        load: &Load,
        measurers: &[&str],
        authorities: &[SocketAddr],
        dut: Option<SocketAddr>,
    ) -> Self {
        let named = |k: usize| format!("auth{k}");
        let serving: Vec<_> = (1..=authorities.len()).map(|k| host(&named(k))).collect();
        let sending: Vec<_> = measurers.iter().map(|name| host(name)).collect();
        let specs = serving.iter().zip(authorities);
        let specs = specs.map(|((host, _), &listen)| (host, 0, Some(authority(load, listen))));
        let senders = sending.iter().map(|(host, _)| (host, 1, None));
        let all: Vec<_> = specs.chain(senders).collect();
        let mut testers = opened(load, &all, dut.unwrap_or(authorities[0]));
        testers.probers[0].host = sending[0].0.clone();
        let servers = authorities.iter().cycle();
        for (sender, &server) in testers.senders.iter_mut().zip(servers) {
            sender.server = dut.unwrap_or(server);
        }
        drop(all);
        let agents = serving.into_iter().chain(sending);
        let agents = agents.map(|(_, agent)| agent).collect();
        Self { testers, agents }
    }

    /// Runs a trial of half a second.
    fn trial(&mut self, load: &Load, around: Surroundings) -> TrialResult {
        let schedule = load.schedule(1200);
        let names = load
            .names()
            .unwrap()
            .take(schedule.queries(), None)
            .unwrap();
        let spec = load.trial(self.testers.probers[0].server, schedule, names);
        self.testers.trial(&spec, || around).unwrap()
    }

    /// Queries of these shards that were sent, and those with a valid answer.
    fn of_shards(&self, shards: &[usize]) -> (u64, u64) {
        let rows: Vec<_> = self.testers.rows().unwrap().collect();
        let own = rows.iter().filter(|row| shards.contains(&row.shard));
        let valid = own.clone().filter(|row| row.fate == Fate::Valid).count();
        (own.count() as u64, valid as u64)
    }

    fn end(self) {
        drop(self.testers);
        for agent in self.agents {
            agent.join().unwrap();
        }
    }
}

fn assert_shares(result: &TrialResult) -> [u64; 2] {
    let [one, two] = result.authorities.as_slice() else {
        panic!("{:?}", result.authorities);
    };
    assert_eq!([&one.host, &two.host], ["auth1", "auth2"]);
    let asked = [one, two].map(|share: &AuthorityShare| share.questions);
    assert_eq!(
        asked.iter().sum::<u64>(),
        result.authority.unwrap().queries()
    );
    asked
}

#[test]
fn three_measurers_query_authorities_in_turn() {
    let load = load();
    let authorities = [free_port(), free_port()];
    let mut lab = Lab::new(&load, &["gen1", "gen2", "gen3"], &authorities, None);
    let result = lab.trial(&load, Surroundings::default());
    assert_eq!((result.queries_due, result.queries_sent), (600, 600));
    let indices = lab.testers.rows().unwrap().map(|row| row.index);
    assert!(indices.eq(0..600), "none missing, none twice");
    let asked = assert_shares(&result);
    // The shards are assigned in turn; the third starts with the first authority again.
    for (asked, shards) in asked.into_iter().zip([&[0, 2][..], &[1]]) {
        let (sent, valid) = lab.of_shards(shards);
        assert_eq!(sent, 200 * shards.len() as u64);
        assert!((valid..=sent).contains(&asked), "{valid} {asked} {sent}");
    }
    // One AAAA query per name, at either authority, on a common clock.
    let bound_ns = 1_000_000;
    for row in lab
        .testers
        .rows()
        .unwrap()
        .filter(|row| row.fate == Fate::Valid)
    {
        let told = lab.testers.rows().unwrap().timeline(row.index).unwrap();
        let aaaa = told.questions.unwrap().aaaa;
        assert_eq!((aaaa.asked, aaaa.answered), (1, true), "{told:?}");
        let at = aaaa.arrived_at.unwrap();
        assert!(at + bound_ns >= told.sent_at, "{told:?}");
        assert!(at <= told.received_at.unwrap() + bound_ns, "{told:?}");
    }
    let hosts = result.clocks.iter().map(|clock| clock.host.as_str());
    assert!(hosts.eq(["auth1", "auth2", "gen1", "gen2", "gen3"]));
    lab.end();
}

/// A DUT that forwards queries to its upstreams in turn, and their responses back.
fn dut(listen: SocketAddr, upstreams: [SocketAddr; 2], end: Arc<AtomicBool>) -> JoinHandle<()> {
    let front = UdpSocket::bind(listen).unwrap();
    let back = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let wait = Some(Duration::from_millis(200));
    front.set_read_timeout(wait).unwrap();
    back.set_read_timeout(wait).unwrap();
    std::thread::spawn(move || {
        let (mut query, mut answer) = ([0; 512], [0; 512]);
        let mut turn = upstreams.iter().cycle();
        while !end.load(Ordering::Relaxed) {
            let Ok((octets, client)) = front.recv_from(&mut query) else {
                continue;
            };
            back.send_to(&query[..octets], turn.next().unwrap())
                .unwrap();
            if let Ok(octets) = back.recv(&mut answer) {
                front.send_to(&answer[..octets], client).unwrap();
            }
        }
    })
}

#[test]
fn dut_queries_both_upstreams() {
    let load = load();
    let authorities = [free_port(), free_port()];
    let (listen, end) = (free_port(), Arc::new(AtomicBool::new(false)));
    let server = dut(listen, authorities, Arc::clone(&end));
    let mut lab = Lab::new(&load, &["gen1", "gen2"], &authorities, Some(listen));
    let around = Surroundings {
        certified: Some(true),
        ..Surroundings::default()
    };
    let result = lab.trial(&load, around);
    assert_eq!(result.queries_sent, 600);
    let [one, two] = assert_shares(&result);
    assert!(one.abs_diff(two) <= 1, "it takes turns: {one} and {two}");
    let path = result.path.unwrap();
    assert_eq!(path.fresh_names, 600);
    assert_eq!(path.questions.aaaa, result.authority.unwrap().aaaa);
    assert!(path.questions.aaaa >= result.answers.valid);
    lab.end();
    end.store(true, Ordering::Relaxed);
    server.join().unwrap();
}

#[test]
fn lost_host_of_authority_is_named() {
    let load = load();
    let authorities = [free_port(), free_port()];
    let mut lab = Lab::new(&load, &["gen1", "gen2"], &authorities, None);
    let lost = lost_host("auth2");
    lab.testers.authorities[1] = lost.clone();
    lab.testers.hosts[1] = lost;
    let names = load.names().unwrap().take(600, None).unwrap();
    let spec = load.trial(authorities[0], load.schedule(1200), names);
    let error = lab.testers.trial(&spec, Surroundings::default).unwrap_err();
    assert!(error.to_string().starts_with("host auth2: "), "{error}");
    drop(lab);
}
