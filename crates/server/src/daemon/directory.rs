//! The directory of the control socket, created by root for the user that the process changes to.

use std::io;
use std::path::Path;

use nix::unistd::User;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::fs::{fchown, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// Creates the directory of the socket for a user, if only its last component is missing and only
/// root can change the parent: then the directory cannot be replaced before its owner changes, and
/// no link leads elsewhere. In any other place the user creates it.
///
/// # Errors
///
/// An error of the system.
pub(super) fn make_for(user: &User, socket: &Path) -> io::Result<()> {
    let directory = socket.parent();
    let Some((parent, name)) = directory.and_then(|d| d.parent().zip(d.file_name())) else {
        return Ok(());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let found = fstat(&parent)?;
    if found.st_uid != 0 || found.st_mode & OTHERS_WRITE != 0 {
        return Ok(());
    }
    match mkdirat(&parent, name, Mode::from_raw_mode(0o750)) {
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(&parent, name, flags, Mode::empty())?;
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    fchown(&made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    use super::*;

    fn owner(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().uid()
    }

    #[test]
    fn only_a_directory_created_by_root_in_a_root_owned_place_is_given_to_the_user() {
        if !rustix::process::geteuid().is_root() {
            // Only root can change owners.
            return;
        }
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        make_for(&nobody, &own.join("control.sock")).unwrap();
        assert_eq!(owner(&own), nobody.uid.as_raw());
        assert_eq!(own.metadata().unwrap().mode() & 0o027, 0);

        let there = dir.path().join("there");
        fs::create_dir(&there).unwrap();
        make_for(&nobody, &there.join("control.sock")).unwrap();
        assert_eq!(owner(&there), 0, "it existed before");

        let link = dir.path().join("link");
        symlink(&there, &link).unwrap();
        make_for(&nobody, &link.join("control.sock")).unwrap();
        assert_eq!(owner(&there), 0, "a link points to it");
        make_for(&nobody, &link.join("new/control.sock")).unwrap_err();
        assert!(!there.join("new").exists(), "a link points to its parent");

        for (uid, mode) in [(nobody.uid.as_raw(), 0o755), (0, 0o777), (0, 0o1777)] {
            let foreign = dir.path().join(format!("{uid}-{mode:o}"));
            fs::create_dir(&foreign).unwrap();
            chown(&foreign, Some(uid), None).unwrap();
            fs::set_permissions(&foreign, Permissions::from_mode(mode)).unwrap();
            make_for(&nobody, &foreign.join("new/control.sock")).unwrap();
            assert!(!foreign.join("new").exists(), "{foreign:?}");
        }
    }
}
