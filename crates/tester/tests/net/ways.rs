//! Disturbances of a trial with a DUT that is fast enough: none may be reported as a failure of the DUT, which would
//! lower its rate.

use dns64bench::machine::Role;
use dns64bench::machine::usage::RoleUsage;
use dns64bench::machine::watch::HostOf;
use dns64bench::trial::place::Place;
use dns64bench::trial::result::TrialResult;

use crate::accounts::{assert_accounted, code_of, fault};
use crate::busy::until;
use crate::machine::{Run, Underway, left_behind, turn};
use crate::spoil::{self, Guard};

/// The expected outcome.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    /// One of these faults of the Tester.
    Invalid(&'static [&'static str]),
    /// Passed or invalid: the DUT, or the Tester, may have compensated for it.
    NoFailure,
    /// Marked as an experiment and not a measurement. Its effect on the DUT is the result.
    Experiment,
}

/// What shows in the result that the disturbance happened during the trial.
#[derive(Clone, Copy)]
enum Proof {
    /// There is none: nothing is disturbed.
    Undisturbed,
    /// A query left this late.
    Late(u64),
    /// The process of the disturbance ran on a core of this role.
    Neighbour(Role),
    /// The guard knows.
    Guard,
    /// A queue of this host dropped or delayed packets: its link and counter.
    Queue(Role, &'static str, &'static str),
    /// Packets were lost at this place.
    Lost(Place),
    /// The authority omitted responses.
    Omitted,
    /// The authority took this long for a response.
    Slow(u64),
}

struct Way {
    name: &'static str,
    /// Additional arguments.
    arguments: &'static str,
    spoil: fn(&Underway) -> Guard,
    proof: Proof,
    expected: Expected,
}

const MS: u64 = 1_000_000;
const HELD_UP: Expected = Invalid(&["late_schedule"]);
const LOSS: Expected = Invalid(&["network_loss", "not_sent"]);
const SMALL: (&str, &str) = ("100kbit", "4000");
const LONG: (&str, &str) = ("1mbit", "10000000");
/// Below the 0.9 Mbit/s of the queries: the last one waits for half a second.
const LONG_FOR_QUERIES: (&str, &str) = ("700kbit", "10000000");
use Expected::{Experiment, Invalid, NoFailure};
use Proof::{Guard as OfGuard, Late, Lost, Neighbour, Omitted, Queue, Slow, Undisturbed};
use Role::{Authority, Dut, Measurer};

/// In a lab of Measurer, DUT and authority, with the Tester on core 0 and the DUT on core 1.
#[rustfmt::skip]
const WAYS: [Way; 26] = [
    way("nothing", "", |_| spoil::none(), Undisturbed, NoFailure),
    way("Tester stopped for 50 ms", "", |u| spoil::stop_tester(u, 50, 1), Late(45 * MS), HELD_UP),
    way("Tester stopped for 500 ms", "", |u| spoil::stop_tester(u, 500, 1), Late(450 * MS), HELD_UP),
    way("Tester stopped for 6 ms, 40 times", "", |u| spoil::stop_tester(u, 6, 40), Late(5 * MS), NoFailure),
    way("busy loop on the Tester's core", "", |_| spoil::busy_loop("0"), Neighbour(Measurer), NoFailure),
    way("busy loop on the DUT's core", "", |_| spoil::busy_loop("1"), Neighbour(Dut), NoFailure),
    way("half a core for the Tester, periods of 100 ms", "", |u| spoil::quota(u, 100_000), Late(20 * MS), HELD_UP),
    way("half a core for the Tester, periods of 10 ms", "", |u| spoil::quota(u, 10_000), Late(2 * MS), NoFailure),
    way("512 KiB of memory for the Tester", "", spoil::little_memory, OfGuard, NoFailure),
    way("least receive buffers of the Tester", "", spoil::tiny_buffers, OfGuard, NoFailure),
    way("queue of the Measurer's client link full", "", |_| limit("measurer", "client", SMALL), Queue(Measurer, "client", "tbf drops"), LOSS),
    way("queue of the DUT's client link full", "", |_| limit("dut", "client", SMALL), Queue(Dut, "client", "tbf drops"), LOSS),
    way("queue of the DUT's upstream link full", "", |_| limit("dut", "upstream", SMALL), Queue(Dut, "upstream", "tbf drops"), LOSS),
    way("queue of the authority's link full", "", |_| limit("authority", "upstream", SMALL), Queue(Authority, "upstream", "tbf drops"), LOSS),
    way("delay on the way to the DUT", "", |_| limit("measurer", "client", LONG_FOR_QUERIES), Queue(Measurer, "client", "tbf overlimits"), NoFailure),
    way("delay on the way from the DUT", "", |_| limit("dut", "client", LONG), Queue(Dut, "client", "tbf overlimits"), NoFailure),
    way("delay on the way to the authority", "", |_| limit("dut", "upstream", LONG), Queue(Dut, "upstream", "tbf overlimits"), NoFailure),
    way("delay on the way from the authority", "", |_| limit("authority", "upstream", LONG), Queue(Authority, "upstream", "tbf overlimits"), NoFailure),
    way("0.1 % lost on the way to the DUT, as it leaves", "", |_| spoil::lose("measurer", "client", "egress"), Lost(Place::NotSent), LOSS),
    way("0.1 % lost on the way to the DUT, as it arrives", "", |_| spoil::lose("dut", "client", "ingress"), Lost(Place::ToDut), LOSS),
    way("0.1 % lost on the way from the DUT, as it leaves", "", |_| spoil::lose("dut", "client", "egress"), Lost(Place::FromDut), LOSS),
    way("0.1 % lost on the way from the DUT, as it arrives", "", |_| spoil::lose("measurer", "client", "ingress"), Lost(Place::FromDut), LOSS),
    way("0.1 % lost on the way to the authority", "", |_| spoil::lose("dut", "upstream", "egress"), Lost(Place::ToAuthority), NoFailure),
    way("0.1 % lost on the way from the authority", "", |_| spoil::lose("authority", "upstream", "egress"), Lost(Place::FromAuthority), NoFailure),
    way("authority that answers 0.1 % of the names not", "--authority-behaviour loss=0.1%", |_| spoil::none(), Omitted, Experiment),
    way("NSD stopped for 1 s", "--authority nsd --namespace 10.0.0.0/14", |u| spoil::stop_authority(u, 1000, 1), Slow(900 * MS), Invalid(&["authority_slow"])),
];

const fn way(
    name: &'static str,
    arguments: &'static str,
    spoil: fn(&Underway) -> Guard,
    proof: Proof,
    expected: Expected,
) -> Way {
    Way {
        name,
        arguments,
        spoil,
        proof,
        expected,
    }
}

fn limit(host: &str, link: &str, (rate, queue): (&str, &str)) -> Guard {
    spoil::limit(host, link, rate, queue)
}

impl Way {
    /// Returns the result, and whether the disturbance happened.
    fn run(&self) -> (Run, bool) {
        // Queueing disciplines have no effect on AF_XDP.
        let arguments = "trial --lab netns --dut unbound --uncertified -Q 1k -l 2s --cpus 0 --dut-cpus 1 \
                         --backend socket";
        let underway = Underway::start("unbound", &format!("{arguments} {}", self.arguments));
        let guard = (self.spoil)(&underway);
        let output = underway.output();
        let has_happened = guard.has_happened();
        drop(guard);
        let run = Run::new(&output);
        let (name, json) = (self.name, &run.json);
        assert_accounted(json);
        assert_eq!(run.code, code_of(json), "{name}: {json:#}");
        let result = serde_json::from_value(json.clone()).unwrap();
        let has_happened = has_happened && self.proof.is_in(&result);
        (run, has_happened)
    }

    fn is_expected(&self, run: &Run) -> bool {
        match self.expected {
            Invalid(faults) => fault(&run.json).is_some_and(|it| faults.contains(&it.code())),
            NoFailure => true,
            Experiment => {
                let marks = &run.json["conditions"]["not_a_measurement"];
                marks.as_array().is_some_and(|marks| !marks.is_empty())
            }
        }
    }
}

impl Proof {
    fn is_in(self, result: &TrialResult) -> bool {
        let losses = &result.losses;
        let evidence = &losses.evidence;
        let has_neighbour = |row: &RoleUsage| {
            let neighbour = row.neighbour.as_ref();
            neighbour.is_some_and(|process| process.name == "sh")
        };
        match self {
            Undisturbed | OfGuard => true,
            Late(ns) => result.timing.lateness_ns_max >= ns,
            Neighbour(role) => result.machine.of(role).is_some_and(has_neighbour),
            Queue(role, link, counter) => losses.counters.iter().any(|source| {
                let at = (&source.host, source.link.as_deref());
                at == (&HostOf::from(role), Some(link)) && source.counter == counter
            }),
            Lost(Place::NotSent) => evidence.not_sent > 0,
            Lost(place) => evidence.found.iter().any(|found| found.place == place),
            Omitted => {
                let counts = result.authority.and_then(|counts| counts.misbehaviour);
                counts.is_some_and(|counts| counts.lost > 0)
            }
            Slow(ns) => {
                let sampled = result.authority_sampled;
                sampled.is_some_and(|times| times.max_ns >= Some(ns))
            }
        }
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn no_disturbance_is_reported_as_a_failure_of_the_dut() {
    let _turn = turn();
    println!("| way | happened | verdict | cause named |\n|---|---|---|---|");
    let mut blamed = Vec::new();
    for way in &WAYS {
        // On a busy machine a trial can end before the disturbance starts, and others disturb it.
        until(way.name, || {
            let (run, has_happened) = way.run();
            let outcome = run.text("/outcome");
            let cause = cause(&run);
            println!("| {} | {has_happened} | {outcome} | {cause} |", way.name);
            let is_blamed = outcome == "failed" && way.expected != Experiment;
            blamed.extend(is_blamed.then(|| format!("{}: {:#}", way.name, run.json)));
            (is_blamed || has_happened && way.is_expected(&run)).then_some(())
        });
    }
    assert!(
        blamed.is_empty(),
        "the DUT is blamed for:\n{}",
        blamed.join("\n")
    );
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// Why the trial is invalid, or its notes.
fn cause(run: &Run) -> String {
    match run.text("/invalid_because") {
        "" => run.json["notes"].to_string(),
        because => because.to_owned(),
    }
}
