//! Caches rendered responses in memory of a fixed size.
//!
//! Each shard has an index and a ring buffer. An entry is appended to the ring, and its position is
//! written into a slot of the bucket of its hash. A new entry overwrites the oldest one; if that
//! was requested since, it is first appended once more (CLOCK).
//!
//! Readers take no lock. Positions increase and are never reused, so that a reader that has copied
//! an entry can see from `reserved` whether a writer has overwritten it meanwhile: a seqlock over
//! the whole ring (H.-J. Boehm, "Can seqlocks get along with programming language memory models?",
//! MSPC 2012). A slot that refers to an overwritten entry or to the entry of another question is a
//! cache miss.

mod offer;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use super::lines::{LINE_BYTES, Line, Lines, WORDS};
use super::{GOLDEN, Key, Outlet, Policy, lock};

/// Longest message that is cached, in octets: the maximum of `udp-size`.
pub(crate) const MESSAGE_MAX: usize = 4096;

/// Largest number of TTLs in a cached message: an address record has at least 16 octets.
pub(crate) const TTLS_MAX: usize = MESSAGE_MAX / 16;

/// The key of a rendered response.
#[derive(Clone, Copy)]
pub(crate) struct RenderedKey<'a> {
    key: Key<'a>,
    policy: u32,
    hash: u64,
}

/// The properties of a rendered response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Length of the message in octets, without OPT.
    pub(crate) len: usize,
    /// Extended error for clients with EDNS.
    pub(crate) extended_error: Option<u16>,
    /// A value that the engine gets back.
    pub(crate) note: u8,
    /// Time of rendering, in seconds on the engine's clock.
    pub(crate) rendered_s: u32,
    /// Time from which on it must not be sent.
    pub(crate) expires_s: u32,
}

/// The cache of rendered responses.
pub(crate) struct Rendered {
    /// The shards; their number is a power of two.
    shards: Box<[Shard]>,
    /// Entries of other generations are not used. Counting continues when the store is replaced.
    generation: Arc<AtomicU32>,
    outlet: Option<Arc<dyn Outlet>>,
}

/// Largest number of shards: writers of 64 workers rarely access the same one.
const SHARDS_MAX: u64 = 64;

/// Size of a shard in octets, if the store is large enough: room for two hundred entries of the
/// greatest length.
const SHARD_BYTES: u64 = 1 << 20;

/// Smallest size of a store in octets: some entries of the greatest length.
const BYTES_MIN: u64 = 1 << 16;

/// One in this many lines is a line of the index. A bucket has seven slots, and entries of two
/// lines, the shortest common ones, fill half of them: according to the Poisson distribution, one
/// bucket in 37 has more than seven entries.
const INDEX_SHARE: usize = 8;

/// Largest number of entries that one insertion appends again, which limits its work.
const SECOND_CHANCES: usize = 8;

/// Words of an entry before its message: hash; times; policy and generation; the other fields.
const HEAD: usize = 4;

/// Words of the longest entry.
const ENTRY_WORDS_MAX: usize = HEAD + MESSAGE_MAX / 8 + TTLS_MAX / 4;

/// Number of slots in a bucket. Its last word has two bits for each slot: one is set when its entry
/// is read, the other when the entry is offered to the outlet.
const SLOTS: usize = WORDS - 1;
const READ: u64 = 1;
const OFFERED: u64 = 1 << 8;

/// Number of bits of a position in a slot, counted in lines. They are sufficient for 16 PiB written
/// to one shard, which takes 50 years at 10 MB/s. The higher bits are the tag.
const PLACE_BITS: u32 = 48;

struct Shard {
    index: Lines,
    ring: Lines,
    /// The position up to which the ring is written or being written.
    reserved: AtomicU64,
    writer: Mutex<Writer>,
}

/// State that only the writer of a shard uses.
struct Writer {
    /// Positions of the oldest and of the next entry. 0 is not a position: an empty slot is 0.
    tail: u64,
    head: u64,
    /// Buffers for a new entry, and for one that is appended again.
    words: Vec<u64>,
    again: Vec<u64>,
}

impl Rendered {
    /// An empty store of at most `bytes` octets, which are allocated when needed; `None` if there
    /// are too few for one shard.
    pub(super) fn new(
        bytes: u64,
        generation: Arc<AtomicU32>,
        outlet: Option<Arc<dyn Outlet>>,
    ) -> Option<Self> {
        if bytes < BYTES_MIN {
            return None;
        }
        let most = (bytes / SHARD_BYTES).clamp(1, SHARDS_MAX);
        let count = 1 << most.ilog2();
        let lines = usize::try_from(bytes / count).unwrap_or(usize::MAX) / LINE_BYTES;
        Some(Self {
            shards: (0..count).map(|_| Shard::new(lines)).collect(),
            generation,
            outlet,
        })
    }

    /// Allocates the memory in which any response is looked up, which the first responses would otherwise wait for.
    pub(crate) fn prepare(&self) {
        for shard in &self.shards {
            shard.index.take_all();
        }
    }

    /// The current generation, for [`Rendered::insert`]. It must be read before the responses from
    /// which an entry is rendered are looked up.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Number of allocated octets.
    pub(super) fn bytes(&self) -> u64 {
        let of = |shard: &Shard| shard.index.bytes() + shard.ring.bytes();
        self.shards.iter().map(of).sum()
    }

    /// Copies the response to a question into `frame`, with its TTLs counted down, its question in
    /// lower case, and without OPT. It may overwrite the frame even without a result.
    pub(crate) fn find(
        &self,
        key: &RenderedKey<'_>,
        now_s: u32,
        frame: &mut [u8],
    ) -> Option<Entry> {
        let shard = self.shard(key.hash);
        let bucket = shard.index.get(shard.bucket(key.hash))?;
        let wanted = tag(key.hash);
        for slot in 0..SLOTS {
            let word = bucket.0[slot].load(Ordering::Acquire);
            if word >> PLACE_BITS != wanted || word == 0 {
                continue;
            }
            let Some(entry) = self.read(shard, place(word), key, now_s, frame) else {
                continue;
            };
            let marks = &bucket.0[SLOTS];
            let marked = marks.load(Ordering::Relaxed);
            if marked & READ << slot == 0 {
                marks.fetch_or(READ << slot, Ordering::Relaxed);
            }
            if self.outlet.is_some() && marked & OFFERED << slot == 0 {
                self.offer(shard, bucket, slot, word);
            }
            return Some(entry);
        }
        None
    }

    fn read(
        &self,
        shard: &Shard,
        place: u64,
        key: &RenderedKey<'_>,
        now_s: u32,
        frame: &mut [u8],
    ) -> Option<Entry> {
        let mut words = shard.words(place);
        let head = Head {
            words: [words.next()?, words.next()?, words.next()?, words.next()?],
        };
        let entry = head.entry();
        if head.words[0] != key.hash
            || head.words[2] != owner(key.policy, self.generation.load(Ordering::Relaxed))
            || head.bits() != key.key.bits()
            || entry.expires_s <= now_s
        {
            return None;
        }
        let message = frame.get_mut(..entry.len)?;
        copy_words(&mut words, message)?;
        if !key.key.is_question_of(message) {
            return None;
        }
        let age_s = now_s.saturating_sub(entry.rendered_s);
        let mut four = 0;
        for i in 0..head.ttls() {
            four = if i % 4 == 0 {
                words.next()?
            } else {
                four >> 16
            };
            count_down(message, (four & 0xffff) as usize, age_s)?;
        }
        // If any of the copied words was overwritten, `reserved` was increased before.
        fence(Ordering::Acquire);
        let reserved = shard.reserved.load(Ordering::Relaxed);
        (reserved <= place + shard.ring.len() as u64).then_some(entry)
    }

    /// Stores a response: its message, whose question is in lower case, and the offsets of its
    /// TTLs.
    pub(crate) fn insert(
        &self,
        key: &RenderedKey<'_>,
        generation: u32,
        entry: &Entry,
        message: &[u8],
        ttls: &[u16],
    ) {
        debug_assert_eq!(message.len(), entry.len);
        if message.len() > MESSAGE_MAX || ttls.len() > TTLS_MAX {
            return;
        }
        let shard = self.shard(key.hash);
        let mut writer = lock(&shard.writer);
        writer.words.clear();
        let head = Head::new(key, generation, entry, ttls.len());
        writer.words.extend(head.words);
        let (whole, rest) = message.as_chunks();
        let words = whole.iter().map(|octets| u64::from_ne_bytes(*octets));
        writer.words.extend(words);
        if !rest.is_empty() {
            writer.words.push(word_of(rest));
        }
        writer.words.extend(ttls.chunks(4).map(four_ttls));
        let lines = writer.words.len().div_ceil(WORDS) as u64;
        let mut chances = SECOND_CHANCES;
        while writer.head + lines - writer.tail > shard.ring.len() as u64 {
            self.make_room(shard, &mut writer, entry.rendered_s, &mut chances);
        }
        let (bucket, slot) = self.choose_slot(shard, key.hash);
        let words = std::mem::take(&mut writer.words);
        let place = writer.head;
        shard.append(&mut writer, &words, (bucket, slot));
        writer.words = words;
        // The outlet has the previous entry of this slot: it gets the new one.
        if bucket.0[SLOTS].load(Ordering::Relaxed) & OFFERED << slot != 0 {
            self.publish(shard, place);
        }
    }

    /// Removes the oldest entry from the ring, and appends it again if it is not expired, was read,
    /// and `chances` are left.
    fn make_room(&self, shard: &Shard, writer: &mut Writer, now_s: u32, chances: &mut usize) {
        let place = writer.tail;
        let mut words = shard.words(place);
        let head = Head {
            words: std::array::from_fn(|_| words.next().unwrap_or_default()),
        };
        writer.tail += head.lines();
        let Some((bucket, slot)) = shard.slot_of(head.words[0], place) else {
            return;
        };
        let generation = self.generation.load(Ordering::Relaxed);
        let is_read = bucket.0[SLOTS].load(Ordering::Relaxed) & READ << slot != 0;
        let is_good = head.entry().expires_s > now_s && head.generation() == generation;
        if is_read && is_good && *chances > 0 {
            *chances -= 1;
            let mut again = std::mem::take(&mut writer.again);
            again.clear();
            again.extend(shard.words(place).take(head.len_words()));
            shard.append(writer, &again, (bucket, slot));
            writer.again = again;
        } else {
            self.withdraw(bucket, slot, head.words[0]);
            bucket.0[slot].store(0, Ordering::Release);
        }
    }

    /// The slot for a new entry: that of an older one with the same hash, else an empty one, else
    /// the oldest that was not read, else the oldest. It is marked as offered only if the older one
    /// with the same hash was.
    fn choose_slot<'s>(&self, shard: &'s Shard, hash: u64) -> (&'s Line, usize) {
        let bucket = shard.index.take(shard.bucket(hash));
        let slots = || {
            let words = bucket.0[..SLOTS].iter().enumerate();
            words.map(|(slot, word)| (slot, word.load(Ordering::Relaxed)))
        };
        let is_same = |word: u64| {
            word >> PLACE_BITS == tag(hash) && shard.words(place(word)).next() == Some(hash)
        };
        if let Some((slot, _)) = slots().find(|(_, word)| *word != 0 && is_same(*word)) {
            return (bucket, slot);
        }
        if let Some((slot, _)) = slots().find(|(_, word)| *word == 0) {
            return (bucket, slot);
        }
        let marked = bucket.0[SLOTS].load(Ordering::Relaxed);
        let oldest = slots().min_by_key(|(slot, word)| (marked >> slot & READ, place(*word)));
        let (slot, word) = oldest.unwrap_or_default();
        if marked >> slot & READ == READ {
            let all_read = READ * ((1 << SLOTS) - 1);
            bucket.0[SLOTS].fetch_and(!all_read, Ordering::Relaxed);
        }
        if let Some(hash) = shard.words(place(word)).next() {
            self.withdraw(bucket, slot, hash);
        }
        (bucket, slot)
    }

    fn shard(&self, hash: u64) -> &Shard {
        let [.., octet] = hash.to_be_bytes();
        // At most 64 shards.
        &self.shards[usize::from(octet) & (self.shards.len() - 1)]
    }
}

impl<'a> RenderedKey<'a> {
    /// The key of a question for clients with a policy.
    pub(crate) fn new(key: Key<'a>, policy: &Policy) -> Self {
        let policy = policy.number;
        Self {
            key,
            policy,
            hash: key.hash() ^ u64::from(policy).wrapping_mul(GOLDEN),
        }
    }
}

impl Shard {
    fn new(lines: usize) -> Self {
        let index = lines / INDEX_SHARE;
        Self {
            index: Lines::new(index),
            ring: Lines::new(lines - index),
            reserved: AtomicU64::new(1),
            writer: Mutex::new(Writer {
                tail: 1,
                head: 1,
                words: Vec::with_capacity(ENTRY_WORDS_MAX),
                again: Vec::with_capacity(ENTRY_WORDS_MAX),
            }),
        }
    }

    /// The bucket of a hash, selected by its high half.
    fn bucket(&self, hash: u64) -> usize {
        let spread = ((hash >> 32) * self.index.len() as u64) >> 32;
        usize::try_from(spread).unwrap_or_default()
    }

    /// The words of the ring from a position on; they end where no memory is allocated yet.
    fn words(&self, place: u64) -> Words<'_> {
        let lines = self.ring.len();
        let at = usize::try_from(place % lines as u64).unwrap_or_default();
        Words {
            ring: &self.ring,
            at,
            line: self.ring.get(at),
            word: 0,
        }
    }

    /// The slot that refers to the entry at a position.
    fn slot_of(&self, hash: u64, place: u64) -> Option<(&Line, usize)> {
        let bucket = self.index.get(self.bucket(hash))?;
        let wanted = slot_word(hash, place);
        let is_it = |slot: &usize| bucket.0[*slot].load(Ordering::Relaxed) == wanted;
        (0..SLOTS).find(is_it).map(|slot| (bucket, slot))
    }

    /// Appends an entry, for which there must be room, and sets a slot to it.
    fn append(&self, writer: &mut Writer, words: &[u64], (bucket, slot): (&Line, usize)) {
        let place = writer.head;
        writer.head += words.len().div_ceil(WORDS) as u64;
        self.reserved.store(writer.head, Ordering::Relaxed);
        // A reader that sees one of the words below also sees the increased `reserved`.
        fence(Ordering::Release);
        let lines = self.ring.len() as u64;
        for (i, part) in (place..).zip(words.chunks(WORDS)) {
            let at = usize::try_from(i % lines).unwrap_or_default();
            for (to, word) in self.ring.take(at).0.iter().zip(part) {
                to.store(*word, Ordering::Relaxed);
            }
        }
        bucket.0[SLOTS].fetch_and(!(READ << slot), Ordering::Relaxed);
        bucket.0[slot].store(slot_word(words[0], place), Ordering::Release);
    }
}

/// The first words of an entry. A reader may see words of two entries, until it has checked
/// `reserved`.
struct Head {
    words: [u64; HEAD],
}

impl Head {
    /// The last word consists of length, number of TTLs, extended error, note, whether there is an
    /// extended error, DO and CD.
    fn new(key: &RenderedKey<'_>, generation: u32, entry: &Entry, ttls: usize) -> Self {
        let error = entry.extended_error;
        let rest = entry.len as u64
            | (ttls as u64) << 16
            | u64::from(error.unwrap_or_default()) << 32
            | u64::from(entry.note) << 48
            | u64::from(error.is_some()) << 56
            | u64::from(key.key.bits()) << 57;
        Self {
            words: [
                key.hash,
                u64::from(entry.rendered_s) << 32 | u64::from(entry.expires_s),
                owner(key.policy, generation),
                rest,
            ],
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "they are fields of a word")]
    fn entry(&self) -> Entry {
        let [_, moments, _, rest] = self.words;
        Entry {
            len: (rest & 0xffff) as usize,
            extended_error: (rest >> 56 & 1 == 1).then_some((rest >> 32) as u16),
            note: (rest >> 48) as u8,
            rendered_s: (moments >> 32) as u32,
            expires_s: moments as u32,
        }
    }

    fn bits(&self) -> u8 {
        self.words[3].to_be_bytes()[0] >> 1
    }

    fn ttls(&self) -> usize {
        (self.words[3] >> 16 & 0xffff) as usize
    }

    #[expect(clippy::cast_possible_truncation, reason = "it is half of the word")]
    fn generation(&self) -> u32 {
        self.words[2] as u32
    }

    fn policy(&self) -> u32 {
        u32::try_from(self.words[2] >> 32).unwrap_or_default()
    }

    fn len_words(&self) -> usize {
        HEAD + self.entry().len.div_ceil(8) + self.ttls().div_ceil(4)
    }

    fn lines(&self) -> u64 {
        self.len_words().div_ceil(WORDS) as u64
    }
}

/// The words of a ring in sequence.
struct Words<'a> {
    ring: &'a Lines,
    at: usize,
    line: Option<&'a Line>,
    word: usize,
}

impl Iterator for Words<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.word == WORDS {
            self.word = 0;
            self.at += 1;
            if self.at == self.ring.len() {
                self.at = 0;
            }
            self.line = self.ring.get(self.at);
        }
        let word = &self.line?.0[self.word];
        self.word += 1;
        Some(word.load(Ordering::Relaxed))
    }
}

fn copy_words(words: &mut Words<'_>, to: &mut [u8]) -> Option<()> {
    let (whole, rest) = to.as_chunks_mut::<8>();
    for octets in whole {
        *octets = words.next()?.to_ne_bytes();
    }
    if !rest.is_empty() {
        let octets = words.next()?.to_ne_bytes();
        rest.copy_from_slice(&octets[..rest.len()]);
    }
    Some(())
}

fn count_down(message: &mut [u8], at: usize, age_s: u32) -> Option<()> {
    let ttl = message.get_mut(at..)?.first_chunk_mut()?;
    *ttl = u32::from_be_bytes(*ttl).saturating_sub(age_s).to_be_bytes();
    Some(())
}

fn word_of(octets: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..octets.len()].copy_from_slice(octets);
    u64::from_ne_bytes(word)
}

fn four_ttls(offsets: &[u16]) -> u64 {
    let from_last = offsets.iter().rev();
    from_last.fold(0, |word, offset| word << 16 | u64::from(*offset))
}

/// Policy and generation in one word.
fn owner(policy: u32, generation: u32) -> u64 {
    u64::from(policy) << 32 | u64::from(generation)
}

/// The bits of a hash that distinguish the entries of a bucket; they differ from those that select
/// the bucket.
fn tag(hash: u64) -> u64 {
    hash >> 8 & 0xffff
}

fn slot_word(hash: u64, place: u64) -> u64 {
    tag(hash) << PLACE_BITS | place
}

fn place(slot: u64) -> u64 {
    slot & ((1 << PLACE_BITS) - 1)
}

#[cfg(test)]
mod tests;
