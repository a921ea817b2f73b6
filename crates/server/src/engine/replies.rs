//! Validates the responses of upstreams and handles them.

use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Opcode, Rcode, Rtype};
use dns64_wire::message::{Message, Section};

use super::Engine;
use super::actions::Actions;
use super::ask::{self, EdnsSeen, Fit};
use super::exchanges::{Exchange, Way};
use super::habits::{CookieSeen, Form};
use super::lookups::OtherCase;
use crate::answer::stored::{Kind, Malformed, Stored, TtlBounds};
use crate::cache::{self, Key};
use crate::counts::Fault;
use crate::health::{Capability, Turn};
use crate::mailbox::ConnectionFailed;

/// Number of UDP responses with a wrong ID or a wrong question, at the right port from the right
/// address, after which a lookup uses TCP: an attacker is guessing. PowerDNS's `spoof-nearmiss-max`
/// is 1; here it is larger, so that an upstream that responds twice does not cause a TCP query.
const NEAR_MISSES_MAX: u8 = 3;

/// Number of equal UDP responses from an upstream that does not copy the case of names, to queries from as many ports,
/// of which the last is accepted; and number of queries for them. Unbound sends three, too (`use-caps-for-id`).
const AGREEING: u8 = 3;
const AGREEING_ASKED_MAX: u8 = 6;

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
        if !is_response(&reply) {
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
            let outdone = exchange.outdone;
            self.close(slot);
            self.heard(server, Some(rtt_ns), now, actions);
            return self.judge_late(server, &reply, outdone, now, actions);
        };
        let fit = ask::fit(&self.lookups.question(lookup), &reply);
        match fit {
            Fit::Other => {
                self.counts.rejected_question.tick();
                return self.doubt(lookup, server, now, actions);
            }
            Fit::Bare => return self.refused_by_header(slot, lookup, reply.rcode(), now, actions),
            Fit::OtherCase if form.exact_case => {
                return self.confirm_case(slot, lookup, &reply, now, actions);
            }
            Fit::Same if form.exact_case => self.upstreams.habits(server).same_case(),
            Fit::OtherCase | Fit::Same => {}
        }
        let seen = form.cookie.then(|| EdnsSeen::of(&reply));
        if let Some(seen) = &seen
            && !self.believes(slot, lookup, seen, now, actions)
        {
            return;
        }
        if reply.tc() {
            self.counts.upstream_truncated.tick();
            self.close(slot);
            self.heard(server, Some(rtt_ns), now, actions);
            return self.ask_connection(lookup, server, form, now, actions);
        }
        if !form.exact_case && !self.agrees(slot, lookup, &reply, now, actions) {
            return;
        }
        let Ok(stored) = self.accept(lookup, fit, &reply) else {
            return self.counts.rejected_malformed.tick();
        };
        self.close(slot);
        self.heard(server, Some(rtt_ns), now, actions);
        self.judge(lookup, server, form, (&reply, seen, stored), now, actions);
    }

    /// Handles an error code without a question, over UDP. Whoever guesses ID and port can forge it, so the response is
    /// still awaited; meanwhile the upstream is queried in a simpler form, or another upstream.
    fn refused_by_header(
        &mut self,
        slot: u32,
        lookup: u32,
        rcode: Rcode,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let exchange = self.exchanges.get_mut(slot);
        if std::mem::replace(&mut exchange.refused, true) {
            return;
        }
        let (server, form, sent_at) = (exchange.server, exchange.form, exchange.sent_at);
        self.counts.upstream_rcode.tick();
        self.heard(server, Some(now.saturating_sub(sent_at)), now, actions);
        if is_format_error(rcode)
            && let Some(simpler) = self.upstreams.habits(server).simpler(form, now)
        {
            return self.ask_as(lookup, server, simpler, now, actions);
        }
        self.lookups.get(lookup).failed = Some((rcode, None));
        self.fault(lookup, server, fault_of(rcode), now, actions);
        self.exhaust(lookup, server);
        if self.choose(lookup).is_some() {
            self.ask_next(lookup, now, actions);
        }
    }

    /// Handles a response in another case than its query. It is forged, or its server does not copy the case: TCP shows
    /// which. Without TCP, equal responses to queries from other ports do.
    fn confirm_case(
        &mut self,
        slot: u32,
        lookup: u32,
        reply: &Message<'_>,
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.counts.rejected_case.tick();
        let exchange = self.exchanges.get(slot);
        let (server, form) = (exchange.server, exchange.form);
        let fingerprint = ask::fingerprint(reply);
        self.lookups.get(lookup).other_case = fingerprint.map(|fingerprint| OtherCase {
            server,
            fingerprint,
            responses: 1,
            asked: 1,
        });
        self.close(slot);
        if self.upstreams.habits(server).tcp() {
            self.ask_connection(lookup, server, form, now, actions);
        } else {
            self.exhaust(lookup, server);
            self.ask_in_lower_case(lookup, server, form, now, actions);
        }
    }

    /// Queries an upstream from another port for a response that agrees with those before.
    fn ask_in_lower_case(
        &mut self,
        slot: u32,
        server: usize,
        form: Form,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let lookup = self.lookups.get(slot);
        let other_case = lookup.other_case.as_mut().filter(|o| o.server == server);
        let may_agree = other_case.filter(|o| o.asked < AGREEING_ASKED_MAX);
        let Some(other_case) = may_agree.filter(|_| !lookup.connections_only) else {
            lookup.failed.get_or_insert((Rcode::SERVFAIL, None));
            return self.ask_next(slot, now, actions);
        };
        other_case.asked += 1;
        let form = Form {
            exact_case: false,
            ..form
        };
        self.ask_as(slot, server, form, now, actions);
    }

    /// Whether a UDP response may be accepted: as many as required agree, or none has had another case than its query.
    /// If not, it is already handled.
    fn agrees(
        &mut self,
        slot: u32,
        lookup: u32,
        reply: &Message<'_>,
        now: Nanos,
        actions: &mut Actions,
    ) -> bool {
        let exchange = self.exchanges.get(slot);
        let (server, form, sent_at) = (exchange.server, exchange.form, exchange.sent_at);
        let other_case = self.lookups.get(lookup).other_case.as_mut();
        let Some(other_case) = other_case.filter(|o| o.server == server) else {
            return true;
        };
        match ask::fingerprint(reply) {
            Some(same) if same == other_case.fingerprint => other_case.responses += 1,
            Some(other) => (other_case.fingerprint, other_case.responses) = (other, 1),
            None => {}
        }
        if other_case.responses >= AGREEING {
            self.case_is_lost(lookup, server, now, actions);
            return true;
        }
        self.close(slot);
        self.heard(server, Some(now.saturating_sub(sent_at)), now, actions);
        self.ask_in_lower_case(lookup, server, form, now, actions);
        false
    }

    /// It is confirmed that an upstream has not copied the case of a name.
    fn case_is_lost(&mut self, lookup: u32, server: usize, now: Nanos, actions: &mut Actions) {
        let name = cache::name_hash(self.lookups.question(lookup).name);
        let lacks = self.upstreams.habits(server).other_case(name, now);
        actions.turn(server, lacks.map(Turn::Lacks));
    }

    /// Whether a UDP response has the required cookie (RFC 7873 section 5.3). If not, it is already
    /// handled.
    fn believes(
        &mut self,
        slot: u32,
        lookup: u32,
        seen: &EdnsSeen<'_>,
        now: Nanos,
        actions: &mut Actions,
    ) -> bool {
        let exchange = self.exchanges.get(slot);
        let (server, form, sent_at) = (exchange.server, exchange.form, exchange.sent_at);
        match self.upstreams.habits(server).heard_cookie(seen.cookie) {
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

    /// Handles the outcome of a query over TCP or TLS.
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
        let (is_tls, sent_at) = (exchange.way == Way::Tls, exchange.sent_at);
        let rtt_ns = is_tls.then(|| now.saturating_sub(sent_at));
        let is_datagram = matches!(exchange.way, Way::Port(_));
        let Some(lookup) = exchange.lookup.filter(|_| !is_datagram) else {
            return;
        };
        self.close(slot);
        let reply = message.ok().and_then(|m| Message::parse(m).ok());
        let accepted = reply
            .filter(|reply| is_response(reply) && !reply.tc() && reply.id() == id)
            .and_then(|reply| {
                let fit = ask::fit(&self.lookups.question(lookup), &reply);
                let stored = self.accept(lookup, fit, &reply).ok()?;
                (fit != Fit::Other).then_some((reply, stored))
            });
        let other_case = self.lookups.get(lookup).other_case.as_ref();
        let other_case = other_case.filter(|other_case| other_case.server == server);
        let other_case = other_case.map(|other_case| other_case.fingerprint);
        let Some((reply, stored)) = accepted else {
            self.counts.upstream_connection.tick();
            let fault = match message {
                Err(ConnectionFailed::Tls) => Fault::Tls,
                Err(ConnectionFailed::Unanswered) | Ok(_) => Fault::Connection,
            };
            if fault == Fault::Tls && self.upstreams.habits(server).lost_tls(now) {
                self.counts.upstream_fault(server, fault).tick();
                actions.turn(server, Some(Turn::Lacks(Capability::Tls)));
                self.lookups.get(lookup).asked[server] = 0;
                return self.ask_as(lookup, server, form, now, actions);
            }
            self.fault(lookup, server, fault, now, actions);
            if is_tls {
                let turn = self.upstreams.timed_out(server, fault, sent_at, now);
                actions.turn(server, turn);
            }
            if other_case.is_some() {
                return self.ask_in_lower_case(lookup, server, form, now, actions);
            }
            return self.ask_next(lookup, now, actions);
        };
        self.heard(server, rtt_ns, now, actions);
        let seen = form.cookie.then(|| EdnsSeen::of(&reply));
        if let Some(seen) = &seen {
            // It cannot be forged; without a cookie it is evidence like any other response.
            let _ = self.upstreams.habits(server).heard_cookie(seen.cookie);
        }
        if other_case.is_some() && other_case == ask::fingerprint(&reply) {
            self.case_is_lost(lookup, server, now, actions);
        }
        self.judge(lookup, server, form, (&reply, seen, stored), now, actions);
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
            // It can be meant for any query from this port.
            for number in self.exchanges.at_port(server, port) {
                let slot = self.exchanges.numbered(number);
                let lookup = slot.and_then(|slot| self.exchanges.get(slot).lookup);
                if let Some(lookup) = lookup {
                    self.doubt(lookup, server, now, actions);
                }
            }
            return;
        };
        let name = question.name.to_buf();
        let name_hash = cache::name_hash(&name);
        // A response does not contain DO and CD of its query.
        let bits = [(false, false), (true, false), (false, true), (true, true)];
        let keys = bits.map(|(do_bit, cd)| {
            Key::new(&name, name_hash, question.rtype, question.class, do_bit, cd)
        });
        let sets: Vec<_> = self.upstreams.sets_of(server).collect();
        for key in sets.iter().flat_map(|set| keys.map(|key| key.to_set(*set))) {
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
        let tcp = self.upstreams.habits(server).tcp();
        if lookup.near_misses < NEAR_MISSES_MAX || lookup.connections_only || !tcp {
            return;
        }
        lookup.connections_only = true;
        self.counts.upstream_guessed.tick();
        let open = self.exchanges.of(lookup.exchanges);
        let datagrams = open.filter(|(_, exchange)| matches!(exchange.way, Way::Port(_)));
        for exchange in datagrams.map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.close(exchange);
        }
        let form = self.upstreams.habits(server).form(now);
        self.ask_connection(slot, server, form, now, actions);
    }

    /// An upstream is up. If it was silent before, pending lookups are retried, one for each
    /// response.
    fn heard(&mut self, server: usize, rtt_ns: Option<Nanos>, now: Nanos, actions: &mut Actions) {
        if self.upstreams.is_silent(server) {
            self.begin_again(server);
        } else if !self.again.is_empty() {
            self.again_room += 1;
        }
        if let Some(rtt_ns) = rtt_ns {
            self.counts.upstream_rtt(server).observe(rtt_ns);
        }
        let turn = self.upstreams.answered(server, rtt_ns, now);
        actions.turn(server, turn);
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
        let accepted = Stored::accept(reply, &bounds);
        if self.maker.settings.block_addresses.nets().is_empty() {
            return accepted;
        }
        let stored = accepted?;
        let question = self.lookups.question(lookup);
        if question.set == 0 && self.maker.blocks(&question, &stored) {
            self.counts.filtered_private.tick();
            return Ok(Stored::blocked(&question.asked()));
        }
        Ok(stored)
    }

    /// Accepts a response, or queries another upstream if this one has failed the query.
    fn judge(
        &mut self,
        slot: u32,
        server: usize,
        form: Form,
        (reply, seen, stored): (&Message<'_>, Option<EdnsSeen<'_>>, Stored),
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.counts.upstream_answers.tick();
        let habits = self.upstreams.habits(server);
        let shown = || seen.unwrap_or_else(|| EdnsSeen::of(reply)).shown();
        let Some((rcode, fault)) = failure(reply, &stored) else {
            if habits.may_learn(form, now) {
                let shown = shown();
                habits.responded(shown, now);
                let name = || cache::name_hash(self.lookups.question(slot).name);
                let lacks = habits.answered(form, shown, name, now);
                actions.turn(server, lacks.map(Turn::Lacks));
            }
            self.praise(slot, server, now, actions);
            return self.finish(slot, stored, now, actions);
        };
        self.counts.upstream_rcode.tick();
        let shown = shown();
        if !is_format_error(rcode) {
            habits.responded(shown, now);
        } else if (rcode == Rcode::FORMERR || !shown.edns)
            && let Some(simpler) = habits.simpler(form, now)
        {
            return self.ask_as(slot, server, simpler, now, actions);
        }
        self.lookups.get(slot).failed = Some((rcode, stored.extended_error()));
        self.fault(slot, server, fault, now, actions);
        self.exhaust(slot, server);
        self.go_on(slot, now, actions);
    }

    /// Counts a failure of an upstream for the name of a lookup.
    fn fault(
        &mut self,
        lookup: u32,
        server: usize,
        fault: Fault,
        now: Nanos,
        actions: &mut Actions,
    ) {
        self.counts.upstream_fault(server, fault).tick();
        let name = cache::name_hash(self.lookups.question(lookup).name);
        let (counts, turn) = self.upstreams.failed_name(server, name, fault, now);
        actions.turn(server, turn);
        if counts {
            self.lookups.get(lookup).failed_by |= 1 << server;
        }
    }

    /// An upstream has answered a lookup, in contrast to those that have failed it.
    fn praise(&mut self, lookup: u32, server: usize, now: Nanos, actions: &mut Actions) {
        let turn = self.upstreams.useful(server, now);
        actions.turn(server, turn);
        let mut failed_by = self.lookups.get(lookup).failed_by & !(1 << server);
        while failed_by != 0 {
            let other = failed_by.trailing_zeros() as usize;
            failed_by &= failed_by - 1;
            let turn = self.upstreams.contradicted(other, now);
            actions.turn(other, turn);
        }
    }

    /// Judges the sender of a response to a lookup that has ended, with the answer of another upstream or not.
    fn judge_late(
        &mut self,
        server: usize,
        reply: &Message<'_>,
        outdone: bool,
        now: Nanos,
        actions: &mut Actions,
    ) {
        let rcode = reply.rcode();
        let fault = if ask::is_refusal(rcode) {
            fault_of(rcode)
        } else if is_lame(reply) {
            Fault::Lame
        } else {
            let turn = self.upstreams.useful(server, now);
            return actions.turn(server, turn);
        };
        self.counts.upstream_fault(server, fault).tick();
        let name = reply.question().map(|question| question.name.to_buf());
        let name = name.map_or(0, |name| cache::name_hash(&name));
        let (counts, turn) = self.upstreams.failed_name(server, name, fault, now);
        actions.turn(server, turn);
        if counts && outdone {
            let turn = self.upstreams.contradicted(server, now);
            actions.turn(server, turn);
        }
    }
}

/// Whether a message is a response to a query; AA, RA and Z do not matter.
fn is_response(message: &Message<'_>) -> bool {
    message.qr() && message.opcode() == Opcode::QUERY && message.qdcount() <= 1
}

/// The response code with which an upstream has failed the query, and the reason, if it has.
fn failure(reply: &Message<'_>, stored: &Stored) -> Option<(Rcode, Fault)> {
    match stored.kind() {
        Kind::Failure(rcode) if ask::is_refusal(rcode) => Some((rcode, fault_of(rcode))),
        Kind::NoData if stored.soa_ttl_s().is_none() && is_lame(reply) => {
            Some((Rcode::SERVFAIL, Fault::Lame))
        }
        Kind::Positive if stored.open_end().is_some() && !stored.leads_on() => {
            Some((Rcode::SERVFAIL, Fault::Loop))
        }
        _ => None,
    }
}

fn fault_of(rcode: Rcode) -> Fault {
    match rcode {
        Rcode::REFUSED => Fault::Refused,
        Rcode::SERVFAIL => Fault::Servfail,
        Rcode::FORMERR => Fault::Formerr,
        _ => Fault::Rcode,
    }
}

/// Whether a response is a referral (RFC 2308 section 2.2): its sender is no resolver for the name.
fn is_lame(reply: &Message<'_>) -> bool {
    if reply.rcode() != Rcode::NOERROR || reply.ancount() > 0 {
        return false;
    }
    let authority = reply.records().map_while(Result::ok);
    let mut types = authority
        .filter(|r| r.section == Section::Authority)
        .map(|r| r.rtype);
    let (mut ns, mut soa) = (false, false);
    types.by_ref().for_each(|rtype| {
        ns |= rtype == Rtype::NS;
        soa |= rtype == Rtype::SOA;
    });
    ns && !soa
}

/// Whether an upstream that responds so may not have understood the form of the query (RFC 6891 section 7).
fn is_format_error(rcode: Rcode) -> bool {
    [Rcode::FORMERR, Rcode::NOTIMP].contains(&rcode)
}
