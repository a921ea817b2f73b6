//! Two Measurers that divide the addresses of a prefix, through routes that their agents add and remove.

use dns64bench::campaign::record::Record;
use dns64bench::lab::process;
use rustix::process::Signal;

use super::ground::{Ground, kill, named, read, records, said};
use super::plans::{SECOND, THREE, plan};
use crate::accounts::assert_accounted;
use crate::sources::{Noting, all};

/// Both Measurers, in front of a DUT with a link to each.
fn two_measurers() -> String {
    let hosts = THREE.replace(
        "links.client = { interface = \"client1\", addresses = [\"2001:2:0:1::2/64\"] }",
        "links.client = [{ interface = \"client1\", addresses = [\"2001:2:0:1::2/64\"] }, \
         { interface = \"client2\", addresses = [\"2001:2:0:11::2/64\"] }]",
    );
    hosts + SECOND
}

const LOCAL: &str = "local = \"2001:2:0:78::/120\"";

/// Routes that agents have added.
fn routes(ground: &Ground, host: &str) -> String {
    ground.shell(host, "ip -6 route show table all proto 64")
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn two_measurers_send_from_parts_of_one_prefix() {
    let ground = Ground::up();
    let noting = Noting::new();
    let dut = format!("profile = {:?}", noting.profile());
    let text = plan("sources", &two_measurers(), LOCAL, &dut);
    let directory = ground.campaign("sources", &text);
    ground.assert_nothing_left();
    let lines = read(&directory);
    assert!(matches!(lines.last().unwrap().record, Record::Complete));
    // Both parts, each without its first address.
    let mut expected = all("2001:2:0:78::/121");
    expected.extend(all("2001:2:0:78::80/121"));
    assert_eq!(noting.clients(), expected);
    for trial in records(&directory, "trial") {
        assert_accounted(&trial["result"]);
    }
    let conditions = &records(&directory, "self_test")[0]["conditions"];
    assert_eq!(conditions["local"], "2001:2:0:78::/120");
    assert_eq!(conditions["source_addresses"], 254);
    let verified = ground.run(&["verify", directory.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn routes_of_a_killed_agent_are_removed_by_the_next() {
    let ground = Ground::up();
    let text = plan("killed", THREE, LOCAL, "profile = \"unbound\"");
    let path = ground.plan("killed", &text);
    let mut underway = ground.begin(&["run", path.to_str().unwrap()]);
    let is_routed = || !routes(&ground, "gen1").is_empty();
    assert!(underway.reaches("a route", is_routed));
    // Neither is to clean up after the other.
    let (inner, outer) = (true, false);
    let pids = [inner, outer].map(|which| named("gen1", "dns64bench", "--inner", which));
    let pids = pids.concat();
    for &pid in &pids {
        process::signal(pid, Signal::STOP);
    }
    kill(&pids);
    let output = underway.end();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(!routes(&ground, "gen1").is_empty());
    ground.run(&["doctor", "--hosts", path.to_str().unwrap()]);
    ground.assert_nothing_left();
}
