//! Numbers that look drawn by lot and are the same every time: SplitMix64 (Steele, Lea and Flood, "Fast
//! splittable pseudorandom number generators", 2014). And one that is another every time.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// What the generator's state grows by with each draw.
pub const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator, with its seed.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix(self.0)
    }
}

/// The generator's finalizer: the number that it makes of a state.
pub fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `bound` from one of 64 bits, each as likely.
pub fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// A number from the system's random source: what no two processes should have in common.
///
/// # Errors
///
/// The system has none.
pub fn from_system() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // So few octets are got whole (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_gives_another_number_each_time() {
        assert_ne!(from_system().unwrap(), from_system().unwrap());
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs for the seed 1234567, as implementations of it are checked.
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
