//! Executable file of the running program.

use std::path::Path;
use std::sync::OnceLock;

use crate::hash::sha256_of;

/// SHA-256 of the running program in hexadecimal, if readable: versions do not distinguish builds. The file may have
/// been replaced since; the hash is that of the started program.
pub fn sha256() -> Option<String> {
    static SHA256: OnceLock<Option<String>> = OnceLock::new();
    let sha256 = SHA256.get_or_init(|| sha256_of(Path::new(OWN)).ok());
    sha256.clone()
}

/// The running program, even if its file has been replaced (proc(5)).
pub const OWN: &str = "/proc/self/exe";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_the_program_is_that_of_its_file() {
        let file = std::env::current_exe().unwrap();
        assert_eq!(sha256(), sha256_of(&file).ok());
    }
}
