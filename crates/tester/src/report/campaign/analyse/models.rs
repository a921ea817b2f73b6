//! The models of Lencse, Georgescu and Kadobayashi (2017), section 7, fitted to the results: the work for a query to
//! rates, the reply times to those at one common low rate.

use super::standing::{common_rates, passed};
use crate::campaign::history::Recorded;
use crate::quantity::Thousands;
use crate::report::campaign::analysis::{
    Analysis, FittedRow, ModelOf, ModelResult, Parameter, PointResult,
};
use crate::report::campaign::numbers;
use crate::statistics::model;
use crate::trial::result::TrialResult;

/// Models of each variant with enough cells.
pub(super) fn models(history: &Recorded<'_>, analysis: &Analysis) -> Vec<ModelResult> {
    let of_variant = |variant| {
        let own = analysis.points_of(variant);
        let own: Vec<_> = own.filter(|p| p.is_of_the_papers()).collect();
        let work = Measured::work(&own);
        let times = Measured::reply_times(history, &own);
        let [aaaa, cached, aaaa_times, cached_times] = &OVER_ONE;
        [
            over_one(variant, aaaa, &work),
            over_one(variant, cached, &work),
            over_both(variant, &work),
            over_one(variant, aaaa_times, &times),
            over_one(variant, cached_times, &times),
            over_both(variant, &times),
        ]
    };
    let models = (0..analysis.variants.len()).flat_map(of_variant);
    models.flatten().collect()
}

/// The AAAA share and the cached share of a point in per cent, and its value per second: a rate, or the reciprocal of a
/// mean reply time.
type Cell = ((f64, f64), f64);

/// What models are fitted to.
struct Measured {
    of: ModelOf,
    cells: Vec<Cell>,
    /// Common rate of the trials, if it is not the result itself.
    rate_qps: Option<u64>,
    /// Why no model of it holds.
    doubt: Option<String>,
}

impl Measured {
    /// The medians of the rates, without lower bounds.
    fn work(points: &[&PointResult]) -> Self {
        let known = points.iter().filter(|point| !point.lower_bound);
        let cells = known.filter_map(|p| Some(((p.aaaa_pct, p.cached_pct), p.median()?)));
        Self {
            of: ModelOf::Work,
            cells: cells.collect(),
            rate_qps: None,
            doubt: None,
        }
    }

    /// The mean reply times at the lowest rate that passed at all points. The equations have no waiting in them: section
    /// 7.2 considers a small number of single messages.
    fn reply_times(history: &Recorded<'_>, points: &[&PointResult]) -> Self {
        let points = points.iter().filter(|point| point.summary.is_some());
        let trials: Vec<_> = points.clone().map(|point| passed(history, point)).collect();
        let rate_qps = common_rates(&trials).min();
        let cell = |(p, trials): (&&PointResult, &Vec<&TrialResult>)| {
            let trial = trials.iter().find(|t| Some(t.rate_qps) == rate_qps)?;
            let mean_ns = trial.rtt.mean.filter(|ns| *ns > 0)?;
            Some(((p.aaaa_pct, p.cached_pct), 1e9 / mean_ns as f64))
        };
        let medians = points.clone().filter_map(|point| point.median());
        let slowest = medians.fold(f64::INFINITY, f64::min);
        let is_high = |rate: &u64| (rate * LOW_PART) as f64 > slowest;
        Self {
            of: ModelOf::ReplyTime,
            cells: points.zip(&trials).filter_map(cell).collect(),
            rate_qps,
            doubt: rate_qps.filter(is_high).map(|rate| {
                format!(
                    "queries waited, because {} is above 1/{LOW_PART} of the {} of the slowest cell: set start-rate below",
                    Thousands(rate),
                    numbers::rate(slowest)
                )
            }),
        }
    }
}

/// A rate is low if it is at most this part of what a DUT can do: queries then wait for each other for a tenth of
/// their time or less (a queue with one server, M/M/1).
const LOW_PART: u64 = 10;

impl ModelOf {
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
    name: &'static str,
    variable: &'static str,
    full: &'static str,
    saved: &'static str,
    rest: &'static str,
    /// The share of the model, and the other one, which is zero.
    shares_pct: fn(&Cell) -> (f64, f64),
}

const AAAA_PCT: fn(&Cell) -> (f64, f64) = |(shares_pct, _)| *shares_pct;
const CACHED_PCT: fn(&Cell) -> (f64, f64) = |((aaaa_pct, cached_pct), _)| (*cached_pct, *aaaa_pct);

/// Equations 7, 8, 4 and 5.
const OVER_ONE: [OverOne; 4] = [
    OverOne {
        name: "AAAA share",
        variable: "a",
        full: "work for a name without AAAA: (TC + 2 TA + TS) / alpha",
        saved: "work that an AAAA saves: (TA + TS) / alpha",
        rest: "work for a name with AAAA: (TC + TA) / alpha",
        shares_pct: AAAA_PCT,
    },
    OverOne {
        name: "cached share",
        variable: "c",
        full: "work for a name that is not cached: (TC + 2 TA + TS) / beta",
        saved: "work that the cache saves: (2 TA + TS) / beta",
        rest: "work for a cached name: TC / beta",
        shares_pct: CACHED_PCT,
    },
    OverOne {
        name: "AAAA share (reply time)",
        variable: "a",
        full: "reply time without AAAA: TQ + TC + 2 TA + TS + TR",
        saved: "time that an AAAA saves: TA + TS",
        rest: "reply time with AAAA: TQ + TC + TA + TR",
        shares_pct: AAAA_PCT,
    },
    OverOne {
        name: "cached share (reply time)",
        variable: "c",
        full: "reply time without cache: TQ + TC + 2 TA + TS + TR",
        saved: "time that the cache saves: 2 TA + TS",
        rest: "reply time of a cached name: TQ + TC + TR",
        shares_pct: CACHED_PCT,
    },
];

fn over_one(variant: usize, model: &OverOne, measured: &Measured) -> Option<ModelResult> {
    let cells = measured.cells.iter();
    let cells = cells.map(|cell| ((model.shares_pct)(cell), cell.1));
    let cells: Vec<Cell> = cells
        .filter(|((_, other_pct), _)| *other_pct == 0.0)
        .collect();
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
        model: model.name,
        equation: measured.of.equation(model.variable, &time),
        times_s: [
            (model.full, fit.full_s),
            (model.saved, fit.saved_s),
            (model.rest, fit.full_s - fit.saved_s),
        ],
        number: LINE,
        r_squared: fit.r_squared,
    };
    Some(fitted.judged((variant, measured), &cells, &fit.fitted))
}

/// Equation 6, over both shares; for work derived as 7 and 8 are from 4 and 5.
fn over_both(variant: usize, measured: &Measured) -> Option<ModelResult> {
    let (of, cells) = (measured.of, &measured.cells);
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
    Some(fitted.judged((variant, measured), cells, &fit.fitted))
}

/// A fitted model, with this number of parameters.
struct Fitted {
    model: &'static str,
    equation: String,
    times_s: [(&'static str, f64); 3],
    number: usize,
    r_squared: f64,
}

impl Fitted {
    /// The model with its judgement by the values in the cells and those of the model.
    fn judged(
        self,
        (variant, measured): (usize, &Measured),
        cells: &[Cell],
        modelled: &[f64],
    ) -> ModelResult {
        let row = |(((share_pct, other_pct), value), modelled): (&Cell, &f64)| FittedRow {
            share_pct: *share_pct,
            median: measured.of.shown(*value),
            modelled: measured.of.shown(*modelled),
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
            of: measured.of,
            rate_qps: measured.rate_qps,
            model: self.model,
            equation: self.equation,
            refused: refused(
                measured,
                cells.len(),
                (self.number, self.r_squared),
                &parameters,
            ),
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

/// Returns why a model does not hold: too few cells to judge the fit, values that it is not for, a fit that is no better
/// than chance, or a negative time, even if it fits well. A rounding error around zero does not count.
fn refused(
    measured: &Measured,
    cells: usize,
    (fitted, r_squared): (usize, f64),
    parameters: &[Parameter],
) -> Option<String> {
    if !model::can_judge(cells, fitted) {
        return Some(format!(
            "{cells} cells are too few to judge a fit of {fitted} parameters: measure at least {}",
            fitted + model::CELLS_MORE
        ));
    }
    if measured.doubt.is_some() {
        return measured.doubt.clone();
    }
    let p = model::p_of_fit(r_squared, cells, fitted);
    if p > P_MAX {
        return Some(format!(
            "it explains nothing: R² is {r_squared:.4}, which is likely by chance ({})",
            numbers::p(p)
        ));
    }
    let most = parameters.iter().map(|p| p.value.abs());
    let rounding = most.fold(0.0, f64::max) * ROUNDING;
    let negative = parameters.iter().find(|p| p.value < -rounding)?;
    Some(format!(
        "{} would be {:.3} {}, but times cannot be negative",
        negative.name, negative.value, negative.unit
    ))
}

/// Highest probability of as good a fit to random cells: above it, zero is in the 95 % confidence interval of the slope.
const P_MAX: f64 = 0.05;

/// Rounding error, as a part of the largest parameter.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests;
