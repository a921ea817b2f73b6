//! The zone file of the measurement namespace, for authorities that need one.

use std::io::{self, Write};

use super::{Blame, LabError};
use crate::authority::zone::ZoneConfig;
use crate::namespace::{self, Cidr, own_aaaa};

/// What a zone file holds: each name of a range with its A record, and with an AAAA of its own
/// where it has one.
#[derive(Clone, Debug)]
pub struct ZoneFile {
    /// The range, of at most [`NAMES_MAX`] names.
    pub cidr: Cidr,
    /// What the built-in authority would serve.
    pub config: ZoneConfig,
}

impl ZoneFile {
    /// Writes the zone in the format of RFC 1035 section 5.
    ///
    /// # Errors
    ///
    /// The range is too large; writing failed.
    pub fn write(&self, to: &mut impl Write) -> Result<(), LabError> {
        let (cidr, names) = (self.cidr, self.cidr.names());
        if names > NAMES_MAX {
            return Err(Blame::Server.error(format!(
                "a zone file of the {names} names of {cidr} is too large; use a --namespace of \
                 /12 or less, or the built-in authority, which needs no zone file"
            )));
        }
        let written = self.write_records(to);
        written
            .map_err(|reason| Blame::Server.error(format!("cannot write the zone file: {reason}")))
    }

    fn write_records(&self, to: &mut impl Write) -> io::Result<()> {
        let (cidr, config) = (self.cidr, &self.config);
        let (ttl_s, negative_ttl_s) = (config.ttl_s, config.negative_ttl_s);
        writeln!(
            to,
            "$ORIGIN {}\n$TTL {ttl_s}\n\
             @ {negative_ttl_s} SOA ns hostmaster 1 3600 900 604800 {negative_ttl_s}\n\
             @ NS ns\nns A 198.18.0.2\nns AAAA 2001:2:0:2::2",
            config.zone.suffix
        )?;
        for index in 0..cidr.names() {
            let address = cidr.address(index);
            let label = namespace::label(address);
            to.write_all(&label)?;
            writeln!(to, " A {address}")?;
            if config.has_aaaa(address) {
                writeln!(to, " AAAA {}", own_aaaa(address))?;
            }
        }
        Ok(())
    }
}

/// Most names that a zone file is written for. NSD 4.6 then takes 332 MiB, or 419 MiB when every
/// name has an AAAA record as well, and 2.5 to 3.6 s to start.
pub const NAMES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::namespace::DEFAULT_SUFFIX;

    fn zone_file(cidr: &str, aaaa_share: &str, self_test: bool) -> ZoneFile {
        let suffix = DEFAULT_SUFFIX.parse().unwrap();
        let aaaa_share = aaaa_share.parse().unwrap();
        let config = ZoneConfig {
            zone: namespace::Zone { suffix, aaaa_share },
            self_test,
            ttl_s: 3600,
            negative_ttl_s: 60,
        };
        let cidr = cidr.parse().unwrap();
        ZoneFile { cidr, config }
    }

    fn written(file: &ZoneFile) -> String {
        let mut text = Vec::new();
        file.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn names_have_their_own_numbers_and_their_share_of_aaaa() {
        expect![[r#"
            $ORIGIN dns64perf.test.
            $TTL 3600
            @ 60 SOA ns hostmaster 1 3600 900 604800 60
            @ NS ns
            ns A 198.18.0.2
            ns AAAA 2001:2:0:2::2
            010-000-000-000 A 10.0.0.0
            010-000-000-001 A 10.0.0.1
             AAAA 2001:db8::a00:1
        "#]]
        .assert_eq(&written(&zone_file("10.0.0.0/31", "0.5", false)));
    }

    #[test]
    fn in_a_self_test_every_name_has_an_aaaa() {
        let text = written(&zone_file("255.255.255.254/31", "0", true));
        assert!(text.ends_with("255-255-255-255 A 255.255.255.255\n AAAA 2001:db8::ffff:ffff\n"));
        assert_eq!(text.matches(" AAAA 2001:db8::").count(), 2);
    }

    #[test]
    fn ranges_out_of_bounds_are_refused() {
        let error = zone_file("10.0.0.0/11", "0", false)
            .write(&mut Vec::new())
            .unwrap_err();
        assert!(
            error.to_string().contains("2097152 names of 10.0.0.0/11"),
            "{error}"
        );
    }
}
