//! The models of Lencse, Georgescu and Kadobayashi (2017), section 7, fitted to the results: the work for a query to
//! rates, the reply times to those of the trials at these rates.

use crate::report::campaign::analysis::{
    Analysis, FittedRow, ModelOf, ModelResult, Parameter, PointResult,
};
use crate::statistics::model;

/// Models of each variant with enough cells. Lower bounds are excluded.
pub(super) fn models(analysis: &Analysis) -> Vec<ModelResult> {
    let usual = |p: &&PointResult| !p.lower_bound && p.is_of_the_papers();
    let of_variant = |variant| {
        let own: Vec<_> = analysis.points_of(variant).filter(usual).collect();
        let [aaaa, cached, aaaa_times, cached_times] =
            OVER_ONE.map(|model| over_one(variant, &model, &own));
        let [both, both_times] =
            [ModelOf::Work, ModelOf::ReplyTime].map(|of| over_both(variant, of, &own));
        [aaaa, cached, both, aaaa_times, cached_times, both_times]
    };
    let models = (0..analysis.variants.len()).flat_map(of_variant);
    models.flatten().collect()
}

impl ModelOf {
    /// The fitted value, per second: a rate, or the reciprocal of the mean reply time.
    fn value(self, point: &PointResult) -> Option<f64> {
        let median = point.median()?;
        match self {
            Self::Work => Some(median),
            Self::ReplyTime => Some(1e9 / point.rtt_mean_ns.filter(|ns| *ns > 0)? as f64),
        }
    }

    /// The displayed value: a rate, or a reply time in microseconds.
    fn shown(self, per_s: f64) -> f64 {
        match self {
            Self::Work => per_s,
            Self::ReplyTime => 1e6 / per_s,
        }
    }

    /// The equation for the work or the time of a query.
    fn equation(self, variables: &str, time: &str) -> String {
        match self {
            Self::Work => format!("R({variables}) = 1 / ({time})"),
            Self::ReplyTime => format!("T({variables}) = {time}"),
        }
    }
}

/// A model over one share, with its name and parameters.
struct OverOne {
    of: ModelOf,
    name: &'static str,
    variable: &'static str,
    full: &'static str,
    saved: &'static str,
    rest: &'static str,
    /// The share of the model, and the other one, which is zero.
    shares_pct: fn(&PointResult) -> (f64, f64),
}

const AAAA_PCT: fn(&PointResult) -> (f64, f64) = |point| (point.aaaa_pct, point.cached_pct);
const CACHED_PCT: fn(&PointResult) -> (f64, f64) = |point| (point.cached_pct, point.aaaa_pct);

/// Equations 7, 8, 4 and 5.
const OVER_ONE: [OverOne; 4] = [
    OverOne {
        of: ModelOf::Work,
        name: "AAAA share",
        variable: "a",
        full: "work for a name without AAAA: (TC + 2 TA + TS) / alpha",
        saved: "work that an AAAA saves: (TA + TS) / alpha",
        rest: "work for a name with AAAA: (TC + TA) / alpha",
        shares_pct: AAAA_PCT,
    },
    OverOne {
        of: ModelOf::Work,
        name: "cached share",
        variable: "c",
        full: "work for a name that is not cached: (TC + 2 TA + TS) / beta",
        saved: "work that the cache saves: (2 TA + TS) / beta",
        rest: "work for a cached name: TC / beta",
        shares_pct: CACHED_PCT,
    },
    OverOne {
        of: ModelOf::ReplyTime,
        name: "AAAA share (reply time)",
        variable: "a",
        full: "reply time without AAAA: TQ + TC + 2 TA + TS + TR",
        saved: "time that an AAAA saves: TA + TS",
        rest: "reply time with AAAA: TQ + TC + TA + TR",
        shares_pct: AAAA_PCT,
    },
    OverOne {
        of: ModelOf::ReplyTime,
        name: "cached share (reply time)",
        variable: "c",
        full: "reply time without cache: TQ + TC + 2 TA + TS + TR",
        saved: "time that the cache saves: 2 TA + TS",
        rest: "reply time of a cached name: TQ + TC + TR",
        shares_pct: CACHED_PCT,
    },
];

/// The AAAA share and the cached share of a point in per cent, and its value.
type Cell = ((f64, f64), f64);

fn over_one(variant: usize, model: &OverOne, points: &[&PointResult]) -> Option<ModelResult> {
    let cell = |point: &&PointResult| {
        let shares_pct = (model.shares_pct)(point);
        let value = model.of.value(point).filter(|_| shares_pct.1 == 0.0)?;
        Some((shares_pct, value))
    };
    let cells: Vec<Cell> = points.iter().filter_map(cell).collect();
    let shares = cells.iter().map(|((pct, _), value)| (pct / 100.0, *value));
    let fit = model::fit(&shares.collect::<Vec<_>>())?;
    let time = format!(
        "{:.3} us {} {} * {:.3} us",
        fit.full_s * 1e6,
        if fit.saved_s < 0.0 { "+" } else { "-" },
        model.variable,
        fit.saved_s.abs() * 1e6
    );
    let fitted = Fitted {
        of: model.of,
        model: model.name,
        equation: model.of.equation(model.variable, &time),
        times_s: [
            (model.full, fit.full_s),
            (model.saved, fit.saved_s),
            (model.rest, fit.full_s - fit.saved_s),
        ],
        number: LINE,
        r_squared: fit.r_squared,
    };
    Some(fitted.judged(variant, &cells, &fit.fitted))
}

/// Equation 6, over both shares; for work derived as 7 and 8 are from 4 and 5.
fn over_both(variant: usize, of: ModelOf, points: &[&PointResult]) -> Option<ModelResult> {
    let cell = |point: &&PointResult| Some(((point.aaaa_pct, point.cached_pct), of.value(point)?));
    let cells: Vec<Cell> = points.iter().filter_map(cell).collect();
    let shares = cells
        .iter()
        .map(|((a, c), value)| (a / 100.0, c / 100.0, *value));
    let fit = model::fit_both(&shares.collect::<Vec<_>>())?;
    let (name, [rest, answer, synthesis]) = match of {
        ModelOf::Work => ("both shares", ["TC / alpha", "TA / alpha", "TS / alpha"]),
        ModelOf::ReplyTime => ("both shares (reply time)", ["TQ + TC + TR", "TA", "TS"]),
    };
    let time = format!(
        "{:.3} us + (1 - c) * ({:.3} us + (1 - a) * {:.3} us)",
        fit.rest_s * 1e6,
        fit.answer_s * 1e6,
        (fit.answer_s + fit.synthesis_s) * 1e6
    );
    let fitted = Fitted {
        of,
        model: name,
        equation: of.equation("a, c", &time),
        times_s: [
            (rest, fit.rest_s),
            (answer, fit.answer_s),
            (synthesis, fit.synthesis_s),
        ],
        number: PLANE,
        r_squared: fit.r_squared,
    };
    Some(fitted.judged(variant, &cells, &fit.fitted))
}

/// A fitted model, with this number of parameters.
struct Fitted {
    of: ModelOf,
    model: &'static str,
    equation: String,
    times_s: [(&'static str, f64); 3],
    number: usize,
    r_squared: f64,
}

impl Fitted {
    /// The model with its judgement by the values in the cells and those of the model.
    fn judged(self, variant: usize, cells: &[Cell], modelled: &[f64]) -> ModelResult {
        let row = |(((share_pct, other_pct), value), modelled): (&Cell, &f64)| FittedRow {
            share_pct: *share_pct,
            median: self.of.shown(*value),
            modelled: self.of.shown(*modelled),
            other_pct: *other_pct,
        };
        let fitted: Vec<_> = cells.iter().zip(modelled).map(row).collect();
        let residuals = fitted
            .iter()
            .map(|row| (row.modelled / row.median - 1.0).abs());
        let parameters = self.times_s.map(|(name, time_s)| Parameter {
            name,
            value: time_s * 1e6,
            unit: "us",
        });
        ModelResult {
            variant,
            of: self.of,
            model: self.model,
            equation: self.equation,
            refused: refused(cells.len(), self.number, &parameters),
            parameters: parameters.to_vec(),
            residual_pct_max: residuals.fold(0.0, f64::max) * 100.0,
            r_squared: model::can_judge(cells.len(), self.number).then_some(self.r_squared),
            fitted,
        }
    }
}

/// Number of times that are fitted over one share, and over both.
const LINE: usize = 2;
const PLANE: usize = 3;

/// Returns why a model does not hold, even if it fits well: too few cells to judge the fit, or a negative time. A
/// rounding error around zero does not count.
fn refused(cells: usize, fitted: usize, parameters: &[Parameter]) -> Option<String> {
    if !model::can_judge(cells, fitted) {
        return Some(format!(
            "{cells} cells are too few to judge a fit of {fitted} parameters: measure at least {}",
            fitted + model::CELLS_MORE
        ));
    }
    let most = parameters.iter().map(|p| p.value.abs());
    let rounding = most.fold(0.0, f64::max) * ROUNDING;
    let negative = parameters.iter().find(|p| p.value < -rounding)?;
    Some(format!(
        "{} would be {:.3} {}, and no time is negative",
        negative.name, negative.value, negative.unit
    ))
}

/// Rounding error, as a part of the largest parameter.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests;
