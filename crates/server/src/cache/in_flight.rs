//! Coordinates queries in flight: one worker sends a query to upstreams, for all workers that need
//! the response.
//!
//! A worker claims a question before it sends the query. If another worker has claimed it, that
//! worker sends the outcome to all waiting workers. A claim expires after a second, so that no
//! worker waits for one that panicked, ended or stalled.

use std::sync::{Arc, Mutex};

use dns64_transport::clock::{Nanos, SECOND};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{Key, KeyBuf, Learnt, lock};

/// Duration of a claim. After it expires, the next worker that needs the response sends a query
/// too, so that after t seconds at most t + 1 workers do. It is the time after which a TCP
/// handshake is retried (RFC 6298 section 2), and short enough for a response before clients get a
/// stale one (1.8 s) or AAAA counts as silent (2.4 s).
const CLAIM_NS: Nanos = SECOND;

/// Number of shards: two of 64 workers rarely access the same one.
const SHARDS: usize = 256;

/// The outcome of a query of one worker, for others that wait for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) key: KeyBuf,
    /// `None`: that worker gave up without an outcome.
    pub(crate) learnt: Option<Learnt>,
}

/// A claimed question, identified by its hash. If two questions have the same hash, a worker may
/// get the outcome of the other one, and recognises it by the key of the [`Outcome`].
struct Claim {
    hash: u64,
    /// The worker with the claim, and the start of the claim.
    worker: usize,
    since: Nanos,
    /// Other workers that wait for the outcome.
    others: Vec<usize>,
}

type Shard = HashTable<Claim>;

/// The claims of all workers: at most one for each of their lookups.
pub(crate) struct InFlight {
    shards: Box<[Mutex<Shard>]>,
}

impl InFlight {
    /// No claims.
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Claims a question for a worker. `Some`: another worker has claimed it, until this time; that
    /// worker sends the outcome if this one `waits`.
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

    /// Releases a question that a worker has queried: it has a response, which is already in the
    /// cache if it can be cached, or it gives up. Returns the workers that need the outcome.
    pub(crate) fn release(&self, key: &Key<'_>, worker: usize, has_answer: bool) -> Vec<usize> {
        let hash = key.hash();
        let mut shard = lock(self.shard(hash));
        let Ok(mut found) = shard.find_entry(hash, |claim| claim.hash == hash) else {
            return Vec::new();
        };
        found.get_mut().others.retain(|other| *other != worker);
        if !has_answer && found.get().worker != worker {
            // Another worker queries it too by now.
            return Vec::new();
        }
        let (claim, _) = found.remove();
        let mut others = claim.others;
        if claim.worker != worker {
            others.push(claim.worker);
        }
        others
    }

    /// Removes all claims and waits of a worker whose engine has ended.
    pub(crate) fn forget(&self, worker: usize) {
        for shard in &self.shards {
            lock(shard).retain(|claim| {
                claim.others.retain(|other| *other != worker);
                claim.worker != worker
            });
        }
    }

    /// Number of claims.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// The shard of a hash, by bits that a shard's table does not use, like in the cache of
    /// responses.
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        let [_, octet, ..] = hash.to_be_bytes();
        &self.shards[usize::from(octet)]
    }
}

impl Claim {
    /// Like [`InFlight::claim`]. The clocks of two workers differ by up to one loop iteration.
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
    /// The outcome for a question.
    pub(crate) fn new(key: KeyBuf, learnt: Option<&Learnt>) -> Arc<Self> {
        Arc::new(Self {
            key,
            learnt: learnt.map(|learnt| Learnt {
                // It was stored at a time of the clock of the worker that sent the query. Responses
                // that other workers build from it are not cached, so that no client sees a TTL
                // increase by a second.
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
    fn claiming_worker_sends_outcome_to_waiting_workers() {
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
    fn expired_claim_passes_to_next_worker_and_either_one_notifies_all() {
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
    fn giving_up_releases_claim_unless_another_worker_queries() {
        let (in_flight, a) = (InFlight::new(), key("a.example"));
        in_flight.claim(&a.as_key(), 0, true, 0);
        in_flight.claim(&a.as_key(), 1, true, CLAIM_NS);
        in_flight.claim(&a.as_key(), 2, true, CLAIM_NS);
        assert_eq!(in_flight.release(&a.as_key(), 0, false), [0; 0]);
        assert_eq!(in_flight.release(&a.as_key(), 1, false), [2]);
        assert_eq!(in_flight.claim(&a.as_key(), 2, true, CLAIM_NS), None);
    }

    #[test]
    fn claims_of_ended_worker_are_removed() {
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
    fn one_of_simultaneous_claims_succeeds_and_others_are_notified() {
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
