//! Selects the names of a trial. Each trial uses new names, so that no cache affects it and no restart is necessary
//! (RFC 8219 section 9.2, condition 1: "all the domain names to be resolved are different"). A working set of names is
//! repeated by a share of the queries.
//!
//! Names are counted from a random place of the range, so two programs that query one server rarely use the same names.
//! The journal of a campaign has its used names ([`NameRange`]), and the campaign continues after them ([`Begin`]).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rtype;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{As, DisplayFromStr};

use super::query::QueryForm;
use super::repeat::{self, Repeats};
use super::ring::Ring;
use crate::namespace::{AskedName, Cidr, Pattern, Prefixes, Share, Zone, own_aaaa};
use crate::naming::{Message, NAMESPACE, Naming};

/// The names of a trial and their expected answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Names {
    /// The names of the range in the order of their use.
    pub ring: Ring,
    /// Number, in this order, of the trial's first fresh name.
    pub first: u64,
    /// Number of fresh names of the trial.
    pub fresh: u64,
    /// The one cached name.
    pub cached: Ipv4Addr,
    /// The queries that repeat a name, and the repeated names.
    pub repeats: Repeats,
    /// The zone, which determines the names with an AAAA record.
    pub zone: Zone,
    /// The prefixes of synthesised AAAA records; `None` in a self-test, where every name has an AAAA record.
    #[serde(with = "As::<Option<DisplayFromStr>>")]
    pub pref64: Option<Prefixes>,
    /// Form of the queries.
    pub form: QueryForm,
}

impl Names {
    /// Returns the address whose name query `i` of the trial requests.
    pub fn asked(&self, i: u64) -> Ipv4Addr {
        self.question(i).address
    }

    /// Returns name and type of query `i` of the trial. A name is requested with one type, so that a repeated query has the type of
    /// the first; only the one cached name is requested with all.
    #[inline]
    pub fn question(&self, i: u64) -> AskedName {
        let types = self.form.types;
        let address = match self.repeats.asked(i) {
            repeat::Asked::Own(n) => self.ring.address(self.first + n),
            repeat::Asked::Before(n) => self.ring.address(self.first.saturating_sub(n)),
            repeat::Asked::OfSet(n) => self.ring.address(n),
            repeat::Asked::Cached => {
                let rtype = types.of(self.repeats.share().below(i));
                return AskedName {
                    address: self.cached,
                    rtype,
                };
            }
        };
        let rtype = match types.are_aaaa() {
            true => Rtype::AAAA,
            false => types.of(self.zone.rank(address)),
        };
        AskedName { address, rtype }
    }

    /// Returns the index among the trial's fresh names of the name of `address`, from 0; `None` if it is none of them.
    ///
    /// The inverse of [`Names::asked`] for fresh names, in the order of their queries.
    pub fn index_of(&self, address: Ipv4Addr) -> Option<u64> {
        let number = self.ring.number_of(address)?.checked_sub(self.first)?;
        (number < self.fresh).then_some(number)
    }

    /// Returns the fresh names of the trial for the journal.
    pub fn range(&self) -> NameRange {
        NameRange {
            namespace: self.ring.cidr(),
            begin: self.ring.begin(),
            first: self.ring.index(self.first),
            fresh: self.fresh,
        }
    }

    /// Returns the correct addresses for the name of `address`: one for each prefix and each of its addresses if it has no AAAA
    /// record; none if every prefix is correct.
    pub fn expected(&self, address: Ipv4Addr) -> impl Iterator<Item = Ipv6Addr> {
        let synthesised = self.synthesised(address);
        self.zone.addresses(address).flat_map(move |it| {
            let own = synthesised.is_none().then(|| own_aaaa(it));
            let embedded = synthesised.into_iter().flat_map(move |to| to.embed(it));
            own.into_iter().chain(embedded)
        })
    }

    /// Returns the records that a valid answer has.
    #[inline]
    pub fn wanted(&self, asked: AskedName) -> Wanted {
        match self.zone.records.are_plain() {
            true => Wanted::ADDRESS,
            false => self.wanted_of_other(asked),
        }
    }

    #[cold]
    fn wanted_of_other(&self, asked: AskedName) -> Wanted {
        Wanted {
            addresses: match asked.rtype {
                Rtype::HTTPS => 1,
                _ => self.zone.records.addresses.into(),
            },
            aliases: self.zone.aliases(asked.address),
        }
    }

    /// Returns which address of the name, from 0, an address in an answer to a question is, or is synthesised from; `None` if it is
    /// not correct. In an HTTPS record it is a hint: an address of the name, or one that a DNS64 server has synthesised from it.
    #[inline]
    pub fn place(&self, found: IpAddr, asked: AskedName) -> Option<u32> {
        match self.is(found, asked.address, asked) {
            true => Some(0),
            false => self.later_place(found, asked),
        }
    }

    #[cold]
    fn later_place(&self, found: IpAddr, asked: AskedName) -> Option<u32> {
        let places = (0..).zip(self.zone.addresses(asked.address));
        let mut later = places.skip(1).filter(|(_, it)| self.is(found, *it, asked));
        later.next().map(|(place, _)| place)
    }

    /// Returns whether an address in an answer is `address` of the name, or is synthesised from it.
    #[inline]
    fn is(&self, found: IpAddr, address: Ipv4Addr, asked: AskedName) -> bool {
        match (found, asked.rtype) {
            (IpAddr::V6(found), Rtype::AAAA) => match self.synthesised(asked.address) {
                Some(prefixes) => prefixes.explain(found, address),
                None => found == own_aaaa(address),
            },
            (IpAddr::V6(found), Rtype::HTTPS) => {
                let prefixes = self.pref64.as_ref();
                prefixes.is_some_and(|it| it.explain(found, address))
            }
            (IpAddr::V6(_), _) | (IpAddr::V4(_), Rtype::AAAA) => false,
            (IpAddr::V4(found), _) => found == address,
        }
    }

    /// Returns whether an address is a correct answer to the AAAA query for the name of `address`.
    pub fn accept(&self, found: Ipv6Addr, address: Ipv4Addr) -> bool {
        self.place(found.into(), AskedName::aaaa(address)).is_some()
    }

    /// Returns the prefixes of the answers for the name of `address`, if it has no AAAA record.
    fn synthesised(&self, address: Ipv4Addr) -> Option<&Prefixes> {
        let prefixes = self.pref64.as_ref()?;
        (!self.zone.has_aaaa(address)).then_some(prefixes)
    }

    /// Number of fresh names in a trial of `queries` queries.
    pub fn fresh(cached_share: Share, queries: u64) -> u64 {
        queries - cached_share.below(queries)
    }
}

/// The records that a valid answer has at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Different addresses of the name; at most 32.
    pub addresses: u32,
    /// CNAME records, each with the next target of the name.
    pub aliases: u8,
}

impl Wanted {
    /// One address of the name itself.
    pub const ADDRESS: Self = Self {
        addresses: 1,
        aliases: 0,
    };
}

/// The fresh names of a trial as recorded in its result: `fresh` names from index `first` of `namespace` on. The last
/// unreserved name is followed by the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct NameRange {
    /// The range.
    pub namespace: Cidr,
    /// Index in the range from which the names of this server are counted.
    pub begin: u64,
    /// Index in the range of the trial's first fresh name.
    pub first: u64,
    /// Number of fresh names of the trial.
    pub fresh: u64,
}

/// Start of a source of names, and the number of names already used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Index in the range of the first name. Any number is valid: it is reduced to one of the indices.
    pub at: u64,
    /// Number of names from there on that earlier trials of the same campaign have used.
    pub used: u64,
}

impl Begin {
    /// Returns the start after a trial in the same range.
    pub fn after(dealt: &NameRange) -> Self {
        let ring = usable(dealt.namespace, dealt.begin);
        let number = ring.number(dealt.first).unwrap_or(ring.names());
        Self {
            at: dealt.begin,
            used: number.saturating_add(dealt.fresh),
        }
    }
}

/// Names of a range that trials may use, counted from this index on.
fn usable(cidr: Cidr, begin: u64) -> Ring {
    Ring::new(cidr, cidr.names().saturating_sub(RESERVED), begin)
}

/// Deals the names of a range, each once.
///
/// Names are counted around the range from the source's start; the last names of the range are reserved. The first
/// names in this order are the working set of the first trial. A fixed set stays there; a moving one always precedes
/// the first fresh name of a trial.
#[derive(Clone, Debug)]
pub struct NameSource {
    ring: Ring,
    zone: Zone,
    cached_share: Share,
    pattern: Pattern,
    next: u64,
    /// Number of names that were used before this source was created.
    used: u64,
    probes: u64,
    asked: CachedNames,
    form: QueryForm,
}

/// Names that were queried and answered since the server's start, and the time until which it caches the answers.
#[derive(Clone, Debug, Default)]
struct CachedNames {
    names: Range<u64>,
    kept_until_ns: Nanos,
}

/// Number of names at the end of the range that are reserved for probes and for the cached name.
pub const RESERVED: u64 = 64;

/// Number of names of a kind in a sample: of consecutive names with a share of an eighth, one has an AAAA record.
const SAMPLE_OF_KIND: usize = 8;

/// The range does not have enough names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceTooSmall {
    /// The range.
    pub cidr: Cidr,
    /// Number of unused names.
    pub left: u64,
    /// Number of names that earlier trials of the same journal have used, before this process or this rig.
    pub used: u64,
    /// Number of names that are needed.
    pub needed: u64,
    /// The smallest enclosing range that suffices, if there is one.
    pub wider: Option<Cidr>,
}

fn used_before(used: u64) -> String {
    match used {
        0 => String::new(),
        used => format!(", because earlier trials of this journal have used {used},"),
    }
}

impl fmt::Display for NamespaceTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wider = |wider| Naming::of(f).value(NAMESPACE, wider);
        let remedy = match &self.wider {
            Some(it) => format!("use {}, or a shorter or slower trial", wider(it)),
            None => "even 0.0.0.0/0 is too small: use a shorter or slower trial".to_owned(),
        };
        let (cidr, left, needed) = (self.cidr, self.left, self.needed);
        let used = used_before(self.used);
        write!(
            f,
            "{cidr} has {left} unused names{used} and the trial needs {needed}; {remedy}"
        )
    }
}

impl std::error::Error for NamespaceTooSmall {}

impl NameSource {
    /// Creates a source of all names of `cidr`, from the first on. A share `cached_share` of the queries of a trial
    /// repeats names by `pattern`.
    ///
    /// # Errors
    ///
    /// The pattern needs more names than the range provides for it.
    pub fn new(
        cidr: Cidr,
        zone: Zone,
        cached_share: Share,
        pattern: Pattern,
    ) -> Result<Self, Message> {
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
            asked: CachedNames::default(),
            form: QueryForm::default(),
        };
        Ok(source.begun_at(Begin::default()))
    }

    /// Returns the same source for queries of another form.
    #[must_use]
    pub fn in_form(self, form: QueryForm) -> Self {
        Self { form, ..self }
    }

    /// Returns the same source with another start.
    #[must_use]
    pub fn begun_at(self, begin: Begin) -> Self {
        Self {
            ring: usable(self.ring.cidr(), begin.at),
            next: begin.used.max(self.working_set()),
            used: begin.used,
            ..self
        }
    }

    /// Deals names for a trial of `queries` queries, none of them used before.
    pub fn take(
        &mut self,
        queries: u64,
        pref64: Option<Prefixes>,
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
            form: self.form,
        })
    }

    /// Resets the source, for a server that was restarted and has an empty cache.
    pub fn start_over(&mut self) {
        self.next = self.working_set();
        self.used = 0;
        self.asked = CachedNames::default();
    }

    /// Returns whether some queries request the one cached name.
    pub fn has_cached(&self) -> bool {
        self.cached_share != Share::NONE && self.pattern == Pattern::OneName
    }

    /// Number of names in the working set.
    fn working_set(&self) -> u64 {
        match self.cached_share {
            Share::NONE => 0,
            _ => self.pattern.working_set(),
        }
    }

    /// Returns the part of the working set of a trial with `names` that must be queried once right before the trial, in
    /// this order. `None` if the server has answered these names since its start and caches the answers until `end_ns`,
    /// the end of the trial.
    ///
    /// A stack is always queried: the previous trial used its names too, but not in the order of the stack, and only
    /// this order gives the first repetition its distance.
    pub fn to_ask_before(&self, names: &Names, end_ns: Nanos) -> Option<Range<u64>> {
        let set = match self.pattern {
            Pattern::Zipf { .. } => 0..self.working_set(),
            _ => names.first - self.working_set()..names.first,
        };
        let ordered = matches!(self.pattern, Pattern::StackDistance { .. });
        let CachedNames {
            names: asked,
            kept_until_ns,
        } = &self.asked;
        let kept = asked.start <= set.start && set.end <= asked.end && end_ns <= *kept_until_ns;
        (!set.is_empty() && (ordered || !kept)).then_some(set)
    }

    /// Records that all `names` were queried and answered, and that the answers are cached until `kept_until_ns`.
    pub fn were_asked(&mut self, names: Range<u64>, kept_until_ns: Nanos) {
        self.asked = CachedNames {
            names,
            kept_until_ns,
        };
    }

    /// Records the end of the trial with the last dealt `names`. If every query was answered, they extend the known
    /// names. Otherwise it is unknown which of them the server has cached.
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
            true => CachedNames {
                names: start..self.next,
                kept_until_ns: until_ns.min(kept_until_ns),
            },
            false => CachedNames::default(),
        };
    }

    /// Returns the name of the cached share: the last of the range without an AAAA record.
    pub fn cached(&self) -> Ipv4Addr {
        self.reserved()
            .find(|&a| !self.zone.has_aaaa(a))
            .unwrap_or_else(|| {
                let cidr = self.ring.cidr();
                cidr.address(cidr.names() - 1)
            })
    }

    /// Returns a name for a probe: one without an AAAA record, if the range has one. Each call returns another of the
    /// reserved names, in rotation.
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

    /// Returns reserved names with or without an AAAA record, and the cached name if trials query it.
    pub fn sample(&self, has_aaaa: bool) -> impl Iterator<Item = Ipv4Addr> {
        let cached = self.has_cached().then(|| self.cached());
        let others = self.reserved().filter(move |it| Some(*it) != cached);
        let names = cached.into_iter().chain(others);
        let of_kind = names.filter(move |&it| self.zone.has_aaaa(it) == has_aaaa);
        of_kind.take(SAMPLE_OF_KIND)
    }

    /// Returns the reserved names, [`Self::burst_len`] of them, for a burst before the first trial.
    pub fn burst(&self, pref64: Prefixes) -> Names {
        let whole = Ring::whole(self.ring.cidr());
        let reserved = whole.names() - self.burst_len()..whole.names();
        self.each_of(whole, &reserved, pref64)
    }

    /// Returns these names, each once, in the order of their use.
    pub fn once(&self, names: &Range<u64>, pref64: Prefixes) -> Names {
        self.each_of(self.ring, names, pref64)
    }

    fn each_of(&self, ring: Ring, names: &Range<u64>, pref64: Prefixes) -> Names {
        Names {
            ring,
            first: names.start,
            fresh: names.end - names.start,
            cached: self.cached(),
            repeats: Repeats::none(),
            zone: self.zone.clone(),
            pref64: Some(pref64),
            form: self.form,
        }
    }

    /// Number of reserved names.
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
