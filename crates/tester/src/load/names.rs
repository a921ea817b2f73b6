//! Names of a trial, and where they come from: fresh ones for every trial, so that no cache helps and no restart is needed (RFC 8219
//! section 9.2, condition 1: "all the domain names to be resolved are different"), and the working
//! set of names that a share of the queries repeats.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use dns64_transport::clock::Nanos;
use dns64_wire::pref64::Pref64;

use super::repeat::{self, Repeats};
use crate::namespace::{Cidr, Pattern, Share, Zone, own_aaaa};
use crate::quantity::ValueError;

/// Which names a trial asks for, and what must come back.
#[derive(Clone, Debug)]
pub struct Names {
    /// The range that the names are from.
    pub cidr: Cidr,
    /// Index in the range of the trial's first fresh name.
    pub first: u64,
    /// The one cached name.
    pub cached: Ipv4Addr,
    /// Which queries repeat a name, and which.
    pub repeats: Repeats,
    /// The zone, which tells the names with an AAAA of their own.
    pub zone: Zone,
    /// How an AAAA is synthesised; `None` in a self-test, where every name has its own.
    pub pref64: Option<Pref64>,
}

impl Names {
    /// Address whose name query `i` of the trial asks for.
    pub fn asked(&self, i: u64) -> Ipv4Addr {
        match self.repeats.asked(i) {
            repeat::Asked::Own(n) => self.cidr.address(self.first + n),
            repeat::Asked::Before(n) => self.cidr.address(self.first.saturating_sub(n)),
            repeat::Asked::OfSet(n) => self.cidr.address(n),
            repeat::Asked::Cached => self.cached,
        }
    }

    /// The one right answer to the name of `address`.
    pub fn expected(&self, address: Ipv4Addr) -> Ipv6Addr {
        match self.pref64 {
            Some(pref64) if !self.zone.has_aaaa(address) => pref64.embed(address),
            _ => own_aaaa(address),
        }
    }

    /// Fresh names that a trial of `queries` queries uses up.
    pub fn fresh(cached_share: Share, queries: u64) -> u64 {
        queries - cached_share.below(queries)
    }
}

/// Deals out the names of a range, each once.
///
/// The first names of the range are the working set of the first trial: a fixed set stays there, a
/// moving one is always right before the first fresh name of a trial. The last names are reserved.
#[derive(Clone, Debug)]
pub struct NameSource {
    cidr: Cidr,
    zone: Zone,
    cached_share: Share,
    pattern: Pattern,
    next: u64,
    probes: u64,
    asked: Asked,
}

/// Names that were asked and answered since the server was started, and until when it keeps the
/// answers.
#[derive(Clone, Debug, Default)]
struct Asked {
    names: Range<u64>,
    kept_until_ns: Nanos,
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
    /// All names of `cidr`, none used yet. `cached_share` of the queries of a trial will repeat
    /// names by `pattern`.
    ///
    /// # Errors
    ///
    /// The pattern needs more names than the range has for it.
    pub fn new(
        cidr: Cidr,
        zone: Zone,
        cached_share: Share,
        pattern: Pattern,
    ) -> Result<Self, ValueError> {
        let mut source = Self {
            cidr,
            zone,
            cached_share,
            pattern,
            next: 0,
            probes: 0,
            asked: Asked::default(),
        };
        if cached_share != Share::NONE {
            pattern.fits(cidr)?;
        }
        source.start_over();
        Ok(source)
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
            repeats: Repeats::new(self.cached_share, self.pattern),
            zone: self.zone.clone(),
            pref64,
        })
    }

    /// Begins anew: for a server that has been restarted and so forgotten everything.
    pub fn start_over(&mut self) {
        self.next = self.working_set();
        self.asked = Asked::default();
    }

    /// Whether some queries ask for the one cached name.
    pub fn has_cached(&self) -> bool {
        self.cached_share != Share::NONE && self.pattern == Pattern::OneName
    }

    /// Names of the working set.
    fn working_set(&self) -> u64 {
        match self.cached_share {
            Share::NONE => 0,
            _ => self.pattern.working_set(),
        }
    }

    /// The working set of a trial with `names`, as far as it must be asked once before the trial: in
    /// this order, and right before it. Nothing where the server has answered them since it was
    /// started and keeps the answers until `end_ns`, the end of the trial.
    ///
    /// A stack is always asked: the trial before asked for its names too, but not in the order of a
    /// stack, and only then is the first repetition at its distance.
    pub fn to_ask_before(&self, names: &Names, end_ns: Nanos) -> Option<Range<u64>> {
        let set = match self.pattern {
            Pattern::Zipf { .. } => 0..self.working_set(),
            _ => names.first - self.working_set()..names.first,
        };
        let ordered = matches!(self.pattern, Pattern::StackDistance { .. });
        let Asked {
            names: asked,
            kept_until_ns,
        } = &self.asked;
        let kept = asked.start <= set.start && set.end <= asked.end && end_ns <= *kept_until_ns;
        (!set.is_empty() && (ordered || !kept)).then_some(set)
    }

    /// `names` were all asked and answered, and the answers are kept until `kept_until_ns`.
    pub fn were_asked(&mut self, names: Range<u64>, kept_until_ns: Nanos) {
        self.asked = Asked {
            names,
            kept_until_ns,
        };
    }

    /// The trial with the last `names` that were dealt out is over: they follow those before them, if
    /// every query was answered. If not, nobody knows which of them the server has.
    pub fn trial_is_over(&mut self, names: &Names, all_answered: bool, kept_until_ns: Nanos) {
        if matches!(self.pattern, Pattern::Zipf { .. }) {
            return;
        }
        let follows = self.asked.names.end == names.first && !self.asked.names.is_empty();
        let (start, until_ns) = match follows {
            true => (self.asked.names.start, self.asked.kept_until_ns),
            false => (names.first, Nanos::MAX),
        };
        self.asked = match all_answered {
            true => Asked {
                names: start..self.next,
                kept_until_ns: until_ns.min(kept_until_ns),
            },
            false => Asked::default(),
        };
    }

    /// The name of the cached share: the last of the range without an AAAA of its own.
    pub fn cached(&self) -> Ipv4Addr {
        self.reserved()
            .find(|&a| !self.zone.has_aaaa(a))
            .unwrap_or_else(|| self.cidr.address(self.cidr.names() - 1))
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
        self.once_from(self.cidr.names() - self.burst_len(), pref64)
    }

    /// The names from number `first` of the range on, each once.
    pub fn once_from(&self, first: u64, pref64: Pref64) -> Names {
        Names {
            cidr: self.cidr,
            first,
            cached: self.cached(),
            repeats: Repeats::none(),
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
        with_pattern(cidr, aaaa, cached, "one-name").unwrap()
    }

    fn with_pattern(
        cidr: &str,
        aaaa: &str,
        cached: &str,
        pattern: &str,
    ) -> Result<NameSource, ValueError> {
        let suffix = DEFAULT_SUFFIX.parse().unwrap();
        let zone = Zone {
            suffix,
            aaaa_share: aaaa.parse().unwrap(),
        };
        NameSource::new(
            cidr.parse().unwrap(),
            zone,
            cached.parse().unwrap(),
            pattern.parse().unwrap(),
        )
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
        assert_eq!(burst.repeats.share(), Share::NONE);
        let names = source.take(240, None).unwrap();
        assert_eq!(names.first + Names::fresh(names.repeats.share(), 240), 192);
    }

    #[test]
    fn a_working_set_is_kept_free_before_the_first_trial_and_has_its_bound() {
        for pattern in ["stack:64", "window:64", "zipf:64,1"] {
            let mut source = with_pattern("10.0.0.0/24", "0", "0.5", pattern).unwrap();
            let names = source.take(10, None).unwrap();
            assert_eq!(names.first, 64, "{pattern}");
            source.start_over();
            assert_eq!(source.take(256, None).unwrap().first, 64, "{pattern}");
            assert_eq!(source.take(1, None).unwrap_err().left, 0, "{pattern}");
        }
        let error = with_pattern("10.0.0.0/24", "0", "0.5", "stack:65").unwrap_err();
        assert!(error.0.contains("a quarter of 10.0.0.0/24, which is 64;"));
        // Nothing is repeated, so nothing is kept free.
        let mut none = with_pattern("10.0.0.0/24", "0", "0", "stack:65").unwrap();
        let names = none.take(192, None).unwrap();
        assert_eq!((names.first, none.to_ask_before(&names, 0)), (0, None));
    }

    #[test]
    fn a_window_is_asked_before_the_first_trial_and_then_follows_the_trials() {
        let mut source = with_pattern("10.0.0.0/16", "0", "0.5", "window:100").unwrap();
        let first = source.take(400, None).unwrap();
        assert_eq!(source.to_ask_before(&first, 10), Some(0..100));
        source.were_asked(0..100, 1000);
        assert_eq!(source.to_ask_before(&first, 10), None);
        source.trial_is_over(&first, true, 2000);
        let second = source.take(400, None).unwrap();
        assert_eq!(second.first, 300);
        assert_eq!(source.to_ask_before(&second, 1000), None);
        // The oldest of the answers are forgotten by then.
        assert_eq!(source.to_ask_before(&second, 1001), Some(200..300));
        source.trial_is_over(&second, false, 3000);
        let third = source.take(400, None).unwrap();
        assert_eq!(source.to_ask_before(&third, 10), Some(400..500));
        source.trial_is_over(&third, true, 3000);
        let fourth = source.take(400, None).unwrap();
        assert_eq!(source.to_ask_before(&fourth, 3000), None);
        source.start_over();
        let anew = source.take(400, None).unwrap();
        assert_eq!(source.to_ask_before(&anew, 10), Some(0..100));
    }

    #[test]
    fn a_fixed_set_is_asked_once_and_a_stack_before_every_trial() {
        let mut fixed = with_pattern("10.0.0.0/16", "0", "0.5", "zipf:100,1").unwrap();
        let mut stack = with_pattern("10.0.0.0/16", "0", "0.5", "stack:100").unwrap();
        for (source, second) in [(&mut fixed, None), (&mut stack, Some(200..300))] {
            let first = source.take(400, None).unwrap();
            assert_eq!(source.to_ask_before(&first, 10), Some(0..100));
            source.were_asked(0..100, 1000);
            source.trial_is_over(&first, false, 1000);
            let names = source.take(400, None).unwrap();
            assert_eq!(source.to_ask_before(&names, 10), second);
        }
        let names = fixed.take(1, None).unwrap();
        assert_eq!(fixed.to_ask_before(&names, 1001), Some(0..100));
    }

    #[test]
    fn repeated_names_are_those_of_the_working_set_and_of_the_trial() {
        for pattern in ["stack:100", "window:100", "zipf:100,1"] {
            let mut source = with_pattern("10.0.0.0/16", "0", "0.9", pattern).unwrap();
            source.take(400, None).unwrap();
            let names = source.take(400, None).unwrap();
            let cidr = names.cidr;
            let asked = (0..400).map(|i| cidr.index(names.asked(i)).unwrap());
            let (low, high) = match pattern {
                "zipf:100,1" => (0, 180),
                _ => (40, 180),
            };
            assert!(
                asked.into_iter().all(|n| (low..high).contains(&n)),
                "{pattern}"
            );
        }
    }
}
