//! Processes killed during a campaign, and other users of its hosts. The loss of a host ends the campaign with an error
//! that names it, and never counts against the DUT; resuming completes the campaign.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use dns64_transport::clock::{MonotonicClock, SECOND};
use dns64bench::campaign::record::Record;
use dns64bench::machine::process;
use rustix::process::Signal;
use serde_json::Value;

use super::ground::{Ground, Underway, kill, named, read, received, records, said};
use super::plans::{THREE, plan, three};
use crate::accounts::assert_accounted;

/// Number of controllers that may be too busy in turn.
const ATTEMPTS: usize = 3;

/// When a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The self-test has sent queries.
    SelfTest,
    /// The process of the DUT has started.
    Start,
    /// The DUT receives queries.
    Trial,
    /// The trial is over, and the controller gathers the data of the hosts.
    Gather,
}

/// The process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// ssh, on the controller.
    Client,
    /// The inner process of the agent, which does the work.
    Inner,
    /// The outer process, which cleans up.
    Outer,
    /// The processes that sshd started for the connection.
    Session,
}
use Moment::{Gather, SelfTest, Start, Trial};
use Victim::{Client, Inner, Outer, Session};

impl Victim {
    fn kill(self, host: &str) {
        let found = match self {
            Client => named("controller", "ssh", &format!("\0{host}\0"), true),
            Inner => named(host, "dns64bench", "--inner", true),
            Outer => named(host, "dns64bench", "--inner", false),
            Session => named(host, "sshd", "[listener]", false),
        };
        assert!(!found.is_empty(), "no {self:?} of {host}");
        kill(&found);
    }
}

/// A campaign whose processes are killed several times.
struct Campaign<'a> {
    ground: &'a Ground,
    plan: PathBuf,
    directory: PathBuf,
}

impl<'a> Campaign<'a> {
    fn new(ground: &'a Ground, name: &str, plan: &str) -> Self {
        Self {
            ground,
            plan: ground.plan(name, plan),
            directory: ground.path(name),
        }
    }

    /// Starts the next controller.
    fn work(&self) -> Underway {
        let (plan, directory) = (
            self.plan.to_str().unwrap(),
            self.directory.to_str().unwrap(),
        );
        match self.directory.exists() {
            false => self.ground.begin(&["run", plan]),
            true => self.ground.begin(&["resume", directory]),
        }
    }

    /// Starts a controller and waits for this moment. For `Gather`, the agent of the DUT's host does not answer.
    fn until(&self, moment: Moment) -> Underway {
        let underway = self.reach(moment);
        if moment == Gather {
            stop_agent_of_dut(Signal::STOP);
            // Meanwhile the trial ends: it takes 0.8 s.
            MonotonicClock.sleep(3 * SECOND / 2);
        }
        underway
    }

    /// A controller at this moment.
    fn reach(&self, moment: Moment) -> Underway {
        self.attempt(&format!("{moment:?}"), || {
            let before = ["gen1", "dut"].map(received);
            let sessions = self.number_of("session");
            let mut underway = self.work();
            let asked = |host, before| received(host) > before + 300;
            // A process that serves, not one that only prints its version.
            let serves = || !named("dut", "unbound", "unbound.conf", true).is_empty();
            let is_so = || match moment {
                SelfTest => self.number_of("session") > sessions && asked("gen1", before[0]),
                Start => serves(),
                Trial | Gather => serves() && asked("dut", before[1]),
            };
            match underway.reaches("a trial", is_so) {
                true => Ok(underway),
                false => Err(underway.end()),
            }
        })
    }

    /// Tries until a controller gets there. On a busy machine, one may find before that a host does not answer in time;
    /// then the next one continues.
    fn attempt<T>(&self, what: &str, mut controller: impl FnMut() -> Result<T, Output>) -> T {
        let mut seen = String::new();
        for _ in 0..ATTEMPTS {
            let before = ["session", "stopped"].map(|kind| self.number_of(kind));
            let output = match controller() {
                Ok(there) => return there,
                Err(output) => output,
            };
            seen = format!("{what}: {}", said(&output));
            if output.status.success() {
                // Earlier controllers left the search low rates, at which few queries are sent: the campaign begins again.
                fs::remove_dir_all(&self.directory).unwrap();
                continue;
            }
            assert_eq!(output.status.code(), Some(4), "{seen}");
            // One that has lost a host before its session leaves the journal as it was.
            let [sessions, stopped] = ["session", "stopped"].map(|kind| self.number_of(kind));
            assert_eq!(stopped - before[1], sessions - before[0], "{seen}");
            self.ground.assert_nothing_left();
        }
        panic!("{ATTEMPTS} controllers in turn did not get there, the last: {seen}");
    }

    /// Number of records of a kind in the journal.
    fn number_of(&self, kind: &str) -> usize {
        records(&self.directory, kind).len()
    }

    /// Kills the victim at this moment. Asserts that the error names the host, that the DUT is not blamed, and that
    /// nothing is left.
    fn loses(&self, moment: Moment, victim: Victim, host: &str) {
        let underway = self.until(moment);
        let trials = records(&self.directory, "trial").len();
        victim.kill(host);
        stop_agent_of_dut(Signal::CONT);
        let output = underway.end();
        let said = said(&output);
        let what = format!("{moment:?}, {victim:?} of {host}: {said}");
        assert_eq!(output.status.code(), Some(4), "{what}");
        assert!(said.contains(&format!("host {host}: ")), "{what}");
        assert!(said.contains("resume"), "{what}");
        let stopped = records(&self.directory, "stopped");
        let reason = stopped.last().unwrap()["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("host {host}: ")), "{reason}");
        if moment == Gather {
            assert_eq!(records(&self.directory, "trial").len(), trials, "{what}");
        }
        self.ground.assert_nothing_left();
    }

    /// Kills the controller with SIGKILL.
    fn is_killed_at(&self, moment: Moment) {
        let underway = self.until(moment);
        kill(&[underway.pid()]);
        stop_agent_of_dut(Signal::CONT);
        assert_eq!(underway.end().status.code(), None, "{moment:?}");
        self.ground.assert_nothing_left();
    }

    /// Asserts that no task was given up, that no trial reports an end of the DUT, and that the rest is measured.
    fn is_completed(&self) {
        self.attempt("the rest", || match self.work().end() {
            output if output.status.success() => Ok(()),
            output => Err(output),
        });
        let verified = self
            .ground
            .run(&["verify", self.directory.to_str().unwrap()]);
        assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
        assert!(matches!(
            read(&self.directory).last().unwrap().record,
            Record::Complete
        ));
        assert_eq!(records(&self.directory, "abandoned"), Vec::<Value>::new());
        for trial in records(&self.directory, "trial") {
            assert_accounted(&trial["result"]);
            assert!(trial["result"]["dut_exit"].is_null(), "{trial:#}");
        }
        self.ground.assert_nothing_left();
    }
}

fn stop_agent_of_dut(signal: Signal) {
    for pid in named("dut", "dns64bench", "--inner", true) {
        process::signal(pid, signal);
    }
}

/// A plan that runs longer than any wait here.
fn long(name: &str) -> String {
    three(name).replace("runs = 1", "runs = 200")
}

/// Each victim at two moments, and two victims at each moment: each loss takes eight seconds.
#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn lost_host_ends_the_campaign_and_is_not_blamed_on_the_dut() {
    let ground = Ground::up();
    // With routes on all three, which go as well.
    let local = "local = \"2001:2:0:78::/120\"";
    let routed = plan("first", THREE, local, "profile = \"unbound\"");
    let first = Campaign::new(&ground, "first", &routed);
    first.loses(SelfTest, Client, "gen1");
    first.loses(Start, Inner, "dut");
    first.loses(Trial, Outer, "auth");
    first.loses(Gather, Session, "gen1");
    first.is_completed();
    let second = Campaign::new(&ground, "second", &three("second"));
    second.loses(SelfTest, Inner, "auth");
    second.loses(Start, Session, "gen1");
    second.loses(Trial, Client, "dut");
    second.loses(Gather, Outer, "dut");
    second.is_completed();
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn killed_controller_leaves_nothing_and_is_resumed() {
    let ground = Ground::up();
    let campaign = Campaign::new(&ground, "killed", &three("killed"));
    for moment in [Start, Gather] {
        campaign.is_killed_at(moment);
    }
    campaign.is_completed();
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn second_controller_learns_who_uses_the_hosts() {
    let ground = Ground::up();
    let first = Campaign::new(&ground, "first", &long("first"));
    let plan = ground.plan("second", &three("second"));
    first.attempt("an interrupt", || {
        let underway = first.until(Trial);
        let second = ground.run(&["run", plan.to_str().unwrap()]);
        let refusal = said(&second);
        assert_eq!(second.status.code(), Some(4), "{refusal}");
        let holder = format!("PID {}, plan first", underway.pid());
        assert!(
            refusal.contains("in use by") && refusal.contains(&holder),
            "{refusal}"
        );
        assert!(!ground.path("second").exists());
        // It has not disturbed the first, which ends in an orderly way when interrupted.
        process::signal(underway.pid(), Signal::INT);
        let output = underway.end();
        match output.status.code() {
            Some(130) => Ok(()),
            _ => Err(output),
        }
    });
    ground.assert_nothing_left();
}

/// Fills the file system that holds the files of servers on a host.
fn fill(ground: &Ground, host: &str) {
    ground.shell(
        host,
        "mkdir -p /run/dns64bench && mount -t tmpfs -o size=4k tmpfs /run/dns64bench && \
         head -c 4096 /dev/zero >/run/dns64bench/full",
    );
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn host_without_disk_space_is_named() {
    let ground = Ground::up();
    let text = plan("full", THREE, "uncertified = true", "profile = \"unbound\"");
    let campaign = Campaign::new(&ground, "full", &text);
    fill(&ground, "dut");
    let output = campaign.work().end();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("host dut: ") && said.contains("/run/dns64bench"),
        "{said}"
    );
    assert!(said.contains("No space left on device"), "{said}");
    ground.shell("dut", "umount /run/dns64bench");
    ground.assert_nothing_left();
    campaign.is_completed();
}
