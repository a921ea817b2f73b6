//! The journal of a campaign: a file of sealed lines that are only appended.
//!
//! ```text
//! DIR/journal.jsonl   one record a line, each on the disk before the campaign continues
//! DIR/plan.toml       a copy of the plan, for people
//! DIR/pid             the process ID of the active process
//! ```
//!
//! `docs/journal.md` describes the format.

mod lines;
mod reading;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use rustix::fs::{FlockOperation, flock};

use super::record::{FORMAT, Line, Record};
use crate::hash::sha256_hex;
use crate::lab::{Blame, LabError, LabKind};
use crate::machine::process;
pub use reading::{Reading, Torn};

/// Name of the journal in the directory of a campaign.
pub const JOURNAL_FILE: &str = "journal.jsonl";
/// Name of the copy of the plan beside it.
pub const PLAN_FILE: &str = "plan.toml";
const PID_FILE: &str = "pid";

/// Contents of the first record of a campaign.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Program and version.
    pub tester: String,
    /// The text of the plan.
    pub plan: String,
    /// Name of the plan's file, for messages.
    pub plan_origin: String,
    /// Command line.
    pub command: Vec<String>,
    /// Selected kind of lab, if one is needed.
    pub lab: Option<LabKind>,
}

/// A journal open for writing. It is locked against other processes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    octets: u64,
    next: u64,
    seal: String,
    /// Whether a failed write could not be removed: the file is longer than `octets`.
    overhangs: bool,
    /// File with the number of this process, once it exists.
    pid_path: Option<PathBuf>,
}

impl Journal {
    /// Begins a campaign in `dir`, which is created if necessary. The journal appears together with its first line, or
    /// not at all.
    ///
    /// # Errors
    ///
    /// The directory has a campaign or another plan already, or the files cannot be written.
    pub fn create(dir: &Path, beginning: Beginning) -> Result<(Self, Line), LabError> {
        fs::create_dir_all(dir).map_err(|reason| {
            let dir = dir.display();
            Blame::Machine.error(format!(
                "cannot make directory {dir}: {reason}; choose another with --output"
            ))
        })?;
        let path = dir.join(JOURNAL_FILE);
        if path.exists() {
            return Err(exists(dir));
        }
        keep_plan(dir, &beginning.plan, |path, _| {
            Blame::Request.error(format!(
                "{} is a different plan; choose another directory for the campaign",
                path.display()
            ))
        })?;
        let draft = draft_of(&path);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&draft)
            .map_err(failed("write", &draft))?;
        lock(&file, dir, &draft)?;
        file.set_len(0).map_err(failed("write", &draft))?;
        let mut journal = Self {
            path: draft.clone(),
            file,
            octets: 0,
            next: 0,
            seal: String::new(),
            overhangs: false,
            pid_path: None,
        };
        let begun = journal.line(Record::Campaign {
            format: FORMAT,
            tester: beginning.tester,
            plan_sha256: sha256_hex(beginning.plan.as_bytes()),
            plan: beginning.plan,
            plan_origin: beginning.plan_origin,
            command: beginning.command,
            lab: beginning.lab,
        });
        let begun = journal.write(&begun).map_err(failed("write", &path));
        // Unlike a rename, a link fails if another process was faster.
        let linked = begun.and_then(|line| match fs::hard_link(&draft, &path) {
            Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists => Err(exists(dir)),
            linked => linked.map(|()| line).map_err(failed("write", &path)),
        });
        fs::remove_file(&draft).map_err(failed("remove", &draft))?;
        let line = linked?;
        journal.path = path;
        sync_directory(dir)?;
        sync_directory(&dir.join(".."))?;
        journal.leave_pid(dir);
        Ok((journal, line))
    }

    /// Opens the campaign in `dir` to continue it. Returns the journal, all its lines, and the number of octets of an
    /// incomplete last line that were cut off.
    ///
    /// # Errors
    ///
    /// There is no campaign, another process uses it, its plan was changed, or its journal has another format or is
    /// damaged before the last line.
    pub fn resume(dir: &Path) -> Result<(Self, Vec<Line>, u64), LabError> {
        let path = dir.join(JOURNAL_FILE);
        let mut file = opened(dir, &path, OpenOptions::new().read(true).append(true))?;
        lock(&file, dir, &path)?;
        let reading = parse_file(&mut file, &path)?;
        let torn_octets = reading.torn.map_or(0, |torn| torn.octets);
        if let Some(Record::Campaign {
            plan, plan_sha256, ..
        }) = reading.lines.first().map(|line| &line.record)
        {
            keep_plan(dir, plan, |path, text| {
                Blame::Request.error(format!(
                    "{} was changed: its SHA-256 is {}, that of the plan of the campaign is {plan_sha256}; remove it, and \
                     `dns64bench resume` restores it from the journal, or run it in another directory",
                    path.display(),
                    sha256_hex(text)
                ))
            })?;
        }
        if torn_octets > 0 {
            file.set_len(reading.octets)
                .and_then(|()| file.sync_data())
                .map_err(failed("write", &path))?;
        }
        let mut journal = Self {
            path,
            file,
            octets: reading.octets,
            next: reading.lines.len() as u64,
            seal: reading.seal,
            overhangs: false,
            pid_path: None,
        };
        journal.leave_pid(dir);
        Ok((journal, reading.lines, torn_octets))
    }

    /// Appends a record and returns its line as a reader will see it. The line is on the disk when this returns; after
    /// an error the journal is unchanged.
    ///
    /// # Errors
    ///
    /// The disk is full or broken.
    pub fn append(&mut self, record: Record) -> Result<Line, LabError> {
        let line = self.line(record);
        let kind: &str = (&line.record).into();
        self.write(&line).map_err(|reason| {
            Blame::Machine.error(format!(
                "cannot write line {} ({kind}) of {}: {reason}; this record is lost, all earlier ones are safe: free space \
                 on the disk and continue with `dns64bench resume`",
                line.number + 1,
                self.path.display()
            ))
        })
    }

    fn line(&self, record: Record) -> Line {
        Line {
            number: self.next,
            at_unix_ms: unix_ms(),
            record,
        }
    }

    fn write(&mut self, line: &Line) -> io::Result<Line> {
        let (octets, seal) = lines::sealed(&self.seal, line)?;
        // An unreadable line must not be written: a number without a JSON form would make the campaign unusable at the
        // next start.
        let read_back = serde_json::from_slice(&octets)?;
        if self.overhangs {
            self.take_back()?;
        }
        let written = self
            .file
            .write_all(&octets)
            .and_then(|()| self.file.sync_data());
        if let Err(reason) = written {
            self.overhangs = true;
            // The next append or a resume tries again: the partial line has no line feed.
            let _ = self.take_back();
            return Err(reason);
        }
        self.octets += octets.len() as u64;
        self.next += 1;
        self.seal = seal;
        Ok(read_back)
    }

    fn take_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.octets)?;
        self.overhangs = false;
        Ok(())
    }

    /// Writes the pid file, which only serves the error message of a second process: the lock refuses it in any case.
    fn leave_pid(&mut self, dir: &Path) {
        let path = dir.join(PID_FILE);
        let written = fs::write(&path, format!("{}\n", std::process::id()));
        self.pid_path = written.is_ok().then_some(path);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(path) = &self.pid_path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Reads the journal of the campaign in `dir` without a lock: for reports, even while it is being written.
///
/// # Errors
///
/// There is no campaign, a line was changed ([`Blame::Record`]), or the format is another one.
pub fn read(dir: &Path) -> Result<Reading, LabError> {
    let path = dir.join(JOURNAL_FILE);
    let mut file = opened(dir, &path, OpenOptions::new().read(true))?;
    parse_file(&mut file, &path)
}

/// Current time of the real-time clock, in milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let now = MonotonicClock.now().cast_signed() + MonotonicClock.realtime_offset();
    u64::try_from(now / 1_000_000).unwrap_or(0)
}

fn opened(dir: &Path, path: &Path, how: &OpenOptions) -> Result<File, LabError> {
    how.open(path).map_err(|reason| match reason.kind() {
        io::ErrorKind::NotFound => Blame::Machine.error(format!(
            "{} is not the directory of a campaign: it has no journal.jsonl; start a campaign with `dns64bench run`, or \
             give its directory",
            dir.display()
        )),
        _ => failed("open", path)(reason),
    })
}

fn parse_file(file: &mut File, path: &Path) -> Result<Reading, LabError> {
    let mut octets = Vec::new();
    file.read_to_end(&mut octets)
        .map_err(failed("read", path))?;
    lines::parse(path, &octets)
}

fn lock(file: &File, dir: &Path, path: &Path) -> Result<(), LabError> {
    let mut locked = Ok(());
    process::wait_until(LOCK_PATIENCE, || {
        locked = flock(file, FlockOperation::NonBlockingLockExclusive);
        locked != Err(rustix::io::Errno::WOULDBLOCK)
    });
    match locked {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let pid = fs::read_to_string(dir.join(PID_FILE)).ok();
            let pid = pid.and_then(|text| text.trim().parse::<u32>().ok());
            let by = pid.map_or_else(
                || "another process".to_owned(),
                |pid| format!("process {pid}"),
            );
            Err(Blame::Machine.error(format!(
                "{} is in use by {by}; wait for its end, or stop it and continue with `dns64bench resume`",
                path.display()
            )))
        }
        Err(reason) => Err(failed("lock", path)(reason.into())),
    }
}

/// How long to wait for a lock: programs that are being started hold an inherited lock from fork to exec, even if their
/// parent has released it.
const LOCK_PATIENCE: Nanos = SECOND;

/// Writes the copy of the plan, unless it exists. `another` makes the error if the file has a different text.
fn keep_plan(
    dir: &Path,
    plan: &str,
    another: impl FnOnce(&Path, &[u8]) -> LabError,
) -> Result<(), LabError> {
    let path = dir.join(PLAN_FILE);
    match fs::read(&path) {
        Ok(text) if text == plan.as_bytes() => return Ok(()),
        Ok(text) => return Err(another(&path, &text)),
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => {}
        Err(reason) => return Err(failed("read", &path)(reason)),
    }
    let draft = draft_of(&path);
    let write = || {
        let mut file = File::create(&draft)?;
        file.write_all(plan.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    };
    write().map_err(failed("write", &path))
}

/// Name beside `path` for an incomplete file, unique for each process.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// Syncs a directory: a file is durable only after its name is.
fn sync_directory(dir: &Path) -> Result<(), LabError> {
    File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(failed("write", dir))
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let cannot = format!("cannot {what} {}", path.display());
    move |reason| Blame::Machine.error(format!("{cannot}: {reason}"))
}

/// There is a campaign in a directory already.
pub(super) fn exists(dir: &Path) -> LabError {
    Blame::Request.error(format!(
        "{} holds a campaign already; continue it with `dns64bench resume`, or choose another directory",
        dir.display()
    ))
}

#[cfg(test)]
pub(crate) mod tests;
