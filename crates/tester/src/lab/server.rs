//! Servers started from a profile: the DUT, or an authority such as NSD.

use std::fs::{DirBuilder, DirEntry, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use rustix::process::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cgroup::{self, Cores};
use super::owned::{self, OwnedDir};
use super::profile::{Profile, Rendered, Settings, ZONE_FILE, as_source};
use super::zone::{self, StoredZone, ZoneFile};
use super::{Blame, LabError};
use crate::machine::counters::{Counter, CounterReading, Layer};
use crate::machine::network::Network;
use crate::machine::process::{self, Memory, Resources};

/// Specification of a server and its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerSpec {
    /// Its profile.
    #[serde(with = "as_source")]
    pub profile: Profile,
    /// Path of the program, if it is not to be searched.
    pub program: Option<PathBuf>,
    /// Its network.
    pub network: Network,
    /// Addresses, prefix, CPUs.
    pub settings: Settings,
    /// The zone, for an authority.
    pub zone: Option<ZoneFile>,
}

/// Time limit of a start, the load time of a large zone included.
pub fn start_limit_ns(spec: &ServerSpec) -> Nanos {
    let records = spec.zone.as_ref().map_or(0, ZoneFile::records);
    START_LIMIT.saturating_add(spec.profile.zone.load_limit_ns(records))
}

/// Result of a probe: a query and the wait for its response.
///
/// A server can answer single queries and stop answering at the first burst (mtd64-ng does so in about a third of its
/// starts). A probe that sends a burst of some dozens of queries detects that as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The server works.
    Answered,
    /// Not ready yet; the text is the outcome: "no answer", "SERVFAIL".
    NotYet(String),
    /// This machine could not send the query, or could not open a socket for it: no fault of the server.
    NotAsked(String),
    /// The server will not answer in this start, for this reason. It is restarted at once.
    FellSilent(String),
    /// Probes are no longer possible, for this reason: the user interrupted, or the host that sends them is lost.
    Abandoned(String),
}

impl Probe {
    /// The user interrupted the wait.
    pub fn interrupted() -> Self {
        Self::Abandoned("interrupted".to_owned())
    }
}

/// A successful start of a server; silent starts before it are not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Start {
    /// Time from the launch of the program to its first correct answer, the load time of its zone included. Accurate to
    /// 10 ms, the interval between two probes.
    pub took_ns: Nanos,
    /// Its memory right after that answer; `None` if it is not readable.
    pub memory: Option<Memory>,
    /// Whether the zone file was written for this start; that time is not in `took_ns`. `false` if it existed from an
    /// earlier start or run, `None` if the server reads none.
    pub zone_written: Option<bool>,
}

impl Start {
    /// Combines it with the start of a server on another host: the longer time, and the sum of the memory.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let memory = self.memory.zip(other.memory);
        Self {
            took_ns: self.took_ns.max(other.took_ns),
            memory: memory.map(|(own, its)| Memory {
                rss_bytes: own.rss_bytes + its.rss_bytes,
                pss_bytes: own.pss_bytes + its.pss_bytes,
            }),
            zone_written: match (self.zone_written, other.zone_written) {
                (Some(own), Some(its)) => Some(own || its),
                (own, its) => own.or(its),
            },
        }
    }
}

/// A running server. Dropping it stops it and removes its files.
#[derive(Debug)]
pub struct Server {
    spec: ServerSpec,
    program: PathBuf,
    workdir: OwnedDir,
    /// The zone file, which is kept while the server may read it again.
    zone: Option<StoredZone>,
    child: Child,
    /// Dropped after the child: a cgroup can only be removed when its processes have ended.
    cores: Cores,
    /// When the child was launched.
    launched_ns: Nanos,
}

impl Server {
    /// Writes the configuration and starts the server, without waiting for its first answer.
    ///
    /// The server is killed when the calling thread ends (see [`Network::command`]).
    ///
    /// # Errors
    ///
    /// The program is missing, the address is in use, or it cannot be started.
    pub fn launch(spec: ServerSpec) -> Result<Self, LabError> {
        let program = spec.profile.program(spec.program.as_deref())?;
        check_address(&spec)?;
        let zone = spec.zone.as_ref().filter(|_| spec.profile.zone.file);
        let zone = zone.map(|zone| zone.stored(&zone::directory()));
        let zone = zone.transpose()?;
        let workdir = workdir(&spec.profile.name)?;
        let cores = Cores::keep_to(&spec.settings.cpus);
        if let Cores::Affinity(_) = cores {
            process::tool("taskset", "keeps servers to their CPUs")?;
        }
        let launched_ns = MonotonicClock.now();
        let child = launch(&spec, &program, &workdir.path, zone.as_ref(), &cores)?;
        Ok(Self {
            spec,
            program,
            workdir,
            zone,
            child,
            cores,
            launched_ns,
        })
    }

    /// Stops the server and launches it again with empty caches.
    ///
    /// # Errors
    ///
    /// It cannot be started; it is stopped then.
    pub fn relaunch(&mut self) -> Result<(), LabError> {
        self.stop();
        empty(&self.workdir.path)?;
        if let Some(zone) = &mut self.zone {
            zone.is_new = false;
        }
        let (workdir, zone) = (&self.workdir.path, self.zone.as_ref());
        self.launched_ns = MonotonicClock.now();
        self.child = launch(&self.spec, &self.program, workdir, zone, &self.cores)?;
        Ok(())
    }

    /// Returns its start, when it has just given its first correct answer.
    pub fn answered(&self) -> Start {
        Start {
            took_ns: MonotonicClock.now().saturating_sub(self.launched_ns),
            memory: process::memory(self.child.id()),
            zone_written: self.zone.as_ref().map(|zone| zone.is_new),
        }
    }

    /// Returns whether the server's process still runs, even if it does not answer.
    pub fn is_alive(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Exit status of the server, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Version of the server: "BIND 9.18.49".
    ///
    /// # Errors
    ///
    /// Its version command failed, or its output does not match the profile.
    pub fn version(&self) -> Result<String, LabError> {
        version(&self.spec.profile, &self.program)
    }

    /// Process ID of the server's first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resource use of all of the server's processes.
    pub fn resources(&self) -> Resources {
        process::resources(self.child.id())
    }

    /// How the server is restricted to its CPUs.
    pub fn cores(&self) -> &Cores {
        &self.cores
    }

    /// Path of the server's program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The command, the environment and the files of the server, with `{workdir}` in place of its directory, which
    /// differs in each start. Servers that run with the same configuration have equal values.
    ///
    /// # Errors
    ///
    /// None for a started server.
    pub fn rendered(&self) -> Result<Rendered, LabError> {
        let Self { spec, program, .. } = self;
        let workdir = Path::new("{workdir}");
        spec.profile.render(&spec.settings, program, workdir)
    }

    /// Number of datagrams that the server's sockets have lost at full receive buffers. In a namespace these are all
    /// losses since its creation, those of closed sockets included; on this host only those at the server's port since
    /// the server's start. Only the difference of two readings is meaningful.
    pub fn udp_drops(&self) -> u64 {
        let network = &self.spec.network;
        if !network.is_private() {
            return process::udp_drops(self.child.id(), self.spec.settings.port);
        }
        let counters = CounterReading::of(network, false).unwrap_or_default();
        let errors = [Layer::Udp, Layer::Udp6].map(|layer| Counter::of_host(layer, "RcvbufErrors"));
        errors.iter().map(|counter| counters.get(counter)).sum()
    }

    /// The last lines of the server's output, at most [`LOG_LINES`].
    pub fn log_tail(&self) -> String {
        log_tail(&self.workdir.path.join(LOG_FILE)).unwrap_or_default()
    }

    /// Stops the server with its own signal first, then sends SIGKILL to its remaining processes. A second call has no
    /// effect.
    pub fn stop(&mut self) {
        let tree = process::tree(self.child.id());
        if self.is_alive() {
            process::signal(self.child.id(), self.spec.profile.stop_signal());
            process::wait(&mut self.child, STOP_PATIENCE);
        } else {
            return;
        }
        process::kill_group(&mut self.child);
        // Processes that left its group are in the tree. They keep its port until they have ended.
        let others = &tree[1..];
        for pid in others {
            process::signal(*pid, Signal::KILL);
        }
        process::wait_until(STOP_PATIENCE, || {
            others.iter().all(|pid| process::has_ended(*pid))
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Version of the program of `profile`.
///
/// # Errors
///
/// Those of [`Server::version`].
pub fn version(profile: &Profile, program: &Path) -> Result<String, LabError> {
    let words = profile.version_command(program);
    let mut command = Command::new(&words[0]);
    let end = process::run(command.args(&words[1..]), VERSION_LIMIT)?;
    profile
        .version_in(&format!("{}\n{}", end.stdout, end.stderr))
        .ok_or_else(|| {
            Blame::Server.error(format!(
                "`{}` does not tell a version in the form that the profile expects",
                words.join(" ")
            ))
        })
}

/// The same; `None` for a server that prints none, or whose output does not match its profile. Such a server can be
/// measured.
///
/// # Errors
///
/// The program cannot be run.
pub fn known_version(profile: &Profile, program: &Path) -> Result<Option<String>, LabError> {
    match version(profile, program) {
        Ok(version) => Ok(Some(version)),
        Err(error) if error.blame == Blame::Server => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses an address in use: another server there would answer the probe.
fn check_address(spec: &ServerSpec) -> Result<(), LabError> {
    let address = SocketAddr::from((spec.settings.listen, spec.settings.port));
    let socket = spec.network.enter(|| UdpSocket::bind(address))?;
    socket.map(drop).map_err(Blame::Server.because(format!(
        "cannot listen on {address} on {}; stop the program that does, or use another port",
        spec.network
    )))
}

fn launch(
    spec: &ServerSpec,
    program: &Path,
    workdir: &Path,
    zone: Option<&StoredZone>,
    cores: &Cores,
) -> Result<Child, LabError> {
    let refused = |source| refused(workdir, source);
    let rendered = spec.profile.render(&spec.settings, program, workdir)?;
    for (name, contents) in &rendered.files {
        std::fs::write(workdir.join(name), contents).map_err(refused)?;
    }
    if let Some(zone) = zone {
        symlink(&zone.path, workdir.join(ZONE_FILE)).map_err(refused)?;
    }
    let log = File::create(workdir.join(LOG_FILE)).map_err(refused)?;
    let log_too = log.try_clone().map_err(refused)?;
    let first = &rendered.command[0];
    let first = process::find_program(first).unwrap_or_else(|| first.into());
    cores
        .command(&spec.network, &first, &spec.settings.cpus)
        .args(&rendered.command[1..])
        .envs(rendered.environment)
        .current_dir(workdir)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_too)
        // Ctrl-C at the terminal must reach only the Tester, which stops its servers itself.
        .process_group(0)
        .spawn()
        .map_err(Blame::Server.because(format!("cannot start {}", spec.profile.name)))
}

fn log_tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
}

/// Creates the directory for the files of one server, or of a process that starts one elsewhere.
fn workdir(name: &str) -> Result<OwnedDir, LabError> {
    let base = workdir_base();
    let mut private = DirBuilder::new();
    let private = private.mode(0o700).recursive(true).create(&base);
    let dir = private.and_then(|()| OwnedDir::make(&base, "", name));
    dir.map_err(|e| refused(&base, e))
}

fn empty(workdir: &Path) -> Result<(), LabError> {
    let remove = |entry: std::io::Result<DirEntry>| {
        let path = entry?.path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        }
    };
    let removed = workdir
        .read_dir()
        .and_then(|mut all| all.try_for_each(remove));
    removed.map_err(|e| refused(workdir, e))
}

fn refused(path: &Path, reason: std::io::Error) -> LabError {
    // A full disk is not a fault of the server: another server would fail as well.
    Blame::Machine.because(format!("cannot use {path:?} for a server's files"))(reason)
}

/// `/run/dns64bench` for root, otherwise a directory of the user in the directory for temporary files.
fn workdir_base() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        PathBuf::from("/run/dns64bench")
    } else {
        std::env::temp_dir().join(format!("dns64bench-{}", user.as_raw()))
    }
}

/// Removes the cgroups of servers of crashed Testers, and this user's working directories. Does nothing if there are
/// none.
pub(crate) fn sweep_abandoned() {
    cgroup::sweep_abandoned();
    owned::sweep(&workdir_base(), "");
}

/// Largest number of starts of a server that does not answer: mtd64-ng fails in about half of its starts, so four
/// starts all fail with a probability of 1/16.
pub const STARTS_MAX: u32 = 4;
/// Log lines in an error.
pub const LOG_LINES: usize = 12;
const LOG_TAIL_BYTES: u64 = 4096;
const LOG_FILE: &str = "log";
/// Time limit without a zone; the time to load a zone is added.
const START_LIMIT: Nanos = 10 * SECOND;
/// BIND takes a second to free a large cache.
const STOP_PATIENCE: Nanos = 5 * SECOND;
const VERSION_LIMIT: Nanos = 5 * SECOND;

#[cfg(test)]
pub(crate) mod tests;
