//! Shares queries in flight with the engines of other workers: no two workers send the same query
//! to upstreams, and the one that does sends the outcome to those that wait for it.

use std::sync::Arc;

use dns64_transport::clock::Nanos;

use super::Engine;
use super::actions::Actions;
use super::lookups::Waiter;
use super::rate_limit::RateLimiter;
use crate::cache::{Cache, Found, Key, Learnt, Outcome};

/// The identity of an engine for the others on its cache.
pub(super) struct Sharing {
    cache: Arc<Cache>,
    worker: usize,
}

impl Sharing {
    fn claim(&self, key: &Key<'_>, waits: bool, now: Nanos) -> Option<Nanos> {
        self.cache.in_flight().claim(key, self.worker, waits, now)
    }
}

/// Also after a panic: the next engine of the worker has the same number.
impl Drop for Sharing {
    fn drop(&mut self) {
        self.cache.in_flight().forget(self.worker);
    }
}

impl Engine {
    /// Makes this the engine of the worker with this number, which shares its queries in flight
    /// with the other workers on its cache: no two send the same query, unless one has no response
    /// after a second. The rate limit holds for all of them together.
    #[must_use]
    pub fn share(mut self, worker: usize, limiter: &Arc<RateLimiter>) -> Self {
        let cache = Arc::clone(&self.maker.cache);
        self.sharing = Some(Sharing { cache, worker });
        self.limiter = Arc::clone(limiter);
        self
    }

    /// Whether this worker must query upstreams for a lookup. If another worker has the claim, the
    /// lookup waits for its outcome or the end of its claim.
    pub(super) fn claim(&mut self, slot: u32, now: Nanos) -> bool {
        let Some(sharing) = &self.sharing else {
            return true;
        };
        let until = sharing.claim(&self.lookups.question(slot), true, now);
        self.lookups.set_elsewhere(slot, until);
        until.is_none()
    }

    /// Whether this worker must query upstreams for a question without waiting clients.
    pub(super) fn claim_ahead(&self, key: &Key<'_>, now: Nanos) -> bool {
        let sharing = self.sharing.as_ref();
        sharing.is_none_or(|sharing| sharing.claim(key, false, now).is_none())
    }

    /// Releases a lookup for which this worker may have queried upstreams, with or without a
    /// response, and notifies the workers that wait for it.
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

    /// Handles the outcome of another worker's query. A response is used even if this worker has
    /// sent the same query; without one, this worker may send it. A failure, or the stale response
    /// in its place, is used only if this worker has not sent the query.
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
            // This worker has sent the query too: its upstreams may still respond.
            Some(_) | None => {}
        }
    }

    /// Handles the expired claims of other workers.
    pub(super) fn on_claims_over(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some(slot) = self.lookups.take_elsewhere(now) {
            self.claim_again(slot, now, actions);
        }
    }

    /// Sends a query that another worker gave up, if a client still waits for it and no third
    /// worker has sent it.
    fn claim_again(&mut self, slot: u32, now: Nanos, actions: &mut Actions) {
        if self.lookups.get(slot).waiters == Waiter::NOBODY {
            self.lookups.remove(slot);
            return;
        }
        let question = self.lookups.question(slot);
        if let Found::Fresh(learnt) = self.maker.find(&question, now) {
            // The outcome was lost.
            self.conclude(slot, &learnt, now, actions);
        } else if self.claim(slot, now) {
            self.begin_lookup(slot, now, actions);
        }
    }
}

#[cfg(test)]
mod tests;
