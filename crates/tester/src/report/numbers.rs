//! Formats numbers for the readers of a report.

use dns64_transport::clock::{Nanos, SECOND};

pub(super) use crate::quantity::{Span, Thousands};
use crate::statistics::agreement::Agreement;

/// Shown in place of a missing number.
pub(super) const NOTHING: &str = "–";

/// A number with `places` decimals and commas between thousands; [`NOTHING`] if it is not finite.
pub(super) fn decimal(value: f64, places: usize) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let digits = format!("{:.places$}", value.abs());
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let negative = value < 0.0 && digits.contains(|c: char| ('1'..='9').contains(&c));
    let whole = match whole.parse() {
        Ok(whole) => Thousands(whole).to_string(),
        Err(_) => whole.to_owned(),
    };
    let sign = if negative { "−" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

/// A number truncated to an integer: a rate is never rounded up to a value that no run has reached. 0 if negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no rate, size or span comes near 2^53"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// A number with this many significant digits; integer digits are kept.
pub(super) fn significant(value: f64, digits: i32) -> String {
    let decade = if value == 0.0 {
        0.0
    } else {
        value.abs().log10().floor()
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 20"
    )]
    let places = (f64::from(digits - 1) - decade).clamp(0.0, 20.0) as usize;
    decimal(value, places)
}

/// The unit to which a rate may be rounded if its true value lies between these ends: two significant digits of half of
/// the distance (JCGM 100:2008, section 7.2.6), and at least 1.
pub(super) fn unit_of(low: f64, high: f64) -> f64 {
    let half = (high - low).abs() / 2.0;
    match half >= 100.0 && half.is_finite() {
        true => 10f64.powf(half.log10().floor() - 1.0),
        false => 1.0,
    }
}

/// A number with as many decimals as it has, four at most: "0.25", "60".
pub(super) fn short(value: f64) -> String {
    trimmed(&decimal(value, 4)).to_owned()
}

/// A number without trailing zeros in its decimals.
fn trimmed(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// A rate: the median of an even number of runs may end in a half, which is shown.
pub(super) fn rate(rate_qps: f64) -> String {
    short((rate_qps * 10.0).round() / 10.0)
}

/// Octets in the largest unit that leaves at least 1.
pub(super) fn bytes(octets: f64) -> String {
    let (unit, name) = byte_unit(octets);
    let places = usize::from(name != "B");
    format!("{} {name}", decimal(octets / unit, places))
}

/// The unit for octets of this size, and its name.
pub(super) fn byte_unit(octets: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 3] = [
        (1_073_741_824.0, "GiB"),
        (1_048_576.0, "MiB"),
        (1024.0, "KiB"),
    ];
    UNITS
        .into_iter()
        .find(|(unit, _)| octets >= *unit)
        .unwrap_or((1.0, "B"))
}

/// A duration in its two largest units: "42.5 s", "3 min 20 s", "1 d 2 h".
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return NOTHING.to_owned();
    }
    let tenths = (seconds * 10.0).round() / 10.0;
    if tenths < 60.0 {
        return format!("{} s", short(tenths));
    }
    let seconds = seconds.round();
    let (large_s, large, small_s, small) = match seconds {
        s if s < 3600.0 => (60.0, "min", 1.0, "s"),
        s if s < 86_400.0 => (3600.0, "h", 60.0, "min"),
        _ => (86_400.0, "d", 3600.0, "h"),
    };
    let rest = (seconds % large_s / small_s).floor();
    format!(
        "{} {large} {rest} {small}",
        decimal((seconds / large_s).floor(), 0)
    )
}

/// The unit for a time axis of this length, in seconds, and its name.
pub(super) fn time_unit(span_s: f64) -> (f64, &'static str) {
    match span_s {
        s if s < 600.0 => (1.0, "s"),
        s if s < 7200.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    }
}

/// A duration, in whole seconds.
pub(crate) fn wait(span_ns: Nanos) -> String {
    duration((span_ns / SECOND) as f64)
}

/// Nanoseconds in the largest unit that leaves at least 1, with three digits: "12.3 us", "2 ms".
pub(super) fn span(nanoseconds: f64) -> String {
    if !nanoseconds.is_finite() {
        return NOTHING.to_owned();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "spans are not negative, and fractions of a nanosecond are not shown"
    )]
    let span_ns = nanoseconds.round() as Nanos;
    let digits = span_ns.checked_ilog10().unwrap_or(0);
    let step = 10u64.pow(digits.saturating_sub(2));
    Span((span_ns + step / 2) / step * step).to_string()
}

/// A probability with three decimals; "< 0.001" if it is lower.
pub(super) fn probability(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        decimal(p, 3)
    }
}

/// A probability in a sentence.
pub(super) fn p(p: f64) -> String {
    let text = probability(p);
    let relation = if text.starts_with('<') { "" } else { "= " };
    format!("p {relation}{text}")
}

/// A percentage, with as many decimals as it has, but at most four.
pub(super) fn pct(pct: f64) -> String {
    format!("{} %", short(pct))
}

/// The range of the rates of searches: "8,900 to 9,100", "0 to 35,000 or more". Of too few searches for an interval both
/// ends are rates that passed.
pub(crate) fn range(found: &Agreement) -> String {
    let low = rate(found.low_qps);
    match found.high_qps {
        Some(high) if found.interval => format!("{low} to {}", rate(high)),
        Some(_) if found.low_qps >= found.fastest_qps => low,
        Some(_) => format!("{low} to {}", rate(found.fastest_qps)),
        None if found.low_qps >= found.fastest_qps => format!("{low} or more"),
        None => format!("{low} to {} or more", rate(found.fastest_qps)),
    }
}

/// "1 run", "2 runs", "2 searches".
pub(crate) fn count(number: impl TryInto<u64>, what: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let ending = match number {
        1 => "",
        _ if what.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", Thousands(number))
}

/// Nanoseconds as seconds.
pub(super) fn seconds(span_ns: Nanos) -> f64 {
    span_ns as f64 / SECOND as f64
}

/// A time of the real-time clock, RFC 3339, UTC.
pub(super) fn moment(unix_ms: u64) -> String {
    let since = std::time::Duration::from_millis(unix_ms);
    let moment = std::time::SystemTime::UNIX_EPOCH.checked_add(since);
    // After the year 9999 there is no such form.
    let moment = moment.filter(|_| unix_ms < 253_402_300_800_000);
    moment.map_or_else(
        || format!("{unix_ms} ms after 1970"),
        |moment| humantime::format_rfc3339_seconds(moment).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_a_minus_sign() {
        assert_eq!(decimal(1_234_567.891, 1), "1,234,567.9");
        assert_eq!(decimal(-12.345, 2), "−12.35");
        assert_eq!(decimal(-0.001, 1), "0.0", "no minus before nothing");
        assert_eq!(decimal(f64::NAN, 1), "–");
        assert_eq!(short(0.25), "0.25");
        assert_eq!(short(60.0), "60");
        assert_eq!(short(100.0), "100");
        assert_eq!(rate(37_187.5), "37,187.5");
        assert_eq!(rate(37_187.01), "37,187");
    }

    #[test]
    fn units_suit_the_size() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(84.0 * 1_048_576.0), "84.0 MiB");
        assert_eq!(duration(42.5), "42.5 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(3599.9), "1 h 0 min");
        assert_eq!(duration(93_900.0), "1 d 2 h");
        assert_eq!(span(999.0), "999 ns");
        assert_eq!(span(12_345.0), "12.3 us");
        assert_eq!(span(1_234_000_000.0), "1.23 s");
        assert_eq!(span(2e6), "2 ms");
        assert_eq!(span(f64::NAN), NOTHING);
        assert_eq!(span(100.0), "100 ns");
        assert_eq!(probability(0.000_2), "< 0.001");
        assert_eq!(probability(0.25), "0.250");
    }

    #[test]
    fn any_time_has_a_text() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(253_402_300_799_999), "9999-12-31T23:59:59Z");
        assert_eq!(moment(u64::MAX), "18446744073709551615 ms after 1970");
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        let told = [0, 59, 60, 3599, 3600, 86_399, 86_400, 200_000, 900_000]
            .map(|seconds| wait(seconds * SECOND));
        let expected = [
            "0 s",
            "59 s",
            "1 min 0 s",
            "59 min 59 s",
            "1 h 0 min",
            "23 h 59 min",
            "1 d 0 h",
            "2 d 7 h",
            "10 d 10 h",
        ];
        assert_eq!(told, expected);
    }
}
