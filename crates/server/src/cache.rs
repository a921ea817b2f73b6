//! What was learnt: answers of upstreams by question, within a bound of memory.
//!
//! Only answers of upstreams are kept, so that nothing that depends on a client's view is in the
//! cache: what is synthesised is made from them each time. The key holds the bits that change an
//! upstream's answer (DO and CD), so that these never mix.
//!
//! Each worker has a cache of its own, without locks. Hashing is keyed by a random seed: nobody
//! outside can choose names that collide.

use std::collections::hash_map::RandomState;
use std::rc::Rc;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::name::{NAME_LEN_MAX, NameBuf};

use crate::answer::stored::{Kind, Stored};
use crate::settings::CacheSettings;

/// A question as the cache and the lookups in flight know it: lower-case name, type, class, DO
/// and CD.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    octets: [u8; NAME_LEN_MAX + SUFFIX],
    len: u16,
}

/// Octets behind the name: type, class, bits.
const SUFFIX: usize = 5;

impl Key {
    /// The key of a question.
    pub(crate) fn new(name: &NameBuf, rtype: Rtype, class: Class, do_bit: bool, cd: bool) -> Self {
        let mut octets = [0; NAME_LEN_MAX + SUFFIX];
        let wire = name.as_wire();
        let len = wire.len();
        octets[..len].copy_from_slice(wire);
        octets[..len].make_ascii_lowercase();
        octets[len..len + 2].copy_from_slice(&rtype.0.to_be_bytes());
        octets[len + 2..len + 4].copy_from_slice(&class.0.to_be_bytes());
        octets[len + 4] = u8::from(do_bit) | u8::from(cd) << 1;
        Self {
            octets,
            // At most 260.
            len: u16::try_from(len + SUFFIX).unwrap_or_default(),
        }
    }

    /// Its octets.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

/// What the cache has for a question.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// An answer that is still good.
    Fresh {
        /// The answer.
        stored: Rc<Stored>,
        /// Seconds since it came.
        age_s: u32,
        /// Whether it ends soon and is worth asking for anew.
        ending: bool,
    },
    /// An answer whose time is over, but which may be used when no upstream answers (RFC 8767).
    Stale {
        /// The answer.
        stored: Rc<Stored>,
        /// Whether upstreams failed this question just now, and are not to be asked again yet.
        failed_lately: bool,
    },
    /// Nothing.
    Missing,
}

struct Entry {
    stored: Rc<Stored>,
    /// Seconds on the engine's clock.
    stored_s: u32,
    expires_s: u32,
    /// Until when upstreams are not asked again, if the answer is stale or ends soon.
    recheck_s: u32,
}

#[derive(Clone)]
struct Weight;

/// Octets of an entry beside its key and its message: the slot in the cache's table and index, the
/// counted pointer, and what the allocator adds to three allocations. Checked by
/// measurement: a cache filled to its bound takes about that much resident memory.
const ENTRY_BYTES: u64 = 192;

impl quick_cache::Weighter<Box<[u8]>, Entry> for Weight {
    fn weight(&self, key: &Box<[u8]>, entry: &Entry) -> u64 {
        ENTRY_BYTES + (key.len() + entry.stored.memory_bytes()) as u64
    }
}

/// Answers by question.
pub(crate) struct Cache {
    entries: quick_cache::unsync::Cache<Box<[u8]>, Entry, Weight, RandomState>,
    stale_s: u32,
    prefetch: bool,
    /// Whether answers are kept; failures always are (RFC 9520 section 3.2).
    enabled: bool,
}

/// Bound of a cache that keeps failures only: some thousand of them.
const FAILURES_BYTES: u64 = 1 << 20;

/// An answer is asked for anew in the last tenth of its time, as Unbound's `prefetch` does.
const PREFETCH_TENTHS: u32 = 10;

/// How long upstreams are left alone after they failed a question that has an answer, stale or soon
/// to be (RFC 8767 section 5 suggests 30 seconds).
const RECHECK_S: u32 = 30;

/// What an entry is thought to weigh when the cache's index is first laid out.
const TYPICAL_BYTES: u64 = 512;

impl Cache {
    /// An empty cache that takes at most `bytes` octets.
    pub(crate) fn new(settings: &CacheSettings, bytes: u64) -> Self {
        let enabled = bytes > 0;
        let bytes = if enabled { bytes } else { FAILURES_BYTES };
        let items = usize::try_from(bytes / TYPICAL_BYTES).unwrap_or(usize::MAX);
        Self {
            entries: quick_cache::unsync::Cache::with(
                items,
                bytes,
                Weight,
                RandomState::new(),
                quick_cache::unsync::DefaultLifecycle::default(),
            ),
            stale_s: settings.stale_s,
            prefetch: settings.prefetch,
            enabled,
        }
    }

    /// Takes on other settings; keeps what still fits.
    pub(crate) fn configure(&mut self, settings: &CacheSettings, bytes: u64) {
        self.enabled = bytes > 0;
        self.stale_s = settings.stale_s;
        self.prefetch = settings.prefetch;
        if !self.enabled {
            self.entries.clear();
        }
        let bytes = if self.enabled { bytes } else { FAILURES_BYTES };
        self.entries.set_capacity(bytes);
    }

    /// What there is for a question.
    pub(crate) fn find(&self, key: &[u8], now: Nanos) -> Found {
        let Some(entry) = self.entries.get(key) else {
            return Found::Missing;
        };
        let now_s = seconds(now);
        let stored = &entry.stored;
        if now_s < entry.expires_s {
            let whole = entry.expires_s - entry.stored_s;
            return Found::Fresh {
                stored: stored.clone(),
                age_s: now_s - entry.stored_s,
                ending: self.prefetch
                    && !is_failure(stored)
                    && now_s >= entry.recheck_s
                    && (entry.expires_s - now_s).saturating_mul(PREFETCH_TENTHS) <= whole,
            };
        }
        if now_s < entry.expires_s.saturating_add(self.stale_s) && !is_failure(stored) {
            return Found::Stale {
                stored: stored.clone(),
                failed_lately: now_s < entry.recheck_s,
            };
        }
        Found::Missing
    }

    /// Keeps what upstreams said. A failure does not replace an answer that may be used stale.
    pub(crate) fn keep(&mut self, key: &[u8], stored: &Rc<Stored>, now: Nanos) {
        let now_s = seconds(now);
        if is_failure(stored) {
            if let Some(mut entry) = self.entries.get_mut(key)
                && !is_failure(&entry.stored)
                && now_s < entry.expires_s.saturating_add(self.stale_s)
            {
                entry.recheck_s = now_s + RECHECK_S;
                return;
            }
        } else if !self.enabled {
            return;
        }
        if stored.ttl_s() == 0 {
            return;
        }
        self.entries.insert(
            key.into(),
            Entry {
                stored: stored.clone(),
                stored_s: now_s,
                expires_s: now_s.saturating_add(stored.ttl_s()),
                recheck_s: 0,
            },
        );
    }

    /// Forgets everything, or what stands at a name (lower case, uncompressed) and below it.
    /// Returns how many answers that were.
    pub(crate) fn flush(&mut self, below: Option<&[u8]>) -> usize {
        let before = self.entries.len();
        match below {
            None => self.entries.clear(),
            Some(name) => self.entries.retain(|key, _| !is_below(key, name)),
        }
        before - self.entries.len()
    }

    /// Answers in it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Octets that they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.weight()
    }
}

fn is_failure(stored: &Stored) -> bool {
    matches!(stored.kind(), Kind::Failure(_))
}

/// Whether the name of a key is `name` or below it.
fn is_below(key: &[u8], name: &[u8]) -> bool {
    let wire = &key[..key.len() - SUFFIX];
    let mut at = 0;
    while at < wire.len() {
        if wire[at..] == *name {
            return true;
        }
        at += 1 + usize::from(wire[at]);
    }
    false
}

/// Whole seconds on the engine's clock. The cast keeps 136 years.
#[expect(clippy::cast_possible_truncation, reason = "u32 seconds are 136 years")]
pub(crate) fn seconds(now: Nanos) -> u32 {
    (now / SECOND) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::stored::{Asked, TtlBounds};
    use dns64_wire::build::{Builder, Owner};
    use dns64_wire::codes::Rcode;
    use dns64_wire::message::{Flags, Message, Section};

    const SETTINGS: CacheSettings = CacheSettings {
        bytes: 1 << 20,
        min_ttl_s: 0,
        max_ttl_s: 86_400,
        max_negative_ttl_s: 3600,
        stale_s: 0,
        prefetch: false,
    };

    fn cache(settings: CacheSettings) -> Cache {
        Cache::new(&settings, settings.bytes)
    }

    fn key(name: &str) -> Key {
        Key::new(&name.parse().unwrap(), Rtype::A, Class::IN, false, false)
    }

    fn answer(name: &str, ttl_s: u32) -> Rc<Stored> {
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
        Rc::new(Stored::accept(&message, &bounds).unwrap())
    }

    fn failure(name: &str) -> Rc<Stored> {
        let asked = Asked {
            name: &name.parse().unwrap(),
            rtype: Rtype::A,
            class: Class::IN,
        };
        Rc::new(Stored::failure(&asked, Rcode::SERVFAIL, None))
    }

    /// What is found, in short: age, "stale", "stale, failed lately" or "-".
    fn found(cache: &Cache, name: &str, at_s: u64) -> String {
        match cache.find(key(name).as_bytes(), at_s * SECOND) {
            Found::Fresh { age_s, ending, .. } => {
                format!("{age_s}{}", if ending { "!" } else { "" })
            }
            Found::Stale {
                failed_lately: true,
                ..
            } => "stale, failed lately".into(),
            Found::Stale { .. } => "stale".into(),
            Found::Missing => "-".into(),
        }
    }

    #[test]
    fn an_answer_lives_as_long_as_its_ttl_and_no_longer() {
        let mut cache = cache(SETTINGS);
        cache.keep(key("a").as_bytes(), &answer("a", 10), 5 * SECOND);
        assert_eq!(found(&cache, "a", 5), "0");
        assert_eq!(found(&cache, "A", 14), "9");
        assert_eq!(found(&cache, "a", 15), "-");
        assert_eq!(found(&cache, "b", 5), "-");
        cache.keep(key("z").as_bytes(), &answer("z", 0), 5 * SECOND);
        assert_eq!(found(&cache, "z", 5), "-", "a TTL of 0 is for one use");
    }

    #[test]
    fn questions_that_differ_in_type_class_or_bits_do_not_mix() {
        let name = "a".parse().unwrap();
        let keys = [
            Key::new(&name, Rtype::A, Class::IN, false, false),
            Key::new(&name, Rtype::AAAA, Class::IN, false, false),
            Key::new(&name, Rtype::A, Class::CH, false, false),
            Key::new(&name, Rtype::A, Class::IN, true, false),
            Key::new(&name, Rtype::A, Class::IN, false, true),
            Key::new(&name, Rtype::A, Class::IN, true, true),
        ];
        let mut cache = cache(SETTINGS);
        for (i, key) in keys.iter().enumerate() {
            assert!(
                matches!(cache.find(key.as_bytes(), 0), Found::Missing),
                "{i}"
            );
            cache.keep(key.as_bytes(), &answer("a", 10), 0);
        }
        assert_eq!(cache.len(), keys.len());
    }

    #[test]
    fn a_failure_is_remembered_for_five_seconds_even_without_a_cache() {
        for bytes in [0, 1 << 20] {
            let mut cache = cache(CacheSettings { bytes, ..SETTINGS });
            cache.keep(key("a").as_bytes(), &failure("a"), 0);
            assert_eq!(found(&cache, "a", 4), "4");
            assert_eq!(found(&cache, "a", 5), "-");
        }
        let mut off = cache(CacheSettings {
            bytes: 0,
            ..SETTINGS
        });
        off.keep(key("a").as_bytes(), &answer("a", 10), 0);
        assert_eq!(found(&off, "a", 0), "-");
    }

    #[test]
    fn a_failure_does_not_take_the_place_of_an_answer_that_may_be_used_stale() {
        let mut cache = cache(CacheSettings {
            stale_s: 100,
            ..SETTINGS
        });
        cache.keep(key("a").as_bytes(), &answer("a", 10), 0);
        assert_eq!(found(&cache, "a", 10), "stale");
        cache.keep(key("a").as_bytes(), &failure("a"), 10 * SECOND);
        assert_eq!(found(&cache, "a", 39), "stale, failed lately");
        assert_eq!(found(&cache, "a", 40), "stale");
        assert_eq!(found(&cache, "a", 110), "-");
        cache.keep(key("a").as_bytes(), &failure("a"), 110 * SECOND);
        assert_eq!(found(&cache, "a", 111), "1", "now it does");
    }

    #[test]
    fn the_last_tenth_of_an_answer_is_worth_asking_anew() {
        let mut cache = cache(CacheSettings {
            prefetch: true,
            ..SETTINGS
        });
        cache.keep(key("a").as_bytes(), &answer("a", 100), 0);
        assert_eq!(found(&cache, "a", 89), "89");
        assert_eq!(found(&cache, "a", 90), "90!");
        cache.keep(key("f").as_bytes(), &failure("f"), 0);
        assert_eq!(found(&cache, "f", 4), "4", "a failure is left alone");
    }

    #[test]
    fn a_flush_takes_a_name_and_what_is_below_it() {
        let mut cache = cache(SETTINGS);
        for name in [
            "example",
            "a.example",
            "b.a.example",
            "notexample",
            "example.com",
        ] {
            cache.keep(key(name).as_bytes(), &answer(name, 10), 0);
        }
        let name: NameBuf = "a.example".parse().unwrap();
        assert_eq!(cache.flush(Some(name.as_wire())), 2);
        assert_eq!(found(&cache, "example", 0), "0");
        assert_eq!(found(&cache, "b.a.example", 0), "-");
        assert_eq!(cache.flush(None), 3);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn memory_stays_within_its_bound_whatever_comes() {
        let mut cache = cache(SETTINGS);
        for i in 0..20_000 {
            let name = format!("name-{i}.example");
            cache.keep(key(&name).as_bytes(), &answer(&name, 1000), 0);
            assert!(cache.bytes() <= 1 << 20);
        }
        assert!(cache.len() > 1000);
        assert_eq!(found(&cache, "name-19999.example", 0), "0");
        cache.configure(&SETTINGS, 1 << 18);
        assert!(cache.bytes() <= 1 << 18);
    }
}
