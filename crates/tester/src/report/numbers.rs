//! Numbers as a reader of a report wants them.

use crate::report::Thousands;

/// What stands where there is no number.
pub(super) const NOTHING: &str = "–";

/// A number with `places` decimals and commas between thousands; [`NOTHING`] for what is not finite.
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

/// A number with as many decimals as it has, four at most: "0.25", "60".
pub(super) fn short(value: f64) -> String {
    trimmed(&decimal(value, 4)).to_owned()
}

/// A number without the zeros at the end of its decimals.
fn trimmed(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// A rate: medians of an even number of runs may end in a half, which is shown.
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

/// A span of time that people wait: "42.5 s", "3 min 20 s", "26 h 5 min".
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return NOTHING.to_owned();
    }
    if seconds < 60.0 {
        return format!("{} s", short((seconds * 10.0).round() / 10.0));
    }
    if seconds < 3600.0 {
        let whole = seconds.round();
        let (minutes, rest) = ((whole / 60.0).floor(), whole % 60.0);
        return format!("{minutes} min {rest} s");
    }
    let minutes = (seconds / 60.0).round();
    format!(
        "{} h {} min",
        decimal((minutes / 60.0).floor(), 0),
        minutes % 60.0
    )
}

/// Nanoseconds in the largest unit that leaves at least 1, with three digits.
pub(super) fn span(nanoseconds: f64) -> String {
    let (unit, name) = match nanoseconds {
        n if n < 1e3 => (1.0, "ns"),
        n if n < 1e6 => (1e3, "us"),
        n if n < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = nanoseconds / unit;
    let places = match value {
        v if unit <= 1.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{} {name}", decimal(value, places))
}

/// A round span, such as those that axes name: "10 us".
pub(super) fn round_span(nanoseconds: f64) -> String {
    let text = span(nanoseconds);
    match text.split_once(' ') {
        Some((value, unit)) => format!("{} {unit}", trimmed(value)),
        None => text,
    }
}

/// A probability: three decimals, and no more than can be said.
pub(super) fn probability(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        decimal(p, 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_a_true_minus() {
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
        assert_eq!(duration(3599.9), "60 min 0 s");
        assert_eq!(duration(93_900.0), "26 h 5 min");
        assert_eq!(span(999.0), "999 ns");
        assert_eq!(span(12_345.0), "12.3 us");
        assert_eq!(span(1_234_000_000.0), "1.23 s");
        assert_eq!(round_span(2e6), "2 ms");
        assert_eq!(round_span(100.0), "100 ns");
        assert_eq!(probability(0.000_2), "< 0.001");
        assert_eq!(probability(0.25), "0.250");
    }
}
