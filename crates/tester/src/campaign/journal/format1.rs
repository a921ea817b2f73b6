//! Converts lines of format 1 to the current format. Format 1 spelled a trial differently from `--json` and had the
//! resources of the DUT beside the result; ends of searches and self-tests were spelled as trials were.

use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The line as this program would have written it. A line that is not of format 1 stays unchanged: the reader of
/// records then reports the fault.
pub(super) fn upgraded(mut line: Value) -> Value {
    let part = |pointer| line.pointer(pointer).cloned().unwrap_or_default();
    let resources = part("/record/trial/resources");
    if let Some(Value::Object(result)) = line.pointer_mut("/record/trial/result") {
        upgrade_result(result);
        result.insert("resources".to_owned(), resources);
    }
    if let Some(Value::Array(trials)) = line.pointer_mut("/record/self_test/trials") {
        let trials = trials.iter_mut().filter_map(Value::as_object_mut);
        trials.for_each(upgrade_result);
    }
    if let Some(Value::Object(self_test)) = line.pointer_mut("/record/self_test") {
        let end = self_test.remove("end").unwrap_or_default();
        self_test.insert(
            "end".to_owned(),
            verdict(&end, ["certified", "tester_fault"]),
        );
    }
    if let Some(Value::Object(finished)) = line.pointer_mut("/record/finished") {
        let end = finished.remove("end").unwrap_or_default();
        finished.insert("end".to_owned(), end_of_search(end));
    }
    line
}

fn upgrade_result(result: &mut Object) {
    let mut moved = |from: &str, to: &str, change: fn(Value) -> Value| {
        if let Some(value) = result.remove(from) {
            result.insert(to.to_owned(), change(value));
        }
    };
    moved("duration_ns", "duration_s", seconds);
    moved("timeout_ns", "timeout_s", seconds);
    moved("rtt", "rtt_ns", |rtt| rtt);
    moved("rtt_percentiles", "rtt_percentiles_ns", |pairs| pairs);
    if answered(result) == 0 {
        result.insert("rtt_ns".to_owned(), json!({}));
    }
    let outcome = result.remove("outcome").unwrap_or_default();
    if let Value::Object(verdict) = verdict(&outcome, ["passed", "invalid"]) {
        result.extend(verdict);
    }
}

/// Verdict of a text or of an object with one key. Self-tests had other words for a pass and a fault.
fn verdict(old: &Value, [pass, fault]: [&str; 2]) -> Value {
    match (old.get("failed"), old.get(fault)) {
        (Some(failed), _) => json!({ "outcome": "failed", "shortfall": failed["shortfall"] }),
        (_, Some(fault)) => json!({ "outcome": "invalid", "shortfall": 0, "fault": fault }),
        _ if old == pass => json!({ "outcome": "passed", "shortfall": 0 }),
        _ => old.clone(),
    }
}

fn end_of_search(old: Value) -> Value {
    let limits = ["limited_by_tester", "limited_by_request"];
    let limit = |word| Some((word, old.get(word)?.get("rate_qps")?));
    match (limits.into_iter().find_map(limit), old.get("tester_fault")) {
        (Some((word, limit_qps)), _) => json!({ "ended": word, "limit_qps": limit_qps }),
        (_, Some(fault)) => json!({ "ended": "tester_fault", "fault": fault }),
        _ if old.is_string() => json!({ "ended": old }),
        _ => old,
    }
}

fn seconds(span_ns: Value) -> Value {
    span_ns.as_f64().map_or(span_ns, |ns| json!(ns / 1e9))
}

/// Queries with a round-trip time: format 1 wrote zeros if there were none.
fn answered(result: &Object) -> u64 {
    let classes = ["valid", "late", "wrong", "empty", "error", "truncated"];
    let count = |class| result.get("answers")?.get(class)?.as_u64();
    classes.into_iter().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{JOURNAL_FILE, Journal, read};
    use crate::campaign::record::{Record, SelfTest};
    use crate::machine::process::Resources;
    use crate::procedure::search::SearchEnd;
    use crate::trial::fault::TesterFault;
    use crate::trial::result::{Outcome, Rtt, TrialResult};

    /// Output of a program that wrote format 1, shortened.
    const WRITTEN: &str = include_str!("testdata/format1.jsonl");

    fn begun() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(JOURNAL_FILE), WRITTEN).unwrap();
        dir
    }

    fn records() -> Vec<Record> {
        let reading = read(begun().path()).unwrap();
        assert_eq!((reading.format, reading.lines.len()), (1, 10));
        reading.lines.into_iter().map(|line| line.record).collect()
    }

    #[test]
    fn trials_of_format_1_are_read() {
        let records = records();
        let trials: Vec<&TrialResult> = records
            .iter()
            .filter_map(|record| match record {
                Record::Trial { result, .. } => Some(result),
                _ => None,
            })
            .collect();
        let [passed, disturbed, failed, silent] = trials[..] else {
            panic!("four trials: {trials:?}")
        };
        assert_eq!(passed.outcome, Outcome::Passed);
        assert_eq!(
            (passed.duration_ns, passed.timeout_ns),
            (1_000_000_000, 500_000_000)
        );
        assert_eq!(
            (passed.rtt.p50, passed.rtt.max),
            (Some(219_903), Some(37_912_575))
        );
        assert_eq!(
            (passed.rtt_percentiles.len(), passed.rtt_percentiles[1]),
            (13, (10.0, 121_663))
        );
        let resources = Resources {
            memory_bytes: 6_105_088,
            descriptors: 78,
            threads: 6,
        };
        assert_eq!(passed.resources, Some(resources));
        let (lateness_ns, limit_ns) = (17_465_343, 10_000_000);
        let late = TesterFault::LateSchedule {
            cause: None,
            lateness_ns,
            limit_ns,
        };
        assert_eq!(disturbed.outcome, Outcome::Invalid(late));
        assert_eq!(failed.outcome, Outcome::Failed { shortfall: 1 });
        assert_eq!((silent.rtt, silent.resources), (Rtt::default(), None));
        assert!(
            silent
                .dut_exit
                .as_ref()
                .is_some_and(|exit| exit.contains("signal 11"))
        );
    }

    #[test]
    fn ends_of_format_1_are_read() {
        let records = records();
        let Record::SelfTest(SelfTest { end, trials, .. }) = &records[1] else {
            panic!("{:?}", records[1])
        };
        assert_eq!(
            (end, &trials[0].outcome),
            (&Outcome::Passed, &Outcome::Passed)
        );
        assert_eq!(trials[0].timeout_ns, 125_000_000);
        let ends = records.iter().filter_map(|record| match record {
            Record::Finished(finished) => finished.end.clone(),
            _ => None,
        });
        let rate_qps = 20_000;
        let expected = [
            SearchEnd::LimitedByRequest { rate_qps },
            SearchEnd::LimitedByTester { rate_qps },
            SearchEnd::TesterFault(TesterFault::ClockStep { step_ns: -5 }),
        ];
        assert_eq!(ends.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn campaign_of_format_1_cannot_be_resumed() {
        let dir = begun();
        let path = dir.path().join(JOURNAL_FILE);
        let expected = format!(
            "{} has format 1, and this program can continue only format 2: write the report of its trials with \
             `dns64bench report`, and run the plan in a new directory",
            path.display()
        );
        assert_eq!(
            Journal::resume(dir.path()).unwrap_err().to_string(),
            expected
        );
        assert_eq!(
            fs::read_to_string(path).unwrap(),
            WRITTEN,
            "not an octet is touched"
        );
    }
}
