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
use crate::quantity::ValueError;

/// Contents of a zone file: each name of a range with its A record, and with an AAAA record if it has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ZoneFile {
    /// The range of names.
    pub cidr: Cidr,
    /// The zone as the built-in authority would serve it.
    pub config: ZoneConfig,
    /// Format of the records.
    pub form: ZoneForm,
}

/// How the records of a zone file are written.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    clap::ValueEnum,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "kebab-case")]
pub enum ZoneForm {
    /// One by one (RFC 1035 section 5), which every authority reads
    #[default]
    Master,
    /// By $GENERATE, one line for 256 names, which BIND and PowerDNS read
    Generate,
}

impl ZoneFile {
    /// Checks that the records can be written in this format.
    ///
    /// # Errors
    ///
    /// `$GENERATE` cannot select the names that have an AAAA record.
    pub fn check_form(&self) -> Result<(), ValueError> {
        let share = self.config.zone.aaaa_share;
        let some = !self.config.self_test && share != Share::NONE && share != Share::ALL;
        match self.form {
            ZoneForm::Generate if some => Err(ValueError(format!(
                "$GENERATE cannot give AAAA records to {share} of the names: use an AAAA share of 0 \
                 or 1, or --form master"
            ))),
            ZoneForm::Generate | ZoneForm::Master => Ok(()),
        }
    }

    /// Writes the zone. Only one buffer of it is in memory at a time.
    ///
    /// # Errors
    ///
    /// Those of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self.form {
            ZoneForm::Master => text::master(self.cidr, &self.config, to),
            ZoneForm::Generate => text::generate(self.cidr, &self.config, to),
        }
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
        let lines = match self.form {
            ZoneForm::Master => a * text::A_MAX + aaaa * text::AAAA_MAX,
            ZoneForm::Generate => (a.div_ceil(256) + aaaa.div_ceil(256)) * text::GENERATE_MAX,
        };
        text::HEAD_MAX + lines
    }

    /// Hash of everything that determines the text: two files are equal if and only if their hashes are.
    fn hash(&self) -> String {
        let Self { cidr, config, form } = self;
        let share = match config.self_test {
            true => Share::ALL,
            false => config.zone.aaaa_share,
        };
        let decisive = format!(
            "{} {form} {cidr} {} {share} {} {}",
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
