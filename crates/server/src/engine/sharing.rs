//! The engine's side toward the engines of other workers: what one of them asks is not asked here as
//! well, and what is asked here is told to those that wait for it.

use std::sync::Arc;

use dns64_transport::clock::Nanos;

use super::Engine;
use super::actions::Actions;
use super::lookups::Waiter;
use crate::cache::{Cache, Found, Key, Learnt, Outcome};

/// How an engine is known to the others on its cache.
pub(super) struct Sharing {
    cache: Arc<Cache>,
    worker: usize,
}

impl Sharing {
    fn claim(&self, key: &Key<'_>, waits: bool, now: Nanos) -> Option<Nanos> {
        self.cache.in_flight().claim(key, self.worker, waits, now)
    }
}

/// Also after a panic: the engine that follows has the same number.
impl Drop for Sharing {
    fn drop(&mut self) {
        self.cache.in_flight().forget(self.worker);
    }
}

impl Engine {
    /// The engine of the worker of this number, which shares its questions in flight with the other workers
    /// on its cache: no two ask the same, unless one has no answer after a second.
    #[must_use]
    pub fn share(mut self, worker: usize) -> Self {
        let cache = Arc::clone(&self.maker.cache);
        self.sharing = Some(Sharing { cache, worker });
        self
    }

    /// Whether a lookup is to be asked here. If another worker asks, its outcome is waited for, or the end
    /// of its claim.
    pub(super) fn claim(&mut self, slot: u32, now: Nanos) -> bool {
        let Some(sharing) = &self.sharing else {
            return true;
        };
        let until = sharing.claim(&self.lookups.question(slot), true, now);
        self.lookups.set_elsewhere(slot, until);
        until.is_none()
    }

    /// Whether a question is to be asked here for which nobody waits.
    pub(super) fn claim_ahead(&self, key: &Key<'_>, now: Nanos) -> bool {
        let sharing = self.sharing.as_ref();
        sharing.is_none_or(|sharing| sharing.claim(key, false, now).is_none())
    }

    /// A lookup that may have been asked here ends, with an answer or without: other workers that wait for
    /// it are told.
    pub(super) fn release(&mut self, slot: u32, learnt: Option<&Learnt>, actions: &mut Actions) {
        let Some(sharing) = &self.sharing else {
            return;
        };
        if self.lookups.is_elsewhere(slot) {
            return;
        }
        let key = self.lookups.question(slot);
        let in_flight = sharing.cache.in_flight();
        let has_answer = learnt.is_some_and(Learnt::is_current);
        let others = in_flight.release(&key, sharing.worker, has_answer);
        if !others.is_empty() {
            let outcome = Outcome::new(key.to_buf(), learnt);
            for worker in others {
                actions.tell(worker, Arc::clone(&outcome));
            }
        }
    }

    /// Another worker has told what became of a question that it asked. An answer is one to the same
    /// question here, whether or not it is asked here too; without one it may be. A failure, or the stale
    /// answer in its place, is one for those that only waited.
    pub fn on_outcome(&mut self, outcome: &Outcome, now: Nanos, actions: &mut Actions) {
        let Some(slot) = self.lookups.find(&outcome.key.as_key()) else {
            return;
        };
        let is_elsewhere = self.lookups.is_elsewhere(slot);
        match &outcome.learnt {
            Some(learnt) if is_elsewhere || learnt.is_current() => {
                self.conclude(slot, learnt, now, actions);
            }
            None if is_elsewhere => self.claim_again(slot, now, actions),
            // Its upstreams may do better here, where it is asked too.
            Some(_) | None => {}
        }
    }

    /// Claims of other workers are over.
    pub(super) fn on_claims_over(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some(slot) = self.lookups.take_elsewhere(now) {
            self.claim_again(slot, now, actions);
        }
    }

    /// Asks what another worker was to ask, if anybody waits for it still, and no third one asks it.
    fn claim_again(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        if self.lookups.get(slot).waiters == Waiter::NOBODY {
            self.lookups.remove(slot);
            return;
        }
        let question = self.lookups.question(slot);
        if let Found::Fresh(learnt) = self.maker.find(&question, now) {
            // Word of it was lost.
            self.conclude(slot, &learnt, now, actions);
        } else if self.claim(slot, now) {
            self.begin_lookup(slot, now, actions);
        }
    }
}

#[cfg(test)]
mod tests;
