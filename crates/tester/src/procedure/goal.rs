//! Search goals after RFC 9971: the attributes of a goal, and what the trials at a rate say about it. A load of the RFC is a rate here,
//! and the effective duration of a trial is its duration.

use std::fmt;
use std::str::FromStr;

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::namespace::Share;
use crate::quantity::{self, Resolution, ValueError, written};

/// A search goal (RFC 9971 section 4.6). In JSON it is its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, SerializeDisplay, DeserializeFromStr)]
#[schemars(with = "String")]
pub struct Goal {
    /// Whether its result is a 95 % interval of the rate at which the exceed ratio of the trials are high-loss trials, instead of the
    /// bounds of RFC 9971. The duration sum is then that of all trials, and the width that of the interval.
    pub is_interval: bool,
    /// Goal loss ratio: a trial that lost more is a high-loss trial. Below 1.
    pub loss: Share,
    /// Goal exceed ratio: share of the time of the trials that may be in high-loss trials. Below 1.
    pub exceed: Share,
    /// Goal initial trial duration: at most [`Self::trial_ns`].
    pub initial_ns: Nanos,
    /// Goal final trial duration: shorter trials are short trials.
    pub trial_ns: Nanos,
    /// Goal duration sum: full-length trials of this length together decide about a rate. At least [`Self::trial_ns`].
    pub sum_ns: Nanos,
    /// Goal width: maximum distance of the relevant bounds, relative to the lower one.
    pub width: Resolution,
}

/// Classification of a rate by its trials (RFC 9971 section 4.7.2); a rate without one is undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The goal is achieved, whatever the missing trials would say.
    Lower,
    /// The goal is missed, whatever they would say.
    Upper,
}

/// A trial, as goals see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its duration.
    pub duration_ns: Nanos,
    /// Queries that were due; at least 1.
    pub queries: u64,
    /// Those without a valid answer in time.
    pub lost: u64,
}

/// Goals by name: RFC 9971 sections 4.10.2 and 4.10.3, the two of FD.io CSIT (non-drop and partial drop rate), and one of an interval, for a
/// third of the trials of 20 strict runs.
const PRESETS: [(&str, &str); 5] = [
    ("rfc2544", "loss=0%,exceed=0%,trial=60s,sum=60s,width=0.1%"),
    ("tst009", "loss=0%,exceed=50%,trial=60s,sum=120s,width=0.1%"),
    ("ndr", "loss=0%,exceed=50%,trial=1s,sum=20s,width=0.5%"),
    ("pdr", "loss=0.5%,exceed=50%,trial=1s,sum=20s,width=0.5%"),
    (
        "interval",
        "interval,loss=0%,exceed=50%,trial=1s,sum=72s,width=2%",
    ),
];

/// Name of the search without goals.
pub const STRICT: &str = "rfc8219";

const MILLION: u64 = 1_000_000;

/// Default width in millionths, as in FD.io CSIT, unless the loss ratio is higher, which the width should not be below (RFC 9971
/// section 4.6.5).
const WIDTH: u64 = 5_000;

/// Most full-length trials at a rate.
const TRIALS_MAX: u64 = 1_000;

impl Goal {
    /// Classifies a rate by all of its trials (RFC 9971 appendix A).
    pub fn bound(&self, trials: &[Tried]) -> Option<Bound> {
        let mut times_ns = [[0; 2]; 2];
        for trial in trials {
            let of_length = &mut times_ns[usize::from(self.is_short(trial))];
            of_length[usize::from(self.is_high_loss(trial))] += u128::from(trial.duration_ns);
        }
        let [[low, high], [short_low, short_high]] = times_ns;
        let exceed = u128::from(self.exceed.below(MILLION));
        let subceed = u128::from(MILLION) - exceed;
        // Times in units of which the subceed ratio is a whole number.
        let excess = (short_high * subceed).saturating_sub(short_low * exceed);
        let high = high * subceed + excess;
        let low = low * subceed;
        let whole = (high + low).max(u128::from(self.sum_ns) * subceed);
        let is_tolerated = |high: u128| high * u128::from(MILLION) <= whole * exceed;
        let (optimistic, pessimistic) = (is_tolerated(high), is_tolerated(whole - low));
        match (optimistic, pessimistic) {
            (true, true) => Some(Bound::Lower),
            (true, false) => None,
            (false, _) => Some(Bound::Upper),
        }
    }

    /// Returns the conditional throughput in queries per second, rounded down: the rate without the loss that the subceed ratio of the
    /// time does not exceed (RFC 9971 appendix B).
    pub fn throughput_qps(&self, rate_qps: u64, trials: &[Tried]) -> u64 {
        let mut full: Vec<&Tried> = trials
            .iter()
            .filter(|trial| !self.is_short(trial))
            .collect();
        let scaled = |trial: &Tried, by: &Tried| u128::from(trial.lost) * u128::from(by.queries);
        full.sort_by(|a, b| scaled(a, b).cmp(&scaled(b, a)));
        let time = |span_ns: Nanos, share: u64| u128::from(span_ns) * u128::from(share);
        let spans = full.iter().map(|trial| trial.duration_ns);
        let whole_ns = spans.fold(0, Nanos::saturating_add).max(self.sum_ns);
        let mut left = time(whole_ns, MILLION - self.exceed.below(MILLION));
        let mut quantile = None;
        for trial in full {
            quantile = Some(trial);
            left = left.saturating_sub(time(trial.duration_ns, MILLION));
            if left == 0 {
                break;
            }
        }
        let Some(trial) = quantile.filter(|_| left == 0) else {
            return 0;
        };
        let kept = u128::from(rate_qps) * u128::from(trial.queries - trial.lost);
        u64::try_from(kept / u128::from(trial.queries)).unwrap_or(rate_qps)
    }

    fn is_short(&self, trial: &Tried) -> bool {
        trial.duration_ns < self.trial_ns
    }

    /// Whether a trial lost more than the goal tolerates.
    pub(super) fn is_high_loss(&self, trial: &Tried) -> bool {
        let lost = u128::from(trial.lost) * u128::from(MILLION);
        lost > u128::from(self.loss.below(MILLION)) * u128::from(trial.queries)
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_interval { "interval," } else { "" };
        write!(f, "{kind}loss={},exceed={}", self.loss, self.exceed)?;
        if self.initial_ns != self.trial_ns {
            write!(f, ",initial={}", written(self.initial_ns))?;
        }
        let (trial, sum) = (written(self.trial_ns), written(self.sum_ns));
        write!(f, ",trial={trial},sum={sum},width={}", self.width)
    }
}

impl FromStr for Goal {
    type Err = ValueError;

    /// Parses the name of a goal, or its attributes: `loss=0%,exceed=50%,trial=1s,sum=20s`, `initial` and `width`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some((_, attributes)) = PRESETS.iter().find(|(name, _)| *name == text) {
            return attributes.parse();
        }
        if text == STRICT {
            let why = "the strict search, which is the one without goals; omit it";
            return Err(ValueError(format!("{STRICT} is {why}")));
        }
        let (mut loss, mut exceed, mut initial_ns) = (None, None, None);
        let (mut trial_ns, mut sum_ns, mut width) = (None, None, None);
        let (is_interval, attributes) = match text.strip_prefix("interval,") {
            Some(attributes) => (true, attributes),
            None => (false, text),
        };
        for attribute in attributes.split(',') {
            let (key, value) = attribute.split_once('=').ok_or_else(form)?;
            let twice = match key {
                "loss" => loss.replace(ratio(key, value)?).is_some(),
                "exceed" => exceed.replace(ratio(key, value)?).is_some(),
                "initial" => initial_ns.replace(quantity::duration(value)?).is_some(),
                "trial" => trial_ns.replace(quantity::duration(value)?).is_some(),
                "sum" => sum_ns.replace(quantity::duration(value)?).is_some(),
                "width" => width.replace(quantity::resolution(value)?).is_some(),
                _ => return Err(form()),
            };
            if twice {
                return Err(ValueError(format!(
                    "{key} is given twice; omit one of them"
                )));
            }
        }
        let (Some(loss), Some(exceed), Some(trial_ns), Some(sum_ns)) =
            (loss, exceed, trial_ns, sum_ns)
        else {
            return Err(form());
        };
        let millionths = WIDTH.max(loss.below(MILLION));
        let millionths = u32::try_from(millionths).unwrap_or(u32::MAX);
        let goal = Self {
            is_interval,
            loss,
            exceed,
            initial_ns: initial_ns.unwrap_or(trial_ns),
            trial_ns,
            sum_ns,
            width: width.unwrap_or(Resolution::Relative { millionths }),
        };
        goal.checked()
    }
}

impl Goal {
    /// Refuses attributes that contradict each other.
    fn checked(self) -> Result<Self, ValueError> {
        let (trial, sum) = (written(self.trial_ns), written(self.sum_ns));
        let most_ns = self.trial_ns.saturating_mul(TRIALS_MAX);
        let wrong = if self.initial_ns > self.trial_ns {
            let initial = written(self.initial_ns);
            format!("initial={initial} is longer than trial={trial}; shorten it")
        } else if self.sum_ns < self.trial_ns {
            format!(
                "sum={sum} is shorter than trial={trial}: no rate would have a whole trial; give {trial} or more"
            )
        } else if self.is_interval
            && (self.exceed.below(MILLION) != MILLION / 2 || self.initial_ns < self.trial_ns)
        {
            "an interval is that of the rate at which half of the trials are high-loss trials of one length; give exceed=50% and omit initial"
                .to_owned()
        } else if self.sum_ns > most_ns {
            let most = written(most_ns);
            format!(
                "sum={sum} takes more than {TRIALS_MAX} trials of {trial} at each rate; give at most {most}"
            )
        } else {
            return Ok(self);
        };
        Err(ValueError(wrong))
    }
}

/// Returns the length of the shortest trial for these goals, or else `otherwise_ns`.
pub fn shortest_ns(goals: &[Goal], otherwise_ns: Nanos) -> Nanos {
    let shortest_ns = goals.iter().map(|goal| goal.initial_ns).min();
    shortest_ns.unwrap_or(otherwise_ns)
}

/// Parses a ratio below 1.
fn ratio(key: &str, value: &str) -> Result<Share, ValueError> {
    match value.parse()? {
        Share::ALL => Err(ValueError(format!("{key} must be below 100%"))),
        share => Ok(share),
    }
}

fn form() -> ValueError {
    let names = PRESETS.map(|(name, _)| name).join(", ");
    ValueError::unreadable(
        &format!(
            "one of {names}, or loss, exceed, trial and sum of a goal, perhaps with initial and width,"
        ),
        "loss=0%,exceed=50%,trial=1s,sum=20s",
    )
}

#[cfg(test)]
mod tests;
