//! How many queries a DUT has under way at once, by Little's law: rate x time in the system (J. D. C. Little,
//! "A proof for the queuing formula L = lambda W", 1961). Behind a slower authority each query is
//! under way for longer, and a DUT with a limit answers fewer of them (Lencse et al. 2017, section 8.2).

/// What was measured with one delay of the authority.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtDelay {
    /// How long the authority holds each reply back, in seconds.
    pub delay_s: f64,
    /// Median rate, in queries per second.
    pub rate_qps: f64,
    /// Median round-trip time at about that rate, in seconds: the time in the system.
    pub time_s: f64,
}

impl AtDelay {
    /// Queries that were under way at once.
    pub fn outstanding(self) -> f64 {
        self.rate_qps * self.time_s
    }
}

/// What several delays say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outstanding {
    /// How many delays a query waits for, one after the other: by how much the time in the system grows
    /// for each second of delay. 2 for a DUT that asks for AAAA and then for A. Told by the delays that
    /// show the limit, or by the two longest: with a short one, queries may wait for other reasons.
    pub in_sequence: f64,
    /// The rest of the time in the system there, in seconds.
    pub base_s: f64,
    /// What the rates say of a limit.
    pub finding: Finding,
}

/// Whether there is a limit of outstanding queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// The rate falls with the delay so that this many are under way.
    Limit(f64),
    /// The rate does not fall, with up to this many under way.
    NoLimit(f64),
    /// The rate falls, but not as by such a limit.
    Unclear,
}

/// A rate that is below this part of that with the shortest delay has fallen: one that scatters by less is
/// usual, and the bias of a search is below a per cent.
const FALLEN: f64 = 0.9;

/// Products of rate and time that differ by less than this part agree: each factor scatters by some
/// per cent.
const AGREE: f64 = 0.1;

/// Looks at rates by their delay, in rising order of it.
///
/// `None` with fewer than two different delays, or if a number is not finite, or a rate or time is not
/// above 0.
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
    // From the longest delay on, as far as they agree.
    let agreeing: Vec<_> = rows.iter().rev().take_while(agrees).collect();
    let finding = if last.rate_qps >= FALLEN * first.rate_qps {
        Finding::NoLimit(most)
    } else if agreeing.len() >= 2 {
        let sum: f64 = agreeing.iter().map(|row| row.outstanding()).sum();
        Finding::Limit(sum / agreeing.len() as f64)
    } else {
        Finding::Unclear
    };
    let shorter = |row: &&AtDelay| row.delay_s < last.delay_s;
    let other = match finding {
        Finding::Limit(_) => agreeing.into_iter().rfind(shorter),
        Finding::NoLimit(_) | Finding::Unclear => rows.iter().rfind(shorter),
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

    /// A DUT that asks twice in sequence, takes 0.4 ms, can do `rate_qps`, and has room for `limit`.
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
    fn a_limit_is_found_where_the_rate_falls_as_the_time_grows() {
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
            Finding::Limit(limit) => assert!((limit - 1000.0).abs() < 1e-6, "{limit}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queries_that_are_stored_behind_a_fast_authority_do_not_hide_the_limit() {
        // Unbound 1.17.1 with one thread, which has room for 1024 queries, in trials of 1 s.
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
        assert!(matches!(told.finding, Finding::Limit(n) if (930.0..950.0).contains(&n)));
    }

    #[test]
    fn no_limit_is_seen_where_the_rate_stays() {
        let rows = measured(&[0.0, 10.0], 50_000.0, 1e9);
        let finding = outstanding(&rows).unwrap().finding;
        let most = 50_000.0 * 0.020_4;
        assert!(matches!(finding, Finding::NoLimit(n) if (n - most).abs() < 1e-6));
    }

    #[test]
    fn a_rate_that_falls_otherwise_tells_no_limit() {
        let rows = [(0.0, 10_000.0), (0.001, 9_000.0), (0.01, 5_000.0)];
        let rows = rows.map(|(delay_s, rate_qps)| AtDelay {
            delay_s,
            rate_qps,
            time_s: delay_s + 0.001,
        });
        assert_eq!(outstanding(&rows).unwrap().finding, Finding::Unclear);
        // One rate that has fallen does not tell of what.
        let one = measured(&[0.0, 20.0], 100_000.0, 1000.0);
        assert_eq!(outstanding(&one).unwrap().finding, Finding::Unclear);
    }

    #[test]
    fn what_cannot_be_told_is_not() {
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
        fn any_limit_that_holds_at_two_delays_is_found_in_spite_of_scatter(
            limit in 10.0..100_000.0_f64,
            scatter in prop::collection::vec(-0.02..0.02_f64, 4),
        ) {
            // With 20 and 40 ms both rates are beyond the limit, with 1 us and 2 us both are not.
            let rate_qps = limit / 0.01;
            let mut rows = measured(&[0.001, 0.002, 20.0, 40.0], rate_qps, limit);
            for (row, off) in rows.iter_mut().zip(scatter) {
                row.rate_qps *= 1.0 + off;
            }
            match outstanding(&rows).unwrap().finding {
                Finding::Limit(found) => prop_assert!((found / limit - 1.0).abs() < 0.021),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
