//! Makes answers from settings and cache, and sends those again that are kept as they were sent.

use std::rc::Rc;
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Message;

use super::actions::Client;
use super::lookups::Question;
use super::queries::{Learnt, Query};
use super::resolve::{Known, Made, Part, Plan, Step};
use crate::answer::asker::Asker;
use crate::answer::stored::{Age, Aged, Asked, Kind, Stored, TtlBounds};
use crate::answer::{local_zones, rendered, reply, special};
use crate::cache::{Cache, Entry, Found, Key, MESSAGE_MAX as RENDERED_MAX, Policy, Rendered};
use crate::cache::{TTLS_MAX, seconds};
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
    /// Of what the cache gave for the query at hand: until when it would give the same, and the
    /// generation of rendered answers before that.
    until_s: u32,
    generation: u32,
    /// Answers to ask for anew, found while queries were answered.
    pub(super) ending: Vec<Question<'static>>,
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
            until_s: 0,
            generation: 0,
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
    /// `frame` and returns its octets. There is one from the second time on that it is found in
    /// the cache until the answers that it was made of end, or are to be asked for anew.
    pub(super) fn answer_rendered(
        &self,
        asker: &Asker,
        view: usize,
        now: Nanos,
        frame: &mut [u8],
    ) -> Option<usize> {
        let store = self.rendered.as_ref()?;
        let key = key(asker);
        let key = store.key(&key, &self.policies[view]);
        let entry = store.find(&key, seconds(now), frame)?;
        let len = rendered::complete(asker, entry.len, entry.extended_error, frame)?;
        let made = Made::from_note(entry.note);
        self.counts.rendered.tick();
        self.counts.cache_hits.add(made.parts());
        self.counts.count_made(made);
        Some(len)
    }

    /// Keeps the answer to a query as it is sent, for whoever asks the same, if all of it came from the
    /// cache and counts down evenly. The frame is overwritten.
    pub(super) fn render(&mut self, query: &Query, now: Nanos) {
        let now_s = seconds(now);
        let Some(store) = self.rendered.as_ref().filter(|_| self.until_s > now_s) else {
            return;
        };
        let dns64 = self.settings.views[query.view].dns64.as_ref();
        // All that any client gets, or it is not kept; an answer of many records is not worth the try.
        let known = query.known.iter().flatten();
        if known
            .map(|part| part.stored.message().bytes().len())
            .any(|len| len > RENDERED_MAX)
        {
            return;
        }
        let asker = rendered::fullest(&query.asker, MESSAGE_MAX);
        let step = query
            .plan
            .step(&asker, dns64, &query.known(), &mut self.frame);
        let Step::Answer(len, made) = step else {
            return;
        };
        if !counts_down(query, made) {
            return;
        }
        let mut ttls = [0; TTLS_MAX];
        let kept = rendered::keep(&mut self.frame[..len], &mut ttls);
        let Some(kept) = kept.filter(|kept| kept.len <= RENDERED_MAX) else {
            return;
        };
        let key = key(&asker);
        let expires_s = match self.cache.is_full(key.as_bytes()) {
            true => self.until_s.min(now_s.saturating_add(TOUCH_S)),
            false => self.until_s,
        };
        let entry = Entry {
            len: kept.len,
            extended_error: kept.extended_error,
            note: made.note(),
            rendered_s: now_s,
            expires_s,
        };
        let (message, ttls) = (&self.frame[..kept.len], &ttls[..kept.ttls]);
        let key = store.key(&key, &self.policies[query.view]);
        store.insert(&key, self.generation, &entry, message, ttls);
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
        self.until_s = u32::MAX;
        self.generation = self.rendered.as_ref().map_or(0, |store| store.generation());
        if asker.rtype == Rtype::ANY && self.settings.any == AnyPolicy::Minimal {
            return Ok(reply::any_minimal(&asker, &mut self.frame));
        }
        if let Some(len) = self.answer_special(&asker, view) {
            return Ok(len);
        }
        let dns64 = self.settings.views[view].dns64.as_ref();
        match Plan::new(&asker, dns64, &mut self.frame) {
            Ok(plan) => Err(Query::new(client, asker, view, plan, now)),
            Err(len) => {
                self.counts.synthesised_ptr.tick();
                Ok(len)
            }
        }
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

    /// The answer to the question that a part of a query has come to, if that is for a special-use name at
    /// which aliases end. The frame is overwritten.
    fn special_target(&mut self, query: &Query, part: Part) -> Option<Learnt> {
        let asker = query.target(part)?;
        let len = self.answer_special(&asker, query.view)?;
        // Its TTLs do not count down: no response with it is sent again.
        self.until_s = 0;
        let message = Message::parse(&self.frame[..len]).ok()?;
        let stored = Stored::accept(&message, &TtlBounds::NONE).ok()?;
        Some(Learnt::new(stored))
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
        let key = question.key();
        match self.find(&key, now) {
            Found::Fresh {
                stored,
                age_s,
                ending,
                until_s,
            } => {
                self.counts.cache_hits.tick();
                self.until_s = self.until_s.min(until_s);
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
                self.until_s = 0;
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
        matches!(self.find(&key, now), Found::Fresh { .. })
    }

    /// What the cache has for a question.
    pub(super) fn find(&self, key: &Key, now: Nanos) -> Found {
        let settings = &self.settings.cache;
        self.cache.find(settings, key.as_bytes(), now)
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

/// The key of the question of an asker.
fn key(asker: &Asker) -> Key {
    let (do_bit, cd) = (asker.do_bit(), asker.cd());
    Key::new(&asker.name, asker.rtype, asker.class, do_bit, cd)
}

fn policies(settings: &Settings, cache: &Cache) -> Box<[Arc<Policy>]> {
    let views = settings.views.iter();
    views
        .map(|view| cache.policy(view.dns64.as_ref()))
        .collect()
}

/// Whether all TTLs of an answer grow smaller by a second each second. A failure is left out: it
/// lasts for seconds, and an answer may take its place at any time. So is what may have the fixed
/// TTL of synthesised records without SOA (RFC 6147 section 5.1.7).
fn counts_down(query: &Query, made: Made) -> bool {
    let known = query.known.iter().flatten();
    let mut kinds = known.map(|learnt| learnt.stored.kind());
    let has_soa = || {
        let first = query.known[Part::First as usize].as_ref();
        first.is_some_and(|first| first.stored.soa_ttl_s().is_some())
    };
    match made {
        _ if kinds.any(|kind| matches!(kind, Kind::Failure(_))) => false,
        Made::Svcb => false,
        Made::Aaaa => has_soa(),
        Made::Forwarded | Made::Ptr | Made::NotFor(_) | Made::NoA => true,
    }
}
