//! Caches responses of upstreams by question.
//!
//! The cache has shards with a lock each, which is held for one access. Workers use it only for
//! queries that are not in the cache of rendered responses.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex};

use dns64_transport::clock::Nanos;
use dns64_wire::message::HEADER_LEN;

use super::{Key, lock, seconds};
use crate::answer::stored::{Aged, Stored};
use crate::settings::CacheSettings;

/// A response from the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learnt {
    pub(crate) stored: Arc<Stored>,
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

    /// Whether it is expired (RFC 8767).
    pub(crate) fn is_stale(&self) -> bool {
        self.stored_s.is_none()
    }

    /// Whether it is neither a failure nor stale.
    pub(crate) fn is_current(&self) -> bool {
        !self.is_stale() && !self.stored.is_failure()
    }

    /// A response that was combined now from this one and others, which the cache returns until
    /// `until_s`.
    pub(crate) fn remade(&self, stored: Stored, until_s: u32, now_s: u32) -> Self {
        Self {
            stored: Arc::new(stored),
            stored_s: Some(now_s),
            until_s: self.until_s.min(until_s),
        }
    }
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
    stored: Arc<Stored>,
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
/// counted pointer, and the overhead of the allocator for two allocations. Verified by measurement:
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
}

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

    /// Looks up a question.
    pub(super) fn find(&self, settings: &CacheSettings, key: &Key<'_>, now: Nanos) -> Found {
        let shard = lock(self.shard(key));
        let entry = shard.get(&key.hash());
        let Some(entry) = entry.filter(|entry| entry.is_for(key)) else {
            return Found::Missing;
        };
        let now_s = seconds(now);
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
    /// seen the TTLs of the first response.
    pub(super) fn keep(
        &self,
        settings: &CacheSettings,
        key: &Key<'_>,
        stored: Arc<Stored>,
        now: Nanos,
    ) -> Learnt {
        let now_s = seconds(now);
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
    /// it. Returns their number.
    pub(super) fn flush(&self, below: Option<&[u8]>) -> usize {
        let flush = |shard: &Mutex<Shard>| {
            let mut shard = lock(shard);
            let before = shard.len();
            match below {
                None => shard.clear(),
                Some(name) => shard.retain(|_, entry| !is_below(&entry.stored, name)),
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

    /// Whether it is a response that is not expired or may be used stale.
    fn is_usable(&self, settings: &CacheSettings, now_s: u32) -> bool {
        !self.stored.is_failure() && now_s < self.expires_s.saturating_add(settings.stale_s)
    }
}

/// The effective size: without a cache, that for failures.
fn bound(bytes: u64) -> u64 {
    if bytes == 0 { FAILURES_BYTES } else { bytes }
}

/// Whether a stored response answers a question for `name` or a name below it.
fn is_below(stored: &Stored, name: &[u8]) -> bool {
    let mut left = stored.bytes().get(HEADER_LEN..).unwrap_or_default();
    loop {
        if has_name(left, name) {
            return true;
        }
        match left.split_first() {
            Some((len @ 1..=u8::MAX, rest)) => left = rest.get((*len).into()..).unwrap_or_default(),
            _ => return false,
        }
    }
}

/// Whether these octets begin with `name`, in any case.
fn has_name(octets: &[u8], name: &[u8]) -> bool {
    let found = octets.get(..name.len());
    found.is_some_and(|found| found.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::SETTINGS;
    use super::super::{Key, KeyBuf, name_hash};
    use super::*;
    use crate::answer::stored::{Age, Asked, TtlBounds};
    use dns64_transport::clock::SECOND;
    use dns64_wire::build::{Builder, Owner};
    use dns64_wire::codes::{Class, Rcode, Rtype};
    use dns64_wire::message::{Flags, Message, Section};
    use dns64_wire::name::NameBuf;

    /// A cache and the settings for lookups in it.
    struct Cache(Answers, CacheSettings);

    impl Cache {
        fn find(&self, key: &Key<'_>, now: Nanos) -> Found {
            self.0.find(&self.1, key, now)
        }

        fn keep(&self, key: &Key<'_>, stored: &Arc<Stored>, now: Nanos) -> Age {
            let learnt = self.0.keep(&self.1, key, stored.clone(), now);
            learnt.aged(seconds(now)).age
        }
    }

    fn cache(settings: CacheSettings) -> Cache {
        Cache(Answers::new(settings.bytes), settings)
    }

    fn key(name: &str) -> KeyBuf {
        let name = name.parse().unwrap();
        Key::new(&name, name_hash(&name), Rtype::A, Class::IN, false, false).to_buf()
    }

    fn answer(name: &str, ttl_s: u32) -> Arc<Stored> {
        let mut bytes = [0; 512];
        let mut message = Builder::new(&mut bytes, 512).unwrap();
        message.header(0, Flags::default().with_qr(true));
        let name = name.parse().unwrap();
        message.question(&name, Rtype::A, Class::IN).unwrap();
        message
            .record(
                Section::Answer,
                Owner::Question,
                Rtype::A,
                Class::IN,
                ttl_s,
                &[192, 0, 2, 1],
            )
            .unwrap();
        let len = message.finish();
        let bounds = TtlBounds {
            min_s: 0,
            max_s: 86_400,
            max_negative_s: 3600,
        };
        let message = Message::parse(&bytes[..len]).unwrap();
        Arc::new(Stored::accept(&message, &bounds).unwrap())
    }

    fn failure(name: &str) -> Arc<Stored> {
        let asked = Asked {
            name: &name.parse().unwrap(),
            rtype: Rtype::A,
            class: Class::IN,
        };
        Arc::new(Stored::failure(&asked, Rcode::SERVFAIL, None))
    }

    /// The outcome of a lookup as text: age, "stale", "stale, failed lately" or "-".
    fn found(cache: &Cache, name: &str, at_s: u64) -> String {
        match cache.find(&key(name).as_key(), at_s * SECOND) {
            Found::Fresh(learnt) => {
                let now_s = seconds(at_s * SECOND);
                let Age::Seconds(age_s) = learnt.aged(now_s).age else {
                    panic!("{learnt:?}");
                };
                format!("{age_s}{}", if learnt.until_s == 0 { "!" } else { "" })
            }
            Found::Stale(_, true) => "stale, failed lately".into(),
            Found::Stale(_, false) => "stale".into(),
            Found::Missing => "-".into(),
        }
    }

    #[test]
    fn response_expires_with_its_ttl() {
        let cache = cache(SETTINGS);
        cache.keep(&key("a").as_key(), &answer("a", 10), 5 * SECOND);
        assert_eq!(found(&cache, "a", 5), "0");
        assert_eq!(found(&cache, "A", 14), "9");
        assert_eq!(found(&cache, "a", 15), "-");
        assert_eq!(found(&cache, "b", 5), "-");
        cache.keep(&key("z").as_key(), &answer("z", 0), 5 * SECOND);
        assert_eq!(found(&cache, "z", 5), "-", "a TTL of 0 is for one use");
    }

    #[test]
    fn first_response_is_kept_for_simultaneous_queries() {
        let cache = cache(SETTINGS);
        assert_eq!(
            cache.keep(&key("a").as_key(), &answer("a", 100), 5 * SECOND),
            Age::Seconds(0)
        );
        let second = cache.keep(&key("a").as_key(), &answer("a", 100), 15 * SECOND);
        assert_eq!(second, Age::Seconds(10), "clients have seen TTLs of 90");
        assert_eq!(found(&cache, "a", 25), "20");
        let late = cache.keep(&key("a").as_key(), &failure("a"), 25 * SECOND);
        assert_eq!(late, Age::Seconds(20), "there is an answer");
        assert_eq!(found(&cache, "a", 105), "-");
    }

    #[test]
    fn clock_of_reader_may_be_behind_that_of_writer() {
        let cache = cache(SETTINGS);
        cache.keep(&key("a").as_key(), &answer("a", 100), 5 * SECOND);
        assert_eq!(found(&cache, "a", 4), "0");
        let second = cache.keep(&key("a").as_key(), &answer("a", 100), 4 * SECOND);
        assert_eq!(second, Age::Seconds(0));
    }

    #[test]
    fn type_class_and_bits_are_part_of_the_key() {
        let name = "a".parse().unwrap();
        let keys = [
            Key::new(&name, name_hash(&name), Rtype::A, Class::IN, false, false),
            Key::new(
                &name,
                name_hash(&name),
                Rtype::AAAA,
                Class::IN,
                false,
                false,
            ),
            Key::new(&name, name_hash(&name), Rtype::A, Class::CH, false, false),
            Key::new(&name, name_hash(&name), Rtype::A, Class::IN, true, false),
            Key::new(&name, name_hash(&name), Rtype::A, Class::IN, false, true),
            Key::new(&name, name_hash(&name), Rtype::A, Class::IN, true, true),
        ];
        let cache = cache(SETTINGS);
        for (i, key) in keys.iter().enumerate() {
            assert!(matches!(cache.find(key, 0), Found::Missing), "{i}");
            cache.keep(key, &answer("a", 10), 0);
        }
        assert_eq!(cache.0.len(), keys.len());
    }

    #[test]
    fn failure_is_cached_for_five_seconds_even_without_a_cache() {
        for bytes in [0, 1 << 20] {
            let cache = cache(CacheSettings { bytes, ..SETTINGS });
            cache.keep(&key("a").as_key(), &failure("a"), 0);
            assert_eq!(found(&cache, "a", 4), "4");
            assert_eq!(found(&cache, "a", 5), "-");
        }
        let off = cache(CacheSettings {
            bytes: 0,
            ..SETTINGS
        });
        off.keep(&key("a").as_key(), &answer("a", 10), 0);
        assert_eq!(found(&off, "a", 0), "-");
    }

    #[test]
    fn failure_does_not_replace_usable_stale_response() {
        let cache = cache(CacheSettings {
            stale_s: 100,
            ..SETTINGS
        });
        cache.keep(&key("a").as_key(), &answer("a", 10), 0);
        assert_eq!(found(&cache, "a", 10), "stale");
        cache.keep(&key("a").as_key(), &failure("a"), 10 * SECOND);
        assert_eq!(found(&cache, "a", 39), "stale, failed lately");
        assert_eq!(found(&cache, "a", 40), "stale");
        assert_eq!(found(&cache, "a", 110), "-");
        cache.keep(&key("a").as_key(), &failure("a"), 110 * SECOND);
        assert_eq!(found(&cache, "a", 111), "1", "now it does");
    }

    #[test]
    fn response_is_refreshed_in_last_tenth_of_its_ttl() {
        let cache = cache(CacheSettings {
            prefetch: true,
            ..SETTINGS
        });
        cache.keep(&key("a").as_key(), &answer("a", 100), 0);
        assert_eq!(found(&cache, "a", 89), "89");
        assert_eq!(found(&cache, "a", 90), "90!");
        cache.keep(&key("f").as_key(), &failure("f"), 0);
        assert_eq!(found(&cache, "f", 4), "4", "a failure is left alone");
    }

    #[test]
    fn flush_removes_name_and_names_below() {
        let cache = cache(SETTINGS);
        for name in [
            "example",
            "a.example",
            "b.a.example",
            "notexample",
            "example.com",
        ] {
            cache.keep(&key(name).as_key(), &answer(name, 10), 0);
        }
        let name: NameBuf = "a.example".parse().unwrap();
        assert_eq!(cache.0.flush(Some(name.as_wire())), 2);
        assert_eq!(found(&cache, "example", 0), "0");
        assert_eq!(found(&cache, "b.a.example", 0), "-");
        assert_eq!(cache.0.flush(None), 3);
        assert_eq!(cache.0.len(), 0);
    }

    #[test]
    fn name_that_is_refreshed_each_second_keeps_no_others() {
        let cache = cache(SETTINGS);
        let lightest = ENTRY_BYTES + answer("hot", 1).memory_bytes() as u64;
        let mut evicted = 0;
        for second in 1..20_000 {
            let name = format!("name-{second}.example");
            for (name, ttl_s) in [("hot", 1), (name.as_str(), 86_400)] {
                let (answer, before) = (answer(name, ttl_s), cache.0.len());
                cache.keep(&key(name).as_key(), &answer, second * SECOND);
                let gone = (before + 1).saturating_sub(cache.0.len());
                let weight = ENTRY_BYTES + answer.memory_bytes() as u64;
                assert!(gone as u64 <= weight / lightest + 1, "{gone} at once");
                assert!(cache.0.bytes() <= 1 << 20);
                evicted += if ttl_s == 1 { 0 } else { gone };
                assert_eq!(found(&cache, name, second), "0");
            }
        }
        assert!(evicted > 10_000, "{evicted}");
        assert_eq!(found(&cache, "name-1.example", 20_000), "-");
    }

    #[test]
    fn cache_memory_stays_within_its_limit() {
        let cache = cache(SETTINGS);
        for i in 0..20_000 {
            let name = format!("name-{i}.example");
            cache.keep(&key(&name).as_key(), &answer(&name, 1000), 0);
            assert!(cache.0.bytes() <= 1 << 20);
        }
        assert!(cache.0.len() > 1000);
        assert_eq!(found(&cache, "name-19999.example", 0), "0");
        cache.0.set_bytes(1 << 18);
        assert!(cache.0.bytes() <= 1 << 18);
    }
}
