//! Client queries that wait for upstreams.

use std::sync::Arc;

use dns64_transport::clock::Nanos;

use super::actions::Client;
use super::lookups::Waiter;
use super::resolve::{Known, Part, Plan};
use crate::answer::asker::Asker;
use crate::answer::stored::{Age, Aged, Stored};

/// A client's query, from the guard to its answer.
pub(super) struct Query {
    pub(super) client: Client,
    pub(super) asker: Asker,
    /// Number of the view that the client belongs to.
    pub(super) view: usize,
    pub(super) plan: Plan,
    pub(super) arrived: Nanos,
    /// What is known, by [`Part`].
    pub(super) known: [Option<Learnt>; 2],
    /// What is waited for, by [`Part`]: who waits next for the same.
    pub(super) waiting: [Option<Waiter>; 2],
    /// Whether it has its answer already, and only has to be forgotten.
    pub(super) answered: bool,
}

/// An answer of an upstream, as one query knows it.
#[derive(Clone)]
pub(super) struct Learnt {
    pub(super) stored: Arc<Stored>,
    pub(super) age: Age,
}

/// Queries that go on with what a lookup gave.
pub(super) struct Woken {
    /// The next of them; each knows who follows.
    pub(super) next: Waiter,
    pub(super) learnt: Learnt,
}

impl Learnt {
    fn aged(&self) -> Aged<'_> {
        Aged {
            stored: &self.stored,
            age: self.age,
        }
    }
}

impl Query {
    pub(super) fn new(
        client: Client,
        asker: Asker,
        view: usize,
        plan: Plan,
        arrived: Nanos,
    ) -> Self {
        Self {
            client,
            asker,
            view,
            plan,
            arrived,
            known: [None, None],
            waiting: [None, None],
            answered: false,
        }
    }

    pub(super) fn known(&self) -> Known<'_> {
        Known {
            first: self.known[0].as_ref().map(Learnt::aged),
            second: self.known[1].as_ref().map(Learnt::aged),
        }
    }

    /// Whether nothing is waited for.
    pub(super) fn is_done(&self) -> bool {
        self.waiting == [None, None]
    }
}

impl Waiter {
    /// The waiter that is one part of a query.
    pub(super) fn new(query: u32, part: Part) -> Self {
        Self(query << 1 | part as u32)
    }

    /// Its query and its part.
    pub(super) fn parts(self) -> (u32, Part) {
        let part = if self.0 & 1 == 0 {
            Part::First
        } else {
            Part::Second
        };
        (self.0 >> 1, part)
    }
}
