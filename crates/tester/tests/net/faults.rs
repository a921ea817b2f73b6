//! Killed servers, interrupts and crashes: the reported cause, and the leftovers.

use dns64bench::machine::process;
use rustix::process::Signal;

use dns64bench::trial::fault::TesterFault;

use crate::accounts::{assert_accounted, assert_found_by_trials, fault, is_disturbed};
use crate::busy::until;
use crate::machine::{Run, Underway, alive, command, left_behind, output, turn, workdirs};

fn kill(pids: &[u32]) {
    for &pid in pids {
        process::signal(pid, Signal::KILL);
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn killed_server_fails_the_trial() {
    let _turn = turn();
    for name in ["dns64d", "unbound"] {
        let run = until("was a server killed before its trial was over", || {
            let arguments = format!("trial --lab netns --dut {name} --uncertified -Q 1k -l 2s");
            let underway = Underway::start(name, &arguments);
            kill(&underway.servers);
            let run = Run::new(&underway.output());
            assert_accounted(&run.json);
            // Even with other disturbances, the end of the DUT is reported as such.
            run.notes("the DUT ended during the trial").then_some(run)
        });
        assert_ne!(run.text("/outcome"), "passed", "{:#}", run.json);
        let failed = run.text("/outcome") == "failed" && run.code == Some(1);
        let disturbed = is_disturbed(&run.json) && run.code == Some(3);
        assert!(failed || disturbed, "{:#}", run.json);
        assert_eq!(left_behind(), Vec::<String>::new());
    }
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn search_continues_after_a_server_was_killed() {
    let _turn = turn();
    let (run, ended) = until(
        "did a trial follow that in which a server was killed",
        || {
            let underway = Underway::start(
                "unbound",
                "search --lab netns --dut unbound --uncertified -l 1s -Q 1k --max-rate 2k --resolution 20%",
            );
            kill(&underway.servers);
            let run = Run::new(&underway.output());
            assert_found_by_trials(&run.json, run.code);
            let trials = run.trials();
            let ended = trials.iter().position(|trial| {
                let notes = trial["notes"].to_string();
                notes.contains("the DUT ended during the trial")
            })?;
            (ended + 1 < trials.len()).then_some((run, ended))
        },
    );
    let trials = &run.json["trials"];
    assert_ne!(trials[ended]["outcome"], "passed", "{:#}", run.json);
    let next = trials[ended + 1]["notes"].to_string();
    assert!(next.contains("the DUT was restarted"), "{next}");
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn killed_authority_makes_the_trial_invalid() {
    let _turn = turn();
    let run = until("was an authority killed before its trial was over", || {
        let underway = Underway::start(
            "unbound",
            "trial --lab netns --dut unbound --authority nsd --namespace 10.0.0.0/16 \
             --uncertified -Q 1k -l 2s",
        );
        kill(&underway.processes("nsd"));
        let run = Run::new(&underway.output());
        assert_accounted(&run.json);
        let died = matches!(fault(&run.json), Some(TesterFault::AuthorityDied { .. }));
        died.then_some(run)
    });
    assert_eq!(run.text("/outcome"), "invalid", "{:#}", run.json);
    assert_eq!(run.code, Some(3));
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn interrupted_trial_leaves_nothing() {
    let _turn = turn();
    let underway = Underway::start(
        "unbound",
        "trial --lab netns --dut unbound --uncertified -Q 1k -l 60s",
    );
    let (tester, servers) = (underway.pid(), underway.servers.clone());
    assert_ne!(workdirs(tester), Vec::<String>::new());
    process::signal(tester, Signal::INT);
    let run = Run::new(&underway.output());
    assert_eq!(run.code, Some(130));
    // Before its first query, there is nothing to print.
    let said = [run.text("/error"), run.text("/fault")];
    assert!(said.contains(&"interrupted"), "{:#}", run.json);
    assert!(!servers.is_empty());
    assert_eq!(alive(&servers), Vec::<u32>::new());
    assert_eq!(left_behind(), Vec::<String>::new());
    assert_eq!(workdirs(tester), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn lab_down_after_a_crash_leaves_nothing() {
    let _turn = turn();
    let mut underway = Underway::start(
        "unbound",
        "trial --lab netns --dut unbound --uncertified -Q 1k -l 60s",
    );
    let (tester, servers) = (underway.pid(), underway.servers.clone());
    underway.crash();
    assert_ne!(workdirs(tester), Vec::<String>::new());
    assert_eq!(left_behind().len(), 3);
    assert!(output(command("lab down")).status.success());
    assert!(!servers.is_empty());
    assert_eq!(alive(&servers), Vec::<u32>::new());
    assert_eq!(left_behind(), Vec::<String>::new());
    assert_eq!(workdirs(tester), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn open_queries_are_at_least_those_at_the_authority() {
    let _turn = turn();
    let run = until("did a rate pass behind a slow authority", || {
        let run = Run::of(
            "search --lab netns --dut unbound --uncertified --authority-behaviour delay=100ms -Q 200 --max-rate 400 -l 1s -t 3s",
        );
        assert_found_by_trials(&run.json, run.code);
        (!run.json["rate_qps"].is_null()).then_some(run)
    });
    let number = |key: &str| run.json["capacity"][key].as_u64().unwrap();
    // Each query waits for two answers of the authority.
    let (open, rate_qps) = (number("open"), run.json["rate_qps"].as_u64().unwrap());
    assert!(open >= rate_qps / 5, "{:#}", run.json);
    assert!(number("open_at_authority") > 0 && run.trials().len() > 1);
}
