//! Builds responses from settings and cache, and sends cached rendered ones again.

use std::rc::Rc;
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::Message;
use dns64_wire::name::NameBuf;

use super::lookups::Lookups;
use super::queries::Query;
use super::resolve::{Known, Made, Part, Plan, Step};
use crate::answer::asker::Asker;
use crate::answer::local::Answered;
use crate::answer::stored::{Aged, Asked, Kind, Stored, TtlBounds};
use crate::answer::synthesis::{Verdict, judge};
use crate::answer::{local, rendered, reply, special};
use crate::cache::{Cache, Entry, Found, Key, KeyBuf, MESSAGE_MAX as RENDERED_MAX, Policy};
use crate::cache::{Learnt, Rendered, RenderedKey, TTLS_MAX, seconds};
use crate::counts::Counts;
use crate::settings::dns64::{Dns64, DomainAction, FailurePolicy};
use crate::settings::{AnyPolicy, Settings};

/// The data for responses, and the buffer that they are written to.
pub(super) struct Maker {
    pub(super) settings: Rc<Settings>,
    pub(super) cache: Arc<Cache>,
    /// The cache of rendered responses, if there is one.
    rendered: Option<Arc<Rendered>>,
    /// The policy of each view.
    policies: Box<[Arc<Policy>]>,
    /// Responses to refresh, found while queries were answered.
    pub(super) ending: Vec<KeyBuf>,
    /// The last response.
    pub(super) frame: Box<[u8]>,
    /// Where its TTLs are; like the frame, it is not cleared for each response.
    ttls: [u16; TTLS_MAX],
    counts: Arc<Counts>,
}

/// Longest DNS message (RFC 1035 section 4.2.2).
const MESSAGE_MAX: usize = 65_535;

/// If the cache is almost full, a response is rendered again after this number of seconds, so that
/// the upstream responses that it depends on count as used.
const TOUCH_S: u32 = 60;

impl Maker {
    pub(super) fn new(settings: &Settings, cache: Arc<Cache>, counts: Arc<Counts>) -> Self {
        Self {
            settings: Rc::new(settings.clone()),
            rendered: cache.rendered(),
            policies: policies(settings, &cache),
            cache,
            ending: Vec::new(),
            frame: vec![0; MESSAGE_MAX].into(),
            ttls: [0; TTLS_MAX],
            counts,
        }
    }

    /// Changes the settings and returns the old ones.
    pub(super) fn reload(&mut self, settings: &Settings) -> Rc<Settings> {
        self.cache.configure(&settings.cache);
        self.rendered = self.cache.rendered();
        self.policies = policies(settings, &self.cache);
        let old = std::mem::replace(&mut self.settings, Rc::new(settings.clone()));
        if (old.any, &old.local) != (settings.any, &settings.local) {
            // The set of locally answered queries has changed.
            self.cache.forget_rendered();
        }
        old
    }

    /// Writes the cached rendered response for clients with the same policy into `frame` and
    /// returns its length. It is in the cache from its first rendering until the upstream responses
    /// that it depends on expire or must be refreshed.
    pub(super) fn answer_rendered(
        &self,
        asker: &Asker,
        key: Key<'_>,
        view: usize,
        now: Nanos,
        frame: &mut [u8],
    ) -> SentAgain {
        let key = RenderedKey::new(key, &self.policies[view]);
        let store = self.rendered.as_ref();
        let Some(entry) = store.and_then(|store| store.find(&key, seconds(now), frame)) else {
            return SentAgain::No;
        };
        let Some(len) = rendered::complete(asker, entry.len, entry.extended_error, frame) else {
            return SentAgain::TooLong;
        };
        let (made, responses) = Made::from_note(entry.note);
        self.counts.rendered.tick();
        self.counts.cache_hits.add(responses.into());
        self.counts.count_made(made);
        SentAgain::Yes(len)
    }

    /// Runs one step of the procedure for a query. The response is cached as rendered, for all
    /// clients with the same query, if its TTLs count down evenly.
    fn step(&mut self, query: &Query, now: Nanos) -> Step {
        if query.too_long {
            let len = reply::truncated(&query.asker, &mut self.frame);
            return Step::Answer(len, Made::Forwarded);
        }
        if self.rendered.is_some() && query.may_be_kept(seconds(now)) {
            // Rendered for the client that gets most, or not cached.
            let fullest = rendered::fullest(&query.asker, MESSAGE_MAX);
            match self.step_as(&fullest, query, now) {
                Step::Need(part) => return Step::Need(part),
                Step::Answer(len, made) => {
                    if let Some(len) = self.keep(query, len, made, now) {
                        return Step::Answer(len, made);
                    }
                }
            }
        }
        self.step_as(&query.asker, query, now)
    }

    /// Runs one step for a query as if it came from this asker.
    fn step_as(&mut self, asker: &Asker, query: &Query, now: Nanos) -> Step {
        let dns64 = self.settings.views[query.view].dns64.as_ref();
        let plan = &query.plan;
        let known = query.known(seconds(now));
        plan.step(asker, dns64, &known, &mut self.frame)
    }

    /// Caches the response in the frame, of `len` octets, if possible, and converts it to the
    /// response to this query. `None` if the query needs a response of its own.
    fn keep(&mut self, query: &Query, len: usize, made: Made, now: Nanos) -> Option<usize> {
        let kept = rendered::keep(&mut self.frame[..len], &mut self.ttls)?;
        if kept.len <= RENDERED_MAX && query.counts_down(made) {
            let key = query.key();
            let now_s = seconds(now);
            let until_s = query.until_s();
            let entry = Entry {
                len: kept.len,
                extended_error: kept.extended_error,
                note: made.note(self.used(query, made)),
                rendered_s: now_s,
                expires_s: match self.cache.is_full(&key) {
                    true => until_s.min(now_s.saturating_add(TOUCH_S)),
                    false => until_s,
                },
            };
            let (message, ttls) = (&self.frame[..kept.len], &self.ttls[..kept.ttls]);
            let key = RenderedKey::new(key, &self.policies[query.view]);
            let (store, generation) = (self.rendered.as_ref()?, query.generation?);
            store.insert(&key, generation, &entry, message, ttls);
        }
        let error = kept.extended_error;
        rendered::complete(&query.asker, kept.len, error, &mut self.frame)
    }

    /// Number of upstream responses that an answer made in this way is built from. A records may have been queried ahead
    /// and not be needed.
    fn used(&self, query: &Query, made: Made) -> u8 {
        let [aaaa, a] = query.responses;
        let needs_a = || {
            let dns64 = self.settings.views[query.view].dns64.as_ref();
            let known = dns64.zip(query.known[Part::First as usize].as_ref());
            known.is_some_and(|(dns64, aaaa)| {
                judge(&query.asker, dns64, &aaaa.stored) == Verdict::NeedsA
            })
        };
        match made {
            Made::Aaaa | Made::NoA => aaaa + a,
            Made::NotFor(_) if needs_a() => aaaa + a,
            Made::Forwarded | Made::Ptr | Made::NotFor(_) => aaaa,
        }
    }

    /// Answers a query that needs no upstream and returns the length of the response, or makes a
    /// plan for it.
    pub(super) fn begin(&mut self, asker: &Asker, view: usize) -> Result<usize, Plan> {
        if asker.rtype == Rtype::ANY && self.settings.any == AnyPolicy::Minimal {
            return Ok(reply::any_minimal(asker, &mut self.frame));
        }
        if let Some(Answered { len, is_part }) = self.answer_here(asker, view)
            && (!is_part || self.is_whole(asker, view, len))
        {
            return Ok(len);
        }
        let dns64 = self.settings.views[view].dns64.as_ref();
        if asker.rtype == Rtype::A && dns64.is_some_and(|dns64| filters_a(dns64, asker)) {
            self.counts.filtered_a.tick();
            return Ok(reply::error(asker, Rcode::NOERROR, None, &mut self.frame));
        }
        let plan = Plan::new(asker, dns64, &mut self.frame);
        if plan.is_err() {
            self.counts.synthesised_ptr.tick();
        }
        plan.map_or_else(Ok, Err)
    }

    /// The current generation of rendered responses, for a response that is started now.
    pub(super) fn generation(&self) -> Option<u32> {
        self.rendered.as_ref().map(|store| store.generation())
    }

    /// The policy of a view.
    pub(super) fn policy(&self, view: usize) -> &Policy {
        &self.policies[view]
    }

    /// Whether a set of upstreams is queried for a name for the clients of any view.
    pub(super) fn routes(&self, name: &NameBuf, set: u16) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|policy| policy.set_of(name) == set)
    }

    /// Answers a query for a name that the server knows itself. The response is in the frame.
    fn answer_here(&mut self, asker: &Asker, view: usize) -> Option<Answered> {
        let dns64 = self.settings.views[view].dns64.as_ref();
        if let Some(len) = special::answer(asker, dns64, &mut self.frame) {
            self.counts.ipv4only.tick();
            let is_part = false;
            return Some(Answered { len, is_part });
        }
        let (local, domains) = (&self.settings.local, self.policies[view].sets());
        let answered = local::answer(asker, local, dns64, domains, &mut self.frame)?;
        self.counts.local_zones.tick();
        Some(answered)
    }

    /// Whether a client gets these addresses of the operator as they are, which are in the frame.
    fn is_whole(&self, asker: &Asker, view: usize, len: usize) -> bool {
        let dns64 = self.settings.views[view].dns64.as_ref();
        let is_native = |stored: &Stored| {
            dns64.is_none_or(|dns64| {
                !(asker.rtype == Rtype::A && filters_a(dns64, asker))
                    && judge(asker, dns64, stored) == Verdict::Native
            })
        };
        stored_here(&self.frame[..len])
            .is_some_and(|stored| stored.open_end().is_none() && is_native(&stored))
    }

    /// The response to the current question of a query's part, if the server knows its name itself. Overwrites the frame.
    fn recall_here(&mut self, query: &Query, part: Part, now: Nanos) -> Option<Learnt> {
        let local = &self.settings.local;
        if !(query.is_led_on(part) || local.may_have(query.plan.name(&query.asker))) {
            return None;
        }
        let Answered { len, .. } = self.answer_here(&query.target(part), query.view)?;
        Some(Learnt {
            stored: stored_here(&self.frame[..len])?,
            stored_s: Some(seconds(now)),
            // Its TTLs do not count down: no response with it is cached as rendered.
            until_s: 0,
        })
    }

    /// Continues the procedure as far as known responses and the cache permit. A response is in the
    /// frame.
    pub(super) fn advance(&mut self, query: &mut Query, lookups: &Lookups, now: Nanos) -> Step {
        loop {
            let step = self.step(query, now);
            let Step::Need(part) = step else {
                return step;
            };
            if !self.recall(query, part, lookups, now) {
                return match part {
                    Part::First if query.accepts_silence => self.without_first(query, lookups, now),
                    Part::First | Part::Second => step,
                };
            }
        }
    }

    /// Builds a response without the AAAA response, which does not arrive (RFC 6147 section 5.1.3),
    /// if there are A records. The response is in the frame.
    fn without_first(&mut self, query: &mut Query, lookups: &Lookups, now: Nanos) -> Step {
        self.recall(query, Part::Second, lookups, now);
        let asked = Asked {
            name: query.plan.name(&query.asker),
            rtype: query.asker.rtype,
            class: query.asker.class,
        };
        let none = Stored::failure(&asked, Rcode::SERVFAIL, None);
        let known = Known {
            first: Some(Aged::fresh(&none, 0)),
            ..query.known(seconds(now))
        };
        let has_records = |a: &Aged<'_>| a.stored.kind() == Kind::Positive;
        if !known.second.as_ref().is_some_and(has_records) {
            return Step::Need(Part::First);
        }
        let dns64 = self.settings.views[query.view].dns64.as_ref();
        query
            .plan
            .step(&query.asker, dns64, &known, &mut self.frame)
    }

    /// Looks up a part of a query in the cache, and follows aliases whose targets were queried
    /// separately or are special-use names. Returns whether it is complete. Overwrites the frame.
    pub(super) fn recall(
        &mut self,
        query: &mut Query,
        part: Part,
        lookups: &Lookups,
        now: Nanos,
    ) -> bool {
        while query.known[part as usize].is_none() {
            let own = self.recall_here(query, part, now);
            let Some(learnt) = own.or_else(|| self.recall_link(query, part, lookups, now)) else {
                return false;
            };
            query.learn(part, learnt, &self.policies[query.view], now);
        }
        true
    }

    /// Looks up the current question of a query's part in the cache.
    fn recall_link(
        &mut self,
        query: &Query,
        part: Part,
        lookups: &Lookups,
        now: Nanos,
    ) -> Option<Learnt> {
        let question = query.question(part);
        match self.find(&question, now) {
            Found::Fresh(learnt) => {
                self.counts.cache_hits.tick();
                if learnt.until_s == 0 {
                    self.ending.push(question.to_buf());
                }
                // A response to this question comes before what was said of its name, and may be on its way.
                let may_be_replaced = || lookups.find(&question).is_some();
                Some(match learnt.stored.denies_name() && may_be_replaced() {
                    true => Learnt {
                        until_s: 0,
                        ..learnt
                    },
                    false => learnt,
                })
            }
            Found::Stale(learnt, failed_lately) if query.accepts_stale || failed_lately => {
                self.counts.cache_stale.tick();
                Some(learnt)
            }
            Found::Stale(..) | Found::Missing => {
                self.counts.cache_misses.tick();
                None
            }
        }
    }

    /// Whether a part of a query is in the cache.
    pub(super) fn knows(&self, query: &Query, part: Part, now: Nanos) -> bool {
        matches!(self.find(&query.question(part), now), Found::Fresh(..))
    }

    /// Looks up a question in the cache.
    pub(super) fn find(&self, key: &Key<'_>, now: Nanos) -> Found {
        let settings = &self.settings.cache;
        self.cache.find(settings, key, now)
    }

    /// Whether a response has an address that names of the upstreams for all names must not have.
    pub(super) fn blocks(&self, question: &Key<'_>, stored: &Stored) -> bool {
        let nets = &self.settings.block_addresses;
        if question.class != Class::IN {
            return false;
        }
        // What is said of a name for which other upstreams are asked is not used.
        let is_excepted = || {
            let end = stored.chain_end().to_buf();
            let except = &self.settings.block_except;
            except.get(&end).is_some() || self.policies.iter().any(|p| p.set_of(&end) != 0)
        };
        let has_one = match question.rtype {
            Rtype::A => stored.a().any(|(_, ipv4)| nets.contains(ipv4.into())),
            Rtype::AAAA => stored.aaaa().any(|(_, ipv6)| nets.contains(ipv6.into())),
            _ => false,
        };
        has_one && !is_excepted()
    }

    /// Whether a query that probably needs A records may have a response without one for AAAA.
    pub(super) fn accepts_silence(&self, query: &Query) -> bool {
        let dns64 = self.settings.views[query.view].dns64.as_ref();
        dns64.is_some_and(|dns64| {
            let rule = || dns64.domains.rule(&query.asker.name.as_name());
            dns64.failure == FailurePolicy::Synthesise || rule().action == DomainAction::Force
        })
    }

    /// Whether a query probably needs A records.
    pub(super) fn may_synthesise(&self, query: &Query) -> bool {
        let dns64 = self.settings.views[query.view].dns64.as_ref();
        let excluded = |dns64: &Dns64| {
            let rule = dns64.domains.rule(&query.asker.name.as_name());
            rule.action == DomainAction::Exclude
        };
        matches!(query.plan, Plan::Aaaa)
            && !query.asker.validates()
            && dns64.is_some_and(|dns64| !excluded(dns64))
    }
}

/// A response that this server made.
fn stored_here(message: &[u8]) -> Option<Stored> {
    let message = Message::parse(message).ok()?;
    Stored::accept(&message, &TtlBounds::NONE).ok()
}

/// Whether an A query gets an empty response. A client that validates could not prove it.
fn filters_a(dns64: &Dns64, asker: &Asker) -> bool {
    dns64.filter_a && asker.class == Class::IN && !asker.validates()
}

/// The outcome of an attempt to send a cached rendered response.
pub(super) enum SentAgain {
    /// Sent, with this length in octets.
    Yes(usize),
    /// The cached response exceeds the client's limit.
    TooLong,
    /// There is none.
    No,
}

fn policies(settings: &Settings, cache: &Cache) -> Box<[Arc<Policy>]> {
    let views = settings.views.iter();
    views.map(|view| cache.policy(settings, view)).collect()
}
