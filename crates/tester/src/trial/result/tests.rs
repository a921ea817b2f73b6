use proptest::prelude::*;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Span(#[serde(with = "seconds")] Nanos);

proptest! {
    #[test]
    fn spans_up_to_twelve_days_survive_as_seconds(span_ns in 0..1_048_576_000_000_000_u64) {
        let text = serde_json::to_string(&Span(span_ns)).unwrap();
        prop_assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), Span(span_ns));
    }
}

#[test]
fn a_verdict_that_contradicts_itself_is_refused() {
    for text in [
        r#"{"outcome":"invalid","fault":null,"shortfall":0}"#,
        r#"{"outcome":"passed","fault":{"not_sent":{"queries":1}},"shortfall":0}"#,
        r#"{"outcome":"won","fault":null,"shortfall":0}"#,
    ] {
        assert!(serde_json::from_str::<Outcome>(text).is_err(), "{text}");
    }
}
