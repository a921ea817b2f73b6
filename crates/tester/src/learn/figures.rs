//! What the counts of a trace say about its load.

use std::collections::BTreeMap;

use dns64_wire::codes::Rtype;

/// The load of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Number of queries.
    pub queries: u64,
    /// Packets and messages that are neither queries nor responses.
    pub others: u64,
    /// Whether only the beginning of the trace was read, because a table was full.
    pub is_partial: bool,
    /// Queries by type.
    pub types: BTreeMap<u16, u64>,
    /// Queries by EDNS: none, plain, with DO, with a cookie and without DO. All zero in a list of names.
    pub edns: [u64; 4],
    /// Queries over UDP.
    pub over_udp: u64,
    /// Queries over TCP.
    pub over_tcp: u64,
    /// Queries over TLS or HTTPS, which only a server can see.
    pub over_tls: u64,
    /// Connections to the port of DNS over TLS.
    pub encrypted_connections: u64,
    /// Addresses of clients.
    pub clients: u64,
    /// Distinct names and types.
    pub questions: u64,
    /// Names and types that were queried more than once.
    pub repeated: Repeated,
    /// Names with an answer to a query for AAAA.
    pub names_answered: u64,
    /// Those that have an AAAA record of their own.
    pub names_with_aaaa: u64,
    /// Names with an address in an answer.
    pub names_resolved: u64,
    /// Their addresses, the most in an answer of each.
    pub addresses: u64,
    /// Those of them that are aliases.
    pub aliases: u64,
    /// The CNAME records of these.
    pub cnames: u64,
    /// Time from the first query to the last.
    pub span_s: Option<u64>,
    /// Queries in the busiest second.
    pub peak_qps: Option<u64>,
    /// Queries in each hour of the day (UTC).
    pub hours: [u64; 24],
}

/// The questions that were repeated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repeated {
    /// Queries for them, the first ones included.
    pub queries: u64,
    /// Their number.
    pub questions: u64,
    /// The Zipf exponent of their frequencies; `None` if they are too few.
    pub exponent: Option<Estimate>,
}

/// An estimate with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Half of the width of the interval.
    pub margin: f64,
}

/// The 97.5th percentile of the normal distribution.
const Z_95: f64 = 1.959_964;

/// Fewest queries from which an exponent is estimated.
const QUERIES_MIN: u64 = 100;

/// Largest exponent of a pattern of a plan.
const EXPONENT_MAX: f64 = 5.0;

/// Halvings of the range of exponents: to within 10^-6.
const STEPS: u32 = 23;

impl Estimate {
    /// Returns a share of independent events; `None` without events.
    pub fn share(part: u64, whole: u64) -> Option<Self> {
        let value = part as f64 / whole as f64;
        (whole > 0).then(|| Self {
            value,
            margin: Z_95 * (value * (1.0 - value) / whole as f64).sqrt(),
        })
    }
}

impl Figures {
    /// Returns the number of queries of a type.
    pub fn of_type(&self, rtype: Rtype) -> u64 {
        self.types.get(&rtype.0).copied().unwrap_or_default()
    }
}

impl Repeated {
    /// Selects the repeated ones from the number of queries for each question.
    pub(super) fn of(counts: impl Iterator<Item = u64>) -> Self {
        let mut counts: Vec<u64> = counts.filter(|&count| count > 1).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let queries = counts.iter().sum();
        Self {
            queries,
            questions: counts.len() as u64,
            exponent: (queries >= QUERIES_MIN && counts.len() > 1)
                .then(|| exponent(&counts, queries)),
        }
    }
}

/// Returns the exponent s with which frequencies proportional to k^-s have the probability of the counts that two queries are for the
/// same question. Its estimate from counts has no bias, whatever the order of the questions is, and a known variance
/// (Simpson 1949); the counts as ranks would make every exponent too large.
fn exponent(counts: &[u64], queries: u64) -> Estimate {
    let logs: Vec<f64> = (1..=counts.len()).map(|k| (k as f64).ln()).collect();
    let n = queries as f64;
    let pairs: f64 = counts.iter().map(|&n| n as f64 * (n as f64 - 1.0)).sum();
    let same = pairs / (n * (n - 1.0));
    let value = exponent_with(same, &logs);
    let (second, third) = moments(value, &logs);
    let variance = 4.0 * (n - 2.0) * third + 2.0 * second - 2.0 * (2.0 * n - 3.0) * second.powi(2);
    let margin = Z_95 * (variance.max(0.0) / (n * (n - 1.0))).sqrt();
    let ends = [same - margin, same + margin].map(|same| exponent_with(same, &logs));
    Estimate {
        value,
        margin: ends
            .map(|end| (end - value).abs())
            .into_iter()
            .fold(0.0, f64::max),
    }
}

/// Returns the exponent with this probability that two queries are for the same question: the larger, the larger.
fn exponent_with(same: f64, logs: &[f64]) -> f64 {
    let (mut low, mut high) = (0.0, EXPONENT_MAX);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        match moments(middle, logs).0 < same {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

/// Returns the sums of the squares and of the cubes of the probabilities for an exponent.
fn moments(exponent: f64, logs: &[f64]) -> (f64, f64) {
    let (mut first, mut second, mut third) = (0.0, 0.0, 0.0);
    for log in logs {
        let weight = (-exponent * log).exp();
        first += weight;
        second += weight.powi(2);
        third += weight.powi(3);
    }
    (second / f64::powi(first, 2), third / f64::powi(first, 3))
}

#[cfg(test)]
mod tests {
    use dns64_transport::random::SplitMix64;

    use super::*;

    /// Of intervals of 95 %, more than 90 % have the value.
    #[test]
    fn intervals_have_the_exponent_of_the_draws() {
        const INTERVALS: usize = 400;
        let mut random = SplitMix64(1);
        for expected in [0.6_f64, 1.1] {
            let weights = (1..=300).map(|k| f64::from(k).powf(-expected));
            let bounds = weights.scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            });
            let bounds: Vec<f64> = bounds.collect();
            let all = bounds[bounds.len() - 1];
            let mut draw = || {
                let at = all * (random.draw() as f64 / 2_f64.powi(64));
                bounds.partition_point(|&bound| bound < at)
            };
            let covered = (0..INTERVALS).filter(|_| {
                let mut counts = vec![0; bounds.len()];
                (0..3_000).for_each(|_| counts[draw()] += 1);
                let found = exponent(&counts, 3_000);
                (found.value - expected).abs() <= found.margin
            });
            let covered = covered.count();
            assert!(covered > INTERVALS * 9 / 10, "{covered}: {expected}");
        }
    }
}
