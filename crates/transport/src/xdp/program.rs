//! Loads XDP programs into the kernel and attaches them to interfaces.
//!
//! An [`Object`] is clang's output for one C file: programs in sections named `xdp` (`xdp.frags` for those that accept
//! frames in several pieces), maps of the form `struct bpf_map_def` in the section `maps`, a section `license`.
//! Constants and global variables become maps named like their section (`.rodata`, `.bss`). Functions that are not
//! inlined are appended to the programs that call them. There is no BTF, so loading needs nothing but this process and
//! the kernel.
//!
//! This replaces aya (0.14, eleven more crates): beyond these some 500 lines, aya has relocation by BTF and other kinds
//! of programs, but no test run, on which the tests of these programs depend.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;

pub use super::error::XdpError;

use super::elf::{Elf, Section};
use super::{code, interface};
use crate::sys::bpf::{self, RawMap, Shape};

/// `struct bpf_map_def`: type, octets of a key, octets of a value, entries, flags.
const DEFINITION_BYTES: usize = 20;

/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_FRAGMENTS: u32 = 1 << 5;

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`.
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// Size of the buffer for the verifier's log.
const LOG_BYTES: usize = 16 << 20;

/// Octets at the end of the log that are reported.
const LOG_BYTES_TOLD: usize = 4000;

/// Entries of a map that one call reads.
const BATCH: u32 = 1024;

/// Attachment point of an XDP program in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel processes a frame.
    Native,
    /// After the driver: works with any driver, but slower.
    Generic,
    /// In the driver if supported, after it otherwise.
    Auto,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "native" => Ok(Self::Native),
            "generic" => Ok(Self::Generic),
            "auto" => Ok(Self::Auto),
            _ => Err("XDP mode is native, generic or auto"),
        }
    }
}

/// The action for a frame, returned by a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The program failed; the frame is dropped.
    Aborted,
    /// The frame is dropped.
    Drop,
    /// The frame is passed to the kernel.
    Pass,
    /// The frame is sent by the interface that received it.
    Tx,
    /// The frame goes to another interface, processor or socket.
    Redirect,
    /// An action unknown to Linux: treated as [`Action::Aborted`].
    Unknown(u32),
}

impl From<u32> for Action {
    fn from(code: u32) -> Self {
        match code {
            0 => Self::Aborted,
            1 => Self::Drop,
            2 => Self::Pass,
            3 => Self::Tx,
            4 => Self::Redirect,
            other => Self::Unknown(other),
        }
    }
}

/// The programs and maps of one object. They stay in the kernel until this, its attachments and all its maps are
/// dropped, or the process ends.
#[derive(Debug)]
pub struct Object {
    programs: BTreeMap<String, OwnedFd>,
    maps: BTreeMap<String, Map>,
}

impl Object {
    /// Creates the maps of an object and loads its programs.
    ///
    /// # Errors
    ///
    /// The octets are not such an object; the kernel or its verifier refuses: the end of the verifier's log is in the
    /// error.
    pub fn load(octets: &[u8]) -> Result<Self, XdpError> {
        Self::load_sized(octets, &[])
    }

    /// Like [`Self::load`], with another number of entries for the maps of these names.
    ///
    /// # Errors
    ///
    /// As for [`Self::load`]; there is no such map.
    pub fn load_sized(octets: &[u8], entries: &[(&str, u32)]) -> Result<Self, XdpError> {
        let elf = Elf::read(octets)?;
        let cpus = interface::possible_cpus()?;
        let mut maps = defined(&elf, entries, cpus)?;
        for section in elf.sections.iter().filter(|section| is_variables(section)) {
            maps.insert(section.name.to_owned(), variables(section, cpus)?);
        }
        let license = match elf.section("license") {
            Some((_, section)) => CStr::from_bytes_until_nul(section.data).unwrap_or(c""),
            None => c"",
        };
        let mut programs = BTreeMap::new();
        for symbol in elf.symbols.iter().filter(|symbol| symbol.is_function) {
            let section = elf.sections.get(symbol.section);
            let Some(section) = section.filter(|section| is_entry(section)) else {
                continue;
            };
            let number = |name: &str| Some(maps.get(name)?.descriptor());
            let code = code::assemble(&elf, symbol, &number)?;
            let flags = if section.name.starts_with("xdp.frags") {
                HAS_FRAGMENTS
            } else {
                0
            };
            let program = load(symbol.name, &code, license, flags)?;
            programs.insert(symbol.name.to_owned(), program);
        }
        Ok(Self { programs, maps })
    }

    fn program(&self, name: &str) -> Result<&OwnedFd, XdpError> {
        self.programs.get(name).ok_or_else(|| XdpError::Missing {
            kind: "program",
            name: name.to_owned(),
        })
    }

    /// Attaches a program to an interface of the calling thread's network namespace, until the result is dropped or
    /// this process ends. See [`allow`](super::allow) for interfaces that must not be used without force.
    ///
    /// # Errors
    ///
    /// There is no such program or interface; another program is attached there; the driver does not support this mode.
    pub fn attach(
        &mut self,
        program: &str,
        interface: &str,
        mode: Mode,
    ) -> Result<Attached, XdpError> {
        let program = self.program(program)?;
        let failed = |reason| XdpError::Attach {
            interface: interface.to_owned(),
            reason,
        };
        let index = interface::index(interface)?;
        let attach = |mode, flags| {
            bpf::attach_xdp(program.as_fd(), index, flags).map(|link| Attached {
                _link: link,
                interface: interface.to_owned(),
                mode,
            })
        };
        let native = || attach(Mode::Native, NATIVE);
        let generic = || attach(Mode::Generic, GENERIC);
        match mode {
            Mode::Native => native(),
            Mode::Generic => generic(),
            Mode::Auto => native().or_else(|error| match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::ENODEV) => Err(error),
                _ => generic(),
            }),
        }
        .map_err(failed)
    }

    /// The map of this name; constants and global variables of the program are in maps named like their section.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn map(&self, name: &str) -> Result<Map, XdpError> {
        let map = self.maps.get(name).cloned();
        map.ok_or_else(|| XdpError::Missing {
            kind: "map",
            name: name.to_owned(),
        })
    }

    /// Runs a program on a frame without any interface (`BPF_PROG_TEST_RUN`); `out` becomes the resulting frame.
    ///
    /// # Errors
    ///
    /// There is no such program; the kernel refuses, as it does frames of less than 14 octets.
    pub fn run(&self, program: &str, frame: &[u8], out: &mut Vec<u8>) -> Result<Action, XdpError> {
        self.time(program, frame, out, 1).map(|(action, _)| action)
    }

    /// Runs a program `repeat` times; also returns the duration of one run in nanoseconds. The frame is not reset
    /// between runs.
    ///
    /// # Errors
    ///
    /// As for [`Self::run`].
    pub fn time(
        &self,
        program: &str,
        frame: &[u8],
        out: &mut Vec<u8>,
        repeat: u32,
    ) -> Result<(Action, u32), XdpError> {
        let loaded = self.program(program)?;
        let ran = if frame.len() < bpf::TEST_FRAME_BYTES_MIN {
            Err(io::Error::from(io::ErrorKind::InvalidInput))
        } else {
            bpf::run_xdp(loaded.as_fd(), frame, out, repeat)
        };
        let (code, duration_ns) = ran.map_err(|reason| XdpError::Run {
            name: program.to_owned(),
            reason,
        })?;
        Ok((Action::from(code), duration_ns))
    }

    /// Runs a program on copies that the kernel makes of one frame, as if they had arrived at an interface of the
    /// calling thread's network namespace: a frame for which it returns [`Action::Tx`] is sent there. A frame that the
    /// kernel reuses keeps its changes.
    ///
    /// # Errors
    ///
    /// There is no such program or interface; the kernel refuses, as before Linux 5.18.
    pub fn run_live(
        &self,
        program: &str,
        frame: &[u8],
        interface: &str,
        repeat: u32,
    ) -> Result<(), XdpError> {
        let loaded = self.program(program)?;
        let index = interface::index(interface)?;
        bpf::run_xdp_live(loaded.as_fd(), frame, index, repeat).map_err(|reason| XdpError::Run {
            name: program.to_owned(),
            reason,
        })
    }
}

/// Whether programs start in this section.
fn is_entry(section: &Section<'_>) -> bool {
    section.is_code && section.name.split(['.', '/']).next() == Some("xdp")
}

/// Whether this section holds constants or global variables.
fn is_variables(section: &Section<'_>) -> bool {
    let kinds = [".rodata", ".data", ".bss"];
    section.is_memory
        && section.bytes > 0
        && kinds.iter().any(|kind| section.name.starts_with(kind))
}

/// Creates the maps of the section `maps`.
fn defined(
    elf: &Elf<'_>,
    entries: &[(&str, u32)],
    cpus: usize,
) -> Result<BTreeMap<String, Map>, XdpError> {
    let mut maps = BTreeMap::new();
    if let Some((index, section)) = elf.section("maps") {
        for symbol in elf
            .symbols
            .iter()
            .filter(|s| s.section == index && s.bytes > 0)
        {
            let definition = section.data.get(symbol.value..).and_then(shape);
            let mut shape = definition.ok_or_else(|| XdpError::Object {
                reason: format!("map {} is cut short", symbol.name).into(),
            })?;
            if let Some((_, entries)) = entries.iter().find(|(name, _)| *name == symbol.name) {
                shape.entries = *entries;
            }
            maps.insert(
                symbol.name.to_owned(),
                Map::create(symbol.name, shape, cpus)?,
            );
        }
    }
    match entries.iter().find(|(name, _)| !maps.contains_key(*name)) {
        None => Ok(maps),
        Some((name, _)) => Err(XdpError::Missing {
            kind: "map",
            name: (*name).to_owned(),
        }),
    }
}

fn shape(definition: &[u8]) -> Option<Shape> {
    let (words, _) = definition.get(..DEFINITION_BYTES)?.as_chunks::<4>();
    let word = |i: usize| u32::from_le_bytes(words[i]);
    Some(Shape {
        kind: word(0),
        key_bytes: word(1),
        value_bytes: word(2),
        entries: word(3),
        flags: word(4),
    })
}

/// A map of one entry that holds a section of the object.
fn variables(section: &Section<'_>, cpus: usize) -> Result<Map, XdpError> {
    let is_constant = section.name.starts_with(".rodata");
    let shape = Shape {
        kind: Shape::ARRAY,
        key_bytes: 4,
        value_bytes: u32::try_from(section.bytes).unwrap_or(u32::MAX),
        entries: 1,
        flags: if is_constant { Shape::READ_ONLY } else { 0 },
    };
    let map = Map::create(section.name, shape, cpus)?;
    if !section.data.is_empty() {
        map.set(&[0; 4], section.data)?;
    }
    if is_constant {
        map.map.freeze().map_err(|e| map.failed("freeze", e))?;
    }
    Ok(map)
}

/// Loads a program; if the verifier refuses it, repeats the load to get the log.
fn load(name: &str, code: &[[u8; 8]], license: &CStr, flags: u32) -> Result<OwnedFd, XdpError> {
    bpf::load_xdp(name, code, license, flags, &mut []).or_else(|first| {
        let mut log = vec![0; LOG_BYTES];
        bpf::load_xdp(name, code, license, flags, &mut log).map_err(|_| {
            let said = log.split(|octet| *octet == 0).next().unwrap_or_default();
            let told = &said[said.len().saturating_sub(LOG_BYTES_TOLD)..];
            XdpError::Load {
                name: name.to_owned(),
                reason: first,
                log: String::from_utf8_lossy(told).into_owned(),
            }
        })
    })
}

/// A program attached to an interface, until this is dropped or the process ends (`bpf_link`).
#[derive(Debug)]
pub struct Attached {
    _link: OwnedFd,
    interface: String,
    mode: Mode,
}

impl Attached {
    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Mode of the program: never [`Mode::Auto`].
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// A map of a program, with keys and values as octets. Clones share the map.
///
/// Keys and values must have the lengths of the map's definition; otherwise calls panic. In a per-CPU map, a value
/// consists of the values of all possible processors, each padded to whole words.
#[derive(Clone, Debug)]
pub struct Map {
    name: Arc<str>,
    map: Arc<RawMap>,
}

impl Map {
    fn create(name: &str, shape: Shape, cpus: usize) -> Result<Self, XdpError> {
        let map = RawMap::create(name, shape, cpus).map_err(|reason| XdpError::Map {
            action: "create",
            name: name.to_owned(),
            reason,
        })?;
        Ok(Self {
            name: name.into(),
            map: map.into(),
        })
    }

    fn failed(&self, action: &'static str, reason: io::Error) -> XdpError {
        XdpError::Map {
            action,
            name: self.name.to_string(),
            reason,
        }
    }

    fn descriptor(&self) -> u32 {
        use std::os::fd::AsRawFd;
        self.map.fd().as_raw_fd().unsigned_abs()
    }

    /// Maximum number of entries.
    pub fn entries(&self) -> u32 {
        self.map.shape().entries
    }

    /// Length of a value in octets; in a per-CPU map, that of one processor's value.
    pub fn value_bytes(&self) -> usize {
        self.map.shape().value_bytes as usize
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// The map is full (`E2BIG`), or has no such key (an array).
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), XdpError> {
        self.map
            .set(key, value)
            .map_err(|e| self.failed("write", e))
    }

    /// Reads the value of a key; returns whether the key exists.
    ///
    /// # Errors
    ///
    /// The map cannot be read by system calls.
    pub fn get(&self, key: &[u8], value: &mut [u8]) -> Result<bool, XdpError> {
        self.found("read", self.map.get(key, value))
    }

    /// Removes a key; returns whether it existed.
    ///
    /// # Errors
    ///
    /// This kind of map does not support removal.
    pub fn remove(&self, key: &[u8]) -> Result<bool, XdpError> {
        self.found("write", self.map.remove(key))
    }

    fn found(&self, action: &'static str, result: io::Result<()>) -> Result<bool, XdpError> {
        match result {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(self.failed(action, e)),
        }
    }

    /// Passes the values of a key to `each`, one per possible processor, in their order; none if there is no such key.
    ///
    /// # Errors
    ///
    /// The map cannot be read by system calls.
    pub fn per_cpu(&self, key: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), XdpError> {
        let mut values = vec![0; self.map.value_bytes];
        if self.get(key, &mut values)? {
            for value in values.chunks(self.map.shape().stride()) {
                each(&value[..self.value_bytes()]);
            }
        }
        Ok(())
    }

    /// Passes all keys and their values to `each`, many with each system call (`BPF_MAP_LOOKUP_BATCH`). Concurrently
    /// added or removed entries may or may not be included.
    ///
    /// # Errors
    ///
    /// The map cannot be read by system calls, or not in batches.
    pub fn each(&self, mut each: impl FnMut(&[u8], &[u8])) -> Result<(), XdpError> {
        let key_bytes = self.map.shape().key_bytes as usize;
        let mut count = BATCH.min(self.entries().max(1));
        let mut cursor = None;
        loop {
            let mut keys = vec![0; count as usize * key_bytes];
            let mut values = vec![0; count as usize * self.map.value_bytes];
            let before = cursor.clone();
            match self.map.batch(&mut cursor, &mut keys, &mut values, count) {
                Ok((got, more)) => {
                    let keys = keys.chunks(key_bytes).take(got);
                    for (key, value) in keys.zip(values.chunks(self.map.value_bytes)) {
                        each(key, value);
                    }
                    if !more {
                        return Ok(());
                    }
                }
                // One bucket of a hash map holds more entries than the batch.
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) && count < self.entries() => {
                    cursor = before;
                    count = count.saturating_mul(2).min(self.entries());
                }
                Err(e) => return Err(self.failed("read", e)),
            }
        }
    }
}
