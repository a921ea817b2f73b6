//! Axes: where a value stands, and which values are named.

use crate::report::campaign::numbers;

/// One axis of a figure. Positions are values, or their logarithms to base 10.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// What it shows, with the unit.
    pub(super) label: String,
    /// Position of its beginning.
    pub(super) from: f64,
    /// Position of its end.
    pub(super) to: f64,
    /// Positions that are named, and their names.
    pub(super) ticks: Vec<(f64, String)>,
    logarithmic: bool,
}

impl Axis {
    /// From zero to a little above `highest`, with about `steps` names.
    pub(super) fn from_zero(
        label: impl Into<String>,
        highest: f64,
        steps: u32,
        name: impl Fn(f64) -> String,
    ) -> Self {
        Self::linear(label, 0.0, highest * 1.04, steps, name)
    }

    /// From `from` to `to`, with about `steps` names.
    pub(super) fn linear(
        label: impl Into<String>,
        from: f64,
        to: f64,
        steps: u32,
        name: impl Fn(f64) -> String,
    ) -> Self {
        let to = if to > from && to.is_finite() {
            to
        } else {
            from + 1.0
        };
        let step = round_step((to - from) / f64::from(steps));
        let mut ticks = Vec::new();
        let mut tick = (from / step).ceil();
        while tick * step <= to * (1.0 + 1e-9) {
            ticks.push((tick * step, name(tick * step)));
            tick += 1.0;
        }
        Self {
            label: label.into(),
            from,
            to,
            ticks,
            logarithmic: false,
        }
    }

    /// Whole decades around the values; between them 2 and 5 are named if there are few decades.
    pub(super) fn logarithmic(
        label: impl Into<String>,
        lowest: f64,
        highest: f64,
        name: impl Fn(f64) -> String,
    ) -> Self {
        let from = lowest.max(1.0).log10().floor();
        let to = highest.max(1.0).log10().ceil().max(from + 1.0);
        let between: &[f64] = if to - from <= 2.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let mut ticks = Vec::new();
        let mut decade = from;
        while decade <= to {
            for factor in between {
                let value = 10f64.powf(decade) * factor;
                if value.log10() <= to + 1e-9 {
                    ticks.push((value.log10(), name(value)));
                }
            }
            decade += 1.0;
        }
        Self {
            label: label.into(),
            from,
            to,
            ticks,
            logarithmic: true,
        }
    }

    /// Percentiles by the logarithm of 1 / (1 - p), so that each nine is as wide as the one before it;
    /// the largest value of all stands one step beyond `last`, the highest percentile below 100.
    pub(super) fn percentile(label: impl Into<String>, last: f64) -> Self {
        const NAMED: [f64; 6] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99];
        let to = nines(last) + STEP_TO_MAX;
        let mut ticks: Vec<_> = NAMED
            .into_iter()
            .filter(|percentile| *percentile <= last)
            .map(|percentile| (nines(percentile), numbers::short(percentile)))
            .collect();
        if last >= 99.999 {
            ticks.push((nines(99.999), "99.999".to_owned()));
        }
        ticks.push((to, "max".to_owned()));
        Self {
            label: label.into(),
            from: 0.0,
            to,
            ticks,
            logarithmic: false,
        }
    }

    /// `rows` rows from top to bottom, without names.
    pub(super) fn rows(label: impl Into<String>, rows: f64) -> Self {
        Self {
            label: label.into(),
            from: rows,
            to: 0.0,
            ticks: Vec::new(),
            logarithmic: false,
        }
    }

    /// Where a value stands.
    pub(super) fn position(&self, value: f64) -> f64 {
        if self.logarithmic {
            value.max(1.0).log10()
        } else {
            value
        }
    }

    /// Where a percentile stands on an axis of [`Self::percentile`].
    pub(super) fn percentile_position(&self, percentile: f64) -> f64 {
        nines(percentile).min(self.to)
    }
}

/// Distance of the largest value from the last percentile, in decades.
const STEP_TO_MAX: f64 = 0.6;

/// The logarithm of 1 / (1 - p).
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// The nearest of 1, 2, 5, 10, 20, ... to `rough`.
fn round_step(rough: f64) -> f64 {
    let decade = 10f64.powf(rough.log10().floor());
    let factor = match rough / decade {
        f if f < 1.5 => 1.0,
        f if f < 3.5 => 2.0,
        f if f < 7.5 => 5.0,
        _ => 10.0,
    };
    factor * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::from_zero("rate", 87_000.0, 5, |v| numbers::decimal(v, 0));
        assert_eq!(names(&axis), ["0", "20,000", "40,000", "60,000", "80,000"]);
        for nothing in [0.0, f64::INFINITY, f64::NAN] {
            let flat = Axis::from_zero("rate", nothing, 5, numbers::short);
            assert_eq!(names(&flat), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        }
    }

    #[test]
    fn decades_are_named_by_their_spans() {
        let axis = Axis::logarithmic("time", 40_000.0, 9e6, numbers::round_span);
        assert_eq!(names(&axis), ["10 us", "100 us", "1 ms", "10 ms"]);
        assert!((axis.position(1e6) - 6.0).abs() < 1e-12);
        let near = Axis::logarithmic("time", 120_000.0, 900_000.0, numbers::round_span);
        assert_eq!(names(&near), ["100 us", "200 us", "500 us", "1 ms"]);
    }

    #[test]
    fn each_nine_is_as_wide_as_the_one_before() {
        let axis = Axis::percentile("percentile", 99.99);
        let expected = ["0", "50", "90", "99", "99.9", "99.99", "max"];
        assert_eq!(names(&axis), expected);
        let wide = |a, b| axis.percentile_position(b) - axis.percentile_position(a);
        assert!((wide(90.0, 99.0) - wide(99.0, 99.9)).abs() < 1e-9);
        assert!((axis.percentile_position(100.0) - axis.to).abs() < 1e-9);
    }
}
