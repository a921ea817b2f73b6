//! The recommendations of RFC 8219 for trials, and the deviations of a measurement from them.

use dns64_transport::clock::{Nanos, SECOND};

use crate::quantity::Span;
use crate::warning::{Severity, Warning};

/// Parameters for which RFC 8219 has a recommendation.
#[derive(Clone, Debug)]
pub struct Recommended<'a> {
    /// Length of a trial.
    pub duration_ns: Nanos,
    /// Maximum time from a query to a response that counts.
    pub timeout_ns: Nanos,
    /// Searches of each point; `None` without a campaign.
    pub runs: Option<u32>,
    /// Whether goals of RFC 9971 are searched for.
    pub has_goals: bool,
    /// Servers that are queried over IPv4.
    pub ipv4_servers: Vec<&'a str>,
}

impl Recommended<'_> {
    /// Returns how times and number of the trials differ from those of RFC 8219, if they do: one rule for all commands.
    pub fn deviation(&self) -> Option<String> {
        let mut other = Vec::new();
        if self.duration_ns < DURATION_MIN_NS {
            other.push(format!(
                "trials of {} instead of 60 s",
                Span(self.duration_ns)
            ));
        }
        if self.timeout_ns > TIMEOUT_MAX_NS {
            other.push(format!(
                "a timeout of {} instead of 1 s",
                Span(self.timeout_ns)
            ));
        }
        if let Some(runs) = self.runs.filter(|&runs| runs < RUNS_MIN) {
            let searches = if runs == 1 { "search" } else { "searches" };
            other.push(format!("{runs} {searches} instead of 20"));
        }
        if self.has_goals {
            other.push("goals of RFC 9971 instead of a rate without loss".to_owned());
        }
        let other = other.join(", ");
        (!other.is_empty()).then(|| format!("other than RFC 8219 section 9.2 asks: {other}"))
    }

    /// Returns the other deviations from the recommendations.
    pub fn remarks(&self) -> Vec<Warning> {
        let remark = |server: &&str| {
            Severity::Critical.warning(format!(
                "{server} is queried over IPv4; RFC 8219 section 9.1 requires IPv6 between client \
                 and DNS64 server"
            ))
        };
        self.ipv4_servers.iter().map(remark).collect()
    }
}

/// RFC 8219 section 9.2: the duration of each trial should be at least 60 seconds.
const DURATION_MIN_NS: Nanos = 60 * SECOND;

/// RFC 8219 section 9.2: no timeout above 1 second should be used.
const TIMEOUT_MAX_NS: Nanos = SECOND;

/// RFC 8219 section 9.2: the procedure should be repeated at least 20 times.
pub const RUNS_MIN: u32 = 20;
