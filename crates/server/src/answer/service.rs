//! Adds AAAA records to responses for SVCB and HTTPS (RFC 9460 section 4.2.1).

use std::net::Ipv6Addr;

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Message, Record, Section};
use dns64_wire::name::Name;

use super::asker::Asker;
use super::copy::{Copier, QUESTION_AT};
use super::rdata;
use super::reply::{self, Head};
use super::stored::{Aged, Kind};
use super::synthesis::{self, TTL_WITHOUT_SOA};
use crate::settings::dns64::{Dns64, DomainAction, DomainRule};

/// Largest number of names followed in a response: targets and their aliases. Resolvers follow at
/// most 8 alias records (RFC 9460 section 4.1 leaves the limit open). Further names are ignored, so
/// that a hostile response does not cost the square of its length.
const NAMES: usize = 16;

/// Writes the response to a query for SVCB or HTTPS, with AAAA records for the A records of its
/// targets in the additional section. Returns its length in octets, or `None` if there is nothing
/// to add.
///
/// The hints in the SVCB records and the A records remain unchanged. The rule for the domain of a
/// target applies to its addresses, as in a query for that target.
pub fn with_addresses(
    asker: &Asker,
    dns64: &Dns64,
    answer: Aged<'_>,
    frame: &mut [u8],
) -> Option<usize> {
    let stored = answer.stored;
    let is_service = matches!(asker.rtype, Rtype::SVCB | Rtype::HTTPS);
    let rule = dns64.domains.rule(&asker.name.as_name());
    if !dns64.svcb
        || !is_service
        || asker.class != Class::IN
        || asker.validates()
        || synthesis::is_protected(asker, dns64, stored)
        || stored.kind() != Kind::Positive
        || rule.action == DomainAction::Exclude
    {
        return None;
    }
    let message = stored.message();
    let targets = Targets::of(&message, dns64);
    let mut records = message.records().map_while(Result::ok);
    if !records.any(|record| targets.made_from(dns64, &record).next().is_some()) {
        return None;
    }
    let head = Head {
        rcode: stored.rcode(),
        ad: reply::ad(asker, stored),
        extended_error: answer.extended_error(),
        ..Head::default()
    };
    Some(reply::write(asker, &head, frame, |builder| {
        let mut copier = Copier::new(&message, QUESTION_AT);
        let has_room = reply::each(builder, message.records(), |builder, record| {
            copier.record(builder, record, answer.ttl(record.ttl))
        })?;
        if !has_room {
            return Ok(());
        }
        for record in message.records().map_while(Result::ok) {
            let ttl = answer.ttl(record.ttl).min(TTL_WITHOUT_SOA);
            for ipv6 in targets.made_from(dns64, &record) {
                let (section, data) = (Section::Additional, ipv6.octets());
                let added = copier.with_data(builder, &record, section, Rtype::AAAA, ttl, &data);
                if added.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }))
}

/// The targets of the services in a response, whose addresses are in the additional section.
struct Targets<'a> {
    /// Each name, the rule for its addresses, and whether the response has AAAA records for it.
    names: [Option<Target<'a>>; NAMES],
}

struct Target<'a> {
    name: Name<'a>,
    rule: DomainRule,
    has_aaaa: bool,
}

impl<'a> Targets<'a> {
    /// Reads a message once. An alias is followed if it comes after the record that leads to it,
    /// which is the order that resolvers use.
    fn of(message: &Message<'a>, dns64: &Dns64) -> Self {
        let mut targets = Self {
            names: [const { None }; NAMES],
        };
        for record in message.records().map_while(Result::ok) {
            let is_answer = record.section == Section::Answer;
            match record.rtype {
                Rtype::SVCB | Rtype::HTTPS if is_answer || targets.find(&record.name).is_some() => {
                    let name = rdata::service_target(message.bytes(), &record);
                    if let Some(name) = name {
                        targets.add(name, dns64.domains.rule(&name));
                    }
                }
                Rtype::CNAME => {
                    let rule = targets.find(&record.name).map(|target| target.rule);
                    if let (Some(rule), Ok(name)) = (rule, record.rdata_name()) {
                        targets.add(name, rule);
                    }
                }
                _ => {}
            }
        }
        for record in message.records().map_while(Result::ok) {
            if record.aaaa().is_some()
                && let Some(target) = targets.find_mut(&record.name)
            {
                target.has_aaaa = true;
            }
        }
        targets
    }

    fn add(&mut self, name: Name<'a>, rule: DomainRule) {
        if self.find(&name).is_some() {
            return;
        }
        if let Some(place) = self.names.iter_mut().find(|place| place.is_none()) {
            *place = Some(Target {
                name,
                rule,
                has_aaaa: false,
            });
        }
    }

    fn find(&self, name: &Name<'_>) -> Option<&Target<'a>> {
        let mut known = self.names.iter().flatten();
        known.find(|target| target.name.eq_ignore_case(name))
    }

    fn find_mut(&mut self, name: &Name<'_>) -> Option<&mut Target<'a>> {
        let mut known = self.names.iter_mut().flatten();
        known.find(|target| target.name.eq_ignore_case(name))
    }

    /// The addresses to be added for a record: none unless it is an A record of a target without
    /// AAAA records.
    fn made_from(&self, dns64: &Dns64, record: &Record<'_>) -> impl Iterator<Item = Ipv6Addr> {
        let is_additional = record.section == Section::Additional;
        let ipv4 = record.a().filter(|_| is_additional);
        let target = ipv4.and_then(|ipv4| Some((ipv4, self.find(&record.name)?)));
        let target = target
            .filter(|(_, target)| !target.has_aaaa && target.rule.action != DomainAction::Exclude);
        target
            .into_iter()
            .flat_map(|(ipv4, target)| dns64.embed(ipv4, target.rule))
    }
}

#[cfg(test)]
mod tests;
