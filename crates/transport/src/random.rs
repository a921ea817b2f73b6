//! Reproducible pseudorandom numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014). Also random numbers from the system.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Increment of the generator's state for each number.
pub const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator, with its seed.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Draws the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix(self.0)
    }
}

/// The generator's finalizer: maps a state to a number.
pub fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps a random number of 64 bits to a number below `bound`, uniformly.
pub fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// Returns a number from the system's random source, different in each process.
///
/// # Errors
///
/// The system has no random source.
pub fn from_system() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // A read of this size is never partial (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_random_numbers_differ() {
        assert_ne!(from_system().unwrap(), from_system().unwrap());
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs for the seed 1234567: the usual test vector of implementations.
        let mut random = SplitMix64(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        let expected: [u64; 3] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, expected);
    }
}
