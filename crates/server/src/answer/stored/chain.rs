//! Follows the CNAME chain from the name of a question.

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Question, Record};
use dns64_wire::name::Name;

/// Largest number of names in a chain, including the name of the question. BIND 9 and Unbound
/// (`max-query-restarts` of both) follow 11 aliases, Knot Resolver 13, so resolvers send no longer
/// chains. Further records are removed from the response.
const NAMES_MAX: usize = 16;

/// Largest number of passes over the answer section. One is enough if the aliases are in order (RFC
/// 1034 section 4.3.2 builds them so). In any other order at least 11 are followed, as many as BIND
/// 9 and Unbound follow. The limit prevents one pass per alias over a message of thousands of
/// records.
const WALKS_MAX: usize = 12;

/// Largest number of DNAME records of a response that are read, more than a chain can use. Each is
/// compared with each alias, label by label.
pub(super) const REDIRECTIONS_MAX: usize = 2 * NAMES_MAX;

/// The aliases from the name of a question.
pub(super) struct Chain<'a> {
    names: [Name<'a>; NAMES_MAX],
    len: usize,
    /// Whether the answer section has a record of the queried type at the end of the chain.
    pub(super) found: bool,
    /// Whether the chain ends at a DNAME record whose target name is too long.
    too_long: bool,
}

impl<'a> Chain<'a> {
    /// A chain of only the name of the question.
    pub(super) fn new(reply: &Message<'a>, question: &Question<'a>) -> Self {
        Self {
            names: [question.name; NAMES_MAX],
            len: 1,
            found: false,
            too_long: reply.rcode() == Rcode::YXDOMAIN,
        }
    }

    /// Follows CNAME records in any order, up to a name that is already in the chain. A DNAME
    /// record comes with its synthesised CNAME record (RFC 6672 section 3.1).
    pub(super) fn follow(&mut self, reply: &Message<'a>, question: &Question<'a>) {
        for _ in 0..WALKS_MAX {
            let len_before = self.len;
            for record in answers(reply) {
                let wanted = is_wanted(question, &record);
                if !wanted && record.rtype != Rtype::CNAME
                    || !record.name.eq_ignore_case(&self.end())
                {
                    continue;
                }
                self.found = wanted;
                if wanted || !self.add(&record) {
                    return;
                }
            }
            if self.len == len_before {
                return;
            }
        }
    }

    /// Appends the target of an alias; returns `false` if the chain ends there.
    fn add(&mut self, alias: &Record<'a>) -> bool {
        let Ok(target) = alias.rdata_name() else {
            return false;
        };
        if self.len == NAMES_MAX {
            return false;
        }
        let comes_round = self.names().iter().any(|name| name.eq_ignore_case(&target));
        self.names[self.len] = target;
        self.len += 1;
        !comes_round
    }

    /// The names of the chain, beginning with that of the question.
    pub(super) fn names(&self) -> &[Name<'a>] {
        &self.names[..self.len]
    }

    /// The name at the end of the chain.
    pub(super) fn end(&self) -> Name<'a> {
        self.names[self.len - 1]
    }

    /// Whether a name of the chain is this zone or below it.
    pub(super) fn is_below(&self, zone: &Name<'_>) -> bool {
        self.names().iter().any(|name| name.is_within(zone))
    }

    /// Whether the chain has an alias.
    pub(super) fn has_links(&self) -> bool {
        self.len > 1 || self.too_long
    }

    /// Whether the chain ends at a DNAME record with this owner, whose target name is too long.
    fn ends_below(&self, owner: &Name<'_>) -> bool {
        self.too_long && is_below(&self.end(), owner)
    }

    /// Each alias with its target.
    fn links(&self) -> impl Iterator<Item = (&Name<'a>, &Name<'a>)> {
        let names = self.names();
        names.iter().zip(&names[1..])
    }

    /// Whether a record is part of the chain: a CNAME record, or the DNAME record that it is
    /// synthesised from.
    pub(super) fn is_link(&self, record: &Record<'_>) -> bool {
        let Ok(to) = record.rdata_name() else {
            return false;
        };
        let owner = &record.name;
        let makes_link = self.links().any(|(from, target)| match record.rtype {
            Rtype::CNAME => owner.eq_ignore_case(from) && to.eq_ignore_case(target),
            _ => is_redirected(from, target, owner, &to),
        });
        makes_link || record.rtype == Rtype::DNAME && self.ends_below(owner)
    }

    /// The TTL of the DNAME record for each CNAME record that is synthesised from one: a cache uses
    /// that TTL for the CNAME record too (RFC 6672 section 3.1). Servers that synthesise it for
    /// each query send it with TTL 0.
    pub(super) fn redirected_ttls(&self, reply: &Message<'_>) -> [Option<u32>; NAMES_MAX] {
        let mut ttls = [None; NAMES_MAX];
        let redirections = answers(reply).filter(|record| record.rtype == Rtype::DNAME);
        for record in redirections.take(REDIRECTIONS_MAX) {
            let Ok(to) = record.rdata_name() else {
                continue;
            };
            for (ttl, (from, target)) in ttls.iter_mut().zip(self.links()) {
                if is_redirected(from, target, &record.name, &to) {
                    *ttl = Some(record.ttl);
                }
            }
        }
        ttls
    }

    /// Index of the alias with this owner.
    pub(super) fn place_of(&self, owner: &Name<'_>) -> Option<usize> {
        self.links()
            .position(|(from, _)| from.eq_ignore_case(owner))
    }

    /// Whether the chain has an alias with this owner, or for DNAME one below it.
    pub(super) fn has_link_of(&self, rtype: Rtype, owner: &Name<'_>) -> bool {
        let has_link = self.links().any(|(from, _)| match rtype {
            Rtype::CNAME => owner.eq_ignore_case(from),
            Rtype::DNAME => is_below(from, owner),
            _ => false,
        });
        has_link || rtype == Rtype::DNAME && self.ends_below(owner)
    }
}

/// Whether a record has the queried type.
pub(super) fn is_wanted(question: &Question<'_>, record: &Record<'_>) -> bool {
    question.rtype == Rtype::ANY || record.rtype == question.rtype
}

/// The records of the answer section of a message with valid records.
pub(super) fn answers<'a>(message: &Message<'a>) -> impl Iterator<Item = Record<'a>> {
    let records = message.records().map_while(Result::ok);
    records.take(usize::from(message.ancount()))
}

fn is_below(name: &Name<'_>, ancestor: &Name<'_>) -> bool {
    name.wire_len() > ancestor.wire_len() && name.is_within(ancestor)
}

/// Whether a DNAME record leads from one name to another: both have the same labels before its
/// owner and before its target (RFC 6672 section 2.2).
fn is_redirected(from: &Name<'_>, to: &Name<'_>, owner: &Name<'_>, target: &Name<'_>) -> bool {
    let labels =
        |name: &Name<'_>, behind: &Name<'_>| name.labels().count() - behind.labels().count();
    if !is_below(from, owner) || !is_below(to, target) {
        return false;
    }
    let (len, to_len) = (labels(from, owner), labels(to, target));
    let mut pairs = from.labels().zip(to.labels()).take(len);
    len == to_len && pairs.all(|(a, b)| a.eq_ignore_ascii_case(b))
}
