//! Which role runs on which core.

use crate::lab::host::CpuSet;

/// Cores of the roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The Measurer's threads, in turn.
    pub measurer: CpuSet,
    /// The authority's threads, in turn.
    pub authority: CpuSet,
    /// The DUT.
    pub dut: CpuSet,
}

/// What the user asked for; the rest is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The Measurer's cores.
    pub measurer: Option<CpuSet>,
    /// The authority's cores.
    pub authority: Option<CpuSet>,
    /// The DUT's cores.
    pub dut: Option<CpuSet>,
}

/// Gives each role cores of its own as far as there are enough: the first `threads` to the
/// Measurer, the next one to the authority, the others to the DUT. On two cores Measurer and
/// authority share the first, so that the DUT, which is to be measured, has the second alone.
pub fn place(available: &[usize], threads: usize, wishes: &Wishes) -> Placement {
    let set = |cores: &[usize]| cores.iter().copied().collect::<CpuSet>();
    let threads = threads.clamp(1, available.len().saturating_sub(2).max(1));
    let measurer = wishes
        .measurer
        .clone()
        .unwrap_or_else(|| set(&available[..threads.min(available.len())]));
    let free: Vec<usize> = available
        .iter()
        .copied()
        .filter(|core| !measurer.cpus().contains(core))
        .collect();
    let authority = wishes
        .authority
        .clone()
        .unwrap_or_else(|| match free.as_slice() {
            [first, _, ..] => set(&[*first]),
            _ => measurer.clone(),
        });
    let left: Vec<usize> = free
        .iter()
        .copied()
        .filter(|core| !authority.cpus().contains(core))
        .collect();
    let dut = wishes
        .dut
        .clone()
        .unwrap_or_else(|| match (left.as_slice(), free.as_slice()) {
            ([], []) => measurer.clone(),
            ([], free) => set(free),
            (left, _) => set(left),
        });
    Placement {
        measurer,
        authority,
        dut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(cores: usize, threads: usize, wishes: &Wishes) -> [String; 3] {
        let available: Vec<usize> = (0..cores).collect();
        let Placement {
            measurer,
            authority,
            dut,
        } = place(&available, threads, wishes);
        [measurer, authority, dut].map(|set| set.to_string())
    }

    #[test]
    fn the_dut_has_cores_of_its_own_as_soon_as_there_are_two() {
        let none = Wishes::default();
        assert_eq!(placed(1, 1, &none), ["0", "0", "0"]);
        assert_eq!(placed(2, 1, &none), ["0", "0", "1"]);
        assert_eq!(placed(2, 4, &none), ["0", "0", "1"]);
        assert_eq!(placed(3, 1, &none), ["0", "1", "2"]);
        assert_eq!(placed(8, 2, &none), ["0-1", "2", "3-7"]);
    }

    #[test]
    fn what_was_asked_for_is_given_and_the_rest_follows() {
        let wishes = Wishes {
            authority: "1".parse().ok(),
            ..Wishes::default()
        };
        assert_eq!(placed(2, 1, &wishes), ["0", "1", "1"]);
        let wishes = Wishes {
            dut: "0".parse().ok(),
            measurer: "1".parse().ok(),
            authority: None,
        };
        assert_eq!(placed(2, 1, &wishes), ["1", "1", "0"]);
    }
}
