//! Makes answers from settings and cache, and sends those again that are kept as they were sent.

use std::rc::Rc;
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Message;

use super::queries::Query;
use super::resolve::{Known, Made, Part, Plan, Step};
use crate::answer::asker::Asker;
use crate::answer::stored::{Age, Aged, Asked, Kind, Stored, TtlBounds};
use crate::answer::{local_zones, rendered, reply, special};
use crate::cache::{Cache, Entry, Found, Key, KeyBuf, MESSAGE_MAX as RENDERED_MAX, Policy};
use crate::cache::{Learnt, Rendered, RenderedKey, TTLS_MAX, seconds};
use crate::counts::Counts;
use crate::settings::dns64::{Dns64, DomainAction};
use crate::settings::{AnyPolicy, Settings};

/// What answers are made from, and where they are written.
pub(super) struct Maker {
    pub(super) settings: Rc<Settings>,
    pub(super) cache: Arc<Cache>,
    /// Answers as they were sent, if they are kept.
    rendered: Option<Arc<Rendered>>,
    /// The policy of each view.
    policies: Box<[Arc<Policy>]>,
    /// Answers to fetch again, found while queries were answered.
    pub(super) ending: Vec<KeyBuf>,
    /// The answer that was made last.
    pub(super) frame: Box<[u8]>,
    counts: Arc<Counts>,
}

/// Longest DNS message (RFC 1035 section 4.2.2).
const MESSAGE_MAX: usize = 65_535;

/// Where room in the cache is short, an answer is rendered again after so many seconds, so that the
/// answers that it is made of are seen to be in use.
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
            counts,
        }
    }

    /// Takes on new settings and returns the old ones.
    pub(super) fn reload(&mut self, settings: &Settings) -> Rc<Settings> {
        self.cache.configure(&settings.cache);
        self.rendered = self.cache.rendered();
        self.policies = policies(settings, &self.cache);
        let old = std::mem::replace(&mut self.settings, Rc::new(settings.clone()));
        if (old.any, &old.forward_special) != (settings.any, &settings.forward_special) {
            // Other questions are answered here now.
            self.cache.forget_rendered();
        }
        old
    }

    /// Sends an answer again that was kept as it was sent, by clients of the same policy: writes it into
    /// `frame` and returns its octets. There is one from the time on that it was first made until the
    /// answers that it was made of end, or are to be refreshed.
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

    /// One step of the procedure for a query. Its answer is kept as it is sent, for whoever asks the
    /// same, if it counts down evenly.
    fn step(&mut self, query: &Query, now: Nanos) -> Step {
        if self.rendered.is_some() && query.may_be_kept(seconds(now)) {
            // All that any client gets, or it is not kept.
            let fullest = rendered::fullest(&query.asker, MESSAGE_MAX);
            match self.step_as(&fullest, query) {
                Step::Need(part) => return Step::Need(part),
                Step::Answer(len, made) => {
                    if let Some(len) = self.keep(query, len, made, now) {
                        return Step::Answer(len, made);
                    }
                }
            }
        }
        self.step_as(&query.asker, query)
    }

    /// One step for a query as if this asker had asked it.
    fn step_as(&mut self, asker: &Asker, query: &Query) -> Step {
        let dns64 = self.settings.views[query.view].dns64.as_ref();
        let plan = &query.plan;
        plan.step(asker, dns64, &query.known(), &mut self.frame)
    }

    /// Keeps the answer in the frame, of `len` octets, if it can be, and makes it that of the query.
    /// `None`: the query's has to be made by itself.
    fn keep(&mut self, query: &Query, len: usize, made: Made, now: Nanos) -> Option<usize> {
        let mut ttls = [0; TTLS_MAX];
        let kept = rendered::keep(&mut self.frame[..len], &mut ttls)?;
        if kept.len <= RENDERED_MAX && query.counts_down(made) {
            let key = query.key();
            let now_s = seconds(now);
            let until_s = query.until_s();
            let entry = Entry {
                len: kept.len,
                extended_error: kept.extended_error,
                note: made.note(query.responses),
                rendered_s: now_s,
                expires_s: match self.cache.is_full(&key) {
                    true => until_s.min(now_s.saturating_add(TOUCH_S)),
                    false => until_s,
                },
            };
            let (message, ttls) = (&self.frame[..kept.len], &ttls[..kept.ttls]);
            let key = RenderedKey::new(key, &self.policies[query.view]);
            let (store, generation) = (self.rendered.as_ref()?, query.generation?);
            store.insert(&key, generation, &entry, message, ttls);
        }
        let error = kept.extended_error;
        rendered::complete(&query.asker, kept.len, error, &mut self.frame)
    }

    /// Answers a query that needs no upstream (then the length of the answer), or makes a plan
    /// for it.
    pub(super) fn begin(&mut self, asker: &Asker, view: usize) -> Result<usize, Plan> {
        if asker.rtype == Rtype::ANY && self.settings.any == AnyPolicy::Minimal {
            return Ok(reply::any_minimal(asker, &mut self.frame));
        }
        if let Some(len) = self.answer_special(asker, view) {
            return Ok(len);
        }
        let dns64 = self.settings.views[view].dns64.as_ref();
        let plan = Plan::new(asker, dns64, &mut self.frame);
        if plan.is_err() {
            self.counts.synthesised_ptr.tick();
        }
        plan.map_or_else(Ok, Err)
    }

    /// The generation of rendered answers that an answer which is begun now may be one of.
    pub(super) fn generation(&self) -> Option<u32> {
        self.rendered.as_ref().map(|store| store.generation())
    }

    /// Answers a question for a special-use name, unless it is to be forwarded. The answer is in the frame.
    fn answer_special(&mut self, asker: &Asker, view: usize) -> Option<usize> {
        let dns64 = self.settings.views[view].dns64.as_ref();
        if let Some(len) = special::answer(asker, dns64, &mut self.frame) {
            self.counts.ipv4only.tick();
            return Some(len);
        }
        let forwarded = &self.settings.forward_special;
        let len = local_zones::answer(asker, dns64, forwarded, &mut self.frame)?;
        self.counts.local_zones.tick();
        Some(len)
    }

    /// The answer to the question that a part of a query has come to, if that is for a special-use name to
    /// which aliases or a synthesised address lead. The frame is overwritten.
    fn special_target(&mut self, query: &Query, part: Part) -> Option<Learnt> {
        let asker = query.target(part)?;
        let len = self.answer_special(&asker, query.view)?;
        let message = Message::parse(&self.frame[..len]).ok()?;
        let stored = Stored::accept(&message, &TtlBounds::NONE).ok()?;
        Some(Learnt {
            stored: Arc::new(stored),
            age: Age::Seconds(0),
            // Its TTLs do not count down: no response with it is sent again.
            until_s: 0,
        })
    }

    /// Goes through the procedure as far as results and cache allow. An answer is in the frame.
    pub(super) fn advance(&mut self, query: &mut Query, now: Nanos) -> Step {
        loop {
            let step = self.step(query, now);
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
        let asked = Asked {
            name: query.plan.name(&query.asker),
            rtype: query.asker.rtype,
            class: query.asker.class,
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
    /// themselves or are special-use names; whether it is known then. The frame is overwritten.
    pub(super) fn recall(&mut self, query: &mut Query, part: Part, now: Nanos) -> bool {
        while query.known[part as usize].is_none() {
            let special = self.special_target(query, part);
            let Some(learnt) = special.or_else(|| self.recall_link(query, part, now)) else {
                return false;
            };
            query.learn(part, learnt);
        }
        true
    }

    /// What the cache has for the question that a part of a query has come to.
    fn recall_link(&mut self, query: &Query, part: Part, now: Nanos) -> Option<Learnt> {
        let question = query.question(part);
        match self.find(&question, now) {
            Found::Fresh(learnt) => {
                self.counts.cache_hits.tick();
                if learnt.until_s == 0 {
                    self.ending.push(question.to_buf());
                }
                Some(learnt)
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

    /// What the cache has for a question.
    pub(super) fn find(&self, key: &Key<'_>, now: Nanos) -> Found {
        let settings = &self.settings.cache;
        self.cache.find(settings, key, now)
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

/// Whether an answer could be sent as it was before.
pub(super) enum SentAgain {
    /// Yes, in so many octets.
    Yes(usize),
    /// There is one, which is longer than this asker can take.
    TooLong,
    /// There is none.
    No,
}

fn policies(settings: &Settings, cache: &Cache) -> Box<[Arc<Policy>]> {
    let views = settings.views.iter();
    views
        .map(|view| cache.policy(view.dns64.as_ref()))
        .collect()
}
