//! Fits a straight line to measured points, for extrapolation.

use schemars::JsonSchema;
use serde::Serialize;

/// y = intercept + slope * x, by least squares.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
pub struct FittedLine {
    /// Value at 0.
    pub intercept: f64,
    /// Increase per unit of x.
    pub slope: f64,
    /// Coefficient of determination; 1 for two points.
    pub r_squared: f64,
}

impl FittedLine {
    /// Returns the value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// Fits a line to these points; `None` for fewer than two different x, or if a number is not finite.
pub fn line(points: &[(f64, f64)]) -> Option<FittedLine> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        let each = points.iter();
        each.map(|&(x, y)| of(x - x_mean, y - y_mean)).sum()
    };
    let spread = sum(&|x, _| x * x);
    if !spread.is_finite() || spread <= 0.0 {
        return None;
    }
    let slope = sum(&|x, y| x * y) / spread;
    let (total, left) = (sum(&|_, y| y * y), sum(&|x, y| (y - slope * x).powi(2)));
    let r_squared = if total > 0.0 { 1.0 - left / total } else { 1.0 };
    slope.is_finite().then_some(FittedLine {
        intercept: y_mean - slope * x_mean,
        slope,
        r_squared,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_recovered_and_extrapolated() {
        let points = [16.0, 64.0, 256.0].map(|x| (x, 3.0 + 0.5 * x));
        let found = line(&points).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(found.intercept, 3.0) && near(found.slope, 0.5) && near(found.r_squared, 1.0));
        assert!(near(found.at(1e4), 5003.0));
        let bent = line(&[(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)]).unwrap();
        assert!(
            near(bent.slope, 0.0) && near(bent.r_squared, 0.0),
            "{bent:?}"
        );
    }

    #[test]
    fn single_x_or_non_finite_values_have_no_line() {
        assert_eq!(line(&[]), None);
        assert_eq!(line(&[(4.0, 1.0), (4.0, 2.0)]), None);
        assert_eq!(line(&[(1.0, 1.0), (2.0, f64::NAN)]), None);
        assert_eq!(line(&[(1.0, 1.0), (f64::INFINITY, 1.0)]), None);
    }
}
