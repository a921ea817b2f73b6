//! A plan as it is written: every key that there is, and where its value stands.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use toml::{Spanned, Value};

use super::{Order, PlanError, RawFormat, Restart};
use crate::lab::LabKind;
use crate::lab::hosts::{LinkName, Role};
use crate::lab::profile::Family;
use crate::lab::topology::Setup;

/// Reads the keys; what their values mean is for [`super::read`].
pub(super) fn parse(origin: &str, text: &str) -> Result<File, PlanError> {
    toml::from_str(text).map_err(|error| PlanError::Toml {
        origin: origin.to_owned(),
        error: error.to_string().trim_end().to_owned(),
    })
}

/// A value and where it stands.
pub(super) type At<T> = Spanned<T>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    pub name: Option<At<String>>,
    #[serde(default)]
    pub description: String,
    pub inventory: Option<At<String>>,
    #[serde(default)]
    pub hosts: BTreeMap<String, At<Host>>,
    #[serde(default)]
    pub tester: Tester,
    #[serde(default)]
    pub trial: Trial,
    #[serde(default)]
    pub search: Search,
    #[serde(default)]
    pub cells: Cells,
    #[serde(default)]
    pub dut: Vec<At<Dut>>,
    pub queue_check: Option<At<QueueCheck>>,
    pub overload: Option<Overload>,
    pub soak: Option<At<Soak>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Host {
    pub ssh: Option<String>,
    pub netns: Option<String>,
    #[serde(default)]
    pub local: bool,
    #[serde(default)]
    pub sudo: bool,
    #[serde(default)]
    pub roles: Vec<Role>,
    pub cpus: Option<At<String>>,
    pub authority_cpus: Option<At<String>>,
    pub threads: Option<At<u64>>,
    #[serde(default)]
    pub links: BTreeMap<LinkName, Links>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Link {
    pub interface: String,
    pub addresses: Vec<At<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Tester {
    pub lab: Option<At<LabKind>>,
    pub setup: Option<At<Setup>>,
    pub upstream_family: Option<Family>,
    pub authority: Option<At<String>>,
    pub threads: Option<At<u64>>,
    pub sockets: Option<At<u64>>,
    pub cpus: Option<At<String>>,
    pub authority_cpus: Option<At<String>>,
    pub namespace: Option<At<String>>,
    pub suffix: Option<At<String>>,
    pub pref64: Option<At<String>>,
    pub segmentation: Option<At<String>>,
    pub backend: Option<At<String>>,
    pub burst: Option<At<u64>>,
    pub self_tests: Option<At<u64>>,
    #[serde(default)]
    pub uncertified: bool,
    pub raw: Option<At<RawFormat>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Trial {
    pub duration: Option<At<Word>>,
    pub timeout: Option<At<Word>>,
    pub max_stall: Option<At<Word>>,
    pub max_burst: Option<At<u64>>,
    pub max_rate_error: Option<At<Word>>,
    pub max_stolen: Option<At<Word>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Search {
    pub runs: Option<At<u64>>,
    pub resolution: Option<At<Word>>,
    pub method: Option<At<Method>>,
    pub start_rate: Option<At<Word>>,
    pub max_rate: Option<At<Word>>,
    pub reuse: Option<At<bool>>,
    pub stop_early: Option<bool>,
    #[serde(default)]
    pub restart: Restart,
    pub settle: Option<At<Word>>,
    #[serde(default)]
    pub order: Order,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    #[default]
    Galloping,
    FixedRange,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Cells {
    pub grid: Option<At<Grid>>,
    pub aaaa_share: Option<At<Many>>,
    pub cached_share: Option<At<Many>>,
    pub pattern: Option<At<Many>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Grid {
    #[default]
    WorstCase,
    Aaaa,
    Cached,
    Rfc8219,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Dut {
    pub name: Option<At<String>>,
    pub host: Option<At<String>>,
    pub profile: Option<At<String>>,
    pub binary: Option<At<String>>,
    pub server: Option<At<String>>,
    pub self_test_server: Option<At<String>>,
    pub authority: Option<At<String>>,
    pub authority_behaviour: Option<At<Many>>,
    pub cores: Option<At<Many>>,
    pub namespace: Option<At<Many>>,
    pub pacing: Option<At<Many>>,
    #[serde(default)]
    pub set: BTreeMap<String, At<Word>>,
    #[serde(default)]
    pub sweep: BTreeMap<String, At<Vec<Word>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct QueueCheck {
    pub durations: Option<At<Many>>,
    pub timeouts: Option<At<Many>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Overload {
    pub factors: Option<At<Many>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Soak {
    pub share: Option<At<Word>>,
    pub length: Option<At<Word>>,
}

/// A text or a number: `"10k"`, `10000`, `0.5`. A number is the text that it would be on the
/// command line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Word(pub String);

/// One [`Word`], or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Many(pub Vec<Word>);

/// One [`Link`], or a list of them. No derived type tells the two apart and still knows where values stand.
#[derive(Debug)]
pub(crate) struct Links(pub Vec<Link>);

impl<'de> Deserialize<'de> for Links {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Links;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with interface and addresses, or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Links, A::Error> {
                let one = Link::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Links(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Links, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Links)
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

fn word(value: Value, expected: &str) -> Result<Word, String> {
    let found = match value {
        Value::String(text) => return Ok(Word(text)),
        Value::Integer(number) => return Ok(Word(number.to_string())),
        Value::Float(number) => return Ok(Word(number.to_string())),
        Value::Boolean(on) => Unexpected::Bool(on),
        Value::Array(_) => Unexpected::Seq,
        Value::Table(_) | Value::Datetime(_) => Unexpected::Map,
    };
    Err(format!("invalid type: {found}, expected {expected}"))
}

impl TryFrom<Value> for Word {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        word(value, "a text or a number")
    }
}

impl TryFrom<Value> for Many {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Array(words) => words.into_iter().map(Word::try_from).collect(),
            one => word(one, "a text, a number, or a list of them").map(|word| vec![word]),
        }
        .map(Self)
    }
}
