//! The file of the program that runs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

/// SHA-256 of the program that runs, in hexadecimal, if it can be read. The file may have been replaced since:
/// this is what was started.
pub fn sha256() -> Option<String> {
    static SHA256: OnceLock<Option<String>> = OnceLock::new();
    let sha256 = SHA256.get_or_init(|| sha256_of(Path::new(OWN)).ok());
    sha256.clone()
}

/// SHA-256 of a file, in lower-case hexadecimal.
///
/// # Errors
///
/// It cannot be read.
pub fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut octets = vec![0; 1 << 16];
    loop {
        match file.read(&mut octets)? {
            0 => break,
            n => digest.update(&octets[..n]),
        }
    }
    let digits = digest
        .finalize()
        .iter()
        .fold(String::new(), |mut text, octet| {
            use std::fmt::Write as _;
            // Writing to a String does not fail.
            let _ = write!(text, "{octet:02x}");
            text
        });
    Ok(digits)
}

/// The program that runs, even if its file has been replaced (proc(5)).
pub const OWN: &str = "/proc/self/exe";

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 180-4: "abc".
    #[test]
    fn the_digest_is_that_of_the_standard() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("abc");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(
            sha256_of(&file).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(sha256_of(&dir.path().join("none")).is_err());
    }

    #[test]
    fn the_program_is_told_by_the_hash_of_its_file() {
        let file = std::env::current_exe().unwrap();
        assert_eq!(sha256(), sha256_of(&file).ok());
    }
}
