use dns64_transport::stream::Connections;
use dns64_transport::{Carrier, Counters};

use super::super::disturbance::tests::row;
use super::*;
use crate::authority::counts::AuthorityCounts;
use crate::load::generator::Tally;
use crate::load::ledger::Ledger;
use crate::load::names::Names;
use crate::load::query::QueryForm;
use crate::load::repeat::Repeats;
use crate::load::ring::Ring;
use crate::load::transport::Transport;
use crate::machine::Role;
use crate::machine::process::Resources;
use crate::machine::usage::{RoleUsage, Usage};
use crate::machine::watch::{CounterChange, Leg};
use crate::namespace::{DEFAULT_SUFFIX, Share, Zone, parse_suffix};
use crate::trial::fault::TesterFault;
use crate::trial::place::Place;

/// A trial with this number of queries, each for another name.
fn spec(queries: u64) -> TrialSpec {
    let cidr: crate::namespace::Cidr = "10.0.0.0/8".parse().unwrap();
    let names = Names {
        ring: Ring::whole(cidr),
        first: 0,
        fresh: queries,
        cached: cidr.first(),
        repeats: Repeats::none(),
        zone: Zone {
            suffix: parse_suffix(DEFAULT_SUFFIX).unwrap(),
            aaaa_share: Share::NONE,
            ..Zone::default()
        },
        pref64: None,
        form: QueryForm::default(),
    };
    let server = "[2001:2::53]:53".parse().unwrap();
    TrialSpec::preliminary(server, Transport::default(), 1_000, queries, names, 1)
}

/// The single shard of a trial, which sent this number of queries and got valid answers to the first of them.
fn shard(spec: &TrialSpec, sent: usize, valid: usize) -> ShardReport {
    let mut ledger = Ledger::default();
    ledger.reset(sent);
    for i in 0..sent {
        ledger.sent(i, 0, false);
    }
    for i in 0..valid {
        ledger.answered(i, 1, Fate::Valid);
    }
    ShardReport {
        finished: Finished {
            schedule: spec.schedule,
            start: 0,
            ledger,
            offered: sent,
            emptied_until_ns: u64::MAX,
            tally: Tally::default(),
        },
        ports: 1,
        counters: Counters::default(),
        clock_step_ns: 0,
        connections: Connections::default(),
        carrier: Carrier::Memory,
        error: None,
    }
}

#[test]
fn counters_of_several_authorities_are_summed_and_listed() {
    let report = |aaaa, receive_drops| AuthorityReport {
        counts: AuthorityCounts {
            aaaa,
            ..AuthorityCounts::default()
        },
        receive_drops,
        ..AuthorityReport::default()
    };
    let named = |host: &str, report| (host.to_owned(), report);
    assert!(AuthorityReport::united(Vec::new()).is_none());
    let one = AuthorityReport::united(vec![named("auth1", report(7, 1))]).unwrap();
    assert_eq!((one.counts.aaaa, one.shares.len()), (7, 0));
    let both = vec![named("auth2", report(5, 0)), named("auth1", report(7, 1))];
    let both = AuthorityReport::united(both).unwrap();
    assert_eq!((both.counts.aaaa, both.receive_drops), (12, 1));
    let spec = spec(0);
    let told = result(&spec, &[], Some(&both), Surroundings::default()).authorities;
    let told: Vec<_> = told
        .iter()
        .map(|it| (it.host.as_str(), it.questions, it.drops))
        .collect();
    assert_eq!(told, [("auth1", 7, 1), ("auth2", 5, 0)]);
}

#[test]
fn failed_authority_is_named_with_its_host() {
    let failed = AuthorityReport {
        error: Some("the authority's socket was closed".to_owned()),
        ..AuthorityReport::default()
    };
    let hosts = vec![
        ("auth1".to_owned(), AuthorityReport::default()),
        ("auth2".to_owned(), failed),
    ];
    let both = AuthorityReport::united(hosts).unwrap();
    let outcome = result(&spec(0), &[], Some(&both), Surroundings::default()).outcome;
    let error = "the authority on host auth2: the authority's socket was closed".to_owned();
    assert_eq!(outcome, Outcome::Invalid(TesterFault::Link { error }));
}

/// Returns the result of a trial without due queries.
fn idle(around: Surroundings) -> TrialResult {
    let shards: [ShardReport; 0] = [];
    result(&spec(0), &shards, None, around)
}

#[test]
fn answers_without_upstream_query_are_noted_with_their_number() {
    let spec = spec(3);
    let shards = [shard(&spec, 3, 3)];
    let told = |aaaa: u64, certified: Option<bool>| {
        let counts = AuthorityCounts {
            aaaa,
            ..AuthorityCounts::default()
        };
        let authority = AuthorityReport {
            counts,
            ..AuthorityReport::default()
        };
        let around = Surroundings {
            certified,
            ..Surroundings::default()
        };
        result(&spec, &shards, Some(&authority), around).notes
    };
    let note = "each name was asked once, but 2 of 3 answers came without an AAAA query at the \
                authority: the DUT had them in its cache, or does not ask for AAAA";
    assert_eq!(told(1, Some(false)), [note]);
    assert_eq!(told(3, Some(false)), Vec::<String>::new());
    assert_eq!(told(0, None), Vec::<String>::new(), "no DUT was asked");
}

#[test]
fn surroundings_of_trial_are_in_result() {
    let resources = Some(Resources {
        memory_bytes: 1,
        descriptors: 2,
        threads: 3,
    });
    let told = idle(Surroundings {
        certified: Some(true),
        dut_drops: 7,
        dut_exit: Some("signal 11".to_owned()),
        resources,
        notes: vec!["restarted".to_owned()],
        ..Surroundings::default()
    });
    assert_eq!((told.certified, told.resources), (Some(true), resources));
    assert_eq!(told.outcome, Outcome::Passed);
    assert_eq!(told.dut_exit.as_deref(), Some("signal 11"));
    assert_eq!(
        told.notes,
        [
            "restarted",
            "the DUT's sockets lost 7 datagrams at full buffers",
            "the DUT ended during the trial (signal 11)",
        ]
    );
}

#[test]
fn exit_of_authority_makes_trial_invalid() {
    let told = idle(Surroundings {
        authority_exit: Some("signal 9".to_owned()),
        ..Surroundings::default()
    });
    let status = "signal 9".to_owned();
    assert_eq!(
        told.outcome,
        Outcome::Invalid(TesterFault::AuthorityDied { status })
    );
}

#[test]
fn measured_authority_is_responsible_for_its_losses() {
    let spec = spec(3);
    let report = AuthorityReport {
        receive_drops: 1,
        ..AuthorityReport::default()
    };
    let told = |authority_is_subject| {
        let around = Surroundings {
            authority_is_subject,
            ..Surroundings::default()
        };
        result(&spec, &[shard(&spec, 3, 2)], Some(&report), around)
    };
    let measured = told(true);
    assert_eq!(measured.outcome, Outcome::Failed { shortfall: 1 });
    assert_eq!(measured.tester_drops, 0);
    let places = measured.losses.places;
    assert_eq!(places[0].place, Place::Dut);
    let beside_a_dut = told(false);
    let fault = TesterFault::AuthorityDrops { datagrams: 1 };
    assert_eq!(beside_a_dut.outcome, Outcome::Invalid(fault));
    assert_eq!(beside_a_dut.tester_drops, 1);
}

#[test]
fn single_receive_queue_of_multicore_server_is_noted() {
    let told = |packets: [u64; 2], cores: &str| {
        let counted = (0..).zip(packets).map(|(queue, count)| {
            let counter = Counter::of_link("client", Layer::Receive(queue), "packets");
            (counter, count)
        });
        let server = CounterChange {
            of: Role::Dut.into(),
            most: counted.collect(),
            ..CounterChange::default()
        };
        let row = RoleUsage {
            cores: Some(cores.to_owned()),
            ..row(Role::Dut)
        };
        let around = Surroundings {
            machine: Usage {
                roles: vec![row],
                ..Usage::default()
            },
            observed: Observed {
                hosts: vec![CounterChange::default(), server],
                client: Some(Leg {
                    near: 0,
                    far: Some(1),
                    link: Some("client".to_owned()),
                    is_elsewhere: false,
                }),
                upstreams: Vec::new(),
            },
            ..Surroundings::default()
        };
        around.one_queue()
    };
    let note = "1000 of 1010 packets arrived in one of 2 receive queues (client, DUT), and so at one of its cores: RSS has to \
                hash the ports (`ethtool -N INTERFACE rx-flow-hash udp6 sdfn`)";
    assert_eq!(told([1000, 10], "1-2").as_deref(), Some(note));
    assert_eq!(told([1000, 11], "1-2"), None);
    assert_eq!(told([1000, 10], "1"), None);
    assert_eq!(told([990, 0], "1-2"), None, "too few to judge");
}

#[test]
fn course_of_losses_has_each_query_in_the_slice_of_its_due_time() {
    // A query in each millisecond: 150 to 249 and the last 50 get no answer.
    let spec = spec(1_000);
    let mut report = shard(&spec, 1_000, 0);
    for i in (0..150).chain(250..950) {
        report.finished.ledger.answered(i, 7_000, Fate::Valid);
    }
    let series = result(&spec, &[report], None, Surroundings::default()).series;
    let series = series.unwrap();
    assert_eq!(series.slice_ns, 100_000_000);
    assert_eq!(series.sent, [100; 10]);
    assert_eq!(series.lost, [0, 50, 50, 0, 0, 0, 0, 0, 0, 50]);
    assert_eq!(series.latency_ns_p99[4], series.latency_ns_p50[0]);
}

#[test]
fn trial_without_losses_has_no_course() {
    let spec = spec(10);
    let passed = result(
        &spec,
        &[shard(&spec, 10, 10)],
        None,
        Surroundings::default(),
    );
    assert_eq!(passed.series, None);
    assert_eq!(passed.latency_percentiles.last(), Some(&(100.0, Some(1))));
}

#[test]
fn latency_counts_from_the_due_time_and_ends_at_the_lost_queries() {
    let spec = spec(1_000);
    let mut report = shard(&spec, 1_000, 0);
    for i in 0..900 {
        report.finished.ledger.sent(i, 500, false);
        report.finished.ledger.answered(i, 100, Fate::Valid);
    }
    let told = result(&spec, &[report], None, Surroundings::default()).latency_percentiles;
    let at = |percent: f64| told.iter().find(|at| at.0 == percent).unwrap().1;
    assert_eq!(
        (at(50.0), at(90.0), at(95.0), at(100.0)),
        (Some(600), Some(600), None, None)
    );
}
