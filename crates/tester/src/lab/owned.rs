//! Directories that belong to a running process: its files and its cgroups.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use dns64_transport::clock::{Nanos, SECOND};
use rustix::fs::{FlockOperation, flock};

use crate::machine::process;

/// A directory of this process, removed when dropped. It is locked while in use; unlocked ones were left by a crash and
/// are removed by the next process.
#[derive(Debug)]
pub(crate) struct OwnedDir {
    pub(crate) path: PathBuf,
    /// Open and locked while the directory is in use.
    _lock: File,
}

impl OwnedDir {
    /// Creates a directory below `base` whose name begins with `name`, after it has [`sweep`]ed those that begin with
    /// `prefix`.
    pub(super) fn make(base: &Path, prefix: &str, name: &str) -> io::Result<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let _door = enter(base)?;
        remove_abandoned(base, prefix);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{name}.{}.{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        match lock(&path) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                // It is empty; if it cannot be removed, the next process sweeps it.
                let _ = remove(&path);
                Err(error)
            }
        }
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        // An error is ignored: the next process sweeps the directory.
        process::wait_until(GONE_LIMIT, || remove(&self.path) || !self.path.exists());
    }
}

/// Removes the unlocked directories below `base` that begin with `prefix`. One that cannot be removed, such as a cgroup
/// with a process in it, stays.
pub(super) fn sweep(base: &Path, prefix: &str) {
    if let Ok(_door) = enter(base) {
        remove_abandoned(base, prefix);
    }
}

/// Locks `base`, so that no process sweeps a directory that is not locked yet.
fn enter(base: &Path) -> io::Result<File> {
    let door = File::open(base)?;
    flock(&door, FlockOperation::LockExclusive)?;
    Ok(door)
}

fn remove_abandoned(base: &Path, prefix: &str) {
    for entry in base.read_dir().into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(prefix);
        let path = entry.path();
        if ours && path.is_dir() && lock(&path).is_ok() {
            remove(&path);
        }
    }
}

fn lock(path: &Path) -> io::Result<File> {
    let lock = File::open(path)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

/// The files of a cgroup cannot be removed, but disappear with it. Any other directory is removed recursively.
fn remove(path: &Path) -> bool {
    std::fs::remove_dir(path).is_ok() || std::fs::remove_dir_all(path).is_ok()
}

/// Killed processes leave their cgroup within this time.
const GONE_LIMIT: Nanos = SECOND;
