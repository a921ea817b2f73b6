//! Exact shares.

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::quantity::{Decimal, Scaled, ValueError};

/// An exact share between 0 and 1, in millionths. In JSON it is its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Share(u32);

impl Share {
    /// No number.
    pub const NONE: Self = Self(0);
    /// All numbers.
    pub const ALL: Self = Self(MILLION);

    /// Returns whether number `n` belongs to the share. Every window of w numbers contains w times the share, rounded
    /// up or down: the share is evenly spread, not random.
    pub fn picks(self, n: u64) -> bool {
        self.below(n + 1) != self.below(n)
    }

    /// Returns whether number `n` belongs to the share, and its position among the numbers that do, or among those that do
    /// not. Shares of these positions are independent of this one.
    pub fn split(self, n: u64) -> (bool, u64) {
        let below = self.below(n);
        match self.below(n + 1) != below {
            true => (true, below),
            false => (false, n - below),
        }
    }

    /// Returns the number of steps of width `step`, at least one, back from number `n` to the first number that does
    /// not belong to the share. Numbers below 0 are not considered; `None` if all numbers on the way to 0 belong to the
    /// share. `step` is at least 1.
    ///
    /// In the cycle of 10^6 remainders, a number belongs to the share if `n * share` has one of the largest remainders.
    /// So this is a search for the first multiple in a range, which the Euclidean algorithm finds in at most 20 rounds.
    pub fn steps_back_out(self, n: u64, step: u64) -> Option<u64> {
        let modulus = u64::from(MILLION);
        let share = u64::from(self.0);
        let outside = modulus - share;
        let back = (modulus - step % modulus * share % modulus) % modulus;
        let one_back = (n % modulus * share + back) % modulus;
        let steps = if one_back < outside {
            1
        } else {
            let low = modulus - one_back;
            let high = (low + outside).checked_sub(1)?;
            1 + first_multiple_within(back, modulus, low, high)?
        };
        (steps <= n / step).then_some(steps)
    }

    /// Number of numbers below `n` that belong to the share.
    pub fn below(self, n: u64) -> u64 {
        let share = u128::from(n) * u128::from(self.0) / u128::from(MILLION);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// Returns the index of the share, among several, to which number `n` belongs. No number belongs to more than one
/// share. The sum of the shares must be at most 1.
///
/// The numbers are dealt in turn: the first share picks from all numbers. The second picks from the remaining ones,
/// renumbered, at a rate that gives it its size relative to all, and so on. So each share is exact in every window of
/// 10^6 numbers. In a window of any width, the share at index k, from 0, is off by less than k + 1 numbers.
pub fn dealt(shares: &[Share], n: u64) -> Option<usize> {
    // The remaining numbers: their size in millionths of all, and the position of `n` among them.
    let (mut left, mut rank) = (u128::from(MILLION), u128::from(n));
    for (place, share) in shares.iter().enumerate() {
        let size = u128::from(share.0);
        if size == 0 {
            continue;
        }
        let below = rank * size / left;
        if (rank + 1) * size / left != below {
            return Some(place);
        }
        rank -= below;
        left -= size;
    }
    None
}

/// Returns the share that several others leave; `None` if their sum is above 1.
pub fn rest(shares: &[Share]) -> Option<Share> {
    let mut each = shares.iter().map(|share| share.0);
    let left = each.try_fold(MILLION, u32::checked_sub);
    left.map(Share)
}

const MILLION: u32 = 1_000_000;

impl Share {
    /// Formats it as a fraction for configuration files: 0, 0.25 or 1.
    pub fn fraction(self) -> String {
        (f64::from(self.0) / f64::from(MILLION)).to_string()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

impl FromStr for Share {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let form = || {
            let wanted = "write a number from 0 to 1 or a percentage, as in 0.2 or 20%";
            let percentage = format!("{text}%");
            let meant = match !text.ends_with('%') && percentage.parse::<Self>().is_ok() {
                true => format!("; '{percentage}' may be meant"),
                false => String::new(),
            };
            ValueError(format!("'{text}' is not a share; {wanted}{meant}"))
        };
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, u64::from(MILLION) / 100),
            None => (text, u64::from(MILLION)),
        };
        let number = Decimal::parse(number.trim()).filter(|number| !number.negative);
        match number.ok_or_else(form)?.times(scale) {
            Scaled::Exact(millionths) => u32::try_from(millionths)
                .ok()
                .filter(|&millionths| millionths <= MILLION)
                .map(Self)
                .ok_or_else(form),
            Scaled::Below | Scaled::Between => Err(ValueError(format!(
                "'{text}' is not a whole number of millionths; write at most 6 decimals, or 4 of a \
                 percentage"
            ))),
            Scaled::Above => Err(form()),
        }
    }
}

/// Returns the smallest `k` for which `k * factor` modulo `modulus` is between `low` and `high`, if there is one;
/// `1 <= low`, `high < modulus`, `factor < modulus`.
fn first_multiple_within(factor: u64, modulus: u64, low: u64, high: u64) -> Option<u64> {
    if low > high || factor == 0 {
        return None;
    }
    if 2 * factor > modulus {
        // Counted downwards, the steps are shorter.
        return first_multiple_within(modulus - factor, modulus, modulus - high, modulus - low);
    }
    let k = low.div_ceil(factor);
    if k * factor <= high {
        return Some(k);
    }
    // No multiple before the first wrap: find the number of wraps, which is the same problem with the modulus `factor`,
    // at most half as large.
    let rest = (factor - modulus % factor) % factor;
    let wraps = first_multiple_within(rest, factor, low % factor, high % factor)?;
    Some((low + modulus * wraps).div_ceil(factor))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn share_is_a_fraction_or_a_percentage() {
        assert_eq!("0.2".parse(), Ok(Share(200_000)));
        assert_eq!("20%".parse(), Ok(Share(200_000)));
        assert_eq!("1".parse(), Ok(Share::ALL));
        assert_eq!("33.3333%".parse(), Ok(Share(333_333)));
        assert_eq!(".5".parse(), Ok(Share(500_000)));
        assert_eq!("0.0000010".parse(), Ok(Share(1)));
        for bad in [
            "-0.1",
            "1.1",
            "101%",
            "NaN",
            "",
            "%",
            ".",
            "inf",
            "1e-3",
            "99999999999999999999",
        ] {
            let error = bad.parse::<Share>().unwrap_err();
            assert!(error.0.contains("is not a share"), "{bad}: {error}");
        }
        for fine in ["0.0000001", "0.00001%", "1.0000001"] {
            let error = fine.parse::<Share>().unwrap_err();
            assert!(error.0.contains("millionths"), "{fine}: {error}");
        }
    }

    proptest! {
        #[test]
        fn share_is_exact_in_every_window(ppm in 0_u32..=MILLION, from in 0_u64..1 << 40, width in 0_u64..3000) {
            let share = Share(ppm);
            let picked = (from..from + width).filter(|&n| share.picks(n)).count() as u64;
            prop_assert_eq!(picked, share.below(from + width) - share.below(from));
            let exact = width * u64::from(ppm);
            let million = u64::from(MILLION);
            prop_assert!(picked == exact / million || picked == exact.div_ceil(million));
        }

        #[test]
        fn dealt_shares_are_disjoint_and_nearly_exact_in_every_window(
            cuts in prop::collection::vec(0_u32..=MILLION, 4),
            from in 0_u64..1 << 40,
            width in 0_u64..3000,
        ) {
            let shares = cut(cuts);
            let places = (from..from + width).filter_map(|n| dealt(&shares, n));
            let mut counts = [0_u64; 4];
            places.for_each(|place| counts[place] += 1);
            for (place, count) in counts.into_iter().enumerate() {
                let exact = width as f64 * f64::from(shares[place].0) / 1e6;
                let off = (count as f64 - exact).abs();
                prop_assert!(off < place as f64 + 1.0, "{place}: {count} of {exact}");
            }
        }

        #[test]
        fn steps_back_out_equal_those_of_a_walk(
            ppm in 0_u32..=MILLION,
            n in 0_u64..1 << 34,
            step in 1_u64..1 << 21,
        ) {
            let share = Share(ppm);
            let walked = (1..=(n / step).min(3_000_000)).find(|k| !share.picks(n - k * step));
            prop_assert_eq!(share.steps_back_out(n, step), walked);
        }
    }

    /// The shares between these cuts of 1.
    fn cut(mut cuts: Vec<u32>) -> Vec<Share> {
        cuts.sort_unstable();
        let before = std::iter::once(0).chain(cuts.clone());
        cuts.iter()
            .zip(before)
            .map(|(cut, before)| Share(cut - before))
            .collect()
    }

    #[test]
    fn dealt_shares_are_exact_in_every_million() {
        let shares = cut(vec![1, 12_346, 500_000, 500_000, 999_999]);
        assert!(rest(&shares).is_some() && rest(&[Share(1), Share::ALL]).is_none());
        for from in [0, 1, 777_777, 1 << 32] {
            let mut counts = [0; 5];
            for n in from..from + u64::from(MILLION) {
                if let Some(place) = dealt(&shares, n) {
                    counts[place] += 1;
                }
            }
            assert_eq!(counts, [1, 12_345, 487_654, 0, 499_999]);
        }
        // A single share picks the same numbers as without others.
        let one = [Share::NONE, Share(333_333)];
        assert!((0..1000).all(|n| (dealt(&one, n) == Some(1)) == one[1].picks(n)));
        assert!((0..1000).all(|n| dealt(&[Share::ALL, Share::NONE], n) == Some(0)));
    }

    #[test]
    fn resonance_of_share_and_step_finds_no_way_out() {
        let half: Share = "50%".parse().unwrap();
        assert!(half.picks(1_000_001));
        assert_eq!(half.steps_back_out(1_000_001, 100), None);
        assert_eq!(half.steps_back_out(1_000_001, 101), Some(1));
        assert_eq!(Share::ALL.steps_back_out(1_000_001, 101), None);
        assert_eq!(Share::NONE.steps_back_out(5, 5), Some(1));
        assert_eq!(Share::NONE.steps_back_out(4, 5), None);
    }
}
