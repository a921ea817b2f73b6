//! Lines of format 1 as lines of today. It spelled a trial in another way than `--json` did, and had
//! the resources of the DUT beside the result.

use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The line as this program would have written it. What is no line of format 1 stays as it is: the
/// reader of records then says what is wrong with it.
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
    let verdict = match (outcome.get("failed"), outcome.get("invalid")) {
        (Some(failed), _) => json!({ "outcome": "failed", "shortfall": failed["shortfall"] }),
        (_, Some(fault)) => json!({ "outcome": "invalid", "shortfall": 0, "fault": fault }),
        (None, None) => json!({ "outcome": outcome, "shortfall": 0 }),
    };
    result.extend(verdict.as_object().cloned().unwrap_or_default());
}

fn seconds(span_ns: Value) -> Value {
    span_ns.as_f64().map_or(span_ns, |ns| json!(ns / 1e9))
}

/// Queries that have a round-trip time: without any, format 1 wrote zeros.
fn answered(result: &Object) -> u64 {
    let classes = ["valid", "late", "wrong", "empty", "error", "truncated"];
    let count = |class| result.get("answers")?.get(class)?.as_u64();
    classes.into_iter().filter_map(count).sum()
}
