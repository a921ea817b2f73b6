//! Verdicts, and what is written of them: text, JSON, JUnit XML, Markdown.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, EnumString};

use super::case::{Case, Level};
use super::{End, NoVerdict, Ran};

/// How a server went down whose process has not ended, or cannot be seen.
pub(super) const STOPPED: &str = "the server stopped answering";

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// The server does what the clause says.
    Passed,
    /// It does not.
    Failed,
    /// The server could not be set up so, or was gone.
    NotKnown,
}

/// A case with its verdict.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Judged {
    /// Name of the case.
    pub id: String,
    /// The clause: "RFC 6147 section 5.1.4".
    pub clause: String,
    /// What the clause demands.
    pub level: Level,
    /// The sense of the clause.
    pub why: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What differs from the clause, or why there is no verdict.
    pub faults: Vec<String>,
    /// Messages of the step that failed: the query, the response, the questions to the authority.
    pub packets: Vec<String>,
    /// The verdicts under load, in the order of the loads.
    pub under_load: Vec<Again>,
    /// Whether the server did not answer.
    #[serde(skip)]
    pub(super) silent: bool,
}

impl Judged {
    pub(super) fn of(case: &Case, verdict: Verdict) -> Self {
        Self {
            id: case.id.clone(),
            clause: case.clause.clone(),
            level: case.level,
            why: case.why.clone(),
            verdict,
            faults: Vec::new(),
            packets: Vec::new(),
            under_load: Vec::new(),
            silent: false,
        }
    }

    /// No verdict, for this reason.
    pub(super) fn unknown(case: &Case, reason: &str) -> Self {
        let mut judged = Self::of(case, Verdict::NotKnown);
        judged.faults.push(reason.to_owned());
        judged
    }
}

/// The verdict of a case under load.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Again {
    /// The verdict.
    pub verdict: Verdict,
    /// What differs from the clause, or why there is no verdict.
    pub faults: Vec<String>,
    /// Messages of the step that failed.
    pub packets: Vec<String>,
}

impl From<Judged> for Again {
    fn from(judged: Judged) -> Self {
        Self {
            verdict: judged.verdict,
            faults: judged.faults,
            packets: judged.packets,
        }
    }
}

/// Number of cases by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Counts {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Without a verdict.
    pub not_known: usize,
}

/// Number of cases by level and verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Levels {
    /// Of level must.
    pub must: Counts,
    /// Of level should.
    pub should: Counts,
    /// Of level policy.
    pub policy: Counts,
}

impl Levels {
    /// Counts verdicts.
    pub fn of(cases: &[Judged]) -> Self {
        let mut levels = Self::default();
        for it in cases {
            let counts = match it.level {
                Level::Must => &mut levels.must,
                Level::Should => &mut levels.should,
                Level::Policy => &mut levels.policy,
            };
            match it.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed => counts.failed += 1,
                Verdict::NotKnown => counts.not_known += 1,
            }
        }
        levels
    }
}

/// The verdicts about a server, as a campaign keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Conformance {
    /// Why there are no verdicts, or not all; nothing if there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// The verdicts by the names of the cases.
    pub cases: BTreeMap<String, CaseVerdict>,
}

/// The verdict of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct CaseVerdict {
    /// Level of the case.
    pub level: Level,
    /// The verdict.
    pub verdict: Verdict,
}

impl Conformance {
    /// What a run gave.
    pub(crate) fn of(ran: &Result<Ran, NoVerdict>) -> Self {
        let ran = match ran {
            Ok(ran) => ran,
            Err(why) => {
                return Self {
                    incomplete: Some(why.to_string()),
                    ..Self::default()
                };
            }
        };
        let case = |it: &Judged| {
            let (level, verdict) = (it.level, it.verdict);
            (it.id.clone(), CaseVerdict { level, verdict })
        };
        Self {
            incomplete: match ran.end {
                End::Complete => None,
                End::Gone => Some(STOPPED.into()),
                End::Interrupted => Some("interrupted".into()),
            },
            cases: ran.cases.iter().map(case).collect(),
        }
    }

    /// The verdicts of the cases that both have.
    pub fn both<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'a str, Verdict, Verdict)> {
        self.cases.iter().filter_map(move |(case, own)| {
            let others = other.cases.get(case)?;
            Some((case.as_str(), own.verdict, others.verdict))
        })
    }

    /// Names of the cases of level must with this verdict.
    pub fn musts(&self, verdict: Verdict) -> impl Iterator<Item = &str> {
        let level = Level::Must;
        let those = CaseVerdict { level, verdict };
        let cases = self.cases.iter().filter(move |(_, it)| **it == those);
        cases.map(|(case, _)| case.as_str())
    }

    /// Whether the server is known to violate a must that a case covers.
    pub fn fails_a_must(&self) -> bool {
        self.musts(Verdict::Failed).next().is_some()
    }

    /// Whether all cases were judged, and no must is violated.
    pub fn is_met(&self) -> bool {
        let passes = self.musts(Verdict::Passed).next().is_some();
        self.incomplete.is_none() && passes && !self.fails_a_must()
    }
}

/// What a load was.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Sent {
    /// Rate that was asked for.
    pub rate_qps: u64,
    /// Mean rate at which queries were sent.
    pub sent_qps: u64,
    /// Share of them with a correct answer within a second, in per cent.
    pub answered_pct: f64,
}

/// A load, and the verdicts under it.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct UnderLoad {
    /// The load.
    #[serde(flatten)]
    pub sent: Sent,
    /// Number of cases.
    #[serde(flatten)]
    pub levels: Levels,
}

impl UnderLoad {
    /// Counts verdicts under a load.
    pub(super) fn new(sent: Sent, cases: &[Judged]) -> Self {
        Self {
            sent,
            levels: Levels::of(cases),
        }
    }
}

/// What attackers make of a server.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Attacks {
    /// Questions to the authority whose source ports and IDs were seen.
    pub questions: usize,
    /// Entropy of the source ports in bits, at most 16: who forges an answer guesses port and ID.
    pub port_bits: f64,
    /// Entropy of the IDs.
    pub id_bits: f64,
    /// What one query of each class costs.
    pub classes: Vec<Attack>,
}

/// What one query costs others.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Attack {
    /// Name of the class.
    pub id: String,
    /// What it is.
    pub why: String,
    /// Questions to the authority until the response.
    pub questions: usize,
    /// Octets of these messages for each octet of the query.
    pub question_octets: f64,
    /// Octets of the response for each octet of the query; 0 without a response.
    pub response_octets: f64,
    /// CPU time of the server in microseconds; nothing if its process cannot be seen.
    pub cpu_us: Option<f64>,
}

/// The verdicts of a run.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Report {
    /// Program and version of the Tester.
    pub tester: String,
    /// The server: its program and version in a lab, otherwise its address.
    pub server: String,
    /// Its prefix.
    pub pref64: String,
    /// Seed of the order of the cases.
    pub seed: u64,
    /// Number of cases without load.
    #[serde(flatten)]
    pub levels: Levels,
    /// The loads under which the cases were judged again.
    pub loads: Vec<UnderLoad>,
    /// What attacks gave, if there were any.
    pub attacks: Option<Attacks>,
    /// The command that repeats a case, without its name.
    pub repeat: String,
    /// The cases.
    pub cases: Vec<Judged>,
}

/// Form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Form {
    /// For a terminal.
    #[default]
    Text,
    /// JSON; its schema is `conform.schema.json`.
    Json,
    /// JUnit XML, for CI.
    Junit,
    /// A table.
    Markdown,
}

impl Report {
    /// The report in a form. For CI only a failed must is a failure.
    ///
    /// # Errors
    ///
    /// None with correct templates.
    pub fn written(&self, form: Form) -> Result<String, Error> {
        let template = match form {
            Form::Text => include_str!("report/text.jinja"),
            Form::Markdown => include_str!("report/markdown.jinja"),
            Form::Junit => include_str!("report/junit.jinja"),
            Form::Json => {
                let json = serde_json::to_string_pretty(self).map_err(|error| {
                    Error::new(ErrorKind::BadSerialization, "the report").with_source(error)
                })?;
                return Ok(json + "\n");
            }
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(move |_| match form {
            Form::Junit => AutoEscape::Html,
            _ => AutoEscape::None,
        });
        environment.render_str(template, Value::from(Serde(self)))
    }
}
