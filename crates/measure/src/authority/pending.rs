//! Queue of delayed replies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dns64_transport::Origin;
use dns64_transport::clock::Nanos;

use super::REPLY_LEN_MAX;
use super::ledger::AnswerSlot;

/// Capacity of the queue of one worker, about 25 MB: 5 ms of 13 million replies a second, or 100 ms of 650,000.
pub(super) const PENDING_MAX: usize = 65_536;

/// Delayed replies, ordered by the time at which they are due, then by arrival. All memory is allocated at the start.
#[derive(Debug)]
pub(super) struct Pending {
    slots: Box<[Option<DelayedReply>]>,
    free: Vec<usize>,
    /// Due time, sequence number of the reply, and its slot.
    due: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    /// Number of replies that were queued so far.
    kept: u64,
}

/// One reply.
#[derive(Clone, Copy, Debug)]
struct DelayedReply {
    to: Origin,
    mark: AnswerSlot,
    len: usize,
    octets: [u8; REPLY_LEN_MAX],
}

impl Pending {
    /// Creates a queue with this capacity.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: vec![None; capacity].into(),
            free: (0..capacity).rev().collect(),
            due: BinaryHeap::with_capacity(capacity),
            kept: 0,
        }
    }

    /// Queues a reply until `due`; returns false if the queue is full.
    pub(super) fn keep(&mut self, due: Nanos, to: Origin, mark: AnswerSlot, reply: &[u8]) -> bool {
        let Some(slot) = self.free.pop() else {
            return false;
        };
        let mut octets = [0; REPLY_LEN_MAX];
        let len = reply.len().min(REPLY_LEN_MAX);
        octets[..len].copy_from_slice(&reply[..len]);
        self.slots[slot] = Some(DelayedReply {
            to,
            mark,
            len,
            octets,
        });
        self.due.push(Reverse((due, self.kept, slot)));
        self.kept += 1;
        true
    }

    /// Time at which the next reply is due.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((due, ..))| *due)
    }

    /// Removes the ledger places of all queued replies.
    pub(super) fn forget_marks(&mut self) {
        for reply in self.slots.iter_mut().flatten() {
            reply.mark = AnswerSlot::NOWHERE;
        }
    }

    /// Writes the next reply that is due by `now` into `frame`. Returns its destination, its length and its place in
    /// the ledger.
    pub(super) fn take(
        &mut self,
        now: Nanos,
        frame: &mut [u8],
    ) -> Option<(Origin, usize, AnswerSlot)> {
        self.next_due().filter(|due| *due <= now)?;
        let Reverse((_, _, slot)) = self.due.pop()?;
        self.free.push(slot);
        let DelayedReply {
            to,
            mark,
            len,
            octets,
        } = self.slots[slot].take()?;
        frame[..len].copy_from_slice(&octets[..len]);
        Some((to, len, mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(pending: &mut Pending, now: Nanos) -> Vec<u8> {
        let mut frame = [0; REPLY_LEN_MAX];
        let mut left = Vec::new();
        while let Some((_, len, _)) = pending.take(now, &mut frame) {
            assert_eq!(len, 2);
            left.push(frame[1]);
        }
        left
    }

    #[test]
    fn replies_are_sent_when_due_and_in_order() {
        let to = Origin::new("[2001:2::2]:4000".parse().unwrap());
        let mut pending = Pending::new(4);
        for (due, name) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            assert!(pending.keep(due, to, AnswerSlot::NOWHERE, &[0, name]));
        }
        assert!(
            !pending.keep(5, to, AnswerSlot::NOWHERE, &[0, 5]),
            "there is room for four"
        );
        assert!(drain(&mut pending, 9).is_empty());
        assert_eq!(pending.next_due(), Some(10));
        assert_eq!(drain(&mut pending, 20), [2, 4, 3]);
        assert!(pending.keep(25, to, AnswerSlot::NOWHERE, &[0, 6]));
        assert_eq!(drain(&mut pending, 30), [6, 1]);
        assert_eq!(pending.next_due(), None);
    }
}
