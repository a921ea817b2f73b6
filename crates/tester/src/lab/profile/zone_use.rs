//! Costs of a zone for an authority.

use dns64_transport::clock::{Nanos, SECOND};
use serde::Deserialize;

/// Costs of a zone for an authority: the table `[zone]` of a profile. The figures are measured; 0 means unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZoneUse {
    /// Whether it reads a zone file. A server that does not computes its answers from the names.
    pub file: bool,
    /// Memory with an almost empty zone, in MiB.
    pub base_mib: u64,
    /// Memory for each name without its records, in octets.
    pub octets_per_name: u64,
    /// Memory for each A or AAAA record, in octets.
    pub octets_per_record: u64,
    /// A and AAAA records loaded in a second of processor time.
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
    /// Memory for these numbers of names and records, in octets; `None` if unknown.
    pub fn memory(&self, names: u64, records: u64) -> Option<u64> {
        let each = names
            .saturating_mul(self.octets_per_name)
            .saturating_add(records.saturating_mul(self.octets_per_record));
        let known = self.base_mib > 0 || self.octets_per_name > 0 || self.octets_per_record > 0;
        known.then(|| each.saturating_add(self.base_mib << 20))
    }

    /// Processor time to load this number of records; `None` if unknown.
    pub fn load_ns(&self, records: u64) -> Option<Nanos> {
        let records = if self.file { records } else { 0 };
        let time = u128::from(records) * u128::from(SECOND);
        Nanos::try_from(time.checked_div(u128::from(self.records_per_s))?).ok()
    }

    /// Time limit to load this number of records, on a machine several times slower than the one of the measurement.
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

/// Assumed number of records per second for a server without a figure: half of the slowest profile's.
const UNKNOWN_PER_S: u64 = 80_000;

/// Allowed factor between a start and its measured time: other machines, other load, a cold disk.
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
    fn load_time_grows_with_the_records_unless_no_file_is_read() {
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
