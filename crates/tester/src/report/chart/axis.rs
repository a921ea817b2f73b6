//! Axes: positions of values, and ticks.

use crate::report::numbers;

/// One axis of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Label, with the unit.
    pub(super) label: String,
    /// Values of the ticks in ascending order, and their names.
    pub(super) ticks: Vec<(f64, String)>,
    /// Converts a value to its position on the scale.
    scale: fn(f64) -> f64,
    /// Positions of its beginning and its end on the scale.
    range: (f64, f64),
}

/// Approximate number of ticks of an axis.
const NAMES: f64 = 5.0;

impl Axis {
    /// From zero to slightly above the highest value.
    pub(crate) fn from_zero(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let highest = values.into_iter().fold(0.0, f64::max);
        Self::linear(label, (0.0, highest * 1.04))
    }

    /// From one value to another; of length 1 if the second is not higher.
    pub(crate) fn linear(label: &str, (from, to): (f64, f64)) -> Self {
        let beyond = to > from && to.is_finite();
        let to = if beyond { to } else { from + 1.0 };
        let step = round_step((to - from) / NAMES);
        let first = (from / step).ceil();
        let values = (0..20).map(|i| (first + f64::from(i)) * step);
        let values = values.take_while(|value| *value <= to * (1.0 + 1e-9));
        Self::new(label, |value| value, (from, to), values, numbers::short)
    }

    /// Removes ticks at fractions, for counts.
    pub(crate) fn whole(mut self) -> Self {
        self.ticks.retain(|(value, _)| value.fract().abs() < 1e-9);
        self
    }

    /// Logarithmic axis of times in nanoseconds, in whole decades from 1 on. If there are few decades, 2 and 5 have
    /// ticks as well.
    pub(crate) fn times(label: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let ends = values.into_iter().fold((f64::INFINITY, 0.0), |ends, v| {
            (f64::min(ends.0, v), f64::max(ends.1, v))
        });
        let decade = |value: f64| value.clamp(1.0, 1e20).log10();
        let from = decade(ends.0).floor();
        let to = decade(ends.1).ceil().max(from + 1.0);
        let few = to - from <= 2.0;
        let named = &[1.0, 2.0, 5.0][..if few { 3 } else { 1 }];
        let decades = (0..=20).map(|i| 10f64.powf(from + f64::from(i)));
        let values = decades.flat_map(|decade| named.iter().map(move |factor| decade * factor));
        let values = values.take_while(|value| value.log10() <= to + 1e-9);
        Self::new(label, f64::log10, (from, to), values, numbers::span)
    }

    /// Percentiles by the logarithm of 1 / (1 - p), so that each additional nine has the same width. The maximum, at
    /// 100, is one step beyond the last of the others.
    pub(crate) fn percentile(label: &str, percentiles: impl IntoIterator<Item = f64>) -> Self {
        const NAMED: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
        const STEP_TO_MAX: f64 = 0.75;
        let below = percentiles.into_iter().filter(|p| *p < 100.0);
        let last = below.fold(0.0, f64::max);
        let named = NAMED.into_iter().filter(|percentile| *percentile <= last);
        let to = nines(last) + STEP_TO_MAX;
        let mut axis = Self::new(label, nines, (0.0, to), named, numbers::short);
        axis.ticks.push((100.0, "max".to_owned()));
        axis
    }

    /// Rows from top to bottom, without names.
    pub(crate) fn rows(rows: f64) -> Self {
        Self::new("", |value| value, (rows, 0.0), [], numbers::short)
    }

    fn new(
        label: &str,
        scale: fn(f64) -> f64,
        range: (f64, f64),
        named: impl IntoIterator<Item = f64>,
        name: fn(f64) -> String,
    ) -> Self {
        let named = named.into_iter();
        Self {
            label: label.to_owned(),
            ticks: named.map(|value| (value, name(value))).collect(),
            scale,
            range,
        }
    }

    /// Position of a value, as a share of the axis: at an end if it is beyond the axis. NaN if it is not a number.
    pub(super) fn share(&self, value: f64) -> f64 {
        let (from, to) = self.range;
        (((self.scale)(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

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
