//! The zone of the measurement names as a file, for authorities that need one: generated from the names, never held in
//! memory, cached between runs.

mod cache;
mod room;
mod text;

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

pub(crate) use cache::{Mib, free};
pub use cache::{StoredZone, directory};
pub use room::{Room, faults};

use crate::authority::zone::ZoneConfig;
use crate::hash::sha256_hex;
use crate::namespace::{Cidr, Share};

/// Contents of a zone file: each name of a range with its A record, and with an AAAA record if it has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZoneFile {
    /// The range of names.
    pub cidr: Cidr,
    /// The zone as the built-in authority would serve it.
    pub config: ZoneConfig,
}

impl ZoneFile {
    /// Writes the zone. Only one buffer of it is in memory at a time.
    ///
    /// # Errors
    ///
    /// Those of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        text::write(self.cidr, &self.config, to)
    }

    /// Number of names, without those of the zone itself.
    pub fn names(&self) -> u64 {
        self.cidr.names()
    }

    /// Number of A and AAAA records of these names.
    pub fn records(&self) -> u64 {
        let first = u64::from(u32::from(self.cidr.first()));
        let share = self.config.zone.aaaa_share;
        let aaaa = match self.config.self_test {
            true => self.names(),
            false => share.below(first + self.names()) - share.below(first),
        };
        self.names() + aaaa
    }

    /// Upper bound of the file's length in octets.
    pub fn octets_max(&self) -> u64 {
        let (a, aaaa) = (self.names(), self.records() - self.names());
        text::HEAD_MAX + a * text::A_MAX + aaaa * text::AAAA_MAX
    }

    /// Hash of everything that determines the text: two files are equal if and only if their hashes are.
    fn hash(&self) -> String {
        let Self { cidr, config } = self;
        let share = match config.self_test {
            true => Share::ALL,
            false => config.zone.aaaa_share,
        };
        let decisive = format!(
            "{} {cidr} {} {share} {} {}",
            text::VERSION,
            config.zone.suffix,
            config.ttl_s,
            config.negative_ttl_s
        );
        let mut hash = sha256_hex(decisive.as_bytes());
        hash.truncate(32);
        hash
    }
}

#[cfg(test)]
mod tests;
