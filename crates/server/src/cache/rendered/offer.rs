//! Publishes rendered responses to the outlet, and withdraws them.

use std::sync::atomic::{AtomicU64, Ordering};

use dns64_wire::message::Message;

use super::super::{PublicAnswer, PublicKey, lock};
use super::{
    Head, Line, OFFERED, PLACE_BITS, READ, Rendered, SLOTS, Shard, copy_words, place, tag,
};

impl Rendered {
    /// Marks the entry with this hash as read.
    pub(in crate::cache) fn note_used(&self, hash: u64) {
        self.mark(hash, |marks, slot| {
            marks.fetch_or(READ << slot, Ordering::Relaxed);
        });
    }

    /// Returns whether the entry with this hash is marked as read, and clears the mark.
    #[cfg(test)]
    pub(in crate::cache) fn take_mark(&self, hash: u64) -> bool {
        let mut is_marked = false;
        self.mark(hash, |marks, slot| {
            let before = marks.fetch_and(!(READ << slot), Ordering::Relaxed);
            is_marked = before & READ << slot != 0;
        });
        is_marked
    }

    /// Lets the entry with this hash be offered to the outlet at its next read.
    pub(in crate::cache) fn offer_again(&self, hash: u64) {
        self.mark(hash, |marks, slot| {
            marks.fetch_and(!(OFFERED << slot), Ordering::Relaxed);
        });
    }

    fn mark(&self, hash: u64, mark: impl FnOnce(&AtomicU64, usize)) {
        let shard = self.shard(hash);
        let Some(bucket) = shard.index.get(shard.bucket(hash)) else {
            return;
        };
        let is_it = |slot: &usize| {
            let word = bucket.0[*slot].load(Ordering::Acquire);
            word != 0
                && word >> PLACE_BITS == tag(hash)
                && shard.words(place(word)).next() == Some(hash)
        };
        if let Some(slot) = (0..SLOTS).find(is_it) {
            mark(&bucket.0[SLOTS], slot);
        }
    }

    /// Publishes an entry that was read for the first time, if it is still in its slot. Withdrawals
    /// take the same lock.
    pub(super) fn offer(&self, shard: &Shard, bucket: &Line, slot: usize, word: u64) {
        let _writer = lock(&shard.writer);
        if bucket.0[slot].load(Ordering::Relaxed) != word {
            return;
        }
        let before = bucket.0[SLOTS].fetch_or(OFFERED << slot, Ordering::Relaxed);
        if before & OFFERED << slot == 0 {
            self.publish(shard, place(word));
        }
    }

    /// Publishes the entry at a position; the caller holds the lock.
    pub(super) fn publish(&self, shard: &Shard, place: u64) {
        let Some(outlet) = &self.outlet else {
            return;
        };
        let mut words = shard.words(place);
        let head = Head {
            words: std::array::from_fn(|_| words.next().unwrap_or_default()),
        };
        let entry = head.entry();
        let mut message = vec![0; entry.len];
        if copy_words(&mut words, &mut message).is_none() {
            return;
        }
        let fours = words.take(head.ttls().div_ceil(4));
        let ttls = fours.flat_map(of_four_ttls);
        let ttls: Vec<u16> = ttls.take(head.ttls()).collect();
        let parsed = Message::parse(&message).ok();
        let Some(question) = parsed.and_then(|message| message.question()) else {
            return;
        };
        let key = PublicKey {
            question: &message[question.range()],
            bits: head.bits(),
            policy: head.policy(),
            hash: head.words[0],
        };
        let answer = PublicAnswer {
            message: &message,
            ttls: &ttls,
            extended_error: entry.extended_error,
            note: entry.note,
            generation: head.generation(),
            rendered_s: entry.rendered_s,
            expires_s: entry.expires_s,
        };
        outlet.publish(&key, &answer);
    }

    /// Withdraws the entry in a slot from the outlet, if it was offered.
    pub(super) fn withdraw(&self, bucket: &Line, slot: usize, hash: u64) {
        let before = bucket.0[SLOTS].fetch_and(!(OFFERED << slot), Ordering::Relaxed);
        if before & OFFERED << slot != 0
            && let Some(outlet) = &self.outlet
        {
            outlet.withdraw(hash);
        }
    }
}

fn of_four_ttls(word: u64) -> [u16; 4] {
    let octets = word.to_le_bytes();
    let (offsets, _) = octets.as_chunks::<2>();
    std::array::from_fn(|i| u16::from_le_bytes(offsets[i]))
}
