//! Links of the lab that lose packets: whose loss it is said to be.

use std::process::Command;

use crate::accounts::assert_accounted;
use crate::busy::until;
use crate::machine::{Run, Underway, left_behind, turn};

/// Limits the link `link` at this end to far less than the trial sends there, with a short queue.
fn limit(host: &str, link: &str) {
    let namespace = format!("dns64bench-{host}");
    let words = "rate 100kbit burst 2000 limit 4000";
    let status = Command::new("tc")
        .args(["-n", &namespace, "qdisc", "add", "dev", link, "root", "tbf"])
        .args(words.split(' '))
        .status();
    // The trial can be over by now.
    let _ = status.unwrap();
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn a_link_that_drops_packets_makes_the_trial_invalid() {
    let _turn = turn();
    for (host, link) in [
        ("measurer", "client"),
        ("dut", "client"),
        ("dut", "upstream"),
        ("authority", "upstream"),
    ] {
        let run = until("was a link limited before its trial was over", || {
            let underway = Underway::start(
                "unbound",
                "trial --lab netns --dut unbound --uncertified -Q 1k -l 4s",
            );
            limit(host, link);
            let run = Run::new(&underway.output());
            assert_accounted(&run.json);
            let counters = run.json["losses"]["counters"].as_array().unwrap();
            let dropped = counters
                .iter()
                .any(|counter| counter["counter"] == "tbf drops");
            (dropped && run.text("/outcome") != "passed").then_some(run)
        });
        // Whatever else disturbed the trial, which is told first, and whatever else the DUT lost meanwhile.
        assert_eq!(run.text("/outcome"), "invalid", "{:#}", run.json);
        let counters = run.json["losses"]["counters"].as_array().unwrap();
        let named = counters.iter().any(|counter| {
            counter["counter"] == "tbf drops"
                && counter["link"] == link
                && counter["host"].as_str().unwrap().to_lowercase() == host
        });
        assert!(named, "{:#}", run.json);
        assert_eq!(run.code, Some(3));
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}
