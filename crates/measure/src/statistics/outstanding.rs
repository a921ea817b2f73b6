//! Number of outstanding queries of a DUT by Little's law: rate x time in the system (J. D. C. Little, "A proof for the
//! queuing formula L = lambda W", 1961). With a slower authority each query is outstanding for longer, and a DUT with a
//! limit answers fewer of them (Lencse et al. 2017, section 8.2).

/// Measurement with one delay of the authority.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtDelay {
    /// Delay of each reply of the authority, in seconds.
    pub delay_s: f64,
    /// Median rate, in queries per second.
    pub rate_qps: f64,
    /// Median round-trip time at about that rate, in seconds: the time in the system.
    pub time_s: f64,
}

impl AtDelay {
    /// Returns the number of outstanding queries.
    pub fn outstanding(self) -> f64 {
        self.rate_qps * self.time_s
    }
}

/// Combined result of several delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outstanding {
    /// Number of delays in sequence that a query waits for: the increase of the time in the system per second of delay.
    /// 2 for a DUT that queries AAAA and then A. Derived from the delays that show the limit, or from the two longest:
    /// with a short delay, queries may wait for other reasons.
    pub in_sequence: f64,
    /// Remaining time in the system at these delays, in seconds.
    pub base_s: f64,
    /// Whether the rates show a limit.
    pub finding: QueryLimit,
}

/// Whether the outstanding queries are limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueryLimit {
    /// The rate decreases with the delay so that this number is outstanding.
    Limit(f64),
    /// The rate does not decrease, with up to this number outstanding.
    NoLimit(f64),
    /// The rate decreases, but not as a limit would explain.
    Unclear,
}

/// A rate below this fraction of that with the shortest delay has decreased: less scatter is usual, and the bias of a
/// search is below 1 %.
const FALLEN: f64 = 0.9;

/// Products of rate and time that differ by less than this fraction agree: each factor scatters by some per cent.
const AGREE: f64 = 0.1;

/// Analyses rates by delay, in ascending order of the delay.
///
/// `None` with fewer than two different delays, or if a number is not finite, or a rate or time is not above 0.
pub fn outstanding(rows: &[AtDelay]) -> Option<Outstanding> {
    let (first, last) = (rows.first()?, rows.last()?);
    let positive = |number: f64| number.is_finite() && number > 0.0;
    let valid =
        |row: &AtDelay| positive(row.rate_qps) && positive(row.time_s) && row.delay_s.is_finite();
    if !rows.iter().all(valid) || last.delay_s <= first.delay_s {
        return None;
    }
    let most = rows.iter().map(|row| row.outstanding()).fold(0.0, f64::max);
    let full = last.outstanding();
    let agrees = |row: &&AtDelay| (row.outstanding() - full).abs() <= AGREE * full;
    // From the longest delay on, while they agree.
    let agreeing: Vec<_> = rows.iter().rev().take_while(agrees).collect();
    let finding = if last.rate_qps >= FALLEN * first.rate_qps {
        QueryLimit::NoLimit(most)
    } else if agreeing.len() >= 2 {
        let sum: f64 = agreeing.iter().map(|row| row.outstanding()).sum();
        QueryLimit::Limit(sum / agreeing.len() as f64)
    } else {
        QueryLimit::Unclear
    };
    let shorter = |row: &&AtDelay| row.delay_s < last.delay_s;
    let other = match finding {
        QueryLimit::Limit(_) => agreeing.into_iter().rfind(shorter),
        QueryLimit::NoLimit(_) | QueryLimit::Unclear => rows.iter().rfind(shorter),
    }?;
    let in_sequence = (last.time_s - other.time_s) / (last.delay_s - other.delay_s);
    Some(Outstanding {
        in_sequence,
        base_s: (last.time_s - in_sequence * last.delay_s).max(0.0),
        finding,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A DUT with two upstream queries in sequence, 0.4 ms of its own, a maximum of `rate_qps` and a queue of `limit`
    /// queries.
    fn measured(delays_ms: &[f64], rate_qps: f64, limit: f64) -> Vec<AtDelay> {
        let row = |delay_ms: &f64| {
            let delay_s = delay_ms / 1e3;
            let time_s = 2.0 * delay_s + 0.000_4;
            AtDelay {
                delay_s,
                rate_qps: rate_qps.min(limit / time_s),
                time_s,
            }
        };
        delays_ms.iter().map(row).collect()
    }

    #[test]
    fn limit_is_found_if_rate_falls_as_time_grows() {
        let rows = measured(&[0.0, 1.0, 2.0, 5.0, 10.0, 20.0], 100_000.0, 1000.0);
        let rates: Vec<_> = rows.iter().map(|row| row.rate_qps.round()).collect();
        assert_eq!(
            rates,
            [
                100_000.0, 100_000.0, 100_000.0, 96_154.0, 49_020.0, 24_752.0
            ]
        );
        let told = outstanding(&rows).unwrap();
        assert!((told.in_sequence - 2.0).abs() < 1e-9);
        assert!((told.base_s - 0.000_4).abs() < 1e-9);
        match told.finding {
            QueryLimit::Limit(limit) => assert!((limit - 1000.0).abs() < 1e-6, "{limit}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queued_queries_with_fast_authority_do_not_hide_limit() {
        // Unbound 1.17.1 with one thread, limited to 1024 queries, in trials of 1 s.
        let rows = [
            (0.0, 16_200.0, 0.448),
            (0.02, 9_000.0, 0.0517),
            (0.1, 4_500.0, 0.203),
            (0.2, 2_400.0, 0.402),
        ];
        let rows = rows.map(|(delay_s, rate_qps, time_s)| AtDelay {
            delay_s,
            rate_qps,
            time_s,
        });
        let told = outstanding(&rows).unwrap();
        assert!((told.in_sequence - 1.99).abs() < 1e-9, "{told:?}");
        assert!((told.base_s - 0.004).abs() < 1e-9, "{told:?}");
        assert!(matches!(told.finding, QueryLimit::Limit(n) if (930.0..950.0).contains(&n)));
    }

    #[test]
    fn constant_rate_shows_no_limit() {
        let rows = measured(&[0.0, 10.0], 50_000.0, 1e9);
        let finding = outstanding(&rows).unwrap().finding;
        let most = 50_000.0 * 0.020_4;
        assert!(matches!(finding, QueryLimit::NoLimit(n) if (n - most).abs() < 1e-6));
    }

    #[test]
    fn rate_that_falls_otherwise_is_unclear() {
        let rows = [(0.0, 10_000.0), (0.001, 9_000.0), (0.01, 5_000.0)];
        let rows = rows.map(|(delay_s, rate_qps)| AtDelay {
            delay_s,
            rate_qps,
            time_s: delay_s + 0.001,
        });
        assert_eq!(outstanding(&rows).unwrap().finding, QueryLimit::Unclear);
        // A single decreased rate does not show the reason.
        let one = measured(&[0.0, 20.0], 100_000.0, 1000.0);
        assert_eq!(outstanding(&one).unwrap().finding, QueryLimit::Unclear);
    }

    #[test]
    fn insufficient_or_invalid_rows_have_no_result() {
        assert_eq!(outstanding(&[]), None);
        let rows = measured(&[1.0], 1000.0, 10.0);
        assert_eq!(outstanding(&[rows[0], rows[0]]), None);
        let broken = AtDelay {
            time_s: f64::NAN,
            ..measured(&[2.0], 1000.0, 10.0)[0]
        };
        assert_eq!(outstanding(&[rows[0], broken]), None);
    }

    proptest! {
        #[test]
        fn limit_at_two_delays_is_found_despite_scatter(
            limit in 10.0..100_000.0_f64,
            scatter in prop::collection::vec(-0.02..0.02_f64, 4),
        ) {
            // With 20 and 40 ms both rates are limited, with 1 us and 2 us neither is.
            let rate_qps = limit / 0.01;
            let mut rows = measured(&[0.001, 0.002, 20.0, 40.0], rate_qps, limit);
            for (row, off) in rows.iter_mut().zip(scatter) {
                row.rate_qps *= 1.0 + off;
            }
            match outstanding(&rows).unwrap().finding {
                QueryLimit::Limit(found) => prop_assert!((found / limit - 1.0).abs() < 0.021),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
