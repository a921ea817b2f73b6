//! Tests of the parts of the cache together.

use std::collections::HashMap;

use super::*;
use crate::config;

/// A cache of 1 MiB without optional features.
pub(super) const SETTINGS: CacheSettings = CacheSettings {
    bytes: 1 << 20,
    min_ttl_s: 0,
    max_ttl_s: 86_400,
    max_negative_ttl_s: 3600,
    stale_s: 0,
    prefetch: false,
};

/// An outlet that records its calls.
#[derive(Default)]
struct Told(Mutex<Vec<String>>, Mutex<HashMap<u64, String>>);

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl Outlet for Told {
    fn publish(&self, question: &PublicKey<'_>, answer: &PublicAnswer<'_>) {
        assert_eq!(
            &answer.message[12..12 + question.question.len()],
            question.question
        );
        assert_eq!((answer.ttls, answer.note), (&[20][..], 5));
        let label = usize::from(question.question[0]);
        let name = String::from_utf8_lossy(&question.question[1..=label]);
        let (bits, generation) = (question.bits, answer.generation);
        let text = format!("publish {name} bits {bits} generation {generation}");
        lock(&self.0).push(text);
        lock(&self.1).insert(question.hash, name.into_owned());
    }

    fn withdraw(&self, hash: u64) {
        let name = lock(&self.1)[&hash].clone();
        lock(&self.0).push(format!("withdraw {name}"));
    }

    fn withdraw_all(&self, generation: u32) {
        lock(&self.0).push(format!("withdraw all before {generation}"));
    }
}

fn put(cache: &Cache, policy: &Policy, name: &str, len: usize) {
    let store = cache.rendered().unwrap();
    let name = name.parse().unwrap();
    let key = Key::new(&name, name_hash(&name), Rtype::A, Class::IN, true, false);
    let header = [0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let question = [key.name.as_wire(), &key.type_and_class()].concat();
    let message = [&header[..], &question, &vec![0; len]].concat();
    let entry = Entry {
        len: message.len(),
        extended_error: None,
        note: 5,
        rendered_s: 100,
        expires_s: 200,
    };
    let found = RenderedKey::new(key, policy);
    store.insert(&found, store.generation(), &entry, &message, &[20]);
}

/// Requests a response; returns whether there is one.
fn ask(cache: &Cache, policy: &Policy, name: &str) -> bool {
    let name = name.parse().unwrap();
    let key = Key::new(&name, name_hash(&name), Rtype::A, Class::IN, true, false);
    let found = RenderedKey::new(key, policy);
    let mut frame = [0; MESSAGE_MAX];
    cache
        .rendered()
        .unwrap()
        .find(&found, 150, &mut frame)
        .is_some()
}

/// A cache with an outlet, and a policy.
fn with_outlet() -> (Arc<Told>, Cache, Arc<Policy>) {
    let told = Arc::new(Told::default());
    let cache = Cache::new(&SETTINGS, Some(Arc::clone(&told) as Arc<dyn Outlet>));
    let settings = config::parse(config::template(), "template").unwrap();
    let policy = cache.policy(&settings, &settings.views[0]);
    (told, cache, policy)
}

#[test]
fn repeated_request_publishes_response_to_outlet() {
    let (told, cache, policy) = with_outlet();
    put(&cache, &policy, "first", 10);
    assert_eq!(told.take(), [""; 0], "it was asked for once");
    for _ in 0..2 {
        assert!(ask(&cache, &policy, "first"));
    }
    assert_eq!(told.take(), ["publish first bits 1 generation 0"]);
    put(&cache, &policy, "first", 20);
    assert!(ask(&cache, &policy, "first"));
    assert_eq!(
        told.take(),
        ["publish first bits 1 generation 0"],
        "the next one at once"
    );
    let hash = *lock(&told.1).keys().next().unwrap();
    cache.offer_again(hash);
    assert!(ask(&cache, &policy, "first"));
    assert_eq!(told.take(), ["publish first bits 1 generation 0"]);
}

#[test]
fn flush_and_new_settings_withdraw_all_from_outlet() {
    let (told, cache, policy) = with_outlet();
    cache.flush(Some(b"\x05other\0"));
    assert_eq!(told.take(), ["withdraw all before 1"]);
    cache.configure(&SETTINGS);
    assert_eq!(told.take(), [""; 0], "nothing is new");
    for (bytes, generation) in [(1 << 20, 2), (2 << 20, 3)] {
        let settings = CacheSettings {
            stale_s: 1,
            bytes,
            ..SETTINGS
        };
        cache.configure(&settings);
        assert_eq!(told.take(), [format!("withdraw all before {generation}")]);
    }
    put(&cache, &policy, "first", 10);
    assert!(ask(&cache, &policy, "first"));
    assert_eq!(
        told.take(),
        ["publish first bits 1 generation 3"],
        "of the larger store too"
    );
}

#[test]
fn eviction_withdraws_response_from_outlet() {
    let (told, cache, policy) = with_outlet();
    // Each takes 4 KiB of 256 KiB: after two hundred the first ones are overwritten, read once or
    // not, except the one in use.
    put(&cache, &policy, "used", 4000);
    assert!(ask(&cache, &policy, "used"));
    let hash = *lock(&told.1).keys().next().unwrap();
    for i in 0..200 {
        put(&cache, &policy, &format!("n{i}"), 4000);
        if i < 2 {
            assert!(ask(&cache, &policy, &format!("n{i}")));
        }
        cache.note_used(hash);
    }
    let told = told.take();
    let is_there = |text: &str| told.iter().any(|line| line == text);
    assert!(
        is_there("withdraw n0") && is_there("withdraw n1"),
        "{told:?}"
    );
    assert!(!is_there("withdraw used") && !is_there("withdraw n199"));
    assert!(ask(&cache, &policy, "used"));
}

#[test]
fn equal_settings_share_one_policy() {
    let read = |text: &str| {
        let text = format!("[upstream]\nservers = [\"192.0.2.53\"]\n{text}");
        config::parse(&text, "test").unwrap()
    };
    let [wkp, again, other] = ["", "", "[dns64]\nprefix = \"2001:db8::/96\""].map(read);
    let cache = Cache::new(&SETTINGS, None);
    let policy = |settings: &Settings| cache.policy(settings, &settings.views[0]);
    let first = policy(&wkp);
    assert_eq!(first.number, policy(&again).number);
    let number = policy(&other).number;
    assert_ne!(first.number, number);
    let forward = "[[forward]]\ndomains = [\"corp.example\"]\nservers = [\"192.0.2.1\"]";
    assert_ne!(first.number, policy(&read(forward)).number);
    // The policy was not in use meanwhile: it gets a new number.
    assert_ne!(number, policy(&other).number);
}

#[test]
fn new_size_applies_at_once_and_disabled_cache_has_no_rendered_responses() {
    let cache = Cache::new(&SETTINGS, None);
    let old = cache.rendered().unwrap();
    cache.configure(&CacheSettings {
        bytes: 2 << 20,
        ..SETTINGS
    });
    assert!(!Arc::ptr_eq(&old, &cache.rendered().unwrap()));
    cache.configure(&CacheSettings {
        bytes: 0,
        ..SETTINGS
    });
    assert!(cache.rendered().is_none());
}
