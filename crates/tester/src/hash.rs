//! SHA-256 in lower-case hexadecimal (FIPS 180-4).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Returns octets in hexadecimal.
pub fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Returns the digest of these octets.
pub fn sha256_hex(octets: &[u8]) -> String {
    hex(&Sha256::digest(octets))
}

/// Returns the first 64 bits of the digest of these octets.
pub fn sha256_u64(octets: &[u8]) -> u64 {
    let digest = Sha256::digest(octets);
    digest
        .iter()
        .take(8)
        .fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// Returns the digest of a file, which is read in parts.
///
/// # Errors
///
/// The file cannot be read.
pub fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut octets = vec![0; PART];
    loop {
        match file.read(&mut octets)? {
            0 => return Ok(hex(&digest.finalize())),
            n => digest.update(&octets[..n]),
        }
    }
}

/// Maximum number of octets per read.
const PART: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 180-4: "abc".
    #[test]
    fn digest_matches_standard() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("abc");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(sha256_of(&file).unwrap(), expected);
        assert_eq!(sha256_hex(b"abc"), expected);
        assert_eq!(sha256_u64(b"abc"), 0xba78_16bf_8f01_cfea);
        assert!(sha256_of(&dir.path().join("none")).is_err());
    }
}
