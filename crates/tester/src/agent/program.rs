//! The file of the program that runs.

use std::path::Path;
use std::sync::OnceLock;

use crate::hash::sha256_of;

/// SHA-256 of the program that runs, in hexadecimal, if it can be read: versions do not tell builds apart. The file may
/// have been replaced since: this is what was started.
pub fn sha256() -> Option<String> {
    static SHA256: OnceLock<Option<String>> = OnceLock::new();
    let sha256 = SHA256.get_or_init(|| sha256_of(Path::new(OWN)).ok());
    sha256.clone()
}

/// The program that runs, even if its file has been replaced (proc(5)).
pub const OWN: &str = "/proc/self/exe";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_told_by_the_hash_of_its_file() {
        let file = std::env::current_exe().unwrap();
        assert_eq!(sha256(), sha256_of(&file).ok());
    }
}
