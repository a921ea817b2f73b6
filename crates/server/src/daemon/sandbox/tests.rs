//! Each test restricts a thread of its own, which ends with the test.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::process::Command;
use std::thread;

use dns64_transport::xdp::program::Object;
use rustix::io::Errno;

use super::*;
use crate::config;

/// The result of `check` in a restricted thread.
fn restricted<T: Send>(restrict: impl FnOnce() + Send, check: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            restrict();
            check()
        });
        thread.join().unwrap()
    })
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn restricted_thread_creates_threads_and_sockets_but_no_processes() {
    let denied = Some(Errno::PERM.raw_os_error());
    restricted(
        || restrict_calls(false).unwrap(),
        || {
            assert_eq!(errno(Command::new("/bin/false").spawn()), denied);
            assert_eq!(exec(), denied);
            assert_eq!(thread::spawn(|| 5).join().unwrap(), 5);
            let socket = std::net::UdpSocket::bind("[::1]:0").unwrap();
            socket.connect(socket.local_addr().unwrap()).unwrap();
            socket.send(b"x").unwrap();
            assert_eq!(socket.recv(&mut [0; 9]).unwrap(), 1);
            let netlink = rustix::net::socket(
                rustix::net::AddressFamily::NETLINK,
                rustix::net::SocketType::RAW,
                None,
            );
            assert_eq!(netlink.unwrap_err(), Errno::PERM);
        },
    );
}

#[test]
fn restricted_thread_reads_files_and_changes_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    let own = rustix::process::getuid().as_raw();
    let denied = Some(Errno::PERM.raw_os_error());
    restricted(
        || restrict_calls(false).unwrap(),
        || {
            assert_eq!(fs::read_to_string(&file).unwrap(), "text");
            assert_eq!(errno(fs::write(&file, "other")), denied);
            assert_eq!(errno(fs::File::create(dir.path().join("new"))), denied);
            assert_eq!(errno(chown(&file, Some(own), None)), denied);
            let permissions = file.metadata().unwrap().permissions();
            assert_eq!(errno(fs::set_permissions(&file, permissions)), denied);
            assert_eq!(errno(fs::rename(&file, dir.path().join("new"))), denied);
            assert_eq!(errno(fs::remove_file(&file)), None);
        },
    );
}

/// The calls that attackers need next, and the reason for each.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
/// Tries to become another program; returns the error. That of `Command` would leave SIGPIPE deadly for the tests beside it.
fn exec() -> Option<i32> {
    let program = c"/bin/false";
    nix::unistd::execv(program, &[program])
        .err()
        .map(|error| error as i32)
}

#[test]
fn no_dangerous_call_is_on_the_list() {
    let dangerous = [
        // Running programs, controlling other processes.
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_kill,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        libc::SYS_tkill,
        // Gaining privileges.
        libc::SYS_capset,
        libc::SYS_setgid,
        libc::SYS_setgroups,
        libc::SYS_setns,
        libc::SYS_setresuid,
        libc::SYS_setuid,
        libc::SYS_unshare,
        // Files and mounts.
        libc::SYS_chroot,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_linkat,
        libc::SYS_mount,
        libc::SYS_open_by_handle_at,
        libc::SYS_openat2,
        libc::SYS_pivot_root,
        libc::SYS_renameat2,
        libc::SYS_symlinkat,
        libc::SYS_umount2,
        // Parts of the kernel with the most frequent vulnerabilities.
        libc::SYS_add_key,
        libc::SYS_bpf,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_setup,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_perf_event_open,
        libc::SYS_personality,
        libc::SYS_request_key,
        libc::SYS_seccomp,
        libc::SYS_userfaultfd,
    ];
    let conditions = calls::conditions(false).unwrap();
    for call in dangerous {
        let allowed = calls::ALLOWED.iter().chain(calls::OLDER);
        let allowed = allowed.chain(conditions.iter().map(|(call, _)| call));
        assert!(!allowed.into_iter().any(|&a| a == call), "{call}");
    }
    for (call, rules) in &conditions {
        assert!(!rules.is_empty(), "{call} has no condition");
        assert!(!calls::ALLOWED.contains(call), "{call} is allowed anyway");
    }
}

#[test]
fn only_the_configuration_files_are_accessible() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["etc", "target", "run", "other"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("file"), name).unwrap();
    }
    fs::write(path("target/dns64d.toml"), "").unwrap();
    symlink(path("target/dns64d.toml"), path("etc/dns64d.toml")).unwrap();
    let source = Source::Toml(path("etc/dns64d.toml"));
    let mut settings = config::parse(config::template(), "template").unwrap();
    settings.control = Some(path("run/control.sock"));
    if let Err(FilesError::Missing) = restricted(|| (), || restrict_files(&source, &settings)) {
        // The kernel lacks the feature, so nothing can be tested.
        return;
    }
    let denied = Some(Errno::ACCESS.raw_os_error());
    restricted(
        || assert!(restrict_files(&source, &settings).unwrap() > 0),
        || {
            for name in ["etc/file", "etc/dns64d.toml", "target/file"] {
                fs::read(path(name)).unwrap();
            }
            for name in ["other/file", "run/file"] {
                assert_eq!(errno(fs::read(path(name))), denied, "{name}");
            }
            for name in ["etc/file", "other/file"] {
                assert_eq!(errno(fs::remove_file(path(name))), denied, "{name}");
                assert_eq!(errno(fs::write(path(name), "")), denied, "{name}");
            }
            fs::remove_file(path("run/file")).unwrap();
            assert_eq!(errno(fs::write(path("run/file"), "")), denied);
            assert_eq!(exec(), denied);
        },
    );
}

#[test]
fn sandbox_reports_its_active_parts() {
    let say = |landlock, seccomp| Sandbox { landlock, seccomp }.to_string();
    assert_eq!(say(Some(4), true), "landlock abi 4, seccomp");
    assert_eq!(say(None, true), "seccomp");
    assert_eq!(say(Some(7), false), "landlock abi 7");
    assert_eq!(Sandbox::OFF.to_string(), "off");
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn map_entries_are_accessible_for_the_driver_only() {
    let without = calls::conditions(false).unwrap();
    let with = calls::conditions(true).unwrap();
    let more: Vec<_> = with[without.len()..]
        .iter()
        .map(|(call, _)| *call)
        .collect();
    assert_eq!(more, [libc::SYS_bpf]);
    let denied = Some(Errno::PERM.raw_os_error());
    let (program, map) = restricted(
        || restrict_calls(true).unwrap(),
        || {
            let object = Object::load(dns64_transport::xdp::STEER_OBJECT);
            (object.is_err(), errno(Command::new("/bin/false").spawn()))
        },
    );
    assert_eq!((program, map), (true, denied), "no program can be loaded");
}
