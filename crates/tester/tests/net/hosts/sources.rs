//! Two Measurers that divide the addresses of a prefix, through routes that their agents add and remove.

use dns64bench::machine::process;
use rustix::process::Signal;

use super::ground::{Ground, kill, named, records, said};
use super::plans::{SECOND, THREE, plan};
use crate::accounts::{answers, assert_accounted, is_disturbed, number};
use crate::sources::{Noting, all};

const LOCAL: &str = "local = \"2001:2:0:78::/120\"";

/// Both Measurers, in front of a DUT with a link to each.
fn two_measurers() -> String {
    let hosts = THREE.replace(
        "links.client = { interface = \"client1\", addresses = [\"2001:2:0:1::2/64\"] }",
        "links.client = [{ interface = \"client1\", addresses = [\"2001:2:0:1::2/64\"] }, \
         { interface = \"client2\", addresses = [\"2001:2:0:11::2/64\"] }]",
    );
    hosts + SECOND
}

/// Routes that agents have added.
fn routes(ground: &Ground, host: &str) -> String {
    ground.shell(host, "ip -6 route show table all proto 64")
}

/// Kills both processes of the agent on a host, so that neither cleans up after the other.
fn kill_agent(host: &str) {
    let (inner, outer) = (true, false);
    let pids = [inner, outer].map(|which| named(host, "dns64bench", "--inner", which));
    let pids = pids.concat();
    for &pid in &pids {
        process::signal(pid, Signal::STOP);
    }
    kill(&pids);
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn two_measurers_send_from_parts_of_one_prefix_also_after_a_crash() {
    let ground = Ground::up();
    let noting = Noting::new();
    let dut = format!("profile = {:?}", noting.profile());
    let text = plan("sources", &two_measurers(), LOCAL, &dut);
    let text = text.replace("max-rate = \"2k\"", "max-rate = \"1k\"");
    let plan = ground.plan("sources", &text);
    let directory = ground.path("sources");
    let mut underway = ground.begin(&["run", plan.to_str().unwrap()]);
    assert!(underway.reaches("a route", || !routes(&ground, "gen1").is_empty()));
    kill_agent("gen1");
    let output = underway.end();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    // In the way of the next agent, unless that removes them.
    assert!(!routes(&ground, "gen1").is_empty());
    let output = ground.run(&["resume", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    ground.assert_nothing_left();
    let clients = noting.clients();
    let mut most = 0;
    for trial in records(&directory, "trial") {
        assert_accounted(&trial["result"]);
        let sent = number(&trial["result"], "queries_sent");
        if sent == number(&trial["result"], "queries_due") {
            most = most.max(sent);
        }
        // A disturbed trial may end before its first answer.
        let is_answered = answers(&trial["result"], "valid") > 0;
        assert!(is_answered || is_disturbed(&trial["result"]), "{trial:#}");
    }
    // Each Measurer uses its addresses in turn. On a busy machine the certificate may allow fewer queries than there are
    // addresses.
    let parts = ["2001:2:0:78::/121", "2001:2:0:78::80/121"].map(all);
    for part in &parts {
        let used = clients.intersection(part).count();
        let least = part.len().min(usize::try_from(most / 2).unwrap());
        assert!(used >= least, "{used} of {part:?}, for {most} queries");
    }
    assert!(clients.is_subset(&(&parts[0] | &parts[1])));
    let conditions = &records(&directory, "self_test")[0]["conditions"];
    assert_eq!(conditions["local"], "2001:2:0:78::/120");
    assert_eq!(conditions["source_addresses"], 254);
    let verified = ground.run(&["verify", directory.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
}
