//! The aliases from the name of a question on.

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Question, Record};
use dns64_wire::name::Name;

/// Names of the longest chain that is followed, that of the question among them. BIND 9
/// (`max-query-restarts`) and Unbound (`max-query-restarts`) follow 11 aliases, Knot Resolver 13:
/// a resolver sends no longer ones. What stands behind is left out of the answer.
const NAMES_MAX: usize = 16;

/// Walks over the answer section to follow its aliases. One is enough where they stand in the
/// order that they are followed in (RFC 1034 section 4.3.2 builds them so). In any other order
/// this follows at least 11, as many as BIND 9 and Unbound. The bound keeps a message of thousands
/// of records from being walked once for each alias.
const WALKS_MAX: usize = 12;

/// DNAME records of a response that are looked at, more than its chain can go by. Each is compared with
/// each alias, label by label.
pub(super) const REDIRECTIONS_MAX: usize = 2 * NAMES_MAX;

/// The aliases from the name of a question on.
pub(super) struct Chain<'a> {
    names: [Name<'a>; NAMES_MAX],
    len: usize,
    /// Whether a record of the type that was asked for stands at its end.
    pub(super) found: bool,
    /// Whether it ends at a DNAME record that leads to a name that is too long.
    too_long: bool,
}

impl<'a> Chain<'a> {
    /// The name of the question alone.
    pub(super) fn new(reply: &Message<'a>, question: &Question<'a>) -> Self {
        Self {
            names: [question.name; NAMES_MAX],
            len: 1,
            found: false,
            too_long: reply.rcode() == Rcode::YXDOMAIN,
        }
    }

    /// Follows CNAME records by their names, in whatever order they stand, up to a name that was
    /// met before. A DNAME record comes with the CNAME record that it means (RFC 6672 section
    /// 3.1).
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

    /// Goes on to the target of an alias; `false` if there it ends.
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

    /// Its names, that of the question first.
    pub(super) fn names(&self) -> &[Name<'a>] {
        &self.names[..self.len]
    }

    /// The name at its end.
    pub(super) fn end(&self) -> Name<'a> {
        self.names[self.len - 1]
    }

    /// Whether one of its names is this one or below it.
    pub(super) fn is_below(&self, zone: &Name<'_>) -> bool {
        self.names().iter().any(|name| name.is_within(zone))
    }

    /// Whether anything leads on from the name of the question.
    pub(super) fn has_links(&self) -> bool {
        self.len > 1 || self.too_long
    }

    /// Whether a DNAME record with this owner leads on from its end, to a name that is too long.
    fn ends_below(&self, owner: &Name<'_>) -> bool {
        self.too_long && is_below(&self.end(), owner)
    }

    /// Each alias with its target.
    fn links(&self) -> impl Iterator<Item = (&Name<'a>, &Name<'a>)> {
        let names = self.names();
        names.iter().zip(&names[1..])
    }

    /// Whether a record makes one of its aliases: the CNAME record itself, or the DNAME record that
    /// it follows from.
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

    /// The TTL of each CNAME record that it goes by, if that follows from a DNAME record: a cache gives it the TTL of that
    /// record (RFC 6672 section 3.1). Servers that synthesise it for each query send it with 0.
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

    /// Which of its aliases a CNAME record with this owner is.
    pub(super) fn place_of(&self, owner: &Name<'_>) -> Option<usize> {
        self.links()
            .position(|(from, _)| from.eq_ignore_case(owner))
    }

    /// Whether it has an alias with this owner, or for DNAME one below it.
    pub(super) fn has_link_of(&self, rtype: Rtype, owner: &Name<'_>) -> bool {
        let has_link = self.links().any(|(from, _)| match rtype {
            Rtype::CNAME => owner.eq_ignore_case(from),
            Rtype::DNAME => is_below(from, owner),
            _ => false,
        });
        has_link || rtype == Rtype::DNAME && self.ends_below(owner)
    }
}

/// Whether a record is of the type that was asked for.
pub(super) fn is_wanted(question: &Question<'_>, record: &Record<'_>) -> bool {
    question.rtype == Rtype::ANY || record.rtype == question.rtype
}

/// The records of the answer section of a message whose records are sound.
pub(super) fn answers<'a>(message: &Message<'a>) -> impl Iterator<Item = Record<'a>> {
    let records = message.records().map_while(Result::ok);
    records.take(usize::from(message.ancount()))
}

fn is_below(name: &Name<'_>, ancestor: &Name<'_>) -> bool {
    name.wire_len() > ancestor.wire_len() && name.is_within(ancestor)
}

/// Whether a DNAME record leads from one name to another: what stands before its owner stands
/// before its target too (RFC 6672 section 2.2).
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
