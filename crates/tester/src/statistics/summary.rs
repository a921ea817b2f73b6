//! What the runs of one point add up to (RFC 8219 section 9.2 and paper 000, section 6.6).

use serde::Serialize;

/// The figures of the rates that the runs found, all in queries per second unless the name says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many runs.
    pub runs: usize,
    /// Mean.
    pub average: f64,
    /// Median: the headline (RFC 8219 section 9.2).
    pub median: f64,
    /// 1st percentile by the empirical distribution function (RFC 2330 section 11.3).
    pub p1: f64,
    /// 99th percentile, likewise.
    pub p99: f64,
    /// Sample standard deviation (n - 1); 0 for a single run.
    pub standard_deviation: f64,
    /// Margin of error at 99.9 %: 3.2905 SD / sqrt n (tables 1 to 5 of paper 000).
    pub margin_of_error_999: f64,
    /// Median absolute deviation times 1.4826 (ibid.).
    pub median_absolute_deviation: f64,
    /// (max - min) / median, in per cent (paper 001, equation 3).
    pub dispersion_pct: f64,
    /// median / (1 + timeout / duration): what a DUT that stores requests can sustain (paper 000,
    /// equation 1).
    pub calculated: f64,
    /// 95 % bootstrap interval of the median; `None` for fewer than three runs.
    pub median_interval: Option<(f64, f64)>,
    /// What a reader has to be warned of, in plain words.
    pub flags: Vec<Flag>,
}

/// What makes a summary doubtful.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "flag")]
pub enum Flag {
    /// The mean is far from the median: the distribution is skewed (paper 002, section 4.3).
    Skewed {
        /// (mean - median) / median.
        by_pct: f64,
    },
    /// The standard deviation is above 10 % of the mean (paper 002, section 4.3).
    Scattered {
        /// Standard deviation in per cent of the mean.
        standard_deviation_pct: f64,
    },
    /// The runs rise or fall with their number.
    Drift {
        /// Change from the first to the last run along the fitted slope, in per cent of the median.
        by_pct: f64,
        /// Probability of such a trend by chance.
        p: f64,
    },
    /// Fewer runs than the 20 that RFC 8219 section 9.2 asks for.
    FewRuns {
        /// How many there are.
        runs: usize,
    },
}
