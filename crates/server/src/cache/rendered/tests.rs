use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::thread;

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::HEADER_LEN;
use proptest::prelude::*;

use super::super::{KeyBuf, name_hash};
use super::*;
use crate::settings::domains::Domains;

static POLICY: LazyLock<Policy> = LazyLock::new(|| policy(1));
static OTHER_POLICY: LazyLock<Policy> = LazyLock::new(|| policy(2));

fn policy(number: u32) -> Policy {
    Policy {
        number,
        dns64: None,
        sets: Domains::default(),
    }
}

fn store(bytes: u64) -> Rendered {
    Rendered::new(bytes, Arc::default(), None).unwrap()
}

fn key(name: &str) -> KeyBuf {
    let name = name.parse().unwrap();
    let (rtype, class) = (Rtype::AAAA, Class::IN);
    Key::new(&name, name_hash(&name), rtype, class, false, false).to_buf()
}

fn entry(len: usize, rendered_s: u32, expires_s: u32) -> Entry {
    Entry {
        len,
        extended_error: None,
        note: 3,
        rendered_s,
        expires_s,
    }
}

/// A header, a question and the octets after it.
fn message(key: &Key<'_>, rest: &[u8]) -> Vec<u8> {
    let (name, behind) = (key.name.as_wire(), key.type_and_class());
    [&[0; HEADER_LEN][..], name, &behind, rest].concat()
}

/// Stores a response with `rest` after the question, rendered at 100 s and valid until 200 s.
fn put(store: &Rendered, name: &str, rest: &[u8], ttls: &[u16]) {
    let key = key(name);
    let message = message(&key.as_key(), rest);
    let found = RenderedKey::new(key.as_key(), &POLICY);
    let entry = entry(message.len(), 100, 200);
    store.insert(&found, store.generation(), &entry, &message, ttls);
}

/// The octets after the question of a found response.
fn get(store: &Rendered, name: &str, now_s: u32) -> Option<Vec<u8>> {
    let key = key(name);
    let mut frame = vec![0xee; MESSAGE_MAX];
    let entry = store.find(&RenderedKey::new(key.as_key(), &POLICY), now_s, &mut frame)?;
    Some(frame[message(&key.as_key(), &[]).len()..entry.len].to_vec())
}

#[test]
fn ttls_count_down_until_the_response_expires() {
    let store = store(1 << 18);
    let at = u16::try_from(message(&key("a").as_key(), &[]).len()).unwrap();
    let rest = [[0, 0, 0, 60], [0, 0, 1, 1], *b"data"].concat();
    put(&store, "a", &rest, &[at, at + 4]);
    assert_eq!(get(&store, "a", 100).unwrap(), rest);
    assert_eq!(
        get(&store, "A", 110).unwrap()[..8],
        [0, 0, 0, 50, 0, 0, 0, 247]
    );
    assert_eq!(get(&store, "a", 199).unwrap()[..4], [0; 4]);
    assert_eq!(get(&store, "a", 200), None);
    // The clock of another worker is behind.
    assert_eq!(get(&store, "a", 99).unwrap(), rest);
}

#[test]
fn response_is_found_by_its_question_and_policy_only() {
    let store = store(1 << 18);
    let name = "a.example".parse().unwrap();
    let asked = |rtype, do_bit, cd| Key::new(&name, name_hash(&name), rtype, Class::IN, do_bit, cd);
    let keys = [
        asked(Rtype::AAAA, false, false),
        asked(Rtype::A, false, false),
        asked(Rtype::AAAA, true, false),
        asked(Rtype::AAAA, false, true),
    ];
    let all = keys.iter().flat_map(|key| {
        [
            RenderedKey::new(*key, &POLICY),
            RenderedKey::new(*key, &OTHER_POLICY),
        ]
    });
    let mut frame = [0; 512];
    for (i, found) in (0_u8..).zip(all.clone()) {
        assert_eq!(store.find(&found, 100, &mut frame), None, "{i}");
        let message = message(&found.key, &[i]);
        let entry = Entry {
            extended_error: Some(u16::from(i)),
            note: i,
            ..entry(message.len(), 100, 200)
        };
        store.insert(&found, store.generation(), &entry, &message, &[]);
    }
    for (i, found) in (0_u8..).zip(all) {
        let entry = store.find(&found, 100, &mut frame).unwrap();
        assert_eq!((entry.extended_error, entry.note), (Some(u16::from(i)), i));
        assert_eq!(frame[entry.len - 1], i);
        let none = store.find(&found, 100, &mut frame[..entry.len - 1]);
        assert_eq!(none, None, "the frame is too short");
    }
}

#[test]
fn hash_collision_is_a_miss() {
    let store = store(1 << 18);
    put(&store, "a", b"one", &[]);
    let (a, b) = (key("a"), key("b"));
    let forged = RenderedKey {
        key: b.as_key(),
        ..RenderedKey::new(a.as_key(), &POLICY)
    };
    assert_eq!(store.find(&forged, 100, &mut [0; 512]), None);
}

#[test]
fn entry_of_earlier_generation_is_not_found() {
    let store = store(1 << 18);
    put(&store, "a", b"old", &[]);
    let before = store.generation();
    store.generation.fetch_add(1, Ordering::AcqRel);
    assert_eq!(get(&store, "a", 100), None);
    let (key, rest) = (key("a"), b"late");
    let message = message(&key.as_key(), rest);
    let found = RenderedKey::new(key.as_key(), &POLICY);
    store.insert(
        &found,
        before,
        &entry(message.len(), 100, 200),
        &message,
        &[],
    );
    assert_eq!(get(&store, "a", 100), None);
    put(&store, "a", b"new", &[]);
    assert_eq!(get(&store, "a", 100).unwrap(), b"new");
}

#[test]
fn memory_is_bounded_and_requested_entries_stay() {
    let bytes = 1 << 16;
    let store = store(bytes);
    assert_eq!(store.bytes(), 0);
    put(&store, "wanted", b"wanted", &[]);
    put(&store, "unwanted", b"unwanted", &[]);
    for i in 0..20_000 {
        let name = format!("name-{i}");
        put(&store, &name, &[7; 100], &[]);
        if i % 100 == 0 {
            assert_eq!(get(&store, &name, 100).unwrap(), [7; 100], "{name}");
            assert!(get(&store, "wanted", 100).is_some(), "after {i}");
        }
        assert!(store.bytes() <= bytes);
    }
    assert_eq!(get(&store, "unwanted", 100), None);
    let kept = (0..20_000).filter(|i| get(&store, &format!("name-{i}"), 100).is_some());
    // An entry takes 2 or 3 of the 896 lines of the ring.
    let kept = kept.count();
    assert!((250..450).contains(&kept), "{kept}");
}

#[test]
fn longest_message_is_cached_and_longer_one_is_not() {
    let store = store(1 << 16);
    let room = MESSAGE_MAX - message(&key("a").as_key(), &[]).len();
    let ttls = [12; TTLS_MAX];
    for _ in 0..100 {
        put(&store, "a", &vec![1; room], &ttls);
        assert_eq!(get(&store, "a", 100).unwrap(), vec![1; room]);
    }
    put(&store, "b", &vec![1; room + 1], &[]);
    assert_eq!(get(&store, "b", 100), None);
    assert!(Rendered::new(BYTES_MIN - 1, Arc::default(), None).is_none());
}

/// Octets that the first two determine.
fn sealed(seed: u16, len: usize) -> Vec<u8> {
    let mut state = u32::from(seed) | 1 << 20;
    let mut octets = seed.to_be_bytes().to_vec();
    octets.extend((0..len).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    }));
    octets
}

/// Readers that writers overtake all the time see a complete response or none.
#[test]
fn concurrent_readers_see_complete_entries_only() {
    const NAMES: u16 = 64;
    let store = store(BYTES_MIN);
    let is_over = AtomicBool::new(false);
    let write = |thread: u16| {
        for i in 0..20_000_u16 {
            let seed = i * 2 + thread;
            let name = format!("n{}", i.wrapping_mul(31) % NAMES);
            put(&store, &name, &sealed(seed, usize::from(seed % 1999)), &[]);
        }
    };
    let read = || {
        let mut hits = 0_u64;
        let mut at = 0_u16;
        while !is_over.load(Ordering::Relaxed) {
            at = at.wrapping_add(7);
            let Some(got) = get(&store, &format!("n{}", at % NAMES), 100) else {
                continue;
            };
            let seed = u16::from_be_bytes([got[0], got[1]]);
            assert_eq!(got, sealed(seed, usize::from(seed % 1999)));
            hits += 1;
        }
        hits
    };
    let hits = thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(read));
        let writers = [0, 1].map(|thread| scope.spawn(move || write(thread)));
        // Readers end even if the writers panicked.
        let written = writers.map(|writer| writer.join());
        is_over.store(true, Ordering::Relaxed);
        assert!(written.iter().all(Result::is_ok));
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(hits.iter().all(|hits| *hits > 0), "{hits:?}");
}

/// Lines of the longest entry.
const LINES_MAX: u64 = ENTRY_WORDS_MAX.div_ceil(WORDS) as u64;

#[test]
fn name_that_is_refreshed_without_end_keeps_no_others() {
    let store = store(BYTES_MIN);
    put(&store, "cold", b"cold", &[]);
    put(&store, "warm", b"warm", &[]);
    for _ in 0..10_000 {
        put(&store, "hot", &[7; 100], &[]);
        assert!(get(&store, "hot", 100).is_some());
        assert!(get(&store, "warm", 100).is_some(), "it is in use");
    }
    assert_eq!(get(&store, "cold", 100), None);
    assert!(store.bytes() <= BYTES_MIN);
}

proptest! {
    /// An insertion removes what it needs room for, and moves at most [`SECOND_CHANCES`] entries, although one name is
    /// refreshed all the time and all others are in use (class of BIND CVE-2023-2828).
    #[test]
    fn work_of_an_insertion_is_bounded(
        steps in prop::collection::vec((0..20_u8, 0..4000_usize), 1..40),
    ) {
        let store = store(BYTES_MIN);
        let tail = || lock(&store.shards[0].writer).tail;
        for (name, len) in steps {
            for (name, len) in [("hot".to_owned(), 20), (format!("n{name}"), len)] {
                let before = tail();
                put(&store, &name, &vec![1; len], &[]);
                prop_assert!(tail() - before <= (SECOND_CHANCES as u64 + 2) * LINES_MAX);
                for other in 0..20 {
                    get(&store, &format!("n{other}"), 100);
                }
            }
        }
    }

    /// After any sequence of insertions and lookups, a found response is the last one inserted.
    #[test]
    fn found_response_is_the_last_one_inserted(
        steps in prop::collection::vec((0..40_u8, 0..3000_usize, any::<bool>()), 1..300),
    ) {
        let store = store(BYTES_MIN);
        let mut last = std::collections::HashMap::new();
        for (name, len, ask) in steps {
            let text = format!("n{name}");
            if ask {
                if let Some(got) = get(&store, &text, 100) {
                    prop_assert_eq!(Some(&got), last.get(&name));
                }
            } else {
                let rest = vec![name; len];
                put(&store, &text, &rest, &[]);
                last.insert(name, rest);
                prop_assert_eq!(get(&store, &text, 100).map(|got| got.len()), Some(len));
            }
        }
    }
}
