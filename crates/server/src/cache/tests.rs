//! What the parts of the cache do together.

use super::*;
use crate::config;

/// A cache of 1 MiB without what has to be asked for.
pub(super) const SETTINGS: CacheSettings = CacheSettings {
    bytes: 1 << 20,
    min_ttl_s: 0,
    max_ttl_s: 86_400,
    max_negative_ttl_s: 3600,
    stale_s: 0,
    prefetch: false,
};

/// An outlet that writes down what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }

    fn note(&self, what: &str, question: &PublicKey<'_>) {
        let label = usize::from(question.question[0]);
        let name = String::from_utf8_lossy(&question.question[1..=label]).into_owned();
        lock(&self.0).push(format!("{what} {name} bits {}", question.bits));
    }
}

impl Outlet for Told {
    fn publish(&self, question: &PublicKey<'_>, answer: &PublicAnswer<'_>) {
        assert_eq!(
            &answer.message[12..12 + question.question.len()],
            question.question
        );
        assert_eq!(answer.ttls, [20]);
        self.note("publish", question);
    }

    fn withdraw(&self, question: &PublicKey<'_>) {
        self.note("withdraw", question);
    }

    fn withdraw_all(&self) {
        lock(&self.0).push("withdraw all".to_owned());
    }
}

fn put(cache: &Cache, policy: &Policy, name: &str, len: usize) {
    let store = cache.rendered().unwrap();
    let name = name.parse().unwrap();
    let key = Key::new(&name, name_hash(&name), Rtype::A, Class::IN, true, false);
    let header = [0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let message = [&header, key.question(), &vec![0; len]].concat();
    let entry = Entry {
        len: message.len(),
        extended_error: None,
        note: 0,
        rendered_s: 100,
        expires_s: 200,
    };
    let found = RenderedKey::new(&key, policy);
    store.insert(&found, store.generation(), &entry, &message, &[20]);
}

#[test]
fn an_outlet_hears_what_comes_and_what_goes() {
    let told = Arc::new(Told::default());
    let cache = Cache::new(&SETTINGS, Some(Arc::clone(&told) as Arc<dyn Outlet>));
    let policy = cache.policy(None);
    put(&cache, &policy, "first", 10);
    put(&cache, &policy, "first", 20);
    assert_eq!(told.take(), ["publish first bits 1"; 2]);
    cache.flush(Some(b"\x05other\0"));
    assert_eq!(told.take(), ["withdraw all"]);
    cache.configure(&SETTINGS);
    assert_eq!(told.take(), [""; 0], "nothing is new");
    let settings = CacheSettings {
        stale_s: 1,
        ..SETTINGS
    };
    cache.configure(&settings);
    assert_eq!(told.take(), ["withdraw all"]);
    // Of 256 KiB each takes 4: after a hundred the first are gone.
    for i in 0..100 {
        put(&cache, &policy, &format!("n{i}"), 4000);
    }
    let told = told.take();
    let position = |text: &str| told.iter().position(|line| line == text);
    assert!(position("publish n0 bits 1") < position("withdraw n0 bits 1"));
    assert_eq!(position("withdraw n99 bits 1"), None);
}

#[test]
fn equal_policies_are_one_and_others_are_not() {
    let read = |text: &str| {
        let text = format!("[upstream]\nservers = [\"192.0.2.53\"]\n{text}");
        config::parse(&text, "test").unwrap()
    };
    let [wkp, again, other] = ["", "", "[dns64]\nprefix = \"2001:db8::/96\""].map(read);
    let cache = Cache::new(&SETTINGS, None);
    let policy =
        |settings: &crate::settings::Settings| cache.policy(settings.views[0].dns64.as_ref());
    let first = policy(&wkp);
    assert_eq!(first.number, policy(&again).number);
    let number = policy(&other).number;
    assert_ne!(first.number, number);
    assert_ne!(first.number, cache.policy(None).number);
    // Nobody had it meanwhile: it does not come back under its number.
    assert_ne!(number, policy(&other).number);
}

#[test]
fn another_size_is_in_force_at_once_and_no_cache_keeps_nothing_rendered() {
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
