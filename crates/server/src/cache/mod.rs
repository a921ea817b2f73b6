//! What all workers remember together, within one bound of memory.
//!
//! - `answers`: what upstreams said, by question. The key holds the bits that change an upstream's
//!   answer (DO and CD), so that these never mix, and nothing that depends on a client's view;
//! - `rendered`: what clients were sent, by question and [`Policy`], to be sent again without being
//!   rendered again. A reader takes no lock and writes nothing that others read;
//! - `lines`: the memory of that;
//! - `in_flight`: which worker asks upstreams what, and who wants to know.
//!
//! A question is hashed once, for all of these and for the lookups in flight, with a secret that is drawn
//! when the process starts: nobody outside can choose names that collide.

mod answers;
mod in_flight;
mod lines;
mod rendered;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{HEADER_LEN, TYPE_AND_CLASS_LEN};
use dns64_wire::name::{NAME_LEN_MAX, NameBuf};
use siphasher::sip::SipHasher13;

use crate::answer::stored::{Asked, Stored};
use crate::counts::{Figure, Shape};
use crate::settings::CacheSettings;
use crate::settings::dns64::Dns64;

use answers::Answers;
pub(crate) use answers::{Found, Learnt};
use in_flight::InFlight;
pub use in_flight::Outcome;
pub(crate) use rendered::{Entry, MESSAGE_MAX, Rendered, RenderedKey, TTLS_MAX};

/// A question as the cache and the lookups in flight know it: a name in whatever case, type, class, DO
/// and CD.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) name: &'a NameBuf,
    pub(crate) rtype: Rtype,
    pub(crate) class: Class,
    pub(crate) do_bit: bool,
    pub(crate) cd: bool,
    hash: u64,
}

/// A [`Key`] with a name of its own.
#[derive(Clone, Debug)]
pub(crate) struct KeyBuf {
    pub(crate) name: NameBuf,
    pub(crate) rtype: Rtype,
    pub(crate) class: Class,
    pub(crate) do_bit: bool,
    pub(crate) cd: bool,
    hash: u64,
}

/// Spreads the bits of a number over those of a hash: 2^64 divided by the golden ratio (Knuth, TAOCP
/// volume 3, section 6.4). It is odd: different numbers stay different.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A keyed hash function that nobody outside can foresee.
pub(crate) fn hasher() -> SipHasher13 {
    static SECRET: LazyLock<[u64; 2]> = LazyLock::new(|| {
        let random = RandomState::new();
        [0, 1].map(|half: u8| random.hash_one(half))
    });
    SipHasher13::new_with_keys(SECRET[0], SECRET[1])
}

/// The hash of a name, whatever its case.
pub(crate) fn name_hash(name: &NameBuf) -> u64 {
    let mut octets = [0; NAME_LEN_MAX];
    let wire = name.as_wire();
    let octets = &mut octets[..wire.len()];
    octets.copy_from_slice(wire);
    octets.make_ascii_lowercase();
    hasher().hash(octets)
}

impl<'a> Key<'a> {
    /// The key of a question, with the hash of its name.
    ///
    /// Only the name has to be hashed with a secret: no two questions for one name have the same hash, and
    /// their low bits, which choose a place in a table, differ as well.
    pub(crate) fn new(
        name: &'a NameBuf,
        name_hash: u64,
        rtype: Rtype,
        class: Class,
        do_bit: bool,
        cd: bool,
    ) -> Self {
        let mut key = Self {
            name,
            rtype,
            class,
            do_bit,
            cd,
            hash: 0,
        };
        let rest = u64::from(rtype.0) << 32 | u64::from(class.0) << 16 | u64::from(key.bits());
        let mixed = (name_hash ^ rest).wrapping_mul(GOLDEN);
        key.hash = mixed ^ mixed >> (u64::BITS / 2);
        key
    }

    /// The same, to be kept.
    pub(crate) fn to_buf(self) -> KeyBuf {
        KeyBuf {
            name: self.name.clone(),
            rtype: self.rtype,
            class: self.class,
            do_bit: self.do_bit,
            cd: self.cd,
            hash: self.hash,
        }
    }

    /// Its hash.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The question, without DO and CD.
    pub(crate) fn asked(&self) -> Asked<'a> {
        Asked {
            name: self.name,
            rtype: self.rtype,
            class: self.class,
        }
    }

    /// Whether this is the question of a message, whatever the case of its name.
    fn is_question_of(&self, message: &[u8]) -> bool {
        let name = self.name.as_wire();
        let question = message.get(HEADER_LEN..).unwrap_or_default();
        let parts = question.split_at_checked(name.len());
        parts.is_some_and(|(asked, rest)| {
            rest.starts_with(&self.type_and_class()) && asked.eq_ignore_ascii_case(name)
        })
    }

    /// What stands behind the name in a message.
    fn type_and_class(&self) -> [u8; TYPE_AND_CLASS_LEN] {
        let ([t0, t1], [c0, c1]) = (self.rtype.0.to_be_bytes(), self.class.0.to_be_bytes());
        [t0, t1, c0, c1]
    }

    /// DO and CD.
    fn bits(&self) -> u8 {
        u8::from(self.do_bit) | u8::from(self.cd) << 1
    }
}

/// Whatever the case of the names.
impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        let rest = |key: &Self| (key.hash, key.rtype, key.class, key.do_bit, key.cd);
        let (ours, theirs) = (self.name.as_wire(), other.name.as_wire());
        rest(self) == rest(other) && ours.eq_ignore_ascii_case(theirs)
    }
}

impl KeyBuf {
    /// The key as a view.
    pub(crate) fn as_key(&self) -> Key<'_> {
        Key {
            name: &self.name,
            rtype: self.rtype,
            class: self.class,
            do_bit: self.do_bit,
            cd: self.cd,
            hash: self.hash,
        }
    }

    /// Its hash.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl PartialEq for KeyBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_key() == other.as_key()
    }
}

impl Eq for KeyBuf {}

/// How answers are synthesised for a group of clients: what a rendered answer depends on beside its
/// question. Groups with equal settings have one policy, before and after a reload.
#[derive(Debug)]
pub struct Policy {
    number: u32,
    dns64: Option<Dns64>,
}

impl Policy {
    /// What [`PublicKey::policy`] has for it.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Another place from which rendered answers are sent, such as a table of a program in the kernel. It gets those that
/// clients have asked for more than once. Called with a lock held: an implementation returns soon and calls no
/// cache.
pub trait Outlet: Send + Sync {
    /// A rendered answer is asked for again; it takes the place of any for the same question.
    fn publish(&self, question: &PublicKey<'_>, answer: &PublicAnswer<'_>);
    /// The rendered answer with this [`PublicKey::hash`] is there no more.
    fn withdraw(&self, hash: u64);
    /// Only rendered answers of this generation and later ones are sent from now on. When this returns, no older one
    /// is begun with.
    fn withdraw_all(&self, generation: u32);
}

/// What a rendered answer is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey<'a> {
    /// The question section: lower-case name, uncompressed, type and class.
    pub question: &'a [u8],
    /// Bit 0: DO. Bit 1: CD.
    pub bits: u8,
    /// Number of the policy of the client's view.
    pub policy: u32,
    /// A hash of all that, by which the cache finds the answer again.
    pub hash: u64,
}

/// A rendered answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicAnswer<'a> {
    /// The message without OPT, its ID zero, AD as it is for clients that want it.
    pub message: &'a [u8],
    /// Offsets of the TTLs in the message, which count down from `rendered_s`.
    pub ttls: &'a [u16],
    /// Code of the extended error for clients with EDNS (RFC 8914).
    pub extended_error: Option<u16>,
    /// What the engine counts it by when it is sent.
    pub note: u8,
    /// Which [`Outlet::withdraw_all`] ends it: one with a later generation.
    pub generation: u32,
    /// When it was rendered, in seconds on the workers' clock.
    pub rendered_s: u32,
    /// The second from which on it must not be sent any more, on the same clock.
    pub expires_s: u32,
}

/// The cache of all workers of a server.
pub struct Cache {
    answers: Answers,
    in_flight: InFlight,
    renderings: Mutex<Renderings>,
    /// The policies in use; one that no worker uses any more is dropped.
    policies: Mutex<Policies>,
    outlet: Option<Arc<dyn Outlet>>,
    /// Of rendered answers; those of an earlier one are forgotten.
    generation: Arc<AtomicU32>,
}

struct Renderings {
    settings: CacheSettings,
    /// `None`: nothing is cached.
    store: Option<Arc<Rendered>>,
}

#[derive(Default)]
struct Policies {
    list: Vec<Weak<Policy>>,
    last: u32,
}

/// One part in so many of the memory is for rendered answers. A synthesised answer takes 128 to 192
/// octets there and 16 of index; the two answers that it is made of take about 500. With a quarter
/// both hold about as many names of two answers. Of names of one answer there is room for half to
/// two thirds as many here; the rest is rendered again.
const RENDERED_SHARE: u64 = 4;

impl Cache {
    /// An empty cache.
    pub fn new(settings: &CacheSettings, outlet: Option<Arc<dyn Outlet>>) -> Self {
        let generation = Arc::default();
        Self {
            answers: Answers::new(answers_bytes(settings)),
            in_flight: InFlight::new(),
            renderings: Mutex::new(Renderings {
                settings: *settings,
                store: new_store(settings, &generation, outlet.as_ref()),
            }),
            policies: Mutex::default(),
            outlet,
            generation,
        }
    }

    /// Takes on other settings; keeps the answers that still fit. Each worker does so when it gets
    /// them; all but the first change nothing.
    pub(crate) fn configure(&self, settings: &CacheSettings) {
        let mut renderings = lock(&self.renderings);
        if renderings.settings == *settings {
            return;
        }
        if renderings.settings.bytes != settings.bytes {
            self.answers.set_bytes(answers_bytes(settings));
            renderings.store = new_store(settings, &self.generation, self.outlet.as_ref());
        }
        renderings.settings = *settings;
        drop(renderings);
        self.forget_rendered();
    }

    /// The rendered answers, if there are any.
    pub(crate) fn rendered(&self) -> Option<Arc<Rendered>> {
        lock(&self.renderings).store.clone()
    }

    /// The policy for clients with these settings.
    pub(crate) fn policy(&self, dns64: Option<&Dns64>) -> Arc<Policy> {
        let mut policies = lock(&self.policies);
        policies.list.retain(|policy| policy.strong_count() > 0);
        let mut known = policies.list.iter().filter_map(Weak::upgrade);
        if let Some(policy) = known.find(|policy| policy.dns64.as_ref() == dns64) {
            return policy;
        }
        drop(known);
        policies.last = policies.last.wrapping_add(1);
        let policy = Arc::new(Policy {
            number: policies.last,
            dns64: dns64.cloned(),
        });
        policies.list.push(Arc::downgrade(&policy));
        policy
    }

    /// What there is for a question.
    pub(crate) fn find(&self, settings: &CacheSettings, key: &Key<'_>, now: Nanos) -> Found {
        self.answers.find(settings, key, now)
    }

    /// Keeps what upstreams said, and tells what is the answer from now on: this one, or one that is
    /// there already.
    pub(crate) fn keep(
        &self,
        settings: &CacheSettings,
        key: &Key<'_>,
        stored: Arc<Stored>,
        now: Nanos,
    ) -> Learnt {
        self.answers.keep(settings, key, stored, now)
    }

    /// Which worker asks upstreams what.
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Whether answers like that to this question make room for others.
    pub(crate) fn is_full(&self, key: &Key<'_>) -> bool {
        self.answers.is_full(key)
    }

    /// Forgets everything, or what stands at a name (lower case, uncompressed) and below it; any
    /// rendered answer may have been made of that. Returns how many answers of upstreams that were.
    pub fn flush(&self, below: Option<&[u8]>) -> usize {
        let flushed = self.answers.flush(below);
        // Only now: what is rendered meanwhile may be made of what was flushed.
        self.forget_rendered();
        flushed
    }

    /// Forgets the rendered answers; they are rendered again from the answers of upstreams.
    pub fn forget_rendered(&self) {
        let before = self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(outlet) = &self.outlet {
            outlet.withdraw_all(before.wrapping_add(1));
        }
    }

    /// Somebody else has sent the rendered answer with this [`PublicKey::hash`]: it is in use.
    pub fn note_used(&self, hash: u64) {
        if let Some(store) = self.rendered() {
            store.note_used(hash);
        }
    }

    /// Whether the rendered answer with this [`PublicKey::hash`] is in use; it is not from now on.
    #[cfg(test)]
    pub(crate) fn take_mark(&self, hash: u64) -> bool {
        self.rendered().is_some_and(|store| store.take_mark(hash))
    }

    /// The outlet has given up the rendered answer with this [`PublicKey::hash`] for want of room. It is
    /// published again when it is asked for again.
    pub fn offer_again(&self, hash: u64) {
        if let Some(store) = self.rendered() {
            store.offer_again(hash);
        }
    }

    /// Answers of upstreams in it.
    pub fn entries(&self) -> u64 {
        self.answers.len() as u64
    }

    /// Octets of memory that it takes, rendered answers and all.
    pub fn bytes(&self) -> u64 {
        self.answers.bytes() + self.rendered().map_or(0, |store| store.bytes())
    }

    /// Its figures, as those of [`crate::counts::Counts`].
    pub fn figures(&self) -> [Figure; 3] {
        let gauge = |name, help, value| Figure {
            name,
            label: ("", ""),
            help,
            shape: Shape::Gauge,
            value,
        };
        [
            gauge("cache_entries", "Answers in the cache", self.entries()),
            gauge(
                "cache_bytes",
                "Memory of the answers in the cache, in octets",
                self.bytes(),
            ),
            gauge(
                "cache_bytes_max",
                "Bound on the memory of the cache, in octets",
                lock(&self.renderings).settings.bytes,
            ),
        ]
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

fn answers_bytes(settings: &CacheSettings) -> u64 {
    settings.bytes - settings.bytes / RENDERED_SHARE
}

fn new_store(
    settings: &CacheSettings,
    generation: &Arc<AtomicU32>,
    outlet: Option<&Arc<dyn Outlet>>,
) -> Option<Arc<Rendered>> {
    let bytes = settings.bytes / RENDERED_SHARE;
    Rendered::new(bytes, Arc::clone(generation), outlet.cloned()).map(Arc::new)
}

/// Nobody leaves what a lock protects half done: a panic elsewhere in a thread does not make it bad.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whole seconds on the engine's clock. The cast keeps 136 years.
#[expect(clippy::cast_possible_truncation, reason = "u32 seconds are 136 years")]
pub(crate) fn seconds(now: Nanos) -> u32 {
    (now / SECOND) as u32
}

#[cfg(test)]
mod tests;
