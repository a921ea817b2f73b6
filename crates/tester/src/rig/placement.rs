//! Assigns the roles to CPU cores.

use dns64_transport::cpu;

use super::spec::{Load, RigSpec, Subject};
use crate::lab::hosts::{SiteAuthority, SiteMeasurer};
use crate::lab::{Blame, LabError};
use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::naming::{Message, THREADS};

/// Cores of the roles. Unrestricted means that the scheduler decides or, before the placement, that the cores are
/// chosen automatically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Cores of the Measurer's threads, in turn.
    pub measurer: CpuSet,
    /// Cores of the authority's threads, in turn.
    pub authority: CpuSet,
    /// Cores of the DUT.
    pub dut: CpuSet,
}

impl Placement {
    /// Assigns cores to the roles of a measurement, from those that this process may use. The cores of a server that
    /// was already running are unknown, so the Measurer has an affinity only on request.
    pub fn of(spec: &RigSpec) -> Self {
        let measurer = spec.load.cpus.clone();
        match &spec.subject {
            Subject::Server { .. } => Self {
                measurer,
                ..Self::default()
            },
            // Each host assigns its own cores.
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

    /// Returns whether Measurer or authority share an assigned core with the DUT.
    pub fn shares_a_core(&self) -> bool {
        let tester = self.measurer.cpus().iter().chain(self.authority.cpus());
        tester
            .into_iter()
            .any(|core| self.dut.cpus().contains(core))
    }
}

/// Refuses CPUs that this machine does not have or that this process may not use. Otherwise a server configured for
/// four CPUs, of which one exists, would run on that one and be measured under a wrong label.
///
/// # Errors
///
/// Lists the missing CPUs and the existing ones.
pub fn check(subject: &Subject, load: &Load, machine: &Machine) -> Result<(), LabError> {
    if subject.hosts().is_some() {
        return Ok(());
    }
    let Some(cpus) = machine.cpus() else {
        return Ok(());
    };
    let lab = subject.lab();
    let dut = lab.and_then(|lab| lab.dut.as_ref()).map(|dut| &dut.cpus);
    let authority = lab.map(|lab| &lab.authority_cpus);
    let wished = [Some(&load.cpus), authority, dut];
    let wished = wished.into_iter().flatten().flat_map(CpuSet::cpus);
    if let Some(why) = cpus.refuse(&wished.copied().collect()) {
        return Err(Blame::Machine.error(why));
    }
    check_threads(
        load.threads,
        load.cpus.clone().or(cpus.allowed.cpus()).cpus(),
    )
}

/// Refuses more threads of a Measurer than it may use CPUs: they poll, so they would wait for each other.
///
/// # Errors
///
/// Names the number of threads to use.
pub(super) fn check_threads(threads: usize, cpus: &[usize]) -> Result<(), LabError> {
    let most = cpus.len();
    match (1..threads).contains(&most) {
        true => Err(Blame::Machine.error(Message::new(|naming| {
            let (wished, remedy) = (naming.value(THREADS, threads), naming.value(THREADS, most));
            format!(
                "{wished} is more than the CPUs that the Measurer may use, {most}; use {remedy}"
            )
        }))),
        false => Ok(()),
    }
}

/// Assigns the cores of a host to the Tester's roles on it, unless they are configured: the first ones to the threads of the
/// Measurer, the next one to the authority, or one of the Measurer's.
///
/// # Errors
///
/// The Measurer has more threads than CPUs.
pub(super) fn on_host(
    available: &[usize],
    measurer: Option<&SiteMeasurer>,
    authority: Option<&SiteAuthority>,
) -> Result<(Vec<usize>, Vec<usize>), LabError> {
    let threads = measurer.map_or(0, |it| it.threads);
    let measurer = measurer.map_or_else(Vec::new, |it| {
        let first = &available[..it.threads.min(available.len())];
        it.cpus.clone().or(first).cpus().to_vec()
    });
    let authority = authority.map_or_else(Vec::new, |it| {
        let free = available.iter().find(|core| !measurer.contains(core));
        let chosen: Vec<usize> = free.or(measurer.first()).copied().into_iter().collect();
        it.cpus.clone().or(&chosen).cpus().to_vec()
    });
    check_threads(threads, &measurer)?;
    Ok((measurer, authority))
}

/// Assigns separate cores to the roles as far as possible, unless they are configured: the first `threads` to the
/// Measurer, the next one to the authority, the others to the DUT. On two cores Measurer and authority share the first,
/// so that the DUT has the second for itself.
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
    use crate::rig::spec::{DutChoice, LabSpec};

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
    fn dut_has_separate_cores_on_two_or_more_cores() {
        let placed = |cores, threads| placed(cores, threads, Placement::default());
        assert_eq!(placed(1, 1), ["0", "0", "0"]);
        assert_eq!(placed(2, 1), ["0", "0", "1"]);
        assert_eq!(placed(2, 4), ["0", "0", "1"]);
        assert_eq!(placed(3, 1), ["0", "1", "2"]);
        assert_eq!(placed(8, 2), ["0-1", "2", "3-7"]);
    }

    #[test]
    fn configured_cores_are_kept_and_others_are_assigned() {
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
    fn missing_or_forbidden_cpus_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let told = |measurer: &str, dut: &str| {
            let load = Load {
                cpus: measurer.parse().unwrap(),
                ..Load::default()
            };
            let dut = DutChoice {
                cpus: dut.parse().unwrap(),
                ..DutChoice::default()
            };
            let subject = Subject::Lab(Box::new(LabSpec {
                dut: Some(dut),
                ..LabSpec::default()
            }));
            let refused = check(&subject, &load, &Machine::at(root.path()));
            refused.map_err(|error| error.to_string())
        };
        assert_eq!(told("0", "99"), Ok(()), "nothing is known of them");
        write("sys/devices/system/cpu/online", "0-3\n");
        assert_eq!(told("0", "1-3"), Ok(()));
        let expected = "core 4,8 is missing; use CPUs that are online: 0-3";
        assert_eq!(told("0", "1-4,8"), Err(expected.to_owned()));
        write("proc/self/cgroup", "0::/user/a\n");
        write("sys/fs/cgroup/user/cpuset.cpus.effective", "0-1\n");
        let expected = "core 2-3 is outside the cpuset of this process; use its CPUs, 0-1, or widen cpuset.cpus of \
                        its cgroup (of a container: --cpuset-cpus)";
        assert_eq!(told("0,3", "1-2"), Err(expected.to_owned()));
        write("sys/fs/cgroup/user/a/cpuset.cpus.effective", "0-2\n");
        assert_eq!(told("0", "1-2"), Ok(()), "the nearest group counts");
    }
}
