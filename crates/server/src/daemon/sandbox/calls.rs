//! The allowed system calls of a running server; all others fail with EPERM.
//!
//! An allow list, not a deny list: each call that is not on it, including future ones, is one less way into the kernel.
//! It contains the calls that the Rust library, tokio, glibc and the relay were observed to make after the start, or
//! document for rarer paths. A missing call fails like any refused call, and does not kill the process.

use std::collections::BTreeMap;

use libc::{
    AF_INET, AF_INET6, AF_UNIX, CLONE_THREAD, EPERM, FIONBIO, FIONREAD, O_ACCMODE, O_CREAT,
    O_TRUNC, PR_SET_NAME, PROT_EXEC, c_int,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Calls that are allowed with any arguments.
pub(super) const ALLOWED: &[libc::c_long] = &[
    // Sockets: connections, and a new port to replace an old one. Without listen(2).
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Open descriptors, and waiting for them.
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    // The control socket at shutdown; a message that is too long for a single datagram to journald.
    libc::SYS_memfd_create,
    libc::SYS_unlinkat,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads and their end; see `conditions` for clone(2). `NO_CLONE3` handles clone3(2).
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_membarrier,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Time, random numbers, and own IDs.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_nanosleep,
];

/// Older forms of some of these calls that this processor still has.
#[cfg(target_arch = "x86_64")]
pub(super) const OLDER: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER: &[libc::c_long] = &[];

/// Commands of bpf(2) that read and write an entry of an open map, that of the cache in the driver. The kernel allows
/// them without privileges. They cannot create programs or maps.
const MAP_ENTRIES: [c_int; 2] = [1, 2];

/// Restricts the calling thread and those that it starts; `with_maps`: entries of BPF maps may be read and written.
///
/// # Errors
///
/// The kernel has no filter, or the processor is not supported.
pub(super) fn restrict(with_maps: bool) -> Result<(), Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // The second filter forbids to install another.
    apply_filter(&no_clone3(arch)?)?;
    apply_filter(&allowed_only(arch, with_maps)?)
}

fn allowed_only(arch: TargetArch, with_maps: bool) -> Result<BpfProgram, BackendError> {
    let always = ALLOWED.iter().chain(OLDER).map(|&call| (call, Vec::new()));
    let filter = SeccompFilter::new(
        always.chain(conditions(with_maps)?).collect(),
        SeccompAction::Errno(EPERM.unsigned_abs()),
        SeccompAction::Allow,
        arch,
    )?;
    filter.try_into()
}

/// The flags of clone3(2) are in memory, which filters cannot read. If the call does not exist, glibc uses clone(2).
fn no_clone3(arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let filter = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
        arch,
    )?;
    filter.try_into()
}

/// Calls that are allowed with certain arguments only: one of the rules must match.
pub(super) fn conditions(
    with_maps: bool,
) -> Result<Vec<(libc::c_long, Vec<SeccompRule>)>, BackendError> {
    let equal = |argument, value: c_int| {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(argument, Dword, Eq, value)
    };
    let without = |argument, bits: c_int| {
        let bits = u64::from(bits.cast_unsigned());
        SeccompCondition::new(argument, Dword, MaskedEq(bits), 0)
    };
    let any_of = |argument, values: &[c_int]| -> Result<Vec<SeccompRule>, BackendError> {
        let rule = |&value: &c_int| SeccompRule::new(vec![equal(argument, value)?]);
        values.iter().map(rule).collect()
    };
    let only = |condition: SeccompCondition| Ok(vec![SeccompRule::new(vec![condition])?]);
    let own_pid = rustix::process::getpid().as_raw_nonzero().get();
    let thread = u64::from(CLONE_THREAD.cast_unsigned());
    let requests = [FIONBIO, FIONREAD].map(|request| SeccompCondition::new(1, Qword, Eq, request));
    let requests = requests
        .into_iter()
        .map(|request| SeccompRule::new(vec![request?]));
    let maps = match with_maps {
        true => Some((libc::SYS_bpf, any_of(0, &MAP_ENTRIES)?)),
        false => None,
    };
    let mut conditions = vec![
        // Threads, but no processes.
        (
            libc::SYS_clone,
            only(SeccompCondition::new(0, Dword, MaskedEq(thread), thread)?)?,
        ),
        // Files may be opened only for reading. Landlock restricts their paths.
        (
            libc::SYS_openat,
            only(without(2, O_ACCMODE | O_CREAT | O_TRUNC)?)?,
        ),
        // Memory that was written never becomes code.
        (libc::SYS_mmap, only(without(2, PROT_EXEC)?)?),
        (libc::SYS_mprotect, only(without(2, PROT_EXEC)?)?),
        (libc::SYS_socket, any_of(0, &[AF_UNIX, AF_INET, AF_INET6])?),
        // Delivers signals to the thread that waits for them.
        (libc::SYS_socketpair, any_of(0, &[AF_UNIX])?),
        // Without TIOCSTI, which injects input into a terminal.
        (
            libc::SYS_ioctl,
            requests.collect::<Result<Vec<_>, BackendError>>()?,
        ),
        // Names of threads.
        (libc::SYS_prctl, any_of(0, &[PR_SET_NAME])?),
        // Limits of the process.
        (libc::SYS_prlimit64, any_of(0, &[0, own_pid])?),
        // abort(3), and the end by a second SIGTERM.
        (libc::SYS_tgkill, any_of(0, &[own_pid])?),
    ];
    conditions.extend(maps);
    Ok(conditions)
}
