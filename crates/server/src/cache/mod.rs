//! The cache of all workers, within one memory limit.
//!
//! - `answers`: responses of upstreams, by question, and those that a name does not exist by name. The key contains the bits that change a
//!   response (DO and CD) and the set of upstreams, so that these never mix, and nothing else that
//!   depends on the client's view;
//! - `rendered`: responses as they are sent to clients, by question and [`Policy`], which avoids
//!   rendering them again. A reader takes no lock and writes nothing that others read;
//! - `lines`: the memory of `rendered`;
//! - `in_flight`: the queries in flight, the worker of each, and the workers that wait for it;
//! - `transfer`: responses on their way to another process.
//!
//! A question is hashed once, for all of these and for the lookups in flight, with a random secret
//! of the process: an attacker cannot choose names that collide.

mod answers;
mod in_flight;
mod lines;
mod rendered;
mod transfer;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{HEADER_LEN, TYPE_AND_CLASS_LEN};
use dns64_wire::name::{NAME_LEN_MAX, NameBuf};

#[doc(hidden)] // For simulations.
pub use crate::answer::names::choose_hash_key;
pub(crate) use crate::answer::names::hasher;
use crate::answer::stored::{Asked, Stored};
use crate::counts::{Figure, Shape};
use crate::settings::dns64::Dns64;
use crate::settings::domains::Domains;
use crate::settings::{CacheSettings, Settings, View};

pub use answers::Place;
use answers::{Answers, Listed};
pub(crate) use answers::{Found, Learnt};
use in_flight::InFlight;
pub use in_flight::Outcome;
pub(crate) use rendered::{Entry, MESSAGE_MAX, Rendered, RenderedKey, TTLS_MAX};
pub use transfer::{Page, RECORD_MAX, RECORDS};

/// The key of the cache and of the lookups in flight: a name in any case, type, class, DO and CD, and the set of
/// upstreams that are queried ([`Cache::set_number`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) name: &'a NameBuf,
    pub(crate) rtype: Rtype,
    pub(crate) class: Class,
    pub(crate) do_bit: bool,
    pub(crate) cd: bool,
    pub(crate) set: u16,
    hash: u64,
}

/// The type in the key of a response that a name does not exist, which is the same for all types (RFC 2308 section 5). No
/// query has it.
const DENIAL: Rtype = Rtype(0);

/// A [`Key`] that owns its name.
#[derive(Clone, Debug)]
pub(crate) struct KeyBuf {
    pub(crate) name: NameBuf,
    pub(crate) rtype: Rtype,
    pub(crate) class: Class,
    pub(crate) do_bit: bool,
    pub(crate) cd: bool,
    pub(crate) set: u16,
    hash: u64,
}

/// Spreads the bits of a number over those of a hash: 2^64 divided by the golden ratio (Knuth, TAOCP
/// volume 3, section 6.4). It is odd: different numbers stay different.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a name, independent of its case.
pub(crate) fn name_hash(name: &NameBuf) -> u64 {
    let mut octets = [0; NAME_LEN_MAX];
    let wire = name.as_wire();
    let octets = &mut octets[..wire.len()];
    octets.copy_from_slice(wire);
    octets.make_ascii_lowercase();
    hasher().hash(octets)
}

impl<'a> Key<'a> {
    /// The key of a question to the upstreams for all names, with the hash of its name.
    ///
    /// Only the hash of the name needs a secret: two questions for one name never have the same
    /// hash, and their low bits, which select a position in a table, differ too.
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
            set: 0,
            hash: 0,
        };
        let rest = u64::from(rtype.0) << 32 | u64::from(class.0) << 16 | u64::from(key.bits());
        let mixed = (name_hash ^ rest).wrapping_mul(GOLDEN);
        key.hash = mixed ^ mixed >> (u64::BITS / 2);
        key
    }

    /// The key of the same question to another set of upstreams.
    pub(crate) fn to_set(mut self, set: u16) -> Self {
        if set != self.set {
            self.hash ^= u64::from(set ^ self.set).wrapping_mul(GOLDEN);
            self.set = set;
        }
        self
    }

    /// The key of the response that this name, or one that it is below, does not exist.
    fn to_denial<'b>(self, name: &'b NameBuf) -> Key<'b> {
        let key = Key::new(
            name,
            name_hash(name),
            DENIAL,
            self.class,
            self.do_bit,
            self.cd,
        );
        key.to_set(self.set)
    }

    /// The same key with its own name.
    pub(crate) fn to_buf(self) -> KeyBuf {
        KeyBuf {
            name: self.name.clone(),
            rtype: self.rtype,
            class: self.class,
            do_bit: self.do_bit,
            cd: self.cd,
            set: self.set,
            hash: self.hash,
        }
    }

    /// The hash of the key.
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

    /// Whether a message has this question, in any case; that a name does not exist is the answer to questions of every
    /// type.
    fn is_question_of(&self, message: &[u8]) -> bool {
        let name = self.name.as_wire();
        let question = message.get(HEADER_LEN..).unwrap_or_default();
        let parts = question.split_at_checked(name.len());
        let is_one = |rest: &[u8]| match self.rtype {
            DENIAL => rest[2..].starts_with(&self.type_and_class()[2..]),
            _ => rest.starts_with(&self.type_and_class()),
        };
        parts.is_some_and(|(asked, rest)| {
            rest.len() >= TYPE_AND_CLASS_LEN && is_one(rest) && asked.eq_ignore_ascii_case(name)
        })
    }

    /// The octets after the name in a message.
    fn type_and_class(&self) -> [u8; TYPE_AND_CLASS_LEN] {
        let ([t0, t1], [c0, c1]) = (self.rtype.0.to_be_bytes(), self.class.0.to_be_bytes());
        [t0, t1, c0, c1]
    }

    /// DO and CD.
    fn bits(&self) -> u8 {
        u8::from(self.do_bit) | u8::from(self.cd) << 1
    }
}

/// Ignores the case of the names.
impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        let rest = |key: &Self| (key.hash, key.rtype, key.class, key.do_bit, key.cd, key.set);
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
            set: self.set,
            hash: self.hash,
        }
    }

    /// The hash of the key.
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

/// The settings of a group of clients on which a rendered response depends besides its question.
/// Groups with equal settings have the same policy, also after a reload.
#[derive(Debug)]
pub struct Policy {
    number: u32,
    dns64: Option<Dns64>,
    /// The sets of upstreams of domains, by number.
    sets: Domains<u16>,
}

impl Policy {
    /// The value for [`PublicKey::policy`].
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The sets of upstreams of domains, by number; 0 is for all other names.
    pub(crate) fn sets(&self) -> &Domains<u16> {
        &self.sets
    }

    /// The set of the upstreams that are queried for a name.
    pub(crate) fn set_of(&self, name: &NameBuf) -> u16 {
        self.sets.get(name).map_or(0, |(_, set)| *set)
    }
}

/// Another place that sends rendered responses, such as a table of a program in the kernel. It gets
/// those that clients have requested more than once. Called with a lock held: an implementation
/// must return soon and not call the cache.
pub trait Outlet: Send + Sync {
    /// A rendered response was requested again; it replaces any response to the same question.
    fn publish(&self, question: &PublicKey<'_>, answer: &PublicAnswer<'_>);
    /// The rendered response with this [`PublicKey::hash`] is removed.
    fn withdraw(&self, hash: u64);
    /// From now on, only rendered responses of this generation and later ones may be sent. When
    /// this returns, no older one is sent any more.
    fn withdraw_all(&self, generation: u32);
}

/// The key of a rendered response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey<'a> {
    /// The question section: lower-case name, uncompressed, type and class.
    pub question: &'a [u8],
    /// Bit 0: DO. Bit 1: CD.
    pub bits: u8,
    /// Number of the policy of the client's view.
    pub policy: u32,
    /// A hash of these fields, with which the cache finds the response.
    pub hash: u64,
}

/// A rendered response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicAnswer<'a> {
    /// The message without OPT, with ID zero, and with AD as for clients that request it.
    pub message: &'a [u8],
    /// Offsets of the TTLs in the message, which count down from `rendered_s`.
    pub ttls: &'a [u16],
    /// Code of the extended error for clients with EDNS (RFC 8914).
    pub extended_error: Option<u16>,
    /// The counter that the engine increments when it is sent.
    pub note: u8,
    /// A call of [`Outlet::withdraw_all`] with a later generation removes it.
    pub generation: u32,
    /// Time of rendering, in seconds on the workers' clock.
    pub rendered_s: u32,
    /// Time from which on it must not be sent, in seconds on the same clock.
    pub expires_s: u32,
}

/// The cache of all workers of a server.
pub struct Cache {
    answers: Answers,
    in_flight: InFlight,
    renderings: Mutex<Renderings>,
    /// The policies in use. A policy is removed when no worker uses it any more.
    policies: Mutex<Policies>,
    /// The sets of upstreams of domains since the start; the number of each is its index plus 1.
    sets: Mutex<Vec<Vec<SocketAddr>>>,
    outlet: Option<Arc<dyn Outlet>>,
    /// Generation of the rendered responses; those of earlier generations are not used.
    generation: Arc<AtomicU32>,
}

struct Renderings {
    settings: CacheSettings,
    /// `None` without a cache.
    store: Option<Arc<Rendered>>,
}

#[derive(Default)]
struct Policies {
    list: Vec<Weak<Policy>>,
    last: u32,
}

/// The fraction of the memory for rendered responses is one in this number. A synthesised response
/// takes 128 to 192 octets there and 16 of the index; its two upstream responses take about 500.
/// With a quarter, both parts hold about the same number of names with two responses. Of names with
/// one response, there is room for half to two thirds as many rendered ones; the others are
/// rendered again.
const RENDERED_SHARE: u64 = 4;

impl Cache {
    /// Creates an empty cache.
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
            sets: Mutex::default(),
            outlet,
            generation,
        }
    }

    /// Changes the settings; keeps the responses that still fit. Each worker calls this when it
    /// gets new settings; only the first call has an effect.
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

    /// The rendered responses, if the cache is enabled.
    pub(crate) fn rendered(&self) -> Option<Arc<Rendered>> {
        lock(&self.renderings).store.clone()
    }

    /// The number of a set of upstreams, by its index in the settings. It is part of the key of what these upstreams
    /// answer. Another reload with the same addresses gives the same number, and other addresses another one, so that
    /// nothing that servers of one zone have answered is ever used for another zone.
    pub(crate) fn set_number(&self, settings: &Settings, index: usize) -> u16 {
        if index == 0 {
            return 0;
        }
        let servers = settings.sets[index].servers.iter();
        let addresses: Vec<_> = servers.map(|i| settings.upstreams[*i].address).collect();
        let mut sets = lock(&self.sets);
        let known = sets.iter().position(|known| *known == addresses);
        let index = known.unwrap_or_else(|| {
            if sets.len() == usize::from(u16::MAX) {
                // As many reloads with other addresses: the numbers are used again.
                sets.clear();
                self.flush(None);
            }
            sets.push(addresses);
            sets.len() - 1
        });
        u16::try_from(index + 1).unwrap_or_default()
    }

    /// The policy for the clients of a view.
    pub(crate) fn policy(&self, settings: &Settings, view: &View) -> Arc<Policy> {
        let forwards = view.forwards.iter();
        let sets = forwards.map(|(domain, index)| (domain, self.set_number(settings, *index)));
        let (dns64, sets) = (view.dns64.as_ref(), sets.collect());
        let mut policies = lock(&self.policies);
        policies.list.retain(|policy| policy.strong_count() > 0);
        let mut known = policies.list.iter().filter_map(Weak::upgrade);
        let is_same = |policy: &Arc<Policy>| policy.dns64.as_ref() == dns64 && policy.sets == sets;
        if let Some(policy) = known.find(is_same) {
            return policy;
        }
        drop(known);
        policies.last = policies.last.wrapping_add(1);
        let policy = Arc::new(Policy {
            number: policies.last,
            dns64: dns64.cloned(),
            sets,
        });
        policies.list.push(Arc::downgrade(&policy));
        policy
    }

    /// Looks up a question.
    pub(crate) fn find(&self, settings: &CacheSettings, key: &Key<'_>, now: Nanos) -> Found {
        self.answers.find(settings, key, now)
    }

    /// Stores a response of an upstream and returns the response to use from now on: this one, or
    /// one that is already stored.
    pub(crate) fn keep(
        &self,
        settings: &CacheSettings,
        key: &Key<'_>,
        stored: Stored,
        now: Nanos,
    ) -> Learnt {
        self.answers.keep(settings, key, stored, now)
    }

    /// The queries in flight of all workers.
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Whether responses are evicted where the response to this question would be stored.
    pub(crate) fn is_full(&self, key: &Key<'_>) -> bool {
        self.answers.is_full(key)
    }

    /// Removes all responses, or those for a name (lower case, uncompressed) and the names below
    /// it, and all rendered responses, which may depend on them. Returns the number of removed
    /// upstream responses.
    pub fn flush(&self, below: Option<&[u8]>) -> usize {
        let flushed = self.answers.flush(below);
        // Last: a response that is rendered meanwhile may depend on removed ones.
        self.forget_rendered();
        flushed
    }

    /// Removes the responses to questions for a name (lower case, uncompressed) and a type, and those that the name does not
    /// exist; otherwise like [`Cache::flush`].
    pub fn flush_question(&self, name: &[u8], rtype: Rtype) -> usize {
        let flushed = self.answers.flush_question(name, rtype);
        self.forget_rendered();
        flushed
    }

    /// A line for each of up to `most` responses, beginning at a place, and the place of the next ones; `set` names a set of
    /// upstreams.
    pub fn page(
        &self,
        settings: &CacheSettings,
        from: Place,
        most: usize,
        now: Nanos,
        set: impl Fn(u16) -> String,
    ) -> (Vec<String>, Option<Place>) {
        let (listed, next) = self.answers.page(settings, from, most, now);
        let line = |Listed {
                        learnt,
                        bits,
                        set: number,
                    }: Listed| {
            let message = learnt.stored.message();
            let question = message.question();
            let asked = question.map(|q| format!("name={} type={}", q.name, q.rtype));
            let state = learnt.describe(seconds(now));
            let flags =
                [(1, " do"), (2, " cd")].map(|(bit, flag)| if bits & bit == 0 { "" } else { flag });
            let [do_bit, cd] = flags;
            format!(
                "{} {state} servers={}{do_bit}{cd}",
                asked.unwrap_or_default(),
                set(number)
            )
        };
        (listed.into_iter().map(line).collect(), next)
    }

    /// Removes the rendered responses; they are rendered again from the responses of upstreams.
    pub fn forget_rendered(&self) {
        let before = self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(outlet) = &self.outlet {
            outlet.withdraw_all(before.wrapping_add(1));
        }
    }

    /// The outlet has sent the rendered response with this [`PublicKey::hash`]: it is in use.
    pub fn note_used(&self, hash: u64) {
        if let Some(store) = self.rendered() {
            store.note_used(hash);
        }
    }

    /// Returns whether the rendered response with this [`PublicKey::hash`] is marked as in use, and
    /// clears the mark.
    #[cfg(test)]
    pub(crate) fn take_mark(&self, hash: u64) -> bool {
        self.rendered().is_some_and(|store| store.take_mark(hash))
    }

    /// The outlet has evicted the rendered response with this [`PublicKey::hash`]. It is published
    /// again when it is requested again.
    pub fn offer_again(&self, hash: u64) {
        if let Some(store) = self.rendered() {
            store.offer_again(hash);
        }
    }

    /// Number of upstream responses in the cache.
    pub fn entries(&self) -> u64 {
        self.answers.len() as u64
    }

    /// Size of the cache in octets, including rendered responses.
    pub fn bytes(&self) -> u64 {
        self.answers.bytes() + self.rendered().map_or(0, |store| store.bytes())
    }

    /// Its figures, like those of [`crate::counts::Counts`].
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

/// Locks a mutex. A poisoned lock is ignored: no code panics while the protected data is
/// inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whole seconds on the engine's clock. The cast is valid for 136 years.
#[expect(clippy::cast_possible_truncation, reason = "u32 seconds are 136 years")]
pub(crate) fn seconds(now: Nanos) -> u32 {
    (now / SECOND) as u32
}

#[cfg(test)]
mod tests;
