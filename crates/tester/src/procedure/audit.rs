//! Audit of a rate: trials for which a server cannot have been prepared, and what they have to show.
//!
//! Names follow from a [`Seed`] that nobody knows before: whoever publishes a rate tells its hash first, and itself afterwards.

use std::fmt;
use std::io;

use dns64_transport::random;
use dns64_wire::name::NameBuf;
use schemars::JsonSchema;
use serde::Serialize;
use strum::AsRefStr;

use crate::hash::{sha256_hex, sha256_u64};
use crate::quantity::Thousands;
use crate::trial::achieved::hits;
use crate::trial::result::{Outcome, TrialResult};

/// Largest shortfall of an audited rate, in per cent: the trials of an audit have this much less than the rate.
pub const TOLERANCE_PCT: u64 = 5;

/// Trials of a part at most, of which one has to pass: a rate is one at which some trials fail.
pub const TRIES: usize = 3;

/// TTL of the names of [`Part::OtherZone`], in seconds: they have expired when they are asked for again.
pub const TTL_S: u32 = 1;

/// A part of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Part {
    /// Secret names of the zone in which the rate was measured.
    SecretNames,
    /// Names of the same form in a secret zone.
    OtherZone,
    /// The same names again, after their TTL.
    Expired,
}

/// A part that was run.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Audited {
    /// The part.
    pub part: Part,
    /// Zone of the names.
    pub zone: String,
    /// What it found; nothing if a trial passed, and each answer was asked for at the authority.
    pub finding: Option<Finding>,
    /// Its trials.
    pub trials: Vec<TrialResult>,
}

/// What a part found against the rate.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// No trial passed.
    Slower,
    /// So many answers of a trial came without a query at the authority, which no server may remember.
    Unasked(u64),
    /// The Tester disturbed the trials: they say nothing.
    NotJudged,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slower => f.write_str("no trial passed"),
            Self::Unasked(answers) => {
                let answers = Thousands(*answers);
                write!(
                    f,
                    "{answers} answers without an AAAA query at the authority"
                )
            }
            Self::NotJudged => f.write_str("the Tester disturbed the trials"),
        }
    }
}

/// Returns the rate at which a rate is audited.
pub fn audited_qps(rate_qps: u64) -> u64 {
    rate_qps * (100 - TOLERANCE_PCT) / 100
}

/// Whether another trial of a part is of use.
pub fn is_open(trials: &[TrialResult]) -> bool {
    let passed = |it: &TrialResult| it.outcome == Outcome::Passed;
    trials.len() < TRIES && !trials.last().is_some_and(passed)
}

/// What the trials of a part show, of which each query is for another name.
pub fn finding(trials: &[TrialResult]) -> Option<Finding> {
    let unasked = trials.iter().map(|trial| {
        let answered = trial.answers.valid + trial.answers.late;
        trial
            .authority
            .as_ref()
            .map_or(0, |counts| hits(answered, counts))
    });
    match unasked.max() {
        Some(unasked @ 1..) => Some(Finding::Unasked(unasked)),
        _ if trials.iter().any(|it| it.outcome == Outcome::Passed) => None,
        _ if trials.iter().any(|it| it.outcome.is_valid()) => Some(Finding::Slower),
        _ => Some(Finding::NotJudged),
    }
}

/// A secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed(String);

impl Seed {
    /// Draws one of 128 bits.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn draw() -> io::Result<Self> {
        let [high, low] = [random::from_system()?, random::from_system()?];
        Ok(Self(format!("{high:016x}{low:016x}")))
    }

    /// The SHA-256 of its text, which is told before it is used.
    pub fn commitment(&self) -> String {
        sha256_hex(self.0.as_bytes())
    }

    /// The place of the first name in its range.
    pub fn first_name(&self) -> u64 {
        sha256_u64(format!("{} name", self.0).as_bytes())
    }

    /// A zone whose name has the lengths of this one, with letters for its first label.
    pub fn zone(&self, of: &NameBuf) -> NameBuf {
        let text = of.to_string();
        let (label, rest) = text.split_once('.').unwrap_or((&text, ""));
        let letter = |at: usize| {
            let draw = sha256_u64(format!("{} zone {at}", self.0).as_bytes());
            char::from(b'a' + (draw % 26) as u8)
        };
        let label: String = (0..label.len()).map(letter).collect();
        // Of the same length as a name, it is one.
        format!("{label}.{rest}")
            .parse()
            .unwrap_or_else(|_| of.clone())
    }
}

/// Its text: 32 hexadecimal digits.
impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_the_seed_alone() {
        let seed = Seed("00112233445566778899aabbccddeeff".into());
        let zone: NameBuf = "dns64perf.test.".parse().unwrap();
        let other = seed.zone(&zone);
        assert_eq!(other, seed.zone(&zone));
        assert_ne!(other, zone);
        assert_eq!(other.as_wire().len(), zone.as_wire().len());
        assert!(other.to_string().ends_with(".test."));
        assert_eq!(seed.commitment(), sha256_hex(seed.to_string().as_bytes()));
        let drawn = [Seed::draw().unwrap(), Seed::draw().unwrap()];
        assert_ne!(drawn[0], drawn[1]);
        assert_ne!(drawn[0].first_name(), drawn[1].first_name());
        assert_eq!(drawn[0].to_string().len(), 32);
    }
}
