//! Validates the responses of upstreams and handles them.

use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Rcode;
use dns64_wire::message::Message;

use super::Engine;
use super::actions::Actions;
use super::ask::{self, EdnsSeen, Fit};
use super::exchange::report;
use super::exchanges::{Exchange, Way};
use super::habits::{CookieSeen, Form};
use crate::answer::stored::{Kind, Malformed, Stored, TtlBounds};
use crate::cache::{self, Key};
use crate::mailbox::ConnectionFailed;

/// Number of UDP responses with a wrong ID or a wrong question, at the right port from the right
/// address, after which a lookup uses TCP: an attacker is guessing. PowerDNS's `spoof-nearmiss-max`
/// is 1; here it is larger, so that an upstream that responds twice does not cause a TCP query.
const NEAR_MISSES_MAX: u8 = 3;

impl Engine {
    /// Handles a UDP response. One that does not match a query is counted, and the valid response
    /// still awaited: forged responses cannot displace it.
    pub fn on_reply(
        &mut self,
        server: usize,
        port: usize,
        message: &[u8],
        now: Nanos,
        actions: &mut Actions,
    ) {
        let Ok(reply) = Message::parse(message) else {
            return self.counts.rejected_malformed.tick();
        };
        if !reply.qr() {
            return self.counts.rejected_unknown.tick();
        }
        let Some(slot) = self.exchanges.at(server, port, reply.id()) else {
            self.counts.rejected_unknown.tick();
            return self.near_miss(server, port, &reply, now, actions);
        };
        let exchange = self.exchanges.get(slot);
        let (form, rtt_ns) = (exchange.form, now.saturating_sub(exchange.sent_at));
        let Some(lookup) = exchange.lookup else {
            // The lookup has ended, but the response shows that the upstream is up.
            self.counts.rejected_late.tick();
            self.close(slot);
            return self.heard(server, Some(rtt_ns), now, actions);
        };
        let fit = ask::fit(&self.lookups.question(lookup), &reply);
        match fit {
            Fit::Other => {
                self.counts.rejected_question.tick();
                return self.doubt(lookup, server, now, actions);
            }
            // A forged response with a wrong case, or a server that does not copy the case: TCP
            // shows which.
            Fit::OtherCase if form.exact_case => {
                self.counts.rejected_case.tick();
                self.lookups.get(lookup).other_case = ask::fingerprint(&reply);
                self.close(slot);
                return self.ask_connection(lookup, server, form, now, actions);
            }
            Fit::Same if form.exact_case => self.upstreams.habits(server).same_case(),
            Fit::OtherCase | Fit::Same | Fit::Bare => {}
        }
        if form.cookie && !self.believes(slot, lookup, &reply, now, actions) {
            return;
        }
        if reply.tc() {
            self.counts.upstream_truncated.tick();
            self.close(slot);
            self.heard(server, Some(rtt_ns), now, actions);
            return self.ask_connection(lookup, server, form, now, actions);
        }
        let Ok(stored) = self.accept(lookup, fit, &reply) else {
            return self.counts.rejected_malformed.tick();
        };
        self.close(slot);
        self.heard(server, Some(rtt_ns), now, actions);
        self.judge(lookup, server, form, (&reply, stored), now, actions);
    }

    /// Whether a UDP response has the required cookie (RFC 7873 section 5.3). If not, it is already
    /// handled.
    fn believes(
        &mut self,
        slot: u32,
        lookup: u32,
        reply: &Message<'_>,
        now: Nanos,
        actions: &mut Actions,
    ) -> bool {
        let exchange = self.exchanges.get(slot);
        let (server, form, sent_at) = (exchange.server, exchange.form, exchange.sent_at);
        let seen = EdnsSeen::of(reply);
        match self.upstreams.habits(server).heard_cookie(seen.cookie, now) {
            CookieSeen::Forged => {
                self.counts.rejected_cookie.tick();
                false
            }
            CookieSeen::Missing => {
                self.counts.rejected_cookie.tick();
                self.close(slot);
                self.ask_connection(lookup, server, form, now, actions);
                false
            }
            CookieSeen::Fine if seen.bad_cookie => {
                self.close(slot);
                self.heard(server, Some(now.saturating_sub(sent_at)), now, actions);
                if form.again {
                    self.ask_connection(lookup, server, form, now, actions);
                } else {
                    let again = Form {
                        again: true,
                        ..form
                    };
                    self.ask_as(lookup, server, again, now, actions);
                }
                false
            }
            CookieSeen::Fine => true,
        }
    }

    /// Handles the outcome of a query over TCP.
    pub fn on_connection(
        &mut self,
        exchange: u64,
        message: Result<&[u8], ConnectionFailed>,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let Some(slot) = self.exchanges.numbered(exchange) else {
            return;
        };
        let exchange = self.exchanges.get(slot);
        let (server, form, id) = (exchange.server, exchange.form, exchange.id);
        let Some(lookup) = exchange.lookup.filter(|_| exchange.way == Way::Connection) else {
            return;
        };
        self.close(slot);
        let reply = message.ok().and_then(|m| Message::parse(m).ok());
        let accepted = reply
            .filter(|reply| reply.qr() && !reply.tc() && reply.id() == id)
            .and_then(|reply| {
                let fit = ask::fit(&self.lookups.question(lookup), &reply);
                let stored = self.accept(lookup, fit, &reply).ok()?;
                (fit != Fit::Other).then_some((reply, stored))
            });
        let Some((reply, stored)) = accepted else {
            self.counts.upstream_connection.tick();
            return self.ask_next(lookup, now, actions);
        };
        self.heard(server, None, now, actions);
        if form.cookie {
            let habits = self.upstreams.habits(server);
            let seen = EdnsSeen::of(&reply);
            if habits.heard_cookie(seen.cookie, now) == CookieSeen::Missing {
                habits.no_cookies(now);
            }
        }
        let other_case = self.lookups.get(lookup).other_case;
        if other_case.is_some() && other_case == ask::fingerprint(&reply) {
            self.upstreams.habits(server).other_case(now);
        }
        self.judge(lookup, server, form, (&reply, stored), now, actions);
    }

    /// Handles a UDP response with an ID that is not in use at its port: if all else matches, an
    /// attacker is guessing.
    fn near_miss(
        &mut self,
        server: usize,
        port: usize,
        reply: &Message<'_>,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let Some(question) = reply.question() else {
            return;
        };
        let name = question.name.to_buf();
        let name_hash = cache::name_hash(&name);
        // A response does not contain DO and CD of its query.
        for (do_bit, cd) in [(false, false), (true, false), (false, true), (true, true)] {
            let key = Key::new(&name, name_hash, question.rtype, question.class, do_bit, cd);
            let Some(lookup) = self.lookups.find(&key) else {
                continue;
            };
            let newest = self.lookups.get(lookup).exchanges;
            let here = (server, Way::Port(port));
            let is_here = |exchange: &Exchange| (exchange.server, exchange.way) == here;
            if self.exchanges.of(newest).any(|(_, e)| is_here(e)) {
                self.doubt(lookup, server, now, actions);
            }
        }
    }

    /// Counts a possibly forged response. At the limit, UDP responses are not accepted any more,
    /// and the upstream is queried over TCP.
    fn doubt(&mut self, slot: u32, server: usize, now: Nanos, actions: &mut Actions) {
        let lookup = self.lookups.get(slot);
        lookup.near_misses = lookup.near_misses.saturating_add(1);
        if lookup.near_misses < NEAR_MISSES_MAX || lookup.connections_only {
            return;
        }
        lookup.connections_only = true;
        self.counts.upstream_guessed.tick();
        let open = self.exchanges.of(lookup.exchanges);
        let datagrams = open.filter(|(_, exchange)| exchange.way != Way::Connection);
        for exchange in datagrams.map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.close(exchange);
        }
        let randomise = self.maker.settings.randomise_case;
        let form = self.upstreams.habits(server).form(randomise, now);
        self.ask_connection(slot, server, form, now, actions);
    }

    /// An upstream is up. If it was silent before, pending lookups are retried, one for each
    /// response.
    fn heard(&mut self, server: usize, rtt_ns: Option<Nanos>, now: Nanos, actions: &mut Actions) {
        if self.upstreams.is_silent(server) {
            self.begin_again();
        } else if !self.again.is_empty() {
            self.again_room += 1;
        }
        if let Some(rtt_ns) = rtt_ns {
            self.counts.upstream_rtt(server).observe(rtt_ns);
        }
        let turn = self.upstreams.answered(server, rtt_ns, now);
        report(server, turn, actions);
    }

    fn accept(&mut self, lookup: u32, fit: Fit, reply: &Message<'_>) -> Result<Stored, Malformed> {
        if fit == Fit::Bare {
            let asked = self.lookups.question(lookup).asked();
            return Ok(Stored::failure(&asked, reply.rcode(), None));
        }
        let cache = &self.maker.settings.cache;
        let bounds = TtlBounds {
            min_s: cache.min_ttl_s,
            max_s: cache.max_ttl_s,
            max_negative_s: cache.max_negative_ttl_s,
        };
        Stored::accept(reply, &bounds)
    }

    /// Accepts a response, or queries another upstream if this one has failed the query.
    fn judge(
        &mut self,
        slot: u32,
        server: usize,
        form: Form,
        (reply, stored): (&Message<'_>, Stored),
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.counts.upstream_answers.tick();
        let Some(rcode) = refusal(&stored) else {
            if !form.edns {
                self.upstreams.habits(server).no_edns(now);
            }
            return self.finish(slot, Arc::new(stored), now, actions);
        };
        self.counts.upstream_rcode.tick();
        let stumbles = [Rcode::FORMERR, Rcode::NOTIMP].contains(&rcode);
        if form.edns && stumbles && !EdnsSeen::of(reply).present {
            // The upstream may not support EDNS (RFC 6891 section 7).
            let plain = Form {
                edns: false,
                cookie: false,
                ..form
            };
            return self.ask_as(slot, server, plain, now, actions);
        }
        self.lookups.get(slot).failed = Some((rcode, stored.extended_error()));
        self.exhaust(slot, server);
        self.ask_next(slot, now, actions);
    }
}

/// The response code with which an upstream has failed the query, if it has.
fn refusal(stored: &Stored) -> Option<Rcode> {
    match stored.kind() {
        Kind::Failure(rcode) => Some(rcode).filter(|rcode| ask::is_refusal(*rcode)),
        Kind::Positive | Kind::NoData | Kind::NxDomain => None,
    }
}
