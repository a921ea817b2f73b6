//! What an authority makes of its zone.

use dns64_transport::clock::{Nanos, SECOND};
use serde::Deserialize;

/// What an authority makes of its zone: the table `[zone]` of a profile. The figures are measured; 0
/// stands for what is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZoneUse {
    /// Whether it reads a zone file. One that does not makes its answers from the names.
    pub file: bool,
    /// Memory that it takes with hardly any names, in MiB.
    pub base_mib: u64,
    /// Memory for each name without its records, in octets.
    pub octets_per_name: u64,
    /// Memory for each A or AAAA record, in octets.
    pub octets_per_record: u64,
    /// A and AAAA records that it loads in a second of processor time.
    pub records_per_s: u64,
}

impl Default for ZoneUse {
    fn default() -> Self {
        Self {
            file: true,
            base_mib: 0,
            octets_per_name: 0,
            octets_per_record: 0,
            records_per_s: 0,
        }
    }
}

impl ZoneUse {
    /// Memory for so many names with so many records, in octets; `None` if it is not known.
    pub fn memory(&self, names: u64, records: u64) -> Option<u64> {
        let each = names
            .saturating_mul(self.octets_per_name)
            .saturating_add(records.saturating_mul(self.octets_per_record));
        let known = self.base_mib > 0 || self.octets_per_name > 0 || self.octets_per_record > 0;
        known.then(|| each.saturating_add(self.base_mib << 20))
    }

    /// Processor time to load so many records; `None` if it is not known.
    pub fn load_ns(&self, records: u64) -> Option<Nanos> {
        let records = if self.file { records } else { 0 };
        let time = u128::from(records) * u128::from(SECOND);
        Nanos::try_from(time.checked_div(u128::from(self.records_per_s))?).ok()
    }

    /// How long it may take to load so many records, on a machine several times as slow as the one
    /// that the figure is from.
    pub fn load_limit_ns(&self, records: u64) -> Nanos {
        let records_per_s = match self.records_per_s {
            0 => UNKNOWN_PER_S,
            known => known,
        };
        let records = if self.file { records } else { 0 };
        let limit = u128::from(records) * u128::from(SLOWER * SECOND) / u128::from(records_per_s);
        Nanos::try_from(limit).unwrap_or(Nanos::MAX)
    }
}

/// A server of which nothing is known loads so many records in a second: half of what the slowest
/// profile does.
const UNKNOWN_PER_S: u64 = 80_000;

/// A start may take so many times as long as measured: other machines, other work, a cold disk.
const SLOWER: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_names_and_records_and_is_unknown_without_figures() {
        let zone_use = ZoneUse {
            base_mib: 2,
            octets_per_name: 100,
            octets_per_record: 10,
            ..ZoneUse::default()
        };
        assert_eq!(zone_use.memory(1000, 1500), Some((2 << 20) + 115_000));
        assert_eq!(ZoneUse::default().memory(1000, 1500), None);
    }

    #[test]
    fn time_to_load_grows_with_the_records_unless_no_file_is_read() {
        let zone_use = ZoneUse {
            records_per_s: 100_000,
            ..ZoneUse::default()
        };
        assert_eq!(zone_use.load_ns(1_000_000), Some(10 * SECOND));
        assert_eq!(zone_use.load_limit_ns(1_000_000), 100 * SECOND);
        assert_eq!(ZoneUse::default().load_ns(1_000_000), None);
        assert!(ZoneUse::default().load_limit_ns(1_000_000) > 100 * SECOND);
        let computed = ZoneUse {
            file: false,
            ..zone_use
        };
        assert_eq!(computed.load_limit_ns(1 << 32), 0);
    }
}
