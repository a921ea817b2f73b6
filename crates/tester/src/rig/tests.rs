//! Decisions of a rig, with a Tester and servers in memory and a simulated clock.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;
use dns64_wire::pref64::Pref64;

use super::RigError;
use super::certify::{Aim, Highest, Loopback};
use super::equipment::{Client, StartedServer};
use super::running::{Asker, Running};
use super::spec::Load;
use crate::authority::counts::AuthorityCounts;
use crate::lab::server::Probe;
use crate::lab::{Blame, LabError};
use crate::load::pace::{Pacing, SelfCorrected};
use crate::load::transport::Transport;
use crate::namespace::AskedName;
use crate::post::ServerState;
use crate::post::probe::ProbeError;
use crate::procedure::simulated::{result, threshold};
use crate::procedure::{Event, Trials as _, certificate};
use crate::trial::TrialSpec;
use crate::trial::fault::TesterFault;
use crate::trial::result::{Outcome, TrialResult};
use crate::trial::surroundings::Surroundings;

const SERVER: &str = "[2001:2::53]:53";

/// State that Tester and servers share.
struct World {
    now_ns: Cell<Nanos>,
    /// Capacity of the DUT; it loses the queries above this rate.
    limit_qps: Cell<u64>,
    /// The capacity in trials of more than 5 s, if different.
    whole_limit_qps: Cell<Option<u64>>,
    /// Until this time the DUT has queues of a trial: it responds late and sends upstream queries.
    busy_until_ns: Cell<Nanos>,
    is_silent: Cell<bool>,
    /// The host that sends the queries is lost.
    is_host_lost: Cell<bool>,
    ended: RefCell<Option<String>>,
    authority_ended: RefCell<Option<String>>,
    /// The authority exits in each trial.
    ends_in_trial: Cell<bool>,
    restarts: Cell<u32>,
    silent_starts: Cell<u32>,
    asked: Cell<u64>,
    /// Rate, queries and first name of every trial, in order.
    trials: RefCell<Vec<(u64, u64, u64)>>,
    /// Notes passed to the Tester after each trial.
    notes: RefCell<Vec<Vec<String>>>,
}

impl World {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            now_ns: Cell::new(SECOND),
            limit_qps: Cell::new(u64::MAX),
            whole_limit_qps: Cell::new(None),
            busy_until_ns: Cell::new(0),
            is_silent: Cell::new(false),
            is_host_lost: Cell::new(false),
            ended: RefCell::new(None),
            authority_ended: RefCell::new(None),
            ends_in_trial: Cell::new(false),
            restarts: Cell::new(0),
            silent_starts: Cell::new(0),
            asked: Cell::new(0),
            trials: RefCell::new(Vec::new()),
            notes: RefCell::new(Vec::new()),
        })
    }

    fn pass(&self, span_ns: Nanos) {
        self.now_ns.set(self.now_ns.get() + span_ns);
        if self.now_ns.get() < self.busy_until_ns.get() {
            self.asked.set(self.asked.get() + 1000);
        }
    }

    fn rates(&self) -> Vec<u64> {
        self.trials.borrow().iter().map(|trial| trial.0).collect()
    }
}

/// The Tester.
struct Fake(Rc<World>);

impl Client for Fake {
    fn trial(
        &mut self,
        spec: &TrialSpec,
        around: impl FnOnce() -> Surroundings,
    ) -> Result<TrialResult, RigError> {
        let world = &self.0;
        let queries = spec.schedule.queries();
        let trial = (spec.schedule.rate_qps(), queries, spec.names.first);
        world.trials.borrow_mut().push(trial);
        world.pass(spec.schedule.duration_ns() + spec.timeout_ns);
        let whole = world.whole_limit_qps.get();
        let whole = whole.filter(|_| spec.schedule.duration_ns() > 5 * SECOND);
        let limit_qps = whole.unwrap_or(world.limit_qps.get());
        let mut found = result(
            spec.schedule.rate_qps(),
            threshold(limit_qps, spec.schedule.rate_qps()),
        );
        (found.queries_due, found.queries_sent) = (queries, queries);
        found.answers.missing = found.answers.missing.min(queries);
        if world.is_silent.get() || world.ended.borrow().is_some() {
            found.answers.missing = queries;
            found.outcome = Outcome::Failed { shortfall: queries };
        }
        found.answers.valid = queries - found.answers.missing;
        if world.ends_in_trial.get() {
            *world.authority_ended.borrow_mut() = Some("signal 9".to_owned());
        }
        let around = around();
        if let Some(status) = around.authority_exit {
            found.outcome = Outcome::Invalid(TesterFault::AuthorityDied { status });
        }
        (found.certified, found.dut_exit) = (around.certified, around.dut_exit);
        found.timing.self_correcting =
            (spec.pacing == Pacing::SelfCorrecting).then(SelfCorrected::default);
        found.segmentation = spec.segmentation == Segmentation::On;
        found.resources = around.resources;
        found.notes.clone_from(&around.notes);
        world.notes.borrow_mut().push(around.notes);
        Ok(found)
    }

    fn authority_counts(&self) -> Result<AuthorityCounts, LabError> {
        Ok(AuthorityCounts {
            aaaa: self.0.asked.get(),
            ..AuthorityCounts::default()
        })
    }

    fn aaaa(&self, name: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError> {
        self.answers(name, wait_ns)?;
        Ok(vec![Pref64::WELL_KNOWN.embed(name)])
    }

    fn responds(&self, asked: AskedName, wait_ns: Nanos) -> Result<(), ProbeError> {
        let world = &self.0;
        if world.is_host_lost.get() {
            return Err(Blame::Machine.error("host one: lost").into());
        }
        let late = world.busy_until_ns.get().saturating_sub(world.now_ns.get());
        if world.is_silent.get() || world.ended.borrow().is_some() || late > wait_ns {
            world.pass(wait_ns);
            return Err(ProbeError::Silent(format!(
                "no answer for {}",
                asked.address
            )));
        }
        world.pass(late);
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.0.now_ns.get()
    }

    fn pause(&self, span_ns: Nanos) {
        self.0.pass(span_ns);
    }
}

/// The DUT, or a separate authority.
struct Program {
    world: Rc<World>,
    is_dut: bool,
}

impl StartedServer for Program {
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError> {
        self.world.restarts.set(self.world.restarts.get() + 1);
        self.world.is_silent.set(false);
        match self.is_dut {
            true => *self.world.ended.borrow_mut() = None,
            false => *self.world.authority_ended.borrow_mut() = None,
        }
        assert_eq!(ready(), Probe::Answered);
        Ok(())
    }

    fn ended(&self) -> Option<String> {
        match self.is_dut {
            true => self.world.ended.borrow().clone(),
            false => self.world.authority_ended.borrow().clone(),
        }
    }

    fn state(&self) -> ServerState {
        ServerState {
            ended: self.ended(),
            log_tail: "out of memory".to_owned(),
            ..ServerState::default()
        }
    }

    fn take_silent_starts(&mut self) -> u32 {
        self.world.silent_starts.take()
    }
}

/// Trials of 1 s with a timeout of 1 s.
fn load(more: impl FnOnce(&mut Load)) -> Load {
    let mut load = Load {
        duration_ns: SECOND,
        ..Load::default()
    };
    more(&mut load);
    load
}

fn running(world: &Rc<World>, load: Load) -> Running<Fake, Program> {
    let server: SocketAddr = SERVER.parse().unwrap();
    let interrupted = Arc::new(AtomicBool::new(false));
    let names = load.names().unwrap();
    let program = |is_dut| Program {
        world: Rc::clone(world),
        is_dut,
    };
    Running {
        dut: Some(program(true)),
        authority: Some(program(false)),
        ..Running::new(
            Asker::new(
                Fake(Rc::clone(world)),
                (server, Transport::default()),
                names,
                &interrupted,
            ),
            load,
        )
    }
}

#[test]
fn each_trial_queries_unused_names() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    for _ in 0..3 {
        assert_eq!(rig.trial(1000).unwrap().outcome, Outcome::Passed);
    }
    let trials = [(1000, 1000, 0), (1000, 1000, 1000), (1000, 1000, 2000)];
    assert_eq!(*world.trials.borrow(), trials);
    assert_eq!(world.restarts.get(), 0);
}

#[test]
fn bursts_have_at_most_configured_length() {
    let burst = |burst_max| {
        let load = load(|load| load.burst_max = burst_max);
        load.schedule(1_000_000).burst()
    };
    // 10 more queries are due within 10 us.
    assert_eq!([1, 4, 64].map(burst), [1, 4, 11]);
}

#[test]
fn exhausted_namespace_restarts_dut_with_note() {
    let world = World::new();
    let mut rig = running(
        &world,
        load(|load| load.cidr = "10.0.0.0/22".parse().unwrap()),
    );
    rig.trial(900).unwrap();
    let second = rig.trial(900).unwrap();
    assert_eq!(world.restarts.get(), 1);
    // The burst of the restart is between the two, and all names are available again.
    let trials = [(900, 900, 0), (2000, 64, 960), (900, 900, 0)];
    assert_eq!(*world.trials.borrow(), trials);
    let note = "the namespace was used up: the DUT was restarted";
    assert_eq!(second.notes, [note]);
}

#[test]
fn exhausted_namespace_of_external_server_is_error() {
    let world = World::new();
    let mut rig = running(
        &world,
        load(|load| load.cidr = "10.0.0.0/22".parse().unwrap()),
    );
    rig.dut = None;
    rig.trial(900).unwrap();
    assert!(matches!(rig.trial(900), Err(RigError::Names(_))));
}

#[test]
fn exited_dut_is_restarted_before_trial_with_note() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    *world.ended.borrow_mut() = Some("signal: 11".to_owned());
    // The exit before the first probe is detected at once.
    let first = rig.trial(1000).unwrap();
    assert_eq!(world.restarts.get(), 1);
    assert!(first.notes[0].starts_with("the DUT was restarted: it did not answer"));
    assert_eq!(first.dut_exit, None);
    assert!(world.now_ns.get() < 10 * SECOND, "no waiting after an exit");
}

#[test]
fn silent_dut_is_restarted_after_five_seconds() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    world.is_silent.set(true);
    let began_ns = world.now_ns.get();
    let result = rig.trial(1000).unwrap();
    assert_eq!((world.restarts.get(), result.outcome), (1, Outcome::Passed));
    let waited_ns = world.now_ns.get() - began_ns - 2 * SECOND;
    assert!((5 * SECOND..8 * SECOND).contains(&waited_ns), "{waited_ns}");
    // A server that the rig did not start is not probed before a trial.
    rig.dut = None;
    world.is_silent.set(true);
    let lost = rig.trial(1000).unwrap();
    assert_eq!(lost.outcome, Outcome::Failed { shortfall: 1000 });
    assert_eq!(world.restarts.get(), 1);
}

#[test]
fn silent_starts_are_noted_once() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    world.silent_starts.set(2);
    let notes = ["the DUT was silent after 2 of its starts and was restarted"];
    assert_eq!(rig.trial(1000).unwrap().notes, notes);
    assert_eq!(rig.trial(1000).unwrap().notes, Vec::<String>::new());
}

#[test]
fn queues_of_failed_trial_drain_before_next_trial() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    world.limit_qps.set(500);
    rig.trial(1000).unwrap();
    let busy_until_ns = world.now_ns.get() + 3 * SECOND;
    world.busy_until_ns.set(busy_until_ns);
    // A probe waits 1 s for its response: in the last second of the queue the DUT responds late.
    world.now_ns.set(busy_until_ns - SECOND / 2);
    rig.trial(400).unwrap();
    assert!(world.now_ns.get() >= busy_until_ns + 2 * SECOND);
    assert_eq!(world.restarts.get(), 0);
}

#[test]
fn wait_for_busy_dut_ends_after_ten_seconds() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    world.limit_qps.set(500);
    rig.trial(1000).unwrap();
    let began_ns = world.now_ns.get();
    // It responds promptly, but keeps sending upstream queries.
    let endless = Rc::clone(&world);
    endless.busy_until_ns.set(began_ns + 60 * SECOND);
    rig.settle().unwrap();
    assert!(world.now_ns.get() - began_ns < 12 * SECOND);
}

#[test]
fn dut_restarts_before_each_trial_if_configured() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    rig.restart = true;
    for _ in 0..3 {
        rig.trial(1000).unwrap();
    }
    assert_eq!(world.restarts.get(), 3);
    // Names repeat, because the DUT has lost its cache.
    let trials = world.trials.borrow();
    let counted: Vec<_> = trials.iter().filter(|trial| trial.0 == 1000).collect();
    assert!(counted.iter().all(|trial| trial.2 == 0), "{counted:?}");
}

#[test]
fn exited_authority_is_not_a_failure_of_dut() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    world.limit_qps.set(500);
    *world.authority_ended.borrow_mut() = Some("exit status: 1".to_owned());
    let status = "exit status: 1".to_owned();
    let fault = TesterFault::AuthorityDied { status };
    assert_eq!(rig.trial(1000).unwrap().outcome, Outcome::Invalid(fault));
}

#[test]
fn result_says_whether_rate_is_certified() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    assert_eq!(rig.trial(1000).unwrap().certified, Some(false));
    rig.certified_rate_qps = Some(1000);
    assert_eq!(rig.trial(1000).unwrap().certified, Some(true));
    assert_eq!(rig.trial(1001).unwrap().certified, Some(false));
}

#[test]
fn working_set_is_warmed_up_and_losses_are_noted() {
    let world = World::new();
    let window = |load: &mut Load| {
        load.cached_share = "50%".parse().unwrap();
        load.pattern = "window:100".parse().unwrap();
    };
    let mut rig = running(&world, load(window));
    rig.trial(1000).unwrap();
    rig.trial(1000).unwrap();
    // The set is queried once, at the trial's rate at most; later trials keep it in the cache.
    assert_eq!(world.rates(), [1000, 1000, 1000]);
    assert_eq!(world.trials.borrow()[0], (1000, 100, 0));

    let world = World::new();
    let mut rig = running(&world, load(window));
    world.limit_qps.set(990);
    let result = rig.trial(1000).unwrap();
    assert_eq!(
        world.rates(),
        [1000, 1000, 1000],
        "two rounds, then the trial"
    );
    let note =
        "10 of the 100 repeated names got no answer when the cache was warmed, at 1000 queries/s";
    assert_eq!(result.notes, [note]);
}

/// A looped-back Tester with a capacity of `limit_qps` at first.
fn looped(world: &Rc<World>, load: &Load) -> Loopback<Fake, Program> {
    looped_with(world, load, None, false)
}

/// A loopback with this authority, which is the DUT or a part of the Tester.
fn looped_with(
    world: &Rc<World>,
    load: &Load,
    authority: Option<Program>,
    is_subject: bool,
) -> Loopback<Fake, Program> {
    let (client, server) = (Fake(Rc::clone(world)), SERVER.parse().unwrap());
    Loopback::new(client, authority, server, load, Arc::default(), is_subject).unwrap()
}

#[test]
fn self_correcting_timer_never_paces_self_test() {
    let world = World::new();
    world.limit_qps.set(100_000);
    let old = Load {
        pacing: Pacing::SelfCorrecting,
        ..Load::default()
    };
    let of = |found: TrialResult| found.timing.self_correcting.is_some();
    let mut measured = looped_with(&world, &old, None, true);
    assert!(of(measured.trial(1000).unwrap()), "a measured authority");
    assert!(!of(looped(&world, &old).trial(1000).unwrap()));
    assert!(of(running(&world, old).trial(1000).unwrap()));
}

#[test]
fn exit_of_measured_authority_is_reported_and_restarted() {
    let world = World::new();
    world.limit_qps.set(100_000);
    let load = load(|_| {});
    let looped = |is_subject| {
        let program = Program {
            world: Rc::clone(&world),
            is_dut: false,
        };
        looped_with(&world, &load, Some(program), is_subject)
    };
    let mut measured = looped(true);
    *world.authority_ended.borrow_mut() = Some("signal 9".to_owned());
    let told = measured.trial(1000).unwrap();
    assert_eq!((told.dut_exit, world.restarts.get()), (None, 1));
    world.ends_in_trial.set(true);
    let told = measured.trial(1000).unwrap();
    let exit = "signal 9; last log lines: out of memory";
    assert_eq!(told.dut_exit.as_deref(), Some(exit));
    assert!(!matches!(told.outcome, Outcome::Invalid(_)));
    let told = looped(false).trial(1000).unwrap();
    assert!(matches!(
        told.outcome,
        Outcome::Invalid(TesterFault::AuthorityDied { .. })
    ));
}

const HIGHEST: Aim = Aim::Highest(Highest::coarse(None));

#[test]
fn certificate_is_searched_by_short_trials_and_confirmed_by_full_trial() {
    let world = World::new();
    world.limit_qps.set(100_000);
    let mut looped = looped(&world, &Load::default());
    let found = looped.answer(HIGHEST, None, &mut |_| {}).unwrap();
    let certified = found.certified_rate_qps.unwrap();
    assert!((40_000..=45_454).contains(&certified), "{certified}");
    let trials = world.trials.borrow();
    let (confirmation, search) = trials.split_last().unwrap();
    assert!(search.iter().all(|(rate, queries, _)| *queries == rate * 5));
    assert_eq!(confirmation.1, confirmation.0 * 60);
    // 2(1 + 0.1) times the rate, RFC 8219 section 9.2.1.
    assert_eq!(confirmation.0, certified * 22 / 10);
}

#[test]
fn certificate_is_abandoned_after_five_unconfirmed_full_trials() {
    let world = World::new();
    world.limit_qps.set(100_000);
    world.whole_limit_qps.set(Some(1));
    let mut looped = looped(&world, &Load::default());
    let found = looped.answer(HIGHEST, None, &mut |_| {}).unwrap();
    assert_eq!(found.certified_rate_qps, None);
    assert!(matches!(found.end, Outcome::Failed { .. }));
    let whole = |trial: &&(u64, u64, u64)| trial.1 == trial.0 * 60;
    assert_eq!(world.trials.borrow().iter().filter(whole).count(), 5);
}

#[test]
fn later_self_tests_start_at_first_rate_and_lowest_counts() {
    let world = World::new();
    world.limit_qps.set(100_000);
    let mut looped = looped(&world, &Load::default());
    let mut ended = 0;
    let mut observe = |event: &Event<'_>| {
        // The machine is slower in the second of them.
        if let Event::TrialFinished(trial) = event
            && trial.queries_due == trial.rate_qps * 60
        {
            ended += 1;
            world.whole_limit_qps.set((ended == 1).then_some(95_000));
        }
    };
    let found = certificate::repeat(3, |near| looped.answer(HIGHEST, near, &mut observe));
    let found = found.unwrap();
    let rates: Vec<_> = found
        .all
        .iter()
        .map(|test| test.certified_rate_qps)
        .collect();
    let first = rates[0].unwrap();
    assert_eq!(rates, [Some(first), Some(first * 9 / 10), Some(first)]);
    let certificate = found.certificate().unwrap();
    assert_eq!(
        (certificate.rate_qps, certificate.most_qps),
        (first * 9 / 10, first)
    );
    // One search, then a full trial for each self-test, and one more after a failure.
    let whole = |trial: &&(u64, u64, u64)| trial.1 == trial.0 * 60;
    assert_eq!(world.trials.borrow().iter().filter(whole).count(), 4);
}

#[test]
fn self_test_has_quarter_of_timeout_and_reuses_names() {
    let world = World::new();
    let small = load(|load| load.cidr = "10.0.0.0/22".parse().unwrap());
    let mut looped = looped(&world, &small);
    for _ in 0..2 {
        let result = looped.trial(900).unwrap();
        assert_eq!((result.outcome, result.certified), (Outcome::Passed, None));
        assert!(!result.segmentation);
    }
    assert_eq!(*world.trials.borrow(), [(900, 900, 0), (900, 900, 0)]);
    let took_ns = world.now_ns.get() - SECOND;
    assert_eq!(took_ns, 2 * (SECOND + SECOND / 4));
}

#[test]
fn interrupted_rig_has_no_result() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    let asker = &mut rig.asker;
    let interrupted = Arc::new(AtomicBool::new(true));
    *asker = Asker::new(
        Fake(Rc::clone(&world)),
        (asker.server, Transport::default()),
        asker.names.clone(),
        &interrupted,
    );
    assert!(matches!(rig.trial(1000), Err(RigError::Interrupted)));
    assert!(world.trials.borrow().is_empty());
}

#[test]
fn lost_host_is_neither_an_interrupt_nor_a_fault_of_the_dut() {
    let world = World::new();
    let mut rig = running(&world, load(|_| {}));
    world.is_host_lost.set(true);
    let error = rig.trial(1000).unwrap_err();
    assert_eq!(error.blame(), Some(Blame::Machine));
    assert_eq!(error.to_string(), "host one: lost");
    assert!(world.trials.borrow().is_empty());
    assert_eq!(world.restarts.get(), 0);
}
