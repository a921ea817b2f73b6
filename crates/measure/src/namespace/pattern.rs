//! Patterns of repeated names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Cidr;
use crate::naming::{Message, NAMESPACE};
use crate::quantity::{Decimal, Scaled, ValueError};

/// Selection of the repeated names, if a share of the queries repeats names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One name, which is loaded into the cache beforehand (Lencse et al. 2017, section 7.1).
    #[default]
    OneName,
    /// The name that was queried this many different names ago: its LRU stack distance.
    StackDistance {
        /// Number of names; at least 1.
        names: u64,
    },
    /// One of the last names, with equal probability.
    SlidingWindow {
        /// Number of names; at least 1.
        names: u64,
    },
    /// One of a fixed set of names, the k-th with a probability proportional to 1/k^s.
    Zipf {
        /// Number of names; at least 1.
        names: u64,
        /// Exponent s in thousandths.
        exponent_milli: u32,
    },
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneName => f.write_str("one name"),
            Self::StackDistance { names } => write!(f, "stack distance {names}"),
            Self::SlidingWindow { names } => write!(f, "the last {names} names"),
            Self::Zipf {
                names,
                exponent_milli,
            } => write!(
                f,
                "Zipf {} over {names} names",
                f64::from(*exponent_milli) / 1000.0
            ),
        }
    }
}

impl Pattern {
    /// Number of names that are queried before a trial's fresh ones: the working set. The one name is not included,
    /// because it is loaded separately.
    pub fn working_set(self) -> u64 {
        match self {
            Self::OneName => 0,
            Self::StackDistance { names }
            | Self::SlidingWindow { names }
            | Self::Zipf { names, .. } => names,
        }
    }

    /// Checks that the working set leaves enough names of `cidr` for trials.
    ///
    /// # Errors
    ///
    /// It has more than a quarter of the names.
    pub fn fits(self, cidr: Cidr) -> Result<(), Message> {
        let (names, most) = (self.working_set(), cidr.names() / WORKING_SET_PART);
        if names <= most {
            return Ok(());
        }
        let wider = cidr.widened_to(names.saturating_mul(WORKING_SET_PART));
        Err(Message::new(|naming| {
            let remedy = match wider {
                Some(wider) => format!("use {}, or fewer names", naming.value(NAMESPACE, wider)),
                None => "use fewer names".to_owned(),
            };
            format!(
                "a pattern over {names} names takes more than a quarter of {cidr}, which is {most}; {remedy}"
            )
        }))
    }
}

/// The working set has at most this fraction of the names, so that most are left for single use.
const WORKING_SET_PART: u64 = 4;

/// Largest exponent of a Zipf pattern, in thousandths: with 5, already 96 % of the repeated queries are for the first
/// name.
const EXPONENT_MAX_MILLI: u32 = 5_000;

impl FromStr for Pattern {
    type Err = ValueError;

    /// Parses `one-name`, `stack:N`, `window:N` or `zipf:N,S`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refused = |why: &str| ValueError(format!("'{text}' {why}"));
        let form = || {
            refused(
                "is not a pattern of repeated names; write one-name, stack:N, window:N or zipf:N,S \
                 with N a number of names, as in stack:1000 or zipf:10000,0.9",
            )
        };
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            match digits.parse::<u64>() {
                Ok(0) => Err(refused(
                    "repeats no name; the number of names is at least 1",
                )),
                Ok(names) if plain => Ok(names),
                _ => Err(form()),
            }
        };
        match text.split_once(':') {
            None if text == "one-name" => Ok(Self::OneName),
            Some(("stack", names)) => Ok(Self::StackDistance {
                names: number(names)?,
            }),
            Some(("window", names)) => Ok(Self::SlidingWindow {
                names: number(names)?,
            }),
            Some(("zipf", both)) => {
                let (names, exponent) = both.split_once(',').ok_or_else(form)?;
                Ok(Self::Zipf {
                    names: number(names)?,
                    exponent_milli: exponent_milli(exponent)?,
                })
            }
            _ => Err(form()),
        }
    }
}

/// Parses a decimal number exactly, in thousandths.
fn exponent_milli(text: &str) -> Result<u32, ValueError> {
    let milli = match Decimal::parse(text).map(|number| number.times(1000)) {
        Some(Scaled::Exact(milli)) => u32::try_from(milli).ok(),
        _ => None,
    };
    milli
        .filter(|&milli| milli <= EXPONENT_MAX_MILLI)
        .ok_or_else(|| {
            let wanted = "write 0 to 5 with at most 3 decimals";
            ValueError(format!(
                "'{text}' is not the exponent of a Zipf pattern; {wanted}"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parsed() {
        for (text, pattern) in [
            ("one-name", Pattern::OneName),
            ("stack:100", Pattern::StackDistance { names: 100 }),
            ("window:1", Pattern::SlidingWindow { names: 1 }),
            (
                "zipf:10000,0.9",
                Pattern::Zipf {
                    names: 10_000,
                    exponent_milli: 900,
                },
            ),
            (
                "zipf:2,5",
                Pattern::Zipf {
                    names: 2,
                    exponent_milli: 5000,
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(pattern));
        }
    }

    #[test]
    fn invalid_pattern_is_refused_with_the_bound() {
        for text in [
            "",
            "one",
            "stack",
            "stack:",
            "stack:+1",
            "stack:1.5",
            "window:-1",
            "zipf:10",
            "stack:1,2",
            "lru:3",
            "stack:99999999999999999999",
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            let expected = format!("'{text}' is not a pattern of repeated names; ");
            assert!(error.0.starts_with(&expected), "{error}");
        }
        for (text, expected) in [
            (
                "window:0",
                "'window:0' repeats no name; the number of names is at least 1",
            ),
            (
                "zipf:10,5.001",
                "'5.001' is not the exponent of a Zipf pattern; write 0 to 5 with at most 3 decimals",
            ),
            (
                "zipf:10,0.1234",
                "'0.1234' is not the exponent of a Zipf pattern; write 0 to 5 with at most 3 decimals",
            ),
            (
                "zipf:10,NaN",
                "'NaN' is not the exponent of a Zipf pattern; write 0 to 5 with at most 3 decimals",
            ),
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn pattern_uses_at_most_a_quarter_of_the_names() {
        let cidr: Cidr = "10.0.0.0/24".parse().unwrap();
        assert_eq!(Pattern::StackDistance { names: 64 }.fits(cidr), Ok(()));
        let error = Pattern::SlidingWindow { names: 65 }.fits(cidr).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a pattern over 65 names takes more than a quarter of 10.0.0.0/24, which is 64; \
             use --namespace 10.0.0.0/23, or fewer names"
        );
        let error = Pattern::StackDistance { names: 1 << 31 }.fits(cidr);
        assert!(
            error
                .unwrap_err()
                .to_string()
                .ends_with("; use fewer names")
        );
    }
}
