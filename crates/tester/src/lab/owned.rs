//! Directories of servers that run: their files, their cgroups.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use dns64_transport::clock::{Nanos, SECOND};
use rustix::fs::{FlockOperation, flock};

use super::process;

/// A directory of this process, removed when dropped. Its lock tells those that are in use from
/// those that a crash left behind, which the next one removes.
#[derive(Debug)]
pub(crate) struct OwnedDir {
    pub(crate) path: PathBuf,
    /// Open and locked as long as the directory is in use.
    _lock: File,
}

impl OwnedDir {
    /// Makes a directory below `base` whose name begins with `name`. Before that [`sweep`]s what
    /// begins with `prefix`.
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
                // It is empty; what remains of it is swept by the next one.
                let _ = remove(&path);
                Err(error)
            }
        }
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        // A destructor has nobody to tell; the next one sweeps.
        process::wait_until(GONE_LIMIT, || remove(&self.path) || !self.path.exists());
    }
}

/// Removes the directories below `base` that begin with `prefix` and that nobody has locked. What
/// cannot be removed, such as a cgroup with a process in it, stays; where there are none, there is
/// nothing to do.
pub(super) fn sweep(base: &Path, prefix: &str) {
    if let Ok(_door) = enter(base) {
        remove_abandoned(base, prefix);
    }
}

/// One at a time, so that nobody sweeps a directory that is not locked yet.
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

/// A cgroup goes with its files, which cannot be removed; another directory after them.
fn remove(path: &Path) -> bool {
    std::fs::remove_dir(path).is_ok() || std::fs::remove_dir_all(path).is_ok()
}

/// Processes that were killed are gone from their cgroup within this time.
const GONE_LIMIT: Nanos = SECOND;
