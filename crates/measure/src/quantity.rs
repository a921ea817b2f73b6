//! Parses and formats quantities with units: rates, times, resolutions, factors. The command line and plan files accept
//! the same texts.

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Error of a value, with the remedy. The text of an unparsable value completes "invalid value '...' for '--flag':
/// ...".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(pub String);

impl ValueError {
    /// Returns the error for an unparsable value: what is `wanted`, with an `example`.
    pub fn unreadable(wanted: &str, example: &str) -> Self {
        Self(format!("{wanted} is expected, such as {example}"))
    }
}

/// A quantity and its bounds.
struct Quantity {
    /// Name of the quantity.
    what: &'static str,
    /// Expected value, and an example.
    wanted: [&'static str; 2],
    /// Smallest unit.
    unit: &'static str,
    /// Bounds in that unit, and their text.
    least: (u64, &'static str),
    most: (u64, &'static str),
}

impl Quantity {
    const fn time(
        what: &'static str,
        least: (Nanos, &'static str),
        most: (Nanos, &'static str),
    ) -> Self {
        Self {
            what,
            wanted: ["a time", "250ms, 5s or 1m; a bare number is in seconds"],
            unit: "nanoseconds",
            least,
            most,
        }
    }

    fn unreadable(&self) -> ValueError {
        let [wanted, example] = self.wanted;
        ValueError::unreadable(wanted, example)
    }

    /// Parses a decimal number times `scale`, in the smallest unit.
    fn read(&self, number: &str, scale: u64) -> Result<u64, ValueError> {
        let number = Decimal::parse(number).ok_or_else(|| self.unreadable())?;
        let (least, most) = (self.least, self.most);
        let bound = match number.times(scale) {
            Scaled::Exact(value) if (least.0..=most.0).contains(&value) => return Ok(value),
            Scaled::Exact(value) if value < least.0 => format!("at least {}", least.1),
            Scaled::Below => format!("at least {}", least.1),
            Scaled::Exact(_) | Scaled::Above => format!("at most {}", most.1),
            Scaled::Between => format!("a whole number of {}", self.unit),
        };
        Err(ValueError(format!("{} must be {bound}", self.what)))
    }

    /// Parses a number with a unit of time, or in seconds.
    fn read_time(&self, text: &str) -> Result<Nanos, ValueError> {
        let (number, unit) = split_unit(text);
        let scale = match unit {
            "us" => MICROSECOND,
            "ms" => MILLISECOND,
            "" | "s" => SECOND,
            "m" | "min" => 60 * SECOND,
            "h" => 60 * 60 * SECOND,
            _ => return Err(self.unreadable()),
        };
        self.read(number, scale)
    }
}

/// Parses a rate in whole queries per second, with `k` for 10^3 and `M` for 10^6: "20k", "1.5M".
///
/// # Errors
///
/// An invalid rate: not a number, below 1, above 10^9 or not whole.
pub fn rate(text: &str) -> Result<u64, ValueError> {
    const RATE: Quantity = Quantity {
        what: "a rate",
        wanted: ["a rate in queries per second", "500, 20k or 1.5M"],
        unit: "queries per second",
        least: (1, "1 query per second"),
        most: (HIGHEST_RATE_QPS, "1000M queries per second"),
    };
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        _ => return Err(RATE.unreadable()),
    };
    RATE.read(number, scale)
}

/// Parses the duration of a trial: "250ms", "5s", "1m"; a bare number is in seconds.
///
/// # Errors
///
/// An invalid duration: not a duration, below 1 ms or above one day.
pub fn duration(text: &str) -> Result<Nanos, ValueError> {
    let most = (24 * 60 * 60 * SECOND, "24h");
    Quantity::time("a duration", (MILLISECOND, "1ms"), most).read_time(text)
}

/// Parses the timeout of a query: "250ms", "1s"; a bare number is in seconds.
///
/// # Errors
///
/// An invalid timeout: not a duration, below 1 us or above 60 s.
pub fn timeout(text: &str) -> Result<Nanos, ValueError> {
    // RFC 8219 section 9.2 advises against more than 1 s; no resolver waits longer than a minute.
    Quantity::time("a timeout", (MICROSECOND, "1us"), (60 * SECOND, "60s")).read_time(text)
}

/// Parses a percentage of at least 0, with or without its sign.
///
/// # Errors
///
/// An invalid percentage: not a number, or outside 0 to 100.
pub fn pct(text: &str) -> Result<f64, ValueError> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let pct = number.ok().filter(|pct| (0.0..=100.0).contains(pct));
    pct.ok_or_else(|| ValueError::unreadable("a percentage from 0 to 100", "5"))
}

/// Parses the maximum stall of a sender: "10ms", "500us"; a bare number is in seconds.
///
/// # Errors
///
/// An invalid stall: not a duration, below 1 us or above 1 s.
pub fn stall(text: &str) -> Result<Nanos, ValueError> {
    Quantity::time("a stall", (MICROSECOND, "1us"), (SECOND, "1s")).read_time(text)
}

/// Parses the rest of a server between trials: "0s", "10s"; a bare number is in seconds.
///
/// # Errors
///
/// An invalid rest: not a duration, or above one hour.
pub fn rest(text: &str) -> Result<Nanos, ValueError> {
    Quantity::time("a rest", (0, "0s"), (60 * 60 * SECOND, "1h")).read_time(text)
}

/// Parses the delay of a reply: "5ms", "200us"; a bare number is in seconds.
///
/// # Errors
///
/// An invalid delay: not a duration, or above 10 s.
pub fn delay(text: &str) -> Result<Nanos, ValueError> {
    // Ten times the longest timeout of RFC 8219 section 9.2: every client has given up by then.
    Quantity::time("a delay", (0, "0s"), (10 * SECOND, "10s")).read_time(text)
}

/// Parses the length of a soak: "30m", "4h"; a bare number is in seconds.
///
/// # Errors
///
/// An invalid length: not a duration, below 1 s or above 30 days.
pub fn soak_length(text: &str) -> Result<Nanos, ValueError> {
    let most = (30 * 24 * 60 * 60 * SECOND, "720h");
    Quantity::time("a soak", (SECOND, "1s"), most).read_time(text)
}

/// Parses a multiple of a rate, in thousandths: "0.5", "3".
///
/// # Errors
///
/// An invalid factor: not a number, below 0.01, above 100 or with more than three decimals.
pub fn factor(text: &str) -> Result<u32, ValueError> {
    const FACTOR: Quantity = Quantity {
        what: "a factor",
        wanted: ["a multiple of the rate", "0.5 or 3"],
        unit: "thousandths",
        least: (10, "0.01"),
        most: (100_000, "100"),
    };
    let milli = FACTOR.read(text, 1000)?;
    Ok(u32::try_from(milli).unwrap_or(u32::MAX))
}

/// Parses the resolution of a search: "0.1%" of the rate, or "1" query per second.
///
/// # Errors
///
/// An invalid resolution: neither of these, not above 0, or at least 100 %.
pub fn resolution(text: &str) -> Result<Resolution, ValueError> {
    const RESOLUTION: Quantity = Quantity {
        what: "a resolution",
        wanted: [
            "a share of the rate or a number of queries per second",
            "0.1% or 10",
        ],
        unit: "steps of 0.0001%",
        least: (1, "0.0001%"),
        most: (999_999, "99.9999%"),
    };
    let Some(percent) = text.strip_suffix('%') else {
        return Ok(Resolution::Absolute { qps: rate(text)? });
    };
    let millionths = RESOLUTION.read(percent, 10_000)?;
    Ok(Resolution::Relative {
        millionths: u32::try_from(millionths).unwrap_or(u32::MAX),
    })
}

/// Maximum distance of a pass and a fail for the pass to be the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// In millionths of the rate that passed, rounded down, but at least 1 query per second.
    Relative {
        /// 1000 is 0.1 %.
        millionths: u32,
    },
    /// In queries per second; 0 counts as 1.
    Absolute {
        /// Distance in queries per second.
        qps: u64,
    },
}

impl Resolution {
    /// Returns the resolution in queries per second when `passed_qps` has passed.
    pub fn qps(self, passed_qps: u64) -> u64 {
        let qps = match self {
            Self::Relative { millionths } => {
                let share = u128::from(passed_qps) * u128::from(millionths) / 1_000_000;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            Self::Absolute { qps } => qps,
        };
        qps.max(1)
    }
}

/// As [`resolution`] parses it.
impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relative { millionths } => write!(f, "{}%", f64::from(*millionths) / 10_000.0),
            Self::Absolute { qps } => write!(f, "{qps}"),
        }
    }
}

/// 0.1 %: ten trials of bisection after galloping, which leaves a bracket of 2 to 1.
impl Default for Resolution {
    fn default() -> Self {
        Self::Relative { millionths: 1000 }
    }
}

/// A count with commas as thousands separators.
#[derive(Clone, Copy, Debug)]
pub struct Thousands(pub u64);

impl fmt::Display for Thousands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A duration in the largest unit with a value of at least 1, with up to three decimals.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub Nanos);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_ns, unit) = match self.0 {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let thousandths = u128::from(self.0) * 1000 / unit_ns;
        let decimals = format!("{:03}", thousandths % 1000);
        let decimals = decimals.trim_end_matches('0');
        let point = if decimals.is_empty() { "" } else { "." };
        f.pad(&format!("{}{point}{decimals} {unit}", thousandths / 1000))
    }
}

/// Formats a duration as these functions parse it: whole, in the largest unit without a fraction, or in microseconds.
pub fn written(span_ns: Nanos) -> String {
    let units = [(SECOND, "s"), (MILLISECOND, "ms"), (MICROSECOND, "us")];
    let whole = units
        .into_iter()
        .find(|(unit_ns, _)| span_ns.is_multiple_of(*unit_ns));
    match whole {
        Some((unit_ns, unit)) => format!("{}{unit}", span_ns / unit_ns),
        None => format!("{}.{:03}us", span_ns / MICROSECOND, span_ns % MICROSECOND),
    }
}

/// Whether `given` may be a misspelling of `known`: one character added, missing or different, two swapped, or underscores.
pub fn is_near(given: &str, known: &str) -> bool {
    let given: Vec<char> = given.replace('_', "-").to_lowercase().chars().collect();
    let known: Vec<char> = known.chars().collect();
    let same = given.iter().zip(&known).take_while(|(a, b)| a == b).count();
    let (given, known) = (&given[same..], &known[same..]);
    let ends = given.iter().rev().zip(known.iter().rev());
    let same_end = ends.take_while(|(a, b)| a == b).count();
    let left = |rest: &[char]| rest.len() - same_end.min(rest.len());
    let swapped = matches!((given, known), ([a, b, ..], [c, d, ..]) if a == d && b == c);
    left(given).max(left(known)) <= if swapped { 2 } else { 1 }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .rfind(|c: char| c.is_ascii_digit() || c == '.')
        .map_or(0, |last| last + 1);
    text.split_at(end)
}

/// An exact decimal number, `digits / 10^decimals`; a negative number counts as too small.
pub(crate) struct Decimal {
    digits: u128,
    decimals: u32,
    pub(crate) negative: bool,
}

/// A decimal number times a scale.
pub(crate) enum Scaled {
    /// Negative, or between 0 and 1.
    Below,
    /// A whole number.
    Exact(u64),
    /// Between two whole numbers.
    Between,
    /// Beyond 64 bits.
    Above,
}

impl Decimal {
    /// Parses digits with at most one point; no exponent, infinity or NaN.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = [integer, fraction].concat();
        let readable = all.len() <= DIGITS_MAX && all.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self {
            digits: all.parse().ok().filter(|_| readable)?,
            decimals: u32::try_from(fraction.len()).ok()?,
            negative: text.starts_with('-'),
        })
    }

    pub(crate) fn times(&self, scale: u64) -> Scaled {
        let scaled = self.digits * u128::from(scale);
        let one = 10u128.pow(self.decimals);
        match (scaled % one, u64::try_from(scaled / one)) {
            (1.., Ok(0)) => Scaled::Below,
            _ if self.negative => Scaled::Below,
            (_, Err(_)) => Scaled::Above,
            (0, Ok(exact)) => Scaled::Exact(exact),
            (_, Ok(_)) => Scaled::Between,
        }
    }
}

/// The schedule counts whole nanoseconds: above one query per nanosecond two queries would have the same time.
pub const HIGHEST_RATE_QPS: u64 = SECOND;

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;

/// Ten to the power of this, times the largest scale (an hour in nanoseconds), fits 128 bits.
const DIGITS_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of<T: fmt::Debug>(result: Result<T, ValueError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn rates_accept_k_and_m() {
        let rates = ["1", "20k", "20K", "1.5M", "0.5k", "1000M", "007"].map(rate);
        let expected = [1, 20_000, 20_000, 1_500_000, 500, 1_000_000_000, 7].map(Ok);
        assert_eq!(rates, expected);
    }

    #[test]
    fn invalid_rate_is_refused() {
        for text in [
            "", "k", ".", "NaN", "inf", "1e5", "20 k", "20m", "1..5", "+5", "1,000",
        ] {
            let error = text_of(rate(text));
            assert!(
                error.starts_with("a rate in queries per second is expected"),
                "{text}"
            );
        }
        for text in ["0", "-1", "-20k", "0.5", "0.0001k", "0.0"] {
            assert_eq!(
                text_of(rate(text)),
                "a rate must be at least 1 query per second",
                "{text}"
            );
        }
        assert_eq!(
            text_of(rate("1.5")),
            "a rate must be a whole number of queries per second"
        );
        assert_eq!(
            text_of(rate("1000000001")),
            "a rate must be at most 1000M queries per second"
        );
        assert!(rate("999999999999999999999999M").is_err());
        assert!(rate(&"9".repeat(1000)).is_err());
    }

    #[test]
    fn times_accept_units_and_default_to_seconds() {
        let spans = ["5", "5s", "0.25", "250ms", "1m", "24h", "1ms"].map(duration);
        let ms = [5_000, 5_000, 250, 250, 60_000, 86_400_000, 1];
        assert_eq!(spans, ms.map(|ms| Ok(ms * 1_000_000)));
        assert_eq!(timeout("100us"), Ok(100_000));
    }

    #[test]
    fn out_of_range_times_are_refused() {
        for text in ["0", "0s", "-5s", "0.0000000001", "999us"] {
            assert_eq!(
                text_of(duration(text)),
                "a duration must be at least 1ms",
                "{text}"
            );
        }
        assert_eq!(text_of(duration("25h")), "a duration must be at most 24h");
        assert_eq!(text_of(timeout("61s")), "a timeout must be at most 60s");
        assert_eq!(text_of(timeout("0")), "a timeout must be at least 1us");
        for text in ["", "NaN", "five", "5 s", "5d", "ms"] {
            let error = text_of(duration(text));
            assert!(
                error.starts_with("a time is expected, such as 250ms"),
                "{text}"
            );
        }
    }

    #[test]
    fn resolutions_are_percentages_or_rates() {
        let shares = ["0.1%", "1%", "0.0001%"].map(resolution);
        let millionths = [1000, 10_000, 1];
        assert_eq!(
            shares,
            millionths.map(|millionths| Ok(Resolution::Relative { millionths }))
        );
        assert_eq!(resolution("1"), Ok(Resolution::Absolute { qps: 1 }));
        for text in ["0", "0%", "-1%", "100%", "0.00001%", "NaN%", "%", "0.5"] {
            assert!(resolution(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rest_may_be_zero_and_soak_may_last_days() {
        let rests = ["0", "0s", "0.0h", "10s", "1h"].map(rest);
        assert_eq!(rests, [0, 0, 0, 10, 3600].map(|s| Ok(s * SECOND)));
        assert_eq!(text_of(rest("2h")), "a rest must be at most 1h");
        assert_eq!(soak_length("720h"), Ok(2_592_000 * SECOND));
        assert_eq!(text_of(soak_length("0")), "a soak must be at least 1s");
    }

    #[test]
    fn factors_are_thousandths_from_0_01_to_100() {
        let factors = ["0.5", "1", "2.125", "0.01", "100"].map(factor);
        assert_eq!(factors, [500, 1000, 2125, 10, 100_000].map(Ok));
        for (text, error) in [
            ("0", "a factor must be at least 0.01"),
            ("0.009", "a factor must be at least 0.01"),
            ("100.001", "a factor must be at most 100"),
            ("99999999999999999999", "a factor must be at most 100"),
            ("1.0001", "a factor must be a whole number of thousandths"),
            (
                "twice",
                "a multiple of the rate is expected, such as 0.5 or 3",
            ),
        ] {
            assert_eq!(text_of(factor(text)), error, "{text}");
        }
    }
}
