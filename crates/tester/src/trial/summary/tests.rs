use dns64_transport::Counters;

use super::*;
use crate::authority::counts::AuthorityCounts;
use crate::authority::counts::FaultCounts;
use crate::lab::process::Resources;
use crate::load::generator::Tally;
use crate::load::ledger::Ledger;
use crate::load::names::Names;
use crate::load::repeat::Repeats;
use crate::load::ring::Ring;
use crate::namespace::{DEFAULT_SUFFIX, Share, Zone, parse_suffix};

/// A trial of so many queries, each for a name of its own.
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
        },
        pref64: None,
    };
    let server = "[2001:2::53]:53".parse().unwrap();
    TrialSpec::preliminary(server, 1_000, queries, names, 1)
}

/// The result of a trial in which nothing was due.
fn idle(around: Surroundings) -> TrialResult {
    let shards: [ShardReport; 0] = [];
    result(&spec(0), &shards, None, around)
}

#[test]
fn answers_that_the_authority_was_not_asked_for_are_told_with_their_number() {
    let spec = spec(3);
    let mut ledger = Ledger::default();
    ledger.reset(3);
    for i in 0..3 {
        ledger.sent(i, 0, false);
        ledger.answered(i, 1, Fate::Valid);
    }
    let finished = Finished {
        schedule: spec.schedule,
        start: 0,
        ledger,
        offered: 3,
        emptied_until_ns: 0,
        tally: Tally::default(),
    };
    let shards = [ShardReport {
        finished,
        counters: Counters::default(),
        clock_step_ns: 0,
        backend: "memory",
        error: None,
    }];
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
fn what_surrounds_a_trial_is_in_its_result() {
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
fn an_authority_without_room_for_its_delayed_replies_makes_the_trial_invalid() {
    let mut report = AuthorityReport::default();
    for (overflowed, expected) in [
        (0, None),
        (3, Some(TesterFault::AuthorityOverflow { replies: 3 })),
    ] {
        report.counts.misbehaviour = Some(FaultCounts {
            delayed: 10,
            lost: 10,
            overflowed,
            ..FaultCounts::default()
        });
        assert_eq!(overflow(&report), expected);
    }
}

#[test]
fn an_authority_that_ends_makes_the_trial_invalid() {
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
