//! The system call bpf(2), as far as a loader of XDP programs needs it.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::c_int;

/// Commands of bpf(2): `enum bpf_cmd`.
const MAP_CREATE: c_int = 0;
const MAP_LOOKUP_ELEM: c_int = 1;
const MAP_UPDATE_ELEM: c_int = 2;
const MAP_DELETE_ELEM: c_int = 3;
const PROG_LOAD: c_int = 5;
const PROG_TEST_RUN: c_int = 10;
const MAP_FREEZE: c_int = 22;
const MAP_LOOKUP_BATCH: c_int = 24;
const LINK_CREATE: c_int = 28;

/// `BPF_PROG_TYPE_XDP` and `BPF_XDP` of `enum bpf_attach_type`.
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;

/// Minimum size of a frame in a test run: its link layer header.
pub(crate) const TEST_FRAME_BYTES_MIN: usize = 14;

/// Maximum size of the frame after a test run: a page and what a program may add.
const TEST_FRAME_BYTES_MAX: usize = 8192;

/// Size of names of maps and programs in the kernel, with the terminating zero.
const NAME_BYTES: usize = 16;

/// The parameters of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// `enum bpf_map_type`.
    pub(crate) kind: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
}

impl Shape {
    /// `BPF_MAP_TYPE_ARRAY`.
    pub(crate) const ARRAY: u32 = 2;
    /// `BPF_F_RDONLY_PROG`.
    pub(crate) const READ_ONLY: u32 = 1 << 7;

    /// Whether each processor has its own value (`BPF_MAP_TYPE_PERCPU_HASH`, `_PERCPU_ARRAY`, `_LRU_PERCPU_HASH`).
    pub(crate) fn is_per_cpu(&self) -> bool {
        [5, 6, 10].contains(&self.kind)
    }

    /// Length of one processor's value in a per-CPU map: a multiple of 8 octets.
    pub(crate) fn stride(&self) -> usize {
        (self.value_bytes as usize).next_multiple_of(8)
    }
}

/// A map in the kernel. Its parameters never change, so lengths can be checked before each call.
#[derive(Debug)]
pub(crate) struct RawMap {
    fd: OwnedFd,
    shape: Shape,
    /// Length of a value in system calls: in a per-CPU map, the values of all processors.
    pub(crate) value_bytes: usize,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; NAME_BYTES],
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

impl RawMap {
    /// Creates a map. `cpus`: number of possible processors of the system.
    pub(crate) fn create(name: &str, shape: Shape, cpus: usize) -> io::Result<Self> {
        let mut attr = MapCreate {
            kind: shape.kind,
            key_bytes: shape.key_bytes,
            value_bytes: shape.value_bytes,
            entries: shape.entries,
            flags: shape.flags,
            name: kernel_name(name),
            ..MapCreate::default()
        };
        // SAFETY: the attributes of this command hold no pointers.
        let fd = unsafe { bpf_fd(MAP_CREATE, &mut attr) }?;
        let value_bytes = if shape.is_per_cpu() {
            shape.stride() * cpus
        } else {
            shape.value_bytes as usize
        };
        Ok(Self {
            fd,
            shape,
            value_bytes,
        })
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn element(&self, key: &[u8]) -> MapElement {
        assert_eq!(key.len(), self.shape.key_bytes as usize, "length of a key");
        MapElement {
            map: number(&self.fd),
            key: key.as_ptr() as u64,
            ..MapElement::default()
        }
    }

    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes, "length of a value");
        let mut attr = self.element(key);
        attr.value = value.as_ptr() as u64;
        // SAFETY: the kernel reads a key and a value, whose lengths were checked above.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    pub(crate) fn get(&self, key: &[u8], value: &mut [u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes, "length of a value");
        let mut attr = self.element(key);
        attr.value = value.as_mut_ptr() as u64;
        // SAFETY: the kernel reads a key and writes a value, whose lengths were checked above.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) }.map(drop)
    }

    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        let mut attr = self.element(key);
        // SAFETY: the kernel reads a key, whose length was checked above.
        unsafe { bpf(MAP_DELETE_ELEM, &mut attr) }.map(drop)
    }

    /// Makes the map read-only for programs and processes; the verifier knows its values when it loads later programs.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let mut attr = number(&self.fd);
        // SAFETY: the attributes of this command hold no pointers.
        unsafe { bpf(MAP_FREEZE, &mut attr) }.map(drop)
    }

    /// Reads up to `count` entries from `cursor` on, which the last call updated; `None` starts. Returns the number of
    /// entries, and whether there may be more.
    pub(crate) fn batch(
        &self,
        cursor: &mut Option<Vec<u8>>,
        keys: &mut [u8],
        values: &mut [u8],
        count: u32,
    ) -> io::Result<(usize, bool)> {
        let n = count as usize;
        let key_bytes = self.shape.key_bytes as usize;
        assert_eq!(keys.len(), n * key_bytes, "length of keys");
        assert_eq!(values.len(), n * self.value_bytes, "length of values");
        // For arrays the cursor is a key, for hash maps the number of a bucket.
        let mut next = vec![0; key_bytes.max(size_of::<u64>())];
        let from = cursor.as_ref().map_or(0, |at| at.as_ptr() as u64);
        let mut attr = MapBatch {
            in_batch: from,
            out_batch: next.as_mut_ptr() as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count,
            map: number(&self.fd),
            ..MapBatch::default()
        };
        // SAFETY: the kernel writes at most `count` keys and values, whose lengths were checked above, and reads and
        // writes cursors of a key's length or four octets.
        let result = unsafe { bpf(MAP_LOOKUP_BATCH, &mut attr) };
        let more = match result {
            Ok(_) => true,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => false,
            Err(e) => return Err(e),
        };
        *cursor = Some(next);
        Ok((attr.count as usize, more))
    }
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    interface: u32,
    expected_attach_type: u32,
}

/// Loads an XDP program; instructions have eight octets each. The verifier writes its output to `log`, as far as it
/// fits; an empty `log` disables the output.
pub(crate) fn load_xdp(
    name: &str,
    code: &[[u8; 8]],
    license: &std::ffi::CStr,
    flags: u32,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut attr = ProgLoad {
        kind: PROGRAM_XDP,
        instructions: length(code.len()),
        code: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: length(log.len()),
        log: if log.is_empty() {
            0
        } else {
            log.as_mut_ptr() as u64
        },
        flags,
        name: kernel_name(name),
        expected_attach_type: ATTACH_XDP,
        ..ProgLoad::default()
    };
    // SAFETY: code, license and log outlive the call and have the stated lengths; the license ends with a zero. The
    // verifier ensures that the program is safe.
    unsafe { bpf_fd(PROG_LOAD, &mut attr) }
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches an XDP program to an interface until the link is closed.
pub(crate) fn attach_xdp(
    program: BorrowedFd<'_>,
    interface: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attr = LinkCreate {
        program: number(&program),
        interface,
        attach_type: ATTACH_XDP,
        flags,
    };
    // SAFETY: the attributes of this command hold no pointers.
    unsafe { bpf_fd(LINK_CREATE, &mut attr) }
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    in_bytes: u32,
    out_bytes: u32,
    input: u64,
    output: u64,
    repeat: u32,
    duration: u32,
    context_in_bytes: u32,
    context_out_bytes: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    unused: u32,
}

/// Runs a program on a frame `repeat` times; returns its return value and the duration of one run in nanoseconds. `out`
/// becomes the resulting frame.
pub(crate) fn run_xdp(
    program: BorrowedFd<'_>,
    frame: &[u8],
    out: &mut Vec<u8>,
    repeat: u32,
) -> io::Result<(u32, u32)> {
    out.clear();
    out.resize(TEST_FRAME_BYTES_MAX, 0);
    let mut attr = TestRun {
        program: number(&program),
        in_bytes: length(frame.len()),
        out_bytes: length(out.len()),
        input: frame.as_ptr() as u64,
        output: out.as_mut_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    // SAFETY: the kernel reads the frame and writes at most the length of `out`.
    unsafe { bpf(PROG_TEST_RUN, &mut attr) }?;
    out.truncate(attr.out_bytes as usize);
    Ok((attr.result, attr.duration))
}

/// Runs a program on `repeat` frames that the kernel copies from `frame`, as if they had arrived at this interface, and
/// executes the returned actions (Linux 5.18).
pub(crate) fn run_xdp_live(
    program: BorrowedFd<'_>,
    frame: &[u8],
    interface: u32,
    repeat: u32,
) -> io::Result<()> {
    // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context = [0, length(frame.len()), 0, interface, 0, 0];
    let mut attr = TestRun {
        program: number(&program),
        in_bytes: length(frame.len()),
        input: frame.as_ptr() as u64,
        context_in_bytes: length(size_of_val(&context)),
        context_in: context.as_ptr() as u64,
        repeat,
        flags: LIVE_FRAMES,
        ..TestRun::default()
    };
    // SAFETY: the kernel reads the frame and the context, and writes nothing.
    unsafe { bpf(PROG_TEST_RUN, &mut attr) }.map(drop)
}

/// # Safety
///
/// Pointers in `attr` are valid for what this command does with them.
unsafe fn bpf<T>(command: c_int, attr: &mut T) -> io::Result<c_int> {
    // SAFETY: the attributes have the stated length, and the kernel takes missing ones as zero; the caller guarantees
    // the rest.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    match c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
///
/// As for [`bpf`]; in addition, the command must return a descriptor.
unsafe fn bpf_fd<T>(command: c_int, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd: RawFd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just opened it for us (with O_CLOEXEC).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().unsigned_abs()
}

fn kernel_name(name: &str) -> [u8; NAME_BYTES] {
    let mut short = [0; NAME_BYTES];
    let allowed = |octet: &u8| octet.is_ascii_alphanumeric() || *octet == b'_' || *octet == b'.';
    for (to, from) in short[..NAME_BYTES - 1]
        .iter_mut()
        .zip(name.bytes().filter(allowed))
    {
        *to = from;
    }
    short
}

fn length(n: usize) -> u32 {
    u32::try_from(n).expect("programs, frames and logs are far below 4 GiB")
}
