//! Client queries that wait for upstreams.

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Flags;
use dns64_wire::name::{Name, NameBuf};

use super::actions::Client;
use super::lookups::Waiter;
use super::resolve::{Known, Made, Part, Plan};
use crate::answer::asker::Asker;
use crate::answer::stored::Kind;
use crate::answer::synthesis::Reason;
use crate::cache::{self, Key, Learnt, MESSAGE_MAX as RENDERED_MAX, Policy, seconds};

/// A client's query, from the guard to its response.
pub(super) struct Query {
    pub(super) client: Client,
    pub(super) asker: Asker,
    /// Hashes of its name and of the name in the query to upstreams.
    name_hash: u64,
    asked_hash: u64,
    /// The set of the upstreams that are queried for that name.
    asked_set: u16,
    /// Number of the client's view.
    pub(super) view: usize,
    pub(super) plan: Plan,
    pub(super) arrived: Nanos,
    /// The generation of rendered responses for its response; `None` if it is not cached.
    pub(super) generation: Option<u32>,
    /// Known responses by [`Part`].
    pub(super) known: [Option<Learnt>; 2],
    /// Number of upstream responses in each of them.
    pub(super) responses: [u8; 2],
    /// Aliases whose target is not known yet, by [`Part`].
    chains: [Option<Box<Chain>>; 2],
    /// Lookups that it waits for, by [`Part`].
    pub(super) waiting: [Option<Wait>; 2],
    /// Its timers by [`Moment`].
    moments: [Nanos; MOMENTS],
    /// A link of its chain of aliases exceeds the client's limit by itself: the response is
    /// truncated, and the links are not combined.
    pub(super) too_long: bool,
    /// Accepts a stale response (RFC 8767).
    pub(super) accepts_stale: bool,
    /// Accepts A records without an AAAA response (RFC 6147 section 5.1.3).
    pub(super) accepts_silence: bool,
}

/// The position of a query in the list of those that wait for a lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) lookup: u32,
    pub(super) before: Waiter,
    pub(super) after: Waiter,
}

/// A timer of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Queries A records before it is known whether they are needed.
    Ahead,
    /// Accepts a stale response.
    Stale,
    /// Treats the missing AAAA response as empty.
    Silence,
    /// Ends the query.
    End,
}

const MOMENTS: usize = 4;

/// A timer that is not set.
const NEVER: Nanos = Nanos::MAX;

/// The known records of a part that ends with an alias, whose target is queried.
struct Chain {
    learnt: Learnt,
    target: NameBuf,
    /// The hash of its name, and the set of the upstreams that are queried for it.
    target_hash: u64,
    target_set: u16,
}

impl Query {
    pub(super) fn new(
        client: Client,
        asker: Asker,
        name_hash: u64,
        view: usize,
        plan: Plan,
        arrived: Nanos,
        generation: Option<u32>,
    ) -> Self {
        let asked_hash = match &plan {
            Plan::Reverse(name) => cache::name_hash(name),
            Plan::Forward | Plan::Aaaa => name_hash,
        };
        Self {
            client,
            asker,
            name_hash,
            asked_hash,
            asked_set: 0,
            view,
            plan,
            arrived,
            generation,
            known: [None, None],
            responses: [0; 2],
            chains: [None, None],
            waiting: [None, None],
            moments: [NEVER; MOMENTS],
            too_long: false,
            accepts_stale: false,
            accepts_silence: false,
        }
    }

    /// Selects the upstreams that are queried for its names by the policy of its view.
    pub(super) fn route(&mut self, policy: &Policy) {
        self.asked_set = policy.set_of(self.plan.name(&self.asker));
        for chain in self.chains.iter_mut().flatten() {
            chain.target_set = policy.set_of(&chain.target);
        }
    }

    /// The known responses, with their age at this time.
    pub(super) fn known(&self, now_s: u32) -> Known<'_> {
        let aged = |part: Part| Some(self.known[part as usize].as_ref()?.aged(now_s));
        Known {
            first: aged(Part::First),
            second: aged(Part::Second),
        }
    }

    /// The current question of a part: for the target of an alias, if there is one.
    pub(super) fn question(&self, part: Part) -> Key<'_> {
        let (name, name_hash, set) = match &self.chains[part as usize] {
            Some(chain) => (&chain.target, chain.target_hash, chain.target_set),
            None => (self.plan.name(&self.asker), self.asked_hash, self.asked_set),
        };
        let rtype = match part {
            Part::First => self.asker.rtype,
            Part::Second => Rtype::A,
        };
        let (do_bit, cd) = (self.asker.do_bit(), self.asker.cd());
        Key::new(name, name_hash, rtype, self.asker.class, do_bit, cd).to_set(set)
    }

    fn learnt(&self) -> impl Iterator<Item = &Learnt> {
        self.known.iter().flatten()
    }

    /// Time until which the cache returns all known responses, in seconds on the engine's clock.
    pub(super) fn until_s(&self) -> u32 {
        let all = self.learnt().map(|learnt| learnt.until_s);
        all.min().unwrap_or(0)
    }

    /// Whether its response may be cached as rendered: the first part is known, and the known responses are in the cache.
    /// Responses with many records are not cached as rendered, and neither are failures, which
    /// expire within seconds and may be replaced at any time.
    pub(super) fn may_be_kept(&self, now_s: u32) -> bool {
        let lasts = |learnt: &Learnt| {
            learnt.until_s > now_s
                && learnt.stored.bytes().len() <= RENDERED_MAX
                && !learnt.stored.is_failure()
        };
        let is_begun = self.known[Part::First as usize].is_some();
        is_begun && self.generation.is_some() && self.learnt().all(lasts)
    }

    /// Whether its response may be sent again: all TTLs of its response decrease by one each second. The fixed TTL of synthesised
    /// records without SOA does not (RFC 6147 section 5.1.7).
    pub(super) fn counts_down(&self, made: Made) -> bool {
        let first = self.known[Part::First as usize].as_ref();
        match made {
            Made::Aaaa => first.is_some_and(|first| first.stored.soa_ttl_s().is_some()),
            // A failure, which expires within seconds.
            Made::NotFor(Reason::Translator) => false,
            Made::Forwarded | Made::Ptr | Made::NotFor(_) | Made::NoA => true,
        }
    }

    /// The key of its question.
    pub(super) fn key(&self) -> Key<'_> {
        key_of(&self.asker, self.name_hash)
    }

    /// Whether a part has an alias whose target is not known yet.
    pub(super) fn follows(&self, part: Part) -> bool {
        self.chains[part as usize].is_some()
    }

    /// Whether the current question of a part is not the client's own: it is for the target of an alias, or for the
    /// reverse name of the IPv4 address of a synthesised one.
    pub(super) fn is_led_on(&self, part: Part) -> bool {
        self.follows(part) || matches!(self.plan, Plan::Reverse(_))
    }

    /// The current question of a part as a query of a client.
    pub(super) fn target(&self, part: Part) -> Asker {
        let question = self.question(part);
        Asker {
            id: 0,
            name: question.name.clone(),
            rtype: question.rtype,
            class: question.class,
            flags: Flags::default(),
            edns: None,
            limit: usize::from(u16::MAX),
        }
    }

    /// Adds the response to the current question of a part. If it ends with an alias, the part is
    /// not known until its target is (RFC 6147 section 5.1.5). Loops and chains of too many aliases
    /// are an error (RFC 1034 section 3.6.2).
    pub(super) fn learn(&mut self, part: Part, learnt: Learnt, policy: &Policy, now: Nanos) {
        self.responses[part as usize] += 1;
        let now_s = seconds(now);
        let learnt = self.of_own_set(part, learnt, policy, now_s);
        // Records after too many aliases are not in the combined response.
        let has_records = learnt.stored.kind() == Kind::Positive;
        let exceeds = |link: &Learnt| link.stored.required_len() > self.asker.limit;
        let whole = match self.chains[part as usize].take() {
            Some(chain) if exceeds(&chain.learnt) || exceeds(&learnt) => {
                self.too_long = true;
                learnt
            }
            Some(chain) => {
                let whole = chain.learnt.aged(now_s).continued(&learnt.aged(now_s));
                learnt.remade(whole, chain.learnt.until_s, now_s)
            }
            None => learnt,
        };
        let known = match whole.stored.open_end().filter(|_| has_records) {
            Some(target) if whole.stored.leads_on() => {
                let target = target.to_buf();
                let chain = Chain {
                    learnt: whole,
                    target_hash: cache::name_hash(&target),
                    target_set: policy.set_of(&target),
                    target,
                };
                self.chains[part as usize] = Some(Box::new(chain));
                return;
            }
            Some(_) => {
                let failed = whole.stored.failed(Rcode::SERVFAIL, None);
                whole.remade(failed, 0, now_s)
            }
            None => whole,
        };
        self.known[part as usize] = Some(known);
    }

    /// A response to the current question without what its upstreams say of names for which others are queried.
    fn of_own_set(&self, part: Part, learnt: Learnt, policy: &Policy, now_s: u32) -> Learnt {
        if policy.sets().is_empty() {
            return learnt;
        }
        let set = self.question(part).set;
        let is_foreign = |name: &Name<'_>| policy.set_of(&name.to_buf()) != set;
        match learnt.aged(now_s).before_alias_to(is_foreign) {
            Some(stored) => learnt.remade(stored, u32::MAX, now_s),
            None => learnt,
        }
    }

    pub(super) fn set_moment(&mut self, moment: Moment, at: Nanos) {
        self.moments[moment as usize] = at;
    }

    /// Time of the next timer.
    pub(super) fn next_moment(&self) -> Nanos {
        self.moments.iter().copied().min().unwrap_or(NEVER)
    }

    /// Removes and returns the next timer, if its time has come.
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

/// The key of the question of an asker.
pub(super) fn key_of(asker: &Asker, name_hash: u64) -> Key<'_> {
    let (do_bit, cd) = (asker.do_bit(), asker.cd());
    Key::new(&asker.name, name_hash, asker.rtype, asker.class, do_bit, cd)
}

impl Waiter {
    /// The waiter for one part of a query.
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
