//! Cache of zone files.
//!
//! A file is named by a hash of everything that determines its text, so it is written once and found by every run that
//! needs it. A user of a file holds a shared lock on it. Before a file is written, unused files are removed, least
//! recently used first, until all together have at most [`CACHE_MAX`] octets and the file system has space.

use std::fs::{DirBuilder, File, remove_file, rename};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens, statvfs};

use super::ZoneFile;
use crate::lab::{Blame, LabError, userns};
use crate::naming::{Message, NAMESPACE};

/// Largest total size of all zone files in octets; a larger file is the only one.
const CACHE_MAX: u64 = 16 << 30;

/// Extension of a zone file, after its hash.
const ENDING: &str = "zone";

/// Extension of an incomplete file.
const PART: &str = "part";

/// A zone file on the disk, which is kept while this is held.
#[derive(Debug)]
pub struct StoredZone {
    /// Its path.
    pub path: PathBuf,
    /// Whether it was written for this use; otherwise it existed before.
    pub is_new: bool,
    /// Holds the shared lock.
    _lock: File,
}

/// Directory of the zone files: `dns64bench` below `XDG_CACHE_HOME` if that is an absolute path; otherwise below
/// `/var/cache` for root, and for other users below `~/.cache` or, without a home, in the directory for temporary
/// files. Never below `/run`, which is in memory.
pub fn directory() -> PathBuf {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let is_root = rustix::process::geteuid().is_root() && !userns::inside();
    let base = absolute("XDG_CACHE_HOME")
        .or_else(|| is_root.then(|| PathBuf::from("/var/cache")))
        .or_else(|| Some(absolute("HOME")?.join(".cache")));
    let temporary = || {
        let user = rustix::process::geteuid().as_raw();
        std::env::temp_dir().join(format!("dns64bench-cache-{user}"))
    };
    base.map_or_else(temporary, |base| base.join("dns64bench"))
}

impl ZoneFile {
    /// Returns the file; writes it unless the directory already contains it.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or has not enough space.
    pub fn stored(&self, directory: &Path) -> Result<StoredZone, LabError> {
        let cannot = |error| cannot_use(directory, error);
        let mut private = DirBuilder::new();
        private
            .mode(0o700)
            .recursive(true)
            .create(directory)
            .map_err(cannot)?;
        // One process at a time: two that need the same file write it once.
        let door = File::open(directory).map_err(cannot)?;
        flock(&door, FlockOperation::LockExclusive).map_err(|error| cannot(error.into()))?;
        let path = self.path(directory);
        let is_new = !path.exists();
        if is_new {
            remove_parts(directory);
            make_room(self, directory)?;
            self.write_new(&path).map_err(cannot)?;
        }
        let used = File::open(&path).map_err(cannot)?;
        flock(&used, FlockOperation::LockShared).map_err(|error| cannot(error.into()))?;
        // Marks it as recently used; a file of another user remains unchanged.
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        let _ = futimens(&used, &times);
        Ok(StoredZone {
            path,
            is_new,
            _lock: used,
        })
    }

    /// Refuses a file that is too large for the disk, before anything is written or removed.
    ///
    /// # Errors
    ///
    /// There is not enough space, even without the unused files.
    pub fn check_space(&self, directory: &Path) -> Result<(), LabError> {
        if self.path(directory).exists() {
            return Ok(());
        }
        let unused = entries(directory)
            .into_iter()
            .filter(|entry| !entry.in_use());
        let freed = unused.map(|entry| entry.octets).sum();
        match free(directory) {
            Some(available) => self.fits(directory, available.saturating_add(freed)),
            None => Ok(()),
        }
    }

    fn path(&self, directory: &Path) -> PathBuf {
        directory.join(self.hash()).with_extension(ENDING)
    }

    fn fits(&self, directory: &Path, available: u64) -> Result<(), LabError> {
        let needed = self.octets_max();
        if needed <= available {
            return Ok(());
        }
        let (cidr, needed, available) = (self.cidr, Mib(needed), Mib(available));
        let directory = directory.display();
        Err(Blame::Machine.error(Message::new(|naming| {
            format!(
                "the zone file of {cidr} needs {needed} in {directory}, and {available} are available \
                 there; make room, use another directory (XDG_CACHE_HOME) or a smaller {}",
                naming.name(NAMESPACE)
            )
        })))
    }

    fn write_new(&self, path: &Path) -> io::Result<()> {
        let part = path.with_extension(PART);
        let written = File::create(&part).and_then(|mut file| {
            self.write(&mut file)?;
            // After a power failure, a file with its final name must be complete.
            file.sync_all()?;
            rename(&part, path)
        });
        if written.is_err() {
            let _ = remove_file(&part);
        }
        written
    }
}

/// Formats a number of octets in an error.
pub(crate) struct Mib(pub(crate) u64);

impl std::fmt::Display for Mib {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = self.0 >> 20;
        match mib {
            0..10_240 => write!(f, "{mib} MiB"),
            _ => write!(f, "{} GiB", mib >> 10),
        }
    }
}

/// A file of the cache.
struct CachedFile {
    path: PathBuf,
    octets: u64,
    used: SystemTime,
}

impl CachedFile {
    fn in_use(&self) -> bool {
        let lock = |file: File| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        !File::open(&self.path).is_ok_and(lock)
    }
}

/// Complete files, least recently used first.
fn entries(directory: &Path) -> Vec<CachedFile> {
    let all = directory.read_dir().into_iter().flatten().flatten();
    let mut entries: Vec<CachedFile> = all
        .filter(|entry| entry.path().extension().is_some_and(|it| it == ENDING))
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some(CachedFile {
                path: entry.path(),
                octets: metadata.len(),
                used: metadata.modified().ok()?,
            })
        })
        .collect();
    entries.sort_by_key(|entry| entry.used);
    entries
}

/// Removes unused files until `zone` fits.
fn make_room(zone: &ZoneFile, directory: &Path) -> Result<(), LabError> {
    remove_until_fits(directory, zone.octets_max(), CACHE_MAX);
    free(directory).map_or(Ok(()), |available| zone.fits(directory, available))
}

/// Removes unused files, least recently used first, until a file of `needed` octets keeps the total at or below `most`
/// and fits on the disk.
fn remove_until_fits(directory: &Path, needed: u64, most: u64) {
    let entries = entries(directory);
    let mut taken: u64 = entries.iter().map(|entry| entry.octets).sum();
    let enough = |taken: u64| {
        let has_room = free(directory).is_none_or(|free| free >= needed);
        has_room && taken.saturating_add(needed) <= most
    };
    for entry in entries {
        if enough(taken) {
            break;
        }
        if !entry.in_use() && remove_file(&entry.path).is_ok() {
            taken -= entry.octets;
        }
    }
}

/// Removes incomplete files: no process writes while the directory is locked.
fn remove_parts(directory: &Path) {
    for entry in directory.read_dir().into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|it| it == PART) {
            let _ = remove_file(entry.path());
        }
    }
}

/// Octets that this user can still write in this directory, or in the place where it will be created.
pub(crate) fn free(directory: &Path) -> Option<u64> {
    let existing = directory.ancestors().find(|path| path.exists())?;
    let system = statvfs(existing).ok()?;
    system.f_bavail.checked_mul(system.f_frsize)
}

fn cannot_use(directory: &Path, error: io::Error) -> LabError {
    Blame::Machine.because(format!("cannot use {directory:?} for zone files"))(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::spec::Load;

    #[test]
    fn least_recently_used_files_are_removed_first_and_files_in_use_kept() {
        let directory = tempfile::tempdir().unwrap();
        let made = |name: &str, age_s: u64| {
            let path = directory.path().join(name).with_extension(ENDING);
            std::fs::write(&path, [b' '; 100]).unwrap();
            let used = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 - age_s);
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(used).unwrap();
            path
        };
        let (used, old, new) = (made("used", 30), made("old", 20), made("new", 10));
        let lock = File::open(&used).unwrap();
        flock(&lock, FlockOperation::LockShared).unwrap();
        let there = || [&used, &old, &new].map(|path| path.exists());
        remove_until_fits(directory.path(), 100, 400);
        assert_eq!(there(), [true; 3]);
        remove_until_fits(directory.path(), 100, 300);
        assert_eq!(there(), [true, false, true]);
        remove_until_fits(directory.path(), 500, 300);
        assert_eq!(there(), [true, false, false]);
    }

    #[test]
    fn file_without_space_is_refused_with_the_free_space() {
        let directory = Path::new("/var/cache/dns64bench");
        let zone = Load::default().zone_file(true);
        assert!(zone.fits(directory, 2 << 30).is_ok());
        let error = zone.fits(directory, 100 << 20).unwrap_err().to_string();
        assert_eq!(
            error,
            "the zone file of 10.0.0.0/8 needs 960 MiB in /var/cache/dns64bench, and 100 MiB are \
             available there; make room, use another directory (XDG_CACHE_HOME) or a smaller \
             --namespace"
        );
    }
}
