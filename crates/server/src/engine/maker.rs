//! Makes answers from settings and cache.

use std::rc::Rc;
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Rcode, Rtype};

use super::actions::Client;
use super::lookups::Question;
use super::queries::{Learnt, Query};
use super::resolve::{Known, Part, Plan, Step};
use crate::answer::asker::Asker;
use crate::answer::stored::{Age, Aged, Asked, Kind, Stored};
use crate::answer::{local_zones, reply, special};
use crate::cache::{Cache, Found};
use crate::counts::Counts;
use crate::settings::dns64::{Dns64, DomainAction};
use crate::settings::{AnyPolicy, Settings};

/// What answers are made from, and where they are written.
pub(super) struct Maker {
    pub(super) settings: Rc<Settings>,
    pub(super) cache: Cache,
    /// Answers to ask for anew, found while queries were answered.
    pub(super) ending: Vec<Question<'static>>,
    /// The answer that was made last.
    pub(super) frame: Box<[u8]>,
    counts: Arc<Counts>,
}

/// Longest DNS message (RFC 1035 section 4.2.2).
const MESSAGE_MAX: usize = 65_535;

impl Maker {
    pub(super) fn new(settings: &Settings, counts: Arc<Counts>) -> Self {
        Self {
            settings: Rc::new(settings.clone()),
            cache: Cache::new(&settings.cache, share(settings)),
            ending: Vec::new(),
            frame: vec![0; MESSAGE_MAX].into(),
            counts,
        }
    }

    /// Takes on new settings and returns the old ones.
    pub(super) fn reload(&mut self, settings: &Settings) -> Rc<Settings> {
        self.cache.configure(&settings.cache, share(settings));
        std::mem::replace(&mut self.settings, Rc::new(settings.clone()))
    }

    /// Answers a query that needs no upstream (then the length of the answer), or makes a plan
    /// for it.
    #[expect(
        clippy::result_large_err,
        reason = "both are ordinary outcomes; the query lives on the stack while the cache answers it"
    )]
    pub(super) fn begin(
        &mut self,
        client: Client,
        asker: Asker,
        view: usize,
        now: Nanos,
    ) -> Result<usize, Query> {
        let dns64 = self.settings.views[view].dns64.as_ref();
        if asker.rtype == Rtype::ANY && self.settings.any == AnyPolicy::Minimal {
            return Ok(reply::any_minimal(&asker, &mut self.frame));
        }
        if let Some(len) = special::answer(&asker, dns64, &mut self.frame) {
            self.counts.ipv4only.tick();
            return Ok(len);
        }
        let forwarded = &self.settings.forward_special;
        if let Some(len) = local_zones::answer(&asker, dns64, forwarded, &mut self.frame) {
            self.counts.local_zones.tick();
            return Ok(len);
        }
        match Plan::new(&asker, dns64, &mut self.frame) {
            Ok(plan) => Err(Query::new(client, asker, view, plan, now)),
            Err(len) => {
                self.counts.synthesised_ptr.tick();
                Ok(len)
            }
        }
    }

    /// Goes through the procedure as far as results and cache allow. An answer is in the frame.
    pub(super) fn advance(&mut self, query: &mut Query, now: Nanos) -> Step {
        loop {
            let dns64 = self.settings.views[query.view].dns64.as_ref();
            let known = query.known();
            let step = query
                .plan
                .step(&query.asker, dns64, &known, &mut self.frame);
            let Step::Need(part) = step else {
                return step;
            };
            if !self.recall(query, part, now) {
                return match part {
                    Part::First if query.accepts_silence => self.without_first(query, now),
                    Part::First | Part::Second => step,
                };
            }
        }
    }

    /// Makes an answer without that to the question itself, which does not come (RFC 6147 section
    /// 5.1.3), if there are A records to make it of. An answer is in the frame.
    fn without_first(&mut self, query: &mut Query, now: Nanos) -> Step {
        self.recall(query, Part::Second, now);
        let question = query.plan.question(&query.asker, Part::First);
        let asked = Asked {
            name: &question.name,
            rtype: question.rtype,
            class: question.class,
        };
        let none = Stored::failure(&asked, Rcode::SERVFAIL, None);
        let known = Known {
            first: Some(Aged::fresh(&none, 0)),
            ..query.known()
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

    /// Looks for a part of a query in the cache, along aliases whose targets were asked for by
    /// themselves; whether it is known then.
    pub(super) fn recall(&mut self, query: &mut Query, part: Part, now: Nanos) -> bool {
        while query.known[part as usize].is_none() {
            let Some(learnt) = self.recall_link(query, part, now) else {
                return false;
            };
            query.learn(part, learnt);
        }
        true
    }

    /// What the cache has for the question that a part of a query has come to.
    fn recall_link(&mut self, query: &Query, part: Part, now: Nanos) -> Option<Learnt> {
        let question = query.question(part);
        let key = question.key();
        match self.cache.find(key.as_bytes(), now) {
            Found::Fresh {
                stored,
                age_s,
                ending,
            } => {
                self.counts.cache_hits.tick();
                if ending {
                    self.ending.push(question.into_owned());
                }
                let age = Age::Seconds(age_s);
                Some(Learnt { stored, age })
            }
            Found::Stale {
                stored,
                failed_lately,
            } if query.accepts_stale || failed_lately => {
                self.counts.cache_stale.tick();
                let age = Age::Stale;
                Some(Learnt { stored, age })
            }
            Found::Stale { .. } | Found::Missing => {
                self.counts.cache_misses.tick();
                None
            }
        }
    }

    /// Whether a part of a query is in the cache.
    pub(super) fn knows(&self, query: &Query, part: Part, now: Nanos) -> bool {
        let key = query.question(part).key();
        matches!(self.cache.find(key.as_bytes(), now), Found::Fresh { .. })
    }

    /// Whether it is likely that A records will be needed for a query.
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

/// One worker's share of the cache's memory.
fn share(settings: &Settings) -> u64 {
    settings.cache.bytes / settings.workers.max(1) as u64
}
