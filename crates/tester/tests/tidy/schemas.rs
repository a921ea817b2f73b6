//! The published JSON Schemas (2020-12) follow from the types: `UPDATE_EXPECT=1 cargo test --test tidy schemas` writes them.

use dns64bench::campaign::record::Line;
use dns64bench::cli::refusal::Refusal;
use dns64bench::conform::report::Report;
use dns64bench::report::campaign::analysis::Analysis;
use dns64bench::report::campaign::live::Picture;
use dns64bench::trial::result::TrialResult;
use expect_test::{ExpectFile, expect_file};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The schema of what this program writes of a type.
fn schema_of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize();
    let schema = generator.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    without_links(&mut schema);
    schema
}

/// Descriptions are documentation of the code, whose links mean nothing elsewhere.
fn without_links(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(text) if key == "description" => *text = plain(text),
                    member => without_links(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_links),
        _ => {}
    }
}

/// "see [`Code`](path)" as "see `Code`", on one line.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.replace('\n', " ").split("[`").enumerate() {
        match part.split_once("`]") {
            Some((name, rest)) if i > 0 => {
                let rest = match rest.strip_prefix('(') {
                    Some(target) => target.split_once(')').map_or("", |(_, rest)| rest),
                    None => rest,
                };
                out += &format!("`{name}`{rest}");
            }
            _ => out += part,
        }
    }
    out
}

/// Checks that each key has a description: its own or, for the one key of an object or a constant, that of the object.
fn describes_every_key(schema: &Value) {
    if let Some(keys) = schema["properties"].as_object() {
        let is_described = |it: &Value| {
            it["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        };
        for (key, value) in keys {
            let stands_for_object = keys.len() == 1 || value.get("const").is_some();
            assert!(
                is_described(value) || stands_for_object && is_described(schema),
                "{key} has no description in {schema:#}"
            );
        }
    }
    match schema {
        Value::Object(members) => members.values().for_each(describes_every_key),
        Value::Array(items) => items.iter().for_each(describes_every_key),
        _ => {}
    }
}

#[test]
fn schemas_follow_from_the_types() {
    let check = |file: ExpectFile, schema: Value| {
        describes_every_key(&schema);
        file.assert_eq(&format!("{schema:#}\n"));
    };
    check(
        expect_file!["../../schema/journal.schema.json"],
        schema_of::<Line>(),
    );
    check(
        expect_file!["../../schema/trial.schema.json"],
        schema_of::<TrialResult>(),
    );
    check(
        expect_file!["../../schema/results.schema.json"],
        schema_of::<Analysis>(),
    );
    check(
        expect_file!["../../schema/status.schema.json"],
        schema_of::<Picture<'_>>(),
    );
    check(
        expect_file!["../../schema/conform.schema.json"],
        schema_of::<Report>(),
    );
    check(
        expect_file!["../../schema/error.schema.json"],
        schema_of::<Refusal<'_>>(),
    );
}

#[test]
fn links_of_descriptions_in_schemas_are_words() {
    assert_eq!(
        plain("see [`A`](super::A) and\n[`B`]; [c](d)"),
        "see `A` and `B`; [c](d)"
    );
}
