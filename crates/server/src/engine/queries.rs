//! Client queries that wait for upstreams.

use std::borrow::Cow;
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rcode;
use dns64_wire::message::Flags;
use dns64_wire::name::NameBuf;

use super::actions::Client;
use super::lookups::{Question, Waiter};
use super::resolve::{Known, Part, Plan};
use crate::answer::asker::Asker;
use crate::answer::stored::{Age, Aged, Kind, Stored};

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
    /// Aliases whose target is still to be learnt, by [`Part`].
    chains: [Option<Box<Chain>>; 2],
    /// What is waited for, by [`Part`].
    pub(super) waiting: [Option<Wait>; 2],
    /// Moments still to come, by [`Moment`].
    moments: [Nanos; MOMENTS],
    /// A stale answer will do (RFC 8767).
    pub(super) accepts_stale: bool,
    /// A records will do where no AAAA answer has come (RFC 6147 section 5.1.3).
    pub(super) accepts_silence: bool,
}

/// The place of a query among those that wait for one lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) lookup: u32,
    pub(super) before: Waiter,
    pub(super) after: Waiter,
}

/// What a query does when it has waited for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Asks for A records before it is known whether they are needed.
    Ahead,
    /// Takes a stale answer.
    Stale,
    /// Takes the missing AAAA answer for none.
    Silence,
    /// Ends.
    End,
}

const MOMENTS: usize = 4;

/// A moment that does not come.
const NEVER: Nanos = Nanos::MAX;

/// An answer of an upstream, as one query knows it.
#[derive(Clone)]
pub(super) struct Learnt {
    pub(super) stored: Arc<Stored>,
    pub(super) age: Age,
}

/// What is known of a part that ends with an alias: the upstreams are asked for the target.
struct Chain {
    learnt: Learnt,
    target: NameBuf,
}

impl Learnt {
    /// What is made here.
    pub(super) fn new(stored: Stored) -> Self {
        Self {
            stored: Arc::new(stored),
            age: Age::Seconds(0),
        }
    }

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
            chains: [None, None],
            waiting: [None, None],
            moments: [NEVER; MOMENTS],
            accepts_stale: false,
            accepts_silence: false,
        }
    }

    pub(super) fn known(&self) -> Known<'_> {
        Known {
            first: self.known[0].as_ref().map(Learnt::aged),
            second: self.known[1].as_ref().map(Learnt::aged),
        }
    }

    /// The question that is to be asked for a part: at the target of an alias, if it came to one.
    pub(super) fn question(&self, part: Part) -> Question<'_> {
        let question = self.plan.question(&self.asker, part);
        match &self.chains[part as usize] {
            Some(chain) => Question {
                name: Cow::Borrowed(&chain.target),
                ..question
            },
            None => question,
        }
    }

    /// Whether a part has come to an alias whose target is to be learnt.
    pub(super) fn follows(&self, part: Part) -> bool {
        self.chains[part as usize].is_some()
    }

    /// The target of the alias that a part has come to, as a client would ask for it. `None` for what the name
    /// of a synthesised address leads to: that of its IPv4 address is asked for in special-use zones too.
    pub(super) fn target(&self, part: Part) -> Option<Asker> {
        let chain = self.chains[part as usize].as_ref()?;
        let question = self.question(part);
        let is_reverse = matches!(self.plan, Plan::Reverse(_));
        (!is_reverse).then(|| Asker {
            id: 0,
            name: chain.target.clone(),
            rtype: question.rtype,
            class: question.class,
            flags: Flags::default(),
            edns: None,
            limit: usize::from(u16::MAX),
        })
    }

    /// Takes the answer to the question of a part. If it ends with an alias, the part is not known
    /// before its target is (RFC 6147 section 5.1.5). Aliases that go round or are too many are
    /// an error (RFC 1034 section 3.6.2).
    pub(super) fn learn(&mut self, part: Part, learnt: Learnt) {
        // Records behind too many aliases are not in the whole.
        let has_records = learnt.stored.kind() == Kind::Positive;
        let whole = match self.chains[part as usize].take() {
            Some(chain) => Learnt::new(chain.learnt.aged().continued(&learnt.aged())),
            None => learnt,
        };
        let known = match whole.stored.open_end().filter(|_| has_records) {
            Some(target) if whole.stored.leads_on() => {
                let target = target.to_buf();
                let chain = Chain {
                    learnt: whole,
                    target,
                };
                self.chains[part as usize] = Some(Box::new(chain));
                return;
            }
            Some(_) => Learnt::new(whole.stored.failed(Rcode::SERVFAIL, None)),
            None => whole,
        };
        self.known[part as usize] = Some(known);
    }

    pub(super) fn set_moment(&mut self, moment: Moment, at: Nanos) {
        self.moments[moment as usize] = at;
    }

    /// The next moment.
    pub(super) fn next_moment(&self) -> Nanos {
        self.moments.iter().copied().min().unwrap_or(NEVER)
    }

    /// Takes out the next moment, if it has come.
    pub(super) fn take_moment(&mut self, now: Nanos) -> Option<Moment> {
        let all = [Moment::Ahead, Moment::Stale, Moment::Silence, Moment::End];
        let next = all.into_iter().min_by_key(|m| self.moments[*m as usize])?;
        let at = &mut self.moments[next as usize];
        let has_come = *at <= now;
        if has_come {
            *at = NEVER;
        }
        has_come.then_some(next)
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
