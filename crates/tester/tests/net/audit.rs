//! Audits of servers that are prepared for the measurement.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::busy::until;
use crate::machine::{command, left_behind, output, turn};

/// A campaign of one server, of which little is asked.
const PLAN: &str = r#"
name = "audited"
[tester]
lab = "netns"
backend = "socket"
uncertified = true
[trial]
duration = "300ms"
timeout = "1s"
[search]
runs = 1
resolution = "50%"
start-rate = 100
max-rate = 200
"#;

/// What the parts of an audit have found.
fn audited(name: &str, dut: &str) -> Vec<Value> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("audit-{name}"));
    let (plan, results) = (directory.join("plan.toml"), directory.join("results"));
    let (plan_text, path) = (plan.to_str().unwrap(), results.to_str().unwrap());
    let audit = until("was there a rate to audit", || {
        let _absent = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(&plan, format!("{PLAN}[[dut]]\nname = \"{name}\"\n{dut}")).unwrap();
        let ran = output(command(&format!("run -q -o {path} {plan_text}")));
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        let audit = output(command(&format!("audit --json {path}")));
        (!audit.stdout.is_empty()).then_some(audit)
    });
    let said = String::from_utf8_lossy(&audit.stderr).into_owned();
    let found: Value =
        serde_json::from_slice(&audit.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let commitment = found["commitment"].as_str().unwrap();
    assert!(said.contains(commitment), "{said}");
    let parts = found["variants"][0]["parts"].as_array().unwrap().clone();
    let names = ["secret-names", "other-zone", "expired"];
    assert!(parts.iter().map(|it| &it["part"]).eq(names), "{found}");
    parts.into_iter().map(|it| it["finding"].clone()).collect()
}

fn is_unasked(finding: &Value) -> bool {
    finding["unasked"]
        .as_u64()
        .is_some_and(|answers| answers > 0)
}

#[test]
#[ignore = "needs root, dns64d and Python: run by .ci/run net"]
fn servers_that_are_prepared_are_found_and_others_are_not() {
    let _turn = turn();
    let cheat = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net/audit/prepared.toml");
    let prepared = |how: &str| {
        let dut = format!("profile = \"{cheat}\"\nset = {{ how = \"{how}\" }}\n");
        audited(how, &dut)
    };
    // It answers the names of the papers from a table.
    let table = prepared("table");
    assert!(is_unasked(&table[0]) && !is_unasked(&table[1]), "{table:?}");
    // It keeps answers for longer than their TTL.
    let cache = prepared("cache");
    assert!(!is_unasked(&cache[0]) && is_unasked(&cache[2]), "{cache:?}");
    let honest = audited("dns64d", "profile = \"dns64d\"\n");
    assert!(!honest.iter().any(is_unasked), "{honest:?}");
    assert_eq!(left_behind(), Vec::<String>::new());
}
