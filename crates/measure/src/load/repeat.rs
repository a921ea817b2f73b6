//! Selects the name of each query: a fresh name of the trial, or a repeated one. It is pure arithmetic on the number of
//! the query, because the verdict repeats it.

use dns64_transport::random::{INCREMENT, below, mix};

use serde::{Deserialize, Serialize};

use crate::namespace::{Pattern, Share};

/// Determines which queries repeat a name, and which name.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "(Share, Pattern)", into = "(Share, Pattern)")]
pub struct Repeats {
    share: Share,
    pattern: Pattern,
    choice: Choice,
}

/// A [`Pattern`] with its precomputed values.
#[derive(Clone, Copy, Debug)]
enum Choice {
    OneName,
    StackDistance(u64),
    SlidingWindow(u64),
    Zipf(Zipf),
}

/// Name of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Fresh name of the trial with this index, from 0.
    Own(u64),
    /// The name this many places before the trial's first fresh one, from 1.
    Before(u64),
    /// Name of the fixed set with this index, from 0.
    OfSet(u64),
    /// The one cached name.
    Cached,
}

impl From<(Share, Pattern)> for Repeats {
    fn from((share, pattern): (Share, Pattern)) -> Self {
        Self::new(share, pattern)
    }
}

impl From<Repeats> for (Share, Pattern) {
    fn from(repeats: Repeats) -> Self {
        (repeats.share, repeats.pattern)
    }
}

impl Repeats {
    /// Creates it for a share of the queries that repeats names by a pattern.
    pub fn new(share: Share, pattern: Pattern) -> Self {
        let choice = match pattern {
            Pattern::OneName => Choice::OneName,
            Pattern::StackDistance { names } => Choice::StackDistance(names.max(1)),
            Pattern::SlidingWindow { names } => Choice::SlidingWindow(names.max(1)),
            Pattern::Zipf {
                names,
                exponent_milli,
            } => Choice::Zipf(Zipf::new(names.max(1), exponent_milli)),
        };
        Self {
            share,
            pattern,
            choice,
        }
    }

    /// Creates it for queries that use every name once.
    pub fn none() -> Self {
        Self::new(Share::NONE, Pattern::OneName)
    }

    /// Share of the queries that repeat a name.
    pub fn share(&self) -> Share {
        self.share
    }

    /// The pattern of the repeated names.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Returns the index of the fresh name of query `i` of the trial; `None` if the query repeats a name.
    pub fn fresh(&self, i: u64) -> Option<u64> {
        (!self.share.picks(i)).then(|| i - self.share.below(i))
    }

    /// Returns the name of query `i` of the trial.
    pub fn asked(&self, i: u64) -> Asked {
        if let Some(own) = self.fresh(i) {
            return Asked::Own(own);
        }
        match self.choice {
            Choice::OneName => Asked::Cached,
            Choice::StackDistance(distance) => self.at_distance(i, distance),
            Choice::SlidingWindow(names) => {
                let back = below(random(i, 0), names);
                own_or_before(i - self.share.below(i), back + 1)
            }
            Choice::Zipf(zipf) => Asked::OfSet(zipf.rank(i)),
        }
    }

    /// Returns the name at this position of the LRU stack, whose most recent name is at position 1.
    ///
    /// It is the name of query `i - distance`. The last `distance` queries always have different names: each has a
    /// fresh one, or the one that would otherwise leave the last `distance`. So the stack consists of these queries,
    /// latest first. That query may itself be a repetition. So the search goes back in steps of `distance` to the first
    /// query for the name, or beyond the start of the trial, where each of the names before its first one was queried
    /// once.
    fn at_distance(&self, i: u64, distance: u64) -> Asked {
        match self.share.steps_back_out(i, distance) {
            Some(steps) => {
                let first = i - steps * distance;
                Asked::Own(first - self.share.below(first))
            }
            None => Asked::Before(distance - i % distance),
        }
    }
}

/// Returns the name `back` places before fresh name `own` of the trial.
fn own_or_before(own: u64, back: u64) -> Asked {
    match own.checked_sub(back) {
        Some(own) => Asked::Own(own),
        None => Asked::Before(back - own),
    }
}

/// Returns a pseudorandom number that depends only on the query and the number of the draw.
fn random(i: u64, draw: u64) -> u64 {
    // Any odd number, for further draws of a query.
    const DRAW: u64 = 0xd1b5_4a32_d192_ed03;
    mix((i + 1).wrapping_mul(INCREMENT) ^ draw.wrapping_mul(DRAW))
}

/// Draws rank k of 1 to n with probability k^-s / sum of j^-s, by rejection-inversion (Hörmann and Derflinger:
/// Rejection-inversion to generate variates from monotone discrete distributions, 1996). It is exact and needs no table
/// for any number of names.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    names: u64,
    exponent: f64,
    /// The integral of x^-s from 1 to 1.5, minus 1: the area before rank 1.
    low: f64,
    /// The same integral up to half a rank after the last.
    high: f64,
    /// A rank closer than this above its origin is accepted without evaluating the area.
    sure: f64,
}

impl Zipf {
    fn new(names: u64, exponent_milli: u32) -> Self {
        let exponent = f64::from(exponent_milli) / 1000.0;
        let blank = Self {
            names,
            exponent,
            low: 0.0,
            high: 0.0,
            sure: 0.0,
        };
        Self {
            low: blank.area(1.5) - 1.0,
            high: blank.area(float(names) + 0.5),
            sure: 2.0 - blank.origin(blank.area(2.5) - 2.0_f64.powf(-exponent)),
            ..blank
        }
    }

    /// Integral of x^-s from 1 to x.
    fn area(&self, x: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest == 0.0 {
            x.ln()
        } else {
            (x.powf(rest) - 1.0) / rest
        }
    }

    /// Inverse of [`Self::area`].
    fn origin(&self, area: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest == 0.0 {
            area.exp()
        } else {
            (1.0 + area * rest).powf(rest.recip())
        }
    }

    /// Returns the rank for query `i`, from 0. Each draw is accepted with a probability above one half; usually one
    /// draw suffices.
    fn rank(&self, i: u64) -> u64 {
        let mut draw = 0;
        loop {
            let area = self.low + unit(random(i, draw)) * (self.high - self.low);
            let x = self.origin(area);
            let rank = x.round().clamp(1.0, float(self.names));
            let sure = rank - x <= self.sure;
            if sure || area >= self.area(rank + 0.5) - rank.powf(-self.exponent) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "from 1 to the number of names"
                )]
                let rank = rank as u64;
                return rank.clamp(1, self.names) - 1;
            }
            draw += 1;
        }
    }
}

fn float(names: u64) -> f64 {
    names as f64
}

/// Maps 64 bits to a number from 0 to below 1, with 53 bits.
pub(crate) fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn share(ppm: u32) -> Share {
        format!("0.{ppm:06}").parse().unwrap()
    }

    /// Number of the name; the trial's first fresh name has number 0.
    fn number(asked: Asked) -> i64 {
        match asked {
            Asked::Own(n) => i64::try_from(n).unwrap(),
            Asked::Before(n) => -i64::try_from(n).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn every_repetition_has_its_distance_in_a_real_lru_stack(
            ppm in prop_oneof![Just(500_000_u32), Just(200_000), Just(900_000), 0..1_000_000_u32],
            distance in 1_u64..60,
        ) {
            let share = share(ppm);
            let repeats = Repeats::new(share, Pattern::StackDistance { names: distance });
            // Latest first; the names before the trial were queried in order.
            let mut stack: Vec<i64> = (1..=i64::try_from(distance).unwrap()).map(|n| -n).collect();
            let mut fresh = 0;
            for i in 0..2_000 {
                let name = number(repeats.asked(i));
                match stack.iter().position(|&other| other == name) {
                    Some(place) => {
                        prop_assert!(share.picks(i));
                        prop_assert_eq!(place as u64 + 1, distance);
                        stack.remove(place);
                    }
                    None => {
                        prop_assert!(!share.picks(i));
                        prop_assert_eq!(name, fresh);
                        fresh += 1;
                    }
                }
                stack.insert(0, name);
            }
        }

        #[test]
        fn window_contains_the_last_fresh_names(ppm in 1..1_000_000_u32, names in 1_u64..500) {
            let share = share(ppm);
            let repeats = Repeats::new(share, Pattern::SlidingWindow { names });
            let width = i64::try_from(names).unwrap();
            for i in (0..3_000).filter(|&i| share.picks(i)) {
                let next = i64::try_from(i - share.below(i)).unwrap();
                let name = number(repeats.asked(i));
                prop_assert!((next - width..next).contains(&name));
            }
        }

        #[test]
        fn fresh_names_are_consecutive_for_any_repetitions(
            ppm in 0..1_000_000_u32,
            pattern in prop_oneof![
                Just(Pattern::OneName),
                Just(Pattern::StackDistance { names: 7 }),
                Just(Pattern::SlidingWindow { names: 7 }),
                Just(Pattern::Zipf { names: 7, exponent_milli: 1000 }),
            ],
        ) {
            let repeats = Repeats::new(share(ppm), pattern);
            let fresh = (0..2_000).filter(|&i| !share(ppm).picks(i));
            for (next, i) in (0..).zip(fresh) {
                prop_assert_eq!(repeats.asked(i), Asked::Own(next));
            }
        }
    }

    #[test]
    fn stack_is_traversed_in_order_at_a_share_of_1() {
        let repeats = Repeats::new(Share::ALL, Pattern::StackDistance { names: 3 });
        let asked: Vec<i64> = (0..7).map(|i| number(repeats.asked(i))).collect();
        assert_eq!(asked, [-3, -2, -1, -3, -2, -1, -3]);
    }

    #[test]
    fn window_repeats_its_names_uniformly() {
        let repeats = Repeats::new(Share::ALL, Pattern::SlidingWindow { names: 8 });
        let mut counts = [0_u32; 8];
        for i in 0..80_000 {
            let Asked::Before(back) = repeats.asked(i) else {
                panic!("no fresh names")
            };
            counts[usize::try_from(back - 1).unwrap()] += 1;
        }
        // Six standard deviations of a binomial of 80,000 and 1/8 are 561.
        assert!(
            counts.iter().all(|c| c.abs_diff(10_000) < 561),
            "{counts:?}"
        );
    }

    #[test]
    fn ranks_follow_the_zipf_distribution() {
        const DRAWS: u64 = 200_000;
        for exponent_milli in [0, 1, 500, 900, 999, 1000, 1001, 1500, 5000] {
            for names in [1, 2, 10, 1000] {
                let pattern = Pattern::Zipf {
                    names,
                    exponent_milli,
                };
                let repeats = Repeats::new(Share::ALL, pattern);
                let mut counts = vec![0_u64; usize::try_from(names).unwrap()];
                for i in 0..DRAWS {
                    let Asked::OfSet(k) = repeats.asked(i) else {
                        panic!("none of the set")
                    };
                    counts[usize::try_from(k).unwrap()] += 1;
                }
                let s = f64::from(exponent_milli) / 1000.0;
                let weight = |k: u64| float(k).powf(-s);
                let all: f64 = (1..=names).map(weight).sum();
                // The first ranks separately, the others together: counts large enough for a normal approximation.
                // Seven standard deviations, plus one for the rounding.
                for (k, &count) in (1..=10).zip(&counts) {
                    let p = weight(k) / all;
                    let expected = float(DRAWS) * p;
                    let deviation = (expected * (1.0 - p)).sqrt();
                    assert!(
                        (float(count) - expected).abs() <= 7.0 * deviation + 1.0,
                        "s {s}, {names} names, rank {k}: {count} instead of {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn ranks_of_a_large_set_reach_its_end_and_not_beyond() {
        let names = 1 << 22;
        let zipf = Zipf::new(names, 0);
        let ranks: HashSet<u64> = (0..10_000).map(|i| zipf.rank(i)).collect();
        assert!(ranks.len() > 9_900, "{}", ranks.len());
        assert!(ranks.iter().all(|&rank| rank < names));
        assert!(ranks.iter().any(|&rank| rank > names / 100 * 99));
    }
}
