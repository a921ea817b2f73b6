//! Change points of a series: where its level changed.

/// Largest number of groups.
const GROUPS_MAX: usize = 16;

/// Returns the indices at which a new level begins, by minimum description length.
///
/// A series is described in two parts: the groups of successive values, then each value by the normal distribution of its
/// group. The shortest description is chosen. With n values in k groups whose residual sum of squares is RSS it has
/// n/2 log2(RSS/n + noise²) + k/2 log2(n) + (k - 1) log2(n) bits: the values, a mean for each group (Rissanen 1978) and the place
/// of each change. The groups share one standard deviation, so a group can be a single value. `noise` is the least standard
/// deviation, in the unit of the values.
///
/// `None` if a value is not finite. Time is proportional to the square of their number.
pub fn change_points(values: &[f64], noise: f64) -> Option<Vec<usize>> {
    let n = values.len();
    if !values.iter().all(|it| it.is_finite()) {
        return None;
    }
    let squares = Squares::of(values);
    let bits = |groups: usize, rss: f64| {
        let n = n as f64;
        let changes = groups as f64 - 1.0;
        let of_values = (rss / n + noise * noise).max(f64::MIN_POSITIVE).log2() * n / 2.0;
        of_values + n.log2() * (groups as f64 / 2.0 + changes)
    };
    // least[j]: the least sum of squares of the first j values in so many groups; begins[j]: where the last of these begins.
    let mut least: Vec<f64> = (0..=n).map(|end| squares.of_group(0, end)).collect();
    let mut begins: Vec<Vec<usize>> = Vec::new();
    let mut shortest = (bits(1, least[n]), 1);
    for groups in 2..=(n / 2 + 1).min(GROUPS_MAX) {
        let last = |end: usize| {
            let begin = (groups - 1..end).map(|at| (least[at] + squares.of_group(at, end), at));
            begin.min_by(|one, other| one.0.total_cmp(&other.0))
        };
        let lasts: Vec<(f64, usize)> = (0..=n)
            .map(|end| last(end).unwrap_or((f64::INFINITY, 0)))
            .collect();
        (least, _) = lasts.iter().copied().unzip::<f64, usize, Vec<_>, Vec<_>>();
        begins.push(lasts.into_iter().map(|(_, at)| at).collect());
        shortest = match bits(groups, least[n]) {
            fewer if fewer < shortest.0 => (fewer, groups),
            _ => shortest,
        };
    }
    let mut end = n;
    let chosen = begins[..shortest.1 - 1].iter().rev();
    let mut changes: Vec<usize> = chosen
        .map(|begins| {
            end = begins[end];
            end
        })
        .collect();
    changes.reverse();
    Some(changes)
}

/// Sums of the first values, of their deviations from the mean and of the squares of these.
struct Squares(Vec<(f64, f64)>);

impl Squares {
    fn of(values: &[f64]) -> Self {
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let sums = values.iter().scan((0.0, 0.0), |sums, value| {
            let deviation = value - mean;
            *sums = (sums.0 + deviation, sums.1 + deviation * deviation);
            Some(*sums)
        });
        Self(std::iter::once((0.0, 0.0)).chain(sums).collect())
    }

    /// Sum of the squared deviations of some successive values from their own mean.
    fn of_group(&self, begin: usize, end: usize) -> f64 {
        let (from, to) = (self.0[begin], self.0[end]);
        let count = (end - begin).max(1) as f64;
        (to.1 - from.1 - (to.0 - from.0).powi(2) / count).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_are_found_where_they_are() {
        let flat = [100.0, 101.0, 99.0, 100.0, 100.5];
        let step = [100.0, 101.0, 99.0, 100.0, 95.0, 94.5];
        let back = [100.0, 101.0, 99.0, 100.0, 90.0, 100.0, 99.5];
        for (values, changes) in [
            (&flat[..], &[][..]),
            (&step, &[4]),
            (&back, &[4, 5]),
            (&[7.0; 9], &[]),
            (&[7.0], &[]),
            (&[], &[]),
        ] {
            assert_eq!(change_points(values, 0.5).unwrap(), changes, "{values:?}");
        }
        assert_eq!(change_points(&[1.0, f64::NAN], 1.0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn changes_do_not_depend_on_unit_offset_and_direction(
            values in prop::collection::vec(0..1000i32, 2..20),
        ) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let found = change_points(&values, 20.0).unwrap();
            let scaled: Vec<f64> = values.iter().map(|it| it * 8.0 + 4096.0).collect();
            prop_assert_eq!(&change_points(&scaled, 160.0).unwrap(), &found);
            prop_assert!(found.windows(2).all(|it| it[0] < it[1]));
            prop_assert!(found.iter().all(|at| (1..values.len()).contains(at)));
        }
    }
}
