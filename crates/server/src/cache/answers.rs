//! Caches responses of upstreams by question.
//!
//! The cache has shards with a lock each, which is held for one access. Workers use it only for
//! queries that are not in the cache of rendered responses.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;
use serde::{Deserialize, Serialize};

use super::{Key, MESSAGE_MAX, lock, seconds};
use crate::answer::special::is_within;
use crate::answer::stored::{Aged, Kind, Stored};
use crate::settings::CacheSettings;

/// A response from the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learnt {
    pub(crate) stored: Stored,
    /// When it was stored, in seconds on the engine's clock; `None` if it is expired.
    pub(crate) stored_s: Option<u32>,
    /// Time until which the cache returns this response unchanged except for its age, in seconds on
    /// the engine's clock. 0: for this use only; if it is not expired, it should be refreshed.
    pub(crate) until_s: u32,
}

impl Learnt {
    /// The response and its age at this time: a query can wait for seconds after it got the response.
    pub(crate) fn aged(&self, now_s: u32) -> Aged<'_> {
        match self.stored_s {
            Some(stored_s) => Aged::fresh(&self.stored, now_s.saturating_sub(stored_s)),
            None => Aged::stale(&self.stored),
        }
    }

    /// What it is, for people: `fresh rcode=NOERROR age_s=12 ttl_s=288`.
    pub(crate) fn describe(&self, now_s: u32) -> String {
        let Self {
            stored, stored_s, ..
        } = self;
        let kind = match stored.kind() {
            Kind::NoData => " nodata",
            _ => "",
        };
        let rcode = stored.rcode();
        match stored_s {
            Some(stored_s) => {
                let age_s = now_s.saturating_sub(*stored_s);
                let ttl_s = stored.ttl_s().saturating_sub(age_s);
                format!("fresh rcode={rcode}{kind} age_s={age_s} ttl_s={ttl_s}")
            }
            None => format!("stale rcode={rcode}{kind}"),
        }
    }

    /// Whether it is expired (RFC 8767).
    pub(crate) fn is_stale(&self) -> bool {
        self.stored_s.is_none()
    }

    /// Whether it is neither a failure nor stale.
    pub(crate) fn is_current(&self) -> bool {
        !self.is_stale() && !self.stored.is_failure()
    }

    /// The response to a question of any type for the same name, or for one below a name that does not exist.
    fn fit(self, key: &Key<'_>) -> Self {
        if key.is_question_of(self.stored.bytes()) {
            return self;
        }
        Self {
            stored: self.stored.denial_of(&key.asked()),
            ..self
        }
    }

    /// A response that was combined now from this one and others, which the cache returns until
    /// `until_s`.
    pub(crate) fn remade(&self, stored: Stored, until_s: u32, now_s: u32) -> Self {
        Self {
            stored,
            stored_s: Some(now_s),
            until_s: self.until_s.min(until_s),
        }
    }
}

/// A response in the cache and the rest of its key.
pub(crate) struct Listed {
    pub(crate) learnt: Learnt,
    /// DO and CD of its question.
    pub(crate) bits: u8,
    /// The set of upstreams that it was queried from.
    pub(crate) set: u16,
}

/// A position in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    shard: usize,
    index: usize,
}

/// The outcome of a lookup in the cache.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// A response that is not expired.
    Fresh(Learnt),
    /// An expired response that may be used when no upstream responds (RFC 8767), and whether
    /// upstreams failed recently, so that they must not be queried yet.
    Stale(Learnt, bool),
    /// No response.
    Missing,
}

struct Entry {
    stored: Stored,
    /// Seconds on the engine's clock. The clocks of two workers differ by up to one loop iteration:
    /// the reader's clock can be behind the writer's.
    stored_s: u32,
    expires_s: u32,
    /// Time until which upstreams are not queried again, if the response is stale or expires soon.
    recheck_s: u32,
    /// DO and CD of its question.
    bits: u8,
    /// The set of upstreams that it was queried from.
    set: u16,
}

#[derive(Clone)]
struct Weight;

/// Octets of an entry in addition to its response: the slot in the cache's table and index, the
/// counts of the allocation and its length, and the overhead of the allocator. Verified by measurement:
/// a full cache takes about as much resident memory as its limit.
const ENTRY_BYTES: u64 = 112;

impl quick_cache::Weighter<u64, Entry> for Weight {
    fn weight(&self, _: &u64, entry: &Entry) -> u64 {
        ENTRY_BYTES + entry.stored.memory_bytes() as u64
    }
}

/// A hasher for keys that are already hashes.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Entries by the hash of their key. Two questions with the same hash replace each other; one pair
/// in 2^64 has the same hash.
type Shard = quick_cache::unsync::Cache<u64, Entry, Weight, BuildHasherDefault<Hashed>>;

/// The cache of responses by question.
pub(super) struct Answers {
    /// The shards; their number is a power of two.
    shards: Box<[Mutex<Shard>]>,
    /// Time until which responses that a name does not exist may be in use, and those of them that are used for the
    /// names below: without any, nobody looks for them.
    denied_until_s: AtomicU32,
    cut_until_s: AtomicU32,
}

/// Number of names, of those that a name is below, the nearest first, that are looked up if the name itself is not found:
/// each costs about as much as reading a query.
const ANCESTORS_MAX: usize = 4;

/// Largest number of shards: two of 64 workers rarely access the same one.
const SHARDS_MAX: u64 = 256;

/// Smallest size of a shard in octets: room for some responses of the greatest length, 64 KiB.
const SHARD_BYTES_MIN: u64 = 1 << 18;

/// Size of a cache for failures only: some thousand of them.
const FAILURES_BYTES: u64 = 1 << 20;

/// A response is refreshed in the last tenth of its TTL, like with Unbound's `prefetch`.
const PREFETCH_TENTHS: u32 = 10;

/// Time for which upstreams are not queried again after they failed a question that has a response
/// which is stale or expires soon (RFC 8767 section 5 suggests 30 seconds).
const RECHECK_S: u32 = 30;

/// Estimated size of an entry, for the initial size of the cache's index.
const TYPICAL_BYTES: u64 = 256;

impl Answers {
    /// An empty cache of at most `bytes` octets; 0: only failures, which are always cached (RFC
    /// 9520 section 3.2).
    pub(super) fn new(bytes: u64) -> Self {
        let bytes = bound(bytes);
        let most = (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let count = 1 << most.ilog2();
        let shard = |_| {
            let items = usize::try_from(bytes / count / TYPICAL_BYTES).unwrap_or(usize::MAX);
            Mutex::new(Shard::with(
                items,
                bytes / count,
                Weight,
                BuildHasherDefault::default(),
                quick_cache::unsync::DefaultLifecycle::default(),
            ))
        };
        Self {
            shards: (0..count).map(shard).collect(),
            denied_until_s: AtomicU32::new(0),
            cut_until_s: AtomicU32::new(0),
        }
    }

    /// Changes the size; removes entries that do not fit any more.
    pub(super) fn set_bytes(&self, bytes: u64) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            if bytes == 0 {
                shard.clear();
            }
            shard.set_capacity(bound(bytes) / self.shards.len() as u64);
        }
    }

    /// Looks up a question: a response to it, or one that its name or a name that it is below does not exist. Of the
    /// latter only one that an upstream has validated counts, as RFC 8020 section 2 permits: unsigned zones exist that
    /// deny names with others below (section 3 there). A response to the question itself is used until it expires.
    pub(super) fn find(&self, settings: &CacheSettings, key: &Key<'_>, now: Nanos) -> Found {
        let now_s = seconds(now);
        if self.is_denying(now_s) {
            return self.find_or_denial(settings, key, now_s);
        }
        self.find_exact(settings, key, now_s)
    }

    #[inline(never)]
    fn find_or_denial(&self, settings: &CacheSettings, key: &Key<'_>, now_s: u32) -> Found {
        let found = self.find_exact(settings, key, now_s);
        if matches!(found, Found::Fresh(_)) {
            return found;
        }
        match self.find_denial(settings, key, now_s) {
            Found::Missing => found,
            Found::Stale(..) if matches!(found, Found::Stale(..)) => found,
            denial => denial,
        }
    }

    /// Whether there may be responses that a name does not exist.
    fn is_denying(&self, now_s: u32) -> bool {
        now_s < self.denied_until_s.load(Ordering::Relaxed)
    }

    /// Looks for a response that the name of a question does not exist.
    fn find_denial(&self, settings: &CacheSettings, key: &Key<'_>, now_s: u32) -> Found {
        let of_name = self.find_exact(settings, &key.to_denial(key.name), now_s);
        if let Found::Fresh(learnt) = of_name {
            return Found::Fresh(learnt.fit(key));
        }
        if now_s < self.cut_until_s.load(Ordering::Relaxed) {
            for ancestor in ancestors(key.name).take(ANCESTORS_MAX) {
                let found = self.find_exact(settings, &key.to_denial(&ancestor), now_s);
                if let Found::Fresh(learnt) = found
                    && learnt.stored.ad()
                {
                    return Found::Fresh(learnt.fit(key));
                }
            }
        }
        match of_name {
            Found::Stale(learnt, failed_lately) => Found::Stale(learnt.fit(key), failed_lately),
            found => found,
        }
    }

    /// Looks up a key.
    fn find_exact(&self, settings: &CacheSettings, key: &Key<'_>, now_s: u32) -> Found {
        let shard = lock(self.shard(key));
        let entry = shard.get(&key.hash());
        let Some(entry) = entry.filter(|entry| entry.is_for(key)) else {
            return Found::Missing;
        };
        let learnt = entry.learnt(settings, now_s);
        if now_s < entry.expires_s {
            return Found::Fresh(learnt);
        }
        if entry.is_usable(settings, now_s) {
            return Found::Stale(learnt, now_s < entry.recheck_s);
        }
        Found::Missing
    }

    /// Stores a response of an upstream and returns the response to use from now on. A failure does
    /// not replace a response that may be used stale. A response does not replace another one
    /// unless that is expired or expires soon: two workers sent the same query, and clients have
    /// seen the TTLs of the first response. One that a name does not exist is stored for all types of the name.
    pub(super) fn keep(
        &self,
        settings: &CacheSettings,
        key: &Key<'_>,
        stored: Stored,
        now: Nanos,
    ) -> Learnt {
        let now_s = seconds(now);
        if stored.denies_name() || stored.is_failure() {
            return self.keep_negative(settings, key, stored, now_s);
        }
        self.keep_exact(settings, key, stored, now_s)
    }

    /// Stores a response that a name does not exist, or a failure, which does not replace such a response.
    #[inline(never)]
    fn keep_negative(
        &self,
        settings: &CacheSettings,
        key: &Key<'_>,
        stored: Stored,
        now_s: u32,
    ) -> Learnt {
        // A query that is answered with it costs as much as its octets.
        let denies = stored.denies_name() && stored.bytes().len() <= MESSAGE_MAX;
        if denies {
            let until_s = now_s.saturating_add(stored.ttl_s());
            let usable_until_s = until_s.saturating_add(settings.stale_s);
            self.denied_until_s
                .fetch_max(usable_until_s, Ordering::Relaxed);
            if stored.ad() {
                self.cut_until_s.fetch_max(until_s, Ordering::Relaxed);
            }
        }
        let of_name = key.to_denial(key.name);
        let is_known = || {
            let known = self.find_exact(settings, &of_name, now_s);
            !matches!(known, Found::Missing)
        };
        if denies || self.is_denying(now_s) && is_known() {
            let learnt = self.keep_exact(settings, &of_name, stored, now_s);
            return learnt.fit(key);
        }
        self.keep_exact(settings, key, stored, now_s)
    }

    /// Stores a response by a key.
    fn keep_exact(
        &self,
        settings: &CacheSettings,
        key: &Key<'_>,
        stored: Stored,
        now_s: u32,
    ) -> Learnt {
        let mut shard = lock(self.shard(key));
        if let Some(mut entry) = shard.get_mut(&key.hash())
            && entry.is_for(key)
        {
            let failed = stored.is_failure() && entry.is_usable(settings, now_s);
            if failed {
                entry.recheck_s = now_s + RECHECK_S;
            }
            if failed || !entry.stored.is_failure() && now_s < entry.ends_soon_s(settings) {
                return entry.learnt(settings, now_s);
            }
        }
        let entry = Entry {
            stored_s: now_s,
            expires_s: now_s.saturating_add(stored.ttl_s()),
            recheck_s: 0,
            bits: key.bits(),
            set: key.set,
            stored,
        };
        let learnt = entry.learnt(settings, now_s);
        if entry.expires_s > now_s && (settings.bytes > 0 || entry.stored.is_failure()) {
            shard.insert(key.hash(), entry);
            return learnt;
        }
        Learnt {
            stored_s: Some(now_s),
            until_s: 0,
            ..learnt
        }
    }

    /// Removes all responses, or those for a name (lower case, uncompressed) and the names below
    /// it, and those that deny it. Returns their number.
    pub(super) fn flush(&self, below: Option<&[u8]>) -> usize {
        let flush = |shard: &Mutex<Shard>| {
            let mut shard = lock(shard);
            let before = shard.len();
            match below {
                None => shard.clear(),
                Some(name) => shard.retain(|_, entry| !entry.is_about(name)),
            }
            before - shard.len()
        };
        self.shards.iter().map(flush).sum()
    }

    /// Whether entries are evicted now or soon: at most an eighth of the size is left.
    pub(super) fn is_full(&self, key: &Key<'_>) -> bool {
        let shard = lock(self.shard(key));
        shard.weight() >= shard.capacity() - shard.capacity() / 8
    }

    /// Removes the responses to questions for a name (lower case, uncompressed) and a type, and those that the name does not
    /// exist. Returns their number.
    pub(super) fn flush_question(&self, name: &[u8], rtype: Rtype) -> usize {
        let flush = |shard: &Mutex<Shard>| {
            let mut shard = lock(shard);
            let before = shard.len();
            shard.retain(|_, entry| {
                let own = entry.stored.question_name();
                let is_of_type = entry.stored.denies_name() || entry.stored.rtype() == rtype;
                !(own.eq_ignore_ascii_case(name) && is_of_type)
            });
            before - shard.len()
        };
        self.shards.iter().map(flush).sum()
    }

    /// Up to `most` responses, beginning at a place, and the place of the next ones. Holds one lock, and copies no octets.
    /// Responses that are stored or removed between two calls can be left out or come twice.
    pub(super) fn page(
        &self,
        settings: &CacheSettings,
        from: Place,
        most: usize,
        now: Nanos,
    ) -> (Vec<Listed>, Option<Place>) {
        let now_s = seconds(now);
        let Some(shard) = self.shards.get(from.shard) else {
            return (Vec::new(), None);
        };
        let shard = lock(shard);
        let entries = shard.iter().skip(from.index).take(most);
        let listed: Vec<_> = entries
            .map(|(_, entry)| Listed {
                learnt: entry.learnt(settings, now_s),
                bits: entry.bits,
                set: entry.set,
            })
            .collect();
        let is_end = from.index + listed.len() >= shard.len();
        let next = match is_end {
            true => Place {
                shard: from.shard + 1,
                index: 0,
            },
            false => Place {
                index: from.index + listed.len(),
                ..from
            },
        };
        (
            listed,
            Some(next).filter(|next| next.shard < self.shards.len()),
        )
    }

    /// Number of responses.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Size of the responses in octets.
    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).weight()).sum()
    }

    /// The shard of a key, by bits of its hash that a shard's table does not use: the table uses
    /// the lowest bits for the bucket and the highest seven to distinguish entries.
    fn shard(&self, key: &Key<'_>) -> &Mutex<Shard> {
        let [_, octet, ..] = key.hash().to_be_bytes();
        // At most 256 shards.
        &self.shards[usize::from(octet) & (self.shards.len() - 1)]
    }
}

impl Entry {
    fn is_for(&self, key: &Key<'_>) -> bool {
        (self.bits, self.set) == (key.bits(), key.set) && key.is_question_of(self.stored.bytes())
    }

    /// Time from which on the response should be refreshed: when it expires, or earlier with
    /// prefetch.
    fn ends_soon_s(&self, settings: &CacheSettings) -> u32 {
        if !settings.prefetch || self.stored.is_failure() {
            return self.expires_s;
        }
        let ahead_s = (self.expires_s - self.stored_s) / PREFETCH_TENTHS;
        (self.expires_s - ahead_s)
            .max(self.recheck_s)
            .min(self.expires_s)
    }

    fn learnt(&self, settings: &CacheSettings, now_s: u32) -> Learnt {
        let until_s = self.ends_soon_s(settings);
        Learnt {
            stored: self.stored.clone(),
            stored_s: (now_s < self.expires_s).then_some(self.stored_s),
            until_s: if now_s < until_s { until_s } else { 0 },
        }
    }

    /// Whether it answers a question for this name or one below it, or denies it.
    fn is_about(&self, name: &[u8]) -> bool {
        let own = self.stored.question_name();
        is_within(own, name) || self.stored.denies_name() && is_within(name, own)
    }

    /// Whether it is a response that is not expired or may be used stale.
    fn is_usable(&self, settings: &CacheSettings, now_s: u32) -> bool {
        !self.stored.is_failure() && now_s < self.expires_s.saturating_add(settings.stale_s)
    }
}

/// The effective size: without a cache, that for failures.
fn bound(bytes: u64) -> u64 {
    if bytes == 0 { FAILURES_BYTES } else { bytes }
}

/// The names that a name is below, the nearest first, without the root.
fn ancestors(name: &NameBuf) -> impl Iterator<Item = NameBuf> {
    let all = std::iter::successors(parent(name.as_wire()), |suffix| parent(suffix));
    all.filter_map(|suffix| NameBuf::from_wire(suffix).ok())
}

/// A name in wire format without its first label, unless that is the root.
fn parent(name: &[u8]) -> Option<&[u8]> {
    let (len, rest) = name.split_first()?;
    rest.get((*len).into()..).filter(|rest| rest.len() > 1)
}

#[cfg(test)]
mod tests;
