//! CPU restriction by cgroup: a server in its own cpuset sees and uses only its CPUs. If no cgroup can be created, the
//! CPU affinity is set instead, which a program can change for itself.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};

use super::owned::{self, OwnedDir};
use super::{Blame, LabError};
use crate::machine::cpuset::CpuSet;
use crate::machine::network::Network;
use crate::machine::process;
use crate::machine::{Machine, field};

/// How a server is restricted to its CPUs.
#[derive(Debug)]
pub enum Cores {
    /// Unrestricted: the scheduler decides.
    Any,
    /// By a cgroup.
    Cgroup(Cgroup),
    /// By affinity, because no cgroup could be created, for this reason.
    Affinity(LabError),
}

impl Cores {
    /// Chooses the best method that this machine allows.
    pub fn keep_to(cpus: &CpuSet) -> Self {
        if cpus.is_unrestricted() {
            return Self::Any;
        }
        match Cgroup::create(cpus) {
            Ok(cgroup) => Self::Cgroup(cgroup),
            Err(reason) => Self::Affinity(reason),
        }
    }

    /// Builds a command that runs `program` on `host` and on `cpus`; its process ID is that of `program`.
    pub fn command(&self, host: &Network, program: &Path, cpus: &CpuSet) -> Command {
        let Self::Cgroup(cgroup) = self else {
            return host.command(program, cpus);
        };
        // The cgroup is joined first, because `ip netns exec` mounts another /sys.
        let inner = host.command(program, &CpuSet::unrestricted());
        let mut command = cgroup.joined("exec \"$@\"");
        command.arg(inner.get_program()).args(inner.get_args());
        command
    }

    /// Describes the method for the report; `None` if unrestricted.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Any => None,
            Self::Cgroup(_) => Some("by cgroup cpuset".to_owned()),
            Self::Affinity(reason) => {
                Some(format!("by affinity: cannot create a cgroup: {reason}"))
            }
        }
    }
}

/// A cgroup with a set of CPUs, removed when dropped.
#[derive(Debug)]
pub struct Cgroup(OwnedDir);

/// The two kinds of cgroups (cgroups(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

/// Where cgroups are mounted (file-hierarchy(7), cgroups(7)).
const MOUNT: &str = "/sys/fs/cgroup";
/// Prefix of the names of our cgroups.
const PREFIX: &str = "dns64bench.";
/// Long enough for a shell to start on a busy machine.
const PROOF_LIMIT: Nanos = 5 * SECOND;

impl Cgroup {
    fn create(cpus: &CpuSet) -> Result<Self, LabError> {
        let (parent, version) = own_parent().ok_or_else(|| {
            Blame::Machine.error("no parent cgroup delegates the cpuset controller")
        })?;
        let cgroup = Self::below(&parent, version, cpus)?;
        cgroup.prove(cpus)?;
        Ok(cgroup)
    }

    /// Creates the cgroup and assigns its CPUs.
    fn below(parent: &Path, version: CgroupVersion, cpus: &CpuSet) -> Result<Self, LabError> {
        let dir = OwnedDir::make(parent, PREFIX, "dns64bench").map_err(|e| refused(parent, e))?;
        let cgroup = Self(dir);
        if version == CgroupVersion::One {
            // Version 1 inherits nothing, and no process can join a cgroup without memory nodes.
            let mems = parent.join("cpuset.mems");
            let mems = std::fs::read_to_string(&mems).map_err(|e| refused(&mems, e))?;
            cgroup.set("cpuset.mems", mems.trim())?;
        }
        cgroup.set("cpuset.cpus", &cpus.to_string())?;
        Ok(cgroup)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), LabError> {
        let path = self.0.path.join(file);
        std::fs::write(&path, value).map_err(|e| refused(&path, e))
    }

    /// A shell that joins the cgroup and then runs `then` with the appended arguments.
    fn joined(&self, then: &str) -> Command {
        let mut command = Command::new("sh");
        let script = format!("echo $$ >\"$0\" && {then}");
        command.args(["-c", &script]);
        command.arg(self.0.path.join("cgroup.procs"));
        command
    }

    /// Moves a process into the cgroup and reads its allowed CPUs: only this shows whether permissions and CPUs
    /// suffice.
    fn prove(&self, cpus: &CpuSet) -> Result<(), LabError> {
        let mut proof = self.joined("exec cat /proc/self/status");
        let end = process::run(&mut proof, PROOF_LIMIT)?;
        if !end.status.success() {
            let (path, said) = (self.0.path.display(), end.stderr.trim());
            return Err(Blame::Machine.error(format!("no process can join {path}: {said}")));
        }
        let given = field(&end.stdout, "Cpus_allowed_list").unwrap_or_default();
        match given.parse::<CpuSet>() {
            Ok(set) if set == *cpus => Ok(()),
            _ => Err(Blame::Machine.error(format!(
                "its processes would have the cores {given} instead of {cpus}"
            ))),
        }
    }
}

fn refused(path: &Path, reason: io::Error) -> LabError {
    Blame::Machine.error(format!("{}: {reason}", path.display()))
}

/// Removes cgroups that servers of crashed Testers left.
pub(super) fn sweep_abandoned() {
    if let Some((parent, _)) = own_parent() {
        owned::sweep(&parent, PREFIX);
    }
}

fn own_parent() -> Option<(PathBuf, CgroupVersion)> {
    parent(
        Path::new(MOUNT),
        &Machine::here().read("/proc/self/cgroup")?,
    )
}

/// Returns the cgroup below which a cpuset can be created, from the contents of `/proc/self/cgroup`. No existing cgroup
/// is changed: in version 2 it is the nearest ancestor of this process that already delegates the cpuset controller.
fn parent(mount: &Path, own: &str) -> Option<(PathBuf, CgroupVersion)> {
    let mut lines = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?.trim_start_matches('/')))
    });
    let one = lines
        .clone()
        .find(|(controllers, _)| controllers.split(',').any(|name| name == "cpuset"));
    if let Some((_, path)) = one {
        let hierarchy = mount.join("cpuset");
        let own = hierarchy.join(path);
        // In a container the path may be that of the host's view.
        let parent = if own.is_dir() { own } else { hierarchy };
        return Some((parent, CgroupVersion::One));
    }
    let (_, path) = lines.find(|(controllers, _)| controllers.is_empty())?;
    let unified = mount.join("unified");
    let hierarchy = match unified.is_dir() {
        true => unified,
        false => mount.to_path_buf(),
    };
    let own = hierarchy.join(path);
    let hands_down = |cgroup: &&Path| {
        std::fs::read_to_string(cgroup.join("cgroup.subtree_control"))
            .is_ok_and(|names| names.split_whitespace().any(|name| name == "cpuset"))
    };
    let mut above = own.ancestors().take_while(|at| at.starts_with(&hierarchy));
    let parent = above.find(hands_down)?;
    Some((parent.to_path_buf(), CgroupVersion::Two))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn version_1_uses_the_cpuset_hierarchy() {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join("cpuset/jobs/mine")).unwrap();
        let own = "9:name=systemd:/\n3:cpu,cpuset:/jobs/mine\n0::/\n";
        let hierarchy = mount.path().join("cpuset");
        let found = parent(mount.path(), own);
        assert_eq!(
            found,
            Some((hierarchy.join("jobs/mine"), CgroupVersion::One))
        );
        // The path of another machine's view.
        let found = parent(mount.path(), "3:cpuset:/docker/abc\n");
        assert_eq!(found, Some((hierarchy, CgroupVersion::One)));
    }

    #[test]
    fn version_2_uses_the_nearest_cgroup_that_delegates_cpusets() {
        let mount = tempfile::tempdir().unwrap();
        let hands_down = |path: &str, controllers: &str| {
            let cgroup = mount.path().join(path);
            fs::create_dir_all(&cgroup).unwrap();
            fs::write(cgroup.join("cgroup.subtree_control"), controllers).unwrap();
        };
        let own = "0::/user.slice/mine/app\n";
        hands_down("user.slice/mine/app", "");
        assert_eq!(parent(mount.path(), own), None);
        hands_down("", "cpuset cpu io");
        let root = mount.path().join("");
        assert_eq!(parent(mount.path(), own), Some((root, CgroupVersion::Two)));
        hands_down("user.slice/mine", "memory cpuset");
        let nearest = mount.path().join("user.slice/mine");
        assert_eq!(
            parent(mount.path(), own),
            Some((nearest, CgroupVersion::Two))
        );
    }

    #[test]
    fn cgroup_gets_its_cpus_and_abandoned_cgroups_are_removed() {
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("cpuset.mems"), "0\n").unwrap();
        let abandoned = tree.path().join("dns64bench.1.0");
        let strange = tree.path().join("strange.1.0");
        fs::create_dir(&abandoned).unwrap();
        fs::create_dir(&strange).unwrap();
        let first = Cgroup::below(tree.path(), CgroupVersion::One, &cpus("0,2-3")).unwrap();
        let second = Cgroup::below(tree.path(), CgroupVersion::Two, &cpus("1")).unwrap();
        assert!(!abandoned.exists() && strange.exists());
        let text = |cgroup: &Cgroup, file| fs::read_to_string(cgroup.0.path.join(file)).unwrap();
        assert_eq!(text(&first, "cpuset.cpus"), "0,2-3");
        assert_eq!(text(&first, "cpuset.mems"), "0");
        assert_eq!(text(&second, "cpuset.cpus"), "1");
        assert!(!second.0.path.join("cpuset.mems").exists());
        // In a real cgroup the files disappear with the directory.
        let path = second.0.path.clone();
        fs::remove_file(path.join("cpuset.cpus")).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn cgroup_without_permission_or_with_other_cpus_is_refused_with_the_reason() {
        let tree = tempfile::tempdir().unwrap();
        let error = Cgroup::below(&tree.path().join("none"), CgroupVersion::Two, &cpus("1"));
        let text = error.unwrap_err().to_string();
        assert!(
            text.ends_with("none: No such file or directory (os error 2)"),
            "{text}"
        );
        // A plain directory is not a cgroup: its processes keep their CPUs.
        let cgroup = Cgroup::below(tree.path(), CgroupVersion::Two, &cpus("8000")).unwrap();
        let error = cgroup.prove(&cpus("8000")).unwrap_err();
        let text = error.to_string();
        assert!(text.ends_with("instead of 8000"), "{text}");
        let note = Cores::Affinity(error).note().unwrap();
        assert!(
            note.starts_with("by affinity: cannot create a cgroup: its processes"),
            "{note}"
        );
        fs::remove_dir_all(&cgroup.0.path).unwrap();
    }
}
