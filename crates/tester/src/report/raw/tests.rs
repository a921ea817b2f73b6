//! The rows of a trial with two shards, from its ledgers to files.

use std::sync::Arc;

use dns64_wire::codes::Rtype;

use super::*;
use crate::authority::ledger::{NameLedger, Recorder};
use crate::load::generator::{Finished, Tally};
use crate::load::ledger::{self, Fate};
use crate::load::names::Names;
use crate::load::pace::Schedule;
use crate::load::query::QueryForm;
use crate::load::repeat::Repeats;
use crate::load::ring::Ring;
use crate::load::transport::Transport;
use crate::namespace::{AskedName, Share, Zone};
use crate::trial::TrialSpec;
use crate::trial::rows::TrialQueries;

/// Six queries of two shards; the last was not sent and the one before is undecided.
pub(crate) fn trial() -> TrialQueries {
    let zone = Zone {
        suffix: "dns64perf.test.".parse().unwrap(),
        aaaa_share: Share::NONE,
        ..Zone::default()
    };
    let cidr: crate::namespace::Cidr = "10.0.0.0/8".parse().unwrap();
    let schedule = Schedule::new(1000, 6_000_000);
    let mut ledgers = [ledger::Ledger::default(), ledger::Ledger::default()];
    for ledger in &mut ledgers {
        ledger.reset(3);
        (0..3).for_each(|i| ledger.sent(i, 5, false));
    }
    ledgers[0].answered(0, 1000, Fate::Valid);
    ledgers[1].answered(0, 2000, Fate::Late);
    ledgers[0].answered(1, 3000, Fate::Wrong);
    let names = Names {
        ring: Ring::whole(cidr),
        first: 7,
        fresh: 6,
        cached: cidr.first(),
        repeats: Repeats::none(),
        zone,
        pref64: None,
        form: QueryForm::default(),
    };
    let server = "[2001:db8::53]:53".parse().unwrap();
    let spec = TrialSpec {
        schedule,
        ..TrialSpec::preliminary(server, Transport::default(), 1000, 6, names, 100_000)
    };
    let finished = |(ledger, (shard, offered))| Finished {
        schedule: schedule.shard(shard, 2),
        start: 0,
        ledger,
        offered,
        emptied_until_ns: 3_500_000,
        tally: Tally::default(),
    };
    let shards = ledgers.into_iter().zip([(0, 3), (1, 2)]).map(finished);
    TrialQueries {
        spec,
        started_at_ns: 1_000_000_000_000,
        shards: shards.collect(),
        asked: None,
    }
}

/// The authority's records of the third name of that trial.
pub(crate) fn asked() -> Arc<NameLedger> {
    let queries = trial();
    let ledger = Arc::new(NameLedger::new(&queries.spec.names, 0, None));
    let recorder = Recorder::new(Arc::clone(&ledger));
    let question = |rtype| AskedName {
        address: queries.spec.names.asked(2),
        rtype,
    };
    // The query was sent at 2,000,005 ns and answered 3,000 ns later.
    let mark = recorder.arrived(Some(question(Rtype::AAAA)), 2_000_704);
    recorder.arrived(Some(question(Rtype::AAAA)), 2_000_900);
    recorder.answered(mark, 2_001_280);
    let mark = recorder.arrived(Some(question(Rtype::A)), 2_001_920);
    recorder.answered(mark, 2_002_176);
    ledger
}

#[test]
fn rows_come_in_the_order_of_the_schedule() {
    let queries = trial();
    let rows = Rows::new(&queries);
    let seen: Vec<_> = rows
        .map(|row| (row.index, row.shard, row.sent_ns, row.class()))
        .collect();
    let expected = [
        (0, 0, 5, "valid"),
        (1, 1, 1_000_005, "late"),
        (2, 0, 2_000_005, "wrong"),
        (3, 1, 3_000_005, "missing"),
        (4, 0, 4_000_005, "undecided"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn csv_of_a_trial_has_the_expected_text() {
    let queries = trial();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raw.csv");
    let rows = Rows::new(&queries);
    let file = RawFile::create(&path).unwrap();
    assert_eq!(file.write(rows).unwrap(), 5);
    let expected = "\
dns64perf++ test parameters
server: 2001:db8::53
port: 53
number of requests: 6
burst size: 1
number of threads: 2
delay between bursts: 2000000 ns

query;thread id;tsent [ns];treceived [ns];received;answered;rtt [ns]
010-000-000-007.dns64perf.test.;0;1000000000005;1000000001005;1;1;1000
010-000-000-008.dns64perf.test.;1;1000001000005;1000001002005;1;0;2000
010-000-000-009.dns64perf.test.;0;1000002000005;1000002003005;1;0;3000
010-000-000-010.dns64perf.test.;1;1000003000005;0;0;0;-1
010-000-000-011.dns64perf.test.;0;1000004000005;0;0;0;-1
";
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
}
