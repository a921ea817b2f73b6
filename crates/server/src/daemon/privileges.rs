//! Changes from root to another user.

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Uid, User, initgroups, setgid, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::thread::{clear_ambient_capability_set, set_capabilities, set_no_new_privs};

/// Reason why the change to the user failed.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// No user has this name.
    #[error(
        "user {0:?} does not exist; create it with `useradd --system --shell /usr/sbin/nologin {0}`, \
         or name another one"
    )]
    Unknown(String),
    /// The system refuses.
    #[error("{call} for user {user:?} failed: {reason}")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// The user.
        user: String,
        /// Error of the system.
        reason: Errno,
    },
    /// The capabilities cannot be dropped.
    #[error("cannot drop the capabilities: {0}")]
    Capabilities(rustix::io::Errno),
}

/// Whether this process is root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The user of this name.
///
/// # Errors
///
/// The user does not exist.
pub fn find(name: &str) -> Result<User, PrivilegeError> {
    let found = User::from_name(name).map_err(|reason| PrivilegeError::Call {
        call: "getpwnam_r",
        user: name.to_owned(),
        reason,
    })?;
    found.ok_or_else(|| PrivilegeError::Unknown(name.to_owned()))
}

/// Changes to this user, with its groups, permanently and for all threads of the process.
///
/// # Errors
///
/// The first call that the system refuses.
pub fn become_user(user: &User) -> Result<(), PrivilegeError> {
    let failed = |call| {
        let user = user.name.clone();
        move |reason| PrivilegeError::Call { call, user, reason }
    };
    // A name from the system has no octet 0.
    let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL);
    let name = name.map_err(failed("initgroups"))?;
    initgroups(&name, user.gid).map_err(failed("initgroups"))?;
    setgid(user.gid).map_err(failed("setgid"))?;
    setuid(user.uid).map_err(failed("setuid"))
}

/// Drops all capabilities (capabilities(7)) of the calling thread and those that it starts, and the ability to gain any
/// by executing a file. A process that remains root keeps only access to root's files.
///
/// # Errors
///
/// An error of the system.
pub fn drop_capabilities() -> Result<(), PrivilegeError> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_no_new_privs(true)
        .and_then(|()| clear_ambient_capability_set())
        .and_then(|()| set_capabilities(None, none))
        .map_err(PrivilegeError::Capabilities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_user_is_named_with_a_remedy() {
        assert_eq!(find("root").unwrap().uid, Uid::from_raw(0));
        let error = find("nobody-has-this-name").unwrap_err().to_string();
        assert!(error.contains("useradd --system"), "{error}");
        assert!(error.contains("\"nobody-has-this-name\""), "{error}");
    }
}
