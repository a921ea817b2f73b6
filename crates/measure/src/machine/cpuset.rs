//! Sets of CPUs.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::ValueError;

/// A set of CPUs in the syntax of `taskset -c`: "0", "0,2-3". In JSON it is this string, which is empty for an
/// unrestricted set.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(Vec<usize>);

impl CpuSet {
    /// No restriction: the scheduler decides.
    pub fn unrestricted() -> Self {
        Self::default()
    }

    /// The CPUs in ascending order; empty when unrestricted.
    pub fn cpus(&self) -> &[usize] {
        &self.0
    }

    /// Whether the scheduler decides.
    pub fn is_unrestricted(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns these CPUs, or `others` if it is unrestricted.
    #[must_use]
    pub fn or(self, others: &[usize]) -> Self {
        if self.is_unrestricted() {
            others.iter().copied().collect()
        } else {
            self
        }
    }

    /// Number of threads that can run at once: the size of the set, or the machine's number of CPUs.
    pub fn cores(&self) -> usize {
        if self.is_unrestricted() {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            self.0.len()
        }
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut cpus: Vec<usize> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl TryFrom<String> for CpuSet {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        match text.as_str() {
            "" => Ok(Self::unrestricted()),
            text => text.parse(),
        }
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

impl FromStr for CpuSet {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || {
            ValueError(format!(
                "{text:?} is not a set of CPUs; write \"0\" or \"0,2-3\""
            ))
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: usize = low.trim().parse().map_err(|_| malformed())?;
            let high: usize = high.trim().parse().map_err(|_| malformed())?;
            if low > high {
                return Err(malformed());
            }
            if high >= CPUS_MAX {
                return Err(ValueError(format!(
                    "CPU {high} is beyond {}, the most that Linux knows",
                    CPUS_MAX - 1
                )));
            }
            cpus.extend(low..=high);
        }
        Ok(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = rest.windows(2).take_while(|w| w[0] + 1 == w[1]).count();
            write!(f, "{separator}{first}")?;
            if run > 0 {
                write!(f, "-{}", first + run)?;
            }
            rest = &rest[run + 1..];
            separator = ",";
        }
        Ok(())
    }
}

/// Largest `CONFIG_NR_CPUS` of Linux on x86-64 (arch/x86/Kconfig, `MAXSMP`).
const CPUS_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_sets_are_parsed_and_printed_as_by_taskset() {
        for (text, cpus, back) in [
            ("0", vec![0], "0"),
            ("0,2-3", vec![0, 2, 3], "0,2-3"),
            ("3,2,1,1", vec![1, 2, 3], "1-3"),
            ("7-7", vec![7], "7"),
        ] {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!(set.cpus(), cpus);
            assert_eq!(set.to_string(), back);
            assert_eq!(set.cores(), cpus.len());
        }
    }

    #[test]
    fn invalid_cpu_sets_are_refused() {
        for text in ["", ",", "a", "1-", "-1", "3-1", "0x2", "1,,2"] {
            let error = text.parse::<CpuSet>().unwrap_err().to_string();
            let expected = format!("{text:?} is not a set of CPUs; ");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = "0-99999999999".parse::<CpuSet>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "CPU 99999999999 is beyond 8191, the most that Linux knows"
        );
    }
}
