//! Which role runs on which core.

use dns64_transport::cpu;

use super::spec::{Load, RigSpec, Subject};
use crate::lab::cpuset::CpuSet;
use crate::lab::{Blame, LabError};

/// Cores of the roles; unrestricted where the scheduler decides or, before they are placed, where they
/// are left to be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The Measurer's threads, in turn.
    pub measurer: CpuSet,
    /// The authority's threads, in turn.
    pub authority: CpuSet,
    /// The DUT.
    pub dut: CpuSet,
}

impl Placement {
    /// Cores for the roles of a measurement, of those that this process may use. Nobody knows where
    /// a server runs that was there before, so the Measurer is kept to cores only if asked for.
    pub fn of(spec: &RigSpec) -> Self {
        let measurer = spec.load.cpus.clone();
        match &spec.subject {
            Subject::Server { .. } => Self {
                measurer,
                ..Self::default()
            },
            // Each host places its own.
            Subject::Lab(lab) if lab.at.is_some() => Self::default(),
            Subject::Lab(lab) => {
                let dut = lab.dut.as_ref().map(|dut| dut.cpus.clone());
                let wished = Self {
                    measurer,
                    authority: lab.authority_cpus.clone(),
                    dut: dut.unwrap_or_default(),
                };
                place(&cpu::available(), spec.load.threads, wished)
            }
        }
    }

    /// Whether Measurer or authority are kept to a core that the DUT is kept to as well.
    pub fn shares_a_core(&self) -> bool {
        let tester = self.measurer.cpus().iter().chain(self.authority.cpus());
        tester
            .into_iter()
            .any(|core| self.dut.cpus().contains(core))
    }
}

/// Refuses CPUs that this machine does not have: a server that is to have four, of which there is one, would
/// run on that one and be measured under a wrong name.
///
/// # Errors
///
/// Names the CPUs that are missing, and those that there are.
pub fn check(subject: &Subject, load: &Load) -> Result<(), LabError> {
    if subject.hosts().is_some() {
        return Ok(());
    }
    let online = std::fs::read_to_string(ONLINE).ok();
    let Some(online) = online.and_then(|text| text.trim().parse().ok()) else {
        return Ok(());
    };
    let lab = subject.lab();
    let dut = lab.and_then(|lab| lab.dut.as_ref()).map(|dut| &dut.cpus);
    let authority = lab.map(|lab| &lab.authority_cpus);
    let wished = [Some(&load.cpus), authority, dut];
    refuse(&missing(wished.into_iter().flatten(), &online), &online)
}

fn missing<'a>(wished: impl Iterator<Item = &'a CpuSet>, online: &CpuSet) -> CpuSet {
    let cpus = wished.flat_map(|set| set.cpus().iter().copied());
    cpus.filter(|cpu| !online.cpus().contains(cpu)).collect()
}

fn refuse(missing: &CpuSet, online: &CpuSet) -> Result<(), LabError> {
    match missing.is_unrestricted() {
        true => Ok(()),
        false => Err(Blame::Machine.error(format!(
            "core {missing} is missing; use those that there are, {online}"
        ))),
    }
}

/// In the form of a [`CpuSet`].
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Gives each role cores of its own as far as there are enough and none are wished: the first
/// `threads` to the Measurer, the next one to the authority, the others to the DUT. On two cores
/// Measurer and authority share the first, so that the DUT, which is to be measured, has the second
/// alone.
fn place(available: &[usize], threads: usize, wished: Placement) -> Placement {
    let threads = threads.clamp(1, available.len().saturating_sub(2).max(1));
    let first = &available[..threads.min(available.len())];
    let measurer = wished.measurer.or(first);
    let without = |cores: &[usize], set: &CpuSet| -> Vec<usize> {
        let others = cores.iter().filter(|core| !set.cpus().contains(core));
        others.copied().collect()
    };
    let free = without(available, &measurer);
    let authority = wished.authority.or(match free.as_slice() {
        [first, _, ..] => std::slice::from_ref(first),
        _ => measurer.cpus(),
    });
    let left = without(&free, &authority);
    let dut = wished.dut.or(match (left.as_slice(), free.as_slice()) {
        ([], []) => measurer.cpus(),
        ([], free) => free,
        (left, _) => left,
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

    fn placed(cores: usize, threads: usize, wished: Placement) -> [String; 3] {
        let available: Vec<usize> = (0..cores).collect();
        let Placement {
            measurer,
            authority,
            dut,
        } = place(&available, threads, wished);
        [measurer, authority, dut].map(|set| set.to_string())
    }

    #[test]
    fn the_dut_has_cores_of_its_own_as_soon_as_there_are_two() {
        let placed = |cores, threads| placed(cores, threads, Placement::default());
        assert_eq!(placed(1, 1), ["0", "0", "0"]);
        assert_eq!(placed(2, 1), ["0", "0", "1"]);
        assert_eq!(placed(2, 4), ["0", "0", "1"]);
        assert_eq!(placed(3, 1), ["0", "1", "2"]);
        assert_eq!(placed(8, 2), ["0-1", "2", "3-7"]);
    }

    #[test]
    fn what_was_asked_for_is_given_and_the_rest_follows() {
        let wished = Placement {
            authority: "1".parse().unwrap(),
            ..Placement::default()
        };
        assert_eq!(placed(2, 1, wished), ["0", "1", "1"]);
        let wished = Placement {
            dut: "0".parse().unwrap(),
            measurer: "1".parse().unwrap(),
            authority: CpuSet::unrestricted(),
        };
        assert_eq!(placed(2, 1, wished), ["1", "1", "0"]);
    }

    #[test]
    fn cpus_that_the_machine_lacks_are_refused() {
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        let told = |wished: &[CpuSet]| {
            let online = set("0-1");
            let refused = refuse(&missing(wished.iter(), &online), &online);
            refused.map_err(|error| error.to_string())
        };
        assert_eq!(told(&[CpuSet::unrestricted(), set("0-1")]), Ok(()));
        let expected = "core 2-4,8 is missing; use those that there are, 0-1";
        assert_eq!(
            told(&[set("0"), set("1-4"), set("8")]),
            Err(expected.to_owned())
        );
    }
}
