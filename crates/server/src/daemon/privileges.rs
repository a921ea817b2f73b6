//! From root to a user.

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Uid, User, initgroups, setgid, setuid};

/// The user of the settings cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Nobody has this name.
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
        /// What the system said.
        reason: Errno,
    },
}

/// Whether this process is root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The user of this name.
///
/// # Errors
///
/// There is none.
pub fn find(name: &str) -> Result<User, PrivilegeError> {
    let found = User::from_name(name).map_err(|reason| PrivilegeError::Call {
        call: "getpwnam_r",
        user: name.to_owned(),
        reason,
    })?;
    found.ok_or_else(|| PrivilegeError::Unknown(name.to_owned()))
}

/// Becomes this user, with its groups, for good: all threads of the process do.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_or_named_with_a_remedy() {
        assert_eq!(find("root").unwrap().uid, Uid::from_raw(0));
        let error = find("nobody-has-this-name").unwrap_err().to_string();
        assert!(error.contains("useradd --system"), "{error}");
        assert!(error.contains("\"nobody-has-this-name\""), "{error}");
    }
}
