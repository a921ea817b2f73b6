//! The zone of the measurement names as a file, for authorities that need one: written from the names,
//! never held in memory, kept in a cache between runs.

mod cache;
mod room;
mod text;

use std::fmt;
use std::io::{self, Write};

use sha2::{Digest, Sha256};

pub(crate) use cache::{Mib, free};
pub use cache::{Stored, directory};
pub use room::{Room, faults};

use crate::authority::zone::ZoneConfig;
use crate::namespace::{Cidr, Share};
use crate::quantity::ValueError;

/// What a zone file holds: each name of a range with its A record, and with an AAAA of its own
/// where it has one.
#[derive(Clone, Debug)]
pub struct ZoneFile {
    /// The range.
    pub cidr: Cidr,
    /// What the built-in authority would serve.
    pub config: ZoneConfig,
    /// How the records are written.
    pub form: Form,
}

/// How the records of a zone file are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// One by one (RFC 1035 section 5), which every authority reads
    #[default]
    Master,
    /// By $GENERATE, one line for 256 names, which BIND and PowerDNS read
    Generate,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Master => "master",
            Self::Generate => "generate",
        })
    }
}

impl ZoneFile {
    /// Checks that the records can be written in this form.
    ///
    /// # Errors
    ///
    /// `$GENERATE` cannot pick some of the names for an AAAA record.
    pub fn check_form(&self) -> Result<(), ValueError> {
        let share = self.config.zone.aaaa_share;
        let some = !self.config.self_test && share != Share::NONE && share != Share::ALL;
        match self.form {
            Form::Generate if some => Err(ValueError(format!(
                "$GENERATE cannot give AAAA records to {share} of the names: use an AAAA share of 0 \
                 or 1, or --form master"
            ))),
            Form::Generate | Form::Master => Ok(()),
        }
    }

    /// Writes the zone. Only a buffer of it is ever in memory.
    ///
    /// # Errors
    ///
    /// Those of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self.form {
            Form::Master => text::master(self.cidr, &self.config, to),
            Form::Generate => text::generate(self.cidr, &self.config, to),
        }
    }

    /// How many names it has, those of the zone itself left aside.
    pub fn names(&self) -> u64 {
        self.cidr.names()
    }

    /// How many A and AAAA records these names have together.
    pub fn records(&self) -> u64 {
        let first = u64::from(u32::from(self.cidr.first()));
        let share = self.config.zone.aaaa_share;
        let aaaa = match self.config.self_test {
            true => self.names(),
            false => share.below(first + self.names()) - share.below(first),
        };
        self.names() + aaaa
    }

    /// No file of the zone is longer, in octets.
    pub fn octets_max(&self) -> u64 {
        let (a, aaaa) = (self.names(), self.records() - self.names());
        let lines = match self.form {
            Form::Master => a * text::A_MAX + aaaa * text::AAAA_MAX,
            Form::Generate => (a.div_ceil(256) + aaaa.div_ceil(256)) * text::GENERATE_MAX,
        };
        text::HEAD_MAX + lines
    }

    /// A hash over everything that decides the text: equal files, and only they, have the same one.
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
        let hash = Sha256::digest(decisive.as_bytes());
        hash.iter()
            .take(16)
            .map(|octet| format!("{octet:02x}"))
            .collect()
    }
}

#[cfg(test)]
mod tests;
