//! Follows the CNAME chain from the name of a question.

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Record;

use super::survey::{Entry, Survey};
use crate::answer::names::{Id, Tree};

/// Largest number of names in a chain, including the name of the question. BIND 9 and Unbound
/// (`max-query-restarts` of both) follow 11 aliases, Knot Resolver 13, so resolvers send no longer
/// chains. Further records are removed from the response.
const NAMES_MAX: usize = 16;

/// The aliases from the name of a question.
pub(super) struct Chain<'s, 'a> {
    links: Vec<Link<'s, 'a>>,
    pub(super) end: Id,
    /// Whether the answer section has a record of the queried type at the end of the chain.
    pub(super) found: bool,
    /// The DNAME record that the chain ends at, because its target name is too long (RFC 6672
    /// section 2.2).
    too_long: Option<&'s Entry<'a>>,
    /// Whether the answer section has DNAME records.
    pub(super) redirections: bool,
}

/// An alias.
struct Link<'s, 'a> {
    from: Id,
    alias: &'s Entry<'a>,
    /// The DNAME record that the alias is synthesised from (RFC 6672 section 3.1).
    redirection: Option<&'s Entry<'a>>,
}

impl<'s, 'a> Chain<'s, 'a> {
    /// Follows CNAME records in any order, up to a name that is already in the chain.
    pub(super) fn follow(
        survey: &'s Survey<'a>,
        names: &Tree<'a>,
        asked: Id,
        qtype: Rtype,
        rcode: Rcode,
    ) -> Self {
        let mut chain = Self {
            links: Vec::new(),
            end: asked,
            found: false,
            too_long: None,
            redirections: survey
                .answers()
                .iter()
                .any(|entry| entry.record.rtype == Rtype::DNAME),
        };
        while chain.advance(survey, names, qtype) {}
        if rcode == Rcode::YXDOMAIN {
            chain.too_long = chain.redirection_of(chain.end, survey, names);
        }
        chain
    }

    /// Appends the alias of the chain's end; returns `false` if the chain ends there. If a name has
    /// both an alias and records of the queried type, the first record counts.
    fn advance(&mut self, survey: &'s Survey<'a>, names: &Tree<'a>, qtype: Rtype) -> bool {
        let from = self.end;
        let wanted = survey.wanted(from, qtype);
        let alias = survey.answer(from, Rtype::CNAME).filter(|alias| {
            let at = |entry: &Entry<'_>| entry.record.rdata_offset;
            wanted.is_none_or(|wanted| at(alias) < at(wanted))
        });
        let Some((alias, to)) = alias.and_then(|alias| Some((alias, alias.target?))) else {
            self.found = wanted.is_some();
            return false;
        };
        if self.links.len() + 1 == NAMES_MAX {
            return false;
        }
        let redirection = self.redirection_of(from, survey, names).filter(|dname| {
            dname
                .target
                .is_some_and(|target| names.is_redirected(from, to, dname.owner, target))
        });
        self.links.push(Link {
            from,
            alias,
            redirection,
        });
        self.end = to;
        self.links.iter().all(|link| link.from != to)
    }

    /// The nearest DNAME record above a name: there are no names below a DNAME record in its zone
    /// (RFC 6672 section 2.4).
    fn redirection_of(
        &self,
        name: Id,
        survey: &'s Survey<'a>,
        names: &Tree<'a>,
    ) -> Option<&'s Entry<'a>> {
        let mut above = names.up(name).skip(1).filter(|_| self.redirections);
        above.find_map(|owner| survey.answer(owner, Rtype::DNAME))
    }

    /// The names of the chain, beginning with that of the question.
    pub(super) fn names(&self) -> impl Iterator<Item = Id> {
        self.links.iter().map(|link| link.from).chain([self.end])
    }

    /// Whether the chain has an alias.
    pub(super) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// The records of the answer section that are part of the chain, from the name of the question
    /// on (RFC 1034 section 4.3.2): CNAME records, DNAME records that they are synthesised from, and
    /// signatures over these. A CNAME record that is synthesised has the TTL of the DNAME record, as
    /// in caches (RFC 6672 section 3.1): servers that synthesise it for each query send it with TTL
    /// 0.
    pub(super) fn records(&self, survey: &Survey<'a>) -> Vec<Record<'a>> {
        let part = |entry: &Entry<'a>| Some((self.place_of(entry)?, entry.record));
        let mut records: Vec<_> = survey.answers().iter().filter_map(part).collect();
        records.sort_by_key(|(place, _)| *place);
        let with_ttl = |(place, mut record): (usize, Record<'a>)| {
            let redirection = self.links.get(place).and_then(|link| link.redirection);
            if let Some(dname) = redirection.filter(|_| record.rtype == Rtype::CNAME) {
                record.ttl = dname.record.ttl;
            }
            record
        };
        records.into_iter().map(with_ttl).collect()
    }

    /// Index of the alias that a record belongs to.
    fn place_of(&self, entry: &Entry<'a>) -> Option<usize> {
        let is_part = |of: &Entry<'a>| match entry.covered {
            None => of.record.rdata_offset == entry.record.rdata_offset,
            Some(covered) => (of.record.rtype, of.owner) == (covered, entry.owner),
        };
        let mut links = self.links.iter();
        let place =
            links.position(|link| is_part(link.alias) || link.redirection.is_some_and(is_part));
        place.or_else(|| {
            self.too_long
                .filter(|of| is_part(of))
                .map(|_| self.links.len())
        })
    }
}
