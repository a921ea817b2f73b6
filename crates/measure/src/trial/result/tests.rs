use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Span(#[serde(with = "seconds")] Nanos);

proptest! {
    #[test]
    fn durations_up_to_twelve_days_round_trip_as_seconds(span_ns in 0..1_048_576_000_000_000_u64) {
        let text = serde_json::to_string(&Span(span_ns)).unwrap();
        prop_assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), Span(span_ns));
    }
}

#[test]
fn contradictory_verdict_is_refused() {
    for text in [
        r#"{"outcome":"invalid","fault":null,"shortfall":0}"#,
        r#"{"outcome":"passed","fault":{"not_sent":{"queries":1}},"shortfall":0}"#,
        r#"{"outcome":"won","fault":null,"shortfall":0}"#,
    ] {
        assert!(serde_json::from_str::<Outcome>(text).is_err(), "{text}");
    }
}

#[test]
fn code_of_fault_is_its_name_in_results() {
    let source = json!({ "host": "DUT", "link": null, "counter": "x", "count": 1 });
    let cause = json!({ "stolen": { "steal_ns": 1, "of_ns": 1, "cores": "1" } });
    let spans = json!({ "lateness_ns": 1, "limit_ns": 1 });
    for (name, figures) in [
        ("not_sent", json!({ "queries": 1 })),
        ("late_schedule", spans),
        ("rate_error", json!({ "sent": 1, "due": 2, "allowed": 0 })),
        (
            "catch_up_burst",
            json!({ "stall_ns": 1, "burst_queries": 1, "limit_queries": 1, "rate_qps": 1, "lost": 1 }),
        ),
        (
            "disturbed",
            json!({ "role": "dut", "taken_ns": 1, "limit_ns": 1, "cause": cause }),
        ),
        ("receive_drops", json!({ "datagrams": 1 })),
        ("authority_drops", json!({ "datagrams": 1 })),
        ("network_loss", source.clone()),
        ("network_delay", source),
        ("authority_overflow", json!({ "replies": 1 })),
        (
            "authority_slow",
            json!({ "answers": 1, "slowest_ns": 1, "limit_ns": 1 }),
        ),
        ("interrupted", json!(null)),
        ("authority_died", json!({ "status": "x" })),
        ("clock_step", json!({ "step_ns": 1 })),
        ("host_late", json!({ "host": "x", "late_ns": 1 })),
        (
            "host_clock",
            json!({ "host": "x", "bound_ns": 1, "limit_ns": 1 }),
        ),
        ("link", json!({ "error": "x" })),
    ] {
        let fault: TesterFault = serde_json::from_value(json!({ name: figures })).unwrap();
        assert_eq!(fault.code(), name);
    }
}
