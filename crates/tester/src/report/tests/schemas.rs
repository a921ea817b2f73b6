//! A validator for the published JSON Schemas (2020-12), for the laws that all output matches them. That they follow from the types:
//! `tests/tidy/schemas.rs`.

use std::sync::LazyLock;

use serde_json::Value;

use super::sample::{failed, faults};
use crate::trial::result::{Outcome, TrialResult};

/// The schemas as published.
pub(crate) static LINE: Schema =
    LazyLock::new(|| read(include_str!("../../../schema/journal.schema.json")));
pub(crate) static RESULTS: Schema =
    LazyLock::new(|| read(include_str!("../../../schema/results.schema.json")));
pub(crate) static STATUS: Schema =
    LazyLock::new(|| read(include_str!("../../../schema/status.schema.json")));
static TRIAL: Schema = LazyLock::new(|| read(include_str!("../../../schema/trial.schema.json")));

/// A schema that is read once: without optimisation that takes longer than to check a line.
type Schema = LazyLock<Value>;

fn read(schema: &str) -> Value {
    serde_json::from_str(schema).unwrap()
}

/// The first fault of a value against a schema, with its place; `None` if it is valid.
pub(crate) fn fault(schema: &Value, value: &Value) -> Option<String> {
    fault_at(schema, schema, value, "")
}

fn fault_at(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return fault_at(root, target, value, at);
    }
    let is_of = |kind: &Value| match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    let wrong_kind = match &schema["type"] {
        Value::Null => false,
        Value::Array(kinds) => !kinds.iter().any(is_of),
        kind => !is_of(kind),
    };
    let wrong_word = schema["enum"]
        .as_array()
        .is_some_and(|all| !all.contains(value))
        || schema.get("const").is_some_and(|only| only != value);
    let is_below = |least: f64| value.as_f64().is_some_and(|value| value < least);
    if wrong_kind || wrong_word || schema["minimum"].as_f64().is_some_and(is_below) {
        return Some(format!("{at}: {value} is not {schema}"));
    }
    for forms in ["anyOf", "oneOf"].map(|key| schema[key].as_array()) {
        let matches = |form: &Value| fault_at(root, form, value, at).is_none();
        if forms.is_some_and(|forms| !forms.iter().any(matches)) {
            return Some(format!("{at}: {value} has none of the forms"));
        }
    }
    let all = schema["allOf"].as_array().into_iter().flatten();
    let mut all = all.filter_map(|part| fault_at(root, part, value, at));
    all.next()
        .or_else(|| fault_in_items(root, schema, value.as_array()?, at))
        .or_else(|| fault_in_members(root, schema, value, at))
}

fn fault_in_items(root: &Value, schema: &Value, items: &[Value], at: &str) -> Option<String> {
    let first = schema["prefixItems"].as_array();
    items.iter().enumerate().find_map(|(i, item)| {
        let own = first.and_then(|first| first.get(i));
        let of_item = own.or(schema.get("items")).filter(|it| it.is_object())?;
        fault_at(root, of_item, item, &format!("{at}/{i}"))
    })
}

fn fault_in_members(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let members = value.as_object()?;
    let required = schema["required"].as_array().into_iter().flatten();
    let mut missing = required.filter(|key| !members.contains_key(key.as_str().unwrap()));
    if let Some(key) = missing.next() {
        return Some(format!("{at}: {key} is missing"));
    }
    members.iter().find_map(|(key, member)| {
        let own = schema["properties"].get(key);
        let of_member = own.or(schema.get("additionalProperties"));
        match of_member? {
            Value::Bool(false) => Some(format!("{at}/{key} is unknown")),
            of_member => fault_at(root, of_member, member, &format!("{at}/{key}")),
        }
    })
}

#[test]
fn a_trial_with_any_fault_matches_its_schema() {
    let outcomes = faults().into_iter().map(Outcome::Invalid);
    for outcome in outcomes.chain([Outcome::Passed, Outcome::Failed { shortfall: 7 }]) {
        let result = TrialResult {
            outcome,
            ..failed()
        };
        let form = serde_json::to_value(&result).unwrap();
        assert_eq!(fault(&TRIAL, &form), None);
    }
    let variants = TRIAL["$defs"]["TesterFault"]["oneOf"].as_array().unwrap();
    assert_eq!(variants.len(), faults().len(), "a variant has no sample");
    let mut form = serde_json::to_value(failed()).unwrap();
    form["fault"] = serde_json::json!({ "not_sent": { "queries": -1 } });
    assert!(fault(&TRIAL, &form).is_some());
}
