//! Fresh names for every trial, so that no cache helps and no restart is needed (RFC 8219
//! section 9.2, condition 1: "all the domain names to be resolved are different").

use std::net::Ipv4Addr;

use dns64_wire::pref64::Pref64;

use crate::load::generator::Names;
use crate::namespace::{Cidr, Share, Zone};

/// Deals out the names of a range, each once.
#[derive(Clone, Debug)]
pub struct NameSource {
    cidr: Cidr,
    zone: Zone,
    cached_share: Share,
    next: u64,
    probes: u64,
}

/// The last names of the range are kept for probes and for the cached name.
pub const RESERVED: u64 = 64;

/// The range has too few names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{cidr} has {left} unused names and the trial needs {needed}; {}",
    remedy(.wider.as_ref())
)]
pub struct NamespaceTooSmall {
    /// The range.
    pub cidr: Cidr,
    /// Names that have not been used.
    pub left: u64,
    /// Names that are needed.
    pub needed: u64,
    /// The range around it that would do, if there is one.
    pub wider: Option<Cidr>,
}

fn remedy(wider: Option<&Cidr>) -> String {
    match wider {
        Some(wider) => format!("use --namespace {wider}, or a shorter or slower trial"),
        None => "not even 0.0.0.0/0 would do: use a shorter or slower trial".into(),
    }
}

impl NameSource {
    /// All names of `cidr`, none used yet.
    pub fn new(cidr: Cidr, zone: Zone, cached_share: Share) -> Self {
        Self {
            cidr,
            zone,
            cached_share,
            next: 0,
            probes: 0,
        }
    }

    /// Names for a trial of `queries` queries, none of them used before.
    pub fn take(
        &mut self,
        queries: u64,
        pref64: Option<Pref64>,
    ) -> Result<Names, NamespaceTooSmall> {
        let fresh = Names::fresh(self.cached_share, queries);
        let needed = self.next.saturating_add(fresh);
        let usable = self.cidr.names().saturating_sub(RESERVED);
        if needed > usable {
            return Err(NamespaceTooSmall {
                cidr: self.cidr,
                left: usable.saturating_sub(self.next),
                needed: fresh,
                wider: self.cidr.widened_to(needed.saturating_add(RESERVED)),
            });
        }
        let first = self.next;
        self.next = needed;
        Ok(Names {
            cidr: self.cidr,
            first,
            cached: self.cached(),
            cached_share: self.cached_share,
            zone: self.zone.clone(),
            pref64,
        })
    }

    /// Begins anew: for a server that has been restarted and so forgotten everything.
    pub fn start_over(&mut self) {
        self.next = 0;
    }

    /// Whether some queries ask for the cached name.
    pub fn has_cached(&self) -> bool {
        self.cached_share != Share::NONE
    }

    /// The name of the cached share: the last of the range without an AAAA of its own.
    pub fn cached(&self) -> Ipv4Addr {
        self.reserved()
            .find(|&a| !self.zone.has_aaaa(a))
            .unwrap_or_else(|| self.last())
    }

    /// A name to probe with: without an AAAA of its own, if the range has one, and another one
    /// at each call until the reserved ones have had their turn.
    pub fn probe(&mut self) -> Ipv4Addr {
        let cached = self.cached();
        let candidates: Vec<Ipv4Addr> = self
            .reserved()
            .filter(|&a| a != cached && !self.zone.has_aaaa(a))
            .collect();
        self.probes += 1;
        let turn = usize::try_from(self.probes).unwrap_or(0) % candidates.len().max(1);
        candidates.get(turn).copied().unwrap_or(cached)
    }

    /// The reserved names, [`Self::burst_len`] of them, for a burst before the first trial.
    pub fn burst(&self, pref64: Pref64) -> Names {
        Names {
            cidr: self.cidr,
            first: self.cidr.names() - self.burst_len(),
            cached: self.cached(),
            cached_share: Share::NONE,
            zone: self.zone.clone(),
            pref64: Some(pref64),
        }
    }

    /// How many names are reserved.
    pub fn burst_len(&self) -> u64 {
        RESERVED.min(self.cidr.names())
    }

    /// The zone of the names.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    fn last(&self) -> Ipv4Addr {
        self.cidr.address(self.cidr.names() - 1)
    }

    fn reserved(&self) -> impl Iterator<Item = Ipv4Addr> {
        let names = self.cidr.names();
        (1..=self.burst_len()).map(move |back| self.cidr.address(names - back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::DEFAULT_SUFFIX;

    fn source(cidr: &str, aaaa: &str, cached: &str) -> NameSource {
        let suffix = DEFAULT_SUFFIX.parse().unwrap();
        let zone = Zone {
            suffix,
            aaaa_share: aaaa.parse().unwrap(),
        };
        NameSource::new(cidr.parse().unwrap(), zone, cached.parse().unwrap())
    }

    #[test]
    fn names_are_used_once_and_then_refused_with_the_range_that_would_do() {
        let mut source = source("10.0.0.0/24", "0", "0");
        assert_eq!(source.take(100, None).unwrap().first, 0);
        assert_eq!(source.take(92, None).unwrap().first, 100);
        let error = source.take(1000, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "10.0.0.0/24 has 0 unused names and the trial needs 1000; \
             use --namespace 10.0.0.0/21, or a shorter or slower trial"
        );
        source.start_over();
        assert_eq!(source.take(1, None).unwrap().first, 0);
    }

    #[test]
    fn the_cached_share_uses_no_fresh_names() {
        let mut source = source("10.0.0.0/24", "0", "0.5");
        assert_eq!(source.take(384, None).unwrap().first, 0);
        assert_eq!(source.take(1, None).unwrap_err().left, 0);
    }

    #[test]
    fn the_cached_and_the_probed_names_have_no_aaaa_and_are_not_in_any_trial() {
        let mut source = source("10.0.0.0/24", "0.5", "0.2");
        let cached = source.cached();
        assert!(!source.zone().has_aaaa(cached));
        for _ in 0..100 {
            let probe = source.probe();
            assert!(!source.zone().has_aaaa(probe) && probe != cached);
            assert!(probe >= Ipv4Addr::new(10, 0, 0, 192));
        }
    }

    #[test]
    fn a_burst_asks_for_the_reserved_names_alone() {
        let mut source = source("10.0.0.0/24", "0", "0.2");
        let burst = source.burst(Pref64::WELL_KNOWN);
        assert_eq!((burst.first, source.burst_len()), (192, 64));
        assert_eq!(burst.cached_share, Share::NONE);
        let names = source.take(240, None).unwrap();
        assert_eq!(names.first + Names::fresh(names.cached_share, 240), 192);
    }
}
