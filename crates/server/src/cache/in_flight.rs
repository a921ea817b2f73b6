//! Questions in flight to upstreams: each is asked by one worker, for all workers that want to know.
//!
//! A worker claims a question before it asks. If another worker has claimed it, that worker tells the
//! outcome to all who want to know it. A claim lasts for a second: a worker that panicked, ends or stalls
//! keeps nobody waiting.

use std::sync::{Arc, Mutex};

use dns64_transport::clock::{Nanos, SECOND};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{Key, KeyBuf, Learnt, lock};

/// How long a claim lasts. After that, the next worker that wants to know asks as well, so that after t
/// seconds at most t + 1 workers do. As long as a TCP handshake waits before it tries again (RFC 6298
/// section 2), and short enough for an answer before clients get a stale one (1.8 s), or AAAA counts as
/// silent (2.4 s).
const CLAIM_NS: Nanos = SECOND;

/// Shards: so many that two of 64 workers seldom want the same one.
const SHARDS: usize = 256;

/// What became of a question that one worker asked, for others that wait for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) key: KeyBuf,
    /// `None`: that worker asks no longer, and knows nothing.
    pub(crate) learnt: Option<Learnt>,
}

/// A question that is asked, by its hash: of two with the same hash one may be told of the other, which it
/// sees by the key of the [`Outcome`].
struct Claim {
    hash: u64,
    /// The worker that asks, since when.
    worker: usize,
    since: Nanos,
    /// Others that want to know.
    others: Vec<usize>,
}

type Shard = HashTable<Claim>;

/// The claims of all workers: at most one for each lookup of each of them.
pub(crate) struct InFlight {
    shards: Box<[Mutex<Shard>]>,
}

impl InFlight {
    /// No question is in flight.
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Claims a question for a worker. `Some`: another one asks it, and its claim ends at this moment; the
    /// worker is told the outcome if it `waits`.
    pub(crate) fn claim(
        &self,
        key: &Key<'_>,
        worker: usize,
        waits: bool,
        now: Nanos,
    ) -> Option<Nanos> {
        let hash = key.hash();
        let mut shard = lock(self.shard(hash));
        let found = shard.entry(hash, |claim| claim.hash == hash, |claim| claim.hash);
        match found {
            Entry::Occupied(mut claim) => claim.get_mut().claim_for(worker, waits, now),
            Entry::Vacant(room) => {
                room.insert(Claim {
                    hash,
                    worker,
                    since: now,
                    others: Vec::new(),
                });
                None
            }
        }
    }

    /// A worker that has asked a question asks it no longer: it has an answer, which is in the cache by now
    /// if it can be, or it gives the question up. Returns who is to be told.
    pub(crate) fn release(&self, key: &Key<'_>, worker: usize, has_answer: bool) -> Vec<usize> {
        let hash = key.hash();
        let mut shard = lock(self.shard(hash));
        let Ok(mut found) = shard.find_entry(hash, |claim| claim.hash == hash) else {
            return Vec::new();
        };
        found.get_mut().others.retain(|other| *other != worker);
        if !has_answer && found.get().worker != worker {
            // Another asks as well by now.
            return Vec::new();
        }
        let (claim, _) = found.remove();
        let mut others = claim.others;
        if claim.worker != worker {
            others.push(claim.worker);
        }
        others
    }

    /// Takes out all that a worker claims and wants to know: its engine is no more.
    pub(crate) fn forget(&self, worker: usize) {
        for shard in &self.shards {
            lock(shard).retain(|claim| {
                claim.others.retain(|other| *other != worker);
                claim.worker != worker
            });
        }
    }

    /// Claims in it.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// The shard of a hash, by bits that a shard's table does not look at, as in the cache of answers.
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        let [_, octet, ..] = hash.to_be_bytes();
        &self.shards[usize::from(octet)]
    }
}

impl Claim {
    /// As [`InFlight::claim`]. Clocks of two workers differ by a turn.
    fn claim_for(&mut self, worker: usize, waits: bool, now: Nanos) -> Option<Nanos> {
        if self.worker == worker {
            return None;
        }
        let until = self.since + CLAIM_NS;
        if now < until {
            if waits && !self.others.contains(&worker) {
                self.others.push(worker);
            }
            return Some(until);
        }
        self.others.retain(|other| *other != worker);
        self.others.push(self.worker);
        (self.worker, self.since) = (worker, now);
        None
    }
}

impl Outcome {
    /// What became of a question.
    pub(crate) fn new(key: KeyBuf, learnt: Option<&Learnt>) -> Arc<Self> {
        Arc::new(Self {
            key,
            learnt: learnt.map(|learnt| Learnt {
                // Its age is that of the worker's clock who asked. What is made of it elsewhere is not
                // kept, so that no client sees a TTL grow by a second.
                until_s: 0,
                ..learnt.clone()
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use dns64_wire::codes::{Class, Rtype};

    use super::super::name_hash;
    use super::*;

    fn key(name: &str) -> KeyBuf {
        let name = name.parse().unwrap();
        Key::new(&name, name_hash(&name), Rtype::A, Class::IN, false, false).to_buf()
    }

    const OVER: Option<Nanos> = Some(CLAIM_NS);

    #[test]
    fn one_worker_asks_and_tells_those_that_wait() {
        let (in_flight, a, b) = (InFlight::new(), key("a.example"), key("b.example"));
        assert_eq!(in_flight.claim(&a.as_key(), 0, true, 0), None);
        assert_eq!(in_flight.claim(&b.as_key(), 1, true, 0), None);
        assert_eq!(in_flight.claim(&a.as_key(), 1, true, 5), OVER);
        assert_eq!(in_flight.claim(&a.as_key(), 1, true, 6), OVER);
        assert_eq!(in_flight.claim(&a.as_key(), 2, false, 7), OVER);
        assert_eq!(in_flight.release(&a.as_key(), 0, true), [1]);
        assert_eq!(in_flight.release(&b.as_key(), 1, true), [0; 0]);
        assert_eq!(in_flight.claim(&a.as_key(), 2, true, 8), None);
    }

    #[test]
    fn a_claim_that_is_over_passes_to_the_next_and_each_of_both_tells_all() {
        for (answered_by, told) in [(0, [2, 1]), (1, [2, 0])] {
            let (in_flight, a) = (InFlight::new(), key("a.example"));
            in_flight.claim(&a.as_key(), 0, true, 0);
            for worker in [1, 2] {
                assert_eq!(
                    in_flight.claim(&a.as_key(), worker, true, CLAIM_NS - 1),
                    OVER
                );
            }
            assert_eq!(in_flight.claim(&a.as_key(), 1, true, CLAIM_NS), None);
            let over = Some(2 * CLAIM_NS);
            assert_eq!(in_flight.claim(&a.as_key(), 2, true, CLAIM_NS), over);
            assert_eq!(in_flight.release(&a.as_key(), answered_by, true), told);
            assert_eq!(
                in_flight.release(&a.as_key(), 1 - answered_by, true),
                [0; 0]
            );
        }
    }

    #[test]
    fn who_gives_up_frees_the_question_unless_another_asks_it() {
        let (in_flight, a) = (InFlight::new(), key("a.example"));
        in_flight.claim(&a.as_key(), 0, true, 0);
        in_flight.claim(&a.as_key(), 1, true, CLAIM_NS);
        in_flight.claim(&a.as_key(), 2, true, CLAIM_NS);
        assert_eq!(in_flight.release(&a.as_key(), 0, false), [0; 0]);
        assert_eq!(in_flight.release(&a.as_key(), 1, false), [2]);
        assert_eq!(in_flight.claim(&a.as_key(), 2, true, CLAIM_NS), None);
    }

    #[test]
    fn nothing_is_left_of_a_worker_that_is_no_more() {
        let (in_flight, a, b) = (InFlight::new(), key("a.example"), key("b.example"));
        in_flight.claim(&a.as_key(), 0, true, 0);
        in_flight.claim(&b.as_key(), 1, true, 0);
        in_flight.claim(&b.as_key(), 0, true, 0);
        in_flight.forget(0);
        assert_eq!(in_flight.len(), 1);
        assert_eq!(in_flight.claim(&a.as_key(), 1, true, 1), None);
        assert_eq!(in_flight.release(&b.as_key(), 1, true), [0; 0]);
    }

    #[test]
    fn of_threads_that_claim_at_once_one_asks_and_all_others_are_told() {
        const WORKERS: usize = 4;
        let (in_flight, a) = (InFlight::new(), key("a.example"));
        let (barrier, asked, told) = (
            Barrier::new(WORKERS),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (in_flight, a, barrier, asked, told) =
                    (&in_flight, &a, &barrier, &asked, &told);
                let turn = move || {
                    for _ in 0..200 {
                        barrier.wait();
                        let is_mine = in_flight.claim(&a.as_key(), worker, true, 0).is_none();
                        barrier.wait();
                        if is_mine {
                            asked.fetch_add(1, Relaxed);
                            told.fetch_add(
                                in_flight.release(&a.as_key(), worker, true).len(),
                                Relaxed,
                            );
                        }
                    }
                };
                scope.spawn(turn);
            }
        });
        assert_eq!(asked.into_inner(), 200);
        assert_eq!(told.into_inner(), 200 * (WORKERS - 1));
    }
}
