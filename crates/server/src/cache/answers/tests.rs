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

    fn keep(&self, key: &Key<'_>, stored: &Stored, now: Nanos) -> Age {
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

fn answer(name: &str, ttl_s: u32) -> Stored {
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
    Stored::accept(&message, &bounds).unwrap()
}

fn failure(name: &str) -> Stored {
    let asked = Asked {
        name: &name.parse().unwrap(),
        rtype: Rtype::A,
        class: Class::IN,
    };
    Stored::failure(&asked, Rcode::SERVFAIL, None)
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

#[test]
fn pages_have_each_response_once_in_any_size() {
    let cache = cache(CacheSettings {
        bytes: 1 << 20,
        ..SETTINGS
    });
    for host in 0..100 {
        let name = format!("host{host}.example");
        cache.keep(&key(&name).as_key(), &answer(&name, 60), 0);
    }
    for most in [1, 7, 1000] {
        let (mut seen, mut from) = (Vec::new(), Some(Place::default()));
        while let Some(place) = from {
            let (page, next) = cache.0.page(&cache.1, place, most, 5 * SECOND);
            assert!(page.len() <= most);
            seen.extend(
                page.iter()
                    .map(|listed| listed.learnt.stored.question_name().to_vec()),
            );
            assert!(
                page.iter()
                    .all(|listed| listed.learnt.describe(5)
                        == "fresh rcode=NOERROR age_s=5 ttl_s=55")
            );
            from = next;
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100, "pages of {most}");
    }
    let beyond = Place {
        shard: 1000,
        index: 0,
    };
    assert!(cache.0.page(&cache.1, beyond, 1, 0).1.is_none());
}

#[test]
fn only_responses_to_a_question_are_flushed() {
    let cache = cache(SETTINGS);
    for name in ["a.example", "b.a.example"] {
        cache.keep(&key(name).as_key(), &answer(name, 60), 0);
    }
    let name = b"\x01a\x07example\0";
    assert_eq!(cache.0.flush_question(name, Rtype::AAAA), 0);
    assert_eq!(cache.0.flush_question(name, Rtype::A), 1);
    assert_eq!(cache.0.len(), 1);
}
