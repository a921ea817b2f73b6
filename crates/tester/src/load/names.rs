//! Names of a trial, and where they come from: fresh ones for every trial, so that no cache helps and no restart is needed (RFC 8219
//! section 9.2, condition 1: "all the domain names to be resolved are different"), and the working
//! set of names that a share of the queries repeats.
//!
//! Names are counted from a place of the range that is drawn at random, so that two programs that ask
//! one server seldom ask for the same ones. What a campaign has asked for is in its journal
//! ([`Dealt`]), and it goes on from there ([`Begin`]).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use dns64_transport::clock::Nanos;
use dns64_wire::pref64::Pref64;
use serde::{Deserialize, Serialize};

use super::repeat::{self, Repeats};
use super::ring::Ring;
use crate::namespace::{Cidr, Pattern, Share, Zone, own_aaaa};
use crate::quantity::ValueError;

/// Which names a trial asks for, and what must come back.
#[derive(Clone, Debug)]
pub struct Names {
    /// The names of the range in the order of their use.
    pub ring: Ring,
    /// Number, in this order, of the trial's first fresh name.
    pub first: u64,
    /// How many fresh names the trial has.
    pub fresh: u64,
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
            repeat::Asked::Own(n) => self.ring.address(self.first + n),
            repeat::Asked::Before(n) => self.ring.address(self.first.saturating_sub(n)),
            repeat::Asked::OfSet(n) => self.ring.address(n),
            repeat::Asked::Cached => self.cached,
        }
    }

    /// Which of the trial's fresh names that of `address` is, from 0; `None` if it is none of them.
    ///
    /// The inverse of [`Names::asked`] for fresh names, in the order in which they are asked.
    pub fn index_of(&self, address: Ipv4Addr) -> Option<u64> {
        let number = self.ring.number_of(address)?.checked_sub(self.first)?;
        (number < self.fresh).then_some(number)
    }

    /// The fresh names of the trial, to be written down.
    pub fn dealt(&self) -> Dealt {
        Dealt {
            namespace: self.ring.cidr(),
            begin: self.ring.begin(),
            first: self.ring.index(self.first),
            fresh: self.fresh,
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

/// The fresh names of a trial as its result has them: `fresh` names from index `first` of
/// `namespace` on, where the first name follows the last that is not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dealt {
    /// The range.
    pub namespace: Cidr,
    /// Index in the range of the name from which the names of this server are counted.
    pub begin: u64,
    /// Index in the range of the trial's first fresh name.
    pub first: u64,
    /// How many fresh names the trial has.
    pub fresh: u64,
}

/// Where a source of names begins, and what of them is used already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Index in the range of the name that is counted first. Any number will do: it is reduced to one
    /// of the indices.
    pub at: u64,
    /// So many names from there on were asked for by earlier trials of the same campaign.
    pub used: u64,
}

impl Begin {
    /// Goes on after a trial in the same range.
    pub fn after(dealt: &Dealt) -> Self {
        let ring = usable(dealt.namespace, dealt.begin);
        let number = ring.number(dealt.first).unwrap_or(ring.names());
        Self {
            at: dealt.begin,
            used: number.saturating_add(dealt.fresh),
        }
    }
}

/// The names of a range that trials may use, counted from this index on.
fn usable(cidr: Cidr, begin: u64) -> Ring {
    Ring::new(cidr, cidr.names().saturating_sub(RESERVED), begin)
}

/// Deals out the names of a range, each once.
///
/// Names are counted round the range from where the source begins; the last of the range are reserved.
/// The first names in this order are the working set of the first trial: a fixed set stays there, a
/// moving one is always right before the first fresh name of a trial.
#[derive(Clone, Debug)]
pub struct NameSource {
    ring: Ring,
    zone: Zone,
    cached_share: Share,
    pattern: Pattern,
    next: u64,
    /// Names that were used before this source was made.
    used: u64,
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
    "{cidr} has {left} unused names{} and the trial needs {needed}; {}",
    used_before(*.used),
    remedy(.wider.as_ref())
)]
pub struct NamespaceTooSmall {
    /// The range.
    pub cidr: Cidr,
    /// Names that have not been used.
    pub left: u64,
    /// Names that earlier trials of the same journal have used, before this process or this rig.
    pub used: u64,
    /// Names that are needed.
    pub needed: u64,
    /// The range around it that would do, if there is one.
    pub wider: Option<Cidr>,
}

fn used_before(used: u64) -> String {
    match used {
        0 => String::new(),
        used => format!(", because earlier trials of this journal have used {used},"),
    }
}

fn remedy(wider: Option<&Cidr>) -> String {
    match wider {
        Some(wider) => format!("use --namespace {wider}, or a shorter or slower trial"),
        None => "even 0.0.0.0/0 is too small: use a shorter or slower trial".into(),
    }
}

impl NameSource {
    /// All names of `cidr`, none used yet, from the first on. `cached_share` of the queries of a trial will
    /// repeat names by `pattern`.
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
        if cached_share != Share::NONE {
            pattern.fits(cidr)?;
        }
        let source = Self {
            ring: usable(cidr, 0),
            zone,
            cached_share,
            pattern,
            next: 0,
            used: 0,
            probes: 0,
            asked: Asked::default(),
        };
        Ok(source.begun_at(Begin::default()))
    }

    /// The same names from another place on.
    #[must_use]
    pub fn begun_at(self, begin: Begin) -> Self {
        Self {
            ring: usable(self.ring.cidr(), begin.at),
            next: begin.used.max(self.working_set()),
            used: begin.used,
            ..self
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
        let cidr = self.ring.cidr();
        if needed > self.ring.names() {
            return Err(NamespaceTooSmall {
                cidr,
                left: self.ring.names().saturating_sub(self.next),
                used: self.used,
                needed: fresh,
                wider: cidr.widened_to(needed.saturating_add(RESERVED)),
            });
        }
        let first = self.next;
        self.next = needed;
        Ok(Names {
            ring: self.ring,
            first,
            fresh,
            cached: self.cached(),
            repeats: Repeats::new(self.cached_share, self.pattern),
            zone: self.zone.clone(),
            pref64,
        })
    }

    /// Begins again: for a server that has been restarted and so forgotten everything.
    pub fn start_over(&mut self) {
        self.next = self.working_set();
        self.used = 0;
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
            .unwrap_or_else(|| {
                let cidr = self.ring.cidr();
                cidr.address(cidr.names() - 1)
            })
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
        let whole = Ring::whole(self.ring.cidr());
        let reserved = whole.names() - self.burst_len()..whole.names();
        self.each_of(whole, &reserved, pref64)
    }

    /// These names, in the order of their use, each once.
    pub fn once(&self, names: &Range<u64>, pref64: Pref64) -> Names {
        self.each_of(self.ring, names, pref64)
    }

    fn each_of(&self, ring: Ring, names: &Range<u64>, pref64: Pref64) -> Names {
        Names {
            ring,
            first: names.start,
            fresh: names.end - names.start,
            cached: self.cached(),
            repeats: Repeats::none(),
            zone: self.zone.clone(),
            pref64: Some(pref64),
        }
    }

    /// How many names are reserved.
    pub fn burst_len(&self) -> u64 {
        RESERVED.min(self.ring.cidr().names())
    }

    /// The zone of the names.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    fn reserved(&self) -> impl Iterator<Item = Ipv4Addr> {
        let cidr = self.ring.cidr();
        (1..=self.burst_len()).map(move |back| cidr.address(cidr.names() - back))
    }
}

#[cfg(test)]
mod tests;
